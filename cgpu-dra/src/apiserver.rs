// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The apiserver: how long it is waited for, the claims that it has, and its words when it refuses.
//!
//! Users write claims, and only the size of the whole object bounds their labels: 1.5 MB, which
//! take many times that in memory, and again in the notes of who has set which field. So a claim's
//! parts that nobody needs are passed over while it is read, few claims are read at once, and the
//! events of a watch are not read at all.

use crate::{
    asked::AskedText,
    status::{MEMORY, WEIGHT},
};
use futures_util::AsyncBufRead;
use k8s_openapi::{
    api::resource::v1::{ResourceClaim, ResourceClaimSpec, ResourceClaimStatus},
    apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta},
};
use kube::{
    api::{ListParams, Patch, PatchParams, WatchParams},
    core::Request,
    Client, Config, Resource,
};
use serde::{de::DeserializeOwned, Deserialize, Serialize};
use std::{future::Future, mem, time::Duration};
use tokio::sync::Semaphore;

/// How long one watch lasts, seconds. The apiserver ends it.
pub const WATCH: u32 = 280;
/// Longest silence on a connection: more than that of a watch without events.
pub const SILENCE: Duration = Duration::from_secs(300);
/// Longest wait for an answer. By default the apiserver itself gives up a request then.
const PATIENCE: Duration = Duration::from_secs(60);
/// Of those who read a claim.
static TURNS: Semaphore = Semaphore::const_new(3);

/// A client that gives up a connection on which nothing has come for so long: its other end may be
/// gone without a word.
pub fn client(mut config: Config, silence: Duration) -> kube::Result<Client> {
    config.read_timeout = Some(silence);
    // Not counting the time in which nothing was asked.
    config.reset_reader_on_write = true;
    Client::try_from(config)
}

/// The answer to a request, if it comes in time.
pub async fn answer<T>(asked: impl Future<Output = kube::Result<T>>) -> kube::Result<T> {
    let answered = tokio::time::timeout(PATIENCE, asked).await;
    answered.unwrap_or_else(|_| Err(kube::Error::Service("the apiserver does not answer".into())))
}

/// The sentence of an error, without the object around it that the apiserver sends as well.
pub fn sentence(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Looks through the bytes of a watch for the event that its object was deleted. Each event is a
/// line, whose type Kubernetes writes first, and no text of the object can begin one.
#[derive(Debug, Default)]
pub struct Deletions {
    line: Line,
    found: bool,
}

/// How much of a line has come.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// So many bytes, all as in the event of a deletion.
    Begins(usize),
    /// More, which are passed over.
    Known,
}

impl Default for Line {
    fn default() -> Self {
        Self::Begins(0)
    }
}

impl Deletions {
    const BEGINNING: &[u8] = br#"{"type":"DELETED","#;

    /// Takes the next bytes.
    pub fn note(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.line = match self.line {
                _ if *byte == b'\n' => Line::default(),
                Line::Begins(n) if Self::BEGINNING.get(n) == Some(byte) => {
                    self.found |= n + 1 == Self::BEGINNING.len();
                    Line::Begins(n + 1)
                }
                _ => Line::Known,
            };
        }
    }

    /// Whether there was one since this was asked last.
    pub fn take(&mut self) -> bool {
        mem::take(&mut self.found)
    }
}

/// A claim as it is read.
#[derive(Deserialize)]
struct ReadClaim {
    metadata: ReadMetadata,
    #[serde(default)]
    spec: ResourceClaimSpec,
    status: Option<ResourceClaimStatus>,
}

#[derive(Deserialize)]
struct ReadMetadata {
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
    #[serde(default)]
    annotations: ReadAnnotations,
}

#[derive(Default, Deserialize)]
struct ReadAnnotations {
    #[serde(rename = "cgpu.io/memory")]
    memory: Option<AskedText>,
    #[serde(rename = "cgpu.io/weight")]
    weight: Option<AskedText>,
}

#[derive(Deserialize)]
struct ReadList {
    metadata: ListMeta,
    items: Vec<ReadClaim>,
}

impl From<ReadClaim> for ResourceClaim {
    fn from(read: ReadClaim) -> Self {
        let ReadAnnotations { memory, weight } = read.metadata.annotations;
        let wishes = [(MEMORY, memory), (WEIGHT, weight)];
        let wishes = wishes
            .into_iter()
            .filter_map(|(key, text)| Some((key.to_owned(), text?.0)));
        Self {
            metadata: ObjectMeta {
                namespace: read.metadata.namespace,
                name: read.metadata.name,
                uid: read.metadata.uid,
                annotations: Some(wishes.collect()),
                ..ObjectMeta::default()
            },
            spec: read.spec,
            status: read.status,
        }
    }
}

