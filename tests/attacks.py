#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""attacks.py [--write] [--commit COMMIT] [LOG ...]: on which kernels and drivers each attack and
each case of the suite ran, read from what the runs printed. A LOG is anything with the output of
`cgpu-guest attacks` or `suite` in it, as of `make test`, of tests/vm/run.sh or of
tests/driver/test.sh. Each run says itself on which kernel and driver it is.

--write puts that into docs/design/attacks.md. A run takes the place of the last one on the same
kernel and driver; the other columns stay. Without a LOG the page gets rows for new cases, and loses
those that are gone. The date is the log's. The commit is this tree's, with a + if files of it are
changed; for a log of another tree, name it.

attacks.py --check: the page has all cases, and what is in it was written by this program.
attacks.py --self-test: what is wrong with a log or with the page is found."""

import datetime
import re
import subprocess
import sys
import typing
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TREE / "tests/lint"))

import evidence  # noqa: E402  (the lint's folder has to be known first)

PAGE = TREE / "docs/design/attacks.md"
GUEST = TREE / "tests/replay/src/guest"
BEGIN, END = "<!-- made by tests/attacks.py -->\n", "<!-- end -->\n"
HEAD = re.compile(r"(attacks|suite) on Linux (\S+), (stand-in|driver) (\S+?)(?:, beside (\d+))?\s*$")
LINE = re.compile(r"(ok|left out|FAILED) +(.*?)\s*$")
TALLY = re.compile(r"(\d+) passed, (\d+) failed\s*$")
NEIGHBOURS = re.compile(r"\d+ neighbours\b")
WORDS = {"ok": "yes", "left out": "left out", "FAILED": "failed"}
NOT_RUN = "not run"
# Kernels and drivers that `make test`, `make test-debug` and `make test-hosts` run; what has not
# run yet has a column, too.
WANTED = {
    "attacks": (
        *("6.1 +15", "6.12 +15", "6.18 +15", "7.0 +15", "7.2", "7.2 +15", "7.3 +15"),
        *("7.2 debug +15", "550 on 7.2", "550 on 7.2 +15"),
    ),
    "suite": ("6.1", "6.12", "6.18", "7.0", "7.2", "7.3", "7.2 debug", "550 on 7.2"),
}
TITLES = {"attacks": ("Attacks", "attack"), "suite": ("Cases of the suite", "case")}
RUN_COLUMNS = ["column", "kernel", "driver", "others", "passed", "failed", "date", "commit"]


class Run(typing.NamedTuple):
    """A run: its kind and column, the rest of its row, and what it said of each case."""

    kind: str
    column: str
    row: list
    cells: dict
    # Of the attacks: directly and through an instance.
    said: dict


def column(kernel, is_real, version, beside):
    """The name of a column. A newer kernel of the same series, or driver of the same branch, has
    the same."""
    series = ".".join(kernel.split(".")[:2]) + (" debug" if kernel.endswith("-debug") else "")
    of_driver = f"{version.split('.')[0]} on " if is_real else ""
    return of_driver + series + (f" +{beside}" if beside else "")


def case_of(text, names):
    """The case that a line is about: the longest name that it begins with."""
    found = [n for n in names if text == n or text.startswith((f"{n} | ", f"{n}: "))]
    return max(found, key=len, default=None)


def runs_in(text, names, date, commit):
    """The runs in a log. One that has no end, or is of a case that nobody knows, is an error."""
    run = None
    for line in text.splitlines():
        head = HEAD.match(line)
        if head:
            if run:
                raise ValueError(f"{run.kind} on {run.column}: the run has no end")
            kind, kernel, driver, version, beside = head.groups()
            beside = int(beside or 0)
            release = re.sub(r"\+?(deb\d+)?-cloud-amd64$", "", kernel)
            row = [release, f"{driver} {version}", str(beside or "-"), date, commit]
            name = column(release, driver == "driver", version, beside)
            run = Run(kind, name, row, {}, {})
        elif run and (tally := TALLY.match(line)):
            run.row[3:3] = tally.groups()
            yield run
            run = None
        elif run and (found := LINE.match(line)) and not NEIGHBOURS.match(found.group(2)):
            case = case_of(found.group(2), names[run.kind])
            if not case:
                raise ValueError(f"{run.kind} on {run.column}: nobody knows {found.group(2)!r}")
            run.cells[case] = WORDS[found.group(1)]
            fields = found.group(2).split(" | ")
            if len(fields) > 3:
                run.said[case] = (fields[2], fields[3])
    if run:
        raise ValueError(f"{run.kind} on {run.column}: the run has no end")


def groups():
    """(title, names) of the attacks of each file, whose head is the title, and of the areas of the
    suite, with which names begin."""
    attacks, suite = [], {}
    of_guest = {str(path.relative_to(TREE)): path.read_text() for path in GUEST.rglob("*.rs")}
    files = evidence.cases_by_file(of_guest)
    for path, names in files["attacks"]:
        head = re.search(r"^//! (.*?)(?:[.:]\s|\n//!\n)", of_guest[path], re.M | re.S)
        title = re.sub(r" \(.*?\)", "", " ".join(head.group(1).replace("//! ", "").split()))
        attacks.append((title, names))
    for _, names in files["suite"]:
        for name in names:
            area = re.match(r"refused calls|[^:]*", name).group(0)
            suite.setdefault(area, []).append(name)
    return {"attacks": attacks, "suite": list(suite.items())}


def escaped(text):
    return text.replace("|", "\\|")


def rows_of(text):
    """The cells of a table's lines."""
    for line in text.splitlines():
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip()[1:-1])
            yield [cell.strip().replace("\\|", "|") for cell in cells]


