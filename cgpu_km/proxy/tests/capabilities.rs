// SPDX-License-Identifier: GPL-2.0
//! The calls that each set of capabilities allows alone, their notes, and the calls that graphics
//! alone makes.

use super::*;
use crate::{
    nvidia::{
        capability::{
            self,
            Capabilities,
            COMPUTE,
            GRAPHICS,
            PROFILING,
            RDMA,
            UTILITY,
            VIDEO, //
        },
        handle::{
            ClassId,
            ControlCmd,
            ObjectHandle, //
        }, //
    },
    uapi::Limited, //
};

const ZCULL_BIND: u32 = 0x2080_1208;
const GR_GET_CAPS_V2: u32 = 0x0080_1109;
const NV_ESC_RM_MAP_MEMORY_DMA: u32 = 0xc040_4657;
const NV_ESC_RM_UNMAP_MEMORY_DMA: u32 = 0xc030_4658;
/// A context for DMA.
const DMA: u32 = 0x5c00_0210;
const NV_ESC_RM_ALLOC_CONTEXT_DMA2: u32 = 0xc038_4654;
const FOREIGN: u32 = CLIENT + 1;

/// A range of addresses whose page tables come with what is mapped there.
const RANGE: u32 = 0x5c00_0040;
const MAPPED: u32 = 0x5c00_0041;
/// In the flags of a range: `NVOS32_ALLOC_FLAGS_LAZY`.
const LAZY: u32 = 0x400;

fn with(capabilities: Capabilities) -> Program {
    let mut program = Program::with_subdevice(GIB);
    let mut range = words(128, &[(8, LAZY)]);
    put64(&mut range, 64, GIB);
    let made = program.alloc(&nvos64(CLIENT, DEVICE, RANGE, 0x50a0, PARAMS), &range);
    assert_eq!(made, 0);
    assert_eq!(program.memory(MAPPED, 4096), 0);
    program.seen.clear();
    program
        .accounting
        .set_capabilities(GPU, capabilities)
        .unwrap();
    program.driver = Box::new(|_| 0);
    program
}

/// Makes an object of a class below the subdevice, with as many parameters as it has.
fn make(program: &mut Program, class: u32) -> u32 {
    let entry = program.tables().class(ClassId(class));
    let size = entry.map_or(0, |entry| entry.params);
    let params = if size == 0 { 0 } else { PARAMS };
    let outer = nvos64(CLIENT, SUBDEVICE, 0x5c00_0100, class, params);
    program.alloc(&outer, &vec![0; usize::try_from(size).expect("small")])
}

/// Calls a control of the subdevice with these parameters.
fn control(program: &mut Program, cmd: u32, params: &[u8]) -> u32 {
    let mut outer = words(
        32,
        &[
            (0, CLIENT),
            (4, SUBDEVICE),
            (8, cmd),
            (24, u32::try_from(params.len()).expect("small")),
        ],
    );
    put64(&mut outer, 16, PARAMS);
    program.put(PARAMS, params);
    program.call(&CONTROL, NV_ESC_RM_CONTROL, &outer, 28)
}

