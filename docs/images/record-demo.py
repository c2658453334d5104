#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""record-demo.py [CAST]: runs `make demo` and writes what it prints beside this file: demo.cast
(asciinema's format, version 2) and demo.svg, which plays it. With CAST it runs nothing and draws
that recording.

Only what the demo prints is kept: the build before it takes as long as the machine lets it. Pauses
are between SHORTEST and LONGEST, because an emulated machine takes its time."""

import json
import re
import subprocess
import sys
import time
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
COMMAND = "make demo"
SHORTEST, LONGEST = 0.5, 1.5
# The last picture stays for so long before the recording starts again, seconds.
REST = 8
COLUMNS = 100
CHARACTER, LINE, MARGIN = 8.43, 20, 16


def record():
    """(seconds since the start, line) of what the command prints."""
    begun = time.monotonic()
    command = ["make", "--no-print-directory", "demo"]
    with subprocess.Popen(
        command, cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        for line in running.stdout:
            yield time.monotonic() - begun, line.rstrip("\n")
    if running.returncode:
        sys.exit(f"record-demo.py: {COMMAND} exited with {running.returncode}")


def played(printed):
    """The demo's own lines, at the times at which they are shown."""
    shown = [(0.0, f"$ {COMMAND}")]
    before = None
    for at, line in printed:
        # Steps of the test machine: `[  0s] programs`.
        if re.match(r"\[ *\d+s\] ", line):
            continue
        pause = LONGEST if before is None else min(max(at - before, SHORTEST), LONGEST)
        # The table comes at once.
        table = not line.startswith("demo: ") and not shown[-1][1].startswith("demo: ")
        shown.append((shown[-1][0] + (0 if table else pause), line))
        before = at
    if len(shown) < 5:
        sys.exit("record-demo.py: the demo printed too little")
    return shown


def as_cast(shown):
    """The recording as text."""
    head = {"version": 2, "width": COLUMNS, "height": len(shown) + 1, "title": COMMAND}
    events = [[round(at, 2), "o", line + "\r\n"] for at, line in shown]
    return "".join(json.dumps(part) + "\n" for part in (head, *events))


def from_cast(path):
    """Reads what `as_cast` wrote."""
    events = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return [(at, text.rstrip("\r\n")) for at, _, text in events]


def colour(line):
    """The class of a line: what was typed, what the operator does, or nothing special."""
    if line.startswith("$"):
        return "typed"
    return "full" if " inst set " in line else "out"


def as_svg(shown):
    """The recording as a picture that moves: each line appears at its time. A viewer without
    animations shows all lines."""
    whole = shown[-1][0] + REST
    width = int(COLUMNS * CHARACTER) + 2 * MARGIN
    height = len(shown) * LINE + 2 * MARGIN
    frames, lines = [], []
    for number, (at, line) in enumerate(shown):
        part = 100 * at / whole
        frames.append(f"@keyframes l{number}{{0%{{opacity:0}}{part:.2f}%,100%{{opacity:1}}}}")
        y = MARGIN + LINE * number + 14
        lines.append(
            f'<text class="{colour(line)}" x="{MARGIN}" y="{y}" xml:space="preserve"'
            f' style="animation-name:l{number}">{escape(line)}</text>'
        )
    style = (
        "text{font:14px ui-monospace,'DejaVu Sans Mono',monospace;"
        f"animation:{whole:.1f}s step-end infinite}}"
        ".out{fill:#d1d5db}.typed{fill:#6ee7b7}.full{fill:#fcd34d}"
        "@media (prefers-reduced-motion:reduce){text{animation:none}}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        ' aria-labelledby="title">\n'
        f'<title id="title">What {COMMAND} prints</title>\n'
        f"<style>{style}\n" + "\n".join(frames) + "\n</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#111827"/>\n'
        + "\n".join(lines)
        + "\n</svg>\n"
    )


def main():
    if sys.argv[1:]:
        shown = from_cast(Path(sys.argv[1]))
    else:
        shown = played(record())
        (HERE / "demo.cast").write_text(as_cast(shown))
    (HERE / "demo.svg").write_text(as_svg(shown))


if __name__ == "__main__":
    main()
