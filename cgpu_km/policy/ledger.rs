// SPDX-License-Identifier: GPL-2.0
//! One GPU's side of the books: a limit and what stands against it, in bytes.
//!
//! A [`Reservation`] is made before the driver is asked and becomes a [`Charge`] or is dropped back
//! afterwards. `used + overhead + reserved <= limit` holds at all times, with two exceptions: the limit
//! was lowered below it, or the driver gave more than was reserved. Then nothing more is granted
//! until enough is freed, and the share says that it is over.

use super::event::GpuId;
use super::MAX_SHARES;
use crate::nvidia::capability::Capabilities;
use crate::store::{Exhausted, List};

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
    /// Taken invisibly by compute contexts; counts against the limit as well.
    pub overhead: u64,
    /// The most that `used` ever was.
    pub peak: u64,
    /// The most that `overhead` ever was.
    pub overhead_peak: u64,
    /// Calls refused because the limit was reached.
    pub refused: u64,
    /// Calls refused for any other reason; those that concern no GPU in particular count on each.
    pub refused_calls: u64,
    /// Live RM objects at or below a device object of this GPU.
    pub objects: u64,
    /// RM clients with a device object of this GPU.
    pub clients: u64,
}

impl ShareView {
    /// What may still be taken.
    pub fn free(&self) -> u64 {
        self.limit
            .saturating_sub(self.used)
            .saturating_sub(self.overhead)
            .saturating_sub(self.reserved)
    }

    /// More is taken than the limit allows, since it was lowered.
    pub fn over(&self) -> bool {
        let taken = self.used.saturating_add(self.overhead);
        taken.saturating_add(self.reserved) > self.limit
    }
}

/// Memory asked of the driver. Goes to [`Ledger::commit`] or to [`Ledger::abandon`].
#[derive(Debug)]
#[must_use = "reserved memory must be committed or given back"]
pub(super) struct Reservation {
    bytes: u64,
    overhead: u64,
}

/// Memory that the driver has given. Goes to [`Ledger::credit`].
#[derive(Debug)]
#[must_use = "charged memory must be credited one day"]
pub(super) struct Charge {
    bytes: u64,
    overhead: u64,
}

