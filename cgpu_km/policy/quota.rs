// SPDX-License-Identifier: GPL-2.0
//! Things of which an instance may have only so much, beside memory and channels: what the driver
//! and the GPU's firmware have one store of for all tenants.
//!
//! A count is raised before the driver is asked, and lowered when what was counted is gone for
//! certain. What belongs to a GPU counts there. What belongs to none, such as a client, counts on
//! each GPU of the tenant, and is refused if it is too much on one.

use crate::{
    nvidia::memory::PageSize,
    policy::count::{
        lower,
        Change, //
    },
    uapi::Limited, //
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

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
/// Events, of which a CUDA program has 8 (tests/traces). At each interrupt of an engine the driver
/// looks at those of all tenants (`_gpuEngineEventNotificationListNotify()`, gpu_engine_event.c).
const EVENTS: u64 = 1024;
/// BAR1 that an instance of any size may have: that of two CUDA programs (tests/traces).
const LEAST_BAR1: u64 = 4 * MIB;
/// Host memory that an instance of any size may have: that of fourteen CUDA programs, each of which
/// has 73 MB (tests/traces).
const LEAST_HOST: u64 = GIB;
/// Files that an instance of any size may have open. A CUDA program has up to 31 descriptors
/// (measured with NCCL), and each mapping of host memory keeps the file that it was made with.
const FILES: u64 = 16_384;
/// A program can have a file for each piece of memory that it exports. CUDA's pieces are of 2 MiB.
const BYTES_OF_A_FILE: u64 = 2 * MIB;
/// Mappings of registers: 64 CUDA programs with 7 children of fork each have 512 for each one that
/// a program makes. A gate that shuts looks at each.
const MAPPINGS: u64 = 4096;
/// Objects behind descriptors that an instance of any size may have. A program of NCCL has 48
/// (tests/traces).
const EXPORTS: u64 = 1024;
/// A program can export each piece of memory. CUDA's pieces are of 2 MiB.
const BYTES_OF_AN_EXPORT: u64 = 2 * MIB;
/// Exports of the smallest instance.
const LEAST_EXPORTS: u64 = 64;
/// Handles that the driver has for the exports of all its clients (`RmGenerateObjExportHandle()`,
/// rmobjexportimport.c: 0x80000), without some for the driver itself, which takes three for each
/// GPU, for programs of the host, and for instances that have the least.
pub const EXPORT_HANDLES: u64 = 0x8_0000 - 0x4000;
/// Of a BAR1 that is smaller than the GPU's memory, so many-th is left to the driver itself.
const DRIVERS_BAR1: u64 = 16;
/// A BAR1 that is no larger is filled by pages of 64 KiB at most
/// (`kbusIsBar1Force64KBMappingEnabled()`, kern_bus.c).
const SMALL_BAR1: u64 = 256 * MIB;

/// The sizes from which the default limits follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuSize {
    /// Instances among which the GPU is divided.
    pub max_instances: u32,
    /// Its memory, bytes.
    pub memory: u64,
    /// Its BAR1 as the driver tells it, bytes; 0: it does not.
    pub bar1: u64,
    /// The host's memory that is divided among its instances, bytes.
    pub host: u64,
    /// Handles for exports that are divided among its instances: its part of [`EXPORT_HANDLES`].
    pub exports: u64,
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

    /// Changes a count that is known to fit, or that shrinks.
    pub(super) fn change(&mut self, what: Limited, change: Change) {
        if let Some(count) = self.of_mut(what) {
            change.apply(count);
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

    /// Bytes of BAR1 that show a part of some memory.
    pub(super) fn bar1_bytes(&self, (offset, length): (u64, u64), page: PageSize) -> u64 {
        self.size
            .map_or(0, |size| size.bar1_bytes(offset, length, page))
    }

    /// How much more there may be, beside what the tenant has on no GPU.
    pub(super) fn room(&self, what: Limited, common: &Counts, memory: u64) -> u64 {
        let used = self.counts.of(what).saturating_add(common.of(what));
        self.limit(what, memory).saturating_sub(used)
    }

    /// More was refused.
    pub(super) fn refuse(&mut self, what: Limited) {
        self.refused.raise(what, 1);
    }

    /// Whether there may be so much more, beside what the tenant has on no GPU.
    pub(super) fn has_room(
        &mut self,
        what: Limited,
        more: u64,
        common: &Counts,
        memory: u64,
    ) -> bool {
        let fits = more <= self.room(what, common, memory);
        if !fits {
            self.refuse(what);
        }
        fits
    }

    /// The report on one limit.
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
            Limited::Bar1 => self.part_of_bar1(memory),
            Limited::HostMemory => part(self.host, memory, self.memory).max(LEAST_HOST),
            Limited::Files => FILES.saturating_add(memory / BYTES_OF_A_FILE),
            Limited::Mappings => MAPPINGS,
            Limited::Exports => self.part_of_exports(memory),
        }
    }

    /// As much of BAR1 as of the memory.
    fn part_of_bar1(&self, memory: u64) -> u64 {
        let (bar1, all) = match (self.bar1, self.memory) {
            (0, _) | (_, 0) => return u64::MAX,
            (bar1, all) if bar1 < all => (bar1 - bar1 / DRIVERS_BAR1, all),
            both => both,
        };
        part(bar1, memory, all).max(LEAST_BAR1)
    }

    /// One for each piece of memory, but no larger a part of the handles than of the memory.
    fn part_of_exports(&self, memory: u64) -> u64 {
        // In MiB, so that the product fits.
        let (own, all) = (memory.min(self.memory) / MIB, self.memory / MIB);
        let part = self.exports.saturating_mul(own).checked_div(all);
        let wanted = EXPORTS.saturating_add(memory / BYTES_OF_AN_EXPORT);
        wanted.min(part.unwrap_or(0)).max(LEAST_EXPORTS)
    }

    /// Bytes of BAR1 that show a part of some memory: whole pages of those that it is of
    /// (`dmaAllocMapping_GM107()`, virt_mem_allocator_gm107.c).
    fn bar1_bytes(&self, offset: u64, length: u64, page: PageSize) -> u64 {
        let page = match page {
            PageSize::Huge if self.bar1 <= SMALL_BAR1 => PageSize::Big.bytes(),
            page => page.bytes(),
        };
        // A power of two.
        let last = page - 1;
        let end = (offset & last).saturating_add(length);
        end.checked_add(last).map_or(u64::MAX, |end| end & !last)
    }
}

