# SPDX-License-Identifier: GPL-2.0
"""Makes some contexts, says "ready", and holds them until its standard input ends.

contexts.py COUNT
"""

import ctypes
import sys

import cuda

cuda.cuda("cuInit", 0)
for _ in range(int(sys.argv[1])):
    context = ctypes.c_void_p()
    cuda.cuda("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
print("ready", flush=True)
sys.stdin.read()
