// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The grammar of the command line.

use crate::capabilities::Capabilities;
use crate::installation::lists::Capability;
use crate::selector::Selector;
use crate::size::Bytes;
use cgpu_uapi::{ManagedMode, Name, Period, Policy, Priority, WEIGHT_MAX};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What a name may look like.
pub const NAME_RULE: &str = "a name has 1 to 63 letters, digits, dots, underscores or hyphens and \
                             begins with a letter or a digit";

/// Share an NVIDIA GPU between containers.
///
/// An instance is a container's share of one GPU: a memory limit and a weight. The instances of one
/// name on several GPUs belong together (a tenant) and are given to one container.
#[derive(Parser)]
#[command(name = "cgpuctl", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    /// Print one JSON object instead of text for people (docs/json.md).
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 usage, 3 module not loaded, 4 no such GPU or instance,
5 not permitted, 6 refused (in use, name taken, limit too high), 7 NVIDIA driver missing or unknown,
8 doctor found something that must be mended.";

/// The nouns, and verbs without a noun.
#[derive(Subcommand)]
pub enum Command {
    /// The GPUs of this host.
    #[command(subcommand)]
    Gpu(Gpu),
    /// Instances: shares of a GPU.
    #[command(subcommand, visible_alias = "instance")]
    Inst(Inst),
    /// The driver's version, CUDA's, and what kind of GPUs there are.
    Info,
    /// The nodes, files and sockets of this host that containers with GPUs have to do with.
    List(List),
    /// The Container Device Interface: `--device cgpu.io/gpu=NAME` for podman, docker and the rest.
    #[command(subcommand)]
    Cdi(Cdi),
    /// Module, driver, GPUs and instances at a glance.
    Status,
    /// Watch who uses the GPUs: shares of compute time and memory, refreshed until `q`.
    ///
    /// Where stdout is no terminal, or with --once or --json, it prints one reading and ends. Keys: s, m, w, n sort
    /// by share, memory, weight, name; r turns the order round; q ends.
    Top(Top),
    /// Check what must be true of this host so that the limits hold, and say how to mend it.
    Doctor,
    /// Print the figures of all instances as Prometheus reads them.
    Metrics(Metrics),
    /// Unmount the twins and unload the module.
    ///
    /// Refused while an instance is in use. Idle instances go with the module; they are named.
    Unload,
    /// Print a script that completes this tool's command lines.
    Completions {
        /// For which shell.
        shell: clap_complete::Shell,
    },
    /// Print this tool's manual page, or write those of all its commands.
    Man {
        /// Write all of them into this folder instead.
        #[arg(long, short, value_name = "FOLDER")]
        output: Option<PathBuf>,
    },
}

/// `gpu …`.
#[derive(Subcommand)]
pub enum Gpu {
    /// List the GPUs: what they have and what of it is given out.
    List,
    /// Change how a GPU's compute time is shared, also while programs run.
    SetPolicy(SetPolicy),
}

/// `gpu set-policy`.
#[derive(Args)]
pub struct SetPolicy {
    /// GPU, by minor number, UUID or PCI address.
    #[arg(value_name = "GPU")]
    pub gpu: Selector,
    /// Policy, by name or number.
    #[arg(value_name = "POLICY", value_parser = policies())]
    pub policy: Policy,
    /// Short turns that wait less, or long ones that lose less.
    #[arg(long, value_parser = periods())]
    pub period: Option<Period>,
    /// Instances among which the policy fair divides the GPU.
    #[arg(long, value_name = "1-64", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub max_inst: Option<u32>,
    /// What instances of high priority may take before weights count again, percent.
    #[arg(long, value_name = "1-99", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub prio_ratio: Option<u32>,
}

/// `top`.
#[derive(Args)]
pub struct Top {
    /// Seconds between readings.
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub interval: u64,
    /// Print one reading and end.
    #[arg(long)]
    pub once: bool,
}

/// `inst set-priority`.
#[derive(Args)]
pub struct SetPriority {
    /// Which instance.
    #[command(flatten)]
    pub target: Target,
    /// New priority.
    #[arg(value_parser = priorities())]
    pub priority: Priority,
}

