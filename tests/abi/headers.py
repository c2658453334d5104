# SPDX-License-Identifier: GPL-2.0 OR MIT
"""Asks a C compiler what NVIDIA's headers say.

The source folder is one of NVIDIA's open-gpu-kernel-modules releases. Nothing of it is copied: a
small C program that includes its headers prints the sizes, offsets and numbers that are wanted.
"""

import os
import re
import subprocess
import tempfile

RM_PATHS = [
    "src/common/sdk/nvidia/inc",
    "src/common/sdk/nvidia/inc/hw",
    "src/common/inc",
    "src/nvidia/arch/nvalloc/unix/include",
    # nv-ioctl-numa.h of 535 is here only.
    "kernel-open/common/inc",
    "src/nvidia/interface",
    "src/nvidia/inc/libraries",
    "src/nvidia/inc",
    "src/nvidia/generated",
]
RM_HEADERS = [
    "nvos.h",
    "nvstatus.h",
    "nv-ioctl.h",
    "nv-ioctl-numa.h",
    "nv_escape.h",
    "nv-unix-nvos-params-wrappers.h",
    "rs_access.h",
    "nv-kernel-rmapi-ops.h",
    "nv-modeset-interface.h",
]
UVM_PATHS = [
    "kernel-open/nvidia-uvm",
    "kernel-open/common/inc",
    "src/common/sdk/nvidia/inc",
]
UVM_HEADERS = ["nvtypes.h", "nvstatus.h", "uvm_types.h", "uvm_ioctl.h", "uvm_linux_ioctl.h"]

# Headers that only other targets can compile.
SKIPPED = {"nv_vgpu_types.h"}


class Headers:
    """The headers of one release."""

    def __init__(self, source):
        self.source = source
        with open(os.path.join(source, "version.mk")) as f:
            self.version = re.search(r"NVIDIA_VERSION = (\S+)", f.read()).group(1)
        inc = os.path.join(source, RM_PATHS[0])
        found = []
        for folder in ("class", "ctrl", "alloc"):
            for at, _, names in os.walk(os.path.join(inc, folder)):
                for name in sorted(names):
                    if name.endswith(".h") and name not in SKIPPED:
                        found.append(os.path.relpath(os.path.join(at, name), inc))
        self.rm_headers = RM_HEADERS + sorted(found)

    def ask(self, expressions, uvm=False):
        """Values of C constant expressions: a dict, without those that do not compile."""
        todo = dict.fromkeys(expressions)
        known = {}
        while todo:
            text, lines = self._program(list(todo), uvm)
            with tempfile.TemporaryDirectory() as tmp:
                src, exe = os.path.join(tmp, "ask.c"), os.path.join(tmp, "ask")
                with open(src, "w") as f:
                    f.write(text)
                paths = UVM_PATHS if uvm else RM_PATHS
                command = [os.environ.get("CC", "cc"), "-w", "-fmax-errors=0", "-o", exe, src]
                command += [a for p in paths for a in ("-I", os.path.join(self.source, p))]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode == 0:
                    out = subprocess.run([exe], capture_output=True, text=True, check=True)
                    for line in out.stdout.splitlines():
                        number, value = line.split()
                        known[list(todo)[int(number)]] = int(value)
                    return known
                bad = {int(m) for m in re.findall(r"ask\.c:(\d+):", done.stderr)}
                wrong = [lines[n] for n in bad if n in lines]
                if not wrong:
                    raise SystemExit(done.stderr)
                for expression in wrong:
                    del todo[expression]
        return known

    def _program(self, expressions, uvm):
        text = ["#include <stddef.h>", "#include <stdio.h>", "#include <stdint.h>"]
        text.append("#define __aligned(n) __attribute__((aligned(n)))")
        text += [f'#include "{h}"' for h in (UVM_HEADERS if uvm else self.rm_headers)]
        text.append("int main(void) {")
        lines = {}
        for number, expression in enumerate(expressions):
            lines[len(text) + 1] = expression
            text.append(f'printf("%d %lld\\n", {number}, (long long)({expression}));')
        text += ["return 0; }", ""]
        return "\n".join(text), lines
