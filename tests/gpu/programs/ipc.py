# SPDX-License-Identifier: GPL-2.0
"""Shares a buffer by CUDA IPC between two processes. Prints, as JSON, how
many bytes of the GPU are free before and after the import.

    ipc.py [SIZE_MIB]
"""

import ctypes
import os
import subprocess
import sys

import cuda

HANDLE = ctypes.c_ubyte * 64
# CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag that CUDA knows here.
LAZY = 1


class IpcHandle(ctypes.Structure):
    """CUipcMemHandle, which is passed by value."""

    _fields_ = [("reserved", HANDLE)]


def importer(text, size):
    """Imports the buffer: the second process."""
    device = cuda.begin()
    before = cuda.info()[0]
    handle = IpcHandle(HANDLE(*bytes.fromhex(text)))
    at = cuda.PTR()
    cuda.cuda("cuIpcOpenMemHandle_v2", ctypes.byref(at), handle, LAZY)
    mapped = cuda.info()[0]
    data = (ctypes.c_ubyte * 16)()
    cuda.cuda("cuMemcpyDtoH_v2", data, at, ctypes.c_size_t(16))
    cuda.cuda("cuIpcCloseMemHandle", at)
    cuda.say(
        free_before_import=before,
        free_after_import=mapped,
        data_is_right=bytes(data) == b"\x01" * 16,
        size=size,
    )
    cuda.end(device)


def main():
    """Makes the buffer and starts the second process."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 512) << 20
    device = cuda.begin()
    at = cuda.alloc(size)
    cuda.touch(at, size)
    handle = IpcHandle()
    cuda.cuda("cuIpcGetMemHandle", ctypes.byref(handle), at)
    text = bytes(handle.reserved).hex()
    done = subprocess.run(
        [sys.executable, os.path.abspath(__file__), "import", text, str(size)], check=False
    )
    cuda.free(at)
    cuda.end(device)
    sys.exit(done.returncode)


if len(sys.argv) > 1 and sys.argv[1] == "import":
    importer(sys.argv[2], int(sys.argv[3]))
else:
    main()
