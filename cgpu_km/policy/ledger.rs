// SPDX-License-Identifier: GPL-2.0
//! One GPU's side of the accounting: a limit and what stands against it, in bytes.
//!
//! Memory is reserved before the driver is asked, and committed or released after that: see
//! [`Claim`]. `used + overhead + managed + reserved <= limit` holds at all times, with three
//! exceptions:
//!
//! * The limit was lowered below the sum.
//! * The driver gave more than was reserved.
//! * Page tables were made for which managed memory is being brought to host memory.
//!
//! Then nothing more is granted until enough is freed. In the first two cases the share also says
//! that it is over its limit.

use self::history::{
    Peaks,
    Refusals, //
};
use crate::{
    nvidia::capability::Capabilities,
    policy::{
        boost::Boosters,
        channel_limit::{
            ChannelIds,
            Engines,
            TakenIds, //
        },
        count::{
            lower,
            Change, //
        },
        demand::Demand,
        event::RefusalCause,
        ids::{
            GpuId,
            ShareId, //
        },
        overhead::ContextCost,
        polls::Polls,
        quota::{
            Counts,
            LimitView,
            Quotas, //
        },
        share_view::{
            FbView,
            ShareView, //
        }, //
    },
    uapi::{
        Limited,
        ManagedMode, //
    }, //
};

/// Most bytes that one object is charged for, unless more was asked: no GPU has as much.
///
/// After a forged size nothing more is granted. The calls in flight then, one for each thread,
/// cannot fill a `u64` with this.
const LARGEST: u64 = 1 << 40;

/// How far memory of an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Asked of the driver, which has not answered yet.
    Asked,
    /// The driver has given it.
    Given,
}

/// The kind of bytes in [`Claim::amount`]: no object has both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    /// Bytes that the object shows.
    Bytes,
    /// Bytes of page tables, all of which were there from the beginning.
    Tables,
    /// Bytes of page tables that come one after the other: see [`Ledger::grow`].
    Growing,
    /// Bytes in the pools of a group: see [`Ledger::grow_pools`].
    Pools,
    /// Bytes of the host's memory.
    Host,
}

/// The memory that an object takes of one ledger. Only [`Ledger::reserve`] and
/// [`Ledger::claim_host`] make one, and only [`Ledger::release`] ends one.
///
/// There is one for each object, so it is packed: 12 bytes in the place of 16.
#[derive(Debug)]
#[must_use = "a claim must be released one day"]
#[repr(Rust, packed(4))]
pub(super) struct Claim {
    amount: u64,
    share: ShareId,
    of: Amount,
    stage: Stage,
    ids: TakenIds,
}

impl Claim {
    /// The share whose ledger it is of.
    pub(super) fn share(&self) -> ShareId {
        self.share
    }

    /// The driver has given it.
    pub(super) fn is_given(&self) -> bool {
        self.stage == Stage::Given
    }

    /// Bytes that the object shows.
    pub(super) fn bytes(&self) -> u64 {
        match self.of {
            Amount::Bytes => self.amount,
            Amount::Tables | Amount::Growing | Amount::Pools | Amount::Host => 0,
        }
    }

    /// Bytes of page tables.
    pub(super) fn tables(&self) -> u64 {
        match self.of {
            Amount::Bytes | Amount::Pools | Amount::Host => 0,
            Amount::Tables | Amount::Growing => self.amount,
        }
    }

    /// Bytes of pools.
    pub(super) fn pools(&self) -> u64 {
        match self.of {
            Amount::Pools => self.amount,
            _ => 0,
        }
    }

    /// Bytes of the host's memory.
    fn host(&self) -> u64 {
        match self.of {
            Amount::Host => self.amount,
            _ => 0,
        }
    }

    /// The ids that it has taken.
    pub(super) fn ids(&self) -> TakenIds {
        self.ids
    }

    /// The object was asked for without a size, and gets page tables as it is used.
    pub(super) fn grows(&self) -> bool {
        let empty = self.of == Amount::Bytes && self.amount == 0;
        self.is_given() && (empty || self.of == Amount::Growing)
    }
}

