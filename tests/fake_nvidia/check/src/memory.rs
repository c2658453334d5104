// SPDX-License-Identifier: GPL-2.0
//! Video memory: sizes, what does not fit, the older calls.

use crate::calls::*;

const GIB: u64 = 1 << 30;

/// The tests of this file.
pub(crate) const TESTS: &[Test] = &[
    ("sizes are rounded, told, and leave free memory", rounding),
    (
        "what does not fit is 0x51, changing nothing",
        too_much_memory_is_refused,
    ),
    ("a context costs what the recordings show", contexts),
    ("location and size are checked", arguments),
    (
        "the heap control allocates, frees anything, tells totals",
        heap_control,
    ),
    ("the old memory call tells the memory's size", old_call),
    ("memory of the program is pinned, or refused", pinned),
];

fn rounding() {
    let p = Program::new();
    let before = p.free_bytes();
    assert_eq!(p.video(7, 0x42_0000), (status::OK, 0x60_0000));
    assert_eq!(p.free_bytes(), before - 0x60_0000);
    assert_eq!(figure("heap", "gpu0_used_bytes"), 0x60_0000);
    // Below a huge page: big ones (_memmgrPickDefaultGpuPageSize() in mem_mgr.c).
    assert_eq!(p.video(8, 1), (status::OK, 0x1_0000));
    assert_eq!(p.video(9, 0x1F_0001), (status::OK, 0x20_0000));
    assert_eq!(p.video(10, 0x1E_FFFF), (status::OK, 0x1F_0000));
    assert_eq!(p.video(11, 0).0, status::NO_MEMORY);
    assert_eq!(p.free(7), status::OK);
    assert_eq!(p.free_bytes(), before - 0x40_0000);
}

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

fn arguments() {
    let p = Program::new();
    let try_it = |class, attr, size| p.alloc(DEVICE, 7, class, &mut memory(p.client, attr, size));
    assert_eq!(
        try_it(number::VIDEO, 0x1A00_0000, GIB),
        status::ARGUMENT,
        "video memory elsewhere"
    );
    assert_eq!(
        try_it(number::SYSTEM, 0x1800_0000, GIB),
        status::ARGUMENT,
        "system memory in video memory"
    );
    assert_eq!(try_it(number::VIDEO, 0x1800_0000, 0), status::NO_MEMORY);
}

fn heap_control() {
    let p = Program::new();
    let call = |b: &mut [u8]| {
        assert_eq!(escape(&p.ctl, number::VID_HEAP, b), Ok(()));
        get32(b, 20)
    };
    let mut b = words(
        184,
        &[
            (0, p.client),
            (4, DEVICE),
            (8, 2),
            (40, p.client),
            (44, 7),
            (52, 0x4000),
            (56, 0x1800_0000),
        ],
    );
    set64(&mut b, 88, 0x42_0000);
    assert_eq!(call(&mut b), status::OK);
    assert_eq!(
        (get32(&b, 44), get64(&b, 88), get64(&b, 24)),
        (7, 0x60_0000, 0)
    );
    let mut b = words(184, &[(0, p.client), (4, DEVICE), (8, 5)]);
    assert_eq!(call(&mut b), status::OK);
    assert_eq!(get64(&b, 32), p.free_bytes());
    let mut b = words(
        184,
        &[(0, p.client), (4, DEVICE), (8, 3), (44, SUBDEVICE), (48, 1)],
    );
    assert_eq!(call(&mut b), status::OK, "any object");
    assert_eq!(
        call(&mut words(184, &[(0, p.client), (4, DEVICE), (8, 99)])),
        status::ARGUMENT
    );
    let mut b = words(
        184,
        &[(0, p.client), (4, DEVICE), (8, 3), (44, p.client), (48, 1)],
    );
    assert_eq!(call(&mut b), status::OK, "even the client");
    assert_eq!(figure("heap", "gpu0_used_bytes"), 0);
}

fn old_call() {
    let p = Program::registered();
    let ask = || {
        let mut b = words(
            56,
            &[(0, p.client), (4, DEVICE), (8, 7), (12, number::VIDEO)],
        );
        assert_eq!(escape(&p.gpu, number::ALLOC_MEMORY, &mut b), Ok(()));
        (get32(&b, 40), get64(&b, 32))
    };
    assert_eq!(ask(), (status::OK, figure("heap", "gpu0_total_bytes") - 1));
    assert_eq!(figure("heap", "gpu0_used_bytes"), 0);
}

fn pinned() {
    let p = Program::registered();
    let pages = vec![1_u8; 0x6000];
    let at = (pages.as_ptr() as u64 + 0xFFF) & !0xFFF;
    let ask = |address: u64, handle| {
        let mut b = words(
            56,
            &[
                (0, p.client),
                (4, DEVICE),
                (8, handle),
                (12, 0x71),
                (16, 0x4000_1010),
            ],
        );
        set64(&mut b, 24, address);
        set64(&mut b, 32, 0x3FFF);
        assert_eq!(escape(&p.gpu, number::ALLOC_MEMORY, &mut b), Ok(()));
        get32(&b, 40)
    };
    assert_eq!(ask(at, 7), status::OK);
    assert_eq!(ask(at + 8, 8), status::NOT_SUPPORTED, "not at a page");
    assert_eq!(ask(0x1000, 8), 0x1E, "no memory there");
    assert_eq!(p.free(7), status::OK);
}
