// SPDX-License-Identifier: GPL-2.0
//! Controls that are answered and not forwarded.

use super::*;
use crate::policy::Boost;

const GROUP: u32 = 0x5c00_0020;
const SET_TIMESLICE: u32 = 0xa06c_0103;
const GET_TIMESLICE: u32 = 0xa06c_0104;
const PREEMPT: u32 = 0xa06c_0105;
const PERF_BOOST: u32 = 0x2080_200a;
/// `kfifoChannelGroupGetDefaultTimeslice_GV100()`.
const DEFAULT: u64 = 1024;

/// A program with one channel group, whose driver would refuse everything.
fn with_group() -> Program {
    let mut program = Program::with_subdevice(GIB);
    add_group(&mut program, GROUP);
    program.seen.clear();
    program.driver = Box::new(|_| -22);
    program
}

fn add_group(program: &mut Program, handle: u32) {
    program.driver = Box::new(|_| 0);
    let outer = nvos64(CLIENT, DEVICE, handle, 0xa06c, PARAMS);
    assert_eq!(program.alloc(&outer, &[0; 20]), 0);
}

fn timeslice(program: &mut Program, group: u32) -> u64 {
    assert_eq!(
        control_of(program, CLIENT, group, GET_TIMESLICE, &[0xee; 8]),
        0
    );
    get64(program.at(PARAMS), 0)
}

fn set_timeslice(program: &mut Program, group: u32, microseconds: u64) -> u32 {
    let params = microseconds.to_le_bytes();
    control_of(program, CLIENT, group, SET_TIMESLICE, &params)
}

#[test]
fn timeslice_is_remembered_without_the_driver() {
    let mut program = with_group();
    assert_eq!(timeslice(&mut program, GROUP), DEFAULT);
    assert_eq!(set_timeslice(&mut program, GROUP, 2048), 0);
    assert_eq!(get64(program.at(PARAMS), 0), 2048);
    assert_eq!(timeslice(&mut program, GROUP), 2048);
    assert_eq!(set_timeslice(&mut program, GROUP, 1_000_000), 0);
    assert_eq!(timeslice(&mut program, GROUP), 1_000_000);
    assert!(program.seen.is_empty());
}

#[test]
fn new_group_has_the_default_timeslice() {
    let mut program = with_group();
    add_group(&mut program, GROUP + 1);
    assert_eq!(set_timeslice(&mut program, GROUP, 5000), 0);
    assert_eq!(timeslice(&mut program, GROUP + 1), DEFAULT);
    program.accounting.free(
        crate::nvidia::handle::ClientHandle(CLIENT),
        crate::nvidia::handle::ObjectHandle(GROUP),
    );
    add_group(&mut program, GROUP);
    assert_eq!(timeslice(&mut program, GROUP), DEFAULT);
}

