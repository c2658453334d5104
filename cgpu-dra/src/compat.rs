// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Resource names by which pods ask other systems for a part of a GPU, as claims of this driver:
//! HAMi's, Alibaba Cloud's and Tencent Cloud's. A pod that names none of them is left alone.
//!
//! Sources of the units: the documents of Project-HAMi/HAMi ("task" and "config"), of Alibaba Cloud
//! ("use cGPU") and of Tencent Cloud ("qGPU").

use crate::{
    asked::{
        AskedPod, AskedResources, ALIYUN_CORES, ALIYUN_COUNT, ALIYUN_MEMORY, HAMI_CHOICES,
        HAMI_CORES, HAMI_COUNT, HAMI_LOST, HAMI_MEMORY, HAMI_PERCENTAGE, HAMI_PRIORITY, QGPU_CORES,
        QGPU_GREEDY, QGPU_LOST, QGPU_MEMORY, SYSTEMS,
    },
    init_claims::{share, PodClaim},
    names::DRIVER,
    patch::{annotate, append, use_claim},
    quantity, scheduler,
    templates::{Template, Wanted},
};
use cgpu_uapi::Priority;
use serde_json::{json, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Most GPUs of a container: an allocation has at most 32 devices.
const MOST_GPUS: u64 = 32;
/// Most containers of a pod that are converted. Each makes the answer longer.
const MOST_CONTAINERS: usize = 100;
/// The most of that text.
const LONGEST_NOTE: usize = 1000;
/// Whole percents of a GPU.
const WHOLE: u64 = 100;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Why a pod cannot be converted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompatError {
    /// Many containers.
    #[error("the pod has more than {MOST_CONTAINERS} containers that ask for a part of a GPU")]
    Containers,
    /// A number.
    #[error("the container {container} has {name} with a value that is no whole number: {value}")]
    Number {
        /// Which container.
        container: String,
        /// The resource.
        name: &'static str,
        /// As written, shortened.
        value: String,
    },
    /// A number out of its range.
    #[error("the container {container} has {name}: {value}, and it can be {range}")]
    Range {
        /// Which container.
        container: String,
        /// The resource.
        name: &'static str,
        /// As read.
        value: u64,
        /// The values that it can have.
        range: &'static str,
    },
    /// Resources of two systems.
    #[error("the container {0} asks two systems for a GPU; keep the resources of one")]
    Mixed(String),
    /// An annotation that binds the pod to some GPUs.
    #[error(
        "the pod's annotation {0} chooses GPUs, which is not converted; write a \
         ResourceClaimTemplate of the class {DRIVER} with a selector"
    )]
    Choice(&'static str),
    /// A resource that no claim can say.
    #[error(
        "the container {container} asks for {name}, which no claim can say: {why}; write a \
         ResourceClaimTemplate of the class {DRIVER}"
    )]
    Unsaid {
        /// Which container.
        container: String,
        /// The resource.
        name: &'static str,
        /// Why not.
        why: &'static str,
    },
}

/// A pod with claims in the place of another system's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conversion {
    /// A JSON patch of the pod.
    pub patch: Vec<Value>,
    /// Templates that must be in its namespace.
    pub templates: Vec<Template>,
    /// Wishes that are not kept, a sentence each.
    pub notes: Vec<String>,
}

/// The words of a pod that are for all of its containers.
struct OfPod {
    /// Memory is spread over several GPUs.
    spread: bool,
    annotations: BTreeSet<&'static str>,
}

/// The resources of a container, by name.
struct Asked<'a> {
    container: &'a str,
    pod: &'a OfPod,
    limits: BTreeMap<&'static str, u64>,
    notes: &'a mut Vec<String>,
}

