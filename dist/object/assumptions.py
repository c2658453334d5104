#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""assumptions.py TREE UNDEFINED PROBE CRATES: prints cgpu_core.h, by which a kernel's compiler
checks what the object takes for granted.

UNDEFINED lists the symbols that the object wants. PROBE/prototypes is what the headers declare (gcc
-aux-info), CRATES/prototypes the helpers of the kernel's crate, which are C of the module's here.
What is declared otherwise on another kernel is an error of its compiler's. The bindings have the
values of the kernel's constants that Rust was compiled with."""

import re
import sys
from pathlib import Path

# Constants that the kernel's own crate uses for the module.
OF_CRATE = """GFP_KERNEL GFP_KERNEL_ACCOUNT __GFP_ZERO TASK_INTERRUPTIBLE TASK_UNINTERRUPTIBLE
TASK_NORMAL XA_PRESENT PAGE_SHIFT VM_READ VM_WRITE VM_EXEC VM_SHARED
VM_MAYREAD VM_MAYWRITE VM_MAYEXEC""".split()
# bindgen puts an enum's name before those of its values.
ENUM = re.compile(r"^(?:vm_fault_reason|fault_flag|hrtimer_mode)_")
DECLARED = re.compile(r"/\* .*? \*/ (?:extern |static )?(?:inline )?(.*?\W)(\w+) (\(.*\));")
# Functions that the compiler calls by itself, and the thunks of mitigations.
OF_COMPILER = re.compile(r"^(?:mem(?:cpy|set|move|cmp|chr)|bcmp|strlen|__x86_\w+)$")


def prototypes(path):
    """The declarations of a list of gcc's, by name: (what comes before it, its arguments)."""
    declared = {}
    for line in path.read_text().splitlines():
        if found := DECLARED.match(line):
            before, name, after = found.groups()
            declared[name] = before, after
    return declared


def main():
    tree, undefined, probe, crates = map(Path, sys.argv[1:])
    used = set()
    for path in sorted((tree / "cgpu_km").rglob("*.rs")):
        used.update(re.findall(r"\b(?:bindings|extra)::(\w+)", path.read_text()))
    values = {}
    of_kernel = crates / "objtree/rust/bindings/bindings_generated.rs"
    for path in (of_kernel, probe / "extra_generated.rs"):
        found = re.findall(r"^\s*pub const (\w+): [^=;]+ = (-?\d+);", path.read_text(), re.M)
        values.update(found)

    print("/* SPDX-License-Identifier: GPL-2.0 */")
    print("/* Made with the object, by dist/object/assumptions.py: what it takes for granted. */")
    for name in sorted((used & values.keys()) | set(OF_CRATE)):
        if name not in values:
            sys.exit(f"assumptions.py: the bindings have no {name}")
        constant = ENUM.sub("", name)
        print(f"static_assert((s64)({constant}) == {values[name]}LL);")

    declared = prototypes(crates / "prototypes") | prototypes(probe / "prototypes")
    for name in undefined.read_text().split():
        # A helper is the kernel's in its own build.
        known = name.replace("cgpu_helper_", "rust_helper_")
        if OF_COMPILER.match(name) or (name.startswith("cgpu_") and known not in declared):
            continue
        if known not in declared:
            sys.exit(f"assumptions.py: the object calls {name}(), which no header declares")
        before, after = declared[known]
        # In parentheses, so that a macro of that name is none here.
        print(f"extern {before}({name}) {after};")


if __name__ == "__main__":
    main()