/// The room for page tables that come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TablesRoom {
    /// It is there, or the share is charged beyond its limit.
    Free,
    /// Managed memory is about to make it: see [`Ledger::lend_tables`].
    Lent,
}

/// A change of a GPU's managed memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct ManagedChange {
    /// Bytes that count. More of them must fit.
    pub(super) counted: Change,
    /// Bytes that are spilled.
    pub(super) spilled: Change,
    /// Bytes that are in host memory, or are being brought there. More of them must fit.
    pub(super) host: Change,
    /// Bytes of page tables.
    pub(super) tables: Change,
}

/// Sums of what is asked of the driver, or of what it has given.
#[derive(Debug, Default)]
struct Sums {
    /// Bytes that objects show.
    bytes: u64,
    /// Bytes of page tables, with those that a context's cost has in it.
    tables: u64,
    /// Bytes in the pools of groups.
    pools: u64,
    contexts: u64,
}

impl Sums {
    fn add(&mut self, claim: &Claim) {
        // No overflow: what is asked for fits below the limit, and a commit cuts what is given.
        self.bytes += claim.bytes();
        self.tables = self.tables.saturating_add(claim.tables());
        self.pools = self.pools.saturating_add(claim.pools());
        self.contexts += u64::from(claim.ids.makes_context());
    }

    fn subtract(&mut self, claim: &Claim) {
        lower(&mut self.bytes, claim.bytes());
        lower(&mut self.tables, claim.tables());
        lower(&mut self.pools, claim.pools());
        lower(&mut self.contexts, u64::from(claim.ids.makes_context()));
    }
}

/// The sums that stand against the limit.
#[derive(Debug, Default)]
struct Holdings {
    asked: Sums,
    given: Sums,
    /// Bytes of managed memory that count.
    managed: u64,
    /// Bytes of managed memory that do not count.
    spilled: u64,
}

/// The accounting of one share.
#[derive(Debug)]
pub(super) struct Ledger {
    share: ShareId,
    gpu: GpuId,
    /// The share exists. One that was taken away stays until all that it was charged is credited.
    pub(super) active: bool,
    limit: u64,
    held: Holdings,
    peaks: Peaks,
    /// Objects and charges of this ledger, those in flight included, and UVM's files.
    users: u64,
    /// Live objects at or below a device object of the GPU.
    pub(super) objects: u64,
    /// Clients with a device object of the GPU.
    pub(super) clients: u64,
    /// Bytes of page tables that the driver may keep for ranges that it has refused: see
    /// [`Ledger::keep_tables`]. They are among those that it has given.
    kept_tables: u64,
    /// By how much it may be over its limit for a moment: see [`Ledger::lend_tables`].
    lent: u64,
    /// The share is over its limit.
    over: bool,
    /// How often the share came to be over its limit.
    over_count: u64,
    /// How often that began or ended.
    over_changes: u64,
    pub(super) refusals: Refusals,
    /// The cost of contexts here.
    pub(super) cost: ContextCost,
    pub(super) managed_mode: ManagedMode,
    /// The tenant's rights on the GPU.
    pub(super) capabilities: Capabilities,
    pub(super) boosters: Boosters,
    pub(super) polls: Polls,
    /// How the GPU's engines share its runlists.
    pub(super) engines: Engines,
    /// The ids of groups and channels.
    pub(super) channels: ChannelIds,
    /// The other limits.
    pub(super) quotas: Quotas,
}

impl Ledger {
    pub(super) fn new(share: ShareId, gpu: GpuId, limit: u64) -> Self {
        Self {
            share,
            gpu,
            active: true,
            limit,
            held: Holdings::default(),
            peaks: Peaks::default(),
            users: 0,
            objects: 0,
            clients: 0,
            kept_tables: 0,
            lent: 0,
            over: false,
            over_count: 0,
            over_changes: 0,
            refusals: Refusals::default(),
            cost: ContextCost::LARGEST,
            managed_mode: ManagedMode::default(),
            capabilities: Capabilities::DEFAULT,
            boosters: Boosters::default(),
            polls: Polls::default(),
            engines: Engines::of(0, false),
            channels: ChannelIds::new(),
            quotas: Quotas::new(),
        }
    }

