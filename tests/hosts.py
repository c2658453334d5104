#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""hosts.py [--write] [SERIES ...]: the module as hosts build it, from the object by gcc and headers
alone (dist/object), on stock kernels of Debian's: SERIES, or those of KERNELS. If KHEADERS and
KIMAGE name a kernel (tests/vm/path-kernel.sh), it is that one; its SERIES is `path`. Prints a table
with a line for each kernel. --write puts it into docs/support.md, and a short form into README.md.

A cell is the number of cases that passed; where some failed, it says so, and what failed stands
below the table. A kernel for which the module cannot be built has the reason there."""

import os
import re
import sys
from pathlib import Path

import floors

KERNELS = ("6.1", "6.12", "7.2", "newest")
# Steps of the test machine, as floors.py has them for the stock kernel, and their columns.
STEPS = {
    "suite": "suite",
    "attacks": "attacks",
    "storm": "storm",
    "storm of memory": "storm of memory",
    "hammer": "hammer",
    "race": "race",
    "weights and caps": "weights",
    "replays": "replays",
}
BUILD = ["tests/vm/build.sh"]
PLACE = floors.TREE / "docs/support.md"
SHORT_PLACE = floors.TREE / "README.md"
BEGIN, END = "<!-- made by tests/hosts.py -->\n", "<!-- end -->\n"


def of_kernel(command, kernel):
    """A command of the floors, for another kernel."""
    if "--kernel" not in command:
        return [*command, "--kernel", kernel]
    at = command.index("--kernel") + 1
    return [*command[:at], kernel, *command[at + 1 :]]


def steps():
    """(column, command) of each step."""
    found = {step.name: step.command for step in floors.VM if step.name in STEPS}
    if missing := set(STEPS) - set(found):
        sys.exit(f"hosts.py: floors.py has no step {', '.join(sorted(missing))}")
    return [(column, found[name]) for name, column in STEPS.items()]


def release(folder):
    """The release of the kernel that build.sh built for, without what Debian adds."""
    name = Path(folder, "release").read_text(encoding="utf-8").strip()
    return re.sub(r"\+?(deb\d+)?-cloud-amd64$", "", name)


def cell(code, tallies):
    """What a step says in the table."""
    good, bad = sum(t[0] for t in tallies), sum(t[1] for t in tallies)
    if code or bad:
        return f"{good} passed, {max(bad, 1)} failed"
    return str(good) if good else "passed"


def on_kernel(kernel):
    """(what a kernel is called, its cells, what failed)."""
    print(f"== module for {kernel}", flush=True)
    code, _, said = floors.run(of_kernel(BUILD, kernel))
    if code:
        reason = said[-1].strip()[:200] if said else "it did not say why"
        return kernel, ["-"] * len(STEPS), [f"{kernel}: the module is not built: {reason}"]
    # build.sh ends with the folder.
    name, cells, failed = release(said[-1].strip()), [], []
    for column, command in steps():
        print(f"== {column} on {name}", flush=True)
        code, tallies, said = floors.run(of_kernel(command, kernel))
        cells.append(cell(code, tallies))
        if code:
            telling = [line for line in said if "FAILED" in line] or said[-1:]
            failed += [f"{name}, {column}: {line.strip()[:200]}" for line in telling]
    return name, cells, failed


def table(kernels):
    columns = ["kernel", *STEPS.values()]
    lines, failed = [columns, ["---"] * len(columns)], []
    for kernel in kernels:
        name, cells, said = on_kernel(kernel)
        lines.append([name, *cells])
        failed += said
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    if failed:
        text += "\n" + "".join(f"* {line}\n" for line in failed)
    return text, len(failed)


def short(text):
    """The table with a sum for each kernel. A step that only says "passed" counts as one case."""
    lines = ["| kernel | cases passed | failed |\n| --- | ---: | ---: |\n"]
    for line in text.splitlines()[2:]:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        good = sum(int((re.match(r"\d+", cell) or ["1"])[0]) for cell in cells if cell != "-")
        bad = sum(int(found) for found in re.findall(r"(\d+) failed", line))
        lines.append(f"| {name} | {good} | {bad if '-' not in cells else 'not built'} |\n")
    return "".join(lines)


def write(text, place):
    before, begin, rest = place.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"hosts.py: {place} has no place for the table")
    place.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main():
    words = sys.argv[1:]
    kernels = [word for word in words if word != "--write"]
    kernels = kernels or (("path",) if os.environ.get("KHEADERS") else KERNELS)
    if any(word.startswith("-") for word in kernels):
        sys.exit("usage: hosts.py [--write] [SERIES ...]")
    text, failed = table(kernels)
    print(text)
    if "--write" in words:
        write(text, PLACE)
        write(short(text), SHORT_PLACE)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
