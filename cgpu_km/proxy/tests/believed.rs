// SPDX-License-Identifier: GPL-2.0
//! Belief in the driver's answer: every output can have been written by another thread of the
//! program.

use super::*;
use crate::uapi::Limited;

const MEMORY: u32 = 0x5c00_0010;
const OTHER_FILE: Session = Session {
    file: FileId(9),
    role: Role::Control,
};

const NV_ESC_RM_ALLOC_MEMORY: u32 = 0xc038_4627;

/// A driver that answers everything with `status`, at the place that an alloc (48 bytes) and a free
/// (16 bytes) have for it, or with an errno.
fn answers(status: u32, returned: i32) -> DriverStub {
    Box::new(move |parts| {
        let at = if parts[0].bytes.len() == 48 { 40 } else { 12 };
        put32(parts[0].bytes, at, status);
        returned
    })
}

pub(super) fn free(program: &mut Program, session: &Session, object: u32) -> u32 {
    let outer = words(16, &[(0, CLIENT), (8, object)]);
    program.call(session, NV_ESC_RM_FREE, &outer, 12)
}

#[test]
fn object_reported_refused_is_freed() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = answers(NvStatus::NV_ERR_NO_MEMORY.0, 0);
    assert_eq!(
        program.memory(MEMORY, 64 * MIB),
        NvStatus::NV_ERR_NO_MEMORY.0
    );
    assert_eq!(program.used(), 0);
    let seen = program.seen.last().expect("freed");
    assert_eq!((program.seen.len(), seen.request), (2, NV_ESC_RM_FREE));
    assert_eq!(get32(&seen.parts[0], 0), CLIENT);
    assert_eq!(get32(&seen.parts[0], 8), MEMORY);
}

/// Host memory, a registration and an event of an engine, as a GPU's file takes them: request,
/// argument, and the place of the status.
fn on_a_gpus_file(program: &mut Program) -> [(u32, Vec<u8>, usize); 3] {
    let memory = |class: u32| {
        let fields = [(0, CLIENT), (4, DEVICE), (8, MEMORY), (12, class)];
        let mut outer = words(56, &fields);
        put32(&mut outer, 16, 0x4000_1000);
        put64(&mut outer, 24, 0x7000_0000);
        put64(&mut outer, 32, MIB - 1);
        (NV_ESC_RM_ALLOC_MEMORY, outer, 40)
    };
    program.put(PARAMS, &words(24, &[(8, 0x79), (12, 0x3800_000c)]));
    let event = nvos64(CLIENT, SUBDEVICE, MEMORY, 0x79, PARAMS);
    [memory(0x3e), memory(0x71), (NV_ESC_RM_ALLOC, event, 40)]
}

/// The figures that count it: objects, bytes of host memory, events.
fn counted(program: &Program) -> [u64; 3] {
    [Limited::Objects, Limited::HostMemory, Limited::Events].map(|what| {
        program
            .accounting
            .limit_of(GPU, what)
            .expect("a share")
            .used
    })
}

#[test]
fn refused_on_a_gpus_file_is_freed() {
    let mut program = Program::with_subdevice(GIB);
    let before = counted(&program);
    for (request, outer, status) in on_a_gpus_file(&mut program) {
        program.driver = Box::new(move |parts| {
            let at = if parts[0].bytes.len() == 16 {
                12
            } else {
                status
            };
            put32(parts[0].bytes, at, NvStatus::NV_ERR_NO_MEMORY.0);
            0
        });
        let told = program.call(&GPU_NODE, request, &outer, status);
        assert_eq!(told, NvStatus::NV_ERR_NO_MEMORY.0);
        let seen = program.seen.last().expect("freed");
        // The GPU's file frees nothing.
        assert_eq!(
            (seen.request, seen.on),
            (NV_ESC_RM_FREE, Some(CONTROL.file))
        );
        assert_eq!(get32(&seen.parts[0], 8), MEMORY);
        assert_eq!(counted(&program), before);
        // The handle is free again.
        program.driver = Box::new(|_| 0);
        assert_eq!(program.call(&GPU_NODE, request, &outer, status), 0);
        assert_ne!(counted(&program), before);
        assert_eq!(program.free(MEMORY), 0);
    }
}

#[test]
fn object_that_cannot_be_freed_counts() {
    // A killed program: the driver makes the object and finds no way to say so, nor to be asked
    // again.
    let mut program = Program::with_subdevice(GIB);
    program.driver = answers(0, -14);
    program.put(PARAMS, &memory_params(64 * MIB));
    assert_eq!(
        program.try_call(
            &CONTROL,
            NV_ESC_RM_ALLOC,
            &nvos64(CLIENT, DEVICE, MEMORY, 0x40, PARAMS)
        ),
        Ok(-14)
    );
    assert_eq!(program.used(), 64 * MIB);
    program.driver = answers(0, 0);
    assert_eq!(program.free(MEMORY), 0);
    assert_eq!(program.used(), 0);
}

