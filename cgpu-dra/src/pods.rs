// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Which container uses which claim, as the kubelet tells it to programs of its node
//! (`PodResourcesLister`). So this driver needs no right to read pods.

use crate::{
    names::DRIVER,
    proto::{ListPodResourcesResponse, Nothing},
    rpc,
};
use std::{path::Path, time::Duration};

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
    let asked = rpc::ask(socket, "/v1.PodResourcesLister/List", &Nothing {}, LARGEST);
    let answer = tokio::time::timeout(PATIENCE, asked).await;
    answer
        .unwrap_or_else(|_| Err("the kubelet does not answer".to_owned()))
        .map(|answer| uses(&answer))
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
