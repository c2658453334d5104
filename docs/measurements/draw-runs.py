#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""draw-runs.py DATA.jsonl CASE OUT.svg: how long requests took in each run of a case, before a
change of the scheduler and after it.

DATA is what tests/gpu/peers.py prints, with `tree` (`before` or `after`) in each line. A dot is the
99th percentile of a run, a ring its median; the line is the 99th percentile of the service alone."""

import json
import sys

from svg import text, write

WIDTH, LEFT, RIGHT, ROW = 760, 90, 20, 46
COLOURS = {"before": "#ccbb44", "after": "#4477aa"}


def main():
    """Draws."""
    data, case, out = sys.argv[1:4]
    with open(data, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    runs = {tree: [r for r in rows if (r["tree"], r["case"]) == (tree, case)] for tree in COLOURS}
    service = case.split("/")[1].split(",", maxsplit=1)[0]
    solo = [r["waits_ms"][0][2] for r in rows if r["case"] == f"native/{service}"]
    alone = sum(solo) / len(solo)
    most = 1.05 * max(r["waits_ms"][0][2] for tree in runs.values() for r in tree)

    def across(milliseconds):
        return LEFT + (WIDTH - LEFT - RIGHT) * milliseconds / most

    height = 70 + ROW * len(runs)
    drawn = [text(10, 20, f"{case}: median (ring) and 99 % (dot) of each run, ms", size=13)]
    for mark in range(0, int(most), 100):
        drawn.append(text(across(mark), height - 10, mark, "middle", 11))
    x = across(alone)
    drawn.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="34" y2="{height - 26}" stroke="#888"/>')
    drawn.append(text(x + 4, 42, "99 % alone", size=11))
    for number, (tree, fill) in enumerate(COLOURS.items()):
        y = 66 + ROW * number
        drawn.append(text(LEFT - 24, y + 4, tree, "end"))
        for run in runs[tree]:
            median, _, worst, _ = run["waits_ms"][0]
            ring = f'<circle cx="{across(median):.1f}" cy="{y}" r="5" fill="none"'
            drawn.append(f'{ring} stroke="{fill}" stroke-width="2"/>')
            dot = f'<circle cx="{across(worst):.1f}" cy="{y}" r="5" fill="{fill}"'
            drawn.append(f'{dot} fill-opacity="0.7"/>')
    write(out, WIDTH, height, drawn)


if __name__ == "__main__":
    main()
