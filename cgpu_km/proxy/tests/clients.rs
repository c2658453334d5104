// SPDX-License-Identifier: GPL-2.0
//! A new client's handle is the module's choice, and there is a client if the driver tells the
//! kernel so, whatever a thread of the program writes.

use super::*;

const VICTIM: u32 = 0xc1d0_0007;

/// The events of a call for a new client: what the driver says, and what another thread then
/// writes.
#[derive(Clone, Copy, Default)]
struct Scene {
    refused: bool,
    forged: Option<(u32, u32)>,
}

/// A tenant without clients, and a driver that makes them with the handles that it is given.
fn program(scene: Scene) -> Program {
    let mut program = Program::new(GIB);
    let clients = Rc::new(RefCell::new(BTreeSet::from([VICTIM])));
    program.clients = Some(clients.clone());
    program.driver = Box::new(move |parts| {
        if parts[0].bytes.len() != 48 {
            return 0;
        }
        let handle = get32(parts[0].bytes, 0);
        if scene.refused {
            put32(parts[0].bytes, 40, NvStatus::NV_ERR_NO_MEMORY.0);
        } else {
            assert!(clients.borrow_mut().insert(handle));
            put32(parts[0].bytes, 8, handle);
            if let Some(params) = parts.get_mut(1) {
                put32(params.bytes, 0, handle);
            }
        }
        if let Some((handle, status)) = scene.forged {
            put32(parts[0].bytes, 0, handle);
            put32(parts[0].bytes, 8, handle);
            put32(parts[0].bytes, 40, status);
            if let Some(params) = parts.get_mut(1) {
                put32(params.bytes, 0, handle);
            }
        }
        0
    });
    program
}

/// The status and the handle that the program is told.
fn new_client(program: &mut Program, chosen: u32) -> (u32, u32) {
    let status = program.alloc(&nvos64(chosen, 0, 0, 0x41, PARAMS), &[0; 4]);
    let outer = program.at(OUTER).to_vec();
    let params = get32(program.at(PARAMS), 0);
    assert_eq!(get32(&outer, 0), chosen);
    if status == 0 {
        assert_eq!(get32(&outer, 8), params);
    }
    (status, get32(&outer, 8))
}

fn owns(program: &mut Program, handle: u32) -> bool {
    program.accounting.owns_client(ClientHandle(handle))
}

#[test]
fn new_client_has_the_chosen_handle() {
    let mut program = program(Scene::default());
    for number in 1..4 {
        let wanted = ClientHandle::chosen(number).0;
        assert_eq!(new_client(&mut program, 0), (0, wanted));
        assert!(owns(&mut program, wanted));
    }
}

#[test]
fn forged_answer_changes_nothing() {
    for forged in [(VICTIM, 0), (VICTIM, NvStatus::NV_ERR_NO_MEMORY.0)] {
        let mut program = program(Scene {
            refused: false,
            forged: Some(forged),
        });
        let wanted = ClientHandle::chosen(1).0;
        assert_eq!(new_client(&mut program, 0), (0, wanted));
        assert!(owns(&mut program, wanted) && !owns(&mut program, VICTIM));
    }
}

#[test]
fn client_that_was_refused_is_nobodys() {
    let chosen = ClientHandle::chosen(1).0;
    for forged in [None, Some((VICTIM, 0)), Some((chosen, 0))] {
        let refused = true;
        let mut program = program(Scene { refused, forged });
        let wanted = match forged {
            None => NvStatus::NV_ERR_NO_MEMORY,
            Some(_) => NvStatus::NV_ERR_INSUFFICIENT_RESOURCES,
        };
        assert_eq!(new_client(&mut program, 0).0, wanted.0);
        assert!(!owns(&mut program, VICTIM) && !owns(&mut program, chosen));
        assert!(program.accounting.is_idle());
        assert_eq!(program.next_client, 0);
    }
}

#[test]
fn handle_is_free_when_its_client_is_gone() {
    let mut program = program(Scene::default());
    let mut made = || ClientHandle(new_client(&mut program, 0).1);
    let (first, second, third) = (made(), made(), made());
    assert_eq!(program.accounting.take_gone_client(), None);
    let free = words(16, &[(0, second.0), (8, second.0)]);
    assert_eq!(program.call(&CONTROL, NV_ESC_RM_FREE, &free, 12), 0);
    assert_eq!(program.accounting.take_gone_client(), Some(second));
    assert_eq!(program.accounting.take_gone_client(), None);
    program.accounting.close_file(CONTROL.file);
    let gone = [(); 3].map(|()| program.accounting.take_gone_client());
    let both = [Some(first), Some(third)];
    assert!(both.iter().all(|client| gone.contains(client)) && gone[2].is_none());
}

#[test]
fn program_cannot_choose() {
    let mut program = program(Scene::default());
    let refused = NvStatus::NV_ERR_INSUFFICIENT_RESOURCES.0;
    assert_eq!(new_client(&mut program, 0xc1c0_1234).0, refused);
    assert!(program.seen.is_empty() && program.accounting.is_idle());
}
