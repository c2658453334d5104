// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Events about wishes of pods that are not kept. The creator of a pod may be a controller, which
//! shows nobody a warning. A pod has no uid yet when it is admitted, so an event is about the
//! pod's owner, or about the template of its claim.

use crate::{
    apiserver::{answer, sentence},
    asked::AskedMetadata,
    names::{is_object, Uid},
    once::Once,
};
use k8s_openapi::{
    api::core::v1::Event, api::core::v1::ObjectReference, api::resource::v1::ResourceClaimTemplate,
    apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp,
};
use kube::{
    api::{Patch, PatchParams, PostParams},
    Api, Client,
};
use serde_json::json;
use std::{
    collections::{hash_map::RandomState, BTreeMap},
    hash::BuildHasher,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Most events of this program in a namespace at a time: whoever creates pods there can have that
/// many made.
const MOST_EVENTS: usize = 25;
/// Most namespaces with events at a time. In more, nothing is said.
const MOST_NAMESPACES: usize = 500;
/// How long the apiserver keeps an event, unless its `--event-ttl` says otherwise.
const KEPT: Duration = Duration::from_secs(3600);
/// An event that happens again and again is written once in so long.
const PAUSE: Duration = Duration::from_secs(600);
/// Longest message, bytes. The apiserver takes 1024 in the newer form of events.
const LONGEST: usize = 1000;
/// Longest kind and version of an owner.
const LONGEST_KIND: usize = 100;

/// An event that is there, or is being made.
struct Recorded {
    /// Of the object and the message.
    key: u64,
    /// Once the apiserver has given it one.
    name: Option<String>,
    count: i32,
    written: Instant,
}

/// The next thing to write about an event.
#[derive(Debug, PartialEq, Eq)]
struct Due {
    /// The event; none: a new one.
    name: Option<String>,
    /// How often it has happened.
    count: i32,
}

/// The events of the last hour, by namespace.
#[derive(Default)]
struct Recent {
    told: BTreeMap<String, Vec<Recorded>>,
    failed: Once,
}

impl Recent {
    /// Notes that something has happened. `None`: it is not to be written now.
    fn turn(&mut self, namespace: &str, key: u64, now: Instant) -> Option<Due> {
        let is_kept = |told: &Recorded| now.duration_since(told.written) < KEPT;
        self.told.retain(|_, all| {
            all.retain(is_kept);
            !all.is_empty()
        });
        if !self.told.contains_key(namespace) && self.told.len() == MOST_NAMESPACES {
            return None;
        }
        let all = self.told.entry(namespace.to_owned()).or_default();
        if let Some(same) = all.iter_mut().find(|told| told.key == key) {
            same.count = same.count.saturating_add(1);
            if now.duration_since(same.written) < PAUSE {
                return None;
            }
            same.written = now;
            return Some(Due {
                name: same.name.clone(),
                count: same.count,
            });
        }
        if all.len() == MOST_EVENTS {
            return None;
        }
        all.push(Recorded {
            key,
            name: None,
            count: 1,
            written: now,
        });
        Some(Due {
            name: None,
            count: 1,
        })
    }

    /// Notes how it went. An event that failed is tried again when its turn comes.
    fn note(&mut self, namespace: &str, key: u64, written: kube::Result<Event>) {
        match written {
            Ok(event) => {
                let all = self.told.get_mut(namespace).into_iter().flatten();
                for told in all.filter(|told| told.key == key) {
                    told.name.clone_from(&event.metadata.name);
                }
                self.failed.say(None);
            }
            Err(error) => self
                .failed
                .say(Some(format!("cannot write an event: {}", sentence(&error)))),
        }
    }
}

/// The writer of the events.
#[derive(Default)]
pub struct Events {
    keys: RandomState,
    recent: Mutex<Recent>,
}

impl Events {
    /// Says in an event which of a pod's wishes are not kept. It is written in a task of its own:
    /// no pod waits for it, and none is refused if it fails.
    pub fn tell(
        self: &Arc<Self>,
        client: &Client,
        namespace: &str,
        pod: &AskedMetadata,
        template: &ResourceClaimTemplate,
        notes: &[String],
    ) {
        let about = about(namespace, pod, template);
        let message = message(pod, notes);
        let key = self.keys.hash_one((&about.uid, &message));
        let recent = self.recent.lock();
        let turn =
            recent
                .unwrap_or_else(PoisonError::into_inner)
                .turn(namespace, key, Instant::now());
        let Some(turn) = turn else {
            return;
        };
        let event = event(about, message, turn.count, Timestamp::now());
        let (own, namespace) = (self.clone(), namespace.to_owned());
        let api = Api::namespaced(client.clone(), &namespace);
        tokio::spawn(async move {
            let written = write(&api, turn, &event).await;
            let recent = own.recent.lock();
            recent
                .unwrap_or_else(PoisonError::into_inner)
                .note(&namespace, key, written);
        });
    }
}

/// Writes an event, anew if it is gone.
async fn write(events: &Api<Event>, turn: Due, event: &Event) -> kube::Result<Event> {
    if let Some(name) = &turn.name {
        let again = json!({"count": event.count, "lastTimestamp": event.last_timestamp});
        let by = PatchParams::default();
        match answer(events.patch(name, &by, &Patch::Merge(again))).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            written => return written,
        }
    }
    answer(events.create(&PostParams::default(), event)).await
}

