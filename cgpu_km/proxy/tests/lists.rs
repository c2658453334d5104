// SPDX-License-Identifier: GPL-2.0
//! A tenant sees its own GPUs and processes in the driver's lists of all of the host's.

use super::*;

const OTHERS: [u32; 2] = [0x1800, 0x3a00];
const HOST: [u32; 3] = [OTHERS[0], OWN, OTHERS[1]];
/// The number of [`Program::process`] in its namespace, and one of another tenant's process.
const OWN_PID: u32 = 7;
const OTHER_PID: u32 = 8;
const END: u32 = 0xffff_ffff;
const UNKNOWN: u32 = 0xffff_fffe;
const NV_ESC_CARD_INFO: u32 = 0xc000_46c8;
const NV_ESC_ATTACH_GPUS_TO_FD: u32 = 0xc000_46d4;

/// A program whose driver fills the parameters of a control with `fill`.
fn filling(fill: impl Fn(&mut [u8]) + 'static) -> Program {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(move |parts| {
        fill(parts[1].bytes);
        0
    });
    program
}

fn numbers(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| get32(word, 0)).collect()
}

fn list(ids: &[u32], len: usize) -> Vec<u8> {
    let padded = ids.iter().copied().chain(std::iter::repeat(END));
    padded.take(len).flat_map(u32::to_le_bytes).collect()
}

/// The task and the way by which the driver was called for a control.
fn route(cmd: u32, params: &[u8]) -> Route {
    let mut program = Program::with_subdevice(GIB);
    program.put(0x20_0000, &[7; 16]);
    assert_eq!(control(&mut program, CLIENT, cmd, params), 0);
    program.seen.last().expect("a call").route
}

#[test]
fn reports_that_tell_too_much_go_unseen() {
    let told = [
        (0x201, 128),
        (0x204, 4),
        (0x214, 384),
        (0x288, 3076),
        (0xa04, 2244),
        (0x2080_018d, 3812),
        (0x2080_1303, 1028),
    ];
    for (cmd, size) in told {
        assert_eq!(route(cmd, &vec![0; size]), Route::Unseen, "{cmd:#x}");
    }
    // A list behind a pointer, and none.
    for (at, wanted) in [(0x20_0000, Route::Unseen), (0, Route::Caller)] {
        let mut params = words(16, &[(0, 2)]);
        put64(&mut params, 8, at);
        assert_eq!(route(0x2080_1301, &params), wanted);
    }
    // The name of the tenant's own GPU.
    assert_eq!(route(0x2080_0110, &[0; 132]), Route::Caller);
}

#[test]
fn the_kernel_asks_for_a_client_through_its_own_file_alone() {
    let mut program = Program::with_subdevice(GIB);
    let calls = program.seen.len();
    let other = Session {
        file: FileId(CONTROL.file.0 + 100),
        ..CONTROL
    };
    let mut outer = words(32, &[(0, CLIENT), (4, CLIENT), (8, 0x214), (24, 384)]);
    put64(&mut outer, 16, PARAMS);
    program.put(PARAMS, &[0; 384]);
    let status = program.call(&other, NV_ESC_RM_CONTROL, &outer, 28);
    assert_eq!(status, NvStatus::NV_ERR_INVALID_CLIENT.0);
    assert_eq!(program.seen.len(), calls, "the driver was asked");
}

#[test]
fn no_program_says_how_large_the_hosts_memory_blocks_are() {
    const NV_ESC_SYS_PARAMS: u32 = 0xc008_46d6;
    let mut program = Program::with_subdevice(GIB);
    for size in [0x4000_0000_u64, 1] {
        program.put(OUTER, &size.to_le_bytes());
        let returned = ioctl(&mut program, &CONTROL, NV_ESC_SYS_PARAMS, UserAddr(OUTER));
        assert_eq!(returned, Ok(0));
    }
    assert!(program.seen.is_empty(), "the driver was told");
}

#[test]
fn lists_of_gpus_have_the_tenants_alone() {
    let mut program = filling(|params| params.copy_from_slice(&list(&HOST, 32)));
    assert_eq!(control(&mut program, CLIENT, 0x201, &[0; 128]), 0);
    assert_eq!(program.at(PARAMS), list(&[OWN], 32));

    // Probed: the ids, those that are excluded, and a word for each of the first.
    let mut program = filling(|params| {
        params[..128].copy_from_slice(&list(&HOST, 32));
        params[128..256].copy_from_slice(&list(&[0x5d00], 32));
        for (index, word) in [1, 2, 3].into_iter().enumerate() {
            put32(params, 256 + 4 * index, word);
        }
    });
    assert_eq!(control(&mut program, CLIENT, 0x214, &[0; 384]), 0);
    assert_eq!(program.at(PARAMS)[..128], list(&[OWN], 32));
    assert_eq!(program.at(PARAMS)[128..256], list(&[], 32));
    let mut flags = vec![0; 32];
    flags[0] = 2;
    assert_eq!(numbers(&program.at(PARAMS)[256..]), flags);

    let mut program = filling(|params| put32(params, 0, 0b111));
    assert_eq!(control(&mut program, CLIENT, 0x204, &[0; 4]), 0);
    assert_eq!(get32(program.at(PARAMS), 0), 1 << GPU.0);

    let mut program = filling(|params| {
        put32(params, 0, 3);
        for (index, id) in HOST.into_iter().enumerate() {
            put32(params, 4 + 12 * index, id);
            put32(
                params,
                8 + 12 * index,
                100 + u32::try_from(index).expect("small"),
            );
        }
    });
    assert_eq!(control(&mut program, CLIENT, 0x288, &[0; 3076]), 0);
    assert_eq!(numbers(&program.at(PARAMS)[..16]), [1, OWN, 101, 0]);
    assert!(program.at(PARAMS)[16..].iter().all(|byte| *byte == 0));
}

