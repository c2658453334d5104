// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: managed memory (`cudaMallocManaged`), and what of it GPUs may hold.
//!
//! No call asks for the memory of a GPU that managed memory takes: the driver gives it when the GPU touches
//! an address. What can be decided is whether the GPU may hold a piece of it at all: with its preferred
//! location at the CPU, a piece stays in host memory and the GPU uses it from there
//! (`block_select_processor_residency()`, uvm_va_block.c). So a piece either *counts* against the limit,
//! all of it, or is *spilled*.
//!
//! * What a program maps counts as far as it fits. The rest is spilled, or the mapping is refused: see
//!   [`ManagedMode`].
//! * What is spilled counts again when there is room, and is given back to the GPU then.
//! * What counts is spilled when memory objects need the room, or the limit is lowered.
//! * The driver is told by calls of our own. Each is an [`Order`]: taken before, given back after.
//! * What the program wants for a spilled piece is noted, and told to the driver when the piece counts.
//!
//! A program's own calls that bring memory onto a GPU are let through for what counts alone, and are held
//! ([`Touch`]) while they are in flight: what they cover is not spilled meanwhile, and what is mapped in its
//! place meanwhile must count.
//!
//! Both kinds take page tables on the GPU, 4.25 KiB for each 2 MiB, which count as overhead. Where there is no
//! room for those of what is spilled, what counts is spilled for them.
//!
//! Several GPUs: any of them may hold a piece, and with read duplication all of them. A piece counts on
//! each GPU that has an address space in the UVM file.

mod balance;
mod space;

use super::accounting::Accounting;
use super::event::{FileId, GpuId, Refusal, RefusalCause};
use super::ledger::{Change, Ledger, Ledgers, ManagedMode, Share};
use super::paging::Extent;
use crate::nvidia::memory::PageSize;
use crate::store::{Exhausted, List};
use balance::put_out;
use space::{Piece, Space, State, Tally, BLOCK};

pub use space::{Location, Wish};

/// How often in a file memory is spilled without being brought to host memory, where that was done before
/// a GPU can have touched much of it. See [`Tell::bring`].
const MOST_PROMPT: u32 = 16;

/// A call of our own about one piece. It must be handed back to the method that its maker names.
#[derive(Debug)]
#[must_use = "a piece stays as it is until its order is handed back"]
pub struct Order {
    /// The UVM file.
    pub file: FileId,
    /// The first address.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// What the program wants for it.
    pub wish: Wish,
    number: u64,
}

impl Order {
    fn last(&self) -> u64 {
        self.base.saturating_add(self.length.saturating_sub(1))
    }
}

/// Memory that was just mapped and does not fit: its preferred location is to be the CPU.
#[derive(Debug)]
pub struct Tell {
    /// For [`Accounting::told`].
    pub order: Order,
    /// And it is to be brought to host memory, since a GPU may have touched it before.
    pub bring: bool,
}

/// A run of addresses in a program's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first address.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// The GPU may hold it.
    pub counts: bool,
}

/// A program's call about managed memory. It must be handed back to [`Accounting::end_touch`].
#[derive(Debug)]
#[must_use = "what a call covers is not spilled until it is handed back"]
pub struct Touch {
    /// What the call covers.
    pub runs: List<Run>,
    file: FileId,
    number: u64,
}

/// Whether a GPU can get an address space in a UVM file.
#[derive(Debug)]
pub enum Entry {
    /// What the file has counts on this GPU from now on.
    Ready,
    /// First this must be brought to host memory, for [`Accounting::left`]; then ask again.
    Crowded(Order),
    /// There is no room.
    Refused,
}

/// The managed memory of a tenant.
#[derive(Debug)]
pub(super) struct Managed {
    spaces: List<Space>,
    /// Number of the last order or touch.
    number: u64,
    /// Calls that make room for memory objects: nothing takes it meanwhile.
    demands: u32,
}

