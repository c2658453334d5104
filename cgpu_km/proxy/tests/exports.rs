// SPDX-License-Identifier: GPL-2.0
//! Objects behind descriptors: charged once, until the last of object, copy and file is gone.

use super::*;
use crate::uapi::Limited;

const MEMORY: u32 = 0x5c00_0010;
const COPY: u32 = 0x5c00_0020;
/// A descriptor of the program, and the file behind it.
const DESCRIPTOR: i32 = 9;
const FILE: FileId = FileId(40);
const CREATE: u32 = 0x3d0a;
const EXPORT: u32 = 0x3d05;
const IMPORT: u32 = 0x3d06;
const EXPORT_MANY: u32 = 0x3d0b;
const IMPORT_MANY: u32 = 0x3d0c;

/// A program with 2 MiB of memory and a second control file.
fn with_memory() -> Program {
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(program.memory(MEMORY, 2 * MIB), 0);
    let session = Session {
        file: FILE,
        role: Role::Control,
    };
    program.descriptors.insert(DESCRIPTOR, session);
    program.seen.clear();
    program
}

/// Offsets from ctrl0000unix.h, as are those below.
fn export(descriptor: i32, object: u32) -> Vec<u8> {
    let mut params = words(24, &[(0, 1), (4, DEVICE), (8, DEVICE), (12, object)]);
    params[16..20].copy_from_slice(&descriptor.to_le_bytes());
    params
}

fn import(descriptor: i32, object: u32) -> Vec<u8> {
    let mut params = vec![0; 20];
    params[..4].copy_from_slice(&descriptor.to_le_bytes());
    put32(&mut params, 4, 1);
    put32(&mut params, 8, DEVICE);
    put32(&mut params, 12, DEVICE);
    put32(&mut params, 16, object);
    params
}

fn create(descriptor: i32, device: u32) -> Vec<u8> {
    let mut params = words(76, &[(0, device)]);
    params[4..6].copy_from_slice(&16u16.to_le_bytes());
    params[72..].copy_from_slice(&descriptor.to_le_bytes());
    params
}

fn export_many(objects: &[u32], first: u16) -> Vec<u8> {
    let mut params = vec![0; 2128];
    params[..4].copy_from_slice(&DESCRIPTOR.to_le_bytes());
    put32(&mut params, 4, DEVICE);
    params[8..10].copy_from_slice(&16u16.to_le_bytes());
    for (number, &object) in objects.iter().enumerate() {
        put32(&mut params, 76 + 4 * number, object);
    }
    let count = u16::try_from(objects.len()).expect("few");
    params[2124..2126].copy_from_slice(&count.to_le_bytes());
    params[2126..].copy_from_slice(&first.to_le_bytes());
    params
}

fn import_many(objects: &[u32], first: u16) -> Vec<u8> {
    let mut params = vec![0; 652];
    params[..4].copy_from_slice(&DESCRIPTOR.to_le_bytes());
    put32(&mut params, 4, DEVICE);
    for (number, &object) in objects.iter().enumerate() {
        put32(&mut params, 8 + 4 * number, object);
    }
    let count = u16::try_from(objects.len()).expect("few");
    params[648..650].copy_from_slice(&count.to_le_bytes());
    params[650..].copy_from_slice(&first.to_le_bytes());
    params
}

/// The driver answers every control with `status`.
fn answering(status: NvStatus) -> super::DriverStub {
    Box::new(move |parts| {
        // Not what is freed afterwards.
        if parts.len() > 1 {
            put32(parts[0].bytes, 28, status.0);
        }
        0
    })
}

#[test]
fn exported_memory_is_charged_until_its_last_reference() {
    // Every order in which the object, the copy and the file can go.
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for order in orders {
        let mut program = with_memory();
        let params = export(DESCRIPTOR, MEMORY);
        assert_eq!(control(&mut program, CLIENT, EXPORT, &params), 0);
        assert_eq!(program.at(PARAMS), params, "the program's own number");
        let params = import(DESCRIPTOR, COPY);
        assert_eq!(control(&mut program, CLIENT, IMPORT, &params), 0);
        assert_eq!(program.at(PARAMS), params);
        assert_eq!(program.used(), 2 * MIB);
        for (gone, what) in (1..).zip(order) {
            match what {
                0 => assert_eq!(program.free(MEMORY), 0),
                1 => assert_eq!(program.free(COPY), 0),
                _ => program.accounting.close_file(FILE),
            }
            let left = if gone == 3 { 0 } else { 2 * MIB };
            assert_eq!(program.used(), left, "{order:?} after {gone}");
        }
    }
}

