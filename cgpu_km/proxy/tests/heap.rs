// SPDX-License-Identifier: GPL-2.0
//! The two older calls that allocate and report: the heap control and the old memory call.

use super::*;
use crate::uapi::Limited;

const MEMORY: u32 = 0x5c00_0010;
const NV_ESC_RM_VID_HEAP_CONTROL: u32 = 0xc0b8_464a;
const NV_ESC_RM_ALLOC_MEMORY: u32 = 0xc038_4627;

/// Offsets from nvos.h, as are those below.
fn heap_control(program: &mut Program, function: u32, parent: u32) -> u32 {
    let outer = words(184, &[(0, CLIENT), (4, parent), (8, function)]);
    program.call(&CONTROL, NV_ESC_RM_VID_HEAP_CONTROL, &outer, 20)
}

fn old_call(program: &mut Program, class: u32, flags: u32) -> u32 {
    let mut outer = words(
        56,
        &[
            (0, CLIENT),
            (4, DEVICE),
            (8, MEMORY + 1),
            (12, class),
            (16, flags),
        ],
    );
    put64(&mut outer, 32, 2 * MIB - 1);
    program.call(&GPU_NODE, NV_ESC_RM_ALLOC_MEMORY, &outer, 40)
}

#[test]
fn heap_report_shows_limit_and_rest() {
    // Total, free and largest piece: the driver's figures, and those that the program gets.
    for (real, told) in [
        (
            [100 * GIB, 90 * GIB, 80 * GIB],
            [GIB, GIB - 4 * MIB, GIB - 4 * MIB],
        ),
        ([100 * GIB, 6 * MIB, 2 * MIB], [GIB, 6 * MIB, 2 * MIB]),
    ] {
        let mut program = Program::with_subdevice(GIB);
        assert_eq!(program.memory(MEMORY, 4 * MIB), 0);
        program.driver = Box::new(move |parts| {
            for (at, bytes) in [24, 32, 56].into_iter().zip(real) {
                put64(parts[0].bytes, at, bytes);
            }
            put64(parts[0].bytes, 48, 70 * GIB);
            // Another thread says that it was refused.
            put32(parts[0].bytes, 20, NvStatus::NV_ERR_NO_MEMORY.0);
            0
        });
        heap_control(&mut program, 5, DEVICE);
        let seen = [24, 32, 56].map(|at| get64(program.at(OUTER), at));
        assert_eq!(seen, told);
        // The place of the largest piece would show what neighbours have.
        assert_eq!(get64(program.at(OUTER), 48), 0);
    }
}

#[test]
fn heap_of_a_missing_device_is_refused() {
    let mut program = Program::with_subdevice(GIB);
    let status = heap_control(&mut program, 5, 0x77);
    assert_eq!(status, NvStatus::NV_ERR_OBJECT_NOT_FOUND.0);
    assert!(program.seen.is_empty(), "the driver was asked");
}

#[test]
fn other_functions_of_the_heap_are_refused() {
    let mut program = Program::with_subdevice(GIB);
    // All that nvos.h names but 2, 3 and 5.
    for function in [0, 1, 4, 6, 14, 15, 16, 18, 19, 20, 27] {
        let status = heap_control(&mut program, function, DEVICE);
        assert_eq!(status, NvStatus::NV_ERR_NOT_SUPPORTED.0, "{function}");
    }
    assert!(program.seen.is_empty(), "the driver was asked");
}

#[test]
fn old_allocation_reports_the_limit_as_size() {
    for (real, told) in [(100 * GIB - 1, GIB - 1), (MIB - 1, MIB - 1)] {
        let mut program = Program::with_subdevice(GIB);
        program.driver = Box::new(move |parts| {
            put64(parts[0].bytes, 32, real);
            0
        });
        assert_eq!(old_call(&mut program, 0x40, 0), 0);
        assert_eq!(get64(program.at(OUTER), 32), told);
        assert_eq!(program.used(), 0, "it allocates nothing");
    }
}

fn host_memory(program: &Program) -> u64 {
    let limit = program.accounting.limit_of(GPU, Limited::HostMemory);
    limit.unwrap().used
}