impl Managed {
    pub(super) const fn new() -> Self {
        Self {
            spaces: List::new(),
            number: 0,
            demands: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spaces.iter().all(|space| space.pieces().is_empty())
    }

    fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    fn space(&self, file: FileId) -> Option<&Space> {
        let place = self.spaces.binary_search_by_key(&file.0, |s| s.file.0);
        self.spaces.get(place.ok()?)
    }

    fn space_mut(&mut self, file: FileId) -> Option<&mut Space> {
        let place = self.spaces.binary_search_by_key(&file.0, |s| s.file.0);
        self.spaces.get_mut(place.ok()?)
    }

    fn enter(&mut self, file: FileId) -> Result<&mut Space, Exhausted> {
        let found = self.spaces.binary_search_by_key(&file.0, |s| s.file.0);
        if let Err(place) = found {
            self.spaces.push(Space::new(file))?;
            if let Some(tail) = self.spaces.get_mut(place..) {
                tail.rotate_right(1);
            }
        }
        self.space_mut(file).ok_or(Exhausted)
    }
}

/// The ledgers of the shares in a set.
fn ledgers_of(set: u32, ledgers: &mut Ledgers) -> impl Iterator<Item = &mut Ledger> {
    let named = ledgers
        .each_mut()
        .filter(move |(share, _)| set & bit(*share) != 0);
    named.map(|(_, ledger)| ledger)
}

/// A share in a set of them.
pub(super) fn bit(share: Share) -> u32 {
    u32::try_from(share.index())
        .ok()
        .and_then(|index| 1u32.checked_shl(index))
        .unwrap_or(0)
}

/// The mode that holds for a set: the strictest of its shares', of all shares' if it is empty.
fn mode(set: u32, ledgers: &Ledgers) -> ManagedMode {
    let all = ledgers.each().filter(|(share, _)| {
        let named = set == 0 || set & bit(*share) != 0;
        named && ledgers.is_active(*share)
    });
    let modes = all.map(|(_, ledger)| ledger.view().managed_mode);
    modes.max().unwrap_or_default()
}

/// Changes a space in the blocks of a span, and charges or credits what that means.
fn account<R>(
    space: &mut Space,
    ledgers: &mut Ledgers,
    (base, last): (u64, u64),
    change: impl FnOnce(&mut Space) -> R,
) -> R {
    let before = space.tally_of(base, last);
    let result = change(space);
    let after = space.tally_of(base, last);
    let settle = |sum: u64, from: u64, to: u64| sum.saturating_sub(from).saturating_add(to);
    space.tally = Tally {
        blocks: settle(space.tally.blocks, before.blocks, after.blocks),
        spilled: settle(space.tally.spilled, before.spilled, after.spilled),
        tables: settle(space.tally.tables, before.tables, after.tables),
    };
    for ledger in ledgers_of(space.shares, ledgers) {
        ledger.move_managed(
            (before.blocks * BLOCK, after.blocks * BLOCK),
            (before.spilled, after.spilled),
        );
        ledger.lend_tables(Change {
            more: after.tables,
            less: before.tables,
        });
    }
    result
}

/// Blocks that are left on every share of a set when it has so many bytes of page tables more; `None`: there is
/// no room even for those.
fn room_beside(set: u32, ledgers: &Ledgers, tables: u64) -> Option<u64> {
    let mut least = u64::MAX;
    for (share, ledger) in ledgers.each().filter(|(share, _)| set & bit(*share) != 0) {
        let free = match ledgers.is_active(share) {
            true => ledger.view().free(),
            false => 0,
        };
        least = least.min(free.checked_sub(ledger.price_of_tables(tables))? / BLOCK);
    }
    Some(least)
}

impl Accounting {
    /// Changes what becomes of managed memory that is mapped on a GPU from now on. What is spilled stays
    /// so until there is room; what counts goes on counting, and leaves for memory objects where the
    /// mode is [`ManagedMode::Spill`] alone. `false`: the tenant has no share of that GPU.
    pub fn set_managed_mode(&mut self, gpu: GpuId, mode: ManagedMode) -> bool {
        self.accounts.ledgers.set_managed_mode(gpu, mode)
    }

