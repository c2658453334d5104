#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""page_tables.py [MINOR]: how much video memory the driver takes for page tables when one piece of
memory is mapped through UVM again and again: aligned and not, densely and thinly; when ranges of
addresses are made; and for pools of semaphores and address spaces. It speaks to the driver itself
(RM's escapes and UVM's requests as in the headers of 580), as any user may; nothing of cgpu is in
between.

Needs the NVIDIA driver and python3. docs/measurements keeps what it said."""

import ctypes
import fcntl
import os
import re
import struct
import sys
from pathlib import Path

MIB = 1 << 20
DEVICE, SUBDEVICE, SPACE, MEMORY = 0x5C000002, 0x5C000003, 0x5C000004, 0x5C000100
HEAP_FREE = 0x16  # NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE, KiB
EXTERNALLY_OWNED = 0x48  # flags of NV_VASPACE_ALLOCATION_PARAMETERS, as CUDA has them
SIZE = 64 * MIB
# A case: its name, the first address, the distance, the length of each mapping, and how many.
CASES = (
    ("64 MiB, on multiples of 2 MiB", 0x10_0000_0000, SIZE, SIZE, 128),
    ("64 MiB, 64 KiB beside them", 0x20_0001_0000, 2 * SIZE, SIZE, 128),
    ("64 MiB, 4 KiB beside them", 0x30_0000_1000, 2 * SIZE, SIZE, 128),
    ("4 KiB, every 2 MiB", 0x40_0000_0000, 2 * MIB, 4096, 4096),
    ("4 KiB, every 512 MiB", 0x100_0000_0000, 512 * MIB, 4096, 4096),
    ("2 MiB, every 512 MiB", 0x400_0000_0000, 512 * MIB, 2 * MIB, 4096),
)
# Ranges of addresses (class 0x50a0): what is asked for, bytes, flags, page size in the attributes.
VIRTUAL, LAZY, EXTERNALLY_MANAGED, SPARSE = 0x80000, 0x400, 0x400000, 0x4000000
RANGES = (
    ("64 GiB, pages as the driver likes", 64 << 30, VIRTUAL, 0),
    ("64 GiB, pages of 4 KiB", 64 << 30, VIRTUAL, 1),
    ("64 GiB, pages of 64 KiB", 64 << 30, VIRTUAL, 2),
    ("64 GiB, pages of 2 MiB", 64 << 30, VIRTUAL, 3),
    ("64 GiB, lazily", 64 << 30, VIRTUAL | LAZY, 1),
    ("64 GiB, managed by somebody else", 64 << 30, VIRTUAL | EXTERNALLY_MANAGED, 1),
    ("64 GiB, sparse", 64 << 30, VIRTUAL | SPARSE, 1),
    ("1 TiB, pages of 4 KiB", 1 << 40, VIRTUAL, 1),
)


class Refused(Exception):
    """The driver's status."""


def checked(what, buffer, at):
    status = struct.unpack_from("<I", buffer, at)[0]
    if status:
        raise Refused(f"{what}: status {status:#x}")


def escape(fd, number, buffer):
    """An escape of RM: `_IOWR('F', number, ...)`."""
    fcntl.ioctl(fd, 0xC0000000 | len(buffer) << 16 | 0x46 << 8 | number, buffer, True)


