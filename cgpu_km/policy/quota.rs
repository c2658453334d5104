// SPDX-License-Identifier: GPL-2.0
//! Things of which an instance may have only so much, beside memory and channels: what the driver
//! and the GPU's firmware have one store of for all tenants.
//!
//! A count is raised before the driver is asked, and lowered when what was counted is gone for
//! certain. What belongs to a GPU counts there. What belongs to none, such as a client, counts on
//! each GPU of the tenant, and is refused if it is too much on one.

use crate::{policy::count::lower, uapi::Limited};

/// How many kinds of things there are.
const KINDS: usize = Limited::ALL.len();

/// Clients for which the driver makes room in the firmware's heap of a GPU
/// (`GSP_FW_HEAP_PARAM_CLIENT_ALLOC_SIZE`, gsp_fw_heap.h: 48 KiB for each of 2,048).
const FIRMWARE_CLIENTS: u64 = 2048;
/// Objects that an instance of any size may have. A CUDA program has 120 to 370 (tests/traces).
const OBJECTS: u64 = 16_384;
/// A program can have an object for each piece of memory. CUDA's pieces are of 2 MiB
/// (`cuMemCreate()`), and duplicates of them are objects as well.
const BYTES_OF_AN_OBJECT: u64 = 512 << 10;
/// Events, of which a CUDA program has 8 (tests/traces).
const EVENTS: u64 = 4096;

/// What the limits follow from where none was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuSize {
    /// Instances among which the GPU is divided.
    pub max_instances: u32,
}

/// How much there is of each kind of things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts([u64; KINDS]);

impl Counts {
    pub(super) const NONE: Self = Self([0; KINDS]);

    fn of(&self, what: Limited) -> u64 {
        self.0.get(index(what)).copied().unwrap_or_default()
    }

    fn of_mut(&mut self, what: Limited) -> Option<&mut u64> {
        self.0.get_mut(index(what))
    }

    pub(super) fn raise(&mut self, what: Limited, by: u64) {
        if let Some(count) = self.of_mut(what) {
            *count = count.saturating_add(by);
        }
    }

    pub(super) fn lower(&mut self, what: Limited, by: u64) {
        if let Some(count) = self.of_mut(what) {
            lower(count, by);
        }
    }

    pub(super) fn are_clear(&self) -> bool {
        *self == Self::NONE
    }
}

/// The place of a kind of things.
fn index(what: Limited) -> usize {
    // CAST: the kinds are numbered from 0 on.
    what.number() as usize
}

/// A limit and what counts against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitView {
    /// Of what.
    pub what: Limited,
    /// It was set; otherwise it is the default.
    pub is_set: bool,
    /// The most that there may be.
    pub limit: u64,
    /// How much there is.
    pub used: u64,
    /// How often more was refused.
    pub refused: u64,
}

/// The limits of a share, and what it has.
#[derive(Debug)]
pub(super) struct Quotas {
    /// `None`: nothing is limited but by what was set.
    size: Option<GpuSize>,
    set: [Option<u64>; KINDS],
    pub(super) counts: Counts,
    refused: Counts,
}

impl Quotas {
    pub(super) const fn new() -> Self {
        Self {
            size: None,
            set: [None; KINDS],
            counts: Counts::NONE,
            refused: Counts::NONE,
        }
    }

    /// The share is one of a GPU of this size, and no limit is set.
    pub(super) fn open(&mut self, size: GpuSize) {
        self.size = Some(size);
        self.set = [None; KINDS];
    }

    /// Sets a limit; `None`: the default. Below what there is, no more is granted until enough is
    /// gone.
    pub(super) fn set(&mut self, what: Limited, limit: Option<u64>) {
        if let Some(set) = self.set.get_mut(index(what)) {
            *set = limit;
        }
    }

    fn set_limit(&self, what: Limited) -> Option<u64> {
        self.set.get(index(what)).copied().flatten()
    }

    /// The limit of a share with so many bytes of memory.
    fn limit(&self, what: Limited, memory: u64) -> u64 {
        let default = self.size.map(|size| size.default_limit(what, memory));
        self.set_limit(what).or(default).unwrap_or(u64::MAX)
    }

    /// Whether there may be so much more, beside what the tenant has on no GPU.
    pub(super) fn has_room(
        &mut self,
        what: Limited,
        more: u64,
        common: &Counts,
        memory: u64,
    ) -> bool {
        let used = self.counts.of(what).saturating_add(common.of(what));
        let fits = used.saturating_add(more) <= self.limit(what, memory);
        if !fits {
            self.refused.raise(what, 1);
        }
        fits
    }

    /// What is told of a kind of things.
    pub(super) fn view(&self, what: Limited, common: &Counts, memory: u64) -> LimitView {
        LimitView {
            what,
            is_set: self.set_limit(what).is_some(),
            limit: self.limit(what, memory),
            used: self.counts.of(what).saturating_add(common.of(what)),
            refused: self.refused.of(what),
        }
    }
}

impl GpuSize {
    /// The limit of an instance with so many bytes of memory for which none was set.
    fn default_limit(&self, what: Limited, memory: u64) -> u64 {
        match what {
            Limited::Clients => (FIRMWARE_CLIENTS / u64::from(self.max_instances.max(1))).max(1),
            Limited::Objects => OBJECTS.saturating_add(memory / BYTES_OF_AN_OBJECT),
            Limited::Events => EVENTS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_that_of_the_size_until_one_is_set() {
        let mut quotas = Quotas::new();
        let limit = |quotas: &Quotas, what| quotas.limit(what, 8 << 30);
        assert_eq!(limit(&quotas, Limited::Clients), u64::MAX);
        quotas.open(GpuSize { max_instances: 16 });
        let defaults = Limited::ALL.map(|what| limit(&quotas, what));
        assert_eq!(defaults, [128, 32_768, 4096]);
        quotas.set(Limited::Clients, Some(7));
        assert_eq!(limit(&quotas, Limited::Clients), 7);
        quotas.set(Limited::Clients, None);
        assert_eq!(limit(&quotas, Limited::Clients), 128);
    }

    #[test]
    fn what_is_on_no_gpu_counts_on_each() {
        let mut quotas = Quotas::new();
        quotas.set(Limited::Objects, Some(5));
        quotas.counts.raise(Limited::Objects, 2);
        let mut common = Counts::NONE;
        common.raise(Limited::Objects, 2);
        assert!(quotas.has_room(Limited::Objects, 1, &common, 0));
        assert!(!quotas.has_room(Limited::Objects, 2, &common, 0));
        let view = quotas.view(Limited::Objects, &common, 0);
        assert_eq!((view.limit, view.used, view.refused), (5, 4, 1));
        assert!(view.is_set);
    }
}
