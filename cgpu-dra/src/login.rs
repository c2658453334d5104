// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The login of those who read the figures, which name the cluster's namespaces and pods. A client
//! shows a token of Kubernetes, and the token's user needs the right to `get` the path, as for the
//! figures of Kubernetes' own components. The apiserver judges both, by a TokenReview and a
//! SubjectAccessReview.

use crate::apiserver::sentence;
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
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The path of the figures, which the right names.
pub const PATH: &str = "/metrics";
/// How long a token that was allowed is allowed without asking again.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// The most tokens that are remembered.
const KNOWN: usize = 32;
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
}

impl Login {
    /// Asks the apiserver by this client.
    pub fn by(client: Client) -> Self {
        Self {
            client,
            allowed: Mutex::default(),
        }
    }

    /// Whether the client that sent these headers may read the figures.
    ///
    /// # Errors
    ///
    /// It may not, or the apiserver did not judge.
    pub async fn check(&self, headers: &HeaderMap) -> Result<(), Denied> {
        let token = bearer(headers).ok_or(Denied::NoToken)?;
        if self.is_allowed(token, Instant::now()) {
            return Ok(());
        }
        let user = self.user_of(token).await?;
        self.may_read(user).await?;
        self.note(token, Instant::now());
        Ok(())
    }

    fn is_allowed(&self, token: &str, now: Instant) -> bool {
        let allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        let since = allowed.get(token);
        since.is_some_and(|since| now.duration_since(*since) < KNOWN_FOR)
    }

    /// Notes that a token was allowed. If there are too many, the oldest is forgotten.
    fn note(&self, token: &str, now: Instant) {
        let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        allowed.retain(|_, since| now.duration_since(*since) < KNOWN_FOR);
        if allowed.len() >= KNOWN {
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
            assert!(!login.is_allowed(name, start));
            login.note(name, start + Duration::from_millis(n));
        }
        let late = start + KNOWN_FOR;
        let known = |now| {
            names
                .iter()
                .filter(|name| login.is_allowed(name, now))
                .count()
        };
        // The oldest made room for the last one.
        assert!(!login.is_allowed(&names[0], start + Duration::from_secs(1)));
        assert_eq!(known(start + Duration::from_secs(1)), KNOWN);
        assert_eq!(known(late), KNOWN);
        assert_eq!(known(late + Duration::from_secs(1)), 0);
    }
}
