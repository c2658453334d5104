// SPDX-License-Identifier: GPL-2.0
//! Which output bytes a replay compares, and which differ by nature.
//!
//! Only without an instance: through one, the module may change any output that it is there to
//! change (memory reports, lists of GPUs and of processes), so that there only the statuses count.
//!
//! Not compared, each for the reason said at its place:
//! * parameters behind the size that the driver copies (384 bytes were recorded for every class);
//! * kernel addresses that the driver puts into an event's parameters;
//! * where a memory object lies: physical addresses, and whether it is in one piece;
//! * numbers that the driver gives to channels;
//! * where a GPU's registers and the window to its memory are: in the test machine they are memory
//!   that the stand-in got;
//! * clocks of the GPU;
//! * lists of processes and their memory, and whether another process uses the GPU: they were
//!   others;
//! * free memory, by what no call names: what other processes held when the recording began,
//!   managed memory, which the GPU fills when it touches it, and what the other processes of the
//!   replay hold.

use crate::{
    bytes::{put_u32, u32_at},
    layout,
    report::Mismatch,
};

/// Bytes from an offset to another, which is not part of it.
pub type Span = (usize, usize);

/// Output bytes of an argument that are not compared.
pub fn volatile_argument(nr: u32) -> &'static [Span] {
    match nr {
        // The flags of a mapping come back with the caching that the real memory has.
        0x4E => &[(44, 48)],
        // CARD_INFO: the addresses of the registers and of the window, of each GPU.
        0xC8 => &PLACES,
        _ => &[],
    }
}

/// `reg_address` and `fb_address` in the 32 entries of 72 bytes (`nv_ioctl_card_info_t`).
const PLACES: [Span; 64] = {
    let mut spans = [(0, 0); 64];
    let mut place = 0;
    while place < spans.len() {
        let at = place / 2 * 72 + 24 + place % 2 * 16;
        spans[place] = (at, at + 8);
        place += 1;
    }
    spans
};

/// Output bytes of a class's parameters that are not compared.
pub fn volatile_class(class: u32) -> &'static [Span] {
    match class {
        // The object's place in video memory: offset, limit, address.
        0x3E | 0x40 | 0x50A0 => &[(80, 104)],
        // The channel's number.
        _ if layout::is_channel(class) => &[(132, 136)],
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
        // GPFIFO_GET_WORK_SUBMIT_TOKEN: runlist and number of the channel.
        0xC36F_0108 => &[(0, 4)],
        // GPU_GET_PIDS and GPU_GET_PID_INFO: processes that are not part of the recording.
        0x2080_018D => &[(8, 3812)],
        0x2080_018E => &[(0, 14408)],
        _ => &[],
    }
}

/// Takes memory without a call of the recording.
pub struct Unseen<'a> {
    /// Bytes that processes held which are not part of the replay, learned from the first answer.
    pub others: &'a mut Option<u64>,
    /// Bytes of managed memory, which the GPU may have filled.
    pub managed: u64,
    /// Whether other processes of the replay are alive, which may have been alone in their
    /// recording.
    pub company: bool,
}

/// Takes over free memory (FB_GET_INFO index 0x16, KiB) as it was seen, if it may be so.
pub fn excuse_free(expected: &mut [u8], seen: &[u8], by: Unseen<'_>) {
    const FREE: u32 = 0x16;
    let pairs = usize::try_from(u32_at(expected, 0)).unwrap_or(0).min(256);
    for at in (0..pairs).map(|i| 4 + 8 * i) {
        if u32_at(expected, at) != FREE || u32_at(seen, at) != FREE {
            continue;
        }
        let recorded = u64::from(u32_at(expected, at + 4)) << 10;
        let real = u64::from(u32_at(seen, at + 4)) << 10;
        let others = *by.others.get_or_insert(real.saturating_sub(recorded));
        let wanted = recorded + others;
        if wanted.abs_diff(real) <= by.managed || (by.company && real < wanted) {
            put_u32(expected, at + 4, u32_at(seen, at + 4));
        }
    }
}

/// Takes over whether memory is in one piece (NVOS32_ATTR_PHYSICALITY), which depends on what else
/// there is.
pub fn excuse_pieces(class: u32, expected: &mut [u8], seen: &[u8]) {
    const ATTRIBUTES: usize = 24;
    const PHYSICALITY: u32 = 3 << 27;
    if class == layout::CLASS_VIDEO_MEMORY {
        let real = u32_at(seen, ATTRIBUTES) & PHYSICALITY;
        let recorded = u32_at(expected, ATTRIBUTES) & !PHYSICALITY;
        put_u32(expected, ATTRIBUTES, recorded | real);
    }
}

/// Takes over whether another process uses the GPU (GPU_GET_ID_INFO and its second form: flag
/// IN_USE): that none does, since those of the recording may not be part of the replay, and in
/// company also that one does.
pub fn excuse_use(control: u32, expected: &mut [u8], seen: &[u8], company: bool) {
    const FLAGS: usize = 4;
    const IN_USE: u32 = 1;
    let in_use = u32_at(seen, FLAGS) & IN_USE;
    if matches!(control, 0x0202 | 0x0205) && (in_use == 0 || company) {
        let recorded = u32_at(expected, FLAGS);
        put_u32(expected, FLAGS, recorded & !IN_USE | in_use);
    }
}

/// The first difference outside the ranges that are not compared: where, and up to 16 bytes of
/// each.
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
    fn free_memory_may_differ_by_unnamed_memory() {
        let answer = |kib| {
            let mut bytes = [0; 12];
            put_u32(&mut bytes, 0, 1);
            put_u32(&mut bytes, 4, 0x16);
            put_u32(&mut bytes, 8, kib);
            bytes
        };
        let excused = |recorded, seen, others: &mut Option<u64>, managed| {
            let mut expected = answer(recorded);
            let by = Unseen {
                others,
                managed,
                company: false,
            };
            excuse_free(&mut expected, &answer(seen), by);
            expected == answer(seen)
        };
        let mut others = None;
        assert!(excused(1000, 1100, &mut others, 0));
        assert_eq!(others, Some(100 << 10));
        assert!(excused(900, 1000, &mut others, 0));
        assert!(!excused(900, 1001, &mut others, 0));
        assert!(excused(900, 1004, &mut others, 4 << 10));
        let mut expected = answer(900);
        let by = Unseen {
            others: &mut None,
            managed: 0,
            company: true,
        };
        excuse_free(&mut expected, &answer(500), by);
        assert_eq!(expected, answer(500));
    }

    #[test]
    fn the_first_difference_that_counts_is_found() {
        let (a, mut b) = ([0_u8; 32], [0_u8; 32]);
        b[3] = 1;
        b[9] = 2;
        assert_eq!(first_difference(&a, &b, &[(0, 4)]).map(|d| d.0), Some(8));
        assert_eq!(first_difference(&a, &b, &[(0, 4), (8, 12)]), None);
    }
}
