// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-burst`.

use super::{
    effect,
    setting::{Before, Setting, Undo},
};
use crate::{args::burst_or_gpu, compute::own_burst, control::Control};
use cgpu_uapi::{set, InstanceSetCompute};
use clap::Args;
use nix::errno::Errno;
use serde::{Serialize, Serializer};
use std::fmt;
use zerocopy::FromZeros;

/// Change how much GPU time an instance can be owed, also while programs run.
///
/// An instance that leaves its share to others has it back when it has work again, at once, up to
/// its burst. Under the policy native a burst has no effect.
#[derive(Args)]
pub(crate) struct InstSetBurst {
    /// New burst in milliseconds of GPU time, or "gpu" for that of its GPU.
    #[arg(value_name = "0-10000|gpu", value_parser = burst_or_gpu)]
    pub(super) burst: u32,
}

/// A number in JSON, or null for that of the GPU.
pub(crate) struct Burst(Option<u32>);

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(burst) => write!(f, "{burst} ms"),
            None => f.write_str("that of the GPU"),
        }
    }
}

impl Serialize for Burst {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl Setting for InstSetBurst {
    const ATTEMPT: &'static str = "set the burst of";
    const KEY: &'static str = "burst_ms";
    const LABEL: &'static str = "burst ";
    type Value = Burst;

    fn value(&self, _: &Before) -> Burst {
        Burst(own_burst(self.burst))
    }

    fn before(&self, was: &Before) -> Burst {
        Burst(own_burst(was.burst_ms))
    }

    fn set(&self, control: &dyn Control, was: &Before) -> Result<(), Errno> {
        let mut request = InstanceSetCompute::new_zeroed();
        (request.key, request.set) = (was.key(), set::INSTANCE_BURST);
        request.burst_ms = self.burst;
        control.set_instance_compute(&request)
    }

    fn warnings(&self, before: &[Before]) -> Option<Vec<String>> {
        let gpus = before.iter().filter_map(|was| was.gpu.as_ref());
        let effect = |gpu| effect::of_burst(gpu, self.burst);
        Some(gpus.filter_map(effect).collect())
    }
}

impl Undo for InstSetBurst {
    fn former(&self, was: &Before) -> Self {
        Self {
            burst: was.burst_ms,
        }
    }
}
