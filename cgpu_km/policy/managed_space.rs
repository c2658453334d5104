// SPDX-License-Identifier: GPL-2.0
//! The managed memory of one UVM file: pieces of its address space, in order.
//!
//! A piece is what has the same state and the same wishes of the program throughout. Pieces never
//! overlap, since the driver's ranges do not. They are kept in one list: a process cannot have more
//! mappings than Linux allows it (65,530 unless the host says otherwise), and finding one is a
//! binary search.

use crate::{
    policy::{
        cuts::MappingCuts,
        fixed_ranges::FixedRanges,
        ids::{
            FileId,
            ShareId, //
        },
        paging::{
            directories,
            MIXED, //
        },
        range_groups::RangeGroups,
        splits::RangeSplits,
        steps::step, //
    },
    store::{
        Exhausted,
        List, //
    }, //
};
use core::ops::Range;

/// The unit of managed memory: the driver gives a GPU's memory to it in blocks of this size,
/// which lie at multiples of it (`UVM_VA_BLOCK_SIZE`, uvm_va_block_types.h).
pub(super) const BLOCK: u64 = 2 << 20;

/// Most pieces of one file. Above what the mappings of a process come to.
pub(super) const MOST_PIECES: usize = 1 << 17;
/// So many of them only the module's own cuts make: it can always move a part of what counts.
const OWN_CUTS: usize = 1 << 10;
/// Most pieces that a program's calls make.
pub(super) const MOST_OF_PROGRAM: usize = MOST_PIECES - OWN_CUTS;

/// A place where a program wants memory to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// A GPU, or the CPU, as UVM names them.
    pub uuid: [u8; 16],
    /// The node of the CPU, or -1.
    pub node: i32,
}

/// The wishes of a program for a piece, by calls that were forwarded or answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManagedWish {
    /// `UVM_SET_PREFERRED_LOCATION`.
    pub preferred: Option<Location>,
    /// `UVM_ENABLE_READ_DUPLICATION`.
    pub duplicated: bool,
}

/// How a piece is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceState {
    /// GPUs may hold it; it counts.
    Counted,
    /// It was just mapped and does not fit; the driver has not been told yet.
    New,
    /// The driver is being told, by the order of this number.
    Telling(u64),
    /// The driver was told to keep it in host memory.
    Spilled,
    /// The driver is being told to bring it to host memory, by the order of this number. It counts.
    Leaving(u64),
}

impl PieceState {
    pub(super) fn counts(self) -> bool {
        matches!(self, Self::Counted | Self::Leaving(_))
    }
}

/// A part of an address space, last byte included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) base: u64,
    pub(super) last: u64,
    pub(super) state: PieceState,
    pub(super) wish: ManagedWish,
}

impl Piece {
    fn continues(&self, before: &Self) -> bool {
        let settled = matches!(self.state, PieceState::Counted | PieceState::Spilled);
        let adjacent = before.last.checked_add(1) == Some(self.base);
        settled && adjacent && (self.state, self.wish) == (before.state, before.wish)
    }
}

/// A call in flight that can bring a part of the address space onto a GPU.
#[derive(Clone, Copy, Debug)]
struct Token {
    number: u64,
    base: u64,
    last: u64,
}

/// How much of a span counts, and how much is spilled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Blocks of which any byte counts.
    pub(super) blocks: u64,
    /// Bytes that do not count.
    pub(super) spilled: u64,
    /// Bytes that count and are being brought to host memory.
    pub(super) leaving: u64,
    /// Bytes of page tables, on each GPU, if all of it is touched.
    pub(super) tables: u64,
    /// Bytes, whether they count or not.
    pub(super) bytes: u64,
}

impl Tally {
    /// Bytes that are in host memory, or are being brought there.
    pub(super) fn on_host(&self) -> u64 {
        self.spilled.saturating_add(self.leaving)
    }
}

