// SPDX-License-Identifier: GPL-2.0
//! A million steps through the whole pipeline, against a driver that is a few lists.
//!
//! Several tenants, processes that fork, pass files on, put memory behind descriptors and are
//! killed in the middle of calls, a driver that refuses, fails and makes things without being able
//! to say so, accounting that gets no memory, limits that change: whatever the order, the driver
//! never has more for a tenant than is charged, nor more than its limit allows, and at the end
//! nothing is left. Where one call comes after the other, the accounting has what there is, byte
//! for byte. Where threads of the program write over the driver's results, the accounting may say
//! more, never less.
//!
//! The driver knows whose each page of video memory is. Files show pages, and are mapped, late or
//! not, inherited, passed on, and closed while they are mapped. After each step no page that can be
//! reached by a tenant's file is free or another tenant's. Nor is a channel's control page.
//!
//! A step is a number, and all that it does comes from that number and from what there is. A world
//! is a kind and a list of steps. `STORM_STEPS` says how many steps are made (1,000,000),
//! `STORM_SEED` with which number they begin; it is printed. A failure is shrunk to few steps, and
//! printed as a line for `storm/corpus.txt`, whose worlds are run first.

mod calls;
mod crew;
mod machine;
mod pages;
mod scale;
mod world;

use super::*;
use crate::store::failing;
use calls::{
    enveloped,
    Sense,
    StormRequest, //
};
use crew::{
    Flight,
    Pause, //
};
use machine::{
    Met,
    Task, //
};
use scale::{
    Rng,
    GPUS,
    TENANTS, //
};
use std::{
    io::Write,
    panic::{
        catch_unwind,
        AssertUnwindSafe, //
    },
    sync::{
        Arc,
        Mutex,
        MutexGuard,
        PoisonError, //
    }, //
};
use world::{
    StormKind,
    World,
    LIMIT, //
};

const STEPS: u64 = 1_000_000;
/// Steps of a world.
const LENGTH: u64 = 2_000;
const PROCESSES: usize = 6;
const FLIGHTS: usize = 6;

/// A program inside a call.
struct StormCaller<'a> {
    world: &'a Mutex<World>,
    pause: Option<&'a Pause>,
    task: Task,
    blocks: BTreeMap<u64, Vec<u8>>,
    rng: Rng,
    forwarded: u32,
    /// Files that the call has taken hold of.
    held: Vec<u64>,
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    // A failed assertion of another thread has been noticed already.
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StormCaller<'_> {
    fn block(&mut self, at: u64, len: usize) -> Result<&mut [u8], Errno> {
        let block = self.blocks.range_mut(..=at).next_back();
        let (base, block) = block.ok_or(Errno::EFAULT)?;
        let offset = usize::try_from(at - base).map_err(|_| Errno::EFAULT)?;
        let rest = block.get_mut(offset..).ok_or(Errno::EFAULT)?;
        rest.get_mut(..len).ok_or(Errno::EFAULT)
    }

    fn stop(&mut self) {
        if let Some(pause) = self.pause {
            pause.stop();
        }
    }
}

impl Host for StormCaller<'_> {
    fn forward_on(&mut self, _: FileId, _: u32, _: &mut [Part<'_>]) -> Returned {
        // Nobody has managed memory here, about which such calls are.
        Err(Errno::EBADF)
    }

    fn end_mappings(&mut self, file: FileId) {
        lock(self.world).machine.end_mappings(file.0);
    }

    /// Nothing here lasts as long as a second.
    fn uptime_s(&self) -> u64 {
        0
    }

    fn tables(&self) -> &'static Tables {
        Tables::of(Branch::R580).expect("the branch of the recordings")
    }

    fn gpu_by_uuid(&self, uuid: &[u8; 16]) -> Option<GpuId> {
        let own = |&gpu: &usize| World::has_share(self.task.tenant, gpu);
        let gpu = (0..GPUS)
            .filter(own)
            .find(|&gpu| machine::uuid(gpu) == *uuid)?;
        u32::try_from(gpu).ok().map(GpuId)
    }

    fn gpu_by_id(&self, _: u32) -> Option<GpuId> {
        None
    }

    fn card(&self, _: usize) -> Option<Card> {
        None
    }

    fn accounting<R>(&mut self, work: impl FnOnce(&mut Accounting) -> R) -> R {
        work(&mut lock(self.world).tenants[self.task.tenant].accounting)
    }
}

