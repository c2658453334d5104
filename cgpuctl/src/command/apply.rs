// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `apply`: makes instances and policies what a file says. What is so already is left alone, so a
//! second time changes nothing.

use super::{
    gpu_set::NewRules,
    inst_list,
    inst_restore::{InstanceWish, SavedFile, SavedInstance},
    inst_set::{self, InstSet, Settings},
    setting::{self, Before},
    target,
};
use crate::{
    args::Target,
    compute::own_burst,
    control::Control,
    error::{Failure, Problem},
    hook::journal::Owners,
    host::Host,
    output::Report,
    selector::Selector,
    size::{Amount, Bytes},
    text::lines,
    verb::Verb,
};
use cgpu_uapi::{
    Gpu, GpuCompute, Instance, InstanceKey, Limited, Name, Priority, BURST_OF_GPU, LIMIT_DEFAULT,
};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cgpuctl inst save /etc/cgpu/instances.toml
  cgpuctl apply -f /etc/cgpu/instances.toml --dry-run";

/// Make instances and policies what a file says, and show what changes.
///
/// The file is that of `inst save`. Instances that are there are changed, also while programs run;
/// missing ones are made. What the file does not name stays, unless --prune is given.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Apply {
    /// The file, in TOML.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    path: PathBuf,
    /// Destroy the instances that the file does not have, those of containers excepted.
    #[arg(long)]
    prune: bool,
    /// Show what would change, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct ApplyMembers {
    dry_run: bool,
    changes: Vec<ChangeMembers>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct ChangeMembers {
    action: &'static str,
    #[serde(rename = "name")]
    instance: Option<String>,
    gpu_minor: u32,
    differences: Vec<String>,
}

/// A difference between the file and the host.
enum Difference {
    /// Another policy.
    Policy(u32, Box<NewRules>, Vec<String>),
    /// An instance too many.
    Destroy(Instance),
    /// Other settings.
    Set(Box<Before>, Box<InstSet>),
    /// A missing instance.
    Create(InstanceKey, usize, String),
}

impl Verb for Apply {
    fn attempt(&self) -> String {
        format!("apply {}", self.path.display())
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        let file = SavedFile::read(host, &self.path)?;
        let control = target::open(host)?;
        let gpus = control.gpus()?;
        let mut changes = policies(&*control, &file, &gpus)?;
        changes.extend(instances(&*control, &file, &gpus)?);
        if self.prune {
            changes.extend(surplus(host, &*control, &file, &gpus)?);
        }
        // Changes that make room go first.
        changes.sort_by_key(Difference::turn);
        // Before the changes, so that it is the same in a dry run.
        let after = After::new(&*control, &changes)?;
        let warnings = after.warnings(&changes, &file, &gpus)?;
        if !self.dry_run && !changes.is_empty() {
            host.mount_cgpufs()?;
            let make = |change: &&Difference| change.make(&*control, &file, &gpus);
            let refused = changes.iter().filter(|change| make(change).is_err());
            // One may have been in the way of another, as when two instances change places.
            let refused: Vec<_> = refused.collect();
            let faults = refused.iter().filter_map(|change| make(change).err());
            let faults: Vec<_> = faults.collect();
            if !faults.is_empty() {
                return Err(Problem::NotApplied { faults }.into());
            }
        }
        let members = ApplyMembers {
            dry_run: self.dry_run,
            changes: changes.iter().map(Difference::members).collect(),
            warnings: warnings.clone(),
        };
        let text = if changes.is_empty() {
            "Nothing to change.\n".to_owned()
        } else {
            lines(changes.iter().flat_map(Difference::text))
        };
        Ok(Report::new(members, text)?.warn(warnings))
    }
}

/// How GPUs are shared, and the instances on them, when all is as the file says. Of an instance
/// only the weight is the new one.
struct After {
    gpus: Vec<GpuCompute>,
    instances: Vec<Instance>,
}

impl After {
    fn new(control: &dyn Control, changes: &[Difference]) -> Result<Self, Problem> {
        let mut gpus = control.gpu_compute()?;
        let mut instances = control.instances()?;
        for change in changes {
            match change {
                Difference::Policy(minor, wish, _) => {
                    for gpu in gpus.iter_mut().filter(|gpu| gpu.minor == *minor) {
                        *gpu = wish.applied_to(gpu);
                    }
                }
                Difference::Destroy(gone) => instances.retain(|i| i.id != gone.id),
                Difference::Set(was, wish) => {
                    let mut same = instances.iter_mut().filter(|i| i.id == was.instance.id);
                    if let (Some(i), Some(weight)) = (same.next(), wish.weight()) {
                        i.weight = weight;
                    }
                }
                Difference::Create(..) => {}
            }
        }
        Ok(Self { gpus, instances })
    }

    fn gpu(&self, minor: u32) -> Option<&GpuCompute> {
        self.gpus.iter().find(|gpu| gpu.minor == minor)
    }

