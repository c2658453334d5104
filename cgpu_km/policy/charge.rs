// SPDX-License-Identifier: GPL-2.0
//! The memory that is charged, and the holds that keep it charged.
//!
//! The driver keeps memory as long as anything refers to it: the object that was allocated, its
//! duplicates in the same or in another client. A [`Cost`] is one piece of memory, charged once;
//! each object over it is a [`Hold`]. When the last hold goes, the cost is credited. A hold is no
//! part of an object, so that what is not an object (a mapping, an exported descriptor) can be one
//! as well.
//!
//! The cost counts for the process of its oldest hold; when that goes, for the next oldest one's.
//!
//! A channel's id lasts as long as any hold over its own cost: the channel itself and what UVM
//! keeps of it. Its memory is in the pools of its group, whose cost it holds as well. Those grow
//! when the group has more channels at once than ever before, and shrink only when the group is
//! gone.

use crate::{
    nvidia::class::Kind,
    policy::{
        count::lower,
        demand::Demand,
        event::RefusalCause,
        ids::ShareId,
        ledger::{
            Claim,
            TablesRoom, //
        },
        ledgers::Ledgers,
        object::Object,
        overhead::CHANNEL,
        process::Processes,
        records::{
            Marked,
            RecordId,
            Records, //
        }, //
    },
    store::Exhausted,
    uapi::Limited, //
};

/// One piece of memory. There are as many as objects, so it is kept small.
#[derive(Debug)]
struct Cost {
    claim: Claim,
    oldest: RecordId,
    newest: RecordId,
    /// Of memory: how many of its holds keep a place in NVLink's fabric for it. Of a group: how
    /// many channels have their memory in its pools.
    uses: u32,
    /// Of a channel in a group: a hold over what the group costs.
    within: Option<RecordId>,
}

/// Keeps a cost charged.
#[derive(Debug)]
struct Hold {
    /// Marked: it is one over the memory's place in NVLink's fabric, which lasts as long as any of
    /// these.
    cost: Marked,
    process: RecordId,
    older: Option<RecordId>,
    newer: Option<RecordId>,
}

/// All that a tenant is charged: ledgers per GPU, sums per process, costs and holds.
#[derive(Debug)]
pub(super) struct Accounts {
    pub(super) ledgers: Ledgers,
    pub(super) processes: Processes,
    costs: Records<Cost>,
    holds: Records<Hold>,
}

