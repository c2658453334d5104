// SPDX-License-Identifier: GPL-2.0
//! Answers of a driver to calls that the stand-in and NVIDIA's own must answer alike, a line for
//! each: `QUESTION: ANSWER`. It runs on both (tests/driver/alike.py) and so uses nothing that only
//! the stand-in has. Structures are those that 550 and 580 have in common.

use std::{fs, panic};

use crate::calls::{
    number::{
        ALLOC, ALLOC_MEMORY, CARD_INFO, CONTROL, DUP, EVENT, FREE, GROUP, MAP, NUMA_INFO, OS_EVENT,
        REGISTER_FD, SHARE, SYSTEM, USERMODE, VASPACE, VIDEO, VID_HEAP, XFER,
    },
    *,
};

/// Questions that belong together, in a process of their own, and what they are about.
const GROUPS: &[(&str, fn())] = &[
    ("escapes", escapes),
    ("descriptors", descriptors),
    ("clients", clients),
    ("devices", devices),
    ("others", others),
    ("objects", objects),
    ("controls", controls),
    ("memory", memory_calls),
    ("heap", heap),
    ("mappings", mappings),
    ("exports", exports),
    ("lists", export_lists),
    ("uvm", uvm_files),
    ("ranges", ranges),
];

/// An answer: a status, or an error number.
fn say(question: &str, answer: Result<u32, i32>) {
    match answer {
        Ok(status) => println!("{question}: {status:#x}"),
        Err(errno) => println!("{question}: errno {errno}"),
    }
}

/// Asks everything.
pub(crate) fn tell() {
    for (group, ask) in GROUPS {
        // A driver that refuses what the others of a group need has ended the group.
        if let Err(why) = panic::catch_unwind(ask) {
            let text = why.downcast_ref::<String>().map_or("", String::as_str);
            println!("{group}: ended early, {}", text.replace(['\n', ':'], " "));
        }
    }
}

/// An escape whose status is at an offset.
fn ask(file: &File, number: u32, argument: &mut [u8], at: usize) -> Result<u32, i32> {
    escape(file, number, argument).map(|()| get32(argument, at))
}

/// RM_ALLOC as [`Program::alloc`], as an answer.
fn made(p: &Program, parent: u32, new: u32, class: u32, params: &mut [u8]) -> Result<u32, i32> {
    Ok(p.alloc(parent, new, class, params))
}

fn escapes() {
    let (c, g) = (ctl(), gpu(0));
    for (number, size) in [
        (FREE, 20),
        (CONTROL, 40),
        (ALLOC, 40),
        (DUP, 32),
        (SHARE, 28),
        (VID_HEAP, 192),
        (MAP, 48),
        (XFER, 24),
        (0x70, 16),
        (NUMA_INFO, 560),
    ] {
        let answer = escape(&c, number, &mut vec![0; size]).map(|()| 0);
        say(&format!("escape {number:#x} of {size} bytes"), answer);
    }
    for (number, size) in [(REGISTER_FD, 8), (OS_EVENT, 20), (0x70, 16)] {
        let answer = escape(&g, number, &mut vec![0; size]).map(|()| 0);
        say(
            &format!("escape {number:#x} of {size} bytes to a GPU"),
            answer,
        );
    }
    for (number, size, at) in [(FREE, 16, 12), (ALLOC, 48, 40), (CONTROL, 32, 28)] {
        let answer = ask(&g, number, &mut vec![0; size], at);
        say(
            &format!("escape {number:#x} to a GPU without a client"),
            answer,
        );
    }
    let answer = ask(&c, ALLOC_MEMORY, &mut [0; 56], 40);
    say("ALLOC_MEMORY to the control device", answer);
    let answer = escape(&g, CARD_INFO, &mut [0; 2304]).map(|()| 0);
    say("CARD_INFO to a GPU", answer);
    let answer = escape(&c, CARD_INFO, &mut [0; 72]).map(|()| 0);
    say("CARD_INFO with room for one of two", answer);
    let mut inner = vec![0; 48];
    let mut outer = words(16, &[(0, ALLOC), (4, 48)]);
    set64(&mut outer, 8, inner.as_mut_ptr() as u64);
    let answer = escape(&c, XFER, &mut outer).map(|()| get32(&inner, 12));
    say("a client in an envelope: its class", answer);
    let mut short = vec![0; 32];
    say("a client by the short form", ask(&c, ALLOC, &mut short, 28));
}

