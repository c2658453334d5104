// SPDX-License-Identifier: GPL-2.0
//! The kernel's side of the module: the only unsafe code, the only C, the only kernel bindings.
//!
//! What the rest of the module sees of it takes and returns no raw pointer and no bare address: an
//! address of a caller is a [`UserAddr`], a file of the NVIDIA driver is a [`BackingFile`], an open
//! proxied file is whatever the node's [`Endpoint`] makes of it, and a call on it is a [`Caller`].
//!
//! # Why this is sound
//!
//! * Pointers that the kernel hands in (`struct file`, `struct inode`, `vm_area_struct`) are used
//!   inside the operation that they were handed to and stored nowhere, except that a session keeps
//!   its node's inode, which the file's path pins for longer.
//! * Everything that C code can reach after the call that registered it (operations, mappings,
//!   kernel threads) is static, or pinned and owned by the object that C releases, and its owner
//!   holds the module: a file by its operations' `owner`, a mapping by its file, a thread by the
//!   [`Worker`] that stops it.
//! * Each unsafe block holds one operation and says why it is allowed.

mod backing_file;
mod caller;
pub mod cgpufs;
mod changes;
pub mod clock;
pub mod control_device;
mod creds;
mod doorbell;
mod gate;
mod held;
mod mapping;
pub mod nodes;
mod open_file;
mod printed;
pub mod procfs;
mod random;
mod registers;
pub mod rmapi;
mod scratch;
mod session;
pub mod shared_page;
pub mod thread;
mod user;
pub mod vector;
mod wait;
mod worker;

pub use backing_file::{BackingFile, DeviceNumber};
pub use caller::Caller;
pub use changes::Changes;
pub use doorbell::Doorbell;
pub use gate::Gate;
pub use held::HeldFile;
pub use mapping::{Frame, Mapping, Pages, Shown, Unmapped};
pub use open_file::OpenFile;
pub use printed::Printed;
pub use random::random;
pub use scratch::Scratch;
pub use session::Endpoint;
pub use user::UserAddr;
pub use wait::{OwnTurn, Turn};
pub use worker::{QueueKey, Route, Worker};

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
