// SPDX-License-Identifier: GPL-2.0
//! The instances of a GPU, their channel groups and channels, and what was done to each.

use super::account::Account;
use super::authority::{CallError, Engine, Gate, InstanceId, Nanos, RmName, MS};
use super::next::retry_at;
use super::rules::Terms;
use super::slices::Record;
use super::ProcessId;
use crate::nvidia::handle::ClientHandle;
use crate::store::{Exhausted, List};

/// What the driver gives a channel group unless told otherwise, in microseconds: 128 us times 2 to the
/// fourth, which CUDA also asks for (recordings; 2,048 us were measured).
pub(super) const DEFAULT_SLICE_US: u32 = 2048;
/// The gap of an instance whose habits are not known yet.
const UNKNOWN_GAP: Nanos = 24 * MS;
/// That of one which the driver saw at work while it was silent.
const SEEN_GAP: Nanos = 125 * MS;
/// Silence, in time that the instance had the GPU, after which it is taken to have no work whatever is
/// known of it, unless the driver has seen otherwise.
pub(super) const LONGEST_SILENCE: Nanos = 100 * MS;
/// The same where the driver has seen it at work in a silence: of six samples a second of its time all miss it once in four
/// hundred times.
const LONGEST_SEEN: Nanos = 1000 * MS;
/// Unless so many samples have found nobody at work since it was last heard of, or seen: one falls between two windows now
/// and then.
const NOBODY: u32 = 4;
/// No gap is taken to be longer: a kernel that runs longer without a launch is found by samples.
const LONGEST_GAP: Nanos = 500 * MS;
/// How often silence is believed after an instance was seen to launch while it was off.
const BELIEF: u32 = 8;
/// A launch so soon after an instance was switched off may be the answer to a kernel that ended before.
const SETTLED: Nanos = 2 * MS;
/// Who launches as often as this may have a queue that is never empty, of short kernels.
const DENSE_GAP: Nanos = 6 * MS;
/// The longest of its gaps is forgotten by one part in so many at each launch that is heard of.
const DENSE_MEMORY: Nanos = 64;

/// No gap between the launches of an instance was longer than [`DENSE_GAP`], in time that it had the GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dense {
    /// Since when.
    pub(super) since: Nanos,
    /// The longest gap since then, those of long ago forgotten.
    pub(super) gap: Nanos,
}

/// An instance.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) id: InstanceId,
    pub(super) terms: Terms,
    /// It was seen to launch, and was not silent for too long since.
    pub(super) working: bool,
    /// What its doorbells are, and what they should be.
    pub(super) gate: Gate,
    pub(super) want_gate: Gate,
    /// Where they were before the last change.
    pub(super) gate_was: Gate,
    /// They were touched since then.
    pub(super) gate_touched: bool,
    /// Changes that failed in a row, and when the next one may be tried.
    pub(super) gate_failed: u32,
    pub(super) gate_retry_at: Nanos,
    /// Whether its compute channels, and its others, should be on.
    pub(super) want_compute: bool,
    pub(super) want_others: bool,
    /// The time slice that its compute groups should have together, in microseconds.
    pub(super) want_slice: u32,
    /// It had no work until a task of it stopped at its gate, and no window since.
    pub(super) fresh: bool,
    /// What it may still have of this turn; below 0 where it had too much.
    pub(super) owed: i64,
    /// The same when slices began.
    pub(super) owed_before: i64,
    /// How slices went.
    pub(super) slices: Record,
    /// The turn for which it was given its part.
    pub(super) granted: u64,
    /// The longest recent gap between launches, in time that it had the GPU.
    pub(super) gap: Nanos,
    /// How long it has been silent, in time that it had the GPU with its gate armed.
    pub(super) silent: Nanos,
    /// Silence before that, in which the driver has seen it at work.
    pub(super) explained: Nanos,
    /// The driver has seen it at work while it was silent for long, and it has not launched often since.
    pub(super) long: bool,
    /// So often the driver has seen nobody at work since it was last heard of, or seen.
    pub(super) nobody: u32,
    /// The driver is being asked about it once more before it is taken to have no work.
    pub(super) asked: bool,
    /// When it was last heard of.
    pub(super) heard_at: Nanos,
    /// It launches densely.
    pub(super) dense: Option<Dense>,
    /// How often more its silence is believed to mean that it has no work: it was seen to launch while
    /// it was off the GPU, when no kernel of it can have ended.
    pub(super) thinks: u32,
    /// When it was last silent for too long.
    pub(super) idle_since: Nanos,
    /// Since when its channels are off, if they are.
    pub(super) off_since: Option<Nanos>,
    /// Since when a task of it sleeps at the gate.
    pub(super) parked_since: Option<Nanos>,
    /// A task that slept at the gate was let go and has not launched yet: it will, as soon as it gets a
    /// processor.
    pub(super) released: bool,
    pub(super) account: Account,
}