#[test]
fn old_call_makes_known_classes_alone() {
    let mut program = Program::with_subdevice(GIB);
    let file = program.gpu_file(0);
    // NVOS02_FLAGS_COHERENCY_CACHED. The pages that are registered are the program's own, and the
    // driver's lists of them are not.
    for (class, host, left) in [(0x3e, 2 * MIB, 2 * MIB), (0x71, 512 * 96, 0)] {
        assert_eq!(old_call(&mut program, class, 0x1000), 0, "{class:#x}");
        assert_eq!((program.used(), host_memory(&program)), (0, host));
        program.accounting.end_shown(file);
        program.accounting.free(
            crate::nvidia::handle::ClientHandle(CLIENT),
            crate::nvidia::handle::ObjectHandle(MEMORY + 1),
        );
        // Memory that the file may show stays until it is closed.
        assert_eq!(host_memory(&program), left);
        program.accounting.close_file(file);
        assert_eq!(host_memory(&program), 0);
    }
    program.seen.clear();
    // Those that rmapi_deprecated_allocmemory.c knows besides, and two that it does not.
    for class in [0x3f, 0x64, 0x81, 0x82, 0x83, 0xf3, 0x50a0, 0] {
        let status = old_call(&mut program, class, 0);
        assert_eq!(status, NvStatus::NV_ERR_INVALID_CLASS.0, "{class:#x}");
    }
    assert!(program.seen.is_empty(), "the driver was asked");
}

/// Registers so many bytes of the program's memory, from a byte on.
fn register(program: &mut Program, object: u32, (start, bytes): (u64, u64)) -> u32 {
    let fields = [(0, CLIENT), (4, DEVICE), (8, object), (12, 0x71)];
    let mut outer = words(56, &fields);
    put32(&mut outer, 16, 0x4000_1000);
    put64(&mut outer, 24, start);
    put64(&mut outer, 32, bytes.wrapping_sub(1));
    program.call(&GPU_NODE, NV_ESC_RM_ALLOC_MEMORY, &outer, 40)
}

#[test]
fn lists_of_registered_memory_count() {
    let mut program = Program::with_subdevice(GIB);
    let limited = Limited::HostMemory;
    let set = program.accounting.set_limit_of(GPU, limited, Some(GIB));
    assert_eq!(set, Ok(()));
    // The least limit is enough for what programs register.
    assert_eq!(register(&mut program, MEMORY, (0x1000, 40 * GIB)), 0);
    assert_eq!(host_memory(&program), 40 * GIB / 4096 * 96);
    // The same pages once more cost as much, and do not fit.
    program.seen.clear();
    let again = register(&mut program, MEMORY + 1, (0x1000, 40 * GIB));
    assert_eq!(again, NvStatus::NV_ERR_NO_MEMORY.0);
    assert_eq!(register(&mut program, MEMORY + 1, (0, 0)), again);
    assert!(program.seen.is_empty(), "the driver was asked");
    assert_eq!(program.free(MEMORY), 0);
    assert_eq!(host_memory(&program), 0);
    // Two bytes on two pages.
    assert_eq!(register(&mut program, MEMORY, (0xfff, 2)), 0);
    assert_eq!(host_memory(&program), 2 * 96);
}

/// A range of addresses of so many bytes, by the newer call and by the older one: its status.
fn range(program: &mut Program, older: bool, size: u64, flags: u32) -> u32 {
    let flags = 0x8_0000 | flags;
    if older {
        let mut outer = words(184, &[(0, CLIENT), (4, DEVICE), (8, 2), (52, flags)]);
        put64(&mut outer, 88, size);
        let code = NV_ESC_RM_VID_HEAP_CONTROL;
        assert_eq!(program.try_call(&CONTROL, code, &outer), Ok(0));
        return get32(program.at(OUTER), 20);
    }
    let mut params = memory_params(size);
    put32(&mut params, 8, flags);
    put32(&mut params, 24, 0);
    program.alloc(&nvos64(CLIENT, DEVICE, MEMORY, 0x50a0, PARAMS), &params)
}

