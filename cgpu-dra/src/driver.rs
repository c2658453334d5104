// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The driver as a whole: what is started on a node, and in which order.

use crate::{
    apiserver::{sentence, ClaimApi},
    calls::Calls,
    config::Allowed,
    failures::{Failures, PATIENCE},
    keeper::Keeper,
    kubelet::{Health, Kubelet, Lookup},
    login::Login,
    metrics::Metrics,
    names::{DRIVER, REGISTRATION},
    node::{Node, Places, FAILED},
    once::Once,
    publisher::Publisher,
    rpc::{listen, serve, SocketFile},
    tenants::Tenants,
    web,
};
use cgpu_client::path_error::PathError;
use futures_util::{future::BoxFuture, FutureExt};
use kube::Client;
use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};
use tokio::{
    net::TcpListener,
    sync::{watch, Notify},
};

/// How often instances that are nobody's are looked for.
const SWEEP_PERIOD: Duration = Duration::from_secs(30);

/// The operator's choices.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Name of the node in Kubernetes.
    pub node: String,
    /// Paths on the node.
    pub places: Places,
    /// How much of a GPU's memory claims share, percent.
    pub overcommit: u32,
    /// The most that claims may ask for without their class's word.
    pub allowed: Allowed,
    /// How long a claim that is gone keeps instances that nobody uses.
    pub grace: Duration,
    /// The address at which figures are served.
    pub metrics: Option<SocketAddr>,
    /// Whether they take a login.
    pub metrics_login: MetricsLogin,
}

/// The readers of the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsLogin {
    /// Everybody that reaches the address.
    None,
    /// Users of the cluster with the right to `get` their path, by TLS.
    Kubernetes,
}

/// Why the driver cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// A file or folder.
    #[error(transparent)]
    Path(PathError),
    /// A certificate for TLS.
    #[error("cannot make a certificate for the figures: {0}")]
    Certificate(String),
    /// A socket, or an address.
    #[error("cannot listen at {at}: {why}")]
    Listen {
        /// The address or the socket's path.
        at: String,
        /// Why.
        why: std::io::Error,
    },
}

fn lookup(client: Client) -> Lookup {
    Arc::new(move |namespace, name| {
        let claims = ClaimApi::of(client.clone(), &namespace);
        async move {
            let found = claims.find(&name).await;
            found.map(|found| found.0).map_err(|e| sentence(&e))
        }
        .boxed()
    })
}

/// Serves the figures, if anybody is to have them.
async fn tell_figures(
    metrics: Arc<Metrics>,
    client: Client,
    settings: &Settings,
) -> Result<BoxFuture<'static, ()>, DriverError> {
    let Some(address) = settings.metrics else {
        return Ok(std::future::pending().boxed());
    };
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|why| DriverError::Listen {
        at: address.to_string(),
        why,
    })?;
    let login = match settings.metrics_login {
        MetricsLogin::None => None,
        MetricsLogin::Kubernetes => {
            let tls = web::own_tls().map_err(DriverError::Certificate)?;
            Some((tls, Arc::new(Login::by(client))))
        }
    };
    Ok(metrics.serve(listener, login).boxed())
}

/// Removes what instances are nobody's. One that is in use goes later.
struct Sweep {
    tenants: Arc<Tenants>,
    last: Once,
}

impl Sweep {
    async fn sweep(&mut self) {
        let tenants = self.tenants.clone();
        let removal = tokio::task::spawn_blocking(move || tenants.remove_strays());
        self.last.say(match removal.await {
            Ok(Ok(kept)) if kept.is_empty() => None,
            Ok(Ok(kept)) => Some(format!("in use without a claim: {}", kept.join(", "))),
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        });
    }

    async fn run(mut self) {
        loop {
            tokio::time::sleep(SWEEP_PERIOD).await;
            self.sweep().await;
        }
    }
}

/// Runs the driver until it is stopped. Instances stay: their containers run on.
pub async fn run(
    client: Client,
    node: Arc<dyn Node>,
    settings: Settings,
    stop: watch::Receiver<bool>,
) -> Result<(), DriverError> {
    node.close_folder().map_err(DriverError::Path)?;
    let places = settings.places.clone();
    let tenants = Tenants::open(node.clone(), places.clone(), settings.overcommit);
    let tenants = Arc::new(tenants.map_err(DriverError::Path)?);
    let mut strays = Sweep {
        tenants: tenants.clone(),
        last: Once::default(),
    };
    // If the driver does not answer soon, this goes on meanwhile.
    let _ = tokio::time::timeout(PATIENCE, strays.sweep()).await;
    let failures = Failures::at(places.state.join(FAILED));
    let changed = Arc::new(Notify::new());
    let (tell, health) = watch::channel(Health::new());
    let endpoint = places.plugins.join(DRIVER).join("dra.sock");
    let registration = places.registry.join(REGISTRATION);
    let publisher = Publisher::new(
        client.clone(),
        &settings.node,
        tenants.clone(),
        failures,
        tell,
    );
    let calls = Arc::new(Calls::default());
    let kubelet = Arc::new(Kubelet {
        endpoint: endpoint.display().to_string(),
        pool: settings.node.clone(),
        allowed: settings.allowed,
        tenants: tenants.clone(),
        lookup: lookup(client.clone()),
        health,
        changed: changed.clone(),
        readiness: publisher.readiness(),
        calls: calls.clone(),
    });
    let keeper = Keeper {
        client: client.clone(),
        pool: settings.node.clone(),
        tenants: tenants.clone(),
        changed,
        grace: settings.grace,
        dropped: Arc::default(),
    };
    let metrics = Arc::new(Metrics {
        node,
        tenants,
        pod_resources: places.pod_resources.clone(),
        lost: publisher.lost(),
        dropped: keeper.dropped.clone(),
        calls,
    });
    let open = |path: &Path| {
        listen(path).map_err(|why| DriverError::Listen {
            at: path.display().to_string(),
            why,
        })
    };
    // The services before the registration, which leads the kubelet to them.
    let (services, register) = (open(&endpoint)?, open(&registration)?);
    // Without it the kubelet forgets the driver.
    let _registered = SocketFile::at(&registration);
    let (of_plugin, of_registration) = (kubelet.clone(), kubelet);
    let figures = tell_figures(metrics, client, &settings).await?;
    let mut ended = stop.clone();
    tokio::select! {
        () = serve(services, move |call| of_plugin.clone().serve(call), stop.clone()) => {}
        () = serve(register, move |call| of_registration.clone().register(call), stop) => {}
        () = publisher.run() => {}
        () = keeper.run() => {}
        () = strays.run() => {}
        () = figures => {}
        _ = ended.wait_for(|stop| *stop) => {}
    }
    Ok(())
}
