// SPDX-License-Identifier: GPL-2.0
//! Clients, objects, controls, sharing, and the places where the driver asks nobody.

use crate::calls::*;

/// The tests of this file.
pub(crate) const TESTS: &[Test] = &[
    ("clients count up and belong to their file", clients),
    ("a device needs its GPU's file open", devices),
    ("parents, classes and handles are checked", parents),
    ("freeing what is not there succeeds", frees),
    ("parameters are needed and readable", parameters),
    ("controls are checked for size, object and class", controls),
    ("a legacy control takes anybody's client", legacy),
    ("OS events take any client and number", events),
    ("dup asks the share policy", duplicates),
    ("disabling channels asks nobody", disabling),
];

fn clients() {
    let (a, b) = (ctl(), ctl());
    let (first, second) = (client(&a), client(&b));
    assert_eq!(second, first + 1);
    assert_eq!(free(&b, first, first), status::CLIENT);
    assert_eq!(
        control(&b, first, first, 0xD04, &mut words(12, &[(4, 1), (8, 4)])),
        status::CLIENT
    );
    assert_eq!(
        alloc(&b, first, first, 1, number::DEVICE, &mut [0; 56]).0,
        status::CLIENT
    );
    let had = figure("objects", "clients");
    drop(a);
    assert_eq!(
        figure("objects", "clients"),
        had - 1,
        "closing the file frees its clients"
    );
}

fn devices() {
    let file = ctl();
    let cl = client(&file);
    let mut p = words(56, &[(0, instance(0))]);
    assert_eq!(
        alloc(&file, cl, cl, 1, number::DEVICE, &mut p).0,
        status::PERMISSIONS
    );
    let _other = gpu(1);
    assert_eq!(
        alloc(&file, cl, cl, 1, number::DEVICE, &mut p).0,
        status::PERMISSIONS,
        "the other GPU's"
    );
    let _right = gpu(0);
    assert_eq!(
        alloc(&file, cl, cl, 1, number::DEVICE, &mut p).0,
        status::OK
    );
    let mut none = words(56, &[(0, 40)]);
    assert_eq!(
        alloc(&file, cl, cl, 2, number::DEVICE, &mut none).0,
        status::ARGUMENT
    );
}

fn parents() {
    let p = Program::new();
    let new = |parent, handle, class, params: &mut [u8]| {
        alloc(&p.ctl, p.client, parent, handle, class, params)
    };
    assert_eq!(new(p.client, 9, 0x1234, &mut []).0, status::CLASS);
    assert_eq!(
        new(p.client, 9, number::SUBDEVICE, &mut [0; 4]).0,
        status::PARENT
    );
    assert_eq!(
        new(0x777, 9, number::SUBDEVICE, &mut [0; 4]).0,
        status::NOT_FOUND
    );
    assert_eq!(
        new(DEVICE, SUBDEVICE, number::SUBDEVICE, &mut [0; 4]).0,
        status::DUPLICATE
    );
    assert_eq!(
        new(DEVICE, p.client, number::SUBDEVICE, &mut [0; 4]).0,
        status::PARENT
    );
    assert_eq!(
        new(DEVICE, 9, number::SUBDEVICE, &mut [0; 4]).0,
        status::RESOURCES,
        "a second one"
    );
    let (s, chosen) = new(DEVICE, 0, number::VASPACE, &mut [0; 56]);
    assert_eq!(s, status::OK);
    assert!(chosen >= 0xCAF0_0000, "{chosen:#x}");
    // One of its kind under a subdevice.
    assert_eq!(new(SUBDEVICE, 10, 0x503C, &mut [0; 4]).0, status::OK);
    assert_eq!(
        new(SUBDEVICE, 11, 0x503C, &mut [0; 4]).0,
        status::STATE_IN_USE
    );
    assert_eq!(
        new(DEVICE, 12, 0x73, &mut []).0,
        status::NOT_SUPPORTED,
        "no display"
    );
}

fn frees() {
    let p = Program::new();
    assert_eq!(p.free(0x4242), status::OK);
    assert_eq!(p.video(7, 2 << 20).0, status::OK);
    p.make(DEVICE, 8, number::VASPACE, &mut [0; 56]);
    let mut group = words(20, &[(8, 8), (12, 1)]);
    p.make(DEVICE, 9, number::GROUP, &mut group);
    assert_eq!(figure("heap", "gpu0_contexts"), 1);
    assert_eq!(
        p.free(8),
        status::OK,
        "the address space takes its group along"
    );
    assert_eq!(figure("heap", "gpu0_contexts"), 0);
    assert_eq!(p.free(DEVICE), status::OK);
    assert_eq!(figure("heap", "gpu0_used_bytes"), 0);
    assert_eq!(
        p.control(SUBDEVICE, 0x2080_1303, &mut words(1028, &[])),
        status::NOT_FOUND
    );
}

