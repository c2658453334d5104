// SPDX-License-Identifier: GPL-2.0
//! The kernel's side of the module: the only unsafe code, the only C, the only kernel bindings.
//!
//! Its public items take and return no raw pointer and no bare address:
//!
//! * [`UserAddr`] is an address in a caller's memory.
//! * [`BackingFile`] is a file of the NVIDIA driver that the module opened.
//! * [`Endpoint`] is what a node stands for; it decides what an open proxied file is.
//! * [`Caller`] is a task inside an ioctl on a proxied file.
//!
//! # Why this is sound
//!
//! * The kernel passes pointers to an operation (`struct file`, `struct inode`, `vm_area_struct`).
//!   They are used inside that operation only. One exception: a session keeps its node's inode,
//!   which the file's path pins for longer.
//! * C code can reach operations, mappings and threads after they were registered. They are static,
//!   or pinned and owned by the object that C releases.
//! * The owner of each such object holds the module: a file by its operations' `owner`, a mapping
//!   by its file, a thread by the [`Worker`] that stops it.
//! * Each unsafe block holds one operation and says why it is allowed.

mod base;
mod calls;
mod driver;
pub mod entry;
mod files;
mod gate;
mod host;
mod nodes;
mod scratch;
pub mod vector;

pub use crate::proxy::UserAddr;
pub use base::{
    clock,
    frame::{
        host_memory,
        Frame, //
    },
    log,
    random::random,
    rt_mutex::{
        RtMutex,
        RtMutexGuard, //
    },
    rw_semaphore::{
        RwGuard,
        RwSemaphore, //
    },
    thread,
    wait::{
        sleep_until_signal,
        TaskGuard,
        TaskLock, //
    }, //
};
pub use calls::{
    caller::Caller,
    open_file::{
        KeptFile,
        MustWait,
        OpenFile, //
    },
    worker::{
        CallRoute,
        Worker, //
    }, //
};
pub use driver::{
    backing_file::{
        BackingFile,
        DeviceNumber, //
    },
    rmapi,
    shared_page::{
        self,
        PageQueue, //
    }, //
};
pub use files::{
    held::HeldFile,
    late::{
        LateEnds,
        LateQueue, //
    },
    mapping::{
        CopiedBy,
        Pages,
        ProgramMapping,
        Shown,
        TooManyCopies,
        Unmapped, //
    },
    pinned::while_pinned,
    session::Endpoint, //
};
pub use gate::{
    doorbell::Doorbell,
    Gate, //
};
pub use host::{
    changes::Changes,
    control_device,
    procfs, //
};
pub use nodes::{
    cgpufs,
    devices, //
};
pub use scratch::Scratch;