    /// The driver has mapped managed memory. Tells whether some of it does not fit: then
    /// [`Accounting::tell`] says what the driver is to be told, before the program runs on.
    ///
    /// # Errors
    ///
    /// The mapping is to be taken away again.
    pub fn map_managed(&mut self, file: FileId, base: u64, length: u64) -> Result<bool, Refusal> {
        let last = last_of(base, length).ok_or(RefusalCause::NoRange)?;
        let ledgers = &mut self.accounts.ledgers;
        let space = self.managed.enter(file)?;
        // What the driver has no longer, if it has made place for this.
        account(space, ledgers, (base, last), |s| s.remove(base, last))?;
        let (shares, tables) = (space.shares, space.tables_more(base, last));
        let fits = self.has_room(shares, tables);
        let ledgers = &mut self.accounts.ledgers;
        let space = self.managed.enter(file)?;
        let granted = grant(space, ledgers, (base, last), tables, fits);
        let counted = granted.inspect_err(|_| {
            let shares = match space.shares {
                0 => u32::MAX,
                shares => shares,
            };
            for ledger in ledgers_of(shares, ledgers) {
                ledger.count_refused_managed();
            }
        })?;
        let piece = |base, last, state| Piece {
            base,
            last,
            state,
            wish: Wish::default(),
        };
        // The whole is entered first, so that nothing is left of it if there is no memory.
        account(space, ledgers, (base, last), |space| {
            space.add(piece(base, last, State::New))?;
            let Some(cut) = counted else {
                return Ok(());
            };
            let counts = |piece: &mut Piece| piece.state = State::Counted;
            let result = space.change(base, cut, counts);
            result.inspect_err(|_| space.remove(base, last).unwrap_or(()))
        })?;
        Ok(counted != Some(last))
    }

    /// The driver is about to map memory of its own for all GPUs of a file: a pool of semaphores
    /// (`UVM_ALLOC_SEMAPHORE_POOL`), the page by which work starts work (`UVM_MAP_DYNAMIC_PARALLELISM_REGION`). Its
    /// page tables are charged until the file is closed: no answer says for certain that it is gone, and programs
    /// make one of each.
    ///
    /// # Errors
    ///
    /// What to tell the caller instead of forwarding the call.
    pub fn begin_fixed(&mut self, file: FileId, base: u64, length: u64) -> Result<(), Refusal> {
        let last = last_of(base, length).ok_or(RefusalCause::NoRange)?;
        let page = PageSize::Small;
        let more = Extent { base, last, page }.tables();
        let shares = self.managed.enter(file)?.shares;
        if !self.has_room(shares, more) {
            let (wanted, free) = (more, 0);
            return Err(RefusalCause::NoMemory { wanted, free }.into());
        }
        let space = self.managed.enter(file)?;
        space.fixed = space.fixed.saturating_add(more);
        for ledger in ledgers_of(space.shares, &mut self.accounts.ledgers) {
            ledger.lend_tables(Change { more, less: 0 });
        }
        Ok(())
    }

    /// There is room on every share of a set for so many bytes of page tables, or what counts can make it.
    fn has_room(&self, set: u32, tables: u64) -> bool {
        let there = room_beside(set, &self.accounts.ledgers, tables).is_some();
        there || self.makes_room(set, tables)
    }

    /// The driver has no managed memory there any more. What cannot be noted stays as it is: it counts
    /// too much, never too little.
    pub fn unmap_managed(&mut self, file: FileId, base: u64, length: u64) {
        let Some(last) = last_of(base, length) else {
            return;
        };
        let ledgers = &mut self.accounts.ledgers;
        if let Some(space) = self.managed.space_mut(file) {
            account(space, ledgers, (base, last), |s| s.remove(base, last)).unwrap_or(());
        }
    }

