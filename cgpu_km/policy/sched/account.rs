// SPDX-License-Identifier: GPL-2.0
//! What each instance was given, as far as that can be known.

use super::authority::{Gate, InstanceId, Nanos};
use super::fleet::Instance;
use super::rules::Terms;
use super::Scheduler;

pub use crate::uapi::Mode;

/// What one instance was given since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Time that it had the GPU: alone, in its windows or in its slices. Time under [`Mode::Native`] is not in it, since nobody knows whose that was.
    pub given: Nanos,
    /// Windows and slices that it had.
    pub windows: u64,
    /// Times that it was switched off with work.
    pub preemptions: u64,
    /// Time that a task of it slept at its doorbell.
    pub parked: Nanos,
}

/// An instance as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceView {
    /// Which.
    pub id: InstanceId,
    /// What the operator says.
    pub terms: Terms,
    /// It is taken to have work.
    pub working: bool,
    /// It has the GPU: its window, or it is not kept from it.
    pub running: bool,
    /// Its doorbells.
    pub gate: Gate,
    /// What it was given.
    pub account: Account,
}

/// The GPU as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuView {
    /// How it is shared.
    pub mode: Mode,
    /// Changes from one instance's window or slice to another's.
    pub switches: u64,
    /// Calls into the driver that the scheduler made.
    pub calls: u64,
}

impl Scheduler {
    /// The GPU as it stands.
    pub fn view(&self) -> GpuView {
        GpuView {
            mode: self.mode,
            switches: self.turn.switches,
            calls: self.limit.calls,
        }
    }

    /// An instance as it stands at `now`, if there is one.
    pub fn instance_view(&self, now: Nanos, id: InstanceId) -> Option<InstanceView> {
        let instance = self.fleet.find(id)?;
        let mut account = instance.account;
        if let Some(since) = instance.parked_since {
            account.parked = account.parked.saturating_add(now.saturating_sub(since));
        }
        let current = self.current_share(instance, now);
        account.given = account.given.saturating_add(current);
        Some(InstanceView {
            id,
            terms: instance.terms,
            working: instance.working,
            running: instance.want_compute && instance.want_gate != Gate::Shut,
            gate: instance.gate,
            account,
        })
    }

    /// Charges the time since the last change of mode to whoever had the GPU in it. Windows are charged
    /// when they end.
    pub(super) fn charge(&mut self, now: Nanos) {
        let mode = self.mode;
        let spent = now.saturating_sub(self.charged_until);
        self.charged_until = now;
        match mode {
            Mode::Slices if self.slices.are_open() => self.charge_slices(spent),
            // Of one; or of those who came until the thread looks.
            Mode::Free => {
                let each = portion(spent, 1, self.fleet.count_competing());
                for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
                    instance.account.given = instance.account.given.saturating_add(each);
                }
            }
            Mode::Native | Mode::Slices | Mode::Windows => {}
        }
    }

    /// What an instance was given that no account shows yet.
    fn current_share(&self, instance: &Instance, now: Nanos) -> Nanos {
        if !instance.competes() {
            return 0;
        }
        let spent = now.saturating_sub(self.charged_until);
        match self.mode {
            Mode::Slices if self.slices.is_runner(instance.id) => spent,
            Mode::Free => portion(spent, 1, self.fleet.count_competing()),
            Mode::Windows => self.turn.used_by(instance.id, now),
            Mode::Native | Mode::Slices => 0,
        }
    }

    /// The parts of all that compete.
    pub(super) fn competing_parts(&self) -> u64 {
        let parts = |i: &Instance| self.rules.parts(i.terms.weight);
        self.fleet.competing().map(parts).sum()
    }
}

/// `whole * parts / all`, rounded down. (The kernel has no division of 128 bits; parts are weights, whose
/// products are far below 64 bits.)
pub(super) fn portion(whole: u64, parts: u64, all: u64) -> u64 {
    let all = all.max(1);
    let rest = (whole % all).saturating_mul(parts) / all;
    (whole / all).saturating_mul(parts).saturating_add(rest)
}

/// Somewhere between 3/4 and 5/4 of a turn's length: samples that are taken every five turns, say, would find always the
/// same instance.
pub(super) fn uneven(length: Nanos, number: u64) -> Nanos {
    // The upper bits of a product with this odd number (2^64 by the golden ratio) look like chance.
    let chance = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
    (length / 64).saturating_mul(48 + chance)
}

/// A length that something may be owed.
pub(super) fn signed(length: Nanos) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