class Page:
    """The page's data: rows of runs, cells of cases, what the attacks said."""

    def __init__(self, text=""):
        self.runs, self.cells, self.said = {}, {}, {}
        for chapter in re.split(r"^## ", text, flags=re.M)[1:]:
            kind = "attacks" if chapter.startswith("Attacks") else "suite"
            columns = []
            for row in rows_of(chapter):
                if row[0] in ("attack", "case"):
                    columns = row[1:]
                elif row[0] == "column" or set(row[0]) == {"-"}:
                    continue
                elif not columns and row[1] != NOT_RUN:
                    self.runs[kind, row[0]] = row[1:]
                elif columns:
                    cells = dict(zip(columns, row[1:]))
                    if kind == "attacks":
                        self.said[row[0]] = (cells.pop("directly"), cells.pop("in an instance"))
                    self.cells |= {(kind, name, row[0]): word for name, word in cells.items()}

    def take(self, run):
        """Replaces a column by a run's. What an attack said is taken of the stand-in: there it is
        made directly as well."""
        self.cells = {key: word for key, word in self.cells.items() if key[:2] != run[:2]}
        self.cells |= {(*run[:2], case): word for case, word in run.cells.items()}
        self.runs[run[:2]] = run.row
        for case, said in run.said.items():
            if run.row[1].startswith("stand-in") or case not in self.said:
                self.said[case] = said

    def columns(self, kind):
        ran = [name for of, name in self.runs if of == kind and name not in WANTED[kind]]
        return [*WANTED[kind], *sorted(ran)]

    def chapter(self, kind, all_groups):
        title, what = TITLES[kind]
        columns = self.columns(kind)
        lines = [f"## {title}", "", *table_head(RUN_COLUMNS)]
        for name in columns:
            row = self.runs.get((kind, name), [NOT_RUN, *[""] * (len(RUN_COLUMNS) - 2)])
            lines.append(f"| {' | '.join([name, *row])} |")
        for group, names in all_groups[kind]:
            said = ["directly", "in an instance"] if kind == "attacks" else []
            lines += ["", f"### {group}", "", *table_head([what, *said, *columns])]
            for name in names:
                told = map(escaped, self.said.get(name, ("", ""))) if said else ()
                cells = (self.cells.get((kind, column, name), NOT_RUN) for column in columns)
                lines.append(f"| {' | '.join([name, *told, *cells])} |")
        return "".join(f"{line.rstrip()}\n" for line in lines)

    def text(self, all_groups):
        return "\n".join(self.chapter(kind, all_groups) for kind in ("attacks", "suite"))


def table_head(columns):
    return [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]


def parts_of(page):
    """The page before, in and behind what this program writes."""
    before, begin, rest = page.partition(BEGIN)
    made, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} has no place for the tables")
    return before + begin, made, end + after


def update(page, runs, all_groups):
    """The page with these runs in it."""
    before, made, after = parts_of(page)
    data = Page(made)
    for run in runs:
        data.take(run)
    return f"{before}\n{data.text(all_groups)}\n{after}"


def tree_commit():
    """This tree's commit, with a + if its files are not those of it, and its time."""
    ask = lambda *words: subprocess.run(
        ("git", *words), cwd=TREE, check=True, capture_output=True, text=True
    ).stdout.strip()
    name = ask("describe", "--always", "--abbrev=8", "--dirty=+", "--exclude=*")
    return name, int(ask("log", "-1", "--format=%ct"))


