// SPDX-License-Identifier: GPL-2.0
//! The module's scheduler over real programs: the loop of its GPU thread, and an authority that
//! asks the programs' agents to make the driver's calls.

use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use cgpu_km::{
    nvidia::{
        handle::{ClientHandle, ObjectHandle},
        status::NvStatus,
    },
    policy::{
        sched::{
            Action, Authority, CallError, Costs, Engine, Event, InstanceId, Mechanisms, Nanos,
            NewChannel, Position, RmName, Rules, Sample, Scheduler, Terms,
        },
        ProcessId,
    },
};

use crate::{
    compute::{self, Compute, Duty, News, Request, Seen},
    sys,
};

/// Between two looks at what the programs did.
const LOOK: Duration = Duration::from_micros(50);

/// An instance among those that share the GPU.
#[derive(Clone, Copy)]
pub struct Competitor {
    /// Its part of the shared memory.
    pub compute: &'static Compute,
    /// The operator's terms for it.
    pub terms: Terms,
}

/// Any process of an instance, for the scheduler: agents say which instance a sample is of.
fn process_of(instance: InstanceId) -> ProcessId {
    // CAST: few.
    ProcessId(instance.0 as i32 + 1)
}

/// A process that is of no instance.
const STRANGER: ProcessId = ProcessId(0);

/// Samples as the log has them: how long before the newest one each was taken, in milliseconds, and
/// the process; -1: none, 0: of no instance.
fn told(samples: &[Sample]) -> String {
    let newest = samples.iter().map(|s| s.stamp).max().unwrap_or(0);
    let each = samples.iter().map(|s| {
        let process = s.process.map_or(-1, |process| process.0);
        ((newest - s.stamp) / 1_000_000, process)
    });
    format!("{:?}", each.collect::<Vec<_>>())
}

/// The time that a call of the scheduler took.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallTimes {
    /// How often it was made.
    pub count: u64,
    /// How often it failed.
    pub failed: u64,
    /// All together.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
}

/// A scheduler with its instances.
pub struct Arbiter {
    scheduler: Scheduler,
    backend: Backend,
    rang: Vec<u32>,
    began: Instant,
    /// The log of every event and action, if there is one.
    log: Option<Box<dyn Write>>,
    /// How the GPU was shared when that was last written.
    logged: &'static str,
    /// By the name of the action.
    pub times: BTreeMap<&'static str, CallTimes>,
    counted: Counted,
}

/// The scheduler's acts while the programs counted.
#[derive(Debug, Default)]
struct Counted {
    /// When it was looked at last, and how many changes and calls there had been.
    until: Option<(Nanos, [u64; 2])>,
    /// For how long the GPU was shared in each way.
    modes: BTreeMap<&'static str, Nanos>,
    /// Changes from one instance to another, and calls of the driver.
    done: [u64; 2],
}

/// The programs' agents, as an authority.
struct Backend {
    competitors: Vec<Competitor>,
    /// Which instance and which agent a client is of.
    owners: HashMap<u32, (usize, usize)>,
    /// The driver's samples, if they were read.
    samples: Option<Vec<Sample>>,
}

impl Arbiter {
    /// A scheduler for these instances, whose numbers are their places.
    ///
    /// # Errors
    ///
    /// The rules cannot be kept with these weights.
    pub fn new(
        competitors: &[Competitor],
        rules: Rules,
        mechanisms: Mechanisms,
    ) -> Result<Self, String> {
        let scheduler = Scheduler::new(mechanisms, Costs::MEASURED, rules);
        let mut scheduler = scheduler.map_err(|_| "no memory for a scheduler")?;
        for (id, competitor) in competitors.iter().enumerate() {
            let id = u32::try_from(id).map_err(|e| e.to_string())?;
            let added = scheduler.add(0, InstanceId(id), competitor.terms);
            added.map_err(|why| format!("instance {id}: {why:?}"))?;
            competitor.compute.scheduled.store(1, Ordering::Release);
        }
        Ok(Self {
            scheduler,
            backend: Backend {
                competitors: competitors.to_vec(),
                owners: HashMap::new(),
                samples: None,
            },
            rang: vec![0; competitors.len()],
            began: Instant::now(),
            log: None,
            logged: "",
            times: BTreeMap::new(),
            counted: Counted::default(),
        })
    }

    /// Writes every event and action, with its time in microseconds, to `log`; first what time it
    /// is then on the system's monotonic clock.
    pub fn log_to(&mut self, log: Box<dyn Write>) {
        self.log = Some(log);
        let now = (sys::uptime_s() * 1e6).round();
        self.log(&format_args!("is {now} of the monotonic clock"));
    }

    fn log(&mut self, what: &dyn std::fmt::Debug) {
        let now = self.now() / 1000;
        if let Some(log) = &mut self.log {
            // A log that cannot be written is found to be too short by its readers.
            let _ = writeln!(log, "{now} {what:?}");
        }
    }

