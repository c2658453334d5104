// SPDX-License-Identifier: GPL-2.0
//! The actions that a scheduler can take on a GPU, and the trait of the code that takes them.
//!
//! The module has two ways to act: the driver's kernel interface (time slices, channels switched
//! off and on, preemption, samples) and the doorbell (which pages of the usermode region a
//! container's programs have mapped). [`Mechanisms`] say which of these work on this driver and
//! this GPU; the scheduler plans with what there is.

use crate::nvidia::handle::{
    ClientHandle,
    ObjectHandle, //
};

/// An instance, by the number that it has for as long as the module is loaded (`N` of
/// `/dev/cgpuN`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceId(pub u32);

/// A channel group (`KEPLER_CHANNEL_GROUP_A`) or a channel, by its names in the driver. A channel
/// that was allocated without a group has one of its own in the driver, whose handle the driver
/// chose (`kchannelConstruct_IMPL()`, kernel_channel.c). It goes by the channel's name here, and no
/// call is made on it: a channel has none of a group's controls (g_kernel_channel_nvoc.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RmName {
    /// hClient.
    pub client: ClientHandle,
    /// hObject.
    pub object: ObjectHandle,
}

/// The engine that a channel group runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Graphics and compute (`NV2080_ENGINE_TYPE_GRAPHICS`): what is shared by weight.
    Compute,
    /// Anything else: copy engines, video. Such groups are switched off only with their whole
    /// instance.
    Other,
}

/// The position of an instance's gate: the one before its doorbells, which are every mapping of the
/// usermode region that its processes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The pages are mapped. Ringing costs nothing and nobody hears of it.
    Open,
    /// The pages are not mapped. The first access is reported ([`super::Event::Rang`]), passes and
    /// opens the gate.
    Armed,
    /// The pages are not mapped. An access is reported, and its task sleeps until the gate is
    /// moved.
    Shut,
}

/// The mechanisms that work here. [`Mechanisms::NONE`] leaves everything to the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mechanisms {
    /// [`Action::SetTimeslice`] (`NVA06C_CTRL_CMD_SET_TIMESLICE`, 0xa06c0103).
    pub timeslice: bool,
    /// [`Action::Switch`] (`NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS`, 0x2080110b). Refused by the
    /// driver where the GPU runs without its firmware (GSP).
    pub switch: bool,
    /// [`Action::Preempt`] (`NVA06C_CTRL_CMD_PREEMPT`, 0xa06c0105).
    pub preempt: bool,
    /// [`Action::SetGate`].
    pub doorbell: bool,
    /// [`Action::ReadSamples`] (`NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2`,
    /// 0x20802096). Not supported while the GPU is divided by MIG.
    pub samples: bool,
}

impl Mechanisms {
    /// None at all.
    pub const NONE: Self = Self {
        timeslice: false,
        switch: false,
        preempt: false,
        doorbell: false,
        samples: false,
    };

    /// The doorbell alone, while the driver's kernel interface is not there: an instance can be
    /// suspended.
    pub const DOORBELL: Self = Self {
        doorbell: true,
        ..Self::NONE
    };

    /// On a driver that refuses nothing.
    pub const ALL: Self = Self {
        timeslice: true,
        switch: true,
        preempt: true,
        doorbell: true,
        samples: true,
    };

    /// These mechanisms without the one that an action needs.
    pub(super) const fn without(mut self, action: Action) -> Self {
        match action {
            Action::SetGate { .. } => self.doorbell = false,
            Action::SetTimeslice { .. } => self.timeslice = false,
            Action::Switch { .. } => self.switch = false,
            Action::Preempt { .. } => self.preempt = false,
            Action::ReadSamples => self.samples = false,
        }
        self
    }
}

/// Most channels that one [`Action::Switch`] names: as many as `hClientList` has room for
/// (`NV2080_CTRL_FIFO_DISABLE_CHANNELS_MAX_ENTRIES`).
pub const SWITCH_MAX: usize = 64;

/// One thing to do. Each is one call into the driver, or none ([`Action::SetGate`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Moves the gate before the doorbells of an instance.
    SetGate {
        /// The instance.
        instance: InstanceId,
        /// The position that it is to have.
        gate: Position,
    },
    /// Sets the time slice of a channel group. 0 keeps the group off the GPU from its next turn on.
    SetTimeslice {
        /// The group.
        group: RmName,
        /// In microseconds, as the driver takes it.
        microseconds: u32,
    },
    /// Switches channels off, or on again: those that [`super::Scheduler::switched`] lists.
    /// Switching off preempts them.
    Switch {
        /// Off.
        disable: bool,
    },
    /// Takes the group off the GPU now, in favour of the next one of its runlist.
    Preempt {
        /// The group.
        group: RmName,
    },
    /// Reads the driver's samples of which processes used the GPU, and reports them
    /// ([`super::Scheduler::samples`]) before the answer to this action.
    ReadSamples,
}

/// Why a call did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// This driver or this GPU cannot do it (`NV_ERR_NOT_SUPPORTED` and the like): not tried again.
    Unsupported,
    /// An object that the call names is not there any more (of several channels: one of them).
    Gone,
    /// A program uses or closes the client that the call is for. The driver was not called. Tried
    /// again later.
    Busy,
    /// It failed: an object went at that moment, or the driver had no resources. Tried again later.
    Failed,
}

/// The code that takes the actions: the module's, or a model's.
pub trait Authority {
    /// [`Action::SetTimeslice`].
    fn set_timeslice(&mut self, group: RmName, microseconds: u32) -> Result<(), CallError>;
    /// [`Action::Switch`]; at most [`SWITCH_MAX`] channels of one GPU, of any clients.
    fn switch(&mut self, channels: &[RmName], disable: bool) -> Result<(), CallError>;
    /// [`Action::Preempt`].
    fn preempt(&mut self, group: RmName) -> Result<(), CallError>;
    /// [`Action::SetGate`].
    fn set_gate(&mut self, instance: InstanceId, gate: Position) -> Result<(), CallError>;
    /// [`Action::ReadSamples`].
    fn read_samples(&mut self) -> Result<(), CallError>;

    /// Takes the action that the scheduler asked for. `channels` is [`super::Scheduler::switched`],
    /// copied while the scheduler's lock was held; no lock is held here.
    fn perform(&mut self, action: Action, channels: &[RmName]) -> Result<(), CallError> {
        match action {
            Action::SetGate { instance, gate } => self.set_gate(instance, gate),
            Action::SetTimeslice {
                group,
                microseconds,
            } => self.set_timeslice(group, microseconds),
            Action::Switch { disable } => self.switch(channels, disable),
            Action::Preempt { group } => self.preempt(group),
            Action::ReadSamples => self.read_samples(),
        }
    }
}
