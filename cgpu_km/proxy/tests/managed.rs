// SPDX-License-Identifier: GPL-2.0
//! Managed memory: what programs ask that is forwarded, answered or changed, and what is asked for
//! them.

use super::*;
use crate::policy::{
    Limited,
    ManagedMode, //
};

const REGISTER_VASPACE: u32 = 25;
const SET_PREFERRED: u32 = 42;
const UNSET_PREFERRED: u32 = 43;
const ENABLE_DUPLICATION: u32 = 44;
const DISABLE_DUPLICATION: u32 = 45;
const MIGRATE: u32 = 51;
const MIGRATE_GROUP: u32 = 53;
const VALIDATE: u32 = 72;
const BLOCK: u64 = 2 * MIB;

/// A limit of so many blocks and their page tables, with which there is not room for a block more.
fn limit(blocks: u64) -> u64 {
    blocks * BLOCK + MIB
}
const BASE: u64 = 0x7f00_0000_0000;
const SECOND: u64 = BASE + GIB;
const MEMORY: u32 = 0x5c00_0010;
const INVALID_ADDRESS: u32 = NvStatus::NV_ERR_INVALID_ADDRESS.0;
const NO_MEMORY: u32 = NvStatus::NV_ERR_NO_MEMORY.0;
/// a65e0f4e-d7d4-7ba2-5047-412c142a7773 as its bytes stand in a call.
const CPU: [u8; 16] = [
    0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
];

/// A call that the driver saw: request, address, length, and the UUID of the requests that have
/// one.
type SeenRequest = (u32, u64, u64, Option<[u8; 16]>);

fn asked(program: &mut Program) -> Vec<SeenRequest> {
    let seen = core::mem::take(&mut program.seen);
    let of = |seen: &Seen| {
        let first = &seen.parts[0];
        let uuid = matches!(seen.request, SET_PREFERRED | MIGRATE)
            .then(|| first[16..32].try_into().expect("sixteen bytes"));
        (seen.request, get64(first, 0), get64(first, 8), uuid)
    };
    seen.iter().map(of).collect()
}

fn span(size: usize, base: u64, length: u64) -> Vec<u8> {
    let mut params = vec![0; size];
    put64(&mut params, 0, base);
    put64(&mut params, 8, length);
    params
}

fn with_uuid(size: usize, base: u64, length: u64, uuid: [u8; 16]) -> Vec<u8> {
    let mut params = span(size, base, length);
    params[16..32].copy_from_slice(&uuid);
    params
}

fn prefer(program: &mut Program, base: u64, length: u64, uuid: [u8; 16]) -> u32 {
    program.call(&UVM, SET_PREFERRED, &with_uuid(40, base, length, uuid), 36)
}

fn migrate(program: &mut Program, base: u64, length: u64, uuid: [u8; 16]) -> u32 {
    program.call(&UVM, MIGRATE, &with_uuid(80, base, length, uuid), 72)
}

fn register(program: &mut Program) -> u32 {
    let mut params = vec![0; 32];
    params[..16].copy_from_slice(&UUID);
    put32(&mut params, 20, CLIENT);
    program.call(&UVM, REGISTER_VASPACE, &params, 28)
}

/// Does the work of `mmap` and of the return from it.
fn map(program: &mut Program, base: u64, length: u64, late: bool) -> bool {
    let mapped = program.accounting.map_managed(UVM.file, base, length);
    if mapped == Ok(true) {
        settle(program, UVM.file, base, length, || late);
    }
    mapped.is_ok()
}

/// A program on a GPU of so many blocks, with an address space on it.
fn with_blocks(blocks: u64) -> Program {
    let mut program = Program::with_subdevice(limit(blocks));
    program.driver = Box::new(|_| 0);
    assert_eq!(register(&mut program), 0);
    program.seen.clear();
    program
}

/// The same with four blocks that count, and four that are spilled.
fn with_spilled() -> Program {
    let mut program = with_blocks(4);
    assert!(map(&mut program, BASE, 8 * BLOCK, false));
    program.seen.clear();
    program
}

fn figures(program: &Program) -> (u64, u64) {
    let share = program.accounting.share(GPU).expect("added");
    (share.managed / BLOCK, share.spilled / BLOCK)
}

