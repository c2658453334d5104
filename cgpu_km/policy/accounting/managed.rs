// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: managed memory that programs map and use.

use crate::{
    policy::{
        accounting::Accounting,
        count::Change,
        cuts::CUT_STRUCT,
        event::RefusalCause,
        fixed_ranges::{
            FixedEnd,
            FixedKind,
            LARGEST_POOL,
            MOST_POOLS, //
        },
        ids::{
            FileId,
            GpuId, //
        },
        ledgers::NoSuchShare,
        managed::{
            account,
            change_of,
            grant,
            host_room,
            ledgers_of,
            mode,
            order,
            put_out,
            room_beside,
            Admission,
            ManagedOrder,
            ManagedTouch,
            Run,
            Tell,
            MOST_PROMPT, //
        },
        managed_space::{
            ManagedWish,
            Piece,
            PieceState,
            Tally,
            MOST_OF_PROGRAM,
            MOST_PIECES, //
        },
        range_groups::GROUP_STRUCT,
        span::last_of,
        splits::SPLIT_STRUCT, //
    },
    store::{
        Exhausted,
        List, //
    },
    uapi::{
        Limited,
        ManagedMode, //
    }, //
};

/// A range of UVM's own that the driver is being asked for. It must be handed back to
/// `Accounting::end_fixed`.
#[derive(Debug)]
#[must_use = "a range is not credited until its ticket is handed back"]
pub struct FixedTicket {
    file: FileId,
    base: u64,
    last: u64,
}

/// A range of UVM's own that the driver is being asked to free, for `Accounting::end_fixed_free`.
#[derive(Debug)]
pub struct FixedGoing {
    file: FileId,
    end: FixedEnd,
}

impl Accounting {
    /// Changes the fate of managed memory that is mapped on a GPU from now on. A spilled piece
    /// stays so until there is room; a piece that counts goes on counting, and leaves for memory
    /// objects where the mode is [`ManagedMode::Spill`] alone.
    pub fn set_managed_mode(&mut self, gpu: GpuId, mode: ManagedMode) -> Result<(), NoSuchShare> {
        self.accounts.ledgers.active_mut(gpu)?.managed_mode = mode;
        Ok(())
    }

    /// The driver has mapped managed memory. Tells whether some of it does not fit: then
    /// [`Accounting::tell`] says what the driver is to be told, before the program runs on.
    /// If this fails, the mapping is to be taken away again.
    pub fn map_managed(
        &mut self,
        file: FileId,
        base: u64,
        length: u64,
    ) -> Result<bool, RefusalCause> {
        let last = last_of(base, length).ok_or(RefusalCause::NoRange)?;
        let ledgers = &mut self.accounts.ledgers;
        let space = self.managed.enter(file)?;
        // The driver has these no longer, if it has made place for this.
        account(space, ledgers, (base, last), |s| s.remove(base, last))?;
        self.join_splits(file, base, last);
        let space = self.managed.enter(file)?;
        let (shares, tables) = (space.shares, space.tables_more(base, last));
        let fits = self.has_room(shares, tables);
        let ledgers = &mut self.accounts.ledgers;
        let space = self.managed.enter(file)?;
        let granted = grant(space, ledgers, (base, last), tables, fits);
        let counted = granted.inspect_err(|cause| {
            let shares = match space.shares {
                0 => u32::MAX,
                shares => shares,
            };
            for ledger in ledgers_of(shares, ledgers) {
                let refused = &mut ledger.refusals.managed;
                *refused = refused.saturating_add(1);
                if let RefusalCause::LimitReached(what) = *cause {
                    ledger.quotas.refuse(what);
                }
            }
        })?;
        let piece = |base, last, state| Piece {
            base,
            last,
            state,
            wish: ManagedWish::default(),
        };
        // The whole is entered first, so that nothing is left of it if there is no memory.
        account(space, ledgers, (base, last), |space| {
            space.add(piece(base, last, PieceState::New))?;
            let Some(cut) = counted else {
                return Ok(());
            };
            let counts = |piece: &mut Piece| piece.state = PieceState::Counted;
            let result = space.change((base, cut), MOST_OF_PROGRAM, counts);
            result.inspect_err(|_| space.remove(base, last).unwrap_or(()))
        })?;
        Ok(counted != Some(last))
    }

