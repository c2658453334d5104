// SPDX-License-Identifier: GPL-2.0
//! Calls of nvidia-smi -q, nvidia-smi pmon and Vulkan that CUDA does not make.

use super::*;
use crate::nvidia::{
    capability::{
        Capabilities,
        GRAPHICS,
        UTILITY,
        VIDEO, //
    },
    fb,
    handle::{
        ClassId,
        ControlCmd,
        ObjectHandle, //
    }, //
};

const GPUMON_SAMPLES: u32 = 0x2080_2096;
const FB_GET_REGIONS: u32 = 0x2080_1320;
const ACCOUNTING_STATE: u32 = 0xb02;
const NV_ESC_RM_IDLE_CHANNELS: u32 = 0xc038_4641;
const NV_ESC_RM_ALLOC_MEMORY: u32 = 0xc038_4627;
const FOREIGN: u32 = CLIENT + 1;

fn with(capabilities: Capabilities) -> Program {
    let mut program = Program::with_subdevice(GIB);
    program
        .accounting
        .set_capabilities(GPU, capabilities)
        .unwrap();
    program.driver = Box::new(|_| 0);
    program.seen.clear();
    program
}

fn params_of(program: &Program, cmd: u32) -> Vec<u8> {
    let entry = program.tables().control(ControlCmd(cmd)).expect("listed");
    vec![0; usize::try_from(entry.params).expect("small")]
}

#[test]
fn samples_of_processes_are_an_empty_ring() {
    let mut program = with(UTILITY);
    let mut params = params_of(&program, GPUMON_SAMPLES);
    params[16..].fill(0xee);
    let ring = u32::try_from(params.len() - 16).expect("small");
    put32(&mut params, 4, ring - 1);
    let status = control(&mut program, CLIENT, GPUMON_SAMPLES, &params);
    assert_eq!(
        status,
        NvStatus::NV_ERR_INVALID_ARGUMENT.0,
        "as the driver has it"
    );
    put32(&mut params, 4, ring);
    put32(&mut params, 8, 72);
    put32(&mut params, 12, 71);
    assert_eq!(control(&mut program, CLIENT, GPUMON_SAMPLES, &params), 0);
    let told = program.at(PARAMS);
    assert_eq!(
        (get32(told, 4), get32(told, 8), get32(told, 12)),
        (ring, 0, 0)
    );
    assert!(told[16..].iter().all(|&byte| byte == 0));
    assert!(program.seen.is_empty(), "the driver was asked");
}

#[test]
fn memory_regions_end_at_the_share() {
    let mut program = with(GRAPHICS);
    // As an H100 says it: one piece.
    program.driver = Box::new(|parts| {
        put32(parts[1].bytes, 0, 1);
        put64(parts[1].bytes, 16, 0x22_f33e_ffff);
        put64(parts[1].bytes, 24, 1 << 20);
        0
    });
    let params = params_of(&program, FB_GET_REGIONS);
    assert_eq!(control(&mut program, CLIENT, FB_GET_REGIONS, &params), 0);
    let told = program.at(PARAMS);
    assert_eq!(get32(told, 0), 1);
    let piece = (get64(told, 8), get64(told, 16), get64(told, 24));
    assert_eq!(piece, (0, GIB - 1, 0));
    assert_eq!(told.len(), 8 + fb::MOST_REGIONS * 56);
}

#[test]
fn general_event_becomes_one_for_programs() {
    for (class, expected) in [
        (0x79, 0),
        // Callbacks in the kernel.
        (0x78, NvStatus::NV_ERR_INVALID_CLASS.0),
        (0x7e, NvStatus::NV_ERR_INVALID_CLASS.0),
    ] {
        let mut program = with(GRAPHICS);
        // The driver leaves an address of the kernel's there.
        program.driver = Box::new(|parts| {
            put64(parts[1].bytes, 16, 0xffff_8881_0000_0000);
            0
        });
        let mut params = words(24, &[(0, CLIENT), (8, class), (12, 0x3800_0023)]);
        put64(&mut params, 16, 7);
        let outer = nvos64(CLIENT, SUBDEVICE, 0x5c00_0100, 5, PARAMS);
        assert_eq!(program.alloc(&outer, &params), expected, "{class:#x}");
        assert_eq!(program.seen.is_empty(), expected != 0);
        assert_eq!(
            get64(program.at(PARAMS), 16),
            7,
            "no address of the kernel's"
        );
    }
    let mut program = with(GRAPHICS);
    let params = words(24, &[(0, FOREIGN), (8, 0x79)]);
    let outer = nvos64(CLIENT, SUBDEVICE, 0x5c00_0100, 5, PARAMS);
    let status = program.alloc(&outer, &params);
    assert_eq!(status, NvStatus::NV_ERR_INVALID_OBJECT_HANDLE.0);
    assert!(program.seen.is_empty());
}

