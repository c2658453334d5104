// SPDX-License-Identifier: GPL-2.0
//! Which output bytes a replay compares, and which differ by nature.
//!
//! Only without an instance: through one, the module may change any output that it is there to
//! change (memory reports, lists of GPUs and of processes), so that there only the statuses count.
//!
//! Not compared, each for the reason said at its place:
//! * parameters behind the size that the driver copies (384 bytes were recorded for every class);
//! * kernel addresses that the driver puts into an event's parameters;
//! * physical addresses that a memory object is told;
//! * clocks and counters of the GPU;
//! * lists of processes and their memory, when the processes were not part of the recording.

use crate::layout;
use crate::report::Mismatch;

/// Bytes from an offset to another, which is not part of it.
pub type Span = (usize, usize);

/// Output bytes of an argument that are not compared.
pub fn volatile_argument(nr: u32) -> &'static [Span] {
    match nr {
        // The flags of a mapping come back with the caching that the real memory has.
        0x4E => &[(44, 48)],
        _ => &[],
    }
}

/// Output bytes of a class's parameters that are not compared.
pub fn volatile_class(class: u32) -> &'static [Span] {
    match class {
        // Where in video memory the object lies: offset, limit, address.
        0x3E | 0x40 | 0x50A0 => &[(80, 104)],
        // The driver puts the kernel's address of the file behind the descriptor there.
        layout::CLASS_OS_EVENT => &[(16, 24)],
        _ => &[],
    }
}

/// Output bytes of a control's parameters that are not compared.
pub fn volatile_control(control: u32) -> &'static [Span] {
    match control {
        // TIMER_GET_GPU_CPU_TIME_CORRELATION_INFO: clocks.
        0x2080_0406 => &[(8, 264)],
        // GPU_GET_PIDS and GPU_GET_PID_INFO: processes that are not part of the recording.
        0x2080_018D => &[(8, 3812)],
        0x2080_018E => &[(0, 14408)],
        _ => &[],
    }
}

/// The first difference outside the ranges that are not compared: where, and up to 16 bytes of each.
pub fn first_difference(
    expected: &[u8],
    seen: &[u8],
    volatile: &[Span],
) -> Option<(usize, String, String)> {
    let at = expected
        .iter()
        .zip(seen)
        .enumerate()
        .position(|(i, (a, b))| a != b && !volatile.iter().any(|s| (s.0..s.1).contains(&i)))?;
    let at = at & !3;
    let part = |bytes: &[u8]| {
        let end = bytes.len().min(at + 16);
        crate::record::to_hex(bytes.get(at..end).unwrap_or_default())
    };
    Some((at, part(expected), part(seen)))
}

/// A mismatch of whole buffers, if they differ.
pub fn buffers(
    index: usize,
    call: &str,
    what: &str,
    expected: &[u8],
    seen: &[u8],
    volatile: &[Span],
) -> Option<Mismatch> {
    let (at, recorded, seen) = first_difference(expected, seen, volatile)?;
    Some(Mismatch {
        trace: None,
        index,
        call: call.to_owned(),
        what: what.to_owned(),
        at: Some(at),
        recorded,
        seen,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_that_counts_is_found() {
        let (a, mut b) = ([0_u8; 32], [0_u8; 32]);
        b[3] = 1;
        b[9] = 2;
        assert_eq!(first_difference(&a, &b, &[(0, 4)]).map(|d| d.0), Some(8));
        assert_eq!(first_difference(&a, &b, &[(0, 4), (8, 12)]), None);
    }
}
