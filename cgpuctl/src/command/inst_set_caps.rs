// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-caps`.

use super::setting::{Before, Setting, Undo};
use crate::{capabilities::Capabilities, control::Control};
use cgpu_uapi::InstanceSetCapabilities;
use clap::Args;
use nix::errno::Errno;
use zerocopy::FromZeros;

/// Change what an instance is for, also while programs run.
///
/// Objects that a program has made stay; calls that are no longer allowed are refused from then on.
#[derive(Args)]
pub(crate) struct InstSetCaps {
    /// Sets of calls that it may make: compute, utility, graphics, video, profiling, rdma.
    #[arg(value_name = "SET,…")]
    pub(super) caps: Capabilities,
}

impl Setting for InstSetCaps {
    const ATTEMPT: &'static str = "set the capabilities of";
    const KEY: &'static str = "capabilities";
    const LABEL: &'static str = "";
    type Value = Capabilities;

    fn value(&self, _: &Before) -> Capabilities {
        self.caps
    }

    fn before(&self, was: &Before) -> Capabilities {
        Capabilities(was.instance.capabilities)
    }

    fn set(&self, control: &dyn Control, was: &Before) -> Result<(), Errno> {
        let mut request = InstanceSetCapabilities::new_zeroed();
        (request.key, request.capabilities) = (was.key(), self.caps.0);
        control.set_capabilities(&request)
    }
}

impl Undo for InstSetCaps {
    fn former(&self, was: &Before) -> Self {
        Self {
            caps: self.before(was),
        }
    }
}