    /// What the driver is to be told about memory that was just mapped there; `late`: a GPU had time to
    /// touch it.
    pub fn tell(&mut self, file: FileId, base: u64, length: u64, late: bool) -> Option<Tell> {
        let last = last_of(base, length)?;
        let number = self.managed.next();
        let space = self.managed.space_mut(file)?;
        let new = |piece: &&Piece| piece.state == State::New;
        let piece = *space.within(base, last).iter().find(new)?;
        let change = |piece: &mut Piece| piece.state = State::Telling(number);
        space.change(piece.base, piece.last, change).ok()?;
        let bring = late || space.prompt >= MOST_PROMPT;
        if !bring {
            space.prompt += 1;
        }
        Some(Tell {
            order: order(file, &piece, number),
            bring,
        })
    }

    /// The driver was told, or could not be; then the mapping must be taken away.
    pub fn told(&mut self, order: Order, done: bool) {
        let state = if done { State::Spilled } else { State::New };
        self.finish(&order, State::Telling(order.number), state);
    }

    /// A program's call about managed memory, for [`Accounting::end_touch`]; `None`: not all of it is managed.
    ///
    /// # Errors
    ///
    /// No memory.
    pub fn begin_touch(
        &mut self,
        file: FileId,
        base: u64,
        length: u64,
    ) -> Result<Option<Touch>, Exhausted> {
        let number = self.managed.next();
        let place = last_of(base, length).zip(self.managed.space_mut(file));
        let Some((last, space)) = place else {
            return Ok(None);
        };
        if !space.covers(base, last) {
            return Ok(None);
        }
        let mut runs: List<Run> = List::new();
        for piece in space.within(base, last) {
            let (from, to) = (piece.base.max(base), piece.last.min(last));
            let counts = piece.state == State::Counted;
            let length = to - from + 1;
            match runs.last_mut() {
                Some(run) if run.counts == counts => run.length += length,
                _ => runs.push(Run {
                    base: from,
                    length,
                    counts,
                })?,
            }
        }
        if runs.iter().any(|run| run.counts) {
            space.hold(number, base, last)?;
        }
        Ok(Some(Touch { runs, file, number }))
    }

    /// The call has ended.
    pub fn end_touch(&mut self, touch: Touch) {
        if let Some(space) = self.managed.space_mut(touch.file) {
            space.release(touch.number);
        }
    }

    /// Notes what a program wants. What there is no memory to note is forgotten.
    pub fn wish(&mut self, file: FileId, base: u64, length: u64, wish: impl Fn(&mut Wish)) {
        let place = last_of(base, length).zip(self.managed.space_mut(file));
        if let Some((last, space)) = place {
            let change = |piece: &mut Piece| wish(&mut piece.wish);
            space.change(base, last, change).unwrap_or(());
        }
    }

    /// All of a span is managed, and some of it does not count or is next to what does not.
    pub fn is_spilled_in(&self, file: FileId, base: u64, length: u64) -> bool {
        let place = last_of(base, length).zip(self.managed.space(file));
        place.is_some_and(|(last, space)| space.covers(base, last) && space.tally.spilled != 0)
    }

    /// How UVM names one of the GPUs that have got an address space in a file, counted from 0.
    pub fn managed_home(&self, file: FileId, number: usize) -> Option<[u8; 16]> {
        self.managed.space(file)?.home(number)
    }