#[test]
fn memory_mapper_has_room_for_one_operation() {
    use crate::nvidia::version::Branch;
    for branch in [Branch::R550, Branch::R570, Branch::R580, Branch::R595] {
        // As recorded with Vulkan; the most; none, which the driver refuses.
        for (wanted, passed) in [(0x2000, 1), (u32::MAX, 1), (1, 1), (0, 0)] {
            let mut program = with(GRAPHICS);
            program.branch = branch;
            let size = program.tables().class(ClassId(0xfe)).unwrap().params;
            let mut params = vec![0; usize::try_from(size).expect("small")];
            put32(&mut params, 4, wanted);
            let outer = nvos64(CLIENT, SUBDEVICE, 0x5c00_0100, 0xfe, PARAMS);
            assert_eq!(program.alloc(&outer, &params), 0);
            assert_eq!(get32(&program.seen[0].parts[1], 4), passed, "{branch:?}");
            assert_eq!(get32(program.at(PARAMS), 4), wanted, "{branch:?}");
            // Nothing may fill or resize it.
            for cmd in [0xfe_0002, 0xfe_0101, 0xfe_0102] {
                assert!(program.tables().control(ControlCmd(cmd)).is_none());
            }
        }
    }
}

#[test]
fn encoder_session_has_no_memory_of_the_programs() {
    for version in [0, 1, 7] {
        let mut program = with(VIDEO);
        let params = words(20, &[(12, version), (16, 0x5c00_0200)]);
        let outer = nvos64(CLIENT, SUBDEVICE, 0x5c00_0100, 0xa0bc, PARAMS);
        assert_eq!(program.alloc(&outer, &params), 0);
        assert_eq!(get32(&program.seen[0].parts[1], 12), 0, "version 0");
        assert_eq!(program.at(PARAMS), params, "the program's own word");
    }
}

/// With bit 2 the driver would return with its locks held.
#[test]
fn channel_has_no_flag_of_the_privileged() {
    let refused = NvStatus::NV_ERR_INVALID_ARGUMENT.0;
    let listed = |class| {
        let program = Program::with_subdevice(GIB);
        let entry = program.tables().class(ClassId(class)).expect("listed");
        usize::try_from(entry.params).expect("small")
    };
    let size = listed(0xc86f);
    // Of the recorded programs, and others that harm nobody.
    for flags in [
        0,
        0x10,
        0x1000_0010,
        1 << 6,
        1 << 7,
        1 << 22,
        1 << 24,
        1 << 27,
    ] {
        assert_eq!(channel_with(size, flags), (0, 1), "{flags:#x}");
    }
    let rest = (0..u32::BITS).filter(|bit| ![4, 6, 7, 22, 24, 27, 28, 29].contains(bit));
    for flags in rest.map(|bit| 0x10 | 1 << bit) {
        assert_eq!(channel_with(size, flags), (refused, 0), "{flags:#x}");
    }
}

/// A new channel's status, and how often the driver was asked.
fn channel_with(size: usize, flags: u32) -> (u32, usize) {
    let mut program = with(Capabilities::DEFAULT);
    let params = words(size, &[(20, flags)]);
    let outer = nvos64(CLIENT, DEVICE, 0x5c00_0100, 0xc86f, PARAMS);
    let status = program.alloc(&outer, &params);
    (status, program.seen.len())
}

