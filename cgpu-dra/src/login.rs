// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The login of those who read the figures, which name the cluster's namespaces and pods. A client
//! shows a token of Kubernetes, and the token's user needs the right to `get` the path, as for the
//! figures of Kubernetes' own components. The apiserver judges both, by a TokenReview and a
//! SubjectAccessReview.

use crate::{apiserver::sentence, rounds::Rounds};
use http::{header::AUTHORIZATION, HeaderMap, StatusCode};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{api::PostParams, Api, Client, Resource};
use serde::{de::DeserializeOwned, Serialize};
use std::{
    collections::BTreeMap,
    fmt::Debug,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// The path of the figures, which the right names.
pub const PATH: &str = "/metrics";
/// How long a token that was allowed is allowed without asking again.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// How long such a token is judged ahead of those that are new here.
const REMEMBERED_FOR: Duration = Duration::from_secs(600);
/// The most tokens that are remembered.
const KNOWN: usize = 32;
/// The shortest time for one token that is new here. Whoever reaches the port can send tokens, and
/// the apiserver judges them among the requests of all nodes' drivers.
const PACE: Duration = Duration::from_millis(200);
/// Longest wait for the apiserver. Prometheus gives up a scrape after 10 s by default.
const PATIENCE: Duration = Duration::from_secs(4);

/// Why a client gets no figures.
#[derive(Debug, thiserror::Error)]
pub enum Denied {
    /// It shows no token.
    #[error("the figures need a token of this cluster: Authorization: Bearer TOKEN")]
    NoToken,
    /// The apiserver does not know the token.
    #[error("the cluster does not know this token, or it has expired")]
    UnknownToken,
    /// The token's user has no right.
    #[error("{0} may not get {PATH}; bind that user to the ClusterRole cgpu-metrics-reader")]
    Forbidden(String),
    /// The apiserver did not judge.
    #[error("cannot ask the apiserver about the token: {0}")]
    NotJudged(String),
}

impl Denied {
    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoToken | Self::UnknownToken => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotJudged(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Has the apiserver judge a review.
async fn judge<R>(client: &Client, review: &R) -> Result<R, Denied>
where
    R: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize,
{
    let reviews: Api<R> = Api::all(client.clone());
    let how = PostParams::default();
    match tokio::time::timeout(PATIENCE, reviews.create(&how, review)).await {
        Ok(judged) => judged.map_err(|error| Denied::NotJudged(sentence(&error))),
        Err(_) => Err(Denied::NotJudged("it does not answer".to_owned())),
    }
}

/// Judges clients, and remembers for a while which were allowed.
pub struct Login {
    client: Client,
    allowed: Mutex<BTreeMap<String, Instant>>,
    /// Of those that are judged again.
    renewals: Semaphore,
    /// Of those that are judged for the first time: a flood of made-up tokens from one address is
    /// not to keep out another one's new token.
    strangers: Rounds,
}

impl Login {
    /// Asks the apiserver by this client.
    pub fn by(client: Client) -> Self {
        Self {
            client,
            allowed: Mutex::default(),
            renewals: Semaphore::new(2),
            strangers: Rounds::default(),
        }
    }

    /// Whether the client at `peer` that sent these headers may read the figures.
    ///
    /// # Errors
    ///
    /// It may not, or the apiserver did not judge.
    pub async fn check(&self, headers: &HeaderMap, peer: IpAddr) -> Result<(), Denied> {
        let token = bearer(headers).ok_or(Denied::NoToken)?;
        let age = self.age(token, Instant::now());
        if age.is_some_and(|age| age < KNOWN_FOR) {
            return Ok(());
        }
        if age.is_some() {
            // Nobody closes the semaphore.
            let _turn = self.renewals.acquire().await;
            return self.judge(token).await;
        }
        let judged = async { tokio::join!(self.judge(token), tokio::time::sleep(PACE)).0 };
        self.strangers.take(peer, judged).await
    }

    async fn judge(&self, token: &str) -> Result<(), Denied> {
        let judged = match self.user_of(token).await {
            Ok(user) => self.may_read(user).await,
            Err(why) => Err(why),
        };
        match &judged {
            Ok(()) => self.note(token, Instant::now()),
            Err(Denied::NotJudged(_)) => {}
            Err(_) => self.forget(token),
        }
        judged
    }

    /// How long ago a token was allowed.
    fn age(&self, token: &str, now: Instant) -> Option<Duration> {
        let allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        let age = now.duration_since(*allowed.get(token)?);
        (age < REMEMBERED_FOR).then_some(age)
    }

    fn forget(&self, token: &str) {
        let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        allowed.remove(token);
    }

    /// Notes that a token was allowed. If there are too many, the oldest is forgotten.
    fn note(&self, token: &str, now: Instant) {
        let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        allowed.retain(|_, since| now.duration_since(*since) < REMEMBERED_FOR);
        if allowed.len() >= KNOWN && !allowed.contains_key(token) {
            let oldest = allowed.iter().min_by_key(|(_, since)| **since);
            if let Some(oldest) = oldest.map(|(token, _)| token.clone()) {
                allowed.remove(&oldest);
            }
        }
        allowed.insert(token.to_owned(), now);
    }

    async fn user_of(&self, token: &str) -> Result<UserInfo, Denied> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let judged = judge(&self.client, &review).await?;
        let status = judged.status.unwrap_or_default();
        let is_known = status.authenticated == Some(true);
        let user = status.user.filter(|_| is_known);
        user.ok_or(Denied::UnknownToken)
    }

    async fn may_read(&self, user: UserInfo) -> Result<(), Denied> {
        let name = user.username.clone().unwrap_or_default();
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(PATH.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let judged = judge(&self.client, &review).await?;
        let is_allowed = judged.status.is_some_and(|status| status.allowed);
        is_allowed.then_some(()).ok_or(Denied::Forbidden(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::Ipv4Addr, sync::Arc};

    /// The address of a flood, and another one.
    const MANY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
    const ONE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

    fn login() -> Login {
        let nowhere = http::Uri::from_static("http://127.0.0.1:9");
        let client = Client::try_from(kube::Config::new(nowhere));
        Login::by(client.expect("a client"))
    }

    #[test]
    fn a_token_is_read_from_the_header() {
        for (said, token) in [
            ("Bearer a.b.c", Some("a.b.c")),
            ("bearer  a.b.c ", Some("a.b.c")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic YTpi", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, said.parse().expect("a value"));
            assert_eq!(bearer(&headers), token, "{said}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[tokio::test]
    async fn tokens_are_forgotten() {
        let (login, start) = (login(), Instant::now());
        let names: Vec<_> = (0..=KNOWN).map(|n| format!("token-{n}")).collect();
        for (n, name) in (0..).zip(&names) {
            assert_eq!(login.age(name, start), None);
            login.note(name, start + Duration::from_millis(n));
        }
        let soon = start + KNOWN_FOR;
        let known = |now| names.iter().filter_map(|name| login.age(name, now)).count();
        // The oldest made room for the last one.
        assert_eq!(login.age(&names[0], soon), None);
        assert_eq!(known(soon), KNOWN);
        assert!(login
            .age(&names[1], soon)
            .is_some_and(|age| age < KNOWN_FOR));
        login.note(&names[1], soon);
        assert_eq!(known(soon), KNOWN);
        login.forget(&names[2]);
        assert_eq!(known(soon), KNOWN - 1);
        assert_eq!(known(start + REMEMBERED_FOR + Duration::from_secs(1)), 1);
    }

    /// No apiserver listens there. A token that it has allowed lately needs none, and one that it
    /// has allowed is judged before many that it does not know. So is a new one of another address.
    #[tokio::test]
    async fn strangers_hold_up_no_known_reader() {
        let login = Arc::new(login());
        let asks = |token: &str| {
            let said = format!("Bearer {token}").parse().expect("a value");
            HeaderMap::from_iter([(AUTHORIZATION, said)])
        };
        let now = Instant::now();
        login.note("known", now);
        let past = now.checked_sub(KNOWN_FOR).expect("a time");
        login.note("before", past);
        // Each takes a pace, and all of them 20 seconds.
        let flood: Vec<_> = (0..100)
            .map(|n| {
                let (login, headers) = (login.clone(), asks(&format!("stranger-{n}")));
                tokio::spawn(async move { login.check(&headers, MANY).await })
            })
            .collect();
        tokio::task::yield_now().await;
        login.check(&asks("known"), MANY).await.expect("allowed");
        let judged = login.check(&asks("before"), MANY).await;
        let why = judged.expect_err("nobody judges");
        assert_eq!(why.status(), StatusCode::SERVICE_UNAVAILABLE);
        let waiting = flood.iter().filter(|asked| !asked.is_finished()).count();
        assert!(waiting > 0, "the strangers went first");
        // Its token is new, as one that Prometheus has just been given.
        let judged = login.check(&asks("rotated"), ONE).await;
        let why = judged.expect_err("nobody judges");
        assert_eq!(why.status(), StatusCode::SERVICE_UNAVAILABLE);
        let waiting = flood.iter().filter(|asked| !asked.is_finished()).count();
        assert!(waiting > 50, "{waiting} strangers of another address wait");
        for asked in flood {
            asked.abort();
        }
    }
}
