// SPDX-License-Identifier: GPL-2.0
//! Files: numbers of GPUs, failing opens, what mappings show and keep.

use std::os::unix::fs::FileExt;

use crate::calls::*;

/// The tests of this file.
pub(crate) const TESTS: &[Test] = &[
    ("the card list tells minor and instance apart", cards),
    ("a GPU's file keeps its control file open", registered),
    ("every n-th open can be made to fail", failing_opens),
    (
        "the doorbell outlives its descriptor and survives fork",
        doorbell,
    ),
    ("access goes behind the page tables", accessed),
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
}

fn registered() {
    let (c, g) = (ctl(), gpu(0));
    let mut control = words(4, &[(0, c.0 as u32)]);
    assert_eq!(escape(&g, number::REGISTER_FD, &mut control), Ok(()));
    let (cl, fd) = (client(&c), g.0 as u32);
    drop(c);
    let mut event = words(16, &[(0, cl), (8, fd)]);
    assert_eq!(escape(&g, number::OS_EVENT, &mut event), Ok(()));
    let mut p = words(24, &[(0, cl), (8, number::EVENT), (16, fd)]);
    assert_eq!(alloc(&g, cl, cl, 7, number::EVENT, &mut p).0, status::OK);
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
