// SPDX-License-Identifier: GPL-2.0
//! Video memory: what is taken and until when, what does not fit, and what contexts cost.

use crate::calls::*;

const GIB: u64 = 1 << 30;

/// The tests of this file.
pub(crate) const TESTS: &[Test] = &[
    (
        "what does not fit is 0x51, changing nothing",
        too_much_memory_is_refused,
    ),
    ("a context costs what the recordings show", contexts),
    ("rounded sizes are what is taken and told", taken),
    ("memory goes with the last that has it", kept),
];

fn too_much_memory_is_refused() {
    let p = Program::new();
    let mut params = memory(p.client, 0x1800_0000, 200 * GIB);
    let before = params.clone();
    assert_eq!(
        p.alloc(DEVICE, 7, number::VIDEO, &mut params),
        status::NO_MEMORY
    );
    assert_eq!(params, before);
    assert_eq!(p.video(7, u64::MAX).0, status::NO_MEMORY);
    // All of it, to the last block.
    let all = p.free_bytes() & !0x1F_FFFF;
    assert_eq!(p.video(7, all), (status::OK, all));
    assert_eq!(p.video(8, 0x20_0000).0, status::NO_MEMORY);
}

fn contexts() {
    let p = Program::new();
    let before = p.free_bytes();
    let group = |handle| {
        let mut g = words(20, &[(12, 1)]);
        p.make(DEVICE, handle, number::GROUP, &mut g);
        before - p.free_bytes()
    };
    // docs/measurements/2026-11-23-channels.md: the first group for compute, each further one, and
    // each channel.
    const FIRST: u64 = 7744;
    const MORE: u64 = 4416;
    const CHANNEL: u64 = 64;
    assert_eq!(group(8), FIRST << 10);
    assert_eq!(group(9), (FIRST + MORE) << 10);
    // A channel outside of a group makes a context, one in a group none.
    let channel = |parent, handle| {
        let mut c = words(368, &[(128, 1)]);
        let made = alloc(&p.ctl, p.client, parent, handle, number::CHANNEL, &mut c);
        assert_eq!(made.0, status::OK);
        before - p.free_bytes()
    };
    assert_eq!(channel(8, 10), (FIRST + MORE + CHANNEL) << 10);
    assert_eq!(channel(DEVICE, 11), (FIRST + 2 * (MORE + CHANNEL)) << 10);
    for (handle, left) in [(8, FIRST + MORE + CHANNEL), (9, FIRST + CHANNEL), (11, 0)] {
        assert_eq!(p.free(handle), status::OK);
        assert_eq!(before - p.free_bytes(), left << 10);
    }
}

fn taken() {
    let p = Program::new();
    let before = p.free_bytes();
    assert_eq!(p.video(7, 0x42_0000), (status::OK, 0x60_0000));
    assert_eq!((p.free_bytes(), used()), (before - 0x60_0000, 0x60_0000));
    // The heap control tells the same.
    let mut b = words(184, &[(0, p.client), (4, DEVICE), (8, 5)]);
    assert_eq!(escape(&p.ctl, number::VID_HEAP, &mut b), Ok(()));
    assert_eq!((get32(&b, 20), get64(&b, 32)), (status::OK, p.free_bytes()));
    // The old call takes nothing, and tells all that there is.
    let mut control = words(4, &[(0, p.ctl.0 as u32)]);
    assert_eq!(escape(&p.gpu, number::REGISTER_FD, &mut control), Ok(()));
    let values = [(0, p.client), (4, DEVICE), (8, 8), (12, number::VIDEO)];
    let mut b = words(56, &values);
    assert_eq!(escape(&p.gpu, number::ALLOC_MEMORY, &mut b), Ok(()));
    let all = figure("heap", "gpu0_total_bytes");
    assert_eq!((get32(&b, 40), get64(&b, 32)), (status::OK, all - 1));
    assert_eq!(used(), 0x60_0000);
}

fn kept() {
    let had = figure("objects", "clients");
    let p = Program::new();
    assert_eq!(p.video(7, 2 << 20).0, status::OK);
    let q = Program::new();
    assert_eq!(dup(&q.ctl, q.client, DEVICE, 7, p.client, 7), status::OK);
    assert_eq!(p.free(7), status::OK);
    assert_eq!(used(), 2 << 20, "the copy has it");
    drop(q);
    assert_eq!(used(), 0);
    // A space takes its group along, and a device its memory.
    p.make(DEVICE, 8, number::VASPACE, &mut [0; 56]);
    p.make(DEVICE, 9, number::GROUP, &mut words(20, &[(8, 8), (12, 1)]));
    assert_eq!(p.video(7, 2 << 20).0, status::OK);
    assert_eq!(figure("heap", "gpu0_contexts"), 1);
    assert_eq!(p.free(8), status::OK);
    assert_eq!(figure("heap", "gpu0_contexts"), 0);
    assert_eq!(p.free(DEVICE), status::OK);
    assert_eq!(used(), 0);
    drop(p);
    assert_eq!(figure("objects", "clients"), had, "a file its clients");
}
