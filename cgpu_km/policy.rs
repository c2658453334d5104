// SPDX-License-Identifier: GPL-2.0
//! What is decided about a tenant's memory and RM objects, and what is told about it.
//!
//! [`Accounting`] holds everything that one tenant owns: its share of each GPU (a ledger), its RM clients
//! and objects as trees (a forest), and what each object costs (charges). The proxy asks it before a
//! call that makes something (`begin_*`: reserve or refuse), forwards the call, and tells it what the
//! driver answered (`end_*`: commit or give back). Nothing here knows a kernel, a clock or a lock: the
//! caller holds one lock per tenant around each method, and none while the driver runs.
//!
//! # Calls in flight
//!
//! Threads of a tenant may have calls in flight at the same time, and the order in which the driver
//! executes them is not known here. Whatever it is, what the driver may still hold is charged:
//!
//! * What a call asks for is reserved before it is forwarded, the new object's handle included. Where
//!   the caller leaves the handle to the driver, the accounting chooses it ([`Ticket::handle`]).
//! * Every name (client and handle) that a call uses is held until the call ends: its client, its
//!   parent, the source of a duplication, what it frees. What has the name may go in the meantime, but
//!   nothing else can get it, so that the driver cannot understand another object by it than the accounting
//!   do.
//! * An object whose parent goes while it is made belongs to its client from then on; one whose client
//!   goes is credited at once.
//!
//! # Mappings
//!
//! UVM keeps what it maps, whatever becomes of the object. Each mapping is a hold of its own, from before
//! the driver is asked until a call that the program cannot bend has taken it away: an unmapping of just
//! those addresses for that GPU, which the driver does not refuse while it has the mapping, or the end
//! of the file. Whether a call for more or fewer addresses has worked is an output, and not believed.
//!
//! # Descriptors
//!
//! The same holds for what is put behind a descriptor: each object there is a hold, from before the
//! driver is asked until the end of the file. Which file a call means is decided by whoever makes the
//! call, and cannot change during it.
//!
//! # Names of clients
//!
//! The one name that the driver chooses is that of a client. It counts those up and comes to the same
//! one again after a million (rs_server.c, `_serverCreateEntryAndLockForNewClient`). A client that the
//! driver has given a handle which the accounting still know has taken the place of the former one.

mod accounting;
mod answers;
mod audit;
mod boost;
mod channels;
mod charge;
mod descriptor;
mod event;
mod exports;
mod forest;
mod ledger;
mod lookup;
mod managed;
mod mapping;
mod maps;
mod object;
mod order;
mod overhead;
mod paging;
mod process;
mod ranges;
pub mod report;
pub mod rusd;
pub mod sched;
mod slots;
mod table;

#[cfg(test)]
mod tests;

pub use accounting::Accounting;
pub use audit::{AuditRecord, Audited, CallKind, Notice, Reason};
pub use audit::{BURST, INTERVAL_S, MOST_RECORDS};
pub use boost::{Boost, BoostCall, Boosts, BOOST_STAYS};
pub use channels::{ChannelChange, ChannelEvent};
pub use event::{Alloc, AllocDone, FileId, FreeTicket, GpuId, MapTicket, ProcessId, RmMapTicket};
pub use event::{ExportTicket, ImportTicket, Refusal, RefusalCause, Ticket};
pub use exports::Places;
pub use ledger::{FbView, ManagedMode, ShareView};
pub use managed::{Entry, Location, Order, Run, Tell, Touch, Wish};
pub use mapping::{Mapped, Span};
pub use maps::Map;
pub use overhead::ContextCost;
pub use paging::tables_of;
pub use ranges::{RangeEnd, RangeTicket};

/// Most GPUs that one tenant can have a share of; as many as the control device serves.
pub const MAX_SHARES: usize = crate::uapi::MAX_GPUS;
