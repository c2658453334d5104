// SPDX-License-Identifier: GPL-2.0
//! The external ranges of a tenant's UVM files (`UVM_CREATE_EXTERNAL_RANGE`), the only addresses to
//! which memory objects are mapped (`uvm_map_external_allocation()`, uvm_map_external.c).
//!
//! They are known so that the end of one can be believed. The driver frees a range that has just
//! these addresses, with all that is mapped in it, and cannot refuse that (`uvm_free()`,
//! uvm_va_range.c). Its status, which the program can forge, is not needed. It is enough that the
//! driver has no external range that is not here, and none with other addresses than here. No two
//! ranges of a file overlap, as in the driver.
//!
//! * A range is entered before the driver is asked for it. A range that the driver has not made
//!   does no harm: nothing is mapped there.
//! * If a call for a range failed, the status may be a lie, and the range may be there or not. The
//!   file is *lost* from then on: its mappings are judged by what is certain without ranges.
//! * Each record costs what the driver's own takes ([`RANGE_STRUCT`]). In a lost file none goes
//!   before the file is closed, and one stands for all ranges that begin at its address: the driver
//!   has no two at once there.
//! * A call for a range that another call is making or freeing is refused, as if it had come before
//!   that one, or after it.

use crate::policy::{
    count::lower,
    event::RefusalCause,
    ids::FileId,
    records::Ref,
    skip_list::{
        Keyed,
        SkipList, //
    },
    span::{
        last_of,
        Span, //
    }, //
};

/// Most ranges of one tenant. CUDA makes one for each piece of memory, of 2 MiB or more.
const MOST_RANGES: usize = 1 << 18;

/// Bytes of the host's memory that the driver takes for a range. Since 550 there is a tree with a
/// lock in it for each of 256 GPUs (`gpu_ranges`, uvm_va_range.h), in 535 for 32.
pub(super) const RANGE_STRUCT: u64 = 16 << 10;

/// Ranges begin and end on multiples of this (`uvm_api_range_invalid_4k()`, uvm_api.h).
const ALIGNMENT: u64 = 4096;

/// How far a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeLife {
    /// The driver is being asked for it.
    Coming,
    /// The driver has it, if it has any there.
    Here,
    /// The driver is freeing it.
    Going,
    /// Not a range: the file is lost.
    Lost,
}

#[derive(Debug)]
struct Range {
    file: FileId,
    base: u64,
    last: u64,
    life: RangeLife,
}

impl Keyed for Range {
    type Key = (u64, u64);

    fn key(&self) -> (u64, u64) {
        (self.file.0, self.base)
    }
}

/// No range begins here: it stands for the file being lost.
const LOST: u64 = u64::MAX;

/// All ranges of a tenant.
#[derive(Debug)]
pub(super) struct Ranges {
    records: SkipList<Range>,
    /// How many of the records stand for lost files.
    lost: usize,
}

/// A range that the driver is being asked for. It must be handed back to `Accounting::end_range`.
/// `None`: there is a record for its address.
#[derive(Debug)]
#[must_use = "a range is not there until its ticket is handed back"]
pub struct RangeTicket(Option<Ref>);

impl RangeTicket {
    /// It has a new record, which costs [`RANGE_STRUCT`].
    pub(super) fn is_new(&self) -> bool {
        self.0.is_some()
    }
}

/// The meaning of a call to free a range (`UVM_FREE`).
#[derive(Debug)]
pub enum RangeEnd {
    /// The range goes, with all in it, for `Accounting::end_range_free`.
    Certain(Going),
    /// There is none of these addresses: nothing that is mapped goes.
    Nothing,
    /// Nobody knows.
    Lost,
}

/// A range that the driver is being asked to free.
#[derive(Debug)]
#[must_use = "a range stays as it is until it is handed back"]
pub struct Going {
    range: Ref,
    /// Its addresses.
    pub(super) span: Span,
    /// When the call began: what is mapped in the range since then does not go with it.
    pub(super) moment: u64,
}