#[test]
fn preempting_and_boosting_are_answered_as_recorded() {
    let mut program = with_group();
    let wait = [1, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(control_of(&mut program, CLIENT, GROUP, PREEMPT, &wait), 0);
    // CMD_BOOST_TO_MAX for CUDA without an end, and its CMD_CLEAR.
    let boost = [0x12, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(control(&mut program, CLIENT, PERF_BOOST, &boost), 0);
    let clear = [0x10, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(control(&mut program, CLIENT, PERF_BOOST, &clear), 0);
    assert_eq!(program.at(PARAMS), clear);
    assert!(program.seen.is_empty());
}

#[test]
fn boost_lasts_until_cleared_or_over() {
    let mut program = with_group();
    assert_eq!(program.accounting.boost(GPU), Boost::OFF);
    let ask = |program: &mut Program, flags: u32, seconds: u32| {
        let params = words(8, &[(0, flags), (4, seconds)]);
        assert_eq!(control(program, CLIENT, PERF_BOOST, &params), 0);
        program.accounting.boost(GPU)
    };
    // As CUDA asks and clears, and as Vulkan asks; and one level.
    assert_eq!(ask(&mut program, 0x12, u32::MAX), Boost::ENDLESS);
    assert_eq!(ask(&mut program, 0x10, 0), Boost::OFF);
    assert_eq!(ask(&mut program, 2, 2), Boost::until(1002));
    program.uptime_s += 1;
    assert_eq!(ask(&mut program, 1, 3600), Boost::until(4601));
    assert!(program.seen.is_empty());
    // A refused call changes nothing.
    assert_eq!(
        control(&mut program, CLIENT, PERF_BOOST, &[3; 8]),
        NvStatus::NV_ERR_INVALID_ARGUMENT.0
    );
    assert_eq!(program.accounting.boost(GPU), Boost::until(4601));
}

#[test]
fn clock_limits_and_finer_timestamps_are_answered() {
    let mut program = with_group();
    let (limit, tick) = (0x0080_1909, 0x2080_0407);
    assert_eq!(control_of(&mut program, CLIENT, DEVICE, limit, &[1]), 0);
    assert_eq!(control(&mut program, CLIENT, tick, &[1]), 0);
    assert!(program.seen.is_empty());
    let other = NvStatus::NV_ERR_NOT_SUPPORTED.0;
    assert_eq!(control(&mut program, CLIENT, limit, &[1]), other);
    assert_eq!(control_of(&mut program, CLIENT, DEVICE, tick, &[1]), other);
}

#[test]
fn only_channel_groups_have_timeslices() {
    let mut program = with_group();
    let not_supported = NvStatus::NV_ERR_NOT_SUPPORTED.0;
    assert_eq!(set_timeslice(&mut program, SUBDEVICE, 2048), not_supported);
    let params = [0; 8];
    for cmd in [GET_TIMESLICE, PREEMPT] {
        let status = control_of(&mut program, CLIENT, SUBDEVICE, cmd, &params);
        assert_eq!(status, not_supported);
    }
    let status = control_of(&mut program, CLIENT, GROUP, PERF_BOOST, &params);
    assert_eq!(status, not_supported);
}

#[test]
fn missing_object_has_no_timeslice() {
    let mut program = with_group();
    let status = set_timeslice(&mut program, GROUP + 1, 2048);
    assert_eq!(status, NvStatus::NV_ERR_OBJECT_NOT_FOUND.0);
}

#[test]
fn a_timeslice_of_the_wrong_size_is_refused() {
    let mut program = with_group();
    let status = control_of(&mut program, CLIENT, GROUP, SET_TIMESLICE, &[0; 4]);
    assert_eq!(status, NvStatus::NV_ERR_INVALID_ARGUMENT.0);
    assert_eq!(timeslice(&mut program, GROUP), DEFAULT);
}

#[test]
fn preemption_wait_over_a_second_is_refused() {
    let mut program = with_group();
    for (timeout, expected) in [
        (1_000_000u32, 0),
        (1_000_001, NvStatus::NV_ERR_INVALID_ARGUMENT.0),
    ] {
        let mut params = [0; 8];
        params[1] = 1;
        put32(&mut params, 4, timeout);
        let status = control_of(&mut program, CLIENT, GROUP, PREEMPT, &params);
        assert_eq!(status, expected, "{timeout}");
    }
}

#[test]
fn a_boost_without_a_meaning_is_refused() {
    let mut program = with_group();
    for (flags, duration, expected) in [
        (2, 3600, 0),
        (3, 3600, NvStatus::NV_ERR_INVALID_ARGUMENT.0),
        (2, 3601, NvStatus::NV_ERR_INVALID_ARGUMENT.0),
    ] {
        let params = words(8, &[(0, flags), (4, duration)]);
        let status = control(&mut program, CLIENT, PERF_BOOST, &params);
        assert_eq!(status, expected, "{flags} for {duration} s");
    }
}

#[test]
fn scheduling_that_cuda_does_not_need_is_refused() {
    let mut program = with_group();
    // SET_INTERLEAVE_LEVEL of groups and channels, MAKE_REALTIME, RESTART_RUNLIST, STOP_CHANNEL,
    // IDLE_CHANNELS, SET_CHANNEL_PROPERTIES, RUNLIST_SET_SCHED_POLICY, DISABLE_USERMODE_CHANNELS.
    for cmd in [
        0xa06c_0107,
        0xa06f_0109,
        0xa06c_0110,
        0xa06f_0111,
        0xa06f_0112,
        0x0080_1714,
        0x0080_170f,
        0x2080_1115,
        0x2080_1117,
    ] {
        let status = control_of(&mut program, CLIENT, GROUP, cmd, &[0; 8]);
        assert_eq!(status, NvStatus::NV_ERR_NOT_SUPPORTED.0, "{cmd:#x}");
    }
    assert!(program.seen.is_empty());
}

#[test]
fn reserving_the_gpu_keeps_nobody_out() {
    let mut program = with_group();
    for cmd in [0x2080_0145, 0x2080_0146] {
        assert_eq!(control(&mut program, CLIENT, cmd, &[]), 0);
        let status = control_of(&mut program, CLIENT, GROUP, cmd, &[]);
        assert_eq!(status, NvStatus::NV_ERR_NOT_SUPPORTED.0);
    }
    assert!(program.seen.is_empty());
}

#[test]
fn channels_go_on_the_runlist_as_a_whole() {
    let mut program = with_group();
    program.driver = Box::new(|_| 0);
    let schedule = |program: &mut Program, params: [u8; 3]| {
        control_of(program, CLIENT, GROUP, 0xa06c_0101, &params)
    };
    // As recorded, and off again.
    assert_eq!(schedule(&mut program, [1, 0, 0]), 0);
    assert_eq!(schedule(&mut program, [0, 0, 0]), 0);
    assert_eq!(program.seen.len(), 2);
    for params in [[1, 1, 0], [1, 0, 1]] {
        let status = schedule(&mut program, params);
        assert_eq!(status, NvStatus::NV_ERR_INVALID_ARGUMENT.0, "{params:?}");
    }
    assert_eq!(program.seen.len(), 2);
}

#[test]
fn only_the_drivers_own_refusals_are_told() {
    let mut program = with_group();
    // Answered without the driver, and refused without it.
    assert_eq!(set_timeslice(&mut program, GROUP, 2048), 0);
    let unknown = control_of(&mut program, CLIENT, GROUP, 0x2080_7777, &[]);
    assert_eq!(unknown, NvStatus::NV_ERR_NOT_SUPPORTED.0);
    add_group(&mut program, GROUP + 1);
    assert_eq!(program.refused, 0);
    let refusal = NvStatus::NV_ERR_INVALID_ARGUMENT.0;
    program.driver = Box::new(move |parts| {
        // Not of the RM_FREE that follows.
        if parts[0].bytes.len() == 48 {
            put32(parts[0].bytes, 40, refusal);
        }
        0
    });
    let outer = nvos64(CLIENT, DEVICE, GROUP + 2, 0xa06c, PARAMS);
    assert_eq!(program.alloc(&outer, &[0; 20]), refusal);
    assert_eq!(program.refused, 1);
}

#[test]
fn refusals_without_a_place_for_answers_are_told() {
    let mut program = with_group();
    let refusal = NvStatus::NV_ERR_INVALID_ARGUMENT.0;
    for returned in [0, -22] {
        program.driver = Box::new(move |parts| {
            match parts[0].bytes.len() {
                48 => put32(parts[0].bytes, 40, refusal),
                32 => put32(parts[0].bytes, 28, refusal),
                // The RM_FREE that follows.
                _ => return 0,
            }
            returned
        });
        program.read_only = Some(PARAMS);
        program.refused = 0;
        program.put(PARAMS, &[0; 20]);
        let alloc = nvos64(CLIENT, DEVICE, GROUP + 2, 0xa06c, PARAMS);
        let at = program.put(OUTER, &alloc);
        let told = ioctl(&mut program, &CONTROL, NV_ESC_RM_ALLOC, at);
        let fails = if returned == 0 {
            Err(Errno::EFAULT)
        } else {
            Ok(returned)
        };
        assert_eq!(told, fails);
        assert_eq!(program.refused, 1);
        // NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, off.
        program.put(PARAMS, &[0; 3]);
        let mut control = words(32, &[(0, CLIENT), (4, GROUP), (8, 0xa06c_0101), (24, 3)]);
        put64(&mut control, 16, PARAMS);
        let at = program.put(OUTER, &control);
        let told = ioctl(&mut program, &CONTROL, NV_ESC_RM_CONTROL, at);
        assert_eq!(told, fails);
        assert_eq!(program.refused, 2);
    }
}
