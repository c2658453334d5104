// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Changes of claims' instances, over a fake control device.

mod fake_node;
mod train;

use cgpu_dra::{names::Uid, status::Resize, tenants::Tenants};
use fake_node::FakeNode;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use train::{plan, UID};

/// A program in the midst of a call has a resize of its claim wait.
#[test]
fn no_claim_waits_for_another_one() {
    let node = FakeNode::new(1);
    let tenants = Tenants::open(node.clone(), node.places(), 100).expect("opened");
    let tenants = Arc::new(tenants);
    let [stuck, other] = ["f", "e"].map(|last| Uid::new(&UID.replace('f', last)).expect("a uid"));
    tenants
        .prepare(&stuck, &plan(), &Resize::default())
        .expect("prepared");
    node.with(|s| s.busy.push(s.instances[0].key.name));
    let (resizing, uid) = (tenants.clone(), stuck.clone());
    let resizing = std::thread::spawn(move || resizing.resize(&uid, Some(1 << 30), None));
    while node.with(|s| s.open == 0) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let began = Instant::now();
    tenants
        .prepare(&other, &plan(), &Resize::default())
        .expect("prepared");
    tenants.unprepare(&other).expect("removed");
    assert_eq!(tenants.remove_strays(), Ok(vec![]));
    assert!(began.elapsed() < Duration::from_secs(5), "it has waited");
    // The claim's own calls give their threads back.
    let busy = tenants.unprepare(&stuck).expect_err("busy").to_string();
    assert!(busy.contains("is being changed"), "{busy}");
    node.with(|s| s.busy.clear());
    assert_eq!(resizing.join().expect("ended"), Ok(()));
    tenants.unprepare(&stuck).expect("removed");
    assert!(node.limits().is_empty() && node.journal().is_empty());
}

/// Its pod was deleted by force, so nobody unprepared it.
#[test]
fn claim_allocated_anew_moves() {
    let node = FakeNode::new(2);
    let tenants = Tenants::open(node.clone(), node.places(), 100).expect("opened");
    let uid = Uid::new(UID).expect("a uid");
    tenants
        .prepare(&uid, &plan(), &Resize::default())
        .expect("prepared");
    let mut other = plan();
    (other.shares[0].device, other.shares[0].minor) = ("gpu-1".to_owned(), 1);
    node.with(|s| s.instances[0].open_files = 1);
    let refused = tenants
        .prepare(&uid, &other, &Resize::default())
        .expect_err("in use");
    assert!(
        refused.to_string().contains("one file is still open"),
        "{refused}"
    );
    assert_eq!(tenants.plan(&uid), Some(plan()));
    node.with(|s| s.instances[0].open_files = 0);
    tenants
        .prepare(&uid, &other, &Resize::default())
        .expect("prepared");
    let at: Vec<_> = node
        .limits()
        .into_iter()
        .map(|(_, gpu, limit)| (gpu, limit))
        .collect();
    let known = Some(other.clone());
    assert_eq!((at, tenants.plan(&uid)), (vec![(1, 8 << 30)], known));
    let spec = std::fs::read_to_string(&node.cdi_files()[0]).expect("read");
    assert!(spec.contains("gpu-1") && !spec.contains("gpu-0"), "{spec}");
    // A claim that was found gone from its first place is not removed from the second one.
    for (known, is_removed) in [(plan(), false), (other, true)] {
        assert_eq!(tenants.unprepare_as(&uid, &known), Ok(is_removed));
        assert_eq!(node.limits().is_empty(), is_removed);
    }
}
