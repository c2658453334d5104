// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: managed memory (`cudaMallocManaged`), and how much of it GPUs may
//! hold.
//!
//! No call asks for the memory of a GPU that managed memory takes: the driver gives it when the GPU
//! touches an address. The module can only decide whether the GPU may hold a piece of it. If its
//! preferred location is the CPU, a piece stays in host memory and the GPU uses it from there
//! (`block_select_processor_residency()`, uvm_va_block.c). So a piece either *counts* against the
//! limit, all of it, or is *spilled*.
//!
//! * A new mapping counts as far as it fits. The rest is spilled, or the mapping is refused: see
//!   [`ManagedMode`].
//! * A spilled piece counts again when there is room, and is given back to the GPU then.
//! * A piece that counts is spilled when memory objects need the room, or the limit is lowered.
//! * The driver is told by calls of our own. Each is a [`ManagedOrder`]: taken before the call,
//!   given back after it.
//! * A program's wish for a spilled piece is noted, and told to the driver when the piece counts.
//!
//! A program's own call that brings memory onto a GPU is forwarded only for pieces that count. It
//! is held ([`ManagedTouch`]) while it is in flight: the pieces that it covers are not spilled, and
//! memory that is mapped in their place must count.
//!
//! Both kinds take page tables on the GPU, 4.25 KiB for each 2 MiB, which count as overhead. If
//! there is no room for those of spilled pieces, pieces that count are spilled for them.
//!
//! On several GPUs, any of them may hold a piece, and with read duplication all of them. A piece
//! counts on each GPU that has an address space in the UVM file. Before there is one, the processor
//! alone can use it, and has the driver take host memory. So all of it counts as that, on all GPUs
//! of the tenant.

