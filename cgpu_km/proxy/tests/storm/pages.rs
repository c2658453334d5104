// SPDX-License-Identifier: GPL-2.0
//! The pages of video memory: which belongs to whom, and which are shown to the processor.

use super::{
    super::*,
    scale::GPUS, //
};

const PAGE: u64 = 2 * MIB;
/// Pages that are seen through a file, at most.
const MOST_SEEN: usize = 4;

/// The owner of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageOwner {
    pub(super) tenant: usize,
    pub(super) memory: usize,
}

/// A page that is seen through a file, and its owner when the file was prepared for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenPage {
    gpu: usize,
    page: usize,
    owner: PageOwner,
}

impl SeenPage {
    /// The memory that it was of.
    pub(super) fn memory(&self) -> usize {
        self.owner.memory
    }
}

/// The owner of each page, by GPU. Pages that are freed are given to the next who asks.
#[derive(Debug, Default)]
pub(super) struct StormPages([Vec<Option<PageOwner>>; GPUS]);

impl StormPages {
    /// Gives the lowest free pages.
    pub(super) fn give(&mut self, gpu: usize, owner: PageOwner, bytes: u64) {
        let owners = &mut self.0[gpu];
        let mut wanted = usize::try_from(bytes.div_ceil(PAGE)).expect("below a limit");
        for free in owners
            .iter_mut()
            .filter(|owner| owner.is_none())
            .take(wanted)
        {
            *free = Some(owner);
            wanted -= 1;
        }
        owners.resize(owners.len() + wanted, Some(owner));
    }

    pub(super) fn take_back(&mut self, gpu: usize, memory: usize) {
        for owner in &mut self.0[gpu] {
            *owner = owner.filter(|owner| owner.memory != memory);
        }
    }

    /// The pages that are seen through a file from now on, if it is prepared for this memory.
    pub(super) fn seen(&self, gpu: usize, memory: usize) -> Vec<SeenPage> {
        let owners = self.0[gpu].iter().enumerate();
        let own = owners.filter_map(|(page, owner)| {
            let owner = owner.filter(|owner| owner.memory == memory)?;
            Some(SeenPage { gpu, page, owner })
        });
        own.take(MOST_SEEN).collect()
    }

    /// The page at an offset in memory. Beyond its end it is whatever lies there.
    pub(super) fn at(&self, gpu: usize, memory: usize, offset: u64) -> Option<SeenPage> {
        let owners = &self.0[gpu];
        let is_own = |page: &usize| owners[*page].is_some_and(|owner| owner.memory == memory);
        let mut own = (0..owners.len()).filter(is_own);
        let first = own.clone().next()?;
        let number = usize::try_from(offset / PAGE).unwrap_or(usize::MAX);
        Some(SeenPage {
            gpu,
            page: own.nth(number).unwrap_or(first.saturating_add(number)),
            owner: owners[first]?,
        })
    }

    /// Whether somebody else can have a page by now, or `tenant` never had it.
    pub(super) fn is_foreign(&self, seen: &SeenPage, tenant: usize) -> bool {
        let owner = self.0[seen.gpu].get(seen.page).copied().flatten();
        owner != Some(seen.owner) || seen.owner.tenant != tenant
    }

    pub(super) fn are_free(&self) -> bool {
        self.0.iter().flatten().all(Option::is_none)
    }
}