impl Instance {
    pub(super) fn new(id: InstanceId, terms: Terms) -> Self {
        Self {
            id,
            terms,
            working: false,
            gate: Gate::Open,
            want_gate: Gate::Open,
            gate_was: Gate::Open,
            gate_touched: false,
            gate_failed: 0,
            gate_retry_at: 0,
            want_compute: true,
            want_others: true,
            want_slice: DEFAULT_SLICE_US,
            fresh: false,
            owed: 0,
            owed_before: 0,
            slices: Record::default(),
            granted: 0,
            gap: UNKNOWN_GAP,
            silent: 0,
            explained: 0,
            long: false,
            nobody: 0,
            asked: false,
            heard_at: 0,
            dense: None,
            thinks: 0,
            idle_since: 0,
            off_since: None,
            parked_since: None,
            released: false,
            account: Account::default(),
        }
    }

    /// Whether it wants the GPU and may have it.
    pub(super) fn competes(&self) -> bool {
        self.working && !self.terms.suspended
    }

    /// How long it may be silent before it is taken to have no work.
    pub(super) fn patience(&self) -> Nanos {
        let least = if self.has_long_kernels() {
            LONGEST_SEEN
        } else {
            2 * MS
        };
        self.gap.saturating_mul(2).saturating_add(MS).max(least)
    }

    /// Whether its silence is a long kernel's, as far as the driver's samples tell.
    pub(super) fn has_long_kernels(&self) -> bool {
        self.long && self.nobody < NOBODY && !self.terms.high_priority
    }

    /// How much of its silence before this window counts: none while a task that was let go is bound to launch, unless that
    /// takes too long.
    pub(super) fn counted_silence(&self) -> Nanos {
        match self.released && self.silent <= LONGEST_SILENCE {
            true => 0,
            false => self.silent,
        }
    }

    /// It has been silent for longer than it may: what that means. Whether it has no work.
    ///
    /// A program that thinks and one whose kernel is unusually long are silent alike. So the first times it only
    /// gives way, and keeps competing: if it launches while it is off, it was thinking.
    pub(super) fn is_idle(&mut self, silent: Nanos) -> bool {
        self.silent = self.silent.saturating_add(silent);
        if self.released && !self.terms.high_priority && self.silent <= LONGEST_SILENCE {
            return false;
        }
        // Who has priority is not believed to be busy for long, since it keeps the others waiting.
        if self.terms.high_priority || self.silent > LONGEST_SILENCE {
            return true;
        }
        if self.thinks > 0 {
            self.thinks -= 1;
            return true;
        }
        self.gap = self.gap.max(self.silent);
        false
    }

    /// It has been silent for longer than it may, and was seen at work in that silence: whether the driver is to
    /// be asked again first, which is done once.
    pub(super) fn is_worth_asking(&mut self, silent: Nanos) -> bool {
        if self.explained == 0 || self.asked || self.terms.high_priority {
            return false;
        }
        self.asked = true;
        let all = self.silent.saturating_add(silent);
        self.silent = all.saturating_sub(LONGEST_SILENCE);
        true
    }

    /// Its doorbells are being moved to where they should be.
    pub(super) fn set_gate(&mut self) {
        self.gate_was = core::mem::replace(&mut self.gate, self.want_gate);
        self.gate_touched = false;
    }

