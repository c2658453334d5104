// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: what its programs have of files and mappings.

use crate::{
    policy::{
        accounting::Accounting,
        event::RefusalCause,
        ids::GpuId, //
    },
    uapi::Limited, //
};

impl Accounting {
    /// Counts one more file of a node, or mapping of registers: of a GPU, or (`None`) of each that
    /// the tenant has.
    ///
    /// # Errors
    ///
    /// There are too many of them already, which is noted, or the tenant never had that GPU.
    /// Nothing was counted.
    pub fn enter(&mut self, gpu: Option<GpuId>, what: Limited) -> Result<(), RefusalCause> {
        let ledgers = &mut self.accounts.ledgers;
        let share = gpu.and_then(|gpu| ledgers.known_share(gpu));
        if share.is_none() && gpu.is_some() {
            return Err(RefusalCause::NoSuchGpu);
        }
        Ok(ledgers.count(share, what, 1)?)
    }

    /// The same for what is there already and cannot be refused.
    pub fn enter_always(&mut self, gpu: GpuId, what: Limited) {
        let ledgers = &mut self.accounts.ledgers;
        if let Some(ledger) = ledgers.known(gpu) {
            ledger.quotas.counts.raise(what, 1);
        }
    }

    /// One is gone that was counted for the same GPU.
    pub fn leave(&mut self, gpu: Option<GpuId>, what: Limited) {
        let ledgers = &mut self.accounts.ledgers;
        let share = gpu.and_then(|gpu| ledgers.known_share(gpu));
        if share.is_some() || gpu.is_none() {
            ledgers.uncount(share, what, 1);
        }
    }
}
