// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `GpuConfig`: what a claim or a class says beside the capacities, as opaque parameters.
//!
//! Users of the cluster write it. A field that is not known is an error, so that a misspelt one is
//! not lost silently. What can harm neighbours takes the word of a class or of the operator
//! ([`Allowed`]).

use cgpu_client::capabilities::Capabilities;
use cgpu_uapi::{
    capability::{COMPUTE, UTILITY, VIDEO},
    ManagedMode, Priority, BURST_MS_MAX,
};
use serde::Deserialize;
use serde_json::Value;

/// `apiVersion` of the parameters.
pub const API_VERSION: &str = "cgpu.io/v1alpha1";
/// `kind` of the parameters.
pub const KIND: &str = "GpuConfig";
/// The burst of a GPU whose operator has set none, milliseconds.
pub const BURST_MS: u32 = 200;
/// Longest part of a text of a user that a message repeats.
const SHOWN: usize = 200;

/// Why parameters were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parameters of driver gpu.cgpu.io are not understood: {why}")]
pub struct ConfigError {
    why: String,
}

impl ConfigError {
    fn new(why: impl ToString) -> Self {
        let why = why.to_string();
        let shown = why.chars().filter(|c| !c.is_control()).take(SHOWN);
        Self {
            why: shown.collect(),
        }
    }
}

/// A claim asks for more than it may have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the claim asks for {what}, which its DeviceClass does not allow; an administrator of the \
     cluster can allow it in the parameters of a class"
)]
pub struct Forbidden {
    what: String,
}

/// The most that a claim may ask for where its class says nothing of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The sets of calls.
    pub capabilities: Capabilities,
    /// The priority.
    pub priority: Priority,
    /// The burst, milliseconds. Neighbours wait for it.
    pub burst_ms: u32,
}

impl Default for Allowed {
    /// Nothing by which a claim can see neighbours or slow them down (SECURITY.md).
    fn default() -> Self {
        Self {
            capabilities: Capabilities(COMPUTE | UTILITY | VIDEO),
            priority: Priority::Normal,
            burst_ms: BURST_MS,
        }
    }
}

impl Allowed {
    /// The operator's words, and the default's capabilities.
    pub fn with(more: Option<Capabilities>, priority: Priority, burst_ms: u32) -> Self {
        let more = more.map_or(0, |more| more.0);
        Self {
            capabilities: Capabilities(Self::default().capabilities.0 | more),
            priority,
            burst_ms,
        }
    }

