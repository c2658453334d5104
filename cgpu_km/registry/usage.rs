// SPDX-License-Identifier: GPL-2.0
//! How instances are used, for reports about all of them.
//!
//! A program that gets no processor, or waits for memory, can keep its tenant's lock for long. A
//! report about all instances does not wait for that: it takes the lock if it is free, or comes
//! free soon. Otherwise it tells what was so when the lock was last let go, as far as somebody had
//! asked before. While the lock is kept, nothing of it changes.

use crate::{
    nvidia::capability::Capabilities,
    os_interface::{
        clock::now,
        sleep_until_signal, //
    },
    policy::ShareView, //
};
use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    }, //
};

/// How an instance is used now.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Its memory.
    pub share: ShareView,
    /// Open files of its own node.
    pub open_files: u32,
    /// Open files of the tenant's control and UVM nodes.
    pub tenant_open_files: u32,
    /// Processes that hold memory.
    pub processes: u32,
    /// The sets of calls that it may make.
    pub capabilities: Capabilities,
}

/// The usage of an instance as it was told last; `None` once that is destroyed. It is behind a
/// spinlock, in which no task is taken off its processor.
#[pin_data]
pub(super) struct ToldUsage {
    #[pin]
    last: SpinLock<Option<Usage>>,
}

impl ToldUsage {
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(pin_init!(Self { last <- new_spinlock!(None) }), GFP_KERNEL)
    }

    pub(super) fn set(&self, usage: Option<Usage>) {
        *self.last.lock() = usage;
    }

    pub(super) fn get(&self) -> Option<Usage> {
        *self.last.lock()
    }
}

/// How long a report looks again and again at tenants whose locks are taken, all of them together,
/// in nanoseconds. Between two looks is a millisecond, or up to two ticks of the kernel's clock: 8
/// ms with 250 of them a second, 20 ms with 100.
const PATIENCE: u64 = 10_000_000;

/// The patience of one report about all instances: until when it waits.
pub(super) struct Patience(u64);

impl Patience {
    pub(super) fn of_a_report() -> Self {
        Self(now().saturating_add(PATIENCE))
    }

    /// Waits a little; whether it did.
    pub(super) fn waits(&self) -> bool {
        now() < self.0 && sleep_until_signal(1).is_ok()
    }
}