impl Call for StormCaller<'_> {
    type Held = Session;

    /// A descriptor is the number of its file.
    fn hold(&mut self, descriptor: i32) -> Option<Session> {
        let number = u64::try_from(descriptor).ok()?;
        let session = lock(self.world).hold(number, self.task.tenant)?;
        self.held.push(number);
        Some(session)
    }

    fn read(&mut self, from: UserAddr, into: &mut [u8]) -> Result<(), Errno> {
        let block = self.block(from.0, into.len())?;
        into.copy_from_slice(block);
        Ok(())
    }

    fn write(&mut self, to: UserAddr, from: &[u8]) -> Result<(), Errno> {
        self.block(to.0, from.len())?.copy_from_slice(from);
        Ok(())
    }

    fn forward(&mut self, request: u32, parts: &mut [Part<'_>], route: Route) -> Returned {
        self.stop();
        let first = self.forwarded == 0;
        self.forwarded += 1;
        let (task, rng) = (&self.task, &mut self.rng);
        let answer = whole(parts, |parts| {
            lock(self.world).forward(task, request, parts, route, first, rng)
        });
        self.stop();
        answer
    }

    fn unmap(&mut self, _: u64, _: u64) {}

    fn process(&self) -> ProcessId {
        ProcessId(self.task.process)
    }

    fn process_by_number(&self, _: u32) -> Option<ProcessId> {
        None
    }
}

/// A world in which steps are made.
struct Storm {
    world: Arc<Mutex<World>>,
    flights: Vec<Flight>,
}

impl Storm {
    fn new(kind: StormKind) -> Self {
        Self {
            world: Arc::new(Mutex::new(World::new(kind))),
            flights: Vec::new(),
        }
    }

    fn take(&mut self, step: u64) {
        let mut rng = Rng(step);
        let what = rng.below(128);
        if what < 16 && !self.flights.is_empty() {
            // Mostly the latest goes on, so that a few stand still while much happens.
            let last = self.flights.len() - 1;
            let at = if what % 4 == 0 {
                rng.index(last + 1)
            } else {
                last
            };
            let flight = self.flights.swap_remove(at);
            self.flights.extend(flight.go_on());
            return;
        }
        let mut world = lock(&self.world);
        let alive: Vec<i32> = world
            .processes
            .iter()
            .filter(|(_, process)| process.alive)
            .map(|(&id, _)| id)
            .collect();
        let Some(&process) = rng.pick(&alive) else {
            return world.spawn(rng.index(TENANTS), Vec::new(), Vec::new());
        };
        let of = &world.processes[&process];
        let (tenant, files) = (of.tenant, of.files.clone());
        let file = rng.pick(&files).copied();
        match (what, file) {
            (16, _) if alive.len() < PROCESSES => {
                world.spawn(rng.index(TENANTS), Vec::new(), Vec::new());
            }
            (17, _) if alive.len() < PROCESSES => {
                let mapped = world.processes[&process].mapped.clone();
                world.spawn(tenant, files, mapped);
            }
            (18, _) if rng.below(4) == 0 => world.kill(process),
            (19, Some(file)) => world.pass(file, *rng.pick(&alive).expect("one")),
            (20, Some(file)) if rng.below(4) == 0 => world.close(process, file),
            (21..=22, _) => {
                let limit = match rng.below(4) {
                    0 => rng.below(LIMIT),
                    _ => LIMIT,
                };
                world.set_limit(rng.index(TENANTS), rng.index(GPUS), limit);
            }
            (26..=28, Some(file)) => {
                // Mostly one that shows something, or has.
                let fit = |file: &&u64| world.machine.can_be_mapped(**file).is_some();
                let shown: Vec<u64> = files.iter().filter(fit).copied().collect();
                world.map(process, *rng.pick(&shown).unwrap_or(&file));
            }
            (29, _) => world.unmap(process),
            (23..=25, _) | (_, None) if files.len() < 4 => {
                let gpu = rng.index(GPUS);
                let gpu = Some(gpu).filter(|&gpu| World::has_share(tenant, gpu));
                match rng.below(6) {
                    0..=1 => world.open(process, true, None),
                    2..=3 => world.open(process, false, gpu),
                    _ => world.open(process, false, None),
                }
            }
            (_, Some(file)) if world.files[&file].gpu.is_some() => world.map(process, file),
            (_, Some(file)) => {
                let of = &world.files[&file];
                let (tenant, uvm) = (of.tenant, of.uvm);
                let mut request = if uvm {
                    world.uvm(tenant, file, &mut rng)
                } else {
                    world.escape(file, &mut rng)
                };
                if !uvm && rng.below(16) == 0 {
                    request = enveloped(request);
                }
                let task = Task {
                    tenant,
                    file,
                    uvm,
                    process,
                };
                let later = world.kind != StormKind::Exact && rng.below(6) == 0;
                world.enter(&task);
                drop(world);
                if later && self.flights.len() < FLIGHTS {
                    self.fly(task, request, rng);
                } else {
                    self.call(task, request, rng);
                }
            }
            (_, None) => {}
        }
    }

