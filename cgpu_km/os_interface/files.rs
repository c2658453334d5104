// SPDX-License-Identifier: GPL-2.0
//! Proxied files and their mappings: what the kernel calls for an open file of a node.

pub(super) mod file_operations;
mod first_memory;
pub(super) mod held;
pub(super) mod late;
pub(super) mod mapping;
mod opening;
pub(super) mod pinned;
mod registers;
pub(super) mod session;
mod settle;
mod vm_operations;