#[test]
fn overflowing_memory_prefers_the_cpu() {
    let mut program = with_blocks(4);
    assert!(map(&mut program, BASE, 3 * BLOCK, false));
    assert_eq!(asked(&mut program), []);
    assert!(map(&mut program, SECOND, 3 * BLOCK, false));
    assert_eq!(
        asked(&mut program),
        [(SET_PREFERRED, SECOND + BLOCK, 2 * BLOCK, Some(CPU))]
    );
    assert_eq!(figures(&program), (4, 2));
    // The node of the CPU: any.
    assert!(map(&mut program, SECOND + GIB, BLOCK, false));
    assert_eq!(get32(&program.seen[0].parts[0], 32), u32::MAX);
}

#[test]
fn memory_a_gpu_may_hold_is_migrated() {
    let mut program = with_blocks(1);
    assert!(map(&mut program, BASE, 3 * BLOCK, true));
    assert_eq!(
        asked(&mut program),
        [
            (SET_PREFERRED, BASE + BLOCK, 2 * BLOCK, Some(CPU)),
            (MIGRATE, BASE + BLOCK, 2 * BLOCK, Some(CPU)),
        ]
    );
}

#[test]
fn time_in_the_drivers_call_counts_as_late() {
    let mut program = with_blocks(1);
    let now = Rc::new(std::cell::Cell::new(0));
    let clock = Rc::clone(&now);
    // The program keeps the first of the driver's calls waiting.
    program.driver = Box::new(move |_| {
        clock.set(clock.get() + 1);
        0
    });
    let mapped = program.accounting.map_managed(UVM.file, BASE, 3 * BLOCK);
    assert_eq!(mapped, Ok(true));
    settle(&mut program, UVM.file, BASE, 3 * BLOCK, || now.get() > 0);
    assert_eq!(
        asked(&mut program),
        [
            (SET_PREFERRED, BASE + BLOCK, 2 * BLOCK, Some(CPU)),
            (MIGRATE, BASE + BLOCK, 2 * BLOCK, Some(CPU)),
        ]
    );
}

#[test]
fn memory_the_driver_refuses_is_unmapped_again() {
    let mut program = with_blocks(1);
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 36, NO_MEMORY);
        0
    });
    assert!(map(&mut program, BASE, 3 * BLOCK, false));
    assert_eq!(program.unmapped, [(BASE + BLOCK, 2 * BLOCK)]);
    assert_eq!(figures(&program), (1, 0));
}

#[test]
fn calls_on_counted_memory_are_forwarded() {
    let mut program = with_blocks(4);
    assert!(map(&mut program, BASE, 4 * BLOCK, false));
    for uuid in [CPU, UUID] {
        assert_eq!(prefer(&mut program, BASE, BLOCK, uuid), 0);
        assert_eq!(migrate(&mut program, BASE, 4 * BLOCK, uuid), 0);
        assert_eq!(
            asked(&mut program),
            [
                (SET_PREFERRED, BASE, BLOCK, Some(uuid)),
                (MIGRATE, BASE, 4 * BLOCK, Some(uuid)),
            ]
        );
    }
    for request in [UNSET_PREFERRED, ENABLE_DUPLICATION, DISABLE_DUPLICATION] {
        assert_eq!(program.call(&UVM, request, &span(24, BASE, BLOCK), 16), 0);
        assert_eq!(asked(&mut program), [(request, BASE, BLOCK, None)]);
    }
}

