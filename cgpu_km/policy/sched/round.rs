// SPDX-License-Identifier: GPL-2.0
//! The hardware's own round, where channels cannot be switched: all doorbells are open, and each channel group has a slice
//! of the driver's length in turn.
//!
//! A window is no shorter than what its holder queues. Where that is long, or many compete, each has few windows in a second, and
//! one more or less is a large part of its share. Programs whose queues never run dry have equal parts by the round,
//! to a slice. So where equal parts are wanted and all keep their queues full, nobody is held back.
//!
//! Whether each has its part is listened for, now and then: all doorbells are armed again after each launch, for a few rounds.
//! Who keeps its queue full launches when a kernel ends, and how long its kernels are is known from its windows. So launches
//! tell what it had of that time. Where that is not alike, or somebody launches no more, there are windows again. The round
//! is left alone then for a time, as slices are (`slices.rs`).

use super::account::portion;
use super::authority::{Gate, InstanceId, Nanos, MS, US};
use super::drain::SLICE;
use super::fleet::Instance;
use super::queue::SETTLED;
use super::Scheduler;

/// Windows do where the longest queue, once for each that competes, takes no longer than this: a share is off by a thirtieth of
/// itself over 2 s then.
const LONGEST: Nanos = 64 * MS;
/// To hear of each launch of shorter kernels would be too many page faults.
const SHORTEST: Nanos = 500 * US;
/// Who waits for each kernel loses the rest of a slice after it. No more than one part in so many may be lost, and what each
/// had is alike if it differs by no more.
const LOSS: u64 = 8;
const LONG: Nanos = SLICE * (LOSS - 1);
/// Listened for are so many launches of each after the first one, and so many rounds.
const LAUNCHES: u32 = 4;
const ROUNDS: u64 = 8;
/// How long nobody listens: at first, and then.
const SOON: Nanos = 100 * MS;
const PAUSE: Nanos = 1000 * MS;
/// How long the round is left alone when it has failed: what was wrong of what is known of a program is learnt by then.
const HOLD_OFF: Nanos = 500 * MS;
/// How exactly it is known how much each had.
const PRECISION: u64 = 1024;

/// Whether the hardware goes round, and whether somebody listens.
#[derive(Debug)]
pub(super) struct Round {
    on: bool,
    began: Nanos,
    listens_since: Option<Nanos>,
    /// When somebody listens next.
    next: Nanos,
}

impl Round {
    pub(super) const fn new() -> Self {
        Self {
            on: false,
            began: 0,
            listens_since: None,
            next: 0,
        }
    }
}

/// The launches of an instance since somebody listens.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Heard {
    first: Option<Nanos>,
    last: Nanos,
    /// How many there were after the first one.
    more: u32,
}

impl Heard {
    fn launch(&mut self, now: Nanos) {
        if self.first.is_some() {
            self.more = self.more.saturating_add(1);
        }
        self.first = self.first.or(Some(now));
        self.last = now;
    }

    /// How long it waited for [`PRECISION`] nanoseconds of the GPU, if it was listened to for `least`.
    fn pace(&self, kernel: Nanos, least: Nanos) -> Option<u64> {
        let length = self.last.saturating_sub(self.first?);
        let had = kernel.saturating_mul(u64::from(self.more));
        let enough = self.more >= LAUNCHES && length >= least;
        enough.then(|| portion(length, PRECISION, had))
    }
}

impl Instance {
    /// The length of its kernels, if it keeps its queue full, as far as that is known.
    fn kept_full(&self) -> Option<Nanos> {
        let kernel = self.queue.kernel()?;
        let full = self.queue.at_least() > kernel || kernel >= LONG;
        (kernel >= SHORTEST && full).then_some(kernel)
    }

    /// How long it waits for its part of the GPU, if it was listened to for `least`.
    fn pace(&self, least: Nanos) -> Option<u64> {
        self.in_round.pace(self.kept_full()?, least)
    }
}

impl Scheduler {
    /// How many compete.
    pub(super) fn count_competing(&self) -> u64 {
        u64::try_from(self.fleet.competing().count()).unwrap_or(1)
    }

