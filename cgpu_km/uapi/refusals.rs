// SPDX-License-Identifier: GPL-2.0 OR MIT
//! What an instance was refused.

use super::key::{InstanceKey, RecordList, Reserved};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

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

impl Reserved for InstanceRefusals {
    fn is_clean(&self) -> bool {
        self.key.is_clean() && self.list.is_clean() && self.reserved == [0; 3]
    }
}

/// Room for a name of NVIDIA's.
pub const TITLE_LEN: usize = 96;

/// One kind of refused calls.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Refusal {
    /// [`refusal`]: what `number` is one of.
    pub kind: u32,
    /// Number of the escape, class, control or UVM command.
    pub number: u32,
    /// [`refusal`]: why.
    pub reason: u32,
    /// For [`refusal::CAPABILITY`]: the sets that would allow it, bits of [`super::capability`].
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

/// Values of [`Refusal::kind`] and [`Refusal::reason`].
pub mod refusal {
    /// An `ioctl` of `/dev/nvidiactl` or `/dev/nvidiaN`.
    pub const ESCAPE: u32 = 0;
    /// A class of an object to be made.
    pub const CLASS: u32 = 1;
    /// A control of an object.
    pub const CONTROL: u32 = 2;
    /// A command of `/dev/nvidia-uvm`.
    pub const UVM: u32 = 3;

    /// No table has it.
    pub const UNLISTED: u32 = 0;
    /// The instance has none of the capabilities that allow it.
    pub const CAPABILITY: u32 = 1;
    /// It names a client, GPU or process of another tenant.
    pub const FOREIGN: u32 = 2;
    /// It is kept from every container.
    pub const FORBIDDEN: u32 = 3;
    /// It says something in its parameters that no container may say.
    pub const PARAMETERS: u32 = 4;
    /// It was not refused: it went to the GPU's firmware unseen.
    pub const PASSED_UNSEEN: u32 = 5;
}