#[test]
fn groups_of_gpus_are_shown_if_all_are_the_tenants() {
    let mut program = filling(|params| {
        put32(params, 0, 3);
        for (group, ids) in [&HOST[..2], &[OWN], &OTHERS].into_iter().enumerate() {
            let at = 4 + 140 * group;
            put32(params, at, u32::try_from(ids.len()).expect("small"));
            for (index, id) in ids.iter().enumerate() {
                put32(params, at + 4 + 4 * index, *id);
            }
        }
    });
    assert_eq!(control(&mut program, CLIENT, 0xa04, &[0; 2244]), 0);
    assert_eq!(numbers(&program.at(PARAMS)[..12]), [1, 1, OWN]);
    assert!(program.at(PARAMS)[12..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_list_is_filtered_whatever_the_status_says() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 28, NvStatus::NV_ERR_NOT_SUPPORTED.0);
        parts[1].bytes.copy_from_slice(&list(&HOST, 32));
        0
    });
    assert_eq!(
        control(&mut program, CLIENT, 0x201, &[0; 128]),
        NvStatus::NV_ERR_NOT_SUPPORTED.0
    );
    assert_eq!(program.at(PARAMS), list(&[OWN], 32));
}

#[test]
fn another_tenants_gpu_has_a_name_that_the_driver_does_not_know() {
    let sizes = [
        (0x202, 40),
        (0x205, 32),
        (0x21b, 12),
        (0x275, 268),
        (0x279, 12),
        (0x289, 4),
        (0x290, 4),
    ];
    for (cmd, size) in sizes {
        for (named, told) in [(OWN, OWN), (OTHERS[0], UNKNOWN)] {
            let mut program = Program::with_subdevice(GIB);
            program.driver = Box::new(move |parts| {
                if get32(parts[1].bytes, 0) != OWN {
                    put32(parts[0].bytes, 28, NvStatus::NV_ERR_INVALID_ARGUMENT.0);
                }
                0
            });
            let params = words(size, &[(0, named)]);
            let status = control(&mut program, CLIENT, cmd, &params);
            assert_eq!(
                status,
                if named == OWN {
                    0
                } else {
                    NvStatus::NV_ERR_INVALID_ARGUMENT.0
                },
                "{cmd:#x}"
            );
            assert_eq!(get32(&program.seen[0].parts[1], 0), told);
            assert_eq!(program.at(PARAMS), params, "{cmd:#x}");
        }
    }
}

#[test]
fn gpus_in_a_list_are_named_one_by_one() {
    // Attach, detach: what ends the list and what means all stay what they are.
    for (cmd, size) in [(0x215, 132), (0x216, 128)] {
        let mut program = Program::with_subdevice(GIB);
        program.driver = Box::new(|parts| {
            if parts[1].bytes.len() == 132 {
                put32(parts[1].bytes, 128, UNKNOWN);
            }
            0
        });
        let mut params = list(&[OWN, OTHERS[1]], size / 4);
        assert_eq!(control(&mut program, CLIENT, cmd, &params), 0);
        let seen = numbers(&program.seen[0].parts[1]);
        assert_eq!(seen[..3], [OWN, UNKNOWN, END]);
        assert_eq!(program.at(PARAMS)[..128], params[..128]);
        if size == 132 {
            assert_eq!(get32(program.at(PARAMS), 128), OTHERS[1]);
        }
        put32(&mut params, 0, 0xffff);
        put32(&mut params, 4, END);
        assert_eq!(control(&mut program, CLIENT, cmd, &params), 0);
        let seen = numbers(&program.seen[1].parts[1]);
        assert_eq!(seen[..2], [0xffff, END]);
    }
    // Between which GPUs what is possible: in both groups.
    let mut program = Program::with_subdevice(GIB);
    let mut params = vec![0; 1352];
    for (at, word) in [(0, 2), (4, 1), (8, OWN), (12, OTHERS[0]), (40, OTHERS[1])] {
        put32(&mut params, at, word);
    }
    assert_eq!(control(&mut program, CLIENT, 0x13a, &params), 0);
    let seen = numbers(&program.seen[0].parts[1]);
    assert_eq!([seen[2], seen[3], seen[10]], [OWN, UNKNOWN, UNKNOWN]);
    assert_eq!([seen[4], seen[11]], [0, 0], "these are not read");
    assert_eq!(program.at(PARAMS), params);
    let mut params = vec![0; 8348];
    for (at, word) in [(0, OWN), (4, OTHERS[0]), (128, 2)] {
        put32(&mut params, at, word);
    }
    assert_eq!(control(&mut program, CLIENT, 0x12b, &params), 0);
    assert_eq!(numbers(&program.seen[1].parts[1])[..2], [OWN, UNKNOWN]);
    assert_eq!(program.at(PARAMS), params);
}