#[test]
fn driver_gets_the_checked_file() {
    let mut program = with_memory();
    for (cmd, params, at) in [
        (CREATE, create(DESCRIPTOR, DEVICE), 72),
        (EXPORT, export(DESCRIPTOR, MEMORY), 16),
        (IMPORT, import(DESCRIPTOR, COPY), 0),
        (0x3d08, DESCRIPTOR.to_le_bytes().repeat(20), 0),
        (EXPORT_MANY, export_many(&[MEMORY], 3), 0),
        (IMPORT_MANY, import_many(&[COPY + 1], 3), 0),
    ] {
        program.seen.clear();
        program.held.clear();
        program.driver = Box::new(|parts| {
            if get32(parts[0].bytes, 8) == IMPORT_MANY {
                parts[1].bytes[520] = 1;
            }
            0
        });
        assert_eq!(control(&mut program, CLIENT, cmd, &params), 0, "{cmd:#x}");
        assert_eq!(program.held, [FILE], "{cmd:#x}");
        let number = get32(&program.seen[0].parts[1], at);
        assert_eq!(number, ELSEWHERE.unsigned_abs(), "{cmd:#x}");
        let written = get32(program.at(PARAMS), at);
        assert_eq!(written, DESCRIPTOR.unsigned_abs(), "{cmd:#x}");
    }
}

#[test]
fn foreign_descriptors_are_refused_as_no_file() {
    let mut program = with_memory();
    let uvm = Session {
        file: FileId(41),
        role: Role::Uvm,
    };
    let gpu = Session {
        file: FileId(42),
        role: Role::Gpu(GPU),
    };
    program.descriptors.insert(20, uvm);
    program.descriptors.insert(21, gpu);
    // 22: another tenant's, or none; -1: none.
    for descriptor in [20, 21, 22, -1] {
        for (cmd, params) in [
            (CREATE, create(descriptor, DEVICE)),
            (EXPORT, export(descriptor, MEMORY)),
            (IMPORT, import(descriptor, COPY)),
        ] {
            let status = control(&mut program, CLIENT, cmd, &params);
            assert_eq!(status, NvStatus::NV_ERR_INVALID_PARAMETER.0);
            assert_eq!(program.at(PARAMS), params);
        }
    }
    assert!(program.seen.is_empty(), "the driver was asked");
    program.free(MEMORY);
    assert_eq!(program.used(), 0);
}

#[test]
fn an_export_the_driver_refuses_is_not_charged() {
    let mut program = with_memory();
    let other_type = {
        let mut params = export(DESCRIPTOR, MEMORY);
        put32(&mut params, 0, 2);
        params
    };
    let empty = {
        let mut params = export(DESCRIPTOR, MEMORY);
        put32(&mut params, 20, 1);
        params
    };
    let no_device = {
        let mut params = export(DESCRIPTOR, MEMORY);
        put32(&mut params, 4, MEMORY);
        params
    };
    let too_many = {
        let mut params = export_many(&[MEMORY], 0);
        params[2124..2126].copy_from_slice(&513u16.to_le_bytes());
        params
    };
    let beyond = export_many(&[0, MEMORY], u16::MAX);
    for (cmd, params, status) in [
        (
            CREATE,
            create(DESCRIPTOR, MEMORY),
            NvStatus::NV_ERR_INVALID_PARAMETER,
        ),
        (EXPORT, other_type, NvStatus::NV_ERR_INVALID_PARAMETER),
        (EXPORT, empty, NvStatus::NV_ERR_INVALID_PARAMETER),
        (EXPORT, no_device, NvStatus::NV_ERR_INVALID_PARAMETER),
        (
            EXPORT,
            export(DESCRIPTOR, 0x77),
            NvStatus::NV_ERR_OBJECT_NOT_FOUND,
        ),
        (
            EXPORT,
            export(DESCRIPTOR, DEVICE),
            NvStatus::NV_ERR_INVALID_ARGUMENT,
        ),
        (EXPORT_MANY, too_many, NvStatus::NV_ERR_INVALID_PARAMETER),
        (EXPORT_MANY, beyond, NvStatus::NV_ERR_OUT_OF_RANGE),
    ] {
        assert_eq!(control(&mut program, CLIENT, cmd, &params), status.0);
    }
    assert!(program.seen.is_empty(), "the driver was asked");
    program.free(MEMORY);
    assert_eq!(program.used(), 0);
}

