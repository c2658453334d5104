// SPDX-License-Identifier: GPL-2.0
//! Compute work can be taken off the GPU at any instruction, whatever the program asks for.

use super::*;
use crate::nvidia::{
    capability::{
        COMPUTE,
        GRAPHICS, //
    },
    handle::ClassId, //
};

const GROUP: u32 = 0x5c00_0020;
const CHANNEL: u32 = 0x5c00_0021;
const OBJECT: u32 = 0x5c00_0022;
const HOPPER_COMPUTE_A: u32 = 0xcbc0;
const HOPPER_A: u32 = 0xcb97;
const SET_MODE: u32 = 0x2080_1210;
const SCHEDULE_GROUP: u32 = 0xa06c_0101;
const SCHEDULE_CHANNEL: u32 = 0xa06f_0103;
const WFI: u32 = 0;
const CTA: u32 = 1;
const CILP: u32 = 2;
/// Offset of the mode in a control's parameters.
const MODE: usize = 12;

/// A program with a group and a channel in it.
fn with_channel() -> Program {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    let group = nvos64(CLIENT, DEVICE, GROUP, 0xa06c, PARAMS);
    assert_eq!(program.alloc(&group, &[0; 20]), 0);
    add_channel(&mut program, GROUP, CHANNEL);
    program.seen.clear();
    program
}

fn add_channel(program: &mut Program, parent: u32, handle: u32) {
    let class = 0xc86f;
    let size = program
        .tables()
        .class(ClassId(class))
        .map(|entry| entry.params);
    let size = usize::try_from(size.expect("a channel's class")).expect("small");
    let outer = nvos64(CLIENT, parent, handle, class, PARAMS);
    assert_eq!(program.alloc(&outer, &vec![0; size]), 0);
}

fn add_object(program: &mut Program, channel: u32, handle: u32) -> u32 {
    let outer = nvos64(CLIENT, channel, handle, HOPPER_COMPUTE_A, PARAMS);
    program.alloc(&outer, &[0; 16])
}

/// Sets a mode as a program does: which flags it has, and the mode for compute.
fn set_mode(program: &mut Program, flags: u32, mode: u32) -> u32 {
    let mut params = [0; 32];
    put32(&mut params, 0, flags);
    put32(&mut params, 4, GROUP);
    put32(&mut params, MODE, mode);
    control(program, CLIENT, SET_MODE, &params)
}

fn schedule(program: &mut Program, object: u32, cmd: u32) -> u32 {
    control_of(program, CLIENT, object, cmd, &[1, 0, 0])
}

/// The channels and modes that the driver was told of, all of them where no program sees it.
fn told(program: &Program) -> Vec<(u32, u32)> {
    let is_mode =
        |seen: &&Seen| seen.request == NV_ESC_RM_CONTROL && get32(&seen.parts[0], 8) == SET_MODE;
    let calls = program.seen.iter().filter(is_mode);
    let told = calls.map(|seen| {
        assert_eq!(seen.route, Route::Unseen);
        assert_eq!(get32(&seen.parts[0], 4), SUBDEVICE);
        (get32(&seen.parts[1], 4), get32(&seen.parts[1], MODE))
    });
    told.collect()
}

#[test]
fn other_mode_becomes_cilp_unseen() {
    for (flags, mode, wanted) in [
        (1, WFI, CILP),
        (3, CTA, CILP),
        (1, CILP, CILP),
        (2, CTA, CTA),
    ] {
        let mut program = with_channel();
        assert_eq!(set_mode(&mut program, flags, mode), 0);
        assert_eq!(told(&program), [(GROUP, wanted)]);
        assert_eq!(get32(program.at(PARAMS), MODE), mode, "as it was asked for");
    }
}

