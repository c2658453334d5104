// SPDX-License-Identifier: GPL-2.0
//! One GPU's side of the accounting: a limit and what stands against it, in bytes.
//!
//! A [`Reservation`] is made before the driver is asked and becomes a [`Charge`] or is dropped back
//! afterwards. `used + overhead + managed + reserved <= limit` holds at all times, with three exceptions: the limit
//! was lowered below it, or the driver gave more than was reserved. Then nothing more is granted
//! until enough is freed, and the share says that it is over. The third: page tables were made for which managed
//! memory is being brought to host memory.

use super::boost::Boosters;
use super::event::GpuId;
use super::overhead::ContextCost;
use super::MAX_SHARES;
use crate::nvidia::capability::Capabilities;
use crate::store::{Exhausted, List};

pub use crate::uapi::ManagedMode;

/// Most bytes that one object is charged for, unless more was asked: no GPU has as much. After a forged one
/// nothing more is granted, and what is in flight then, a call for each thread, cannot fill a `u64` with it.
const LARGEST: u64 = 1 << 40;

/// What a tenant is told about a GPU's memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FbView {
    /// The size that the GPU seems to have.
    pub limit: u64,
    /// What is left of it.
    pub free: u64,
}

/// The state of a tenant's share of one GPU. Memory is in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareView {
    /// The most that may be taken.
    pub limit: u64,
    /// Taken by objects that show a size.
    pub used: u64,
    /// Asked of the driver and not answered yet.
    pub reserved: u64,
    /// Taken invisibly by compute contexts and page tables; counts against the limit as well.
    pub overhead: u64,
    /// The most that `used` ever was.
    pub peak: u64,
    /// The most that `overhead` ever was.
    pub overhead_peak: u64,
    /// How often it came to be over the limit ([`ShareView::over`]).
    pub over_count: u64,
    /// Calls refused because the limit was reached.
    pub refused: u64,
    /// Calls refused for any other reason; those that concern no GPU in particular count on each.
    pub refused_calls: u64,
    /// Live RM objects at or below a device object of this GPU.
    pub objects: u64,
    /// RM clients with a device object of this GPU.
    pub clients: u64,
    /// What becomes of managed memory that does not fit.
    pub managed_mode: ManagedMode,
    /// Managed memory that the GPU may hold; counts against the limit, and is not in `used`.
    pub managed: u64,
    /// The most that `managed` ever was.
    pub managed_peak: u64,
    /// Managed memory that the GPU may not hold, because it did not fit: it is in host memory.
    pub spilled: u64,
    /// Mappings of managed memory that were refused.
    pub managed_refused: u64,
}

impl ShareView {
    /// What may still be taken.
    pub fn free(&self) -> u64 {
        self.limit
            .saturating_sub(self.used)
            .saturating_sub(self.overhead)
            .saturating_sub(self.managed)
            .saturating_sub(self.reserved)
    }

    /// More is taken than the limit allows, since it was lowered.
    pub fn over(&self) -> bool {
        self.excess() > 0
    }

    /// How much more is taken than the limit allows.
    pub fn excess(&self) -> u64 {
        self.used
            .saturating_add(self.overhead)
            .saturating_add(self.managed)
            .saturating_add(self.reserved)
            .saturating_sub(self.limit)
    }
}

/// What an object takes of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// Bytes that it shows.
    pub(super) bytes: u64,
    /// Bytes of page tables, which it does not.
    pub(super) tables: u64,
    /// And a context's.
    pub(super) context: bool,
}

/// Memory asked of the driver. Goes to [`Ledger::commit`] or to [`Ledger::abandon`], by way of a record of it
/// or not.
#[derive(Debug)]
#[must_use = "reserved memory must be committed or given back"]
pub(super) struct Reservation(Demand);

/// Memory that the driver has given. Goes to [`Ledger::credit`], by way of a record of it or not.
#[derive(Debug)]
#[must_use = "charged memory must be credited one day"]
pub(super) struct Charge(Demand);

impl Reservation {
    /// The one of which this was recorded.
    pub(super) fn of(demand: Demand) -> Self {
        Self(demand)
    }
}

impl From<Reservation> for Demand {
    fn from(reservation: Reservation) -> Self {
        reservation.0
    }
}

impl From<Charge> for Demand {
    fn from(charge: Charge) -> Self {
        charge.0
    }
}

impl Charge {
    /// The one of which this was recorded.
    pub(super) fn of(demand: Demand) -> Self {
        Self(demand)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

/// What there is more and what there is less of something, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a change must be told to the ledger"]
pub(super) struct Change {
    pub(super) more: u64,
    pub(super) less: u64,
}

impl Change {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            more: self.more.saturating_add(other.more),
            less: self.less.saturating_add(other.less),
        }
    }
}

