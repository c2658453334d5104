# SPDX-License-Identifier: GPL-2.0
"""A program that launches a short kernel, waits for it, and begins again; it notices when its work
is not taken up.

    heart.py SECONDS           competes: says "ready", begins at a line of its standard input
    heart.py SECONDS starts    starts programs that do so 50 times and end, instead of working
    heart.py 0 once            such a program

A kernel that has not ended after a second is a stall. Then another kernel is launched, which rings
the same doorbell again, to see whether that ends it. Prints JSON."""

import ctypes
import json
import subprocess
import sys
import time

import cuda

PATIENCE_S = 1.0
TICKS = 20_000


class Heart:
    """A kernel and an event."""

    def __init__(self):
        self.spin = cuda.Spin()
        self.event = ctypes.c_void_p()
        cuda.cuda("cuEventCreate", ctypes.byref(self.event), 2)
        self.beats = 0
        self.longest = 0.0
        self.stalls = []

    def launch(self):
        """Launches a kernel without waiting."""
        self.spin.launch(TICKS)
        cuda.cuda("cuEventRecord", self.event, None)

    def ended(self, patience):
        """Whether the last kernel ends in so many seconds."""
        until = time.perf_counter() + patience
        while time.perf_counter() < until:
            if cuda.LIBRARY.cuEventQuery(self.event) == 0:
                return True
        return False

    def beat(self):
        """A kernel; whether it has ended at last."""
        began = time.perf_counter()
        self.launch()
        alive = self.ended(PATIENCE_S)
        if not alive:
            self.launch()
            rung = self.ended(PATIENCE_S)
            alive = rung or self.ended(4 * PATIENCE_S)
            self.stalls.append(
                {
                    "beat": self.beats,
                    "at_s": round(time.monotonic(), 3),
                    "rung": rung,
                    "ended": alive,
                }
            )
        self.beats += 1
        self.longest = max(self.longest, time.perf_counter() - began)
        return alive


def once():
    """A program that starts, works a little and ends."""
    device = cuda.begin()
    heart = Heart()
    while heart.beats < 50 and heart.beat():
        pass
    cuda.say(stalls=heart.stalls, beats=heart.beats)
    if not heart.stalls or heart.stalls[-1]["ended"]:
        cuda.end(device)


def starts(seconds):
    """Starts one after the other."""
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.perf_counter() + seconds
    started = silent = 0
    stalls = []
    while time.perf_counter() < until:
        started += 1
        command = [sys.executable, __file__, "0", "once"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
        ) as child:
            try:
                output, _ = child.communicate(timeout=20)
                stalls += json.loads(output)["stalls"]
            except (subprocess.TimeoutExpired, json.JSONDecodeError):
                silent += 1
                child.kill()
    cuda.say(
        rate=started / seconds, started=started, silent=silent, stalls=stalls, longest_wait_ms=0
    )


def main():
    """Runs."""
    seconds = float(sys.argv[1])
    if sys.argv[2:] == ["once"]:
        return once()
    if sys.argv[2:] == ["starts"]:
        return starts(seconds)
    cuda.begin()
    heart = Heart()
    heart.beat()
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.perf_counter()
    while time.perf_counter() < began + seconds and heart.beat():
        pass
    spent = time.perf_counter() - began
    cuda.say(
        rate=heart.beats / spent,
        beats=heart.beats,
        stalls=heart.stalls,
        longest_wait_ms=heart.longest * 1e3,
    )
    return None


if __name__ == "__main__":
    main()
