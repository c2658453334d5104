// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which container uses which claim or slot, as the kubelet tells it to programs of its node
//! (`PodResourcesLister`). So this driver needs no right to read pods.

use crate::{
    names::DRIVER,
    proto::{ListPodResourcesResponse, Nothing},
    rpc,
    slots::RESOURCE,
};
use std::{collections::BTreeSet, path::Path, time::Duration};

/// Longest wait for the kubelet.
const PATIENCE: Duration = Duration::from_secs(3);
/// The largest answer that is read, bytes: some hundred pods take less than a tenth.
const LARGEST: usize = 16 << 20;

/// A container and a claim that it uses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// Namespace of the pod and of the claim.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// The claim.
    pub claim: String,
}

/// Asks the kubelet at this socket; an error is a sentence.
pub async fn list(socket: &Path) -> Result<Vec<Use>, String> {
    ask(socket).await.map(|answer| uses(&answer))
}

/// The slots that containers have, by name; an error is a sentence.
pub async fn slots(socket: &Path) -> Result<BTreeSet<String>, String> {
    let answer = ask(socket).await?;
    let pods = answer.pod_resources.into_iter();
    let devices = pods.flat_map(|pod| pod.containers).flat_map(|c| c.devices);
    let own = devices.filter(|device| device.resource_name.starts_with(RESOURCE));
    Ok(own.flat_map(|device| device.device_ids).collect())
}

async fn ask(socket: &Path) -> Result<ListPodResourcesResponse, String> {
    let asked = rpc::ask(socket, "/v1.PodResourcesLister/List", &Nothing {}, LARGEST);
    let answer = tokio::time::timeout(PATIENCE, asked).await;
    answer.unwrap_or_else(|_| Err("the kubelet does not answer".to_owned()))
}

/// The uses of this driver's claims in an answer.
pub fn uses(answer: &ListPodResourcesResponse) -> Vec<Use> {
    let mut all = Vec::new();
    for pod in &answer.pod_resources {
        for container in &pod.containers {
            for claim in &container.dynamic_resources {
                let mut resources = claim.claim_resources.iter();
                if resources.any(|resource| resource.driver_name == DRIVER) {
                    all.push(Use {
                        namespace: pod.namespace.clone(),
                        pod: pod.name.clone(),
                        container: container.name.clone(),
                        claim: claim.claim_name.clone(),
                    });
                }
            }
        }
    }
    all.sort();
    // Kubelets before 1.36 tell twice of a container that names two requests of a claim.
    all.dedup();
    all
}
