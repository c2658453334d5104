# SPDX-License-Identifier: GPL-2.0
"""Thinks for a while, launches one short kernel and waits for it, again and again: how long the
program waits each time, as JSON. Says "ready" and begins at the first line of its standard input,
as burn.py does.

    wake.py KERNEL_US SECONDS STEPS_PER_US [THINK_MS]
"""

import random
import statistics
import sys
import time

import burn
import cuda


def main():
    """Runs."""
    kernel_us, seconds, steps_per_us = (float(word) for word in sys.argv[1:4])
    think_s = float(sys.argv[4] if len(sys.argv) > 4 else 40) / 1e3
    # The same pauses each time.
    pauses = random.Random(1)
    device = cuda.begin()
    work = burn.Work()
    steps = max(1, round(kernel_us * steps_per_us))
    work.time_us(steps)
    print("ready", flush=True)
    sys.stdin.readline()
    waits = []
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        # Between half and one and a half times as long, so that no turn is met at the same place
        # each time.
        time.sleep(think_s * pauses.uniform(0.5, 1.5))
        at = time.perf_counter()
        work.launch(steps, burn.BLOCKS)
        cuda.synchronize()
        waits.append((time.perf_counter() - at) * 1e3)
    spent = time.perf_counter() - began
    waits.sort()
    cuda.say(
        kernels=len(waits),
        seconds=spent,
        rate=len(waits) / spent,
        longest_wait_ms=waits[-1],
        waits_ms={
            "median": round(statistics.median(waits), 3),
            "90 %": round(waits[len(waits) * 9 // 10], 3),
            "longest": round(waits[-1], 3),
        },
    )
    cuda.end(device)


main()
