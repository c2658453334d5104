// SPDX-License-Identifier: GPL-2.0
//! A new client's handle is what the driver told the kernel, whatever a thread of the program
//! writes.

use super::*;

const VICTIM: u32 = 0xc1d0_0007;
const NV_ESC_RM_FREE_NR: u32 = 0x29;

/// The events of a call for a new client: how many clients others make before it and after it, what
/// the driver says, and what another thread then writes.
#[derive(Clone, Copy, Default)]
struct Scene {
    before: u32,
    after: u32,
    refused: bool,
    forged: Option<(u32, u32)>,
}

/// A tenant without clients, and a driver that numbers those from this one on. Scenes come one
/// after the other, and the last one stays.
fn program(first: u32, scenes: Vec<Scene>) -> (Program, Rc<Cell<u32>>) {
    let mut program = Program::new(GIB);
    let row = Rc::new(Cell::new(first));
    program.row = Some(row.clone());
    let (own, mut calls) = (row.clone(), 0);
    program.driver = Box::new(move |parts| {
        if parts[0].bytes.len() != 48 {
            return 0;
        }
        let scene = scenes[calls.min(scenes.len() - 1)];
        calls += 1;
        own.set(own.get() + scene.before);
        if scene.refused {
            put32(parts[0].bytes, 40, NvStatus::NV_ERR_NO_MEMORY.0);
        } else {
            own.set(own.get() + 1);
            let handle = ClientHandle::BASE | own.get() & 0xf_ffff;
            put32(parts[0].bytes, 8, handle);
            if let Some(params) = parts.get_mut(1) {
                put32(params.bytes, 0, handle);
            }
        }
        own.set(own.get() + scene.after);
        if let Some((handle, status)) = scene.forged {
            put32(parts[0].bytes, 8, handle);
            put32(parts[0].bytes, 40, status);
            if let Some(params) = parts.get_mut(1) {
                put32(params.bytes, 0, handle);
            }
        }
        0
    });
    (program, row)
}

/// The status and the handle that the program is told.
fn new_client(program: &mut Program) -> (u32, u32) {
    let status = program.alloc(&nvos64(0, 0, 0, 0x41, PARAMS), &[0; 4]);
    let outer = program.at(OUTER).to_vec();
    let params = get32(program.at(PARAMS), 0);
    if status == 0 {
        assert_eq!(get32(&outer, 8), params);
    }
    (status, get32(&outer, 8))
}

fn owns(program: &mut Program, handle: u32) -> bool {
    program.accounting.owns_client(ClientHandle(handle))
}

#[test]
fn new_client_is_found_between_kernel_clients() {
    for first in [0x18, 0xf_fffd, 0xf_fffe, 0xf_ffff] {
        let (mut program, _) = program(first, vec![Scene::default()]);
        let wanted = ClientHandle::BASE | (first + 2) & 0xf_ffff;
        assert_eq!(new_client(&mut program), (0, wanted));
        assert!(owns(&mut program, wanted));
    }
}

#[test]
fn neighbours_handle_in_the_output_is_ignored() {
    let forged = Some((VICTIM, 0));
    let scene = Scene {
        forged,
        ..Scene::default()
    };
    let (mut program, _) = program(0x18, vec![scene]);
    assert_eq!(new_client(&mut program), (0, 0xc1d0_001a));
    assert!(owns(&mut program, 0xc1d0_001a) && !owns(&mut program, VICTIM));
}

#[test]
fn a_client_that_there_is_not_is_nobodys() {
    for forged in [None, Some((VICTIM, 0)), Some((0xc1d0_001a, 0))] {
        let refused = true;
        let scene = Scene {
            refused,
            forged,
            ..Scene::default()
        };
        let (mut program, _) = program(0x18, vec![scene]);
        let wanted = match forged {
            None => NvStatus::NV_ERR_NO_MEMORY,
            Some(_) => NvStatus::NV_ERR_INSUFFICIENT_RESOURCES,
        };
        assert_eq!(new_client(&mut program).0, wanted.0);
        for handle in [VICTIM, 0xc1d0_0019, 0xc1d0_001a, 0xc1d0_001b] {
            assert!(!owns(&mut program, handle));
        }
        assert!(program.accounting.is_idle());
    }
}

#[test]
fn a_client_made_among_others_is_made_again() {
    let busy = [(1, 0), (0, 1), (2, 3)].map(|(before, after)| Scene {
        before,
        after,
        forged: Some((VICTIM, 0)),
        ..Scene::default()
    });
    let mut scenes = busy.to_vec();
    scenes.push(Scene::default());
    let (mut program, row) = program(0x100, scenes);
    let (status, handle) = new_client(&mut program);
    assert_eq!((status, handle), (0, ClientHandle::BASE | (row.get() - 1)));
    assert!(owns(&mut program, handle) && !owns(&mut program, VICTIM));
    // The clients of the other attempts were freed, by the handles in the driver's replies.
    let freed = |seen: &&Seen| seen.request & 0xff == NV_ESC_RM_FREE_NR;
    let freed: Vec<u32> = program
        .seen
        .iter()
        .filter(freed)
        .map(|s| get32(&s.parts[0], 0))
        .collect();
    assert_eq!(freed, [VICTIM; 3]);
}

#[test]
fn no_client_after_too_many_tries() {
    let scene = Scene {
        after: 1,
        ..Scene::default()
    };
    let (mut program, row) = program(0x18, vec![scene]);
    let refused = NvStatus::NV_ERR_INSUFFICIENT_RESOURCES.0;
    assert_eq!(new_client(&mut program).0, refused);
    for index in 0..row.get() + 2 {
        assert!(!owns(&mut program, ClientHandle::BASE | index));
    }
    assert!(program.accounting.is_idle());
}

#[test]
fn an_overtaken_call_takes_nobodys_client() {
    // The number between may be the other's: this one was refused, and says that it was not.
    let stolen = Scene {
        before: 1,
        refused: true,
        forged: Some((VICTIM, 0)),
        ..Scene::default()
    };
    let (mut program, row) = program(0x18, vec![stolen, Scene::default()]);
    program.overtaken = 1;
    assert_eq!(
        new_client(&mut program),
        (0, ClientHandle::BASE | (row.get() - 1))
    );
    assert!(!owns(&mut program, ClientHandle::BASE | 0x1a) && !owns(&mut program, VICTIM));
}
