#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""hosts.py [--again] [--write] [SERIES ...]: the module as hosts build it, from the object by gcc
and headers alone (dist/object), on stock kernels of Debian's: SERIES, or those of KERNELS. It runs
on the stand-in driver, and on the real one (tests/driver), which is compiled for each kernel. If
KHEADERS and KIMAGE name a kernel (tests/vm/path-kernel.sh), it is that one; its SERIES is `path`.
Prints a table with a line for each kernel, which names the commit. --write puts these lines into
docs/support.md, beside those of other kernels, and a short form of all into README.md; and what
each attack and each case of the suite did into docs/design/attacks.md. It needs a commit without
changes. Steps run two at once, and those that passed are remembered with what they said, as in
floors.py. `--self-test` looks whether lines come in their place.

A cell is the number of cases that passed; where some failed, it says so, and what failed stands
below the table. A kernel for which the module cannot be built has the reason there. So has one that
Debian's mirror has no more (tests/vm/superseded.sha256), which is no failure."""

import datetime
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import attacks
import floors

KERNELS = ("6.1", "6.12", "6.18", "7.0", "7.2", "newest")
# Steps of floors.py's for the stock kernel, and their columns.
STEPS = {
    "suite": "suite",
    "attacks": "attacks",
    "storm": "storm",
    "storm of memory": "storm of memory",
    "storm of pages": "storm of pages",
    "hammer": "hammer",
    "race": "race",
    "weights and caps": "weights",
    "replays": "replays",
    "container engines": "engines",
    "package": "package",
    "real driver: suite and attacks": "real driver: suite",
    "real driver: programs": "real driver: programs",
}
# The package is always tried on this kernel, and on one more.
PACKAGED = "7.2"
BUILD = ["tests/vm/build.sh"]
# That of the kernel on which the package is made.
MAKER = floors.Step("module for the package's own kernel", BUILD)
COLUMNS = ["kernel", "run of", *STEPS.values()]
PLACE = floors.TREE / "docs/support.md"
SHORT_PLACE = floors.TREE / "README.md"
# Said by host-kernel.sh of a kernel that was to be had once.
DROPPED = re.compile(r"the mirror has \S+ no more")
BEGIN, END = "<!-- made by tests/hosts.py -->\n", "<!-- end -->\n"


def of_kernel(command, kernel):
    """A command of the floors, for another kernel."""
    if "--kernel" not in command:
        return [*command, "--kernel", kernel]
    at = command.index("--kernel") + 1
    return [*command[:at], kernel, *command[at + 1 :]]


def steps(kernel):
    """The steps of a kernel: the one that builds the module for it, and by their columns those that
    run on it."""
    found = {step.name: step.command for step in floors.VM + floors.DRIVER if step.name in STEPS}
    if missing := set(STEPS) - set(found):
        sys.exit(f"hosts.py: floors.py has no step {', '.join(sorted(missing))}")
    build = floors.Step(f"module for {kernel}", of_kernel(BUILD, kernel))
    run = {}
    for name, column in STEPS.items():
        command = of_kernel(found[name], kernel)
        if name == "package" and kernel == "path":
            # Its headers need not be where a package of Debian's puts them.
            continue
        if name == "package" and kernel == PACKAGED:
            command = found[name]
        after = (build.name, MAKER.name) if name == "package" else (build.name,)
        run[column] = floors.Step(f"{column} on {kernel}", command, after)
    return build, run


def release(kernel):
    """The release of a kernel that the module was built for, without what Debian adds. build.sh
    remembers where its folder is."""
    place = hashlib.sha256(f"{floors.TREE}\n".encode()).hexdigest()[:12]
    remembered = floors.CACHE / f"build-{place}" / f"last-{kernel}"
    folder = remembered.read_text(encoding="utf-8").strip()
    name = Path(folder, "release").read_text(encoding="utf-8").strip()
    return re.sub(r"\+?(deb\d+)?-cloud-amd64$", "", name)


def cell(result):
    """The cell of a step in the table."""
    return f"{result.passed} passed, {result.failed} failed" if result.failed else result.passed


def line(kernel, results):
    """The name of a kernel, its cells, and a sentence for each failure. A kernel that is not to be
    had any more has a sentence, and is no failure: the last value says so."""
    build, run = steps(kernel)
    if results[build.name].failed:
        telling = results[build.name].telling
        reason = [text.strip()[:200] for text in telling][-1:] or ["it did not say why"]
        # Another failure of the network is one.
        dropped = any(map(DROPPED.search, telling)) and any("404" in text for text in telling)
        said = [f"{kernel}: the module is not built: {reason[0]}"]
        return kernel, ["-"] * len(STEPS), said, dropped
    name, failed = release(kernel), []
    for column, step in run.items():
        if results[step.name].failed:
            said = results[step.name].telling
            telling = [text for text in said if "FAILED" in text] or list(said)[-1:]
            failed += [f"{name}, {column}: {text.strip()[:200]}" for text in telling]
    cells = [cell(results[run[column].name]) if column in run else "-" for column in STEPS.values()]
    return name, cells, failed, False


