// SPDX-License-Identifier: GPL-2.0
//! Mappings end before the driver frees or unmaps what they show.

use super::*;
use crate::uapi::Limited;

const MAP: u32 = 0xc038_464e;
const UNMAP: u32 = 0xc020_464f;
const ALLOC_MEMORY: u32 = 0xc038_4627;
const MEMORY: u32 = 0x5c00_0010;
const OTHER: u32 = 0x5c00_0011;

/// A program with two pieces of memory, and a driver that agrees to everything.
fn program() -> Program {
    let mut program = Program::with_subdevice(GIB);
    for memory in [MEMORY, OTHER] {
        assert_eq!(program.memory(memory, 2 * MIB), 0);
    }
    program.driver = Box::new(|_| 0);
    program.seen.clear();
    program
}

/// Names an object of the client in a struct of `size` bytes, and a descriptor at 48 if it is long
/// enough; the status, which stands at `at`.
fn call(program: &mut Program, code: u32, object: u32, descriptor: u32, at: usize) -> u32 {
    let mut outer = vec![0; (code >> 16 & 0xff) as usize];
    put32(&mut outer, 0, CLIENT);
    put32(&mut outer, 4, DEVICE);
    put32(&mut outer, 8, object);
    if outer.len() > 48 {
        put32(&mut outer, 48, descriptor);
    }
    program.call(&CONTROL, code, &outer, at)
}

fn map(program: &mut Program, object: u32, descriptor: u32) -> u32 {
    call(program, MAP, object, descriptor, 40)
}

fn free(program: &mut Program, object: u32) -> u32 {
    call(program, NV_ESC_RM_FREE, object, 0, 12)
}

/// The struct that the driver got last.
fn last(program: &Program) -> Vec<u8> {
    program.seen.last().expect("the driver was asked").parts[0].clone()
}

#[test]
fn the_driver_gets_the_file_that_was_checked() {
    let mut program = program();
    let file = program.gpu_file(30);
    assert_eq!(map(&mut program, MEMORY, 30), 0);
    assert_eq!(program.held, [file]);
    // The number in its table does not reach the program.
    assert_eq!(get32(program.at(OUTER), 48), 30);
}

#[test]
fn file_of_another_gpu_shows_nothing() {
    const OTHER_DEVICE: u32 = 0x5c00_0030;
    let mut program = program();
    program.add_device_of_other_gpu(OTHER_DEVICE);
    program.seen.clear();
    for (number, role) in [
        (30_i32, Role::Gpu(GPU)),
        (31, Role::Gpu(OTHER_GPU)),
        (32, Role::Control),
    ] {
        let file = FileId(number.unsigned_abs().into());
        program.descriptors.insert(number, Session { file, role });
    }
    for (device, descriptor, wanted) in [
        (DEVICE, 31, NvStatus::NV_ERR_INVALID_ARGUMENT),
        (SUBDEVICE, 31, NvStatus::NV_ERR_INVALID_ARGUMENT),
        (OTHER_DEVICE, 30, NvStatus::NV_ERR_INVALID_ARGUMENT),
        (DEVICE, 30, NvStatus::NV_OK),
        (OTHER_DEVICE, 31, NvStatus::NV_ERR_INVALID_DEVICE),
        (DEVICE, 32, NvStatus::NV_ERR_INVALID_ARGUMENT),
        (0x5c00_0031, 30, NvStatus::NV_ERR_OBJECT_NOT_FOUND),
    ] {
        let fields = [(0, CLIENT), (4, device), (8, MEMORY), (48, descriptor)];
        let told = program.call(&CONTROL, MAP, &words(56, &fields), 40);
        assert_eq!(told, wanted.0, "{device:#x} {descriptor}");
        let passes = wanted == NvStatus::NV_OK;
        assert_eq!(program.seen.len(), usize::from(passes));
        program.seen.clear();
    }
}

#[test]
fn a_mapping_ends_before_its_object_is_freed() {
    // The object itself, its device, its client.
    for freed in [MEMORY, DEVICE, CLIENT] {
        let mut program = program();
        let file = program.gpu_file(30);
        assert_eq!(map(&mut program, MEMORY, 30), 0);
        assert_eq!(program.ended, []);
        assert_eq!(free(&mut program, freed), 0);
        // The driver had got the map alone by then.
        assert_eq!(program.ended, [(file, 1)], "{freed:#x}");
        assert_eq!(program.seen.len(), 2);
    }
}

