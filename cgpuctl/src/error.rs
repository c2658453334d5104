// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Errors, each a sentence: what was attempted, on what, why it did not work, what to do.
//!
//! The kernel speaks in errno values, each of which stands for one [`Cause`]; a [`Problem`] is that
//! cause with the facts that make it a useful sentence. [`Problem::slug`] is the word by which a
//! program recognizes it in the JSON output, [`Problem::exit`] the code by which a script does.

mod ending;

use crate::{
    capabilities::known, control::Control, exit::Exit, host::PathError, selector::Selector,
    size::Bytes, text::enumerate,
};
use cgpu_uapi::{
    Cause, Gpu, Instance, Name, CHANNELS_MAX, CONTROL_PATH, MAX_INSTANCES_PER_GPU, NAME_RULE,
    WEIGHT_MAX,
};
use nix::errno::Errno;

/// Facts of the host that help to explain an errno; empty where nothing is known.
#[derive(Default)]
pub struct Facts {
    /// Name of the instance that the command was about.
    pub name: String,
    /// Minor of the GPU that it was about.
    pub gpu: Option<u32>,
    /// All GPUs.
    pub gpus: Vec<Gpu>,
    /// All instances.
    pub instances: Vec<Instance>,
}

impl Facts {
    /// Reads the facts; what cannot be read stays unknown.
    pub fn about(control: &dyn Control, name: &Name, gpu: Option<u32>) -> Self {
        Self {
            name: name.as_str().unwrap_or_default().to_owned(),
            gpu,
            gpus: control.gpus().unwrap_or_default(),
            instances: control.instances().unwrap_or_default(),
        }
    }

    fn gpu(&self) -> Option<&Gpu> {
        self.gpus.iter().find(|g| Some(g.minor) == self.gpu)
    }

    fn of_name(&self) -> impl Iterator<Item = &Instance> {
        self.instances
            .iter()
            .filter(|i| i.key.name.as_str() == Some(&self.name))
    }

    fn instance(&self) -> Option<&Instance> {
        self.of_name()
            .find(|i| self.gpu.is_none_or(|minor| i.key.gpu_minor == minor))
    }

    fn gpus_of_name(&self) -> Vec<u32> {
        self.of_name().map(|i| i.key.gpu_minor).collect()
    }

    /// The highest limit for the instance without overcommitting the GPU, and the GPU's memory.
    fn left(&self) -> Option<(Bytes, Bytes)> {
        let gpu = self.gpu()?;
        let own = self.instance().map_or(0, |i| i.memory_limit_bytes);
        let others = gpu.allotted_bytes.saturating_sub(own);
        let left = gpu.memory_bytes.saturating_sub(others);
        Some((Bytes(left), Bytes(gpu.memory_bytes)))
    }
}