fn descriptors() {
    let (c, g, other) = (ctl(), gpu(0), ctl());
    let register =
        |on: &File, fd: i32| escape(on, REGISTER_FD, &mut words(4, &[(0, fd as u32)])).map(|()| 0);
    say("a GPU's file registered at a GPU's", register(&g, g.0));
    say("a file of nobody's registered", register(&g, 0));
    say("no file registered", register(&g, -1));
    say("a control file registered", register(&g, c.0));
    say("another one registered", register(&g, other.0));
    say("a control file registered at one", register(&c, other.0));
    let cl = client(&c);
    let event =
        |number, client: u32, fd: u32| ask(&g, number, &mut words(16, &[(0, client), (8, fd)]), 12);
    say("an event's key", event(OS_EVENT, cl, 4711));
    say("an event's key again", event(OS_EVENT, cl, 4711));
    say("an event's key freed", event(OS_EVENT + 1, cl, 4711));
    say("an event's key freed again", event(OS_EVENT + 1, cl, 4711));
    say("a stranger's event's key", event(OS_EVENT, 0xc1df_fff1, 9));
    say("its end", event(OS_EVENT + 1, 0xc1df_fff1, 9));
    let mut p = words(24, &[(0, cl), (8, EVENT), (16, 99)]);
    let answer = alloc(&g, cl, cl, 8, EVENT, &mut p).0;
    say("an event without a key", Ok(answer));
}

fn clients() {
    let (a, b) = (ctl(), ctl());
    let first = client(&a);
    say("another file's client freed", Ok(free(&b, first, first)));
    let answer = control(&b, first, first, 0xd04, &mut words(12, &[(4, 1), (8, 4)]));
    say("a control of another file's client", Ok(answer));
    let answer = alloc(&b, first, first, 1, number::DEVICE, &mut [0; 56]).0;
    say("a device in another file's client", Ok(answer));
    say("an unknown client freed", Ok(free(&a, 0xc1df_fff1, 1)));
    say("what is not there freed", Ok(free(&a, first, 0x4242)));
    say("a client freed", Ok(free(&a, first, first)));
    say("a client freed again", Ok(free(&a, first, first)));
}

fn devices() {
    let file = ctl();
    let cl = client(&file);
    let new = |handle, instance| {
        let mut p = words(56, &[(0, instance)]);
        Ok(alloc(&file, cl, cl, handle, number::DEVICE, &mut p).0)
    };
    let other = gpu(1);
    // The number is asked for while the GPU is open.
    let right = gpu(0);
    let instance = device_instance(&file, cl);
    drop(right);
    say("a device of a GPU that is not open", new(1, instance));
    drop(other);
    let _right = gpu(0);
    say("a device", new(1, instance));
    say("a device with a name that is taken", new(1, instance));
    say("a second device", new(3, instance));
    say("a device of a GPU that is not there", new(2, 40));
}

/// Calls that name another program's client, where the driver does not always ask.
fn others() {
    let victim = program();
    let p = program();
    let device = |at: usize, named: u32| {
        let file = ctl();
        let own = client(&file);
        let mut params = words(56, &[(0, device_instance(&file, own)), (at, named)]);
        Ok(alloc(&file, own, own, 9, number::DEVICE, &mut params).0)
    };
    for (field, at) in [("hClientShare", 4), ("hTargetClient", 8)] {
        for (whose, named) in [("a stranger's", 0xc1df_fff1), ("another's", victim.client)] {
            say(&format!("a device with {whose} {field}"), device(at, named));
        }
    }
    for (name, client) in [("own", p.client), ("another's", victim.client)] {
        let mut b = words(40, &[(0, client), (4, DEVICE), (8, 0x4242)]);
        set64(&mut b, 16, 0x1000);
        let answer = ask(&p.ctl, 0x5e, &mut b, 32);
        say(
            &format!("UPDATE_DEVICE_MAPPING_INFO of nothing of {name}"),
            answer,
        );
        let setting = c"ResmanDebugLevel".to_bytes_with_nul();
        let mut b = words(72, &[(0, client), (4, client), (8, 1)]);
        b[24..28].copy_from_slice(&(setting.len() as u32).to_le_bytes());
        set64(&mut b, 32, setting.as_ptr() as u64);
        let answer = ask(&p.ctl, 0x4d, &mut b, 64);
        say(&format!("ACCESS_REGISTRY to read, {name}"), answer);
        for access in [0, 1, 2] {
            let mut b = words(72, &[(0, client), (4, client), (8, access)]);
            let answer = ask(&p.ctl, 0x4d, &mut b, 64);
            say(
                &format!("ACCESS_REGISTRY without a name, access {access}, {name}"),
                answer,
            );
        }
    }
    let other = ctl();
    let gss = |client| {
        Ok(control(
            &other,
            client,
            SUBDEVICE,
            0x2080_c159,
            &mut [0; 332],
        ))
    };
    say("a legacy control for administrators", gss(victim.client));
    say("a legacy control of a stranger", gss(0xc1df_fff1));
    say("another's memory", Ok(victim.video(7, 2 << 20).0));
    let copy =
        |to: &Program, into: u32, handle| Ok(dup(&to.ctl, into, DEVICE, handle, victim.client, 7));
    say("a copy in the same process", copy(&p, p.client, 7));
    say("a copy under a name that is taken", copy(&p, p.client, 7));
    say(
        "a copy into another file's client",
        copy(&p, victim.client, 8),
    );
    let in_other = || {
        let r = program();
        dup(&r.ctl, r.client, DEVICE, 7, victim.client, 7) as u8
    };
    say("a copy by another process", Ok(in_child(in_other).into()));
    let share = |object, kind: u32| {
        let mut a = words(24, &[(0, victim.client), (4, object), (12, 1), (16, kind)]);
        ask(&victim.ctl, SHARE, &mut a, 20)
    };
    say("what is not there shared", share(0x4242, 1));
    say("shared in a way that there is not", share(7, 200));
    say("shared with all", share(7, 1));
    say(
        "a copy by another process then",
        Ok(in_child(in_other).into()),
    );
}