class Rm:
    """A client of RM with a device and a subdevice."""

    def __init__(self, minor):
        self.ctl = os.open("/dev/nvidiactl", os.O_RDWR | os.O_CLOEXEC)
        gpu = os.open(f"/dev/nvidia{minor}", os.O_RDWR | os.O_CLOEXEC)
        escape(gpu, 201, bytearray(struct.pack("<I", self.ctl)))  # NV_ESC_REGISTER_FD
        self.client = 0
        self.client = self.alloc(0, 0, 0x41)
        for instance in range(32):
            try:
                self.alloc(self.client, DEVICE, 0x80, struct.pack("<I52x", instance))
                break
            except Refused:
                continue
        self.alloc(DEVICE, SUBDEVICE, 0x2080, bytes(4))

    def alloc(self, parent, handle, cls, params=b""):
        """NV_ESC_RM_ALLOC; the handle."""
        inner = ctypes.create_string_buffer(bytes(params), len(params)) if params else None
        outer = bytearray(48)
        struct.pack_into("<IIII", outer, 0, self.client, parent, handle, cls)
        if inner:
            struct.pack_into("<Q", outer, 16, ctypes.addressof(inner))
        escape(self.ctl, 43, outer)
        checked(f"RM_ALLOC of class {cls:#x}", outer, 40)
        return struct.unpack_from("<I", outer, 8)[0]

    def free(self, handle):
        """NV_ESC_RM_FREE."""
        outer = bytearray(struct.pack("<IIII", self.client, DEVICE, handle, 0))
        escape(self.ctl, 41, outer)
        checked("RM_FREE", outer, 12)

    def free_kib(self):
        """FB_GET_INFO_V2."""
        inner = ctypes.create_string_buffer(struct.pack("<II1020x", 1, HEAP_FREE), 1028)
        outer = bytearray(
            struct.pack(
                "<IIIIQII", self.client, SUBDEVICE, 0x20801303, 0, ctypes.addressof(inner), 1028, 0
            )
        )
        escape(self.ctl, 42, outer)
        checked("FB_GET_INFO_V2", outer, 28)
        return struct.unpack_from("<I", inner, 8)[0]


class Uvm:
    """An address space of UVM with one GPU."""

    def __init__(self, rm, gpu, handle=SPACE):
        self.rm, self.gpu = rm, gpu
        self.fd = os.open("/dev/nvidia-uvm", os.O_RDWR | os.O_CLOEXEC)
        self.call("UVM_INITIALIZE", 0x30000001, bytearray(16), 8)
        # Without it no address space can be registered (0x5d).
        self.companion = os.open("/dev/nvidia-uvm", os.O_RDWR | os.O_CLOEXEC)
        fcntl.ioctl(
            self.companion, 75, bytearray(struct.pack("<iI", self.fd, 0)), True
        )  # UVM_MM_INITIALIZE
        self.call("UVM_REGISTER_GPU", 37, bytearray(struct.pack("<16s8xi12x", gpu, -1)), 36)
        space = struct.pack("<16siIII", gpu, rm.ctl, rm.client, handle, 0)
        self.call("UVM_REGISTER_GPU_VASPACE", 25, bytearray(space), 28)

    def call(self, name, request, params, status_at):
        fcntl.ioctl(self.fd, request, params, True)
        checked(name, params, status_at)

    def map(self, base, length):
        """A range, and the memory in it."""
        self.call(
            "UVM_CREATE_EXTERNAL_RANGE", 73, bytearray(struct.pack("<QQ8x", base, length)), 16
        )
        params = bytearray(9264)
        struct.pack_into("<QQQ16s", params, 0, base, length, 0, self.gpu)
        struct.pack_into("<QiII", params, 9240, 1, self.rm.ctl, self.rm.client, MEMORY)
        self.call("UVM_MAP_EXTERNAL_ALLOCATION", 33, params, 9260)

    def free(self, base, length):
        self.call("UVM_FREE", 34, bytearray(struct.pack("<QQ8x", base, length)), 16)

    def pool(self, base):
        """UVM_ALLOC_SEMAPHORE_POOL, of a page."""
        params = bytearray(9248)
        struct.pack_into("<QQ", params, 0, base, 4096)
        self.call("UVM_ALLOC_SEMAPHORE_POOL", 68, params, 9240)


def gpu_of(minor):
    """The GPU's UUID."""
    for file in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        text = file.read_text()
        if int(re.search(r"Device Minor:\s*(\d+)", text)[1]) == minor:
            return bytes.fromhex(
                re.search(r"GPU UUID:\s*GPU-([0-9a-f-]+)", text)[1].replace("-", "")
            )
    sys.exit(f"page_tables.py: no GPU with minor {minor} in /proc/driver/nvidia/gpus")


