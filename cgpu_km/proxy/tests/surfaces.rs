// SPDX-License-Identifier: GPL-2.0
//! Surfaces of semaphores, and what the driver keeps with them.

use super::*;
use crate::{
    nvidia::{
        capability::{
            Capabilities,
            GRAPHICS, //
        },
        class,
        handle::{
            ClassId,
            ControlCmd, //
        }, //
    },
    uapi::Limited, //
};

const SURFACE: u32 = 0x5c00_0100;
const QUEUE: u32 = 0x5c00_0101;
const VIDEO: u32 = 0x5c00_0110;
const SYSTEM: u32 = 0x5c00_0111;
const NV01_MEMORY_SYSTEM: u32 = class::NV01_MEMORY_SYSTEM.0;
const NV_SEMAPHORE_SURFACE: u32 = 0xda;
const NV_MEMORY_MAPPER: u32 = 0xfe;
/// `NV_SEMAPHORE_SURFACE_CTRL_CMD_BIND_CHANNEL` and `_UNBIND_CHANNEL`.
const BIND: u32 = 0xda_0002;
const UNBIND: u32 = 0xda_0006;
/// Host memory (`NVOS32_ATTR_LOCATION_PCI`) that is cached, in pages of 4 KiB.
const HOST_ATTR: u32 = 1 << 25 | 1 << 29 | 1 << 23;
/// The status of a call that the driver has carried out.
const OK: u32 = NvStatus::NV_OK.0;
/// A record of the channel and eight events.
const RECORDS: u64 = 9;

/// A tenant that may have graphics, with a piece of video memory, one of host memory, and a surface
/// over the first.
fn with_surface(branch: Branch) -> Program {
    let mut program = Program::with_subdevice(GIB);
    program.branch = branch;
    let all = Capabilities::DEFAULT.or(GRAPHICS);
    program.accounting.set_capabilities(GPU, all).unwrap();
    program.driver = Box::new(|_| 0);
    assert_eq!(program.memory(VIDEO, 4096), OK);
    assert_eq!(host_memory(&mut program, DEVICE, SYSTEM), OK);
    let outer = nvos64(CLIENT, SUBDEVICE, SURFACE, NV_SEMAPHORE_SURFACE, PARAMS);
    assert_eq!(program.alloc(&outer, &words(16, &[(0, VIDEO)])), OK);
    program.seen.clear();
    program
}

/// Allocates a page of host memory.
fn host_memory(program: &mut Program, device: u32, memory: u32) -> u32 {
    let mut params = words(128, &[(24, HOST_ATTR)]);
    put64(&mut params, 64, 4096);
    let outer = nvos64(CLIENT, device, memory, NV01_MEMORY_SYSTEM, PARAMS);
    program.alloc(&outer, &params)
}

/// Makes a queue of operations with a surface, and memory for its notes.
fn queue(program: &mut Program, surface: u32, notes: u32) -> u32 {
    queue_of(program, SUBDEVICE, surface, notes)
}

/// As [`queue`], on a GPU of choice.
fn queue_of(program: &mut Program, subdevice: u32, surface: u32, notes: u32) -> u32 {
    let class = program.tables().class(ClassId(NV_MEMORY_MAPPER));
    let size = class.expect("listed").params;
    let mut params = vec![0; usize::try_from(size).expect("small")];
    put32(&mut params, 0, surface);
    put32(&mut params, 4, 1);
    if params.len() > 8 {
        put32(&mut params, 8, notes);
    }
    let outer = nvos64(CLIENT, subdevice, QUEUE, NV_MEMORY_MAPPER, PARAMS);
    program.alloc(&outer, &params)
}

#[test]
fn queue_keeps_what_its_surface_costs() {
    for branch in [Branch::R550, Branch::R570, Branch::R580, Branch::R595] {
        let mut program = with_surface(branch);
        let before = program.used();
        assert_eq!(queue(&mut program, SURFACE, SYSTEM), OK, "{branch:?}");
        assert_eq!(program.free(SURFACE), OK);
        assert_eq!(program.used(), before, "{branch:?}");
        assert_eq!(program.free(QUEUE), OK);
        assert!(program.used() < before);
    }
}

