// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `cgpu-hook`: instances from a container's own settings, for the container's life.
//!
//! A runtime calls it by the rules of OCI (runtime-spec: `config.md`, POSIX-platform Hooks), with
//! the container's state on stdin:
//!
//! * `createRuntime`, when the container's namespaces and its root's mounts are there and nothing
//!   has run in it: if its environment asks for memory of a GPU ([`settings`]), the instance is
//!   made, the proxy nodes are mounted into it, its device cgroup is opened for them, and
//!   `/proc/driver/nvidia` is masked.
//!   A container of a pod of Kubernetes is left as it is, unless the call says `--pods`: claims and
//!   quotas decide there.
//! * `poststop`, when the container is gone: the instance is removed.
//! * `createContainer`, as the CDI file says it: only the mask.
//!
//! Every call first removes the instances of containers that are gone without a `poststop`, which a
//! journal in `/run` tells. Nothing of NVIDIA's is called or replaced.

pub(crate) mod bundle;
pub(crate) mod devices;
pub mod journal;
mod mask;
mod root;
pub mod settings;
mod systemd;

use crate::{
    cdi::Tenant,
    command::{
        effect::{self, NewTerms},
        inst_create::{create_all, request},
        target::tenant,
    },
    container::{self, Mount},
    control::Control,
    error::{Facts, Failure, Problem},
    exit::Exit,
    host::{Host, PathError},
    installation::{find, lists::Capability},
    size::Bytes,
};
use bundle::{instance_name, Config, ContainerState};
use cgpu_uapi::{
    text, Gpu, Instance, InstanceCreate, InstanceGet, InstanceKey, Name, Priority, BURST_OF_GPU,
    NAME_RULE,
};
use clap::{Parser, Subcommand};
use journal::{began, Journal, JournalEntry};
use nix::{
    errno::Errno,
    sched::{setns, CloneFlags},
};
use root::{Kind, Root};
use settings::{wish, Environment, Wish};
use std::{
    fs::File,
    io::{Read, Write},
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};
use zerocopy::FromZeros;

/// Give containers instances as their environment asks: called by podman, crun, runc and CRI-O.
///
/// A container whose environment has CGPU_MEM, cGPU's ALIYUN_COM_GPU_MEM_DEV and _CONTAINER, or
/// HAMi's CUDA_DEVICE_MEMORY_LIMIT gets an instance when it is made, and loses it when it is gone.
/// NVIDIA_VISIBLE_DEVICES says on which GPUs.
#[derive(Parser)]
#[command(name = "cgpu-hook", version, max_term_width = 100)]
pub struct Arguments {
    /// At which point of the container's life.
    #[command(subcommand)]
    pub point: Point,
}

/// When a runtime calls.
#[derive(Subcommand)]
pub enum Point {
    /// Make the container's instance and put it in; the state is read from stdin.
    CreateRuntime {
        /// Also for containers of Kubernetes. Otherwise a pod gets a GPU by a claim alone.
        #[arg(long)]
        pods: bool,
    },
    /// Remove the container's instance; the state is read from stdin.
    Poststop,
    /// Show the container only these GPUs in /proc/driver/nvidia; the state is read from stdin.
    MaskProc {
        /// PCI address of a GPU that stays visible.
        #[arg(long = "gpu", value_name = "PCI")]
        gpus: Vec<String>,
    },
    /// Remove the instances of containers that are gone; runtimes need not call it.
    Collect,
}

/// How often more, and how long in between, an instance is tried to be removed whose files are
/// being closed.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// Runs the hook; what is wrong goes to `err`, which the runtime shows.
pub fn run(
    arguments: &Arguments,
    host: &dyn Host,
    input: &mut dyn Read,
    err: &mut dyn Write,
) -> Exit {
    let done = match &arguments.point {
        Point::CreateRuntime { pods } => create_runtime(host, *pods, input, err),
        Point::Poststop => poststop(host, input, err),
        Point::MaskProc { gpus } => mask_proc(input, gpus),
        Point::Collect => collect(host, err),
    };
    match done {
        Ok(()) => Exit::Done,
        Err(Failed { what, exit }) => {
            // Nobody is left to tell it to if stderr is closed.
            let _ = writeln!(err, "cgpu-hook: {what}");
            exit
        }
    }
}

