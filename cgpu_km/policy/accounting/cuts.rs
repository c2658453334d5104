// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: cuts of what is mapped through UVM, by mappings and unmappings.

use crate::{
    policy::{
        accounting::Accounting,
        cuts::CUT_STRUCT,
        event::{
            Map,
            MapTicket,
            RefusalCause, //
        },
        gpu_mapping::{
            Edge,
            FoundMapping, //
        },
        ids::{
            FileId,
            GpuId, //
        },
        span::{
            last_of,
            Span, //
        }, //
    },
    uapi::Limited, //
};

const HOST: Limited = Limited::HostMemory;

/// An unmapping under way. It must be handed back to `Accounting::end_unmap`.
#[derive(Debug)]
#[must_use = "nothing is mapped there until it is handed back"]
pub struct UnmapTicket {
    file: FileId,
    number: u64,
}

/// The cuts of one call.
#[derive(Debug, Default)]
struct Cuts {
    count: u64,
    /// The addresses of the mappings that go across its ends.
    across: [Option<(u64, u64)>; 2],
}

impl Accounting {
    /// A memory object is about to be mapped (`UVM_MAP_EXTERNAL_ALLOCATION`), for one GPU. Its cost
    /// stays charged from now on, and so do the page tables of the mapping, and what the driver
    /// keeps for the mappings that it cuts.
    ///
    /// Of mappings that are there the new one may take parts; one that would go whole must be taken
    /// away before ([`RefusalCause::MappingInTheWay`], [`Accounting::mapped`]).
    pub fn begin_map(&mut self, map: &Map) -> Result<MapTicket, RefusalCause> {
        let last = last_of(map.base, map.length).ok_or(RefusalCause::NoRange)?;
        let space = self.managed.space(map.file);
        if space.is_some_and(|space| space.cuts.is_unmapping(map.gpu, map.base, last)) {
            return Err(RefusalCause::MappingInFlight);
        }
        let cuts = self.count_cuts(map.file, map.gpu, (map.base, last))?;
        match self.enter_map(map) {
            Ok(ticket) => {
                if let Some(space) = self.managed.space_mut(map.file) {
                    for (base, last) in cuts.across.into_iter().flatten() {
                        space.cuts.leave_remains(base, last);
                    }
                }
                Ok(ticket)
            }
            Err(refusal) => {
                self.uncount_cuts(map.file, cuts.count);
                Err(refusal)
            }
        }
    }

    /// Addresses are about to be unmapped for a GPU (`UVM_UNMAP_EXTERNAL`).
    ///
    /// # Errors
    ///
    /// The span names no GPU. There is no host memory for the cuts.
    pub fn begin_unmap(&mut self, span: Span) -> Result<UnmapTicket, RefusalCause> {
        let gpu = span.gpu.ok_or(RefusalCause::NoRange)?;
        let ends = (span.base, span.last);
        let cuts = self.count_cuts(span.file, gpu, ends)?;
        let number = self.managed.next();
        let space = self.managed.enter(span.file);
        let begun = space.and_then(|space| space.cuts.begin(number, gpu, ends));
        match begun {
            Ok(()) => Ok(UnmapTicket {
                file: span.file,
                number,
            }),
            Err(exhausted) => {
                self.uncount_cuts(span.file, cuts.count);
                Err(exhausted.into())
            }
        }
    }

    /// The module is about to unmap the first mapping that [`Accounting::mapped`] finds, by itself;
    /// `None`: there is none.
    pub fn begin_clear(
        &mut self,
        span: Span,
        moment: u64,
    ) -> Result<Option<(FoundMapping, UnmapTicket)>, RefusalCause> {
        let Some(found) = self.mapped(span, moment) else {
            return Ok(None);
        };
        let ticket = self.begin_unmap(Span {
            file: span.file,
            gpu: Some(found.gpu),
            base: found.base,
            last: last_of(found.base, found.length).ok_or(RefusalCause::NoRange)?,
        })?;
        Ok(Some((found, ticket)))
    }

    /// The driver has answered.
    pub fn end_unmap(&mut self, ticket: UnmapTicket) {
        if let Some(space) = self.managed.space_mut(ticket.file) {
            space.cuts.end(ticket.number);
        }
    }

    /// Counts what a call about these addresses may cut.
    fn count_cuts(
        &mut self,
        file: FileId,
        gpu: GpuId,
        (base, last): (u64, u64),
    ) -> Result<Cuts, RefusalCause> {
        let mut cuts = Cuts::default();
        let ends = [Some(base), last.checked_add(1)];
        for (at, across) in ends.into_iter().zip(&mut cuts.across) {
            let Some(at) = at else {
                continue;
            };
            let is_cut = match self.mappings.edge(file, gpu, at) {
                Edge::Across(base, last) => {
                    *across = Some((base, last));
                    true
                }
                Edge::Met => false,
                Edge::Open => {
                    let space = self.managed.space(file);
                    space.is_some_and(|space| space.cuts.may_be_across(at))
                }
            };
            cuts.count += u64::from(is_cut);
        }
        if cuts.count == 0 {
            return Ok(cuts);
        }
        let space = self.managed.enter(file)?;
        let more = cuts.count * CUT_STRUCT;
        self.accounts.ledgers.count(None, HOST, more)?;
        space.cuts.add(cuts.count);
        Ok(cuts)
    }

    fn uncount_cuts(&mut self, file: FileId, count: u64) {
        if let Some(space) = self.managed.space_mut(file) {
            space.cuts.take_back(count);
            let less = count.saturating_mul(CUT_STRUCT);
            self.accounts.ledgers.uncount(None, HOST, less);
        }
    }
}
