// SPDX-License-Identifier: GPL-2.0
//! Channels that UVM keeps: what stays charged, and what is asked of the driver to be certain.

use super::*;

const GROUP: u32 = 0x5c00_0020;
const CHANNEL: u32 = 0x5c00_0021;
const REGISTER: u32 = 27;
const UNREGISTER: u32 = 28;
const UNREGISTER_VA_SPACE: u32 = 26;
/// A context and its channel, in bytes.
const COST: u64 = (7744 + 64) << 10;
const INVALID_CHANNEL: u32 = 0x21;

/// A program with a channel in a group for compute, and a driver that takes everything.
fn with_channel() -> Program {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    make_channel(&mut program);
    assert_eq!(overhead(&program), COST);
    program
}

fn make_channel(program: &mut Program) {
    let group = words(20, &[(12, 1)]);
    let outer = nvos64(CLIENT, DEVICE, GROUP, 0xa06c, PARAMS);
    assert_eq!(program.alloc(&outer, &group), 0);
    let outer = nvos64(CLIENT, GROUP, CHANNEL, 0xc86f, PARAMS);
    assert_eq!(program.alloc(&outer, &[0; 368]), 0);
    program.seen.clear();
}

fn overhead(program: &Program) -> u64 {
    program.accounting.share(GPU).expect("a share").overhead
}

fn channels(program: &Program) -> u32 {
    program.accounting.share(GPU).expect("a share").channels
}

/// Registers [`CHANNEL`], and says what the status is.
fn register(program: &mut Program) -> u32 {
    let mut params = vec![0; 56];
    params[..16].copy_from_slice(&UUID);
    put32(&mut params, 20, CLIENT);
    put32(&mut params, 24, CHANNEL);
    assert_eq!(program.try_call(&UVM, REGISTER, &params), Ok(0));
    get32(program.at(OUTER), 48)
}

fn unregister(program: &mut Program) {
    let mut params = vec![0; 28];
    params[..16].copy_from_slice(&UUID);
    put32(&mut params, 16, CLIENT);
    put32(&mut params, 20, CHANNEL);
    assert_eq!(program.try_call(&UVM, UNREGISTER, &params), Ok(0));
}

fn unregister_va_space(program: &mut Program) {
    let mut params = vec![0; 20];
    params[..16].copy_from_slice(&UUID);
    assert_eq!(program.try_call(&UVM, UNREGISTER_VA_SPACE, &params), Ok(0));
}

/// Lets the driver, or another thread of the program, write a status to answers of so many bytes.
fn driver_says(program: &mut Program, size: usize, at: usize, status: u32) {
    program.driver = Box::new(move |parts| {
        if parts[0].bytes.len() == size {
            put32(parts[0].bytes, at, status);
        }
        0
    });
}

/// The requests that the driver got since the last time.
fn asked(program: &mut Program) -> Vec<u32> {
    let seen = core::mem::take(&mut program.seen);
    seen.iter().map(|seen| seen.request).collect()
}

#[test]
fn a_channel_kept_by_uvm_stays_charged() {
    let mut program = with_channel();
    assert_eq!(register(&mut program), 0);
    assert_eq!(program.free(GROUP), 0);
    assert_eq!(overhead(&program), COST);
    assert_eq!(channels(&program), 1);
    unregister(&mut program);
    assert_eq!(overhead(&program), 0);
    assert_eq!(channels(&program), 0);
}

#[test]
fn a_registration_that_ends_first_changes_nothing() {
    let mut program = with_channel();
    assert_eq!(register(&mut program), 0);
    unregister(&mut program);
    assert_eq!(overhead(&program), COST);
    assert_eq!(program.free(GROUP), 0);
    assert_eq!(overhead(&program), 0);
}

#[test]
fn a_closed_file_keeps_no_channel() {
    let mut program = with_channel();
    assert_eq!(register(&mut program), 0);
    assert_eq!(program.free(GROUP), 0);
    program.accounting.close_file(UVM.file);
    assert_eq!(overhead(&program), 0);
}

#[test]
fn a_refused_registration_is_undone() {
    let mut program = with_channel();
    driver_says(&mut program, 56, 48, 0x51);
    assert_eq!(register(&mut program), 0x51);
    assert_eq!(asked(&mut program), [REGISTER, UNREGISTER]);
    assert_eq!(program.free(GROUP), 0);
    assert_eq!(overhead(&program), 0);
}

#[test]
fn an_unregistration_is_believed_whatever_its_status_says() {
    let mut program = with_channel();
    assert_eq!(register(&mut program), 0);
    assert_eq!(program.free(GROUP), 0);
    // It says so, too, if UVM has no such channel any more.
    driver_says(&mut program, 28, 24, INVALID_CHANNEL);
    unregister(&mut program);
    assert_eq!(overhead(&program), 0);
}

#[test]
fn unsent_unregistration_leaves_the_channel() {
    let mut program = with_channel();
    assert_eq!(register(&mut program), 0);
    assert_eq!(program.free(GROUP), 0);
    program.driver = Box::new(|_| -1);
    let params = words(28, &[(16, CLIENT), (20, CHANNEL)]);
    assert_eq!(program.try_call(&UVM, UNREGISTER, &params), Ok(-1));
    assert_eq!(overhead(&program), COST);
}

#[test]
fn a_second_registration_of_the_name_is_refused() {
    let mut program = with_channel();
    assert_eq!(register(&mut program), 0);
    assert_eq!(asked(&mut program), [REGISTER]);
    assert_eq!(register(&mut program), INVALID_CHANNEL);
    // Nor is another channel of the same name, as in the driver.
    assert_eq!(program.free(GROUP), 0);
    make_channel(&mut program);
    assert_eq!(register(&mut program), INVALID_CHANNEL);
    assert_eq!(asked(&mut program), []);
    assert_eq!(overhead(&program), COST + (4480 << 10));
}

#[test]
fn only_channels_are_registered() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    program.seen.clear();
    assert_eq!(register(&mut program), 0x33);
    assert_eq!(asked(&mut program), []);
}

#[test]
fn address_space_releases_its_channels_one_by_one() {
    let mut program = with_channel();
    assert_eq!(register(&mut program), 0);
    assert_eq!(program.free(GROUP), 0);
    program.seen.clear();
    // Said to have failed: nothing is certain.
    driver_says(&mut program, 20, 16, 0x26);
    unregister_va_space(&mut program);
    assert_eq!((asked(&mut program).len(), overhead(&program)), (1, COST));
    program.driver = Box::new(|_| 0);
    unregister_va_space(&mut program);
    assert_eq!(
        asked(&mut program),
        [UNREGISTER_VA_SPACE, UNREGISTER],
        "asked for by itself"
    );
    assert_eq!(overhead(&program), 0);
}

#[test]
fn channel_is_kept_while_another_call_releases() {
    let mut program = with_channel();
    assert_eq!(register(&mut program), 0);
    assert_eq!(program.free(GROUP), 0);
    // Another thread's call, which has taken the channel out and not yet freed it.
    program.accounting.begin_unregister(UVM.file).expect("room");
    unregister(&mut program);
    assert_eq!(overhead(&program), COST);
    program.accounting.end_unregister(UVM.file);
    assert_eq!(overhead(&program), 0);
}

#[test]
fn a_registration_is_something_that_is_left() {
    let mut program = with_channel();
    assert_eq!(register(&mut program), 0);
    assert!(!program.accounting.is_idle());
    program.accounting.close_file(UVM.file);
    program.accounting.close_file(CONTROL.file);
    assert!(program.accounting.is_idle());
}
