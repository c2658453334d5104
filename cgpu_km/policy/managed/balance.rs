// SPDX-License-Identifier: GPL-2.0
//! Managed memory that is moved to the host because others need the room, and that comes back.

use super::super::accounting::Accounting;
use super::super::event::GpuId;
use super::super::ledger::{Ledger, ManagedMode, Share};
use super::space::{Piece, Space, State, BLOCK};
use super::{account, bit, mode, order, room_beside, Order};
use crate::store::List;

impl Accounting {
    /// Whether there is managed memory, without which nothing has to be balanced.
    pub fn has_managed(&self) -> bool {
        !self.managed.is_empty()
    }

    /// Room is to be made for a memory object: nothing takes what is free until
    /// [`Accounting::end_demand`]. `false`: there is room, or there would be none.
    pub fn begin_demand(&mut self, gpu: GpuId, bytes: u64) -> bool {
        let ledgers = &self.accounts.ledgers;
        let Some(share) = ledgers.of(gpu) else {
            return false;
        };
        let Some(ledger) = ledgers.get(share) else {
            return false;
        };
        let free = ledger.view().free();
        if bytes <= free || ledger.view().managed == 0 {
            return false;
        }
        let movable = self.movable(share);
        let enough = movable.saturating_mul(BLOCK).saturating_add(free) >= bytes;
        self.managed.demands += u32::from(enough);
        enough
    }

    /// The memory object was asked for.
    pub fn end_demand(&mut self) {
        self.managed.demands = self.managed.demands.saturating_sub(1);
    }

    /// What is to be brought to host memory, for [`Accounting::left`], so that so many bytes are free on a
    /// GPU; `None`: they are, or no more can be done.
    pub fn make_room(&mut self, gpu: GpuId, bytes: u64) -> Option<Order> {
        let share = self.accounts.ledgers.of(gpu)?;
        let free = self.accounts.ledgers.get(share)?.view().free();
        let missing = bytes.checked_sub(free).filter(|&missing| missing > 0)?;
        self.put_out_of(share, missing)
    }

    /// The same on a GPU of which more is taken than its limit allows.
    pub fn make_good(&mut self) -> Option<Order> {
        let excess = |(share, ledger): (Share, &Ledger)| {
            let here = ledger.view().managed > 0;
            Some((share, ledger.view().excess())).filter(|&(_, excess)| here && excess > 0)
        };
        let mut over: List<(Share, u64)> = List::new();
        for one in self.accounts.ledgers.each().filter_map(excess) {
            over.push(one).ok()?;
        }
        let mut over = over.iter();
        over.find_map(|&(share, excess)| self.put_out_of(share, excess))
    }

    /// The driver has brought a piece to host memory, or not.
    pub fn left(&mut self, order: Order, done: bool) {
        let state = if done { State::Spilled } else { State::Counted };
        self.finish(&order, State::Leaving(order.number), state);
    }

    /// A spilled piece for which there is room. It counts from now on; the driver is to be told what the
    /// program wants for it, and then [`Accounting::returned`].
    pub fn give_back(&mut self) -> Option<Order> {
        if self.managed.demands != 0 {
            return None;
        }
        let number = self.managed.next();
        let ledgers = &mut self.accounts.ledgers;
        for space in self.managed.spaces.iter_mut() {
            if space.tally.spilled == 0 {
                continue;
            }
            let blocks = room_beside(space.shares, ledgers, 0).unwrap_or(0);
            if blocks == 0 {
                continue;
            }
            let spilled = |piece: &&Piece| piece.state == State::Spilled;
            let fits = space.pieces().iter().find(spilled).and_then(|piece| {
                let reach = space.reach(piece.base, piece.last, blocks);
                reach.map(|last| (*piece, last))
            });
            let Some((mut piece, last)) = fits else {
                continue;
            };
            piece.last = last;
            space.hold(number, piece.base, last).ok()?;
            let counted = account(space, ledgers, (piece.base, last), |space| {
                space.change(piece.base, last, |piece| piece.state = State::Counted)
            });
            if counted.is_err() {
                space.release(number);
                return None;
            }
            return Some(order(space.file, &piece, number));
        }
        None
    }

    /// The driver was told that a GPU may hold a piece again.
    pub fn returned(&mut self, order: Order) {
        if let Some(space) = self.managed.space_mut(order.file) {
            space.release(order.number);
        }
    }

    /// What counts on the shares of a set can make room for so many bytes of page tables.
    pub(in crate::policy) fn makes_room(&self, set: u32, tables: u64) -> bool {
        let ledgers = &self.accounts.ledgers;
        let mut named = ledgers.each().filter(|(share, _)| set & bit(*share) != 0);
        named.all(|(share, ledger)| {
            let room = self.movable(share).saturating_mul(BLOCK);
            let free = ledger.view().free().saturating_add(room);
            ledgers.is_active(share) && ledger.price_of_tables(tables) <= free
        })
    }

    /// Blocks of a share that could be brought to host memory.
    fn movable(&self, share: Share) -> u64 {
        let spaces = self.managed.spaces.iter();
        let spaces = spaces.filter(|space| space.shares & bit(share) != 0);
        let spilling =
            spaces.filter(|s| mode(s.shares, &self.accounts.ledgers) == ManagedMode::Spill);
        spilling.map(|space| space.tally.blocks).sum()
    }

    /// A piece of a share that is to be brought to host memory, of as many bytes if it is so large.
    fn put_out_of(&mut self, share: Share, bytes: u64) -> Option<Order> {
        let number = self.managed.next();
        let ledgers = &self.accounts.ledgers;
        let spaces = self.managed.spaces.iter_mut().rev();
        let mut spaces = spaces.filter(|space| {
            let here = space.shares & bit(share) != 0;
            here && mode(space.shares, ledgers) == ManagedMode::Spill
        });
        spaces.find_map(|space| put_out(space, bytes.div_ceil(BLOCK), number))
    }
}

/// The last piece of a space that can be spilled, or the last blocks of it if it is larger than that.
pub(super) fn put_out(space: &mut Space, blocks: u64, number: u64) -> Option<Order> {
    let mut pieces = space.pieces().iter().rev();
    let mut piece = *pieces
        .find(|piece| piece.state == State::Counted && !space.is_held(piece.base, piece.last))?;
    let first = (piece.last / BLOCK + 1).saturating_sub(blocks.max(1));
    piece.base = piece.base.max(first.saturating_mul(BLOCK));
    let change = |piece: &mut Piece| piece.state = State::Leaving(number);
    space.change(piece.base, piece.last, change).ok()?;
    Some(order(space.file, &piece, number))
}
