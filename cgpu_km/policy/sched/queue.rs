// SPDX-License-Identifier: GPL-2.0
//! What a program has queued when it is stopped at its doorbell, as the doorbell tells it.
//!
//! A program that keeps its queue full launches when one of its kernels ends. So where its gate is armed again at once
//! after each launch, the time from one to the next is the length of a kernel. And when its task stops at the shut gate,
//! a kernel has ended just then, and what else it has queued is left: none if it waits for each kernel, seven if it
//! keeps eight.
//!
//! How many are left is found by trying. The task is let go in the middle of a kernel, some kernels after it
//! stopped. It fills its queue again, and launches next when a kernel ends: if its queue had not run dry this is the one
//! under way, half a kernel later; if it had, it is a new one, which takes its whole length. The GPU loses at most
//! the half of a kernel by that.
//!
//! Where others' work is beside it from the first moment on, because they, too, queue much, its kernels seem longer than they are,
//! each time as long. So who has long kernels, and two windows told nothing of, is given the GPU for so long that what others have
//! queued is over, and listened to all the time.
//!
//! Of a program whose kernels are not alike nothing is learnt, and nothing is reckoned with. One that launches by the clock
//! looks like one of long kernels, and its windows are idle as long as it is; others lose nothing by that.

use super::authority::{Nanos, MS, US};

/// Shorter kernels cannot be told apart by the moments at which a thread wakes up.
const SHORTEST: Nanos = 150 * US;
/// So many intervals must have been alike.
const ALIKE: u32 = 2;
/// More are not remembered; of others each makes half of them be forgotten.
const ALIKE_MOST: u32 = 8;
/// After so many that were all others kernels have become longer.
const OTHERS: u32 = 4;
/// Nobody is stopped for longer to try whether its queue has run dry.
const LONGEST_PAUSE: Nanos = 256 * MS;
/// Where in a kernel its task is let go, in percent of it.
const PHASE: u64 = 25;
/// For one part in so many of a kernel it is silent when its queue is full.
const QUIET: u64 = 10;
/// Kernels of this length leave time to shut the gate between two of their ends.
const UNHURRIED: Nanos = 2 * MS;
/// By then a program has filled its queue, as a rule.
const FILLED: Nanos = 400 * US;
/// How long what was found out is believed; after a try that told nothing: for how long there is none, doubled each
/// time.
const BELIEVED: Nanos = 30_000 * MS;
const HOLD_OFF: Nanos = 50 * MS;
const DOUBLINGS: u32 = 7;
/// Who was let pass has rung by then. Were its gate armed sooner it could find it so once more, on the same processor.
pub(super) const SETTLED: Nanos = 40 * US;
/// So often it is looked whether a program of short kernels has the GPU, where others may run beside it.
const OFTEN: Nanos = 250 * US;
/// So many launches in a window, and one of their intervals is sure to be a kernel's.
const SURE: u32 = 3;
/// So many where others' work may be beside it.
const SURE_BESIDE: u32 = 12;
/// So much longer than it should be a window may become for the length of kernels; where others' work may be beside it the
/// second, shared by all that compete. And a quarter of that for what is queued, or the first.
const LONGER_BY: Nanos = 64 * MS;
const LONGER_BESIDE: Nanos = 800 * MS;
/// After so many windows that told nothing others' work may be beside it.
const TOLD_NOTHING: u32 = 2;
/// While nothing is known it is given so long, so often: where all are at work nothing could be found out of anybody.
const GUESS: Nanos = 8 * MS;
const GUESSES: u32 = 8;
/// Of a queue that is known, or is not waited for, no more than a kernel and this is left after a window.
const MOST_LEFT: Nanos = 2 * MS;
/// And may be silent for so long: the one, shared by all that compete, and no less than the other.
const PATIENCE: Nanos = 320 * MS;
const LEAST_PATIENCE: Nanos = 40 * MS;