/// More was asked for than there is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    /// What was asked for, the invisible part included.
    pub(super) wanted: u64,
    /// What is left.
    pub(super) free: u64,
}

/// The accounting of one share.
#[derive(Debug)]
pub(super) struct Ledger {
    gpu: GpuId,
    /// The share exists. One that was taken away stays until all that it was charged is credited.
    active: bool,
    /// What refers to this ledger: objects and charges, those in flight included.
    users: u64,
    /// What contexts cost here.
    cost: ContextCost,
    /// Contexts asked of the driver and not answered yet.
    asked_contexts: u64,
    /// Contexts that there are.
    contexts: u64,
    /// What of `view.reserved` is not for contexts and page tables.
    asked_bytes: u64,
    /// Page tables asked for.
    asked_tables: u64,
    /// Page tables, in bytes: those that contexts are charged for included.
    tables: u64,
    /// How far it is over its limit for a moment only: see [`Ledger::lend_tables`].
    lent: u64,
    /// The share is over its limit.
    over: bool,
    /// How often that has changed.
    over_changes: u64,
    /// What the tenant may do with the GPU.
    capabilities: Capabilities,
    pub(super) boosters: Boosters,
    view: ShareView,
}

impl Ledger {
    fn new(gpu: GpuId, limit: u64) -> Self {
        Self {
            gpu,
            active: true,
            users: 0,
            cost: ContextCost::LARGEST,
            asked_contexts: 0,
            contexts: 0,
            asked_bytes: 0,
            asked_tables: 0,
            tables: 0,
            lent: 0,
            over: false,
            over_changes: 0,
            capabilities: Capabilities::DEFAULT,
            boosters: Boosters::default(),
            view: ShareView {
                limit,
                ..ShareView::default()
            },
        }
    }