fn objects() {
    let p = program();
    let new = |parent, handle, class, params: &mut [u8]| made(&p, parent, handle, class, params);
    say("an unknown class", new(p.client, 9, 0x1234, &mut []));
    say(
        "a subdevice of a client",
        new(p.client, 9, number::SUBDEVICE, &mut [0; 4]),
    );
    say(
        "a subdevice of nothing",
        new(0x777, 9, number::SUBDEVICE, &mut [0; 4]),
    );
    say(
        "a name that is taken",
        new(DEVICE, SUBDEVICE, number::SUBDEVICE, &mut [0; 4]),
    );
    say(
        "a client's name",
        new(DEVICE, p.client, number::SUBDEVICE, &mut [0; 4]),
    );
    say(
        "a second subdevice",
        new(DEVICE, 9, number::SUBDEVICE, &mut [0; 4]),
    );
    say(
        "a subdevice of another number",
        new(DEVICE, 10, number::SUBDEVICE, &mut [3, 0, 0, 0]),
    );
    say(
        "one of its kind",
        new(SUBDEVICE, 11, 0x503c, &mut [1, 0, 0, 0]),
    );
    say("another one", new(SUBDEVICE, 12, 0x503c, &mut [1, 0, 0, 0]));
    say("a display", new(DEVICE, 13, 0x73, &mut []));
    say("a doorbell of a device", new(DEVICE, 14, USERMODE, &mut []));
    say("a doorbell", new(SUBDEVICE, 15, USERMODE, &mut []));
    say("an address space", new(DEVICE, 16, VASPACE, &mut [0; 56]));
    say(
        "an address space of a subdevice",
        new(SUBDEVICE, 17, VASPACE, &mut [0; 56]),
    );
    say(
        "a group of an unknown engine",
        new(DEVICE, 18, GROUP, &mut words(20, &[(12, 200)])),
    );
    say(
        "a group",
        new(DEVICE, 19, GROUP, &mut words(20, &[(8, 16), (12, 1)])),
    );
    say(
        "a group of a space that is not there",
        new(DEVICE, 20, GROUP, &mut words(20, &[(8, 0x4242), (12, 1)])),
    );
    say("its space freed", Ok(p.free(16)));
    say(
        "the group is gone with it",
        new(DEVICE, 19, VASPACE, &mut [0; 56]),
    );
    say("the device freed", Ok(p.free(DEVICE)));
    let mut params = words(list_size(), &[]);
    say(
        "a control of what went with it",
        Ok(p.control(SUBDEVICE, 0x2080_1303, &mut params)),
    );
}

fn controls() {
    let p = program();
    let ask = |object, cmd, size: usize| Ok(p.control(object, cmd, &mut vec![0; size]));
    say(
        "a control of another size",
        ask(SUBDEVICE, 0x2080_1303, list_size() - 4),
    );
    say(
        "a control of another class",
        ask(DEVICE, 0x2080_1303, list_size()),
    );
    say(
        "a control of nothing",
        ask(0x4242, 0x2080_1303, list_size()),
    );
    say("the empty control", ask(SUBDEVICE, 0x2080_0000, 0));
    say("an unknown control", ask(SUBDEVICE, 0x2080_7f7f, 16));
    say(
        "a control without parameters",
        ask(SUBDEVICE, 0x2080_1303, 0),
    );
    let mut a = words(
        32,
        &[
            (0, p.client),
            (4, SUBDEVICE),
            (8, 0x2080_1303),
            (24, list_size() as u32),
        ],
    );
    set64(&mut a, 16, 0x1000);
    let answer = super::answers::ask(&p.ctl, CONTROL, &mut a, 28);
    say("a control with parameters at no memory", answer);
    let mut list = words(list_size(), &[(0, 5000)]);
    say(
        "a list that is too long",
        Ok(p.control(SUBDEVICE, 0x2080_1303, &mut list)),
    );
    let mut list = words(list_size(), &[(0, 1), (4, 0x7777)]);
    say(
        "a list with an unknown index",
        Ok(p.control(SUBDEVICE, 0x2080_1303, &mut list)),
    );
    let mut list = words(536, &[(0, 1), (4, 1), (24, p.client), (280, 0x4242)]);
    say(
        "channels that are not there switched off",
        Ok(p.control(SUBDEVICE, 0x2080_110b, &mut list)),
    );
    let mut list = words(536, &[(0, 1), (4, 65)]);
    say(
        "more channels than there is room for",
        Ok(p.control(SUBDEVICE, 0x2080_110b, &mut list)),
    );
}

