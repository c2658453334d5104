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

mod base;
mod calls;
mod driver;
mod files;
mod gate;
mod host;
mod nodes;
mod scratch;
pub mod vector;

pub use crate::proxy::UserAddr;
pub use base::{
    clock,
    frame::Frame,
    printed::Printed,
    random::random,
    thread,
    wait::{OwnTurn, TaskTurn},
};
pub use calls::{
    caller::Caller,
    open_file::OpenFile,
    worker::{CallRoute, QueueKey, Worker},
};
pub use driver::{
    backing_file::{BackingFile, DeviceNumber},
    rmapi, shared_page,
};
pub use files::{
    held::HeldFile,
    mapping::{Pages, ProgramMapping, Shown, Unmapped},
    session::Endpoint,
};
pub use gate::{doorbell::Doorbell, Gate};
pub use host::{changes::Changes, control_device, procfs};
pub use nodes::{cgpufs, devices};
pub use scratch::Scratch;
