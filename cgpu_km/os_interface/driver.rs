// SPDX-License-Identifier: GPL-2.0
//! The NVIDIA driver: its files, its pages, and its interface for other kernel modules.

pub(super) mod backing_file;
mod operations;
pub mod rmapi;
pub mod shared_page;
pub(super) mod vm_tables;
