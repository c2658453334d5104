// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The wishes in a container's environment, in the words of three systems: ours (`CGPU_*`), cGPU's
//! (`ALIYUN_COM_GPU_*`) and HAMi's (`CUDA_DEVICE_*`). Where several are there, ours goes before
//! cGPU's, and that before HAMi's.
//!
//! | variable | value |
//! |---|---|
//! | `CGPU_DISABLE` | `true` or `1`: no instance |
//! | `CGPU_MEM` | limit on each GPU, like `8GiB` or `50%` |
//! | `CGPU_HOST_MEM` | limit of the host's memory, for each GPU, like `16GiB` |
//! | `CGPU_WEIGHT` | 1 to 100 |
//! | `CGPU_POLICY` | number or name; must be the GPU's, which is for the host to set |
//! | `ALIYUN_COM_GPU_MEM_DEV`, `_CONTAINER` | the limit is this share of the memory; both or none |
//! | `ALIYUN_COM_GPU_VISIBLE_DEVICES` | GPUs, goes before NVIDIA's unless that is `void` |
//! | `ALIYUN_COM_GPU_SCHD_WEIGHT` | weight, 1 to 100 |
//! | `CUDA_DEVICE_MEMORY_LIMIT`, `_N` | limit, of the Nth GPU: `3g`, `3000m`, bytes; 0 is none |
//! | `CUDA_DEVICE_SM_LIMIT` | a cap in percent; needs the policy `fixed`; 0 and 100 are none |
//! | `NVIDIA_VISIBLE_DEVICES` | GPUs: `all`, indexes in PCI order or UUIDs; `void`: no instance |
//!
//! A container without a memory setting gets no instance.

use crate::{
    args::{policy, policy_numbers, size},
    size::{Amount, Bytes},
};
use cgpu_uapi::{text, Gpu, Policy, WEIGHT_DEFAULT, WEIGHT_MAX};

/// An instance for a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Minor of each GPU, and the limit on it.
    pub gpus: Vec<(u32, Bytes)>,
    /// Weight.
    pub weight: u32,
    /// Limit of the host's memory that the driver holds, bytes; `None`: the default.
    pub host_mem: Option<u64>,
}

/// A variable that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value:?} {why}")]
pub struct BadSetting {
    /// Its name.
    pub variable: String,
    /// Its value.
    pub value: String,
    /// The fault, and what to do.
    pub why: String,
}

/// A container's environment.
#[derive(Clone, Copy)]
pub struct Environment<'a>(pub &'a [String]);

impl<'a> Environment<'a> {
    /// The value of a variable that is set and not empty; the last one, as `getenv` sees after
    /// `exec`.
    fn get(self, name: &str) -> Option<&'a str> {
        let values = self.0.iter().filter_map(|entry| entry.split_once('='));
        let mut values = values.filter(|(key, _)| *key == name);
        values
            .next_back()
            .map(|(_, value)| value)
            .filter(|v| !v.is_empty())
    }

    /// The value as it was read by `parse`, which says what is wrong.
    fn read<T>(
        self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, BadSetting> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        parse(value).map(Some).map_err(|why| BadSetting {
            variable: name.to_owned(),
            value: value.to_owned(),
            why,
        })
    }

    /// Whether a memory setting is there, so that GPUs have to be looked at.
    pub fn asks(self) -> bool {
        let disabled = self
            .get("CGPU_DISABLE")
            .is_some_and(|v| v == "1" || v.eq_ignore_ascii_case("true"));
        let share = self.get(MEM_DEV).is_some() && self.get(MEM_CONTAINER).is_some();
        !disabled && (self.get("CGPU_MEM").is_some() || share || self.has_memory_limit())
    }

    /// Whether one of HAMi's limits is set: the name alone or with a GPU's number behind it, and
    /// not to 0, which is none.
    fn has_memory_limit(self) -> bool {
        let keys = self.0.iter().filter_map(|entry| entry.split_once('='));
        keys.map(|(key, _)| key)
            .filter(|key| {
                let rest = key.strip_prefix(MEMORY_LIMIT);
                let number = rest.and_then(|rest| rest.strip_prefix('_'));
                rest == Some("") || number.is_some_and(|n| n.parse::<usize>().is_ok())
            })
            .any(|key| self.get(key).is_some_and(|value| value != "0"))
    }

    /// Whether NVIDIA's own variable says that the container gets no GPU by it. CDI files say so:
    /// what gives the container a GPU is named elsewhere.
    pub(super) fn is_void(self) -> bool {
        self.get(NVIDIA_DEVICES) == Some("void")
    }
}