/// The object that an event is about. Whoever creates a pod writes its owners, so that only what
/// can be one is taken.
fn about(
    namespace: &str,
    pod: &AskedMetadata,
    template: &ResourceClaimTemplate,
) -> ObjectReference {
    let namespace = Some(namespace.to_owned());
    let is_word = |text: &str, more: &[u8]| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || more.contains(&b);
        !text.is_empty() && text.len() <= LONGEST_KIND && text.bytes().all(plain)
    };
    let owner = pod.owner.as_ref().and_then(|owners| owners.0.as_ref());
    let owner = owner.filter(|owner| {
        is_object(&owner.name.0)
            && Uid::new(&owner.uid.0).is_some()
            && is_word(&owner.kind.0, b"")
            && is_word(&owner.api_version.0, b"/.-")
    });
    match owner {
        Some(owner) => ObjectReference {
            api_version: Some(owner.api_version.0.clone()),
            kind: Some(owner.kind.0.clone()),
            name: Some(owner.name.0.clone()),
            uid: Some(owner.uid.0.clone()),
            namespace,
            ..ObjectReference::default()
        },
        None => ObjectReference {
            api_version: Some("resource.k8s.io/v1".to_owned()),
            kind: Some("ResourceClaimTemplate".to_owned()),
            name: template.metadata.name.clone(),
            uid: template.metadata.uid.clone(),
            namespace,
            ..ObjectReference::default()
        },
    }
}

/// The sentences of an event. A pod whose name its controller makes is not named: all of them
/// together have one event.
fn message(pod: &AskedMetadata, notes: &[String]) -> String {
    let name = pod.name.as_ref().map(|name| &*name.0).unwrap_or_default();
    let whose = if is_object(name) {
        format!("the pod {name}")
    } else {
        "a pod".to_owned()
    };
    let text = format!("of {whose} not all is kept: {}", notes.join("; "));
    let plain = text.chars().filter(|c| !c.is_control());
    let mut kept = String::new();
    for c in plain {
        if kept.len() + c.len_utf8() > LONGEST {
            break;
        }
        kept.push(c);
    }
    kept
}

