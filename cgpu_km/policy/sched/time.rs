// SPDX-License-Identifier: GPL-2.0
//! Moments and lengths of time, and parts of them.

/// A moment or a length of time in nanoseconds, of whatever monotonic clock the caller keeps to.
pub type Nanos = u64;

/// One millisecond.
pub const MS: Nanos = 1_000_000;
/// One microsecond.
pub const US: Nanos = 1_000;

/// The earlier one of two moments, of which the first may be none.
pub(super) fn earlier(known: Option<Nanos>, at: Nanos) -> Option<Nanos> {
    Some(known.map_or(at, |known| known.min(at)))
}

/// `whole * parts / all`, rounded down.
///
/// The kernel has no division of 128 bits. Parts are weights, so their products are far below 64
/// bits.
pub(super) fn portion(whole: u64, parts: u64, all: u64) -> u64 {
    let all = all.max(1);
    let rest = (whole % all).saturating_mul(parts) / all;
    (whole / all).saturating_mul(parts).saturating_add(rest)
}

/// A length between 3/4 and 5/4 of a turn's.
///
/// If turns were of one length, samples that are taken every five turns, say, would always find the
/// same instance.
pub(super) fn uneven(length: Nanos, number: u64) -> Nanos {
    // The upper bits of a product with this odd number (2^64 by the golden ratio) look like chance.
    let chance = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
    (length / 64).saturating_mul(48 + chance)
}

/// A length that an instance may be owed.
pub(super) fn signed(length: Nanos) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}
