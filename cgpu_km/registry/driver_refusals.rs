// SPDX-License-Identifier: GPL-2.0
//! A tenant's calls that the driver refuses, which may fill the host's log, and their price.

use super::seldom::Seldom;
use crate::{
    os_interface::{
        clock::now,
        entry::driver_refusals,
        log::pr_warn,
        sleep_until_signal, //
    },
    policy::refusal_rate::RefusalRate,
    uapi::Name, //
};
use kernel::{
    prelude::*,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    }, //
};

/// How long a task sleeps at once, milliseconds.
const LOOK_MS: u64 = 1000;
/// Times of [`now`], 0 where there was none.
pub(super) struct DriverRefusals {
    /// See [`crate::policy::refusal_rate`].
    made_up_ns: Atomic<u64>,
    told: Seldom,
    /// How many GPUs the tenant has.
    gpus: Atomic<u32>,
}

impl DriverRefusals {
    pub(super) fn new() -> Self {
        Self {
            made_up_ns: Atomic::new(0),
            told: Seldom::new(),
            gpus: Atomic::new(0),
        }
    }

    /// The tenant has so many GPUs now.
    pub(super) fn set_gpus(&self, gpus: usize) {
        self.gpus
            .store(u32::try_from(gpus).unwrap_or(u32::MAX), Relaxed);
    }

    /// The operator's limit now.
    fn rate(&self) -> RefusalRate {
        RefusalRate::for_gpus(driver_refusals(), self.gpus.load(Relaxed))
    }

    /// How long a call of the tenant's waits now, nanoseconds.
    fn wait_ns(&self) -> u64 {
        let made_up = self.made_up_ns.load(Relaxed);
        if made_up == 0 {
            return 0;
        }
        let now = now();
        if made_up <= now {
            // Nothing is left to make up for, so later calls need not ask for the time.
            let _ = self.made_up_ns.cmpxchg(made_up, 0, Full);
            return 0;
        }
        self.rate().wait_ns(made_up, now)
    }

    /// The driver has refused a call.
    pub(super) fn note(&self) {
        let state = &self.made_up_ns;
        let mut before = state.load(Relaxed);
        let after = |before| self.rate().after_refusal(before, now());
        while let Err(other) = state.cmpxchg(before, after(before), Full) {
            before = other;
        }
    }

    /// Whether a call of the tenant's would wait now.
    pub(super) fn is_waiting(&self) -> bool {
        self.wait_ns() > 0
    }

    /// Waits until the driver may refuse a call of the tenant of this name. `ERESTARTNOINTR` if a
    /// signal comes meanwhile.
    #[inline]
    pub(super) fn wait(&self, tenant: &Name) -> Result {
        // Each call of each program comes here, and hardly ever has one been refused.
        if self.made_up_ns.load(Relaxed) == 0 {
            return Ok(());
        }
        self.wait_for_time(tenant)
    }

    #[cold]
    fn wait_for_time(&self, tenant: &Name) -> Result {
        loop {
            let wait = self.wait_ns();
            if wait == 0 {
                return Ok(());
            }
            if self.told.is_due() {
                let tenant = tenant.as_str().unwrap_or_default();
                pr_warn!("{tenant}: the driver refuses too many of its calls, which wait now\n");
            }
            let milliseconds = wait.div_ceil(1_000_000).min(LOOK_MS);
            sleep_until_signal(u32::try_from(milliseconds).unwrap_or(u32::MAX))?;
        }
    }
}