    /// A GPU, which UVM names by this UUID, is to get an address space in a UVM file.
    pub fn enter_managed(
        &mut self,
        file: FileId,
        gpu: GpuId,
        uuid: &[u8; 16],
    ) -> Result<Entry, Exhausted> {
        let Some(share) = self.accounts.ledgers.of(gpu) else {
            return Ok(Entry::Ready);
        };
        let space = self.managed.enter(file)?;
        space.name_home(share, *uuid)?;
        if space.shares & bit(share) != 0 {
            return Ok(Entry::Ready);
        }
        let Tally {
            blocks, spilled, ..
        } = space.tally;
        let tables = space.tally.tables.saturating_add(space.fixed);
        let room = room_beside(bit(share), &self.accounts.ledgers, tables);
        if room.is_some_and(|room| blocks <= room) {
            space.shares |= bit(share);
            if let Some(ledger) = self.accounts.ledgers.get_mut(share) {
                ledger.move_managed((0, blocks * BLOCK), (0, spilled));
                let less = 0;
                ledger.move_tables(Change { more: tables, less });
            }
            return Ok(Entry::Ready);
        }
        let room = room.unwrap_or(0);
        let mode = mode(bit(share), &self.accounts.ledgers);
        if mode != ManagedMode::Spill {
            return Ok(Entry::Refused);
        }
        let number = self.managed.next();
        let order = self.managed.space_mut(file).and_then(|space| {
            let excess = space.tally.blocks.saturating_sub(room);
            put_out(space, excess, number)
        });
        Ok(order.map_or(Entry::Refused, Entry::Crowded))
    }

    /// The driver has closed a file, with all its ranges.
    pub(super) fn close_managed(&mut self, file: FileId) {
        let spaces = &mut self.managed.spaces;
        let Ok(place) = spaces.binary_search_by_key(&file.0, |s| s.file.0) else {
            return;
        };
        if let Some(space) = spaces.get_mut(place) {
            let Tally {
                blocks,
                spilled,
                tables,
            } = space.tally;
            let less = tables.saturating_add(space.fixed);
            for ledger in ledgers_of(space.shares, &mut self.accounts.ledgers) {
                ledger.move_managed((blocks * BLOCK, 0), (spilled, 0));
                ledger.move_tables(Change { more: 0, less });
            }
        }
        if let Some(tail) = spaces.get_mut(place..) {
            tail.rotate_left(1);
        }
        spaces.pop();
    }

    /// Gives the state of an order's piece up for another one, as far as it still has it.
    fn finish(&mut self, order: &Order, from: State, to: State) {
        let ledgers = &mut self.accounts.ledgers;
        let Some(space) = self.managed.space_mut(order.file) else {
            return;
        };
        let span = (order.base, order.last());
        let change = |piece: &mut Piece| {
            if piece.state == from {
                piece.state = to;
            }
        };
        account(space, ledgers, span, |space| {
            space.change(span.0, span.1, change)
        })
        .unwrap_or(());
    }
}

/// How far a new mapping counts; `None`: not at all.
///
/// Its page tables have room or not ([`Accounting::has_room`]).
fn grant(
    space: &Space,
    ledgers: &Ledgers,
    (base, last): (u64, u64),
    tables: u64,
    fits: bool,
) -> Result<Option<u64>, RefusalCause> {
    let mode = mode(space.shares, ledgers);
    if mode == ManagedMode::Deny {
        return Err(RefusalCause::ManagedDenied);
    }
    if !fits {
        return Err(RefusalCause::NoMemory {
            wanted: tables,
            free: 0,
        });
    }
    let blocks = room_beside(space.shares, ledgers, tables).unwrap_or(0);
    let reach = space.reach(base, last, blocks);
    if reach == Some(last) {
        return Ok(reach);
    }
    // A call in flight could bring onto a GPU what does not fit.
    if mode == ManagedMode::Charge || space.is_held(base, last) {
        return Err(RefusalCause::NoMemory {
            wanted: last - base + 1,
            free: blocks.saturating_mul(BLOCK),
        });
    }
    Ok(reach)
}

fn order(file: FileId, piece: &Piece, number: u64) -> Order {
    Order {
        file,
        base: piece.base,
        length: piece.last - piece.base + 1,
        wish: piece.wish,
        number,
    }
}

fn last_of(base: u64, length: u64) -> Option<u64> {
    base.checked_add(length.checked_sub(1)?)
}
