// SPDX-License-Identifier: GPL-2.0
//! The pure part of the kernel module, as a library for the host.
//!
//! `cgpu_km_main.rs` compiles these same files into the module; this root lets Cargo compile, test
//! and fuzz them without a kernel. The kernel build proves that they need no `std`, this one that
//! they need no kernel.

#![forbid(unsafe_code)]

pub mod nvidia;
pub mod policy;
pub mod proxy;
pub mod store;
#[path = "uapi/lib.rs"]
pub mod uapi;
#[path = "vector_host.rs"]
mod vector;
pub mod whole;