    /// This, but where a class says something, what the class says.
    fn of_class(self, class: &GpuConfig) -> Self {
        Self {
            capabilities: class.capabilities.unwrap_or(self.capabilities),
            priority: class.priority.unwrap_or(self.priority),
            burst_ms: class.burst_ms.unwrap_or(self.burst_ms),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenConfig {
    api_version: String,
    kind: String,
    priority: Option<String>,
    managed: Option<String>,
    capabilities: Option<Vec<String>>,
    burst_ms: Option<u32>,
}

/// The settings that a configuration has. Others keep their default, or the value of an earlier
/// configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuConfig {
    /// How the instance stands to the others on its GPU.
    pub priority: Option<Priority>,
    /// The mode of managed memory that does not fit.
    pub managed: Option<ManagedMode>,
    /// The sets of calls that it may make.
    pub capabilities: Option<Capabilities>,
    /// The most GPU time that it is owed after it had no work, milliseconds.
    pub burst_ms: Option<u32>,
}

impl GpuConfig {
    /// Reads the parameters.
    pub fn parse(parameters: &Value) -> Result<Self, ConfigError> {
        let written = WrittenConfig::deserialize(parameters).map_err(ConfigError::new)?;
        let (version, kind) = (&written.api_version, &written.kind);
        if version != API_VERSION || kind != KIND {
            let why = format!("they are {version:?} {kind:?} and not {API_VERSION:?} {KIND:?}");
            return Err(ConfigError::new(why));
        }
        let named = |what: &str, word: &str, all: &[&str]| {
            ConfigError::new(format!(
                "{what} is {word:?} and not one of {}",
                all.join(", ")
            ))
        };
        let priority = written.priority.map(|word| {
            let all = Priority::ALL.map(Priority::name);
            Priority::from_name(&word).ok_or_else(|| named("priority", &word, &all))
        });
        let managed = written.managed.map(|word| {
            let all = ManagedMode::ALL.map(ManagedMode::name);
            ManagedMode::from_name(&word).ok_or_else(|| named("managed", &word, &all))
        });
        let capabilities = written.capabilities.map(|words| {
            let read: Result<Capabilities, _> = words.join(",").parse();
            read.map_err(ConfigError::new)
        });
        if let Some(burst) = written.burst_ms.filter(|burst| *burst > BURST_MS_MAX) {
            let why = format!("burstMs is {burst} and not 0 to {BURST_MS_MAX}");
            return Err(ConfigError::new(why));
        }
        Ok(Self {
            priority: priority.transpose()?,
            managed: managed.transpose()?,
            capabilities: capabilities.transpose()?,
            burst_ms: written.burst_ms,
        })
    }

    /// The parameters for a request, or for a choice `REQUEST/CHOICE` of a prioritized list. A
    /// configuration is the requests that it is for, none for all, and its parameters.
    pub fn of_request<'a>(
        request: &str,
        configs: impl Iterator<Item = (&'a [String], &'a Value)>,
    ) -> Result<Self, ConfigError> {
        let main = request.split('/').next().unwrap_or_default();
        let is_one = |named: &String| named == request || named == main;
        let is_for = |all: &[String]| all.is_empty() || all.iter().any(is_one);
        let mut own = configs.filter(|(requests, _)| is_for(requests));
        own.try_fold(Self::default(), |earlier, (_, parameters)| {
            Ok(earlier.overridden_by(Self::parse(parameters)?))
        })
    }

    /// Whether it says something that a class bounds.
    pub fn is_bounded(&self) -> bool {
        self.capabilities.is_some() || self.priority.is_some() || self.burst_ms.is_some()
    }

    /// This, with what a later configuration says.
    pub fn overridden_by(self, later: Self) -> Self {
        Self {
            priority: later.priority.or(self.priority),
            managed: later.managed.or(self.managed),
            capabilities: later.capabilities.or(self.capabilities),
            burst_ms: later.burst_ms.or(self.burst_ms),
        }
    }

    /// The parameters of a claim of this class, if the class allows what the claim asks for.
    pub fn asked_by(self, claim: Self, allowed: Allowed) -> Result<Self, Forbidden> {
        let most = allowed.of_class(&self);
        let wanted = claim.capabilities.map_or(0, |c| c.0);
        let beyond = Capabilities(wanted & !most.capabilities.0);
        let what = if beyond.0 != 0 {
            format!("the capabilities {beyond}")
        } else if claim.priority.is_some_and(|p| p > most.priority) {
            "a high priority".to_owned()
        } else if let Some(burst) = claim.burst_ms.filter(|burst| *burst > most.burst_ms) {
            format!("a burst of {burst} ms, above {} ms", most.burst_ms)
        } else {
            return Ok(self.overridden_by(claim));
        };
        Err(Forbidden { what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgpu_uapi::capability::{COMPUTE, UTILITY};
    use serde_json::json;

    fn with(field: &str, value: Value) -> Value {
        let mut all = json!({"apiVersion": API_VERSION, "kind": KIND});
        all[field] = value;
        all
    }

    #[test]
    fn each_parameter_is_read() {
        let config = GpuConfig::parse(&json!({
            "apiVersion": "cgpu.io/v1alpha1", "kind": "GpuConfig",
            "priority": "high", "managed": "deny", "capabilities": ["compute", "utility"], "burstMs": 100
        }));
        assert_eq!(
            config,
            Ok(GpuConfig {
                priority: Some(Priority::High),
                managed: Some(ManagedMode::Deny),
                capabilities: Some(Capabilities(COMPUTE | UTILITY)),
                burst_ms: Some(100),
            })
        );
        let bare = GpuConfig::parse(&json!({"apiVersion": API_VERSION, "kind": KIND}));
        assert_eq!(bare, Ok(GpuConfig::default()));
    }

    #[test]
    fn an_unknown_parameter_is_refused_by_name() {
        for (parameters, said) in [
            (with("prioriti", json!("high")), "prioriti"),
            (with("priority", json!("highest")), "normal, high"),
            (with("managed", json!(1)), "string"),
            (with("capabilities", json!(["compute", "root"])), "root"),
            (with("capabilities", json!([])), "capability"),
            (with("burstMs", json!(10_001)), "0 to 10000"),
            (with("burstMs", json!("100ms")), "u32"),
            (with("kind", json!("Gpu")), "GpuConfig"),
            (with("apiVersion", json!("cgpu.io/v1")), "v1alpha1"),
            (json!({}), "apiVersion"),
            (json!([]), "invalid"),
            (json!(null), "invalid"),
        ] {
            let error = GpuConfig::parse(&parameters).expect_err("refused");
            assert!(error.to_string().contains(said), "{said}: {error}");
        }
        let long = GpuConfig::parse(&with("priority", json!("\n".repeat(9) + &"x".repeat(9999))));
        assert!(long.expect_err("refused").to_string().len() < 300);
    }

    /// The settings of a claim with these parameters, of a class with those.
    fn asked(class: Value, claim: Value, allowed: Allowed) -> Result<GpuConfig, String> {
        let read = |mut fields: Value| {
            fields["apiVersion"] = API_VERSION.into();
            fields["kind"] = KIND.into();
            GpuConfig::parse(&fields).expect("read")
        };
        let both = read(class).asked_by(read(claim), allowed);
        both.map_err(|e| e.to_string())
    }

    #[test]
    fn no_claim_exceeds_its_class() {
        let plain = Allowed::default();
        let profiling = Some("profiling".parse().expect("read"));
        let more = Allowed::with(profiling, Priority::High, 1000);
        let (high, none) = (json!({"priority": "high"}), json!({}));
        let burst = |ms: u32| json!({ "burstMs": ms });
        let caps = |words: &[&str]| json!({ "capabilities": words });
        for (class, claim, allowed) in [
            (&none, &none, plain),
            (&none, &caps(&["compute", "utility", "video"]), plain),
            (&none, &caps(&["profiling", "video"]), more),
            (&none, &high, more),
            (&high, &json!({"priority": "normal"}), plain),
            (&high, &high, plain),
            (&caps(&["compute", "rdma"]), &caps(&["rdma"]), plain),
            (&none, &burst(200), plain),
            (&none, &burst(1000), more),
            (&burst(500), &burst(500), plain),
            (&burst(500), &none, plain),
        ] {
            let got = asked(class.clone(), claim.clone(), allowed);
            assert!(got.is_ok(), "{class} {claim}: {got:?}");
        }
        for (class, claim, allowed, said) in [
            (
                &none,
                &caps(&["compute", "profiling"]),
                plain,
                "capabilities profiling,",
            ),
            (&none, &caps(&["graphics", "rdma"]), plain, "graphics,rdma"),
            (&none, &caps(&["rdma"]), more, "rdma"),
            (&none, &high, plain, "a high priority"),
            // The class's word counts, be it less than the operator's.
            (
                &json!({"priority": "normal"}),
                &high,
                more,
                "a high priority",
            ),
            (&caps(&["compute"]), &caps(&["utility"]), more, "utility"),
            (&burst(100), &burst(101), more, "above 100 ms"),
            (&none, &burst(201), plain, "a burst of 201 ms, above 200 ms"),
            (&none, &burst(1001), more, "above 1000 ms"),
        ] {
            let why = asked(class.clone(), claim.clone(), allowed).expect_err("refused");
            assert!(why.contains(said), "{class} {claim}: {why}");
        }
    }

    #[test]
    fn the_claim_overrides_the_class_field_by_field() {
        let class = GpuConfig::parse(&with("managed", json!("charge"))).expect("read");
        let claim = GpuConfig::parse(&with("burstMs", json!(0))).expect("read");
        let both = class.overridden_by(claim);
        assert_eq!(both.managed, Some(ManagedMode::Charge));
        assert_eq!(both.burst_ms, Some(0));
        let again =
            both.overridden_by(GpuConfig::parse(&with("managed", json!("spill"))).expect("read"));
        assert_eq!(again.managed, Some(ManagedMode::Spill));
    }
}