class Table:
    """Lines by the kernel's name, and sentences, each of which begins with such a name."""

    def __init__(self, lines, sentences):
        self.lines, self.sentences = lines, sentences

    @classmethod
    def of_results(cls, kernels, results, when):
        """The table of a run, with the commit and the day `when` it ran; how many steps failed."""
        lines, sentences, failed = {}, [], 0
        for kernel in kernels:
            name, cells, said, dropped = line(kernel, results)
            lines[name] = [name, when, *map(str, cells)]
            sentences += said
            failed += 0 if dropped else len(said)
        return cls(lines, sentences), failed

    @classmethod
    def of_text(cls, text):
        """The table as it was written; none, if it has other columns."""
        rows = [row for row in text.splitlines() if row.startswith("|")]
        cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
        if not cells or cells[0] != COLUMNS:
            return cls({}, [])
        sentences = [row[2:] for row in text.splitlines() if row.startswith("* ")]
        return cls({row[0]: row for row in cells[2:]}, sentences)

    def joined(self, newer):
        """This table with the lines of a newer one. A line goes with one of its kernel's series."""
        replaced = {series(name) for name in newer.lines}
        kept = {name: row for name, row in self.lines.items() if series(name) not in replaced}
        lines = sorted((kept | newer.lines).items(), key=lambda entry: parts(entry[0]))
        old = [said for said in self.sentences if re.split("[,:]", said)[0] in kept]
        return Table(dict(lines), old + newer.sentences)

    def text(self):
        rows = [COLUMNS, ["---"] * len(COLUMNS), *self.lines.values()]
        text = "".join(f"| {' | '.join(row)} |\n" for row in rows)
        if self.sentences:
            text += "\n" + "".join(f"* {said}\n" for said in self.sentences)
        return text

    def short(self):
        """The table with a sum for each kernel."""
        rows = ["| kernel | run of | cases passed | failed |\n| --- | --- | ---: | ---: |\n"]
        for name, when, *cells in self.lines.values():
            good = sum(int(cell.split()[0]) for cell in cells if cell != "-")
            bad = sum(int(found) for cell in cells for found in re.findall(r"(\d+) failed", cell))
            rows.append(f"| {name} | {when} | {good} | {bad if good + bad else 'not built'} |\n")
        return "".join(rows)


def parts(name):
    """A release as numbers, to sort by."""
    return [int(number) for number in re.findall(r"\d+", name)]


def series(name):
    """The series of a release, as (6, 12)."""
    return tuple(parts(name)[:2]) or name


def between(place):
    """A page before its table, the table, and behind it."""
    before, begin, rest = place.read_text().partition(BEGIN)
    found, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"hosts.py: {place} has no place for the table")
    return before, found, after


def write(text, place):
    before, _, after = between(place)
    place.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def said_before(before, command):
    """The file with what a step said when it passed."""
    return before.place(command).with_suffix(".said")


def self_test():
    """A line comes in its kernel's place, and others stay."""
    cells = ["1"] * len(STEPS)
    row = lambda name, when, *more: [name, when, *more, *cells[len(more) :]]
    old = Table(
        {"6.1.0-50": row("6.1.0-50", "a"), "7.3.4": row("7.3.4", "a", "0 passed, 1 failed")},
        ["7.3.4, suite: it fails", "6.1.0-50: it is old"],
    )
    assert Table.of_text(old.text()).text() == old.text()
    newer = Table({"7.3.5": row("7.3.5", "b"), "6.12.9": row("6.12.9", "b")}, [])
    both = old.joined(newer)
    assert list(both.lines) == ["6.1.0-50", "6.12.9", "7.3.5"], both.lines
    assert both.sentences == ["6.1.0-50: it is old"], both.sentences
    assert "| 7.3.4 | a | 13 | 1 |" not in both.short()
    assert f"| 7.3.4 | a | {len(STEPS) - 1} | 1 |" in old.short(), old.short()
    assert Table.of_text("| kernel | suite |\n| --- | --- |\n| 6.1 | 1 |\n").lines == {}
    print("hosts: 1 passed, 0 failed")
    return 0


def commit_without_changes():
    """The commit of this tree and its day, as the table has it."""
    ask = lambda *words: subprocess.run(
        ["git", *words], cwd=floors.TREE, check=True, capture_output=True, text=True
    ).stdout.strip()
    if ask("status", "--porcelain"):
        sys.exit("hosts.py: --write names the commit that was tried: commit what is changed")
    return f"{ask('rev-parse', '--short=8', 'HEAD')}, {datetime.date.today().isoformat()}"


def main():
    words = sys.argv[1:]
    if words == ["--self-test"]:
        return self_test()
    kernels = [word for word in words if word not in ("--write", "--again")]
    kernels = kernels or (("path",) if os.environ.get("KHEADERS") else KERNELS)
    if any(word.startswith("-") for word in kernels):
        sys.exit("usage: hosts.py [--again] [--write] [SERIES ...]")
    when = commit_without_changes() if "--write" in words else "-"
    # A path may name another kernel than it did before.
    before = floors.Before(floors.again() or "path" in kernels)
    all_steps = []
    for kernel in kernels:
        build, run = steps(kernel)
        all_steps += [build, *run.values()]
    if any(MAKER.name in step.after for step in all_steps):
        all_steps.insert(0, MAKER)
    said = {}

    def carry_out(step, say):
        kept, place = [], said_before(before, step.command)
        known = before.passed(step.command) is not None
        result = floors.carry_out(step, before, lambda text: (kept.append(text), say(text)))
        if known:
            kept = [place.read_text()] if place.exists() else []
        elif before.passed(step.command) is not None:
            place.write_text("".join(kept))
        said[step.name] = "".join(kept)
        return result

    results = floors.carry_out_all(all_steps, carry_out, floors.JOBS)
    table, failed = Table.of_results(kernels, results, when)
    print(table.text())
    if "--write" in words:
        if floors.content() != before.content:
            sys.exit("hosts.py: the tree has changed meanwhile, so nothing is written")
        # First: it names the commit, of which the other pages are files.
        attacks.write(said.values())
        table = Table.of_text(between(PLACE)[1]).joined(table)
        write(table.text(), PLACE)
        write(table.short(), SHORT_PLACE)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