fn parameters() {
    let p = Program::new();
    assert_eq!(p.alloc(DEVICE, 7, number::VIDEO, &mut []), status::ARGUMENT);
    let mut a = words(
        48,
        &[(0, p.client), (4, DEVICE), (8, 7), (12, number::VIDEO)],
    );
    set64(&mut a, 16, 0x1000);
    assert_eq!(escape(&p.ctl, number::ALLOC, &mut a), Ok(()));
    assert_ne!(
        get32(&a, 40),
        status::OK,
        "parameters at an address without memory"
    );
}

fn controls() {
    let p = Program::new();
    let ask = |object, cmd, size| control(&p.ctl, p.client, object, cmd, &mut vec![0; size]);
    assert_eq!(
        ask(SUBDEVICE, 0x2080_1303, 1024),
        status::ARGUMENT,
        "another size"
    );
    assert_eq!(
        ask(DEVICE, 0x2080_1303, 1028),
        status::NOT_SUPPORTED,
        "another class's"
    );
    assert_eq!(ask(0x4242, 0x2080_1303, 1028), status::NOT_FOUND);
    assert_eq!(
        ask(SUBDEVICE, 0x2080_0000, 0),
        status::OK,
        "the empty control"
    );
    let before = figure("unanswered", "total");
    assert_eq!(ask(SUBDEVICE, 0x2080_7F7F, 16), status::NOT_SUPPORTED);
    assert_eq!(figure("unanswered", "total"), before + 1);
}

fn legacy() {
    let victim = Program::new();
    let other = ctl();
    // Not the client's file, and yet only the answer is missing.
    let s = control(&other, victim.client, SUBDEVICE, 0x2080_852E, &mut [0; 528]);
    assert_eq!(s, status::NOT_SUPPORTED);
    assert_eq!(
        control(&other, 0xC1DF_FFFF, SUBDEVICE, 0x2080_852E, &mut [0; 528]),
        status::CLIENT
    );
}

fn events() {
    let file = gpu(0);
    let call = |number| {
        let mut a = words(16, &[(0, 0xC1D0_0001), (8, 4711)]);
        assert_eq!(escape(&file, number, &mut a), Ok(()));
        get32(&a, 12)
    };
    assert_eq!(call(number::OS_EVENT), status::OK);
    assert_eq!(call(number::OS_EVENT), 0x1A, "the pair is taken");
    assert_eq!(call(number::OS_EVENT + 1), status::OK);
    assert_eq!(call(number::OS_EVENT + 1), status::EVENT);
}

fn duplicates() {
    let p = Program::new();
    assert_eq!(p.video(7, 2 << 20).0, status::OK);
    let q = Program::new();
    assert_eq!(
        dup(&q.ctl, q.client, DEVICE, 7, p.client, 7),
        status::OK,
        "the same process"
    );
    assert_eq!(
        dup(&p.ctl, q.client, DEVICE, 8, p.client, 7),
        status::CLIENT,
        "into another file's client"
    );
    let other = || {
        let r = Program::new();
        dup(&r.ctl, r.client, DEVICE, 7, p.client, 7) as u8
    };
    assert_eq!(u32::from(in_child(other)), status::PERMISSIONS);
    // RM_SHARE with everybody.
    let mut a = words(24, &[(0, p.client), (4, 7), (12, 1), (16, 1)]);
    assert_eq!(escape(&p.ctl, number::SHARE, &mut a), Ok(()));
    assert_eq!(get32(&a, 20), status::OK);
    assert_eq!(u32::from(in_child(other)), status::OK);
    // The copy keeps the memory.
    assert_eq!(p.free(7), status::OK);
    assert_eq!(figure("heap", "gpu0_used_bytes"), 2 << 20);
    drop(q);
    assert_eq!(figure("heap", "gpu0_used_bytes"), 0);
}

fn disabling() {
    let victim = Program::new();
    let mut group = words(20, &[(12, 11)]);
    victim.make(DEVICE, 8, number::GROUP, &mut group);
    victim.make(8, 9, 0xC86F, &mut [0; 368]);
    let p = Program::new();
    let mut list = words(536, &[(0, 1), (4, 1), (24, victim.client), (280, 9)]);
    assert_eq!(p.control(SUBDEVICE, 0x2080_110B, &mut list), status::OK);
    assert_eq!(figure("objects", "channels_disabled"), 1);
}
