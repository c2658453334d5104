// SPDX-License-Identifier: GPL-2.0
//! Bindings of kernel functions that the kernel's own `bindings` crate lacks, and of the C shims.
//! Kbuild makes them with bindgen from `extra.h` and the shims' headers; `CGPU_EXTRA` names the
//! file.

#![allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unused_imports,
    unreachable_pub,
    improper_ctypes,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]

include!(env!("CGPU_EXTRA"));
