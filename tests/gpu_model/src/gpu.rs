// SPDX-License-Identifier: GPL-2.0
//! The model of `model.c`, safely.

use crate::Nanos;

/// A call into the driver; the model says how long it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum DriverCall {
    /// Switch channels off.
    Disable,
    /// Switch channels on.
    Enable,
    /// Set a time slice.
    Timeslice,
    /// Preempt a group.
    Preempt,
    /// Read the samples.
    ReadSamples,
}

/// How long a call takes, and how long after its beginning it takes effect.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CallTimes {
    /// The time from its beginning to its effect.
    pub effect: Nanos,
    /// Its whole length.
    pub length: Nanos,
}

/// A sample of the driver's.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Sample {
    /// When it was taken.
    pub at: Nanos,
    /// The group that ran then, or [`NONE`].
    pub group: u32,
    /// How busy the engine was since the last sample, in hundredths of a percent.
    pub busy: u32,
}

/// No group, no channel.
pub const NONE: u32 = u32::MAX;
/// Nothing will happen by itself.
const NEVER: Nanos = Nanos::MAX;

mod c {
    use super::{CallTimes, DriverCall, Nanos, Sample};

    /// `struct gm_gpu`, whose layout only C knows.
    #[repr(C)]
    pub(super) struct Model {
        _opaque: [u8; 0],
    }

    unsafe extern "C" {
        pub(super) fn gm_host_size() -> usize;
        pub(super) fn gm_init(gpu: *mut Model);
        pub(super) fn gm_group_add(gpu: *mut Model, slice: Nanos) -> u32;
        pub(super) fn gm_channel_add(gpu: *mut Model, group: u32) -> u32;
        pub(super) fn gm_channel_remove(gpu: *mut Model, channel: u32);
        pub(super) fn gm_group_remove(gpu: *mut Model, group: u32);
        pub(super) fn gm_submit(gpu: *mut Model, channel: u32, length: Nanos) -> i32;
        pub(super) fn gm_set_timeslice(gpu: *mut Model, group: u32, slice: Nanos);
        pub(super) fn gm_switch(gpu: *mut Model, channel: u32, off: i32);
        pub(super) fn gm_preempt(gpu: *mut Model, group: u32);
        pub(super) fn gm_set_waits(gpu: *mut Model, group: u32, waits: i32);
        pub(super) fn gm_call(gpu: *mut Model, what: DriverCall) -> CallTimes;
        pub(super) fn gm_next(gpu: *const Model) -> Nanos;
        pub(super) fn gm_advance(gpu: *mut Model, to: Nanos) -> Nanos;
        pub(super) fn gm_host_now(gpu: *const Model) -> Nanos;
        pub(super) fn gm_host_finished(gpu: *const Model) -> u32;
        pub(super) fn gm_host_running(gpu: *const Model) -> u32;
        pub(super) fn gm_host_ran(gpu: *const Model, group: u32) -> Nanos;
        pub(super) fn gm_host_switched(gpu: *const Model) -> Nanos;
        pub(super) fn gm_host_sample(gpu: *const Model, back: u32, to: *mut Sample) -> i32;
    }
}

/// An idle GPU at time 0, or what became of it.
#[derive(Debug)]
pub struct Gpu {
    /// Room for the model, in units that align it.
    memory: Vec<u64>,
}

impl Default for Gpu {
    fn default() -> Self {
        Self::new()
    }
}

/// Calls a function of the model.
macro_rules! model {
    ($name:ident, $self:ident $(, $arg:expr)*) => {
        // SAFETY: `memory` has the size that the model says, is aligned for its 64-bit fields and
        // was initialised by gm_init in `new`; it is borrowed as long as the call lasts, mutably
        // where the function changes it. Numbers of groups and channels are checked by the
        // functions.
        unsafe { c::$name($self $(, $arg)*) }
    };
}

impl Gpu {
    /// An idle GPU at time 0.
    pub fn new() -> Self {
        // SAFETY: takes nothing, reads nothing.
        let size = unsafe { c::gm_host_size() };
        let mut gpu = Self {
            memory: vec![0; size.div_ceil(8)],
        };
        let model = gpu.model();
        model!(gm_init, model);
        gpu
    }

