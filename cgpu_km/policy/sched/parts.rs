// SPDX-License-Identifier: GPL-2.0
//! How long a turn is, what part of it each instance is given, and who is next in it.

use super::account::{portion, signed, uneven};
use super::authority::{InstanceId, Nanos};
use super::fleet::Instance;
use super::rules::WHOLE;
use super::Scheduler;

/// A turn grows to this many parts of its length for windows that are worth their calls (13/8: to 52 ms of 32): 38
/// windows in 2 s, before the calls.
const LONGER: u64 = 13;
const LONGER_PARTS: u64 = 8;

impl Scheduler {
    /// Whether an instance of high priority waits that may have more of this turn.
    pub(super) fn somebody_urgent(&self) -> bool {
        let least = signed(self.costs.least_window);
        self.fleet.instances().any(|i| {
            i.competes()
                && i.terms.high_priority
                && (i.granted != self.turn.number || i.owed >= least)
        })
    }

    /// Chooses who is next, in this turn or a new one. Returns false where there are to be slices.
    pub(super) fn pick(&mut self, now: Nanos) -> bool {
        self.grant();
        let mut next = self.next_in_turn();
        let end = self.turn.began.saturating_add(self.turn.length);
        if next.is_none() {
            let cap = |i: &Instance| self.rules.cap(i.terms.weight).is_some();
            let capped = self.fleet.competing().any(cap);
            if capped && now < end {
                self.deadline = Some(end);
                return true;
            }
            if !capped && self.begin_slices(now) {
                return false;
            }
            // What everybody would have had in the pause counts from its end on: a turn that began late
            // for want of a timer is no gain.
            let late = now.saturating_sub(end);
            self.turn.began = if capped && late < self.turn.length {
                end
            } else {
                now
            };
            let length = self.turn_length();
            self.turn.length = length;
            // Parts that are too small for a window add up over turns.
            for _ in 0..64 {
                self.turn.number = self.turn.number.wrapping_add(1);
                if now < self.uneven_until {
                    self.turn.length = uneven(length, self.turn.number);
                }
                self.grant();
                next = self.next_in_turn();
                if next.is_some() || capped {
                    break;
                }
            }
        }
        self.turn.holder = next;
        self.turn.since = None;
        self.turn.free_at = now;
        true
    }

    pub(super) fn turn_length(&self) -> Nanos {
        let shares = self.fleet.competing();
        let least = shares.map(|i| self.entitled(i)).min().unwrap_or(WHOLE);
        let turn = self.rules.turn();
        let with_least = |window| portion(window, WHOLE, least);
        let mut wanted = with_least(self.costs.shortest_window);
        // Over a given time a share can be off by what one turn is of it. So turns grow little for the sake
        // of long windows; a cap, whose windows lose most at their beginning, needs these.
        if !self.rules.policy.is_hard() {
            let longest = turn / LONGER_PARTS * LONGER;
            wanted = wanted.min(longest.max(with_least(self.costs.least_window)));
        }
        turn.max(wanted.min(turn.saturating_mul(4)))
    }

    /// What an instance that competes should have of the GPU, in parts of [`WHOLE`].
    fn entitled(&self, instance: &Instance) -> u64 {
        if let Some(cap) = self.rules.cap(instance.terms.weight) {
            return cap.max(1);
        }
        let (mut high, mut low) = (0, 0);
        for other in self.fleet.competing() {
            let parts = self.rules.parts(other.terms.weight);
            if other.terms.high_priority {
                high += parts;
            } else {
                low += parts;
            }
        }
        let own = self.rules.parts(instance.terms.weight);
        let by_weight = portion(WHOLE, own, high + low).max(1);
        if high == 0 || low == 0 {
            return by_weight;
        }
        let privilege = u64::from(self.rules.priority_percent) * WHOLE / 100;
        let for_high = privilege.max(portion(WHOLE, high, high + low));
        if instance.terms.high_priority {
            portion(for_high, own, high).max(1)
        } else {
            portion(WHOLE.saturating_sub(for_high), own, low).max(1)
        }
    }

    /// The same of this turn.
    fn part_of_turn(&self, instance: &Instance) -> i64 {
        signed(portion(self.turn.length, self.entitled(instance), WHOLE))
    }

    /// Gives everybody who competes the part of this turn, once.
    fn grant(&mut self) {
        if self.turn.length == 0 {
            return;
        }
        let number = self.turn.number;
        loop {
            let mut competing = self.fleet.instances();
            let Some(next) = competing.find(|i| i.competes() && i.granted != number) else {
                break;
            };
            let part = self.part_of_turn(next);
            let most = part
                .saturating_mul(2)
                .max(signed(self.costs.shortest_window));
            let id = next.id;
            drop(competing);
            let Some(next) = self.fleet.find_mut(id) else {
                break;
            };
            next.owed = next.owed.saturating_add(part).clamp(-most, most + part);
            next.granted = number;
        }
    }

    /// The next instance of this turn, if anybody is owed a window: those of high priority first.
    fn next_in_turn(&self) -> Option<InstanceId> {
        if self.turn.length == 0 {
            return None;
        }
        let least = signed(self.costs.least_window);
        let waiting = || {
            let owed = |i: &&Instance| i.competes() && i.owed >= least;
            self.fleet.instances().filter(owed)
        };
        let high = waiting().find(|i| i.terms.high_priority);
        let next = high.or_else(|| waiting().next());
        next.map(|i| i.id)
    }
}
