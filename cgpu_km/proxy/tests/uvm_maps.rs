// SPDX-License-Identifier: GPL-2.0
//! Memory that UVM keeps: what is charged, and what is asked of the driver to be certain.

use super::*;

const MEMORY: u32 = 0x5c00_0010;
const MAP: u32 = 33;
const FREE: u32 = 34;
const UNREGISTER_GPU: u32 = 38;
const CREATE: u32 = 73;
const UNMAP: u32 = 66;
const BASE: u64 = 0x20_0000_0000;

/// A program with 4 MiB of memory, and a driver that takes everything.
fn with_memory() -> Program {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|_| 0);
    assert_eq!(program.memory(MEMORY, 4 * MIB), 0);
    program.seen.clear();
    program
}

/// Maps [`MEMORY`] for GPUs, and says what the status is.
fn map(program: &mut Program, base: u64, length: u64, uuids: &[[u8; 16]]) -> u32 {
    let mut params = vec![0; 9264];
    put64(&mut params, 0, base);
    put64(&mut params, 8, length);
    for (number, uuid) in uuids.iter().enumerate() {
        let at = 24 + 36 * number;
        params[at..at + 16].copy_from_slice(uuid);
    }
    put64(&mut params, 9240, uuids.len().try_into().expect("few"));
    put32(&mut params, 9252, CLIENT);
    put32(&mut params, 9256, MEMORY);
    assert_eq!(program.try_call(&UVM, MAP, &params), Ok(0));
    get32(program.at(OUTER), 9260)
}

fn unmap(program: &mut Program, base: u64, length: u64) {
    let mut params = vec![0; 40];
    put64(&mut params, 0, base);
    put64(&mut params, 8, length);
    params[16..32].copy_from_slice(&UUID);
    assert_eq!(program.try_call(&UVM, UNMAP, &params), Ok(0));
}

/// Makes a range, and says what the status is.
fn create(program: &mut Program, base: u64, length: u64) -> u32 {
    let mut params = vec![0; 24];
    put64(&mut params, 0, base);
    put64(&mut params, 8, length);
    assert_eq!(program.try_call(&UVM, CREATE, &params), Ok(0));
    get32(program.at(OUTER), 16)
}

fn free_range(program: &mut Program, base: u64, length: u64) {
    let mut params = vec![0; 24];
    put64(&mut params, 0, base);
    put64(&mut params, 8, length);
    assert_eq!(program.try_call(&UVM, FREE, &params), Ok(0));
}

/// Request, address and length of what the driver was asked since the last time.
fn asked(program: &mut Program) -> Vec<(u32, u64, u64)> {
    let seen = core::mem::take(&mut program.seen);
    let of = |seen: &Seen| {
        let first = &seen.parts[0];
        (seen.request, get64(first, 0), get64(first, 8))
    };
    seen.iter().map(of).collect()
}

/// Lets the driver write a status where the commands here have it.
fn driver_says(program: &mut Program, status: u32) {
    program.driver = Box::new(move |parts| {
        let at = match parts[0].bytes.len() {
            9264 => 9260,
            40 => 32,
            20 | 24 => 16,
            _ => return 0,
        };
        put32(parts[0].bytes, at, status);
        0
    });
}

#[test]
fn unused_gpu_entries_stay_from_the_driver() {
    for (count, passes) in [(1, true), (2, true), (256, true), (257, false), (0, false)] {
        let mut program = with_memory();
        let mut params = vec![0x5a; 9264];
        put64(&mut params, 0, BASE);
        put64(&mut params, 8, 4 * MIB);
        put64(&mut params, 16, 0);
        for at in (24..9240).step_by(36) {
            params[at..at + 16].copy_from_slice(&UUID);
        }
        put64(&mut params, 9240, count);
        put32(&mut params, 9252, CLIENT);
        put32(&mut params, 9256, MEMORY);
        // It changes all that it gets.
        program.driver = Box::new(|parts| {
            parts[0].bytes[24..9240].fill(0x77);
            put32(parts[0].bytes, 9260, 0);
            0
        });
        assert_eq!(program.try_call(&UVM, MAP, &params), Ok(0));
        let used = 24 + 36 * usize::try_from(count).expect("small");
        if !passes {
            assert!(program.seen.is_empty(), "{count}");
            params[9260..9264].copy_from_slice(&NvStatus::NV_ERR_INVALID_ARGUMENT.0.to_le_bytes());
            assert_eq!(program.at(OUTER), params, "{count}");
            continue;
        }
        let got = &program.seen[0].parts[0];
        assert_eq!(
            (&got[..used], &got[9240..]),
            (&params[..used], &params[9240..])
        );
        assert!(got[used..9240].iter().all(|byte| *byte == 0), "{count}");
        let told = program.at(OUTER);
        assert_eq!(told[..9260], params[..9260], "{count}");
        assert_eq!(get32(told, 9260), 0);
    }
}

