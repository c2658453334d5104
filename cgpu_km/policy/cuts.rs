// SPDX-License-Identifier: GPL-2.0
//! Cuts of the mappings that one UVM file has of memory objects, and unmappings under way.
//!
//! An unmapping of a part of a mapping has the driver cut it (`uvm_ext_gpu_map_split()`,
//! uvm_map_external.c), and so does a mapping over a part. Each half has a struct and an array of
//! its page tables then. The array of the lower half keeps the memory that it had before, as long
//! as that is not more than 16 KiB (`uvm_page_table_range_vec_split_upper()`, uvm_mmu.c). So each
//! cut counts, before the driver is asked, until the file is closed.
//!
//! A call cuts at an end of its addresses if a mapping goes across. Of a mapping that was cut by
//! another one nobody knows what is left: it may go across anywhere in its addresses, except at the
//! end of a mapping that is there. No mapping comes to where an unmapping is under way, since that
//! could cut it.

use crate::{
    policy::ids::GpuId,
    store::{
        Exhausted,
        List, //
    }, //
};

/// Bytes of the host's memory that the driver keeps for one at most.
pub(super) const CUT_STRUCT: u64 = 16 << 10;

/// An unmapping under way.
#[derive(Debug)]
struct Unmapping {
    number: u64,
    gpu: GpuId,
    base: u64,
    last: u64,
}

/// The cuts and unmappings of one file.
#[derive(Debug)]
pub(super) struct MappingCuts {
    count: u64,
    /// The first and the last byte of all that was mapped by what another mapping has cut.
    remains: Option<(u64, u64)>,
    unmappings: List<Unmapping>,
}

impl MappingCuts {
    pub(super) const fn new() -> Self {
        Self {
            count: 0,
            remains: None,
            unmappings: List::new(),
        }
    }

    /// How many cuts there are.
    pub(super) fn len(&self) -> u64 {
        self.count
    }

    pub(super) fn add(&mut self, more: u64) {
        self.count = self.count.saturating_add(more);
    }

    pub(super) fn take_back(&mut self, less: u64) {
        self.count = self.count.saturating_sub(less);
    }

    /// The rest of a cut mapping may go across an address.
    pub(super) fn may_be_across(&self, at: u64) -> bool {
        let mut remains = self.remains.into_iter();
        remains.any(|(base, last)| base < at && at <= last)
    }

    /// Another mapping cuts one of these addresses.
    pub(super) fn leave_remains(&mut self, base: u64, last: u64) {
        let (first, end) = self.remains.unwrap_or((base, last));
        self.remains = Some((first.min(base), end.max(last)));
    }

    /// An unmapping begins.
    pub(super) fn begin(
        &mut self,
        number: u64,
        gpu: GpuId,
        (base, last): (u64, u64),
    ) -> Result<(), Exhausted> {
        self.unmappings.push(Unmapping {
            number,
            gpu,
            base,
            last,
        })
    }

    /// It has ended.
    pub(super) fn end(&mut self, number: u64) {
        let place = self.unmappings.iter().position(|one| one.number == number);
        if let Some(place) = place {
            self.unmappings.swap_remove(place);
        }
    }

    /// An unmapping of any of these addresses is under way.
    pub(super) fn is_unmapping(&self, gpu: GpuId, base: u64, last: u64) -> bool {
        let mut all = self.unmappings.iter();
        all.any(|one| one.gpu == gpu && one.base <= last && one.last >= base)
    }
}
