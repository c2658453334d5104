// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-limit`.

use super::setting::{Before, Setting, Undo};
use crate::{
    args::{is_memory, limit, limited},
    control::Control,
    size::Bytes,
};
use cgpu_uapi::{InstanceLimit, InstanceSetLimit, Limited, LIMIT_DEFAULT};
use clap::{error::ErrorKind, ArgMatches, Args, Command, FromArgMatches};
use nix::errno::Errno;
use serde::{Serialize, Serializer};
use std::fmt;
use zerocopy::FromZeros;

/// Change how much of a thing an instance may have, also while programs run.
///
/// All instances of a GPU share what the driver and the GPU's firmware have: clients, objects,
/// events, exports, BAR1, the host's memory, and time. The instance that is to have the GPU next
/// waits until all mappings of its registers are taken back. A CUDA program has 2 to 5 clients, up
/// to 370 objects, 8 to 15 events and 2 MiB of BAR1. It also has 73 MB of the host's memory, 43
/// files, 2 mappings and, with NCCL, 48 exports.
#[derive(Args)]
struct Words {
    /// Of what.
    #[arg(value_parser = limited())]
    what: Limited,
    /// New limit, not 0: a whole number, or of bar1 and host_mem a size like 64MiB. "default" takes
    /// the old one away.
    #[arg(value_name = "LIMIT|default")]
    limit: String,
}

/// The change of a limit. What is a limit depends on the word before it.
pub(crate) struct InstSetLimit {
    pub(super) what: Limited,
    pub(super) limit: u64,
}

impl Args for InstSetLimit {
    fn augment_args(command: Command) -> Command {
        Words::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Words::augment_args_for_update(command)
    }
}

impl FromArgMatches for InstSetLimit {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Words { what, limit: text } = Words::from_arg_matches(matches)?;
        let limit = limit(what, &text).map_err(|why| {
            let said = format!("invalid value '{text}' for '<LIMIT|default>': {why}");
            clap::Error::raw(ErrorKind::ValueValidation, said)
        })?;
        Ok(Self { what, limit })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A limit, or what stands for the default.
pub(crate) struct Limit {
    what: Limited,
    limit: u64,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            LIMIT_DEFAULT => f.write_str("default"),
            limit if is_memory(self.what) => Bytes(limit).fmt(f),
            limit => limit.fmt(f),
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let limit = Some(self.limit).filter(|limit| *limit != LIMIT_DEFAULT);
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
        Limit {
            what: self.what,
            limit: self.limit,
        }
    }

    fn before(&self, was: &Before) -> Limit {
        Limit {
            what: self.what,
            limit: self.of(was).map_or(LIMIT_DEFAULT, |limit| limit.limit),
        }
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