#[test]
fn calls_on_spilled_memory_are_answered_or_cut() {
    let mut program = with_spilled();
    let spilled = BASE + 4 * BLOCK;
    for request in [UNSET_PREFERRED, ENABLE_DUPLICATION, DISABLE_DUPLICATION] {
        assert_eq!(
            program.call(&UVM, request, &span(24, spilled, BLOCK), 16),
            0
        );
        assert_eq!(asked(&mut program), []);
        let params = span(24, BASE + 3 * BLOCK, 4 * BLOCK);
        assert_eq!(program.call(&UVM, request, &params, 16), 0);
        assert_eq!(
            asked(&mut program),
            [(request, BASE + 3 * BLOCK, BLOCK, None)]
        );
        assert_eq!(program.at(OUTER)[..16], params[..16], "the program's own");
    }
    assert_eq!(prefer(&mut program, spilled, BLOCK, UUID), 0);
    assert_eq!(migrate(&mut program, spilled, BLOCK, UUID), 0);
    assert_eq!(asked(&mut program), []);
    assert_eq!(migrate(&mut program, BASE, 8 * BLOCK, UUID), 0);
    assert_eq!(
        asked(&mut program),
        [(MIGRATE, BASE, 4 * BLOCK, Some(UUID))]
    );
    // To the CPU anything may go.
    assert_eq!(migrate(&mut program, spilled, BLOCK, CPU), 0);
    assert_eq!(asked(&mut program), [(MIGRATE, spilled, BLOCK, Some(CPU))]);
    // A GPU that nobody has.
    assert_eq!(
        prefer(&mut program, spilled, BLOCK, [9; 16]),
        NvStatus::NV_ERR_INVALID_DEVICE.0
    );
    assert_eq!(asked(&mut program), []);
}

const SEMAPHORE: u64 = 0x2_0000_0000;
const PAYLOAD: u32 = 77;

/// A migration that goes on after the call, and whose end a semaphore tells.
fn later(base: u64, length: u64, uuid: [u8; 16]) -> Vec<u8> {
    let mut params = with_uuid(80, base, length, uuid);
    put32(&mut params, 32, 1);
    put64(&mut params, 40, SEMAPHORE);
    put32(&mut params, 48, PAYLOAD);
    params
}

/// The migrations that the driver saw: length, flags, semaphore and payload.
fn migrations(program: &mut Program) -> Vec<(u64, u32, u64, u32)> {
    let of = |seen: &Seen| {
        assert_eq!(seen.request, MIGRATE);
        let b = &seen.parts[0];
        (get64(b, 8), get32(b, 32), get64(b, 40), get32(b, 48))
    };
    let seen = core::mem::take(&mut program.seen);
    seen.iter().map(of).collect()
}

#[test]
fn migration_writes_its_semaphore_last() {
    let mut program = with_spilled();
    for (uuid, length, sent) in [
        // Run by run, as far as it counts.
        (UUID, 8 * BLOCK, 4 * BLOCK),
        (UUID, 4 * BLOCK, 4 * BLOCK),
        (CPU, 8 * BLOCK, 8 * BLOCK),
    ] {
        program.put(SEMAPHORE, &[0; 4]);
        let params = later(BASE, length, uuid);
        assert_eq!(program.call(&UVM, MIGRATE, &params, 72), 0);
        assert_eq!(migrations(&mut program), [(sent, 0, 0, 0)]);
        assert_eq!(program.at(SEMAPHORE), PAYLOAD.to_ne_bytes());
        assert_eq!(program.at(OUTER)[..52], params[..52], "the program's own");
    }
    // If the driver refuses a run, the semaphore is not written.
    program.put(SEMAPHORE, &[0; 4]);
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 72, NvStatus::NV_ERR_INVALID_LIMIT.0);
        0
    });
    for uuid in [UUID, CPU] {
        let params = later(BASE, 8 * BLOCK, uuid);
        assert_eq!(
            program.call(&UVM, MIGRATE, &params, 72),
            NvStatus::NV_ERR_INVALID_LIMIT.0
        );
        assert_eq!(program.at(OUTER)[..52], params[..52], "the program's own");
    }
    assert_eq!(program.seen.len(), 2);
    assert_eq!(program.at(SEMAPHORE), [0; 4]);
}