#[test]
fn refused_export_is_charged_until_its_file_closes() {
    let mut program = with_memory();
    program.driver = answering(NvStatus::NV_ERR_STATE_IN_USE);
    let params = export(DESCRIPTOR, MEMORY);
    let status = control(&mut program, CLIENT, EXPORT, &params);
    assert_eq!(status, NvStatus::NV_ERR_STATE_IN_USE.0);
    program.driver = Box::new(|_| 0);
    program.free(MEMORY);
    assert_eq!(program.used(), 2 * MIB);
    program.accounting.close_file(FILE);
    assert_eq!(program.used(), 0);
}

#[test]
fn a_refused_import_is_undone() {
    let mut program = with_memory();
    let params = export(DESCRIPTOR, MEMORY);
    assert_eq!(control(&mut program, CLIENT, EXPORT, &params), 0);
    program.seen.clear();
    program.driver = answering(NvStatus::NV_ERR_NO_MEMORY);
    let params = import(DESCRIPTOR, COPY);
    let status = control(&mut program, CLIENT, IMPORT, &params);
    assert_eq!(status, NvStatus::NV_ERR_NO_MEMORY.0);
    assert_eq!(program.at(PARAMS), params);
    // The second call frees what the first may have made.
    assert_eq!(program.seen.len(), 2);
    assert_eq!(program.seen[1].request, NV_ESC_RM_FREE);
    assert_eq!(get32(&program.seen[1].parts[0], 8), COPY);
    program.driver = Box::new(|_| 0);
    program.free(MEMORY);
    program.accounting.close_file(FILE);
    assert_eq!(program.used(), 0, "there was no copy");
}

#[test]
fn unnamed_handles_are_chosen_before_the_call() {
    let mut program = with_memory();
    let params = export(DESCRIPTOR, MEMORY);
    assert_eq!(control(&mut program, CLIENT, EXPORT, &params), 0);
    let params = import(DESCRIPTOR, 0);
    assert_eq!(control(&mut program, CLIENT, IMPORT, &params), 0);
    let chosen = get32(&program.seen[1].parts[1], 16);
    assert_eq!(chosen, 0xcaf8_0000);
    assert_eq!(get32(program.at(PARAMS), 16), chosen);
}

#[test]
fn import_of_a_list_keeps_empty_places() {
    let mut program = with_memory();
    assert_eq!(program.memory(MEMORY + 1, 4 * MIB), 0);
    let params = export_many(&[MEMORY, 0, MEMORY + 1], 2);
    assert_eq!(control(&mut program, CLIENT, EXPORT_MANY, &params), 0);
    program.free(MEMORY);
    program.free(MEMORY + 1);
    assert_eq!(program.used(), 6 * MIB);
    program.seen.clear();
    program.driver = Box::new(|parts| {
        // The driver tells of each what it is: memory, nothing, memory.
        if get32(parts[0].bytes, 8) == IMPORT_MANY {
            parts[1].bytes[520..523].copy_from_slice(&[1, 0, 1]);
        }
        0
    });
    // The middle one names an object of the program's, which is none of the call's business.
    let params = import_many(&[COPY, SUBDEVICE, COPY + 1], 2);
    assert_eq!(control(&mut program, CLIENT, IMPORT_MANY, &params), 0);
    let given = &program.seen[0].parts[1];
    let handles = [8, 12, 16].map(|at| get32(given, at));
    assert_eq!(handles, [COPY, 0, COPY + 1]);
    let told = [8, 12, 16].map(|at| get32(program.at(PARAMS), at));
    assert_eq!(told, [COPY, SUBDEVICE, COPY + 1]);
    program.accounting.close_file(FILE);
    assert_eq!(program.used(), 6 * MIB);
    program.free(COPY + 1);
    assert_eq!(program.used(), 2 * MIB);
    program.free(COPY);
    assert_eq!(program.used(), 0);
}

