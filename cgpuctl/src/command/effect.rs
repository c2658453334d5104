// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Settings that a GPU's policy leaves without effect, or with one that people do not expect.

use crate::{
    compute::{named_rules, own_burst},
    size::{Bytes, CONTEXT, GIB},
    text::enumerate,
};
use cgpu_uapi::{GpuCompute, GpuSetCompute, Instance, Policy, Priority, WEIGHT_DEFAULT};

/// A new instance, as far as its terms may have another effect than people expect.
pub(crate) struct NewTerms {
    pub(crate) limit: Bytes,
    pub(crate) weight: u32,
    pub(crate) priority: Priority,
    /// Milliseconds, or [`cgpu_uapi::BURST_OF_GPU`].
    pub(crate) burst: u32,
}

/// The warnings about a new instance on a GPU; `setting` is what changes its weight: `--weight`.
pub(crate) fn of_new(terms: &NewTerms, gpu: Option<&GpuCompute>, setting: &str) -> Vec<String> {
    let of_gpu = |gpu: &GpuCompute| {
        [
            of_new_weight(gpu, terms.weight, setting),
            of_priority(gpu, terms.priority),
            of_burst(gpu, terms.burst),
        ]
    };
    let of_gpu = gpu.into_iter().flat_map(of_gpu).flatten();
    small_limit(terms.limit).into_iter().chain(of_gpu).collect()
}

/// The warning that a small limit deserves.
pub(crate) fn small_limit(limit: Bytes) -> Option<String> {
    if limit >= GIB {
        return None;
    }
    let what = if limit < CONTEXT {
        "no CUDA program will start"
    } else {
        "little is left for the program"
    };
    Some(format!(
        "a limit of {limit} is under 1 GiB: a bare CUDA context takes {CONTEXT} of it, so {what}"
    ))
}

/// The warning about the weight of a new instance; `setting` changes it.
pub(crate) fn of_new_weight(gpu: &GpuCompute, weight: u32, setting: &str) -> Option<String> {
    if weight == WEIGHT_DEFAULT {
        of_default(gpu, setting)
    } else {
        of_weight(gpu)
    }
}

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
         set {minor} --policy weight` shares by weight",
        Policy::name_of(gpu.policy),
    ))
}

/// The warning about the default weight of a new instance; `None` if it means nothing unexpected.
fn of_default(gpu: &GpuCompute, setting: &str) -> Option<String> {
    let minor = gpu.minor;
    (Policy::from_number(gpu.policy)? == Policy::Fixed).then(|| {
        format!(
            "GPU {minor} has the policy fixed, which takes weights for percent: with the default \
             weight the instance has {WEIGHT_DEFAULT} % of it; {setting} changes that"
        )
    })
}

/// The warning that a high priority has no effect on a GPU.
pub(crate) fn of_priority(gpu: &GpuCompute, priority: Priority) -> Option<String> {
    (priority == Priority::High)
        .then(|| under_native(gpu, "a high priority has"))
        .flatten()
}

/// The warning that an instance's own burst has no effect on a GPU.
pub(crate) fn of_burst(gpu: &GpuCompute, burst_ms: u32) -> Option<String> {
    own_burst(burst_ms)?;
    under_native(gpu, "a burst has")
}

/// The warning that new rules of a GPU have no effect under its policy.
pub(crate) fn of_rules(gpu: &GpuCompute, request: &GpuSetCompute) -> Option<String> {
    let names = named_rules(request);
    let verb = match names.as_slice() {
        [] => return None,
        [_] => "has",
        _ => "have",
    };
    under_native(gpu, &format!("the {} {verb}", enumerate(&names, "and")))
}

/// The warning that something has no effect because NVIDIA's driver shares the GPU.
fn under_native(gpu: &GpuCompute, what_has: &str) -> Option<String> {
    let minor = gpu.minor;
    (Policy::from_number(gpu.policy)? == Policy::Native).then(|| {
        format!(
            "{what_has} no effect on GPU {minor}, which has the policy native: NVIDIA's driver \
             shares the GPU as it likes; `cgpuctl gpu set {minor} --policy weight` changes that"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_under_a_gib_draws_a_warning() {
        assert_eq!(small_limit(GIB), None);
        let warning = |bytes| small_limit(Bytes(bytes)).expect("a warning");
        assert!(warning(GIB.0 - 1).ends_with("little is left for the program"));
        assert!(warning(CONTEXT.0).ends_with("little is left for the program"));
        assert!(warning(CONTEXT.0 - 1).ends_with("no CUDA program will start"));
    }
}