/// The managed memory of one UVM file.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) file: FileId,
    /// The GPUs that have an address space in it: a bit for each share.
    pub(super) shares: u32,
    /// Times that memory did not fit and need not be brought to host memory.
    pub(super) prompt: u32,
    /// All of it.
    pub(super) tally: Tally,
    /// Memory that is not managed: see `Accounting::begin_fixed`.
    pub(super) fixed: FixedRanges,
    /// Its cuts for a program's calls: see `Accounting::begin_split`.
    pub(super) splits: RangeSplits,
    /// Range groups: see `Accounting::begin_group`.
    pub(super) groups: RangeGroups,
    /// Cuts of what is mapped of memory objects.
    pub(super) cuts: MappingCuts,
    pieces: List<Piece>,
    tokens: List<Token>,
    homes: List<(ShareId, [u8; 16])>,
}

impl Space {
    pub(super) fn new(file: FileId) -> Self {
        Self {
            file,
            shares: 0,
            prompt: 0,
            tally: Tally::default(),
            fixed: FixedRanges::new(),
            splits: RangeSplits::new(),
            groups: RangeGroups::new(),
            cuts: MappingCuts::new(),
            pieces: List::new(),
            tokens: List::new(),
            homes: List::new(),
        }
    }

    /// All that stands against the limit of each of its GPUs, other page tables included.
    pub(super) fn all(&self) -> Tally {
        Tally {
            tables: self.tally.tables.saturating_add(self.fixed.tables()),
            ..self.tally
        }
    }

    /// Takes note of how UVM names the GPU of a share.
    pub(super) fn name_home(&mut self, share: ShareId, uuid: [u8; 16]) -> Result<(), Exhausted> {
        match self.homes.iter_mut().find(|home| home.0 == share) {
            Some(home) => home.1 = uuid,
            None => self.homes.push((share, uuid))?,
        }
        Ok(())
    }