    /// Its doorbells were moved, or are where they were.
    pub(super) fn gate_answered(&mut self, now: Nanos, result: Result<(), CallError>) {
        if result.is_err() {
            // Who came meanwhile passed, where it was armed, and left it open.
            let passed = self.gate_was == Gate::Armed && self.gate_touched;
            self.gate = if passed { Gate::Open } else { self.gate_was };
            self.gate_failed = self.gate_failed.saturating_add(1);
            self.gate_retry_at = retry_at(now, self.gate_failed);
        } else {
            self.gate_failed = 0;
            self.gate_retry_at = 0;
        }
        if self.gate != Gate::Shut {
            let slept = self.parked_since.is_some();
            self.let_go(now);
            self.released &= !slept || result.is_ok();
        }
    }

    /// As much of what it is owed, or had too much, may be an error of the accounts.
    pub(super) fn forget(&mut self, unsure: i64) {
        self.owed = self.owed.saturating_sub(self.owed.clamp(-unsure, unsure));
    }

    /// Whoever slept at its gate goes on.
    pub(super) fn let_go(&mut self, now: Nanos) {
        if let Some(since) = self.parked_since.take() {
            self.released = true;
            let slept = now.saturating_sub(since);
            self.account.parked = self.account.parked.saturating_add(slept);
        }
    }

    /// It launched outside its window.
    pub(super) fn launched_outside(&mut self, now: Nanos) {
        let off = self.off_since;
        if off.is_some_and(|since| now >= since.saturating_add(SETTLED)) && self.silent > 0 {
            self.thinks = BELIEF;
            // Whatever it had launched has ended in less.
            self.gap /= 2;
            self.silent = 0;
            self.explained = 0;
            self.dense = None;
        } else {
            self.heard(now, 0);
        }
    }

    /// It launched after `silent` more nanoseconds of the GPU.
    pub(super) fn heard(&mut self, now: Nanos, silent: Nanos) {
        let gap = self
            .silent
            .saturating_add(silent)
            .saturating_add(self.explained);
        self.explained = 0;
        self.gap = gap.max(self.gap / 2).min(LONGEST_GAP);
        let dense = self.dense.unwrap_or(Dense { since: now, gap });
        self.dense = (self.gap <= DENSE_GAP).then_some(Dense {
            gap: gap.max(dense.gap - dense.gap / DENSE_MEMORY),
            ..dense
        });
        self.long &= gap >= SEEN_GAP;
        self.nobody = 0;
        self.silent = 0;
        self.working = true;
    }

    /// It has work though it launched nothing.
    pub(super) fn seen(&mut self) {
        if !self.working {
            self.thinks = 0;
        }
        self.dense = None;
        self.long = true;
        self.nobody = 0;
        self.gap = self.gap.max(SEEN_GAP);
        self.explained = self.explained.saturating_add(self.silent);
        self.asked = false;
        self.silent = 0;
        self.working = true;
    }
}

/// A channel group, or a channel that has none.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) name: RmName,
    pub(super) owner: InstanceId,
    pub(super) engine: Engine,
    /// Its time slice, in microseconds; `None`: not known.
    pub(super) slice: Option<u32>,
    /// The call that is being made is for it.
    pub(super) in_call: bool,
    /// Failed calls in a row, and when the next one may be made.
    pub(super) failed: u32,
    pub(super) retry_at: Nanos,
    /// It was taken off by a time slice of 0 and is to be preempted once.
    pub(super) preempt: bool,
}

/// A channel.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) name: RmName,
    pub(super) group: RmName,
    pub(super) owner: InstanceId,
    pub(super) engine: Engine,
    /// Whose the driver takes it to be.
    pub(super) process: ProcessId,
    /// Switched off; `None`: not known. A call that failed may have done it for some, and one for another channel of this name
    /// may have come after this one was made.
    pub(super) off: Option<bool>,
    /// Part of the call that is being made.
    pub(super) in_call: bool,
    /// Failed calls in a row, and when the next one may be made. One that has failed is tried alone.
    pub(super) failed: u32,
    pub(super) retry_at: Nanos,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Fleet {
    instances: List<Instance>,
    groups: List<Group>,
    channels: List<Channel>,
}

/// Keeps the values of a list for which `keep` holds; their order may change.
fn retain<T>(list: &mut List<T>, mut keep: impl FnMut(&T) -> bool) {
    let mut at = 0;
    while let Some(value) = list.get(at) {
        if keep(value) {
            at += 1;
        } else {
            list.swap_remove(at);
        }
    }
}