/// As much of `whole` bytes as `own` is of `all`; 0 if there is nothing of those.
fn part(whole: u64, own: u64, all: u64) -> u64 {
    // In MiB, so that the product fits.
    let (own, all) = (own.min(all).div_ceil(MIB), all.div_ceil(MIB));
    let part = (whole / MIB).saturating_mul(own).checked_div(all);
    part.unwrap_or(0).saturating_mul(MIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T4: GpuSize = GpuSize {
        max_instances: 16,
        memory: 16 << 30,
        bar1: 256 * MIB,
        host: 64 << 30,
        exports: EXPORT_HANDLES / 2,
    };

    #[test]
    fn bar1_is_divided_as_the_memory_is() {
        assert_eq!(T4.part_of_bar1(16 << 30), 240 * MIB);
        assert_eq!(T4.part_of_bar1(1 << 20), LEAST_BAR1);
        let h200 = GpuSize {
            memory: 141 << 30,
            bar1: 256 << 30,
            ..T4
        };
        assert_eq!(h200.part_of_bar1(141 << 30), 256 << 30);
        assert_eq!(h200.part_of_bar1(u64::MAX), 256 << 30);
        assert_eq!(GpuSize { bar1: 0, ..T4 }.part_of_bar1(1 << 30), u64::MAX);
    }

    #[test]
    fn bar1_shows_whole_pages() {
        let h200 = GpuSize {
            bar1: 256 << 30,
            ..T4
        };
        for (size, page, offset, length, bytes) in [
            (T4, PageSize::Huge, 0, 1, 64 << 10),
            (T4, PageSize::Small, 4095, 2, 8192),
            (T4, PageSize::Big, 65_536, 65_536, 65_536),
            (h200, PageSize::Huge, 4096, 2 * MIB, 4 * MIB),
            (h200, PageSize::Huge, 0, u64::MAX, u64::MAX),
        ] {
            assert_eq!(size.bar1_bytes(offset, length, page), bytes, "{size:?}");
        }
    }

    #[test]
    fn limit_follows_the_size_until_set() {
        let mut quotas = Quotas::new();
        let limit = |quotas: &Quotas, what| quotas.limit(what, 8 << 30);
        assert_eq!(limit(&quotas, Limited::Clients), u64::MAX);
        quotas.open(T4);
        let defaults = Limited::ALL.map(|what| limit(&quotas, what));
        assert_eq!(
            defaults,
            [128, 32_768, 1024, 120 * MIB, 32 * GIB, 20_480, 4096, 5120]
        );
        quotas.set(Limited::Clients, Some(7));
        assert_eq!(limit(&quotas, Limited::Clients), 7);
        quotas.set(Limited::Clients, None);
        assert_eq!(limit(&quotas, Limited::Clients), 128);
    }

    #[test]
    fn instances_leave_each_other_exports() {
        // Eight GPUs as large as an H200's: fewer handles than pieces of 2 MiB.
        let memory = 141 << 30;
        let h200 = GpuSize {
            memory,
            exports: EXPORT_HANDLES / 8,
            ..T4
        };
        for count in [1, 2, 7, 16, 60] {
            let each = h200.part_of_exports(memory / count);
            assert!(8 * count * each <= EXPORT_HANDLES, "{count} of {each}");
        }
        assert_eq!(h200.part_of_exports(memory / 16), 3968);
        // On a host with one GPU no more than a program has use for.
        assert_eq!(T4.part_of_exports(2 * GIB), 2048);
        assert_eq!(T4.part_of_exports(MIB), LEAST_EXPORTS);
        assert_eq!(
            GpuSize { memory: 0, ..T4 }.part_of_exports(GIB),
            LEAST_EXPORTS
        );
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
