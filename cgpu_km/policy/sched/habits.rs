// SPDX-License-Identifier: GPL-2.0
//! Whether an instance has work, as the moments at which it launches tell it.
//!
//! The driver does not say when a channel runs dry. A program in the middle of a long kernel and
//! one that thinks are silent alike. So the first times a silent instance only gives way and keeps
//! competing: if it launches while it is off, it was thinking, because no kernel of it can have
//! ended.
//!
//! All times here are of the GPU's time that the instance had: no silence counts while it is off.

use super::time::{
    Nanos,
    MS,
    US, //
};

/// The gap between launches that a new instance is taken to have.
const FIRST_GAP: Nanos = 24 * MS;
/// The least gap of an instance that the driver saw at work in a silence.
const SEEN_GAP: Nanos = 125 * MS;
/// No gap is taken to be longer. Samples find a kernel that runs longer without a launch.
const LONGEST_GAP: Nanos = 500 * MS;
/// The silence after which an instance has no work, unless the driver has seen it at work.
pub(super) const LONGEST_SILENCE: Nanos = 100 * MS;
/// The least that an instance may be silent if the driver saw it at work in a silence. Six samples
/// a second of its time all miss it once in four hundred times.
const LEAST_PATIENCE_IF_SEEN: Nanos = 1000 * MS;
/// The least that any other instance may be silent.
const LEAST_PATIENCE: Nanos = 2 * MS;
/// So many samples without anybody at work say that a silence is no long kernel's. One falls
/// between two windows now and then.
const SAMPLES_WITHOUT_WORK: u32 = 4;
/// So many silences are believed of an instance that launched while it was off.
const SILENCES_BELIEVED_AFTER_THINKING: u32 = 8;
/// A launch so long after its program was taken to have no work may have followed a kernel, because
/// its channels were on. Its next silence is not believed at once.
const LONGEST_THOUGHT: Nanos = 64 * MS;
/// An instance that launches as often as this may have a queue of short kernels that is never
/// empty.
const DENSE_GAP: Nanos = 6 * MS;
/// The usual gap in a series shrinks by one part in so many at each launch that is heard of.
const USUAL_MEMORY: Nanos = 32;
/// Kernels that are longer than this are no series.
const LONGEST_IN_SERIES: Nanos = 8 * MS;
/// The least silence after which a series is over: a program that waits for a kernel launches the
/// next one sooner.
const LEAST_PAUSE: Nanos = 100 * US;
/// A series that goes on so soon after it was taken to be over had not ended.
const SAME_SERIES: Nanos = MS;
/// The longest dense gap shrinks by one part in so many at each launch that is heard of.
const DENSE_MEMORY: Nanos = 64;

/// An instance launches densely: no gap was longer than [`DENSE_GAP`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Dense {
    /// Since when.
    pub(super) since: Nanos,
    /// The longest gap since then; those of long ago are forgotten.
    pub(super) gap: Nanos,
}

/// A silence, by what the driver's samples say of it.
#[derive(Clone, Copy, Debug)]
enum Explained {
    /// The driver saw it at work in so much of it.
    Seen(Nanos),
    /// The same, and the driver is being asked once more before the instance is taken to have no
    /// work.
    AskedAgain(Nanos),
}

impl Explained {
    const NOTHING: Self = Self::Seen(0);

    /// How much silence is explained.
    fn length(self) -> Nanos {
        match self {
            Self::Seen(length) | Self::AskedAgain(length) => length,
        }
    }
}

/// Kernels that an instance launches one after the other, whose ends it sees.
#[derive(Clone, Copy, Debug)]
struct Series {
    /// It launched in its windows so since it woke.
    goes_on: bool,
    /// It did so when it was at work before.
    was_before: bool,
    /// The longest recent gap in a series.
    usual: Nanos,
}

/// How an instance launches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// It was seen to launch, and was not silent for too long since.
    working: bool,
    /// It gave way for its silence, and was not heard of since.
    mute: bool,
    /// The longest recent gap between launches.
    gap: Nanos,
    /// How long it has been silent with its gate armed.
    silent: Nanos,
    /// Silence before that.
    explained: Explained,
    /// The driver saw it at work in a long silence, and it has not launched often since: so many
    /// samples saw nobody at work since it was last heard of, or seen.
    long_kernels: Option<u32>,
    heard_at: Nanos,
    dense: Option<Dense>,
    /// So many more silences mean that it has no work, because it was seen to think.
    believed: u32,
    /// When it was last silent for too long.
    idle_since: Nanos,
    /// When it last had work again, after it had none.
    began_at: Nanos,
    series: Series,
}

