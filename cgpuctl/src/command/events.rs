// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `events`: what becomes of the instances, a line each, as it happens.
//!
//! An event is the difference of two readings of the module. What came and went between two of
//! them is not seen.

use super::{inst_list, target};
use crate::{
    args::{is_memory, Interval},
    capabilities::Capabilities,
    client::errno,
    compute::own_burst,
    control::Control,
    error::{Failure, Problem},
    exit::Exit,
    host::Host,
    output::Report,
    size::Bytes,
    verb::Verb,
};
use cgpu_uapi::{
    state, GpuCompute, Instance, InstanceCompute, InstanceLimit, Limited, ManagedMode, Period,
    Policy, Priority,
};
use clap::Args;
use serde::Serialize;
use std::{
    collections::HashMap,
    io::{stdout, ErrorKind, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Print a line when an instance comes, goes, is changed or is refused something, until stopped.
///
/// A change of a GPU's rules (`cgpuctl gpu set`) is a line as well. With --json each line is one
/// JSON object.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl events --json --count 1")]
pub(crate) struct Events {
    #[command(flatten)]
    interval: Interval,
    /// Exit after this many events.
    #[arg(long, short = 'n', value_name = "NUMBER")]
    count: Option<usize>,
}

/// An event.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    time_s: u64,
    event: &'static str,
    name: Option<String>,
    gpu_minor: u32,
    detail: String,
}

/// The module's words at one moment.
struct Snapshot {
    instances: Vec<Instance>,
    compute: Vec<InstanceCompute>,
    /// Of each instance, by its number.
    limits: HashMap<u32, Vec<InstanceLimit>>,
    gpus: Vec<GpuCompute>,
}

impl Snapshot {
    fn new(control: &dyn Control) -> Result<Self, Problem> {
        let instances = inst_list::all(control)?;
        // One that has gone since has none, and is missing in the next reading.
        let limits = |i: &Instance| Some((i.id, control.limits(&i.key).ok()?));
        Ok(Self {
            limits: instances.iter().filter_map(limits).collect(),
            instances,
            compute: control.instance_compute()?,
            // They are away with the driver; instances are not.
            gpus: control.gpu_compute().unwrap_or_default(),
        })
    }
}

impl Verb for Events {
    fn attempt(&self) -> String {
        "follow the events".to_owned()
    }

    fn run(&self, _: &dyn Host) -> Result<Report, Failure> {
        Ok(Report::default())
    }

    fn stay(
        &self,
        host: &dyn Host,
        json: bool,
        _: &mut dyn Write,
    ) -> Option<Result<Exit, Failure>> {
        let interval = self.interval.length();
        let followed = follow(host, interval, self.count, json, &mut stdout());
        Some(followed.map(|()| Exit::Done))
    }
}

/// Prints events, at most so many.
pub fn follow(
    host: &dyn Host,
    interval: Duration,
    count: Option<usize>,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let control = target::open(host)?;
    let mut left = count.unwrap_or(usize::MAX);
    let mut before = Snapshot::new(&*control)?;
    while left > 0 {
        std::thread::sleep(host.pause(interval));
        let now = Snapshot::new(&*control)?;
        for event in events(&before, &now, time()).into_iter().take(left) {
            left -= 1;
            let line = line(&event, json)?;
            match out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
                // A reader that has seen enough is no failure.
                Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
                written => written.map_err(|e| Problem::Output { errno: errno(&e) })?,
            }
        }
        before = now;
    }
    Ok(())
}

fn time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

fn line(event: &Event, json: bool) -> Result<String, Problem> {
    if json {
        let object = Report::new(event, String::new())?.json;
        // Strings have no bare line ends in JSON: each end is one of the layout.
        let parts: Vec<_> = object.lines().map(str::trim).collect();
        return Ok(parts.join(" ") + "\n");
    }
    let at = UNIX_EPOCH + Duration::from_secs(event.time_s);
    let about = match &event.name {
        Some(name) => format!("{name} on GPU {}", event.gpu_minor),
        None => format!("GPU {}", event.gpu_minor),
    };
    let at = humantime::format_rfc3339_seconds(at);
    let line = format!("{at}  {:9}  {about}  {}", event.event, event.detail);
    Ok(line.trim_end().to_owned() + "\n")
}

/// The events between two readings.
fn events(before: &Snapshot, now: &Snapshot, time_s: u64) -> Vec<Event> {
    let event = |event, instance: &Instance, detail: String| Event {
        time_s,
        event,
        name: instance.key.name.as_str().map(str::to_owned),
        gpu_minor: instance.key.gpu_minor,
        detail,
    };
    let mut all = Vec::new();
    for was in &before.instances {
        // Numbers are not used again soon, names are.
        if !now.instances.iter().any(|i| i.id == was.id) {
            all.push(event("destroyed", was, String::new()));
        }
    }
    for i in &now.instances {
        let Some(was) = before.instances.iter().find(|was| was.id == i.id) else {
            let terms = format!(
                "memory limit {}, weight {}",
                Bytes(i.memory_limit_bytes),
                i.weight
            );
            all.push(event("created", i, terms));
            continue;
        };
        let of = |reading: &Snapshot| reading.compute.iter().find(|c| c.id == i.id).copied();
        let limits = pairs_of_limits(before, now, i.id);
        let changed = changes(was, i)
            .into_iter()
            .chain(compute_changes(of(before), of(now)))
            .chain(limits.iter().filter_map(limit_change));
        all.extend(changed.map(|detail| event("changed", i, detail)));
        let refused = refusals(was, i).chain(limits.iter().filter_map(limit_refusals));
        all.extend(refused.map(|detail| event("refused", i, detail)));
    }
    for gpu in &now.gpus {
        let was = before.gpus.iter().find(|was| was.minor == gpu.minor);
        let changed = was.map_or(vec![], |was| rule_changes(was, gpu));
        all.extend(changed.into_iter().map(|detail| Event {
            time_s,
            event: "changed",
            name: None,
            gpu_minor: gpu.minor,
            detail,
        }));
    }
    all
}