#[test]
fn handle_reported_taken_is_taken() {
    let mut program = Program::with_subdevice(GIB);
    let duplicate = NvStatus::NV_ERR_INSERT_DUPLICATE_NAME.0;
    program.driver = answers(duplicate, 0);
    assert_eq!(program.memory(MEMORY, 64 * MIB), duplicate);
    assert_eq!(program.seen.len(), 1, "what has the handle is not freed");
    assert_eq!(program.used(), 64 * MIB);
}

#[test]
fn duplicate_reported_refused_is_freed() {
    const NV_ESC_RM_DUP_OBJECT: u32 = 0xc01c_4634;
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(program.memory(MEMORY, 64 * MIB), 0);
    let outer = words(
        28,
        &[
            (0, CLIENT),
            (4, DEVICE),
            (8, MEMORY + 1),
            (12, CLIENT),
            (16, MEMORY),
        ],
    );
    program.put(OUTER, &outer);
    program.driver = Box::new(|parts| {
        if parts[0].bytes.len() == 28 {
            put32(parts[0].bytes, 24, NvStatus::NV_ERR_INVALID_ARGUMENT.0);
        }
        0
    });
    let dup = NV_ESC_RM_DUP_OBJECT;
    assert_eq!(ioctl(&mut program, &CONTROL, dup, UserAddr(OUTER)), Ok(0));
    assert_eq!(
        get32(program.at(OUTER), 24),
        NvStatus::NV_ERR_INVALID_ARGUMENT.0
    );
    let seen = program.seen.last().expect("freed");
    assert_eq!(seen.request, NV_ESC_RM_FREE);
    assert_eq!(get32(&seen.parts[0], 8), MEMORY + 1);
}

#[test]
fn client_works_through_its_own_file_alone() {
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(program.memory(MEMORY, 64 * MIB), 0);
    program.seen.clear();
    for object in [MEMORY, CLIENT] {
        assert_eq!(
            free(&mut program, &OTHER_FILE, object),
            NvStatus::NV_ERR_INVALID_CLIENT.0
        );
    }
    // It is allocated through it alone, too.
    program.put(PARAMS, &memory_params(MIB));
    let status = program.call(
        &OTHER_FILE,
        NV_ESC_RM_ALLOC,
        &nvos64(CLIENT, DEVICE, MEMORY + 1, 0x40, PARAMS),
        40,
    );
    assert_eq!(status, NvStatus::NV_ERR_INVALID_CLIENT.0);
    assert!(program.seen.is_empty());
    assert_eq!(program.used(), 64 * MIB);
}

#[test]
fn new_client_handle_is_read_from_hroot() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|parts| {
        // serverAllocClient(): hRoot, if it is not 0, is the handle; hObjectNew is not looked at.
        let handle = get32(parts[0].bytes, 0);
        put32(parts[0].bytes, 8, handle.max(0xc1d0_0077));
        0
    });
    assert_eq!(
        program.alloc(&nvos64(0, 0, 0xc1d0_0050, 0x41, 0), &[]),
        0,
        "another tenant's client is not had by asking for it"
    );
    assert!(!program.accounting.owns_client(ClientHandle(0xc1d0_0050)));
    assert!(program.accounting.owns_client(ClientHandle(0xc1d0_0077)));
    assert_eq!(program.alloc(&nvos64(0xc1d0_0099, 0, 0, 0x41, 0), &[]), 0);
    assert!(program.accounting.owns_client(ClientHandle(0xc1d0_0099)));
}

#[test]
fn a_gpus_file_takes_events_alone() {
    let mut program = Program::with_subdevice(GIB);
    program.put(OUTER, &nvos64(CLIENT, DEVICE, MEMORY, 0x40, PARAMS));
    program.put(PARAMS, &memory_params(MIB));
    let returned = ioctl(&mut program, &GPU_NODE, NV_ESC_RM_ALLOC, UserAddr(OUTER));
    assert_eq!(returned, Err(Errno::EINVAL));
    assert!(program.seen.is_empty());
    assert_eq!(program.used(), 0);
}

#[test]
fn a_new_client_takes_no_other_ones_place() {
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(program.memory(MEMORY, 64 * MIB), 0);
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 8, CLIENT);
        0
    });
    assert_eq!(program.alloc(&nvos64(0, 0, 0, 0x41, 0), &[]), 0);
    assert_eq!(program.used(), 64 * MIB);
    assert_eq!(
        program.accounting.client_file(ClientHandle(CLIENT)),
        Some(CONTROL.file)
    );
}

#[test]
fn report_for_an_unknown_object_is_refused() {
    // The driver may have it: another thread's call is just making it, or freeing it. What it would
    // tell is of the whole GPU.
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(
        control_of(&mut program, CLIENT, SUBDEVICE + 1, 0x2080_1303, &[0; 1028]),
        NvStatus::NV_ERR_OBJECT_NOT_FOUND.0
    );
    assert!(program.seen.is_empty());
}
