// SPDX-License-Identifier: GPL-2.0
//! Calls by which NVIDIA's driver would end the host's kernel.

use super::*;
use crate::{
    nvidia::{
        capability::{
            Capabilities,
            GRAPHICS,
            PROFILING,
            VIDEO, //
        },
        handle::ControlCmd,
        params::kmb, //
    },
    uapi::Limited, //
};

/// A tenant with all capabilities that work on the GPU.
fn with_all() -> Program {
    let mut program = Program::with_subdevice(GIB);
    let all = Capabilities::DEFAULT.or(GRAPHICS).or(VIDEO).or(PROFILING);
    program.accounting.set_capabilities(GPU, all).unwrap();
    program.driver = Box::new(|_| 0);
    program
}

#[test]
fn size_of_an_absent_context_is_refused() {
    // NV2080_CTRL_CMD_FLCN_GET_CTX_BUFFER_SIZE.
    const COMMAND: u32 = 0x2080_3125;
    for branch in Branch::ALL {
        let mut program = with_all();
        program.branch = branch;
        let told = control(&mut program, CLIENT, COMMAND, &[0; 16]);
        assert_eq!(told, NvStatus::NV_ERR_NOT_SUPPORTED.0);
        assert!(program.seen.is_empty());
        let refused = (CallKind::Control, COMMAND, Reason::Unlisted);
        assert_eq!(noted(&program), [refused]);
    }
}

const REGISTER_VA_SPACE: u32 = 0x503c_0102;
const PEER: u32 = 0x5c00_0009;
const SPACE: u32 = 0x5c00_0010;

/// The same with memory for other devices and an address space.
fn with_peer() -> Program {
    let mut program = with_all();
    for (parent, handle, class, size) in [
        (SUBDEVICE, PEER, 0x503c, 4),
        (DEVICE, SPACE, 0x90f1, 56),
        (SUBDEVICE, PEER + 1, 0x503c, 4),
    ] {
        let outer = nvos64(CLIENT, parent, handle, class, PARAMS);
        assert_eq!(program.alloc(&outer, &vec![0; size]), 0, "{class:#x}");
    }
    assert_eq!(program.memory(SPACE + 1, MIB), 0);
    program.seen.clear();
    program
}

fn register(program: &mut Program, space: u32) -> u32 {
    let params = words(16, &[(0, space)]);
    control_of(program, CLIENT, PEER, REGISTER_VA_SPACE, &params)
}

#[test]
fn only_an_address_space_is_registered() {
    let mut program = with_peer();
    for space in [0, SPACE] {
        assert_eq!(register(&mut program, space), 0);
    }
    assert_eq!(program.seen.len(), 2);
    let wrong = NvStatus::NV_ERR_INVALID_PARAMETER.0;
    // Itself, one like it, what it is below of, memory.
    for object in [PEER, PEER + 1, SUBDEVICE, DEVICE, SPACE + 1] {
        assert_eq!(register(&mut program, object), wrong, "{object:#x}");
    }
    // Of the client nothing is known but that it is of no GPU.
    let device = NvStatus::NV_ERR_INVALID_DEVICE.0;
    assert_eq!(register(&mut program, CLIENT), device);
    let missing = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
    assert_eq!(register(&mut program, SPACE + 2), missing);
    assert_eq!(program.seen.len(), 2, "the driver was asked");
    let refused = (CallKind::Control, REGISTER_VA_SPACE, Reason::Parameters);
    assert_eq!(noted(&program), [refused]);
}

#[test]
fn registered_spaces_count_as_objects() {
    let mut program = with_peer();
    let objects = |program: &Program| {
        let limit = program.accounting.limit_of(GPU, Limited::Objects);
        limit.expect("there").used
    };
    let before = objects(&program);
    assert_eq!(register(&mut program, SPACE), 0);
    assert_eq!(register(&mut program, SPACE), 0);
    assert_eq!(objects(&program), before + 2);
    let set = program
        .accounting
        .set_limit_of(GPU, Limited::Objects, Some(before + 2));
    set.expect("there is such a share");
    let full = NvStatus::NV_ERR_INSUFFICIENT_RESOURCES.0;
    assert_eq!(register(&mut program, SPACE), full);
    assert_eq!(program.free(PEER), 0);
    assert_eq!(objects(&program), before - 1);
}

#[test]
fn keys_come_without_memory_for_statistics() {
    const GET_KMB: u32 = 0xc56f_010b;
    for branch in Branch::ALL {
        let mut program = with_peer();
        program.branch = branch;
        let entry = program.tables().control(ControlCmd(GET_KMB));
        let size = usize::try_from(entry.expect("listed").params).expect("small");
        let get = |program: &mut Program, params: &[u8]| {
            control_of(program, CLIENT, SUBDEVICE, GET_KMB, params)
        };
        assert_eq!(get(&mut program, &vec![0; size]), 0);
        assert_eq!(program.seen.len(), 1);
        // 535 has no place for it.
        let Some(at) = kmb::H_MEMORY
            .get(&vec![0; size])
            .map(|_| kmb::H_MEMORY.offset())
        else {
            assert_eq!(branch, Branch::R535);
            continue;
        };
        let refused = NvStatus::NV_ERR_INVALID_ARGUMENT.0;
        let params = words(size, &[(at, SPACE + 1)]);
        assert_eq!(get(&mut program, &params), refused);
        assert_eq!(program.seen.len(), 1, "the driver was asked");
    }
}
