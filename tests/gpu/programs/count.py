#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""How much a program does in a span of time, where several compete and all count in the same one.

count.py --self-test       programs with a part of a GPU that is a program say what that part is
"""

import select
import sys
import time


def line():
    """A line of the standard input, an empty one at its end; nothing if none is there yet."""
    return sys.stdin.readline().strip() if select.select([sys.stdin], [], [], 0)[0] else None


class Count:
    """Counts what ends between two moments of the system's monotonic clock, with the parts of what
    was running at them: of a kernel that was for a third of its time inside, a third. A line of the
    standard input says when the span begins, the same for all, whenever they read it; at the
    input's end it begins at once. Once it is over, `say` is called with the figures. The program
    goes on until its input has ended, so that who counts to the end of a longer kernel has the same
    company until then."""

    def __init__(self, seconds, say, read=line):
        self.seconds, self.say, self.read = seconds, say, read
        self.begins = self.from_count = None
        self.is_said = False
        self.ended = 0
        self.last = self.longest = 0.0

    def until(self, moment, now):
        """How many had ended at a moment between the end of the last one and now, the end of this
        one."""
        part = (moment - self.last) / (now - self.last) if self.ended and now > self.last else 1.0
        return self.ended + min(max(part, 0.0), 1.0)

    def goes_on(self, waited, now, listen=True):
        """Notes that one has ended now, for which the program has waited since `waited`; whether
        the program is to go on. `listen`: reads what the input says."""
        if listen and (self.begins is None or self.is_said):
            said = self.read()
            if said is not None:
                if self.is_said:
                    return False
                self.begins = float(said) if said else now
        if self.begins is not None and now >= self.begins and not self.is_said:
            if self.from_count is None:
                self.from_count = self.until(self.begins, now)
            ends = self.begins + self.seconds
            # One that is waited for at the end of the span counts up to there.
            self.longest = max(self.longest, min(now, ends) - max(waited, self.begins))
            if now >= ends:
                count = self.until(ends, now) - self.from_count
                self.is_said = True
                self.say(
                    kernels=round(count, 3),
                    seconds=self.seconds,
                    rate=count / self.seconds,
                    longest_wait_ms=self.longest * 1e3,
                )
        self.ended, self.last = self.ended + 1, now
        return True


def ends_of(kernel_s, part, turn_s, offset_s):
    """When the kernels of a program end that has a part of each turn of a GPU, at the turn's end."""
    window, work = part * turn_s, 0.0
    while True:
        work += kernel_s
        turns, rest = divmod(work, window)
        yield offset_s + turns * turn_s + (turn_s - window) + rest


class Told(Exception):
    """The text that a program prints."""


def share(kernel_s, part, turn_s, offset_s, seconds):
    """The text that such a program prints of its part of the GPU. It is told of the span shortly
    before that begins, one second in."""

    def say(rate, **_):
        raise Told(rate * kernel_s)

    now = last = 0.0
    count = Count(seconds, say, lambda: "1.0" if now >= 0.95 else None)
    try:
        for now in ends_of(kernel_s, part, turn_s, offset_s):
            count.goes_on(last, now)
            last = now
    except Told as told:
        return told.args[0]


def self_test():
    """Shares are those that the GPU gave: none is off by more than a turn's worth, and all together
    by nothing."""
    failed = tried = 0
    turn_s, seconds, places = 0.033, 3.0, 20
    for kernel_s in (1e-4, 8e-4, 0.016, 0.081):
        for part in (0.1, 0.25, 0.75, 1.0):
            off = [
                share(kernel_s, part, turn_s, turn_s * place / places, seconds) / part - 1
                for place in range(places)
            ]
            worst, mean = max(map(abs, off)), sum(off) / places
            tried += 1
            if worst > turn_s / seconds or abs(mean) > 0.003:
                failed += 1
                print(
                    f"kernels of {kernel_s * 1e3} ms, {part} of the GPU: off by {worst:.4f} at the most, {mean:.4f} on average"
                )
    print(f"count self-test: {tried - failed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(1 if sys.argv[1:] != ["--self-test"] or self_test() else 0)
