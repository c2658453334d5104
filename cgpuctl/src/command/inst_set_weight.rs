// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-weight`.

use super::{
    effect,
    setting::{Before, Setting, Undo},
};
use crate::{args::weight, control::Control};
use cgpu_uapi::InstanceSetWeight;
use clap::Args;
use nix::errno::Errno;
use zerocopy::FromZeros;

/// Change a weight, also while programs run.
#[derive(Args)]
pub(crate) struct InstSetWeight {
    /// New weight.
    #[arg(value_name = "1-100", value_parser = weight())]
    pub(super) weight: u32,
}

impl Setting for InstSetWeight {
    const ATTEMPT: &'static str = "set the weight of";
    const KEY: &'static str = "weight";
    const LABEL: &'static str = "weight ";
    type Value = u32;

    fn value(&self, _: &Before) -> u32 {
        self.weight
    }

    fn before(&self, was: &Before) -> u32 {
        was.instance.weight
    }

    fn set(&self, control: &dyn Control, was: &Before) -> Result<(), Errno> {
        let mut request = InstanceSetWeight::new_zeroed();
        (request.key, request.weight) = (was.key(), self.weight);
        control.set_weight(&request)
    }

    fn warnings(&self, before: &[Before]) -> Option<Vec<String>> {
        let gpus = before.iter().filter_map(|was| was.gpu.as_ref());
        Some(gpus.filter_map(effect::of_weight).collect())
    }
}

impl Undo for InstSetWeight {
    fn former(&self, was: &Before) -> Self {
        Self {
            weight: self.before(was),
        }
    }
}
