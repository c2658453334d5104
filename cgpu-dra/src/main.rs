// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Runs the driver on this node, as the DaemonSet of `dist/helm/cgpu` does; or the device plugin in
//! its place, or the cluster's webhook.

use cgpu_client::{capabilities::Capabilities, pods};
use cgpu_dra::{
    apiserver,
    config::{Allowed, BURST_MS},
    device_plugin::{self, PluginSettings},
    driver::{run, MetricsLogin, Settings},
    failures::Failures,
    kernel_log::KernelLog,
    node::{Machine, Node, Places, FAILED},
    probes,
    slots::{check_names, Profile},
    web,
    webhook::Webhook,
};
use cgpu_uapi::{Priority, BURST_MS_MAX};
use clap::{Args, Parser, Subcommand};
use http::request::Parts;
use kube::{Client, Config};
use nix::sys::resource::{getrlimit, setrlimit, Resource};
use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    signal::unix::{signal, SignalKind},
    sync::watch,
};

/// How often the kernel's log is read.
const LOG_PERIOD: Duration = Duration::from_secs(1);
/// How long the program waits at its end for what has begun.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// The most threads that wait for the module: one for a change of each claim, of which there are as
/// many as instances, and room for those that take turns. They are made when they are needed.
const THREADS: usize = 2048;

/// Kubernetes DRA driver of cgpu: gives pods shares of this node's GPUs.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Options {
    #[command(subcommand)]
    instead: Option<Instead>,
    #[command(flatten)]
    driver: DriverOptions,
}

/// The program's other uses.
#[derive(Subcommand)]
enum Instead {
    /// Gives out shares of fixed sizes as a device plugin, for clusters before Kubernetes 1.34.
    DevicePlugin(PluginOptions),
    /// Checks parameters, and turns other systems' resource names into claims, for the apiserver.
    Webhook(WebhookOptions),
    /// Asks the driver or the device plugin of this node whether it works, for probes.
    Probe(ProbeOptions),
}

#[derive(Args)]
struct ProbeOptions {
    /// Ask whether it is of use yet: the kubelet has registered it, and its GPUs are published.
    #[arg(long)]
    ready: bool,
    /// Its sockets. Each must answer.
    #[arg(required = true, value_name = "SOCKET")]
    sockets: Vec<PathBuf>,
}

#[derive(Args)]
struct NodeOptions {
    /// The path of the node's root, as this program sees it.
    #[arg(long, env = "HOST_ROOT", default_value = "/")]
    host_root: PathBuf,
    /// Folder of the node below which the NVIDIA driver's user space is installed.
    #[arg(long, env = "DRIVER_ROOT", default_value = "/")]
    driver_root: PathBuf,
    /// The path of `cgpu-hook` on the node, which hides the node's other GPUs in /proc. By default
    /// it is looked for in /usr/sbin and /usr/local/sbin.
    #[arg(long, env = "CGPU_HOOK")]
    hook: Option<String>,
    /// Folder of the claims that are prepared.
    #[arg(long, default_value = pods::STATE)]
    state: PathBuf,
    /// Folder of the CDI files.
    #[arg(long, default_value = "/var/run/cdi")]
    cdi: PathBuf,
    /// The kubelet's folder of plugins.
    #[arg(long, default_value = "/var/lib/kubelet/plugins")]
    plugins: PathBuf,
    /// The kubelet's folder of registrations.
    #[arg(long, default_value = "/var/lib/kubelet/plugins_registry")]
    registry: PathBuf,
    /// The kubelet's socket that tells which container has what.
    #[arg(long, default_value = "/var/lib/kubelet/pod-resources/kubelet.sock")]
    pod_resources: PathBuf,
}