    /// Whether the round gives those that compete what they should have.
    fn round_fits(&self) -> bool {
        let parts = |i: &Instance| self.rules.parts(i.terms.weight);
        let first = self.fleet.competing().next().map(parts);
        let fits = |i: &Instance| {
            Some(parts(i)) == first
                && !i.terms.high_priority
                && self.fleet.compute_groups(i.id) == 1
                && i.kept_full().is_some()
        };
        self.drains() && self.fleet.competing().all(fits)
    }

    /// Whether the hardware goes round.
    pub(super) fn round_holds(&self) -> bool {
        self.round.on && self.round_fits()
    }

    /// A turn of windows is over: whether the round begins.
    pub(super) fn begin_round(&mut self, now: Nanos) -> bool {
        let count = self.count_competing();
        let is_long = |i: &Instance| i.queue.at_least().saturating_mul(count) > LONGEST;
        let may = |i: &Instance| i.slices.may_begin(now);
        let due = self.fleet.competing().any(is_long) && self.fleet.competing().all(may);
        if !due || !self.round_fits() {
            return false;
        }
        // What somebody had too much while its queue was learnt is not made up for: it would take many windows.
        for instance in self.fleet.instances_mut() {
            instance.owed = 0;
        }
        self.round = Round {
            on: true,
            began: now,
            listens_since: None,
            next: now.saturating_add(SOON),
        };
        true
    }

    /// It is of no use any more.
    pub(super) fn end_round(&mut self) {
        self.round.on = false;
    }

    /// Somebody that competes was heard of.
    pub(super) fn heard_in_round(&mut self, now: Nanos, id: InstanceId) {
        if let Some(instance) = self.fleet.find_mut(id) {
            instance.in_round.launch(now);
        }
    }

    /// Whether it does, at `now`; sets when to look again.
    pub(super) fn watch_round(&mut self, now: Nanos) -> bool {
        let Some(since) = self.round.listens_since else {
            if now < self.round.next {
                self.wake_at(self.round.next);
            } else {
                self.round.listens_since = Some(now);
                for instance in self.fleet.instances_mut() {
                    instance.in_round = Heard::default();
                }
                self.wake_at(now);
            }
            return true;
        };
        let latest = since.saturating_add(self.listens_at_most());
        let alike = match self.is_alike() {
            None if now < latest => {
                self.wake_at(latest);
                return true;
            }
            alike => alike.unwrap_or(false),
        };
        self.round.listens_since = None;
        self.round.next = now.saturating_add(PAUSE);
        if alike {
            self.wake_at(self.round.next);
            return true;
        }
        self.end_round();
        let lasted = now.saturating_sub(self.round.began);
        for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
            instance.slices.fail(now, lasted, HOLD_OFF);
        }
        false
    }

    /// How long it is listened at least.
    fn listens_at_least(&self) -> Nanos {
        SLICE.saturating_mul(ROUNDS * self.count_competing())
    }

    /// By then everybody has launched so often, if it has half of its part.
    fn listens_at_most(&self) -> Nanos {
        let longest = self.fleet.competing().filter_map(Instance::kept_full).max();
        let launches = (u64::from(LAUNCHES) + 1) * self.count_competing();
        let launched = longest.unwrap_or(0).saturating_mul(launches);
        launched.max(self.listens_at_least()).saturating_mul(2)
    }

    /// Whether what each had is alike, when enough was heard of all.
    fn is_alike(&self) -> Option<bool> {
        let least = self.listens_at_least();
        let (mut fastest, mut slowest) = (u64::MAX, 0);
        for instance in self.fleet.competing() {
            let pace = instance.pace(least)?;
            fastest = fastest.min(pace);
            slowest = slowest.max(pace);
        }
        Some(slowest.saturating_sub(fastest) <= fastest / LOSS)
    }

    /// Sets the doorbells of those that share by it.
    pub(super) fn wish_round(&mut self, now: Nanos) {
        if self.round.listens_since.is_none() {
            return;
        }
        let least = self.listens_at_least();
        let mut look_at = None::<Nanos>;
        for instance in self.fleet.instances_mut().filter(|i| i.competes()) {
            let again = instance.heard_at.saturating_add(SETTLED);
            if instance.pace(least).is_some() {
                // Enough was heard of it.
            } else if instance.gate == Gate::Armed || now >= again {
                instance.want_gate = Gate::Armed;
            } else {
                look_at = Some(look_at.map_or(again, |at| at.min(again)));
            }
        }
        if let Some(at) = look_at {
            self.wake_at(at);
        }
    }
}