/// Why a hook failed.
struct Failed {
    what: String,
    exit: Exit,
}

impl Failed {
    fn new(container: &str, why: impl std::fmt::Display, exit: Exit) -> Self {
        Self {
            what: format!("container {}: {why}", instance_name(container)),
            exit,
        }
    }

    fn problem(container: &str, problem: &Problem) -> Self {
        // Without root, an engine's containers are a user's: no instance can be made for them.
        if matches!(problem, Problem::NotPermitted) {
            let why =
                "its engine runs without the host's root, which instances need; run it with sudo, \
                       or take the memory setting out of its environment";
            return Self::new(container, why, problem.exit());
        }
        Self::new(container, problem, problem.exit())
    }
}

fn state(input: &mut dyn Read) -> Result<ContainerState, Failed> {
    bundle::state(input).map_err(|what| Failed {
        what,
        exit: Exit::Usage,
    })
}

fn create_runtime(
    host: &dyn Host,
    pods: bool,
    input: &mut dyn Read,
    err: &mut dyn Write,
) -> Result<(), Failed> {
    let state = state(input)?;
    let config = state
        .config()
        .map_err(|why| Failed::new(&state.id, why, Exit::Failed))?;
    // An image's environment adds nothing to what the operator has given.
    if !Environment(config.environment()).asks() || config.has_instance() {
        return Ok(());
    }
    // CRI-O calls the hook for every pod, and a pod's environment is its user's.
    if config.is_of_pod() && !pods {
        return Ok(());
    }
    // Also where no GPU is named: NVIDIA's own CDI devices say so, and are the real ones.
    let refused = |why| Failed::new(&state.id, why, Exit::Refused);
    if let Some(why) = config.way_around() {
        return Err(refused(why));
    }
    let problem = |problem: &Problem| Failed::problem(&state.id, problem);
    let control = host
        .control()
        .map_err(|errno| problem(&Problem::open(errno)))?;
    let gpus = control
        .gpus()
        .map_err(|errno| problem(&Problem::explain(errno, &Facts::default())))?;
    if let Some(why) = devices::loose_group(host.look(), state.pid, &gpus) {
        return Err(refused(why));
    }
    let wish = match wish(Environment(config.environment()), &gpus) {
        Ok(Some(wish)) => wish,
        Ok(None) => return Ok(()),
        Err(bad) => return Err(Failed::new(&state.id, bad, Exit::Usage)),
    };
    let name = instance_name(&state.id);
    let name = Name::new(name).ok_or_else(|| {
        let why = format!("{name:?} cannot be an instance's name: {NAME_RULE}");
        Failed::new(&state.id, why, Exit::Usage)
    })?;
    let journal = open_journal(host).map_err(|e| problem(&e.into()))?;
    remove_gone(&*control, &journal, Busy::Unsaid, err);
    // Before the name is written down as this container's: what has it now is somebody else's.
    if !matches!(
        tenant(&*control, &name),
        Err(Problem::NoSuchInstance { .. })
    ) {
        return Err(problem(&Problem::NameTaken));
    }
    host.mount_cgpufs().map_err(|e| problem(&e.into()))?;
    let mut entry = entry(&state, &wish, &name);
    journal.add(&entry).map_err(|e| problem(&e.into()))?;
    let made = make(
        &*control,
        &journal,
        &mut entry,
        requests(&wish, name),
        wish.host_mem,
    )
    .map_err(|failure| Failed::new(&state.id, &failure, failure.problem.exit()))
    .inspect(|()| tell(&*control, &wish, &state.id, err))
    .and_then(|()| give(host, &*control, &state, &config, &gpus, name));
    if made.is_err() && remove(&*control, &entry, TRIES).is_ok() {
        // The journal finds the rest of it.
        let _ = journal.strike(&entry.container);
    }
    if let Some(why) = made? {
        let warned = Failed::new(&state.id, why, Exit::Done);
        let _ = writeln!(err, "cgpu-hook: {}", warned.what);
    }
    Ok(())
}