    /// Warnings about effects of the changes that people do not expect, each once.
    fn warnings(
        &self,
        changes: &[Difference],
        file: &SavedFile,
        gpus: &[Gpu],
    ) -> Result<Vec<String>, Problem> {
        let mut all: Vec<String> = Vec::new();
        for change in changes {
            let warnings = change.warnings(self, file, gpus)?;
            let new: Vec<_> = warnings.into_iter().filter(|w| !all.contains(w)).collect();
            all.extend(new);
        }
        Ok(all)
    }
}

impl Difference {
    fn turn(&self) -> u8 {
        match self {
            Self::Policy(..) => 3,
            Self::Destroy(_) => 0,
            Self::Set(was, wish) if wish.lowers_memory(was) => 1,
            Self::Set(..) => 2,
            Self::Create(..) => 4,
        }
    }

    fn make(&self, control: &dyn Control, file: &SavedFile, gpus: &[Gpu]) -> Result<(), String> {
        let why = |problem: Problem| problem.to_string();
        match self {
            Self::Policy(minor, wish, _) => {
                let set = control.set_gpu_compute(&wish.request(*minor));
                set.map_err(|errno| format!("the policy of GPU {minor}: {}", why(errno.into())))
            }
            Self::Destroy(instance) => {
                let key = InstanceKey::new(instance.key.name, instance.key.gpu_minor);
                let gone = control.destroy(&key);
                gone.map_err(|errno| format!("{}: {}", target::label(instance), why(errno.into())))
            }
            Self::Set(was, wish) => {
                let steps = wish.steps();
                let set = inst_set::set_all(control, &steps, std::slice::from_ref(was));
                set.map_err(|failure| failure.to_string())
            }
            Self::Create(key, place, _) => {
                let Some(saved) = file.instance.get(*place) else {
                    return Ok(());
                };
                let made = saved.restore(control, gpus, &key.gpu_minor.to_string());
                made.map(|_| ())
                    .map_err(|why| format!("{}: {why}", label(key)))
            }
        }
    }

    fn warnings(
        &self,
        after: &After,
        file: &SavedFile,
        gpus: &[Gpu],
    ) -> Result<Vec<String>, Problem> {
        Ok(match self {
            Self::Policy(minor, wish, _) => {
                let gpu = after.gpu(*minor);
                gpu.map_or(vec![], |gpu| wish.warnings(gpu, &after.instances))
            }
            Self::Destroy(_) => vec![],
            Self::Set(was, wish) => {
                let mut was = (**was).clone();
                was.gpu = after.gpu(was.instance.key.gpu_minor).copied();
                let about = |warning| format!("{}: {warning}", target::label(&was.instance));
                let steps = wish.steps();
                let warnings = steps
                    .iter()
                    .flat_map(|s| s.warnings(std::slice::from_ref(&was)));
                warnings.map(about).collect()
            }
            Self::Create(key, place, _) => {
                let Some(saved) = file.instance.get(*place) else {
                    return Ok(vec![]);
                };
                let minor = key.gpu_minor;
                let wish = saved.read().map_err(|why| bad(&saved.name, why))?;
                let memory = gpus.iter().find(|gpu| gpu.minor == minor);
                let limit = wish.mem.of(memory.map_or(0, |gpu| gpu.memory_bytes));
                saved.warnings(&wish, (minor, limit), after.gpu(minor))
            }
        })
    }

    fn members(&self) -> ChangeMembers {
        let name = |name: &Name| Some(name.as_str().unwrap_or_default().to_owned());
        let (action, instance, gpu_minor) = match self {
            Self::Policy(minor, ..) => ("set_policy", None, *minor),
            Self::Destroy(i) => ("destroy", name(&i.key.name), i.key.gpu_minor),
            Self::Set(was, _) => {
                let key = was.key();
                ("set", name(&key.name), key.gpu_minor)
            }
            Self::Create(key, ..) => ("create", name(&key.name), key.gpu_minor),
        };
        ChangeMembers {
            action,
            instance,
            gpu_minor,
            differences: self.differences(),
        }
    }

    fn differences(&self) -> Vec<String> {
        match self {
            Self::Policy(_, _, differences) => differences.clone(),
            Self::Destroy(_) => vec![],
            Self::Set(was, wish) => wish.steps().iter().map(|step| step.line(was)).collect(),
            Self::Create(_, _, terms) => vec![terms.clone()],
        }
    }

    fn text(&self) -> Vec<String> {
        let (sign, about) = match self {
            Self::Policy(minor, ..) => ('~', format!("GPU {minor}")),
            Self::Destroy(instance) => return vec![format!("- {}", target::label(instance))],
            Self::Set(was, _) => ('~', target::label(&was.instance)),
            Self::Create(key, ..) => ('+', label(key)),
        };
        let line = |difference| format!("{sign} {about}: {difference}");
        self.differences().into_iter().map(line).collect()
    }
}

fn label(key: &InstanceKey) -> String {
    format!(
        "{} on GPU {}",
        key.name.as_str().unwrap_or_default(),
        key.gpu_minor
    )
}