#[test]
fn address_range_is_charged_its_page_tables() {
    const LAZY: u32 = 0x400;
    const EXTERNALLY_MANAGED: u32 = 0x40_0000;
    for older in [false, true] {
        for (flags, charged) in [(0, true), (LAZY, false), (EXTERNALLY_MANAGED, false)] {
            let mut program = Program::with_subdevice(GIB);
            assert_eq!(range(&mut program, older, 64 * GIB, flags), 0);
            // Measured on an H200: 131,584 KiB.
            let share = program.accounting.share(GPU).unwrap();
            let least = if charged { 131_584 << 10 } else { 0 };
            assert!((least..=least * 21 / 20).contains(&share.overhead));
            assert_eq!(share.used, 0);
        }
        let mut program = Program::with_subdevice(GIB);
        program.seen.clear();
        let refused = range(&mut program, older, 1 << 40, 0);
        assert_eq!(refused, NvStatus::NV_ERR_NO_MEMORY.0);
        let refused = range(&mut program, older, u64::MAX, 0);
        assert_eq!(refused, NvStatus::NV_ERR_NO_MEMORY.0);
        assert!(program.seen.is_empty(), "the driver was asked");
    }
}

#[test]
fn tables_of_a_refused_range_stay_charged() {
    const REFUSED: u32 = NvStatus::NV_ERR_NO_MEMORY.0;
    let overhead = |program: &Program| program.accounting.share(GPU).unwrap().overhead;
    for older in [false, true] {
        // A status of another thread's says that it was made.
        for forged in [false, true] {
            let mut program = Program::with_subdevice(GIB);
            program.class_of_notes = 0;
            program.driver = Box::new(move |parts| {
                let at = if older { 20 } else { 40 };
                if parts[0].bytes.len() > 16 && !forged {
                    put32(parts[0].bytes, at, REFUSED);
                }
                0
            });
            for _ in 0..3 {
                range(&mut program, older, 64 * GIB, 0);
            }
            // The driver's pool is filled once, for the largest.
            let kept = overhead(&program);
            assert!((128 * MIB..140 * MIB).contains(&kept), "{older} {forged}");
            range(&mut program, older, 2 * GIB, 0);
            assert_eq!(overhead(&program), kept);
            let freed = program.free(MEMORY);
            assert_eq!((freed, overhead(&program)), (0, kept));
            assert_eq!(program.free(CLIENT), 0);
            assert_eq!(overhead(&program), 0);
        }
    }
}

#[test]
fn range_that_was_not_asked_for_leaves_nothing() {
    for older in [false, true] {
        let mut program = Program::with_subdevice(GIB);
        program.is_killed = true;
        let mut outer = words(184, &[(0, CLIENT), (4, DEVICE), (8, 2), (52, 0x8_0000)]);
        put64(&mut outer, 88, 64 * GIB);
        let called = if older {
            program.try_call(&CONTROL, NV_ESC_RM_VID_HEAP_CONTROL, &outer)
        } else {
            let mut params = memory_params(64 * GIB);
            put32(&mut params, 8, 0x8_0000);
            put32(&mut params, 24, 0);
            program.put(PARAMS, &params);
            let outer = nvos64(CLIENT, DEVICE, MEMORY, 0x50a0, PARAMS);
            program.try_call(&CONTROL, NV_ESC_RM_ALLOC, &outer)
        };
        assert_eq!(called, Err(Errno(4)));
        let share = program.accounting.share(GPU).unwrap();
        assert_eq!(share.overhead, 0, "{older}");
    }
}

#[test]
fn a_sparse_range_is_for_graphics_alone() {
    use crate::nvidia::capability::{
        COMPUTE,
        GRAPHICS, //
    };
    const SPARSE: u32 = 0x400_0000;
    for older in [false, true] {
        let mut program = Program::with_subdevice(GIB);
        program.accounting.set_capabilities(GPU, COMPUTE).unwrap();
        program.seen.clear();
        let refused = range(&mut program, older, MIB, SPARSE);
        assert_eq!(refused, NvStatus::NV_ERR_NOT_SUPPORTED.0);
        assert!(program.seen.is_empty(), "the driver was asked");
        let both = COMPUTE.or(GRAPHICS);
        program.accounting.set_capabilities(GPU, both).unwrap();
        assert_eq!(range(&mut program, older, MIB, SPARSE), 0);
        assert!(program.accounting.share(GPU).unwrap().overhead > 0);
    }
}

