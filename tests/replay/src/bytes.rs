// SPDX-License-Identifier: GPL-2.0
//! Little-endian numbers at an offset of a byte slice.

/// The 32-bit number at `at`, 0 where the slice ends before.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u32::from_le_bytes)
}

/// The 64-bit number at `at`, 0 where the slice ends before.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes
        .get(at..at + 8)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

/// The descriptor at `at`, -1 where the slice ends before.
pub fn fd_at(bytes: &[u8], at: usize) -> i32 {
    bytes
        .get(at..at + 4)
        .and_then(|b| b.try_into().ok())
        .map_or(-1, i32::from_le_bytes)
}

/// Writes a 32-bit number, if the slice reaches that far.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(b) = bytes.get_mut(at..at + 4) {
        b.copy_from_slice(&value.to_le_bytes());
    }
}

/// Writes a 64-bit number, if the slice reaches that far.
pub fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    if let Some(b) = bytes.get_mut(at..at + 8) {
        b.copy_from_slice(&value.to_le_bytes());
    }
}
