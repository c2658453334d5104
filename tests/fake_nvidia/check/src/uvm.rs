// SPDX-License-Identifier: GPL-2.0
//! UVM: initialising, registering, ranges, managed memory.

use crate::calls::*;

const BASE: u64 = 0x20_0000_0000;
const MIB: u64 = 1 << 20;

/// The tests of this file.
pub(crate) const TESTS: &[Test] = &[
    ("UVM_REGISTER_GPU wants an open file of the GPU", register),
    ("an address space is asked for its process", processes),
    ("a mapped object stays until unmapped or freed", keeps),
    (
        "accesses and migration take memory, unmapping returns it",
        migration,
    ),
    (
        "only migration or read duplication overrides preferred location",
        residency,
    ),
    ("managed memory makes room on a full GPU", eviction),
    (
        "managed memory in shared spaces outlives its process",
        zombies,
    ),
];

fn call(file: &File, cmd: u64, argument: &mut [u8], status_at: usize) -> u32 {
    match request(file, cmd, argument) {
        Ok(()) => get32(argument, status_at),
        Err(e) => panic!("UVM request {cmd}: errno {e}"),
    }
}

fn initialised(flags: u32) -> File {
    let file = uvm();
    assert_eq!(
        call(&file, 0x3000_0001, &mut words(16, &[(0, flags)]), 8),
        status::OK
    );
    file
}

fn with_uuid(size: usize, at: usize, values: &[(usize, u32)]) -> Vec<u8> {
    let mut b = words(size, values);
    b[at..at + 16].copy_from_slice(&uuid(0));
    b
}

fn register_gpu(file: &File) -> u32 {
    call(file, 37, &mut with_uuid(40, 0, &[]), 36)
}

/// Two 64-bit words and room behind.
fn pair(size: usize, a: u64, b: u64) -> Vec<u8> {
    let mut v = vec![0; size];
    set64(&mut v, 0, a);
    set64(&mut v, 8, b);
    v
}

/// A request about a range of addresses.
fn span(file: &File, request: u64, base: u64, length: u64) -> u32 {
    call(file, request, &mut pair(24, base, length), 16)
}

/// A program with an address space (handle 8).
fn with_space() -> Program {
    let p = Program::new();
    p.make(DEVICE, 8, number::VASPACE, &mut uvm_space());
    p
}

fn register_space(file: &File, p: &Program) -> u32 {
    let mut b = with_uuid(32, 0, &[(20, p.client), (24, 8)]);
    call(file, 25, &mut b, 28)
}

/// A program with an address space that UVM knows; the last is the file of `UVM_MM_INITIALIZE`,
/// which lives as long.
fn registered() -> (Program, File, File) {
    let p = with_space();
    let (file, own) = (initialised(0), uvm());
    assert_eq!(mm_initialize(&own, file.0), status::OK);
    assert_eq!(register_gpu(&file), status::OK);
    assert_eq!(register_space(&file, &p), status::OK);
    (p, file, own)
}

fn mm_initialize(own: &File, fd: i32) -> u32 {
    call(own, 75, &mut words(8, &[(0, fd as u32)]), 4)
}

fn map_external(file: &File, base: u64, length: u64, client: u32, memory: u32) -> u32 {
    let mut b = with_uuid(9264, 24, &[(9252, client), (9256, memory)]);
    set64(&mut b, 0, base);
    set64(&mut b, 8, length);
    set64(&mut b, 9240, 1);
    call(file, 33, &mut b, 9260)
}

fn register() {
    let file = initialised(0);
    assert_eq!(register_gpu(&file), status::PERMISSIONS);
    let _gpu = gpu(0);
    assert_eq!(register_gpu(&file), status::OK);
}

fn processes() {
    let (p, file, _mm) = registered();
    assert_eq!(p.video(7, 2 * MIB).0, status::OK);
    assert_eq!(span(&file, 73, BASE, 2 * MIB), status::OK);
    // The child has every descriptor, and is another process.
    let child = in_child(|| map_external(&file, BASE, 2 * MIB, p.client, 7) as u8);
    assert_eq!(u32::from(child), status::PERMISSIONS);
    assert_eq!(map_external(&file, BASE, 2 * MIB, p.client, 7), status::OK);
}

fn keeps() {
    let (p, file, _mm) = registered();
    let used = || figure("heap", "gpu0_used_bytes");
    for handle in [7, 9] {
        assert_eq!(p.video(handle, 2 * MIB).0, status::OK);
    }
    assert_eq!(span(&file, 73, BASE, 4 * MIB), status::OK);
    assert_eq!(map_external(&file, BASE, 2 * MIB, p.client, 7), status::OK);
    assert_eq!(
        map_external(&file, BASE + 2 * MIB, 2 * MIB, p.client, 9),
        status::OK
    );
    assert_eq!((p.free(7), p.free(9)), (0, 0));
    assert_eq!(used(), 4 * MIB);
    let mut half = pair(40, BASE, 2 * MIB);
    half[16..32].copy_from_slice(&uuid(0));
    assert_eq!(call(&file, 66, &mut half, 32), status::OK);
    assert_eq!(used(), 2 * MIB);
    assert_eq!(span(&file, 34, BASE, 4 * MIB), status::OK);
    assert_eq!(used(), 0);
}

/// Does what this process's GPU work would do.
fn touch(base: u64, length: u64) {
    let path = "/sys/kernel/debug/fake_nvidia/gpu_touch";
    std::fs::write(path, format!("0 {base:#x} {length:#x}")).unwrap_or_else(|e| panic!("{e}"));
}

/// Managed memory that a GPU has room for, and of it what has data there.
fn on_gpu() -> (u64, u64) {
    let held = figure("heap", "gpu0_managed_bytes");
    (held, figure("heap", "gpu0_managed_resident_bytes"))
}

