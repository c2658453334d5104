#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""counted.py SCRIPT FILE [EMULATOR]: docs/testing.md says how many cases a script of this folder
has, and how many of the suite's cases and of the attacks run there. FILE is what the script
printed. EMULATOR is what the emulated GPU printed: the document says, too, how many kinds of
questions it was asked in session.sh. Fails if the document says something else, so that it does not
grow old.

counted.py --self-test: each number that is wrong is found."""

import re
import sys
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/testing.md"
TALLY = re.compile(r"^(?:(\w+): )?(\d+) passed, \d+ failed$", re.M)
# The script in which the emulator's kinds are counted, and a line of the emulator's about them.
SESSION = "session.sh"
KINDS = re.compile(r"(messages|controls|classes): (\d+) kinds known, (\d+) recorded, (\d+) by echo")
# Known kinds that a session may ask or not: UVM asks for NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS only
# where it finds an interrupt that nobody has served yet (uvm_gpu.c).
BY_CHANCE = {"controls": 1}
# The script whose first two sums, which have no name, are those of these rows.
SUITE, ROWS = "suite.sh", ("the suite", "the attacks")


def cell(document, row, column):
    """A number in a table of the document, or None."""
    found = re.search(rf"^\| {re.escape(row)} \|(.*)\|$", document, re.M)
    cells = found.group(1).split("|") if found else []
    return int(cells[column]) if len(cells) > column and cells[column].strip().isdigit() else None


def differences(document, script, said, emulator=""):
    """Numbers in the document that differ from what a script and the emulator have counted."""
    # The emulator's sum is the same for each script.
    sums = [(name, int(count)) for name, count in TALLY.findall(said) if name != "emulator"]
    counted = {f"`tests/driver/{script}`": (0, sum(count for _, count in sums))}
    if script == SUITE:
        unnamed = [count for name, count in sums if not name]
        counted |= {row: (1, count) for row, count in zip(ROWS, unnamed, strict=True)}
    for row, (column, count) in counted.items():
        there = cell(document, row, column)
        if there != count:
            yield f"docs/testing.md says {there} cases of {row}: {count} ran"
    if script == SESSION:
        for kind, *counts in KINDS.findall(emulator):
            there = [cell(document, f"kinds of {kind}", column) for column in range(3)]
            asked = [int(count) for count in counts]
            more = asked[0] - (there[0] or 0)
            if there[1:] != asked[1:] or not 0 <= more <= BY_CHANCE.get(kind, 0):
                yield f"docs/testing.md says {there} kinds of {kind}: {', '.join(counts)} were asked"


def self_test():
    document = "| `tests/driver/suite.sh` | 9 | all |\n| the suite | 8 | 2 |\n| the attacks | 7 | 3 |\n"
    said = "2 passed, 0 failed\n3 passed, 0 failed\nsuite: 4 passed, 0 failed\n"
    emulator = "emulator: 5 kinds known: 1 passed, 0 failed\nemulator: 1 passed, 0 failed\n"
    assert not list(differences(document, SUITE, said + emulator))
    for number in ("9", "2", "3"):
        assert len(list(differences(document.replace(number, "6"), SUITE, said))) == 1, number
    assert len(list(differences(document, "orders.sh", "orders: 4 passed, 0 failed\n"))) == 1
    document = "| `tests/driver/session.sh` | 4 | all |\n| kinds of messages | 1 | 0 | 2 |\n"
    said = "session: 4 passed, 0 failed\n"
    document += "| kinds of controls | 1 | 0 | 2 |\n"
    for kind, known, echoes, wrong in (
        ("messages", 1, 2, 0),
        ("messages", 1, 3, 1),
        ("messages", 2, 2, 1),
        ("controls", 2, 2, 0),
        ("controls", 0, 2, 1),
        ("controls", 3, 2, 1),
        ("controls", 2, 3, 1),
    ):
        emulator = f"gpu 0: {kind}: {known} kinds known, 0 recorded, {echoes} by echo; 9 calls\n"
        assert len(list(differences(document, SESSION, said, emulator))) == wrong, emulator
    print("counted: 12 passed, 0 failed")


def main(words):
    if words == ["--self-test"]:
        return self_test()
    script, *files = words
    texts = [Path(file).read_text() for file in files]
    wrong = list(differences(DOCUMENT.read_text(), script, *texts))
    for one in wrong:
        print(f"FAILED {one}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
