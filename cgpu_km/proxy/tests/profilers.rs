// SPDX-License-Identifier: GPL-2.0
//! Streams of profilers, and what a profiler binds.

use super::*;
use crate::{
    nvidia::{
        capability::{
            Capabilities,
            PROFILING, //
        },
        handle::ObjectHandle, //
    },
    policy::{
        RefusalCause,
        StreamPart, //
    }, //
};

const PROFILER: u32 = 0x5c00_0100;
const RECORDS: u32 = 0x5c00_0110;
const COUNT: u32 = 0x5c00_0111;
const STREAM: u32 = 0xb0cc_0105;
const BIND: u32 = 0xb0cc_0107;
const NOTHING_THERE: u32 = NvStatus::NV_ERR_INVALID_STATE.0;

/// A tenant that may profile, with a profiler of its GPU.
fn with_profiler() -> Program {
    let mut program = Program::with_subdevice(GIB);
    let all = Capabilities::DEFAULT.or(PROFILING);
    program.accounting.set_capabilities(GPU, all).unwrap();
    program.driver = Box::new(|_| 0);
    for memory in [RECORDS, COUNT] {
        assert_eq!(program.memory(memory, 4096), 0);
    }
    make_profiler(&mut program);
    program
}

fn make_profiler(program: &mut Program) {
    let outer = nvos64(CLIENT, SUBDEVICE, PROFILER, 0xb2cc, PARAMS);
    assert_eq!(program.alloc(&outer, &[0; 8]), 0);
}

fn stream(program: &mut Program) -> u32 {
    let params = words(56, &[(0, RECORDS), (24, COUNT)]);
    control_of(program, CLIENT, PROFILER, STREAM, &params)
}

fn bind(program: &mut Program) -> u32 {
    control_of(program, CLIENT, PROFILER, BIND, &[])
}

#[test]
fn nothing_is_bound_after_a_failed_stream() {
    let mut program = with_profiler();
    // A profiler without a stream binds its counters.
    assert_eq!(bind(&mut program), 0);
    // The driver refuses, and another thread writes that it has not.
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 28, NvStatus::NV_ERR_NO_MEMORY.0);
        0
    });
    program.forged = Some(NvStatus::NV_OK);
    stream(&mut program);
    program.forged = None;
    program.driver = Box::new(|_| 0);
    program.seen.clear();
    assert_eq!(bind(&mut program), NOTHING_THERE);
    assert!(program.seen.is_empty(), "the driver was asked");
    // The next one is made, and that is the one that is bound, whatever fails later.
    assert_eq!(stream(&mut program), 0);
    assert_eq!(bind(&mut program), 0);
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 28, NvStatus::NV_ERR_NO_MEMORY.0);
        0
    });
    assert_ne!(stream(&mut program), 0);
    program.driver = Box::new(|_| 0);
    assert_eq!(bind(&mut program), 0);
    // With a profiler its streams go.
    assert_eq!(program.free(PROFILER), 0);
    make_profiler(&mut program);
    assert_eq!(bind(&mut program), 0);
}

#[test]
fn streams_are_asked_for_with_memory() {
    let mut program = with_profiler();
    program.seen.clear();
    for (records, count) in [(0, COUNT), (RECORDS, 0), (PROFILER, COUNT)] {
        let params = words(56, &[(0, records), (24, count)]);
        let status = control_of(&mut program, CLIENT, PROFILER, STREAM, &params);
        assert_ne!(status, 0, "{records:#x} {count:#x}");
    }
    assert!(program.seen.is_empty(), "the driver was asked");
    assert_eq!(bind(&mut program), 0);
}

#[test]
fn streams_stay_in_their_memory() {
    // Offset and size of the records, and the offset of their count.
    for (records, count, is_allowed) in [
        ((0, 4096), 0, true),
        ((4000, 96), 0, true),
        ((0, 4097), 0, false),
        ((1, 4096), 0, false),
        ((u32::MAX, u32::MAX), 0, false),
        ((0, 4096), 1, false),
    ] {
        let mut program = with_profiler();
        program.seen.clear();
        let places = [(8, records.0), (16, records.1), (32, count)];
        let params = words(56, &[&[(0, RECORDS), (24, COUNT)], &places[..]].concat());
        let status = control_of(&mut program, CLIENT, PROFILER, STREAM, &params);
        assert_eq!(status == 0, is_allowed, "{records:?} {count}");
        assert_eq!(program.seen.is_empty(), !is_allowed);
    }
    // An end beyond all addresses.
    let mut program = with_profiler();
    program.seen.clear();
    let end = [(8, u32::MAX), (12, u32::MAX), (16, 4096)];
    let params = words(56, &[&[(0, RECORDS), (24, COUNT)], &end[..]].concat());
    let status = control_of(&mut program, CLIENT, PROFILER, STREAM, &params);
    assert_eq!(status, NvStatus::NV_ERR_INVALID_ARGUMENT.0);
    assert!(program.seen.is_empty());
}

#[test]
fn streams_are_of_the_profilers_gpu() {
    const THERE: u32 = 0x5c00_0040;
    const MEMORY_THERE: u32 = 0x5c00_0041;
    let mut program = with_profiler();
    program.add_device_of_other_gpu(THERE);
    let memory = words(128, &[(4, 13), (64, 4096)]);
    let outer = nvos64(CLIENT, THERE, MEMORY_THERE, 0x40, PARAMS);
    assert_eq!(program.alloc(&outer, &memory), 0);
    program.seen.clear();
    for (records, count) in [(MEMORY_THERE, COUNT), (RECORDS, MEMORY_THERE)] {
        let params = words(56, &[(0, records), (16, 4096), (24, count)]);
        let status = control_of(&mut program, CLIENT, PROFILER, STREAM, &params);
        assert_eq!(status, NvStatus::NV_ERR_INVALID_DEVICE.0);
    }
    assert!(program.seen.is_empty(), "the driver was asked");
}

#[test]
fn streams_and_binding_exclude_each_other() {
    let mut program = with_profiler();
    let accounting = &mut program.accounting;
    let (client, profiler) = (ClientHandle(CLIENT), ObjectHandle(PROFILER));
    let memory = [RECORDS, COUNT].map(|memory| StreamPart {
        memory: ObjectHandle(memory),
        offset: 0,
        size: 4096,
    });
    let busy = Some(RefusalCause::UnmadeStream);
    let asked = accounting.begin_stream(client, profiler, memory).unwrap();
    let refused = accounting.begin_bind_streams(client, profiler);
    assert_eq!(refused.err(), busy);
    accounting.end_profiler_call(asked, true);
    // There is one that can be bound: the order of others does not matter.
    let bound = accounting.begin_bind_streams(client, profiler).unwrap();
    let asked = accounting.begin_stream(client, profiler, memory).unwrap();
    accounting.end_profiler_call(asked, false);
    accounting.end_profiler_call(bound, true);
    assert_eq!(program.free(PROFILER), 0);
    make_profiler(&mut program);
    let accounting = &mut program.accounting;
    let bound = accounting.begin_bind_streams(client, profiler).unwrap();
    let refused = accounting.begin_stream(client, profiler, memory);
    assert_eq!(refused.err(), busy);
    accounting.end_profiler_call(bound, true);
    let other = accounting.begin_bind_streams(client, ObjectHandle(SUBDEVICE));
    assert_eq!(other.err(), Some(RefusalCause::WrongClass));
}
