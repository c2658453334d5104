// SPDX-License-Identifier: GPL-2.0
//! Handles of other tenants, in every call that has room for one. Each refused call differs from
//! one that passes in this handle alone.

use super::*;
use crate::nvidia::{
    capability::{
        Capabilities,
        GRAPHICS,
        PROFILING, //
    },
    handle::ObjectHandle, //
};

/// A client of another tenant, or of nobody: the program cannot tell.
const FOREIGN: u32 = CLIENT + 1;
const INVALID_OBJECT_HANDLE: u32 = NvStatus::NV_ERR_INVALID_OBJECT_HANDLE.0;
const INVALID_ARGUMENT: u32 = NvStatus::NV_ERR_INVALID_ARGUMENT.0;

const NV_ESC_RM_SHARE: u32 = 0xc018_4635;
const NV_ESC_RM_MAP_MEMORY: u32 = 0xc038_464e;
const NV_ESC_RM_UNMAP_MEMORY: u32 = 0xc020_464f;
const NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO: u32 = 0xc028_465e;
const NV_ESC_ALLOC_OS_EVENT: u32 = 0xc010_46ce;
const NV_ESC_FREE_OS_EVENT: u32 = 0xc010_46cf;
const NV_ESC_RM_DUP_OBJECT: u32 = 0xc01c_4634;
const NV_ESC_RM_ALLOC_MEMORY: u32 = 0xc038_4627;
const NV_ESC_RM_VID_HEAP_CONTROL: u32 = 0xc0b8_464a;

/// Runs a call on a struct and returns the status at `at` in it.
fn status(program: &mut Program, session: &Session, code: u32, outer: &[u8], at: usize) -> u32 {
    program.seen.clear();
    program.call(session, code, outer, at)
}

/// The note of an escape that names another tenant's client.
fn foreign(code: u32) -> (CallKind, u32, Reason) {
    (CallKind::Escape, code & 0xff, Reason::Foreign)
}

/// A call with the tenant's own client at `client` passes, and with a foreign one there it gets
/// `refusal` and does not reach the driver.
fn only_own(code: u32, outer: &[u8], client: usize, at: usize, refusal: u32) {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    program.gpu_file(0);
    let session = match code {
        NV_ESC_RM_ALLOC_MEMORY => GPU_NODE,
        _ => CONTROL,
    };
    let mut outer = outer.to_vec();
    put32(&mut outer, client, CLIENT);
    if code == NV_ESC_FREE_OS_EVENT {
        let make = NV_ESC_ALLOC_OS_EVENT;
        assert_eq!(status(&mut program, &session, make, &outer, at), 0);
    }
    assert_eq!(status(&mut program, &session, code, &outer, at), 0);
    assert_eq!(program.seen.len(), 1, "the driver was not asked");
    put32(&mut outer, client, FOREIGN);
    assert_eq!(status(&mut program, &session, code, &outer, at), refusal);
    assert!(program.seen.is_empty(), "the driver was asked");
    let mut left = program.at(OUTER).to_vec();
    put32(&mut left, at, 0);
    assert_eq!(left, outer, "all but the status stays");
    assert_eq!(noted(&program), [foreign(code)]);
}

#[test]
fn mapping_another_tenants_memory_is_refused() {
    let outer = words(56, &[(4, SUBDEVICE), (8, SUBDEVICE)]);
    only_own(NV_ESC_RM_MAP_MEMORY, &outer, 0, 40, INVALID_OBJECT_HANDLE);
}

#[test]
fn unmapping_another_tenants_memory_is_refused() {
    only_own(
        NV_ESC_RM_UNMAP_MEMORY,
        &[0; 32],
        0,
        24,
        INVALID_OBJECT_HANDLE,
    );
}

#[test]
fn moving_another_tenants_mapping_is_refused() {
    let code = NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO;
    only_own(
        code,
        &words(40, &[(8, DEVICE)]),
        0,
        32,
        INVALID_OBJECT_HANDLE,
    );
}

#[test]
fn sharing_another_tenants_object_is_refused() {
    only_own(NV_ESC_RM_SHARE, &[0; 24], 0, 20, INVALID_OBJECT_HANDLE);
}

#[test]
fn taking_a_foreign_event_key_is_refused() {
    let refusal = NvStatus::NV_ERR_INSUFFICIENT_RESOURCES.0;
    only_own(NV_ESC_ALLOC_OS_EVENT, &[0; 16], 0, 12, refusal);
}

