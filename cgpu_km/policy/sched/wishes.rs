// SPDX-License-Identifier: GPL-2.0
//! What everybody should have, as it follows from the mode and from whose window it is.

use super::account::Mode;
use super::authority::{Gate, Nanos};
use super::fleet::DEFAULT_SLICE_US;
use super::Scheduler;

impl Scheduler {
    /// Sets what everybody should have.
    pub(super) fn wish(&mut self, now: Nanos) {
        let mode = self.mode;
        let capabilities = self.capabilities;
        let holder = self.turn.holder;
        let begun = self.turn.since.is_some();
        let rearm = begun && now >= self.turn.rearm_at;
        let mut armed = false;
        for instance in self.fleet.instances_mut() {
            instance.want_compute = true;
            instance.want_others = true;
            instance.fresh &= mode == Mode::Windows;
            instance.want_slice = DEFAULT_SLICE_US;
            instance.want_gate = match mode {
                Mode::Native => Gate::Open,
                Mode::Free | Mode::Slices if instance.working => Gate::Open,
                Mode::Free | Mode::Slices => Gate::Armed,
                Mode::Windows if holder == Some(instance.id) => {
                    if instance.gate == Gate::Open && begun && !rearm {
                        Gate::Open
                    } else {
                        armed |= begun && instance.gate != Gate::Armed;
                        Gate::Armed
                    }
                }
                // No work, or what it has waits at the gate: nothing to switch off.
                Mode::Windows if !instance.working || instance.fresh => Gate::Shut,
                Mode::Windows => {
                    instance.want_compute = false;
                    if instance.terms.high_priority || instance.gate == Gate::Shut {
                        Gate::Armed
                    } else {
                        instance.gate
                    }
                }
            };
            if instance.terms.suspended {
                instance.want_gate = Gate::Shut;
                instance.want_compute = false;
                instance.want_others = false;
                if !capabilities.switch {
                    instance.want_slice = 0;
                }
            }
            if !capabilities.doorbell {
                instance.want_gate = Gate::Open;
            }
        }
        if armed {
            self.turn.armed_at = now;
        }
        if mode == Mode::Slices {
            self.wish_gates(now);
        }
        self.wish_slices();
    }
}