/// As the recorded Vulkan program has it on a host with two GPUs.
#[test]
fn queue_of_second_gpu_takes_a_surface() {
    const OTHER_DEVICE: u32 = 0x5c00_0200;
    const OTHER_SUBDEVICE: u32 = 0x5c00_0201;
    const OTHER_MEMORY: u32 = 0x5c00_0202;
    let mut program = with_surface(Branch::R580);
    program.add_device_of_other_gpu(OTHER_DEVICE);
    let all = Capabilities::DEFAULT.or(GRAPHICS);
    program.accounting.set_capabilities(OTHER_GPU, all).unwrap();
    let outer = nvos64(CLIENT, OTHER_DEVICE, OTHER_SUBDEVICE, 0x2080, PARAMS);
    assert_eq!(program.alloc(&outer, &[0; 4]), OK);
    assert_eq!(host_memory(&mut program, OTHER_DEVICE, OTHER_MEMORY), OK);
    let before = program.used();
    let status = queue_of(&mut program, OTHER_SUBDEVICE, SURFACE, OTHER_MEMORY);
    assert_eq!(status, OK);
    // The surface's memory stays the first GPU's while the queue has it.
    assert_eq!(program.free(SURFACE), OK);
    assert_eq!(program.used(), before);
    assert_eq!(program.free(QUEUE), OK);
    assert!(program.used() < before);
}

#[test]
fn queue_names_a_surface_and_host_memory() {
    for branch in [Branch::R570, Branch::R580, Branch::R595] {
        let mut program = with_surface(branch);
        for (surface, notes) in [
            (VIDEO, SYSTEM),
            (SUBDEVICE, SYSTEM),
            (SURFACE + 9, SYSTEM),
            (SURFACE, VIDEO),
            (SURFACE, SURFACE),
            (SURFACE, SYSTEM + 9),
        ] {
            let status = queue(&mut program, surface, notes);
            assert_ne!(status, OK, "{surface:#x} {notes:#x}");
        }
        assert!(program.seen.is_empty(), "the driver was asked");
    }
}

/// Binds a channel to the surface, or takes that back.
fn bind(program: &mut Program, command: u32) -> u32 {
    let entry = program.tables().control(ControlCmd(command));
    let size = usize::try_from(entry.expect("listed").params).expect("small");
    control_of(program, CLIENT, SURFACE, command, &vec![0; size])
}

fn objects(program: &Program) -> u64 {
    let limit = program.accounting.limit_of(GPU, Limited::Objects);
    limit.expect("there").used
}

#[test]
fn bound_channels_count_as_objects() {
    let mut program = with_surface(Branch::R580);
    let before = objects(&program);
    for count in 1..3 {
        assert_eq!(bind(&mut program, BIND), OK);
        assert_eq!(objects(&program), before + count * RECORDS);
    }
    assert_eq!(bind(&mut program, UNBIND), OK);
    assert_eq!(objects(&program), before + RECORDS);
    // A call that the driver refuses changes nothing.
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 28, NvStatus::NV_ERR_INVALID_ARGUMENT.0);
        0
    });
    for command in [BIND, UNBIND] {
        assert_ne!(bind(&mut program, command), OK);
        assert_eq!(objects(&program), before + RECORDS);
    }
    program.driver = Box::new(|_| 0);
    let limit = Some(before + 2 * RECORDS - 1);
    let set = program
        .accounting
        .set_limit_of(GPU, Limited::Objects, limit);
    set.expect("there is such a share");
    let full = NvStatus::NV_ERR_INSUFFICIENT_RESOURCES.0;
    assert_eq!(bind(&mut program, BIND), full);
    // With the surface goes its own record, which `before` counts.
    assert_eq!(program.free(SURFACE), OK);
    assert_eq!(objects(&program), before - 1);
}

#[test]
fn forged_answer_lowers_no_count() {
    let mut program = with_surface(Branch::R580);
    let before = objects(&program);
    // The driver binds it, and another thread writes that it has not.
    program.forged = Some(NvStatus::NV_ERR_NO_MEMORY);
    bind(&mut program, BIND);
    assert_eq!(objects(&program), before + RECORDS);
    // The driver does not take it back, and another thread writes that it has.
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 28, NvStatus::NV_ERR_INVALID_OBJECT.0);
        0
    });
    program.forged = Some(NvStatus::NV_OK);
    bind(&mut program, UNBIND);
    assert_eq!(objects(&program), before + RECORDS);
}