    /// A call that goes through, now and then with too little memory for the accounting.
    fn call(&mut self, task: Task, request: StormRequest, mut rng: Rng) {
        let hunger = (rng.below(48) == 0).then(|| u32::try_from(rng.below(8)).expect("small"));
        let mut caller = StormCaller {
            world: &self.world,
            pause: None,
            task,
            blocks: request.blocks,
            rng,
            forwarded: 0,
            held: Vec::new(),
        };
        let session = session(&task);
        let argument = UserAddr(request.argument);
        let mut run = || ioctl(&mut caller, &session, request.code, argument);
        let (returned, hungry) = match hunger {
            None => (run(), false),
            Some(granted) => failing::after(granted, run),
        };
        let (blocks, forwarded) = (caller.blocks, caller.forwarded > 0);
        let held = caller.held;
        let mut world = lock(&self.world);
        world.let_go(&held);
        if hungry {
            world.machine.met.note("no memory for the accounting");
        }
        let refused = matches!(request.sense, Sense::Makes { status_at, .. }
            if get32(&blocks[&OUTER], status_at) == NvStatus::NV_ERR_NO_MEMORY.0);
        if returned == Ok(0) && refused && !forwarded && !hungry {
            world.machine.met.note("beyond the limit");
        }
        let is_kept = request.code == NV_ESC_RM_FREE
            && get32(&blocks[&OUTER], 12) == NvStatus::NV_ERR_IN_USE.0;
        if is_kept && !forwarded {
            world.machine.met.note("a channel keeps its memory");
        }
        if returned == Ok(0) && !hungry && world.kind != StormKind::Hostile {
            check(&world, &task, request.sense, &blocks, forwarded);
        }
        world.leave(&task);
    }

    fn fly(&mut self, task: Task, request: StormRequest, rng: Rng) {
        let world = Arc::clone(&self.world);
        lock(&world).machine.met.note("stands still in a call");
        self.flights.extend(Flight::start(move |pause| {
            let mut caller = StormCaller {
                world: &world,
                pause: Some(pause),
                task,
                blocks: request.blocks,
                rng,
                forwarded: 0,
                held: Vec::new(),
            };
            let argument = UserAddr(request.argument);
            let _ = ioctl(&mut caller, &session(&task), request.code, argument);
            let held = caller.held;
            lock(&world).let_go(&held);
            lock(&world).leave(&task);
        }));
    }

    fn finish(mut self) -> Met {
        while let Some(flight) = self.flights.pop() {
            self.flights.extend(flight.go_on());
            lock(&self.world).compare();
        }
        let mut world = lock(&self.world);
        world.finish();
        world.machine.met.clone()
    }
}

fn session(task: &Task) -> Session {
    Session {
        file: FileId(task.file),
        role: if task.uvm { Role::Uvm } else { Role::Control },
    }
}

/// Compares a program's answer with the machine.
fn check(
    world: &World,
    task: &Task,
    sense: Sense,
    blocks: &BTreeMap<u64, Vec<u8>>,
    forwarded: bool,
) {
    let outer = &blocks[&OUTER];
    let gpu_of = |client, object| {
        let object = world.machine.objects.get(&(client, object))?;
        object.gpu.filter(|&gpu| World::has_share(task.tenant, gpu))
    };
    match sense {
        Sense::Makes {
            client,
            parent,
            handle_at,
            status_at,
            bytes,
        } => {
            let status = get32(outer, status_at);
            let key = (client, get32(outer, handle_at));
            if status == 0 {
                assert!(world.machine.objects.contains_key(&key), "made: {key:x?}");
            } else if status == NvStatus::NV_ERR_NO_MEMORY.0 && !forwarded {
                let gpu = gpu_of(client, parent).expect("refused by a share");
                let left = world.left(task.tenant, gpu);
                assert!(bytes > left, "{bytes} refused with {left} left");
            }
        }
        Sense::Tells { client, object } if get32(outer, 28) == 0 => {
            if let Some(gpu) = gpu_of(client, object) {
                let told = |at| u64::from(get32(&blocks[&PARAMS], at)) << 10;
                let limit = world.tenants[task.tenant].limit[gpu];
                let kib = |bytes: u64| bytes >> 10 << 10;
                assert_eq!(told(8), kib(world.left(task.tenant, gpu)), "free");
                assert_eq!(told(16), kib(limit), "total");
            }
        }
        Sense::Tells { .. } | Sense::Nothing => {}
    }
}

