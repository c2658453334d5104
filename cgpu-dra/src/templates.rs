// SPDX-License-Identifier: GPL-2.0 OR MIT
//! ResourceClaimTemplates for the shares that containers ask other systems for.

use crate::{asked::HAMI_PRIORITY, names::DRIVER, quantity};
use cgpu_uapi::Priority;
use serde_json::{json, Map, Value};

const MIB: u64 = 1 << 20;

/// A ResourceClaimTemplate that the pod needs. What is in it decides its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// Its `spec`.
    pub spec: Value,
}

/// The resources that a container asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Of each GPU; `None`: all.
    pub(crate) memory_bytes: Option<u64>,
    /// Of each GPU; `None`: the least.
    pub(crate) weight: Option<u64>,
    pub(crate) gpus: u64,
    pub(crate) high_priority: bool,
}

impl Wanted {
    /// This, with no higher priority than claims may ask for.
    pub(crate) fn at_most(
        mut self,
        highest: Priority,
        container: &str,
        notes: &mut Vec<String>,
    ) -> Self {
        if self.high_priority && highest < Priority::High {
            self.high_priority = false;
            notes.push(format!(
                "container {container}: {HAMI_PRIORITY}: 0 is not kept: in this cluster no claim \
                 may ask for a high priority"
            ));
        }
        self
    }

    /// Notes that it has the least weight, if it names none. Other systems let such a container
    /// have what it can get.
    pub(crate) fn note_weight(self, notes: &mut Vec<String>) {
        if self.weight.is_none() {
            notes.push(
                "without a part of the GPU's compute a container has the weight 1: a small share \
                 beside others that have work, and 1 percent of the GPU under the policy fixed"
                    .to_owned(),
            );
        }
    }

    /// The larger of two wishes, if one claim can serve both: a container sees all GPUs of its
    /// claim, and has its priority.
    pub(crate) fn larger(self, other: Self) -> Option<Self> {
        let is_alike = self.gpus == other.gpus && self.high_priority == other.high_priority;
        let all = |wanted: Self| wanted.memory_bytes.unwrap_or(u64::MAX);
        let memory_bytes = if all(self) < all(other) {
            other.memory_bytes
        } else {
            self.memory_bytes
        };
        is_alike.then_some(Self {
            memory_bytes,
            weight: self.weight.max(other.weight),
            ..self
        })
    }

    pub(crate) fn template(self) -> Template {
        let memory = match self.memory_bytes {
            Some(bytes) => format!("{}m", bytes.div_ceil(MIB)),
            None => "all".to_owned(),
        };
        let mut capacity = Map::new();
        if let Some(bytes) = self.memory_bytes {
            capacity.insert("memory".to_owned(), quantity::bytes(bytes).into());
        }
        if let Some(weight) = self.weight {
            capacity.insert("weight".to_owned(), weight.to_string().into());
        }
        let mut exactly = json!({"deviceClassName": DRIVER, "count": self.gpus});
        if !capacity.is_empty() {
            exactly["capacity"] = json!({"requests": capacity});
        }
        let mut devices = json!({"requests": [{"name": "gpu", "exactly": exactly}]});
        if self.gpus > 1 {
            devices["constraints"] = json!([{"distinctAttribute": format!("{DRIVER}/uuid")}]);
        }
        if self.high_priority {
            devices["config"] = json!([{"opaque": {"driver": DRIVER, "parameters": {
                "apiVersion": crate::config::API_VERSION, "kind": crate::config::KIND,
                "priority": "high"}}}]);
        }
        let weight = self.weight.map(|n| format!("-w{n}")).unwrap_or_default();
        let high = if self.high_priority { "-high" } else { "" };
        Template {
            name: format!("cgpu-{memory}{weight}-x{}{high}", self.gpus),
            spec: json!({"spec": {"devices": devices}}),
        }
    }
}