#[test]
fn freeing_a_foreign_event_key_is_refused() {
    let refusal = NvStatus::NV_ERR_INVALID_EVENT.0;
    only_own(NV_ESC_FREE_OS_EVENT, &[0; 16], 0, 12, refusal);
}

#[test]
fn unknown_event_key_stays_from_the_driver() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    let outer = words(16, &[(0, CLIENT), (8, 5)]);
    let mut told = |code| {
        let told = status(&mut program, &CONTROL, code, &outer, 12);
        (told, program.seen.len())
    };
    let none = (NvStatus::NV_ERR_INVALID_EVENT.0, 0);
    let taken = (NvStatus::NV_ERR_INSUFFICIENT_RESOURCES.0, 0);
    assert_eq!(told(NV_ESC_FREE_OS_EVENT), none);
    assert_eq!(told(NV_ESC_ALLOC_OS_EVENT), (0, 1));
    assert_eq!(told(NV_ESC_ALLOC_OS_EVENT), taken);
    assert_eq!(told(NV_ESC_FREE_OS_EVENT), (0, 1));
    assert_eq!(told(NV_ESC_FREE_OS_EVENT), none);
}

#[test]
fn copying_out_of_another_tenants_client_is_refused() {
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(program.memory(0x5c00_0010, 2 * MIB), 0);
    let mut outer = vec![0; 28];
    for (at, value) in [(0, CLIENT), (4, DEVICE), (12, FOREIGN), (16, 0x5c00_0010)] {
        put32(&mut outer, at, value);
    }
    let code = NV_ESC_RM_DUP_OBJECT;
    let told = status(&mut program, &CONTROL, code, &outer, 24);
    assert_eq!(told, INVALID_OBJECT_HANDLE);
    assert!(program.seen.is_empty());
    assert_eq!(noted(&program), [foreign(code)]);
    put32(&mut outer, 12, CLIENT);
    assert_eq!(status(&mut program, &CONTROL, code, &outer, 24), 0);
}

#[test]
fn host_memory_in_another_tenants_client_is_refused() {
    let outer = words(56, &[(4, DEVICE), (8, 0x5c00_0010), (12, 0x3e)]);
    only_own(NV_ESC_RM_ALLOC_MEMORY, &outer, 0, 40, INVALID_OBJECT_HANDLE);
}

#[test]
fn old_heap_call_on_foreign_client_is_refused() {
    let mut outer = words(184, &[(4, DEVICE), (8, 2), (44, 0x5c00_0010), (52, 0x4000)]);
    put64(&mut outer, 88, 2 * MIB);
    only_own(
        NV_ESC_RM_VID_HEAP_CONTROL,
        &outer,
        0,
        20,
        INVALID_OBJECT_HANDLE,
    );
}

/// A class whose parameters, of `size` bytes, name a client at `at`.
fn names_a_client(parent: u32, class: u32, size: usize, at: usize) {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    let mut params = vec![0; size];
    match class {
        0x80 => put32(&mut params, 0, GPU.0),
        // One of an engine.
        0x79 => put32(&mut params, 12, 0x3800_000c),
        _ => {}
    }
    let outer = nvos64(CLIENT, parent, 0x5c00_0010, class, PARAMS);
    put32(&mut params, at, FOREIGN);
    assert_eq!(program.alloc(&outer, &params), INVALID_OBJECT_HANDLE);
    assert!(program.seen.is_empty());
    put32(&mut params, at, CLIENT);
    assert_eq!(program.alloc(&outer, &params), 0);
}

#[test]
fn device_in_foreign_address_space_is_refused() {
    names_a_client(CLIENT, 0x80, 56, 4);
}

#[test]
fn a_device_for_another_tenants_client_is_refused() {
    names_a_client(CLIENT, 0x80, 56, 8);
}

#[test]
fn an_event_of_another_tenants_object_is_refused() {
    names_a_client(SUBDEVICE, 0x79, 24, 0);
}

#[test]
fn a_debugger_of_another_tenant_is_refused() {
    names_a_client(DEVICE, 0x83de, 12, 4);
}

/// Shares memory under a policy.
fn share(program: &mut Program, kind: u8, target: u32) -> u32 {
    let mut outer = words(24, &[(0, CLIENT), (8, target), (12, 1)]);
    outer[16] = kind;
    status(program, &CONTROL, NV_ESC_RM_SHARE, &outer, 20)
}