fn memory_calls() {
    let p = program();
    for size in [0x42_0000, 1, 0x1f_0001, 0x1e_ffff, 0, u64::MAX, 1 << 40] {
        let (status, got) = p.video(7, size);
        say(&format!("memory of {size:#x} bytes"), Ok(status));
        if status == status::OK {
            println!("memory of {size:#x} bytes, its size: {got:#x}");
            say("its end", Ok(p.free(7)));
        }
    }
    let gib = 1 << 30;
    for (what, class, attributes, size) in [
        ("video memory elsewhere", VIDEO, 0x1a00_0000, gib),
        ("system memory in video memory", SYSTEM, 0x1800_0000, gib),
        ("system memory without a size", SYSTEM, 0x5a00_0000, 0),
        ("system memory", SYSTEM, 0x5a00_0000, 0x5001),
    ] {
        say(
            what,
            made(
                &p,
                DEVICE,
                7,
                class,
                &mut memory(p.client, attributes, size),
            ),
        );
    }
    say(
        "memory without parameters",
        made(&p, DEVICE, 8, VIDEO, &mut []),
    );
    let mut params = memory(0, 0x1800_0000, gib);
    say(
        "memory without an owner",
        made(&p, DEVICE, 8, VIDEO, &mut params),
    );
    let mut params = memory(p.client, 0x1800_0000, gib);
    say(
        "memory of a subdevice",
        made(&p, SUBDEVICE, 8, VIDEO, &mut params),
    );
    let mut a = words(48, &[(0, p.client), (4, DEVICE), (8, 9), (12, VIDEO)]);
    set64(&mut a, 16, 0x1000);
    say(
        "memory with parameters at no memory",
        ask(&p.ctl, ALLOC, &mut a, 40),
    );
    let registered = escape(&p.gpu, REGISTER_FD, &mut words(4, &[(0, p.ctl.0 as u32)]));
    say("the files are one program's", registered.map(|()| 0));
    let old = |handle, class, flags, address, limit| {
        let mut b = words(
            56,
            &[
                (0, p.client),
                (4, DEVICE),
                (8, handle),
                (12, class),
                (16, flags),
            ],
        );
        set64(&mut b, 24, address);
        set64(&mut b, 32, limit);
        ask(&p.gpu, ALLOC_MEMORY, &mut b, 40)
    };
    say("video memory by the old call", old(10, VIDEO, 0, 0, 0));
    let pages = vec![1_u8; 0x6000];
    let at = (pages.as_ptr() as u64 + 0xfff) & !0xfff;
    say(
        "the program's memory",
        old(11, 0x71, 0x4000_1010, at, 0x3fff),
    );
    say(
        "the program's memory, not at a page",
        old(12, 0x71, 0x4000_1010, at + 8, 0x3fff),
    );
    say(
        "the program's memory where there is none",
        old(13, 0x71, 0x4000_1010, 0x1000, 0x3fff),
    );
    say("it is freed", Ok(p.free(11)));
}