#[test]
fn the_mapping_of_another_object_stays() {
    let mut program = program();
    let (own, other) = (program.gpu_file(30), program.gpu_file(31));
    assert_eq!(map(&mut program, MEMORY, 30), 0);
    assert_eq!(map(&mut program, OTHER, 31), 0);
    assert_eq!(free(&mut program, OTHER), 0);
    assert_eq!(program.ended, [(other, 2)]);
    assert_eq!(free(&mut program, MEMORY), 0);
    assert_eq!(program.ended, [(other, 2), (own, 3)]);
}

#[test]
fn unmapping_ends_all_mappings_of_an_object() {
    let mut program = program();
    let files = [30, 31, 32].map(|descriptor| program.gpu_file(descriptor));
    for descriptor in [30, 31, 32] {
        assert_eq!(map(&mut program, MEMORY, descriptor), 0);
    }
    assert_eq!(call(&mut program, UNMAP, MEMORY, 0, 24), 0);
    let mut ended: Vec<_> = program.ended.iter().map(|ended| ended.0).collect();
    ended.sort_by_key(|file| file.0);
    assert_eq!(ended, files);
    // It can be mapped again, and goes with what it shows then.
    let again = program.gpu_file(33);
    assert_eq!(map(&mut program, MEMORY, 33), 0);
    assert_eq!(free(&mut program, MEMORY), 0);
    assert_eq!(program.ended.last().map(|ended| ended.0), Some(again));
}

#[test]
fn memory_is_mapped_by_its_own_device() {
    let mut program = program();
    program.gpu_file(30);
    program.gpu_file(31);
    // CUDA names the subdevice, which is beside the memory.
    for (by, descriptor) in [(SUBDEVICE, 30), (DEVICE, 31)] {
        let fields = [(0, CLIENT), (4, by), (8, MEMORY), (48, descriptor)];
        assert_eq!(program.call(&CONTROL, MAP, &words(56, &fields), 40), 0);
        let asked = last(&program);
        assert_eq!(get32(&asked, 4), DEVICE);
        assert_eq!(get32(program.at(OUTER), 4), by);
    }
}

#[test]
fn doorbell_is_mapped_by_its_subdevice() {
    const BELL: u32 = 0x5c00_0020;
    let mut program = program();
    let outer = nvos64(CLIENT, SUBDEVICE, BELL, 0xc661, 0);
    assert_eq!(program.alloc(&outer, &[]), 0);
    program.gpu_file(30);
    let fields = [(0, CLIENT), (4, SUBDEVICE), (8, BELL), (48, 30)];
    assert_eq!(program.call(&CONTROL, MAP, &words(56, &fields), 40), 0);
    let asked = last(&program);
    assert_eq!(get32(&asked, 4), SUBDEVICE);
}

/// An address that the driver gives to a mapping.
const PLACE: u64 = 0x3_8000_0000;
/// One where the program has a mapping, or says so.
const OWN: u64 = 0x7f00_0000_0000;

/// `NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO`.
fn rename(program: &mut Program, old: u64, new: u64) -> u32 {
    let mut outer = words(40, &[(0, CLIENT), (4, DEVICE), (8, MEMORY)]);
    put64(&mut outer, 16, old);
    put64(&mut outer, 24, new);
    program.call(&CONTROL, 0xc028_465e, &outer, 32)
}

fn unmap(program: &mut Program, address: u64) -> u32 {
    let mut outer = words(32, &[(0, CLIENT), (4, DEVICE), (8, MEMORY)]);
    put64(&mut outer, 16, address);
    program.call(&CONTROL, UNMAP, &outer, 24)
}