    /// Tells the scheduler.
    fn tell(&mut self, event: Event) -> Result<(), String> {
        self.log(&event);
        let told = self.scheduler.event(self.now(), event);
        told.map_err(|_| "no memory for a channel".to_owned())
    }

    fn now(&self) -> Nanos {
        // CAST: centuries of nanoseconds fit.
        self.began.elapsed().as_nanos() as u64
    }

    /// Notes how the GPU is shared; whether the programs count at the moment.
    pub fn count(&mut self, counting: bool) {
        let (now, view) = (self.now(), self.scheduler.view());
        let done = [view.switches, view.calls];
        if let Some((until, before)) = self.counted.until.take() {
            *self.counted.modes.entry(view.mode.name()).or_default() += now - until;
            for (sum, (now, before)) in self.counted.done.iter_mut().zip(done.iter().zip(before)) {
                *sum += now - before;
            }
        }
        self.counted.until = counting.then_some((now, done));
    }

    /// Looks once at what happened, and does what is to be done.
    ///
    /// # Errors
    ///
    /// No memory was left for a new channel.
    pub fn look(&mut self) -> Result<(), String> {
        self.hear()?;
        loop {
            let now = self.now();
            let action = self.scheduler.next(now);
            let mode = self.scheduler.view().mode.name();
            if mode != self.logged {
                self.logged = mode;
                self.log(&format_args!("mode {mode}"));
            }
            let Some(action) = action else {
                break;
            };
            let channels = self.scheduler.switched().to_vec();
            let began = self.now();
            let result = self.backend.perform(action, &channels);
            let now = self.now();
            self.note(action, now - began, result.is_err());
            self.log(&(action, channels.len()));
            if let Some(samples) = self.backend.samples.take() {
                self.log(&format_args!("samples {}", told(&samples)));
                self.scheduler.samples(now, samples.into_iter());
            }
            self.tell(Event::Answer { began, result })?;
            self.hear()?;
        }
        std::thread::sleep(LOOK);
        Ok(())
    }

    fn note(&mut self, action: Action, took: Nanos, failed: bool) {
        let name = match action {
            Action::SetGate { .. } => "set_gate",
            Action::SetTimeslice { .. } => "set_timeslice",
            Action::Switch { disable: true } => "switch_off",
            Action::Switch { disable: false } => "switch_on",
            Action::Preempt { .. } => "preempt",
            Action::ReadSamples => "read_samples",
        };
        let times = self.times.entry(name).or_default();
        let took = Duration::from_nanos(took);
        times.count += 1;
        times.failed += u64::from(failed);
        times.total += took;
        times.longest = times.longest.max(took);
    }

    fn hear(&mut self) -> Result<(), String> {
        for place in 0..self.rang.len() {
            // CAST: few.
            let instance = InstanceId(place as u32);
            let compute = self.backend.competitors[place].compute;
            while let Some(news) = compute.hear() {
                let event = match news {
                    News::Channel {
                        group,
                        channel,
                        compute,
                        agent,
                    } => {
                        // CAST: below 64.
                        let owner = (place, agent as usize);
                        self.backend.owners.insert(channel[0], owner);
                        Event::Channel(NewChannel {
                            instance,
                            group: name(group),
                            channel: name(channel),
                            engine: if compute {
                                Engine::Compute
                            } else {
                                Engine::Other
                            },
                            process: process_of(instance),
                        })
                    }
                    News::Freed(freed) => Event::Freed(name(freed)),
                    News::ClientFreed(client) => Event::ClientFreed(ClientHandle(client)),
                };
                self.tell(event)?;
            }
            let rang = compute.rang.load(Ordering::Acquire);
            if rang != self.rang[place] {
                self.rang[place] = rang;
                self.tell(Event::Rang(instance))?;
            }
        }
        Ok(())
    }

    /// How the GPU is shared, and what each instance was given, as JSON.
    pub fn accounts(&self) -> serde_json::Value {
        let now = self.now();
        let gpu = self.scheduler.view();
        let instances: Vec<_> = (0..self.rang.len())
            // CAST: few.
            .filter_map(|place| self.scheduler.instance_view(now, InstanceId(place as u32)))
            .map(|view| {
                serde_json::json!({
                    "given_ns": view.account.gpu_time,
                    "windows": view.account.windows,
                    "preemptions": view.account.preemptions,
                    "blocked_ns": view.account.blocked,
                })
            })
            .collect();
        let calls: BTreeMap<_, _> = self
            .times
            .iter()
            .map(|(name, times)| {
                let mean = times.total.as_secs_f64() * 1e6 / times.count.max(1) as f64;
                let figures = serde_json::json!({
                    "count": times.count,
                    "failed": times.failed,
                    "mean_us": (mean * 10.0).round() / 10.0,
                    "longest_us": times.longest.as_micros() as u64,
                });
                (*name, figures)
            })
            .collect();
        let [switches, calls_made] = self.counted.done;
        let modes: BTreeMap<_, _> = self
            .counted
            .modes
            .iter()
            .map(|(name, length)| (*name, length / 1_000_000))
            .collect();
        serde_json::json!({
            "counted": { "modes_ms": modes, "switches": switches, "calls": calls_made },
            "switches": gpu.switches,
            "calls": calls,
            "instances": instances,
        })
    }
}

