// SPDX-License-Identifier: GPL-2.0
//! A tenant sees its own GPUs and processes in the driver's lists of all of the host's.

use super::*;

const OTHERS: [u32; 2] = [0x1800, 0x3a00];
const HOST: [u32; 3] = [OTHERS[0], OWN, OTHERS[1]];
/// The number of [`Program::process`] in its namespace, and one of another tenant's process.
const OWN_PID: u32 = 7;
const OTHER_PID: u32 = 8;
/// No tenant has a process of this number.
const NO_PID: u32 = 100_000;
/// The id that ends a list of GPUs, and the one that the driver gets for another tenant's GPU.
const END: u32 = 0xffff_ffff;
const UNKNOWN: u32 = 0xffff_fffe;
/// A place in the program's memory.
const LIST: u64 = 0x20_0000;
/// Ids in the driver's lists of GPUs.
const MOST_GPUS: usize = 32;
/// Bytes of an `nv_ioctl_card_info_t`.
const CARD: usize = 72;
const NV_ESC_CARD_INFO: u32 = 0xc000_46c8;
const NV_ESC_ATTACH_GPUS_TO_FD: u32 = 0xc000_46d4;

/// Number and size of the parameters of a control, by NVIDIA's name without `CTRL_CMD`.
fn named(name: &str) -> (u32, usize) {
    let tables = Tables::of(Branch::R580).expect("the program's branch");
    let mut all = tables.controls().iter();
    let entry = all.find(|entry| entry.name.replace("_CTRL_CMD", "") == name);
    let entry = entry.unwrap_or_else(|| panic!("no control {name}"));
    (entry.cmd.0, entry.params as usize)
}

/// Runs a control with parameters that are 0.
fn ask(program: &mut Program, name: &str) -> u32 {
    let (cmd, size) = named(name);
    control(program, CLIENT, cmd, &vec![0; size])
}

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
fn route(name: &str, params: &[u8]) -> Route {
    let mut program = Program::with_subdevice(GIB);
    program.put(LIST, &[7; 16]);
    assert_eq!(control(&mut program, CLIENT, named(name).0, params), 0);
    program.seen.last().expect("a call").route
}

#[test]
fn reports_that_tell_too_much_go_unseen() {
    for name in [
        "NV0000_GPU_GET_ATTACHED_IDS",
        "NV0000_GPU_GET_DEVICE_IDS",
        "NV0000_GPU_GET_PROBED_IDS",
        "NV0000_GPU_GET_ACTIVE_DEVICE_IDS",
        "NV0000_SYNC_GPU_BOOST_GROUP_INFO",
        "NV2080_GPU_GET_PIDS",
        "NV2080_FB_GET_INFO_V2",
    ] {
        let params = vec![0; named(name).1];
        assert_eq!(route(name, &params), Route::Unseen, "{name}");
    }
    // A list behind a pointer, and none.
    for (at, wanted) in [(LIST, Route::Unseen), (0, Route::Caller)] {
        let mut params = words(16, &[(0, 2)]);
        put64(&mut params, 8, at);
        assert_eq!(route("NV2080_FB_GET_INFO", &params), wanted);
    }
    // The name of the tenant's own GPU.
    let params = vec![0; named("NV2080_GPU_GET_NAME_STRING").1];
    assert_eq!(route("NV2080_GPU_GET_NAME_STRING", &params), Route::Caller);
}

#[test]
fn kernel_asks_through_the_clients_file_alone() {
    let mut program = Program::with_subdevice(GIB);
    let calls = program.seen.len();
    let other = Session {
        file: FileId(CONTROL.file.0 + 100),
        ..CONTROL
    };
    let (cmd, size) = named("NV0000_GPU_GET_PROBED_IDS");
    let length = u32::try_from(size).expect("small");
    let mut outer = words(32, &[(0, CLIENT), (4, CLIENT), (8, cmd), (24, length)]);
    put64(&mut outer, 16, PARAMS);
    program.put(PARAMS, &vec![0; size]);
    let status = program.call(&other, NV_ESC_RM_CONTROL, &outer, 28);
    assert_eq!(status, NvStatus::NV_ERR_INVALID_CLIENT.0);
    assert_eq!(program.seen.len(), calls, "the driver was asked");
}

