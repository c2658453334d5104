// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Claims that choose GPUs by the attributes that the driver publishes.

use crate::{
    cases::limits,
    patience::{must, Outcome},
    world::World,
};
use serde_json::{json, Value};

/// The attributes of each GPU, by name and kind, as the scheduler reads them.
fn published(minor: u32) -> Value {
    json!({
        "uuid": {"string": format!("GPU-{minor:08x}-0f7d-4b1e-9c2d-1234567890ab")},
        "minor": {"int": minor},
        "productName": {"string": "NVIDIA H200"},
        "driverVersion": {"version": "580.159.4"},
        "resource.kubernetes.io/pciBusID": {"string": format!("0000:{:02x}:00.0", 0x29 + minor)},
    })
}

/// A claim gets a GPU that has what it asks for, by each attribute, and none if no GPU has it.
pub(crate) async fn claims_select_gpus_by_attributes(world: &mut World) -> Outcome {
    let node = world.node("select", 2).await;
    world.namespace("select").await;
    let slice = world.slices("select").await.remove(0);
    let devices = slice.spec.devices.unwrap_or_default();
    must(devices.len() == 2, &devices)?;
    for (device, minor) in devices.iter().zip(0..) {
        must(device.name == format!("gpu-{minor}"), &device.name)?;
        let found = json!(device.attributes);
        must(found == published(minor), &found)?;
    }
    let own = "device.attributes[\"gpu.cgpu.io\"]";
    let pci = "device.attributes[\"resource.kubernetes.io\"].pciBusID";
    let uuid = "GPU-00000001-0f7d-4b1e-9c2d-1234567890ab";
    for (name, expression, gpu) in [
        ("uuid", format!("{own}.uuid == \"{uuid}\""), Some(1)),
        ("minor", format!("{own}.minor == 1"), Some(1)),
        ("pci", format!("{pci} == \"0000:2a:00.0\""), Some(1)),
        (
            "product",
            format!("{own}.productName == \"NVIDIA H200\" && {own}.minor > 0"),
            Some(1),
        ),
        (
            "version",
            format!("{own}.driverVersion.isGreaterThan(semver(\"580.159.3\"))"),
            Some(0),
        ),
        (
            "newer",
            format!("{own}.driverVersion.isGreaterThan(semver(\"580.159.4\"))"),
            None,
        ),
        (
            "other",
            format!("{own}.productName == \"NVIDIA A100\""),
            None,
        ),
    ] {
        let exactly = json!({"deviceClassName": "gpu.cgpu.io",
            "selectors": [{"cel": {"expression": expression}}],
            "capacity": {"requests": {"memory": "1Gi"}}});
        let requests = json!([{"name": "gpu", "exactly": exactly}]);
        world
            .template_with("select", name, requests, json!({}))
            .await;
        world.pod("select", name, name).await;
        if let Some(minor) = gpu {
            let got = limits(&node, 1).await?;
            must(got[0].1 == minor, (name, &got))?;
        } else {
            let why = world.pending("select", name).await?;
            must(why.contains("cannot allocate all claims"), why)?;
        }
        world.delete("select", name).await;
        world.gone("select").await?;
    }
    must(node.fake.limits().is_empty(), node.fake.limits())
}
