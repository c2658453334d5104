#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""adapt.py FOLDER BRANCH KERNEL: changes NVIDIA's kernel-side sources, in a copy, where the kernel
that they are built for wants something else and a header cannot help (linux-compat.h is that
header). KERNEL is the kernel's `include`. Options of a compiler are printed, which tell
linux-compat.h what the kernel has.

Each edit is a pattern, and says how often it fits in which branch. Another number is an error: the
sources are not those that the edit was made for. A branch that no edit names may have any number,
and what was done is said on stderr. An edit that names a feature is made only for kernels that have
it."""

import re
import sys
from pathlib import Path

# Some kernels have these: (header, pattern). Distributions take such changes into older kernels, so
# the version says nothing.
FEATURES = {
    "FOLIO_FREE": ("linux/memremap.h", r"\(\*folio_free\)"),
    "MAP_PHYS": ("linux/dma-map-ops.h", r"\(\*map_phys\)"),
    "PAGE_INIT_TAKES_ORDER": ("linux/memremap.h", r"\bzone_device_page_init\([^)]*\border\b"),
    "RESIZE_TAKES_BARS": ("linux/pci.h", r"\bpci_resize_resource\([^)]*\bexclude_bars\b"),
    "VM_FLAGS_SET": ("linux/mm.h", r"\bvm_flags_set\("),
}

# (file, pattern, replacement, {branch: how often}, feature or None, why)
EDITS = (
    (
        "common/inc/nv-linux.h",
        r"#include <linux/of_gpio\.h>\n",
        "",
        {"580": (1,), "595": (1,)},
        None,
        "later kernels have it no more, and only platform devices use what was in it",
    ),
    (
        "common/inc/nv-mm.h",
        r"(#define NV_CAN_CALL_VMA_START_WRITE) 0\b",
        r"\1 1",
        {"535": (0, 1), "550": (0, 1), "570": (0,), "580": (0,), "595": (0,)},
        None,
        "they are GPL and may call what is exported for such; Debian's patch says no",
    ),
    (
        "common/inc/nv-mm.h",
        r"vma->vm_flags \|= flags;",
        "vm_flags_set(vma, flags);",
        {"535": (1,), "550": (1,), "570": (1,), "580": (1,), "595": (1,)},
        "VM_FLAGS_SET",
        "their test for constant flags looks for __vm_flags, which is gone",
    ),
    (
        "common/inc/nv-mm.h",
        r"vma->vm_flags &= ~flags;",
        "vm_flags_clear(vma, flags);",
        {"535": (1,), "550": (1,), "570": (1,), "580": (1,), "595": (1,)},
        "VM_FLAGS_SET",
        "the same",
    ),
    (
        "nvidia-uvm/uvm_pmm_gpu.c",
        r"\.page_free *= *(\w+),",
        r".folio_free = (void (*)(struct folio *))\1,",
        {"535": (1,), "550": (1,), "570": (2,), "580": (3,), "595": (3,)},
        "FOLIO_FREE",
        "the callback gets a folio, whose first member is the page that they expect",
    ),
)


def has(kernel, feature):
    """Whether a kernel has a feature, by its headers."""
    header, pattern = FEATURES[feature]
    return bool(re.search(pattern, (kernel / header).read_text()))


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: adapt.py FOLDER BRANCH KERNEL")
    folder, branch, kernel = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    features = [feature for feature in FEATURES if has(kernel, feature)]
    for name, pattern, replacement, expected, feature, why in EDITS:
        path = folder / name
        text, found = re.subn(pattern, replacement, path.read_text())
        if branch in expected and found not in expected[branch]:
            sys.exit(f"{name}: `{pattern}` fits {found} times, not {expected[branch]} ({why})")
        if feature and feature not in features:
            continue
        path.write_text(text)
        print(f"{name}: {found} of `{pattern}`: {why}", file=sys.stderr)
    print(*(f"-DKERNEL_HAS_{feature}" for feature in features))


if __name__ == "__main__":
    main()