const MEM_DEV: &str = "ALIYUN_COM_GPU_MEM_DEV";
const MEM_CONTAINER: &str = "ALIYUN_COM_GPU_MEM_CONTAINER";
const MEMORY_LIMIT: &str = "CUDA_DEVICE_MEMORY_LIMIT";
const ALIYUN_DEVICES: &str = "ALIYUN_COM_GPU_VISIBLE_DEVICES";
const NVIDIA_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// The wish of the environment on these GPUs; `None` if it is nothing.
pub fn wish(environment: Environment<'_>, gpus: &[Gpu]) -> Result<Option<Wish>, BadSetting> {
    if !environment.asks() {
        return Ok(None);
    }
    let chosen = chosen(environment, gpus)?;
    let mut limits = Vec::new();
    for (n, gpu) in chosen.iter().enumerate() {
        if let Some(limit) = limit(environment, n, gpu)? {
            limits.push((gpu.minor, limit));
        }
    }
    if limits.is_empty() {
        return Ok(None);
    }
    environment.read("CGPU_POLICY", |value| check_policy(value, &chosen))?;
    Ok(Some(Wish {
        gpus: limits,
        weight: weight(environment, &chosen)?,
        host_mem: environment.read("CGPU_HOST_MEM", |text| {
            size(text).map_err(|why| format!("is no size: {why}"))
        })?,
    }))
}

/// The GPUs that the container is to have, in its order.
fn chosen<'g>(environment: Environment<'_>, gpus: &'g [Gpu]) -> Result<Vec<&'g Gpu>, BadSetting> {
    let mut order: Vec<_> = gpus.iter().collect();
    order.sort_by_key(|gpu| text(&gpu.pci));
    let pick = |value: &str| -> Result<Vec<&'g Gpu>, String> {
        match value {
            "all" => return Ok(order.clone()),
            "none" => return Ok(vec![]),
            _ => {}
        }
        let mut picked: Vec<&Gpu> = Vec::new();
        for word in value.split(',').map(str::trim) {
            let gpu = one(word, &order)?;
            if picked.iter().any(|p| p.minor == gpu.minor) {
                return Err(format!("names {word} twice"));
            }
            picked.push(gpu);
        }
        Ok(picked)
    };
    if environment.is_void() {
        // An image can set the other variable, and must not undo what the operator's CDI file says.
        return Ok(vec![]);
    }
    for variable in [ALIYUN_DEVICES, NVIDIA_DEVICES] {
        if let Some(picked) = environment.read(variable, pick)? {
            return Ok(picked);
        }
    }
    if order.len() > 1 {
        return Err(BadSetting {
            variable: NVIDIA_DEVICES.to_owned(),
            value: String::new(),
            why: "is needed on a host with several GPUs; name one, like 0".to_owned(),
        });
    }
    Ok(order)
}

/// A GPU by its index or by the beginning of its UUID.
fn one<'g>(word: &str, order: &[&'g Gpu]) -> Result<&'g Gpu, String> {
    if word.starts_with("MIG-") {
        return Err("names a MIG instance, which cannot be shared".to_owned());
    }
    if let Ok(index) = word.parse::<usize>() {
        let last = order.len().saturating_sub(1);
        let gpu = order.get(index).copied();
        return gpu.ok_or_else(|| format!("names GPU {index}, and the last one is {last}"));
    }
    let word = word.to_ascii_lowercase();
    let mut found = order
        .iter()
        .filter(|gpu| text(&gpu.uuid).to_ascii_lowercase().starts_with(&word));
    match (found.next(), found.next()) {
        (Some(gpu), None) if word.starts_with("gpu-") => Ok(gpu),
        (Some(_), Some(_)) => Err(format!("names several GPUs with {word}")),
        _ => Err(format!("names no GPU of this host with {word:?}")),
    }
}

