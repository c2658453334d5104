// SPDX-License-Identifier: GPL-2.0
//! Files, escapes and their sizes, mapping contexts.

use std::os::unix::fs::FileExt;

use crate::calls::*;

/// The tests of this file.
pub(crate) const TESTS: &[Test] = &[
    ("the card list tells minor and instance apart", cards),
    (
        "a descriptor is accepted for its device number",
        descriptors,
    ),
    ("every n-th open can be made to fail", failing_opens),
    ("a file has one mapping context for ever", one_context),
    (
        "the doorbell outlives its descriptor and survives fork",
        doorbell,
    ),
    ("a revoked mapping comes back by a fault", revoked),
    ("access goes behind the page tables", accessed),
    ("an event wakes poll once", polled),
    (
        "system memory maps on control files, in pieces",
        system_memory,
    ),
];

fn cards() {
    let mut a = vec![0; 72 * 32];
    assert_eq!(escape(&ctl(), number::CARD_INFO, &mut a), Ok(()));
    let gpus = a.chunks(72).filter(|c| c[0] == 1).count();
    assert_eq!(gpus, 2, "this test wants two GPUs");
    for (minor, card) in a.chunks(72).take(gpus).enumerate() {
        let minor = minor as u32;
        assert_eq!(get32(card, 56), minor);
        assert_eq!(
            u64::from(get32(card, 16)),
            figure("gpus", &format!("gpu{minor}_gpu_id"))
        );
        assert_ne!(instance(minor), minor);
    }
    assert_eq!(
        escape(&ctl(), number::CARD_INFO, &mut [0; 72]),
        Err(libc::EINVAL),
        "room for one"
    );
}

fn descriptors() {
    let (c, g, other) = (ctl(), gpu(0), ctl());
    let register =
        |on: &File, fd: i32| escape(on, number::REGISTER_FD, &mut words(4, &[(0, fd as u32)]));
    assert_eq!(register(&g, g.0), Err(libc::EINVAL), "not a control file");
    assert_eq!(
        register(&g, 0),
        Err(libc::EINVAL),
        "not a file of the driver"
    );
    assert_eq!(register(&g, c.0), Ok(()));
    assert_eq!(
        register(&g, other.0),
        Err(libc::EINVAL),
        "registered already"
    );
    // The GPU's file counts as that control file: it may use its clients, and keeps it open.
    let cl = client(&c);
    let fd = g.0;
    drop(c);
    let mut event = words(16, &[(0, cl), (8, fd as u32)]);
    assert_eq!(escape(&g, number::OS_EVENT, &mut event), Ok(()));
    let mut p = words(24, &[(0, cl), (8, number::EVENT), (16, fd as u32)]);
    assert_eq!(alloc(&g, cl, cl, 7, number::EVENT, &mut p).0, status::OK);
    let mut p = words(24, &[(0, cl), (8, number::EVENT), (16, 99)]);
    assert_eq!(alloc(&g, cl, cl, 8, number::EVENT, &mut p).0, status::EVENT);
}

fn failing_opens() {
    let set = |n: &str| std::fs::write("/sys/module/fake_nvidia/parameters/fail_open", n);
    let failed = figure("opens", "ctl_failed");
    set("1").unwrap_or_else(|e| panic!("{e}"));
    let results = [
        open("/dev/nvidiactl").is_err(),
        open("/dev/nvidia0").is_err(),
        open("/dev/nvidia-uvm").is_err(),
    ];
    set("0").unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(results, [true; 3]);
    assert_eq!(figure("opens", "ctl_failed"), failed + 1);
}

/// A program with a doorbell object.
fn with_doorbell() -> Program {
    let p = Program::new();
    p.make(SUBDEVICE, 5, number::USERMODE, &mut []);
    p
}

/// Maps its doorbell, readable and writable; the address.
fn map_doorbell(p: &Program, file: &File) -> u64 {
    let mapped = map(&p.ctl, p.client, SUBDEVICE, 5, 0x10000, file.0);
    assert_eq!(mapped.0, status::OK);
    mmap(file, 0, 0x10000, libc::PROT_READ | libc::PROT_WRITE, 0)
        .unwrap_or_else(|e| panic!("errno {e}"))
}

