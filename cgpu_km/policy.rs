// SPDX-License-Identifier: GPL-2.0
//! Decides about a tenant's memory and RM objects, and tells about them.
//!
//! [`Accounting`] holds everything that one tenant owns: its share of each GPU (a ledger), its RM
//! clients and objects as trees (a forest), and the cost of each object (charges).
//!
//! The proxy asks it before a call that makes something (`begin_*`: reserve or refuse), and
//! forwards the call. Then it passes the driver's answer on (`end_*`: commit or give back). Nothing
//! here knows a kernel, a clock or a lock: the caller holds one lock per tenant around each method,
//! and none while the driver runs.
//!
//! # Calls in flight
//!
//! Threads of a tenant may have calls in flight at the same time. The order in which the driver
//! executes them is not known here. In any order, memory that the driver may still hold is charged:
//!
//! * A call reserves all that it asks for before it is forwarded, the new object's handle included.
//!   If the caller leaves the handle to the driver, the accounting chooses it ([`Ticket::handle`]).
//! * Every name (client and handle) that a call uses is held until the call ends: its client, its
//!   parent, the source of a duplication, the object that it frees. The object may go in the
//!   meantime, but no other object can get its name. So the driver and the accounting mean the same
//!   object by it.
//! * If the parent of an object goes while the object is made, the object belongs to its client
//!   from then on. If the client goes, the object is credited at once.
//!
//! # Mappings
//!
//! UVM keeps what it maps, also after the object is freed. Each mapping is a hold of its own. It
//! begins before the driver is asked. It ends with a call that the program cannot bend: the end of
//! the file, or an unmapping of just those addresses for that GPU, which the driver does not refuse
//! while it has the mapping. The result of a call for more or fewer addresses is an output, and not
//! believed.
//!
//! # Descriptors
//!
//! The same holds for an object behind a descriptor: it is a hold from before the driver is asked
//! until the end of the file. The caller decides which file a call means, and that cannot change
//! during it.
//!
//! # Names of clients
//!
//! The driver chooses one name: that of a client. It counts those up and comes to the same one
//! again after a million (rs_server.c, `_serverCreateEntryAndLockForNewClient`). So an output that
//! names a client which is still here is not the driver's: the program has overwritten it.
//!
//! # Files
//!
//! Each file imports only files below it. At the bottom are names and containers (`ids`, `records`,
//! `record_table`, `skip_list`), above them what they hold (`ledger`, `charge`, `forest`,
//! `gpu_mapping`, `ranges`, `managed`). `accounting` holds one of each, and the files in
//! `accounting/` change them.

mod accounting;
mod audit;
mod boost;
pub mod channel_limit;
mod channels;
mod charge;
mod client_lists;
mod count;
mod cpu_mapping;
mod cuts;
mod demand;
mod descriptor;
mod event;
mod file_costs;
mod fixed_ranges;
mod forest;
mod gpu_mapping;
mod ids;
mod ledger;
mod ledgers;
mod life;
mod managed;
mod managed_space;
mod mapped_host;
mod mapping_records;
mod object;
mod os_events;
mod overhead;
mod paging;
mod polls;
mod process;
mod quota;
mod range_groups;
mod range_mappings;
mod ranges;
mod record_table;
mod records;
pub mod refusal_rate;
mod registered;
pub mod report;
pub mod rusd;
pub mod sched;
mod share_view;
mod skip_list;
mod span;
mod splits;
mod steps;

#[cfg(test)]
mod tests;

pub use crate::uapi::{
    Limited,
    ManagedMode, //
};
pub use accounting::{
    balance::MakingRoom,
    cuts::UnmapTicket,
    lookup::Surroundings,
    rm_maps::{
        RangeMapTicket,
        RangeUnmapTicket, //
    },
    structs::SplitTicket,
    Accounting, //
};
pub use audit::{
    AuditRecord,
    Audited,
    CallKind,
    Notice,
    Reason,
    BURST,
    INTERVAL_S,
    MOST_RECORDS, //
};
pub use boost::{
    Boost,
    BoostCall,
    Boosts,
    BOOST_STAYS, //
};
pub use channels::{
    ChannelChange,
    ChannelEvent, //
};
pub use client_lists::ClientLists;
pub use event::{
    Alloc,
    AllocDone,
    DescriptorPlaces,
    ExportTicket,
    FreeTicket,
    ImportTicket,
    Map,
    MapTicket,
    PreemptionOrder,
    RefusalCause,
    RegisterTicket,
    RmMap,
    RmMapTicket,
    RmUnmap,
    StreamPart,
    Ticket, //
};
pub use fixed_ranges::FixedKind;
pub use gpu_mapping::FoundMapping;
pub use ids::{
    FileId,
    GpuId,
    ProcessId,
    MAX_SHARES, //
};
pub use ledgers::NoSuchShare;
pub use managed::{
    Admission,
    ManagedOrder,
    ManagedTouch,
    Run,
    Tell, //
};
pub use managed_space::{
    Location,
    ManagedWish, //
};
pub use overhead::ContextCost;
pub use paging::tables_of;
pub use quota::{
    GpuSize,
    LimitView,
    EXPORT_HANDLES, //
};
pub use ranges::{
    RangeEnd,
    RangeTicket, //
};
pub use registered::{
    FoundChannel,
    Registered, //
};
pub use share_view::{
    FbView,
    ShareView, //
};
pub use span::Span;