impl Habits {
    pub(super) const fn new() -> Self {
        Self {
            working: false,
            mute: false,
            gap: FIRST_GAP,
            silent: 0,
            explained: Explained::NOTHING,
            long_kernels: None,
            heard_at: 0,
            dense: None,
            believed: 0,
            idle_since: 0,
            began_at: 0,
            series: Series {
                goes_on: false,
                was_before: false,
                usual: 0,
            },
        }
    }

    /// Whether it is taken to have work.
    pub(super) fn is_working(&self) -> bool {
        self.working
    }

    /// Whether it has had work for so long without a pause.
    pub(super) fn has_worked_for(&self, now: Nanos, long: Nanos) -> bool {
        self.working && now >= self.began_at.saturating_add(long)
    }

    /// When it was last heard of.
    pub(super) fn heard_at(&self) -> Nanos {
        self.heard_at
    }

    /// Whether it was heard of in the last `length`.
    pub(super) fn was_heard_since(&self, now: Nanos, length: Nanos) -> bool {
        self.heard_at > 0 && now < self.heard_at.saturating_add(length)
    }

    /// Whether it gave way for its silence, and was not heard of since.
    pub(super) fn is_mute(&self) -> bool {
        self.mute
    }

    /// Whether it launches kernels that it waits for, one after the other.
    pub(super) fn is_in_series(&self) -> bool {
        self.series.goes_on
    }

    /// Whether it does so, or did when it was at work before.
    pub(super) fn was_in_series(&self) -> bool {
        self.series.goes_on || self.series.was_before
    }

    /// Whether it launched in series when it was at work before.
    pub(super) fn had_series(&self) -> bool {
        self.series.was_before
    }

    /// How long it may be silent in a series before that is taken to be over.
    pub(super) fn pause(&self) -> Nanos {
        let usual = self.series.usual.saturating_add(self.series.usual / 16);
        usual.saturating_add(LEAST_PAUSE)
    }

    /// How much of so much silence, after which its series was taken to be over, was no kernel's.
    pub(super) fn paused(&self, silent: Nanos) -> Nanos {
        silent.saturating_sub(self.series.usual)
    }

    /// It launched in its window, after so much silence there.
    pub(super) fn goes_on(&mut self, now: Nanos, silent: Nanos) {
        let gap = self.whole_silence().saturating_add(silent);
        self.series.usual = gap.max(self.series.usual - self.series.usual / USUAL_MEMORY);
        self.series.goes_on = self.series.usual <= LONGEST_IN_SERIES;
        self.launched(now, silent);
    }

    /// The longest recent gap between its launches.
    pub(super) fn gap(&self) -> Nanos {
        self.gap
    }

    /// How long it has been silent, without what the driver's samples explain.
    pub(super) fn silence(&self) -> Nanos {
        self.silent
    }

    /// How long it has been silent in all.
    pub(super) fn whole_silence(&self) -> Nanos {
        self.silent.saturating_add(self.explained.length())
    }

    /// How it launches densely, if it does.
    pub(super) fn dense(&self) -> Option<Dense> {
        self.dense
    }

    /// Whether it launched lately while no kernel of it can have ended.
    pub(super) fn has_thought(&self) -> bool {
        self.believed > 0
    }

    /// Whether its silence is a long kernel's, as far as the driver's samples tell.
    pub(super) fn has_long_kernels(&self) -> bool {
        self.long_kernels
            .is_some_and(|without_work| without_work < SAMPLES_WITHOUT_WORK)
    }

    /// How long it may be silent before it is taken to have no work. `in_kernel`: the samples say
    /// that it is in a long kernel, and that counts.
    pub(super) fn patience(&self, in_kernel: bool) -> Nanos {
        let least = if in_kernel {
            LEAST_PATIENCE_IF_SEEN
        } else {
            LEAST_PATIENCE
        };
        let twice = self.gap.saturating_mul(2);
        if self.has_thought() && !in_kernel {
            return twice.saturating_add(LEAST_PATIENCE / 4);
        }
        twice.saturating_add(MS).max(least)
    }

    /// A program of it touched a doorbell.
    pub(super) fn touched(&mut self, now: Nanos) {
        self.heard_at = now;
        self.mute = false;
    }

    /// Its silence until now was not its kernels'.
    pub(super) fn excuse_silence(&mut self) {
        self.silent = 0;
    }

    /// It was silent for so long in its window.
    pub(super) fn add_silence(&mut self, silent: Nanos) {
        self.silent = self.silent.saturating_add(silent);
    }

