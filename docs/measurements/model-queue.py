#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""model-queue.py: what a program that is bound by the processor can do at most beside a service that
has the GPU for itself while it has requests, and what the service loses if it lends it. A line for
each pace of the processor and each slot that the service lends.

A step of the program is 1,000 launches, a thousandth of STEP_MS of the GPU each. The processor makes
them at its pace until QUEUE of them wait, which is about what CUDA queues. Requests come at random,
are answered in their order, and take REQUEST_MS each."""

import random

LAUNCHES, QUEUE, STEP_MS = 1000, 1000, 10.2
REQUEST_MS, LOAD, SECONDS, SEED = 17.7, 0.4, 120, 7
# To take the GPU from the program and to give it back, as tests/gpu measured it.
TAKE_MS, GIVE_MS = 0.9, 0.5
TICK_MS = 0.05


def arrivals():
    """When requests come, in milliseconds."""
    chances, now, times = random.Random(SEED), 0.0, []
    while now < SECONDS * 1e3:
        now += chances.expovariate(LOAD / REQUEST_MS)
        times.append(now)
    return times


class Service:
    """The service's requests."""

    def __init__(self):
        self.coming, self.waiting, self.took = arrivals()[::-1], [], []
        self.left_ms = REQUEST_MS

    def hear(self, now):
        """Takes the requests that have come; whether it has work."""
        while self.coming and self.coming[-1] <= now:
            self.waiting.append(self.coming.pop())
        return bool(self.waiting)

    def work(self, now):
        """Has the GPU for a tick."""
        self.left_ms -= TICK_MS
        if self.left_ms <= 0:
            self.took.append(now - self.waiting.pop(0))
            self.left_ms = REQUEST_MS


def beside(step_ms, slot_ms, after_ms):
    """The program's rate of that alone, and the requests' median and 99th percentile, if the service
    lends the GPU for `slot_ms` each time it has had it for `after_ms`. A step takes the processor
    `step_ms`."""
    service, queued, done = Service(), 0.0, 0.0
    owner, switches_ms, had_ms = "program", 0.0, 0.0
    for tick in range(int(SECONDS * 1e3 / TICK_MS)):
        now = tick * TICK_MS
        has_work = service.hear(now)
        queued = min(queued + LAUNCHES / step_ms * TICK_MS, max(QUEUE, queued))
        if switches_ms > 0:
            switches_ms -= TICK_MS
            continue
        had_ms += TICK_MS
        if owner == "service":
            service.work(now)
            if not service.waiting or (slot_ms and had_ms >= after_ms):
                owner, switches_ms, had_ms = "program", GIVE_MS, 0.0
            continue
        ran = min(queued, LAUNCHES / STEP_MS * TICK_MS)
        queued, done = queued - ran, done + ran
        if has_work and had_ms >= slot_ms:
            owner, switches_ms, had_ms = "service", TAKE_MS, 0.0
    took = sorted(service.took)
    alone = SECONDS * 1e3 / max(step_ms, STEP_MS)
    return done / LAUNCHES / alone, took[len(took) // 2], took[len(took) * 99 // 100]


def main():
    """Prints the table."""
    print("step ms   slot    program   median ms   99 % ms")
    for step_ms in (15.5, 21.0, 25.0):
        for slot_ms, after_ms in ((0, 0), (3, 20), (5, 20), (10, 20)):
            rate, median, worst = beside(step_ms, slot_ms, after_ms)
            slot = f"{slot_ms}/{after_ms}" if slot_ms else "none"
            print(f"{step_ms:7} {slot:>6} {rate:10.2f} {median:11.1f} {worst:9.1f}")


if __name__ == "__main__":
    main()