#[test]
fn classes_need_their_capability_set() {
    for (class, sets) in [
        (0xcbc0, COMPUTE.or(GRAPHICS)), // HOPPER_COMPUTE_A
        (0x208f, UTILITY),              // NV20_SUBDEVICE_DIAG
        (0xcb97, GRAPHICS),             // HOPPER_A
        (0xc9b7, VIDEO),                // NVC9B7_VIDEO_ENCODER
        (0xb2cc, PROFILING),            // MAXWELL_PROFILER_DEVICE
        (0x503c, COMPUTE.or(RDMA)),     // NV50_THIRD_PARTY_P2P
        (0x2081, capability::BASE),
        (0x90f1, capability::WORK),
    ] {
        for one in [COMPUTE, UTILITY, GRAPHICS, VIDEO, PROFILING, RDMA] {
            let mut program = with(one);
            program.seen.clear();
            let status = make(&mut program, class);
            if one.meets(sets) {
                assert_eq!(status, 0, "{class:#x} with {one}");
                // A graphics object's context is made preemptible.
                let calls = if matches!(class, 0xcbc0 | 0xcb97) {
                    2
                } else {
                    1
                };
                assert_eq!(program.seen.len(), calls, "{class:#x} with {one}");
                assert_eq!(noted(&program), []);
            } else {
                assert_eq!(status, NvStatus::NV_ERR_INVALID_CLASS.0);
                assert!(program.seen.is_empty(), "{class:#x} with {one}");
                let reason = Reason::Capability(sets);
                assert_eq!(noted(&program), [(CallKind::Class, class, reason)]);
                let record = program.accounting.noted_calls(GPU).next().expect("noted");
                assert_eq!(record.gpu, Some(GPU), "that of the parent");
            }
        }
    }
}

#[test]
fn controls_and_uvm_go_by_the_sets_too() {
    let mut program = with(UTILITY);
    let refused = NvStatus::NV_ERR_NOT_SUPPORTED.0;
    assert_eq!(control(&mut program, ZCULL_BIND, &[0; 24]), refused);
    let returned = ioctl(&mut program, &UVM, 37, UserAddr(PARAMS));
    assert_eq!(returned, Err(Errno::EINVAL), "UVM_REGISTER_GPU");
    assert!(program.seen.is_empty());
    assert_eq!(
        noted(&program),
        [
            (CallKind::Control, ZCULL_BIND, Reason::Capability(GRAPHICS)),
            (CallKind::Uvm, 37, Reason::Capability(capability::WORK)),
        ]
    );
    let mut program = with(GRAPHICS);
    assert_eq!(control(&mut program, ZCULL_BIND, &[0; 24]), 0);
    let entry = program
        .tables()
        .control(ControlCmd(GR_GET_CAPS_V2))
        .expect("listed");
    assert!(entry.capabilities.meets(VIDEO) && !entry.capabilities.meets(COMPUTE));
}

/// A mode of the whole GPU, by its header, and one that nobody has measured.
#[test]
fn modes_of_debuggers_take_profiling() {
    const MODES: [u32; 2] = [0x83de_0307, 0x83de_031f];
    const MEASURED: [u32; 2] = [0x83de_0309, 0x83de_0317];
    for branch in Branch::ALL {
        let mut program = with(Capabilities::DEFAULT);
        program.branch = branch;
        let ask = |program: &mut Program, number| {
            let entry = program.tables().control(ControlCmd(number));
            let size = usize::try_from(entry.expect("listed").params).expect("small");
            program.seen.clear();
            control(program, number, &vec![0; size])
        };
        for number in MODES {
            let told = ask(&mut program, number);
            assert_eq!(told, NvStatus::NV_ERR_NOT_SUPPORTED.0, "{number:#x}");
            assert!(program.seen.is_empty(), "the driver was asked");
            let last = noted(&program).pop();
            let reason = Reason::Capability(PROFILING);
            assert_eq!(last, Some((CallKind::Control, number, reason)));
        }
        for number in MEASURED {
            assert_eq!(ask(&mut program, number), 0, "{number:#x}");
        }
        let mut program = with(PROFILING);
        program.branch = branch;
        for number in MODES {
            assert_eq!(ask(&mut program, number), 0, "{number:#x}");
            assert_eq!(program.seen.len(), 1);
        }
    }
}

#[test]
fn every_entry_is_in_some_set() {
    let mut only = 0;
    for branch in Branch::ALL {
        let tables = Tables::of(branch).expect("made");
        let controls = tables.controls().iter().map(|entry| entry.capabilities);
        let uvm = tables.uvm_commands().iter().map(|entry| entry.capabilities);
        for capabilities in controls.chain(uvm) {
            assert_ne!(capabilities, Capabilities::NONE);
            only += usize::from(!capabilities.meets(Capabilities::DEFAULT));
        }
    }
    assert!(only > 40, "{only}");
}

