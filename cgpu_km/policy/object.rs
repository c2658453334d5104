// SPDX-License-Identifier: GPL-2.0
//! The records of one RM object and of one client.

use crate::{
    nvidia::{
        class::Kind,
        handle::{
            ClassId,
            ClientHandle,
            ObjectHandle, //
        },
        memory::PageSize,
        params::DEFAULT_TIMESLICE_US, //
    },
    policy::{
        boost::Boost,
        ids::{
            FileId,
            ShareId,
            MAX_SHARES, //
        },
        records::RecordId, //
    }, //
};

/// How far an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectLife {
    /// The driver is being asked for it.
    Coming,
    /// The driver has it.
    Here,
    /// It is gone; only its name is still taken, because a call in flight uses it.
    Gone,
}

/// When the compute work of a group, or of a channel in none, can be taken off the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preemption {
    /// When the driver's own mode lets it: nobody has asked for another.
    AsMade,
    /// The same, and it was put on the runlist, or a channel of it.
    AsMadeRuns,
    /// The first graphics object is being made, and the mode is set then.
    BeingSet,
    /// At any instruction, or as early as this GPU lets it.
    AnyTime,
    /// The same, and it was put on the runlist.
    AnyTimeRuns,
}

/// How an object stands in the table of handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleEntry {
    /// Under its client and handle.
    Made,
    /// Not yet, for the driver chooses its handle; there is room for it.
    Promised,
    /// Not, or no longer; it goes with its client.
    None,
}

/// Bytes of a page.
const PAGE: u64 = PageSize::Small.bytes();
/// Bytes of the largest page of which memory is made without being asked for.
const LARGEST_PAGE: u64 = PageSize::Huge.bytes();

/// Of memory, its pages and the pages of BAR1 that may show it. A count that is full stays full.
struct Halves {
    pages: u64,
    bar1: u64,
}

impl Halves {
    const MOST: u64 = 0xffff_ffff;
    const MOST_BYTES: u64 = Self::MOST * PAGE;

    fn of(asked: u64) -> Self {
        Self {
            pages: asked & Self::MOST,
            bar1: asked >> 32,
        }
    }

    fn with_pages(self, bytes: u64) -> Self {
        let pages = bytes.div_ceil(PAGE).min(Self::MOST);
        Self { pages, ..self }
    }

    fn with_bar1(self, more: u64) -> Self {
        let bar1 = self.bar1.saturating_add(more.div_ceil(PAGE));
        Self {
            bar1: bar1.min(Self::MOST),
            ..self
        }
    }

    fn without_bar1(self, less: u64) -> Self {
        let bar1 = match self.bar1 {
            Self::MOST => Self::MOST,
            bar1 => bar1.saturating_sub(less.div_ceil(PAGE)),
        };
        Self { bar1, ..self }
    }

    fn joined(self) -> u64 {
        self.bar1 << 32 | self.pages
    }
}

/// Whether such objects have a size: memory, and ranges of addresses.
pub(super) fn has_size(kind: Kind) -> bool {
    kind.is_memory() || kind == Kind::VirtualMemory
}

/// An RM object. There may be very many, so it is kept small.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) client: ClientHandle,
    pub(super) handle: ObjectHandle,
    pub(super) class: ClassId,
    pub(super) kind: Kind,
    pub(super) life: ObjectLife,
    pub(super) entry: HandleEntry,
    /// Calls in flight that use its name, and the uses that channels make of it.
    pub(super) named: u32,
    /// The GPU that it belongs to, by way of the device object that it is or is below of.
    pub(super) share: Option<ShareId>,
    /// Its hold on what it costs.
    pub(super) hold: Option<RecordId>,
    /// Its program asked for this and believes to have it: for a channel group its timeslice, in
    /// microseconds; for a subdevice the number of its boost; for a doorbell 1, if it was asked for
    /// through BAR1 and made through BAR0. For memory and ranges: [`Halves`]. For memory of other
    /// devices and for a surface of semaphores: [`Object::records`]. For shared data 1, if some are
    /// to be kept up to date. For a profiler: its streams (accounting/profilers.rs).
    asked: u64,
    /// By what pages it can be mapped at most, for memory.
    pub(super) page: PageSize,
    /// It is a channel for compute or graphics.
    pub(super) is_compute_channel: bool,
    /// For a channel group or a channel in none: when its compute work can be taken off the GPU.
    pub(super) preemption: Preemption,
    /// Calls in flight that end its mappings. A count that is full stays full. While there are
    /// any, no file comes to show the object, nor one below it.
    pub(super) ending: u8,
    /// Its client's record; `None` once the client is gone.
    pub(super) owner: Option<RecordId>,
    pub(super) parent: Option<RecordId>,
    pub(super) child: Option<RecordId>,
    pub(super) previous: Option<RecordId>,
    pub(super) next: Option<RecordId>,
}

/// An object as it was when it ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) client: ClientHandle,
    pub(super) handle: ObjectHandle,
    pub(super) kind: Kind,
    /// The driver had it.
    pub(super) was_here: bool,
    pub(super) was_polled: bool,
    pub(super) share: Option<ShareId>,
    pub(super) hold: Option<RecordId>,
    pub(super) owner: Option<RecordId>,
    /// As [`Object::bar1`].
    pub(super) bar1: u64,
    /// As [`Object::records`].
    pub(super) records: u64,
}

