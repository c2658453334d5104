#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""A span of time in which two tenants run beside each other and one of them also alone, in turns.

turns.py --self-test       the rates of a program whose pace changes during the span are right"""

import bisect
import sys


class Turns:
    """`count` turns with `seconds` of work together, and as many of pauses: half of a turn is a
    pause, the first half of the first turn, the second of the second, and so on: a pace that rises
    or falls all the time is that of both. Without turns there are no pauses. Times are seconds of
    the span, which begins with 0."""

    def __init__(self, seconds, count):
        self.seconds, self.count = seconds, count
        self.span_s = 2 * seconds if count else seconds
        self.half_s = seconds / count if count else seconds

    def works(self, time_s):
        """Whether that time is not in a pause."""
        return not self.count or (time_s // self.half_s + 1) % 4 >= 2

    def left_s(self, time_s):
        """How long the half goes on in which that time is."""
        return self.half_s - time_s % self.half_s

    def at(self, worked_s):
        """The time when so many seconds of work are over."""
        turn, more_s = divmod(worked_s, self.half_s)
        return self.work(int(turn))[0] + more_s if self.count else worked_s

    def work(self, turn):
        """Beginning and end of a turn's work."""
        begins = (2 * turn + 1 - turn % 2) * self.half_s
        return begins, begins + self.half_s

    def pause(self, turn):
        """Beginning and end of a turn's pause."""
        begins = (2 * turn + turn % 2) * self.half_s
        return begins, begins + self.half_s


def until(ends, time_s):
    """How many steps have ended at that time, with the part of the one under way."""
    done = bisect.bisect_right(ends, time_s)
    if done in (0, len(ends)):
        return done
    before = ends[done - 1]
    return done + (time_s - before) / (ends[done] - before)


def rate(ends, spans):
    """Steps a second in these spans together."""
    done = seconds = 0.0
    for begins, to in spans:
        done += until(ends, to) - until(ends, begins)
        seconds += to - begins
    return done / seconds


def rate_beside(turns, goes_on):
    """Steps a second of a tenant beside the other, by the ends of its steps."""
    return rate(goes_on, map(turns.work, range(turns.count)))


def rate_alone(turns, pauses, goes_on):
    """Steps a second of the tenant that goes on while the other pauses, by the ends of both
    tenants' steps. What the other has left to do when its pause begins is not counted."""
    alone = []
    for begins, to in map(turns.pause, range(turns.count)):
        late = pauses[bisect.bisect_left(pauses, begins) : bisect.bisect_left(pauses, to)]
        alone.append((max([begins, *late]), to))
    return rate(goes_on, alone)


def self_test():
    """A program of a pace that falls by half during the span, and is 0.7 of it beside the other,
    which in each pause has work left for a third of it."""
    turns, part = Turns(6.0, 4), 0.7
    busy_s = turns.half_s / 3
    pauses = [turns.pause(turn)[0] + busy_s for turn in range(turns.count)]
    now, ends = 0.0, []
    while now < turns.span_s:
        is_beside = turns.works(now) or turns.half_s - turns.left_s(now) < busy_s
        now += (0.01 + 0.01 * now / turns.span_s) / (part if is_beside else 1.0)
        ends.append(now)
    beside, alone = rate_beside(turns, ends), rate_alone(turns, pauses, ends)
    wrong = [f"{beside / alone:.3f} of alone"] if abs(beside / alone / part - 1) > 0.02 else []
    at = [turns.at(worked) for worked in (0.0, 1.4, 1.6, 5.9)]
    wrong += [f"{time_s} is in a pause" for time_s in at if not turns.works(time_s)]
    if at != sorted(at) or at[-1] > turns.span_s or Turns(6.0, 0).at(5.9) != 5.9:
        wrong.append(f"work is at {at}")
    print(f"turns self-test: {', '.join(wrong) or 'passed'}")
    return wrong


if __name__ == "__main__":
    sys.exit(1 if sys.argv[1:] != ["--self-test"] or self_test() else 0)