/// A program whose driver keeps one mapping, and has it at `PLACE`.
fn program_of_one_mapping() -> Program {
    let mut program = program();
    let mut mapped = PLACE;
    program.driver = Box::new(move |parts| {
        let bytes = &mut *parts[0].bytes;
        let is_it = get64(bytes, 16) == mapped;
        let status_at = match bytes.len() {
            40 => 32,
            _ => 24,
        };
        if is_it && bytes.len() == 40 {
            mapped = get64(bytes, 24);
        }
        let status = if is_it {
            0
        } else {
            NvStatus::NV_ERR_OBJECT_NOT_FOUND.0
        };
        put32(bytes, status_at, status);
        // The program writes over what the driver has told.
        put32(bytes, 0, 0xc1d0_0099);
        0
    });
    program
}

#[test]
fn mapping_has_no_name_of_the_drivers() {
    let mut program = program_of_one_mapping();
    // The program says an address that the driver may give another one.
    let other = PLACE + 0x1_0000;
    assert_eq!(rename(&mut program, PLACE, other), 0);
    let asked = last(&program);
    assert_eq!(get64(&asked, 16), PLACE);
    assert_eq!(get64(&asked, 24) >> 63, 1);
    assert_eq!(get64(program.at(OUTER), 24), other);
}

#[test]
fn renamed_mapping_is_found_by_its_name() {
    let mut program = program_of_one_mapping();
    for (old, new) in [(PLACE, OWN), (OWN, OWN + 0x1000)] {
        assert_eq!(rename(&mut program, old, new), 0);
        assert_eq!(get64(program.at(OUTER), 16), old);
    }
    let asked = program.seen.len();
    assert_eq!(unmap(&mut program, OWN + 0x1000), 0);
    assert_eq!(program.seen.len(), asked + 1);
    assert_eq!(get64(program.at(OUTER), 16), OWN + 0x1000);
}

#[test]
fn other_mappings_are_found_by_their_place() {
    let mut program = program_of_one_mapping();
    let unknown = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
    assert_eq!(rename(&mut program, OWN, OWN), unknown);
    program.seen.clear();
    // Only the second question names it, of the client that was checked.
    assert_eq!(unmap(&mut program, PLACE), 0);
    let asked: Vec<_> = program
        .seen
        .iter()
        .map(|seen| get64(&seen.parts[0], 16))
        .collect();
    assert_eq!(asked, [PLACE | 1 << 63, PLACE]);
    assert!(program
        .seen
        .iter()
        .all(|seen| get32(&seen.parts[0], 0) == CLIENT));
}

/// Objects of the tenant that count.
fn objects(program: &Program) -> u64 {
    let limit = program.accounting.limit_of(GPU, Limited::Objects);
    limit.expect("a share").used
}

#[test]
fn records_of_mappings_outlive_their_files() {
    let mut program = program();
    let before = objects(&program);
    for number in 30..33 {
        let file = program.gpu_file(number);
        assert_eq!(map(&mut program, MEMORY, number), 0);
        program.accounting.close_file(file);
    }
    assert_eq!(objects(&program), before + 3);
    let set = program
        .accounting
        .set_limit_of(GPU, Limited::Objects, Some(before + 3));
    assert_eq!(set, Ok(()));
    program.gpu_file(33);
    let full = NvStatus::NV_ERR_INSUFFICIENT_RESOURCES.0;
    program.seen.clear();
    assert_eq!(map(&mut program, MEMORY, 33), full);
    assert!(program.seen.is_empty(), "the driver was asked");
    // The answer to an unmapping is believed, because no program sees it.
    assert_eq!(unmap(&mut program, PLACE), 0);
    assert_eq!(program.seen[0].route, Route::Unseen);
    assert_eq!(objects(&program), before + 2);
    let unknown = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
    program.driver = Box::new(move |parts| {
        put32(parts[0].bytes, 24, unknown);
        0
    });
    assert_eq!(unmap(&mut program, PLACE), unknown);
    assert_eq!(objects(&program), before + 2);
    program.driver = Box::new(|_| 0);
    assert_eq!(free(&mut program, MEMORY), 0);
    assert_eq!(objects(&program), before - 1);
}

#[test]
fn mapping_without_a_name_is_asked_for_once() {
    let mut program = program_of_one_mapping();
    assert_eq!(unmap(&mut program, PLACE), 0);
    assert_eq!(program.seen.len(), 1);
}