/// The limit on the `n`th GPU of the container.
fn limit(environment: Environment<'_>, n: usize, gpu: &Gpu) -> Result<Option<Bytes>, BadSetting> {
    let own = |value: &str| {
        value
            .parse::<Amount>()
            .map(|amount| amount.of(gpu.memory_bytes))
            .map_err(|e| format!("is no size: {e}"))
    };
    if let Some(limit) = environment.read("CGPU_MEM", own)? {
        return Ok(Some(limit));
    }
    let number = |value: &str| match value.parse::<u64>() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("is no whole number above zero".to_owned()),
    };
    let whole = environment.read(MEM_DEV, number)?;
    let part = environment.read(MEM_CONTAINER, |value| match (number(value)?, whole) {
        (part, Some(whole)) if part > whole => Err(format!("is more than {MEM_DEV}={whole}")),
        (part, _) => Ok(part),
    })?;
    if let (Some(whole), Some(part)) = (whole, part) {
        let share = u128::from(gpu.memory_bytes) * u128::from(part) / u128::from(whole);
        return Ok(u64::try_from(share).ok().map(Bytes));
    }
    for variable in [format!("{MEMORY_LIMIT}_{n}"), MEMORY_LIMIT.to_owned()] {
        if let Some(limit) = environment.read(&variable, hami_size)? {
            return Ok(Some(limit).filter(|limit| limit.0 > 0));
        }
    }
    Ok(None)
}

/// HAMi's sizes: a number with `g`, `m` or `k`, all of which count in 1024, or bytes.
fn hami_size(value: &str) -> Result<Bytes, String> {
    let (digits, unit) = match value.as_bytes().last() {
        Some(b'g' | b'G') => (value.get(..value.len() - 1), 1 << 30),
        Some(b'm' | b'M') => (value.get(..value.len() - 1), 1 << 20),
        Some(b'k' | b'K') => (value.get(..value.len() - 1), 1 << 10),
        _ => (Some(value), 1),
    };
    digits
        .and_then(|digits| digits.parse::<u64>().ok())
        .and_then(|number| number.checked_mul(unit))
        .map(Bytes)
        .ok_or_else(|| "is no size like 3g, 3000m or a number of bytes".to_owned())
}

fn weight(environment: Environment<'_>, gpus: &[&Gpu]) -> Result<u32, BadSetting> {
    let within = |lowest: u32| {
        move |value: &str| match value.parse::<u32>() {
            Ok(weight) if (lowest..=WEIGHT_MAX).contains(&weight) => Ok(weight),
            _ => Err(format!("is no whole number from {lowest} to {WEIGHT_MAX}")),
        }
    };
    for variable in ["CGPU_WEIGHT", "ALIYUN_COM_GPU_SCHD_WEIGHT"] {
        if let Some(weight) = environment.read(variable, within(1))? {
            return Ok(weight);
        }
    }
    let percent = environment.read("CUDA_DEVICE_SM_LIMIT", |value| {
        within(0)(value).and_then(|percent| check_cap(percent, gpus))
    })?;
    Ok(percent.flatten().unwrap_or(WEIGHT_DEFAULT))
}