/// The driver takes such a number as an index, and re-programs it for whoever uses it.
#[test]
fn peers_choose_no_number() {
    let refused = NvStatus::NV_ERR_INVALID_ARGUMENT.0;
    for (place, expected) in [(0, 0), (4, 0)]
        .into_iter()
        .chain((8..40).step_by(4).map(|place| (place, refused)))
    {
        let mut program = with(Capabilities::DEFAULT);
        let entry = program.tables().class(ClassId(0x503b)).expect("listed");
        let size = usize::try_from(entry.params).expect("small");
        let mut params = words(size, &[(0, SUBDEVICE), (4, SUBDEVICE)]);
        if place >= 8 {
            put32(&mut params, place, 1 << 12);
        }
        let outer = nvos64(CLIENT, CLIENT, 0x5c00_0100, 0x503b, PARAMS);
        assert_eq!(program.alloc(&outer, &params), expected, "{place}");
    }
}

#[test]
fn address_space_is_the_programs_own() {
    let denied = NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS.0;
    for (index, flags, expected) in [
        // As recorded with CUDA and Vulkan.
        (0, 0, 0),
        (0, 0x48, 0),
        (0, 2, 0),
        // The device's own.
        (3, 0, 0),
        // BAR1's, the one of all tenants, the fabric's, none.
        (1, 0, denied),
        (2, 0, denied),
        (4, 0, denied),
        (5, 0, denied),
        // One of the fabric, and what no program sets.
        (0, 1 << 9, denied),
        (0, 0x48 | 1 << 4, denied),
        (0, 1 << 2, denied),
        (0, 1 << 5, denied),
        (0, 1 << 7, denied),
        (0, 1 << 10, denied),
        (0, 1 << 11, denied),
        (0, 1 << 12, denied),
        (0, 1 << 13, denied),
        (0, 1 << 14, denied),
    ] {
        let mut program = with(Capabilities::DEFAULT);
        let size = program
            .tables()
            .class(ClassId(0x90f1))
            .expect("listed")
            .params;
        let size = usize::try_from(size).expect("small");
        let params = words(size, &[(0, index), (4, flags)]);
        let outer = nvos64(CLIENT, DEVICE, 0x5c00_0100, 0x90f1, PARAMS);
        assert_eq!(
            program.alloc(&outer, &params),
            expected,
            "{index} {flags:#x}"
        );
        assert_eq!(program.seen.len(), usize::from(expected == 0));
    }
}

#[test]
fn device_shares_addresses_with_its_own_client() {
    let mut program = with(Capabilities::DEFAULT);
    let outer = nvos64(CLIENT, CLIENT, 0x5c00_0100, 0x80, 0);
    let refused = NvStatus::NV_ERR_INVALID_ARGUMENT.0;
    assert_eq!(program.alloc(&outer, &[]), refused, "no parameters");
    assert!(program.seen.is_empty());
    for (shared, passed) in [(0, CLIENT), (CLIENT, CLIENT)] {
        let mut program = with(Capabilities::DEFAULT);
        let params = words(56, &[(0, GPU.0), (4, shared)]);
        let outer = nvos64(CLIENT, CLIENT, 0x5c00_0100, 0x80, PARAMS);
        assert_eq!(program.alloc(&outer, &params), 0);
        assert_eq!(get32(&program.seen[0].parts[1], 4), passed);
        assert_eq!(
            get32(program.at(PARAMS), 4),
            shared,
            "as the program had it"
        );
    }
}

#[test]
fn device_has_no_addresses_of_a_users_user() {
    const OTHER: u32 = CLIENT + 1;
    let mut program = with(Capabilities::DEFAULT);
    program.driver = Box::new(|parts| {
        if get32(parts[0].bytes, 12) == 0 {
            put32(parts[0].bytes, 8, OTHER);
        }
        0
    });
    assert_eq!(program.alloc(&nvos64(0, 0, 0, 0, 0), &[]), 0);
    let refused = NvStatus::NV_ERR_INVALID_CLIENT.0;
    for (own, shared, expected) in [(CLIENT, OTHER, 0), (OTHER, CLIENT, refused)] {
        program.seen.clear();
        let params = words(56, &[(0, GPU.0), (4, shared)]);
        let outer = nvos64(own, own, 0x5c00_0100, 0x80, PARAMS);
        assert_eq!(program.alloc(&outer, &params), expected);
        assert_eq!(program.seen.is_empty(), expected != 0);
    }
}