/// Why something did not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is no control device.
    #[error(
        "the module cgpu_km is not loaded (there is no {CONTROL_PATH}); load it with `modprobe \
         cgpu_km`"
    )]
    NotLoaded,
    /// [`Cause::NotPermitted`], or the node could not be opened for want of rights.
    #[error(
        "this takes the host's root (CAP_SYS_ADMIN outside every container); run it with sudo"
    )]
    NotPermitted,
    /// [`Cause::NoSuchInstance`].
    #[error("there is no such instance{}; `cgpuctl inst list` shows all", gpus_of(.elsewhere))]
    NoSuchInstance {
        /// GPUs that do have an instance of this name.
        elsewhere: Vec<u32>,
    },
    /// [`Cause::NoSuchGpu`].
    #[error("this host has no {wanted}; {}", gpus_present(.present))]
    NoSuchGpu {
        /// As the user named it: "GPU 2", "GPU at 0000:17:00.0".
        wanted: String,
        /// Minors of the GPUs that there are.
        present: Vec<u32>,
    },
    /// One GPU was named twice.
    #[error("GPU {minor} is named twice; name each GPU once")]
    GpuTwice {
        /// Its minor.
        minor: u32,
    },
    /// [`Cause::Busy`].
    #[error("it is in use{}; stop its programs first", uses(.files, .processes))]
    Busy {
        /// Open files of its nodes.
        files: u32,
        /// Processes that hold memory of it.
        processes: u32,
    },
    /// [`Cause::NameTaken`].
    #[error(
        "the name is taken on this GPU; change that instance with `cgpuctl inst set`, or destroy it \
         first"
    )]
    NameTaken,
    /// [`Cause::DriverMissing`].
    #[error(
        "the NVIDIA driver is not loaded or does not answer; load it (nvidia-smi must work), make \
         /dev/nvidia-uvm with `nvidia-modprobe -u -c 0`, and try again"
    )]
    DriverMissing,
    /// [`Cause::UnknownDriver`].
    #[error(
        "the running NVIDIA driver is of a branch that this version of cgpu_km does not know; \
         install a driver that it knows or a newer cgpu_km"
    )]
    UnknownDriver,
    /// [`Cause::NoKernelInterface`].
    #[error(
        "the NVIDIA driver's interface for other kernel modules cannot be used, and no \
         instance is made without it; `dmesg | grep cgpu_km` says why"
    )]
    NoKernelInterface,
    /// [`Cause::Malformed`], [`Cause::UnknownCommand`].
    #[error(
        "the loaded module does not understand this version of cgpuctl ({errno}); install both \
         from the same release"
    )]
    Mismatch {
        /// The module's answer.
        errno: Errno,
    },
    /// [`Cause::LimitAboveGpu`].
    #[error("the limit is over {}", whole(.memory))]
    LimitAboveGpu {
        /// The GPU's memory, if known.
        memory: Option<Bytes>,
    },
    /// [`Cause::LimitsAboveGpu`].
    #[error(
        "the limits would add up to more than the GPU's memory{}, or pass --overcommit",
        room(.left)
    )]
    LimitsAboveGpu {
        /// The highest limit that can be had, and the GPU's memory, if known.
        left: Option<(Bytes, Bytes)>,
    },
    /// [`Cause::LimitZero`].
    #[error("a limit of zero allows nothing; name a size like 8GiB")]
    LimitZero,
    /// [`Cause::WeightOutOfRange`].
    #[error("the weight is not between 1 and {WEIGHT_MAX}; name one that is")]
    WeightOutOfRange,
    /// [`Cause::ChannelsOutOfRange`].
    #[error("the limit of channels is not between 1 and {CHANNELS_MAX}; name one that is")]
    ChannelsOutOfRange,
    /// [`Cause::ChannelsAboveRunlist`].
    #[error(
        "the limits of channels would add up to more than the {CHANNELS_MAX} of a runlist; lower \
         another instance's first, or pass --overcommit"
    )]
    ChannelsAboveRunlist,
    /// [`Cause::UnknownCapability`].
    #[error(
        "one of the capabilities is not known to the module, or none was named; name some of {}",
        known()
    )]
    UnknownCapability,
    /// [`Cause::WeightsAboveWhole`].
    #[error(
        "the weights {}would add up to more than 100 percent, which the policy fixed cannot \
         give; lower one first, or take the policy weight",
        weights(.all)
    )]
    WeightsAboveWhole {
        /// The weights, if known.
        all: Vec<u32>,
    },
    /// [`Cause::TooManyForPolicy`].
    #[error(
        "there would be more instances than the policy fixed-equal has parts; raise --max-instances or \
         take another policy"
    )]
    TooManyForPolicy,
    /// [`Cause::UnknownPolicy`].
    #[error(
        "the loaded module has no such policy, period, percentage, number of instances or burst; \
         take one that `cgpuctl gpu set --help` lists, and module and cgpuctl from the same \
         release"
    )]
    UnknownPolicy,
    /// `top` cannot use the terminal.
    #[error("the terminal cannot be used: {}; take --once", describe(.errno))]
    Terminal {
        /// Why.
        errno: Errno,
    },
    /// [`Cause::Ambiguous`].
    #[error("{}; name the GPU with --gpu", several(.gpus))]
    Ambiguous {
        /// Minors of the GPUs with an instance of this name.
        gpus: Vec<u32>,
    },
    /// `run` without a GPU.
    #[error("this host has several ({}); name one with --gpu", gpus(.present))]
    WhichGpu {
        /// Minors of the GPUs that there are.
        present: Vec<u32>,
    },
    /// [`Cause::BadName`].
    #[error(
        "the name cannot be used: {}, and some words name files in /proc/cgpu_km; take another",
        NAME_RULE
    )]
    BadName,
    /// [`Cause::TooMany`].
    #[error(
        "the GPU has {MAX_INSTANCES_PER_GPU} instances, so destroy one first, or the module \
         has used up its device numbers, so unload and load it again"
    )]
    TooMany,
    /// An errno that stands for no cause.
    #[error(
        "the kernel answered {}, which cgpuctl does not expect here; the kernel log may say \
         more",
        describe(.errno)
    )]
    Unexpected {
        /// The errno.
        errno: Errno,
    },
    /// A file operation of the host.
    #[error("{} {} failed: {}", .0.action, .0.path.display(), describe(&.0.errno))]
    Path(PathError),
    /// `unload` found instances in use.
    #[error("{} in use; stop the programs first", are(.instances))]
    InstancesInUse {
        /// The instances, as `NAME on GPU N`.
        instances: Vec<String>,
    },
    /// `unload` found proxy nodes mounted elsewhere in this mount namespace.
    #[error("proxy nodes are mounted at {}; unmount them first", enumerate(.paths, "and"))]
    ProxyNodesMounted {
        /// The place.
        paths: Vec<String>,
    },
    /// `unload` found the mount point or the module in use by somebody whom it cannot name.
    #[error(
        "something still uses {what}: an open file, a process whose working directory it is, or a \
         container with a proxy node mounted; stop it first"
    )]
    Pinned {
        /// The thing in use.
        what: &'static str,
    },
    /// `inst restore`: the file is wrong.
    #[error(
        "the file is not understood: {why}; /usr/share/doc/cgpu/docs/cgpuctl.md lists the keys of \
         [[gpu]] and [[instance]]"
    )]
    BadFile {
        /// The parser's words.
        why: String,
    },
    /// `inst restore`: some could not be made; the others were.
    #[error(
        "{}; all others are there, so fix this and restore the file again",
        .faults.join("; ")
    )]
    NotRestored {
        /// A clause for each.
        faults: Vec<String>,
    },
    /// `apply`: some changes were refused; the others were made.
    #[error("{}; all other changes were made, so fix this and apply the file again", .faults.join("; "))]
    NotApplied {
        /// A clause for each.
        faults: Vec<String>,
    },
    /// `metrics --listen` cannot.
    #[error("listening at {address} failed: {}; name another port", describe(.errno))]
    Listen {
        /// The place.
        address: std::net::SocketAddr,
        /// Why.
        errno: Errno,
    },
    /// `cdi generate` has nothing to write.
    #[error("there is no instance; make one with `cgpuctl inst create`")]
    NoInstances,
    /// `cdi validate` finds no file.
    #[error(
        "there is none with {kind} in /etc/cdi or /run/cdi; write one with `cgpuctl cdi generate \
         --to-file /run/cdi/cgpu.json`"
    )]
    NoSpec {
        /// Vendor and class of the devices that were looked for.
        kind: &'static str,
    },
    /// `cdi validate` finds faults.
    #[error("{}; {remedy}", .faults.join("; "))]
    BadSpec {
        /// A clause for each.
        faults: Vec<String>,
        /// How to get files without.
        remedy: String,
    },
    /// The output could not be written.
    #[error("the output cannot be written: {}", describe(.errno))]
    Output {
        /// Why.
        errno: Errno,
    },
}

