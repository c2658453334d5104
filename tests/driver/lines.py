#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""lines.py PART LOG: what NVIDIA's modules say in the kernel's log while a part of test.sh runs.
LOG is the machine's console. Each line that begins with NVRM, nvidia or nvidia-uvm has to fit a
row of lines.txt for this part, which says why it is there. Others fail, so that nothing new is
missed. So does a row of this part that no line fits, unless it is marked as one for some runs only.

lines.py --self-test: each of that is found."""

import re
import sys
from pathlib import Path

ROWS = Path(__file__).resolve().with_name("lines.txt")
SAID = re.compile(r"^\[ *\d+\.\d+\] ((?:NVRM|nvidia|nvidia-uvm)[ :].*)$")


def rows(text, part):
    """The patterns of a part, and whether each has to be there."""
    found = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        parts, when, pattern = line.split(" | ", 2)
        if parts == "all" or part in parts.split():
            found.append((re.compile(pattern), when == "always"))
    return found


def differences(text, part, log):
    """Lines of a log that no row has, each kind once, and rows that the log should have and has not."""
    wanted = rows(text, part)
    seen, told = set(), set()
    for line in log.splitlines():
        said = SAID.match(line.rstrip())
        if not said:
            continue
        fitting = [pattern for pattern, _ in wanted if pattern.search(said[1])]
        seen.update(fitting)
        plain = re.sub(r"0x[0-9a-fA-F]+|\d+", "N", said[1])
        if not fitting and plain not in told:
            told.add(plain)
            yield f"{part}: the kernel's log has a line that lines.txt has not: {said[1][:160]}"
    for pattern, must in wanted:
        if must and pattern not in seen:
            yield f"{part}: no line of the kernel's log fits {pattern.pattern}"


def self_test():
    text = "# x\nall | always | ^NVRM: loading\nsuite faults | sometimes | invalid mmap$\n"
    good = "[    1.000000] NVRM: loading 1\n[    2.000000] NVRM: VM: invalid mmap\r\nNVRM: no time\n"
    assert not list(differences(text, "suite", good))
    assert not list(differences(text, "suite", good.replace("invalid", "x invalid")))
    assert len(list(differences(text, "session", good))) == 1
    assert len(list(differences(text, "suite", good.replace("loading", "leading")))) == 2
    twice = good + "[    3.000000] nvidia-uvm: 0x1 2\n[    4.000000] nvidia-uvm: 0x3 4\n"
    assert len(list(differences(text, "suite", twice))) == 1
    print("lines: 5 passed, 0 failed")


def main(words):
    if words == ["--self-test"]:
        return self_test()
    part, log = words
    text = Path(log).read_text(encoding="utf-8", errors="replace")
    wrong = list(differences(ROWS.read_text(), part, text))
    for one in wrong:
        print(f"FAILED {one}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