    fn model(&mut self) -> *mut c::Model {
        self.memory.as_mut_ptr().cast()
    }

    fn read(&self) -> *const c::Model {
        self.memory.as_ptr().cast()
    }

    /// Adds a channel group; panics when there are too many.
    pub fn add_group(&mut self, slice: Nanos) -> u32 {
        self.try_add_group(slice).expect("too many groups")
    }

    /// The same; `None` when there are too many.
    pub fn try_add_group(&mut self, slice: Nanos) -> Option<u32> {
        let model = self.model();
        let group = model!(gm_group_add, model, slice);
        (group != NONE).then_some(group)
    }

    /// Adds a channel to a group; panics when there are too many.
    pub fn add_channel(&mut self, group: u32) -> u32 {
        self.try_add_channel(group).expect("too many channels")
    }

    /// The same; `None` when there are too many.
    pub fn try_add_channel(&mut self, group: u32) -> Option<u32> {
        let model = self.model();
        let channel = model!(gm_channel_add, model, group);
        (channel != NONE).then_some(channel)
    }

    /// Removes a channel and what it holds.
    pub fn remove_channel(&mut self, channel: u32) {
        let model = self.model();
        model!(gm_channel_remove, model, channel);
    }

    /// Removes a group, its channels and what they hold.
    pub fn remove_group(&mut self, group: u32) {
        let model = self.model();
        model!(gm_group_remove, model, group);
    }

    /// Makes a kernel ready to run. Returns whether there was room for it.
    #[must_use]
    pub fn submit(&mut self, channel: u32, length: Nanos) -> bool {
        let model = self.model();
        model!(gm_submit, model, channel, length) != 0
    }

    /// The effect of SET_TIMESLICE.
    pub fn set_timeslice(&mut self, group: u32, slice: Nanos) {
        let model = self.model();
        model!(gm_set_timeslice, model, group, slice);
    }

    /// The effect of FIFO_DISABLE_CHANNELS.
    pub fn switch(&mut self, channel: u32, off: bool) {
        let model = self.model();
        model!(gm_switch, model, channel, i32::from(off));
    }

    /// The effect of PREEMPT.
    pub fn preempt(&mut self, group: u32) {
        let model = self.model();
        model!(gm_preempt, model, group);
    }

    /// Whether the kernels of a group run to their end before the GPU is taken from it.
    pub fn set_waits(&mut self, group: u32, waits: bool) {
        let model = self.model();
        model!(gm_set_waits, model, group, i32::from(waits));
    }

    /// How long a call takes.
    pub fn call(&mut self, what: DriverCall) -> CallTimes {
        let model = self.model();
        model!(gm_call, model, what)
    }

    /// When something will happen by itself.
    pub fn next(&self) -> Option<Nanos> {
        let model = self.read();
        let at = model!(gm_next, model);
        (at != NEVER).then_some(at)
    }

    /// Lets time pass up to `to`, at most up to the first kernel's end; returns the channel whose
    /// kernel that was.
    pub fn advance(&mut self, to: Nanos) -> Option<u32> {
        let model = self.model();
        model!(gm_advance, model, to);
        let finished = model!(gm_host_finished, model);
        (finished != NONE).then_some(finished)
    }

    /// Now.
    pub fn now(&self) -> Nanos {
        let model = self.read();
        model!(gm_host_now, model)
    }

    /// The group that runs a kernel.
    pub fn running(&self) -> Option<u32> {
        let model = self.read();
        let group = model!(gm_host_running, model);
        (group != NONE).then_some(group)
    }

    /// How long a group has run kernels.
    pub fn ran(&self, group: u32) -> Nanos {
        let model = self.read();
        model!(gm_host_ran, model, group)
    }

    /// Time spent in switches between groups.
    pub fn switched(&self) -> Nanos {
        let model = self.read();
        model!(gm_host_switched, model)
    }

    /// The sample that is `back` older than the newest one.
    pub fn sample(&self, back: u32) -> Option<Sample> {
        let mut sample = Sample::default();
        let model = self.read();
        let found = model!(gm_host_sample, model, back, &mut sample);
        (found != 0).then_some(sample)
    }
}