#[test]
fn controls_take_own_clients_alone() {
    let mut program = with(GRAPHICS);
    let mut params = words(24, &[(0, CLIENT)]);
    assert_eq!(control(&mut program, ZCULL_BIND, &params), 0);
    program.seen.clear();
    put32(&mut params, 0, FOREIGN);
    let status = control(&mut program, ZCULL_BIND, &params);
    assert_eq!(status, NvStatus::NV_ERR_INVALID_OBJECT_HANDLE.0);
    assert!(program.seen.is_empty(), "the driver was asked");
    assert_eq!(
        noted(&program),
        [(CallKind::Control, ZCULL_BIND, Reason::Foreign)]
    );
}

#[test]
fn classes_take_own_clients_alone() {
    for (class, size, at, sets) in [
        (0xcb33, 4, 0, COMPUTE),   // NV_CONFIDENTIAL_COMPUTE
        (0xb2cc, 8, 0, PROFILING), // MAXWELL_PROFILER_DEVICE
        (0x83de, 12, 4, COMPUTE),  // GT200_DEBUGGER
    ] {
        for (client, expected) in [
            (0, 0),
            (CLIENT, 0),
            (FOREIGN, NvStatus::NV_ERR_INVALID_OBJECT_HANDLE.0),
        ] {
            let mut program = with(sets);
            let params = words(size, &[(at, client)]);
            let outer = nvos64(CLIENT, SUBDEVICE, 0x5c00_0100, class, PARAMS);
            assert_eq!(program.alloc(&outer, &params), expected, "{class:#x}");
        }
    }
}

#[test]
fn listed_firmware_controls_pass_and_count() {
    const LISTED: u32 = 0x2080_852e;
    let mut program = with(Capabilities::DEFAULT);
    // As branches differ in the size, any that is not too much.
    for size in [1, 528, 16 << 10] {
        assert_eq!(control(&mut program, LISTED, &vec![0; size]), 0);
    }
    assert_eq!(program.seen.len(), 3);
    let record = *program.accounting.noted_calls(GPU).next().expect("noted");
    assert_eq!(record.call.reason, Reason::PassedUnseen);
    assert_eq!((record.count, record.gpu), (3, Some(GPU)));
    assert_eq!(
        program.accounting.share(GPU).expect("added").refused_calls,
        0
    );
    let wrong = NvStatus::NV_ERR_INVALID_ARGUMENT.0;
    let told = control(&mut program, LISTED, &vec![0; (16 << 10) + 1]);
    assert_eq!(told, wrong);
    assert_eq!(program.seen.len(), 3);
}

#[test]
fn unlisted_firmware_controls_are_refused() {
    let mut program = with(Capabilities::DEFAULT);
    let unknown = NvStatus::NV_ERR_NOT_SUPPORTED.0;
    let denied = NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS.0;
    let video = Reason::Capability(VIDEO);
    for (number, told, reason) in [
        // It reports what each process of the GPU does, in 535 and 550.
        (0x2080_a083, unknown, Reason::Unlisted),
        (0x2080_8777, unknown, Reason::Unlisted),
        (0x0080_8159, unknown, Reason::Unlisted),
        (0x2080_8165, unknown, video),
        // Those that the driver keeps for administrators.
        (0x2080_c777, denied, Reason::Forbidden),
        (0x2080_c52e, denied, Reason::Forbidden),
    ] {
        assert_eq!(control(&mut program, number, &[0; 8]), told, "{number:#x}");
        let last = noted(&program).pop();
        assert_eq!(last, Some((CallKind::Control, number, reason)));
    }
    assert!(program.seen.is_empty(), "the driver was asked");
}

/// An argument of `size` bytes that names a client, and memory at 12, and the status that comes
/// back.
fn dma(program: &mut Program, code: u32, size: usize, client: u32, memory: u32) -> u32 {
    let named = [(0, client), (4, DEVICE), (8, RANGE), (12, memory)];
    let outer = words(size, &named);
    program.seen.clear();
    program.call(&CONTROL, code, &outer, size - 8)
}

