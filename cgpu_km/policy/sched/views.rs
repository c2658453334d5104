// SPDX-License-Identifier: GPL-2.0
//! The views that the scheduler gives of a GPU and its instances.

use super::{
    authority::{
        InstanceId,
        Position, //
    },
    rules::Terms,
    time::Nanos, //
};
use crate::uapi::Mode;

/// The account of an instance since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Time that it had the GPU: alone, in its windows or in its slices. Time under
    /// [`Mode::Native`] is not in it, because nobody knows which instance had that.
    pub gpu_time: Nanos,
    /// Windows and slices that it had.
    pub windows: u64,
    /// Times that it was switched off with work.
    pub preemptions: u64,
    /// Time that a task of it slept at its doorbell.
    pub blocked: Nanos,
}

/// An instance as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceView {
    /// Its number.
    pub id: InstanceId,
    /// The operator's terms for it.
    pub terms: Terms,
    /// It is taken to have work.
    pub working: bool,
    /// It has the GPU: its window, or it is not kept from it.
    pub running: bool,
    /// The position of its gate.
    pub gate: Position,
    /// The GPU time that it is owed because it left its share to others.
    pub owed: Nanos,
    /// Its account.
    pub account: Account,
}

/// The GPU as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuView {
    /// How it is shared.
    pub mode: Mode,
    /// Changes from one instance's window or slice to another's.
    pub switches: u64,
    /// Calls into the driver that the scheduler made.
    pub calls: u64,
}