/// "EBUSY (Device or resource busy)".
fn describe(errno: &Errno) -> String {
    format!("{errno:?} ({})", errno.desc())
}

fn weights(all: &[u32]) -> String {
    if all.is_empty() {
        return String::new();
    }
    format!("({}) ", enumerate(all, "and"))
}

fn uses(files: &u32, processes: &u32) -> String {
    let count = |n: u32, one: &str, more: &str| match n {
        0 => None,
        1 => Some(format!("1 {one}")),
        n => Some(format!("{n} {more}")),
    };
    let uses: Vec<_> = [
        count(*files, "open file", "open files"),
        count(*processes, "process with memory", "processes with memory"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if uses.is_empty() {
        return String::new();
    }
    format!(" ({})", enumerate(&uses, "and"))
}

/// "GPU 0", "GPUs 0 and 1".
pub(crate) fn gpus(minors: &[u32]) -> String {
    let word = if minors.len() == 1 { "GPU" } else { "GPUs" };
    format!("{word} {}", enumerate(minors, "and"))
}

fn several(minors: &[u32]) -> String {
    if minors.is_empty() {
        return "the name is on several GPUs".to_owned();
    }
    format!("the name is on {}", gpus(minors))
}

fn gpus_of(elsewhere: &[u32]) -> String {
    if elsewhere.is_empty() {
        return String::new();
    }
    format!(" there, but on {}", gpus(elsewhere))
}

fn gpus_present(present: &[u32]) -> String {
    if present.is_empty() {
        return "it has none, or the NVIDIA driver is not loaded".to_owned();
    }
    format!("it has {} (`cgpuctl gpu list`)", gpus(present))
}

fn whole(memory: &Option<Bytes>) -> String {
    match memory {
        Some(memory) => format!("the GPU's {memory}; take at most {}", memory.argument()),
        None => "the GPU's memory; `cgpuctl gpu list` shows how much that is".to_owned(),
    }
}

fn room(left: &Option<(Bytes, Bytes)>) -> String {
    match left {
        Some((Bytes(0), memory)) => {
            format!(" of {memory}, all of which is allotted; lower another limit first")
        }
        Some((left, memory)) => format!(" of {memory}; take at most {}", left.argument()),
        None => "; take less".to_owned(),
    }
}

fn are(instances: &[String]) -> String {
    let verb = if instances.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", enumerate(instances, "and"))
}

impl Problem {
    /// The exit code of the tool.
    pub fn exit(&self) -> Exit {
        self.ending().1
    }

    /// The word in the JSON output. It never changes.
    pub fn slug(&self) -> &'static str {
        self.ending().0
    }

    /// The problem behind an errno of the control device, told with what is known of the host.
    pub fn explain(errno: Errno, facts: &Facts) -> Self {
        // CAST: `Errno` is `repr(i32)` with the kernel's numbers.
        let Some(cause) = Cause::from_errno(errno as i32) else {
            return Self::Unexpected { errno };
        };
        match cause {
            Cause::NotPermitted => Self::NotPermitted,
            Cause::NoSuchInstance => Self::NoSuchInstance {
                elsewhere: facts.gpus_of_name(),
            },
            Cause::NoSuchGpu => Self::NoSuchGpu {
                wanted: facts
                    .gpu
                    .map_or("such GPU".to_owned(), |m| Selector::Minor(m).to_string()),
                present: facts.gpus.iter().map(|g| g.minor).collect(),
            },
            Cause::Busy => {
                let instance = facts.instance();
                Self::Busy {
                    files: instance.map_or(0, |i| i.open_files + i.tenant_open_files),
                    processes: instance.map_or(0, |i| i.processes),
                }
            }
            Cause::NameTaken => Self::NameTaken,
            Cause::DriverMissing => Self::DriverMissing,
            Cause::UnknownDriver => Self::UnknownDriver,
            Cause::NoKernelInterface => Self::NoKernelInterface,
            Cause::Malformed | Cause::UnknownCommand => Self::Mismatch { errno },
            Cause::LimitAboveGpu => Self::LimitAboveGpu {
                memory: facts.gpu().map(|g| Bytes(g.memory_bytes)),
            },
            Cause::LimitsAboveGpu => Self::LimitsAboveGpu { left: facts.left() },
            Cause::LimitZero => Self::LimitZero,
            Cause::WeightOutOfRange => Self::WeightOutOfRange,
            Cause::ChannelsOutOfRange => Self::ChannelsOutOfRange,
            Cause::ChannelsAboveRunlist => Self::ChannelsAboveRunlist,
            Cause::UnknownCapability => Self::UnknownCapability,
            Cause::Ambiguous => Self::Ambiguous {
                gpus: facts.gpus_of_name(),
            },
            Cause::BadName => Self::BadName,
            Cause::TooMany => Self::TooMany,
            Cause::WeightsAboveWhole => {
                let there = facts.instances.iter();
                let there = there.filter(|i| Some(i.key.gpu_minor) == facts.gpu);
                Self::WeightsAboveWhole {
                    all: there.map(|i| i.weight).collect(),
                }
            }
            Cause::TooManyForPolicy => Self::TooManyForPolicy,
            Cause::UnknownPolicy => Self::UnknownPolicy,
        }
    }

    /// Why the control device could not be opened.
    pub fn open(errno: Errno) -> Self {
        match errno {
            // No node; a node left over by somebody, without a module behind it.
            Errno::ENOENT | Errno::ENXIO | Errno::ENODEV => Self::NotLoaded,
            Errno::EPERM | Errno::EACCES => Self::NotPermitted,
            errno => Self::Unexpected { errno },
        }
    }

    /// As the end of a command.
    pub fn when(self, attempt: impl Into<String>) -> Failure {
        Failure {
            attempt: Some(attempt.into()),
            ..self.into()
        }
    }
}

/// An errno of the control device, when nothing more is known.
impl From<Errno> for Problem {
    fn from(errno: Errno) -> Self {
        Self::explain(errno, &Facts::default())
    }
}

/// How a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot {}: {problem}{}",
    attempt.as_deref().unwrap_or("do it"),
    aftermath.as_deref().unwrap_or_default()
)]
pub struct Failure {
    /// The attempt and its object: follows "cannot". `None`: the command's own purpose.
    pub attempt: Option<String>,
    /// Why it did not work, what to do.
    pub problem: Problem,
    /// The part of the command that had been done before; begins with its own punctuation.
    pub aftermath: Option<String>,
}

impl Failure {
    /// Says what was attempted, unless it is said already.
    pub fn during(mut self, attempt: impl FnOnce() -> String) -> Self {
        self.attempt.get_or_insert_with(attempt);
        self
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self {
            attempt: None,
            problem,
            aftermath: None,
        }
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Problem::from(errno).into()
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Problem::from(error).into()
    }
}
