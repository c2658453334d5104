# SPDX-License-Identifier: GPL-2.0
"""Keeps the GPU busy with kernels of one length, so many in its queue, and counts them in a span of
time. The work of a kernel is a number of steps, so one that was preempted takes longer, as real
work does.

    burn.py KERNEL_US DEPTH SECONDS [STEPS_PER_US]

How many steps a microsecond is, it measures itself where it is not told; it must be told where
others use the GPU. Says "ready" when it runs, counts as count.py says, and prints JSON."""

import ctypes
import sys
import time

import cuda
from count import Count

STEPS = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry work(.param .u64 out, .param .u64 steps)
{
    .reg .u64 a, n, x;
    .reg .pred more;
    ld.param.u64 a, [out];
    ld.param.u64 n, [steps];
    mov.u64 x, n;
again:
    mad.lo.u64 x, x, 3, 1;
    sub.u64 n, n, 1;
    setp.ne.u64 more, n, 0;
    @more bra again;
    st.global.u64 [a], x;
    ret;
}
"""
# A multiple of what a Hopper GPU has of multiprocessors: none is left for anybody else.
BLOCKS = 264


class Work(cuda.Spin):
    """A kernel of a number of steps."""

    def __init__(self):
        super().__init__()
        module = ctypes.c_void_p()
        cuda.cuda("cuModuleLoadData", ctypes.byref(module), STEPS)
        cuda.cuda("cuModuleGetFunction", ctypes.byref(self.function), module, b"work")

    def time_us(self, steps, rounds=5):
        """The shortest time of a kernel with so many steps, launch included."""
        best = float("inf")
        for _ in range(rounds):
            began = time.perf_counter()
            self.launch(steps, BLOCKS)
            cuda.synchronize()
            best = min(best, (time.perf_counter() - began) * 1e6)
        return best


def main():
    """Runs."""
    wanted, depth = float(sys.argv[1]), int(sys.argv[2])
    seconds = float(sys.argv[3])
    device = cuda.begin()
    work = Work()
    if len(sys.argv) > 4:
        steps_per_us = float(sys.argv[4])
    else:
        work.time_us(1_000_000, 50)
        steps_per_us = 20_000_000 / (work.time_us(20_000_000) - work.time_us(1))
    steps = max(1, round(wanted * steps_per_us))
    events = [ctypes.c_void_p() for _ in range(depth)]
    for event in events:
        cuda.cuda("cuEventCreate", ctypes.byref(event), 2)
    count = Count(seconds, lambda **seen: cuda.say(**seen, steps_per_us=steps_per_us))
    launched = 0
    print("ready", flush=True)
    while True:
        slot = events[launched % depth]
        if launched >= depth:
            waited = time.monotonic()
            cuda.cuda("cuEventSynchronize", slot)
            # Of short kernels not after each: looking takes a part of one.
            if not count.goes_on(waited, time.monotonic(), wanted > 500 or count.ended & 15 == 0):
                break
        work.launch(steps, BLOCKS)
        cuda.cuda("cuEventRecord", slot, None)
        launched += 1
    cuda.synchronize()
    cuda.end(device)


if __name__ == "__main__":
    main()
