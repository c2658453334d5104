// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst suspend` and `inst resume`.

use super::setting::{Before, Setting};
use crate::control::Control;
use cgpu_uapi::{set, state, InstanceSetCompute};
use clap::Args;
use nix::errno::Errno;
use serde::Serialize;
use std::fmt;
use zerocopy::FromZeros;

/// `inst suspend` if `ON`, else `inst resume`.
#[derive(Args)]
pub(crate) struct Suspension<const ON: bool> {}

/// Whether an instance is kept off the GPU.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct Suspended(bool);

impl fmt::Display for Suspended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "suspended" } else { "not suspended" })
    }
}

impl<const ON: bool> Setting for Suspension<ON> {
    const ATTEMPT: &'static str = if ON { "suspend" } else { "resume" };
    const DONE: &'static str = if ON { "suspended" } else { "resumed" };
    const KEY: &'static str = "suspended";
    const LABEL: &'static str = "";
    type Value = Suspended;

    fn value(&self, _: &Before) -> Suspended {
        Suspended(ON)
    }

    fn before(&self, was: &Before) -> Suspended {
        Suspended(was.state & state::SUSPENDED != 0)
    }

    fn set(&self, control: &dyn Control, was: &Before) -> Result<(), Errno> {
        let mut request = InstanceSetCompute::new_zeroed();
        (request.key, request.set) = (was.key(), set::SUSPENDED);
        request.suspended = u32::from(ON);
        control.set_instance_compute(&request)
    }
}
