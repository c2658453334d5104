// SPDX-License-Identifier: GPL-2.0
//! `cgpu-gpu`: runs programs in an instance made of the module's code in user space, records them,
//! and checks recordings against the module's tables. See `tests/gpu/README.md`.

use std::{
    collections::BTreeMap,
    error::Error,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, BufWriter, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        Arc,
    },
    time::Duration,
};

use cgpu_gpu::{
    arena::Allocator,
    ask,
    clocks::Clocks,
    driver::{self, Booster, Found, GpuFacts},
    record,
    state::{self, Gpu, State},
    sys,
    weigh::{Arbiter, Competitor},
};
use cgpu_km::{
    nvidia::{
        capability::Capabilities,
        handle::{ClassId, ControlCmd},
        nvos,
        tables::Tables,
        version::Branch,
    },
    policy::{
        sched::{Mechanisms, Period, Policy, Rules, Terms, BURST_DEFAULT, MS},
        GpuId, ManagedMode,
    },
    uapi::capability::NAMES,
};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::{json, Value};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// From telling the programs when they begin to count to that moment.
const LEAD: Duration = Duration::from_millis(50);

type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Parser)]
#[command(
    version,
    about = "Runs CUDA programs through the module's code in user space, on a real GPU"
)]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Run a program in an instance of its own, and print what the accounting says when it has
    /// ended
    Run(Run),
    /// Run a program and record its calls
    Record {
        /// Beginning of the names of the recordings; the process's number follows
        prefix: PathBuf,
        /// The program and its arguments
        #[arg(trailing_var_arg = true, required = true)]
        program: Vec<OsString>,
    },
    /// Say which calls of recordings the tables do not know
    Check {
        /// Branch of the driver that was recorded
        #[arg(long, default_value_t = 580)]
        branch: u32,
        /// Recordings, not compressed
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Run competing programs, each in an instance, under the module's scheduler, and print JSON
    Weigh(Weigh),
    /// Print the driver's version and its GPUs as JSON
    Gpus,
    /// Print what the driver answers to calls about the tool's own objects: statuses and sizes
    Ask,
}

/// The names of the module's modes.
#[derive(Clone, Copy, ValueEnum)]
enum Managed {
    Spill,
    Charge,
    Deny,
}

impl Managed {
    fn mode(self) -> ManagedMode {
        match self {
            Self::Spill => ManagedMode::Spill,
            Self::Charge => ManagedMode::Charge,
            Self::Deny => ManagedMode::Deny,
        }
    }
}

#[derive(Args)]
struct Run {
    /// Memory limit on each GPU, in MiB
    #[arg(long)]
    mem_mib: u64,
    /// Mode of managed memory that does not fit
    #[arg(long, value_enum, default_value_t = Managed::Spill)]
    managed: Managed,
    /// Sets of calls that the instance may make, with commas between: compute, utility, graphics,
    /// video, profiling, rdma
    #[arg(long, value_parser = capabilities)]
    caps: Option<Capabilities>,
    /// Minors of the GPUs that the instance has; all where none is given
    #[arg(long)]
    gpu: Vec<u32>,
    /// Record the calls as well; the process's number follows
    #[arg(long)]
    record: Option<PathBuf>,
    /// Write what the accounting says to this file instead of the standard error output
    #[arg(long)]
    report: Option<PathBuf>,
    /// How many of the program to run at once in the instance
    #[arg(long, default_value_t = 1)]
    copies: u32,
    /// Answer a program that asks for the GPU's highest clock, and do not ask the driver for it
    #[arg(long)]
    no_boost: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true)]
    program: Vec<OsString>,
}

#[derive(Args)]
struct Weigh {
    /// Number of the policy
    #[arg(long, default_value_t = 2)]
    policy: u32,
    /// Minor of the GPU; the first one where none is given
    #[arg(long)]
    gpu: Option<u32>,
    /// The base period, by its name
    #[arg(long, default_value = "latency")]
    period: String,
    /// The most service that an instance is owed after it had no work, milliseconds
    #[arg(long)]
    burst: Option<u64>,
    /// Leave everything to the driver
    #[arg(long)]
    native: bool,
    /// Answer a program that asks for the GPU's highest clock, and do not ask the driver for it
    #[arg(long)]
    no_boost: bool,
    /// Write every event and action of the scheduler to this file
    #[arg(long)]
    log: Option<PathBuf>,
    /// Seconds before the programs begin to count
    #[arg(long, default_value_t = 1.0)]
    warm_up: f64,
    /// WEIGHT:PROGRAM..., for each instance; the words of the program are separated by spaces. A
    /// weight that ends in + has high priority. The program says "ready", is told in a line when it
    /// begins to count (seconds of the monotonic clock), prints JSON, and goes on until its input
    /// ends
    #[arg(required = true)]
    instances: Vec<String>,
}