#[test]
fn large_migrations_are_made_in_pieces() {
    const PIECE: u64 = 32 * BLOCK;
    let mut program = with_blocks(100);
    // From half a piece before a border on.
    let base = BASE.next_multiple_of(PIECE) + PIECE / 2;
    assert!(map(&mut program, base, 90 * BLOCK, false));
    program.seen.clear();
    for uuid in [UUID, CPU] {
        program.put(SEMAPHORE, &[0; 4]);
        for (params, written) in [
            (later(base, 90 * BLOCK, uuid), PAYLOAD),
            (with_uuid(80, base, 90 * BLOCK, uuid), 0),
        ] {
            program.put(SEMAPHORE, &[0; 4]);
            assert_eq!(program.call(&UVM, MIGRATE, &params, 72), 0);
            assert_eq!(program.at(OUTER)[..52], params[..52], "the program's own");
            assert_eq!(program.at(SEMAPHORE), written.to_ne_bytes());
            let of = |seen: &Seen| (get64(&seen.parts[0], 0), get64(&seen.parts[0], 8));
            let pieces: Vec<_> = program.seen.iter().map(of).collect();
            let border = base + PIECE / 2;
            assert_eq!(
                pieces,
                [
                    (base, PIECE / 2),
                    (border, PIECE),
                    (border + PIECE, PIECE),
                    (border + 2 * PIECE, 10 * BLOCK),
                ]
            );
            program.seen.clear();
        }
    }
    // A piece that the driver refuses is the last.
    program.driver = Box::new(move |parts| {
        if get64(parts[0].bytes, 0) > base {
            put32(parts[0].bytes, 72, NvStatus::NV_ERR_INVALID_LIMIT.0);
        }
        0
    });
    let refused = migrate(&mut program, base, 90 * BLOCK, UUID);
    assert_eq!(refused, NvStatus::NV_ERR_INVALID_LIMIT.0);
    assert_eq!(program.seen.len(), 2);
}

#[test]
fn semaphore_alone_does_not_reach_the_driver() {
    let mut program = with_spilled();
    program.put(SEMAPHORE, &[0; 8]);
    let alone = |uuid| later(0, 0, uuid);
    for uuid in [UUID, CPU] {
        program.put(SEMAPHORE, &[0; 8]);
        assert_eq!(program.call(&UVM, MIGRATE, &alone(uuid), 72), 0);
        assert_eq!(program.at(SEMAPHORE)[..4], PAYLOAD.to_ne_bytes());
    }
    // The driver would refuse them: a pool that is nowhere, an odd place, another GPU, no ASYNC.
    let mut nowhere = alone(CPU);
    put64(&mut nowhere, 40, SEMAPHORE - MIB);
    let mut odd = alone(CPU);
    put64(&mut odd, 40, SEMAPHORE + 2);
    let mut at_once = alone(CPU);
    put32(&mut at_once, 32, 0);
    program.put(SEMAPHORE, &[0; 8]);
    for (params, status) in [
        (nowhere, INVALID_ADDRESS),
        (odd, INVALID_ADDRESS),
        (alone([9; 16]), NvStatus::NV_ERR_INVALID_DEVICE.0),
        (at_once, NvStatus::NV_ERR_INVALID_ARGUMENT.0),
    ] {
        assert_eq!(program.call(&UVM, MIGRATE, &params, 72), status);
        assert_eq!(program.at(OUTER)[..52], params[..52], "the program's own");
    }
    assert_eq!(program.at(SEMAPHORE), [0; 8]);
    assert!(program.seen.is_empty());
}

#[test]
fn addresses_that_are_not_managed_throughout_go_nowhere() {
    let mut program = with_spilled();
    let beyond = span(24, BASE, 9 * BLOCK);
    assert_eq!(
        program.call(&UVM, UNSET_PREFERRED, &beyond, 16),
        INVALID_ADDRESS
    );
    assert_eq!(prefer(&mut program, 0x1000, BLOCK, UUID), INVALID_ADDRESS);
    assert_eq!(migrate(&mut program, 0x1000, BLOCK, UUID), INVALID_ADDRESS);
    assert_eq!(
        migrate(&mut program, u64::MAX - 5, BLOCK, UUID),
        INVALID_ADDRESS
    );
    assert_eq!(asked(&mut program), []);
}

#[test]
fn range_group_is_not_migrated_to_gpu() {
    let mut program = with_spilled();
    let mut params = vec![0; 32];
    put64(&mut params, 0, 1);
    params[8..24].copy_from_slice(&UUID);
    assert_eq!(program.call(&UVM, MIGRATE_GROUP, &params, 24), 0);
    assert!(program.seen.is_empty());
    params[8..24].copy_from_slice(&CPU);
    assert_eq!(program.call(&UVM, MIGRATE_GROUP, &params, 24), 0);
    assert_eq!(program.seen.len(), 1);
}