#[test]
fn memory_is_shared_as_cuda_ipc_shares_it() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    // RS_SHARE_TYPE_ALL with the client's own handle as a target that nobody looks at.
    assert_eq!(share(&mut program, 1, CLIENT), 0);
    assert_eq!(program.seen.len(), 1);
}

#[test]
fn memory_is_shared_with_no_client() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    for client in [CLIENT, FOREIGN] {
        assert_eq!(share(&mut program, 3, client), INVALID_ARGUMENT);
    }
    assert!(program.seen.is_empty());
    let number = NV_ESC_RM_SHARE & 0xff;
    let refused = (CallKind::Escape, number, Reason::Parameters);
    assert_eq!(noted(&program), [refused]);
}

#[test]
fn sharing_beyond_the_tenant_is_refused() {
    let mut program = Program::with_subdevice(GIB);
    for kind in [7, 8, 255] {
        assert_eq!(share(&mut program, kind, CLIENT), INVALID_ARGUMENT);
    }
    assert!(program.seen.is_empty());
}

/// Sets what a client shares of all that it has.
fn inherited(program: &mut Program, kind: u8, target: u32) -> u32 {
    let mut params = words(12, &[(0, target), (4, 1)]);
    params[8] = kind;
    program.seen.clear();
    control_of(program, CLIENT, CLIENT, 0xd04, &params)
}

#[test]
fn a_clients_whole_sharing_is_checked_too() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    // As recorded: with the process.
    assert_eq!(inherited(&mut program, 4, CLIENT), 0);
    assert_eq!(program.seen.len(), 1);
    for (kind, client) in [(3, CLIENT), (3, FOREIGN), (7, CLIENT)] {
        assert_eq!(inherited(&mut program, kind, client), INVALID_ARGUMENT);
        assert!(program.seen.is_empty());
    }
}

#[test]
fn firmware_control_must_name_an_own_gpu() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    assert_eq!(program.memory(0x5c00_0010, 2 * MIB), 0);
    program.seen.clear();
    let of = |program: &mut Program, client, object| {
        control_of(program, client, object, 0x2080_8159, &[0; 332])
    };
    let not_found = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
    for object in [SUBDEVICE + 1, CLIENT, 0x5c00_0010] {
        assert_eq!(of(&mut program, CLIENT, object), not_found);
    }
    let told = of(&mut program, FOREIGN, SUBDEVICE);
    assert_eq!(told, NvStatus::NV_ERR_INVALID_CLIENT.0);
    assert!(program.seen.is_empty());
    for object in [SUBDEVICE, DEVICE] {
        assert_eq!(of(&mut program, CLIENT, object), 0);
    }
    assert_eq!(program.seen.len(), 2);
}

#[test]
fn privileged_firmware_control_is_refused() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    assert_eq!(control(&mut program, CLIENT, 0x2080_a612, &[0; 16]), 0);
    program.seen.clear();
    assert_eq!(
        control(&mut program, CLIENT, 0x2080_e612, &[0; 16]),
        NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS.0
    );
    assert!(program.seen.is_empty());
}

/// A UVM command whose argument, of `size` bytes, names a client.
fn uvm_client(command: u32, size: usize, client: usize, at: usize) {
    uvm_client_in(command, vec![0; size], client, at);
}

/// The same with an argument that says more.
fn uvm_client_in(command: u32, mut params: Vec<u8>, client: usize, at: usize) {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    assert_eq!(program.memory(0x5c00_0050, MIB), 0);
    program.seen.clear();
    for (named, expected) in [
        (CLIENT, 0),
        (FOREIGN, INVALID_OBJECT_HANDLE),
        (0, INVALID_OBJECT_HANDLE),
    ] {
        put32(&mut params, client, named);
        let told = status(&mut program, &UVM, command, &params, at);
        assert_eq!(told, expected, "{named:#x}");
        assert_eq!(program.seen.len(), usize::from(expected == 0));
    }
}

#[test]
fn uvm_gets_no_address_space_of_another_tenant() {
    let mut params = vec![0; 32];
    params[..16].copy_from_slice(&UUID);
    uvm_client_in(25, params, 20, 28);
}

#[test]
fn uvm_gets_no_channel_of_another_tenant() {
    uvm_client(27, 56, 20, 48);
    uvm_client(28, 28, 16, 24);
}

#[test]
fn uvm_maps_no_memory_of_another_tenant() {
    let mut params = vec![0; 9264];
    put64(&mut params, 8, MIB);
    params[24..40].copy_from_slice(&UUID);
    put64(&mut params, 9240, 1);
    put32(&mut params, 9256, 0x5c00_0050);
    uvm_client_in(33, params, 9252, 9260);
}