/// Makes the steps, and says what was met; a failed assertion is a panic.
fn run(kind: StormKind, steps: &[u64]) -> Met {
    let mut storm = Storm::new(kind);
    for (number, &step) in steps.iter().enumerate() {
        storm.take(step);
        let mut world = lock(&storm.world);
        world.compare();
        if number % 64 == 0 {
            world.compare_processes();
        }
    }
    storm.finish()
}

fn attempt(kind: StormKind, steps: &[u64]) -> Option<Met> {
    catch_unwind(AssertUnwindSafe(|| run(kind, steps))).ok()
}

/// Leaves steps out, as long as it fails without them.
fn shrunk(kind: StormKind, mut steps: Vec<u64>) -> Vec<u64> {
    let mut piece = steps.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut less = steps.clone();
            less.drain(at..(at + piece).min(less.len()));
            if attempt(kind, &less).is_none() {
                steps = less;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    steps
}

/// Runs a world, and says how to run it again if it fails.
fn run_or_shrink(kind: StormKind, steps: Vec<u64>, origin: &str) -> Met {
    if let Some(met) = attempt(kind, &steps) {
        return met;
    }
    let steps = shrunk(kind, steps);
    let line: Vec<String> = steps.iter().map(|step| format!("{step:016x}")).collect();
    eprintln!(
        "{origin} fails; for storm/corpus.txt:\n{kind:?} {}",
        line.join(" ")
    );
    run(kind, &steps);
    unreachable!("it failed a moment ago");
}

/// Events that must occur in every fifty thousand steps.
const MEETS: [&str; 28] = [
    "shown",
    "video memory is shown",
    "mapped",
    "mapped too late",
    "mapped and open no more",
    "a mapping is inherited",
    "a mapping ends",
    "memory is given",
    "memory is shared",
    "a channel is made",
    "a channel has a control page",
    "a channel keeps its memory",
    "a channel is registered",
    "a channel goes with its registration",
    "memory goes with its mapping",
    "page tables are taken",
    "put behind a descriptor",
    "taken from behind a descriptor",
    "beyond the limit",
    "limit below what is taken",
    "refused by the driver",
    "fails in the driver",
    "does not reach the driver",
    "done and not told",
    "no memory for the accounting",
    "stands still in a call",
    "killed in a call",
    "results are forged",
];

const KINDS: [StormKind; 3] = [StormKind::Exact, StormKind::Loose, StormKind::Hostile];

#[test]
fn the_worlds_of_the_corpus_hold() {
    let lines = include_str!("storm/corpus.txt").lines();
    let lines = lines.filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let mut worlds = 0;
    for line in lines {
        let mut words = line.split_whitespace();
        let kind = words.next().expect("a kind");
        let kind = KINDS.into_iter().find(|known| format!("{known:?}") == kind);
        let kind = kind.expect("Exact, Loose or Hostile");
        let steps = words.map(|word| u64::from_str_radix(word, 16).expect("a number"));
        run(kind, &steps.collect::<Vec<_>>());
        worlds += 1;
    }
    assert!(worlds > 0, "the corpus is empty");
}

#[test]
fn million_steps_are_charged_and_credited() {
    let number = |name: &str| {
        let said = std::env::var(name).ok()?;
        let digits = said.trim_start_matches("0x");
        let radix = if digits.len() < said.len() { 16 } else { 10 };
        Some(u64::from_str_radix(digits, radix).expect("a number"))
    };
    let steps = number("STORM_STEPS").unwrap_or(STEPS);
    let seed = number("STORM_SEED").unwrap_or_else(|| {
        use std::hash::{
            BuildHasher,
            Hasher, //
        };
        std::hash::RandomState::new().build_hasher().finish()
    });
    // Past the harness, which keeps what a passing test prints.
    let _ = writeln!(
        std::io::stderr(),
        "storm: {steps} steps, STORM_SEED={seed:#x}"
    );
    let mut rng = Rng(seed);
    let mut met = Met::default();
    for number in 0..steps.div_ceil(LENGTH) {
        let kind = KINDS[usize::try_from(number % 3).expect("small")];
        let steps = (0..LENGTH).map(|_| rng.next()).collect();
        met.add(&run_or_shrink(
            kind,
            steps,
            &format!("world {number} of STORM_SEED={seed:#x}"),
        ));
    }
    let _ = writeln!(std::io::stderr(), "storm: {met:?}");
    for what in MEETS {
        let times = met.times(what);
        assert!(
            times >= steps / 50_000,
            "{what}: {times} times in {steps} steps"
        );
    }
}
