// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Limits of an instance beside those of memory and channels.

use super::key::{
    InstanceKey,
    RecordList, //
};
#[cfg(doc)]
use super::words::Limited;
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

/// [`InstanceSetLimit::limit`]: the limit that an instance has for which none was set.
pub const LIMIT_DEFAULT: u64 = u64::MAX;

/// Asks for the limits of an instance.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceLimits {
    /// In: which.
    pub key: InstanceKey,
    /// In and out: room for [`InstanceLimit`]s.
    pub list: RecordList,
    /// Must be zero.
    pub reserved: [u64; 2],
}

/// One limit, and what counts against it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceLimit {
    /// A number of [`Limited`]: of what.
    pub what: u32,
    /// 1: it was set; 0: it is the default.
    pub is_set: u32,
    /// The most that there may be.
    pub limit: u64,
    /// How much there is.
    pub used: u64,
    /// How often more was refused.
    pub refused: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

/// Changes a limit.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceSetLimit {
    /// Which.
    pub key: InstanceKey,
    /// The most that there may be, not zero; [`LIMIT_DEFAULT`]. Below what there is, no more is
    /// granted until enough is gone.
    pub limit: u64,
    /// A number of [`Limited`]: of what.
    pub what: u32,
    /// Must be zero.
    pub reserved: [u32; 5],
}