fn name([client, object]: compute::Name) -> RmName {
    RmName {
        client: ClientHandle(client),
        object: ObjectHandle(object),
    }
}

/// The answer to an agent, as the module's `sched.rs` takes it. A process that has ended has no
/// channels.
fn outcome(compute: &Compute, agent: usize) -> Result<(), CallError> {
    let answer = compute.answer(agent);
    if answer == Some(-libc::ENODEV) || (answer.is_none() && compute.has_ended(agent)) {
        return Err(CallError::Gone);
    }
    let status = answer.and_then(|status| u32::try_from(status).ok());
    match status.map(NvStatus) {
        Some(NvStatus::NV_OK) => Ok(()),
        Some(NvStatus::NV_ERR_NOT_SUPPORTED) => Err(CallError::Unsupported),
        Some(
            NvStatus::NV_ERR_INVALID_OBJECT_HANDLE
            | NvStatus::NV_ERR_OBJECT_NOT_FOUND
            | NvStatus::NV_ERR_INVALID_CLIENT
            | NvStatus::NV_ERR_INVALID_CHANNEL,
        ) => Err(CallError::Gone),
        _ => Err(CallError::Failed),
    }
}

impl Backend {
    fn group_call(&self, group: RmName, request: Request) -> Result<(), CallError> {
        let (place, agent) = *self.owners.get(&group.client.0).ok_or(CallError::Failed)?;
        let compute = self.competitors[place].compute;
        compute.ask(agent, request, &[[group.client.0, group.object.0]]);
        outcome(compute, agent)
    }
}

impl Authority for Backend {
    fn set_timeslice(&mut self, group: RmName, microseconds: u32) -> Result<(), CallError> {
        self.group_call(group, Request::Timeslice { microseconds })
    }

    /// One call for each client, all at once: a client's calls are its own process's.
    fn switch(&mut self, channels: &[RmName], disable: bool) -> Result<(), CallError> {
        let mut of: BTreeMap<u32, Vec<compute::Name>> = BTreeMap::new();
        for channel in channels {
            let name = [channel.client.0, channel.object.0];
            of.entry(channel.client.0).or_default().push(name);
        }
        let mut result = Ok(());
        let mut asked = Vec::new();
        for (client, names) in of {
            let Some(&(place, agent)) = self.owners.get(&client) else {
                result = Err(CallError::Failed);
                continue;
            };
            let compute = self.competitors[place].compute;
            if asked.contains(&(place, agent)) {
                // Two clients of one process: one after the other.
                result = result.and(outcome(compute, agent));
            }
            // CAST: at most 64.
            let count = names.len() as u32;
            compute.ask(agent, Request::Switch { disable, count }, &names);
            asked.push((place, agent));
        }
        for (place, agent) in asked {
            let compute = self.competitors[place].compute;
            result = result.and(outcome(compute, agent));
        }
        result
    }

    fn preempt(&mut self, group: RmName) -> Result<(), CallError> {
        self.group_call(group, Request::Preempt)
    }

    fn set_gate(&mut self, instance: InstanceId, gate: Position) -> Result<(), CallError> {
        // CAST: few.
        let competitor = self.competitors.get(instance.0 as usize);
        let compute = competitor.ok_or(CallError::Failed)?.compute;
        compute.set_gate(match gate {
            Position::Open => compute::OPEN,
            Position::Armed => compute::ARMED,
            Position::Shut => compute::SHUT,
        });
        compute.move_gates().then_some(()).ok_or(CallError::Failed)
    }

    /// Any process may ask: the samples are of the whole GPU.
    fn read_samples(&mut self) -> Result<(), CallError> {
        let asked = self.competitors.iter().find_map(|competitor| {
            let agent = competitor.compute.agents(Duty::Calls).next()?;
            competitor.compute.ask(agent, Request::Samples, &[]);
            let answer = competitor.compute.answer(agent);
            Some((answer == Some(0)).then(|| competitor.compute.samples()))
        });
        let seen = asked.flatten().ok_or(CallError::Failed)?;
        let owner = |process| {
            let mut competitors = self.competitors.iter();
            // CAST: few.
            let place = competitors.position(|c| c.compute.has(process))? as u32;
            Some(process_of(InstanceId(place)))
        };
        let samples = seen.into_iter().map(|Seen { stamp, process }| Sample {
            stamp,
            process: match process {
                0 => None,
                process => Some(owner(process).unwrap_or(STRANGER)),
            },
        });
        self.samples = Some(samples.collect());
        Ok(())
    }
}
