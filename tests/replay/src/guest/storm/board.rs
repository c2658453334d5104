// SPDX-License-Identifier: GPL-2.0
//! State that the processes of a storm share, and their number.

use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::guest::tools::MIB;

/// Names and limits of the tenants.
pub(super) const TENANTS: [(&str, u64); 2] = [("storm-one", 384 * MIB), ("storm-two", 256 * MIB)];
/// Processes of each tenant.
pub(super) const PROCESSES: usize = 3;
pub(super) const SEATS: usize = TENANTS.len() * PROCESSES;
/// Threads of each process.
pub(super) const THREADS: u32 = 3;

/// State that all processes share.
#[repr(C)]
pub(super) struct Board {
    /// Not 0: stand still.
    pub(super) pause: AtomicU32,
    /// Not 0: free and copy what belongs to other threads.
    pub(super) wild: AtomicU32,
    /// Calls, those that were granted memory and those that were refused some.
    pub(super) calls: AtomicU64,
    pub(super) granted: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Something that must not happen did; which is in `worker`.
    pub(super) wrong: AtomicU32,
    pub(super) seats: [Seat; SEATS],
}

/// One process.
#[repr(C)]
pub(super) struct Seat {
    /// Threads that stand still.
    pub(super) still: AtomicU32,
    /// Memory that others may copy: client and handle.
    pub(super) memory: [AtomicU64; 4],
}
