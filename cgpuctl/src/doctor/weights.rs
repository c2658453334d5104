// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The weights of instances: whether the policy of their GPU goes by them.

use super::scene::{Finding, Scene};
use cgpu_uapi::{GpuCompute, Policy, WEIGHT_DEFAULT};

/// No GPU is left to NVIDIA's driver although somebody gave its instances weights.
pub(super) fn weights(scene: &Scene<'_>) -> Vec<Finding> {
    let check = |gpu: &GpuCompute| {
        let on_it = scene
            .instances
            .iter()
            .filter(|i| i.key.gpu_minor == gpu.minor);
        let weights: Vec<_> = on_it.map(|i| i.weight).collect();
        let (lowest, highest) = (weights.iter().min()?, weights.iter().max()?);
        let policy = Policy::name_of(gpu.policy);
        let finding = |found: String| {
            Finding::ok(
                "weights",
                format!("GPU {}", gpu.minor),
                found,
                "a policy that goes by weights, or no weights",
            )
        };
        let is_native = Policy::from_number(gpu.policy) == Some(Policy::Native);
        if !is_native || weights.iter().all(|weight| *weight == WEIGHT_DEFAULT) {
            return Some(finding(format!("policy {policy}")));
        }
        let given = if lowest == highest {
            format!("weight {lowest} has")
        } else {
            format!("weights {lowest} to {highest} have")
        };
        let found = format!("policy {policy}; {given} no effect");
        let fix = format!("cgpuctl gpu set {} --policy weight", gpu.minor);
        Some(finding(found).warning(fix))
    };
    scene.compute.iter().filter_map(check).collect()
}
