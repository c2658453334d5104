// SPDX-License-Identifier: GPL-2.0
//! How the accounting's work grows: nanoseconds for each object, client, mapping or process, with a
//! thousand, ten thousand and a hundred thousand of them, and how much that is more than with a
//! thousand.
//!
//! `make bench-scale` prints a JSON line for each kind of event and number. What is constant or
//! proportional stays near 1, what is logarithmic grows by about 1.3 with each factor of ten (and
//! all of it by what the processor's caches do no longer hold). The tests (`policy/tests/scale.rs`)
//! count steps instead of time.

use cgpu_km::{
    nvidia::{
        class::Kind,
        handle::{
            ClassId,
            ClientHandle,
            ObjectHandle, //
        },
        memory::PageSize, //
    },
    policy::{
        Accounting,
        Alloc,
        AllocDone,
        FileId,
        GpuId,
        Map,
        ProcessId,
        Span, //
    }, //
};
use std::{
    hint::black_box,
    time::Instant, //
};

const GPU: GpuId = GpuId(0);
const FILE: FileId = FileId(1);
const UVM: FileId = FileId(2);
const CLIENT: ClientHandle = ClientHandle(0xc1d0_0001);
const DEVICE: ObjectHandle = ObjectHandle(0x5c00_0002);
const FIRST: u32 = 0x6000_0000;
const PAGE: u64 = 2 << 20;
/// Instances of a GPU, at most.
const INSTANCES: u32 = 64;

fn request(client: ClientHandle, parent: ObjectHandle, object: u32) -> Alloc {
    let (process, object) = (ProcessId(1000), ObjectHandle(object));
    let class = (ClassId(0x40), Kind::VideoMemory);
    Alloc {
        bytes: PAGE,
        page: PageSize::Huge,
        ..Alloc::of(FILE, process, (client, parent), object, class)
    }
}

fn alloc(accounting: &mut Accounting, request: &Alloc) {
    let ticket = accounting.begin_alloc(request).expect("room");
    let object = match ticket.handle().0 {
        // A client for which the driver chooses.
        0 => ObjectHandle(request.client.0),
        handle => ObjectHandle(handle),
    };
    let bytes = request.bytes;
    accounting.end_alloc(ticket, Some(AllocDone { object, bytes }));
}

/// A client of a process on a file of its own, with a device.
fn client(accounting: &mut Accounting, client: ClientHandle, file: FileId, process: i32) {
    let root = Alloc {
        file,
        process: ProcessId(process),
        class: ClassId(0x41),
        kind: Kind::Root,
        bytes: 0,
        ..request(client, ObjectHandle(0), 0)
    };
    alloc(accounting, &root);
    let device = Alloc {
        class: ClassId(0x80),
        kind: Kind::Device,
        device_instance: Some(GPU.0),
        bytes: 0,
        ..request(client, ObjectHandle(client.0), DEVICE.0)
    };
    alloc(accounting, &device);
}

fn accounting() -> Accounting {
    let mut accounting = Accounting::new(7);
    accounting.add_share(GPU, u64::MAX).expect("memory");
    accounting
}

