// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A pod as far as it asks other systems for a part of a GPU. The rest is passed over while it is
//! read: a pod may have 3 MiB of it, which would take many times that in memory.

use serde::{
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
    Deserialize, Deserializer,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// HAMi: how many GPUs. Alone it is NVIDIA's, and means whole ones.
pub(crate) const HAMI_COUNT: &str = "nvidia.com/gpu";
/// HAMi: MiB of each GPU.
pub(crate) const HAMI_MEMORY: &str = "nvidia.com/gpumem";
/// HAMi: a part of each GPU's memory, percent.
pub(crate) const HAMI_PERCENTAGE: &str = "nvidia.com/gpumem-percentage";
/// HAMi: a part of each GPU's compute, percent.
pub(crate) const HAMI_CORES: &str = "nvidia.com/gpucores";
/// HAMi: 0 for high, 1 for low.
pub(crate) const HAMI_PRIORITY: &str = "nvidia.com/priority";
/// Alibaba Cloud: GiB of a GPU.
pub(crate) const ALIYUN_MEMORY: &str = "aliyun.com/gpu-mem";
/// Alibaba Cloud: a part of the GPU's compute, percent.
pub(crate) const ALIYUN_CORES: &str = "aliyun.com/gpu-core.percentage";
/// Alibaba Cloud: over how many GPUs the memory is spread, a label of the pod.
pub(crate) const ALIYUN_COUNT: &str = "aliyun.com/gpu-count";
/// Tencent Cloud: GB of a GPU.
pub(crate) const QGPU_MEMORY: &str = "tke.cloud.tencent.com/qgpu-memory";
/// Tencent Cloud: a part of a GPU's compute, percent; multiples of 100 are whole GPUs.
pub(crate) const QGPU_CORES: &str = "tke.cloud.tencent.com/qgpu-core";
/// Tencent Cloud: compute that nobody else wants, percent.
pub(crate) const QGPU_GREEDY: &str = "tke.cloud.tencent.com/qgpu-core-greedy";

/// HAMi: annotations that say which models or UUIDs a pod's GPUs must have or must not have.
pub(crate) const HAMI_CHOICES: [&str; 4] = [
    "nvidia.com/use-gputype",
    "nvidia.com/nouse-gputype",
    "nvidia.com/use-gpuuuid",
    "nvidia.com/nouse-gpuuuid",
];
/// HAMi: annotations without an equivalent, and why there is none.
pub(crate) const HAMI_LOST: [(&str, &str); 3] = [
    ("hami.io/gpu-scheduler-policy", CHOOSES),
    ("hami.io/node-scheduler-policy", CHOOSES),
    ("nvidia.com/vgpu-mode", "every share is an instance of cgpu"),
];
/// Tencent Cloud: an annotation without an equivalent, and why there is none.
pub(crate) const QGPU_LOST: [(&str, &str); 1] = [(
    "tke.cloud.tencent.com/app-class",
    "shares differ by weight and priority alone",
)];
const CHOOSES: &str = "the scheduler of Kubernetes chooses";

/// Names of one system, each of which makes a container one of its own.
pub(crate) const SYSTEMS: [&[&str]; 3] = [
    &[HAMI_MEMORY, HAMI_PERCENTAGE, HAMI_CORES],
    &[ALIYUN_MEMORY, ALIYUN_CORES],
    &[QGPU_MEMORY, QGPU_CORES, QGPU_GREEDY],
];
/// Names that go along with them.
pub(crate) const ALONG: [&str; 2] = [HAMI_COUNT, HAMI_PRIORITY];
/// Longest text that is kept: the longest name of an object.
const LONGEST: usize = 253;

/// All names that make a pod one to be converted. The chart's webhook asks for just these.
pub fn names() -> impl Iterator<Item = &'static str> {
    SYSTEMS.into_iter().flatten().copied()
}

/// A pod.
#[derive(Debug, Deserialize)]
pub struct AskedPod {
    /// Its metadata.
    #[serde(default)]
    pub metadata: AskedMetadata,
    pub(crate) spec: AskedSpec,
}

/// The metadata of a pod.
#[derive(Debug, Default, Deserialize)]
pub struct AskedMetadata {
    /// Unless the apiserver is to make one.
    pub(crate) name: Option<AskedText>,
    #[serde(default)]
    pub(crate) labels: AskedLabels,
    /// Those that another system knows, if there are any at all.
    pub(crate) annotations: Option<AskedAnnotations>,
    #[serde(rename = "ownerReferences")]
    pub(crate) owner: Option<AskedOwners>,
}

/// The first of a pod's owners.
#[derive(Debug)]
pub(crate) struct AskedOwners(pub(crate) Option<AskedOwner>);

/// An owner of a pod, as the pod's creator wrote it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskedOwner {
    #[serde(default)]
    pub(crate) api_version: AskedText,
    #[serde(default)]
    pub(crate) kind: AskedText,
    #[serde(default)]
    pub(crate) name: AskedText,
    #[serde(default)]
    pub(crate) uid: AskedText,
}

impl<'de> Deserialize<'de> for AskedOwners {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct OwnersReader;
        impl<'de> Visitor<'de> for OwnersReader {
            type Value = AskedOwners;

            fn expecting(&self, said: &mut fmt::Formatter<'_>) -> fmt::Result {
                said.write_str("owners")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<AskedOwners, A::Error> {
                let first = all.next_element()?;
                while all.next_element::<IgnoredAny>()?.is_some() {}
                Ok(AskedOwners(first))
            }
        }
        from.deserialize_seq(OwnersReader)
    }
}

