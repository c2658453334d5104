// SPDX-License-Identifier: GPL-2.0
//! What an instance is for, and what it was refused.

use super::Instance;
use crate::{
    nvidia::capability::Capabilities,
    policy::{AuditRecord, MOST_RECORDS},
    registry::Failure,
    uapi::Cause,
};
use kernel::prelude::*;

impl Instance {
    /// Says what it is for.
    pub fn set_capabilities(&self, capabilities: Capabilities) -> Result<(), Failure> {
        let mut state = self.tenant.state.lock();
        let here = state.share(self.id).is_some();
        match here
            && state
                .accounting
                .set_capabilities(self.gpu.id(), capabilities)
        {
            true => Ok(()),
            false => Err(Cause::NoSuchInstance.into()),
        }
    }

    /// The calls of its tenant that were taken note of, those for its GPU and those for none in
    /// particular, as of one moment, and how many more there were of kinds without a record; `None` once
    /// it is destroyed.
    pub fn noted_calls(&self) -> Result<Option<(KVec<AuditRecord>, u64)>> {
        // There are never more, and no memory is asked for under the lock.
        let mut records = KVec::with_capacity(MOST_RECORDS, GFP_KERNEL)?;
        let state = self.tenant.state.lock();
        if state.share(self.id).is_none() {
            return Ok(None);
        }
        for record in state.accounting.noted_calls(self.gpu.id()) {
            records.push(*record, GFP_KERNEL)?;
        }
        Ok(Some((records, state.accounting.other_noted_calls())))
    }
}