impl Asked<'_> {
    fn get(&self, name: &'static str) -> Option<u64> {
        self.limits.get(name).copied().filter(|n| *n > 0)
    }

    fn range(&self, name: &'static str, value: u64, range: &'static str) -> CompatError {
        CompatError::Range {
            container: self.container.to_owned(),
            name,
            value,
            range,
        }
    }

    fn unsaid(&self, name: &'static str, why: &'static str) -> CompatError {
        CompatError::Unsaid {
            container: self.container.to_owned(),
            name,
            why,
        }
    }

    fn note(&mut self, what: &str) {
        self.notes
            .push(format!("container {}: {what}", self.container));
    }

    /// Notes the pod's annotations among these.
    fn note_lost(&mut self, lost: &[(&'static str, &str)]) {
        for (name, why) in lost {
            if self.pod.annotations.contains(name) {
                self.notes.push(format!("{name} is not kept: {why}"));
            }
        }
    }

    fn bytes(&self, name: &'static str, unit: u64) -> Result<Option<u64>, CompatError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let bytes = value.checked_mul(unit).filter(|b| *b < 1 << 60);
        let bytes = bytes.ok_or_else(|| self.range(name, value, "what a GPU can have"))?;
        Ok(Some(bytes))
    }

    /// A part of a GPU's compute. A weight is what it becomes.
    fn weight(&mut self, name: &'static str) -> Result<Option<u64>, CompatError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        if value > WHOLE {
            return Err(self.range(name, value, "0 to 100"));
        }
        self.note(&format!(
            "{name}: {value} becomes the weight {value}. It is a share among those that have work, \
             and no cap, unless the GPU's policy is fixed-equal or fixed"
        ));
        Ok(Some(value))
    }

    fn hami(&mut self) -> Result<Wanted, CompatError> {
        let mut choices = HAMI_CHOICES.into_iter();
        if let Some(name) = choices.find(|name| self.pod.annotations.contains(name)) {
            return Err(CompatError::Choice(name));
        }
        self.note_lost(&HAMI_LOST);
        if self.get(HAMI_PERCENTAGE).is_some_and(|n| n != WHOLE) {
            let why = "a claim asks for bytes";
            return Err(self.unsaid(HAMI_PERCENTAGE, why));
        }
        let gpus = self.limits.get(HAMI_COUNT).copied().unwrap_or(1);
        if !(1..=MOST_GPUS).contains(&gpus) {
            return Err(self.range(HAMI_COUNT, gpus, "1 to 32"));
        }
        Ok(Wanted {
            memory_bytes: self.bytes(HAMI_MEMORY, MIB)?,
            weight: self.weight(HAMI_CORES)?,
            gpus,
            high_priority: self.limits.get(HAMI_PRIORITY) == Some(&0),
        })
    }

    fn aliyun(&mut self) -> Result<Wanted, CompatError> {
        if self.pod.spread {
            let why = "it spreads the memory over several GPUs";
            return Err(self.unsaid(ALIYUN_COUNT, why));
        }
        Ok(Wanted {
            memory_bytes: self.bytes(ALIYUN_MEMORY, GIB)?,
            weight: self.weight(ALIYUN_CORES)?,
            gpus: 1,
            high_priority: false,
        })
    }

    fn tencent(&mut self) -> Result<Wanted, CompatError> {
        self.note_lost(&QGPU_LOST);
        if self.get(QGPU_GREEDY).is_some() {
            self.note(&format!(
                "{QGPU_GREEDY} is not kept: every instance gets what the others leave"
            ));
        }
        let cores = self.get(QGPU_CORES).unwrap_or(0);
        if cores <= WHOLE {
            return Ok(Wanted {
                memory_bytes: self.bytes(QGPU_MEMORY, GIB)?,
                weight: self.weight(QGPU_CORES)?,
                gpus: 1,
                high_priority: false,
            });
        }
        if !cores.is_multiple_of(WHOLE) || cores / WHOLE > MOST_GPUS {
            return Err(self.range(QGPU_CORES, cores, "up to 100, or a multiple of 100"));
        }
        Ok(Wanted {
            memory_bytes: None,
            weight: Some(WHOLE),
            gpus: cores / WHOLE,
            high_priority: false,
        })
    }
}

/// The numbers of the names that are known, from limits, or from requests where those say nothing.
fn numbers(
    container: &str,
    resources: &AskedResources,
) -> Result<BTreeMap<&'static str, u64>, CompatError> {
    let mut found = BTreeMap::new();
    let lists = [&resources.requests, &resources.limits];
    for (name, value) in lists.into_iter().flatten().flat_map(|list| &list.0) {
        found.insert(*name, &*value.0);
    }
    let read = |(name, text): (&'static str, &str)| match quantity::parse(text) {
        Ok(number) => Ok((name, number)),
        Err(_) => Err(CompatError::Number {
            container: container.to_owned(),
            name,
            value: text.chars().filter(|c| !c.is_control()).take(40).collect(),
        }),
    };
    found.into_iter().map(read).collect()
}