/// What is known of a program's queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// The length of its kernels; 0: nothing is known.
    kernel: Nanos,
    /// Intervals that were as long, and those since the last such that were not.
    alike: u32,
    other: u32,
    /// For so long at most a launch was waited for lately, which is less than a kernel and tells more of short ones.
    waited: Nanos,
    /// Its last launch, if the next one that is heard of is the next one.
    launched_at: Option<Nanos>,
    /// Kernels that are left when it stops, at least and at most.
    least: u64,
    most: Option<u64>,
    /// What is reckoned with.
    left: u64,
    /// When `least` and `most` became the same.
    known_at: Nanos,
    /// Tries that told nothing, one after the other, and when the next one may be.
    failed: u32,
    not_before: Nanos,
    /// How often it had a window while nothing was known.
    guesses: u32,
}

impl Queue {
    pub(super) const fn new() -> Self {
        Self {
            kernel: 0,
            alike: 0,
            other: 0,
            waited: 0,
            launched_at: None,
            least: 0,
            most: None,
            left: 0,
            known_at: 0,
            failed: 0,
            not_before: 0,
            guesses: 0,
        }
    }

    /// By how much the intervals of kernels that are alike may differ.
    fn tolerance(kernel: Nanos) -> Nanos {
        kernel / 16 + 20 * US
    }

    /// The length of its kernels, where they are alike and not too short.
    pub(super) fn kernel(&self) -> Option<Nanos> {
        (self.alike >= ALIKE && self.kernel >= SHORTEST).then_some(self.kernel)
    }

    /// For how long it may be silent though it has work, where so many compete.
    pub(super) fn patience(&self, competing: u64) -> Nanos {
        match self.kernel() {
            Some(kernel) => kernel.saturating_mul(2).saturating_add(MS),
            None if !self.is_steady() && self.guesses < GUESSES => {
                (PATIENCE / competing.max(1)).max(LEAST_PATIENCE)
            }
            None => 0,
        }
    }

    /// Whether its kernels are known to be alike: short ones, too.
    pub(super) fn is_steady(&self) -> bool {
        self.alike >= ALIKE
    }

    /// How many of its launches in a window are to be heard of, at least.
    pub(super) fn wanted(&self) -> u32 {
        match self.is_steady() {
            _ if self.is_hidden() => SURE_BESIDE,
            false if self.guesses < GUESSES => SURE + ALIKE,
            _ => SURE,
        }
    }

    /// Whether its window is to last until they were.
    pub(super) fn is_new(&self) -> bool {
        match self.is_steady() {
            _ if self.is_hidden() => true,
            true => self.other >= OTHERS / 2,
            false => self.guesses < GUESSES,
        }
    }

    /// Its kernels are long, and others' work may be beside it whenever it has a window.
    fn is_beset(&self) -> bool {
        let told_nothing = (TOLD_NOTHING..GUESSES).contains(&self.guesses);
        told_nothing && self.known_at == 0 && self.kernel >= UNHURRIED
    }

    /// The same, and how long its kernels are was not told by what it has queued.
    fn is_hidden(&self) -> bool {
        self.is_beset() && self.least == 0 && self.most.is_none()
    }

    /// So much longer than it should be its window may become for the length of its kernels, where so many compete; and with
    /// what is tried then.
    pub(super) fn longer_by(&self, competing: u64) -> (Nanos, Nanos) {
        let longer = match self.is_beset() {
            true => (LONGER_BESIDE / competing.max(1)).max(LONGER_BY),
            false => LONGER_BY,
        };
        let tries = (longer / 4).max(LONGER_BY);
        (longer, longer.saturating_add(tries))
    }

    /// Whether its task is waited for at the end of a window: not where the wait is longer than what it tells.
    pub(super) fn is_worth_waiting(&self) -> bool {
        self.kernel == 0 || self.kernel >= SHORTEST
    }

    /// How long what is left when it stops takes, as far as that is known.
    pub(super) fn left(&self) -> Nanos {
        let kernel = self.kernel().unwrap_or(0);
        kernel.saturating_mul(self.left)
    }

    /// It queues so much, or more: the kernel that runs and those that are left when it stops.
    pub(super) fn at_least(&self) -> Nanos {
        let kernel = self.kernel().unwrap_or(0);
        kernel.saturating_mul(self.least.saturating_add(1))
    }