    pub(super) fn gpu(&self) -> GpuId {
        self.gpu
    }

    /// Bytes of managed memory that count.
    pub(super) fn managed(&self) -> u64 {
        self.held.managed
    }

    /// How often the share came to be over its limit or came back below it.
    pub(super) fn over_changes(&self) -> u64 {
        self.over_changes
    }

    /// The state of the share, as it is told.
    pub(super) fn view(&self) -> ShareView {
        let overhead = self.overhead();
        let asked = self.overhead_with(&Demand::NONE).saturating_sub(overhead);
        ShareView {
            limit: self.limit,
            used: self.held.given.bytes,
            reserved: self.held.asked.bytes.saturating_add(asked),
            overhead,
            peak: self.peaks.used,
            overhead_peak: self.peaks.overhead,
            over_count: self.over_count,
            refused: self.refusals.limit,
            refused_calls: self.refusals.calls,
            objects: self.objects,
            clients: self.clients,
            managed_mode: self.managed_mode,
            managed: self.held.managed,
            managed_peak: self.peaks.managed,
            spilled: self.held.spilled,
            managed_refused: self.refusals.managed,
            channel_limit: self.channels.limit(),
            channels: self.channels.most(),
            channels_refused: self.channels.refused(),
        }
    }

    /// Whether there may be so much more of what is limited, beside what the tenant has on no GPU.
    pub(super) fn has_room(&mut self, what: Limited, more: u64, common: &Counts) -> bool {
        self.quotas.has_room(what, more, common, self.limit)
    }

    /// How much more of a thing there may be, beside what the tenant has on no GPU.
    pub(super) fn room(&self, what: Limited, common: &Counts) -> u64 {
        self.quotas.room(what, common, self.limit)
    }

    /// A limit of the share and what counts against it.
    pub(super) fn limit_view(&self, what: Limited, common: &Counts) -> LimitView {
        self.quotas.view(what, common, self.limit)
    }

    /// The tenant's view of the GPU's memory.
    pub(super) fn fb_view(&self) -> FbView {
        let bar1 = self.limit_view(Limited::Bar1, &Counts::NONE);
        FbView {
            limit: self.limit,
            free: self.free(),
            free_bar1: bar1.limit.saturating_sub(bar1.used),
        }
    }

    /// All bytes that stand against the limit, reserved ones included.
    fn taken(&self) -> u64 {
        self.taken_with(&Demand::NONE)
    }

    /// The same with the invisible part of a demand.
    fn taken_with(&self, more: &Demand) -> u64 {
        let bytes = self.held.given.bytes.saturating_add(self.held.asked.bytes);
        bytes
            .saturating_add(self.held.managed)
            .saturating_add(self.overhead_with(more))
    }

    /// Bytes that may still be taken.
    pub(super) fn free(&self) -> u64 {
        self.limit.saturating_sub(self.taken())
    }

    /// How much more is taken than the limit allows.
    pub(super) fn excess(&self) -> u64 {
        self.taken().saturating_sub(self.limit)
    }

    /// Nothing is charged or asked for, no object is there or coming, and nothing names the share.
    pub(super) fn is_clear(&self) -> bool {
        let held = &self.held;
        let sums_are_clear = held.managed == 0 && held.spilled == 0 && held.given.tables == 0;
        self.users == 0 && sums_are_clear && self.quotas.counts.are_clear()
    }

    /// The cost of the contexts, page tables and pools that the driver has given.
    fn overhead(&self) -> u64 {
        let given = &self.held.given;
        let cost = self.cost.with_tables(given.contexts, given.tables);
        cost.saturating_add(given.pools)
    }

    /// The cost of all contexts, page tables and pools: given, asked for, and these.
    fn overhead_with(&self, more: &Demand) -> u64 {
        let (asked, given) = (&self.held.asked, &self.held.given);
        let contexts = u64::from(more.ids.makes_context())
            .saturating_add(asked.contexts)
            .saturating_add(given.contexts);
        let tables = more.tables.saturating_add(asked.tables);
        let pools = more.pools.saturating_add(asked.pools);
        self.cost
            .with_tables(contexts, tables.saturating_add(given.tables))
            .saturating_add(pools.saturating_add(given.pools))
    }