    /// How UVM names one of the GPUs that have, or had, an address space in the file.
    pub(super) fn home(&self, number: usize) -> Option<[u8; 16]> {
        self.homes.get(number).map(|home| home.1)
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The first piece of this state that has a byte in a span.
    pub(super) fn find_mut(
        &mut self,
        base: u64,
        last: u64,
        state: PieceState,
    ) -> Option<&mut Piece> {
        let from = self.place(base);
        let rest = self.pieces.get_mut(from..)?.iter_mut();
        let mut within = rest.take_while(|piece| piece.base <= last);
        within.find(|piece| piece.state == state)
    }

    /// The number of the first piece that ends at or behind an address.
    fn place(&self, at: u64) -> usize {
        self.pieces.partition_point(|piece| piece.last < at)
    }

    /// The pieces that have a byte in a span.
    pub(super) fn within(&self, base: u64, last: u64) -> &[Piece] {
        let from = self.place(base);
        let rest = self.pieces.get(from..).unwrap_or_default();
        let count = rest.partition_point(|piece| piece.base <= last);
        rest.get(..count).unwrap_or_default()
    }

    /// Every byte of a span is managed.
    pub(super) fn covers(&self, base: u64, last: u64) -> bool {
        let mut next = base;
        for piece in self.within(base, last) {
            step();
            if piece.base > next {
                return false;
            }
            match piece.last.checked_add(1) {
                Some(behind) => next = behind,
                None => return true,
            }
        }
        next > last
    }

    /// Whether a call that ends at an address can have the driver cut there what was in one piece.
    /// (Mappings that meet there count as one: pieces do not show them.)
    pub(super) fn is_split_new(&self, at: u64) -> bool {
        let before = at.checked_sub(1);
        let inside = before.is_some_and(|before| self.covers(before, at));
        inside && !self.splits.has(at)
    }

    /// Counts what stands in the blocks of a span.
    pub(super) fn tally_of(&self, base: u64, last: u64) -> Tally {
        let (first, end) = (base / BLOCK, last / BLOCK);
        let mut tally = Tally::default();
        let mut next = first;
        let (front, behind) = (first * BLOCK, end.saturating_mul(BLOCK) | (BLOCK - 1));
        let mut untouched = first;
        for piece in self.within(front, behind) {
            step();
            let from = (piece.base / BLOCK).max(untouched);
            let to = (piece.last / BLOCK).min(end);
            if from <= to {
                tally.tables += (to - from + 1) * MIXED;
                untouched = to + 1;
            }
            let bytes = piece.last.min(behind) - piece.base.max(front) + 1;
            tally.bytes += bytes;
            if piece.state.counts() {
                if piece.state != PieceState::Counted {
                    tally.leaving += bytes;
                }
                let from = (piece.base / BLOCK).max(next);
                let to = (piece.last / BLOCK).min(end);
                if from <= to {
                    tally.blocks += to - from + 1;
                    next = to + 1;
                }
            } else {
                tally.spilled += bytes;
            }
        }
        tally.tables += self.directories_of(base, last);
        tally
    }

    /// Bytes of the page tables above those of blocks, in a span and around it as far as they
    /// reach.
    fn directories_of(&self, base: u64, last: u64) -> u64 {
        directories(base, last, |at| {
            let piece = self.pieces.get(self.place(at))?;
            Some((piece.base, piece.last))
        })
    }

    /// Bytes of page tables that a span would add, if there were managed memory in all of it.
    pub(super) fn tables_more(&self, base: u64, last: u64) -> u64 {
        let blocks = (last / BLOCK - base / BLOCK).saturating_add(1);
        let whole = |_| Some((base, last));
        let all = blocks
            .saturating_mul(MIXED)
            .saturating_add(directories(base, last, whole));
        all.saturating_sub(self.tally_of(base, last).tables)
    }

    /// How far a span that does not count yet would count, with so many blocks more; `None`: not
    /// its first byte.
    pub(super) fn reach(&self, base: u64, last: u64, blocks: u64) -> Option<u64> {
        let (first, end) = (base / BLOCK, last / BLOCK);
        // Neighbours may have paid for the first block and for the last one.
        let is_paid = |block: u64| self.tally_of(block * BLOCK, block * BLOCK).blocks != 0;
        let mut left = blocks;
        if !is_paid(first) {
            left = left.checked_sub(1)?;
        }
        if first == end {
            return Some(last);
        }
        let between = end - first - 1;
        if between > left {
            return Some((first + left + 1) * BLOCK - 1);
        }
        left -= between;
        if left > 0 || is_paid(end) {
            Some(last)
        } else {
            Some(end * BLOCK - 1)
        }
    }

    /// Makes room for so many pieces more, `most` in all.
    fn reserve(&mut self, more: usize, most: usize) -> Result<(), Exhausted> {
        if self.pieces.len().saturating_add(more) > most {
            return Err(Exhausted);
        }
        self.pieces.reserve(more)
    }

    /// A piece goes across an address.
    fn is_across(&self, at: u64) -> bool {
        let piece = self.pieces.get(self.place(at));
        piece.is_some_and(|piece| piece.base < at)
    }

    fn insert(&mut self, at: usize, piece: Piece) -> Result<(), Exhausted> {
        self.pieces.push(piece)?;
        if let Some(tail) = self.pieces.get_mut(at..) {
            tail.rotate_right(1);
        }
        Ok(())
    }

    /// Cuts a piece in two, where one goes across an address.
    fn cut(&mut self, at: u64) -> Result<(), Exhausted> {
        let place = self.place(at);
        let Some(piece) = self.pieces.get_mut(place) else {
            return Ok(());
        };
        if piece.base >= at {
            return Ok(());
        }
        let behind = Piece { base: at, ..*piece };
        piece.last = at - 1;
        self.insert(place + 1, behind).inspect_err(|_| {
            if let Some(piece) = self.pieces.get_mut(place) {
                piece.last = behind.last;
            }
        })
    }

    /// Cuts pieces so that a span holds whole ones, and gives their numbers. It does not fail where
    /// there is nothing to cut: what was entered can always be marked, and taken out.
    fn carve(&mut self, base: u64, last: u64, most: usize) -> Result<Range<usize>, Exhausted> {
        let behind = last.checked_add(1);
        let ends = [Some(base), behind].into_iter().flatten();
        let cuts = ends.filter(|&at| self.is_across(at)).count();
        if cuts != 0 {
            self.reserve(cuts, most)?;
        }
        self.cut(base)?;
        if let Some(behind) = behind {
            self.cut(behind)?;
        }
        let from = self.place(base);
        Ok(from..from + self.within(base, last).len())
    }

    /// Adds a piece, where there is none.
    pub(super) fn add(&mut self, piece: Piece) -> Result<(), Exhausted> {
        self.reserve(1, MOST_OF_PROGRAM)?;
        let at = self.place(piece.base);
        self.insert(at, piece)
    }

    /// Takes a span out.
    pub(super) fn remove(&mut self, base: u64, last: u64) -> Result<(), Exhausted> {
        if self.within(base, last).is_empty() {
            return Ok(());
        }
        let gone = self.carve(base, last, MOST_OF_PROGRAM)?;
        if let Some(tail) = self.pieces.get_mut(gone.start..) {
            tail.rotate_left(gone.len());
        }
        self.pieces.truncate(self.pieces.len() - gone.len());
        Ok(())
    }

    /// Changes the pieces of a span. What it cuts for that may come to `most` pieces:
    /// [`MOST_OF_PROGRAM`] for a program's call, [`MOST_PIECES`] for the module's own.
    pub(super) fn change(
        &mut self,
        (base, last): (u64, u64),
        most: usize,
        change: impl Fn(&mut Piece),
    ) -> Result<(), Exhausted> {
        let pieces = self.carve(base, last, most)?;
        if let Some(pieces) = self.pieces.get_mut(pieces.clone()) {
            for piece in pieces {
                step();
                change(piece);
            }
        }
        self.join(pieces);
        Ok(())
    }

    /// Joins pieces that differ in nothing, from one before to one behind those that are named.
    fn join(&mut self, near: Range<usize>) {
        let mut kept = near.start.saturating_sub(1);
        let end = near.end.saturating_add(1).min(self.pieces.len());
        let Some(mut front) = self.pieces.get(kept).copied() else {
            return;
        };
        let mut gone = 0;
        for at in kept + 1..end {
            step();
            let Some(piece) = self.pieces.get(at).copied() else {
                break;
            };
            if piece.continues(&front) {
                front.last = piece.last;
                gone += 1;
            } else {
                if let Some(place) = self.pieces.get_mut(kept) {
                    *place = front;
                }
                kept += 1;
                front = piece;
            }
        }
        if let Some(place) = self.pieces.get_mut(kept) {
            *place = front;
        }
        if gone != 0 {
            if let Some(tail) = self.pieces.get_mut(kept + 1..) {
                tail.rotate_left(gone);
            }
            self.pieces.truncate(self.pieces.len() - gone);
        }
    }

    /// Notes a call in flight.
    pub(super) fn hold(&mut self, number: u64, base: u64, last: u64) -> Result<(), Exhausted> {
        self.tokens.push(Token { number, base, last })
    }

    /// The call has ended.
    pub(super) fn release(&mut self, number: u64) {
        let place = self.tokens.iter().position(|token| token.number == number);
        if let Some(place) = place {
            self.tokens.swap_remove(place);
        }
    }

    /// A call in flight can bring a part of the span onto a GPU.
    pub(super) fn is_held(&self, base: u64, last: u64) -> bool {
        let mut tokens = self.tokens.iter();
        tokens.any(|token| token.base <= last && token.last >= base)
    }
}
