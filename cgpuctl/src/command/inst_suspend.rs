// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst suspend` and `inst resume`.

use super::setting::{Before, Setting};
use crate::{args::Target, control::Control};
use cgpu_uapi::{set, state, InstanceKey, InstanceSetCompute};
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;
use std::fmt;
use zerocopy::FromZeros;

/// Keep an instance off the GPU until it is resumed. Its programs wait and lose nothing.
#[derive(Args)]
pub(crate) struct InstSuspend {
    #[command(flatten)]
    target: Target,
}

/// Let a suspended instance on again.
#[derive(Args)]
pub(crate) struct InstResume {
    #[command(flatten)]
    target: Target,
}

/// Whether an instance is kept off the GPU.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct Suspended(bool);

impl Suspended {
    fn of(was: &Before) -> Self {
        Self(was.state & state::SUSPENDED != 0)
    }

    fn set(&self, control: &dyn Control, key: InstanceKey) -> Result<(), Errno> {
        let mut request = InstanceSetCompute::new_zeroed();
        (request.key, request.set) = (key, set::SUSPENDED);
        request.suspended = u32::from(self.0);
        control.set_instance_compute(&request)
    }
}

impl fmt::Display for Suspended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "suspended" } else { "not suspended" })
    }
}

impl Setting for InstSuspend {
    const ATTEMPT: &'static str = "suspend";
    const DONE: &'static str = "suspended";
    const KEY: &'static str = "suspended";
    const LABEL: &'static str = "";
    type Value = Suspended;

    fn target(&self) -> &Target {
        &self.target
    }

    fn value(&self) -> Suspended {
        Suspended(true)
    }

    fn before(was: &Before) -> Suspended {
        Suspended::of(was)
    }

    fn set(&self, control: &dyn Control, key: InstanceKey) -> Result<(), Errno> {
        self.value().set(control, key)
    }
}

impl Setting for InstResume {
    const ATTEMPT: &'static str = "resume";
    const DONE: &'static str = "resumed";
    const KEY: &'static str = "suspended";
    const LABEL: &'static str = "";
    type Value = Suspended;

    fn target(&self) -> &Target {
        &self.target
    }

    fn value(&self) -> Suspended {
        Suspended(false)
    }

    fn before(was: &Before) -> Suspended {
        Suspended::of(was)
    }

    fn set(&self, control: &dyn Control, key: InstanceKey) -> Result<(), Errno> {
        self.value().set(control, key)
    }
}