#[derive(Args)]
struct DriverOptions {
    /// Name of this node in Kubernetes; the driver needs it.
    // No requirement of the parser's: the other programs do without.
    #[arg(long, env = "NODE_NAME")]
    node: Option<String>,
    #[command(flatten)]
    places: NodeOptions,
    /// Serve figures for Prometheus at /metrics of this address, like `0.0.0.0:9400`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Serve them by TLS, to clients with a token of Kubernetes whose user may `get` /metrics.
    #[arg(long, requires = "metrics")]
    metrics_login: bool,
    /// How much of each GPU's memory claims share, percent; over 100 their limits overlap.
    #[arg(long, env = "OVERCOMMIT", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    overcommit: u32,
    #[command(flatten)]
    allow: AllowOptions,
    /// How long a claim that is gone keeps instances that nobody uses, seconds.
    #[arg(long, default_value_t = 120)]
    grace: u64,
}

#[derive(Args)]
struct AllowOptions {
    /// Capabilities that any claim may ask for, beside compute, utility and video. Others take a
    /// DeviceClass that names them.
    #[arg(long, value_name = "SET,…")]
    allow_capabilities: Option<Capabilities>,
    /// The longest burst that any claim may ask for, milliseconds. A longer one takes a DeviceClass
    /// that names it, because neighbours wait for it.
    #[arg(long, value_name = "MS", default_value_t = BURST_MS,
        value_parser = clap::value_parser!(u32).range(..=i64::from(BURST_MS_MAX)))]
    allow_burst: u32,
    /// The highest priority that any claim may ask for: `normal` or `high`. By default `high` takes
    /// a DeviceClass that names it.
    #[arg(long, value_name = "PRIORITY", default_value = "normal", value_parser = priority)]
    allow_priority: Priority,
}

impl AllowOptions {
    fn allowed(&self) -> Allowed {
        Allowed::with(
            self.allow_capabilities,
            self.allow_priority,
            self.allow_burst,
        )
    }
}

fn priority(text: &str) -> Result<Priority, &'static str> {
    Priority::from_name(text).ok_or("a priority is normal or high")
}

#[derive(Args)]
struct PluginOptions {
    /// A size of shares: pods ask for `cgpu.io/gpu-NAME`, each of the COUNT shares of a GPU has
    /// this memory and weight. May be repeated.
    #[arg(
        long = "profile",
        value_name = "NAME=MEMORY:WEIGHT:COUNT",
        required = true
    )]
    profiles: Vec<Profile>,
    /// The kubelet's folder of device plugins.
    #[arg(long, default_value = "/var/lib/kubelet/device-plugins")]
    device_plugins: PathBuf,
    #[command(flatten)]
    places: NodeOptions,
}

#[derive(Args)]
struct WebhookOptions {
    /// The address for the apiserver's requests, like `0.0.0.0:9443`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Certificate, a PEM file.
    #[arg(long)]
    certificate: PathBuf,
    /// Its key, a PEM file.
    #[arg(long)]
    key: PathBuf,
    /// The first part of the path to which reviews are sent. It is to be secret, because whoever
    /// knows it can send reviews.
    #[arg(long, env = "WEBHOOK_PATH", hide_env_values = true,
        value_parser = clap::builder::NonEmptyStringValueParser::new())]
    path: String,
    #[command(flatten)]
    allow: AllowOptions,
}

impl NodeOptions {
    fn parts(self) -> (Machine, Places) {
        let machine = Machine {
            host_root: self.host_root,
            driver_root: self.driver_root,
            hook: self.hook.filter(|path| !path.is_empty()),
        };
        if machine.hook().is_none() {
            eprintln!(
                "cgpu-dra: cgpu-hook is not installed on this node, so containers see all of its \
                 GPUs in /proc/driver/nvidia; install cgpu's package there"
            );
        }
        let places = Places {
            state: self.state,
            cdi: self.cdi,
            plugins: self.plugins,
            registry: self.registry,
            pod_resources: self.pod_resources,
        };
        if let Err(error) = places.remove_unfinished() {
            eprintln!("cgpu-dra: {error}");
        }
        (machine, places)
    }
}