/// The claims of a namespace.
pub struct ClaimApi {
    client: Client,
    requests: Request,
}

impl ClaimApi {
    /// Those of this namespace.
    pub fn of(client: Client, namespace: &str) -> Self {
        let requests = Request::new(ResourceClaim::url_path(&(), Some(namespace)));
        Self { client, requests }
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
    ) -> kube::Result<T> {
        let request = request.map_err(kube::Error::BuildRequest)?;
        // Nobody closes the semaphore.
        let _turn = TURNS.acquire().await;
        answer(self.client.request(request)).await
    }

    /// A claim, if it is there, and the version to watch it from. It is listed, because an
    /// apiserver refuses to watch from the version of a claim that has not changed for long.
    pub async fn find(&self, name: &str) -> kube::Result<(Option<ResourceClaim>, String)> {
        let only = ListParams::default().fields(&format!("metadata.name={name}"));
        let found: ReadList = self.ask(self.requests.list(&only)).await?;
        let version = found.metadata.resource_version.unwrap_or_default();
        let claim = found.items.into_iter().next();
        Ok((claim.map(ResourceClaim::from), version))
    }

    /// The events of a claim, as bytes that say that it may be another.
    pub async fn watch(&self, name: &str, version: &str) -> kube::Result<impl AsyncBufRead> {
        let only = WatchParams::default().fields(&format!("metadata.name={name}"));
        let only = only.timeout(WATCH).disable_bookmarks();
        let request = self.requests.watch(&only, version);
        let request = request.map_err(kube::Error::BuildRequest)?;
        answer(self.client.request_stream(request)).await
    }

    /// Changes a claim's status.
    pub async fn patch_status<P: Serialize>(
        &self,
        name: &str,
        by: &PatchParams,
        patch: &Patch<P>,
    ) -> kube::Result<ResourceClaim> {
        let request = self.requests.patch_subresource("status", name, by, patch);
        let changed: ReadClaim = self.ask(request).await?;
        Ok(changed.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn the_largest_claim_takes_little_memory() {
        let odd: BTreeMap<_, _> = (0..50_000).map(|n| (format!("x{n}"), "")).collect();
        let mut wishes = json!(odd);
        wishes[MEMORY] = "4Gi".into();
        wishes[WEIGHT] = "7".repeat(100_000).into();
        let claim = json!({
            "metadata": {"namespace": "n", "name": "c", "uid": "u", "labels": odd,
                "annotations": wishes, "managedFields": [{"fieldsV1": {"f:labels": odd}}]},
            "spec": {}, "status": {"allocation": {}},
        });
        let list = json!({"metadata": {"resourceVersion": "5"}, "items": [claim]});
        let read: ReadList = serde_json::from_str(&list.to_string()).expect("a list");
        let claim = read.items.into_iter().next().map(ResourceClaim::from);
        let claim = claim.expect("a claim");
        let wishes = claim.metadata.annotations.as_ref().expect("annotations");
        assert_eq!(wishes[MEMORY], "4Gi");
        assert!(claim
            .status
            .as_ref()
            .is_some_and(|s| s.allocation.is_some()));
        let kept = format!("{claim:?}");
        assert!(kept.len() < 2000, "{}", kept.len());
    }

    #[test]
    fn a_line_tells_of_a_deletion() {
        let deleted = r#"{"type":"DELETED","object":{}}"#;
        let quoted = format!(r#"{{"type":"MODIFIED","object":{deleted}}}"#);
        for (text, is_told) in [
            (format!("{deleted}\n"), true),
            (format!("{quoted}\n{deleted}"), true),
            (format!("{quoted}\n{quoted}\n"), false),
            (format!(" {deleted}\n"), false),
            ("{\"type\":\"DELETED\n\",".to_owned(), false),
        ] {
            // In pieces of any size.
            for size in 1..=text.len() {
                let mut deletions = Deletions::default();
                let pieces = text.as_bytes().chunks(size);
                pieces.for_each(|piece| deletions.note(piece));
                assert_eq!(deletions.take(), is_told, "{text}");
                assert!(!deletions.take());
            }
        }
    }

    #[tokio::test]
    async fn a_silent_connection_is_given_up() {
        // Nobody takes the connection that the kernel makes.
        let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let at = format!("http://{}", silent.local_addr().expect("bound"));
        let config = Config::new(at.parse().expect("an address"));
        let client = client(config, Duration::from_secs(1)).expect("a client");
        let claims = ClaimApi::of(client, "n");
        let watched = tokio::time::timeout(Duration::from_secs(20), claims.watch("c", "5")).await;
        assert!(watched.expect("in time").is_err());
    }
}