#[test]
fn empty_place_gives_no_object() {
    let mut program = with_memory();
    let params = export_many(&[MEMORY], 0);
    assert_eq!(control(&mut program, CLIENT, EXPORT_MANY, &params), 0);
    program.seen.clear();
    let params = import_many(&[COPY], 0);
    assert_eq!(control(&mut program, CLIENT, IMPORT_MANY, &params), 0);
    // Another thread can have written that, so the object is freed.
    assert_eq!(program.seen[1].request, NV_ESC_RM_FREE);
    program.free(MEMORY);
    program.accounting.close_file(FILE);
    assert_eq!(program.used(), 0);
}

#[test]
fn there_are_no_dma_bufs() {
    let mut program = with_memory();
    // NV_ESC_EXPORT_TO_DMABUF_FD before 570 and since, with a status at the end (nv-ioctl.h).
    for (code, size) in [(0xca28_46d9, 2600), (0xca30_46d9, 2608)] {
        let argument = vec![0xee; size];
        assert_eq!(program.try_call(&GPU_NODE, code, &argument), Ok(0));
        let mut expected = argument;
        put32(&mut expected, size - 8, NvStatus::NV_ERR_NOT_SUPPORTED.0);
        assert_eq!(program.at(OUTER), expected);
        // The driver takes it on a GPU's file alone.
        assert_eq!(
            ioctl(&mut program, &CONTROL, code, UserAddr(OUTER)),
            Err(Errno::EINVAL)
        );
    }
    assert!(program.seen.is_empty(), "the driver was asked");
    // And so says the GPU: index 0x3d of GPU_GET_INFO_V2.
    program.driver = Box::new(|parts| {
        put32(parts[1].bytes, 8, 1);
        put32(parts[1].bytes, 16, 1);
        0
    });
    let params = words(564, &[(0, 2), (4, 0x3d), (12, 0x3c)]);
    let status = control_of(&mut program, CLIENT, SUBDEVICE, 0x2080_0102, &params);
    assert_eq!(status, 0);
    let told = [8, 16].map(|at| get32(program.at(PARAMS), at));
    assert_eq!(told, [0, 1]);
}

#[test]
fn exports_need_the_clients_own_file() {
    let mut program = with_memory();
    let params = import(DESCRIPTOR, COPY);
    let mut outer = words(32, &[(0, CLIENT), (4, CLIENT), (8, IMPORT), (24, 20)]);
    put64(&mut outer, 16, PARAMS);
    program.put(OUTER, &outer);
    program.put(PARAMS, &params);
    let other = Session {
        file: FILE,
        role: Role::Control,
    };
    assert_eq!(
        ioctl(&mut program, &other, NV_ESC_RM_CONTROL, UserAddr(OUTER)),
        Ok(0)
    );
    let status = get32(program.at(OUTER), 28);
    assert_eq!(status, NvStatus::NV_ERR_INVALID_CLIENT.0);
    assert!(program.seen.is_empty(), "the driver was asked");
}

#[test]
fn places_count_whatever_the_driver_says() {
    let limit = |program: &Program| {
        let limit = program.accounting.limit_of(GPU, Limited::HostMemory);
        limit.expect("added")
    };
    // An object, no object, and a list: how many places the file gets.
    for (cmd, params, bytes) in [
        (EXPORT, export(DESCRIPTOR, MEMORY), 4),
        (CREATE, create(DESCRIPTOR, DEVICE), 64),
        (EXPORT_MANY, export_many(&[MEMORY], 3), 64),
    ] {
        let mut program = with_memory();
        program.driver = answering(NvStatus::NV_ERR_NO_MEMORY);
        let status = control(&mut program, CLIENT, cmd, &params);
        assert_eq!(status, NvStatus::NV_ERR_NO_MEMORY.0);
        assert_eq!(limit(&program).used, bytes, "{cmd:#x}");
        program.accounting.close_file(FILE);
        assert_eq!(limit(&program).used, 0, "{cmd:#x}");
        // With no room the driver is not asked.
        let set = program
            .accounting
            .set_limit_of(GPU, Limited::HostMemory, Some(bytes - 1));
        assert_eq!(set, Ok(()));
        program.seen.clear();
        let status = control(&mut program, CLIENT, cmd, &params);
        assert_eq!(status, NvStatus::NV_ERR_NO_MEMORY.0);
        assert_eq!(program.seen.len(), 0, "{cmd:#x}");
        assert_eq!((limit(&program).used, limit(&program).refused), (0, 1));
        assert_eq!(program.used(), 2 * MIB);
    }
}
