// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst set-mem`.

use super::{
    effect::small_limit,
    inst_create::flags,
    inst_list,
    setting::{Before, Setting, Undo},
};
use crate::{
    control::Control,
    size::{Amount, Bytes},
};
use cgpu_uapi::{Cause, InstanceSetMemory};
use clap::Args;
use nix::errno::Errno;
use zerocopy::FromZeros;

/// Change a memory limit, also while programs run.
///
/// A limit below what is used is accepted: new allocations fail until enough was freed.
#[derive(Args)]
pub(crate) struct InstSetMem {
    /// New memory limit, like 8GiB, 500MB or 50% of the GPU.
    #[arg(value_name = "SIZE")]
    pub(super) mem: Amount,
    /// Let the limits on a GPU add up to more than its memory.
    #[arg(long)]
    pub(super) overcommit: bool,
}

impl Setting for InstSetMem {
    const ATTEMPT: &'static str = "set the memory limit of";
    const KEY: &'static str = "memory_limit_bytes";
    const LABEL: &'static str = "memory limit ";
    type Value = Bytes;

    fn value(&self, was: &Before) -> Bytes {
        self.mem.of(was.memory_bytes.unwrap_or_default())
    }

    fn before(&self, was: &Before) -> Bytes {
        Bytes(was.instance.memory_limit_bytes)
    }

    fn set(&self, control: &dyn Control, was: &Before) -> Result<(), Errno> {
        if was.memory_bytes.is_none() && matches!(self.mem, Amount::Percent(_)) {
            return Err(Errno::from_raw(Cause::DriverMissing.errno()));
        }
        let mut request = InstanceSetMemory::new_zeroed();
        request.key = was.key();
        request.memory_limit_bytes = self.value(was).0;
        request.flags = flags(self.overcommit);
        control.set_memory(&request)
    }

    fn warnings(&self, before: &[Before]) -> Option<Vec<String>> {
        let over = before.iter().filter_map(|was| {
            let i = &was.instance;
            let used = inst_list::charged(i).0;
            let excess = used
                .checked_sub(self.value(was).0)
                .filter(|excess| *excess > 0)?;
            Some(format!(
                "{} are in use on GPU {}: new allocations fail until {} are freed",
                Bytes(used),
                i.key.gpu_minor,
                Bytes(excess)
            ))
        });
        let mut small: Vec<_> = before
            .iter()
            .filter_map(|was| small_limit(self.value(was)))
            .collect();
        small.dedup();
        Some(small.into_iter().chain(over).collect())
    }
}

impl Undo for InstSetMem {
    fn former(&self, was: &Before) -> Self {
        Self {
            mem: Amount::Bytes(self.before(was)),
            // It was granted before.
            overcommit: true,
        }
    }
}