#[test]
fn memory_stays_charged_until_its_mapping_is_unmapped() {
    let mut program = with_memory();
    // A GPU that is named twice is mapped once.
    assert_eq!(map(&mut program, BASE, 4 * MIB, &[UUID, UUID]), 0);
    assert_eq!(program.free(MEMORY), 0);
    assert_eq!(program.used(), 4 * MIB);
    asked(&mut program);
    unmap(&mut program, BASE, 4 * MIB);
    assert_eq!(asked(&mut program), [(UNMAP, BASE, 4 * MIB)]);
    assert_eq!(program.used(), 0);
}

#[test]
fn range_end_is_believed_whatever_its_status() {
    for said in [0, NvStatus::NV_ERR_INVALID_ADDRESS.0] {
        let mut program = with_memory();
        assert_eq!(create(&mut program, BASE, 4 * MIB), 0);
        for piece in [0, 2 * MIB] {
            assert_eq!(map(&mut program, BASE + piece, 2 * MIB, &[UUID]), 0);
        }
        assert_eq!(program.free(MEMORY), 0);
        asked(&mut program);
        // There is none of this length.
        driver_says(&mut program, 0);
        free_range(&mut program, BASE, 2 * MIB);
        assert_eq!(asked(&mut program), [(FREE, BASE, 2 * MIB)]);
        assert_eq!(program.used(), 4 * MIB);
        driver_says(&mut program, said);
        free_range(&mut program, BASE, 4 * MIB);
        assert_eq!(asked(&mut program), [(FREE, BASE, 4 * MIB)]);
        assert_eq!(program.used(), 0);
    }
}

#[test]
fn uvms_own_mappings_are_charged_once() {
    const REGISTER: u32 = 25;
    const REGION: u32 = 65;
    const POOL: u32 = 68;
    let mut program = with_memory();
    let mut params = vec![0; 32];
    params[..16].copy_from_slice(&UUID);
    put32(&mut params, 20, CLIENT);
    assert_eq!(program.try_call(&UVM, REGISTER, &params), Ok(0));
    let overhead = |program: &Program| program.accounting.share(GPU).expect("a share").overhead;
    let make = |program: &mut Program, request, base, size| {
        let mut params = vec![0; size];
        put64(&mut params, 0, base);
        put64(&mut params, 8, 4096);
        assert_eq!(program.try_call(&UVM, request, &params), Ok(0));
    };
    // A context after the other, each with a region where Linux has put it.
    let mut pool = 0;
    for number in 1..=16 {
        make(&mut program, POOL, BASE, 9248);
        make(&mut program, REGION, BASE + number * GIB, 40);
        let whole = overhead(&program);
        free_range(&mut program, BASE + number * GIB, 4096);
        free_range(&mut program, BASE, 4096);
        let left = overhead(&program);
        assert!(0 < left && left < whole);
        assert!(pool == 0 || pool == left);
        pool = left;
    }
    // The driver was not asked.
    make(&mut program, REGION, 2 * BASE, 40);
    let whole = overhead(&program);
    program.driver = Box::new(|_| -14);
    let mut params = vec![0; 24];
    put64(&mut params, 0, 2 * BASE);
    put64(&mut params, 8, 4096);
    assert_ne!(program.try_call(&UVM, FREE, &params), Ok(0));
    assert_eq!(overhead(&program), whole);
}

#[test]
fn range_in_pieces_is_freed_without_length() {
    let mut program = with_memory();
    program.branch = Branch::R595;
    assert_eq!(create(&mut program, BASE, 4 * MIB), 0);
    for piece in [0, 2 * MIB] {
        assert_eq!(map(&mut program, BASE + piece, 2 * MIB, &[UUID]), 0);
    }
    assert_eq!(program.free(MEMORY), 0);
    let mut params = vec![0; 16];
    put64(&mut params, 0, BASE);
    assert_eq!(program.try_call(&UVM, FREE, &params), Ok(0));
    assert_eq!(program.used(), 0);
}