    /// The driver is about to map memory of its own for all GPUs of a file. Its page tables are
    /// charged, once for the same addresses, and so is the host memory of a pool, on all GPUs of
    /// the tenant: see [`FixedKind`].
    pub fn begin_fixed(
        &mut self,
        file: FileId,
        base: u64,
        length: u64,
        kind: FixedKind,
    ) -> Result<FixedTicket, RefusalCause> {
        let last = last_of(base, length).ok_or(RefusalCause::NoRange)?;
        let number = self.managed.next();
        let space = self.managed.enter(file)?;
        let (shares, more) = (space.shares, space.fixed.tables_more(base, last));
        if more != 0 && !self.has_room(shares, more) {
            let (wanted, free) = (more, 0);
            return Err(RefusalCause::NoMemory { wanted, free });
        }
        let space = self.managed.enter(file)?;
        let host = space.fixed.pools_more(base, last, kind);
        let pools = self.managed.pools().saturating_add(host);
        if kind == FixedKind::SemaphorePool && (last - base >= LARGEST_POOL || pools > MOST_POOLS) {
            let (wanted, free) = (last - base + 1, 0);
            return Err(RefusalCause::NoMemory { wanted, free });
        }
        let space = self.managed.enter(file)?;
        let (ledgers, what) = (&mut self.accounts.ledgers, Limited::HostMemory);
        ledgers.count(None, what, host)?;
        let begun = space.fixed.begin(base, last, kind, number);
        begun.inspect_err(|_| ledgers.uncount(None, what, host))?;
        for ledger in ledgers_of(space.shares, &mut self.accounts.ledgers) {
            ledger.lend_tables(Change::more(more));
        }
        Ok(FixedTicket { file, base, last })
    }

    /// The driver has answered. What it said is not believed.
    pub fn end_fixed(&mut self, ticket: FixedTicket) {
        if let Some(space) = self.managed.space_mut(ticket.file) {
            space.fixed.end(ticket.base, ticket.last);
        }
    }

    /// The driver is about to be asked to free the range that begins there, and has that length,
    /// where one is given. `None`: nothing of what [`Accounting::begin_fixed`] charged goes for
    /// certain.
    pub fn begin_fixed_free(
        &self,
        file: FileId,
        base: u64,
        length: Option<u64>,
    ) -> Option<FixedGoing> {
        let last = match length {
            Some(length) => Some(last_of(base, length)?),
            None => None,
        };
        let end = self.managed.space(file)?.fixed.going(base, last)?;
        Some(FixedGoing { file, end })
    }

    /// The driver was asked, for certain.
    pub fn end_fixed_free(&mut self, going: FixedGoing) {
        let Some(space) = self.managed.space_mut(going.file) else {
            return;
        };
        let less = space.fixed.gone(going.end);
        for ledger in ledgers_of(space.shares, &mut self.accounts.ledgers) {
            ledger.lend_tables(Change::between(less, 0));
        }
    }

    /// There is room on every share of a set for so many bytes of page tables, or what counts can
    /// make it.
    fn has_room(&self, set: u32, tables: u64) -> bool {
        let there = room_beside(set, &self.accounts.ledgers, tables).is_some();
        there || self.makes_room(set, tables)
    }

    /// The driver has no managed memory there any more. A change that cannot be noted for lack of
    /// memory changes nothing: it counts too much, never too little.
    pub fn unmap_managed(&mut self, file: FileId, base: u64, length: u64) {
        let Some(last) = last_of(base, length) else {
            return;
        };
        let ledgers = &mut self.accounts.ledgers;
        if let Some(space) = self.managed.space_mut(file) {
            let removed = account(space, ledgers, (base, last), |s| s.remove(base, last));
            if removed.is_ok() {
                self.join_splits(file, base, last);
            }
        }
    }

    /// The next order for memory that was just mapped there.
    pub fn tell(&mut self, file: FileId, base: u64, length: u64) -> Option<Tell> {
        let last = last_of(base, length)?;
        let number = self.managed.next();
        let space = self.managed.space_mut(file)?;
        // Nothing here can fail: a piece that the driver is not told of would not count.
        let piece = space.find_mut(base, last, PieceState::New)?;
        piece.state = PieceState::Telling(number);
        let piece = *piece;
        let bring = space.prompt >= MOST_PROMPT;
        if !bring {
            space.prompt += 1;
        }
        Some(Tell {
            order: order(file, &piece, number),
            bring,
        })
    }

    /// The driver was told, or could not be; then the mapping must be taken away.
    pub fn told(&mut self, order: ManagedOrder, done: bool) {
        let state = if done {
            PieceState::Spilled
        } else {
            PieceState::New
        };
        self.finish(&order, PieceState::Telling(order.number), state);
    }

    /// A program's call about managed memory, for [`Accounting::end_touch`]; `None`: not all of it
    /// is managed.
    pub fn begin_touch(
        &mut self,
        file: FileId,
        base: u64,
        length: u64,
    ) -> Result<Option<ManagedTouch>, Exhausted> {
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
            let counts = piece.state == PieceState::Counted;
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
        Ok(Some(ManagedTouch { runs, file, number }))
    }

