#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""draw-latency.py DATA.jsonl OUT.svg: request latency and both throughputs, by sharer.

DATA has a line for each case: `case` (SHARER/KIND[,KIND]), `rates`, `waits_ms` (median, 95 %,
99 %, longest)."""

import json
import sys

NAMES = {
    "native": "the driver",
    "hami": "HAMi-core",
    "mps": "MPS",
    "cgpu": "cgpu",
    "cgpu+": "cgpu, high priority",
}
PAIRS = ("serve@0.4,train", "serve@0.4,hpc")
WIDTH, BAR, LEFT, SCALE = 760, 16, 190, 240


def text(x, y, words, anchor="start", size=12):
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">{words}</text>'


def bar(x, y, width, fill):
    return f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{BAR - 4}" fill="{fill}"/>'


def main():
    data, out = sys.argv[1:]
    with open(data, encoding="utf-8") as lines:
        cases = {r["case"]: r for r in map(json.loads, lines) if "rates" in r}
    natives = [r for c, r in cases.items() if c.startswith("native/")]
    alone = {r["kinds"][0]: r for r in natives if len(r["kinds"]) == 1}
    drawn, y = [], 24
    for pair in PAIRS:
        service, other = pair.split(",")
        solo = alone[service]["waits_ms"][0]
        drawn.append(text(10, y, f"{service} beside {other}", size=14))
        drawn.append(text(LEFT, y, "median, times alone (capped at 10)"))
        drawn.append(text(LEFT + SCALE + 40, y, f"rates of alone: service, {other}"))
        y += 10
        for sharer, name in NAMES.items():
            found = cases.get(f"{sharer}/{pair}")
            if not found:
                continue
            times = found["waits_ms"][0][0] / solo[0]
            rates = [r / alone[k]["rates"][0] for r, k in zip(found["rates"], found["kinds"])]
            drawn.append(text(LEFT - 8, y + BAR - 4, name, "end"))
            drawn.append(bar(LEFT, y, min(times, 10) / 10 * SCALE * 0.8, "#4477aa"))
            end = LEFT + min(times, 10) / 10 * SCALE * 0.8 + 4
            drawn.append(text(end, y + BAR - 6, f"{times:.2f}", size=11))
            x = LEFT + SCALE + 40
            for rate, fill in zip(rates, ("#66ccee", "#ccbb44")):
                drawn.append(bar(x, y, rate * 110, fill))
                drawn.append(text(x + rate * 110 + 3, y + BAR - 6, f"{rate:.2f}", size=11))
                x += 150
            y += BAR + 4
        y += 30
    body = "\n".join(drawn)
    size = f'width="{WIDTH}" height="{y}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
    with open(out, "w", encoding="utf-8") as svg:
        svg.write(f'{head}\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


if __name__ == "__main__":
    main()
