// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst save` and `inst restore`: the instances of a file and how their GPUs are shared, so that
//! they are there again after a boot. A suspension is not kept.

use super::{
    cdi_generate,
    effect::{self, NewTerms},
    gpu_set::{NewRules, OtherRules},
    inst_create::{create_all, flags, name_without_device, request},
    inst_list, target,
};
use crate::{
    args::{is_memory, policy, policy_numbers, size},
    capabilities::Capabilities,
    compute::{has_default_rules, own_burst},
    control::Control,
    error::{Facts, Failure, Problem},
    files,
    hook::journal::Owners,
    host::{Host, PathError},
    json::{device_path, InstanceId},
    output::Report,
    selector::Selector,
    size::{Amount, Bytes},
    text::{enumerate, table},
    verb::Verb,
};
use cgpu_uapi::{
    capability::DEFAULT, set, text, Gpu, GpuCompute, Instance, InstanceKey, InstanceSetChannels,
    InstanceSetCompute, InstanceSetLimit, Limited, ManagedMode, Name, Period, Policy, Priority,
    BURST_OF_GPU, NAME_RULE, WEIGHT_DEFAULT,
};
use clap::Args;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    slice,
};
use zerocopy::FromZeros;

/// The file that is restored at boot.
const SAVED: &str = "/etc/cgpu/instances.toml";
/// The end of the name under which `inst save` keeps the file that was there.
const BEFORE: &str = ".before";

/// Write the instances to a file; those that belong to a container are left out.
///
/// A file that is there and says something else is kept beside it, as FILE.before.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl inst save /etc/cgpu/instances.toml")]
pub(crate) struct InstSave {
    /// The file, in TOML.
    #[arg(value_name = "FILE", default_value = SAVED)]
    path: PathBuf,
}

/// Set the policies of a file's GPUs, and make its instances that are missing.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl inst restore /etc/cgpu/instances.toml")]
pub(crate) struct InstRestore {
    /// The file, in TOML.
    #[arg(value_name = "FILE", default_value = SAVED)]
    path: PathBuf,
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedFile {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) gpu: Vec<SavedGpu>,
    #[serde(default)]
    pub(super) instance: Vec<SavedInstance>,
}

/// How a GPU's compute time is shared, as `gpu set` takes it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedGpu {
    pub(super) gpu: String,
    policy: String,
    period: Option<String>,
    #[serde(alias = "max_inst")]
    max_instances: Option<u32>,
    #[serde(alias = "prio_ratio")]
    priority_percent: Option<u32>,
    burst_ms: Option<u32>,
}

/// Instances of one name.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedInstance {
    pub(super) name: String,
    /// As `--gpu` takes them.
    gpus: Vec<String>,
    /// As `--mem` takes it.
    pub(super) mem: String,
    #[serde(default = "default_weight")]
    pub(super) weight: u32,
    /// As `--capabilities` takes them.
    #[serde(default = "default_caps")]
    caps: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) overcommit: bool,
    /// As `--managed` takes it.
    #[serde(default = "default_managed")]
    managed: String,
    /// As `inst set --channels` takes them. Without them as the GPU's `max_instances` has it.
    pub(super) channels: Option<u32>,
    /// As `inst set --objects` takes them; the default for what is not there.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    limits: BTreeMap<String, SavedLimit>,
    /// As `inst set --priority` takes it.
    #[serde(default = "default_priority")]
    priority: String,
    /// As `inst set --burst` takes it; that of the GPU if there is none.
    pub(super) burst_ms: Option<u32>,
}

/// A limit of an instance.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SavedLimit {
    Count(u64),
    /// With its unit.
    Size(String),
}

/// An instance of the file, its words understood.
pub(super) struct InstanceWish {
    pub(super) name: Name,
    pub(super) gpus: Vec<Selector>,
    pub(super) mem: Amount,
    pub(super) caps: Capabilities,
    pub(super) managed: ManagedMode,
    pub(super) priority: Priority,
    pub(super) limits: Vec<(Limited, u64)>,
}