def read(log, names, commit):
    """The runs in a file."""
    path = Path(log)
    time = path.stat().st_mtime
    if not commit:
        commit, committed = tree_commit()
        if time < committed:
            raise ValueError(f"{log} is older than this tree's commit: name its own with --commit")
    date = datetime.datetime.fromtimestamp(time, datetime.timezone.utc).date().isoformat()
    runs = list(runs_in(path.read_text(errors="replace"), names, date, commit))
    if not runs:
        raise ValueError(f"{log}: no run of `cgpu-guest attacks` or `suite` in it")
    return runs


def names_in(all_groups):
    return {kind: [n for _, names in of for n in names] for kind, of in all_groups.items()}


def write(texts):
    """Puts into the page what runs of this moment have printed (tests/hosts.py). Of one that broke
    off nothing is taken."""
    all_groups = groups()
    names = names_in(all_groups)
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    commit = tree_commit()[0]
    runs = []
    for text in texts:
        try:
            runs += list(runs_in(text, names, today, commit))
        except ValueError as error:
            print(f"attacks.py: {error}")
    PAGE.write_text(update(PAGE.read_text(), runs, all_groups))


def main(words):
    if words == ["--self-test"]:
        return self_test()
    all_groups = groups()
    names = names_in(all_groups)
    if words == ["--check"]:
        page = PAGE.read_text()
        is_whole = update(page, [], all_groups) == page
        print(f"attacks: {int(is_whole)} passed, {int(not is_whole)} failed")
        if not is_whole:
            print("FAILED docs/design/attacks.md has other cases: tests/attacks.py --write")
        return 0 if is_whole else 1
    commit = None
    if "--commit" in words[:-1]:
        at = words.index("--commit")
        commit = words[at + 1]
        del words[at : at + 2]
    logs = [word for word in words if word != "--write"]
    if any(word.startswith("-") for word in logs) or not words:
        sys.exit(__doc__)
    runs = [run for log in logs for run in read(log, names, commit)]
    for run in runs:
        print(f"{run.kind} on {run.column}: {len(run.cells)} cases, {', '.join(run.row)}")
    if "--write" in words:
        PAGE.write_text(update(PAGE.read_text(), runs, all_groups))
    return 0


def self_test():
    """Wrong logs are refused, and a page keeps what no log replaces."""
    names = {"attacks": ["a", "a: b"], "suite": ["c: d"]}
    all_groups = {"attacks": [("Group", names["attacks"])], "suite": [("c", names["suite"])]}
    head = "attacks on Linux 7.2.12+deb13-cloud-amd64, stand-in 580.1, beside 15\n"
    said = "ok      a | f.c:g | succeeds | refused: errno 22 | unharmed\nFAILED  a: b | f.c:g: it\n"
    ends = "ok      15 neighbours | 3 rounds | unharmed\n2 passed, 1 failed\n"
    read_log = lambda text: list(runs_in(text, names, "2026-11-30", "abc"))

    run = read_log(f"noise\n{head}{said}{ends}noise\n1 passed, 0 failed\n")
    assert len(run) == 1 and run[0].cells == {"a": "yes", "a: b": "failed"}, run
    assert run[0].column == "7.2 +15" and run[0].row[3:5] == ["2", "1"], run
    assert run[0].said == {"a": ("succeeds", "refused: errno 22")}, run
    for wrong in (head + said, head + head, f"{head}ok      x | y\n{ends}"):
        try:
            read_log(wrong)
        except ValueError:
            continue
        raise AssertionError(wrong)

    page = update(f"top\n{BEGIN}{END}bottom\n", run, all_groups)
    assert "| a | succeeds | refused: errno 22 |" in page and page.endswith("bottom\n"), page
    assert update(page, [], all_groups) == page
    # Another column comes beside it, a new run of the same takes its place.
    real = "suite on Linux 6.1.0-50-cloud-amd64, driver 550.163.01\nleft out c: d: why\n0 passed, 0 failed\n"
    both = Page(parts_of(update(page, read_log(real), all_groups))[1])
    assert both.cells["suite", "550 on 6.1", "c: d"] == "left out"
    assert both.cells["attacks", "7.2 +15", "a"] == "yes"
    fewer = f"{head}ok      a: b | f.c:g | - | it | unharmed\n{ends}"
    again = Page(parts_of(update(page, read_log(fewer), all_groups))[1])
    assert again.cells["attacks", "7.2 +15", "a"] == NOT_RUN
    assert again.cells["attacks", "7.2 +15", "a: b"] == "yes"
    # A case that is gone has no row, and a new one has one.
    others = {**all_groups, "attacks": [("Group", ["a", "e"])]}
    assert "| a: b |" not in update(page, [], others) and "| e |" in update(page, [], others)
    assert column("7.2.9-cgpu-debug", False, "580.1", 0) == "7.2 debug"
    print("attacks: 9 passed, 0 failed")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ValueError as error:
        sys.exit(f"attacks.py: {error}")
