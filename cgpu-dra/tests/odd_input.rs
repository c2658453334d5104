// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Random words of the cluster's users and of the kubelet's socket: texts, parameters, claims and
//! messages that are nearly right. Nothing panics, and nothing that is accepted is out of range.
//! INPUTS says how many of each kind.

mod inventory;
mod random;

use cgpu_client::capabilities::Capabilities;
use cgpu_dra::{
    claims::plan,
    config::{Allowed, GpuConfig},
    names::Uid,
    proto::{ClaimsRequest, PluginInfo, PrepareResponse},
    quantity,
};
use cgpu_uapi::{capability, ManagedMode, Name, Priority};
use inventory::inventory;
use prost::Message;
use random::{setting, Random};
use serde_json::{json, Value};

const UID: &str = "7b2ea4b2-0000-4000-8000-00000000000f";

/// How many inputs each test makes.
fn inputs() -> usize {
    setting("INPUTS", 20_000)
}

/// Inputs that are made of random numbers.
struct Maker(Random);

impl Maker {
    fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        self.0.one(of)
    }

    fn text(&mut self) -> String {
        let parts = [
            "8",
            "Gi",
            "0",
            ".",
            "-",
            "e",
            "E",
            "m",
            "1",
            "9999999999999999999",
            "Ki",
            "/",
            "..",
            "\0",
            "\n",
            "\u{1f600}",
            "gpu",
            "-0",
            "a",
            "high",
            "deny",
            "compute",
            UID,
            " ",
            "+",
        ];
        (0..self.below(6)).map(|_| *self.one(&parts)).collect()
    }

    /// A value in the place of another.
    fn value(&mut self) -> Value {
        match self.below(8) {
            0 => Value::Null,
            1 => json!(self.below(2) == 0),
            2 => json!(self.0.next()),
            3 => json!(-1.5e300),
            4 => json!([self.text(), self.text()]),
            5 => json!({ self.text(): self.text() }),
            _ => json!(self.text()),
        }
    }

    /// Changes some places of an object.
    fn change(&mut self, value: &mut Value) {
        match value {
            Value::Object(all) if !all.is_empty() && self.below(8) != 0 => {
                let keys: Vec<_> = all.keys().cloned().collect();
                let key = self.one(&keys).clone();
                match self.below(10) {
                    0 => drop(all.remove(&key)),
                    1 => drop(all.insert(self.text(), Value::Null)),
                    _ => self.change(all.get_mut(&key).expect("there")),
                }
            }
            Value::Array(all) if !all.is_empty() && self.below(8) != 0 => {
                let at = self.below(all.len());
                if self.below(8) == 0 {
                    let again = all[at].clone();
                    all.push(again);
                } else {
                    self.change(&mut all[at]);
                }
            }
            other => *other = self.value(),
        }
    }
}

fn parameters() -> Value {
    json!({
        "apiVersion": "cgpu.io/v1alpha1", "kind": "GpuConfig",
        "priority": "high", "managed": "charge", "capabilities": ["compute", "utility"]
    })
}

#[test]
fn quantities_at_random() {
    let mut random = Maker(Random::new(1));
    for _ in 0..inputs() {
        let text = random.text();
        if let Ok(number) = quantity::parse(&text) {
            assert_eq!(
                quantity::parse(&quantity::bytes(number)),
                Ok(number),
                "{text:?}"
            );
        }
    }
}

#[test]
fn parameters_at_random() {
    let (mut random, mut accepted) = (Maker(Random::new(2)), 0);
    for _ in 0..inputs() {
        let mut value = parameters();
        for _ in 0..random.below(3) {
            random.change(&mut value);
        }
        match GpuConfig::parse(&value) {
            Ok(config) => {
                accepted += 1;
                let bits = config.capabilities.map_or(capability::DEFAULT, |c| c.0);
                assert!(bits != 0 && bits & !capability::ALL == 0, "{value}");
                let fields = value.as_object().expect("an object").len();
                assert!(fields <= 5, "{value}");
            }
            Err(error) => {
                let said = error.to_string();
                assert!(
                    said.len() < 1000 && !said.chars().any(char::is_control),
                    "{said:?}"
                );
            }
        }
    }
    assert!(accepted > inputs() / 10, "{accepted} were accepted");
}

#[test]
fn claims_at_random() {
    let result = |request: &str, device: &str| {
        json!({
            "request": request, "driver": "gpu.cgpu.io", "pool": "node1", "device": device,
            "shareID": UID, "consumedCapacity": {"memory": "8Gi", "weight": "20", "instances": "1"}
        })
    };
    let config = json!({
        "source": "FromClaim", "requests": ["a"],
        "opaque": {"driver": "gpu.cgpu.io", "parameters": parameters()}
    });
    let whole = json!({
        "metadata": {"namespace": "team-a", "name": "train", "uid": UID},
        "spec": {},
        "status": {"allocation": {"devices": {
            "results": [result("a", "gpu-0"), result("b/c", "gpu-1")], "config": [config]}}}
    });
    let uid = Uid::new(UID).expect("a uid");
    let all = Some(Capabilities(capability::ALL));
    let (mut random, inventory, mut planned) = (Maker(Random::new(3)), inventory(), 0);
    for _ in 0..inputs() {
        let mut value = whole.clone();
        for _ in 0..random.below(4) {
            random.change(&mut value);
        }
        // The apiserver's client passes on nothing but claims.
        let Ok(claim) = serde_json::from_value(value.clone()) else {
            continue;
        };
        let Ok(plan) = plan(
            &claim,
            &uid,
            "node1",
            &inventory,
            Allowed::with(all, Priority::High, 10_000),
        ) else {
            continue;
        };
        planned += 1;
        let mut minors: Vec<_> = plan.shares.iter().map(|s| s.minor).collect();
        minors.sort_unstable();
        minors.dedup();
        assert_eq!(minors.len(), plan.shares.len(), "{value}");
        for share in &plan.shares {
            assert!((1..=100).contains(&share.weight), "{value}");
            assert!(share.minor < 2, "{value}");
            assert!(Priority::from_number(share.priority).is_some(), "{value}");
            assert!(ManagedMode::from_number(share.managed).is_some(), "{value}");
            assert!(share.capabilities & !capability::ALL == 0, "{value}");
        }
    }
    assert!(planned > inputs() / 10, "{planned} were planned");
}

#[test]
fn messages_at_random() {
    let mut random = Maker(Random::new(4));
    let whole = ClaimsRequest {
        claims: vec![cgpu_dra::proto::ClaimReference {
            namespace: "team-a".to_owned(),
            uid: UID.to_owned(),
            name: "train".to_owned(),
        }],
    }
    .encode_to_vec();
    for _ in 0..inputs() {
        let mut bytes = whole.clone();
        for _ in 0..1 + random.below(4) {
            match random.below(3) {
                0 => bytes.truncate(random.below(bytes.len() + 1)),
                1 => bytes.push(u8::try_from(random.below(256)).expect("a byte")),
                _ if bytes.is_empty() => {}
                _ => {
                    let at = random.below(bytes.len());
                    bytes[at] = u8::try_from(random.below(256)).expect("a byte");
                }
            }
        }
        let _ = PluginInfo::decode(&bytes[..]);
        let _ = PrepareResponse::decode(&bytes[..]);
        for claim in ClaimsRequest::decode(&bytes[..]).unwrap_or_default().claims {
            if let Some(uid) = Uid::new(&claim.uid) {
                assert!(Name::new(&uid.instance()).is_some());
                assert!(!uid.as_str().contains(['/', '.']) && uid.as_str().len() == 36);
            }
        }
    }
}
