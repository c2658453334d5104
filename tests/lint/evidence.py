# SPDX-License-Identifier: GPL-2.0
"""The rule about SECURITY.md: each entry of what is checked says which tests show it, and each of
these tests exists. `shown` reads what is in backquotes behind "Shown by:":

* a file or folder: it is there, or below cgpu_km, and has tests;
* a name behind the word `attacks` or `suite`: a case of `cgpu-guest` has it in its name;
* a name behind a file: a function of that file has it in its name;
* `cgpu-guest WORD`: there is such a command.

Up to the next semicolon a name belongs to the word or the file before it. An entry without any of
these says that nothing shows it (NOTHING)."""

import re

import structure

PAGE = "SECURITY.md"
CHAPTER = re.compile(r"^## What is checked.*?\n(?=\*|###)(.*?)(?=^## |\Z)", re.M | re.S)
ENTRY = re.compile(r"^\* (.*?)(?=^\* |^#|\Z)", re.M | re.S)
SHOWN = re.compile(r"^  \* Shown by: (.*?)(?=^  \* |\Z)", re.M | re.S)
# A word or a semicolon between the names, or a name. A name may go on in the next line.
PIECE = re.compile(r"`([^`]+)`|\b(attacks|suite)\b(?=\s+`)|(;)")
NOTHING = re.compile(r"\bthe code alone\b|\bno test\b", re.I)
GUEST = "tests/replay/src/guest/"
PROGRAM = "tests/replay/src/bin/cgpu-guest.rs"
FILE = re.compile(r"[\w.-]+/[\w./-]+")
# The modules whose tests as a whole are named: `policy` tests.
MODULES = ("policy", "proxy", "nvidia")
# The page that says how many cases there are, and that a test in Rust compares with the programs.
COUNTED = "docs/testing.md"


def cases_by_file(files):
    """(path, names) of the files that declare cases, of the suite and of the attacks."""
    return {
        kind: [
            (path, names)
            for path, text in sorted(files.items())
            if path.startswith(f"{GUEST}{kind}/")
            and (names := [name for name, _ in structure.cases_in(path, text)])
        ]
        for kind in ("suite", "attacks")
    }


def cases(files):
    """The names of all cases of the suite, and of all attacks."""
    of_files = cases_by_file(files)
    return {kind: [name for _, names in of for name in names] for kind, of in of_files.items()}


def found(name, files):
    """The path of a file or folder that is named, and the text of it, or None."""
    for path in (name, f"cgpu_km/{name}"):
        inside = f"{path}/"
        below = [text for file, text in files.items() if file == path or file.startswith(inside)]
        if below:
            return path, "\n".join(below)
    return None


def has_tests(path, text):
    """Scripts are tests, and so is what is in a folder of tests. Other files have some."""
    return not path.endswith(".rs") or "/tests" in path or re.search(r"\btest\]", text)


class Named:
    """The names of one entry, read from left to right."""

    def __init__(self, files, all_cases):
        self.files, self.cases = files, all_cases
        self.owner, self.text = None, ""

    def fault(self, name):
        """The reason why a name is no test, or None."""
        if FILE.fullmatch(name):
            self.owner, self.text = found(name, self.files) or (None, "")
            if not self.owner:
                return "is not there"
            return None if has_tests(self.owner, self.text) else "has no tests"
        command = re.fullmatch(r"cgpu-guest ([\w-]+)", name)
        if command:
            variant = "".join(map(str.capitalize, command.group(1).split("-")))
            known = re.search(rf"^    {variant}(?:,| \{{)$", self.files.get(PROGRAM, ""), re.M)
            return None if known else "is no command"
        if name in MODULES and any(path.startswith(f"cgpu_km/{name}/") for path in self.files):
            return None
        part = name.rstrip("…")
        if self.owner in self.cases:
            is_known = any(part in case for case in self.cases[self.owner])
            return None if is_known else f"is in no name of the {self.owner}"
        if self.owner:
            is_known = re.search(rf"\bfn \w*{re.escape(part)}", self.text)
            return None if is_known else f"is no function of {self.owner}"
        return "stands behind no word that says what it is (attacks, suite, a file)"

    def faults(self, text):
        """(name, reason) of those that are no test; None for the name if there is no name."""
        count = 0
        for piece in PIECE.finditer(text):
            name, word, semicolon = piece.groups()
            if name:
                count += 1
                why = self.fault(" ".join(name.split()))
                if why:
                    yield name, why
            else:
                self.owner = None if semicolon else word
        if not count and not NOTHING.search(text):
            yield None, "names no test, and does not say that none shows it"


def shown(files, paths):
    """Each entry of SECURITY.md names tests that exist."""
    text = files.get(PAGE, "")
    all_cases = cases(files)
    chapter = CHAPTER.search(text)
    for entry in ENTRY.finditer(text, *chapter.span(1)) if chapter else ():
        line = text.count("\n", 0, entry.start()) + 1
        said = list(SHOWN.finditer(entry.group(0)))
        if not said:
            yield PAGE, line, "an entry without `Shown by:`"
        for part in said:
            at = line + entry.group(0).count("\n", 0, part.start())
            for name, why in Named(files, all_cases).faults(part.group(1)):
                yield PAGE, at, f"{name or 'the entry'} {why}"


def counted(files, paths):
    """The page says how many cases there are: as many as `shown` knows."""
    text = files.get(COUNTED, "")
    for kind, names in cases(files).items():
        row = re.search(rf"^\| the {kind} \| *(\d+) ", text, re.M)
        if row and int(row.group(1)) != len(names):
            yield COUNTED, 0, f"{row.group(1)} cases of the {kind}: {len(names)} are declared"


RULES = (shown, counted)
