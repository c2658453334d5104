// SPDX-License-Identifier: GPL-2.0
//! Fuzzing of `cgpu-dra`: what users of a cluster write into claims, and what comes at the
//! sockets for the kubelet and the apiserver. Nothing panics; what is accepted is in range; nothing
//! that a user wrote is in a path. [`node`] does what is asked.

#[path = "../../../cgpu-dra/tests/inventory/mod.rs"]
mod inventory;

use crate::node;
use cgpu_dra::{
    asked::{names, AskedPod},
    claims::plan,
    compat::convert,
    config::{Allowed, GpuConfig},
    names::{is_object, uid_of, Uid},
    pods::uses,
    proto::{ClaimsRequest, ListPodResourcesResponse, RegistrationStatus},
    quantity,
    status::Resize,
};
use cgpu_uapi::{capability, ManagedMode, Name, Priority, WEIGHT_MAX};
use inventory::inventory;
use prost::Message;

/// The uid that the claims of the corpus have.
pub const UID: &str = "7b2ea4b2-0000-4000-8000-00000000000f";
/// Longest sentence about what a user wrote; the kubelet shows it in an event.
const LONGEST_SENTENCE: usize = 2000;

/// Any input. The first byte says what the others are.
pub fn any(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else {
        return;
    };
    match kind % 8 {
        0 => parameters(rest),
        1 => claim(rest),
        2 => message(rest),
        3 => text(rest),
        4 => pod(rest),
        5 => _ = node::calls(rest),
        6 => _ = node::review(rest),
        _ => _ = node::slots(rest),
    }
}

fn said(error: &impl ToString) {
    let said = error.to_string();
    assert!(said.len() < LONGEST_SENTENCE, "{said}");
    assert!(!said.contains('\n'), "{said}");
}

fn in_range(bits: u32) {
    assert!(bits != 0 && bits & !capability::ALL == 0, "{bits:#x}");
}

fn parameters(input: &[u8]) {
    let Ok(value) = serde_json::from_slice(input) else {
        return;
    };
    match GpuConfig::parse(&value) {
        Ok(config) => config.capabilities.iter().for_each(|c| in_range(c.0)),
        Err(error) => said(&error),
    }
}

fn claim(input: &[u8]) {
    let Ok(claim) = serde_json::from_slice(input) else {
        return;
    };
    if let Err(error) = Resize::of(&claim) {
        said(&error);
    }
    let uid = Uid::new(UID).expect("a uid");
    let allowed = Allowed {
        priority: Priority::High,
        ..Allowed::default()
    };
    let Ok(plan) = plan(&claim, &uid, "node1", &inventory(), allowed) else {
        return;
    };
    let mut minors: Vec<_> = plan.shares.iter().map(|s| s.minor).collect();
    minors.sort_unstable();
    minors.dedup();
    assert_eq!(minors.len(), plan.shares.len(), "a GPU twice");
    for share in &plan.shares {
        assert!((1..=WEIGHT_MAX).contains(&share.weight));
        assert!(share.minor < 2);
        assert!(Priority::from_number(share.priority).is_some());
        assert!(ManagedMode::from_number(share.managed).is_some());
        in_range(share.capabilities);
        assert!(!share.request.contains('/'));
    }
    // The journal keeps it as it is.
    let kept = serde_json::to_vec(&plan).expect("written");
    assert_eq!(serde_json::from_slice(&kept).ok(), Some(plan));
}

fn message(input: &[u8]) {
    if let Ok(told) = ListPodResourcesResponse::decode(input) {
        let _ = uses(&told);
    }
    let _ = RegistrationStatus::decode(input);
    for claim in ClaimsRequest::decode(input).unwrap_or_default().claims {
        if let Some(uid) = Uid::new(&claim.uid) {
            let name = uid.instance();
            assert!(Name::new(&name).is_some());
            assert_eq!(uid_of(&name), Some(uid.clone()));
            assert!(!uid.as_str().contains(['/', '.']));
        }
        for name in [&claim.namespace, &claim.name] {
            if is_object(name) {
                assert!(!name.contains(['/', '?', '#', '%']) && !name.starts_with('.'));
            }
        }
    }
}

/// The one change outside a pod's spec: a note which of its wishes are not kept.
fn note(change: &serde_json::Value) {
    assert_eq!(change["op"], "add");
    let sentence = match change["path"].as_str() {
        Some("/metadata/annotations/cgpu.io~1not-kept") => &change["value"],
        Some("/metadata/annotations") => &change["value"]["cgpu.io/not-kept"],
        at => panic!("{at:?}"),
    };
    said(&sentence.as_str().expect("a sentence"));
}

/// A pod that asks another system: what becomes of it can be applied, and asks for a claim.
fn pod(input: &[u8]) {
    let Ok(asked) = serde_json::from_slice::<AskedPod>(input) else {
        return;
    };
    // A claim that is passed over is not looked at, and need not be sound.
    let Ok(pod) = serde_json::from_slice::<serde_json::Value>(input) else {
        return;
    };
    let done = match convert(&asked, Priority::High) {
        Ok(Some(done)) => done,
        Ok(None) => return,
        Err(error) => return said(&error),
    };
    for template in &done.templates {
        assert!(is_object(&template.name), "{}", template.name);
    }
    let (mut removed, mut claims) = (pod.clone(), 0);
    for change in &done.patch {
        let at = change["path"].as_str().expect("a path");
        if at.starts_with("/metadata/") {
            note(change);
            continue;
        }
        assert!(at.starts_with("/spec/"), "{at}");
        if change["op"] == "remove" {
            let (list, name) = at.rsplit_once('/').expect("a path");
            let list = removed.pointer_mut(list).and_then(|l| l.as_object_mut());
            let gone = list.and_then(|list| list.remove(&name.replace("~1", "/")));
            assert!(gone.is_some(), "{at}");
        } else if let Some(resources) = at.strip_suffix("/-").unwrap_or(at).strip_suffix("/claims")
        {
            claims += 1;
            let resources = removed.pointer(resources).expect("resources");
            for name in names() {
                for list in ["limits", "requests"] {
                    let left = resources.get(list).and_then(|list| list.get(name));
                    assert!(left.is_none(), "{name} stays");
                }
            }
        }
    }
    assert!(claims > 0, "no claim");
}

fn text(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    match quantity::parse(text) {
        Ok(bytes) => assert_eq!(quantity::parse(&quantity::bytes(bytes)), Ok(bytes)),
        Err(error) => said(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_kind_takes_any_bytes() {
        for kind in 0..8 {
            any(&[kind]);
            any(&[kind, b'{', b'}']);
            any(&[kind, 0xff]);
        }
        any(&[]);
    }
}