impl Charge {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The books of one share.
#[derive(Debug)]
pub(super) struct Ledger {
    gpu: GpuId,
    /// The share exists. One that was taken away stays until all that it was charged is credited.
    active: bool,
    /// What refers to this ledger: objects and charges, those in flight included.
    users: u64,
    /// What the tenant may do with the GPU.
    capabilities: Capabilities,
    view: ShareView,
}

impl Ledger {
    fn new(gpu: GpuId, limit: u64) -> Self {
        Self {
            gpu,
            active: true,
            users: 0,
            capabilities: Capabilities::DEFAULT,
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

    /// Nothing is charged or asked for.
    fn is_clear(&self) -> bool {
        self.users == 0
    }

    /// Sets memory aside, or says how much there is.
    pub(super) fn reserve(&mut self, bytes: u64, overhead: u64) -> Result<Reservation, u64> {
        let free = self.view.free();
        match bytes.checked_add(overhead) {
            Some(wanted) if wanted <= free => {
                // No overflow: all three are together below the limit.
                self.view.reserved += wanted;
                self.users += 1;
                Ok(Reservation { bytes, overhead })
            }
            _ => {
                self.view.refused = self.view.refused.saturating_add(1);
                Err(free)
            }
        }
    }

    /// The driver gave what was reserved, or more.
    pub(super) fn commit(&mut self, reservation: Reservation, bytes: u64) -> Charge {
        let Reservation {
            bytes: asked,
            overhead,
        } = reservation;
        let view = &mut self.view;
        view.reserved = view.reserved.saturating_sub(asked.saturating_add(overhead));
        // More than a u64 holds cannot be on a GPU; a driver that says so leaves what can be counted.
        let bytes = bytes.max(asked).min(u64::MAX - view.used);
        let overhead = overhead.min(u64::MAX - view.overhead);
        view.used += bytes;
        view.overhead += overhead;
        view.peak = view.peak.max(view.used);
        view.overhead_peak = view.overhead_peak.max(view.overhead);
        Charge { bytes, overhead }
    }

    /// The driver gave nothing.
    pub(super) fn abandon(&mut self, reservation: Reservation) {
        let Reservation { bytes, overhead } = reservation;
        let view = &mut self.view;
        view.reserved = view.reserved.saturating_sub(bytes.saturating_add(overhead));
        self.users = self.users.saturating_sub(1);
    }

    /// The driver has it back.
    pub(super) fn credit(&mut self, charge: Charge) {
        let Charge { bytes, overhead } = charge;
        self.view.used = self.view.used.saturating_sub(bytes);
        self.view.overhead = self.view.overhead.saturating_sub(overhead);
        self.users = self.users.saturating_sub(1);
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
            ledger.view.limit = limit;
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
            .map(|ledger| ledger.view.limit = limit)
            .is_some()
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

    /// Nothing is charged or asked for on any GPU.
    pub(super) fn are_clear(&self) -> bool {
        self.0.iter().all(Ledger::is_clear)
    }

    fn active_mut(&mut self, gpu: GpuId) -> Option<&mut Ledger> {
        self.0.iter_mut().find(|l| l.active && l.gpu == gpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GPU: GpuId = GpuId(0);

    #[test]
    fn a_request_is_granted_up_to_the_limit_and_not_one_byte_beyond() {
        for (bytes, granted) in [(MIB - 1, true), (MIB, true), (MIB + 1, false)] {
            let mut ledger = Ledger::new(GPU, MIB);
            let reservation = ledger.reserve(bytes, 0);
            assert_eq!(reservation.is_ok(), granted, "{bytes} of {MIB}");
            match reservation {
                Ok(reservation) => {
                    assert_eq!(ledger.view().reserved, bytes);
                    assert_eq!(ledger.view().refused, 0);
                    ledger.abandon(reservation);
                }
                Err(free) => {
                    assert_eq!(free, MIB);
                    assert_eq!(ledger.view().refused, 1);
                }
            }
            assert_eq!(ledger.view().free(), MIB);
            assert!(ledger.is_clear());
        }
    }

    #[test]
    fn overhead_counts_against_the_limit_and_shows_in_neither_used_nor_peak() {
        for (bytes, granted) in [(MIB - 11, true), (MIB - 10, true), (MIB - 9, false)] {
            let mut ledger = Ledger::new(GPU, MIB);
            let reservation = ledger.reserve(bytes, 10);
            assert_eq!(reservation.is_ok(), granted, "{bytes} + 10 of {MIB}");
            let Ok(reservation) = reservation else {
                continue;
            };
            let charge = ledger.commit(reservation, bytes);
            assert_eq!(ledger.view().used, bytes);
            assert_eq!(ledger.view().peak, bytes);
            assert_eq!(ledger.view().overhead, 10);
            assert_eq!(ledger.view().free(), MIB - bytes - 10);
            ledger.credit(charge);
            assert_eq!(ledger.view().free(), MIB);
            assert_eq!(ledger.view().peak, bytes);
            assert_eq!(ledger.view().overhead_peak, 10);
        }
    }

    #[test]
    fn what_the_driver_says_can_raise_a_charge_and_never_lower_it() {
        let mut ledger = Ledger::new(GPU, MIB);
        let reservation = ledger.reserve(100, 0).unwrap();
        let low = ledger.commit(reservation, 1);
        assert_eq!(ledger.view().used, 100);
        let reservation = ledger.reserve(100, 0).unwrap();
        let high = ledger.commit(reservation, 2 * MIB);
        assert_eq!(ledger.view().used, 2 * MIB + 100);
        assert!(ledger.view().over());
        assert_eq!(ledger.view().free(), 0);
        ledger.credit(high);
        ledger.credit(low);
        assert_eq!(ledger.view().used, 0);
    }

    #[test]
    fn a_request_that_overflows_a_u64_is_refused() {
        let mut ledger = Ledger::new(GPU, u64::MAX);
        assert!(ledger.reserve(u64::MAX, 1).is_err());
        let reservation = ledger.reserve(u64::MAX, 0).unwrap();
        assert!(ledger.reserve(1, 0).is_err());
        let charge = ledger.commit(reservation, u64::MAX);
        assert_eq!(ledger.view().used, u64::MAX);
        ledger.credit(charge);
        assert_eq!(ledger.view().used, 0);
    }

    #[test]
    fn a_share_that_was_taken_away_keeps_its_place_until_it_is_clear() {
        let mut ledgers = Ledgers::new();
        ledgers.open(GPU, MIB).unwrap();
        let share = ledgers.of(GPU).unwrap();
        let reservation = ledgers.get_mut(share).unwrap().reserve(5, 0).unwrap();
        ledgers.close(GPU);
        assert_eq!(ledgers.of(GPU), None);
        ledgers.open(GpuId(1), MIB).unwrap();
        assert_ne!(ledgers.of(GpuId(1)), Some(share));
        ledgers.get_mut(share).unwrap().abandon(reservation);
        ledgers.open(GpuId(2), MIB).unwrap();
        assert_eq!(ledgers.of(GpuId(2)), Some(share));
    }
}