impl Object {
    /// An object that the driver is about to be asked for.
    pub(super) fn coming(
        client: ClientHandle,
        handle: ObjectHandle,
        class: ClassId,
        kind: Kind,
    ) -> Self {
        Self {
            client,
            handle,
            class,
            kind,
            life: ObjectLife::Coming,
            entry: HandleEntry::None,
            named: 0,
            share: None,
            hold: None,
            asked: match kind {
                Kind::Subdevice => u64::from(Boost::OFF.number()),
                kind if has_size(kind) => 0,
                Kind::UserMode => 0,
                Kind::PeerMemory | Kind::SemaphoreSurface | Kind::SharedData => 0,
                Kind::Profiler => 0,
                _ => DEFAULT_TIMESLICE_US,
            },
            page: PageSize::Small,
            is_compute_channel: false,
            preemption: Preemption::AsMade,
            ending: 0,
            owner: None,
            parent: None,
            child: None,
            previous: None,
            next: None,
        }
    }

    /// The value that its program asked for.
    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    /// Its program has asked for this.
    pub(super) fn ask(&mut self, asked: u64) {
        self.asked = asked;
    }

    /// It is memory, or a range, of so many bytes, as they were asked for, in whole pages. (What it
    /// is charged can be more than there is.)
    pub(super) fn set_size(&mut self, bytes: u64) {
        self.asked = Halves::of(self.asked).with_pages(bytes).joined();
    }

    /// Bytes of memory or of a range; 0: neither, or a range of which it is not known.
    pub(super) fn size(&self) -> u64 {
        if has_size(self.kind) {
            Halves::of(self.asked).pages * PAGE
        } else {
            0
        }
    }

    /// Whether a mapping of a part that ends there can be of this memory, or in this range. The
    /// driver makes both larger than they were asked for, up to the largest of their pages.
    pub(super) fn can_reach(&self, end: u64) -> bool {
        let most = match (self.kind, self.size()) {
            // The page of a compute object (kernel_graphics_object.c).
            (Kind::GraphicsObject, _) => PAGE,
            // Not known, or more than can be counted. There is no such memory.
            (Kind::VirtualMemory, 0 | Halves::MOST_BYTES) => u64::MAX,
            (_, size) => size.saturating_add(LARGEST_PAGE - 1) & !(LARGEST_PAGE - 1),
        };
        end <= most
    }

    /// So many bytes of BAR1 more may show it.
    pub(super) fn grow_bar1(&mut self, bytes: u64) {
        self.asked = Halves::of(self.asked).with_bar1(bytes).joined();
    }

    /// So many bytes of BAR1 do not show it. Gives how many count less.
    pub(super) fn shrink_bar1(&mut self, bytes: u64) -> u64 {
        let before = self.bar1();
        if before > 0 {
            self.asked = Halves::of(self.asked).without_bar1(bytes).joined();
        }
        before.saturating_sub(self.bar1())
    }

    /// How long its program wants the highest clock.
    pub(super) fn boost(&self) -> Boost {
        match self.kind {
            Kind::Subdevice => Boost::from_number(u32::try_from(self.asked()).unwrap_or(0)),
            _ => Boost::OFF,
        }
    }

    /// The object is gone. What counts for it elsewhere is taken out of it.
    pub(super) fn end(&mut self) -> Ended {
        let was_here = self.life == ObjectLife::Here;
        self.life = ObjectLife::Gone;
        Ended {
            client: self.client,
            handle: self.handle,
            kind: self.kind,
            was_here,
            was_polled: self.is_polled(),
            share: self.share.take(),
            hold: self.hold.take(),
            owner: self.owner.take(),
            bar1: self.bar1(),
            records: self.records(),
        }
    }

    /// Bytes of BAR1 that may show it, until it is gone.
    pub(super) fn bar1(&self) -> u64 {
        match self.kind {
            Kind::VideoMemory => Halves::of(self.asked).bar1 * PAGE,
            _ => 0,
        }
    }

    /// It is shared data of which any are to be kept up to date.
    pub(super) fn is_polled(&self) -> bool {
        self.kind == Kind::SharedData && self.asked != 0
    }

    /// The records that the driver keeps with it: address spaces that were registered with memory
    /// of other devices, bound channels of a surface of semaphores. Each counts as an object.
    pub(super) fn records(&self) -> u64 {
        match self.kind {
            Kind::PeerMemory | Kind::SemaphoreSurface => self.asked,
            _ => 0,
        }
    }

    /// It is a doorbell that was asked for through BAR1, or a copy of one.
    pub(super) fn is_through_bar1(&self) -> bool {
        self.kind == Kind::UserMode && self.asked() != 0
    }

    pub(super) fn key(&self) -> u64 {
        key_of(self.client, self.handle)
    }
}

/// An RM client.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) file: FileId,
    /// Its process, a record of [`super::process::Processes`].
    pub(super) process: RecordId,
    /// The object that stands for it, which has its handle.
    pub(super) root: RecordId,
    /// Its file was closed while it was made.
    pub(super) closed: bool,
    /// The next handle to try, among those that the driver would choose.
    pub(super) next_choice: u32,
    /// Its devices that use the addresses of another client.
    pub(super) shares: u32,
    /// Devices of other clients that use its addresses.
    pub(super) users: u32,
    /// Its device objects, by share.
    pub(super) devices: [u32; MAX_SHARES],
    /// The size that it was last told a GPU's memory has, in KiB, by share; 0: none.
    pub(super) told: [u32; MAX_SHARES],
    pub(super) previous: Option<RecordId>,
    pub(super) next: Option<RecordId>,
}

/// The key of an object in the table of handles.
pub(super) fn key_of(client: ClientHandle, handle: ObjectHandle) -> u64 {
    u64::from(client.0) << 32 | u64::from(handle.0)
}