    pub(super) fn gpu(&self) -> GpuId {
        self.gpu
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    pub(super) fn view(&self) -> &ShareView {
        &self.view
    }

    /// Nothing is charged or asked for, and no object is there or coming.
    pub(super) fn is_clear(&self) -> bool {
        self.users == 0 && self.view.managed == 0 && self.view.spilled == 0 && self.tables == 0
    }

    /// Managed memory counts now, and is spilled now, where it was not, or no longer. What counts
    /// more must fit.
    pub(super) fn move_managed(&mut self, counted: (u64, u64), spilled: (u64, u64)) {
        let view = &mut self.view;
        view.managed = view
            .managed
            .saturating_sub(counted.0)
            .saturating_add(counted.1);
        view.managed_peak = view.managed_peak.max(view.managed);
        view.spilled = view
            .spilled
            .saturating_sub(spilled.0)
            .saturating_add(spilled.1);
    }

    /// A call is refused for this.
    pub(super) fn refuse(&mut self, short: Shortage) -> Shortage {
        self.view.refused = self.view.refused.saturating_add(1);
        short
    }

    /// A mapping of managed memory was refused.
    pub(super) fn count_refused_managed(&mut self) {
        self.view.managed_refused = self.view.managed_refused.saturating_add(1);
    }

    /// What the contexts and the page tables cost, and how much of it is only asked for.
    fn overheads(&self) -> (u64, u64) {
        let all = self.overhead_with(0, 0);
        let given = self.cost.with_tables(self.contexts, self.tables);
        (given, all.saturating_sub(given))
    }

    /// What all contexts and page tables cost, those that are asked for and so many more included.
    fn overhead_with(&self, contexts: u64, tables: u64) -> u64 {
        let contexts = contexts.saturating_add(self.asked_contexts);
        let tables = tables.saturating_add(self.asked_tables);
        self.cost.with_tables(
            contexts.saturating_add(self.contexts),
            tables.saturating_add(self.tables),
        )
    }

    /// How much less is free with so many bytes of page tables more.
    pub(super) fn price_of_tables(&self, bytes: u64) -> u64 {
        // Contexts that are asked for may not come, and with them the tables that each has in its price; tables
        // that are asked for may.
        let tables = self.tables.saturating_add(self.asked_tables);
        let with = self
            .cost
            .with_tables(self.contexts, tables.saturating_add(bytes));
        let without = self.cost.with_tables(self.contexts, tables);
        with.saturating_sub(without)
    }

    /// There are page tables more and page tables less, as far as there is room for them.
    pub(super) fn take_tables(&mut self, change: Change) -> Result<(), Shortage> {
        let wanted = self.price_of_tables(change.more.saturating_sub(change.less));
        let free = self.view.free();
        let taken = (wanted <= free).then(|| self.move_tables(change));
        taken.ok_or(Shortage { wanted, free })
    }

    /// The same, room or not.
    pub(super) fn move_tables(&mut self, change: Change) {
        self.change_tables(change);
        self.notice();
    }

    /// The same for tables for which managed memory is about to make room: until it has, the share is not said
    /// to be over its limit for that.
    pub(super) fn lend_tables(&mut self, change: Change) {
        let before = self.view.excess();
        self.change_tables(change);
        let more = self.view.excess().saturating_sub(before);
        self.lent = self.lent.saturating_add(more);
        self.notice();
    }

    fn change_tables(&mut self, change: Change) {
        let tables = self.tables.saturating_add(change.more);
        self.tables = tables.saturating_sub(change.less);
        self.refresh();
    }

    /// Has the view show what the counts say, and takes note of it.
    fn show(&mut self) {
        self.refresh();
        self.notice();
    }

    fn refresh(&mut self) {
        let (overhead, asked) = self.overheads();
        let view = &mut self.view;
        view.overhead = overhead;
        view.overhead_peak = view.overhead_peak.max(overhead);
        view.reserved = self.asked_bytes.saturating_add(asked);
        view.peak = view.peak.max(view.used);
    }

    /// Takes note of whether the share is over its limit now.
    fn notice(&mut self) {
        let excess = self.view.excess();
        self.lent = self.lent.min(excess);
        let over = excess > self.lent;
        if over != self.over {
            self.over = over;
            self.over_changes = self.over_changes.wrapping_add(1);
            self.view.over_count = self.view.over_count.saturating_add(u64::from(over));
        }
    }

    fn set_limit(&mut self, limit: u64) {
        self.view.limit = limit;
        self.notice();
    }

    /// Sets memory aside, or says how much there is.
    pub(super) fn reserve(&mut self, demand: Demand) -> Result<Reservation, Shortage> {
        let free = self.view.free();
        let with = self.overhead_with(u64::from(demand.context), demand.tables);
        let overhead = with.saturating_sub(self.overhead_with(0, 0));
        match demand.bytes.checked_add(overhead) {
            Some(wanted) if wanted <= free => {
                // No overflow: all that is taken is together below the limit.
                self.asked_bytes += demand.bytes;
                self.asked_tables = self.asked_tables.saturating_add(demand.tables);
                self.asked_contexts += u64::from(demand.context);
                self.users += 1;
                self.show();
                Ok(Reservation(demand))
            }
            wanted => {
                let wanted = wanted.unwrap_or(u64::MAX);
                Err(self.refuse(Shortage { wanted, free }))
            }
        }
    }

    /// The driver gave what was reserved, or more.
    pub(super) fn commit(&mut self, reservation: Reservation, bytes: u64) -> Charge {
        let Reservation(asked) = reservation;
        self.unreserve(asked);
        // A forged size must leave room for what other calls in flight will add: what is cut off there
        // would come back whole with the forged one's end.
        let bytes = bytes.min(LARGEST).max(asked.bytes);
        let bytes = bytes.min(u64::MAX - self.view.used);
        self.view.used += bytes;
        self.tables = self.tables.saturating_add(asked.tables);
        self.contexts = self.contexts.saturating_add(u64::from(asked.context));
        self.show();
        Charge(Demand { bytes, ..asked })
    }

    /// The driver gave nothing.
    pub(super) fn abandon(&mut self, reservation: Reservation) {
        self.unreserve(reservation.0);
        self.users = self.users.saturating_sub(1);
        self.show();
    }

    /// The driver has it back.
    pub(super) fn credit(&mut self, charge: Charge) {
        let Charge(given) = charge;
        self.view.used = self.view.used.saturating_sub(given.bytes);
        self.tables = self.tables.saturating_sub(given.tables);
        self.contexts = self.contexts.saturating_sub(u64::from(given.context));
        self.users = self.users.saturating_sub(1);
        self.show();
    }

    fn unreserve(&mut self, asked: Demand) {
        self.asked_bytes = self.asked_bytes.saturating_sub(asked.bytes);
        self.asked_tables = self.asked_tables.saturating_sub(asked.tables);
        self.asked_contexts = self.asked_contexts.saturating_sub(u64::from(asked.context));
    }

    /// An object lives at or below a device object of this GPU, or is on its way there.
    pub(super) fn enter(&mut self) {
        self.users += 1;
    }

    /// An object that entered is gone.
    pub(super) fn leave(&mut self) {
        self.users = self.users.saturating_sub(1);
    }

    pub(super) fn count_object(&mut self) {
        self.view.objects += 1;
    }

    pub(super) fn discount_object(&mut self) {
        self.view.objects = self.view.objects.saturating_sub(1);
    }

    pub(super) fn count_client(&mut self) {
        self.view.clients += 1;
    }

    pub(super) fn discount_client(&mut self) {
        self.view.clients = self.view.clients.saturating_sub(1);
    }

    fn count_refused_call(&mut self) {
        self.view.refused_calls = self.view.refused_calls.saturating_add(1);
    }
}

/// Which of a tenant's ledgers: below [`MAX_SHARES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share(u8);

impl Share {
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The ledgers of one tenant. Few: looked through in order.
#[derive(Debug)]
pub(super) struct Ledgers(List<Ledger>);

impl Ledgers {
    pub(super) const fn new() -> Self {
        Self(List::new())
    }

