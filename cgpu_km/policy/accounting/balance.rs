// SPDX-License-Identifier: GPL-2.0
//! Managed memory that is moved to the host because others need the room, and that comes back.

use crate::{
    policy::{
        accounting::Accounting,
        count::lower,
        ids::{
            GpuId,
            ShareId, //
        },
        ledger::Ledger,
        managed::{
            account,
            host_room,
            mode,
            order,
            put_out,
            room_beside,
            ManagedOrder, //
        },
        managed_space::{
            Piece,
            PieceState,
            BLOCK,
            MOST_PIECES, //
        }, //
    },
    store::List,
    uapi::ManagedMode, //
};

/// The answer to a memory object that needs room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakingRoom {
    /// The object has room, or the tenant no share of that GPU.
    Needless,
    /// All managed memory that can be moved would not be enough.
    Vain,
    /// Memory is to be moved ([`Accounting::make_room`]). Nothing takes what is free until
    /// [`Accounting::end_demand`].
    Begun,
}

impl Accounting {
    /// Whether there is managed memory, without which nothing has to be balanced.
    pub fn has_managed(&self) -> bool {
        !self.managed.is_empty()
    }

    /// A memory object of so many bytes is to be made: has managed memory make room for it, if that
    /// is needed and enough.
    pub fn begin_demand(&mut self, gpu: GpuId, bytes: u64) -> MakingRoom {
        let ledgers = &self.accounts.ledgers;
        let (Some(share), Some(ledger)) = (ledgers.of(gpu), ledgers.on(gpu)) else {
            return MakingRoom::Needless;
        };
        let free = ledger.free();
        if bytes <= free {
            return MakingRoom::Needless;
        }
        if ledger.managed() == 0 {
            return MakingRoom::Vain;
        }
        let movable = self.movable(share);
        let room = movable.saturating_mul(BLOCK).saturating_add(free);
        if room < bytes.saturating_add(ledger.excess()) {
            return MakingRoom::Vain;
        }
        self.managed.demands += 1;
        MakingRoom::Begun
    }

    /// The memory object was asked for.
    pub fn end_demand(&mut self) {
        lower(&mut self.managed.demands, 1);
    }

    /// The next piece to bring to host memory, for [`Accounting::left`], so that so many bytes are
    /// free on a GPU; `None`: they are, or no more can be done.
    pub fn make_room(&mut self, gpu: GpuId, bytes: u64) -> Option<ManagedOrder> {
        let share = self.accounts.ledgers.of(gpu)?;
        let free = self.accounts.ledgers.on(gpu)?.free();
        let missing = bytes.checked_sub(free).filter(|&missing| missing > 0)?;
        self.put_out_of(share, missing)
    }

    /// The same on a GPU of which more is taken than its limit allows.
    pub fn make_good(&mut self) -> Option<ManagedOrder> {
        let excess = |(share, ledger): (ShareId, &Ledger)| {
            let here = ledger.managed() > 0;
            Some((share, ledger.excess())).filter(|&(_, excess)| here && excess > 0)
        };
        let mut over: List<(ShareId, u64)> = List::new();
        for one in self.accounts.ledgers.each().filter_map(excess) {
            over.push(one).ok()?;
        }
        let mut over = over.iter();
        over.find_map(|&(share, excess)| self.put_out_of(share, excess))
    }

    /// The driver has brought a piece to host memory, or not.
    pub fn left(&mut self, order: ManagedOrder, done: bool) {
        let state = if done {
            PieceState::Spilled
        } else {
            PieceState::Counted
        };
        self.finish(&order, PieceState::Leaving(order.number), state);
        self.returned(order);
    }

    /// A spilled piece for which there is room. It counts from now on; the driver is to be told
    /// what the program wants for it, and then [`Accounting::returned`].
    pub fn give_back(&mut self) -> Option<ManagedOrder> {
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
            let spilled = |piece: &&Piece| piece.state == PieceState::Spilled;
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
                space.change((piece.base, last), MOST_PIECES, |piece| {
                    piece.state = PieceState::Counted
                })
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
    pub fn returned(&mut self, order: ManagedOrder) {
        if let Some(space) = self.managed.space_mut(order.file) {
            space.release(order.number);
        }
    }

    /// The pieces that count on the shares of a set can make room for so many bytes of page tables.
    pub(in crate::policy) fn makes_room(&self, set: u32, tables: u64) -> bool {
        let ledgers = &self.accounts.ledgers;
        let mut named = ledgers.each().filter(|(share, _)| set & share.bit() != 0);
        named.all(|(share, ledger)| {
            let room = self.movable(share).saturating_mul(BLOCK);
            let free = ledger.free().saturating_add(room);
            ledgers.is_active(share) && ledger.price_of_tables(tables) <= free
        })
    }

    /// Blocks of a share that could be brought to host memory.
    fn movable(&self, share: ShareId) -> u64 {
        let ledgers = &self.accounts.ledgers;
        let spaces = self.managed.spaces.iter();
        let spaces = spaces.filter(|space| space.shares & share.bit() != 0);
        let spilling = spaces.filter(|s| mode(s.shares, ledgers) == ManagedMode::Spill);
        let blocks = spilling.map(|s| s.tally.blocks.min(host_room(s.shares, ledgers) / BLOCK));
        let all = blocks.fold(0, u64::saturating_add);
        all.min(host_room(share.bit(), ledgers) / BLOCK)
    }

    /// A piece of a share that is to be brought to host memory, of as many bytes if it is so large.
    fn put_out_of(&mut self, share: ShareId, bytes: u64) -> Option<ManagedOrder> {
        let number = self.managed.next();
        let ledgers = &mut self.accounts.ledgers;
        let mut spaces = self.managed.spaces.iter_mut().rev();
        spaces.find_map(|space| {
            let here = space.shares & share.bit() != 0;
            if !here || mode(space.shares, ledgers) != ManagedMode::Spill {
                return None;
            }
            let room = host_room(space.shares, ledgers);
            put_out(space, ledgers, bytes.div_ceil(BLOCK), room, number)
        })
    }
}
