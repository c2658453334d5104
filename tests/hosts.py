#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""hosts.py [--again] [--write] [SERIES ...]: the module as hosts build it, from the object by gcc
and headers alone (dist/object), on stock kernels of Debian's: SERIES, or those of KERNELS. It runs
on the stand-in driver, and on the real one (tests/driver), which is compiled for each kernel. If
KHEADERS and KIMAGE name a kernel (tests/vm/path-kernel.sh), it is that one; its SERIES is `path`.
Prints a table with a line for each kernel. --write puts it into docs/support.md, and a short form
into README.md; and what each attack and each case of the suite did into docs/design/attacks.md.
Steps run two at once, and those that passed are remembered, as in floors.py.

A cell is the number of cases that passed; where some failed, it says so, and what failed stands
below the table. A kernel for which the module cannot be built has the reason there. So has one that
Debian's mirror has no more (tests/vm/superseded.sha256), which is no failure."""

import collections
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
    """The release of a kernel that the module was built for, without what Debian adds."""
    built = subprocess.run(
        of_kernel(BUILD, kernel), cwd=floors.TREE, check=True, capture_output=True, text=True
    )
    # build.sh ends with the folder.
    folder = built.stdout.strip().splitlines()[-1]
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
        dropped = any(DROPPED.search(text) for text in telling)
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


def table(kernels, results):
    columns = ["kernel", *STEPS.values()]
    lines, sentences, failed = [columns, ["---"] * len(columns)], [], 0
    for kernel in kernels:
        name, cells, said, dropped = line(kernel, results)
        lines.append([name, *cells])
        sentences += said
        failed += 0 if dropped else len(said)
    text = "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
    if sentences:
        text += "\n" + "".join(f"* {line}\n" for line in sentences)
    return text, failed


def short(text):
    """The table with a sum for each kernel."""
    lines = ["| kernel | cases passed | failed |\n| --- | ---: | ---: |\n"]
    for line in text.splitlines()[2:]:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        good = sum(int(cell.split()[0]) for cell in cells if cell != "-")
        bad = sum(int(found) for found in re.findall(r"(\d+) failed", line))
        lines.append(f"| {name} | {good} | {bad if good + bad else 'not built'} |\n")
    return "".join(lines)


def write(text, place):
    before, begin, rest = place.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"hosts.py: {place} has no place for the table")
    place.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main():
    words = sys.argv[1:]
    kernels = [word for word in words if word not in ("--write", "--again")]
    kernels = kernels or (("path",) if os.environ.get("KHEADERS") else KERNELS)
    if any(word.startswith("-") for word in kernels):
        sys.exit("usage: hosts.py [--again] [--write] [SERIES ...]")
    # A path may name another kernel than it did before.
    before = floors.Before(floors.again() or "path" in kernels)
    all_steps = []
    for kernel in kernels:
        build, run = steps(kernel)
        all_steps += [build, *run.values()]
    if any(MAKER.name in step.after for step in all_steps):
        all_steps.insert(0, MAKER)
    said = collections.defaultdict(list)

    def carry_out(step, say):
        def keep(text):
            said[step.name].append(text)
            say(text)

        return floors.carry_out(step, before, keep)

    results = floors.carry_out_all(all_steps, carry_out, floors.JOBS)
    text, failed = table(kernels, results)
    print(text)
    if "--write" in words:
        # First: it names the commit, of which the other pages are files.
        attacks.write(map("".join, said.values()))
        write(text, PLACE)
        write(short(text), SHORT_PLACE)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
