// SPDX-License-Identifier: GPL-2.0
//! `replay run`: a whole replay in the test VM, from loading the answers to the summary.

use std::collections::BTreeSet;

use cgpu_uapi as uapi;

use crate::{
    answers,
    control::{self, Control},
    nodes::{minor, Nodes},
    orchestrate,
    record::{Op, Trace},
    report::{RefusedCall, Summary},
    standin::{self, KernelLog},
};

/// Recordings, and the place of their replay.
#[derive(Debug, Clone)]
pub struct RunSettings {
    /// Directly on the stand-in's nodes.
    pub direct: bool,
    /// The instance's limit on each GPU, bytes; `None` for the GPU's whole memory.
    pub limit: Option<u64>,
    /// A number of [`uapi::ManagedMode`].
    pub managed_mode: u32,
    /// The instance's capabilities: bits of [`uapi::capability`], 0 for the default.
    pub capabilities: u32,
    /// The instance's name.
    pub name: String,
    /// Says on stderr what happens to calls that do not go as recorded.
    pub verbose: bool,
}

/// Minors of the GPUs that the recordings open, 0 where they open none.
pub fn minors(traces: &[Trace]) -> BTreeSet<u32> {
    let mut minors: BTreeSet<u32> = traces
        .iter()
        .flat_map(|t| &t.records)
        .filter_map(|r| match &r.op {
            Op::Open { path, .. } => minor(path),
            _ => None,
        })
        .collect();
    if minors.is_empty() {
        minors.insert(0);
    }
    minors
}

/// The source of the charges. The driver itself has none that a program can read.
enum Accounting {
    Nobody,
    Standin { managed: bool },
    Module { control: Control, name: String },
}

#[derive(Default, Clone, Copy)]
struct Charge {
    now: u64,
    overhead: u64,
    peak: u64,
    managed: u64,
    spilled: u64,
}

impl Accounting {
    fn charge(&self, minor: u32) -> Result<Charge, String> {
        match self {
            Self::Nobody => Ok(Charge::default()),
            Self::Standin { managed } => {
                let heap = standin::heap(minor)?;
                let managed = if *managed { heap.managed } else { 0 };
                Ok(Charge {
                    now: heap.used + heap.overhead + managed,
                    overhead: heap.overhead,
                    peak: heap.peak,
                    managed,
                    spilled: 0,
                })
            }
            Self::Module { control, name } => {
                let instance = control
                    .get(name, minor)
                    .map_err(|e| format!("instance {name}: errno {e}"))?;
                Ok(Charge {
                    now: instance.memory_used_bytes
                        + instance.memory_overhead_bytes
                        + instance.memory_managed_bytes
                        + instance.memory_reserved_bytes,
                    overhead: instance.memory_overhead_bytes,
                    peak: instance.memory_peak_bytes,
                    managed: instance.memory_managed_bytes,
                    spilled: instance.memory_spilled_bytes,
                })
            }
        }
    }

    fn total(&self, minors: &BTreeSet<u32>) -> Result<Charge, String> {
        let mut sum = Charge::default();
        for &minor in minors {
            let one = self.charge(minor)?;
            sum.now += one.now;
            sum.overhead += one.overhead;
            sum.peak += one.peak;
            sum.managed += one.managed;
            sum.spilled += one.spilled;
        }
        Ok(sum)
    }
}

/// Calls that the stand-in answered out of the recording so far.
fn from_recording() -> u64 {
    standin::read("answers").map_or(0, |answers| standin::number(&answers, "given"))
}

/// Makes the instance on every GPU that the recordings use. Returns the sum of the limits.
pub fn create(
    control: &Control,
    name: &str,
    minors: &BTreeSet<u32>,
    limit: Option<u64>,
    managed_mode: u32,
) -> Result<u64, String> {
    let gpus = control
        .gpus()
        .map_err(|e| format!("list of GPUs: errno {e}"))?;
    let mut sum = 0;
    for &minor in minors {
        let gpu = gpus.iter().find(|g| g.minor == minor);
        let gpu = gpu.ok_or_else(|| format!("the module knows no GPU with minor {minor}"))?;
        let limit = limit.unwrap_or(gpu.memory_bytes);
        control
            .create_managed(name, minor, limit, uapi::WEIGHT_DEFAULT, managed_mode)
            .map_err(|e| format!("instance {name} on GPU {minor}: errno {e}"))?;
        sum += limit;
    }
    Ok(sum)
}