fn main() -> ExitCode {
    match work(Cli::parse().command) {
        Ok(code) => code,
        Err(e) => {
            eprintln!("cgpu-gpu: {e}");
            ExitCode::from(2)
        }
    }
}

fn work(action: Action) -> Outcome<ExitCode> {
    match action {
        Action::Run(run) => in_instance(&run),
        Action::Record { prefix, program } => {
            let found = driver::find()?;
            let mut command = preloaded(&program)?;
            record_to(&mut command, &prefix, &found);
            let mut child = command.spawn()?;
            Ok(code(child.wait()?.code()))
        }
        Action::Check { branch, files } => check(branch, &files),
        Action::Weigh(weigh) => compete(&weigh),
        Action::Ask => {
            let found = driver::find()?;
            let gpu = found.gpus.first().ok_or("there is no GPU")?;
            for line in ask::ask(&found, gpu)? {
                println!("{line}");
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Gpus => {
            let found = driver::find()?;
            println!("{}", serde_json::to_string_pretty(&gpus(&found)?)?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn code(code: Option<i32>) -> ExitCode {
    let code = code.and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(1))
}

fn gpus(found: &Found) -> Outcome<Value> {
    let mut list = Vec::new();
    for gpu in &found.gpus {
        list.push(json!({
            "minor": gpu.minor,
            "gpu_id": gpu.gpu_id,
            "device_instance": gpu.device_instance,
            "memory_bytes": gpu.memory_bytes,
            "free_bytes": driver::free_bytes(found, gpu)?,
        }));
    }
    Ok(json!({ "driver": found.version, "branch": found.branch.major(), "gpus": list }))
}

/// A command with the library preloaded, which lies beside this program.
fn preloaded(program: &[OsString]) -> Outcome<Command> {
    let (name, arguments) = program.split_first().ok_or("no program was named")?;
    let own = std::env::current_exe()?;
    let folder = own.parent().unwrap_or(Path::new("."));
    let library = folder.join("libcgpu_preload.so");
    if !library.exists() {
        return Err(format!(
            "{} is not there: build it (make test-gpu)",
            library.display()
        )
        .into());
    }
    let mut command = Command::new(name);
    command.args(arguments).env("LD_PRELOAD", library);
    Ok(command)
}

/// Has a program's calls recorded, without what names the machine's GPUs.
fn record_to(command: &mut Command, prefix: &Path, found: &Found) {
    let digits = |uuid: &[u8; 16]| uuid.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let uuids: Vec<_> = found.gpus.iter().map(|gpu| digits(&gpu.uuid)).collect();
    command
        .env(record::VARIABLE, prefix)
        .env(record::HIDDEN_VARIABLE, uuids.join(","));
}

/// Reads what an instance is for.
fn capabilities(text: &str) -> Result<Capabilities, String> {
    let bit = |word| {
        let mut names = NAMES.into_iter();
        names.find(|(_, name)| *name == word).map(|(bit, _)| bit)
    };
    let bits = text
        .split(',')
        .try_fold(0, |bits, word| Some(bits | bit(word)?));
    bits.and_then(Capabilities::from_bits)
        .ok_or_else(|| "that is none, or one of them is none".to_owned())
}

/// A file of shared memory that is removed at the end.
struct SharedFile(PathBuf);

impl Drop for SharedFile {
    fn drop(&mut self) {
        // Nothing is lost but a name in shared memory.
        let _ = fs::remove_file(&self.0);
    }
}

fn in_instance(run: &Run) -> Outcome<ExitCode> {
    let found = driver::find()?;
    let wanted = |minor: &u32| run.gpu.is_empty() || run.gpu.contains(minor);
    let gpus: Vec<Gpu> = found
        .gpus
        .iter()
        .filter(|gpu| wanted(&gpu.minor))
        .map(|facts| Gpu {
            facts: *facts,
            limit_bytes: run.mem_mib << 20,
        })
        .collect();
    if gpus.is_empty() {
        return Err("the driver has no such GPU".into());
    }
    let name = format!("/dev/shm/cgpu-gpu.{}", std::process::id());
    let file = SharedFile(PathBuf::from(name));
    let state = State::create(&file.0, found.branch, &gpus)?;
    for gpu in &gpus {
        let id = GpuId(gpu.facts.device_instance);
        state.with_accounting(|accounting| {
            let caps = run.caps.unwrap_or(Capabilities::DEFAULT);
            let set = accounting.set_managed_mode(id, run.managed.mode());
            let set = set.and_then(|()| accounting.set_capabilities(id, caps));
            set.expect("a share of each GPU");
        });
    }
    let mut clocks = Vec::new();
    for (gpu, wanted) in gpus.iter().zip(&state.compute.boosts) {
        if !run.no_boost {
            let booster = Booster::new(&found, &gpu.facts)?;
            clocks.push(Clocks::new(booster, vec![wanted])?);
        }
    }
    let mut children: Vec<Child> = Vec::new();
    for _ in 0..run.copies.max(1) {
        let mut command = preloaded(&run.program)?;
        command.env(state::VARIABLE, &file.0);
        if let Some(prefix) = &run.record {
            record_to(&mut command, prefix, &found);
        }
        children.push(command.spawn()?);
    }
    let mut ended = 0;
    let mut worst = 0;
    let mut done = vec![false; children.len()];
    while ended < children.len() {
        for (child, done) in children.iter_mut().zip(&mut done) {
            if *done {
                continue;
            }
            if let Some(status) = child.try_wait()? {
                *done = true;
                ended += 1;
                worst = worst.max(status.code().unwrap_or(128));
            }
        }
        // The kernel closes the files of dead processes; the accounting hears of it here.
        state.reap();
        clocks.iter_mut().for_each(Clocks::look);
        std::thread::sleep(Duration::from_millis(10));
    }
    state.reap();
    let mut report = account(state, &found, &gpus)?;
    report["boosts"] = clocks.iter().map(Clocks::account).collect();
    let report = serde_json::to_string(&report)?;
    match &run.report {
        Some(path) => fs::write(path, report + "\n")?,
        None => eprintln!("{report}"),
    }
    Ok(code(Some(worst)))
}

/// A program that competes.
struct Runner {
    child: Child,
    output: BufReader<ChildStdout>,
    _file: SharedFile,
}

/// An instance that competes: the file of its shared memory, and its program.
struct Entrant {
    file: SharedFile,
    program: Vec<OsString>,
}

/// Makes instance number `place` on a GPU, from `WEIGHT:PROGRAM`, with a limit of memory.
fn enter(
    place: usize,
    text: &str,
    facts: &GpuFacts,
    limit_bytes: u64,
    branch: Branch,
) -> Outcome<(Entrant, Competitor)> {
    let (weight, program) = text.split_once(':').ok_or("WEIGHT:PROGRAM is wanted")?;
    let (weight, high_priority) = match weight.strip_suffix('+') {
        Some(weight) => (weight, true),
        None => (weight, false),
    };
    let name = format!("/dev/shm/cgpu-gpu.{}.{place}", std::process::id());
    let file = SharedFile(PathBuf::from(name));
    let gpu = Gpu {
        facts: *facts,
        limit_bytes,
    };
    let compute = State::create_outside(&file.0, branch, &[gpu])?;
    let terms = Terms {
        weight: weight.parse()?,
        high_priority,
        suspended: false,
        burst: None,
    };
    let program = program.split(' ').map(OsString::from).collect();
    Ok((Entrant { file, program }, Competitor { compute, terms }))
}

/// Starts the program of an instance.
fn start(entrant: Entrant) -> Outcome<Runner> {
    let mut command = preloaded(&entrant.program)?;
    command
        .env(state::VARIABLE, &entrant.file.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let output = child.stdout.take().ok_or("no output")?;
    Ok(Runner {
        child,
        output: BufReader::new(output),
        _file: entrant.file,
    })
}

/// Runs programs under the scheduler and prints what they and the scheduler say.
fn compete(weigh: &Weigh) -> Outcome<ExitCode> {
    let found = driver::find()?;
    let wanted = |gpu: &&GpuFacts| weigh.gpu.is_none_or(|minor| gpu.minor == minor);
    let facts = found.gpus.iter().find(wanted);
    let facts = facts.ok_or("the driver has no such GPU")?;
    let rules = Rules {
        policy: Policy::from_number(weigh.policy).ok_or("no such policy")?,
        period: Period::from_name(&weigh.period).ok_or("no such period")?,
        burst: weigh.burst.map_or(BURST_DEFAULT, |burst| burst * MS),
        ..Rules::DEFAULT
    };
    let mechanisms = if weigh.native {
        Mechanisms::NONE
    } else {
        Mechanisms::ALL
    };
    let mut competitors = Vec::new();
    let mut entries = Vec::new();
    // No instance is ever short of memory: what is measured is compute.
    let limit_bytes = facts.memory_bytes / weigh.instances.len().max(1) as u64;
    for (place, text) in weigh.instances.iter().enumerate() {
        let (entry, competitor) = enter(place, text, facts, limit_bytes, found.branch)?;
        entries.push(entry);
        competitors.push(competitor);
    }
    let mut arbiter = Arbiter::new(&competitors, rules, mechanisms)?;
    if let Some(path) = &weigh.log {
        arbiter.log_to(Box::new(BufWriter::new(fs::File::create(path)?)));
    }
    let wanted = competitors.iter().map(|one| &one.compute.boosts[0]);
    let mut clocks = if weigh.no_boost {
        None
    } else {
        Some(Clocks::new(Booster::new(&found, facts)?, wanted.collect())?)
    };
    let mut runners = entries
        .into_iter()
        .map(start)
        .collect::<Outcome<Vec<_>>>()?;
    let stopped = Arc::new(AtomicBool::new(false));
    let counting = Arc::new(AtomicBool::new(false));
    let told = {
        let (stopped, counting) = (stopped.clone(), counting.clone());
        let warm_up = Duration::from_secs_f64(weigh.warm_up);
        std::thread::spawn(move || {
            let said = listen(&mut runners, warm_up, &counting);
            stopped.store(true, Relaxed);
            said.map_err(|e| e.to_string())
        })
    };
    while !stopped.load(Relaxed) {
        arbiter.count(counting.load(Relaxed));
        arbiter.look()?;
        if let Some(clocks) = &mut clocks {
            clocks.look();
        }
    }
    let said = told.join().map_err(|_| "a program was not heard")??;
    let report = json!({
        "programs": said,
        "scheduler": arbiter.accounts(),
        "boosts": clocks.map(|clocks| clocks.account()),
    });
    println!("{}", serde_json::to_string(&report)?);
    Ok(ExitCode::SUCCESS)
}

/// Waits until all programs are ready, lets them count, and takes what they print. `counting` is
/// true from then on until the first one has ended.
fn listen(
    runners: &mut [Runner],
    warm_up: Duration,
    counting: &AtomicBool,
) -> std::io::Result<Vec<Value>> {
    let mut line = String::new();
    for runner in runners.iter_mut() {
        runner.output.read_line(&mut line)?;
    }
    std::thread::sleep(warm_up);
    // All count in one span, whenever each gets to read of it: one with long kernels does at the
    // end of one.
    let begins = format!("{}\n", sys::uptime_s() + LEAD.as_secs_f64());
    for runner in runners.iter_mut() {
        if let Some(input) = &mut runner.child.stdin {
            input.write_all(begins.as_bytes())?;
            input.flush()?;
        }
    }
    std::thread::sleep(LEAD);
    counting.store(true, Relaxed);
    let mut said = Vec::new();
    for runner in runners.iter_mut() {
        line.clear();
        runner.output.read_line(&mut line)?;
        counting.store(false, Relaxed);
        said.push(serde_json::from_str(&line).unwrap_or(Value::Null));
    }
    // They go on until here, so that who was the last to say something had the company of all.
    for runner in runners.iter_mut() {
        drop(runner.child.stdin.take());
    }
    for runner in runners.iter_mut() {
        runner.child.wait()?;
    }
    Ok(said)
}

/// The accounting's figures.
fn account(state: &State, found: &Found, gpus: &[Gpu]) -> Outcome<Value> {
    let mut list = Vec::new();
    for gpu in gpus {
        let id = GpuId(gpu.facts.device_instance);
        let view = state.with_accounting(|accounting| accounting.share(id));
        let view = view.ok_or("the accounting has lost a GPU")?;
        let noted = state.with_accounting(|accounting| {
            let noted = accounting.noted_calls(id);
            let text = noted.map(|record| {
                let (call, reason) = (&record.call, &record.call.reason);
                format!("{call}: {reason}, {} times", record.count)
            });
            text.collect::<Vec<_>>().join("; ")
        });
        list.push(json!({
            "noted_calls": noted,
            "minor": gpu.facts.minor,
            "limit_bytes": view.limit,
            "used_bytes": view.used,
            "overhead_bytes": view.overhead,
            "reserved_bytes": view.reserved,
            "peak_bytes": view.peak,
            "overhead_peak_bytes": view.overhead_peak,
            "managed_peak_bytes": view.managed_peak,
            "managed_refused": view.managed_refused,
            "refused": view.refused,
            "refused_calls": view.refused_calls,
            "objects": view.objects,
            "clients": view.clients,
        }));
    }
    let counters = &state.counters;
    Ok(json!({
        "driver": found.version,
        "gpus": list,
        "calls": counters.calls.load(Relaxed),
        "forwarded": counters.forwarded.load(Relaxed),
        "shared_bytes": state.arena_bytes(),
        "process": sys::process(),
    }))
}

/// Counts, in each recording, the calls that the tables do not know.
fn check(branch: u32, files: &[PathBuf]) -> Outcome<ExitCode> {
    let known = Branch::ALL.into_iter().find(|b| b.major() == branch);
    let tables = known.and_then(Tables::of);
    let tables = tables.ok_or_else(|| format!("there are no tables for branch {branch}"))?;
    let mut unknown = 0;
    for file in files {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut calls = 0;
        for line in BufReader::new(fs::File::open(file)?).lines() {
            let call: Value = serde_json::from_str(&line?)?;
            if call["op"] != "ioctl" {
                continue;
            }
            calls += 1;
            if let Some(what) = unknown_to(tables, &call) {
                *seen.entry(what).or_default() += 1;
            }
        }
        println!("{}: {calls} calls", file.display());
        for (what, times) in &seen {
            println!("  not in the tables of {branch}: {what}, {times} times");
        }
        unknown += seen.len();
    }
    Ok(if unknown == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A description of a call that the tables do not know.
fn unknown_to(tables: &Tables, call: &Value) -> Option<String> {
    let number = |name: &str| {
        let text = call[name].as_str()?.strip_prefix("0x")?;
        u32::from_str_radix(text, 16).ok()
    };
    let request = number("req")?;
    if call["path"].as_str()?.ends_with("uvm") {
        return tables
            .uvm(request)
            .is_none()
            .then(|| format!("UVM request {request:#x}"));
    }
    let (nr, size) = nvos::request_parts(request);
    if tables.escape(nr).is_none() {
        return Some(format!("escape {nr:#x} of {size} bytes"));
    }
    let cmd = number("cmd");
    match (call["kind"].as_str(), cmd) {
        (Some("control"), Some(cmd)) => {
            let entry = tables.control(ControlCmd(cmd));
            let size = call["nsize"].as_u64().unwrap_or_default();
            match entry {
                None => Some(format!("control {cmd:#x}, {size} bytes")),
                Some(entry)
                    if size != 0 && !u32::try_from(size).is_ok_and(|size| entry.takes(size)) =>
                {
                    Some(format!(
                        "control {cmd:#x} with {size} bytes where {} are known",
                        entry.params
                    ))
                }
                Some(_) => None,
            }
        }
        (Some("alloc"), Some(class)) => tables
            .class(ClassId(class))
            .is_none()
            .then(|| format!("class {class:#x}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(call: &Value) -> Option<String> {
        unknown_to(Tables::of(Branch::R580).expect("there are some"), call)
    }

    #[test]
    fn unknown_calls_are_named() {
        let control = |cmd: &str, size: u64| {
            json!({
                "op": "ioctl", "path": "/dev/nvidiactl", "req": "0xc020462a",
                "kind": "control", "cmd": cmd, "nsize": size
            })
        };
        // GPU_GET_ID_INFO has 40 bytes.
        assert_eq!(said(&control("0x202", 40)), None);
        assert_eq!(
            said(&control("0x202", 39)).as_deref(),
            Some("control 0x202 with 39 bytes where 40 are known")
        );
        assert_eq!(
            said(&control("0x2ff", 4)).as_deref(),
            Some("control 0x2ff, 4 bytes")
        );
        // To the firmware: the size is not known, but which.
        assert_eq!(said(&control("0x20808165", 1)), None);
        assert_eq!(
            said(&control("0x20808777", 1)).as_deref(),
            Some("control 0x20808777, 1 bytes")
        );
        let class = |cmd: &str| {
            json!({
                "op": "ioctl", "path": "/dev/nvidiactl", "req": "0xc030462b",
                "kind": "alloc", "cmd": cmd
            })
        };
        assert_eq!(said(&class("0x40")), None);
        assert_eq!(said(&class("0xf9")).as_deref(), Some("class 0xf9"));
        let other = |path: &str, req: &str| json!({ "op": "ioctl", "path": path, "req": req });
        assert_eq!(
            said(&other("/dev/nvidia-uvm", "0x7fff")).as_deref(),
            Some("UVM request 0x7fff")
        );
        assert_eq!(
            said(&other("/dev/nvidiactl", "0xc01046ee")).as_deref(),
            Some("escape 0xee of 16 bytes")
        );
    }

    #[test]
    fn capabilities_are_read_from_words() {
        let both = capabilities("graphics,compute").expect("both are there");
        assert_eq!(both.to_string(), "compute,graphics");
        assert_eq!(capabilities("compute,compute"), capabilities("compute"));
        assert!(capabilities("display").is_err() && capabilities("").is_err());
    }
}
