# SPDX-License-Identifier: GPL-2.0
"""managed.py PIECES PIECE_MIB [DEVICE_MIB]: maps managed memory piece by piece, has the GPU write
all of it, and reads it back. Prints JSON.

It says "full" and waits for a line, so that others can see what the GPU holds. With DEVICE_MIB it
allocates so much device memory first. Then it frees that, has the GPU write all pieces again, says
"freed", and waits for another line.
"""

import ctypes
import sys
import time

import cuda

pieces, size = int(sys.argv[1]), int(sys.argv[2]) << 20
device_bytes = (int(sys.argv[3]) if len(sys.argv) > 3 else 0) << 20
device = cuda.begin()
seen = {"total": cuda.info()[1], "refusal": None}
taken = cuda.alloc(device_bytes) if device_bytes else None
held = []
for _ in range(pieces):
    try:
        held.append(cuda.managed(size))
    except cuda.CudaError as refusal:
        seen["refusal"] = refusal.name
        break
began = time.monotonic()
for at in held:
    cuda.touch(at, size)
seen["first_touch_s"] = round(time.monotonic() - began, 3)


def is_right(at):
    """Whether the first, a middle and the last byte are what the GPU wrote."""
    return all(
        (ctypes.c_ubyte * 1).from_address(at.value + place)[0] == 1
        for place in (0, size // 2, size - 1)
    )


# The GPU has it all, as far as it may.
print("full", flush=True)
sys.stdin.readline()
seen["data_is_right"] = all(is_right(at) for at in held)
if taken is not None:
    cuda.free(taken)
    for at in held:
        cuda.touch(at, size)
    print("freed", flush=True)
    sys.stdin.readline()
seen.update(pieces=len(held), free_when_full=cuda.info()[0])
for at in held:
    cuda.free(at)
seen["free_at_end"] = cuda.info()[0]
cuda.end(device)
cuda.say(**seen)
