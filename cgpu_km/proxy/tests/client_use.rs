// SPDX-License-Identifier: GPL-2.0
//! A call that may take objects out of a client has it alone, and controls share it.

use super::*;
use crate::{
    nvidia::{
        escape::Escape,
        nvos, //
    },
    proxy::ClientUse, //
};

const CLIENT: u32 = 0xc1d0_0001;

/// How a call with this escape uses the client that its argument begins with. `object` is the
/// second word.
fn use_of(escape: Escape, object: u32) -> Option<(u32, bool)> {
    let mut argument = [0; 64];
    put32(&mut argument, 0, CLIENT);
    put32(&mut argument, 4, object);
    let code = nvos::request_code(escape as u8, argument.len()).unwrap();
    let found = ClientUse::of(code, &argument)?;
    Some((found.client.0, found.alone))
}

#[test]
fn controls_of_objects_share_their_client() {
    assert_eq!(use_of(Escape::RmControl, 7), Some((CLIENT, false)));
}

#[test]
fn controls_of_a_client_have_it_alone() {
    assert_eq!(use_of(Escape::RmControl, CLIENT), Some((CLIENT, true)));
}

#[test]
fn whoever_makes_or_frees_has_the_client_alone() {
    let calls = [
        Escape::RmFree,
        Escape::RmAlloc,
        Escape::RmAllocMemory,
        Escape::RmVidHeapControl,
        Escape::RmAllocContextDma2,
        Escape::RmDupObject,
    ];
    for escape in calls {
        assert_eq!(use_of(escape, 7), Some((CLIENT, true)), "{escape:?}");
    }
}

#[test]
fn calls_that_lock_first_need_nothing() {
    for escape in [
        Escape::RmMapMemory,
        Escape::RmIdleChannels,
        Escape::CardInfo,
    ] {
        assert_eq!(use_of(escape, 7), None, "{escape:?}");
    }
}

#[test]
fn short_arguments_name_no_client() {
    let code = nvos::request_code(Escape::RmFree as u8, 3).unwrap();
    assert_eq!(ClientUse::of(code, &[0; 3]), None);
}

#[test]
fn registered_address_spaces_share_their_client() {
    let mut argument = [0; 32];
    put32(&mut argument, 20, CLIENT);
    let wanted = ClientUse {
        client: ClientHandle(CLIENT),
        alone: false,
        from_outside: true,
    };
    assert_eq!(ClientUse::of(25, &argument), Some(wanted));
    assert_eq!(ClientUse::of(25, &argument[..20]), None);
}

#[test]
fn other_requests_of_uvm_use_no_client() {
    // UVM_UNSET_PREFERRED_LOCATION, whose number is that of NV_ESC_RM_ALLOC.
    assert_eq!(ClientUse::of(43, &[1; 64]), None);
}