/// Has this program open as many files as it may: each claim that is followed holds a watch.
fn raise_files() {
    let files = Resource::RLIMIT_NOFILE;
    let raised = getrlimit(files).and_then(|(_, hard)| setrlimit(files, hard, hard));
    if let Err(errno) = raised {
        eprintln!(
            "cgpu-dra: cannot raise the limit of open files: {}",
            errno.desc()
        );
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    raise_files();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(THREADS)
        .enable_all()
        .build();
    let work = async {
        match options.instead {
            Some(Instead::Webhook(options)) => review(options).await,
            Some(Instead::DevicePlugin(options)) => give_slots(options).await,
            Some(Instead::Probe(options)) => probe(options).await,
            None => drive(options.driver).await,
        }
    };
    let ended = match runtime {
        Ok(runtime) => {
            let ended = runtime.block_on(work);
            // A thread that waits for the driver may wait for ever.
            runtime.shutdown_timeout(LAST_WAIT);
            ended
        }
        Err(error) => Err(format!("cannot start: {error}")),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cgpu-dra: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn apiserver() -> Result<Client, String> {
    let config = Config::infer().await;
    let config = config
        .map_err(|e| format!("cannot find the apiserver: {e}; run in a pod, or set KUBECONFIG"))?;
    apiserver::client(config, apiserver::SILENCE).map_err(|e| e.to_string())
}

/// Becomes true when the program is to end.
fn ending() -> Result<watch::Receiver<bool>, String> {
    let (stop, stopped) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        let _ = stop.send(true);
    });
    Ok(stopped)
}

/// Notes failed GPUs, those of the time before now at once.
fn watch_failures(places: &Places, machine: Machine) {
    let failures = Failures::at(places.state.join(FAILED));
    let mut log = KernelLog::new("/dev/kmsg".into(), failures);
    log.read_on(machine.driver_load());
    std::thread::spawn(move || loop {
        std::thread::sleep(LOG_PERIOD);
        log.read_on(machine.driver_load());
    });
}

async fn drive(options: DriverOptions) -> Result<(), String> {
    let node = options.node.filter(|name| !name.is_empty());
    let node = node.ok_or("the driver does not know its node: set --node or NODE_NAME")?;
    let client = apiserver().await?;
    let (machine, places) = options.places.parts();
    watch_failures(&places, machine.clone());
    let settings = Settings {
        node,
        places,
        overcommit: options.overcommit,
        allowed: options.allow.allowed(),
        grace: Duration::from_secs(options.grace),
        metrics: options.metrics,
        metrics_login: if options.metrics_login {
            MetricsLogin::Kubernetes
        } else {
            MetricsLogin::None
        },
    };
    let ended = run(client, Arc::new(machine), settings, ending()?).await;
    ended.map_err(|e| e.to_string())
}

async fn give_slots(options: PluginOptions) -> Result<(), String> {
    check_names(&options.profiles).map_err(|e| e.to_string())?;
    let (machine, places) = options.places.parts();
    watch_failures(&places, machine.clone());
    let settings = PluginSettings {
        places,
        folder: options.device_plugins,
        profiles: options.profiles,
    };
    device_plugin::run(Arc::new(machine), settings, ending()?).await;
    Ok(())
}

async fn probe(options: ProbeOptions) -> Result<(), String> {
    for socket in options.sockets {
        probes::ask(&socket, options.ready).await?;
    }
    Ok(())
}

async fn review(options: WebhookOptions) -> Result<(), String> {
    let client = apiserver().await?;
    let tls = web::tls(&options.certificate, &options.key)?;
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.map_err(|e| format!("cannot listen at {}: {e}", options.listen))?;
    let webhook = Arc::new(Webhook {
        client,
        allowed: options.allow.allowed(),
        path: options.path,
        events: Arc::default(),
    });
    let mut stop = ending()?;
    let asked = webhook.clone();
    let longest = move |head: &Parts| asked.longest(head);
    tokio::select! {
        () = web::serve(listener, Some(tls), longest, move |request| {
            webhook.clone().answer(request)
        }) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
    Ok(())
}
