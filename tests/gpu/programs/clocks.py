# SPDX-License-Identifier: GPL-2.0
"""The clock of the GPU while a program has a context and does nothing, and after it was killed.

    clocks.py [COMMAND...]     COMMAND runs the program, as `cgpu-gpu run --mem-mib 4096 --`;
                               without it the program runs by itself

Prints JSON: MHz every quarter of a second, before, meanwhile and after."""

import subprocess
import sys
import time
from pathlib import Path

import cuda

QUERY = [
    "nvidia-smi",
    "--query-gpu=clocks.sm,clocks_event_reasons.active",
    "--format=csv,noheader,nounits",
]


def clocks(seconds):
    """MHz, again and again."""
    seen = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        seen.append(int(subprocess.check_output(QUERY, text=True).split(",")[0]))
        time.sleep(0.25)
    return seen


def main():
    """Runs."""
    if sys.argv[1:] == ["idle"]:
        cuda.begin()
        print("ready", flush=True)
        time.sleep(60)
        return
    before = clocks(1)
    command = [*sys.argv[1:], sys.executable, __file__, "idle"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        child.stdout.readline()
        meanwhile = clocks(4)
        # The program itself, which the tool has started.
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split() or [
            str(child.pid)
        ]
        subprocess.run(["kill", "-9", *children], check=True)
        ended = time.monotonic()
        after = clocks(4)
        child.wait()
    cuda.say(
        before=before, meanwhile=meanwhile, after=after, after_s=round(time.monotonic() - ended, 1)
    )


main()