    /// How much less is free with so many bytes of page tables more.
    pub(super) fn price_of_tables(&self, bytes: u64) -> u64 {
        // A context has the first page tables in its price. One that is asked for may not come;
        // tables that are asked for may.
        let (asked, given) = (&self.held.asked, &self.held.given);
        let tables = asked.tables.saturating_add(given.tables);
        let price = |tables| self.cost.with_tables(given.contexts, tables);
        price(tables.saturating_add(bytes)).saturating_sub(price(tables))
    }

    /// Changes what stands against the limit. Every change is made here that can lead to a peak or
    /// over the limit.
    fn change(&mut self, change: impl FnOnce(&mut Holdings)) {
        change(&mut self.held);
        let overhead = self.overhead();
        self.peaks.used = self.peaks.used.max(self.held.given.bytes);
        self.peaks.overhead = self.peaks.overhead.max(overhead);
        self.peaks.managed = self.peaks.managed.max(self.held.managed);
        self.compare();
    }

    /// Whether it is over its limit now.
    fn compare(&mut self) {
        let excess = self.excess();
        self.lent = self.lent.min(excess);
        let over = excess > self.lent;
        if over != self.over {
            self.over = over;
            self.over_changes = self.over_changes.wrapping_add(1);
            self.over_count = self.over_count.saturating_add(u64::from(over));
        }
    }