#[test]
fn uvm_registration_takes_no_foreign_client() {
    let mut program = Program::with_subdevice(GIB);
    let mut params = vec![0; 40];
    params[..16].copy_from_slice(&UUID);
    assert_eq!(status(&mut program, &UVM, 37, &params, 36), 0);
    assert_eq!(program.seen.len(), 1);
    put32(&mut params, 28, FOREIGN);
    let told = status(&mut program, &UVM, 37, &params, 36);
    assert_eq!(told, INVALID_OBJECT_HANDLE);
    assert!(program.seen.is_empty());
}

#[test]
fn foreign_client_in_a_call_is_counted() {
    let mut program = Program::with_subdevice(GIB);
    let outer = words(56, &[(0, FOREIGN)]);
    let before = program.accounting.share(GPU).expect("added").refused_calls;
    status(&mut program, &CONTROL, NV_ESC_RM_MAP_MEMORY, &outer, 40);
    let after = program.accounting.share(GPU).expect("added").refused_calls;
    assert_eq!(after, before + 1);
}

#[test]
fn control_file_is_bound_to_no_other() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    program.put(OUTER, &words(4, &[(0, 3)]));
    let code = 0xc000_46c9 | 4 << 16;
    let refused = ioctl(&mut program, &CONTROL, code, UserAddr(OUTER));
    assert_eq!(refused, Err(Errno::EINVAL));
    assert!(program.seen.is_empty());
    assert_eq!(ioctl(&mut program, &GPU_NODE, code, UserAddr(OUTER)), Ok(0));
    assert_eq!(program.seen.len(), 1);
}

/// Escapes in which no client stands.
const WITHOUT_CLIENT: [u8; 8] = [200, 201, 210, 211, 212, 214, 215, 218];

#[test]
fn escapes_refuse_and_note_foreign_clients() {
    let tables = Tables::of(Branch::R580).expect("the branch of the recordings");
    for entry in (0..=u8::MAX).filter_map(|nr| tables.escape(nr)) {
        let sizes = match entry.sizes {
            crate::nvidia::escape::Sizes::OneOf(sizes) => sizes,
            crate::nvidia::escape::Sizes::Records(_) => &[],
        };
        if WITHOUT_CLIENT.contains(&entry.escape.nr()) {
            continue;
        }
        for &size in sizes {
            let mut program = Program::with_subdevice(GIB);
            program.driver = Box::new(|_| 0);
            let mut outer = words(size, &[(0, FOREIGN), (4, DEVICE)]);
            match entry.escape.nr() {
                // RM_ALLOC of a subdevice, RM_ALLOC_MEMORY of host memory.
                0x2b => put32(&mut outer, 12, 0x2080),
                0x27 => put32(&mut outer, 12, 0x3e),
                // RM_CONTROL of the driver's features.
                0x2a => put32(&mut outer, 8, 0x1f0),
                0x4a => put32(&mut outer, 8, 2),
                _ => {}
            }
            program.put(OUTER, &outer);
            let size = u32::try_from(size).expect("small");
            let code = 0xc000_4600 | size << 16 | u32::from(entry.escape.nr());
            for session in [CONTROL, GPU_NODE] {
                let _ = ioctl(&mut program, &session, code, UserAddr(OUTER));
                assert!(program.seen.is_empty(), "{} forwarded", entry.escape.name());
            }
            assert!(
                !noted(&program).is_empty(),
                "{} not noted",
                entry.escape.name()
            );
        }
    }
}

#[test]
fn controls_and_uvm_refuse_foreign_clients() {
    let tables = Tables::of(Branch::R580).expect("the branch of the recordings");
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    for entry in tables.controls() {
        let size = usize::try_from(entry.params).expect("small");
        let told = control(&mut program, FOREIGN, entry.cmd.0, &vec![0; size]);
        assert_eq!(told, NvStatus::NV_ERR_INVALID_CLIENT.0, "{}", entry.name);
    }
    for entry in tables.uvm_commands() {
        let Some(client) = entry.client else { continue };
        let mut params = vec![0; usize::try_from(entry.size).expect("small")];
        client.set(&mut params, FOREIGN).expect("room");
        assert_eq!(program.try_call(&UVM, entry.cmd, &params), Ok(0));
        let told = entry.status.get(program.at(OUTER));
        assert_eq!(told, Some(INVALID_OBJECT_HANDLE), "{}", entry.name);
    }
    assert!(program.seen.is_empty());
}

