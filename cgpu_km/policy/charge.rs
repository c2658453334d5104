// SPDX-License-Identifier: GPL-2.0
//! What is charged, and who keeps it charged.
//!
//! The driver keeps memory as long as anything refers to it: the object that was allocated, its
//! duplicates in the same or in another client. A [`Cost`] is one piece of memory, charged once;
//! each object over it is a [`Hold`]. When the last hold goes, the cost is credited. A hold is no part of
//! an object, so that what is not an object (a mapping, an exported descriptor) can be one as well.
//!
//! The cost counts for the process of its oldest hold; when that goes, for the next oldest one's.

use super::ledger::{Charge, Demand, Ledgers, Reservation, Share, Shortage};
use super::process::Processes;
use super::slots::{Marked, Slot, Slots};
use crate::store::Exhausted;

/// How far a piece of memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// What it demands is a [`Reservation`].
    Asked,
    /// What it demands is a [`Charge`].
    Given,
}

/// What there is of a piece of memory: nothing has both kinds of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    /// What it shows.
    Bytes,
    /// Its page tables, of which all were there from the beginning.
    Tables,
    /// Its page tables, which come one after the other: see [`Accounts::grow`].
    Growing,
}

/// One piece of memory. There are as many as objects, so it is kept small.
#[derive(Debug)]
struct Cost {
    amount: u64,
    oldest: Slot,
    newest: Slot,
    share: Share,
    of: Amount,
    context: bool,
    stage: Stage,
    /// How many of its holds keep a place in NVLink's fabric for it.
    in_fabric: u32,
}

impl Cost {
    fn demand(&self) -> Demand {
        let (bytes, tables) = match self.of {
            Amount::Bytes => (self.amount, 0),
            Amount::Tables | Amount::Growing => (0, self.amount),
        };
        Demand {
            bytes,
            tables,
            context: self.context,
        }
    }
}

/// What keeps a cost charged.
#[derive(Debug)]
struct Hold {
    /// Marked: it is one over the memory's place in NVLink's fabric, which lasts as long as any of these.
    cost: Marked,
    process: Slot,
    older: Option<Slot>,
    newer: Option<Slot>,
}

/// Why a cost cannot be taken on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// Beyond the limit.
    Limit(Shortage),
    Exhausted,
}

impl From<Exhausted> for Denied {
    fn from(_: Exhausted) -> Self {
        Self::Exhausted
    }
}

/// All that a tenant is charged: ledgers per GPU, sums per process, costs and holds.
#[derive(Debug)]
pub(super) struct Accounts {
    pub(super) ledgers: Ledgers,
    pub(super) processes: Processes,
    costs: Slots<Cost>,
    holds: Slots<Hold>,
}

