# SPDX-License-Identifier: GPL-2.0
"""CUDA virtual memory management: physical memory that is made, shared by a descriptor with a
child, and released in an order that leaves the child the last. Prints what it sees as JSON.

    vmm.py [SIZE_MIB]
"""

import array
import ctypes
import os
import socket
import subprocess
import sys

import cuda

POSIX_FD = 1


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Prop(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("requested", ctypes.c_int),
        ("location", Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


def map_and_use(handle, size):
    """Maps physical memory, writes it, and unmaps it."""
    at = cuda.PTR()
    cuda.cuda(
        "cuMemAddressReserve",
        ctypes.byref(at),
        ctypes.c_size_t(size),
        ctypes.c_size_t(0),
        cuda.PTR(0),
        ctypes.c_uint64(0),
    )
    cuda.cuda("cuMemMap", at, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
    access = Access(Location(1, 0), 3)
    cuda.cuda("cuMemSetAccess", at, ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1))
    cuda.touch(at, 4096)
    cuda.cuda("cuMemUnmap", at, ctypes.c_size_t(size))
    cuda.cuda("cuMemAddressFree", at, ctypes.c_size_t(size))


def importer(size):
    """The second process: descriptor on standard input's socket."""
    end = socket.socket(fileno=0)
    _, ancillary, _, _ = end.recvmsg(1, socket.CMSG_SPACE(4))
    fds = array.array("i", ancillary[0][2])
    device = cuda.begin()
    before = cuda.info()[0]
    handle = ctypes.c_uint64()
    cuda.cuda(
        "cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(fds[0]), POSIX_FD
    )
    os.close(fds[0])
    imported = cuda.info()[0]
    map_and_use(handle, size)
    cuda.cuda("cuMemRelease", handle)
    cuda.say(free_before=before, free_imported=imported, free_released=cuda.info()[0])
    cuda.end(device)


def main():
    """The first process."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 256) << 20
    device = cuda.begin()
    prop = Prop(type=1, requested=POSIX_FD, location=Location(1, 0))
    before = cuda.info()[0]
    handle = ctypes.c_uint64()
    cuda.cuda(
        "cuMemCreate",
        ctypes.byref(handle),
        ctypes.c_size_t(size),
        ctypes.byref(prop),
        ctypes.c_uint64(0),
    )
    made = cuda.info()[0]
    map_and_use(handle, size)
    descriptor = ctypes.c_int()
    cuda.cuda(
        "cuMemExportToShareableHandle",
        ctypes.byref(descriptor),
        handle,
        POSIX_FD,
        ctypes.c_uint64(0),
    )
    here, there = socket.socketpair()
    child = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "import", str(size)], stdin=there
    )
    here.sendmsg(
        [b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor.value]))]
    )
    os.close(descriptor.value)
    code = child.wait()
    cuda.cuda("cuMemRelease", handle)
    cuda.say(free_before=before, free_made=made, free_released=cuda.info()[0])
    cuda.end(device)
    sys.exit(code)


if len(sys.argv) > 1 and sys.argv[1] == "import":
    importer(int(sys.argv[2]))
else:
    main()
