#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""draw-latency.py DATA.jsonl SHARERS.svg [PERIODS.svg]: how long requests take and what both tenants
do, by sharer; how long tokens take and what both do, by period and sharer.

DATA is what tests/gpu/peers.py prints: a line for each case, `case` (SHARER/KIND[,KIND]), `rates`,
`waits_ms` (median, 95 %, 99 %, longest). A kind that was measured alone several times counts by its
mean, unless a line says what the second tenant did `alone` in turn with it. If the lines name several
machines, those of the first are drawn."""

import json
import sys

from svg import text, write

SHARERS = {
    "native": "the driver",
    "hami": "HAMi-core",
    "mps": "MPS",
    "cgpu": "cgpu",
    "cgpu+": "cgpu, high priority",
}
PERIODS = {
    "native": "the driver",
    "hami": "HAMi-core",
    "mps": "MPS",
    "cgpu-interactive": "cgpu, interactive",
    "cgpu": "cgpu, latency",
    "cgpu-throughput": "cgpu, throughput",
}
PAIRS = ("serve@0.4,train", "serve@0.4,hpc")
TOKENS = "llm,train"
WIDTH, BAR, LEFT, SCALE = 760, 16, 190, 190
MOST_TIMES, MOST_MS = 10, 60
BLUE, CYAN, YELLOW = "#4477aa", "#66ccee", "#ccbb44"


def bar(x, y, width, fill, label):
    """A bar with its figure."""
    rect = f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{BAR - 4}" fill="{fill}"/>'
    return [rect, text(x + width + 4, y + BAR - 6, label, size=11)]


class Data:
    """The measured figures."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as lines:
            rows = [r for r in map(json.loads, lines) if "rates" in r]
        rows = [r for r in rows if r.get("machine") == rows[0].get("machine")]
        self.cases = {r["case"]: r for r in rows}
        alone = [r for r in rows if r["sharer"] == "native" and len(r["kinds"]) == 1]
        kinds = {r["kinds"][0] for r in alone}
        self.rate = {}
        for kind in kinds:
            rates = [r["rates"][0] for r in alone if r["kinds"] == [kind]]
            self.rate[kind] = sum(rates) / len(rates)

    def of_alone(self, case):
        """The rates of a case, as parts of those alone."""
        row = self.cases[case]
        alone = [self.rate[kind] for kind in row["kinds"]]
        alone[-1] = row.get("alone", alone[-1])
        return [rate / of for rate, of in zip(row["rates"], alone)]


def rows(data, names, pair, y, figure):
    """A row for each sharer: `figure` gives the first bar's length and label, two more bars are the
    rates."""
    drawn = []
    for sharer, name in names.items():
        case = f"{sharer}/{pair}"
        if case not in data.cases:
            continue
        drawn.append(text(LEFT - 8, y + BAR - 6, name, "end"))
        part, label = figure(data.cases[case])
        drawn += bar(LEFT, y, min(part, 1) * SCALE, BLUE, label)
        for at, (rate, fill) in enumerate(zip(data.of_alone(case), (CYAN, YELLOW))):
            drawn += bar(LEFT + SCALE + 60 + at * 150, y, rate * 90, fill, f"{rate:.2f}")
        y += BAR + 4
    return drawn, y


def sharers(data):
    """Requests, by sharer."""
    drawn, y = [], 24
    for pair in PAIRS:
        service, other = pair.split(",")
        solo = data.cases[f"native/{service}"]["waits_ms"][0][0]

        def times(row, solo=solo):
            slower = row["waits_ms"][0][0] / solo
            return slower / MOST_TIMES, f"{slower:.2f}"

        drawn.append(text(10, y, f"{service} beside {other}", size=14))
        drawn.append(text(LEFT, y, f"median, times alone (bars end at {MOST_TIMES})", size=11))
        drawn.append(text(LEFT + SCALE + 60, y, f"rates of alone: service, {other}", size=11))
        more, y = rows(data, SHARERS, pair, y + 10, times)
        drawn += more
        y += 30
    return drawn, y - 20


def periods(data):
    """Tokens, by period and sharer."""

    def token(row):
        worst = row["waits_ms"][0][2]
        return worst / MOST_MS, f"{worst:.1f}"

    one, other = TOKENS.split(",")
    drawn = [
        text(10, 24, f"{one} beside {other}", size=14),
        text(LEFT, 24, "99 % of a token, ms", size=11),
        text(LEFT + SCALE + 60, 24, f"rates of alone: {one}, {other}", size=11),
    ]
    more, y = rows(data, PERIODS, TOKENS, 34, token)
    return drawn + more, y + 10


def main():
    """Draws what there is a path for."""
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: draw-latency.py DATA.jsonl SHARERS.svg [PERIODS.svg]")
    data = Data(sys.argv[1])
    for draw, path in zip((sharers, periods), sys.argv[2:4]):
        drawn, height = draw(data)
        write(path, WIDTH, height, drawn)


if __name__ == "__main__":
    main()