    /// Opens a share, or brings one back that was taken away and is still charged.
    pub(super) fn open(&mut self, gpu: GpuId, limit: u64) -> Result<(), Exhausted> {
        if let Some(ledger) = self.0.iter_mut().find(|ledger| ledger.gpu == gpu) {
            ledger.active = true;
            ledger.set_limit(limit);
            ledger.view.managed_mode = ManagedMode::default();
            ledger.capabilities = Capabilities::DEFAULT;
            return Ok(());
        }
        let vacant = |ledger: &&mut Ledger| !ledger.active && ledger.is_clear();
        if let Some(ledger) = self.0.iter_mut().find(vacant) {
            *ledger = Ledger::new(gpu, limit);
            return Ok(());
        }
        if self.0.len() >= MAX_SHARES {
            return Err(Exhausted);
        }
        self.0.push(Ledger::new(gpu, limit))
    }

    /// Takes a share away. What it is charged stays until it is credited.
    pub(super) fn close(&mut self, gpu: GpuId) {
        if let Some(ledger) = self.active_mut(gpu) {
            ledger.active = false;
        }
    }

    pub(super) fn set_limit(&mut self, gpu: GpuId, limit: u64) -> bool {
        self.active_mut(gpu)
            .map(|ledger| ledger.set_limit(limit))
            .is_some()
    }

    pub(super) fn set_managed_mode(&mut self, gpu: GpuId, mode: ManagedMode) -> bool {
        self.active_mut(gpu)
            .map(|ledger| ledger.view.managed_mode = mode)
            .is_some()
    }

    /// All ledgers with their shares, those of shares that were taken away included.
    pub(super) fn each(&self) -> impl Iterator<Item = (Share, &Ledger)> {
        (0..).map(Share).zip(self.0.iter())
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = (Share, &mut Ledger)> {
        (0..).map(Share).zip(self.0.iter_mut())
    }

    pub(super) fn set_context_cost(&mut self, gpu: GpuId, cost: ContextCost) -> bool {
        let ledger = self.active_mut(gpu);
        ledger.map(|ledger| ledger.cost = cost).is_some()
    }

    pub(super) fn set_capabilities(&mut self, gpu: GpuId, capabilities: Capabilities) -> bool {
        self.active_mut(gpu)
            .map(|ledger| ledger.capabilities = capabilities)
            .is_some()
    }

    /// What the tenant may do with any of its GPUs.
    pub(super) fn all_capabilities(&self) -> Capabilities {
        let active = self.0.iter().filter(|ledger| ledger.active);
        active.fold(Capabilities::NONE, |all, ledger| {
            all.or(ledger.capabilities)
        })
    }

    /// The share of a GPU, if the tenant has one now.
    pub(super) fn of(&self, gpu: GpuId) -> Option<Share> {
        let index = self.0.iter().position(|l| l.active && l.gpu == gpu)?;
        u8::try_from(index).ok().map(Share)
    }

    /// The ledger of a GPU, that of a share which was taken away included.
    pub(super) fn known(&mut self, gpu: GpuId) -> Option<&mut Ledger> {
        self.0.iter_mut().find(|ledger| ledger.gpu == gpu)
    }

    pub(super) fn is_active(&self, share: Share) -> bool {
        self.get(share).is_some_and(|ledger| ledger.active)
    }

    pub(super) fn get(&self, share: Share) -> Option<&Ledger> {
        self.0.get(share.index())
    }

    pub(super) fn get_mut(&mut self, share: Share) -> Option<&mut Ledger> {
        self.0.get_mut(share.index())
    }

    /// Counts a call that was refused for another reason than the limit.
    pub(super) fn count_refused_call(&mut self, gpu: Option<GpuId>) {
        for ledger in self.0.iter_mut() {
            if gpu.is_none_or(|gpu| gpu == ledger.gpu) {
                ledger.count_refused_call();
            }
        }
    }

    /// How often a share has come to be over its limit or has come back below it.
    pub(super) fn over_changes(&self) -> u64 {
        let changes = self.0.iter().map(|ledger| ledger.over_changes);
        changes.fold(0, u64::wrapping_add)
    }

    /// Nothing is charged or asked for on any GPU.
    pub(super) fn are_clear(&self) -> bool {
        self.0.iter().all(Ledger::is_clear)
    }

    fn active_mut(&mut self, gpu: GpuId) -> Option<&mut Ledger> {
        self.0.iter_mut().find(|l| l.active && l.gpu == gpu)
    }
}

#[cfg(test)]
mod tests;