#[test]
fn first_object_makes_its_group_preemptible() {
    let mut program = with_channel();
    add_channel(&mut program, GROUP, CHANNEL + 0x100);
    assert_eq!(add_object(&mut program, CHANNEL, OBJECT), 0);
    assert_eq!(told(&program), [(GROUP, CILP)]);
    assert_eq!(add_object(&mut program, CHANNEL + 0x100, OBJECT + 1), 0);
    assert_eq!(told(&program).len(), 1);
    // A context may go with any object, and comes again with the next.
    assert_eq!(believed::free(&mut program, &CONTROL, OBJECT), 0);
    assert_eq!(add_object(&mut program, CHANNEL, OBJECT + 2), 0);
    assert_eq!(told(&program).len(), 2);
}

#[test]
fn lone_channel_is_made_preemptible() {
    let mut program = with_channel();
    add_channel(&mut program, DEVICE, CHANNEL + 0x100);
    assert_eq!(add_object(&mut program, CHANNEL + 0x100, OBJECT), 0);
    assert_eq!(told(&program), [(CHANNEL + 0x100, CILP)]);
}

#[test]
fn nothing_runs_before_it_is_preemptible() {
    for (object, cmd) in [(GROUP, SCHEDULE_GROUP), (CHANNEL, SCHEDULE_CHANNEL)] {
        let mut program = with_channel();
        assert_eq!(schedule(&mut program, object, cmd), 0);
        let refused = NvStatus::NV_ERR_INVALID_STATE.0;
        assert_eq!(add_object(&mut program, CHANNEL, OBJECT), refused);
        let reason = Reason::Parameters;
        assert_eq!(
            noted(&program),
            [(CallKind::Class, HOPPER_COMPUTE_A, reason)]
        );
        // Vulkan makes its objects on channels that are on the runlist.
        program
            .accounting
            .set_capabilities(GPU, GRAPHICS.or(COMPUTE))
            .unwrap();
        let outer = nvos64(CLIENT, CHANNEL, OBJECT, HOPPER_A, 0);
        assert_eq!(program.alloc(&outer, &[]), 0);
        assert_eq!(told(&program), [(GROUP, CILP)]);
    }
    // CUDA's order.
    let mut program = with_channel();
    assert_eq!(add_object(&mut program, CHANNEL, OBJECT), 0);
    assert_eq!(schedule(&mut program, GROUP, SCHEDULE_GROUP), 0);
    add_channel(&mut program, GROUP, CHANNEL + 0x100);
    assert_eq!(add_object(&mut program, CHANNEL + 0x100, OBJECT + 1), 0);
}

#[test]
fn unsettable_mode_fails_for_programs_fault_alone() {
    let with_status = |status: NvStatus| {
        let mut program = with_channel();
        program.driver = Box::new(move |parts| {
            if get32(parts[0].bytes, 8) == SET_MODE {
                put32(parts[0].bytes, 28, status.0);
            }
            0
        });
        program
    };
    // The GPU cannot, or not at this moment.
    for status in [
        NvStatus::NV_ERR_NOT_SUPPORTED,
        NvStatus::NV_ERR_INVALID_STATE,
    ] {
        let mut program = with_status(status);
        assert_eq!(add_object(&mut program, CHANNEL, OBJECT), 0);
        assert_eq!(program.seen.len(), 2);
    }
    // The subdevice was freed by another thread.
    let gone = NvStatus::NV_ERR_OBJECT_NOT_FOUND;
    let mut program = with_status(gone);
    assert_eq!(add_object(&mut program, CHANNEL, OBJECT), gone.0);
    let last = program.seen.last().expect("a call");
    assert_eq!(
        (last.request, get32(&last.parts[0], 8)),
        (NV_ESC_RM_FREE, OBJECT)
    );
    // There is none.
    let mut program = with_channel();
    assert_eq!(believed::free(&mut program, &CONTROL, SUBDEVICE), 0);
    program.seen.clear();
    let refused = NvStatus::NV_ERR_INVALID_STATE.0;
    assert_eq!(add_object(&mut program, CHANNEL, OBJECT), refused);
    assert!(program.seen.is_empty(), "the driver was asked");
}
