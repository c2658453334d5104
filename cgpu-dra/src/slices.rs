// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The ResourceSlice of this node: one device for each GPU, with capacities that the scheduler
//! divides among claims.
//!
//! An apiserver refuses a slice whole if one number is wrong. The rules are those of the package
//! `pkg/apis/resource/validation` of Kubernetes: default, minimum and maximum stand whole steps
//! apart, and none is above the value.

use crate::{
    failures::{Failure, NO_SCHEDULE},
    gpus::{Inventory, NodeGpu},
    names::DRIVER,
    quantity,
};
use cgpu_client::text::enumerate;
use k8s_openapi::{
    api::resource::v1::{
        CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceAttribute, DeviceCapacity,
        DeviceTaint, ResourcePool, ResourceSliceSpec,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use std::collections::BTreeMap;

/// Memory is given in these steps, bytes: as fine as NVIDIA's own driver for Kubernetes counts.
pub const STEP: u64 = 1 << 20;
/// The least memory that is given, bytes: what a bare CUDA context takes, rounded up.
pub const LEAST: u64 = 512 << 20;
/// Longest string in an attribute.
const LONGEST_STRING: usize = 64;

/// The devices of a node. A GPU on which other instances leave claims too little is none of them,
/// unless it has failed: its taint is for the pods that are on it.
pub fn devices(inventory: &Inventory, failures: &BTreeMap<String, Failure>) -> Vec<Device> {
    let usable = |gpu: &NodeGpu| gpu.largest_bytes >= LEAST && gpu.weight > 0 && gpu.instances > 0;
    let device = |gpu: &NodeGpu| {
        let failure = failures.get(&gpu.pci);
        (usable(gpu) || failure.is_some()).then(|| Device {
            name: gpu.device(),
            allow_multiple_allocations: Some(true),
            attributes: Some(attributes(gpu, &inventory.driver)),
            capacity: Some(capacities(gpu)),
            taints: failure.map(|failure| vec![taint(failure)]),
            ..Device::default()
        })
    };
    inventory.gpus.iter().filter_map(device).collect()
}

/// The slice's contents.
pub fn spec(node: &str, generation: i64, devices: Vec<Device>) -> ResourceSliceSpec {
    ResourceSliceSpec {
        driver: DRIVER.to_owned(),
        node_name: Some(node.to_owned()),
        pool: ResourcePool {
            name: node.to_owned(),
            generation,
            resource_slice_count: 1,
        },
        devices: Some(devices),
        ..ResourceSliceSpec::default()
    }
}

fn attributes(gpu: &NodeGpu, driver: &str) -> BTreeMap<String, DeviceAttribute> {
    let string = |text: &str| DeviceAttribute {
        string: Some(text.chars().take(LONGEST_STRING).collect()),
        ..DeviceAttribute::default()
    };
    let mut all = BTreeMap::from([
        ("uuid".to_owned(), string(&gpu.uuid)),
        (
            "resource.kubernetes.io/pciBusID".to_owned(),
            string(&gpu.pci),
        ),
        (
            "minor".to_owned(),
            DeviceAttribute {
                int: Some(gpu.minor.into()),
                ..DeviceAttribute::default()
            },
        ),
    ]);
    if let Some(product) = &gpu.product {
        all.insert("productName".to_owned(), string(product));
    }
    if let Some(version) = semantic(driver) {
        let version = DeviceAttribute {
            version: Some(version),
            ..DeviceAttribute::default()
        };
        all.insert("driverVersion".to_owned(), version);
    }
    all
}

/// NVIDIA's `550.163.01` as a version of semver.org, whose numbers have no leading zeros.
fn semantic(driver: &str) -> Option<String> {
    let numbers: Option<Vec<u64>> = driver.split('.').map(|part| part.parse().ok()).collect();
    let mut numbers = numbers.filter(|n| n.len() <= 3)?;
    numbers.resize(3, 0);
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    Some(numbers.join("."))
}

fn capacities(gpu: &NodeGpu) -> BTreeMap<String, DeviceCapacity> {
    // The minimum is a whole number of steps, so all is. A GPU that has failed may have less.
    let whole = |bytes: u64| bytes.max(LEAST) / STEP * STEP;
    let (memory, largest) = (whole(gpu.memory_bytes), whole(gpu.largest_bytes));
    let (weight, instances) = (gpu.weight.max(1), gpu.instances.max(1));
    let bytes = |n| Quantity(quantity::bytes(n));
    let number = |n: u32| Quantity(n.to_string());
    let range = |least: Quantity, most: Quantity, step: Quantity| CapacityRequestPolicyRange {
        min: least,
        max: Some(most),
        step: Some(step),
    };
    let capacity = |value, default, valid_range, valid_values| DeviceCapacity {
        value,
        request_policy: Some(CapacityRequestPolicy {
            default: Some(default),
            valid_range,
            valid_values,
        }),
    };
    BTreeMap::from([
        (
            "memory".to_owned(),
            capacity(
                bytes(memory),
                // A claim that names no size takes the GPU for itself.
                bytes(largest),
                Some(range(bytes(LEAST), bytes(largest), bytes(STEP))),
                None,
            ),
        ),
        (
            "weight".to_owned(),
            capacity(
                number(weight),
                number(1),
                // A range of one number has no room for a step.
                (weight > 1).then(|| range(number(1), number(weight), number(1))),
                (weight == 1).then(|| vec![number(1)]),
            ),
        ),
        (
            "instances".to_owned(),
            capacity(number(instances), number(1), None, Some(vec![number(1)])),
        ),
    ])
}

fn taint(failure: &Failure) -> DeviceTaint {
    DeviceTaint {
        key: format!("{DRIVER}/{}", failure.key()),
        value: failure.value(),
        effect: failure.effect().to_owned(),
        time_added: None,
    }
}

/// Devices whose taints are as old as the same ones that are there. An apiserver takes a taint
/// without a time for a new one, for which pods have all of their patience again.
pub fn with_times(mut devices: Vec<Device>, there: &[Device]) -> Vec<Device> {
    for device in &mut devices {
        let before = there.iter().filter(|there| there.name == device.name);
        let before: Vec<_> = before.flat_map(|d| d.taints.iter().flatten()).collect();
        for taint in device.taints.iter_mut().flatten() {
            let of = |t: &DeviceTaint| (t.key.clone(), t.value.clone(), t.effect.clone());
            let same = before.iter().find(|old| of(old) == of(taint));
            taint.time_added = same.and_then(|old| old.time_added.clone());
        }
    }
    devices
}

/// Devices of an earlier slice whose driver has not answered yet. After a boot it may still be
/// built or loaded, and a pod that is evicted is deleted: so only new pods stay away.
pub fn awaited(devices: &[Device]) -> Vec<Device> {
    let taint = DeviceTaint {
        effect: NO_SCHEDULE.to_owned(),
        ..taint(&Failure::DriverGone)
    };
    let tainted = |device: &Device| Device {
        taints: Some(vec![taint.clone()]),
        ..device.clone()
    };
    devices.iter().map(tainted).collect()
}

/// The field that the feature gate DRADeviceTaints lets through.
const TAINTS: &str = "taints";

/// The feature gates that are off where an apiserver drops these fields, a sentence each.
pub fn gates_off(dropped: &[&str]) -> Vec<String> {
    let (taints, shares): (Vec<&str>, Vec<_>) = dropped.iter().partition(|f| **f == TAINTS);
    let gate = |fields: &[&str], effect, gate, programs| {
        let fields = enumerate(fields, "and");
        let said = format!(
            "the apiserver has dropped {fields} from this node's ResourceSlice, so {effect}; turn \
             the feature gate {gate} on in {programs}"
        );
        (!fields.is_empty()).then_some(said)
    };
    let consumable = gate(
        &shares,
        "no share of a GPU can be allocated",
        "DRAConsumableCapacity",
        "kube-apiserver, kube-scheduler and kubelet",
    );
    let taints = gate(
        &taints,
        "failed GPUs get new pods and keep those that they have",
        "DRADeviceTaints",
        "kube-apiserver, kube-scheduler and kube-controller-manager, in Kubernetes 1.34 only after \
         what docs/kubernetes.md says",
    );
    consumable.into_iter().chain(taints).collect()
}

/// Fields that an apiserver took out of the devices that were sent to it, by the names of the
/// fields.
pub fn dropped(sent: &[Device], kept: &[Device]) -> Vec<&'static str> {
    let pairs = || sent.iter().zip(kept);
    let fields: [(&'static str, bool); 3] = [
        (
            "allowMultipleAllocations",
            pairs().any(|(s, k)| s.allow_multiple_allocations != k.allow_multiple_allocations),
        ),
        (
            "capacity.requestPolicy",
            pairs().any(|(s, k)| policies(s) != policies(k)),
        ),
        (
            TAINTS,
            pairs().any(|(s, k)| s.taints.is_some() && k.taints.is_none()),
        ),
    ];
    fields
        .into_iter()
        .filter(|(_, gone)| *gone)
        .map(|(name, _)| name)
        .collect()
}

fn policies(device: &Device) -> usize {
    let all = device.capacity.iter().flat_map(|all| all.values());
    all.filter(|capacity| capacity.request_policy.is_some())
        .count()
}

/// Whether two lists say the same: an apiserver adds to a taint when it was put on.
pub fn same(wanted: &[Device], published: &[Device]) -> bool {
    let plain = |device: &Device| {
        let mut device = device.clone();
        for taint in device.taints.iter_mut().flatten() {
            taint.time_added = None;
        }
        device
    };
    wanted.len() == published.len()
        && wanted
            .iter()
            .zip(published)
            .all(|(w, p)| plain(w) == plain(p))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgpu_fake::{ControlState, FakeDevice, H200};
    use cgpu_uapi::Instance;
    use std::sync::{Arc, Mutex};
    use zerocopy::FromZeros;

    fn gpu(memory_bytes: u64, weight: u32, instances: u32) -> Inventory {
        Inventory {
            driver: "550.163.01".to_owned(),
            gpus: vec![NodeGpu {
                minor: 1,
                uuid: "GPU-1".to_owned(),
                pci: "0000:29:00.0".to_owned(),
                product: Some("NVIDIA H200".to_owned()),
                memory_bytes,
                largest_bytes: memory_bytes,
                weight,
                instances,
            }],
        }
    }

    /// Value, default and maximum of a GPU's memory.
    fn memory_of(inventory: &Inventory) -> [u64; 3] {
        let all = devices(inventory, &BTreeMap::new());
        let capacity = &all[0].capacity.as_ref().expect("capacities")["memory"];
        let policy = capacity.request_policy.as_ref().expect("a policy");
        let range = policy.valid_range.as_ref().expect("a range");
        let numbers = [
            Some(&capacity.value),
            policy.default.as_ref(),
            range.max.as_ref(),
        ];
        numbers.map(|q| quantity::parse(&q.expect("a number").0).expect("whole"))
    }

    #[test]
    fn overcommit_lets_no_claim_exceed_the_gpu() {
        for (percent, held) in [(150, 0), (150, 100 << 30), (1000, 0), (100, 0)] {
            let state = Arc::new(Mutex::new(ControlState::new(1)));
            let mut made = Instance::new_zeroed();
            made.memory_limit_bytes = held;
            state.lock().expect("held").instances.push(made);
            let control = FakeDevice::open(state).expect("opened");
            let read = Inventory::read(&control, percent, |_| true).expect("read");
            let whole = H200 * u64::from(percent) / 100 - held;
            let [value, default, most] = memory_of(&read);
            assert_eq!(value, whole / STEP * STEP);
            assert_eq!(most, value.min(H200 / STEP * STEP));
            assert_eq!(default, most);
        }
    }

    #[test]
    fn every_number_stands_whole_steps_apart() {
        for memory in [LEAST, LEAST + 1, (1 << 30) - 1, 147_221_504 << 10] {
            let all = devices(&gpu(memory, 100, 64), &BTreeMap::new());
            let capacity = &all[0].capacity.as_ref().expect("capacities")["memory"];
            let policy = capacity.request_policy.as_ref().expect("a policy");
            let range = policy.valid_range.as_ref().expect("a range");
            let read = |q: &Quantity| quantity::parse(&q.0).expect("whole");
            let (value, most) = (read(&capacity.value), range.max.as_ref().map(read));
            assert!(value <= memory && memory - value < STEP);
            assert_eq!(most, Some(value));
            assert_eq!((value - read(&range.min)) % STEP, 0);
        }
    }

    #[test]
    fn manually_held_gpu_is_not_published() {
        let none = BTreeMap::new();
        assert_eq!(devices(&gpu(LEAST, 1, 1), &none).len(), 1);
        assert!(devices(&gpu(LEAST - 1, 1, 1), &none).is_empty());
        assert!(devices(&gpu(LEAST, 0, 1), &none).is_empty());
        assert!(devices(&gpu(LEAST, 1, 0), &none).is_empty());
    }

    /// The pods on it are to be evicted. The apiserver would refuse numbers below the least.
    #[test]
    fn manually_held_gpu_is_tainted_when_it_fails() {
        let failed = BTreeMap::from([("0000:29:00.0".to_owned(), Failure::Xid(79))]);
        let all = devices(&gpu(LEAST - 1, 0, 0), &failed);
        assert_eq!(all[0].taints.as_ref().map(Vec::len), Some(1));
        let capacities = all[0].capacity.as_ref().expect("capacities");
        let values: BTreeMap<_, _> = capacities
            .iter()
            .map(|(k, c)| (&**k, &*c.value.0))
            .collect();
        let least = [("instances", "1"), ("memory", "512Mi"), ("weight", "1")];
        assert_eq!(values, BTreeMap::from(least));
    }

    #[test]
    fn versions_of_drivers_become_semantic() {
        assert_eq!(semantic("550.163.01").as_deref(), Some("550.163.1"));
        assert_eq!(semantic("595.45").as_deref(), Some("595.45.0"));
        assert_eq!(semantic(""), None);
        assert_eq!(semantic("580.1.2.3"), None);
    }

    #[test]
    fn awaited_driver_evicts_nobody() {
        let taints = |devices: Vec<Device>| {
            let taints = devices[0].taints.iter().flatten();
            let told: Vec<_> = taints.map(|t| (t.key.clone(), t.effect.clone())).collect();
            told
        };
        let tainted = |key: &str, effect: &str| [(format!("{DRIVER}/{key}"), effect.to_owned())];
        let with = |failure| {
            let failed = BTreeMap::from([("0000:29:00.0".to_owned(), failure)]);
            devices(&gpu(1 << 40, 100, 64), &failed)
        };
        for failure in [Failure::Xid(79), Failure::DriverGone] {
            let before = with(failure);
            assert_eq!(taints(before.clone()), tainted(failure.key(), "NoExecute"));
            assert_eq!(
                taints(awaited(&before)),
                tainted("driver-gone", "NoSchedule")
            );
        }
    }

    #[test]
    fn fields_that_an_apiserver_drops_are_named() {
        let sent = devices(&gpu(1 << 40, 100, 64), &BTreeMap::new());
        let mut kept = sent.clone();
        assert!(dropped(&sent, &kept).is_empty());
        assert!(same(&sent, &kept));
        kept[0].allow_multiple_allocations = None;
        for capacity in kept[0].capacity.iter_mut().flat_map(|all| all.values_mut()) {
            capacity.request_policy = None;
        }
        assert_eq!(
            dropped(&sent, &kept),
            ["allowMultipleAllocations", "capacity.requestPolicy"]
        );
        assert!(!same(&sent, &kept));
    }

    #[test]
    fn each_gate_has_its_sentence() {
        let shares = ["allowMultipleAllocations", "capacity.requestPolicy"];
        assert!(gates_off(&[]).is_empty());
        let said = gates_off(&shares);
        let dropped = "dropped allowMultipleAllocations and capacity.requestPolicy from";
        assert!(said.len() == 1 && said[0].contains(dropped), "{said:?}");
        assert!(said[0].contains("DRAConsumableCapacity"), "{said:?}");
        let said = gates_off(&["taints"]);
        assert!(
            said.len() == 1 && said[0].contains("DRADeviceTaints"),
            "{said:?}"
        );
        assert_eq!(gates_off(&[shares[0], "taints"]).len(), 2);
    }
}