/// Runs an escape on an array, and returns what that holds then.
fn array(program: &mut Program, request: u32, bytes: &[u8]) -> Result<Vec<u8>, Errno> {
    program.put(OUTER, bytes);
    let size = u32::try_from(bytes.len()).expect("small");
    let request = request | size << 16;
    ioctl(program, &CONTROL, request, UserAddr(OUTER)).map(|returned| {
        assert_eq!(returned, 0);
        program.at(OUTER).to_vec()
    })
}

#[test]
fn the_tenants_cards_are_told_without_the_driver() {
    let mut program = Program::new(GIB);
    program.cards = vec![[1; 72], [2; 72]];
    let told = array(&mut program, NV_ESC_CARD_INFO, &[0xee; 216]);
    assert_eq!(told, Ok([[1; 72], [2; 72], [0; 72]].concat()));
    let told = array(&mut program, NV_ESC_CARD_INFO, &[0xee; 144]);
    assert_eq!(told, Ok([[1; 72], [2; 72]].concat()));
    let told = array(&mut program, NV_ESC_CARD_INFO, &[0xee; 72]);
    assert_eq!(told, Err(Errno::EINVAL), "no room for both");
    assert_eq!(program.at(OUTER), [0xee; 72]);
    assert!(program.seen.is_empty());
}

#[test]
fn gpus_of_others_are_not_opened() {
    let mut program = Program::new(GIB);
    for ids in [&[OTHERS[0]][..], &[OWN, OTHERS[1]], &[0, END]] {
        let bytes = list(ids, ids.len());
        let told = array(&mut program, NV_ESC_ATTACH_GPUS_TO_FD, &bytes);
        assert_eq!(told, Err(Errno::EINVAL));
    }
    assert!(program.seen.is_empty());
    let bytes = list(&[0, OWN], 2);
    let told = array(&mut program, NV_ESC_ATTACH_GPUS_TO_FD, &bytes);
    assert_eq!(told, Ok(bytes));
    assert_eq!(program.seen.len(), 1);
}

#[test]
fn processes_of_others_are_not_listed() {
    let mut program = filling(|params| {
        put32(params, 8, 3);
        for (index, pid) in [OTHER_PID, OWN_PID, 100_000].into_iter().enumerate() {
            put32(params, 12 + 4 * index, pid);
        }
    });
    assert_eq!(control(&mut program, CLIENT, 0x2080_018d, &[0; 3812]), 0);
    assert_eq!(numbers(&program.at(PARAMS)[8..24]), [1, OWN_PID, 0, 0]);
    // A count that no driver gives.
    let mut program = filling(|params| {
        params.fill(1);
        put32(params, 8, END);
    });
    assert_eq!(control(&mut program, CLIENT, 0x2080_018d, &[0; 3812]), 0);
    assert_eq!(get32(program.at(PARAMS), 8), 0);
    assert!(program.at(PARAMS)[12..].iter().all(|byte| *byte == 0));
}

#[test]
fn memory_of_other_processes_is_not_told_and_that_of_own_ones_as_the_accounting_have_it() {
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(program.memory(0x5c00_0010, 4 * MIB), 0);
    program.driver = Box::new(|parts| {
        // As much as their numbers, in each of the six figures.
        for index in 0..3 {
            let at = 8 + 72 * index;
            let pid = get32(parts[1].bytes, at);
            let used = if pid == END { 0 } else { u64::from(pid) };
            for figure in 0..6 {
                put64(parts[1].bytes, at + 16 + 8 * figure, used);
            }
        }
        0
    });
    let mut params = words(14408, &[(0, 3)]);
    let pids = [OTHER_PID, OWN_PID, 100_000];
    for (index, pid) in pids.into_iter().enumerate() {
        put32(&mut params, 8 + 72 * index, pid);
    }
    let status = control_of(&mut program, CLIENT, SUBDEVICE, 0x2080_018e, &params);
    assert_eq!(status, 0);
    let told = program.at(PARAMS);
    let figures = |at: usize| (0..6).map(move |n| get64(told, at + 16 + 8 * n));
    let told: Vec<_> = [8, 80, 152]
        .map(|at| (get32(told, at), figures(at).collect::<Vec<_>>()))
        .into();
    let own = vec![4 * MIB, 0, 0, 0, 0, 0];
    let none = vec![0; 6];
    let expected = [(OTHER_PID, none.clone()), (OWN_PID, own), (100_000, none)];
    assert_eq!(told, expected);
}