/// `inst …`.
#[derive(Subcommand)]
pub enum Inst {
    /// Make an instance on one GPU or, as one tenant, on several.
    Create(Create),
    /// List all instances.
    List,
    /// Show everything about an instance.
    Show(Show),
    /// Change a memory limit, also while programs run.
    ///
    /// A limit below what is used is accepted: new allocations fail until enough was freed.
    SetMem(SetMem),
    /// Change a weight, also while programs run.
    SetWeight(SetWeight),
    /// Change what becomes of managed memory (cudaMallocManaged) that is mapped from now on.
    ///
    /// What was spilled comes back when there is room, whatever the mode is then.
    SetManaged(SetManaged),
    /// Change what an instance is for, also while programs run.
    ///
    /// What a program has made stays; calls that are no longer allowed are refused from then on.
    SetCaps(SetCaps),
    /// Change a priority, also while programs run.
    SetPriority(SetPriority),
    /// Keep an instance off the GPU until it is resumed. Its programs wait and lose nothing.
    Suspend(Target),
    /// Let a suspended instance on again.
    Resume(Target),
    /// Destroy an instance that is not in use.
    Destroy(Target),
    /// Print what to give to podman, docker or containerd for a container with this instance.
    Mounts(Mounts),
    /// Write the instances to a file; those that belong to a container are left out.
    Save(SavedFile),
    /// Make the instances of a file that are not there yet.
    Restore(SavedFile),
}

/// `inst create`.
#[derive(Args)]
pub struct Create {
    /// Name of the instance: 1 to 63 letters, digits, dots, underscores, hyphens.
    #[arg(value_parser = name)]
    pub name: Name,
    /// GPU, by minor number, UUID or PCI address; several make one tenant.
    #[arg(
        long = "gpu",
        value_name = "MINOR|UUID|PCI",
        required = true,
        value_delimiter = ','
    )]
    pub gpus: Vec<Selector>,
    /// Memory limit on each of the GPUs, like 8GiB or 500MB.
    #[arg(long, value_name = "SIZE")]
    pub mem: Bytes,
    /// Share of the compute, relative to the other instances' weights.
    #[arg(long, value_name = "1-100", default_value_t = cgpu_uapi::WEIGHT_DEFAULT, value_parser = weight())]
    pub weight: u32,
    /// Let the limits on a GPU add up to more than its memory.
    #[arg(long)]
    pub overcommit: bool,
    /// What becomes of managed memory (cudaMallocManaged) that does not fit.
    #[arg(
        long,
        value_name = "MODE",
        value_parser = managed_modes(),
        default_value = ManagedMode::Spill.name()
    )]
    pub managed: ManagedMode,
    /// What it is for: compute, utility, graphics, video, profiling, rdma.
    #[arg(long, value_name = "SET,…", default_value = "compute,utility")]
    pub caps: Capabilities,
}

/// An existing instance, or several of one name.
#[derive(Args)]
pub struct Target {
    /// Name of the instance.
    #[arg(value_parser = name)]
    pub name: Name,
    /// GPU, by minor number, UUID or PCI address; needed if the name is on several GPUs.
    #[arg(long = "gpu", value_name = "MINOR|UUID|PCI", value_delimiter = ',')]
    pub gpus: Vec<Selector>,
}

/// `inst show`.
#[derive(Args)]
pub struct Show {
    /// Name of the instance.
    #[arg(value_parser = name)]
    pub name: Name,
    /// Only on this GPU (minor number, UUID or PCI address); all GPUs with this name if left out.
    #[arg(long = "gpu", value_name = "MINOR|UUID|PCI", value_delimiter = ',')]
    pub gpus: Vec<Selector>,
    /// Show instead which calls were refused, how often, and which capabilities would allow them.
    #[arg(long)]
    pub refused: bool,
}

/// `inst set-caps`.
#[derive(Args)]
pub struct SetCaps {
    /// Which instance.
    #[command(flatten)]
    pub target: Target,
    /// What it is to be for: compute, utility, graphics, video, profiling, rdma.
    #[arg(value_name = "SET,…")]
    pub caps: Capabilities,
}

/// `inst set-mem`.
#[derive(Args)]
pub struct SetMem {
    /// Which instance.
    #[command(flatten)]
    pub target: Target,
    /// New memory limit, like 8GiB or 500MB.
    #[arg(value_name = "SIZE")]
    pub mem: Bytes,
    /// Let the limits on a GPU add up to more than its memory.
    #[arg(long)]
    pub overcommit: bool,
}

/// `inst set-weight`.
#[derive(Args)]
pub struct SetWeight {
    /// Which instance.
    #[command(flatten)]
    pub target: Target,
    /// New weight.
    #[arg(value_name = "1-100", value_parser = weight())]
    pub weight: u32,
}