/// Makes the instances of an entry and writes their numbers down.
fn make(
    control: &dyn Control,
    journal: &Journal,
    entry: &mut JournalEntry,
    requests: Vec<InstanceCreate>,
    host_mem: Option<u64>,
) -> Result<(), Failure> {
    let made = create_all(control, requests, host_mem).inspect_err(|failure| {
        if failure.problem == Problem::NameTaken || failure.aftermath.is_none() {
            // Nothing was made or left, and what has the name by now is somebody else's.
            entry.ids = Some(vec![]);
        }
    })?;
    entry.ids = Some(made.iter().map(|request| request.id).collect());
    Ok(journal.add(entry)?)
}

/// The entry of a container whose instances are about to be made.
fn entry(state: &ContainerState, wish: &Wish, name: &Name) -> JournalEntry {
    JournalEntry {
        container: state.id.clone(),
        instance: name.as_str().unwrap_or_default().to_owned(),
        gpus: wish.gpus.iter().map(|(minor, _)| *minor).collect(),
        ids: None,
        pid: state.pid,
        began: began(state.pid).unwrap_or_default(),
    }
}

/// The requests for the instances of a wish.
fn requests(wish: &Wish, name: Name) -> Vec<InstanceCreate> {
    let of =
        |&(minor, limit): &(u32, Bytes)| request(InstanceKey::new(name, minor), limit, wish.weight);
    wish.gpus.iter().map(of).collect()
}

/// Warns of effects of a wish that people do not expect.
fn tell(control: &dyn Control, wish: &Wish, container: &str, err: &mut dyn Write) {
    let shared = control.gpu_compute().unwrap_or_default();
    let mut warnings = Vec::new();
    for &(minor, limit) in &wish.gpus {
        let terms = NewTerms {
            limit,
            weight: wish.weight,
            priority: Priority::Normal,
            burst: BURST_OF_GPU,
        };
        let gpu = shared.iter().find(|gpu| gpu.minor == minor);
        let new = effect::of_new(&terms, gpu, "CGPU_WEIGHT");
        warnings.extend(new.into_iter().map(|why| format!("warning: {why}")));
    }
    // Of several GPUs that are alike.
    warnings.dedup();
    for warning in warnings {
        let warned = Failed::new(container, warning, Exit::Done);
        let _ = writeln!(err, "cgpu-hook: {}", warned.what);
    }
}

/// Puts the instance into the container. Tells why that does not last, if so.
fn give(
    host: &dyn Host,
    control: &dyn Control,
    state: &ContainerState,
    config: &Config,
    gpus: &[Gpu],
    name: Name,
) -> Result<Option<String>, Failed> {
    let problem = |problem: Problem| Failed::problem(&state.id, &problem);
    let instances = tenant(control, &name).map_err(problem)?;
    let tenant = Tenant { name, instances };
    enter(host, state, config, gpus, &tenant).map_err(|e| problem(e.into()))
}

/// Opens the container for its instance, and tells why that does not last, if so. After this the
/// process is in the container's mount namespace.
fn enter(
    host: &dyn Host,
    state: &ContainerState,
    config: &Config,
    gpus: &[Gpu],
    tenant: &Tenant,
) -> Result<Option<String>, PathError> {
    let name = tenant.name.as_str().unwrap_or_default();
    let nodes = container::host_nodes(name, &tenant.instances);
    let take = |mounts: Vec<Mount>| -> Result<Vec<_>, PathError> {
        let taken = mounts.into_iter().map(|mount| {
            let loose = root::loose(Path::new(&mount.source))?;
            Ok((loose, mount.destination))
        });
        taken.collect()
    };
    let proxy_nodes = take(container::proxy_nodes(name, &tenant.instances))?;
    let libraries = take(libraries(host)?)?;
    let mask = mask::make(&addresses(gpus, &tenant.instances))?;
    let fleeting = devices::allow(state.pid, &nodes)?;

    let namespace = PathBuf::from(format!("/proc/{}/ns/mnt", state.pid));
    let file = File::open(&namespace).map_err(PathError::on("opening", &namespace))?;
    setns(file, CloneFlags::CLONE_NEWNS).map_err(PathError::on("entering", &namespace))?;
    let root = Root::open(&state.root(config))?;
    for (mount, place) in &proxy_nodes {
        root.put(mount, Path::new(place), Kind::File)?;
    }
    for (mount, place) in &libraries {
        // An image may bring files of its own; they stay.
        if !root.has(Path::new(place)) {
            root.put(mount, Path::new(place), Kind::File)?;
        }
    }
    mask.map_or(Ok(()), |mask| mask::put(&mask, &root))?;
    Ok(fleeting)
}

