// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: the structures that the driver makes at a program's word, and
//! which no object and no page shows. They count as host memory on all GPUs of the tenant.

use crate::{
    policy::{
        accounting::Accounting,
        event::RefusalCause,
        file_costs::SPACE_STRUCT,
        ids::FileId,
        range_groups::GROUP_STRUCT,
        span::last_of,
        splits::SPLIT_STRUCT, //
    },
    uapi::Limited, //
};

const HOST: Limited = Limited::HostMemory;

/// A call that can have the driver cut managed ranges. It must be handed back to
/// `Accounting::end_split`.
#[derive(Debug)]
#[must_use = "nothing of the file is credited until it is handed back"]
pub struct SplitTicket(FileId);

impl Accounting {
    /// A UVM file is about to get its address space (`UVM_INITIALIZE`), which it keeps.
    pub fn begin_space(&mut self, file: FileId) -> Result<(), RefusalCause> {
        self.keep_for_file(file, SPACE_STRUCT)
    }

    /// The driver is about to keep so many bytes for a file until it is closed, if it does not keep
    /// as many for it already.
    pub(super) fn keep_for_file(&mut self, file: FileId, bytes: u64) -> Result<(), RefusalCause> {
        let more = bytes.saturating_sub(self.file_costs.of(file));
        if more == 0 {
            return Ok(());
        }
        self.file_costs.reserve()?;
        self.accounts.ledgers.count(None, HOST, more)?;
        // Room was made above.
        Ok(self.file_costs.set(file, bytes)?)
    }

    /// The driver has closed a file, with what it kept for it.
    pub(super) fn close_file_costs(&mut self, file: FileId) {
        let gone = self.file_costs.close(file);
        self.accounts.ledgers.uncount(None, HOST, gone);
    }

    /// A call is about to change a part of the managed memory of a file. `None`: not all of it is
    /// managed.
    ///
    /// # Errors
    ///
    /// There are too many parts already.
    pub fn begin_split(
        &mut self,
        file: FileId,
        base: u64,
        length: u64,
    ) -> Result<Option<SplitTicket>, RefusalCause> {
        let place = last_of(base, length).zip(self.managed.space_mut(file));
        let Some((last, space)) = place.filter(|(last, space)| space.covers(base, *last)) else {
            return Ok(None);
        };
        let behind = last.checked_add(1);
        let ends = [Some(base), behind].map(|at| at.filter(|at| space.is_split_new(*at)));
        let ends = ends.into_iter().flatten();
        let more = ends.clone().map(|_| SPLIT_STRUCT).sum();
        if more != 0 {
            space.splits.reserve()?;
            self.accounts.ledgers.count(None, HOST, more)?;
        }
        ends.for_each(|at| space.splits.add(at));
        space.splits.begin();
        Ok(Some(SplitTicket(file)))
    }

    /// The call has ended, whatever it says.
    pub fn end_split(&mut self, ticket: SplitTicket) {
        if let Some(space) = self.managed.space_mut(ticket.0) {
            space.splits.end();
        }
    }

    /// A range group is about to be made.
    pub fn begin_group(&mut self, file: FileId) -> Result<(), RefusalCause> {
        let space = self.managed.enter(file)?;
        space.groups.reserve()?;
        self.accounts.ledgers.count(None, HOST, GROUP_STRUCT)?;
        space.groups.begin();
        Ok(())
    }

    /// The driver has answered a call that [`Accounting::begin_group`] agreed to; `made`: it says
    /// that it has made one.
    pub fn end_group(&mut self, file: FileId, made: bool) {
        if let Some(space) = self.managed.space_mut(file) {
            space.groups.end(made);
        }
    }

    /// Whether a range group is gone for certain, for [`Accounting::group_gone`], once the driver
    /// was asked to take it away.
    pub fn goes_group(&self, file: FileId, number: u64) -> bool {
        let space = self.managed.space(file);
        space.is_some_and(|space| space.groups.is_certain(number))
    }

    /// The driver was asked to take a range group away, for certain.
    pub fn group_gone(&mut self, file: FileId, number: u64) {
        let space = self.managed.space_mut(file);
        if space.is_some_and(|space| space.groups.remove(number)) {
            self.accounts.ledgers.uncount(None, HOST, GROUP_STRUCT);
        }
    }

    /// The memory of a span of a file is unmapped, with all that it was cut into.
    pub(super) fn join_splits(&mut self, file: FileId, base: u64, last: u64) {
        if let Some(space) = self.managed.space_mut(file) {
            let gone = space.splits.remove(base, last).saturating_mul(SPLIT_STRUCT);
            self.accounts.ledgers.uncount(None, HOST, gone);
        }
    }
}