/// The wish of a container, if it names a resource of one of the systems.
fn wanted(
    container: &str,
    resources: &AskedResources,
    pod: &OfPod,
    notes: &mut Vec<String>,
) -> Result<Option<Wanted>, CompatError> {
    let limits = numbers(container, resources)?;
    let of_system = |names: &&[&str]| names.iter().any(|name| limits.contains_key(name));
    let systems: Vec<_> = (0..SYSTEMS.len())
        .filter(|n| SYSTEMS.get(*n).is_some_and(of_system))
        .collect();
    let mut asked = Asked {
        container,
        pod,
        limits,
        notes,
    };
    match systems[..] {
        [] => Ok(None),
        [0] => asked.hami().map(Some),
        [1] => asked.aliyun().map(Some),
        [2] => asked.tencent().map(Some),
        _ => Err(CompatError::Mixed(container.to_owned())),
    }
}

/// Converts a pod; `None` if it names no resource of another system. `highest` is the priority that
/// claims may ask for.
pub fn convert(pod: &AskedPod, highest: Priority) -> Result<Option<Conversion>, CompatError> {
    let count = pod.metadata.labels.aliyun_count.as_ref();
    let annotations = pod.metadata.annotations.as_ref();
    let of_pod = OfPod {
        spread: count.is_some_and(|n| n != "1"),
        annotations: annotations.map(|a| a.0.clone()).unwrap_or_default(),
    };
    let (mut patch, mut notes) = (Vec::new(), Vec::new());
    let (mut held, mut count) = (Vec::<PodClaim>::new(), 0);
    let spec = &pod.spec;
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for (list, prefix, all) in [
        ("containers", "cgpu", &*spec.containers),
        ("initContainers", "cgpu-init", init),
    ] {
        for (n, container) in all.iter().enumerate() {
            let (name, resources) = (&*container.name.0, &container.resources);
            let Some(wanted) = wanted(name, resources, &of_pod, &mut notes)? else {
                continue;
            };
            if count == MOST_CONTAINERS {
                return Err(CompatError::Containers);
            }
            count += 1;
            let wanted = wanted.at_most(highest, name, &mut notes);
            let (is_sidecar, is_init) = (container.is_sidecar(), list != "containers");
            let shared = (is_init && !is_sidecar)
                .then(|| share(&mut held, name, wanted, &mut notes))
                .flatten();
            let claim = shared.unwrap_or_else(|| {
                let claim = format!("{prefix}-{n}");
                held.push(PodClaim {
                    claim: claim.clone(),
                    container: name,
                    wanted,
                    is_sidecar: is_init && is_sidecar,
                    is_init,
                });
                claim
            });
            let at = format!("/spec/{list}/{n}/resources");
            use_claim(&mut patch, &at, resources, &claim);
        }
    }
    if held.is_empty() {
        return Ok(None);
    }
    let mut templates: BTreeMap<String, Template> = BTreeMap::new();
    let mut claims = Vec::new();
    for PodClaim { claim, wanted, .. } in held {
        wanted.note_weight(&mut notes);
        let template = wanted.template();
        claims.push(json!({"name": claim, "resourceClaimTemplateName": template.name}));
        templates.insert(template.name.clone(), template);
    }
    let is_there = spec.resource_claims.is_some();
    append(&mut patch, "/spec/resourceClaims", is_there, claims);
    scheduler::choose(spec.scheduler_name.as_ref(), &mut patch, &mut notes);
    let unique: BTreeSet<_> = notes.into_iter().collect();
    let notes: Vec<_> = unique.into_iter().collect();
    if !notes.is_empty() {
        // Its creator may be a controller, which shows nobody a warning.
        let note: String = notes.join("; ").chars().take(LONGEST_NOTE).collect();
        patch.push(annotate(pod.metadata.annotations.is_some(), note));
    }
    Ok(Some(Conversion {
        patch,
        templates: templates.into_values().collect(),
        notes,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{asked::AskedAnnotations, patch::NOT_KEPT};

    fn read(pod: Value) -> AskedPod {
        serde_json::from_value(pod).expect("a pod")
    }

    fn pod(limits: Value) -> AskedPod {
        read(json!({"metadata": {"name": "p"}, "spec": {"containers": [
            {"name": "side", "resources": {"limits": {"cpu": "1"}}},
            {"name": "main", "resources": {"limits": limits}}]}}))
    }

    fn capacities(limits: Value) -> Value {
        let done = convert(&pod(limits), Priority::High)
            .expect("read")
            .expect("converted");
        assert_eq!(done.templates.len(), 1);
        done.templates[0].spec["spec"]["devices"]["requests"][0]["exactly"].clone()
    }

    #[test]
    fn each_system_has_its_units() {
        for (limits, memory, weight, count) in [
            (json!({"nvidia.com/gpumem": 3000}), "3000Mi", None, 1),
            (
                json!({"nvidia.com/gpu": "2", "nvidia.com/gpumem": "8192", "nvidia.com/gpucores": "30"}),
                "8Gi",
                Some("30"),
                2,
            ),
            (
                json!({"aliyun.com/gpu-mem": "5", "aliyun.com/gpu-core.percentage": 20}),
                "5Gi",
                Some("20"),
                1,
            ),
            (
                json!({"tke.cloud.tencent.com/qgpu-memory": "8", "tke.cloud.tencent.com/qgpu-core": "35"}),
                "8Gi",
                Some("35"),
                1,
            ),
        ] {
            let exactly = capacities(limits.clone());
            let requests = &exactly["capacity"]["requests"];
            assert_eq!(requests["memory"], memory, "{limits}");
            assert_eq!(requests["weight"].as_str(), weight, "{limits}");
            assert_eq!(exactly["count"], count, "{limits}");
        }
        let whole = capacities(json!({"tke.cloud.tencent.com/qgpu-core": "200"}));
        assert_eq!(whole["count"], 2);
        assert_eq!(whole["capacity"]["requests"], json!({"weight": "100"}));
    }

    #[test]
    fn a_pod_of_nobody_is_left_alone() {
        for limits in [
            json!({}),
            json!({"cpu": "2"}),
            json!({"nvidia.com/gpu": 1}),
            json!({"cgpu.io/gpu": 1}),
        ] {
            assert_eq!(convert(&pod(limits), Priority::High), Ok(None));
        }
    }

    #[test]
    fn the_patch_changes_what_was_converted_alone() {
        let limits = json!({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100, "cpu": "2"});
        let done = convert(&pod(limits), Priority::High)
            .expect("read")
            .expect("converted");
        let remove = |what: &str| {
            let path = format!("/spec/containers/1/resources/{what}");
            json!({"op": "remove", "path": path})
        };
        assert_eq!(
            done.patch[..4],
            [
                remove("limits/nvidia.com~1gpu"),
                remove("limits/nvidia.com~1gpumem"),
                json!({"op": "add", "path": "/spec/containers/1/resources/claims", "value":
                    [{"name": "cgpu-1"}]}),
                json!({"op": "add", "path": "/spec/resourceClaims", "value":
                    [{"name": "cgpu-1", "resourceClaimTemplateName": "cgpu-100m-x1"}]}),
            ]
        );
        assert_eq!((done.patch.len(), done.notes.len()), (5, 1));
    }

    #[test]
    fn claims_of_a_pod_stay() {
        let claims = json!([{"name": "own"}]);
        let done = read(
            json!({"spec": {"resourceClaims": claims, "containers": [{"name": "main",
            "resources": {"requests": {"nvidia.com/gpumem": 100}, "claims": claims}}]}}),
        );
        let done = convert(&done, Priority::High).expect("read");
        assert_eq!(
            done.expect("converted").patch[..3],
            [
                json!({"op": "remove", "path":
                    "/spec/containers/0/resources/requests/nvidia.com~1gpumem"}),
                json!({"op": "add", "path": "/spec/containers/0/resources/claims/-", "value":
                    {"name": "cgpu-0"}}),
                json!({"op": "add", "path": "/spec/resourceClaims/-", "value":
                    {"name": "cgpu-0", "resourceClaimTemplateName": "cgpu-100m-x1"}}),
            ]
        );
    }

    #[test]
    fn a_pod_has_a_hundred_such_containers() {
        let limits = json!({"nvidia.com/gpumem": 100});
        let container = json!({"name": "main", "resources": {"limits": limits}});
        for (count, fits) in [(100, true), (101, false)] {
            let all = vec![container.clone(); count];
            let pod = read(json!({"spec": {"containers": all}}));
            let done = convert(&pod, Priority::High);
            assert_eq!(done != Err(CompatError::Containers), fits);
        }
    }

    #[test]
    fn templates_of_other_contents_have_other_names() {
        let name = |limits| {
            let done = convert(&pod(limits), Priority::High)
                .expect("read")
                .expect("converted");
            done.templates[0].name.clone()
        };
        let names = [
            name(json!({"nvidia.com/gpumem": 100})),
            name(json!({"nvidia.com/gpumem": 100, "nvidia.com/gpucores": 1})),
            name(json!({"nvidia.com/gpumem": 100, "nvidia.com/gpu": 2})),
            name(json!({"nvidia.com/gpumem": 100, "nvidia.com/priority": 0})),
            name(json!({"nvidia.com/gpumem": 101})),
            name(json!({"nvidia.com/gpucores": 1})),
        ];
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn what_is_not_kept_is_said() {
        let notes = |limits| {
            let done = convert(&pod(limits), Priority::High)
                .expect("read")
                .expect("converted");
            done.notes.join("\n")
        };
        assert!(notes(json!({"nvidia.com/gpucores": 30})).contains("no cap"));
        // They are on the pod as well.
        let mut annotated = pod(json!({"nvidia.com/gpucores": 30}));
        let last = |pod: &AskedPod| {
            let done = convert(pod, Priority::High).expect("read");
            done.expect("converted").patch.pop().expect("an annotation")
        };
        let note = last(&annotated)["value"][NOT_KEPT].clone();
        assert!(note.as_str().is_some_and(|note| note.contains("no cap")));
        annotated.metadata.annotations = Some(AskedAnnotations::default());
        let add = json!({"op": "add", "path": "/metadata/annotations/cgpu.io~1not-kept",
            "value": note});
        assert_eq!(last(&annotated), add);
        let high = json!({"nvidia.com/gpumem": 100, "nvidia.com/priority": 0});
        assert!(notes(high.clone()).starts_with("without a part of the GPU"));
        let done = convert(&pod(high), Priority::Normal).expect("read");
        let done = done.expect("converted");
        assert!(done.notes[0].contains("nvidia.com/priority: 0 is not kept"));
        assert_eq!(done.templates[0].name, "cgpu-100m-x1");
        let greedy = json!({"tke.cloud.tencent.com/qgpu-core-greedy": 10});
        assert!(notes(greedy).contains("qgpu-core-greedy is not kept"));
    }

    #[test]
    fn what_no_claim_can_say_is_refused() {
        for (limits, said) in [
            (json!({"nvidia.com/gpumem-percentage": 50}), "bytes"),
            (json!({"nvidia.com/gpumem": "many"}), "no whole number"),
            (json!({"nvidia.com/gpucores": 101}), "0 to 100"),
            (json!({"nvidia.com/gpumem": "1E"}), "what a GPU can have"),
            (
                json!({"nvidia.com/gpu": 0, "nvidia.com/gpumem": 1}),
                "1 to 32",
            ),
            (
                json!({"tke.cloud.tencent.com/qgpu-core": 150}),
                "multiple of 100",
            ),
            (
                json!({"nvidia.com/gpumem": 1, "aliyun.com/gpu-mem": 1}),
                "two systems",
            ),
        ] {
            let error = convert(&pod(limits), Priority::High)
                .expect_err("refused")
                .to_string();
            assert!(error.contains(said), "{said}: {error}");
        }
        let mut spread = pod(json!({"aliyun.com/gpu-mem": 8}));
        spread.metadata.labels.aliyun_count = Some("2".to_owned());
        let error = convert(&spread, Priority::High)
            .expect_err("refused")
            .to_string();
        assert!(error.contains("several GPUs"), "{error}");
    }

    #[test]
    fn annotations_are_refused_or_noted() {
        let with = |name: &str, value: &str, limits: &Value| {
            let pod = json!({"metadata": {"annotations": {name: value, "x": "y"}}, "spec":
                {"containers": [{"name": "main", "resources": {"limits": limits}}]}});
            convert(&read(pod), Priority::High)
        };
        let hami = json!({"nvidia.com/gpumem": 1000});
        let qgpu = json!({"tke.cloud.tencent.com/qgpu-memory": 8});
        for name in HAMI_CHOICES {
            let why = with(name, "A100", &hami).expect_err("refused").to_string();
            assert!(why.contains(name) && why.contains("a selector"), "{why}");
            // Others do not know it, and without a value it chooses nothing.
            assert!(with(name, "A100", &qgpu).is_ok());
            assert!(with(name, "", &hami).is_ok());
            assert_eq!(with(name, "A100", &json!({"nvidia.com/gpu": 1})), Ok(None));
        }
        let of = |limits: &Value, name: &str| {
            let done = with(name, "spread", limits).expect("read").expect("done");
            (
                done.notes.join("; "),
                done.patch.last().cloned().expect("a change"),
            )
        };
        for (lost, own, other) in [(&HAMI_LOST[..], &hami, &qgpu), (&QGPU_LOST, &qgpu, &hami)] {
            for (name, _) in lost {
                let (notes, last) = of(own, name);
                assert!(notes.contains(&format!("{name} is not kept")), "{notes}");
                assert_eq!(last["value"], notes);
                assert!(!of(other, name).0.contains(name));
            }
        }
    }
}
