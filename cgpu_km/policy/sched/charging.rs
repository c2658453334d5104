// SPDX-License-Identifier: GPL-2.0
//! How GPU time is charged to instances, and the reports about a GPU and its instances.

use super::{
    authority::{
        InstanceId,
        Position, //
    },
    instance::{
        ChannelsOn,
        SchedInstance, //
    },
    scheduler::Scheduler,
    time::{
        portion,
        Nanos, //
    },
    views::{
        GpuView,
        InstanceView, //
    }, //
};
use crate::uapi::Mode;

impl Scheduler {
    /// The GPU as it stands.
    pub fn view(&self) -> GpuView {
        GpuView {
            mode: self.mode,
            switches: self.turn.switches(),
            calls: self.limit.calls(),
        }
    }

    /// An instance as it stands at `now`, if there is one.
    pub fn instance_view(&self, now: Nanos, id: InstanceId) -> Option<InstanceView> {
        let instance = self.fleet.find(id)?;
        let mut account = instance.account;
        if let Some(since) = instance.door.asleep_since() {
            account.blocked = account.blocked.saturating_add(now.saturating_sub(since));
        }
        let current = self.current_share(instance, now);
        account.gpu_time = account.gpu_time.saturating_add(current);
        let shut = instance.door.wanted() == Position::Shut;
        Some(InstanceView {
            id,
            terms: instance.terms,
            working: instance.habits.is_working(),
            running: instance.channels_on == ChannelsOn::All && !shut,
            gate: instance.door.position(),
            owed: instance.lag.owed(),
            account,
        })
    }

    /// Charges the time since the last change of mode to the instances that had the GPU in it.
    /// Windows are charged when they end.
    pub(super) fn charge(&mut self, now: Nanos) {
        self.grow_lags(now);
        let spent = now.saturating_sub(self.charged_until);
        self.charged_until = now;
        match self.mode {
            Mode::Slices if self.slices.are_open() => self.charge_slices(spent),
            // In this mode one instance has work. Others may have come since the thread last ran:
            // then all share the time equally.
            Mode::Free => {
                let each = portion(spent, 1, self.fleet.count_competing());
                for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
                    instance.account.gpu_time = instance.account.gpu_time.saturating_add(each);
                }
            }
            Mode::Native | Mode::Slices | Mode::Windows => {}
        }
    }

    /// The GPU time of an instance that its account does not show yet.
    pub(super) fn current_share(&self, instance: &SchedInstance, now: Nanos) -> Nanos {
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

    /// The sum of the parts of all competing instances.
    pub(super) fn competing_parts(&self) -> u64 {
        let parts = |i: &SchedInstance| self.rules.parts(i.terms.weight);
        self.fleet.competing().map(parts).sum()
    }
}