fn event(about: ObjectReference, message: String, count: i32, now: Timestamp) -> Event {
    let mut event = Event {
        involved_object: about,
        message: Some(message),
        reason: Some("NotKept".to_owned()),
        type_: Some("Warning".to_owned()),
        count: Some(count),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        ..Event::default()
    };
    event.metadata.generate_name = Some("cgpu-webhook.".to_owned());
    event.source.get_or_insert_default().component = Some("cgpu-webhook".to_owned());
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{json, Value};

    const UID: &str = "7b2ea4b2-0000-4000-8000-00000000000f";

    fn template() -> ResourceClaimTemplate {
        let template = json!({"metadata": {"name": "cgpu-512m-x1",
            "uid": "t"}, "spec": {"spec": {}}});
        serde_json::from_value(template).expect("a template")
    }

    fn metadata(metadata: Value) -> AskedMetadata {
        serde_json::from_value(metadata).expect("metadata")
    }

    #[test]
    fn a_loop_of_pods_makes_few_events() {
        let (mut recent, began) = (Recent::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        // One that happens again and again is written every ten minutes.
        let written: Vec<_> = (0..3600)
            .filter_map(|second| recent.turn("team-a", 1, at(second)))
            .map(|turn| turn.count)
            .collect();
        assert_eq!(written, [1, 601, 1201, 1801, 2401, 3001]);
        let different = |recent: &mut Recent, namespace: &str| {
            let keys = 1000..2000;
            keys.filter_map(|key| recent.turn(namespace, key, at(3600)))
                .count()
        };
        assert_eq!(different(&mut recent, "team-a"), 24);
        assert_eq!(different(&mut recent, "team-b"), 25);
        assert_eq!(different(&mut recent, "team-b"), 0);
        // When the apiserver has thrown them away there is room again.
        assert!(recent.turn("team-b", 9, at(7199)).is_none());
        assert!(recent.turn("team-b", 9, at(7200)).is_some());
        assert_eq!(recent.told.len(), 1);
    }

    #[test]
    fn few_namespaces_are_remembered() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let fits = (0..1000).filter(|n| recent.turn(&format!("n{n}"), 1, now).is_some());
        assert_eq!(fits.count(), MOST_NAMESPACES);
        assert!(recent.turn("n1", 2, now).is_some());
    }

    #[test]
    fn an_event_that_failed_is_tried_again() {
        let (mut recent, began) = (Recent::default(), Instant::now());
        let mut turn = |failed: Option<&str>, seconds| {
            let turn = recent.turn("n", 1, began + Duration::from_secs(seconds));
            let mut made = Event::default();
            made.metadata.name = failed.map(str::to_owned);
            let lost = || Err(kube::Error::Service("lost".into()));
            recent.note("n", 1, failed.map_or_else(lost, |_| Ok(made)));
            turn.expect("a turn").name
        };
        assert_eq!(turn(None, 0), None);
        assert_eq!(turn(Some("e.1"), 600), None);
        assert_eq!(turn(Some("e.1"), 1200), Some("e.1".to_owned()));
    }

    #[test]
    fn an_event_is_about_owner_or_template() {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d",
            "uid": UID, "controller": true});
        let about_of = |pod: Value| {
            let about = about("team-a", &metadata(pod), &template());
            assert_eq!(about.namespace.as_deref(), Some("team-a"));
            [about.kind, about.name, about.uid].map(Option::unwrap_or_default)
        };
        let owned = json!({"ownerReferences": [owner, {"kind": "Other"}]});
        assert_eq!(about_of(owned), ["ReplicaSet", "web-5d", UID]);
        let own = ["ResourceClaimTemplate", "cgpu-512m-x1", "t"];
        assert_eq!(about_of(json!({"name": "p"})), own);
        assert_eq!(about_of(json!({"ownerReferences": []})), own);
        for (field, odd) in [
            ("name", "../x"),
            ("uid", "x"),
            ("kind", "a b"),
            ("apiVersion", ""),
        ] {
            let mut owner = owner.clone();
            owner[field] = odd.into();
            assert_eq!(
                about_of(json!({"ownerReferences": [owner]})),
                own,
                "{field}"
            );
        }
    }

    #[test]
    fn a_message_is_short_and_plain() {
        let notes = ["a\nb".to_owned(), "\u{e9}".repeat(1000)];
        let said = message(&metadata(json!({"name": "p"})), &notes);
        assert!(
            said.starts_with("of the pod p not all is kept: ab; "),
            "{said}"
        );
        assert_eq!(said.len(), LONGEST);
        let said = message(&metadata(json!({"generateName": "p-"})), &notes);
        assert!(said.starts_with("of a pod not all is kept: "), "{said}");
    }
}
