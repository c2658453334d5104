// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The parameters in objects that the apiserver has reviewed: classes, claims and templates of
//! claims. The rest of such an object is passed over while it is read.

use crate::{
    config::{ConfigError, GpuConfig},
    names::DRIVER,
};
use k8s_openapi::api::resource::v1::DeviceClass;
use serde::Deserialize;
use serde_json::Value;

/// A class, a claim or a template of claims, or what stands below `spec` or `devices` in one.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Configured {
    config: Option<Vec<Configuration>>,
    requests: Option<Vec<Requested>>,
    devices: Option<Box<Configured>>,
    spec: Option<Box<Configured>>,
}

#[derive(Deserialize)]
struct Configuration {
    requests: Option<Vec<String>>,
    opaque: Option<OpaqueParameters>,
}

#[derive(Deserialize)]
struct OpaqueParameters {
    driver: String,
    #[serde(default)]
    parameters: Value,
}

/// A request of a claim: a class, or a list of choices with a class each.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Requested {
    name: String,
    exactly: Option<OfClass>,
    first_available: Option<Vec<OfClass>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfClass {
    #[serde(default)]
    name: String,
    device_class_name: String,
}

impl Configured {
    /// The parameters of this driver that each class would have to allow. An error if any of this
    /// driver's parameters cannot be understood.
    pub fn asked(&self) -> Result<Vec<(String, GpuConfig)>, ConfigError> {
        let ours = || {
            let all = self.config.iter().flatten();
            all.filter_map(|config| {
                let opaque = config.opaque.as_ref().filter(|o| o.driver == DRIVER)?;
                Some((
                    config.requests.as_deref().unwrap_or_default(),
                    &opaque.parameters,
                ))
            })
        };
        for (_, parameters) in ours() {
            GpuConfig::parse(parameters)?;
        }
        let mut asked = Vec::new();
        if ours().next().is_some() {
            for request in self.requests.iter().flatten() {
                let exactly = request.exactly.iter();
                let exactly = exactly.map(|one| (request.name.clone(), one));
                let choices = request.first_available.iter().flatten();
                let choices = choices.map(|one| (format!("{}/{}", request.name, one.name), one));
                for (name, one) in exactly.chain(choices) {
                    let config = GpuConfig::of_request(&name, ours())?;
                    if config.is_bounded() {
                        asked.push((one.device_class_name.clone(), config));
                    }
                }
            }
        }
        for below in [&self.spec, &self.devices].into_iter().flatten() {
            asked.extend(below.asked()?);
        }
        Ok(asked)
    }
}

/// The parameters of a class, if they can be understood.
pub fn of_class(class: &DeviceClass) -> Option<GpuConfig> {
    let opaque = class.spec.config.iter().flatten();
    let opaque = opaque.filter_map(|config| config.opaque.as_ref());
    let ours = opaque.filter(|opaque| opaque.driver == DRIVER);
    let none: &[String] = &[];
    GpuConfig::of_request("", ours.map(|opaque| (none, &opaque.parameters.0))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_are_judged_wherever_they_stand() {
        let config = |driver: &str, priority: &str| {
            json!([{"opaque": {"driver": driver, "parameters": {"apiVersion": "cgpu.io/v1alpha1",
                "kind": "GpuConfig", "priority": priority}}}])
        };
        for place in ["/spec", "/spec/devices", "/spec/spec/devices"] {
            let object = |configs: Value| {
                let parts = place.trim_start_matches('/').split('/').rev();
                parts.fold(
                    json!({"config": configs}),
                    |inner, part| json!({ (part): inner }),
                )
            };
            let object = |configs: Value| {
                serde_json::from_value::<Configured>(object(configs)).expect("read")
            };
            let judge = |driver, priority| object(config(driver, priority)).asked();
            // Nothing is asked of a class without a request.
            assert_eq!(judge(DRIVER, "high"), Ok(vec![]));
            assert_eq!(judge("gpu.nvidia.com", "x"), Ok(vec![]));
            let refused = judge(DRIVER, "x").expect_err("refused").to_string();
            assert!(refused.contains("priority"), "{place}: {refused}");
        }
    }
}