#[test]
fn control_page_is_within_what_was_asked_for() {
    // Memory of 4 KiB pages, of which there is no less than 64 KiB; host memory that may be rounded
    // up to pages of 2 MiB.
    let mut small = words(128, &[(8, 0x1_c000), (24, 0x1880_0000)]);
    put64(&mut small, 64, 2 * MIB + 4096);
    let mut host = words(128, &[(24, 0)]);
    put64(&mut host, 64, 2 * MIB + 4096);
    for (class, memory, inside, beyond) in [
        (0x40, &small, 2 * MIB, 2 * MIB + 4096),
        (0x3e, &host, 2 * MIB, 2 * MIB + 4096),
    ] {
        let mut program = Program::with_subdevice(8 * GIB);
        let outer = nvos64(CLIENT, DEVICE, 0x5c00_0200, class, PARAMS);
        assert_eq!(program.alloc(&outer, memory), 0, "{class:#x}");
        // It cannot be made under a handle that names no object elsewhere, nor be used by that.
        let nowhere = nvos64(CLIENT, DEVICE, u32::MAX, class, PARAMS);
        let refused = NvStatus::NV_ERR_INVALID_OBJECT_HANDLE.0;
        assert_eq!(program.alloc(&nowhere, memory), refused, "{class:#x}");
        let mut params = words(368, &[(32, u32::MAX), (128, 1)]);
        put64(&mut params, 64, beyond);
        let outer = nvos64(CLIENT, DEVICE, 0x5c00_0201, 0xc86f, PARAMS);
        let missing = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
        assert_eq!(program.alloc(&outer, &params), missing, "{class:#x}");
        for (offset, expected) in [
            (beyond, NvStatus::NV_ERR_INVALID_ARGUMENT.0),
            (u64::MAX, NvStatus::NV_ERR_INVALID_ARGUMENT.0),
            (inside, 0),
        ] {
            let mut params = words(368, &[(32, 0x5c00_0200), (128, 1)]);
            put64(&mut params, 64, offset);
            let outer = nvos64(CLIENT, DEVICE, 0x5c00_0201, 0xc86f, PARAMS);
            assert_eq!(program.alloc(&outer, &params), expected, "{offset:#x}");
        }
    }
}

/// Idles so many channels of a client by lists, or the one of the struct; the status.
fn idle(program: &mut Program, client: u32, channels: u32, flags: u32) -> u32 {
    let outer = words(56, &[(0, client), (12, channels), (40, flags)]);
    program.call(&CONTROL, NV_ESC_RM_IDLE_CHANNELS, &outer, 48)
}

#[test]
fn idling_channels_is_answered_as_vulkan_was_answered() {
    let mut program = with(GRAPHICS);
    let (lists, single) = (0x0600_0000, 0x0600_0010);
    assert_eq!(idle(&mut program, CLIENT, 0, lists), 0);
    let denied = NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS.0;
    assert_eq!(idle(&mut program, CLIENT, 3, lists), denied);
    assert_eq!(idle(&mut program, CLIENT, 0, single), denied);
    let foreign = NvStatus::NV_ERR_INVALID_OBJECT_HANDLE.0;
    assert_eq!(idle(&mut program, FOREIGN, 0, lists), foreign);
    assert!(program.seen.is_empty(), "the driver was asked");
    let mut program = with(Capabilities::DEFAULT);
    assert_eq!(
        program.try_call(&CONTROL, NV_ESC_RM_IDLE_CHANNELS, &[0; 56]),
        Err(Errno::EINVAL)
    );
    let record = program.accounting.noted_calls(GPU).next().expect("noted");
    assert_eq!(record.call.kind, CallKind::Escape);
    assert_eq!(record.call.reason, Reason::Capability(GRAPHICS));
}

/// Makes an object of class 0x3f on a client and a device; its status and limit.
fn registers(program: &mut Program, client: u32, device: u32, flags: u32) -> (u32, u64) {
    let mut outer = vec![0; 56];
    for (at, value) in [(0, client), (4, device), (8, 0x5c00_0100), (12, 0x3f)] {
        put32(&mut outer, at, value);
    }
    put32(&mut outer, 16, flags);
    let status = program.call(&GPU_NODE, NV_ESC_RM_ALLOC_MEMORY, &outer, 40);
    (status, get64(program.at(OUTER), 32))
}