#[test]
fn gpu_mapping_takes_graphics_or_video() {
    for code in [NV_ESC_RM_MAP_MEMORY_DMA, NV_ESC_RM_UNMAP_MEMORY_DMA] {
        let mut program = with(Capabilities::DEFAULT);
        assert_eq!(
            program.try_call(&CONTROL, code, &[0; 64]),
            Err(Errno::EINVAL)
        );
        let number = code & 0xff;
        let reason = Reason::Capability(GRAPHICS.or(VIDEO));
        assert_eq!(noted(&program), [(CallKind::Escape, number, reason)]);

        let size = usize::try_from(code >> 16 & 0x3fff).expect("small");
        let mut program = with(VIDEO);
        assert_eq!(dma(&mut program, code, size, CLIENT, MAPPED), 0);
        assert_eq!(program.seen.len(), 1);
        let status = dma(&mut program, code, size, FOREIGN, MAPPED);
        assert_eq!(status, NvStatus::NV_ERR_INVALID_OBJECT_HANDLE.0);
        assert!(program.seen.is_empty());
    }
}

/// NVOS46_FLAGS_DMA_UNICAST_REUSE_ALLOC.
const REUSED: u32 = 1 << 29;

#[test]
fn addresses_that_are_taken_are_not_mapped_again() {
    for (code, size) in [(NV_ESC_RM_MAP_MEMORY_DMA, 64), (0xc038_4657, 56)] {
        let mut program = with(GRAPHICS);
        let named = [(0, CLIENT), (4, DEVICE), (8, RANGE), (12, MAPPED)];
        let outer = words(size, &[&named[..], &[(32, REUSED)]].concat());
        program.seen.clear();
        let status = program.call(&CONTROL, code, &outer, size - 8);
        assert_eq!(status, NvStatus::NV_ERR_INVALID_ARGUMENT.0);
        assert!(program.seen.is_empty(), "the driver was asked");
    }
}

#[test]
fn the_gpu_forgets_at_once_what_is_unmapped() {
    for (code, size, at, defer) in [
        // Memory mapped to be read alone is not forgotten when it is freed.
        (NV_ESC_RM_MAP_MEMORY_DMA, 64, 32, 0x8000_0001_u32),
        (NV_ESC_RM_UNMAP_MEMORY_DMA, 48, 16, 1),
        // As 535 has them.
        (0xc038_4657, 56, 32, 0x8000_0001),
        (0xc028_4658, 40, 16, 1),
    ] {
        let mut program = with(GRAPHICS);
        let outer = words(
            size,
            &[
                (0, CLIENT),
                (4, DEVICE),
                (8, RANGE),
                (12, MAPPED),
                (at, !REUSED),
            ],
        );
        assert_eq!(program.try_call(&CONTROL, code, &outer), Ok(0));
        assert_eq!(get32(&program.seen[0].parts[0], at), !REUSED & !defer);
        assert_eq!(program.at(OUTER), outer, "the program finds it as it was");
    }
}

#[test]
fn page_tables_of_what_rm_maps_are_charged() {
    let (range, memory) = (RANGE + 0x10, MAPPED + 0x10);
    let mut program = with_large_memory();
    let overhead = |program: &Program| program.accounting.share(GPU).expect("a share").overhead;
    let map = |program: &mut Program, length: u64| {
        let mut outer = words(64, &[(0, CLIENT), (4, DEVICE), (8, range), (12, memory)]);
        put64(&mut outer, 24, length);
        program.seen.clear();
        assert_eq!(
            program.try_call(&CONTROL, NV_ESC_RM_MAP_MEMORY_DMA, &outer),
            Ok(0)
        );
        (get32(program.at(OUTER), 56), program.seen.len())
    };
    assert_eq!(map(&mut program, 4096), (0, 1));
    assert_eq!(overhead(&program), 32 << 10);
    // 2 MiB of tables for each GiB, and there is one GiB.
    assert_eq!(map(&mut program, 256 << 30), (0, 1));
    let refusal = NvStatus::NV_ERR_NO_MEMORY.0;
    assert_eq!(map(&mut program, 256 << 30), (refusal, 0));
    program
        .accounting
        .free(ClientHandle(CLIENT), ObjectHandle(range));
    assert_eq!(overhead(&program), 0);
}

