// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-priority`.

use super::{
    effect,
    setting::{Before, Setting, Undo},
};
use crate::{args::priorities, control::Control};
use cgpu_uapi::{set, InstanceSetCompute, Priority};
use clap::Args;
use nix::errno::Errno;
use serde::{Serialize, Serializer};
use std::fmt;
use zerocopy::FromZeros;

/// Change a priority, also while programs run. It has no effect under the policy native.
#[derive(Args)]
pub(crate) struct InstSetPriority {
    /// New priority.
    #[arg(value_parser = priorities())]
    pub(super) priority: Priority,
}

/// `high_priority` in JSON, a word in text.
pub(crate) struct HighPriority(Priority);

impl fmt::Display for HighPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl Serialize for HighPriority {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(self.0 == Priority::High)
    }
}

impl Setting for InstSetPriority {
    const ATTEMPT: &'static str = "set the priority of";
    const KEY: &'static str = "high_priority";
    const LABEL: &'static str = "priority ";
    type Value = HighPriority;

    fn value(&self, _: &Before) -> HighPriority {
        HighPriority(self.priority)
    }

    fn before(&self, was: &Before) -> HighPriority {
        HighPriority(Priority::of(was.state))
    }

    fn set(&self, control: &dyn Control, was: &Before) -> Result<(), Errno> {
        let mut request = InstanceSetCompute::new_zeroed();
        (request.key, request.set) = (was.key(), set::HIGH_PRIORITY);
        request.high_priority = self.priority.number();
        control.set_instance_compute(&request)
    }

    fn warnings(&self, before: &[Before]) -> Option<Vec<String>> {
        let gpus = before.iter().filter_map(|was| was.gpu.as_ref());
        let effect = |gpu| effect::of_priority(gpu, self.priority);
        Some(gpus.filter_map(effect).collect())
    }
}

impl Undo for InstSetPriority {
    fn former(&self, was: &Before) -> Self {
        Self {
            priority: Priority::of(was.state),
        }
    }
}