fn bad(about: &str, why: String) -> Problem {
    let why = format!("{about}: {why}");
    Problem::BadFile { why }
}

/// The policies that differ.
fn policies(
    control: &dyn Control,
    file: &SavedFile,
    gpus: &[Gpu],
) -> Result<Vec<Difference>, Problem> {
    let now = control.gpu_compute()?;
    let mut changes = Vec::new();
    for saved in &file.gpu {
        let (gpu, wish) = saved.wish().map_err(|why| bad(&saved.gpu, why))?;
        for minor in target::select(gpus, std::slice::from_ref(&gpu))? {
            let Some(was) = now.iter().find(|gpu| gpu.minor == minor) else {
                continue;
            };
            let wish = wish.differing(was);
            let rules = wish.against(was);
            let differences: Vec<_> = rules.iter().map(ToString::to_string).collect();
            if !differences.is_empty() {
                changes.push(Difference::Policy(minor, Box::new(wish), differences));
            }
        }
    }
    Ok(changes)
}

/// The instances of the file that are missing or differ.
fn instances(
    control: &dyn Control,
    file: &SavedFile,
    gpus: &[Gpu],
) -> Result<Vec<Difference>, Problem> {
    let all = control.instances()?;
    let mut changes = Vec::new();
    for (place, saved) in file.instance.iter().enumerate() {
        let wish = saved.read().map_err(|why| bad(&saved.name, why))?;
        for minor in target::select(gpus, &wish.gpus)? {
            let key = InstanceKey::new(wish.name, minor);
            let there = |i: &&Instance| i.key.name == wish.name && i.key.gpu_minor == minor;
            if all.iter().find(there).is_none() {
                let terms = format!("memory limit {}, weight {}", saved.mem, saved.weight);
                changes.push(Difference::Create(key, place, terms));
                continue;
            }
            let target = Target {
                name: wish.name,
                gpus: vec![Selector::Minor(minor)],
            };
            for was in setting::before(control, &target)? {
                let settings = differing(saved, &wish, &was);
                let set = InstSet::new(target.clone(), settings, saved.overcommit);
                if !set.steps().is_empty() {
                    changes.push(Difference::Set(Box::new(was), Box::new(set)));
                }
            }
        }
    }
    Ok(changes)
}

/// The settings that an instance has not.
fn differing(saved: &SavedInstance, wish: &InstanceWish, was: &Before) -> Settings {
    let i = &was.instance;
    let mem = wish.mem.of(was.memory_bytes.unwrap_or_default());
    let limit = |what: Limited| {
        let wanted = wish.limits.iter().find(|(of, _)| *of == what);
        let wanted = wanted.map_or(LIMIT_DEFAULT, |(_, limit)| *limit);
        let now = was
            .limits
            .iter()
            .find(|l| Limited::from_number(l.what) == Some(what));
        let now = now
            .filter(|l| l.is_set != 0)
            .map_or(LIMIT_DEFAULT, |l| l.limit);
        (wanted != now).then_some(wanted)
    };
    let burst = saved.burst_ms.unwrap_or(BURST_OF_GPU);
    Settings {
        mem: (mem != Bytes(i.memory_limit_bytes)).then_some(Amount::Bytes(mem)),
        weight: Some(saved.weight).filter(|weight| *weight != i.weight),
        priority: Some(wish.priority).filter(|priority| *priority != Priority::of(was.state)),
        burst: Some(burst).filter(|burst| own_burst(*burst) != own_burst(was.burst_ms)),
        caps: Some(wish.caps).filter(|caps| caps.0 != i.capabilities),
        managed: Some(wish.managed).filter(|managed| managed.number() != i.managed_mode),
        channels: saved
            .channels
            .filter(|channels| *channels != i.channel_limit),
        clients: limit(Limited::Clients),
        objects: limit(Limited::Objects),
        events: limit(Limited::Events),
        bar1: limit(Limited::Bar1),
        host_mem: limit(Limited::HostMemory),
        files: limit(Limited::Files),
        mappings: limit(Limited::Mappings),
        exports: limit(Limited::Exports),
    }
}

/// The instances that the file does not have. Those of containers and pods go with them.
fn surplus(
    host: &dyn Host,
    control: &dyn Control,
    file: &SavedFile,
    gpus: &[Gpu],
) -> Result<Vec<Difference>, Problem> {
    let mut wanted = Vec::new();
    for saved in &file.instance {
        let wish = saved.read().map_err(|why| bad(&saved.name, why))?;
        let minors = target::select(gpus, &wish.gpus)?;
        wanted.extend(minors.into_iter().map(|minor| (wish.name, minor)));
    }
    let mut all = inst_list::all(control)?;
    // Afterwards: an owner is written down before its instance is made.
    let owners = Owners::read(host)?;
    all.retain(|i| !owners.have(i) && !wanted.contains(&(i.key.name, i.key.gpu_minor)));
    Ok(all.into_iter().map(Difference::Destroy).collect())
}
