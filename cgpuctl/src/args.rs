// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Arguments that several verbs share, and how their values are read.

use crate::{installation::lists::Capability, selector::Selector, size::Bytes};
use cgpu_uapi::{
    Limited, ManagedMode, Name, Period, Policy, Priority, BURST_MS_MAX, BURST_OF_GPU, CHANNELS_MAX,
    LIMIT_DEFAULT, NAME_RULE, WEIGHT_MAX,
};
use clap::{
    builder::{PossibleValue, PossibleValuesParser, RangedI64ValueParser, TypedValueParser},
    Args, ValueEnum,
};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// An existing instance, or several of one name.
#[derive(Args, Clone)]
pub struct Target {
    /// Name of the instance.
    #[arg(value_parser = name)]
    pub name: Name,
    /// GPU, as `inst create` takes it; needed if the name is on several GPUs.
    #[arg(long = "gpu", value_name = "GPU", value_delimiter = ',')]
    pub gpus: Vec<Selector>,
}

/// How often the module is read.
#[derive(Args)]
pub struct Interval {
    /// Seconds between readings.
    #[arg(
        long,
        short,
        value_name = "SECONDS",
        default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=60)
    )]
    interval: u64,
}

impl Interval {
    /// The time between two readings.
    pub fn length(&self) -> Duration {
        Duration::from_secs(self.interval)
    }
}

/// How a list is printed.
#[derive(Args)]
pub struct Listing {
    /// The form of the output: more columns, names alone, or JSON.
    #[arg(short, long, value_name = "FORMAT", conflicts_with = "json")]
    pub output: Option<Form>,
    /// Print the names alone, one a line: the same as -o name.
    #[arg(short, long, conflicts_with_all = ["output", "json"])]
    pub quiet: bool,
}

/// The forms of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// A table with all columns.
    Wide,
    /// Names as commands take them, one a line.
    Name,
    /// The same as --json.
    Json,
}

impl Listing {
    /// The form; `None`: a table of what matters most.
    pub fn format(&self) -> Option<Form> {
        self.output.or(self.quiet.then_some(Form::Name))
    }

    /// Whether it is JSON.
    pub fn is_json(&self) -> bool {
        self.output == Some(Form::Json)
    }
}

/// Which of the driver's files, and where they are.
#[derive(Args, Default)]
pub struct Files {
    /// The parts of the driver that the containers may want.
    #[arg(
        long,
        value_name = "CAPABILITIES",
        value_delimiter = ',',
        default_value = "compute,utility"
    )]
    pub capabilities: Vec<Capability>,
    /// Folder below which the driver's user space is installed.
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub driver_root: PathBuf,
}

impl Files {
    /// The capabilities; those that containers get by default if none were named.
    pub fn wanted(&self) -> Vec<Capability> {
        if self.capabilities.is_empty() {
            return vec![Capability::Compute, Capability::Utility];
        }
        self.capabilities.clone()
    }

    /// The folder on the host.
    pub fn root(&self) -> PathBuf {
        Path::new("/").join(&self.driver_root)
    }
}

/// Reads the name of an instance.
pub(crate) fn name(text: &str) -> Result<Name, &'static str> {
    Name::new(text).ok_or(NAME_RULE)
}

/// Reads a weight.
pub(crate) fn weight() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(WEIGHT_MAX))
}

/// Reads a limit of channels.
pub(crate) fn channels() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(CHANNELS_MAX))
}

/// Reads a burst in milliseconds.
pub(crate) fn bursts() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(..=i64::from(BURST_MS_MAX))
}

/// Reads an instance's burst in milliseconds, or "gpu" for that of its GPU.
pub(crate) fn burst_or_gpu(text: &str) -> Result<u32, String> {
    let burst = match text {
        "gpu" => Some(BURST_OF_GPU),
        _ => text.parse().ok().filter(|burst| *burst <= BURST_MS_MAX),
    };
    burst.ok_or_else(|| format!("milliseconds from 0 to {BURST_MS_MAX}, or \"gpu\""))
}