/// A program with a range of 512 GiB, whose tables come later, and host memory of 256 GiB.
fn with_large_memory() -> Program {
    let (range, memory) = (RANGE + 0x10, MAPPED + 0x10);
    let mut program = with(GRAPHICS);
    let mut params = words(128, &[(8, LAZY)]);
    put64(&mut params, 64, 512 * GIB);
    let outer = nvos64(CLIENT, DEVICE, range, 0x50a0, PARAMS);
    assert_eq!(program.alloc(&outer, &params), 0);
    let mut params = words(128, &[(24, 1 << 25)]);
    put64(&mut params, 64, 256 * GIB);
    let outer = nvos64(CLIENT, DEVICE, memory, 0x3e, PARAMS);
    assert_eq!(program.alloc(&outer, &params), 0);
    program.seen.clear();
    program
}

#[test]
fn no_more_is_mapped_than_there_is() {
    let (range, memory) = (RANGE + 0x10, MAPPED + 0x10);
    let limit = NvStatus::NV_ERR_INVALID_LIMIT.0;
    for (range, memory, offset, length, expected) in [
        (range, memory, 0, 256 * GIB, 0),
        (range, memory, GIB, 255 * GIB, 0),
        (range, memory, 0, 1 << 44, limit),
        (range, memory, GIB, 256 * GIB, limit),
        (range, memory, u64::MAX, 2, limit),
        (RANGE, memory, 0, GIB, 0),
        // The range is smaller, and the tables are made for all of it.
        (RANGE, memory, 0, 256 * GIB, limit),
        // The driver makes memory larger than was asked for.
        (RANGE, MAPPED, 0, 2 * MIB, 0),
        (RANGE, MAPPED, 0, 4 * MIB, limit),
    ] {
        let mut program = with_large_memory();
        let mut outer = words(64, &[(0, CLIENT), (4, DEVICE), (8, range), (12, memory)]);
        put64(&mut outer, 16, offset);
        put64(&mut outer, 24, length);
        let told = program.call(&CONTROL, NV_ESC_RM_MAP_MEMORY_DMA, &outer, 56);
        assert_eq!(told, expected, "{length:#x} from {offset:#x} on");
        assert_eq!(program.seen.is_empty(), expected != 0);
    }
}

/// Objects of the tenant that count.
fn objects(program: &Program) -> u64 {
    let limit = program.accounting.limit_of(GPU, Limited::Objects);
    limit.expect("a share").used
}

/// Maps a page into the range at an address, and unmaps so many bytes there.
fn map_at(program: &mut Program, size: usize, base: u64) -> u32 {
    let named = [(0, CLIENT), (4, DEVICE), (8, RANGE), (12, MAPPED)];
    let mut outer = words(size, &named);
    put64(&mut outer, 24, 4096);
    put64(&mut outer, size - 16, base);
    let code = NV_ESC_RM_MAP_MEMORY_DMA & !(64 << 16) | (u32::try_from(size).unwrap() << 16);
    program.call(&CONTROL, code, &outer, size - 8)
}

fn unmap_at(program: &mut Program, size: usize, base: u64, bytes: u64) -> u32 {
    let mut outer = words(size, &[(0, CLIENT), (4, DEVICE), (8, RANGE)]);
    put64(&mut outer, 24, base);
    if size == 48 {
        put64(&mut outer, 32, bytes);
    }
    let code = NV_ESC_RM_UNMAP_MEMORY_DMA & !(48 << 16) | (u32::try_from(size).unwrap() << 16);
    program.call(&CONTROL, code, &outer, size - 8)
}