impl Fleet {
    pub(super) const fn new() -> Self {
        Self {
            instances: List::new(),
            groups: List::new(),
            channels: List::new(),
        }
    }

    pub(super) fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.instances.iter()
    }

    pub(super) fn instances_mut(&mut self) -> impl Iterator<Item = &mut Instance> {
        self.instances.iter_mut()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }

    pub(super) fn groups_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.groups.iter_mut()
    }

    pub(super) fn channels(&self) -> impl Iterator<Item = &Channel> {
        self.channels.iter()
    }

    pub(super) fn channels_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.channels.iter_mut()
    }

    /// Those that compete.
    pub(super) fn competing(&self) -> impl Iterator<Item = &Instance> {
        self.instances().filter(|i| i.competes())
    }

    /// How many compete.
    pub(super) fn count_competing(&self) -> u64 {
        u64::try_from(self.competing().count()).unwrap_or(1)
    }

    pub(super) fn find(&self, id: InstanceId) -> Option<&Instance> {
        self.instances.iter().find(|i| i.id == id)
    }

    pub(super) fn find_mut(&mut self, id: InstanceId) -> Option<&mut Instance> {
        self.instances.iter_mut().find(|i| i.id == id)
    }

    pub(super) fn add(&mut self, instance: Instance) -> Result<(), Exhausted> {
        self.instances.push(instance)
    }

    pub(super) fn remove(&mut self, id: InstanceId) {
        retain(&mut self.instances, |i| i.id != id);
        retain(&mut self.groups, |g| g.owner != id);
        retain(&mut self.channels, |c| c.owner != id);
    }

    /// Notes a channel, and its group where that is new.
    pub(super) fn add_channel(
        &mut self,
        owner: InstanceId,
        group: RmName,
        name: RmName,
        engine: Engine,
        process: ProcessId,
    ) -> Result<(), Exhausted> {
        self.channels.reserve(1)?;
        if !self.groups.iter().any(|g| g.name == group) {
            self.groups.push(Group {
                name: group,
                owner,
                engine,
                slice: Some(DEFAULT_SLICE_US),
                in_call: false,
                failed: 0,
                retry_at: 0,
                preempt: false,
            })?;
        }
        self.channels.push(Channel {
            name,
            group,
            owner,
            engine,
            process,
            off: Some(false),
            in_call: false,
            failed: 0,
            retry_at: 0,
        })
    }

    /// A group or a channel is gone. A channel without a group is its own.
    pub(super) fn free(&mut self, name: RmName) {
        retain(&mut self.groups, |g| g.name != name);
        retain(&mut self.channels, |c| c.name != name && c.group != name);
        self.renew();
    }

    /// Instances whose programs are gone have no record of slices any more.
    fn renew(&mut self) {
        let Self {
            instances, groups, ..
        } = self;
        for instance in instances.iter_mut() {
            let own = |g: &Group| g.owner == instance.id && g.engine == Engine::Compute;
            if !groups.iter().any(own) {
                instance.slices = Record::default();
            }
        }
    }

    /// All that a client had is gone.
    pub(super) fn free_client(&mut self, client: ClientHandle) {
        retain(&mut self.groups, |g| g.name.client != client);
        retain(&mut self.channels, |c| c.name.client != client);
        self.renew();
    }

    /// The channels of the call that is being made are off since then, or on.
    pub(super) fn switched(&mut self, off_since: Option<Nanos>) {
        for channel in self.channels.iter().filter(|c| c.in_call) {
            if let Some(owner) = self.instances.iter_mut().find(|i| i.id == channel.owner) {
                owner.off_since = off_since;
            }
        }
    }

    /// The one instance in which this process has compute channels. `None` where there are several: on the host a
    /// process may open the nodes of more than one.
    pub(super) fn owner_of(&self, process: ProcessId) -> Option<InstanceId> {
        let own = |c: &&Channel| c.process == process && c.engine == Engine::Compute;
        let mut owners = self.channels.iter().filter(own).map(|c| c.owner);
        let first = owners.next()?;
        owners.all(|other| other == first).then_some(first)
    }

    /// Compute groups of an instance.
    pub(super) fn compute_groups(&self, id: InstanceId) -> usize {
        let own = |g: &&Group| g.owner == id && g.engine == Engine::Compute;
        self.groups.iter().filter(own).count()
    }
}