#[test]
fn memory_block_size_stays_the_hosts() {
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
    let mut program = filling(|params| params.copy_from_slice(&list(&HOST, MOST_GPUS)));
    assert_eq!(ask(&mut program, "NV0000_GPU_GET_ATTACHED_IDS"), 0);
    assert_eq!(program.at(PARAMS), list(&[OWN], MOST_GPUS));

    // Probed: the ids, those that are excluded, and a word for each of the first.
    let mut program = filling(|params| {
        params[..128].copy_from_slice(&list(&HOST, MOST_GPUS));
        params[128..256].copy_from_slice(&list(&[0x5d00], MOST_GPUS));
        for (index, word) in [1, 2, 3].into_iter().enumerate() {
            put32(params, 256 + 4 * index, word);
        }
    });
    assert_eq!(ask(&mut program, "NV0000_GPU_GET_PROBED_IDS"), 0);
    assert_eq!(program.at(PARAMS)[..128], list(&[OWN], MOST_GPUS));
    assert_eq!(program.at(PARAMS)[128..256], list(&[], MOST_GPUS));
    let mut flags = vec![0; 32];
    flags[0] = 2;
    assert_eq!(numbers(&program.at(PARAMS)[256..]), flags);

    let mut program = filling(|params| put32(params, 0, 0b111));
    assert_eq!(ask(&mut program, "NV0000_GPU_GET_DEVICE_IDS"), 0);
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
    assert_eq!(ask(&mut program, "NV0000_GPU_GET_ACTIVE_DEVICE_IDS"), 0);
    assert_eq!(numbers(&program.at(PARAMS)[..16]), [1, OWN, 101, 0]);
    assert!(program.at(PARAMS)[16..].iter().all(|byte| *byte == 0));
}

#[test]
fn gpu_groups_are_shown_if_all_own() {
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
    assert_eq!(ask(&mut program, "NV0000_SYNC_GPU_BOOST_GROUP_INFO"), 0);
    assert_eq!(numbers(&program.at(PARAMS)[..12]), [1, 1, OWN]);
    assert!(program.at(PARAMS)[12..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_list_is_filtered_whatever_the_status_says() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 28, NvStatus::NV_ERR_NOT_SUPPORTED.0);
        parts[1].bytes.copy_from_slice(&list(&HOST, MOST_GPUS));
        0
    });
    assert_eq!(
        ask(&mut program, "NV0000_GPU_GET_ATTACHED_IDS"),
        NvStatus::NV_ERR_NOT_SUPPORTED.0
    );
    assert_eq!(program.at(PARAMS), list(&[OWN], MOST_GPUS));
}

#[test]
fn foreign_gpu_id_is_replaced_by_unknown() {
    for name in [
        "NV0000_GPU_GET_ID_INFO",
        "NV0000_GPU_GET_ID_INFO_V2",
        "NV0000_GPU_GET_PCI_INFO",
        "NV0000_GPU_GET_UUID_FROM_GPU_ID",
        "NV0000_GPU_QUERY_DRAIN_STATE",
        "NV0000_GPU_ASYNC_ATTACH_ID",
        "NV0000_GPU_WAIT_ATTACH_ID",
    ] {
        let (cmd, size) = named(name);
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
                "{name}"
            );
            assert_eq!(get32(&program.seen[0].parts[1], 0), told);
            assert_eq!(program.at(PARAMS), params, "{name}");
        }
    }
}