#[test]
fn address_space_is_charged_its_page_tables() {
    for (flags, charged) in [(0, 20 << 10), (0x48, 0)] {
        let mut program = Program::with_subdevice(GIB);
        let params = words(56, &[(4, flags)]);
        let outer = nvos64(CLIENT, DEVICE, MEMORY, 0x90f1, PARAMS);
        assert_eq!(program.alloc(&outer, &params), 0);
        assert_eq!(program.accounting.share(GPU).unwrap().overhead, charged);
    }
}

/// Host memory of so many bytes, by the newer call under this handle, or by the older one: its
/// status.
fn host(program: &mut Program, handle: Option<u32>, size: u64, attr: u32) -> u32 {
    let Some(handle) = handle else {
        let fields = [(0, CLIENT), (4, DEVICE), (8, 2), (52, 0), (56, attr)];
        let mut outer = words(184, &fields);
        put64(&mut outer, 88, size);
        let code = NV_ESC_RM_VID_HEAP_CONTROL;
        assert_eq!(program.try_call(&CONTROL, code, &outer), Ok(0));
        return get32(program.at(OUTER), 20);
    };
    let mut params = memory_params(size);
    put32(&mut params, 8, 0);
    put32(&mut params, 24, attr);
    program.alloc(&nvos64(CLIENT, DEVICE, handle, 0x3e, PARAMS), &params)
}

#[test]
fn host_memory_counts_by_every_call() {
    // In PCI memory, of 4 KiB pages; in one piece.
    for (attr, taken) in [(0x280_0000, 3 * MIB), (0x1280_0000, 4 * MIB)] {
        for handles in [[Some(MEMORY), Some(MEMORY + 1)], [None, None]] {
            let mut program = Program::with_subdevice(GIB);
            assert_eq!(host(&mut program, handles[0], 3 * MIB, attr), 0);
            assert_eq!((program.used(), host_memory(&program)), (0, taken));
            program.seen.clear();
            let set = program
                .accounting
                .set_limit_of(GPU, Limited::HostMemory, Some(taken));
            assert_eq!(set, Ok(()));
            let refused = host(&mut program, handles[1], 4096, attr);
            assert_eq!(refused, NvStatus::NV_ERR_NO_MEMORY.0);
            assert!(program.seen.is_empty(), "the driver was asked");
        }
    }
}

/// A field at this offset as the driver gets it, and as the program finds it after the driver has
/// added a bit.
fn passed(program: &mut Program, part: usize, at: usize, run: fn(&mut Program) -> u32) -> [u32; 2] {
    program.seen.clear();
    program.driver = Box::new(move |parts| {
        let field = get32(parts[part].bytes, at);
        put32(parts[part].bytes, at, field | 1);
        0
    });
    assert_eq!(run(program), 0);
    let place = [OUTER, PARAMS][part];
    [
        get32(&program.seen[0].parts[part], at),
        get32(program.at(place), at),
    ]
}

