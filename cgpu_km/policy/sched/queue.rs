// SPDX-License-Identifier: GPL-2.0
//! What a program has queued, as its launches tell it at a metered doorbell.
//!
//! A program that keeps its queue full launches until it is full, one launch right after the other, and then whenever one of its
//! kernels ends. So its launches come in *stretches*: a gap before a launch means that it has waited for the GPU. How long a
//! stretch is, by the launches in it, is what the GPU takes for one: of a program that waits for each kernel, of one that keeps
//! eight queued, and of one that launches eight and waits for all of them. The first stretch after its queue was empty tells how
//! many it launches ahead.
//!
//! From then on it is reckoned: what was let pass is over so many kernels later. Of kernels that are not alike it is the average
//! that counts. Kernels that are so short that no gap is between them are measured over several launches.

use super::authority::{Nanos, MS, US};
use super::meter::{LATE, OFTEN};

/// One launch comes sooner after the other, unless it has waited for a kernel.
const GAP: Nanos = 50 * US;
/// Where no gap comes so many launches are a stretch; the first one may be longer, as queues are deep.
const SHORT: u64 = 16;
const SHORT_FIRST: u64 = 64;
/// So many measures count, of kernels that are not alike.
const MEASURES: u64 = 8;
/// And so many where one is twice or half of what was known.
const MEASURES_CHANGED: u64 = 3;
/// So many must have been alike, one after the other, for kernels that are taken to be.
const ALIKE: u32 = 2;
/// Who launches oftener than [`OFTEN`] is not metered for longer than it takes to count its queue, if that is short.
const SHORT_QUEUE: Nanos = 4 * MS;
/// Nor for so long after that.
const LATELY: Nanos = 100 * MS;
/// Of one that is known no more than a kernel, or this, is left after a window.
const MOST_LEFT: Nanos = 2 * MS;
/// A program that is interrupted while it fills its queue seems to launch fewer ahead: that is believed after so many times.
const FEWER: u32 = 3;
/// What is known of one that never has its queue full, as that is longer than its windows, is measured again after so long, or so
/// many times that length, once for each that competes.
const STALE: Nanos = 12_000 * MS;
const STALE_TIMES: u64 = 50;
/// The same where the last two measures were not alike.
const STALE_UNSURE: Nanos = 1000 * MS;
/// While nothing is known of it, it may be silent for so long, so often.
const PATIENCE: Nanos = 200 * MS;
const GUESSES: u32 = 8;
/// Who launches in a way that cannot be metered is tried again after so many windows.
const ESCAPES: u32 = 32;
/// No program is stopped for longer to count what it had queued before.
const LONGEST_PAUSE: Nanos = 2000 * MS;

/// Launches one right after the other.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// The first one since its queue was empty: it fills it.
    first: bool,
    /// When the GPU could begin with it.
    since: Nanos,
    /// The last launch.
    last: Nanos,
    launches: u64,
}

/// What is known of a program's queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// What the GPU takes for a launch, on average; 0: nothing is known.
    kernel: Nanos,
    /// How often that was measured, and how often alike since it was not.
    measures: u64,
    alike: u32,
    measured_at: Nanos,
    /// When it was last seen to fill its queue.
    counted_at: Nanos,
    /// Launches ahead; 0: nothing is known.
    depth: u64,
    /// How often it launched fewer, one time after the other.
    fewer: u32,
    /// Launches between two gaps: one where its queue is kept full, all where it waits for all of them.
    batch: u64,
    /// When all that was counted is over.
    ends: Nanos,
    /// Kernels that nobody has counted may be queued.
    uncounted: bool,
    /// To count them it was stopped then, for so many kernels.
    stopped: Option<Nanos>,
    pause: u64,
    /// How often it has filled its queue meanwhile.
    refills: u32,
    /// With how many the last time, when it was stopped.
    refilled: u64,
    stretch: Option<Stretch>,
    /// It was held back: that its next launch comes late means nothing.
    held: bool,
    /// Its first kernel took longer than it should: it was others' work, or they have become longer.
    doubted: bool,
    /// It ran for longer than was reckoned with.
    outdated: bool,
    /// How often it had a window while nothing was known.
    guesses: u32,
    /// For so many windows it is not metered.
    escapes: u32,
}