    pub(super) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.compare();
    }

    /// Sets memory and ids aside, or says what there is not enough of.
    pub(super) fn reserve(&mut self, demand: Demand) -> Result<Claim, RefusalCause> {
        let (amount, of) = match (demand.bytes, demand.tables) {
            (0, 0) if demand.ids != TakenIds::NONE => (demand.pools, Amount::Pools),
            (bytes, 0) => (bytes, Amount::Bytes),
            (0, tables) => (tables, Amount::Tables),
            // Of what has both, all is shown.
            (bytes, tables) => (bytes.saturating_add(tables), Amount::Bytes),
        };
        self.channels.take(demand.ids)?;
        let claim = Claim {
            amount,
            share: self.share,
            of,
            stage: Stage::Asked,
            ids: demand.ids,
        };
        let taken = self.taken();
        let free = self.limit.saturating_sub(taken);
        let invisible = Demand {
            tables: claim.tables(),
            pools: claim.pools(),
            ..demand
        };
        let overhead = self.taken_with(&invisible).saturating_sub(taken);
        match claim.bytes().checked_add(overhead) {
            Some(wanted) if wanted <= free => {
                self.users += 1;
                // No peak, for those are of what is given; and what fits leaves the share as far
                // over its limit as it was, which is not at all if it takes anything.
                self.held.asked.add(&claim);
                debug_assert_eq!(self.over, self.excess() > self.lent);
                Ok(claim)
            }
            wanted => {
                self.channels.give(claim.ids);
                let wanted = wanted.unwrap_or(u64::MAX);
                Err(self.refuse(RefusalCause::NoMemory { wanted, free }))
            }
        }
    }

    /// A claim to memory of the host, which was counted ([`Limited::HostMemory`]).
    pub(super) fn claim_host(&mut self, bytes: u64) -> Claim {
        self.users += 1;
        Claim {
            amount: bytes,
            share: self.share,
            of: Amount::Host,
            stage: Stage::Asked,
            ids: TakenIds::NONE,
        }
    }

    /// A group's claim takes so many bytes more for its pools, if there is room for them.
    pub(super) fn grow_pools(&mut self, claim: &mut Claim, bytes: u64) -> Result<(), RefusalCause> {
        debug_assert!(claim.share() == self.share);
        let free = self.free();
        if bytes > free {
            let wanted = bytes;
            return Err(self.refuse(RefusalCause::NoMemory { wanted, free }));
        }
        claim.amount = claim.amount.saturating_add(bytes);
        self.change(|held| held.given.pools = held.given.pools.saturating_add(bytes));
        Ok(())
    }

    /// A claim that [grows](Claim::grows) takes so many bytes of page tables more, as
    /// [`Self::take_tables`] does.
    pub(super) fn grow(&mut self, claim: &mut Claim, tables: u64, room: TablesRoom) {
        debug_assert!(claim.share() == self.share && claim.grows());
        claim.of = Amount::Growing;
        claim.amount = claim.amount.saturating_add(tables);
        self.take_tables(Change::more(tables), room);
    }

    /// The driver gave what was reserved, or more: it says that the object has so many bytes.
    ///
    /// Gives the bytes that are charged from now on; `None`: the driver had given it before.
    pub(super) fn commit(&mut self, claim: &mut Claim, bytes: u64) -> Option<u64> {
        debug_assert!(claim.share() == self.share);
        if claim.stage == Stage::Given {
            return None;
        }
        if claim.of == Amount::Host {
            let more = bytes.min(LARGEST).saturating_sub(claim.amount);
            self.quotas.counts.raise(Limited::HostMemory, more);
            claim.amount = claim.amount.saturating_add(more);
        }
        self.change(|held| {
            held.asked.subtract(claim);
            // An object of page tables alone shows no size.
            if claim.of == Amount::Bytes {
                // A forged size must leave room for what other calls in flight will add: what is
                // cut off there would come back whole with the forged one's end.
                let bytes = bytes.min(LARGEST).max(claim.amount);
                claim.amount = bytes.min(u64::MAX - held.given.bytes);
            }
            claim.stage = Stage::Given;
            held.given.add(claim);
        });
        Some(claim.bytes())
    }

    /// The driver gave nothing, or has it back.
    pub(super) fn release(&mut self, claim: Claim) {
        debug_assert!(claim.share() == self.share);
        lower(&mut self.users, 1);
        self.channels.give(claim.ids);
        self.quotas.counts.lower(Limited::HostMemory, claim.host());
        match claim.stage {
            Stage::Asked => self.held.asked.subtract(&claim),
            Stage::Given => self.held.given.subtract(&claim),
        }
        self.compare();
        self.end_kept_tables();
    }

    /// Whether there is room for page tables more and page tables less.
    pub(super) fn check_tables(&self, change: Change) -> Result<(), RefusalCause> {
        let wanted = self.price_of_tables(change.more.saturating_sub(change.less));
        let free = self.free();
        if wanted > free {
            return Err(RefusalCause::NoMemory { wanted, free });
        }
        Ok(())
    }

    /// There are page tables more and page tables less.
    pub(super) fn take_tables(&mut self, change: Change, room: TablesRoom) {
        match room {
            TablesRoom::Free => self.move_tables(change),
            TablesRoom::Lent => self.lend_tables(change),
        }
    }

    /// The same, room or not.
    pub(super) fn move_tables(&mut self, tables: Change) {
        self.change(|held| tables.apply(&mut held.given.tables));
    }

    /// The same for tables for which managed memory is about to make room: until it has, the share
    /// is not said to be over its limit because of them.
    pub(super) fn lend_tables(&mut self, tables: Change) {
        let before = self.excess();
        tables.apply(&mut self.held.given.tables);
        let more = self.excess().saturating_sub(before);
        self.lent = self.lent.saturating_add(more);
        self.change(|_| ());
    }

    /// Managed memory came, went, or was moved to or from host memory. Page tables for which there
    /// is no room are [lent](Ledger::lend_tables).
    pub(super) fn move_managed(&mut self, change: &ManagedChange) {
        self.change(|held| {
            change.counted.apply(&mut held.managed);
            change.spilled.apply(&mut held.spilled);
        });
        let counts = &mut self.quotas.counts;
        counts.change(Limited::HostMemory, change.host);
        self.lend_tables(change.tables);
    }

    /// A call is refused for want of memory.
    pub(super) fn refuse(&mut self, cause: RefusalCause) -> RefusalCause {
        self.refusals.limit = self.refusals.limit.saturating_add(1);
        cause
    }

    /// An object is, or will be, at or below a device of this GPU, or a UVM file has the GPU.
    pub(super) fn enter(&mut self) {
        self.users += 1;
    }

    /// One of those is gone.
    pub(super) fn leave(&mut self) {
        lower(&mut self.users, 1);
        self.end_kept_tables();
    }
}

mod history;
mod kept;
#[cfg(test)]
mod tests;