#[test]
fn firmware_is_never_told_of_memory() {
    // And no node of the host is named, nor a half of the GPU.
    const KNOWN: u32 = 1 << 31 | 1 << 7 | 3 << 29;
    const SYSTEM: u32 = 0x1280_0000;
    /// An object of a class by the newer call.
    fn newer(program: &mut Program, class: u32, flags: u32, attr: u32) -> u32 {
        let mut params = memory_params(2 * MIB);
        put32(&mut params, 8, flags);
        put32(&mut params, 24, attr);
        put32(&mut params, 28, KNOWN);
        program.alloc(&nvos64(CLIENT, DEVICE, MEMORY, class, PARAMS), &params)
    }
    /// The same by the older one.
    fn older(program: &mut Program, flags: u32, attr: u32) -> u32 {
        let fields = [
            (0, CLIENT),
            (4, DEVICE),
            (8, 2),
            (52, flags),
            (56, attr),
            (144, KNOWN),
        ];
        let mut outer = words(184, &fields);
        put64(&mut outer, 88, 2 * MIB);
        let code = NV_ESC_RM_VID_HEAP_CONTROL;
        assert_eq!(program.try_call(&CONTROL, code, &outer), Ok(0));
        get32(program.at(OUTER), 20)
    }
    let calls: [fn(&mut Program) -> u32; 6] = [
        |program| newer(program, 0x40, 0, 0),
        |program| newer(program, 0x3e, 0, SYSTEM),
        |program| newer(program, 0x50a0, 0x8_0000, 0),
        |program| older(program, 0, 0),
        |program| older(program, 0, SYSTEM),
        |program| older(program, 0x8_0000, 0),
    ];
    for (number, run) in calls.into_iter().enumerate() {
        let (part, at) = if number < 3 { (1, 28) } else { (0, 144) };
        let mut program = Program::with_subdevice(GIB);
        assert_eq!(
            passed(&mut program, part, at, run),
            [0, KNOWN | 1],
            "call {number}"
        );
    }
    // NVOS02_FLAGS_REGISTER_MEMDESC_TO_PHYS_RM, with memory that is cached and not mapped.
    const FLAGS: u32 = 1 << 27 | 0x4000_1000;
    for run in [
        (|program| old_call(program, 0x3e, FLAGS)) as fn(&mut Program) -> u32,
        |program| old_call(program, 0x71, FLAGS),
    ] {
        let mut program = Program::with_subdevice(GIB);
        assert_eq!(passed(&mut program, 0, 16, run), [0x4000_1000, FLAGS | 1]);
    }
}

#[test]
fn the_drivers_own_memory_is_not_pinned() {
    const AT: u64 = 0x7f00_0000_0000;
    for (shown, passes) in [
        (None, true),
        (Some(AT + 2 * MIB), true),
        (Some(AT - 1), true),
        (Some(AT), false),
        (Some(AT + 2 * MIB - 4096), false),
    ] {
        let mut program = Program::with_subdevice(GIB);
        program.shown_at = shown;
        program.seen.clear();
        let fields = [(0, CLIENT), (4, DEVICE), (8, MEMORY), (12, 0x71)];
        let mut outer = words(56, &fields);
        put32(&mut outer, 16, 0x4000_1000);
        put64(&mut outer, 24, AT);
        put64(&mut outer, 32, 2 * MIB - 1);
        let told = program.call(&GPU_NODE, NV_ESC_RM_ALLOC_MEMORY, &outer, 40);
        let refused = NvStatus::NV_ERR_INVALID_ADDRESS.0;
        assert_eq!(told, if passes { 0 } else { refused }, "{shown:x?}");
        assert_eq!(program.seen.len(), usize::from(passes));
    }
}

#[test]
fn video_memory_lies_where_the_driver_chooses() {
    const VIRTUAL: u32 = 0x8_0000;
    let refused = NvStatus::NV_ERR_INVALID_ARGUMENT.0;
    for (flags, expected) in [
        (0x1_c101, 0),
        (0x1_c111, refused),
        (0x3_c101, refused),
        (VIRTUAL | 0x2_c010, 0),
    ] {
        let mut program = Program::with_subdevice(GIB);
        program.driver = Box::new(|_| 0);
        let mut outer = words(184, &[(0, CLIENT), (4, DEVICE), (8, 2), (44, MEMORY)]);
        put32(&mut outer, 52, flags);
        put64(&mut outer, 88, MIB);
        let told = program.call(&CONTROL, NV_ESC_RM_VID_HEAP_CONTROL, &outer, 20);
        assert_eq!(told, expected, "by the heap, {flags:#x}");
        let class = if flags & VIRTUAL == 0 { 0x40 } else { 0x50a0 };
        let mut params = words(128, &[(8, flags)]);
        put64(&mut params, 64, MIB);
        let outer = nvos64(CLIENT, DEVICE, MEMORY + 1, class, PARAMS);
        assert_eq!(program.alloc(&outer, &params), expected, "{flags:#x}");
        assert_eq!(program.seen.is_empty(), expected != 0);
    }
}