#[test]
fn foreign_gpus_in_lists_are_replaced() {
    // Attach, detach: what ends the list and what means all stay what they are.
    const FAILED: usize = 4 * MOST_GPUS;
    const ALL: u32 = 0xffff;
    for (name, tells_which_failed) in [
        ("NV0000_GPU_ATTACH_IDS", true),
        ("NV0000_GPU_DETACH_IDS", false),
    ] {
        let (cmd, size) = named(name);
        let mut program = Program::with_subdevice(GIB);
        program.driver = Box::new(move |parts| {
            if tells_which_failed {
                put32(parts[1].bytes, FAILED, UNKNOWN);
            }
            0
        });
        let mut params = list(&[OWN, OTHERS[1]], size / 4);
        assert_eq!(control(&mut program, CLIENT, cmd, &params), 0);
        let seen = numbers(&program.seen[0].parts[1]);
        assert_eq!(seen[..3], [OWN, UNKNOWN, END]);
        assert_eq!(program.at(PARAMS)[..FAILED], params[..FAILED]);
        if tells_which_failed {
            assert_eq!(get32(program.at(PARAMS), FAILED), OTHERS[1]);
        }
        put32(&mut params, 0, ALL);
        put32(&mut params, 4, END);
        assert_eq!(control(&mut program, CLIENT, cmd, &params), 0);
        let seen = numbers(&program.seen[1].parts[1]);
        assert_eq!(seen[..2], [ALL, END]);
    }
    // Between which GPUs what is possible: in both groups.
    let mut program = Program::with_subdevice(GIB);
    let (cmd, size) = named("NV0000_SYSTEM_GET_P2P_CAPS_MATRIX");
    let mut params = vec![0; size];
    for (at, word) in [(0, 2), (4, 1), (8, OWN), (12, OTHERS[0]), (40, OTHERS[1])] {
        put32(&mut params, at, word);
    }
    assert_eq!(control(&mut program, CLIENT, cmd, &params), 0);
    let seen = numbers(&program.seen[0].parts[1]);
    assert_eq!([seen[2], seen[3], seen[10]], [OWN, UNKNOWN, UNKNOWN]);
    assert_eq!([seen[4], seen[11]], [0, 0], "these are not read");
    assert_eq!(program.at(PARAMS), params);
    let (cmd, size) = named("NV0000_SYSTEM_GET_P2P_CAPS_V2");
    let mut params = vec![0; size];
    for (at, word) in [(0, OWN), (4, OTHERS[0]), (128, 2)] {
        put32(&mut params, at, word);
    }
    assert_eq!(control(&mut program, CLIENT, cmd, &params), 0);
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
    program.cards = vec![[1; CARD], [2; CARD]];
    let told = array(&mut program, NV_ESC_CARD_INFO, &[0xee; 3 * CARD]);
    assert_eq!(told, Ok([[1; CARD], [2; CARD], [0; CARD]].concat()));
    let told = array(&mut program, NV_ESC_CARD_INFO, &[0xee; 2 * CARD]);
    assert_eq!(told, Ok([[1; CARD], [2; CARD]].concat()));
    let told = array(&mut program, NV_ESC_CARD_INFO, &[0xee; CARD]);
    assert_eq!(told, Err(Errno::EINVAL), "no room for both");
    assert_eq!(program.at(OUTER), [0xee; CARD]);
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
        for (index, pid) in [OTHER_PID, OWN_PID, NO_PID].into_iter().enumerate() {
            put32(params, 12 + 4 * index, pid);
        }
    });
    assert_eq!(ask(&mut program, "NV2080_GPU_GET_PIDS"), 0);
    assert_eq!(numbers(&program.at(PARAMS)[8..24]), [1, OWN_PID, 0, 0]);
    // A count that no driver gives.
    let mut program = filling(|params| {
        params.fill(1);
        put32(params, 8, END);
    });
    assert_eq!(ask(&mut program, "NV2080_GPU_GET_PIDS"), 0);
    assert_eq!(get32(program.at(PARAMS), 8), 0);
    assert!(program.at(PARAMS)[12..].iter().all(|byte| *byte == 0));
}

