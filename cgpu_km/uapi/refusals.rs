// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Refusals of an instance.

use super::key::{
    InstanceKey,
    RecordList, //
};
#[cfg(doc)]
use super::words::{
    CallKind,
    RefusalReason, //
};
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

/// Asks for the calls of an instance that were refused, and for those that went to the GPU's
/// firmware unseen.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceRefusals {
    /// In: which.
    pub key: InstanceKey,
    /// In and out: room for [`Refusal`]s.
    pub list: RecordList,
    /// Out: calls of further kinds, for which the module had no records left.
    pub others: u64,
    /// Must be zero.
    pub reserved: [u64; 3],
}

/// Room for a name of NVIDIA's.
pub const TITLE_LEN: usize = 96;

/// One kind of refused calls.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Refusal {
    /// A number of [`CallKind`]: what `number` is one of.
    pub kind: u32,
    /// Number of the escape, class, control or UVM command.
    pub number: u32,
    /// A number of [`RefusalReason`]: why.
    pub reason: u32,
    /// For [`RefusalReason::Capability`]: the sets that would allow it. Bits of
    /// [`super::capability`].
    pub capabilities: u32,
    /// How many there were.
    pub count: u64,
    /// When the last one was, in seconds since 1970.
    pub last_seconds: u64,
    /// The process that made it, as the host numbers it.
    pub last_process: u32,
    /// 1: it was for this instance's GPU; 0: for none in particular.
    pub on_gpu: u32,
    /// NVIDIA's name for the call, text; empty where it has none.
    pub name: [u8; TITLE_LEN],
    /// Zero.
    pub reserved: [u64; 2],
}
