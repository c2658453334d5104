// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-managed`.

use super::setting::{Before, Setting, Undo};
use crate::{args::managed_modes, control::Control};
use cgpu_uapi::{InstanceSetManaged, ManagedMode};
use clap::Args;
use nix::errno::Errno;
use zerocopy::FromZeros;

/// Change what becomes of managed memory (cudaMallocManaged) that is mapped from now on.
///
/// Spilled memory comes back when there is room, whatever the mode is then.
#[derive(Args)]
pub(crate) struct InstSetManaged {
    /// New mode.
    #[arg(value_name = "MODE", value_parser = managed_modes())]
    pub(super) managed: ManagedMode,
}

impl Setting for InstSetManaged {
    const ATTEMPT: &'static str = "set the managed memory of";
    const KEY: &'static str = "managed_mode";
    const LABEL: &'static str = "managed memory ";
    type Value = &'static str;

    fn value(&self, _: &Before) -> &'static str {
        self.managed.name()
    }

    fn before(&self, was: &Before) -> &'static str {
        ManagedMode::name_of(was.instance.managed_mode)
    }

    fn set(&self, control: &dyn Control, was: &Before) -> Result<(), Errno> {
        let mut request = InstanceSetManaged::new_zeroed();
        (request.key, request.managed_mode) = (was.key(), self.managed.number());
        control.set_managed(&request)
    }
}

impl Undo for InstSetManaged {
    fn former(&self, was: &Before) -> Self {
        Self {
            managed: ManagedMode::from_number(was.instance.managed_mode).unwrap_or_default(),
        }
    }
}