/// What a launch after a gap has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing.
    Nothing,
    /// Its queue was empty before, and is full. Others' work ran for so long before its first kernel had ended.
    Full(Nanos),
    /// The length of its kernels was measured.
    Length,
    /// It was let go to be counted, and has filled its queue: since when, and with how many.
    Filled(Nanos, u64),
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self {
            kernel: 0,
            measures: 0,
            alike: 0,
            measured_at: 0,
            counted_at: 0,
            depth: 0,
            fewer: 0,
            batch: 0,
            ends: 0,
            uncounted: false,
            stopped: None,
            pause: 1,
            refills: 0,
            refilled: 0,
            stretch: None,
            held: false,
            doubted: false,
            outdated: false,
            guesses: 0,
            escapes: 0,
        }
    }

    /// Whether its length is known.
    fn is_known(&self) -> bool {
        self.kernel > 0
    }

    fn is_steady(&self) -> bool {
        self.alike >= ALIKE
    }

    /// Kernels that are queued behind the one that runs, where it keeps its queue full.
    pub(super) fn behind(&self) -> Nanos {
        let batch = self.batch.max(1);
        self.kernel.saturating_mul(self.depth.saturating_sub(batch))
    }

    /// All that it queues.
    pub(super) fn whole(&self) -> Nanos {
        self.kernel.saturating_mul(self.depth.max(1))
    }

    /// Half of a kernel.
    pub(super) fn half(&self) -> Nanos {
        self.kernel / 2
    }

    /// When all that was let pass is over.
    pub(super) fn ends(&self) -> Nanos {
        self.ends
    }

    /// For how long it may be silent though it has work, at least.
    pub(super) fn patience(&self) -> Nanos {
        match self.is_known() {
            true => self.kernel.saturating_mul(2).saturating_add(MS),
            false if self.guesses < GUESSES => PATIENCE,
            false => 0,
        }
    }

    /// What it owes others at most.
    pub(super) fn debt(&self) -> Nanos {
        self.whole().saturating_add(self.kernel).saturating_mul(2)
    }

    /// Whether its doorbell may be open in its window: its kernels are short, and so is its queue, which was counted.
    pub(super) fn may_open(&self) -> bool {
        self.stretch.is_some_and(|s| !s.first) && self.is_short()
    }

    /// Whether it is to fill its queue, so that the length of its kernels is measured.
    pub(super) fn learns(&self) -> bool {
        !self.is_known() && self.guesses < GUESSES
    }

    /// Launches that nobody counts can be made from now on.
    pub(super) fn lose_count(&mut self) {
        self.uncounted = true;
        self.stopped = None;
        self.pause = 1;
        self.refills = 0;
        self.refilled = 0;
        self.stretch = None;
    }

    /// It does not launch in a way that can be metered: nothing is known of it, and for some windows nobody tries.
    pub(super) fn escape(&mut self) {
        *self = Self {
            guesses: GUESSES,
            escapes: ESCAPES,
            ..Self::new()
        };
    }

    /// Whether it is not to be metered in a window that begins now: it cannot be, or it is short and was counted lately.
    pub(super) fn is_unmetered(&self, now: Nanos) -> bool {
        let lately = now < self.counted_at.saturating_add(LATELY);
        self.escapes > 0 || (lately && self.is_short())
    }

    /// Whether it keeps to kernels and a queue that are short.
    fn is_short(&self) -> bool {
        let short = self.kernel <= OFTEN && self.whole() <= SHORT_QUEUE;
        short && self.is_steady() && !self.uncounted && !self.doubted
    }

    /// Whether it is known, and so short, that it is not waited for what it has queued.
    pub(super) fn is_negligible(&self) -> bool {
        self.is_known() && self.behind() < LATE
    }

    /// Whether some were made.
    pub(super) fn is_uncounted(&self) -> bool {
        self.uncounted
    }

    /// Nothing is known of it any more, but how many it launches ahead and when they are over.
    fn forget(&mut self) {
        *self = Self {
            depth: self.depth,
            batch: self.batch,
            uncounted: self.uncounted,
            ends: self.ends,
            stretch: self.stretch,
            ..Self::new()
        };
    }

    /// Its window begins, where so many compete. Whether it is to be learnt, or counted, for the first time.
    pub(super) fn begin(&mut self, now: Nanos, competing: u64) -> bool {
        self.escapes = self.escapes.saturating_sub(1);
        if !self.is_known() {
            // What it was let launch before is the beginning of its first stretch.
            return self.guesses < GUESSES;
        }
        if now >= self.ends {
            self.stretch = None;
        }
        let times = competing.saturating_mul(STALE_TIMES);
        let stale = match self.measures > 1 && self.alike == 0 {
            true => STALE_UNSURE,
            false => self.whole().saturating_mul(times).max(STALE),
        };
        if self.outdated {
            self.forget();
            self.lose_count();
        } else if now > self.measured_at.saturating_add(stale) {
            self.forget();
        }
        self.uncounted
    }

    /// More than this cannot be left of it after its window, where it is known.
    pub(super) fn most_left(&self) -> Option<Nanos> {
        self.is_steady().then_some(self.kernel.max(MOST_LEFT))
    }

    /// It ran for so much longer than was reckoned with: if that is much, and it was not measured lately, it is measured anew.
    pub(super) fn ran_on(&mut self, now: Nanos, longer: Nanos) {
        let seen_at = self.measured_at.max(self.counted_at);
        let lately = now < seen_at.saturating_add(2 * LATELY);
        self.outdated |= !lately && longer > self.half().max(OFTEN);
    }

    /// It was silent for too long: it has nothing queued any more.
    pub(super) fn fell_silent(&mut self, now: Nanos) {
        self.guesses = self.guesses.saturating_add(1);
        self.ends = self.ends.min(now);
        self.uncounted = false;
        self.stopped = None;
        self.stretch = None;
    }

    /// It is held back.
    pub(super) fn hold(&mut self) {
        self.held = true;
    }

    /// It was stopped at its doorbell, which was open, when a kernel had ended. When the others are over.
    pub(super) fn stop(&mut self, now: Nanos) -> Nanos {
        self.held = true;
        self.stretch = None;
        self.ends = now.saturating_add(self.behind());
        self.ends
    }

    /// Its window is over.
    pub(super) fn end_window(&mut self) {
        if !self.is_known() {
            self.guesses = self.guesses.saturating_add(1);
        }
    }

    /// It launches: what is told by the time that has passed since it did last.
    pub(super) fn hear(&mut self, now: Nanos) -> Told {
        let held = core::mem::take(&mut self.held);
        let Some(stretch) = self.stretch else {
            return Told::Nothing;
        };
        self.has_room(now.max(stretch.since));
        let gap = !held && now.saturating_sub(stretch.last) >= GAP;
        let many = match (stretch.first, self.is_steady()) {
            (false, _) => SHORT,
            (true, true) => self.depth.saturating_mul(2).saturating_add(SHORT),
            (true, false) => SHORT_FIRST,
        };
        if !gap && stretch.launches < many {
            return Told::Nothing;
        }
        let took = now.saturating_sub(stretch.since);
        self.stretch = Some(Stretch {
            first: false,
            since: now,
            last: now,
            launches: 0,
        });
        if self.stopped.is_some() {
            return Told::Filled(stretch.since, stretch.launches);
        }
        if self.uncounted
            && gap
            && (self.refills == 0 || stretch.launches > 1)
            && self.refills < FEWER
        {
            // It fills its queue, which may not have been empty, or did not begin when a kernel ended.
            self.refills = self.refills.saturating_add(1);
            return Told::Nothing;
        }
        if !stretch.first || !gap {
            self.batch = if gap { stretch.launches } else { 1 };
            self.delayed(now, took, stretch.launches);
            self.measure(now, took, stretch.launches);
            if gap && !self.is_steady() && !self.uncounted {
                // What has ended was not as long as was reckoned with.
                self.ends = now.saturating_add(self.behind());
            }
            return Told::Length;
        }
        self.fewer = match stretch.launches < self.depth {
            true => self.fewer.saturating_add(1),
            false => 0,
        };
        if self.fewer == 0 || self.fewer > FEWER {
            self.depth = stretch.launches;
            self.fewer = 0;
        }
        self.counted_at = now;
        if stretch.launches == 1 {
            self.batch = 1;
        }
        let batch = self.batch.min(stretch.launches).max(1);
        let others = self.delayed(now, took, batch);
        self.doubted = others > self.kernel.saturating_add(OFTEN);
        // Of short ones it is not told exactly enough when the first one began, and of the very first what ran before.
        if stretch.launches == 1 && took >= OFTEN && self.is_known() {
            self.measure(now, took, 1);
        }
        Told::Full(others)
    }

    /// There is room in its queue: so it has no more than one less than it holds, of which the GPU can begin with the first at
    /// `begins`.
    fn has_room(&mut self, begins: Nanos) {
        if self.depth > 0 && !self.uncounted {
            let full = self.kernel.saturating_mul(self.depth.saturating_sub(1));
            self.ends = self.ends.min(begins.saturating_add(full));
        }
    }

    /// So many of its kernels took so long: by how much that is longer than it should be. What it has queued ends later by that.
    fn delayed(&mut self, now: Nanos, took: Nanos, kernels: u64) -> Nanos {
        if !self.is_steady() {
            return 0;
        }
        let longer = took.saturating_sub(self.kernel.saturating_mul(kernels));
        self.ends = self.ends.saturating_add(longer);
        self.has_room(now);
        longer
    }

    /// So many launches took so long.
    fn measure(&mut self, now: Nanos, took: Nanos, launches: u64) {
        let length = (took / launches.max(1)).max(1);
        let known = self.kernel;
        let tolerance = known.min(length) / 16 + 20 * US;
        self.doubted = false;
        if known == 0 {
            self.kernel = length;
            self.ends = now.saturating_add(self.behind());
        } else if length.abs_diff(known) <= tolerance {
            self.alike = self.alike.saturating_add(1).min(2 * ALIKE);
        } else if self.is_steady() {
            // They have become others, or others' work ran beside them: the next one tells.
            self.forget();
            self.lose_count();
            return;
        } else {
            self.alike /= 2;
            if length > known.saturating_mul(2) || length < known / 2 {
                self.measures = self.measures.min(MEASURES_CHANGED);
            }
        }
        self.measures = self.measures.saturating_add(1).min(MEASURES);
        let part = self.kernel.abs_diff(length) / self.measures;
        self.kernel = match length > self.kernel {
            true => self.kernel.saturating_add(part),
            false => self.kernel.saturating_sub(part),
        };
        self.measured_at = now;
    }

    /// When it is over what it launches now, if the GPU can begin with it then.
    pub(super) fn would_end(&self, begins: Nanos) -> Nanos {
        self.ends.max(begins).saturating_add(self.kernel)
    }

    /// What it launches now passes.
    pub(super) fn pass(&mut self, now: Nanos, begins: Nanos) {
        let empty = self.ends <= now && !self.uncounted;
        let stretch = self.stretch.get_or_insert(Stretch {
            first: empty,
            since: if self.uncounted { now } else { begins },
            last: now,
            launches: 0,
        });
        stretch.last = now;
        stretch.launches = stretch.launches.saturating_add(1);
        if self.kernel > 0 {
            self.ends = self.would_end(begins);
        }
    }

    /// Some of what it has queued was not counted, and it would launch after a gap. When it is to be let go so that it tells how
    /// much that is; `None`: it is counted.
    ///
    /// It is stopped for some kernels, and fills its queue again: with as many as have ended, and the one at which it was
    /// stopped; with fewer if its queue has run dry.
    pub(super) fn count(&mut self, now: Nanos, filled: Option<(Nanos, u64)>) -> Option<Nanos> {
        if self.depth > 0 && self.is_steady() && self.stopped.is_none() {
            // As before.
            self.uncounted = false;
            self.ends = now.saturating_add(self.behind());
            return None;
        }
        if let (Some(stopped), Some((since, launches))) = (self.stopped, filled) {
            let ended = since.saturating_sub(stopped) / self.kernel.max(1);
            // A new kernel takes its whole length, one under way is over sooner. Or it was stopped for twice as long, and
            // launches no more.
            let took = now.saturating_sub(since);
            let new = took >= self.kernel - self.kernel / 8;
            let before = core::mem::replace(&mut self.refilled, launches);
            if launches <= ended && (new || launches == before) {
                self.depth = launches;
                self.uncounted = false;
                self.stopped = None;
                self.kernel = self.kernel.min(took.max(1));
                self.ends = since.saturating_add(self.whole());
                return None;
            }
            self.pause = self.pause.saturating_mul(2);
        }
        let pause = self.kernel.saturating_mul(self.pause);
        if pause > LONGEST_PAUSE || self.kernel < GAP {
            self.uncounted = false;
            self.stopped = None;
            self.depth = self.depth.max(self.pause);
            self.ends = now.saturating_add(self.behind());
            return None;
        }
        self.stopped = Some(now);
        self.held = true;
        self.stretch = None;
        Some(now.saturating_add(pause).saturating_add(self.kernel / 4))
    }
}