/// Makes a group of channels, or a channel, whose parameters have a handle at one place.
fn channel_noting(program: &mut Program, class: u32, at: usize, notes: u32) -> u32 {
    program.seen.clear();
    let mut params = [0; 368];
    put32(&mut params, at, notes);
    let length = if class == 0xa06c { 20 } else { 368 };
    let outer = nvos64(CLIENT, DEVICE, 0x5c00_0030, class, PARAMS);
    let status = program.alloc(&outer, &params[..length]);
    assert_eq!(program.seen.is_empty(), status != 0);
    status
}

#[test]
fn channel_errors_go_to_memory_or_nowhere() {
    const MEMORY: u32 = 0x5c00_0010;
    const NOT_FOUND: u32 = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
    const ERROR: usize = 0;
    // hObjectEccError of a channel, and of a group.
    const ECC: usize = 140;
    const ECC_OF_GROUP: usize = 4;
    let made = |class, at, notes| {
        let mut program = Program::with_subdevice(GIB);
        program.driver = Box::new(|_| 0);
        assert_eq!(program.memory(MEMORY, 1 << 20), 0);
        let status = channel_noting(&mut program, class, at, notes);
        let refused = (CallKind::Class, class, Reason::Parameters);
        let wanted = if status == 0 { vec![] } else { vec![refused] };
        assert_eq!(noted(&program), wanted);
        status
    };
    assert_eq!(made(0xc86f, ERROR, MEMORY), 0);
    assert_eq!(made(0xc86f, ERROR, 0), 0);
    assert_eq!(made(0xa06c, ERROR, 0), 0);
    for (class, at, notes) in [
        (0xc86f, ERROR, SUBDEVICE),
        (0xc86f, ERROR, MEMORY + 1),
        (0xc86f, ECC, MEMORY),
        (0xa06c, ERROR, MEMORY),
        (0xa06c, ECC_OF_GROUP, MEMORY),
    ] {
        assert_eq!(
            made(class, at, notes),
            NOT_FOUND,
            "{class:#x} {at} {notes:#x}"
        );
    }
}

#[test]
fn channel_without_room_is_not_made() {
    let channel = |program: &mut Program, handle| {
        program.seen.clear();
        let outer = nvos64(CLIENT, DEVICE, handle, 0xc86f, PARAMS);
        program.put(PARAMS, &[0; 368]);
        let returned = program.try_call(&CONTROL, NV_ESC_RM_ALLOC, &outer);
        (returned, program.seen.len())
    };
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    program.channel_room = 1;
    assert_eq!(channel(&mut program, 0x5c00_0030), (Ok(0), 1));
    let before = program.accounting.share(GPU);
    assert_eq!(channel(&mut program, 0x5c00_0031), (Err(Errno::ENOMEM), 0));
    // Nothing of it is charged, and the handle is free.
    assert_eq!(program.accounting.share(GPU), before);
    program.channel_room = 1;
    assert_eq!(channel(&mut program, 0x5c00_0031), (Ok(0), 1));
}

#[test]
fn forged_memory_takes_no_errors() {
    const MEMORY: u32 = 0x5c00_0010;
    const NOT_FOUND: u32 = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
    // The driver says that there is nothing, or a range of addresses, where the call that was to
    // make memory said that it had.
    for (told, expected) in [(0, NOT_FOUND), (0x50a0, NOT_FOUND), (0x3e, 0)] {
        let mut program = Program::with_subdevice(GIB);
        program.driver = Box::new(|_| 0);
        program.class_of_notes = told;
        assert_eq!(program.memory(MEMORY, 1 << 20), 0);
        assert_eq!(channel_noting(&mut program, 0xc86f, 0, MEMORY), expected);
        let (client, memory) = (ClientHandle(CLIENT), ObjectHandle(MEMORY));
        let free = program.accounting.begin_free(client, memory, None);
        // Behind a refusal it is not kept.
        assert_eq!(free.is_ok(), expected != 0);
    }
}

impl Program {
    /// A second GPU of the tenant's, with this device in its client.
    pub(super) fn add_device_of_other_gpu(&mut self, device: u32) {
        self.accounting.add_share(OTHER_GPU, GIB).unwrap();
        let params = words(56, &[(0, OTHER_GPU.0)]);
        let outer = nvos64(CLIENT, CLIENT, device, 0x80, PARAMS);
        assert_eq!(self.alloc(&outer, &params), 0);
    }
}

