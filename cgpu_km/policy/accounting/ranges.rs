// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: external ranges that programs make and free.

use crate::policy::{
    accounting::Accounting,
    event::RefusalCause,
    ids::FileId,
    ranges::{Going, RangeEnd, RangeTicket},
};

impl Accounting {
    /// A range is about to be made.
    pub fn begin_range(
        &mut self,
        file: FileId,
        base: u64,
        length: u64,
    ) -> Result<RangeTicket, RefusalCause> {
        self.ranges.begin(file, base, length)
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

    /// The driver was asked to free a range; `asked`: for certain.
    pub fn end_range_free(&mut self, going: Going, asked: bool) {
        if !asked {
            return self.ranges.lose_free(going);
        }
        let mut walk = self.mappings.walk(going.span);
        while let Some(gone) = self.mappings.take_next(&mut walk, going.moment) {
            self.release_mapping(Some(gone));
        }
        self.ranges.end_free(going);
    }
}