impl Accounts {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            ledgers: Ledgers::default(),
            processes: Processes::new(seed),
            costs: Records::new(),
            holds: Records::new(),
        }
    }

    /// Sets memory aside for an object of `process` (a record of [`Processes`]).
    pub(super) fn ask(
        &mut self,
        share: ShareId,
        demand: Demand,
        process: RecordId,
    ) -> Result<RecordId, RefusalCause> {
        self.costs.reserve()?;
        self.holds.reserve()?;
        let (what, host) = (Limited::HostMemory, demand.host);
        if host > 0 {
            self.ledgers.count(Some(share), what, host)?;
        }
        let ledger = self.ledgers.get_mut(share).ok_or(Exhausted)?;
        let claim = match host {
            0 => ledger.reserve(demand)?,
            _ => ledger.claim_host(host),
        };
        // From here on nothing can fail: room was made above.
        Ok(self.hold(claim, None, process)?)
    }

    /// Sets the id of a channel aside, and its memory in the pools of its group, over which `group`
    /// is a hold.
    pub(super) fn ask_channel(
        &mut self,
        group: RecordId,
        process: RecordId,
    ) -> Result<RecordId, RefusalCause> {
        let pool = self.holds.get(group).ok_or(Exhausted)?.cost.id();
        let within = self.share_one(group, process)?;
        let asked = self.enter_group(pool);
        let held = asked.and_then(|claim| Ok(self.hold(claim, Some(within), process)?));
        held.inspect_err(|_| self.release(within))
    }

    /// A group gets one channel more. Makes room for its cost and hold.
    fn enter_group(&mut self, pool: RecordId) -> Result<Claim, RefusalCause> {
        self.costs.reserve()?;
        self.holds.reserve()?;
        let group = self.costs.get_mut(pool).ok_or(Exhausted)?;
        let ledger = self.ledgers.get_mut(group.claim.share());
        let ledger = ledger.ok_or(Exhausted)?;
        let claim = ledger.reserve(Demand {
            ids: group.claim.ids().in_group(),
            ..Demand::NONE
        })?;
        let channels = u64::from(group.uses).saturating_add(1);
        let more = channels.saturating_mul(CHANNEL);
        let more = more.saturating_sub(group.claim.pools());
        if more > 0 {
            if let Err(refusal) = ledger.grow_pools(&mut group.claim, more) {
                ledger.release(claim);
                return Err(refusal);
            }
        }
        group.uses = group.uses.saturating_add(1);
        Ok(claim)
    }

    /// A group has one channel less.
    fn leave_group(&mut self, pool: RecordId) {
        if let Some(group) = self.costs.get_mut(pool) {
            lower(&mut group.uses, 1);
        }
    }

    /// Enters a cost with its first hold, for which there is room.
    fn hold(
        &mut self,
        claim: Claim,
        within: Option<RecordId>,
        process: RecordId,
    ) -> Result<RecordId, Exhausted> {
        // The cost and its hold name each other, so the cost learns the hold's place a moment
        // later.
        let cost = self.costs.insert(Cost {
            claim,
            oldest: process,
            newest: process,
            uses: 0,
            within,
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

    /// Adds a hold for an object of `process` over what `hold` holds, if it holds anything.
    pub(super) fn share(
        &mut self,
        hold: Option<RecordId>,
        process: RecordId,
    ) -> Result<Option<RecordId>, Exhausted> {
        hold.map(|hold| self.share_one(hold, process)).transpose()
    }

    fn share_one(&mut self, hold: RecordId, process: RecordId) -> Result<RecordId, Exhausted> {
        self.holds.reserve()?;
        let source = self.holds.get(hold).ok_or(Exhausted)?.cost;
        let cost = source.id();
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
    pub(super) fn is_in_fabric(&self, hold: RecordId) -> bool {
        let cost = self
            .holds
            .get(hold)
            .and_then(|hold| self.costs.get(hold.cost.id()));
        cost.is_some_and(|cost| cost.uses != 0)
    }

    /// A hold is one over the memory's place in the fabric.
    pub(super) fn enter_fabric(&mut self, hold: RecordId) {
        let Some(hold) = self.holds.get_mut(hold) else {
            return;
        };
        let cost = hold.cost.id();
        hold.cost = Marked::new(cost, true);
        if let Some(cost) = self.costs.get_mut(cost) {
            cost.uses += 1;
        }
    }

    /// The driver gave what was asked for; it says that it is `bytes`. Changes nothing where that
    /// is settled already, as it is for a duplicate.
    pub(super) fn commit(&mut self, hold: RecordId, bytes: u64) {
        let Some((cost, process)) = self.cost_of(hold) else {
            return;
        };
        let Some(cost) = self.costs.get_mut(cost) else {
            return;
        };
        let share = cost.claim.share();
        let Some(ledger) = self.ledgers.get_mut(share) else {
            return;
        };
        if let Some(bytes) = ledger.commit(&mut cost.claim, bytes) {
            self.processes.charge(process, share, bytes);
        }
    }

    /// Whether what was asked for without a size gets page tables as it is used, and of which
    /// share.
    pub(super) fn grows(&self, hold: RecordId) -> Option<ShareId> {
        let claim = &self.costs.get(self.holds.get(hold)?.cost.id())?.claim;
        claim.grows().then(|| claim.share())
    }

    /// Memory that [grows](Accounts::grows) has so many bytes of page tables more, which go when it
    /// goes.
    pub(super) fn grow(&mut self, hold: RecordId, tables: u64, room: TablesRoom) {
        let Some(hold) = self.holds.get(hold) else {
            return;
        };
        let Some(cost) = self.costs.get_mut(hold.cost.id()) else {
            return;
        };
        if let Some(ledger) = self.ledgers.get_mut(cost.claim.share()) {
            ledger.grow(&mut cost.claim, tables, room);
        }
    }

    /// A range of addresses that the driver may refuse: its share, and the bytes of page tables
    /// that were asked for with it.
    pub(super) fn tables_of_range(&self, range: &Object) -> Option<(ShareId, u64)> {
        let hold = range.hold.filter(|_| range.kind == Kind::VirtualMemory)?;
        let claim = self.claim_of(hold)?;
        Some((claim.share(), claim.tables())).filter(|(_, tables)| *tables > 0)
    }

    /// The driver has refused a range with so many bytes of page tables: see
    /// [`Ledger::keep_tables`](super::ledger::Ledger::keep_tables).
    pub(super) fn keep_tables(&mut self, share: ShareId, tables: u64) {
        if let Some(ledger) = self.ledgers.get_mut(share) {
            ledger.keep_tables(tables);
        }
    }

    /// The object of `hold` is gone, or was never made.
    pub(super) fn release(&mut self, id: RecordId) {
        let mut next = Some(id);
        // A channel's last hold gives up one over its group, which is in none.
        while let Some(id) = next {
            next = self.release_one(id);
        }
    }

    /// Releases one hold. Gives the one over its group, if a channel's was the last.
    fn release_one(&mut self, id: RecordId) -> Option<RecordId> {
        let hold = self.holds.remove(id)?;
        let cost = hold.cost.id();
        if hold.cost.is_marked() {
            if let Some(cost) = self.costs.get_mut(cost) {
                lower(&mut cost.uses, 1);
            }
        }
        if let Some(older) = hold.older.and_then(|older| self.holds.get_mut(older)) {
            older.newer = hold.newer;
        }
        if let Some(newer) = hold.newer.and_then(|newer| self.holds.get_mut(newer)) {
            newer.older = hold.older;
        }
        let mut within = None;
        match (hold.older, hold.newer) {
            (None, None) => within = self.settle(cost, hold.process),
            (None, Some(newer)) => self.inherit(cost, hold.process, newer),
            (Some(older), None) => {
                if let Some(cost) = self.costs.get_mut(cost) {
                    cost.newest = older;
                }
            }
            (Some(_), Some(_)) => {}
        }
        self.processes.part(hold.process);
        within
    }

    /// The last hold of a cost is gone; it counted for `process`.
    fn settle(&mut self, cost: RecordId, process: RecordId) -> Option<RecordId> {
        let Cost { claim, within, .. } = self.costs.remove(cost)?;
        let pool = within.and_then(|within| self.holds.get(within));
        if let Some(pool) = pool.map(|hold| hold.cost.id()) {
            self.leave_group(pool);
        }
        if claim.is_given() {
            self.processes.credit(process, claim.share(), claim.bytes());
        }
        if let Some(ledger) = self.ledgers.get_mut(claim.share()) {
            ledger.release(claim);
        }
        within
    }

    /// The oldest hold of a cost, which counted for `from`, is gone; `heir` is the oldest now.
    fn inherit(&mut self, cost: RecordId, from: RecordId, heir: RecordId) {
        let Some(to) = self.holds.get(heir).map(|hold| hold.process) else {
            return;
        };
        let Some(cost) = self.costs.get_mut(cost) else {
            return;
        };
        cost.oldest = heir;
        if cost.claim.is_given() {
            let (share, bytes) = (cost.claim.share(), cost.claim.bytes());
            self.processes.credit(from, share, bytes);
            self.processes.charge(to, share, bytes);
        }
    }

    /// The claim of the cost that a hold is over.
    pub(super) fn claim_of(&self, hold: RecordId) -> Option<&Claim> {
        let cost = self.holds.get(hold)?.cost.id();
        Some(&self.costs.get(cost)?.claim)
    }

    /// The cost that a hold is over, and the process that it counts for.
    fn cost_of(&self, hold: RecordId) -> Option<(RecordId, RecordId)> {
        let cost = self.holds.get(hold)?.cost.id();
        let oldest = self.costs.get(cost)?.oldest;
        Some((cost, self.holds.get(oldest)?.process))
    }

    /// Counts an object that is to come, as far as the limits allow.
    pub(super) fn count(&mut self, share: Option<ShareId>, kind: Kind) -> Result<(), Limited> {
        for what in limited(kind).into_iter().flatten() {
            if let Err(what) = self.ledgers.count(share, what, 1) {
                let all = limited(kind).into_iter().flatten();
                for before in all.take_while(|before| *before != what) {
                    self.ledgers.uncount(share, before, 1);
                }
                return Err(what);
            }
        }
        Ok(())
    }

    /// An object that was counted is gone, or did not come.
    pub(super) fn uncount(&mut self, share: Option<ShareId>, kind: Kind) {
        for what in limited(kind).into_iter().flatten() {
            self.ledgers.uncount(share, what, 1);
        }
    }

    /// Bytes that are kept for a piece of memory that one object holds.
    #[cfg(test)]
    pub(super) const BYTES: usize = Records::<Cost>::BYTES + Records::<Hold>::BYTES;

    /// Nothing is charged or asked for, and no process is known.
    pub(super) fn are_clear(&self) -> bool {
        self.costs.len() == 0 && self.processes.is_empty() && self.ledgers.are_clear()
    }
}

/// The limits that an object of a kind counts against.
fn limited(kind: Kind) -> [Option<Limited>; 2] {
    match kind {
        Kind::Root => [Some(Limited::Clients), None],
        Kind::Event => [Some(Limited::Objects), Some(Limited::Events)],
        // The driver makes a client for each session, with a device: one more for the firmware,
        // whose room for them all tenants share (`_ksmdbgssnInitClient()`,
        // kernel_sm_debugger_session.c).
        Kind::Debugger => [Some(Limited::Objects), Some(Limited::Clients)],
        _ => [Some(Limited::Objects), None],
    }
}