#[test]
fn partly_spilled_range_looks_whole() {
    let mut program = with_spilled();
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 16, INVALID_ADDRESS);
        0
    });
    let whole = span(24, BASE, 8 * BLOCK);
    assert_eq!(program.call(&UVM, VALIDATE, &whole, 16), 0);
    let more = span(24, BASE, 9 * BLOCK);
    assert_eq!(program.call(&UVM, VALIDATE, &more, 16), INVALID_ADDRESS);
}

#[test]
fn a_free_brings_spilled_memory_back_as_wanted() {
    let mut program = with_blocks(4);
    assert_eq!(program.memory(MEMORY, 4 * BLOCK), 0);
    assert!(map(&mut program, BASE, 3 * BLOCK, false));
    assert_eq!(figures(&program), (0, 3));
    assert_eq!(prefer(&mut program, BASE, BLOCK, UUID), 0);
    let params = span(24, BASE + BLOCK, BLOCK);
    assert_eq!(program.call(&UVM, ENABLE_DUPLICATION, &params, 16), 0);
    program.seen.clear();
    assert_eq!(program.free(MEMORY), 0);
    program.seen.remove(0);
    assert_eq!(
        asked(&mut program),
        [
            (SET_PREFERRED, BASE, BLOCK, Some(UUID)),
            (SET_PREFERRED, BASE + BLOCK, BLOCK, Some(UUID)),
            (UNSET_PREFERRED, BASE + BLOCK, BLOCK, None),
            (ENABLE_DUPLICATION, BASE + BLOCK, BLOCK, None),
            (SET_PREFERRED, BASE + 2 * BLOCK, BLOCK, Some(UUID)),
            (UNSET_PREFERRED, BASE + 2 * BLOCK, BLOCK, None),
        ]
    );
    assert_eq!(figures(&program), (3, 0));
}

#[test]
fn memory_object_takes_room_of_managed_memory() {
    let mut program = with_blocks(4);
    assert!(map(&mut program, BASE, 4 * BLOCK, false));
    let params = span(24, BASE, 4 * BLOCK);
    assert_eq!(program.call(&UVM, ENABLE_DUPLICATION, &params, 16), 0);
    program.seen.clear();
    assert_eq!(program.memory(MEMORY, BLOCK), 0);
    let last = BASE + 3 * BLOCK;
    assert_eq!(
        program.seen.pop().expect("the object").request,
        NV_ESC_RM_ALLOC
    );
    assert_eq!(
        asked(&mut program),
        [
            (DISABLE_DUPLICATION, last, BLOCK, None),
            (SET_PREFERRED, last, BLOCK, Some(CPU)),
            (MIGRATE, last, BLOCK, Some(CPU)),
        ]
    );
    assert_eq!(figures(&program), (3, 1));
    assert_eq!(program.accounting.share(GPU).expect("added").refused, 0);
    // More than there is: nothing is moved.
    assert_eq!(program.memory(MEMORY + 1, 5 * BLOCK), NO_MEMORY);
    assert_eq!(asked(&mut program), []);
    // Memory that the driver cannot move stays, and the object is refused.
    program.driver = Box::new(|parts| {
        if parts[0].bytes.len() == 80 {
            put32(parts[0].bytes, 72, NO_MEMORY);
        }
        0
    });
    assert_eq!(program.memory(MEMORY + 1, BLOCK), NO_MEMORY);
    assert_eq!(figures(&program), (3, 1));
}