    /// More than this cannot be left of it after its window, where that is known.
    pub(super) fn most_left(&self) -> Option<Nanos> {
        if self.is_short() {
            return Some(MOST_LEFT);
        }
        let known = self.most == Some(self.least);
        let kernel = self.kernel().filter(|_| known)?;
        Some(kernel.max(MOST_LEFT))
    }

    /// It did not stop, and did not launch.
    pub(super) fn fell_silent(&mut self) {
        self.guesses = self.guesses.saturating_add(1);
    }

    /// It has stopped: how long it is given for what is left.
    pub(super) fn drain(&mut self) -> Nanos {
        if self.known_at != 0 {
            return self.left();
        }
        self.guesses = self.guesses.saturating_add(1);
        let guess = if self.guesses <= GUESSES { GUESS } else { 0 };
        self.left().max(guess)
    }

    /// What it owes others at most after a window of this length: twice all that it queues, and all of the window, but
    /// for the first times, when it is learnt.
    pub(super) fn debt(&self, window: Nanos) -> Nanos {
        let kernel = self.kernel().unwrap_or(0);
        let whole = self.left().saturating_add(kernel).saturating_mul(2);
        match self.guesses < GUESSES {
            true => whole,
            false => whole.max(window),
        }
    }

    /// It launched, for the first time since `armed_at`. If this is the launch that was expected: for how long others had the
    /// GPU before the kernel that has ended now, as far as that can be told. `switch`: so long the GPU took to come to it
    /// before that kernel; `beside`: others may have run beside it; `filling`: it may have filled its queue until now.
    pub(super) fn launched(
        &mut self,
        now: Nanos,
        armed_at: Nanos,
        switch: Option<Nanos>,
        beside: bool,
        filling: bool,
    ) -> Option<Nanos> {
        let last = self.launched_at.take()?;
        if filling && !self.is_steady() && now.saturating_sub(last) < UNHURRIED {
            return None;
        }
        let before = last.saturating_add(switch.unwrap_or(0));
        let sure = switch.is_none() && !beside;
        let waited = now.saturating_sub(armed_at.max(last));
        if !self.is_short() || !beside {
            self.interval(now.saturating_sub(before).max(US), sure);
        }
        if sure {
            let lately = self.waited - self.waited / 8;
            self.waited = lately.max(waited).min(self.kernel);
        }
        if !self.is_steady() {
            return None;
        }
        let began = now.saturating_sub(self.kernel().unwrap_or(self.waited));
        let from = if self.is_short() && switch.is_none() {
            before.max(armed_at)
        } else {
            before
        };
        Some(began.saturating_sub(from))
    }

    /// Its kernels are so short that their ends are not told apart.
    fn is_short(&self) -> bool {
        self.is_steady() && self.kernel < SHORTEST
    }

    /// It launched now: after how long its gate is to be armed, so that its next launch is heard of. `beside`: for others
    /// that run beside it.
    pub(super) fn await_next(&mut self, now: Nanos, beside: bool) -> Nanos {
        self.launched_at = Some(now);
        match beside && self.is_short() {
            true => OFTEN,
            false => SETTLED,
        }
    }

    /// It launched now for the first time in a window, and fills its queue: the same, for when it has. What it launches until
    /// then tells nothing of its kernels; but one that is much longer ends after that.
    pub(super) fn fills(&mut self, now: Nanos) -> Nanos {
        self.launched_at = Some(now);
        if !self.is_steady() {
            return FILLED;
        }
        (self.kernel().unwrap_or(0) / 2).max(SETTLED)
    }

    /// Whether the next launch that is heard of is its next one.
    pub(super) fn is_expected(&self) -> bool {
        self.launched_at.is_some()
    }

    /// The next launch that is heard of may not be its next one.
    pub(super) fn lose_sight(&mut self) {
        self.launched_at = None;
    }