impl Accounts {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            ledgers: Ledgers::new(),
            processes: Processes::new(seed),
            costs: Slots::new(),
            holds: Slots::new(),
        }
    }

    /// Sets memory aside for an object of `process` (a record of [`Processes`]).
    pub(super) fn ask(
        &mut self,
        share: Share,
        demand: Demand,
        process: Slot,
    ) -> Result<Slot, Denied> {
        self.costs.reserve()?;
        self.holds.reserve()?;
        let demand = match (demand.bytes, demand.tables) {
            (0, _) | (_, 0) => demand,
            // Of what has both, all is shown.
            (bytes, tables) => Demand {
                bytes: bytes.saturating_add(tables),
                tables: 0,
                ..demand
            },
        };
        let ledger = self.ledgers.get_mut(share).ok_or(Exhausted)?;
        let reservation = ledger.reserve(demand).map_err(Denied::Limit)?;
        // From here on nothing can fail: room was made above. The cost and its hold name each other,
        // so the cost learns the hold's place a moment later.
        let Demand {
            bytes,
            tables,
            context,
        } = reservation.into();
        let cost = self.costs.insert(Cost {
            amount: if tables == 0 { bytes } else { tables },
            oldest: process,
            newest: process,
            share,
            of: match tables {
                0 => Amount::Bytes,
                _ => Amount::Tables,
            },
            context,
            stage: Stage::Asked,
            in_fabric: 0,
        })?;
        let hold = self.holds.insert(Hold {
            cost: Marked::new(cost, false),
            process,
            older: None,
            newer: None,
        })?;
        if let Some(cost) = self.costs.get_mut(cost) {
            cost.oldest = hold;
            cost.newest = hold;
        }
        self.processes.rejoin(process);
        Ok(hold)
    }

    /// Adds a hold for an object of `process` over what `hold` holds.
    pub(super) fn share(&mut self, hold: Slot, process: Slot) -> Result<Slot, Exhausted> {
        self.holds.reserve()?;
        let source = self.holds.get(hold).ok_or(Exhausted)?.cost;
        let cost = source.slot();
        let older = self.costs.get(cost).ok_or(Exhausted)?.newest;
        let hold = self.holds.insert(Hold {
            cost: Marked::new(cost, false),
            process,
            older: Some(older),
            newer: None,
        })?;
        if let Some(older) = self.holds.get_mut(older) {
            older.newer = Some(hold);
        }
        if let Some(cost) = self.costs.get_mut(cost) {
            cost.newest = hold;
        }
        if source.is_marked() {
            self.enter_fabric(hold);
        }
        self.processes.rejoin(process);
        Ok(hold)
    }

    /// Whether the memory has a place in NVLink's fabric.
    pub(super) fn is_in_fabric(&self, hold: Slot) -> bool {
        let cost = self
            .holds
            .get(hold)
            .and_then(|hold| self.costs.get(hold.cost.slot()));
        cost.is_some_and(|cost| cost.in_fabric != 0)
    }

    /// A hold is one over the memory's place in the fabric.
    pub(super) fn enter_fabric(&mut self, hold: Slot) {
        let Some(hold) = self.holds.get_mut(hold) else {
            return;
        };
        let cost = hold.cost.slot();
        hold.cost = Marked::new(cost, true);
        if let Some(cost) = self.costs.get_mut(cost) {
            cost.in_fabric += 1;
        }
    }

    /// The driver gave what was asked for; it says that it is `bytes`. Changes nothing where that is
    /// settled already, as it is for a duplicate.
    pub(super) fn commit(&mut self, hold: Slot, bytes: u64) {
        let Some((cost, process)) = self.cost_of(hold) else {
            return;
        };
        let Some(cost) = self.costs.get_mut(cost) else {
            return;
        };
        let Some(ledger) = self.ledgers.get_mut(cost.share) else {
            return;
        };
        if cost.stage == Stage::Asked {
            // What is all page tables shows no size.
            let is_tables = cost.of != Amount::Bytes;
            let bytes = if is_tables { 0 } else { bytes };
            let charge = ledger.commit(Reservation::of(cost.demand()), bytes);
            self.processes.charge(process, cost.share, charge.bytes());
            let Demand { bytes, tables, .. } = charge.into();
            cost.amount = if is_tables { tables } else { bytes };
            cost.stage = Stage::Given;
        }
    }

    /// Whether what was asked for without a size gets page tables as it is used, and of which share.
    pub(super) fn grows(&self, hold: Slot) -> Option<Share> {
        let cost = self.costs.get(self.holds.get(hold)?.cost.slot())?;
        let empty = cost.of == Amount::Bytes && cost.amount == 0 && !cost.context;
        let grows = cost.stage == Stage::Given && (empty || cost.of == Amount::Growing);
        grows.then_some(cost.share)
    }

    /// There are so many bytes of page tables more of what [grows](Accounts::grows), which go when it goes. The
    /// ledger was told.
    pub(super) fn grow(&mut self, hold: Slot, tables: u64) {
        let Some(hold) = self.holds.get(hold) else {
            return;
        };
        if let Some(cost) = self.costs.get_mut(hold.cost.slot()) {
            cost.of = Amount::Growing;
            cost.amount = cost.amount.saturating_add(tables);
        }
    }

    /// The object of `hold` is gone, or was never made.
    pub(super) fn release(&mut self, slot: Slot) {
        let Some(hold) = self.holds.remove(slot) else {
            return;
        };
        let cost = hold.cost.slot();
        if let (true, Some(cost)) = (hold.cost.is_marked(), self.costs.get_mut(cost)) {
            cost.in_fabric = cost.in_fabric.saturating_sub(1);
        }
        if let Some(older) = hold.older.and_then(|older| self.holds.get_mut(older)) {
            older.newer = hold.newer;
        }
        if let Some(newer) = hold.newer.and_then(|newer| self.holds.get_mut(newer)) {
            newer.older = hold.older;
        }
        match (hold.older, hold.newer) {
            (None, None) => self.settle(cost, hold.process),
            (None, Some(newer)) => self.inherit(cost, hold.process, newer),
            (Some(older), None) => {
                if let Some(cost) = self.costs.get_mut(cost) {
                    cost.newest = older;
                }
            }
            (Some(_), Some(_)) => {}
        }
        self.processes.part(hold.process);
    }

    /// The last hold of a cost is gone; it counted for `process`.
    fn settle(&mut self, cost: Slot, process: Slot) {
        let Some(cost) = self.costs.remove(cost) else {
            return;
        };
        let Some(ledger) = self.ledgers.get_mut(cost.share) else {
            return;
        };
        match cost.stage {
            Stage::Asked => ledger.abandon(Reservation::of(cost.demand())),
            Stage::Given => {
                let charge = Charge::of(cost.demand());
                self.processes.credit(process, cost.share, charge.bytes());
                ledger.credit(charge);
            }
        }
    }

    /// The oldest hold of a cost, which counted for `from`, is gone; `heir` is the oldest now.
    fn inherit(&mut self, cost: Slot, from: Slot, heir: Slot) {
        let Some(to) = self.holds.get(heir).map(|hold| hold.process) else {
            return;
        };
        let Some(cost) = self.costs.get_mut(cost) else {
            return;
        };
        cost.oldest = heir;
        if cost.stage == Stage::Given {
            let bytes = cost.demand().bytes;
            self.processes.credit(from, cost.share, bytes);
            self.processes.charge(to, cost.share, bytes);
        }
    }

    /// The cost that a hold is over, and the process that it counts for.
    fn cost_of(&self, hold: Slot) -> Option<(Slot, Slot)> {
        let cost = self.holds.get(hold)?.cost.slot();
        let oldest = self.costs.get(cost)?.oldest;
        Some((cost, self.holds.get(oldest)?.process))
    }

    /// What is kept of a piece of memory that one object holds.
    #[cfg(test)]
    pub(super) const BYTES: usize = Slots::<Cost>::BYTES + Slots::<Hold>::BYTES;

    /// Nothing is charged or asked for, and no process is known.
    pub(super) fn are_clear(&self) -> bool {
        self.costs.len() == 0 && self.processes.is_empty() && self.ledgers.are_clear()
    }
}