const CPU: [u8; 16] = [
    0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
];

/// A request about a span with a processor in it; its status.
fn with_processor(file: &File, request: u64, length: u64, uuid: &[u8]) -> u32 {
    let (size, status_at) = if request == 51 { (80, 72) } else { (40, 36) };
    let mut b = pair(size, BASE, length);
    b[16..32].copy_from_slice(uuid);
    b[32..36].copy_from_slice(&(if request == 51 { 0 } else { u32::MAX }).to_le_bytes());
    if request == 51 {
        b[52..56].copy_from_slice(&u32::MAX.to_le_bytes());
    }
    call(file, request, &mut b, status_at)
}

fn migration() {
    let (_p, file, _mm) = registered();
    let at = mmap(&file, BASE, 8 * MIB, 3, BASE).unwrap_or_else(|e| panic!("errno {e}"));
    touch(BASE, MIB);
    assert_eq!(on_gpu(), (2 * MIB, 2 * MIB));
    assert_eq!(with_processor(&file, 51, 8 * MIB, &uuid(0)), status::OK);
    assert_eq!(on_gpu(), (8 * MIB, 8 * MIB));
    // Back to the host: the room stays.
    assert_eq!(with_processor(&file, 51, 8 * MIB, &CPU), status::OK);
    assert_eq!(on_gpu(), (8 * MIB, 0));
    munmap(at, 8 * MIB);
    assert_eq!(on_gpu(), (0, 0));
}

fn residency() {
    let (_p, file, _mm) = registered();
    let at = mmap(&file, BASE, 8 * MIB, 3, BASE).unwrap_or_else(|e| panic!("errno {e}"));
    let span = |request, length| span(&file, request, BASE, length);
    // Memory that is preferred on the host comes to the GPU neither by a touch ...
    assert_eq!(with_processor(&file, 42, 4 * MIB, &CPU), status::OK);
    assert_eq!(span(72, 8 * MIB), 0x1E, "the range was cut");
    touch(BASE, 8 * MIB);
    assert_eq!(on_gpu(), (4 * MIB, 4 * MIB));
    // ... but by a migration,
    assert_eq!(with_processor(&file, 51, 2 * MIB, &uuid(0)), status::OK);
    assert_eq!(on_gpu(), (6 * MIB, 6 * MIB));
    // and by a touch with read duplication.
    assert_eq!(span(44, 4 * MIB), status::OK);
    touch(BASE, 4 * MIB);
    assert_eq!(on_gpu(), (8 * MIB, 8 * MIB));
    assert_eq!(span(45, 4 * MIB), status::OK);
    assert_eq!(on_gpu(), (8 * MIB, 6 * MIB), "one copy is left");
    // Memory on the GPU stays there until it is moved.
    assert_eq!(with_processor(&file, 51, 4 * MIB, &CPU), status::OK);
    assert_eq!(on_gpu(), (8 * MIB, 4 * MIB));
    touch(BASE, 8 * MIB);
    assert_eq!(on_gpu(), (8 * MIB, 4 * MIB));
    // The GPU has mapped what it uses in host memory, and does not fault on again ...
    assert_eq!(span(43, 4 * MIB), status::OK);
    touch(BASE, 8 * MIB);
    assert_eq!(on_gpu(), (8 * MIB, 4 * MIB));
    // ... unless it was made the preferred location.
    assert_eq!(with_processor(&file, 42, 4 * MIB, &uuid(0)), status::OK);
    assert_eq!(span(43, 4 * MIB), status::OK);
    touch(BASE, 8 * MIB);
    assert_eq!(on_gpu(), (8 * MIB, 8 * MIB));
    munmap(at, 8 * MIB);
}

fn eviction() {
    const MEMORY: u32 = 0x5C00_0300;
    let (p, file, _mm) = registered();
    let heap = |what: &str| figure("heap", &format!("gpu0_{what}_bytes"));
    let at = mmap(&file, BASE, 8 * MIB, 3, BASE).unwrap_or_else(|e| panic!("errno {e}"));
    touch(BASE, 8 * MIB);
    let other = heap("free") - 2 * MIB;
    let path = "/sys/kernel/debug/fake_nvidia/heap";
    let hold = |bytes: u64| std::fs::write(path, format!("0 {bytes}"));
    hold(other).unwrap_or_else(|e| panic!("{e}"));
    let evicted = heap("managed_evicted");
    let (got, _) = p.video(MEMORY, 6 * MIB);
    let (held, moved) = (on_gpu(), heap("managed_evicted") - evicted);
    hold(0).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(got, status::OK, "a memory object gets the room");
    assert_eq!((held, moved), ((4 * MIB, 4 * MIB), 4 * MIB));
    munmap(at, 8 * MIB);
}

fn zombies() {
    let p = with_space();
    let file = initialised(2);
    assert_eq!(register_gpu(&file), status::OK);
    assert_eq!(
        register_space(&file, &p),
        status::OK,
        "without MM_INITIALIZE"
    );
    let ended = in_child(|| {
        let mapped = mmap(&file, BASE, 4 * MIB, 3, BASE);
        let moved = with_processor(&file, 51, 4 * MIB, &uuid(0));
        u8::from(mapped.is_err() || moved != status::OK)
    });
    assert_eq!(ended, 0, "the child");
    assert_eq!(on_gpu(), (4 * MIB, 4 * MIB), "until the file is closed");
    assert_eq!(
        mmap(&file, BASE, 4 * MIB, 3, BASE),
        Err(libc::EADDRINUSE),
        "its addresses are taken"
    );
    drop(file);
    assert_eq!(on_gpu(), (0, 0));
}
