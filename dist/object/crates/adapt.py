#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""adapt.py RUST GENERATED PLACES [--moved]: makes a kernel's own crate one for every kernel. RUST
is that kernel's folder rust/, GENERATED has the bindings that were made for it; both are changed in
place. PLACES is places.h, which says how much room there is for a structure of the kernel's.

What is changed, and why:

* Sizes. A lock or a queue that lies inside of a structure of ours gets a place, as large as on any
  kernel, whatever size it has on this one.
* Names. A helper is the kernel's where that was built with Rust. Here it is C of the module's.
* Numbers. The flags of a table lie at other bits on other kernels; C has them by a kind.
* Memory. An allocation is resized by functions that old kernels lack. C of the module's does it,
  and is told the old size.
* Panics. The kernel's own handler prints with a format that kernels without Rust do not know.

Each change must find what it changes: a kernel whose crate is another one stops the build.

With --moved, every structure of the kernel's gets a member more, in front, so that its fields lie
elsewhere and its size is another one. An object in which that changes anything knows a field."""

import re
import sys
from pathlib import Path

# Structures of the kernel's that the crate puts into its own types.
PLACED = {
    "mutex": "cgpu_mutex",
    "spinlock": "cgpu_spinlock",
    "wait_queue_head": "cgpu_wait_queue",
    "wait_queue_entry": "cgpu_waiter",
    "xarray": "cgpu_xarray",
    "lock_class_key": "cgpu_lock_class",
}
STRUCTURE = r"^pub struct (\w+) \{(?!\s*_reserved)(?!\})"
# Structures that are one number on every kernel, which C checks (helpers/shim.c).
OF_ONE_SIZE = {"refcount_struct", "atomic_t", "atomic64_t", "pgprot", "pte_t"}
# Structures of parts of the crate that the module does not use, which name every member.
OF_OTHERS = set(
    """kernel_param_ops blk_mq_ops block_device_operations config_item_type configfs_attribute
    configfs_group_operations configfs_item_operations cpufreq_frequency_table iommu_flush_ops
    pci_device_id""".split()
)
# Nothing here takes memory of vmalloc's alone: there is no C for the third.
REALLOC = 'extern "C" {' + "".join(
    f"""
    fn cgpu_helper_{name}(
        old: *const crate::ffi::c_void,
        old_size: usize,
        size: usize,
        align: crate::ffi::c_ulong,
        flags: u32,
        node: crate::ffi::c_int,
    ) -> *mut crate::ffi::c_void;"""
    for name in ("krealloc", "kvrealloc", "vrealloc")
) + "\n}\n"


def change(path, *pairs):
    """Replaces text of a file; each pattern must be found exactly once."""
    text = path.read_text()
    for pattern, replacement in pairs:
        text, count = re.subn(pattern, lambda _: replacement, text, flags=re.S | re.M)
        if count != 1:
            sys.exit(f"adapt.py: {path} has {pattern!r} {count} times, not once: another crate?")
    path.write_text(text)


def move(found):
    """The beginning of a structure of the kernel's, with a member more."""
    start, name = found.group(0), found.group(1)
    return start if name in OF_ONE_SIZE | OF_OTHERS else f"{start}\n    pub _moved: [u64; 3usize],"


def place(words):
    return f"{{ _reserved: [u64; {words}usize], }}"


def main():
    rust, generated, places = (Path(path) for path in sys.argv[1:4])
    words = dict(re.findall(r"^CGPU_PLACE\((\w+), (\d+)\);", places.read_text(), re.M))

    bindings = generated / "bindings_generated.rs"
    for name, of in PLACED.items():
        structure = rf"^pub struct {name} \{{[^}}]*\}}"
        change(bindings, (structure, f"pub struct {name} {place(words[of])}"))
    for kind, name in enumerate(("XA_FLAGS_ALLOC", "XA_FLAGS_ALLOC1")):
        constant = rf"^pub const RUST_CONST_HELPER_{name}: gfp_t = \d+;"
        change(bindings, (constant, f"pub const RUST_CONST_HELPER_{name}: gfp_t = {kind};"))
    # Old kernels have a function for the names of errors, and not for modules.
    change(bindings, ("(?=^    pub fn errname\\()", '    #[link_name = "cgpu_helper_errname"]\n'))
    text = bindings.read_text().replace("pub const RUST_CONST_HELPER_", "pub const ")
    if sys.argv[4:] == ["--moved"]:
        text = re.sub(STRUCTURE, move, text, flags=re.M)
    bindings.write_text(text)

    helpers = generated / "bindings_helpers_generated.rs"
    helpers.write_text(
        re.sub(
            r"pub fn rust_helper_(\w+)",
            r'#[link_name = "cgpu_helper_\1"]\n    pub fn \1',
            helpers.read_text(),
        )
    )

    change(
        rust / "kernel/alloc/allocator.rs",
        (
            r"(?<=unsafe extern \"C\" fn\()\s+\*const crate::ffi::c_void,",
            " *const crate::ffi::c_void, usize,",
        ),
        (r"self\.0\(ptr\.cast\(\), size,", "self.0(ptr.cast(), old_layout.size(), size,"),
        (r"bindings::krealloc_node_align\b", "cgpu_helper_krealloc"),
        (r"bindings::vrealloc_node_align\b", "cgpu_helper_vrealloc"),
        (r"bindings::kvrealloc_node_align\b", "cgpu_helper_kvrealloc"),
        (r"\Z", REALLOC),
    )
    change(
        rust / "kernel/lib.rs",
        (r"^#\[cfg\(not\(testlib\)\)\]\n#\[panic_handler\]\nfn panic\(.*?^\}\n", ""),
    )


if __name__ == "__main__":
    main()