impl Ranges {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            records: SkipList::new(seed),
            lost: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.len() == 0
    }

    fn is_lost(&self, file: FileId) -> bool {
        if self.lost == 0 {
            return false;
        }
        let found = self.records.from((file.0, LOST));
        let found = found.and_then(|id| self.records.get(id));
        found.is_some_and(|range| range.file == file)
    }

    fn set(&mut self, name: Ref, life: RangeLife) {
        if let Some(range) = self.records.named_mut(name) {
            range.life = life;
        }
    }

    /// Takes a record out, if it is there.
    fn take(&mut self, name: Ref) -> bool {
        let found = self.records.find(name);
        let found = found.and_then(|id| Some((id, self.records.get(id)?)));
        let Some((id, range)) = found else {
            return false;
        };
        if range.life == RangeLife::Lost {
            lower(&mut self.lost, 1);
        }
        let path = self.records.path(range.key());
        self.records.unlink(id, &path);
        self.records.discard(id);
        true
    }

    /// The file of a range is lost. The range's own record says so from now on, since there may be
    /// no memory for another one. (It goes on costing what it did: the range may be there.)
    fn lose(&mut self, name: Ref) {
        let found = self.records.find(name);
        let found = found.and_then(|id| Some((id, self.records.get(id)?)));
        let Some((id, key, file)) = found.map(|(id, range)| (id, range.key(), range.file)) else {
            return;
        };
        if self.is_lost(file) {
            self.set(name, RangeLife::Here);
            return;
        }
        let path = self.records.path(key);
        self.records.unlink(id, &path);
        if let Some(range) = self.records.get_mut(id) {
            (range.base, range.last, range.life) = (LOST, LOST, RangeLife::Lost);
        }
        let path = self.records.path((file.0, LOST));
        self.records.link(id, &path);
        self.lost += 1;
    }

    /// A range is about to be made.
    pub(super) fn begin(
        &mut self,
        file: FileId,
        base: u64,
        length: u64,
    ) -> Result<RangeTicket, RefusalCause> {
        let whole = (base | length) % ALIGNMENT == 0 && base != 0;
        let last = last_of(base, length).filter(|_| whole);
        let last = last.ok_or(RefusalCause::NoRange)?;
        let path = self.records.path((file.0, base));
        let of_file = |id| self.records.get(id).filter(|range| range.file == file);
        let before = path.before().and_then(of_file);
        let behind = self.records.behind(path.before()).and_then(of_file);
        if self.is_lost(file) {
            match behind.filter(|range| range.base == base) {
                Some(range) if range.life == RangeLife::Here => return Ok(RangeTicket(None)),
                Some(_) => return Err(RefusalCause::AddressInUse),
                None => {}
            }
        } else if before.is_some_and(|range| range.last >= base)
            || behind.is_some_and(|range| range.base <= last)
        {
            return Err(RefusalCause::AddressInUse);
        }
        if self.records.len() >= MOST_RANGES {
            return Err(RefusalCause::Exhausted);
        }
        let id = self.records.insert(Range {
            file,
            base,
            last,
            life: RangeLife::Coming,
        })?;
        self.records.link(id, &path);
        Ok(RangeTicket(self.records.name(id)))
    }

    /// The driver is not asked for it.
    pub(super) fn cancel(&mut self, ticket: RangeTicket) {
        if let Some(range) = ticket.0 {
            self.take(range);
        }
    }

    /// The driver has answered; `made`: it says that it has the range.
    pub(super) fn end(&mut self, ticket: RangeTicket, made: bool) {
        match ticket.0 {
            Some(range) if made => self.set(range, RangeLife::Here),
            Some(range) => self.lose(range),
            None => {}
        }
    }

    /// The range that begins there, and has that length, where one is given, is about to be freed.
    pub(super) fn begin_free(
        &mut self,
        file: FileId,
        base: u64,
        length: Option<u64>,
        moment: u64,
    ) -> Result<RangeEnd, RefusalCause> {
        if self.is_lost(file) {
            return Ok(RangeEnd::Lost);
        }
        let id = self.records.from((file.0, base));
        let found = id.and_then(|id| {
            let name = self.records.name(id)?;
            Some((name, self.records.get_mut(id)?))
        });
        let found = found.filter(|(_, range)| range.key() == (file.0, base));
        let Some((name, range)) = found else {
            return Ok(RangeEnd::Nothing);
        };
        if range.life != RangeLife::Here {
            return Err(RefusalCause::NoRange);
        }
        if length.is_some_and(|length| range.last - base != length.wrapping_sub(1)) {
            return Ok(RangeEnd::Nothing);
        }
        range.life = RangeLife::Going;
        let last = range.last;
        Ok(RangeEnd::Certain(Going {
            range: name,
            span: Span {
                file,
                gpu: None,
                base,
                last,
            },
            moment,
        }))
    }

    /// The driver was asked to free a range. Tells whether its record was still there.
    pub(super) fn end_free(&mut self, going: Going) -> bool {
        self.take(going.range)
    }

    /// It is not certain that the driver was asked to free a range.
    pub(super) fn lose_free(&mut self, going: Going) {
        self.lose(going.range);
    }

    /// The driver has closed the file. Returns how many records have gone.
    pub(super) fn close(&mut self, file: FileId) -> u64 {
        let mut gone = 0;
        while let Some(id) = self.records.from((file.0, 0)) {
            let of_file = self.records.get(id).is_some_and(|range| range.file == file);
            let Some(name) = self.records.name(id).filter(|_| of_file) else {
                break;
            };
            gone += u64::from(self.take(name));
        }
        gone
    }
}