    /// It launched, after `silent` more of its time.
    pub(super) fn launched(&mut self, now: Nanos, silent: Nanos) {
        let gap = self
            .silent
            .saturating_add(silent)
            .saturating_add(self.explained.length());
        self.explained = Explained::NOTHING;
        self.gap = gap.max(self.gap / 2).min(LONGEST_GAP);
        let dense = self.dense.unwrap_or(Dense { since: now, gap });
        self.dense = (self.gap <= DENSE_GAP).then_some(Dense {
            gap: gap.max(dense.gap - dense.gap / DENSE_MEMORY),
            ..dense
        });
        self.long_kernels = self.long_kernels.and((gap >= SEEN_GAP).then_some(0));
        self.silent = 0;
        self.working = true;
    }

    /// It launched while it was off the GPU for so long that no kernel of it can have ended just
    /// now. Whether that shows that it was thinking.
    pub(super) fn launched_off(&mut self, now: Nanos) -> bool {
        if self.silent == 0 {
            self.launched(now, 0);
            return false;
        }
        self.believed = SILENCES_BELIEVED_AFTER_THINKING;
        // All that it had launched has ended in less.
        self.gap /= 2;
        self.silent = 0;
        self.explained = Explained::NOTHING;
        self.dense = None;
        self.series.goes_on = false;
        true
    }

    /// It launched, and was taken to have no work before.
    pub(super) fn began_work(&mut self, now: Nanos) {
        self.began_at = now;
        // A series of kernels that it waited for does not end in a long one.
        if now >= self.idle_since.saturating_add(LONGEST_THOUGHT) {
            // It may have been in a kernel, unless it launched in series before. Then a silence of
            // a tenth of a second with the GPU to itself was none.
            self.believed = match (self.series.goes_on, self.silent > LONGEST_SILENCE) {
                (true, true) => SILENCES_BELIEVED_AFTER_THINKING,
                (true, false) => self.believed,
                (false, _) => 0,
            };
        }
        if now < self.idle_since.saturating_add(SAME_SERIES) {
            let pause = now.saturating_sub(self.idle_since);
            self.series.usual = self.series.usual.saturating_add(pause);
        }
        self.series.was_before = self.series.goes_on;
        self.series.goes_on = false;
        self.silent = 0;
        self.working = true;
    }

    /// A sample of the driver's saw it at work: it has work though it launched nothing.
    pub(super) fn seen(&mut self) {
        self.series.goes_on = false;
        if !self.working {
            self.believed = 0;
        }
        self.dense = None;
        self.long_kernels = Some(0);
        self.gap = self.gap.max(SEEN_GAP);
        self.explained = Explained::Seen(self.whole_silence());
        self.silent = 0;
        self.working = true;
    }

    /// The driver's samples saw that it paused: its next silences are no long kernel's.
    pub(super) fn seen_to_pause(&mut self) {
        self.believed = SILENCES_BELIEVED_AFTER_THINKING;
        self.long_kernels = None;
        self.explained = Explained::NOTHING;
        self.gap = self.gap.min(FIRST_GAP);
    }

    /// A sample of the driver's saw nobody at work.
    pub(super) fn nobody_seen(&mut self) {
        self.long_kernels = self.long_kernels.map(|so_far| so_far.saturating_add(1));
    }

    /// It was silent for longer than it may, and samples explain some of its silence: whether the
    /// driver is to be asked again first. That is done once.
    pub(super) fn ask_again(&mut self, silent: Nanos) -> bool {
        let Explained::Seen(length @ 1..) = self.explained else {
            return false;
        };
        self.explained = Explained::AskedAgain(length);
        let all = self.silent.saturating_add(silent);
        self.silent = all.saturating_sub(LONGEST_SILENCE);
        true
    }

    /// It was silent for longer than it may: whether that means that it has no work.
    pub(super) fn believes_silence(&mut self) -> bool {
        if self.silent > LONGEST_SILENCE {
            return true;
        }
        if self.believed > 0 {
            self.believed -= u32::from(!self.series.goes_on);
            // If it thinks, its kernels were shorter than that.
            self.gap -= self.gap / 4;
            return true;
        }
        self.gap = self.gap.max(self.silent);
        false
    }

    /// It gives way; `idle`: it is taken to have no work.
    pub(super) fn gave_way(&mut self, now: Nanos, idle: bool) {
        self.working = !idle;
        self.mute = true;
        self.idle_since = now;
        self.dense = None;
    }
}
