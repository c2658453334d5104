# SPDX-License-Identifier: GPL-2.0
"""Takes GPU memory until it is refused, frees half, and takes it again. Prints what it saw as JSON.

fill.py [PIECE_MIB]
"""

import sys

import cuda

piece = int(sys.argv[1] if len(sys.argv) > 1 else 64) << 20
device = cuda.begin()
free, total = cuda.info()
seen = {"total": total, "device_total": cuda.total(device), "free_at_start": free}


def take_all(size):
    """Takes pieces until one is refused."""
    held = []
    while True:
        try:
            held.append(cuda.alloc(size))
        except cuda.CudaError as refusal:
            return held, refusal


held, refusal = take_all(piece)
small, last = take_all(2 << 20)
seen.update(
    pieces=len(held),
    taken=len(held) * piece + len(small) * (2 << 20),
    refusal=refusal.name,
    last_refusal=last.name,
    free_when_full=cuda.info()[0],
)
for at in small + held[::2]:
    cuda.free(at)
freed = len(held[::2])
again, _ = take_all(piece)
seen.update(freed_pieces=freed, taken_again=len(again), total_when_full=cuda.info()[1])
spin = None
for at in again + held[1::2]:
    cuda.free(at)
spin = cuda.Spin()
spin.launch(1000)
cuda.synchronize()
seen["free_at_end"] = cuda.info()[0]
cuda.end(device)
cuda.say(**seen)