#[test]
fn half_done_duplication_ends_when_memory_moves() {
    let mut program = with_blocks(4);
    assert!(map(&mut program, BASE, 2 * BLOCK, false));
    let upper = BASE + 3 * BLOCK;
    assert!(map(&mut program, upper, 2 * BLOCK, false));
    assert!(map(&mut program, BASE + 2 * BLOCK, BLOCK, false));
    assert_eq!(figures(&program), (4, 1));
    // A last run that is no whole number of pages.
    program.driver = Box::new(|parts| {
        let status = match get64(parts[0].bytes, 8) % 4096 {
            0 => 0,
            _ => INVALID_ADDRESS,
        };
        put32(parts[0].bytes, 16, status);
        0
    });
    program.seen.clear();
    let params = span(24, BASE, 5 * BLOCK - 1);
    assert_eq!(
        program.call(&UVM, ENABLE_DUPLICATION, &params, 16),
        INVALID_ADDRESS
    );
    assert_eq!(
        asked(&mut program),
        [
            (ENABLE_DUPLICATION, BASE, 2 * BLOCK, None),
            (ENABLE_DUPLICATION, upper, 2 * BLOCK - 1, None),
        ]
    );
    program.driver = Box::new(|_| 0);
    program.accounting.set_limit(GPU, limit(1)).unwrap();
    rebalance(&mut program);
    let asked = asked(&mut program);
    assert!(asked.contains(&(DISABLE_DUPLICATION, BASE + BLOCK, BLOCK, None)));
    assert_eq!(figures(&program), (1, 4));
}

#[test]
fn limit_changes_move_managed_memory() {
    let mut program = with_blocks(4);
    assert!(map(&mut program, BASE, 4 * BLOCK, false));
    program.accounting.set_limit(GPU, limit(2)).unwrap();
    rebalance(&mut program);
    let upper = BASE + 2 * BLOCK;
    assert_eq!(
        asked(&mut program),
        [
            (DISABLE_DUPLICATION, upper, 2 * BLOCK, None),
            (SET_PREFERRED, upper, 2 * BLOCK, Some(CPU)),
            (MIGRATE, upper, 2 * BLOCK, Some(CPU)),
        ]
    );
    assert_eq!(figures(&program), (2, 2));
    program.accounting.set_limit(GPU, limit(4)).unwrap();
    rebalance(&mut program);
    assert_eq!(
        asked(&mut program),
        [
            // The GPU's mappings of host memory go, so that it faults.
            (SET_PREFERRED, upper, 2 * BLOCK, Some(UUID)),
            (UNSET_PREFERRED, upper, 2 * BLOCK, None),
        ]
    );
    assert_eq!(figures(&program), (4, 0));
}

#[test]
fn gpu_gets_address_space_when_mappings_fit() {
    for (mode, status, left) in [
        (ManagedMode::Spill, 0, (2, 1)),
        (ManagedMode::Charge, NO_MEMORY, (0, 0)),
    ] {
        let mut program = Program::with_subdevice(limit(2));
        program.driver = Box::new(|_| 0);
        program.accounting.set_managed_mode(GPU, mode).unwrap();
        assert!(map(&mut program, BASE, 3 * BLOCK, false));
        assert_eq!(figures(&program), (0, 0), "no GPU can hold it");
        program.seen.clear();
        assert_eq!(register(&mut program), status);
        assert_eq!(figures(&program), left);
        let requests: Vec<u32> = program.seen.iter().map(|seen| seen.request).collect();
        match status {
            0 => assert_eq!(
                requests,
                [
                    DISABLE_DUPLICATION,
                    SET_PREFERRED,
                    MIGRATE,
                    REGISTER_VASPACE
                ]
            ),
            _ => assert_eq!(requests, []),
        }
    }
}

#[test]
fn branches_without_cpu_node_get_none() {
    let mut program = with_blocks(1);
    program.branch = Branch::R535;
    assert!(map(&mut program, BASE, 2 * BLOCK, false));
    let sent = &program.seen[0].parts[0];
    assert_eq!((sent.len(), get32(sent, 32), get32(sent, 36)), (40, 0, 0));
    let mut params = with_uuid(40, BASE, BLOCK, CPU);
    put32(&mut params, 36, 5);
    assert_eq!(program.call(&UVM, SET_PREFERRED, &params, 32), 0);
}