/// Replays recordings and says what came of it.
pub fn run(traces: &[Trace], settings: &RunSettings) -> Result<Summary, String> {
    let order = orchestrate::merged(traces);
    let minors = minors(traces);
    let has_standin = standin::is_in_reach();
    if has_standin {
        standin::load_answers(&answers::blob(traces, &order))?;
        standin::reset("heap")?;
    }
    let mut log = KernelLog::from_now();
    let answered = from_recording();
    let mut summary = Summary {
        calls: order.len(),
        ..Summary::default()
    };
    let (accounting, nodes) = if settings.direct && !has_standin {
        (Accounting::Nobody, Nodes::Direct)
    } else if settings.direct {
        for &minor in &minors {
            summary.limit_bytes += standin::heap(minor)?.total;
        }
        (Accounting::Standin { managed: true }, Nodes::Direct)
    } else {
        control::mount_cgpufs()?;
        let control = Control::open().map_err(|e| format!("{}: errno {e}", uapi::CONTROL_PATH))?;
        let name = settings.name.clone();
        summary.limit_bytes = create(
            &control,
            &name,
            &minors,
            settings.limit,
            settings.managed_mode,
        )?;
        if settings.capabilities != 0 {
            for &minor in &minors {
                control
                    .set_capabilities(&name, minor, settings.capabilities)
                    .map_err(|e| format!("capabilities of {name}: errno {e}"))?;
            }
        }
        let folder = control::folder(&name);
        (
            Accounting::Module { control, name },
            Nodes::Instance(folder),
        )
    };
    let before = accounting.total(&minors)?;
    let several = traces.len() > 1;
    let nodes = vec![nodes; traces.len()];
    let resident = |summary: &mut Summary| -> Result<(), String> {
        if !has_standin {
            return Ok(());
        }
        let mut sum = 0;
        for &minor in &minors {
            let heap = standin::heap(minor)?;
            sum += heap.resident + heap.used + heap.overhead;
        }
        summary.on_gpu_bytes = summary.on_gpu_bytes.max(sum);
        Ok(())
    };
    let mut overhead = 0;
    let mut trouble = None;
    let replayed = orchestrate::replay(traces, &order, &nodes, |t, index, outcome| {
        let name = several.then(|| traces[t].name.clone());
        if settings.verbose {
            tell(&traces[t].name, index, &outcome);
        }
        summary.skipped += usize::from(outcome.skipped);
        summary.told.update(outcome.told);
        summary.refused.extend(outcome.refused.map(|mut r| {
            r.trace.clone_from(&name);
            r
        }));
        summary
            .mismatches
            .extend(outcome.mismatches.into_iter().map(|mut m| {
                m.trace.clone_from(&name);
                m
            }));
        if outcome.charges {
            match accounting.total(&minors) {
                Ok(charge) => {
                    overhead = overhead.max(charge.overhead);
                    summary.managed_bytes = summary.managed_bytes.max(charge.managed);
                    summary.spilled_bytes = summary.spilled_bytes.max(charge.spilled);
                }
                Err(e) => trouble = Some(e),
            }
            if let Err(e) = resident(&mut summary) {
                trouble = Some(e);
            }
        }
    });
    let after = accounting.total(&minors);
    if let Accounting::Module { control, name } = &accounting {
        for &minor in &minors {
            match control.refusals(name, minor) {
                Ok((refusals, _)) => summary.refused_calls.extend(refusals.iter().map(told)),
                Err(e) => trouble = Some(format!("refused calls of {name}: errno {e}")),
            }
            if let Err(e) = control.destroy(name, minor) {
                trouble = Some(format!("instance {name} cannot be removed: errno {e}"));
            }
        }
    }
    replayed?;
    let after = after?;
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    summary.peak_bytes = after.peak;
    summary.overhead_bytes = overhead;
    summary.final_bytes = after.now.saturating_sub(before.now);
    let given = from_recording().saturating_sub(answered);
    summary.from_recording = usize::try_from(given).unwrap_or(0);
    summary.modelled = summary
        .calls
        .saturating_sub(summary.skipped + summary.from_recording);
    if has_standin {
        standin::put_away()?;
    }
    let faults = log.faults();
    for line in &faults {
        eprintln!("kernel: {line}");
    }
    summary.kernel_warnings = faults.len();
    Ok(summary)
}

/// A kind of refused calls, for the summary.
fn told(refusal: &uapi::Refusal) -> RefusedCall {
    let name = uapi::text(&refusal.name);
    let sets = uapi::capability::NAMES.into_iter();
    let allowing = sets.filter(|(bit, _)| refusal.capabilities & bit != 0);
    RefusedCall {
        call: if name.is_empty() {
            format!("{:#x}", refusal.number)
        } else {
            name.to_owned()
        },
        reason: refusal.reason,
        allowed_by: allowing.map(|(_, name)| name.to_owned()).collect(),
        count: refusal.count,
    }
}

fn tell(trace: &str, index: usize, outcome: &crate::report::Outcome) {
    if outcome.skipped {
        eprintln!("{trace} {index}: skipped");
    }
    if let Some(r) = &outcome.refused {
        eprintln!(
            "{trace} {index}: refused class {} bytes {}",
            r.class, r.bytes
        );
    }
    for m in &outcome.mismatches {
        eprintln!(
            "{trace} {index}: {} {}{}: recorded {}, seen {}",
            m.call,
            m.what,
            m.at.map_or_else(String::new, |at| format!(" at {at}")),
            m.recorded,
            m.seen
        );
    }
}
