#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""draw-allocation.py DATA.jsonl PICTURE.svg: how long a pod waits for its node, a dot for each pod
and a bar at the median, by the number of nodes and by whether the pod has a claim.

DATA has a line for each run of the case `a_thousand_nodes` of cgpu-dra/tests/cluster, as the case
prints it, with `kubernetes` beside it."""

import json
import math
import statistics
import sys

from svg import text, write

LEFT, TOP, HEIGHT, COLUMN = 60, 40, 300, 90
FILLS = {"claim_ms": "#aa3377", "plain_ms": "#4477aa"}
NAMES = {"claim_ms": "with a claim", "plain_ms": "without"}
# Milliseconds at the bottom and at the top; the scale is logarithmic.
LEAST, MOST = 8, 4000


def height(ms):
    """The place of a time."""
    part = math.log(min(max(ms, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return TOP + HEIGHT * (1 - part)


def axis(right):
    """Lines at round times."""
    drawn = []
    for ms in (10, 20, 50, 100, 200, 500, 1000, 2000):
        y = height(ms)
        drawn.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#dddddd"/>')
        drawn.append(text(LEFT - 6, y + 4, f"{ms}", "end", 11))
    drawn.append(text(LEFT - 6, TOP - 14, "ms", "end", 11))
    return drawn


def column(row, left):
    """The dots and medians of a run."""
    drawn = []
    for side, kind in enumerate(FILLS):
        middle = left + COLUMN * (0.3 + 0.4 * side)
        for at, ms in enumerate(row[kind]):
            x, y = middle + (at % 5 - 2) * 4, height(ms)
            drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{FILLS[kind]}"/>')
        y = height(statistics.median(row[kind]))
        bar = f'd="M{middle - 14:.1f} {y:.1f}h28" stroke="{FILLS[kind]}" stroke-width="2"'
        drawn.append(f"<path {bar}/>")
    bottom = TOP + HEIGHT
    drawn.append(text(left + COLUMN / 2, bottom + 18, f"{row['nodes']} nodes", "middle", 11))
    drawn.append(text(left + COLUMN / 2, bottom + 34, row["kubernetes"], "middle", 11))
    return drawn


def main():
    """Draws all runs."""
    with open(sys.argv[1], encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    right = LEFT + COLUMN * len(rows)
    drawn = axis(right)
    for at, row in enumerate(rows):
        drawn += column(row, LEFT + COLUMN * at)
    for at, kind in enumerate(FILLS):
        x = LEFT + 120 * at
        drawn.append(f'<rect x="{x}" y="8" width="10" height="10" fill="{FILLS[kind]}"/>')
        drawn.append(text(x + 16, 17, NAMES[kind], size=11))
    write(sys.argv[2], right + 20, TOP + HEIGHT + 50, drawn)


if __name__ == "__main__":
    main()