#[test]
fn a_refusal_of_the_driver_is_not_believed() {
    let mut program = program();
    let file = program.gpu_file(30);
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 40, NvStatus::NV_ERR_NO_MEMORY.0);
        0
    });
    let status = map(&mut program, MEMORY, 30);
    assert_eq!(status, NvStatus::NV_ERR_NO_MEMORY.0);
    program.driver = Box::new(|_| 0);
    // Another object cannot have the file, and the same one can.
    let status = map(&mut program, OTHER, 30);
    assert_eq!(status, NvStatus::NV_ERR_STATE_IN_USE.0);
    assert_eq!(map(&mut program, MEMORY, 30), 0);
    assert_eq!(free(&mut program, MEMORY), 0);
    assert_eq!(program.ended, [(file, 2)]);
}

#[test]
fn foreign_file_shows_nothing() {
    let mut program = program();
    program.descriptors.insert(31, UVM);
    for descriptor in [30, 31] {
        let status = map(&mut program, MEMORY, descriptor);
        assert_eq!(status, NvStatus::NV_ERR_INVALID_ARGUMENT.0);
    }
    program.gpu_file(32);
    let status = map(&mut program, 0x5c00_0099, 32);
    assert_eq!(status, NvStatus::NV_ERR_OBJECT_NOT_FOUND.0);
    assert!(program.seen.is_empty(), "the driver was asked");
}

#[test]
fn host_memory_shows_in_its_file_at_once() {
    for (refused, flags) in [(false, 0x1000), (true, 0x1000), (false, 0x4000_1000)] {
        let mut program = program();
        let file = program.gpu_file(30);
        program.driver = Box::new(move |parts| {
            if refused && parts[0].bytes.len() == 56 {
                put32(parts[0].bytes, 40, NvStatus::NV_ERR_NO_MEMORY.0);
            }
            0
        });
        let mut outer = vec![0; 56];
        for (at, value) in [(0, CLIENT), (4, DEVICE), (8, 0x5c00_0020), (12, 0x3e)] {
            put32(&mut outer, at, value);
        }
        put32(&mut outer, 16, flags);
        put32(&mut outer, 48, 30);
        program.put(OUTER, &outer);
        let returned = ioctl(&mut program, &GPU_NODE, ALLOC_MEMORY, UserAddr(OUTER));
        assert_eq!(returned, Ok(0));
        let mapped = flags >> 30 == 0;
        assert_eq!(program.held.is_empty(), !mapped);
        // A mapping that is said to be refused may be there.
        assert_eq!(program.ended.is_empty(), !refused);
        program.driver = Box::new(|_| 0);
        assert_eq!(free(&mut program, 0x5c00_0020), 0);
        let wanted: Vec<_> = mapped.then_some((file, 1)).into_iter().collect();
        assert_eq!(program.ended, wanted);
    }
}

#[test]
fn mappings_end_before_their_clients_file() {
    let mut program = program();
    let files = [30, 31].map(|descriptor| program.gpu_file(descriptor));
    assert_eq!(map(&mut program, MEMORY, 30), 0);
    assert_eq!(map(&mut program, OTHER, 31), 0);
    let mut ended = Vec::new();
    let mut at = 0;
    while let Some(file) = program
        .accounting
        .shown_by_clients_of(CONTROL.file, &mut at)
    {
        program.accounting.end_shown(file);
        ended.push(file);
    }
    assert_eq!(ended, files);
    // And no other one comes.
    program.gpu_file(32);
    let status = map(&mut program, MEMORY, 32);
    assert_eq!(status, NvStatus::NV_ERR_OBJECT_NOT_FOUND.0);
}

#[test]
fn name_being_freed_shows_nothing() {
    use crate::nvidia::handle::ObjectHandle;
    let mut program = program();
    program.gpu_file(30);
    let late = 0x5c00_0020;
    let client = ClientHandle(CLIENT);
    let ticket = program
        .accounting
        .begin_free(client, ObjectHandle(late), None);
    let ticket = ticket.expect("the client is known");
    // The driver has not got the call yet.
    assert_eq!(program.memory(late, 2 * MIB), 0);
    let gone = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
    assert_eq!(map(&mut program, late, 30), gone);
    // Nobody knows what the call has freed: the memory stays charged.
    program.accounting.end_free(ticket, true);
    assert_eq!(program.used(), 6 * MIB);
    assert_eq!(map(&mut program, late, 30), 0);
}