#[test]
fn vulkans_unnamed_registers_are_not_made() {
    const NONE: u32 = 1 << 16;
    let mut program = with(GRAPHICS);
    let made = registers(&mut program, CLIENT, DEVICE, NONE);
    assert_eq!(made, (0, 0xffff_ffff));
    let name = (ClientHandle(CLIENT), ObjectHandle(0x5c00_0100));
    assert_eq!(program.accounting.kind_of(name.0, name.1), None);
    let status = |s: NvStatus| (s.0, 0);
    let foreign = status(NvStatus::NV_ERR_INVALID_OBJECT_HANDLE);
    assert_eq!(registers(&mut program, FOREIGN, DEVICE, NONE), foreign);
    let missing = status(NvStatus::NV_ERR_OBJECT_NOT_FOUND);
    assert_eq!(registers(&mut program, CLIENT, 0x77, NONE), missing);
    let flags = status(NvStatus::NV_ERR_INVALID_FLAGS);
    assert_eq!(registers(&mut program, CLIENT, DEVICE, 0), flags);
    assert!(program.seen.is_empty(), "the driver was asked");
    let mut program = with(Capabilities::DEFAULT);
    let refused = status(NvStatus::NV_ERR_INVALID_CLASS);
    assert_eq!(registers(&mut program, CLIENT, DEVICE, NONE), refused);
    let record = program.accounting.noted_calls(GPU).next().expect("noted");
    assert_eq!(record.call.kind, CallKind::Class);
    assert_eq!(record.call.reason, Reason::Capability(GRAPHICS));
}

#[test]
fn accounting_is_told_of_the_tenants_gpu_alone() {
    let mut program = with(UTILITY);
    // The driver takes any GPU's id.
    program.driver = Box::new(|parts| {
        put32(parts[1].bytes, 8, 1);
        0
    });
    let mut params = params_of(&program, ACCOUNTING_STATE);
    put32(&mut params, 0, 0x4242);
    control_of(&mut program, CLIENT, CLIENT, ACCOUNTING_STATE, &params);
    let asked = get32(&program.seen[0].parts[1], 0);
    assert_eq!(asked, crate::nvidia::names::GPU_ID_UNKNOWN);
    assert_eq!(
        get32(program.at(PARAMS), 0),
        0x4242,
        "the program's own word"
    );
}

#[test]
fn shared_data_is_polled_seldom() {
    const REQUEST_DATA_POLL: u32 = 0x00de_0001;
    const DATA: u32 = 0x5c00_0020;
    let mut program = with(UTILITY);
    let outer = nvos64(CLIENT, SUBDEVICE, DATA, 0xde, PARAMS);
    let mut params = words(8, &[(0, 0x3f)]);
    assert_eq!(program.alloc(&outer, &params), 0);
    assert_eq!(get64(&program.seen[0].parts[1], 0), 0, "nothing yet");
    assert_eq!(get64(program.at(PARAMS), 0), 0x3f);
    program.seen.clear();
    let mut ask = |program: &mut Program, mask| {
        put32(&mut params, 0, mask);
        control_of(program, CLIENT, DATA, REQUEST_DATA_POLL, &params)
    };
    // As nvidia-smi -q does.
    for mask in [0x20, 0x22, 0x26, 0x36, 0x3e, 0x3f] {
        assert_eq!(ask(&mut program, mask), 0);
    }
    assert_eq!(program.seen.len(), 6);
    let told: Vec<_> = (0..80).map(|mask| ask(&mut program, mask)).collect();
    let full = NvStatus::NV_ERR_INSUFFICIENT_RESOURCES.0;
    assert_eq!(told.iter().filter(|told| **told == 0).count(), 59);
    assert_eq!(told.last(), Some(&full));
    assert_eq!(program.seen.len(), 65);
    program.uptime_s += 1;
    assert_eq!(ask(&mut program, 0x3f), 0);
    let status = control_of(&mut program, CLIENT, SUBDEVICE, REQUEST_DATA_POLL, &params);
    assert_eq!(status, NvStatus::NV_ERR_NOT_SUPPORTED.0);
}
