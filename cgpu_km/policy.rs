// SPDX-License-Identifier: GPL-2.0
//! What is decided about a tenant's memory and RM objects, and what is told about it.
//!
//! [`Books`] holds everything that one tenant owns: its share of each GPU (a ledger), its RM clients
//! and objects as trees (a forest), and what each object costs (charges). The proxy asks it before a
//! call that makes something (`begin_*`: reserve or refuse), forwards the call, and tells it what the
//! driver answered (`end_*`: commit or give back). Nothing here knows a kernel, a clock or a lock: the
//! caller holds one lock per tenant around each method, and none while the driver runs.
//!
//! # Calls in flight
//!
//! Threads of a tenant may have calls in flight at the same time, and the order in which the driver
//! executes them is not known here. Books stay on the safe side: whatever the order was, what the
//! driver may still hold is charged. In detail:
//!
//! * A handle that a caller chose is taken in the books before the call is forwarded, so that no
//!   second call for it is in flight. A handle that the driver chose and that the books still show is
//!   known to be gone there, since the driver's handles are unique; its object is credited and the
//!   new one stays charged until the tenant's last client goes (see `charge.rs`, "kept").
//! * Who frees names an object when the call begins ([`Books::begin_free`]); should the handle mean
//!   another object when the call ends, then that one stays charged.
//! * The source of a duplication stays known under its handle until the call ends, so that nobody can
//!   put another object there.
//! * An object whose parent went while it was made belongs to its client from then on; one whose
//!   client went is credited at once where no other client can have got that client's handle.

mod books;
mod charge;
mod event;
mod forest;
mod ledger;
mod lookup;
mod process;
pub mod report;
mod slots;
mod table;

#[cfg(test)]
mod tests;

pub use books::Books;
pub use event::{Alloc, AllocDone, FileId, FreeTicket, GpuId, ProcessId};
pub use event::{Refusal, RefusalCause, Ticket};
pub use ledger::{FbView, ShareView};

/// GPU memory that a compute context takes without any allocation that shows it (page tables,
/// instance memory, context buffers), in bytes.
///
/// Measured on one H200 with driver 580.159.04: what FB_GET_INFO reports as free falls by this much
/// more than the sum of the context's class 0x40 objects.
pub const CONTEXT_OVERHEAD: u64 = 9024 * 1024;

/// Most GPUs that one tenant can have a share of; as many as the control device serves.
pub const MAX_SHARES: usize = crate::uapi::MAX_GPUS;