use crate::{
    policy::{
        count::Change,
        event::RefusalCause,
        ids::FileId,
        ledger::{
            Ledger,
            ManagedChange, //
        },
        ledgers::Ledgers,
        managed_space::{
            ManagedWish,
            Piece,
            PieceState,
            Space,
            Tally,
            BLOCK,
            MOST_PIECES, //
        }, //
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

/// How often the driver is told of new memory of a file that it is spilled, and need not be asked
/// to bring it to host memory as well. A GPU can touch a little of it before the driver is told.
/// See [`Tell::bring`].
pub(super) const MOST_PROMPT: u32 = 16;

/// A call of our own about one piece. It must be handed back to the method that its maker names.
#[derive(Debug)]
#[must_use = "a piece stays as it is until its order is handed back"]
pub struct ManagedOrder {
    /// The UVM file.
    pub file: FileId,
    /// The first address.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// The program's wish for it.
    pub wish: ManagedWish,
    /// That of the pieces which it is about: [`Managed::next`].
    pub(super) number: u64,
}

impl ManagedOrder {
    /// The last address.
    pub(super) fn last(&self) -> u64 {
        self.base.saturating_add(self.length.saturating_sub(1))
    }
}

/// Memory that was just mapped and does not fit: its preferred location is to be the CPU.
#[derive(Debug)]
pub struct Tell {
    /// For `Accounting::told`.
    pub order: ManagedOrder,
    /// It is also to be brought to host memory, even if it takes no long time to tell the driver.
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

/// A program's call about managed memory. It must be handed back to `Accounting::end_touch`.
#[derive(Debug)]
#[must_use = "what a call covers is not spilled until it is handed back"]
pub struct ManagedTouch {
    /// The runs that the call covers.
    pub runs: List<Run>,
    pub(super) file: FileId,
    pub(super) number: u64,
}

/// Whether a GPU can get an address space in a UVM file.
#[derive(Debug)]
pub enum Admission {
    /// The file's memory counts on this GPU from now on.
    Ready,
    /// First this must be brought to host memory, for `Accounting::left`; then ask again.
    Crowded(ManagedOrder),
    /// There is no room.
    Refused,
}

/// The managed memory of a tenant.
#[derive(Debug, Default)]
pub(super) struct Managed {
    pub(super) spaces: List<Space>,
    /// Number of the last order or touch.
    pub(super) number: u64,
    /// Calls that make room for memory objects: nothing takes it meanwhile.
    pub(super) demands: u32,
}

impl Managed {
    pub(super) fn is_empty(&self) -> bool {
        self.spaces.iter().all(|space| space.pieces().is_empty())
    }

    /// Bytes of the pools of all files.
    pub(super) fn pools(&self) -> u64 {
        let pools = self.spaces.iter().map(|space| space.fixed.pools());
        pools.fold(0, u64::saturating_add)
    }

    /// A number for an order or a touch, which no other one has.
    pub(super) fn next(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// The managed memory of a file, if it has any.
    pub(super) fn space(&self, file: FileId) -> Option<&Space> {
        let place = self.spaces.binary_search_by_key(&file.0, |s| s.file.0);
        self.spaces.get(place.ok()?)
    }

    /// The same, to be changed.
    pub(super) fn space_mut(&mut self, file: FileId) -> Option<&mut Space> {
        let place = self.spaces.binary_search_by_key(&file.0, |s| s.file.0);
        self.spaces.get_mut(place.ok()?)
    }

    /// The managed memory of a file, which is made if there is none yet.
    pub(super) fn enter(&mut self, file: FileId) -> Result<&mut Space, Exhausted> {
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
pub(super) fn ledgers_of(set: u32, ledgers: &mut Ledgers) -> impl Iterator<Item = &mut Ledger> {
    let named = ledgers
        .each_mut()
        .filter(move |(share, _)| set & share.bit() != 0);
    named.map(|(_, ledger)| ledger)
}

/// The mode that holds for a set: the strictest of its shares', of all shares' if it is empty.
pub(super) fn mode(set: u32, ledgers: &Ledgers) -> ManagedMode {
    let all = ledgers.each().filter(|(share, _)| {
        let named = set == 0 || set & share.bit() != 0;
        named && ledgers.is_active(*share)
    });
    let modes = all.map(|(_, ledger)| ledger.managed_mode);
    modes.max().unwrap_or_default()
}

/// The change of a ledger when one tally takes the place of another one.
pub(super) fn change_of(before: Tally, after: Tally) -> ManagedChange {
    ManagedChange {
        counted: Change::between(before.blocks * BLOCK, after.blocks * BLOCK),
        spilled: Change::between(before.spilled, after.spilled),
        host: Change::between(before.on_host(), after.on_host()),
        tables: Change::between(before.tables, after.tables),
    }
}

/// Changes a space in the blocks of a span, and charges or credits what that means.
pub(super) fn account<R>(
    space: &mut Space,
    ledgers: &mut Ledgers,
    (base, last): (u64, u64),
    change: impl FnOnce(&mut Space) -> R,
) -> R {
    let before = space.tally_of(base, last);
    let result = change(space);
    let after = space.tally_of(base, last);
    let tally = &mut space.tally;
    Change::between(before.blocks, after.blocks).apply(&mut tally.blocks);
    Change::between(before.spilled, after.spilled).apply(&mut tally.spilled);
    Change::between(before.leaving, after.leaving).apply(&mut tally.leaving);
    Change::between(before.tables, after.tables).apply(&mut tally.tables);
    let bytes = Change::between(before.bytes, after.bytes);
    bytes.apply(&mut tally.bytes);
    if space.shares == 0 {
        ledgers.change_common(Limited::HostMemory, bytes);
    }
    for ledger in ledgers_of(space.shares, ledgers) {
        ledger.move_managed(&change_of(before, after));
    }
    result
}

/// Blocks that are left on every share of a set when it has so many bytes of page tables more;
/// `None`: there is no room even for those.
pub(super) fn room_beside(set: u32, ledgers: &Ledgers, tables: u64) -> Option<u64> {
    let mut least = u64::MAX;
    for (_, ledger) in ledgers.each().filter(|(share, _)| set & share.bit() != 0) {
        let free = if ledger.active { ledger.free() } else { 0 };
        least = least.min(free.checked_sub(ledger.price_of_tables(tables))? / BLOCK);
    }
    Some(least)
}

/// Bytes of host memory that may still be taken on every share of a set.
pub(super) fn host_room(set: u32, ledgers: &Ledgers) -> u64 {
    let named = ledgers.each().filter(|(share, _)| set & share.bit() != 0);
    let rooms = named.map(|(share, _)| ledgers.room(share, Limited::HostMemory));
    rooms.min().unwrap_or(u64::MAX)
}

/// The last address of a new mapping up to which it counts; `None`: it is spilled as a whole.
///
/// `tables` are the bytes of its page tables. `fits`: there is room for them
/// (`Accounting::has_room`).
///
/// # Errors
///
/// The tenant may not have the mapping, or it does not fit where nothing may be spilled.
pub(super) fn grant(
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
    let what = Limited::HostMemory;
    if space.shares == 0 && last - base >= ledgers.common_room(what) {
        return Err(RefusalCause::LimitReached(what));
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
    let spilled = last - reach.unwrap_or(base) + u64::from(reach.is_none());
    if spilled > host_room(space.shares, ledgers) {
        return Err(RefusalCause::LimitReached(what));
    }
    Ok(reach)
}

/// An order about a piece of a file.
pub(super) fn order(file: FileId, piece: &Piece, number: u64) -> ManagedOrder {
    ManagedOrder {
        file,
        base: piece.base,
        length: piece.last - piece.base + 1,
        wish: piece.wish,
        number,
    }
}

/// The last piece of a space that can be spilled, or the last blocks of it if it is larger than
/// that, or than the `room` that is left of the host's memory, in bytes.
///
/// It is held as by a [`ManagedTouch`] until the order is handed back. If the driver does not move
/// it, it is told what the program wanted there. That must not meet a spilled mapping which has
/// taken the piece's place.
pub(super) fn put_out(
    space: &mut Space,
    ledgers: &mut Ledgers,
    blocks: u64,
    room: u64,
    number: u64,
) -> Option<ManagedOrder> {
    let mut pieces = space.pieces().iter().rev();
    let mut piece = *pieces.find(|piece| {
        piece.state == PieceState::Counted && !space.is_held(piece.base, piece.last)
    })?;
    let first = (piece.last / BLOCK + 1).saturating_sub(blocks.max(1));
    piece.base = piece.base.max(first.saturating_mul(BLOCK));
    if piece.last - piece.base >= room {
        let first = piece.last.saturating_sub(room).saturating_add(1);
        piece.base = first.checked_next_multiple_of(BLOCK)?;
        if piece.base > piece.last {
            return None;
        }
    }
    let change = |piece: &mut Piece| piece.state = PieceState::Leaving(number);
    let span = (piece.base, piece.last);
    space.hold(number, piece.base, piece.last).ok()?;
    let leaving = account(space, ledgers, span, |space| {
        space.change(span, MOST_PIECES, change)
    });
    if leaving.is_err() {
        space.release(number);
        return None;
    }
    Some(order(space.file, &piece, number))
}