#[test]
fn overlapping_range_is_refused() {
    let mut program = with_memory();
    assert_eq!(create(&mut program, BASE, 4 * MIB), 0);
    program.seen.clear();
    let in_use = NvStatus::NV_ERR_UVM_ADDRESS_IN_USE.0;
    assert_eq!(create(&mut program, BASE + 2 * MIB, 4 * MIB), in_use);
    let invalid = NvStatus::NV_ERR_INVALID_ADDRESS.0;
    assert_eq!(create(&mut program, BASE + 4 * MIB, 100), invalid);
    assert!(program.seen.is_empty(), "the driver was asked");
}

#[test]
fn a_failed_ranges_mappings_are_each_checked() {
    let mut program = with_memory();
    driver_says(&mut program, NvStatus::NV_ERR_NO_MEMORY.0);
    let no_memory = NvStatus::NV_ERR_NO_MEMORY.0;
    assert_eq!(create(&mut program, BASE, 4 * MIB), no_memory);
    // It was there all the same.
    program.driver = Box::new(|_| 0);
    for piece in [0, 2 * MIB] {
        assert_eq!(map(&mut program, BASE + piece, 2 * MIB, &[UUID]), 0);
    }
    assert_eq!(program.free(MEMORY), 0);
    asked(&mut program);
    driver_says(&mut program, NvStatus::NV_ERR_INVALID_ADDRESS.0);
    free_range(&mut program, BASE, 4 * MIB);
    assert_eq!(asked(&mut program), [(FREE, BASE, 4 * MIB)]);
    assert_eq!(program.used(), 4 * MIB);
    driver_says(&mut program, 0);
    free_range(&mut program, BASE, 4 * MIB);
    let pieces = [
        (FREE, BASE, 4 * MIB),
        (UNMAP, BASE, 2 * MIB),
        (UNMAP, BASE + 2 * MIB, 2 * MIB),
    ];
    assert_eq!(asked(&mut program), pieces);
    assert_eq!(program.used(), 0);
}

#[test]
fn unsent_free_credits_nothing() {
    let mut program = with_memory();
    assert_eq!(create(&mut program, BASE, 4 * MIB), 0);
    assert_eq!(map(&mut program, BASE, 4 * MIB, &[UUID]), 0);
    assert_eq!(program.free(MEMORY), 0);
    program.driver = Box::new(|_| -11);
    let mut params = vec![0; 24];
    put64(&mut params, 0, BASE);
    put64(&mut params, 8, 4 * MIB);
    assert_eq!(program.try_call(&UVM, FREE, &params), Ok(-11));
    assert_eq!(program.used(), 4 * MIB);
    program.driver = Box::new(|_| 0);
    free_range(&mut program, BASE, 4 * MIB);
    assert_eq!(program.used(), 0);
}

#[test]
fn unregistered_gpu_has_no_mapping_left() {
    let mut program = with_memory();
    assert_eq!(map(&mut program, BASE, 4 * MIB, &[UUID]), 0);
    assert_eq!(program.free(MEMORY), 0);
    asked(&mut program);
    let mut params = vec![0; 20];
    params[..16].copy_from_slice(&UUID);
    assert_eq!(program.try_call(&UVM, UNREGISTER_GPU, &params), Ok(0));
    assert_eq!(asked(&mut program)[1..], [(UNMAP, BASE, 4 * MIB)]);
    assert_eq!(program.used(), 0);
}

#[test]
fn mapping_reported_failed_is_unmapped() {
    let mut program = with_memory();
    driver_says(&mut program, NvStatus::NV_ERR_NO_MEMORY.0);
    let status = map(&mut program, BASE, 4 * MIB, &[UUID]);
    assert_eq!(status, NvStatus::NV_ERR_NO_MEMORY.0);
    assert_eq!(asked(&mut program)[1..], [(UNMAP, BASE, 4 * MIB)]);
    assert_eq!(program.free(MEMORY), 0);
    assert_eq!(program.used(), 0);
    assert!(program.accounting.mapped(whole(), u64::MAX).is_none());
}