fn default_managed() -> String {
    ManagedMode::default().name().to_owned()
}

fn default_priority() -> String {
    Priority::Normal.name().to_owned()
}

fn default_caps() -> String {
    Capabilities(DEFAULT).to_string()
}

fn default_weight() -> u32 {
    WEIGHT_DEFAULT
}

/// An error for a word that is none of `all`: `take latency or throughput as the period`.
fn take<T: Copy>(what: &str, all: &[T], name: fn(T) -> &'static str) -> String {
    let names: Vec<_> = all.iter().map(|value| name(*value)).collect();
    format!("take {} as the {what}", enumerate(&names, "or"))
}

/// The instances of a file: those that were made, and those that were there.
#[derive(Default, Serialize)]
pub(super) struct RestoreMembers {
    restored: Vec<InstanceId>,
    present: Vec<InstanceId>,
    warnings: Vec<String>,
}

impl RestoreMembers {
    /// Adds what became of one instance, and each warning once.
    fn add(&mut self, other: Self) {
        self.restored.extend(other.restored);
        self.present.extend(other.present);
        for warning in other.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

impl Verb for InstRestore {
    fn attempt(&self) -> String {
        format!("restore the instances of {}", self.path.display())
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let saved = SavedFile::read(host, &self.path)?;
        let control = target::open(host)?;
        let gpus = control.gpus()?;
        host.mount_cgpufs()?;
        let mut members = RestoreMembers::default();
        // One GPU that is gone is no reason to be without the others' instances.
        let mut faults = Vec::new();
        for gpu in &saved.gpu {
            match gpu.restore(&*control, &gpus) {
                Ok(warnings) => members.add(RestoreMembers {
                    warnings,
                    ..RestoreMembers::default()
                }),
                Err(why) => faults.push(format!("the policy of GPU {}: {why}", gpu.gpu)),
            }
        }
        for instance in &saved.instance {
            for gpu in &instance.gpus {
                match instance.restore(&*control, &gpus, gpu) {
                    Ok(found) => members.add(found),
                    Err(why) => faults.push(format!("{} on {gpu}: {why}", instance.name)),
                }
            }
        }
        if !faults.is_empty() {
            return Err(Problem::NotRestored { faults }.into());
        }
        let report = Report::new(&members, table_of(&members))?;
        Ok(report.warn(members.warnings))
    }
}

impl SavedFile {
    /// Reads a file of the host.
    pub(super) fn read(host: &dyn Host, path: &Path) -> Result<Self, Problem> {
        let text = fs::read_to_string(host.path(path)).map_err(PathError::on("reading", path))?;
        toml::from_str(&text).map_err(|e| {
            // The parser draws the line; a sentence has its number and the reason.
            let place = e.span().map(|span| text.get(..span.start).unwrap_or(&text));
            let line = place.map_or(1, |before| before.matches('\n').count() + 1);
            Problem::BadFile {
                why: format!(
                    "{}:{line}: {}",
                    path.display(),
                    e.message().replace('\n', " ")
                ),
            }
        })
    }
}

impl SavedGpu {
    /// The GPU and the rules that it asks for, its words understood.
    pub(super) fn wish(&self) -> Result<(Selector, NewRules), String> {
        let gpu: Selector = self.gpu.parse().map_err(|e| format!("{e}"))?;
        let period = self.period.as_deref().map(|period| {
            Period::from_name(period).ok_or_else(|| take("period", &Period::ALL, Period::name))
        });
        let policy = policy(&self.policy).ok_or_else(|| {
            let names = take("policy", &Policy::ALL, Policy::name);
            format!("{names}, or {}", policy_numbers())
        })?;
        let others = OtherRules {
            period: period.transpose()?,
            max_instances: self.max_instances,
            priority_percent: self.priority_percent,
            burst: self.burst_ms,
        };
        let policy = Some(policy);
        Ok((gpu, NewRules { policy, others }))
    }

    /// Sets the rules, and warns of effects that people do not expect.
    fn restore(&self, control: &dyn Control, gpus: &[Gpu]) -> Result<Vec<String>, String> {
        let (gpu, wish) = self.wish()?;
        let minors = target::select(gpus, slice::from_ref(&gpu)).map_err(|e| e.to_string())?;
        for minor in &minors {
            let minor = *minor;
            control
                .set_gpu_compute(&wish.request(minor))
                .map_err(|errno| {
                    let facts = Facts {
                        gpu: Some(minor),
                        ..Facts::default()
                    };
                    Problem::explain(errno, &facts).to_string()
                })?;
        }
        let shared = control.gpu_compute().unwrap_or_default();
        let shared = shared.iter().filter(|gpu| minors.contains(&gpu.minor));
        let instances = control.instances().unwrap_or_default();
        Ok(shared
            .flat_map(|gpu| wish.warnings(gpu, &instances))
            .collect())
    }
}

impl SavedInstance {
    /// The instance that it asks for, its words understood.
    pub(super) fn read(&self) -> Result<InstanceWish, String> {
        let gpus = self
            .gpus
            .iter()
            .map(|gpu| gpu.parse().map_err(|e| format!("{e}")));
        let limits = self.limits.iter().map(|(name, limit)| {
            let what = Limited::from_name(name);
            let what = what.ok_or_else(|| take("name of a limit", &Limited::ALL, Limited::name))?;
            Ok((what, limit.read(what)?))
        });
        Ok(InstanceWish {
            name: Name::new(&self.name).ok_or(NAME_RULE)?,
            gpus: gpus.collect::<Result<_, String>>()?,
            mem: self.mem.parse().map_err(|e| format!("{e}"))?,
            caps: self.caps.parse().map_err(|e| format!("{e}"))?,
            managed: ManagedMode::from_name(&self.managed)
                .ok_or_else(|| take("managed mode", &ManagedMode::ALL, ManagedMode::name))?,
            priority: Priority::from_name(&self.priority)
                .ok_or_else(|| take("priority", &Priority::ALL, Priority::name))?,
            limits: limits.collect::<Result<_, String>>()?,
        })
    }

    /// Makes it on one of its GPUs, unless it is there.
    pub(super) fn restore(
        &self,
        control: &dyn Control,
        gpus: &[Gpu],
        gpu: &str,
    ) -> Result<RestoreMembers, String> {
        let wish = self.read()?;
        let selector: Selector = gpu.parse().map_err(|e| format!("{e}"))?;
        let minors = target::select(gpus, &[selector]).map_err(|e| e.to_string())?;
        let all = control.instances().map_err(|e| e.to_string())?;
        let mut members = RestoreMembers::default();
        for minor in minors {
            let there = |i: &&Instance| i.key.name == wish.name && i.key.gpu_minor == minor;
            if let Some(instance) = all.iter().find(there) {
                members.present.push(instance.into());
                continue;
            }
            let key = InstanceKey::new(wish.name, minor);
            let memory = gpus.iter().find(|gpu| gpu.minor == minor);
            let limit = wish.mem.of(memory.map_or(0, |gpu| gpu.memory_bytes));
            let mut request = request(key, limit, self.weight);
            request.capabilities = wish.caps.0;
            request.flags = flags(self.overcommit);
            request.managed_mode = wish.managed.number();
            let made =
                create_all(control, vec![request], None).map_err(|f| f.problem.to_string())?;
            if let Err(why) = self.restore_settings(control, key, &wish) {
                // Without its settings it would be taken for the file's the next time.
                return Err(match control.destroy(&key) {
                    Ok(()) => format!("{why}; it was removed again"),
                    Err(errno) => format!(
                        "{why}; it is there without all of its settings: {}",
                        Problem::from(errno)
                    ),
                });
            }
            let made = made.iter().map(|m| InstanceId::new(&m.key, m.id));
            let shared = control.gpu_compute().unwrap_or_default();
            let shared = shared.iter().find(|gpu| gpu.minor == minor);
            members.add(RestoreMembers {
                restored: made.collect(),
                warnings: self.warnings(&wish, (minor, limit), shared),
                ..RestoreMembers::default()
            });
        }
        Ok(members)
    }

    /// Warnings about effects of its terms on a GPU where it is new.
    pub(super) fn warnings(
        &self,
        wish: &InstanceWish,
        (minor, limit): (u32, Bytes),
        gpu: Option<&GpuCompute>,
    ) -> Vec<String> {
        let terms = NewTerms {
            limit,
            weight: self.weight,
            priority: wish.priority,
            burst: self.burst_ms.unwrap_or(BURST_OF_GPU),
        };
        let about = |warning| format!("{} on GPU {minor}: {warning}", self.name);
        let of_terms = effect::of_new(&terms, gpu, "`weight`")
            .into_iter()
            .map(about);
        of_terms.chain(name_without_device(&wish.name)).collect()
    }

    fn restore_settings(
        &self,
        control: &dyn Control,
        key: InstanceKey,
        wish: &InstanceWish,
    ) -> Result<(), String> {
        let why = |errno| Problem::from(errno).to_string();
        if let Some(channels) = self.channels {
            let mut request = InstanceSetChannels::new_zeroed();
            (request.key, request.channel_limit) = (key, channels);
            // The others had theirs before.
            request.flags = flags(true);
            control.set_channels(&request).map_err(why)?;
        }
        for (what, limit) in &wish.limits {
            let mut request = InstanceSetLimit::new_zeroed();
            (request.key, request.what, request.limit) = (key, what.number(), *limit);
            control.set_limit(&request).map_err(why)?;
        }
        if wish.priority == Priority::High || self.burst_ms.is_some() {
            let mut request = InstanceSetCompute::new_zeroed();
            (request.key, request.set) = (key, set::HIGH_PRIORITY | set::INSTANCE_BURST);
            request.high_priority = wish.priority.number();
            request.burst_ms = self.burst_ms.unwrap_or(BURST_OF_GPU);
            control.set_instance_compute(&request).map_err(why)?;
        }
        Ok(())
    }
}

impl SavedLimit {
    fn new(what: u32, limit: u64) -> Self {
        match Limited::from_number(what) {
            Some(what) if is_memory(what) => Self::Size(format!("{limit}B")),
            _ => Self::Count(limit),
        }
    }

    fn read(&self, what: Limited) -> Result<u64, String> {
        match (self, is_memory(what)) {
            (Self::Count(count), false) => Ok(*count),
            (Self::Size(text), true) => size(text).map_err(|why| format!("{}: {why}", what.name())),
            (Self::Count(_), true) => Err(format!(
                "{}: take a size with its unit, like \"8GiB\"",
                what.name()
            )),
            (Self::Size(_), false) => Err(format!("{}: take a whole number", what.name())),
        }
    }
}

/// The limits of an instance that are no defaults.
fn limits_of(control: &dyn Control, i: &Instance) -> Result<BTreeMap<String, SavedLimit>, Problem> {
    let limits = control.limits(&i.key)?.into_iter();
    let set = limits.filter(|limit| limit.is_set != 0);
    let named = set.map(|limit| {
        let name = Limited::name_of(limit.what).to_owned();
        (name, SavedLimit::new(limit.what, limit.limit))
    });
    Ok(named.collect())
}

fn table_of(members: &RestoreMembers) -> String {
    let row = |state: &'static str| {
        move |id: &InstanceId| {
            let (name, minor, number) = id.parts();
            [
                name.to_owned(),
                minor.to_string(),
                device_path(number),
                state.to_owned(),
            ]
        }
    };
    let made = members.restored.iter().map(row("made"));
    let present = members.present.iter().map(row("was there"));
    let rows: Vec<_> = made.chain(present).collect();
    if rows.is_empty() {
        return "No instances in the file.\n".to_owned();
    }
    table(["NAME", "GPU", "DEVICE", "STATE"], rows)
}

#[derive(Serialize)]
struct SaveMembers {
    output: String,
    saved: Vec<InstanceId>,
}

impl Verb for InstSave {
    fn attempt(&self) -> String {
        format!("save the instances to {}", self.path.display())
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let control = target::open(host)?;
        let mut instances = inst_list::all(&*control)?;
        // Those that the hook or the cluster's driver made go with their containers. They write an
        // owner down before they make its instance.
        let owners = Owners::read(host)?;
        instances.retain(|i| !owners.have(i));
        let saved = saved(&*control, &instances)?;
        let toml = toml::to_string(&saved).map_err(|_| Problem::Output { errno: Errno::EIO })?;
        let text = format!("# Instances that `cgpuctl inst restore` makes at boot.\n\n{toml}");
        let place = host.path(&self.path);
        let before = keep_before(&place, &text)?;
        cdi_generate::write(&place, &text)?;
        let members = SaveMembers {
            output: self.path.display().to_string(),
            saved: instances.iter().map(InstanceId::from).collect(),
        };
        let kept = if before {
            format!("; the file before is {}{BEFORE}", members.output)
        } else {
            String::new()
        };
        let count = members.saved.len();
        let said = format!("{}: {count} instances{kept}\n", members.output);
        Ok(Report::new(members, said)?)
    }
}

/// Keeps what a file has that is about to get another text: it may have been written by hand. Tells
/// whether there was something to keep.
fn keep_before(path: &Path, text: &str) -> Result<bool, PathError> {
    // Also at the end of a link. A device or a pipe has nothing to keep, and may keep a reader
    // waiting.
    if !path.is_file() {
        return Ok(false);
    }
    let old = fs::read(path).map_err(PathError::on("reading", path))?;
    if old == text.as_bytes() {
        return Ok(false);
    }
    let mut before = path.as_os_str().to_owned();
    before.push(BEFORE);
    files::write_whole(Path::new(&before), &old)?;
    Ok(true)
}

/// The file for these instances.
fn saved(control: &dyn Control, instances: &[Instance]) -> Result<SavedFile, Problem> {
    let gpus = control.gpus()?;
    let states = control.instance_compute()?;
    let gpu_of = |minor: u32| gpus.iter().find(|gpu| gpu.minor == minor);
    // Minors may be others after a boot.
    let address = |minor: u32| gpu_of(minor).map_or(minor.to_string(), |g| text(&g.pci).to_owned());
    let instance = |i: &Instance| -> Result<SavedInstance, Problem> {
        let gpu = gpu_of(i.key.gpu_minor);
        let compute = states.iter().find(|s| s.id == i.id);
        let state = compute.map_or(0, |s| s.state);
        Ok(SavedInstance {
            limits: limits_of(control, i)?,
            name: i.key.name.as_str().unwrap_or_default().to_owned(),
            gpus: vec![address(i.key.gpu_minor)],
            mem: format!("{}B", i.memory_limit_bytes),
            weight: i.weight,
            caps: Capabilities(i.capabilities).to_string(),
            overcommit: gpu.is_some_and(|g| g.allotted_bytes > g.memory_bytes),
            managed: ManagedMode::name_of(i.managed_mode).to_owned(),
            channels: Some(i.channel_limit),
            priority: Priority::of(state).name().to_owned(),
            burst_ms: compute.and_then(|s| own_burst(s.burst_ms)),
        })
    };
    // A GPU may be set up for containers, whose instances are not saved.
    let is_saved = |g: &&GpuCompute| {
        !has_default_rules(g) || instances.iter().any(|i| i.key.gpu_minor == g.minor)
    };
    let gpu = |g: &GpuCompute| SavedGpu {
        gpu: address(g.minor),
        policy: Policy::name_of(g.policy).to_owned(),
        period: Some(Period::name_of(g.period).to_owned()),
        max_instances: Some(g.max_instances),
        priority_percent: Some(g.priority_percent),
        burst_ms: Some(g.burst_ms),
    };
    Ok(SavedFile {
        gpu: control
            .gpu_compute()?
            .iter()
            .filter(is_saved)
            .map(gpu)
            .collect(),
        instance: instances.iter().map(instance).collect::<Result<_, _>>()?,
    })
}
