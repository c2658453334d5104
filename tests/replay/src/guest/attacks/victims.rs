// SPDX-License-Identifier: GPL-2.0
//! Handles that the victim has; they are guessed easily, so attackers know them.

/// Memory.
pub(super) const MEMORY: u32 = 0x5c00_0010;
/// Memory that it shares with everybody, as CUDA does for IPC.
pub(super) const SHARED: u32 = 0x5c00_0011;
/// Its address space.
pub(super) const VASPACE: u32 = 0x5c00_0012;
/// Its channel group.
pub(super) const GROUP: u32 = 0x5c00_0013;
/// Its channel.
pub(super) const CHANNEL: u32 = 0x5c00_0014;
/// Its compute object on the channel.
pub(super) const COMPUTE: u32 = 0x5c00_0015;
/// The descriptor number of its event key.
pub(super) const EVENT: u32 = 77;