/// Nanoseconds that `work` takes for each of `count`.
fn each(count: u32, work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

/// The time that each kind of event takes with so many objects of one client.
fn objects(count: u32) -> Vec<(&'static str, f64)> {
    let mut accounting = accounting();
    client(&mut accounting, CLIENT, FILE, 1000);
    let handles = FIRST..FIRST + count;
    let made = each(count, || {
        for handle in handles.clone() {
            alloc(&mut accounting, &request(CLIENT, DEVICE, handle));
        }
    });
    // Not in the order in which they were made.
    let stride = |number: u32| {
        FIRST + u32::try_from(u64::from(number) * 7919 % u64::from(count)).expect("less")
    };
    let found = each(count, || {
        for number in 0..count {
            black_box(accounting.gpu_of(CLIENT, ObjectHandle(stride(number))));
        }
    });
    let copied = each(1000, || {
        for number in 0..1000 {
            let source = ObjectHandle(stride(number));
            let object = ObjectHandle(0x7000_0000 + number);
            let ticket = accounting.begin_dup(CLIENT, DEVICE, object, CLIENT, source);
            accounting.end_dup(ticket.expect("room"), Some(object));
        }
    });
    let freed = each(1000, || {
        for number in 0..1000 {
            accounting.free(CLIENT, ObjectHandle(0x7000_0000 + number));
        }
    });
    let parent = each(count, || accounting.free(CLIENT, DEVICE));
    assert_eq!(accounting.share(GPU).expect("a share").used, 0);
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
    vec![
        ("object made", made),
        ("object found", found),
        ("object duplicated", copied),
        ("object freed", freed),
        ("object freed with its parent", parent),
    ]
}

/// The same with so many mappings of one UVM file.
fn mappings(count: u32) -> Vec<(&'static str, f64)> {
    let mut accounting = accounting();
    client(&mut accounting, CLIENT, FILE, 1000);
    alloc(&mut accounting, &request(CLIENT, DEVICE, FIRST));
    let map = |number: u32| Map {
        file: UVM,
        gpu: GPU,
        uuid: [1; 16],
        client: CLIENT,
        memory: ObjectHandle(FIRST),
        base: u64::from(number) * PAGE,
        length: PAGE,
        offset: 0,
    };
    let made = each(count, || {
        for number in 0..count {
            let ticket = accounting.begin_map(&map(number)).expect("room");
            accounting.end_map(ticket, true);
        }
    });
    let now = accounting.moment();
    let span = |number: u32| Span {
        file: UVM,
        gpu: Some(GPU),
        base: u64::from(number) * PAGE,
        last: u64::from(number) * PAGE + PAGE - 1,
    };
    let gone = each(count / 2, || {
        for number in 0..count / 2 {
            let mapped = accounting.mapped(span(2 * number), now).expect("mapped");
            accounting.unmapped(mapped);
        }
    });
    let closed = each(count - count / 2, || accounting.close_file(UVM));
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
    vec![
        ("mapping made", made),
        ("mapping unmapped", gone),
        ("mapping gone with its file", closed),
    ]
}

/// The same with so many processes, each with a file, a client, a device and memory.
fn processes(count: u32) -> Vec<(&'static str, f64)> {
    let mut accounting = accounting();
    let name = |number: u32| ClientHandle(CLIENT.0 + number);
    let file = |number: u32| FileId(u64::from(number) + 10);
    let came = each(count, || {
        for number in 0..count {
            let process = i32::try_from(number).expect("few");
            client(&mut accounting, name(number), file(number), process);
            let memory = Alloc {
                file: file(number),
                ..request(name(number), DEVICE, FIRST)
            };
            alloc(&mut accounting, &memory);
        }
    });
    let told = each(count, || {
        accounting.processes(GPU, |process, bytes| {
            black_box((process, bytes));
        })
    });
    let went = each(count, || {
        for number in 0..count {
            accounting.close_file(file(number));
        }
    });
    assert!(accounting.is_idle());
    vec![
        ("process came", came),
        ("process told in a list", told),
        ("process went", went),
    ]
}

/// The same of all instances of a GPU together, a tenant's accounting each.
fn instances(count: u32) -> Vec<(&'static str, f64)> {
    let mut all: Vec<Accounting> = (0..INSTANCES).map(|_| accounting()).collect();
    for accounting in &mut all {
        client(accounting, CLIENT, FILE, 1000);
    }
    let made = each(count, || {
        for number in 0..count {
            let at = usize::try_from(number % INSTANCES).expect("few");
            alloc(&mut all[at], &request(CLIENT, DEVICE, FIRST + number));
        }
    });
    let freed = each(count, || {
        for accounting in &mut all {
            accounting.close_file(FILE);
        }
    });
    vec![
        ("object made, in 64 instances", made),
        ("object freed with its file, in 64 instances", freed),
    ]
}

fn main() {
    // The first run of anything is slow.
    black_box(objects(1000));
    for kind in [objects, mappings, processes, instances] {
        let mut first: Vec<f64> = Vec::new();
        for count in [1_000, 10_000, 100_000] {
            // The least of a few runs: what else the machine does only adds.
            let mut least = kind(count);
            for _ in 0..if count < 100_000 { 8 } else { 2 } {
                for (id, (_, time)) in least.iter_mut().zip(kind(count)) {
                    id.1 = id.1.min(time);
                }
            }
            if first.is_empty() {
                first = least.iter().map(|(_, time)| *time).collect();
            }
            for ((event, time), first) in least.iter().zip(&first) {
                let ratio = time / first;
                println!("{{\"event\":\"{event}\",\"count\":{count},\"ns\":{time:.0},\"ratio\":{ratio:.2}}}");
            }
        }
    }
}
