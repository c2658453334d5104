// SPDX-License-Identifier: GPL-2.0 OR MIT
//! How cases end, and how they wait for what a cluster does in its own time.

use kube::Api;
use serde::{de::DeserializeOwned, Serialize};
use std::{
    fmt::Debug,
    future::Future,
    time::{Duration, Instant},
};

/// How a case ends.
pub(crate) type Outcome = Result<(), String>;
/// Longest wait for anything; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// Fails with a sentence.
pub(crate) fn must(held: bool, what: impl Debug) -> Outcome {
    if held {
        Ok(())
    } else {
        Err(format!("{what:?}"))
    }
}

/// Waits until something is there.
pub(crate) async fn wait<T, F>(what: &str, mut look: impl FnMut() -> F) -> Result<T, String>
where
    F: Future<Output = Option<T>>,
{
    let began = Instant::now();
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("waited {PATIENCE:?} in vain for {what}"));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Reads an object again and again until it says something.
pub(crate) async fn until<K, T>(
    api: &Api<K>,
    name: &str,
    what: &str,
    look: impl Fn(&K) -> Option<T>,
) -> Result<T, String>
where
    K: Clone + DeserializeOwned + Debug + Serialize,
{
    wait(what, || async { look(&api.get(name).await.ok()?) }).await
}
