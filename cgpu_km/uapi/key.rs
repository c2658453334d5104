// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How an instance is named, and how a list is asked for: what the records of many commands share.

use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout, //
};

/// Length of a name field; a name has at most one byte less and must not be empty.
pub const NAME_LEN: usize = 64;
/// The rule for a name, for people.
pub const NAME_RULE: &str = "a name has 1 to 63 letters, digits, dots, underscores or hyphens; \
                             it begins with a letter or a digit";
/// In [`InstanceKey::gpu_minor`]: the only GPU that has an instance of this name.
pub const GPU_ANY: u32 = u32::MAX;

/// A NUL-padded name. Allowed bytes: `A-Z a-z 0-9 . _ -`, the first one a letter or a digit.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct Name(pub [u8; NAME_LEN]);

impl Name {
    /// The name as a field, if it is one: not empty, short enough, only allowed bytes (it becomes a
    /// file name in `/dev`, in `cgpufs` and in `/proc`).
    pub fn new(text: &str) -> Option<Self> {
        let mut field = [0; NAME_LEN];
        field
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        let name = Self(field);
        name.as_str().is_some().then_some(name)
    }

    /// The text, if the field holds a valid name.
    pub fn as_str(&self) -> Option<&str> {
        let len = self.0.iter().position(|&b| b == 0)?;
        let (text, pad) = self.0.split_at(len);
        let valid = text.first().is_some_and(u8::is_ascii_alphanumeric)
            && text
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(b))
            && pad.iter().all(|&b| b == 0);
        if !valid {
            return None;
        }
        core::str::from_utf8(text).ok()
    }
}

/// Names an instance.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct InstanceKey {
    /// Its name.
    pub name: Name,
    /// Its GPU, or [`GPU_ANY`].
    pub gpu_minor: u32,
    /// Must be zero.
    pub reserved: [u32; 5],
}

impl InstanceKey {
    /// The key of an instance.
    pub const fn new(name: Name, gpu_minor: u32) -> Self {
        Self {
            name,
            gpu_minor,
            reserved: [0; 5],
        }
    }
}

/// Asks for a list: the caller gives room, the module fills what fits and says how many there are.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordList {
    /// In: address of an array of records. May be 0 if `capacity` is 0.
    pub records: u64,
    /// In: number of records there is room for.
    pub capacity: u32,
    /// Out: number of records that exist; those beyond `capacity` were not written.
    pub count: u32,
    /// In: size of one record, which must be what the module was built with.
    pub record_size: u32,
    /// Must be zero.
    pub reserved: [u32; 5],
}