    /// The call has ended.
    pub fn end_touch(&mut self, touch: ManagedTouch) {
        if let Some(space) = self.managed.space_mut(touch.file) {
            space.release(touch.number);
        }
    }

    /// Notes a program's wish. If there is no memory to note it, it is forgotten.
    pub fn wish(&mut self, file: FileId, base: u64, length: u64, wish: impl Fn(&mut ManagedWish)) {
        let place = last_of(base, length).zip(self.managed.space_mut(file));
        if let Some((last, space)) = place {
            let change = |piece: &mut Piece| wish(&mut piece.wish);
            let noted = space.change((base, last), MOST_OF_PROGRAM, change);
            noted.unwrap_or(());
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

    /// A GPU, which UVM names by this UUID, is to get an address space in a UVM file. UVM can have
    /// memory of the GPU there until the file is closed, whatever becomes of the program's objects
    /// on the GPU (uvm_va_space.c: it holds the GPU and a duplicate of the address space). So the
    /// share is in use until then.
    pub fn enter_managed(
        &mut self,
        file: FileId,
        gpu: GpuId,
        uuid: &[u8; 16],
    ) -> Result<Admission, Exhausted> {
        let Some(share) = self.accounts.ledgers.of(gpu) else {
            return Ok(Admission::Refused);
        };
        let space = self.managed.enter(file)?;
        space.name_home(share, *uuid)?;
        if space.shares & share.bit() != 0 {
            return Ok(Admission::Ready);
        }
        let all = space.all();
        let room = room_beside(share.bit(), &self.accounts.ledgers, all.tables);
        // Without a GPU all of it counts as host memory, which ends with the first.
        let alone = if space.shares == 0 { all.bytes } else { 0 };
        let host = host_room(share.bit(), &self.accounts.ledgers).saturating_add(alone);
        let host = host.checked_sub(all.on_host());
        if room.is_some_and(|room| all.blocks <= room) && host.is_some() {
            space.shares |= share.bit();
            let ledgers = &mut self.accounts.ledgers;
            ledgers.uncount(None, Limited::HostMemory, alone);
            if let Some(ledger) = self.accounts.ledgers.get_mut(share) {
                ledger.enter();
                ledger.move_managed(&change_of(Tally::default(), all));
            }
            return Ok(Admission::Ready);
        }
        let room = room.unwrap_or(0);
        let mode = mode(share.bit(), &self.accounts.ledgers);
        let Some(host) = host.filter(|_| mode == ManagedMode::Spill) else {
            return Ok(Admission::Refused);
        };
        let number = self.managed.next();
        let ledgers = &mut self.accounts.ledgers;
        let order = self.managed.space_mut(file).and_then(|space| {
            let excess = space.tally.blocks.saturating_sub(room);
            let host = host.min(host_room(space.shares, ledgers));
            put_out(space, ledgers, excess, host, number)
        });
        Ok(order.map_or(Admission::Refused, Admission::Crowded))
    }

    /// The driver has closed a file, with all its ranges.
    pub(super) fn close_managed(&mut self, file: FileId) {
        let spaces = &mut self.managed.spaces;
        let Ok(place) = spaces.binary_search_by_key(&file.0, |s| s.file.0) else {
            return;
        };
        if let Some(space) = spaces.get_mut(place) {
            let gone = change_of(space.all(), Tally::default());
            let ledgers = &mut self.accounts.ledgers;
            for ledger in ledgers_of(space.shares, ledgers) {
                ledger.move_managed(&gone);
                ledger.leave();
            }
            let alone = if space.shares == 0 {
                space.tally.bytes
            } else {
                0
            };
            let splits = space.splits.len().saturating_mul(SPLIT_STRUCT);
            let groups = space.groups.len().saturating_mul(GROUP_STRUCT);
            let cuts = space.cuts.len().saturating_mul(CUT_STRUCT);
            for bytes in [alone, splits, groups, cuts, space.fixed.pools()] {
                ledgers.uncount(None, Limited::HostMemory, bytes);
            }
        }
        if let Some(tail) = spaces.get_mut(place..) {
            tail.rotate_left(1);
        }
        spaces.pop();
    }

    /// Gives the state of an order's piece up for another one, as far as it still has it.
    pub(super) fn finish(&mut self, order: &ManagedOrder, from: PieceState, to: PieceState) {
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
            space.change(span, MOST_PIECES, change)
        })
        .unwrap_or(());
    }
}