/// `weight 40, was 30`, for a value that is another one.
fn change<T: PartialEq + ToString>(what: &str, was: T, now: T) -> Option<String> {
    let is_new = was != now;
    is_new.then(|| format!("{what} {}, was {}", now.to_string(), was.to_string()))
}

fn changes(was: &Instance, now: &Instance) -> Vec<String> {
    let limit = |i: &Instance| Bytes(i.memory_limit_bytes).to_string();
    let caps = |i: &Instance| Capabilities(i.capabilities).to_string();
    let managed = |i: &Instance| ManagedMode::name_of(i.managed_mode);
    let all = [
        change("memory limit", limit(was), limit(now)),
        change("weight", was.weight, now.weight),
        change("channels", was.channel_limit, now.channel_limit),
        change("capabilities", caps(was), caps(now)),
        change("managed memory", managed(was), managed(now)),
    ];
    all.into_iter().flatten().collect()
}

fn compute_changes(was: Option<InstanceCompute>, now: Option<InstanceCompute>) -> Vec<String> {
    let (Some(was), Some(now)) = (was, now) else {
        return vec![];
    };
    let priority = |c: &InstanceCompute| Priority::of(c.state).name();
    let suspended = |c: &InstanceCompute| match c.state & state::SUSPENDED {
        0 => "no",
        _ => "yes",
    };
    let burst = |c: &InstanceCompute| match own_burst(c.burst_ms) {
        Some(burst) => format!("{burst} ms"),
        None => "that of the GPU".to_owned(),
    };
    let all = [
        change("priority", priority(&was), priority(&now)),
        change("suspended", suspended(&was), suspended(&now)),
        change("burst", burst(&was), burst(&now)),
    ];
    all.into_iter().flatten().collect()
}

/// The rules of a GPU that are others.
fn rule_changes(was: &GpuCompute, now: &GpuCompute) -> Vec<String> {
    let ms = |gpu: &GpuCompute| format!("{} ms", gpu.burst_ms);
    let all = [
        change(
            "policy",
            Policy::name_of(was.policy),
            Policy::name_of(now.policy),
        ),
        change(
            "period",
            Period::name_of(was.period),
            Period::name_of(now.period),
        ),
        change("max_instances", was.max_instances, now.max_instances),
        change(
            "priority_percent",
            was.priority_percent,
            now.priority_percent,
        ),
        change("burst", ms(was), ms(now)),
    ];
    all.into_iter().flatten().collect()
}

/// A limit of an instance in two readings.
type LimitPair = (InstanceLimit, InstanceLimit);

fn pairs_of_limits(before: &Snapshot, now: &Snapshot, id: u32) -> Vec<LimitPair> {
    let of = |reading: &Snapshot| reading.limits.get(&id).cloned().unwrap_or_default();
    let (before, now) = (of(before), of(now).into_iter());
    let pair = |now: InstanceLimit| {
        let was = before.iter().find(|was| was.what == now.what)?;
        Some((*was, now))
    };
    now.filter_map(pair).collect()
}

/// Defaults are not compared by their value, which follows from the memory limit.
fn limit_change((was, now): &LimitPair) -> Option<String> {
    let shown = |limit: &InstanceLimit| match Limited::from_number(limit.what) {
        _ if limit.is_set == 0 => "default".to_owned(),
        Some(what) if is_memory(what) => Bytes(limit.limit).to_string(),
        _ => limit.limit.to_string(),
    };
    let what = format!("limit of {}", Limited::name_of(now.what));
    change(&what, shown(was), shown(now))
}

fn limit_refusals((was, now): &LimitPair) -> Option<String> {
    let more = now.refused.saturating_sub(was.refused);
    (more > 0).then(|| format!("{more} at the limit of {}", Limited::name_of(now.what)))
}

/// Refusals of an instance between two readings.
fn refusals<'a>(was: &'a Instance, now: &'a Instance) -> impl Iterator<Item = String> + 'a {
    let counts = [
        (
            "allocations, for want of memory",
            was.memory_refused,
            now.memory_refused,
        ),
        (
            "mappings of managed memory",
            was.managed_refused,
            now.managed_refused,
        ),
        (
            "channels",
            was.channels_refused.into(),
            now.channels_refused.into(),
        ),
        (
            "calls; `cgpuctl inst show NAME --refused` has them",
            was.calls_refused,
            now.calls_refused,
        ),
    ];
    counts.into_iter().filter_map(|(what, was, now)| {
        let more = now.saturating_sub(was);
        (more > 0).then(|| format!("{more} {what}"))
    })
}
