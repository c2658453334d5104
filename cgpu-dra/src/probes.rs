// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Probes: whether this program answers, and whether it is of use yet. Its sockets have the usual
//! service for that (`grpc.health.v1`), which the kubelet itself can ask at a port only. So the
//! chart has the program ask itself.

use crate::{
    proto::{HealthAnswer, HealthQuestion},
    rpc::{self, unary, Answer, Call},
};
use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// The method of the service.
pub const CHECK: &str = "/grpc.health.v1.Health/Check";
/// The question whether the program is of use. Any other is whether it answers.
const READINESS: &str = "readiness";
/// Longest wait for an answer. The chart's probes wait longer.
const PATIENCE: Duration = Duration::from_secs(4);
/// The largest answer that is read, bytes.
const LARGEST: usize = 1 << 10;
/// `SERVING` and `NOT_SERVING`.
const SERVING: [i32; 2] = [1, 2];

/// Whether the kubelet knows the driver, and the scheduler its GPUs.
#[derive(Debug, Default)]
pub struct Readiness {
    registered: AtomicBool,
    published: AtomicBool,
}

impl Readiness {
    /// Notes whether the kubelet has registered the driver.
    pub fn note_registered(&self, is_registered: bool) {
        self.registered.store(is_registered, Ordering::Relaxed);
    }

    /// Notes that the apiserver has had the node's slice.
    pub fn note_published(&self) {
        self.published.store(true, Ordering::Relaxed);
    }

    /// Whether both are noted.
    pub fn is_ready(&self) -> bool {
        let is = |noted: &AtomicBool| noted.load(Ordering::Relaxed);
        is(&self.registered) && is(&self.published)
    }

    /// Answers a probe.
    pub async fn answer(&self, call: Call) -> Answer {
        let is_ready = self.is_ready();
        unary(call, move |asked: HealthQuestion| {
            let [yes, no] = SERVING;
            let is_well = is_ready || asked.service != READINESS;
            let status = if is_well { yes } else { no };
            std::future::ready(Ok(HealthAnswer { status }))
        })
        .await
    }
}

/// Asks the program at a socket whether it answers, or whether it is ready. An error is a sentence.
pub async fn ask(socket: &Path, is_ready: bool) -> Result<(), String> {
    let question = HealthQuestion {
        service: if is_ready { READINESS } else { "" }.to_owned(),
    };
    let asked = rpc::ask::<_, HealthAnswer>(socket, CHECK, &question, LARGEST);
    let answer = tokio::time::timeout(PATIENCE, asked).await;
    let answer = answer.map_err(|_| format!("{} does not answer", socket.display()))??;
    if answer.status == SERVING[0] {
        Ok(())
    } else {
        Err("the kubelet has not registered the driver, or its GPUs are not published".to_owned())
    }
}