/// The driver's libraries and programs, as the CDI file has them by default.
fn libraries(host: &dyn Host) -> Result<Vec<Mount>, PathError> {
    let version = host.control().and_then(|control| control.version());
    let Ok(version) = version else {
        return Ok(vec![]);
    };
    let root = Path::new("/");
    let wanted = [Capability::Compute, Capability::Utility];
    let found = find(&host.path(root), text(&version.driver), &wanted)?;
    Ok(container::libraries(root, None, &found))
}

fn addresses(gpus: &[Gpu], instances: &[Instance]) -> Vec<String> {
    instances
        .iter()
        .filter_map(|i| gpus.iter().find(|gpu| gpu.minor == i.key.gpu_minor))
        .map(|gpu| text(&gpu.pci).to_owned())
        .collect()
}

fn poststop(host: &dyn Host, input: &mut dyn Read, err: &mut dyn Write) -> Result<(), Failed> {
    let state = state(input)?;
    let problem = |problem: Problem| Failed::problem(&state.id, &problem);
    if !host.path(Path::new(journal::FOLDER)).exists() {
        // No container ever had an instance of ours; that is all there is to see without root, too.
        return Ok(());
    }
    let mut tries = 0;
    let (journal, entry) = loop {
        let journal = open_journal(host).map_err(|e| problem(e.into()))?;
        let entries = journal.entries();
        match entries.into_iter().find(|e| e.container == state.id) {
            None => return Ok(()),
            Some(entry) if !entry.lives() => break (journal, entry),
            // Another engine has a container of this id, and it goes on.
            Some(_) if tries == TRIES => return Ok(()),
            Some(_) => tries += 1,
        }
        drop(journal);
        sleep(PAUSE);
    };
    let entry = &entry;
    let control = match host.control() {
        // The instances went with the module.
        Err(errno) if matches!(Problem::open(errno), Problem::NotLoaded) => None,
        control => Some(control.map_err(|errno| problem(Problem::open(errno)))?),
    };
    if let Some(control) = &control {
        remove(&**control, entry, TRIES).map_err(problem)?;
    }
    journal
        .strike(&entry.container)
        .map_err(|e| problem(e.into()))?;
    if let Some(control) = &control {
        remove_gone(&**control, &journal, Busy::Unsaid, err);
    }
    Ok(())
}

fn mask_proc(input: &mut dyn Read, gpus: &[String]) -> Result<(), Failed> {
    let state = state(input)?;
    let config = state
        .config()
        .map_err(|why| Failed::new(&state.id, why, Exit::Failed))?;
    let masked = mask::make(gpus).and_then(|mask| match mask {
        Some(mask) => mask::put(&mask, &Root::open(&state.root(&config))?),
        None => Ok(()),
    });
    masked.map_err(|e| Failed::problem(&state.id, &e.into()))
}

fn collect(host: &dyn Host, err: &mut dyn Write) -> Result<(), Failed> {
    let failed = |problem: Problem| Failed {
        what: problem.to_string(),
        exit: problem.exit(),
    };
    let control = host
        .control()
        .map_err(|errno| failed(Problem::open(errno)))?;
    let journal = open_journal(host).map_err(|e| failed(e.into()))?;
    remove_gone(&*control, &journal, Busy::Said, err);
    Ok(())
}

fn open_journal(host: &dyn Host) -> Result<Journal, PathError> {
    Journal::open(&host.path(Path::new(journal::FOLDER)))
}