#[test]
fn records_of_mappings_count_as_objects() {
    // As they are since 580, and in 535.
    for (map, unmap) in [(64, 48), (56, 40)] {
        let mut program = with(GRAPHICS);
        let before = objects(&program);
        for count in 1..=3 {
            assert_eq!(map_at(&mut program, map, count << 16), 0);
            assert_eq!(objects(&program), before + count);
        }
        // The driver's answers are believed, because no program sees them.
        assert!(program.seen.iter().all(|seen| seen.route == Route::Unseen));
        program.seen.clear();
        assert_eq!(unmap_at(&mut program, unmap, 1 << 16, 0), 0);
        assert_eq!(program.seen[0].route, Route::Unseen);
        assert_eq!(objects(&program), before + 2);
        let refused = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
        program.driver = Box::new(move |parts| {
            let status = parts[0].bytes.len() - 8;
            put32(parts[0].bytes, status, refused);
            0
        });
        assert_eq!(unmap_at(&mut program, unmap, 2 << 16, 0), refused);
        assert_eq!(map_at(&mut program, map, 9 << 16), refused);
        assert_eq!(objects(&program), before + 2);
        program
            .accounting
            .free(ClientHandle(CLIENT), ObjectHandle(RANGE));
        assert_eq!(objects(&program), before - 1);
    }
}

#[test]
fn unmapped_parts_end_what_lies_in_them() {
    let mut program = with(GRAPHICS);
    let before = objects(&program);
    for count in 0..4 {
        assert_eq!(map_at(&mut program, 64, count << 12), 0);
    }
    // The driver says that it has worked, whatever was there.
    assert_eq!(unmap_at(&mut program, 48, 1 << 20, 4096), 0);
    assert_eq!(objects(&program), before + 4);
    assert_eq!(unmap_at(&mut program, 48, 4096, 8192), 0);
    assert_eq!(objects(&program), before + 2);
    assert_eq!(unmap_at(&mut program, 48, 3 * 4096 + 512, 512), 0);
    assert_eq!(objects(&program), before + 3);
}

#[test]
fn mappings_need_the_clients_own_file() {
    let mut program = with(GRAPHICS);
    let other = Session {
        file: FileId(CONTROL.file.0 + 90),
        ..CONTROL
    };
    let invalid = NvStatus::NV_ERR_INVALID_CLIENT.0;
    let named = [(0, CLIENT), (4, DEVICE), (8, RANGE), (12, MAPPED)];
    for (code, size) in [
        (NV_ESC_RM_MAP_MEMORY_DMA, 64),
        (NV_ESC_RM_UNMAP_MEMORY_DMA, 48),
    ] {
        let status = program.call(&other, code, &words(size, &named), size - 8);
        assert_eq!(status, invalid);
        assert!(program.seen.is_empty(), "the driver was asked");
    }
}

#[test]
fn doorbell_is_not_mapped_for_the_gpu() {
    let mut program = with(GRAPHICS);
    assert_eq!(make(&mut program, 0xc661), 0, "HOPPER_USERMODE_A");
    let status = dma(
        &mut program,
        NV_ESC_RM_MAP_MEMORY_DMA,
        64,
        CLIENT,
        0x5c00_0100,
    );
    assert_eq!(status, NvStatus::NV_ERR_INVALID_PARAMETER.0);
    assert!(program.seen.is_empty(), "the driver was asked");
    let number = NV_ESC_RM_MAP_MEMORY_DMA & 0xff;
    let note = (CallKind::Escape, number, Reason::Parameters);
    assert_eq!(noted(&program), [note]);
}

