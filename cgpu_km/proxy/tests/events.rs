// SPDX-License-Identifier: GPL-2.0
//! Which events a program may ask for.

use super::*;
use crate::nvidia::handle::ObjectHandle;

const EVENT: u32 = 0x5c00_0040;
const OTHER: u32 = 0x5c00_0041;
/// As CUDA asks for the graphics engine's.
const ENGINE: u32 = 0x3800_000c;
/// NV2080_NOTIFIERS_RC_ERROR.
const CRASH: u32 = 0x25;

/// Asks for an event below `parent`, of an object that the parameters name.
fn event(program: &mut Program, parent: u32, (client, object): (u32, u32), index: u32) -> u32 {
    let params = words(24, &[(0, client), (4, object), (8, 0x79), (12, index)]);
    let outer = nvos64(CLIENT, parent, EVENT, 0x79, PARAMS);
    let status = program.alloc(&outer, &params);
    if status == 0 {
        program
            .accounting
            .free(ClientHandle(CLIENT), ObjectHandle(EVENT));
    }
    status
}

#[test]
fn events_of_a_subdevice_are_those_of_engines() {
    let mut program = Program::with_subdevice(GIB);
    let refused = NvStatus::NV_ERR_NOT_SUPPORTED.0;
    let own = (CLIENT, 0);
    assert_eq!(event(&mut program, SUBDEVICE, own, ENGINE), 0);
    assert_eq!(event(&mut program, SUBDEVICE, own, CRASH), refused);
    assert_eq!(event(&mut program, DEVICE, own, ENGINE), refused);
    assert_eq!(event(&mut program, CLIENT, own, 0), refused);
    let noted = noted(&program);
    assert!(noted.iter().all(|(_, _, why)| *why == Reason::Parameters));
}

/// The driver would keep data of each event, which no container can fetch.
#[test]
fn an_event_comes_without_data() {
    const WITH_DATA: u32 = 0x2800_000c;
    let mut program = Program::with_subdevice(GIB);
    program.seen.clear();
    let own = (CLIENT, 0);
    assert_eq!(event(&mut program, SUBDEVICE, own, WITH_DATA), 0);
    assert_eq!(get32(&program.seen[0].parts[1], 12), ENGINE);
    assert_eq!(get32(program.at(PARAMS), 12), WITH_DATA, "its own word");
}

#[test]
fn an_event_is_one_of_its_parent() {
    let mut program = Program::with_subdevice(GIB);
    let refused = NvStatus::NV_ERR_NOT_SUPPORTED.0;
    let other = nvos64(CLIENT, DEVICE, OTHER, 0x90f1, PARAMS);
    assert_eq!(program.alloc(&other, &[0; 56]), 0);
    for (of, status) in [
        ((0, 0), 0),
        ((CLIENT, OTHER), 0),
        ((CLIENT, SUBDEVICE), refused),
    ] {
        assert_eq!(event(&mut program, OTHER, of, 1), status, "{of:?}");
    }
}
