// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Runs the driver on this node, as the DaemonSet of `dist/helm/cgpu` does.

use cgpu_dra::{
    driver::{run, watch_log, Settings},
    failures::Failures,
    node::{Machine, Places},
};
use clap::Parser;
use std::{net::SocketAddr, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};
use tokio::signal::unix::{signal, SignalKind};

/// Kubernetes DRA driver of cgpu: gives pods shares of this node's GPUs.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Name of this node in Kubernetes.
    #[arg(long, env = "NODE_NAME")]
    node: String,
    /// Where the node's root is, as this program sees it.
    #[arg(long, env = "HOST_ROOT", default_value = "/")]
    host_root: PathBuf,
    /// Folder of the node below which the NVIDIA driver's user space is installed.
    #[arg(long, env = "DRIVER_ROOT", default_value = "/")]
    driver_root: PathBuf,
    /// `cgpu-hook` on the node, if it is installed: it hides the node's other GPUs in /proc.
    #[arg(long, env = "CGPU_HOOK")]
    hook: Option<String>,
    /// Folder of the claims that are prepared.
    #[arg(long, default_value = "/run/cgpu/dra")]
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
    /// Serve figures for Prometheus at /metrics of this address, like `0.0.0.0:9400`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// How much of each GPU's memory claims share, percent; over 100 their limits overlap.
    #[arg(long, env = "OVERCOMMIT", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    overcommit: u32,
    /// How long a claim that is gone keeps instances that nobody uses, seconds.
    #[arg(long, default_value_t = 120)]
    grace: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(serve(options)),
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

async fn serve(options: Options) -> Result<(), String> {
    let client = kube::Client::try_default()
        .await
        .map_err(|e| format!("cannot find the apiserver: {e}; run in a pod, or set KUBECONFIG"))?;
    let machine = Machine {
        host_root: options.host_root,
        driver_root: options.driver_root,
    };
    let failures = Failures::at(options.state.join("failed"));
    std::thread::spawn(move || {
        if let Err(error) = watch_log(&failures) {
            eprintln!("cgpu-dra: cannot read /dev/kmsg, so no Xid is seen: {error}");
        }
    });
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| e.to_string())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        let _ = stop.send(true);
    });
    let settings = Settings {
        node: options.node,
        places: Places {
            state: options.state,
            cdi: options.cdi,
            plugins: options.plugins,
            registry: options.registry,
            pod_resources: options.pod_resources,
            hook: options.hook,
        },
        overcommit: options.overcommit,
        grace: Duration::from_secs(options.grace),
        metrics: options.metrics,
    };
    let ended = run(client, Arc::new(machine), settings, stopped).await;
    ended.map_err(|e| e.to_string())
}