/// Names of a pod's annotations that another system knows and that have a value.
#[derive(Debug, Default)]
pub(crate) struct AskedAnnotations(pub(crate) BTreeSet<&'static str>);

impl<'de> Deserialize<'de> for AskedAnnotations {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let lost = HAMI_LOST.into_iter().chain(QGPU_LOST).map(|(name, _)| name);
        let known = |key: &str| {
            HAMI_CHOICES
                .into_iter()
                .chain(lost.clone())
                .find(|n| *n == key)
        };
        let mut found = known_of(from, known)?;
        found.retain(|_, value| !value.0.is_empty());
        Ok(Self(found.into_keys().collect()))
    }
}

/// The label of a pod that is asked for.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct AskedLabels {
    /// [`ALIYUN_COUNT`].
    #[serde(rename = "aliyun.com/gpu-count")]
    pub(crate) aliyun_count: Option<String>,
}

/// Its spec.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskedSpec {
    pub(crate) containers: Vec<AskedContainer>,
    pub(crate) init_containers: Option<Vec<AskedContainer>>,
    pub(crate) scheduler_name: Option<AskedText>,
    /// Whether there are any, and how many, which takes no memory.
    pub(crate) resource_claims: Option<Vec<IgnoredAny>>,
}

/// A container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskedContainer {
    #[serde(default)]
    pub(crate) name: AskedText,
    /// Of an init container: `Always` if it is a sidecar, which runs beside the others.
    pub(crate) restart_policy: Option<AskedText>,
    #[serde(default)]
    pub(crate) resources: AskedResources,
}

impl AskedContainer {
    /// Whether an init container runs beside those that follow it.
    pub(crate) fn is_sidecar(&self) -> bool {
        self.restart_policy
            .as_ref()
            .is_some_and(|p| p.0 == "Always")
    }
}

/// The resources of a container.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct AskedResources {
    pub(crate) limits: Option<AskedList>,
    pub(crate) requests: Option<AskedList>,
    pub(crate) claims: Option<Vec<IgnoredAny>>,
}

/// The resources of a list that another system knows.
#[derive(Debug)]
pub(crate) struct AskedList(pub(crate) BTreeMap<&'static str, AskedText>);

impl<'de> Deserialize<'de> for AskedList {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let known = |key: &str| names().chain(ALONG).find(|name| *name == key);
        known_of(from, known).map(Self)
    }
}

/// The values of a map whose names are known. The rest is passed over.
fn known_of<'de, D: Deserializer<'de>>(
    from: D,
    known: impl Fn(&str) -> Option<&'static str>,
) -> Result<BTreeMap<&'static str, AskedText>, D::Error> {
    struct KnownReader<F>(F);
    impl<'de, F: Fn(&str) -> Option<&'static str>> Visitor<'de> for KnownReader<F> {
        type Value = BTreeMap<&'static str, AskedText>;

        fn expecting(&self, said: &mut fmt::Formatter<'_>) -> fmt::Result {
            said.write_str("values by name")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = BTreeMap::new();
            while let Some(AskedText(key)) = map.next_key()? {
                match self.0(&key) {
                    Some(name) => _ = found.insert(name, map.next_value()?),
                    None => _ = map.next_value::<IgnoredAny>()?,
                }
            }
            Ok(found)
        }
    }
    from.deserialize_map(KnownReader(known))
}

/// A text, or a number as text: a quantity may be written as either. Of a text that nothing here
/// can be, the end is cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AskedText(pub(crate) String);

impl<'de> Deserialize<'de> for AskedText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct TextReader;
        impl Visitor<'_> for TextReader {
            type Value = AskedText;

            fn expecting(&self, said: &mut fmt::Formatter<'_>) -> fmt::Result {
                said.write_str("a text or a number")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<AskedText, E> {
                Ok(AskedText(text.chars().take(LONGEST).collect()))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<AskedText, E> {
                Ok(AskedText(number.to_string()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<AskedText, E> {
                Ok(AskedText(number.to_string()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<AskedText, E> {
                Ok(AskedText(number.to_string()))
            }
        }
        from.deserialize_any(TextReader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_largest_pod_takes_little_memory() {
        let odd: BTreeMap<_, _> = (0..10_000).map(|n| (format!("x{n}"), 1)).collect();
        let mut limits = json!(odd);
        limits[HAMI_MEMORY] = 3.into();
        limits[HAMI_CORES] = "7".repeat(100_000).into();
        let claims = vec![json!({"name": "c"}); 1000];
        let pod = json!({
            "metadata": {"name": "p", "labels": odd, "annotations": odd, "ownerReferences":
                vec![json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}); 1000]},
            "spec": {"resourceClaims": claims, "containers": [{"name": "n".repeat(100_000),
                "args": vec![""; 786_000], "env": claims,
                "resources": {"limits": limits, "claims": claims}}]},
        });
        let read: AskedPod = serde_json::from_str(&pod.to_string()).expect("a pod");
        let resources = &read.spec.containers[0].resources;
        let known = &resources.limits.as_ref().expect("limits").0;
        assert!(known.keys().eq(&[HAMI_CORES, HAMI_MEMORY]));
        assert_eq!(known[HAMI_MEMORY], AskedText("3".to_owned()));
        // Every text that is kept, and the empty marks of what is not.
        let kept = format!("{read:?}").replace("IgnoredAny, ", "");
        assert!(kept.len() < 2000, "{} {}", kept.len(), &kept[..2000]);
        assert_eq!(size_of::<IgnoredAny>(), 0);
    }

    #[test]
    fn nothing_but_a_pod_is_read() {
        for odd in [
            json!({"spec": 1}),
            json!({}),
            json!({"spec": {"containers": [{"resources": {"limits": 1}}]}}),
            json!({"spec": {"containers": [{"resources": {"limits": {HAMI_MEMORY: []}}}]}}),
        ] {
            assert!(serde_json::from_value::<AskedPod>(odd).is_err());
        }
    }
}