fn heap() {
    let p = program();
    let call = |values: &[(usize, u32)], size: u64| {
        let mut b = words(184, &[(0, p.client), (4, DEVICE)]);
        for &(at, value) in values {
            b[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        set64(&mut b, 88, size);
        let answer = ask(&p.ctl, VID_HEAP, &mut b, 20);
        (answer, get64(&b, 88))
    };
    let owner = (40, p.client);
    let new = [(8, 2), owner, (44, 7), (52, 0x4000), (56, 0x1800_0000)];
    let (answer, got) = call(&new, 0x42_0000);
    say("the heap: memory", answer);
    println!("the heap: memory, its size: {got:#x}");
    say(
        "the heap: memory without a size",
        call(&[(8, 2), owner, (44, 8), (56, 0x1800_0000)], 0).0,
    );
    say("the heap: what there is", call(&[(8, 5)], 0).0);
    say(
        "the heap: memory is freed",
        call(&[(8, 3), (44, 7), (48, 1)], 0).0,
    );
    say(
        "the heap: what is not there is freed",
        call(&[(8, 3), (44, 7), (48, 1)], 0).0,
    );
    say(
        "the heap: any object is freed",
        call(&[(8, 3), (44, SUBDEVICE), (48, 1)], 0).0,
    );
    say("the heap: an unknown function", call(&[(8, 99)], 0).0);
    say(
        "the heap: the client is freed",
        call(&[(8, 3), (44, p.client), (48, 1)], 0).0,
    );
}

fn mappings() {
    let p = program();
    say("a doorbell", made(&p, SUBDEVICE, 5, USERMODE, &mut []));
    let file = gpu(0);
    let write = libc::PROT_WRITE;
    let mapped = |at: &File, length, protection, offset| {
        let done = mmap(at, 0, length, protection, offset);
        done.map(|address| {
            munmap(address, length);
            0
        })
    };
    say(
        "a mapping without a context",
        mapped(&file, 0x10000, write, 0),
    );
    say(
        "a context for another GPU's file",
        Ok(p.map(SUBDEVICE, 5, 0x10000, &gpu(1))),
    );
    say(
        "a context for a control file",
        Ok(p.map(SUBDEVICE, 5, 0x10000, &p.ctl)),
    );
    say(
        "a context of what is not there",
        Ok(p.map(SUBDEVICE, 0x4242, 0x10000, &file)),
    );
    say(
        "a context that is too long",
        Ok(p.map(SUBDEVICE, 5, 0x2_0000, &file)),
    );
    say("a context", Ok(p.map(SUBDEVICE, 5, 0x10000, &file)));
    say("a second context", Ok(p.map(SUBDEVICE, 5, 0x10000, &file)));
    say("a mapping of another size", mapped(&file, 0x8000, write, 0));
    say(
        "a mapping at an offset",
        mapped(&file, 0x10000, write, 0x1000),
    );
    say("a mapping", mapped(&file, 0x10000, write, 0));
    say("the same again", mapped(&file, 0x10000, write, 0));
    let mut params = memory(p.client, 0x5a00_0000, 0x6000);
    say("system memory", made(&p, DEVICE, 6, SYSTEM, &mut params));
    let control = ctl();
    say(
        "its context for a GPU's file",
        Ok(p.map(DEVICE, 6, 0x6000, &gpu(0))),
    );
    say("its context", Ok(p.map(DEVICE, 6, 0x6000, &control)));
    let both = libc::PROT_READ | libc::PROT_WRITE;
    say(
        "more than there is of it",
        mapped(&control, 0x7000, both, 0),
    );
    say("a part of it", mapped(&control, 0x2000, both, 0));
    say("it is freed", Ok(p.free(6)));
    say("mapped after its free", mapped(&control, 0x2000, both, 0));
}

fn exports() {
    let p = program();
    say("memory to export", Ok(p.video(7, 2 << 20).0));
    let export = |file: &File, changes: &[(usize, u32)]| {
        let mut b = words(24, &[(0, 1), (4, DEVICE), (12, 7)]);
        b[16..20].copy_from_slice(&file.0.to_le_bytes());
        for &(at, value) in changes {
            b[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        Ok(p.control(p.client, 0x3d05, &mut b))
    };
    let import = |file: &File, handle: u32| {
        let mut b = words(20, &[(4, 1), (8, DEVICE), (12, DEVICE), (16, handle)]);
        b[..4].copy_from_slice(&file.0.to_le_bytes());
        Ok(p.control(p.client, 0x3d06, &mut b))
    };
    let holder = ctl();
    say("an import of nothing", import(&holder, 8));
    say("an export of nothing", export(&holder, &[(12, 99)]));
    say("an export of another type", export(&holder, &[(0, 2)]));
    say("an export of an empty type", export(&holder, &[(0, 0)]));
    say(
        "an export of what is no device's",
        export(&holder, &[(4, 7)]),
    );
    say("an export of no device's", export(&holder, &[(4, 99)]));
    say("an export to no file", export(&holder, &[(16, u32::MAX)]));
    say("an export to a GPU's file", export(&gpu(0), &[]));
    say("an export", export(&holder, &[]));
    say("a second export", export(&holder, &[]));
    say(
        "a mapping of an export",
        mmap(&holder, 0, 0x1000, 1, 0).map(|_| 0),
    );
    say("an import", import(&holder, 8));
    say("an import under a name that is taken", import(&holder, 8));
    say("its memory is freed", Ok(p.free(7)));
    say("an import after that", import(&holder, 9));
}

/// Lists of objects behind a descriptor: what replaces what, what is skipped, and what goes again.
fn export_lists() {
    let p = program();
    let made = [(7, 2 << 20), (8, 4 << 20)].map(|(handle, size)| p.video(handle, size).0);
    say("lists: memory to export", Ok(made[0] | made[1]));
    let export = |file: &File, places: u32, first: u32, objects: &[u32]| {
        let mut b = words(2128, &[(4, DEVICE), (8, places | 0x77 << 16)]);
        b[..4].copy_from_slice(&file.0.to_le_bytes());
        for (place, object) in objects.iter().enumerate() {
            b[76 + 4 * place..80 + 4 * place].copy_from_slice(&object.to_le_bytes());
        }
        b[2124..].copy_from_slice(&(objects.len() as u32 | first << 16).to_le_bytes());
        Ok(p.control(p.client, 0x3d0b, &mut b))
    };
    let import = |file: &File, first: u32, handles: &[u32]| {
        let mut b = words(652, &[(4, DEVICE)]);
        b[..4].copy_from_slice(&file.0.to_le_bytes());
        for (place, handle) in handles.iter().enumerate() {
            b[8 + 4 * place..12 + 4 * place].copy_from_slice(&handle.to_le_bytes());
        }
        b[648..].copy_from_slice(&(handles.len() as u32 | first << 16).to_le_bytes());
        let status = p.control(p.client, 0x3d0c, &mut b);
        (status, get32(&b, 520))
    };
    let info = |file: &File| {
        let mut b = words(80, &[]);
        b[..4].copy_from_slice(&file.0.to_le_bytes());
        let status = p.control(p.client, 0x3d08, &mut b);
        (status, [get32(&b, 8), get32(&b, 12)])
    };
    let (file, empty) = (ctl(), ctl());
    say(
        "lists: an export without places",
        export(&empty, 0, 0, &[7]),
    );
    say("lists: beyond its places", export(&empty, 2, 1, &[7, 7]));
    say("lists: what nobody exported to", Ok(info(&empty).0));
    say("lists: an export", export(&file, 4, 1, &[7, 0, 7]));
    let (status, told) = info(&file);
    say("lists: its purpose", Ok(status));
    println!("lists: its partition and places: {told:x?}");
    say("lists: more beyond them", export(&file, 0, 3, &[0, 7]));
    let mut one = words(24, &[(0, 1), (4, DEVICE), (12, 7)]);
    one[16..20].copy_from_slice(&file.0.to_le_bytes());
    let answer = p.control(p.client, 0x3d05, &mut one);
    say("lists: one object to the same file", Ok(answer));
    say("lists: an import of nothing", Ok(import(&empty, 0, &[9]).0));
    say("lists: an import beyond", Ok(import(&file, 3, &[9, 16]).0));
    let (status, kinds) = import(&file, 0, &[10, 11, 12, 13]);
    say("lists: an import with empty places", Ok(status));
    println!("lists: its kinds: {kinds:x}");
    let name = |handle| Ok(p.video(handle, 2 << 20).0);
    for handle in 10..14 {
        say("lists: one of its names for memory", name(handle));
    }
    // An object under the name for nothing goes, too.
    let (status, _) = import(&file, 1, &[14, 8, 7]);
    say("lists: an import with a name that is taken", Ok(status));
    for handle in [14, 8, 7] {
        say("lists: one of those names for memory", name(handle));
    }
    say("lists: an export in its place", export(&file, 0, 1, &[0]));
    say("lists: an import of that", Ok(import(&file, 1, &[15]).0));
    say("lists: its name for memory", name(15));
}

/// Two 64-bit words and room behind.
fn pair(size: usize, a: u64, b: u64) -> Vec<u8> {
    let mut v = vec![0; size];
    set64(&mut v, 0, a);
    set64(&mut v, 8, b);
    v
}

/// A UVM request whose status is at an offset.
fn uvm_ask(file: &File, cmd: u64, argument: &mut [u8], at: usize) -> Result<u32, i32> {
    request(file, cmd, argument).map(|()| get32(argument, at))
}

fn with_uuid(p: &Program, size: usize, at: usize, values: &[(usize, u32)]) -> Vec<u8> {
    let mut b = words(size, values);
    b[at..at + 16].copy_from_slice(&gpu_uuid(p));
    b
}

fn uvm_files() {
    let p = program();
    let register = |file: &File| uvm_ask(file, 37, &mut with_uuid(&p, 40, 0, &[]), 36);
    let initialise =
        |file: &File, flags| uvm_ask(file, 0x3000_0001, &mut words(16, &[(0, flags)]), 8);
    let mm = |own: &File, fd: i32| uvm_ask(own, 75, &mut words(8, &[(0, fd as u32)]), 4);
    let file = uvm();
    say("UVM: a GPU before anything", register(&file));
    say(
        "UVM: a mapping before anything",
        mmap(&file, BASE, 0x1000, 3, BASE).map(|_| 0),
    );
    say(
        "UVM: an unknown request",
        request(&file, 0x4711, &mut [0; 64]).map(|()| 0),
    );
    say("UVM: unknown flags", initialise(&file, 0x80));
    say("UVM: initialised", initialise(&file, 0));
    say("UVM: initialised again", initialise(&file, 0));
    say("UVM: initialised with other flags", initialise(&file, 2));
    let own = uvm();
    say("UVM: the process of a control file", mm(&own, p.ctl.0));
    say(
        "UVM: the process of a file that is not initialised",
        mm(&own, own.0),
    );
    let shared = uvm();
    say("UVM: sharing mode", initialise(&shared, 2));
    say(
        "UVM: the process of a file in sharing mode",
        mm(&uvm(), shared.0),
    );
    say("UVM: a GPU", register(&file));
    say("UVM: a GPU again", register(&file));
    let mut unknown = words(40, &[(0, 0x1234)]);
    say("UVM: an unknown GPU", uvm_ask(&file, 37, &mut unknown, 36));
    say(
        "UVM: an address space to be",
        made(&p, DEVICE, 8, VASPACE, &mut uvm_space()),
    );
    let space = |handle| {
        uvm_ask(
            &file,
            25,
            &mut with_uuid(&p, 32, 0, &[(20, p.client), (24, handle)]),
            28,
        )
    };
    say("UVM: an address space that is not there", space(9));
    say("UVM: an address space before its process", space(8));
    say("UVM: the process", mm(&own, file.0));
    say("UVM: an address space", space(8));
    say("UVM: an address space again", space(8));
    let gone = |request| uvm_ask(&file, request, &mut with_uuid(&p, 20, 0, &[]), 16);
    say("UVM: the address space given up", gone(26));
    say("UVM: the address space given up again", gone(26));
    say("UVM: the GPU given up", gone(38));
    say("UVM: the GPU given up again", gone(38));
}

const BASE: u64 = 0x20_0000_0000;
const MIB: u64 = 1 << 20;

fn ranges() {
    let p = program();
    let (file, own) = (uvm(), uvm());
    say(
        "ranges: a file",
        uvm_ask(&file, 0x3000_0001, &mut [0; 16], 8),
    );
    say(
        "ranges: its process",
        uvm_ask(&own, 75, &mut words(8, &[(0, file.0 as u32)]), 4),
    );
    say(
        "ranges: a GPU",
        uvm_ask(&file, 37, &mut with_uuid(&p, 40, 0, &[]), 36),
    );
    say(
        "ranges: an address space",
        made(&p, DEVICE, 8, VASPACE, &mut uvm_space()),
    );
    say(
        "ranges: an address space of RM's",
        made(&p, DEVICE, 9, VASPACE, &mut [0; 56]),
    );
    let mut space = with_uuid(&p, 32, 0, &[(20, p.client), (24, 9)]);
    say(
        "ranges: that is not UVM's",
        uvm_ask(&file, 25, &mut space, 28),
    );
    let mut space = with_uuid(&p, 32, 0, &[(20, p.client), (24, 8)]);
    say("ranges: it is UVM's", uvm_ask(&file, 25, &mut space, 28));
    let span = |request, base, length| uvm_ask(&file, request, &mut pair(24, base, length), 16);
    let create = |base, length| span(73, base, length);
    say("a range", create(BASE, 4 * MIB));
    say("a range that overlaps", create(BASE + 2 * MIB, 4 * MIB));
    say("a range not at a page", create(BASE + 0x10_0001, 4096));
    say("a range without a length", create(BASE + 8 * MIB, 0));
    say("a range at 0", create(0, 4096));
    say(
        "a mapping where a range is",
        mmap(&file, BASE, 0x1000, 3, BASE).map(|_| 0),
    );
    let external = |base, length, memory| {
        let mut b = with_uuid(&p, 9264, 24, &[(9252, p.client), (9256, memory)]);
        set64(&mut b, 0, base);
        set64(&mut b, 8, length);
        set64(&mut b, 9240, 1);
        uvm_ask(&file, 33, &mut b, 9260)
    };
    say("memory for a range", Ok(p.video(7, 2 * MIB).0));
    say("memory in a range", external(BASE, 2 * MIB, 7));
    say("memory in its place", external(BASE, 2 * MIB, 7));
    say(
        "memory beyond a range",
        external(BASE + 2 * MIB, 4 * MIB, 7),
    );
    say(
        "more than there is of the memory",
        external(BASE, 4 * MIB, 7),
    );
    say("no memory in a range", external(BASE, 2 * MIB, 0x4242));
    let mut half = with_uuid(&p, 40, 16, &[]);
    set64(&mut half, 0, BASE);
    set64(&mut half, 8, 2 * MIB);
    say(
        "its mapping ended",
        uvm_ask(&file, 66, &mut half.clone(), 32),
    );
    say("its mapping ended again", uvm_ask(&file, 66, &mut half, 32));
    say("a part of a range freed", span(34, BASE, 2 * MIB));
    say("what is a range", span(72, BASE, 4 * MIB));
    say("what is a part of a range", span(72, BASE, 2 * MIB));
    say("a range freed", span(34, BASE, 4 * MIB));
    say("a range freed again", span(34, BASE, 4 * MIB));
    let pool = |base, length| uvm_ask(&file, 68, &mut pair(9248, base, length), 9240);
    say("a pool", pool(BASE, 2 * MIB));
    say("a pool in its place", pool(BASE, 2 * MIB));
    say("a pool of a part of a page", pool(BASE + 8 * MIB, 100));
    let mapped = mmap(&file, BASE, 2 * MIB, 3, BASE);
    say("a pool mapped", mapped.map(|_| 0));
    say("a mapped pool freed", span(34, BASE, 2 * MIB));
    munmap(BASE, 2 * MIB);
    say("a pool freed", span(34, BASE, 2 * MIB));
    let region = |base, length| {
        let mut b = with_uuid(&p, 40, 16, &[]);
        set64(&mut b, 0, base);
        set64(&mut b, 8, length);
        uvm_ask(&file, 65, &mut b, 32)
    };
    say("a region", region(BASE, 4096));
    say("a region in its place", region(BASE, 4096));
    say("a region of two pages", region(BASE + 8 * MIB, 8192));
    say("a part of a region freed", span(34, BASE, 2048));
    say("a region freed", span(34, BASE, 4096));
    say(
        "managed memory at another offset",
        mmap(&file, BASE, 2 * MIB, 3, 0).map(|_| 0),
    );
    say(
        "managed memory to read",
        mmap(&file, BASE, 2 * MIB, 1, BASE).map(|_| 0),
    );
    say(
        "managed memory",
        mmap(&file, BASE, 4 * MIB, 3, BASE).map(|_| 0),
    );
    say("it is a range", span(72, BASE, 4 * MIB));
    say("it is freed as a range", span(34, BASE, 4 * MIB));
    munmap(BASE, 2 * MIB);
    say("half of it is left", span(72, BASE + 2 * MIB, 2 * MIB));
    munmap(BASE + 2 * MIB, 2 * MIB);
    say("nothing of it is left", span(72, BASE + 2 * MIB, 2 * MIB));
}

/// A client with a device and a subdevice on minor 0.
fn program() -> Program {
    let (ctl, gpu) = (ctl(), gpu(0));
    let client = client(&ctl);
    let mut p = words(56, &[(0, device_instance(&ctl, client))]);
    let program = Program { ctl, gpu, client };
    program.make(client, DEVICE, number::DEVICE, &mut p);
    program.make(DEVICE, SUBDEVICE, number::SUBDEVICE, &mut [0; 4]);
    program
}

/// The device instance of minor 0 (NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2), which is open.
fn device_instance(ctl: &File, client: u32) -> u32 {
    let mut cards = vec![0; 72 * 32];
    assert_eq!(escape(ctl, CARD_INFO, &mut cards), Ok(()));
    let is_first = |card: &&[u8]| card[0] == 1 && get32(card, 56) == 0;
    let card = cards.chunks(72).find(is_first).expect("minor 0 is there");
    let mut p = words(32, &[(0, get32(card, 16))]);
    assert_eq!(control(ctl, client, client, 0x205, &mut p), status::OK);
    get32(&p, 8)
}

/// Bytes of the parameters of FB_GET_INFO_V2, the one structure here whose length has changed.
fn list_size() -> usize {
    let version = fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    if version.contains(" 550.") {
        444
    } else {
        1028
    }
}

/// The UUID of minor 0, as the driver's file has it.
fn gpu_uuid(_: &Program) -> Vec<u8> {
    let folders = fs::read_dir("/proc/driver/nvidia/gpus").expect("the driver is loaded");
    let first = folders.flatten().find_map(|folder| {
        let text = fs::read_to_string(folder.path().join("information")).ok()?;
        let value = |key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        (value("Device Minor")? == "0").then(|| value("GPU UUID"))?
    });
    let digits: Vec<char> = first.expect("minor 0 has a UUID").chars().collect();
    let digits: String = digits[4..].iter().filter(|c| **c != '-').collect();
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
    (0..16).map(|number| byte(2 * number)).collect()
}
