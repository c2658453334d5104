# SPDX-License-Identifier: GPL-2.0
"""The CUDA driver API by ctypes: as much of it as the test programs need. No compiler is needed
where they run."""

import ctypes
import json
import sys

LIBRARY = ctypes.CDLL("libcuda.so.1")
OUT_OF_MEMORY = 2
PTR = ctypes.c_uint64

# Spins for the given number of clock ticks, then writes how long it was.
SPIN = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 out, .param .u64 ticks)
{
    .reg .u64 a, n, t0, t1, d;
    .reg .pred more;
    ld.param.u64 a, [out];
    ld.param.u64 n, [ticks];
    mov.u64 t0, %clock64;
again:
    mov.u64 t1, %clock64;
    sub.u64 d, t1, t0;
    setp.lt.u64 more, d, n;
    @more bra again;
    st.global.u64 [a], d;
    ret;
}
"""


class CudaError(Exception):
    """A call that failed, with CUDA's name for the reason."""

    def __init__(self, call, code):
        name = ctypes.c_char_p()
        LIBRARY.cuGetErrorName(code, ctypes.byref(name))
        self.code = code
        self.name = (name.value or b"?").decode()
        super().__init__(f"{call}: {self.name}")


def cuda(call, *arguments):
    """Makes a call of the driver API."""
    code = getattr(LIBRARY, call)(*arguments)
    if code:
        raise CudaError(call, code)


def begin(ordinal=0):
    """Makes the primary context of a GPU current and returns the device."""
    cuda("cuInit", 0)
    device = ctypes.c_int()
    cuda("cuDeviceGet", ctypes.byref(device), ordinal)
    context = ctypes.c_void_p()
    cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    cuda("cuCtxSetCurrent", context)
    return device


def end(device):
    """Gives the primary context back."""
    cuda("cuDevicePrimaryCtxRelease_v2", device)


def info():
    """Free and total memory, bytes."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def total(device):
    """The device's memory, bytes."""
    size = ctypes.c_size_t()
    cuda("cuDeviceTotalMem_v2", ctypes.byref(size), device)
    return size.value


def alloc(size):
    """Allocates device memory."""
    at = PTR()
    cuda("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))
    return at


def free(at):
    """Frees device memory."""
    cuda("cuMemFree_v2", at)


def managed(size):
    """Allocates managed memory."""
    at = PTR()
    cuda("cuMemAllocManaged", ctypes.byref(at), ctypes.c_size_t(size), 1)
    return at


def touch(at, size):
    """Has the GPU write a range."""
    cuda("cuMemsetD8_v2", at, ctypes.c_ubyte(1), ctypes.c_size_t(size))
    cuda("cuCtxSynchronize")


class Spin:
    """A kernel that spins for a given number of clock ticks."""

    def __init__(self):
        module = ctypes.c_void_p()
        cuda("cuModuleLoadData", ctypes.byref(module), SPIN)
        self.function = ctypes.c_void_p()
        cuda("cuModuleGetFunction", ctypes.byref(self.function), module, b"spin")
        self.out = alloc(8)
        self.ticks = ctypes.c_uint64(0)
        self.arguments = (ctypes.c_void_p * 2)(
            ctypes.addressof(self.out), ctypes.addressof(self.ticks)
        )

    def launch(self, ticks, blocks=1):
        """Launches it without waiting."""
        self.ticks.value = ticks
        cuda("cuLaunchKernel", self.function, blocks, 1, 1, 1, 1, 1, 0, None, self.arguments, None)


def synchronize():
    """Waits for the context's work."""
    cuda("cuCtxSynchronize")


def say(**what):
    """Prints a result as one line of JSON, whole, since others may print as well."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()
