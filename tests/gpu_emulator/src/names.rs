// SPDX-License-Identifier: GPL-2.0
//! Names of objects and of channels.

/// An object of the driver's: its client and its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId {
    /// The client.
    pub client: u32,
    /// The handle in that client.
    pub handle: u32,
}

/// A channel's number on its runlist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId {
    /// The runlist.
    pub runlist: u32,
    /// The number on it.
    pub number: u32,
}