/// The words that mean a policy beside its name: its number, and cGPU's name for it.
fn other_names(policy: Policy) -> impl Iterator<Item = &'static str> {
    std::iter::once(policy.digits()).chain(policy.cgpu_name())
}

/// The policy with this name, number, or name of cGPU's.
pub(crate) fn policy(text: &str) -> Option<Policy> {
    let is =
        |policy: &Policy| text == policy.name() || other_names(*policy).any(|other| other == text);
    Policy::ALL.into_iter().find(is)
}

/// The numbers that [`policy`] takes: `a number from 0 to 5`.
pub(crate) fn policy_numbers() -> String {
    let [lowest, .., highest] = Policy::ALL.map(Policy::digits);
    format!("a number from {lowest} to {highest}")
}

/// Reads one of the ABI's words by its name. The help lists them all with their meanings.
fn word<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    describe: fn(T) -> PossibleValue,
) -> impl TypedValueParser<Value = T> {
    let values = PossibleValuesParser::new(all.iter().map(|value| describe(*value)));
    values.try_map(move |text| {
        let mut all = all.iter().copied();
        let found = all.find(|value| describe(*value).matches(&text, false));
        found.ok_or("not one of the possible values")
    })
}

/// Reads a policy, by name or number, or by cGPU's name.
pub(crate) fn policies() -> impl TypedValueParser<Value = Policy> {
    word(&Policy::ALL, |policy| {
        let others: Vec<_> = other_names(policy).collect();
        let help = format!("({}) {}", others.join(" or "), policy.about());
        PossibleValue::new(policy.name()).aliases(others).help(help)
    })
}

/// Reads a base period.
pub(crate) fn periods() -> impl TypedValueParser<Value = Period> {
    word(&Period::ALL, |p| {
        PossibleValue::new(p.name()).help(p.about())
    })
}

/// Reads a mode of managed memory.
pub(crate) fn managed_modes() -> impl TypedValueParser<Value = ManagedMode> {
    word(&ManagedMode::ALL, |m| {
        PossibleValue::new(m.name()).help(m.about())
    })
}

/// Reads a priority.
pub(crate) fn priorities() -> impl TypedValueParser<Value = Priority> {
    word(&Priority::ALL, |p| {
        PossibleValue::new(p.name()).help(p.about())
    })
}

/// Reads a thing of which an instance may have only so much.
pub(crate) fn limited() -> impl TypedValueParser<Value = Limited> {
    word(&Limited::ALL, |what| {
        PossibleValue::new(what.name()).help(what.about())
    })
}

/// Whether a limit is one of memory, in bytes.
pub(crate) fn is_memory(what: Limited) -> bool {
    matches!(what, Limited::Bar1 | Limited::HostMemory)
}

/// Reads a limit of things that are counted: a whole number, or "default".
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let count = match text {
        "default" => Some(LIMIT_DEFAULT),
        _ => text.parse().ok(),
    };
    let count = count.filter(|count| text == "default" || (1..LIMIT_DEFAULT).contains(count));
    count.ok_or_else(|| "take a whole number from 1 on, or \"default\"".to_owned())
}

/// Reads a limit of memory that is not the GPU's: a size with its unit, or "default".
pub(crate) fn size(text: &str) -> Result<u64, String> {
    if text == "default" {
        return Ok(LIMIT_DEFAULT);
    }
    if text.trim_end().ends_with('%') {
        return Err(
            "a percentage is only understood of the GPU's memory (--mem); write a size \
                    like 8GiB"
                .to_owned(),
        );
    }
    let size = text.parse::<Bytes>().map_err(|why| why.to_string())?;
    Some(size.0)
        .filter(|size| *size != LIMIT_DEFAULT)
        .ok_or_else(|| "too large".to_owned())
}

/// Reads a limit of this: a whole number, or a size with its unit, or "default".
pub(crate) fn limit(what: Limited, text: &str) -> Result<u64, String> {
    if is_memory(what) {
        size(text)
    } else {
        count(text)
    }
}
