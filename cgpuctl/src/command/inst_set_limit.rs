// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-limit`.

use super::setting::{Before, Setting, Undo};
use crate::{
    args::{amount, limited},
    control::Control,
};
use cgpu_uapi::{InstanceLimit, InstanceSetLimit, Limited, LIMIT_DEFAULT};
use clap::Args;
use nix::errno::Errno;
use serde::{Serialize, Serializer};
use std::fmt;
use zerocopy::FromZeros;

/// Change how much of a thing an instance may have, also while programs run.
///
/// All instances of a GPU share what the driver and the GPU's firmware have: clients, objects,
/// events, exports, BAR1, the host's memory, and time. The instance that is to have the GPU next
/// waits until all mappings of its registers are taken back. A CUDA program has one or two clients,
/// up to 370 objects, 8 to 15 events and 2 MiB of BAR1. It also has 73 MB of the host's memory, 31
/// files, 2 mappings and, with NCCL, 48 exports.
#[derive(Args)]
pub(crate) struct InstSetLimit {
    /// Of what.
    #[arg(value_parser = limited())]
    pub(super) what: Limited,
    /// New limit, not 0; "default" takes the old one away.
    #[arg(value_name = "LIMIT|default", value_parser = amount)]
    pub(super) limit: u64,
}

/// A limit, or what stands for the default.
pub(crate) struct Limit(u64);

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            LIMIT_DEFAULT => f.write_str("default"),
            limit => limit.fmt(f),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let limit = Some(self.0).filter(|limit| *limit != LIMIT_DEFAULT);
        limit.serialize(serializer)
    }
}

impl InstSetLimit {
    fn of<'a>(&self, was: &'a Before) -> Option<&'a InstanceLimit> {
        let is_it = |limit: &&InstanceLimit| Limited::from_number(limit.what) == Some(self.what);
        was.limits.iter().find(is_it)
    }
}

impl Setting for InstSetLimit {
    const ATTEMPT: &'static str = "set a limit of";
    const KEY: &'static str = "limit";
    const LABEL: &'static str = "limit ";
    type Value = Limit;

    fn value(&self, _: &Before) -> Limit {
        Limit(self.limit)
    }

    fn before(&self, was: &Before) -> Limit {
        Limit(self.of(was).map_or(LIMIT_DEFAULT, |limit| limit.limit))
    }

    fn set(&self, control: &dyn Control, was: &Before) -> Result<(), Errno> {
        let mut request = InstanceSetLimit::new_zeroed();
        request.key = was.key();
        request.what = self.what.number();
        request.limit = self.limit;
        control.set_limit(&request)
    }
}

impl Undo for InstSetLimit {
    fn former(&self, was: &Before) -> Self {
        Self {
            what: self.what,
            limit: self
                .of(was)
                .filter(|limit| limit.is_set != 0)
                .map_or(LIMIT_DEFAULT, |l| l.limit),
        }
    }
}
