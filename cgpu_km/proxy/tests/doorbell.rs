// SPDX-License-Identifier: GPL-2.0
//! Objects that a program is not to get hold of: doorbells for its GPU's work, registers as if they
//! were memory, and addresses in the kernel.

use super::*;

const HOPPER_USERMODE_A: u32 = 0xc661;
const BLACKWELL_USERMODE_A: u32 = 0xc761;
const DOORBELL: u32 = 0x5c00_0006;
const EVENT: u32 = 0x5c00_0007;
const NV_ESC_RM_ALLOC_MEMORY: u32 = 0xc038_4627;
const UVM_MAP_EXTERNAL_ALLOCATION: u32 = 33;

fn doorbell(program: &mut Program, class: u32, params: &[u8]) -> u32 {
    program.seen.clear();
    let outer = nvos64(CLIENT, SUBDEVICE, DOORBELL, class, PARAMS);
    program.alloc(&outer, params)
}

#[test]
fn bar1_doorbell_is_made_through_bar0_unseen() {
    for class in [HOPPER_USERMODE_A, BLACKWELL_USERMODE_A] {
        for (params, is_replaced) in [([1, 0], true), ([255, 0], true), ([0, 0], false)] {
            let mut program = Program::with_subdevice(GIB);
            program.driver = Box::new(|_| 0);
            program.has_doorbell = true;
            assert_eq!(doorbell(&mut program, class, &params), 0);
            assert_eq!(program.seen[0].parts[1], [0, 0]);
            assert_eq!(program.at(PARAMS), params);
            assert_eq!(map(&mut program, DOORBELL, 33), 0);
            assert_eq!(program.shown.contains(&FileId(33)), is_replaced);
        }
    }
}

#[test]
fn only_doorbells_through_bar1_show_ours() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    program.has_doorbell = true;
    assert_eq!(program.memory(0x5c00_0010, 2 * MIB), 0);
    let outer = nvos64(CLIENT, SUBDEVICE, DOORBELL, HOPPER_USERMODE_A, 0);
    assert_eq!(program.alloc(&outer, &[]), 0);
    for (object, descriptor) in [(DOORBELL, 31), (0x5c00_0010, 32)] {
        assert_eq!(map(&mut program, object, descriptor), 0);
    }
    assert_eq!(program.shown, []);
    // Freed and made anew under the same handle it is another one.
    let mut other = Program::with_subdevice(GIB);
    other.driver = Box::new(|_| 0);
    other.has_doorbell = true;
    assert_eq!(doorbell(&mut other, HOPPER_USERMODE_A, &[1, 0]), 0);
    let gone = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
    assert_eq!(other.free(DOORBELL), 0);
    assert_eq!(map(&mut other, DOORBELL, 33), gone);
    assert_eq!(doorbell(&mut other, HOPPER_USERMODE_A, &[0, 0]), 0);
    assert_eq!(map(&mut other, DOORBELL, 33), 0);
    assert_eq!(other.shown, []);
}

#[test]
fn a_mapping_that_the_driver_refuses_shows_nothing() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    program.has_doorbell = true;
    assert_eq!(doorbell(&mut program, HOPPER_USERMODE_A, &[1, 0]), 0);
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 40, NvStatus::NV_ERR_STATE_IN_USE.0);
        0
    });
    assert_eq!(
        map(&mut program, DOORBELL, 33),
        NvStatus::NV_ERR_STATE_IN_USE.0
    );
    program.driver = Box::new(|_| -22);
    map(&mut program, DOORBELL, 33);
    assert_eq!(program.shown, []);
}

/// Prepares the file of a descriptor for a mapping of an object.
fn map(program: &mut Program, object: u32, descriptor: u32) -> u32 {
    const NV_ESC_RM_MAP_MEMORY: u32 = 0xc038_464e;
    let mut outer = vec![0; 56];
    for (at, value) in [(0, CLIENT), (4, SUBDEVICE), (8, object), (48, descriptor)] {
        put32(&mut outer, at, value);
    }
    put64(&mut outer, 24, 0x1_0000);
    program.gpu_file(descriptor);
    program.put(OUTER, &outer);
    let _ = ioctl(program, &CONTROL, NV_ESC_RM_MAP_MEMORY, UserAddr(OUTER));
    get32(program.at(OUTER), 40)
}

#[test]
fn doorbell_without_a_gate_stays_as_asked() {
    for class in [HOPPER_USERMODE_A, BLACKWELL_USERMODE_A] {
        for params in [[1, 0], [0, 0]] {
            let mut program = Program::with_subdevice(GIB);
            program.driver = Box::new(|_| 0);
            assert_eq!(doorbell(&mut program, class, &params), 0);
            assert_eq!(program.seen[0].parts[1], params);
            assert_eq!(program.at(PARAMS), params);
            assert_eq!(map(&mut program, DOORBELL, 33), 0);
            assert_eq!(program.shown, []);
        }
    }
}

#[test]
fn refused_doorbell_returns_the_programs_parameters() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|parts| {
        // The module's free of the object that is said to be refused.
        if parts.len() == 1 {
            return 0;
        }
        put32(
            parts[0].bytes,
            40,
            NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS.0,
        );
        0
    });
    for (has_doorbell, given) in [(false, [1, 0]), (true, [0, 0])] {
        program.has_doorbell = has_doorbell;
        assert_eq!(
            doorbell(&mut program, HOPPER_USERMODE_A, &[1, 0]),
            NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS.0
        );
        assert_eq!(program.seen[0].parts[1], given);
        assert_eq!(program.at(PARAMS), [1, 0]);
    }
}

