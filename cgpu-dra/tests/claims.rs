// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The parameters that a share of a claim gets: its claim's, and those of its own class.

mod inventory;

use cgpu_dra::{
    claims::{plan, Plan},
    config::Allowed,
    names::{Uid, DRIVER},
};
use cgpu_uapi::Priority;
use inventory::inventory;
use serde_json::{json, Value};

const UID: &str = "7b2ea4b2-0000-4000-8000-00000000000f";

/// A configuration that asks for high priority.
fn high(source: &str, requests: Value) -> Value {
    json!([{"source": source, "requests": requests, "opaque": {"driver": DRIVER, "parameters": {
        "apiVersion": "cgpu.io/v1alpha1", "kind": "GpuConfig", "priority": "high"}}}])
}

/// Which shares have high priority: one of the class "urgent", and one of a list that may
/// choose the class "huge" and has chosen this one.
fn planned(chosen: &str, configs: Value) -> Result<Vec<bool>, String> {
    let result = |request, device| {
        json!({"request": request, "driver": DRIVER, "pool": "node1", "device": device,
            "consumedCapacity": {"memory": "8Gi"}})
    };
    let results = [result("a", "gpu-0"), result("b/small", "gpu-1")];
    let choice = |name, class| json!({"name": name, "deviceClassName": class});
    let claim = json!({
        "metadata": {"namespace": "team-a", "name": "train", "uid": UID},
        "spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "urgent"}},
            {"name": "b", "firstAvailable": [choice("large", "huge"), choice("small", chosen)]},
        ]}},
        "status": {"allocation": {"devices": {"results": results, "config": configs}}},
    });
    let claim = serde_json::from_value(claim).expect("a claim");
    let uid = Uid::new(UID).expect("a uid");
    let planned = plan(&claim, &uid, "node1", &inventory(), Allowed::default());
    let high = Priority::High.number();
    let is_high = |plan: Plan| plan.shares.iter().map(|s| s.priority == high).collect();
    planned.map(is_high).map_err(|e| e.to_string())
}

#[test]
fn no_share_gets_another_class_words() {
    for (chosen, configs, expected) in [
        ("plain", high("FromClass", json!(["a"])), [true, false]),
        ("plain", json!([]), [false, false]),
        // Kubernetes 1.37 leaves the requests out where the class is that of all.
        ("urgent", high("FromClass", json!([])), [true, true]),
    ] {
        assert_eq!(planned(chosen, configs), Ok(expected.to_vec()), "{chosen}");
    }
    // Before 1.34.2 the scheduler named no requests.
    for requests in [json!([]), json!(null)] {
        let why = planned("plain", high("FromClass", requests)).expect_err("refused");
        assert!(why.contains("of the classes plain and urgent"), "{why}");
        assert!(why.contains("1.34.2"), "{why}");
    }
    // A claim's own words are for all.
    let why = planned("plain", high("FromClaim", json!([]))).expect_err("refused");
    assert!(why.contains("a high priority"), "{why}");
}