    /// `sure`: it is the length of a kernel; otherwise others may have had the GPU meanwhile, or the kernel was under way.
    fn interval(&mut self, interval: Nanos, sure: bool) {
        let short = self.kernel.max(interval) < SHORTEST;
        let tolerance = Self::tolerance(self.kernel.min(interval));
        if self.kernel != 0 && (short || interval.abs_diff(self.kernel) <= tolerance) {
            let longer = interval.saturating_sub(self.kernel);
            // What disturbs makes it longer, as a rule.
            self.kernel = match sure && !short {
                true if self.alike == 0 => interval,
                true => self.kernel.min(interval).saturating_add(longer / 8),
                false => self.kernel.min(interval),
            };
            self.alike = self.alike.saturating_add(1).min(ALIKE_MOST);
            self.other = 0;
            return;
        }
        self.other = self.other.saturating_add(1);
        if sure {
            self.alike /= 2;
        }
        let sooner = interval < self.kernel && (sure || !self.is_steady());
        let later = sure && self.other >= OTHERS;
        if self.kernel != 0 && !sooner && !later {
            return;
        }
        *self = Self {
            kernel: interval,
            guesses: self.guesses,
            ..Self::new()
        };
    }

    /// After which of the kernels that may be left it is to be let go, if it is to be tried.
    fn next_try(&self) -> u64 {
        match self.most {
            Some(most) => self.least.saturating_add(most) / 2,
            None => self.least.saturating_mul(2).max(1) - 1,
        }
    }

    /// It has stopped at its gate: for how long it is to be stopped to learn what is left.
    pub(super) fn pause(&mut self, now: Nanos) -> Option<Nanos> {
        let kernel = self.kernel()?;
        if self.most == Some(self.least) {
            if now < self.known_at.saturating_add(BELIEVED) {
                return None;
            }
            // Once more: one less and one more.
            self.most = Some(self.least.saturating_add(1));
            self.least = self.least.saturating_sub(1);
        }
        if now < self.not_before {
            return None;
        }
        let pause = kernel
            .saturating_mul(self.next_try())
            .saturating_add(kernel / 100 * PHASE);
        (pause <= LONGEST_PAUSE).then_some(pause)
    }

    /// It was let go and launched at this moment: when its queue is sure to be full, long before its next kernel ends.
    pub(super) fn full_at(&self, filled: Nanos) -> Option<Nanos> {
        (self.kernel >= UNHURRIED).then_some(filled.saturating_add(self.kernel / 5 * 2))
    }

    /// When the kernel ends that was under way when it was let go, if it had any left.
    fn under_way(&self, stopped: Nanos, filled: Nanos) -> Nanos {
        let kernel = self.kernel.max(1);
        let ended = filled.saturating_sub(stopped) / kernel;
        stopped.saturating_add(kernel.saturating_mul(ended.saturating_add(1)))
    }

    /// It stopped, was let go and launched at these moments, and launches now: whether that is only to fill its queue.
    pub(super) fn is_filling(&self, stopped: Nanos, filled: Nanos, now: Nanos) -> bool {
        let sooner = now.saturating_add(Self::tolerance(self.kernel));
        sooner < self.under_way(stopped, filled)
    }

    /// It stopped, was let go and filled its queue, and launched next, for the first time since `armed_at`.
    pub(super) fn tried(&mut self, stopped: Nanos, filled: Nanos, armed_at: Nanos, next: Nanos) {
        let Some(kernel) = self.kernel() else {
            return;
        };
        let ended = filled.saturating_sub(stopped) / kernel;
        let under_way = self.under_way(stopped, filled);
        let new = filled.saturating_add(kernel);
        let tolerance = Self::tolerance(kernel).min(new.saturating_sub(under_way) / 2);
        let is = |at: Nanos| next.abs_diff(at) <= tolerance;
        // Who fills its queue still launches as soon as it is listened to.
        let has_filled = next.saturating_sub(armed_at) >= kernel / QUIET;
        let in_order = has_filled && ended == self.next_try();
        if in_order && is(under_way) {
            self.least = ended.saturating_add(1);
            self.left = self.left.max(self.least);
            self.most = self.most.map(|most| most.max(self.least));
        } else if in_order && is(new) {
            self.most = Some(ended);
            if ended < self.left {
                // It is less than it was.
                self.least = 0;
                self.left = 0;
            }
        } else {
            self.not_before = next.saturating_add(HOLD_OFF << self.failed);
            self.failed = self.failed.saturating_add(1).min(DOUBLINGS);
            return;
        }
        self.failed = 0;
        if self.most == Some(self.least) {
            self.left = self.least;
            self.known_at = next;
        }
    }
}