#[test]
fn objects_of_another_gpu_are_not_used() {
    const THERE: u32 = 0x5c00_0040;
    const MADE: u32 = 0x5c00_0050;
    const INVALID_DEVICE: u32 = NvStatus::NV_ERR_INVALID_DEVICE.0;
    const INVALID_HANDLE: u32 = NvStatus::NV_ERR_INVALID_OBJECT_HANDLE.0;
    const NOT_FOUND: u32 = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    let all = Capabilities::DEFAULT.or(GRAPHICS).or(PROFILING);
    program.accounting.set_capabilities(GPU, all).unwrap();
    program.add_device_of_other_gpu(THERE);
    program.accounting.set_capabilities(OTHER_GPU, all).unwrap();
    // Of each GPU an address space, memory and a group.
    for (device, first) in [(DEVICE, 0x5c00_0060), (THERE, 0x5c00_0070)] {
        let memory = words(128, &[(4, 13), (64, 4096)]);
        for (class, handle, params) in [
            (0x90f1, first, vec![0; 56]),
            (0x40, first + 1, memory),
            (0xa06c, first + 2, words(20, &[(12, 1)])),
        ] {
            let outer = nvos64(CLIENT, device, handle, class, PARAMS);
            assert_eq!(program.alloc(&outer, &params), 0, "{class:#x}");
        }
    }
    let (space, memory, group) = (0, 1, 2);
    // All ones are a name but for a new range, so no object has them: none is made or copied.
    let outer = nvos64(CLIENT, THERE, u32::MAX, 0x90f1, PARAMS);
    assert_eq!(program.alloc(&outer, &[0; 56]), INVALID_HANDLE);
    let (client, other) = (ClientHandle(CLIENT), ObjectHandle(0x5c00_0071));
    let copied = program.accounting.begin_dup(
        client,
        ObjectHandle(THERE),
        ObjectHandle(u32::MAX),
        client,
        other,
    );
    assert_eq!(copied.unwrap_err().status().0, INVALID_HANDLE);
    for (class, size, at, parent, expected) in [
        (0xa06c, 20, 8, DEVICE, NOT_FOUND),
        (0xc86f, 368, 28, DEVICE, NOT_FOUND),
        (0xc86f, 368, 32, DEVICE, NOT_FOUND),
        (0x9067, 12, 0, 0x5c00_0060 + group, NOT_FOUND),
        (0x50a0, 128, 108, DEVICE, 0),
        (0x70, 24, 16, DEVICE, 0),
    ] {
        let outer = nvos64(CLIENT, parent, MADE, class, PARAMS);
        let told = program.alloc(&outer, &words(size, &[(at, u32::MAX)]));
        assert_eq!(told, expected, "{class:#x} {at}");
        program.accounting.free(client, ObjectHandle(MADE));
    }
    for (class, size, at, used, parent) in [
        (0xa06c, 20, 8, space, DEVICE),
        (0xc86f, 368, 28, space, DEVICE),
        (0xc86f, 368, 32, memory, DEVICE),
        (0x9067, 12, 0, space, 0x5c00_0060 + group),
        (0x50a0, 128, 108, space, DEVICE),
        (0x70, 24, 16, space, DEVICE),
    ] {
        for (first, expected) in [(0x5c00_0070, INVALID_DEVICE), (0x5c00_0060, 0)] {
            program.seen.clear();
            let outer = nvos64(CLIENT, parent, MADE, class, PARAMS);
            let told = program.alloc(&outer, &words(size, &[(at, first + used)]));
            assert_eq!(told, expected, "{class:#x} {at}");
            assert_eq!(program.seen.is_empty(), expected != 0);
        }
        program
            .accounting
            .free(ClientHandle(CLIENT), ObjectHandle(MADE));
    }
    // NV83DE_CTRL_CMD_DEBUG_READ_MEMORY and _WRITE_MEMORY.
    let outer = nvos64(CLIENT, DEVICE, MADE, 0x83de, PARAMS);
    assert_eq!(program.alloc(&outer, &words(12, &[(4, CLIENT)])), 0);
    for command in [0x83de_0315, 0x83de_0316] {
        for (first, expected) in [(0x5c00_0070, INVALID_DEVICE), (0x5c00_0060, 0)] {
            program.seen.clear();
            let params = words(24, &[(0, first + memory)]);
            let told = control_of(&mut program, CLIENT, MADE, command, &params);
            assert_eq!(told, expected, "{command:#x}");
            assert_eq!(program.seen.is_empty(), expected != 0);
        }
    }
}
