#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""adapt.py FOLDER BRANCH: changes NVIDIA's kernel-side sources, in a copy, where the kernel that
they are built for wants something else and a header cannot help (linux-compat.h is that header).

Each edit is a pattern, and says how often it fits in which branch. Another number is an error: the
sources are not those that the edit was made for. A branch that no edit names may have any number,
and what was done is printed."""

import re
import sys
from pathlib import Path

# (file, pattern, replacement, {branch: how often}, why)
EDITS = (
    (
        "common/inc/nv-linux.h",
        r"#include <linux/of_gpio\.h>\n",
        "",
        {"580": (1,), "595": (1,)},
        "it is gone, and only platform devices use what was in it",
    ),
    (
        "common/inc/nv-mm.h",
        r"(#define NV_CAN_CALL_VMA_START_WRITE) 0\b",
        r"\1 1",
        {"535": (0, 1), "550": (0, 1), "570": (0,), "580": (0,), "595": (0,)},
        "they are GPL and may call what is exported for such; Debian's patch says no",
    ),
    (
        "common/inc/nv-mm.h",
        r"vma->vm_flags \|= flags;",
        "vm_flags_set(vma, flags);",
        {"535": (1,), "550": (1,), "570": (1,), "580": (1,), "595": (1,)},
        "their test for constant flags looks for __vm_flags, which is gone",
    ),
    (
        "common/inc/nv-mm.h",
        r"vma->vm_flags &= ~flags;",
        "vm_flags_clear(vma, flags);",
        {"535": (1,), "550": (1,), "570": (1,), "580": (1,), "595": (1,)},
        "the same",
    ),
    (
        "nvidia-uvm/uvm_pmm_gpu.c",
        r"\.page_free *= *(\w+),",
        r".folio_free = (void (*)(struct folio *))\1,",
        {"535": (1,), "550": (1,), "570": (2,), "580": (3,), "595": (3,)},
        "the callback gets a folio, whose first member is the page that they expect",
    ),
)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: adapt.py FOLDER BRANCH")
    folder, branch = Path(sys.argv[1]), sys.argv[2]
    for name, pattern, replacement, expected, why in EDITS:
        path = folder / name
        text, found = re.subn(pattern, replacement, path.read_text())
        if branch in expected and found not in expected[branch]:
            sys.exit(f"{name}: `{pattern}` fits {found} times, not {expected[branch]} ({why})")
        path.write_text(text)
        print(f"{name}: {found} of `{pattern}`: {why}")


if __name__ == "__main__":
    main()