/// The weight that makes percent of the compute a cap; `None` if there is no cap. Only the policy
/// fixed keeps an instance to its weight, in percent, also while the GPU has nothing else to do.
fn check_cap(percent: u32, gpus: &[&Gpu]) -> Result<Option<u32>, String> {
    let other = gpus.iter().find(|gpu| gpu.policy != Policy::Fixed.number());
    match (percent, other) {
        // Without a cap an instance is as the others are; under fixed the whole is asked for.
        (0 | WEIGHT_MAX, other) => Ok(other.is_none().then_some(WEIGHT_MAX)),
        (_, None) => Ok(Some(percent)),
        (_, Some(gpu)) => Err(format!(
            "caps compute, which the policy {1} of GPU {0} cannot enforce; set `cgpuctl gpu \
             set {0} --policy fixed` on the host, or use CGPU_WEIGHT={percent} instead, a share \
             relative to the others",
            gpu.minor,
            Policy::name_of(gpu.policy),
        )),
    }
}

/// A policy belongs to the GPU and all its instances: no container changes it.
fn check_policy(value: &str, gpus: &[&Gpu]) -> Result<(), String> {
    let Some(policy) = policy(value) else {
        return Err(format!(
            "is no policy: take {} or its name",
            policy_numbers()
        ));
    };
    match gpus.iter().find(|gpu| gpu.policy != policy.number()) {
        None => Ok(()),
        Some(gpu) => Err(format!(
            "is not the policy of GPU {}, which is {} ({}); it is for the host to change",
            gpu.minor,
            gpu.policy,
            Policy::name_of(gpu.policy)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    const GIB: u64 = 1 << 30;

    /// Three GPUs whose minors are not in the order of their PCI addresses.
    fn gpus() -> Vec<Gpu> {
        [(0, 0x2a), (1, 0x29), (2, 0x2b)]
            .map(|(minor, bus)| {
                let mut gpu = Gpu::new_zeroed();
                gpu.minor = minor;
                gpu.policy = 5;
                gpu.memory_bytes = 100 * GIB;
                let uuid = format!("GPU-{bus:08x}-0f7d-4b1e-9c2d-1234567890ab");
                gpu.uuid[..uuid.len()].copy_from_slice(uuid.as_bytes());
                let pci = format!("0000:{bus:02x}:00.0");
                gpu.pci[..pci.len()].copy_from_slice(pci.as_bytes());
                gpu
            })
            .to_vec()
    }

    fn of(line: &str) -> Result<Option<Wish>, BadSetting> {
        let entries: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        wish(Environment(&entries), &gpus())
    }

    fn gib(line: &str) -> (Vec<(u32, u64)>, u32) {
        let wish = of(line).expect(line).expect(line);
        let gpus = wish
            .gpus
            .iter()
            .map(|(minor, limit)| (*minor, limit.0 / GIB));
        (gpus.collect(), wish.weight)
    }

    #[test]
    fn each_system_is_understood() {
        for (line, gpus, weight) in [
            ("CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=0", vec![(1, 8)], 1),
            ("CGPU_MEM=8GiB CGPU_WEIGHT=7 NVIDIA_VISIBLE_DEVICES=2,0", vec![(2, 8), (1, 8)], 7),
            ("CGPU_MEM=25% NVIDIA_VISIBLE_DEVICES=0", vec![(1, 25)], 1),
            ("CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=all", vec![(1, 8), (0, 8), (2, 8)], 1),
            ("CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=GPU-0000002B", vec![(2, 8)], 1),
            ("CGPU_MEM=8GiB CGPU_POLICY=native NVIDIA_VISIBLE_DEVICES=1", vec![(0, 8)], 1),
            ("CGPU_MEM=8GiB CGPU_POLICY=5 NVIDIA_VISIBLE_DEVICES=1", vec![(0, 8)], 1),
            (
                "ALIYUN_COM_GPU_MEM_DEV=50 ALIYUN_COM_GPU_MEM_CONTAINER=10 \
                 ALIYUN_COM_GPU_VISIBLE_DEVICES=1 ALIYUN_COM_GPU_SCHD_WEIGHT=4 NVIDIA_VISIBLE_DEVICES=0",
                vec![(0, 20)],
                4,
            ),
            (
                "CUDA_DEVICE_MEMORY_LIMIT_0=3g CUDA_DEVICE_MEMORY_LIMIT=2048m \
                 NVIDIA_VISIBLE_DEVICES=0,1",
                vec![(1, 3), (0, 2)],
                1,
            ),
            ("CUDA_DEVICE_MEMORY_LIMIT_1=3g NVIDIA_VISIBLE_DEVICES=0,1", vec![(0, 3)], 1),
            ("CUDA_DEVICE_MEMORY_LIMIT=1073741824 CUDA_DEVICE_SM_LIMIT=0 NVIDIA_VISIBLE_DEVICES=0", vec![(1, 1)], 1),
            // Ours goes first; the last of two is what counts.
            ("CGPU_MEM=1GiB CGPU_MEM=2GiB CUDA_DEVICE_MEMORY_LIMIT=3g NVIDIA_VISIBLE_DEVICES=0", vec![(1, 2)], 1),
        ] {
            assert_eq!(gib(line), (gpus, weight), "{line}");
        }
    }

    #[test]
    fn compute_limit_is_a_cap_or_refused() {
        let on = |policies: [Policy; 3], percent: &str| {
            let mut gpus = gpus();
            for (gpu, policy) in gpus.iter_mut().zip(policies) {
                gpu.policy = policy.number();
            }
            let line = format!("CUDA_DEVICE_MEMORY_LIMIT=3g CUDA_DEVICE_SM_LIMIT={percent} NVIDIA_VISIBLE_DEVICES=0,1");
            let entries: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            let wish = wish(Environment(&entries), &gpus).map_err(|e| e.to_string());
            wish.map(|wish| wish.expect("asks").weight)
        };
        // The container's are minors 1 and 0.
        let fixed = [Policy::Fixed, Policy::Fixed, Policy::Native];
        assert_eq!(on(fixed, "30"), Ok(30));
        assert_eq!(on(fixed, "100"), Ok(WEIGHT_MAX));
        assert_eq!(on(fixed, "0"), Ok(WEIGHT_MAX));
        let mixed = [Policy::Weight, Policy::Fixed, Policy::Fixed];
        let error = on(mixed, "30").expect_err("not kept");
        assert!(
            error.contains("caps compute, which the policy weight of GPU 0 cannot enforce"),
            "{error}"
        );
        assert!(
            error.contains("`cgpuctl gpu set 0 --policy fixed`"),
            "{error}"
        );
        // No cap is none under every policy.
        assert_eq!(on(mixed, "100"), Ok(WEIGHT_DEFAULT));
        assert_eq!(on(mixed, "0"), Ok(WEIGHT_DEFAULT));
    }

    #[test]
    fn a_container_that_asks_for_nothing_gets_nothing() {
        for line in [
            "",
            "PATH=/bin NVIDIA_VISIBLE_DEVICES=all",
            "CGPU_WEIGHT=5",
            "CGPU_DISABLE=1 CGPU_MEM=8GiB",
            "CGPU_DISABLE=True CUDA_DEVICE_MEMORY_LIMIT=1g",
            "ALIYUN_COM_GPU_MEM_CONTAINER=3",
            "ALIYUN_COM_GPU_MEM_DEV=3",
            "CUDA_DEVICE_MEMORY_LIMIT=0 NVIDIA_VISIBLE_DEVICES=0",
            "CUDA_DEVICE_MEMORY_LIMIT=0m NVIDIA_VISIBLE_DEVICES=0",
            "CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=void ALIYUN_COM_GPU_VISIBLE_DEVICES=0",
            "CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=void",
            "CGPU_MEM= NVIDIA_VISIBLE_DEVICES=0",
        ] {
            assert_eq!(of(line), Ok(None), "{line}");
        }
    }

    #[test]
    fn empty_or_zero_limits_ask_for_nothing() {
        for (line, asks) in [
            ("CUDA_DEVICE_MEMORY_LIMIT=", false),
            ("CUDA_DEVICE_MEMORY_LIMIT=0", false),
            (
                "CUDA_DEVICE_MEMORY_LIMIT_1=0 CUDA_DEVICE_MEMORY_LIMIT=",
                false,
            ),
            ("CUDA_DEVICE_MEMORY_LIMIT_HARD=1g", false),
            ("CUDA_DEVICE_MEMORY_LIMITS=1g", false),
            (
                "CUDA_DEVICE_MEMORY_LIMIT=1g CUDA_DEVICE_MEMORY_LIMIT=0",
                false,
            ),
            ("CUDA_DEVICE_MEMORY_LIMIT=1g", true),
            (
                "CUDA_DEVICE_MEMORY_LIMIT=0 CUDA_DEVICE_MEMORY_LIMIT_1=1g",
                true,
            ),
        ] {
            let entries: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            assert_eq!(Environment(&entries).asks(), asks, "{line}");
        }
    }

    #[test]
    fn a_setting_in_vain_is_named() {
        for (line, said) in [
            ("CGPU_MEM=8GiB", "NVIDIA_VISIBLE_DEVICES=\"\" is needed"),
            (
                "CGPU_MEM=8 NVIDIA_VISIBLE_DEVICES=0",
                "CGPU_MEM=\"8\" is no size",
            ),
            (
                "CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=3",
                "the last one is 2",
            ),
            ("CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=0,0", "twice"),
            ("CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=GPU-", "several"),
            (
                "CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=GPU-7",
                "no GPU of this host",
            ),
            (
                "CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=nvidia0",
                "no GPU of this host",
            ),
            ("CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=MIG-0", "MIG"),
            (
                "CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=0 CGPU_WEIGHT=0",
                "from 1 to 100",
            ),
            (
                "CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=0 CGPU_WEIGHT=101",
                "from 1 to 100",
            ),
            (
                "CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=0 CUDA_DEVICE_SM_LIMIT=-1",
                "from 0 to 100",
            ),
            (
                "CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=0 CGPU_POLICY=fair",
                "is for the host to change",
            ),
            (
                "CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=0 CGPU_POLICY=mine",
                "is no policy",
            ),
            (
                "ALIYUN_COM_GPU_MEM_DEV=2 ALIYUN_COM_GPU_MEM_CONTAINER=3 NVIDIA_VISIBLE_DEVICES=0",
                "is more than",
            ),
            (
                "ALIYUN_COM_GPU_MEM_DEV=0 ALIYUN_COM_GPU_MEM_CONTAINER=3 NVIDIA_VISIBLE_DEVICES=0",
                "above zero",
            ),
            (
                "CUDA_DEVICE_MEMORY_LIMIT=3t NVIDIA_VISIBLE_DEVICES=0",
                "no size like",
            ),
            (
                "CUDA_DEVICE_MEMORY_LIMIT=99999999999g NVIDIA_VISIBLE_DEVICES=0",
                "no size like",
            ),
        ] {
            let error = of(line).expect_err(line).to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    #[test]
    fn host_memory_is_limited_where_asked() {
        let limit = |setting: &str| {
            let wish = of(&format!("CGPU_MEM=8GiB NVIDIA_VISIBLE_DEVICES=0 {setting}"));
            wish.map(|wish| wish.expect("a wish").host_mem)
        };
        assert_eq!(limit(""), Ok(None));
        assert_eq!(limit("CGPU_HOST_MEM=16GiB"), Ok(Some(16 * GIB)));
        for (value, why) in [
            ("some", "is not a number"),
            ("8", "a size needs its unit"),
            ("50%", "a percentage is only understood"),
        ] {
            let error = limit(&format!("CGPU_HOST_MEM={value}")).expect_err("no size");
            let said = error.to_string();
            let wanted = format!("CGPU_HOST_MEM=\"{value}\" is no size: ");
            assert!(said.starts_with(&wanted) && said.contains(why), "{said}");
        }
    }

    #[test]
    fn the_only_gpu_need_not_be_named() {
        let entries = ["CGPU_MEM=8GiB".to_owned()];
        let one = wish(Environment(&entries), &gpus()[..1]).expect("fine");
        assert_eq!(one.expect("a wish").gpus, [(0, Bytes(8 * GIB))]);
    }
}
