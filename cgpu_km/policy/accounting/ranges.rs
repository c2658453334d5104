// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: external ranges that programs make and free.

use crate::{
    policy::{
        accounting::Accounting,
        event::RefusalCause,
        ids::FileId,
        ranges::{
            Going,
            RangeEnd,
            RangeTicket,
            RANGE_STRUCT, //
        }, //
    },
    uapi::Limited, //
};

impl Accounting {
    /// A range is about to be made. What the driver takes for it counts on all GPUs of the tenant.
    pub fn begin_range(
        &mut self,
        file: FileId,
        base: u64,
        length: u64,
    ) -> Result<RangeTicket, RefusalCause> {
        let ticket = self.ranges.begin(file, base, length)?;
        if !ticket.is_new() {
            return Ok(ticket);
        }
        let ledgers = &mut self.accounts.ledgers;
        match ledgers.count(None, Limited::HostMemory, RANGE_STRUCT) {
            Ok(()) => Ok(ticket),
            Err(full) => {
                self.ranges.cancel(ticket);
                Err(full.into())
            }
        }
    }

    /// The driver has answered a call that [`Accounting::begin_range`] agreed to; `made`: it says
    /// that it has the range.
    pub fn end_range(&mut self, ticket: RangeTicket, made: bool) {
        self.ranges.end(ticket, made);
    }

    /// A range is about to be freed: the one that begins there, and has that length, where one is
    /// given.
    pub fn begin_range_free(
        &mut self,
        file: FileId,
        base: u64,
        length: Option<u64>,
    ) -> Result<RangeEnd, RefusalCause> {
        let moment = self.moment();
        self.ranges.begin_free(file, base, length, moment)
    }

    /// A call is over that was to free a range. Without `is_freed` it may not have reached the
    /// driver, and the range may still be there.
    pub fn end_range_free(&mut self, going: Going, is_freed: bool) {
        if !is_freed {
            return self.ranges.lose_free(going);
        }
        let mut walk = self.mappings.walk(going.span);
        while let Some(mapping) = self.mappings.take_next(&mut walk, going.moment) {
            self.release_mapping(Some(mapping));
        }
        let records = u64::from(self.ranges.end_free(going));
        self.uncount_ranges(records);
    }

    /// The driver has closed a file, with all its ranges.
    pub(super) fn close_ranges(&mut self, file: FileId) {
        let records = self.ranges.close(file);
        self.uncount_ranges(records);
    }

    fn uncount_ranges(&mut self, records: u64) {
        let bytes = records.saturating_mul(RANGE_STRUCT);
        let ledgers = &mut self.accounts.ledgers;
        ledgers.uncount(None, Limited::HostMemory, bytes);
    }
}