#[test]
fn failed_mapping_still_mapped_counts() {
    let mut program = with_memory();
    program.driver = Box::new(|parts| if parts[0].bytes.len() == 16 { 0 } else { -11 });
    let mut params = vec![0; 9264];
    put64(&mut params, 8, MIB);
    params[24..40].copy_from_slice(&UUID);
    put64(&mut params, 9240, 1);
    put32(&mut params, 9252, CLIENT);
    put32(&mut params, 9256, MEMORY);
    assert_eq!(program.try_call(&UVM, MAP, &params), Ok(-11));
    assert_eq!(program.free(MEMORY), 0);
    assert_eq!(program.used(), 4 * MIB);
    program.accounting.close_file(UVM.file);
    assert_eq!(program.used(), 0);
}

#[test]
fn a_replaced_mapping_is_unmapped_first() {
    let mut program = with_memory();
    for _ in 0..2 {
        assert_eq!(map(&mut program, BASE, 4 * MIB, &[UUID]), 0);
    }
    let order = asked(&mut program);
    assert_eq!(order[1], (UNMAP, BASE, 4 * MIB));
    assert_eq!((order.len(), order[2].0), (3, MAP));
    assert_eq!(program.free(MEMORY), 0);
    unmap(&mut program, BASE, 4 * MIB);
    assert_eq!(program.used(), 0);
}

#[test]
fn unmappings_of_parts_count_as_host_memory() {
    use crate::policy::Limited::HostMemory;
    const CUT: u64 = 16 << 10;
    let mut program = with_memory();
    assert_eq!(map(&mut program, BASE, 4 * MIB, &[UUID]), 0);
    let limits = &mut program.accounting;
    limits
        .set_limit_of(GPU, HostMemory, Some(4 * CUT))
        .expect("a share");
    asked(&mut program);
    let host = |program: &Program| {
        let limit = program.accounting.limit_of(GPU, HostMemory);
        limit.expect("a share").used
    };
    for page in 1..4 {
        unmap(&mut program, BASE + page * MIB, 4096);
    }
    // The third would have taken two more.
    let parts = [(UNMAP, BASE + MIB, 4096), (UNMAP, BASE + 2 * MIB, 4096)];
    assert_eq!(asked(&mut program), parts);
    assert_eq!(get32(program.at(OUTER), 32), NvStatus::NV_ERR_NO_MEMORY.0);
    assert_eq!(host(&program), 4 * CUT);
    // A whole one takes nothing.
    unmap(&mut program, BASE, 4 * MIB);
    assert_eq!(asked(&mut program), [(UNMAP, BASE, 4 * MIB)]);
    assert_eq!(host(&program), 4 * CUT);
    program.accounting.close_file(UVM.file);
    assert_eq!(host(&program), 0);
}

#[test]
fn unmapping_on_foreign_gpu_is_refused_here() {
    let mut program = with_memory();
    let mut params = vec![0; 40];
    put64(&mut params, 0, BASE);
    put64(&mut params, 8, MIB);
    params[16..32].copy_from_slice(b"another tenant's");
    let status = program.call(&UVM, UNMAP, &params, 32);
    assert_eq!(status, NvStatus::NV_ERR_INVALID_DEVICE.0);
    assert!(program.seen.is_empty());
}

#[test]
fn unmappable_memory_is_refused_as_the_driver_does() {
    let mut program = with_memory();
    let foreign = *b"another tenant's";
    let invalid = NvStatus::NV_ERR_INVALID_DEVICE.0;
    assert_eq!(map(&mut program, BASE, MIB, &[UUID, foreign]), invalid);
    let invalid = NvStatus::NV_ERR_INVALID_ARGUMENT.0;
    assert_eq!(map(&mut program, BASE, MIB, &[]), invalid);
    let invalid = NvStatus::NV_ERR_INVALID_ADDRESS.0;
    assert_eq!(map(&mut program, BASE, 0, &[UUID]), invalid);
    assert_eq!(map(&mut program, BASE, u64::MAX, &[UUID]), invalid);
    assert_eq!(program.free(MEMORY), 0);
    program.seen.clear();
    let unknown = NvStatus::NV_ERR_OBJECT_NOT_FOUND.0;
    assert_eq!(map(&mut program, BASE, MIB, &[UUID]), unknown);
    assert!(program.seen.is_empty(), "the driver was asked");
    assert!(program.accounting.mapped(whole(), u64::MAX).is_none());
    assert_eq!(program.used(), 0);
}

fn whole() -> crate::policy::Span {
    crate::policy::Span {
        file: UVM.file,
        gpu: None,
        base: 0,
        last: u64::MAX,
    }
}