/// `inst save`, `inst restore`.
#[derive(Args)]
pub struct SavedFile {
    /// The file, in TOML.
    #[arg(value_name = "FILE", default_value = SAVED)]
    pub path: PathBuf,
}

/// What is restored at boot.
pub const SAVED: &str = "/etc/cgpu/instances.toml";

/// `inst set-managed`.
#[derive(Args)]
pub struct SetManaged {
    /// Which instance.
    #[command(flatten)]
    pub target: Target,
    /// New mode.
    #[arg(value_name = "MODE", value_parser = managed_modes())]
    pub managed: ManagedMode,
}

/// `inst mounts`.
#[derive(Args)]
pub struct Mounts {
    /// Name of the instance.
    #[arg(value_parser = name)]
    pub name: Name,
    /// Print only what this runtime takes, ready for use: one line of arguments, or JSON to merge
    /// into an OCI configuration.
    #[arg(long, conflicts_with = "json")]
    pub format: Option<Format>,
}

/// `list`.
#[derive(Args)]
pub struct List {
    /// Which files.
    #[command(flatten)]
    pub files: Files,
}

/// Which of the driver's files, and where they are.
#[derive(Args, Default)]
pub struct Files {
    /// What the containers may want of the driver.
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

/// `cdi …`.
#[derive(Subcommand)]
pub enum Cdi {
    /// Write a CDI file with a device for each instance (those of one name on several GPUs are one).
    Generate(CdiGenerate),
    /// List the devices that the CDI files in /etc/cdi and /run/cdi have, and whether they are ready.
    List,
    /// Check CDI files: their form, that what they name is there, and that it is the instances of now.
    Validate(CdiValidate),
}

/// `cdi generate`.
#[derive(Args)]
pub struct CdiGenerate {
    /// Write this file instead of stdout, whole or not at all; without instances, remove it.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Stay, and write it again whenever an instance comes or goes.
    #[arg(long, requires = "output")]
    pub watch: bool,
    /// Folder of the containers that takes the libraries; the host's folders if left out.
    #[arg(long, value_name = "FOLDER")]
    pub library_folder: Option<String>,
    /// Which files.
    #[command(flatten)]
    pub files: Files,
}

/// `metrics`.
#[derive(Args)]
pub struct Metrics {
    /// Serve them over HTTP instead, at /metrics of this loopback address, until stopped.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = loopback, conflicts_with = "json")]
    pub listen: Option<SocketAddr>,
}

/// `cdi validate`.
#[derive(Args)]
pub struct CdiValidate {
    /// The files; those of this host if left out.
    #[arg(value_name = "FILE")]
    pub specs: Vec<PathBuf>,
}

/// Container runtimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Arguments of `podman run`.
    Podman,
    /// Arguments of `docker run`.
    Docker,
    /// Members of an OCI runtime configuration, JSON.
    Containerd,
}

fn loopback(text: &str) -> Result<SocketAddr, &'static str> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "an address and a port are needed, like 127.0.0.1:9400 or [::1]:9400")?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("only this machine may ask: take 127.0.0.1 or [::1], and a proxy that asks who it is")
    }
}

fn name(text: &str) -> Result<Name, &'static str> {
    Name::new(text).ok_or(NAME_RULE)
}

/// The policy with this name or number.
pub(crate) fn policy(text: &str) -> Option<Policy> {
    let is = |policy: &Policy| text == policy.name() || text == policy.digits();
    Policy::ALL.into_iter().find(is)
}

/// Takes one of the ABI's words by its name; the help lists them all with their meanings.
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

fn policies() -> impl TypedValueParser<Value = Policy> {
    word(&Policy::ALL, |policy| {
        let value = PossibleValue::new(policy.name()).alias(policy.digits());
        value.help(format!("({}) {}", policy.digits(), policy.about()))
    })
}

fn periods() -> impl TypedValueParser<Value = Period> {
    word(&Period::ALL, |p| {
        PossibleValue::new(p.name()).help(p.about())
    })
}

fn managed_modes() -> impl TypedValueParser<Value = ManagedMode> {
    word(&ManagedMode::ALL, |m| {
        PossibleValue::new(m.name()).help(m.about())
    })
}

fn priorities() -> impl TypedValueParser<Value = Priority> {
    word(&Priority::ALL, |p| {
        PossibleValue::new(p.name()).help(p.about())
    })
}

fn weight() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(WEIGHT_MAX))
}