def main():
    minor = int(sys.argv[1]) if sys.argv[1:] else 0
    rm = Rm(minor)
    rm.alloc(DEVICE, SPACE, 0x90F1, struct.pack("<II32xQ8x", 0, EXTERNALLY_OWNED, MIB))
    uvm = Uvm(rm, gpu_of(minor))
    # As CUDA asks for memory.
    memory = struct.pack("<I4xI12xII32xQ56x", rm.client, 0x1C101, 0x18000000, 0x00100005, SIZE)
    before = rm.free_kib()
    rm.alloc(DEVICE, MEMORY, 0x40, memory)
    print(f"64 MiB of memory: {before - rm.free_kib()} KiB of the GPU's")
    print(
        "| mapped | times | taken, KiB | each, KiB | still taken when they are gone, KiB |\n|---|---|---|---|---|"
    )
    for name, base, stride, length, count in CASES:
        before = rm.free_kib()
        for at in range(count):
            uvm.map(base + at * stride, length)
        taken = before - rm.free_kib()
        for at in range(count):
            uvm.free(base + at * stride, length)
        print(
            f"| {name} | {count} | {taken} | {taken / count:g} | {before - rm.free_kib()} |",
            flush=True,
        )
    others(rm, uvm)


def others(rm, uvm):
    """The other things that take page tables."""
    print(
        "\n| what | times | taken, KiB | each, KiB | still taken when they are gone, KiB |\n|---|---|---|---|---|"
    )
    before = rm.free_kib()
    for at in range(1024):
        uvm.pool(0x800_0000_0000 + at * 512 * MIB)
    taken = before - rm.free_kib()
    for at in range(1024):
        uvm.free(0x800_0000_0000 + at * 512 * MIB, 4096)
    print(
        f"| pools of semaphores, every 512 MiB | 1024 | {taken} | {taken / 1024:g} | {before - rm.free_kib()} |"
    )
    for flags, name in ((0, "address spaces"), (EXTERNALLY_OWNED, "address spaces of UVM's")):
        before = rm.free_kib()
        for at in range(256):
            rm.alloc(DEVICE, 0x5D000000 + at, 0x90F1, struct.pack("<II32xQ8x", 0, flags, MIB))
        taken = before - rm.free_kib()
        for at in range(256):
            rm.free(0x5D000000 + at)
        print(
            f"| {name} | 256 | {taken} | {taken / 256:g} | {before - rm.free_kib()} |", flush=True
        )
    before = rm.free_kib()
    for at in range(256):
        rm.alloc(
            DEVICE, 0x5D000000 + at, 0x90F1, struct.pack("<II32xQ8x", 0, EXTERNALLY_OWNED, MIB)
        )
    spaces = [Uvm(rm, uvm.gpu, 0x5D000000 + at) for at in range(256)]
    taken = before - rm.free_kib()
    for space in spaces:
        os.close(space.companion)
        os.close(space.fd)
    print(
        f"| address spaces in UVM | 256 | {taken} | {taken / 256:g} | {before - rm.free_kib()} |",
        flush=True,
    )
    rm.alloc(DEVICE, 0x5E000000, 0x90F1, struct.pack("<II32xQ8x", 0, 0, MIB))
    for name, size, flags, page in RANGES:
        params = bytearray(128)
        struct.pack_into("<I4xI", params, 0, rm.client, flags)
        struct.pack_into("<I", params, 24, page << 23)
        struct.pack_into("<Q", params, 64, size)
        struct.pack_into("<I", params, 108, 0x5E000000)
        before = rm.free_kib()
        try:
            rm.alloc(DEVICE, 0x5E000001, 0x50A0, bytes(params))
        except Refused as refused:
            print(f"| range: {name} | 1 | {refused} | | |", flush=True)
            continue
        taken = before - rm.free_kib()
        rm.free(0x5E000001)
        print(f"| range: {name} | 1 | {taken} | {taken} | {before - rm.free_kib()} |", flush=True)


if __name__ == "__main__":
    main()