#[test]
fn process_memory_is_told_for_own_alone() {
    const NO_INSTANCE: u32 = u32::MAX;
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(program.memory(0x5c00_0010, 4 * MIB), 0);
    program.driver = Box::new(|parts| {
        // One process is asked about that does not exist, whatever the question is.
        let entry = &mut parts[1].bytes[..80];
        assert_eq!(numbers(&entry[..16]), [1, 0, END, 0]);
        put32(entry, 16, 0);
        for figure in 0..6 {
            put64(entry, 24 + 8 * figure, 0);
        }
        entry[72..].fill(0xff);
        0
    });
    let (cmd, size) = named("NV2080_GPU_GET_PID_INFO");
    let mut params = words(size, &[(0, 4)]);
    params[8..].fill(0xee);
    // The last asks for what no driver knows.
    let asked = [(OTHER_PID, 0), (OWN_PID, 0), (NO_PID, 0), (OWN_PID, 7)];
    let places = [8, 80, 152, 224];
    for (at, (pid, index)) in places.into_iter().zip(asked) {
        put32(&mut params, at, pid);
        put32(&mut params, at + 4, index);
    }
    let status = control_of(&mut program, CLIENT, SUBDEVICE, cmd, &params);
    assert_eq!(status, 0);
    let told = program.at(PARAMS);
    let entry = |at: usize| {
        let figures: Vec<_> = (0..6).map(|n| get64(told, at + 16 + 8 * n)).collect();
        assert_eq!(numbers(&told[at + 64..at + 72]), [NO_INSTANCE; 2]);
        (
            get32(told, at),
            get32(told, at + 4),
            get32(told, at + 8),
            figures,
        )
    };
    let own = vec![4 * MIB, 0, 0, 0, 0, 0];
    let none = vec![0; 6];
    let unknown = NvStatus::NV_ERR_INVALID_ARGUMENT.0;
    let untouched = vec![0xeeee_eeee_eeee_eeee; 6];
    let expected = [
        (OTHER_PID, 0, 0, none.clone()),
        (OWN_PID, 0, 0, own),
        (NO_PID, 0, 0, none),
        (OWN_PID, 7, unknown, untouched),
    ];
    assert_eq!(places.map(entry), expected);
    assert_eq!(get32(told, 0), 4);
    assert!(told[296..].iter().all(|byte| *byte == 0xee));
}

#[test]
fn questions_about_no_process_are_the_drivers() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 28, NvStatus::NV_ERR_INVALID_ARGUMENT.0);
        0
    });
    let (cmd, size) = named("NV2080_GPU_GET_PID_INFO");
    let params = words(size, &[(0, 0)]);
    let status = control_of(&mut program, CLIENT, SUBDEVICE, cmd, &params);
    assert_eq!(status, NvStatus::NV_ERR_INVALID_ARGUMENT.0);
    assert_eq!(program.at(PARAMS), params);
}

#[test]
fn memory_reports_show_limit_and_rest() {
    let mut program = Program::with_subdevice(8 * GIB);
    assert_eq!(program.memory(0x5c00_0010, GIB), 0);
    program.driver = Box::new(|parts| {
        for i in 0..3 {
            put32(parts[1].bytes, 4 + 8 * i + 4, 147_221_504);
        }
        0
    });
    let mut params = words(1028, &[(0, 3)]);
    for (i, index) in [0x16, 0x08, 0x09].into_iter().enumerate() {
        put32(&mut params, 4 + 8 * i, index);
    }
    assert_eq!(control(&mut program, CLIENT, 0x2080_1303, &params), 0);
    let told = program.at(PARAMS);
    assert_eq!(get32(told, 8), 7 << 20, "free, KiB");
    assert_eq!(get32(told, 16), 8 << 20, "total, KiB");
    assert_eq!(get32(told, 24), 8 << 20, "heap, KiB");
}
