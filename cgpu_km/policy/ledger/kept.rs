// SPDX-License-Identifier: GPL-2.0
//! Page tables that the driver keeps for ranges of addresses which it has refused.

use super::Ledger;
use crate::policy::count::Change;

impl Ledger {
    /// The driver has refused a range of addresses. Before that it has filled a pool with as many
    /// page tables as the range could need at most, and it does not take them back
    /// (`gvaspaceReserveMempool_IMPL()`, gpu_vaspace.c; `rmMemPoolReserve()`, pool_alloc.c). It
    /// does so when page tables of some address space are freed, and with the last space. The pool
    /// is one for all, and is filled up to what the largest range needs. So the largest counts,
    /// until the tenant has nothing on the GPU any more.
    pub(in crate::policy) fn keep_tables(&mut self, tables: u64) {
        let more = tables.saturating_sub(self.kept_tables);
        if self.users == 0 || more == 0 {
            return;
        }
        self.kept_tables = tables;
        self.move_tables(Change::more(more));
    }

    /// With nothing of the tenant's on the GPU nothing is kept.
    pub(super) fn end_kept_tables(&mut self) {
        if self.users == 0 && self.kept_tables > 0 {
            let less = core::mem::take(&mut self.kept_tables);
            self.move_tables(Change::between(less, 0));
        }
    }
}
