// SPDX-License-Identifier: GPL-2.0
//! How long a turn is, what part of it each instance is given, and which one is next in it.

use super::{
    authority::InstanceId,
    instance::SchedInstance,
    plan::Planned,
    rules::WHOLE,
    scheduler::Scheduler,
    time::{
        portion,
        signed,
        uneven,
        Nanos, //
    }, //
};

/// A turn grows to this many parts of its length for windows that are worth their calls.
///
/// 13/8, to 52 ms of 32: 38 windows in 2 s, before the calls.
const LONGER: u64 = 13;
/// The parts of a turn's length in which [`LONGER`] counts.
const LONGER_PARTS: u64 = 8;
/// Parts that are too small for a window add up over so many turns at most.
const MOST_EMPTY_TURNS: u32 = 64;

impl Scheduler {
    /// The least GPU time that is worth a window.
    fn least_window(&self) -> i64 {
        signed(self.costs.least_window)
    }

    /// Whether an instance of high priority waits that may have more of this turn.
    pub(super) fn is_somebody_urgent(&self) -> bool {
        let least = self.least_window();
        let has_more = |i: &SchedInstance| {
            !i.lag.rules()
                && (!i.balance.has_part_of(self.turn.number) || i.balance.owed() >= least)
        };
        self.fleet
            .competing()
            .any(|i| i.terms.high_priority && has_more(i))
    }

    /// Chooses the next instance, in this turn or a new one, or begins slices.
    pub(super) fn pick(&mut self, now: Nanos) -> Planned {
        self.give_parts();
        let mut next = self.next_burst(now).or_else(|| self.next_in_turn());
        if next.is_none() {
            let cap = |i: &SchedInstance| self.rules.cap(i.terms.weight).is_some();
            let capped = self.fleet.competing().any(cap);
            if capped && now < self.turn.end() {
                self.deadline = Some(self.turn.end());
                return Planned::Settled;
            }
            if !capped && self.begin_slices(now) {
                return Planned::ChooseAgain;
            }
            next = self.begin_turn(now, capped);
        }
        self.turn.give_window(now, next);
        Planned::Settled
    }

    /// Begins the next turn in which an instance is owed a window; that instance, if there is one.
    fn begin_turn(&mut self, now: Nanos, capped: bool) -> Option<InstanceId> {
        // Under a cap the next turn begins where the last one ended, even if the timer was late, so
        // that a late turn is no gain.
        let end = self.turn.end();
        let late = now.saturating_sub(end);
        self.turn.begin(if capped && late < self.turn.length {
            end
        } else {
            now
        });
        let length = self.turn_length();
        self.turn.length = length;
        for empty in 0..MOST_EMPTY_TURNS {
            if empty == 1 && !capped {
                self.serve_all_by_turns();
            }
            self.turn.number = self.turn.number.wrapping_add(1);
            if self.doubt.wants_uneven_turns(now) {
                self.turn.length = uneven(length, self.turn.number);
            }
            self.give_parts();
            let next = self.next_burst(now).or_else(|| self.next_in_turn());
            if next.is_some() || capped {
                return next;
            }
        }
        None
    }

    /// How long a turn of those that compete is.
    pub(super) fn turn_length(&self) -> Nanos {
        let shares = self.fleet.competing();
        let least = shares.map(|i| self.entitled(i)).min().unwrap_or(WHOLE);
        let turn = self.rules.turn();
        let with_least = |window| portion(window, WHOLE, least);
        if self.rules.overlaps() && !self.rules.policy.is_hard() {
            let all = self.fleet.count_competing();
            return turn.max(self.costs.shortest_window.saturating_mul(all));
        }
        let mut wanted = with_least(self.costs.shortest_window);
        // Over a given time a share can be off by what one turn is of it. So turns grow little for
        // the sake of long windows. A cap, whose windows lose most at their beginning, needs these.
        if !self.rules.policy.is_hard() {
            let longest = turn / LONGER_PARTS * LONGER;
            wanted = wanted.min(longest.max(with_least(self.costs.least_window)));
        }
        turn.max(wanted.min(turn.saturating_mul(4)))
    }

    /// The share of the GPU that an instance that competes should have, in parts of [`WHOLE`].
    fn entitled(&self, instance: &SchedInstance) -> u64 {
        self.share_among(instance, SchedInstance::competes)
    }

    /// The share of the GPU that an instance should have among these.
    pub(super) fn share_among(
        &self,
        instance: &SchedInstance,
        among: impl Fn(&SchedInstance) -> bool,
    ) -> u64 {
        if let Some(cap) = self.rules.cap(instance.terms.weight) {
            return cap.max(1);
        }
        let (mut high, mut low) = (0, 0);
        for other in self.fleet.instances().filter(|i| among(i)) {
            let parts = self.rules.parts(other.terms.weight);
            if other.terms.high_priority {
                high += parts;
            } else {
                low += parts;
            }
        }
        let own = self.rules.parts(instance.terms.weight);
        if high == 0 || low == 0 {
            return portion(WHOLE, own, high + low).max(1);
        }
        let privilege = u64::from(self.rules.priority_percent) * WHOLE / 100;
        let for_high = privilege.max(portion(WHOLE, high, high + low));
        if instance.terms.high_priority {
            portion(for_high, own, high).max(1)
        } else {
            portion(WHOLE.saturating_sub(for_high), own, low).max(1)
        }
    }

    /// Gives each instance that competes its part of this turn, once.
    fn give_parts(&mut self) {
        if self.turn.length == 0 {
            return;
        }
        let number = self.turn.number;
        loop {
            let mut competing = self.fleet.competing();
            let lacks = |i: &&SchedInstance| !i.lag.rules() && !i.balance.has_part_of(number);
            let Some(next) = competing.find(lacks) else {
                break;
            };
            let part = signed(portion(self.turn.length, self.entitled(next), WHOLE));
            let most = if self.rules.overlaps() {
                // The longest window decides how long the others wait.
                (part / 4).max(signed(self.costs.least_window))
            } else {
                part.saturating_mul(2)
                    .max(signed(self.costs.shortest_window))
            };
            let id = next.id;
            drop(competing);
            let Some(next) = self.fleet.find_mut(id) else {
                break;
            };
            next.balance.give_part(number, part, most);
        }
    }

    /// The next instance of this turn, if one is owed a window: those of high priority first.
    fn next_in_turn(&self) -> Option<InstanceId> {
        if self.turn.length == 0 {
            return None;
        }
        let least = self.least_window();
        let waiting = || {
            let owed = |i: &&SchedInstance| !i.lag.rules() && i.balance.owed() >= least;
            self.fleet.competing().filter(owed)
        };
        let high = waiting().find(|i| i.terms.high_priority);
        high.or_else(|| waiting().next()).map(|i| i.id)
    }
}
