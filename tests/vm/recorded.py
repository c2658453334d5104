#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""recorded.py RECORDING...: how much video memory the programs of recordings held at the most, as
the recorded calls add up: what the driver said it took, in pieces of 64 KiB, until the last
reference is gone. Processes of one run are given together. Knows nothing of the module or the
stand-in; replays.py compares.

A reference is an object, a duplicate, or a mapping in a UVM file. Objects behind descriptors are
not followed: in the recordings the process that made one holds it as long."""

import json
import lzma
import struct
import sys
from pathlib import Path

# The driver's allocator gives no less (PMA), whatever size it tells.
PIECE = 64 << 10
CLIENTS = {0x0, 0x1, 0x41}
DEVICE, VIDEO = 0x80, 0x40
# NVOS32: function 2 makes memory; of its attributes bits 25 and 26 are 0 for video memory; a flag
# says that it is addresses alone.
HEAP_ALLOC, HEAP_FREE, LOCATION, VIRTUAL = 2, 3, 3 << 25, 0x80000


class Memory:
    """Video memory of one object, and how many refer to it."""

    def __init__(self, gpu, size):
        self.gpu, self.size, self.references = gpu, -(-size // PIECE) * PIECE, 0


class Accounting:
    """The objects, and who holds them."""

    def __init__(self):
        # (client, handle): [parent's handle, GPU, memory, and of a client the descriptor it was
        # made on]
        self.objects = {}
        # (process, address): [length, memory]
        self.maps = {}
        self.used, self.peak = {}, {}

    def hold(self, memory):
        memory.references += 1
        if memory.references == 1:
            used = self.used.get(memory.gpu, 0) + memory.size
            self.used[memory.gpu] = used
            self.peak[memory.gpu] = max(self.peak.get(memory.gpu, 0), used)

    def drop(self, memory):
        memory.references -= 1
        if memory.references == 0:
            self.used[memory.gpu] -= memory.size

    def make(self, client, parent, handle, gpu=None, size=None, memory=None, descriptor=None):
        if gpu is None and (client, parent) in self.objects:
            gpu = self.objects[client, parent][1]
        if size is not None:
            memory = Memory(gpu, size)
        self.objects[client, handle] = [parent, gpu, memory, descriptor]
        if memory:
            self.hold(memory)

    def free(self, client, handle):
        """An object, with all below it."""
        gone = self.objects.pop((client, handle), None)
        if gone and gone[2]:
            self.drop(gone[2])
        below = [
            name
            for name, o in self.objects.items()
            if name[0] == client and o[0] == handle and name[1] != handle
        ]
        for _, child in below:
            self.free(client, child)

    def close(self, descriptor):
        """A control file: the clients that were made on it go."""
        for client, handle in [name for name, o in self.objects.items() if o[3] == descriptor]:
            self.free(client, handle)

    def unmap(self, process, start, length):
        inside = [
            name for name in self.maps if name[0] == process and start <= name[1] < start + length
        ]
        for name in inside:
            self.drop(self.maps.pop(name))

    def end(self, process):
        """A process ends."""
        self.unmap(process, 0, 1 << 64)
        for descriptor in {o[3] for o in self.objects.values() if o[3] and o[3][0] == process}:
            self.close(descriptor)


def number(data, at):
    return struct.unpack_from("<I", data, at)[0]


def long(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def escape(accounting, process, call, before, after):
    """A call on a node that is not UVM's."""
    client = number(before, 0) if len(before) >= 16 else 0
    if call["nr"] == 0x2B:
        if number(after, 40 if len(after) == 48 else 28):
            return
        parent, handle, kind = number(after, 4), number(after, 8), number(before, 12)
        params = bytes.fromhex(call.get("nout") or "")
        if kind in CLIENTS:
            accounting.make(handle, handle, handle, descriptor=(process, call["fd"]))
        elif kind == DEVICE:
            accounting.make(client, parent, handle, gpu=number(params, 0) if params else 0)
        else:
            accounting.make(
                client, parent, handle, size=long(params, 64) if kind == VIDEO else None
            )
    elif call["nr"] == 0x29 and not number(after, 12):
        accounting.free(client, number(before, 8))
    elif call["nr"] == 0x34 and not number(after, 24):
        source = accounting.objects.get((number(before, 12), number(before, 16)))
        if source:
            accounting.make(client, number(before, 4), number(after, 8), memory=source[2])
    elif call["nr"] == 0x4A and not number(after, 20):
        if number(before, 8) == HEAP_ALLOC:
            video = not number(before, 56) & LOCATION and not number(before, 52) & VIRTUAL
            accounting.make(
                client,
                number(before, 4),
                number(after, 44),
                size=long(after, 88) if video else None,
            )
        elif number(before, 8) == HEAP_FREE:
            accounting.free(client, number(before, 44))


def uvm(accounting, process, call, before, after):
    """A call on a UVM file."""
    request = int(call["req"], 16)
    if request == 33 and not number(after, 9260):
        held = accounting.objects.get((number(before, 9252), number(before, 9256)))
        if held and held[2]:
            accounting.maps[process, long(before, 0)] = held[2]
            accounting.hold(held[2])
    elif request == 34 and not number(after, 16):
        accounting.unmap(process, long(before, 0), long(before, 8))
    elif request == 66 and not number(after, 32):
        accounting.unmap(process, long(before, 0), long(before, 8))


def peaks(paths):
    """The most that was held of each GPU, by its device instance, in bytes."""
    accounting = Accounting()
    calls = []
    for process, path in enumerate(paths):
        with lzma.open(path, "rt") as lines:
            recorded = [json.loads(line) for line in lines]
        latest = 0
        for place, call in enumerate(recorded):
            # A process's own order counts, also where two threads' clocks say otherwise.
            latest = max(latest, call["t"])
            calls.append((latest, process, place, call))
        calls.append((latest, process, len(recorded), {"op": "end"}))
    for _, process, _, call in sorted(calls, key=lambda entry: entry[:3]):
        if call["op"] == "close":
            accounting.close((process, call["fd"]))
        elif call["op"] == "end":
            accounting.end(process)
        elif call["op"] == "ioctl" and call["ret"] == 0 and call.get("in"):
            before, after = bytes.fromhex(call["in"]), bytes.fromhex(call.get("out") or "")
            step = uvm if call["path"].endswith("nvidia-uvm") else escape
            step(accounting, process, call, before, after)
    return accounting.peak


if __name__ == "__main__":
    for gpu, peak in sorted(peaks([Path(name) for name in sys.argv[1:]]).items()):
        print(f"GPU {gpu}: {peak} bytes")
