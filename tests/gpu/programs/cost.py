# SPDX-License-Identifier: GPL-2.0
"""The cost of calls: median microseconds of launches, allocations, copies and a program's start, as
JSON."""

import ctypes
import statistics
import time

import cuda


def median_us(rounds, work):
    """The median time of `work`, microseconds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return round(statistics.median(times) * 1e6, 3)


began = time.perf_counter()
device = cuda.begin()
seen = {"start_us": round((time.perf_counter() - began) * 1e6)}
spin = cuda.Spin()
spin.launch(1000)
cuda.synchronize()


def launches():
    """A batch that is waited for once."""
    for _ in range(100):
        spin.launch(1)
    cuda.synchronize()


def launch_and_wait():
    """One kernel, waited for."""
    spin.launch(1)
    cuda.synchronize()


def allocate(size):
    """An allocation and its free."""
    cuda.free(cuda.alloc(size))


host = (ctypes.c_ubyte * (1 << 20))()
buffer = cuda.alloc(1 << 20)
seen["launch_us"] = round(median_us(200, launches) / 100, 4)
seen["launch_and_wait_us"] = median_us(2000, launch_and_wait)
seen["alloc_free_64mib_us"] = median_us(300, lambda: allocate(64 << 20))
seen["mem_get_info_us"] = median_us(1000, cuda.info)
seen["copy_1mib_us"] = median_us(
    500, lambda: cuda.cuda("cuMemcpyHtoD_v2", buffer, host, ctypes.c_size_t(1 << 20))
)
cuda.end(device)
cuda.say(**seen)
