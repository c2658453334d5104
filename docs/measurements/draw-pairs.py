#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""draw-pairs.py DATA.jsonl PICTURE.svg: how far each pair of programs is from its shares, a square
for each pair and run.

DATA has a line for each pair, as tests/gpu/weights.py --pairs prints: `case`, `wanted`, `share`,
and `run`. The figure in a square is the larger of the two errors, in percent of the share."""

import json
import sys

from svg import text, write

CELL, LEFT, TOP, GAP = 40, 80, 70, 40
# Up to so many percent, and the fill.
FILLS = ((1, "#228833"), (2, "#bbcc33"), (5, "#ee8866"), (float("inf"), "#aa3377"))


def error(row):
    """The larger of the two errors, in percent."""
    pairs = zip(row["share"], row["wanted"])
    return max(abs(share - wanted) / wanted for share, wanted in pairs) * 100


def programs(row):
    """The two programs, without their weights."""
    parts = row["case"].split("/")[-1].split(",")
    return [part.split(":", 1)[1] for part in parts]


def grid(rows, left, title):
    """The squares of a run."""
    kinds = list(dict.fromkeys(programs(row)[0] for row in rows))
    drawn = [text(left + len(kinds) * CELL / 2, 20, title, "middle", 14)]
    drawn.append(text(left + len(kinds) * CELL / 2, 40, "the program of the smaller share", "middle", 11))
    for at, kind in enumerate(kinds):
        drawn.append(text(left + at * CELL + CELL / 2, TOP - 8, kind, "middle", 9))
        drawn.append(text(left - 4, TOP + at * CELL + CELL / 2 + 4, kind, "end", 9))
    for row in rows:
        first, second = programs(row)
        x, y = left + kinds.index(second) * CELL, TOP + kinds.index(first) * CELL
        off = error(row)
        fill = next(fill for most, fill in FILLS if off <= most)
        size = f'width="{CELL - 2}" height="{CELL - 2}"'
        drawn.append(f'<rect x="{x}" y="{y}" {size} fill="{fill}"/>')
        drawn.append(text(x + CELL / 2 - 1, y + CELL / 2 + 4, f"{off:.1f}", "middle", 11))
    return drawn, left + len(kinds) * CELL, TOP + len(kinds) * CELL


def main():
    """Draws all runs."""
    with open(sys.argv[1], encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    drawn, left, bottom = [], LEFT, TOP
    for run in sorted({row["run"] for row in rows}):
        of_run = [row for row in rows if row["run"] == run]
        weights = " : ".join(f"{100 * share:.0f}" for share in of_run[0]["wanted"])
        more, right, bottom = grid(of_run, left, f"run {run}, {weights}: percent off the share")
        drawn += more
        left = right + LEFT
    legend = "rows: the program of the larger share; kernel in microseconds : depth"
    drawn.append(text(LEFT, bottom + 20, legend, size=11))
    write(sys.argv[2], left - LEFT + GAP, bottom + 30, drawn)


if __name__ == "__main__":
    main()