#[test]
fn dma_context_has_its_class_alone() {
    let code = NV_ESC_RM_ALLOC_CONTEXT_DMA2;
    for (class, expected) in [(2, 0), (0x3f, NvStatus::NV_ERR_INVALID_CLASS.0)] {
        let mut program = with(GRAPHICS);
        assert_eq!(program.memory(0x5c00_0200, 1 << 20), 0);
        program.seen.clear();
        let named = [(0, CLIENT), (8, DMA), (12, class), (24, 0x5c00_0200)];
        let status = program.call(&CONTROL, code, &words(56, &named), 48);
        assert_eq!(status, expected, "{class:#x}");
        assert_eq!(program.seen.is_empty(), expected != 0);
    }
}

#[test]
fn dma_context_maps_no_video_memory() {
    const FOR_KERNEL: u32 = 1 << 20;
    let refused = NvStatus::NV_ERR_NOT_SUPPORTED.0;
    let (video, host) = (0x5c00_0200, 0x5c00_0201);
    for (memory, flags, expected, taken) in [
        (video, 1 << 29, 0, 0),
        (video, FOR_KERNEL, refused, 0),
        (host, 1 << 29, 0, 0),
        // As recorded with Vulkan.
        (host, FOR_KERNEL | 1 << 29 | 2, 0, 4096),
    ] {
        for is_class in [false, true] {
            let mut program = with(GRAPHICS);
            assert_eq!(program.memory(video, 4 * MIB), 0);
            let mut params = words(128, &[]);
            put64(&mut params, 64, 4 * MIB);
            let outer = nvos64(CLIENT, DEVICE, host, 0x3e, PARAMS);
            assert_eq!(program.alloc(&outer, &params), 0);
            let held = |program: &Program| {
                let limit = program.accounting.limit_of(GPU, Limited::HostMemory);
                limit.expect("a share").used
            };
            let before = held(&program);
            program.seen.clear();
            let status = if is_class {
                let mut params = words(32, &[(4, flags), (8, memory)]);
                put64(&mut params, 24, 2 * MIB - 1);
                program.alloc(&nvos64(CLIENT, DEVICE, DMA, 2, PARAMS), &params)
            } else {
                let named = [(0, CLIENT), (8, DMA), (12, 2), (16, flags), (24, memory)];
                let mut outer = words(56, &named);
                put64(&mut outer, 40, 2 * MIB - 1);
                program.call(&CONTROL, NV_ESC_RM_ALLOC_CONTEXT_DMA2, &outer, 48)
            };
            assert_eq!(status, expected, "{memory:#x} {flags:#x} {is_class}");
            assert_eq!(program.seen.is_empty(), expected != 0);
            assert_eq!(held(&program) - before, taken);
            let (client, context) = (ClientHandle(CLIENT), ObjectHandle(DMA));
            program.accounting.free(client, context);
            assert_eq!(held(&program), before);
        }
    }
}

#[test]
fn channel_errors_go_to_a_known_context() {
    const MEMORY: u32 = 0x5c00_0200;
    const NOT_FOUND: u32 = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
    let mut program = with(GRAPHICS);
    assert_eq!(program.memory(MEMORY, 1 << 20), 0);
    let channel = |program: &mut Program, handle, notes| {
        let mut params = [0; 368];
        put32(&mut params, 0, notes);
        program.alloc(&nvos64(CLIENT, DEVICE, handle, 0xc86f, PARAMS), &params)
    };
    let named = [(0, CLIENT), (8, DMA), (12, 2), (24, MEMORY)];
    let outer = words(56, &named);
    assert_eq!(channel(&mut program, DMA + 1, DMA), NOT_FOUND);
    let code = NV_ESC_RM_ALLOC_CONTEXT_DMA2;
    assert_eq!(program.call(&CONTROL, code, &outer, 48), 0);
    assert_eq!(channel(&mut program, DMA + 1, DMA), 0);
    for object in [DMA + 1, MEMORY] {
        let object = ObjectHandle(object);
        program.accounting.free(ClientHandle(CLIENT), object);
    }
    assert_eq!(channel(&mut program, DMA + 2, DMA), NOT_FOUND);
    assert_eq!(program.call(&CONTROL, code, &outer, 48), NOT_FOUND);
}