/// An instance that goes with this process.
pub(crate) struct Lent(JournalEntry);

/// Makes an instance for this process. If the process ends without giving it back, the next hook
/// removes it, as that of a container.
pub(crate) fn lend(
    host: &dyn Host,
    control: &dyn Control,
    requests: Vec<InstanceCreate>,
    host_mem: Option<u64>,
) -> Result<Lent, Failure> {
    let journal = open_journal(host)?;
    remove_gone(control, &journal, Busy::Unsaid, &mut std::io::sink());
    let pid = nix::unistd::getpid().as_raw();
    let name = requests.first().map(|request| request.key.name);
    let name = name.ok_or(Problem::NoInstances)?;
    // Before the name is written down as this process's: what has it now is somebody else's.
    if !matches!(tenant(control, &name), Err(Problem::NoSuchInstance { .. })) {
        return Err(Problem::NameTaken.into());
    }
    let mut entry = JournalEntry {
        container: format!("process-{pid}"),
        instance: name.as_str().unwrap_or_default().to_owned(),
        gpus: requests.iter().map(|r| r.key.gpu_minor).collect(),
        ids: None,
        pid,
        began: began(pid).unwrap_or_default(),
    };
    journal.add(&entry)?;
    if let Err(failure) = make(control, &journal, &mut entry, requests, host_mem) {
        if remove(control, &entry, TRIES).is_ok() {
            journal.strike(&entry.container)?;
        }
        return Err(failure);
    }
    Ok(Lent(entry))
}

impl Lent {
    /// Removes the instance.
    pub(crate) fn take_back(&self, host: &dyn Host, control: &dyn Control) -> Result<(), Problem> {
        let journal = open_journal(host)?;
        remove(control, &self.0, TRIES)?;
        Ok(journal.strike(&self.0.container)?)
    }
}

/// Whether it is told that an instance is still in use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Busy {
    Said,
    /// The end of the container itself has said it.
    Unsaid,
}

/// Removes the instances of containers that are gone. One that is still in use stays for the next
/// time: other containers wait for the journal meanwhile, so none is waited for.
fn remove_gone(control: &dyn Control, journal: &Journal, busy: Busy, err: &mut dyn Write) {
    for entry in journal.entries() {
        if entry.lives() {
            continue;
        }
        let removed = match remove(control, &entry, 0) {
            Err(Problem::Busy { .. }) if busy == Busy::Unsaid => continue,
            removed => removed
                .and_then(|()| Ok(journal.strike(&entry.container)?))
                .map_err(|problem| problem.to_string()),
        };
        if let Err(why) = removed {
            let gone = Failed::new(
                &entry.container,
                format!("it is gone, but {why}"),
                Exit::Failed,
            );
            let _ = writeln!(err, "cgpu-hook: {}", gone.what);
        }
    }
}

/// Removes an instance from all its GPUs; tries so often more where it is in use.
fn remove(control: &dyn Control, entry: &JournalEntry, more: u32) -> Result<(), Problem> {
    let Some(name) = Name::new(&entry.instance) else {
        return Ok(());
    };
    for (minor, id) in entry.instances() {
        let key = InstanceKey::new(name, minor);
        if id.is_some_and(|id| is_another(control, key, id)) {
            continue;
        }
        let mut tries = 0;
        loop {
            match control.destroy(&key) {
                Ok(()) | Err(Errno::ENOENT | Errno::ENXIO) => break,
                // The kernel closes the files of a process that was killed a little later.
                Err(Errno::EBUSY) if tries < more => {
                    tries += 1;
                    sleep(PAUSE);
                }
                Err(errno) => {
                    let facts = Facts::about(control, &name, Some(minor));
                    return Err(Problem::explain(errno, &facts));
                }
            }
        }
    }
    Ok(())
}

/// Whether the name has gone to another instance since.
fn is_another(control: &dyn Control, key: InstanceKey, id: u32) -> bool {
    let mut request = InstanceGet::new_zeroed();
    request.key = key;
    control.get(&mut request).is_ok() && request.instance.id != id
}