#[test]
fn a_doorbell_without_parameters_is_forwarded_without() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    let outer = nvos64(CLIENT, SUBDEVICE, DOORBELL, HOPPER_USERMODE_A, 0);
    program.seen.clear();
    assert_eq!(program.alloc(&outer, &[]), 0);
    assert_eq!(program.seen[0].parts.len(), 1);
}

#[test]
fn privileged_doorbell_is_refused() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    for (params, expected) in [
        ([1, 1], NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS),
        ([0, 1], NvStatus::NV_ERR_INVALID_PARAMETER),
    ] {
        let told = doorbell(&mut program, HOPPER_USERMODE_A, &params);
        assert_eq!(told, expected.0, "{params:?}");
        assert!(program.seen.is_empty());
        assert_eq!(program.at(PARAMS), params);
    }
}

/// Maps an object for the GPU, by UVM.
fn map_external(program: &mut Program, object: u32) -> u32 {
    let mut params = vec![0; 9264];
    put64(&mut params, 8, MIB);
    params[24..40].copy_from_slice(&UUID);
    put64(&mut params, 9240, 1);
    put32(&mut params, 9252, CLIENT);
    put32(&mut params, 9256, object);
    program.seen.clear();
    program.call(&UVM, UVM_MAP_EXTERNAL_ALLOCATION, &params, 9260)
}

#[test]
fn a_doorbell_is_not_mapped_for_the_gpu() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    assert_eq!(program.memory(0x5c00_0010, 2 * MIB), 0);
    assert_eq!(doorbell(&mut program, HOPPER_USERMODE_A, &[1, 0]), 0);
    let told = map_external(&mut program, DOORBELL);
    assert_eq!(told, NvStatus::NV_ERR_INVALID_PARAMETER.0);
    assert!(program.seen.is_empty());
    let note = (
        CallKind::Uvm,
        UVM_MAP_EXTERNAL_ALLOCATION,
        Reason::Parameters,
    );
    assert_eq!(noted(&program), [note]);
    assert_eq!(map_external(&mut program, 0x5c00_0010), 0);
    assert_eq!(program.seen.len(), 1);
}

#[test]
fn copied_doorbell_is_not_mapped_for_gpu() {
    const NV_ESC_RM_DUP_OBJECT: u32 = 0xc01c_4634;
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    program.has_doorbell = true;
    assert_eq!(doorbell(&mut program, HOPPER_USERMODE_A, &[1, 0]), 0);
    let mut outer = vec![0; 28];
    let copy = DOORBELL + 0x100;
    for (at, value) in [
        (0, CLIENT),
        (4, SUBDEVICE),
        (8, copy),
        (12, CLIENT),
        (16, DOORBELL),
    ] {
        put32(&mut outer, at, value);
    }
    let code = NV_ESC_RM_DUP_OBJECT;
    let status = program.call(&CONTROL, code, &outer, 24);
    assert_eq!(status, 0);
    let told = map_external(&mut program, copy);
    assert_eq!(told, NvStatus::NV_ERR_INVALID_PARAMETER.0);
    // It is a doorbell through BAR1 for the program as well.
    assert_eq!(map(&mut program, copy, 34), 0);
    assert_eq!(program.shown, [FileId(34)]);
}

#[test]
fn kernel_address_of_an_event_stays_hidden() {
    for status in [0, NvStatus::NV_ERR_INVALID_ARGUMENT.0] {
        let mut program = Program::with_subdevice(GIB);
        program.driver = Box::new(move |parts| {
            // An object that is said to be refused is freed.
            if parts.len() == 2 {
                put64(parts[1].bytes, 16, 0xffff_8880_1234_5678);
                put32(parts[0].bytes, 40, status);
            }
            0
        });
        let mut params = words(24, &[(0, CLIENT), (8, 0x79), (12, 0x3800_000c)]);
        put64(&mut params, 16, 17);
        let outer = nvos64(CLIENT, SUBDEVICE, EVENT, 0x79, PARAMS);
        assert_eq!(program.alloc(&outer, &params), status);
        assert_eq!(program.at(PARAMS), params);
    }
}

/// Registers 64 KiB of the program's memory with these flags.
fn register(program: &mut Program, handle: u32, flags: u32) -> u32 {
    let mut outer = vec![0; 56];
    for (at, value) in [
        (0, CLIENT),
        (4, DEVICE),
        (8, handle),
        (12, 0x71),
        (16, flags),
    ] {
        put32(&mut outer, at, value);
    }
    put64(&mut outer, 24, 0x7000_0000);
    put64(&mut outer, 32, 0xffff);
    program.seen.clear();
    let code = NV_ESC_RM_ALLOC_MEMORY;
    program.call(&GPU_NODE, code, &outer, 40)
}

#[test]
fn host_memory_is_registered_cached_as_recorded() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    for (handle, flags) in (0x5c00_0020..).zip([0x4000_1010, 0x4004_1010, 0x4000_5010]) {
        assert_eq!(register(&mut program, handle, flags), 0);
        assert_eq!(program.seen.len(), 1);
    }
}

#[test]
fn uncached_host_memory_is_not_registered() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    // UNCACHED, which is how registers pass, WRITE_COMBINE, WRITE_THROUGH, WRITE_PROTECT, no
    // meaning.
    for coherency in [0, 2, 3, 4, 6, 15] {
        let told = register(&mut program, 0x5c00_0020, 0x4000_0010 | coherency << 12);
        assert_eq!(told, NvStatus::NV_ERR_INVALID_FLAGS.0, "{coherency}");
        assert!(program.seen.is_empty());
    }
}