#[test]
fn no_memory_is_wanted_on_other_gpus() {
    let mut program = with_blocks(4);
    assert!(map(&mut program, BASE, 2 * BLOCK, false));
    // One that the tenant had before, which the driver still has in the file.
    let gone = [9; 16];
    let refused = NvStatus::NV_ERR_INVALID_DEVICE.0;
    assert_eq!(migrate(&mut program, BASE, BLOCK, gone), refused);
    assert_eq!(prefer(&mut program, BASE, BLOCK, gone), refused);
    let mut params = vec![0; 32];
    params[..16].copy_from_slice(&gone);
    put32(&mut params, 20, CLIENT);
    assert_eq!(program.call(&UVM, REGISTER_VASPACE, &params, 28), refused);
    assert_eq!(asked(&mut program), []);
    assert_eq!(migrate(&mut program, BASE, BLOCK, UUID), 0);
    assert_eq!(asked(&mut program).len(), 1);
}

#[test]
fn peer_access_needs_two_gpus_of_the_tenant() {
    let mut program = with_blocks(4);
    for (one, other) in [([9; 16], UUID), (UUID, [9; 16]), (UUID, UUID)] {
        for request in [29, 30] {
            let params = [&one[..], &other[..], &[0; 4]].concat();
            let status = program.call(&UVM, request, &params, 32);
            assert_eq!(status, NvStatus::NV_ERR_INVALID_DEVICE.0);
        }
    }
    assert_eq!(asked(&mut program), []);
}

#[test]
fn structures_of_uvm_count_as_host_memory() {
    let mut program = with_blocks(4);
    assert!(map(&mut program, BASE, 2 * BLOCK, false));
    let host = |program: &Program| {
        let limit = program.accounting.limit_of(GPU, Limited::HostMemory);
        limit.expect("added").used
    };
    let before = host(&program);
    // SET_ACCESSED_BY of a page: two cuts. UVM_SET_RANGE_GROUP: one more.
    let page = with_uuid(40, BASE + 4096, 4096, UUID);
    assert_eq!(program.call(&UVM, 46, &page, 32), 0);
    assert_eq!(host(&program), before + (16 << 10));
    let mut group = vec![0; 32];
    put64(&mut group, 8, BASE);
    put64(&mut group, 16, 3 * 4096);
    assert_eq!(program.call(&UVM, 31, &group, 24), 0);
    assert_eq!(host(&program), before + (24 << 10));
    assert_eq!(
        program.call(&UVM, UNSET_PREFERRED, &span(24, BASE, 4096), 16),
        0
    );
    assert_eq!(host(&program), before + (24 << 10));
    let far = with_uuid(40, BASE + BLOCK, 2 * BLOCK, UUID);
    assert_eq!(program.call(&UVM, 46, &far, 32), INVALID_ADDRESS);
    // A group, and its end.
    assert_eq!(program.call(&UVM, 23, &[0; 16], 8), 0);
    assert_eq!(host(&program), before + (24 << 10) + 256);
    let mut number = vec![0; 16];
    put64(&mut number, 0, 1);
    assert_eq!(program.call(&UVM, 24, &number, 8), 0);
    assert_eq!(host(&program), before + (24 << 10));
}

#[test]
fn address_space_counts_before_the_driver_is_asked() {
    /// `UVM_INITIALIZE`.
    const INITIALIZE: u32 = 0x3000_0001;
    let mut program = with_blocks(4);
    let limit = |program: &Program| {
        let limit = program.accounting.limit_of(GPU, Limited::HostMemory);
        limit.expect("added")
    };
    let file = Session {
        file: FileId(60),
        role: Role::Uvm,
    };
    let before = limit(&program).used;
    let most = before + (384 << 10);
    program
        .accounting
        .set_limit_of(GPU, Limited::HostMemory, Some(most))
        .expect("added");
    assert_eq!(program.call(&file, INITIALIZE, &[0; 16], 8), 0);
    assert_eq!(limit(&program).used, most);
    let other = Session {
        file: FileId(61),
        ..file
    };
    program.seen.clear();
    let status = program.call(&other, INITIALIZE, &[0; 16], 8);
    assert_eq!(status, NvStatus::NV_ERR_NO_MEMORY.0);
    assert_eq!(asked(&mut program), []);
    program.accounting.close_file(file.file);
    assert_eq!(limit(&program).used, before);
    assert_eq!(program.call(&other, INITIALIZE, &[0; 16], 8), 0);
}
