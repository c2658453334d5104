# SPDX-License-Identifier: GPL-2.0
"""A program that uses the GPU for a part of each period by itself, with nothing of ours in between:
how much it does in that time, of what it does in as much time without pauses. What is missing is
the GPU's own doing, which lowers its clock while it is idle. Prints JSON.

    duty.py PERIOD_MS PERCENT...
"""

import subprocess
import sys
import time

import burn
import cuda

KERNEL_US = 200
SECONDS = 3.0


def clock_mhz():
    """The clock of the multiprocessors."""
    query = ["nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits"]
    return int(subprocess.check_output(query, text=True).split()[0])


def rate(work, steps, period_s, part):
    """Kernels in a second of busy time."""
    kernels, busy = 0, 0.0
    began = time.perf_counter()
    while time.perf_counter() < began + SECONDS:
        at = time.perf_counter()
        while time.perf_counter() < at + period_s * part:
            for _ in range(4):
                work.launch(steps, burn.BLOCKS)
            cuda.synchronize()
            kernels += 4
        busy += time.perf_counter() - at
        time.sleep(max(0.0, at + period_s - time.perf_counter()) if part < 1 else 0)
    return kernels / busy


def main():
    """Runs."""
    period_s = float(sys.argv[1]) / 1e3
    device = cuda.begin()
    work = burn.Work()
    work.time_us(1_000_000, 50)
    steps_per_us = 20_000_000 / (work.time_us(20_000_000) - work.time_us(1))
    steps = round(KERNEL_US * steps_per_us)
    whole = rate(work, steps, period_s, 1)
    for percent in sys.argv[2:]:
        part = rate(work, steps, period_s, float(percent) / 100)
        cuda.say(
            period_ms=period_s * 1e3,
            percent=float(percent),
            of_full_speed=round(part / whole, 4),
            clock_mhz_after=clock_mhz(),
        )
    cuda.end(device)


main()
