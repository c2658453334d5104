// SPDX-License-Identifier: GPL-2.0
//! The kernel's side of the module: the only unsafe code, the only C, the only kernel bindings.
//!
//! What the rest of the module sees of it takes and returns no raw pointer and no bare address: an
//! address of a caller is a `UserAddr`, a file of the NVIDIA driver is a `BackingFile`, an open
//! proxied file is whatever the node's `Endpoint` makes of it.

pub mod store;


/// Bindings for what the kernel's own `bindings` crate lacks, and for the C shims (see Kbuild).
#[allow(
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
mod extra {
    include!(env!("CGPU_EXTRA"));
}
