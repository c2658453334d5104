// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Settings that a GPU's policy leaves without effect, or with one that people do not expect.

use crate::text::enumerate;
use cgpu_uapi::{GpuCompute, Instance, Policy, WEIGHT_DEFAULT};

/// The warning that a weight has no effect on a GPU; `None` if its policy goes by weights.
pub(crate) fn of_weight(gpu: &GpuCompute) -> Option<String> {
    let minor = gpu.minor;
    let instead = match Policy::from_number(gpu.policy)? {
        Policy::Weight | Policy::Fixed | Policy::WeightLazy => return None,
        Policy::Native => "NVIDIA's driver shares the GPU as it likes".to_owned(),
        Policy::Equal => "all instances with work have equal parts".to_owned(),
        Policy::FixedEqual => format!("an instance has 1 part in {} at most", gpu.max_instances),
    };
    Some(format!(
        "a weight has no effect on GPU {minor}, which has the policy {}: {instead}; `cgpuctl gpu \
         set-policy {minor} weight` shares by weight",
        Policy::name_of(gpu.policy),
    ))
}

/// The warning about the default weight of a new instance; `None` if it means nothing unexpected.
pub(crate) fn of_default(gpu: &GpuCompute) -> Option<String> {
    let minor = gpu.minor;
    (Policy::from_number(gpu.policy)? == Policy::Fixed).then(|| {
        format!(
            "GPU {minor} has the policy fixed, which takes weights for percent: with the default \
             weight the instance has {WEIGHT_DEFAULT} % of it; `--weight` changes that"
        )
    })
}

/// The effect of a policy that was just set on the instances of its GPU.
pub(crate) fn of_policy(gpu: &GpuCompute, instances: &[Instance]) -> Option<String> {
    let minor = gpu.minor;
    match Policy::from_number(gpu.policy)? {
        Policy::FixedEqual => Some(format!(
            "no instance on GPU {minor} has more than 1 part in {} of it, also where it is alone; \
             `--max-instances` changes that, and the policy equal shares equally without it",
            gpu.max_instances
        )),
        Policy::Fixed => {
            let on_it = instances.iter().filter(|i| i.key.gpu_minor == minor);
            let default = on_it.filter(|i| i.weight == WEIGHT_DEFAULT);
            let names: Vec<&str> = default.filter_map(|i| i.key.name.as_str()).collect();
            (!names.is_empty()).then(|| {
                format!(
                    "the policy fixed takes weights for percent of GPU {minor}, and the default \
                     weight is {WEIGHT_DEFAULT}: {} has {WEIGHT_DEFAULT} % of it; `cgpuctl inst \
                     set NAME --weight` changes that",
                    enumerate(&names, "and")
                )
            })
        }
        Policy::Equal | Policy::Weight | Policy::WeightLazy | Policy::Native => None,
    }
}