fn one_context() {
    let p = with_doorbell();
    let file = gpu(0);
    assert_eq!(p.map(SUBDEVICE, 5, 0x10000, &file), status::OK);
    assert_eq!(p.map(SUBDEVICE, 5, 0x10000, &file), status::STATE_IN_USE);
    assert_eq!(p.free(5), status::OK);
    let at = mmap(&file, 0, 0x10000, libc::PROT_WRITE, 0).unwrap_or_else(|e| panic!("errno {e}"));
    munmap(at, 0x10000);
}

fn doorbell() {
    let p = with_doorbell();
    let before = figure("refs", "files");
    let file = gpu(0);
    let at = map_doorbell(&p, &file);
    drop(file);
    assert_eq!(
        figure("refs", "files"),
        before + 1,
        "the mapping keeps the file"
    );
    let bell = (at + 0x90) as *mut u32;
    // SAFETY: inside the mapping.
    unsafe { bell.write_volatile(0x1234) };
    let seen = in_child(|| {
        // SAFETY: the mapping was copied; the child writes and reads the same page.
        unsafe {
            let old = bell.read_volatile();
            bell.write_volatile(0x5678);
            u8::from(old == 0x1234)
        }
    });
    // SAFETY: inside the mapping.
    let now = unsafe { bell.read_volatile() };
    munmap(at, 0x10000);
    assert_eq!((seen, now), (1, 0x5678));
    assert_eq!(figure("refs", "files"), before);
}

fn accessed() {
    let p = with_doorbell();
    let file = gpu(0);
    let at = map_doorbell(&p, &file);
    let memory = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/proc/self/mem")
        .expect("/proc/self/mem");
    memory.write_all_at(&[9], at + 0x90).expect("write");
    let mut seen = [0];
    memory.read_exact_at(&mut seen, at + 0x90).expect("read");
    munmap(at, 0x10000);
    assert_eq!(seen, [9]);
}

fn revoked() {
    let p = with_doorbell();
    let file = gpu(0);
    let at = map_doorbell(&p, &file);
    let bell = (at + 0x94) as *mut u32;
    // SAFETY: inside the mapping.
    unsafe { bell.write_volatile(7) };
    let before = figure("refs", "faults");
    std::fs::write("/sys/kernel/debug/fake_nvidia/revoke", "0").unwrap_or_else(|e| panic!("{e}"));
    // SAFETY: inside the mapping, which the fault handler fills again.
    let back = unsafe { bell.read_volatile() };
    let after = figure("refs", "faults");
    munmap(at, 0x10000);
    assert_eq!((back, after), (7, before + 1));
}

fn polled() {
    let (c, g) = (ctl(), gpu(0));
    let cl = client(&c);
    let mut event = words(16, &[(0, cl), (8, g.0 as u32)]);
    assert_eq!(escape(&g, number::OS_EVENT, &mut event), Ok(()));
    let poll = || {
        let mut p = libc::pollfd {
            fd: g.0,
            events: libc::POLLIN | libc::POLLPRI,
            revents: 0,
        };
        // SAFETY: one valid structure.
        unsafe { libc::poll(&mut p, 1, 0) };
        p.revents
    };
    assert_eq!(poll(), 0);
    std::fs::write(
        "/sys/kernel/debug/fake_nvidia/signal",
        format!("{cl:#x} {}", g.0),
    )
    .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((poll(), poll()), (libc::POLLIN | libc::POLLPRI, 0));
}

fn system_memory() {
    let p = Program::new();
    let mut params = memory(p.client, 0x5A00_0000, 0x5001);
    p.make(DEVICE, 6, number::SYSTEM, &mut params);
    assert_eq!(get64(&params, 64), 0x6000, "rounded to pages");
    let file = ctl();
    assert_eq!(
        p.map(DEVICE, 6, 0x6000, &gpu(0)),
        status::ARGUMENT,
        "not a control file"
    );
    assert_eq!(p.map(DEVICE, 6, 0x6000, &file), status::OK);
    let read = libc::PROT_READ | libc::PROT_WRITE;
    assert_eq!(
        mmap(&file, 0, 0x7000, read, 0),
        Err(libc::ERANGE),
        "more than there is"
    );
    let at = mmap(&file, 0, 0x2000, read, 0).unwrap_or_else(|e| panic!("errno {e}"));
    // The memory stays while it is mapped.
    assert_eq!(p.free(6), status::OK);
    // SAFETY: inside the mapping.
    let back = unsafe {
        let word = (at + 0x1FF8) as *mut u64;
        word.write_volatile(7);
        word.read_volatile()
    };
    munmap(at, 0x2000);
    assert_eq!(back, 7);
}
