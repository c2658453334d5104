// SPDX-License-Identifier: GPL-2.0
//! The ledgers of one tenant: which GPU has which.

use crate::{
    nvidia::capability::Capabilities,
    policy::{
        count::Change,
        ids::{
            GpuId,
            ShareId,
            MAX_SHARES, //
        },
        ledger::Ledger,
        quota::{
            Counts,
            LimitView, //
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

/// The tenant has no share of that GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchShare;

/// The share was taken away, and nothing is left of it.
fn is_vacant(ledger: &Ledger) -> bool {
    !ledger.active && ledger.is_clear()
}

/// The ledgers of one tenant. Few: looked through in order.
#[derive(Debug, Default)]
pub(super) struct Ledgers {
    list: List<Ledger>,
    /// Objects that the tenant has on no GPU: they count on each.
    common: Counts,
}

impl Ledgers {
    /// Opens a share, or brings one back that was taken away. If that is still charged, it goes on
    /// with its charges and its history. Otherwise it is as new.
    ///
    /// A place is another GPU's only if each has been used: files, exports and clients name places.
    pub(super) fn open(&mut self, gpu: GpuId, limit: u64) -> Result<(), Exhausted> {
        let same = |(_, ledger): &(ShareId, &mut Ledger)| ledger.gpu() == gpu;
        if let Some((share, ledger)) = self.each_mut().find(same) {
            if is_vacant(ledger) {
                *ledger = Ledger::new(share, gpu, limit);
                return Ok(());
            }
            ledger.active = true;
            ledger.set_limit(limit);
            ledger.managed_mode = ManagedMode::default();
            ledger.capabilities = Capabilities::DEFAULT;
            return Ok(());
        }
        if self.list.len() < MAX_SHARES {
            let next = ShareId::at(self.list.len()).ok_or(Exhausted)?;
            return self.list.push(Ledger::new(next, gpu, limit));
        }
        let mut all = self.each_mut();
        let vacant = all.find(|(_, ledger)| is_vacant(ledger));
        let (share, ledger) = vacant.ok_or(Exhausted)?;
        *ledger = Ledger::new(share, gpu, limit);
        Ok(())
    }

    /// Takes a share away. Its charges stay until they are credited.
    pub(super) fn close(&mut self, gpu: GpuId) {
        if let Ok(ledger) = self.active_mut(gpu) {
            ledger.active = false;
        }
    }

    /// All ledgers with their shares, those of shares that were taken away included.
    pub(super) fn each(&self) -> impl Iterator<Item = (ShareId, &Ledger)> {
        (0..).map_while(ShareId::at).zip(self.list.iter())
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = (ShareId, &mut Ledger)> {
        (0..).map_while(ShareId::at).zip(self.list.iter_mut())
    }

    /// The tenant's rights on any of its GPUs.
    pub(super) fn all_capabilities(&self) -> Capabilities {
        let active = self.list.iter().filter(|ledger| ledger.active);
        active.fold(Capabilities::NONE, |all, ledger| {
            all.or(ledger.capabilities)
        })
    }

    /// The share of a GPU, if the tenant has one now.
    pub(super) fn of(&self, gpu: GpuId) -> Option<ShareId> {
        let index = self.list.iter().position(|l| l.active && l.gpu() == gpu)?;
        ShareId::at(index)
    }

    /// The ledger of a GPU, that of a share which was taken away included.
    pub(super) fn known(&mut self, gpu: GpuId) -> Option<&mut Ledger> {
        self.list.iter_mut().find(|ledger| ledger.gpu() == gpu)
    }

    /// The ledger of a GPU of which the tenant has a share now.
    pub(super) fn on(&self, gpu: GpuId) -> Option<&Ledger> {
        self.get(self.of(gpu)?)
    }

    /// The same, also if it was taken away.
    pub(super) fn known_share(&self, gpu: GpuId) -> Option<ShareId> {
        let index = self.list.iter().position(|ledger| ledger.gpu() == gpu)?;
        ShareId::at(index)
    }

    pub(super) fn is_active(&self, share: ShareId) -> bool {
        self.get(share).is_some_and(|ledger| ledger.active)
    }

    pub(super) fn get(&self, share: ShareId) -> Option<&Ledger> {
        self.list.get(share.index())
    }

    pub(super) fn get_mut(&mut self, share: ShareId) -> Option<&mut Ledger> {
        self.list.get_mut(share.index())
    }

    /// Counts a call that was refused for another reason than the limit.
    pub(super) fn count_refused_call(&mut self, gpu: Option<GpuId>) {
        for ledger in self.list.iter_mut() {
            if gpu.is_none_or(|gpu| gpu == ledger.gpu()) {
                let calls = &mut ledger.refusals.calls;
                *calls = calls.saturating_add(1);
            }
        }
    }

    /// How often a share has come to be over its limit or has come back below it.
    pub(super) fn over_changes(&self) -> u64 {
        let changes = self.list.iter().map(|ledger| ledger.over_changes());
        changes.fold(0, u64::wrapping_add)
    }

    /// Nothing is charged or asked for on any GPU.
    pub(super) fn are_clear(&self) -> bool {
        self.common.are_clear() && self.list.iter().all(Ledger::is_clear)
    }

    /// Counts so much more of a thing of a share; of none: on each that the tenant has. It fails,
    /// with the name of the thing, if that is too much.
    pub(super) fn count(
        &mut self,
        share: Option<ShareId>,
        what: Limited,
        more: u64,
    ) -> Result<(), Limited> {
        let common = &self.common;
        let Some(share) = share else {
            let mut active = self.list.iter_mut().filter(|ledger| ledger.active);
            let fits = active.all(|ledger| ledger.has_room(what, more, common));
            if !fits {
                return Err(what);
            }
            self.common.raise(what, more);
            return Ok(());
        };
        let ledger = self.list.get_mut(share.index()).ok_or(what)?;
        if !ledger.has_room(what, more, common) {
            return Err(what);
        }
        ledger.quotas.counts.raise(what, more);
        Ok(())
    }

    /// So much of what was counted is gone.
    pub(super) fn uncount(&mut self, share: Option<ShareId>, what: Limited, less: u64) {
        match share {
            None => self.common.lower(what, less),
            Some(share) => {
                if let Some(ledger) = self.list.get_mut(share.index()) {
                    ledger.quotas.counts.lower(what, less);
                }
            }
        }
    }

    /// Changes the count of a thing of no share: one that is known to fit, or that shrinks.
    pub(super) fn change_common(&mut self, what: Limited, change: Change) {
        self.common.change(what, change);
    }

    /// How much more of a thing there may be of no share, on each that the tenant has.
    pub(super) fn common_room(&self, what: Limited) -> u64 {
        let active = self.list.iter().filter(|ledger| ledger.active);
        let rooms = active.map(|ledger| ledger.room(what, &self.common));
        rooms.min().unwrap_or(u64::MAX)
    }

    /// How much more of a thing there may be of a share; nothing, if there is no such share.
    pub(super) fn room(&self, share: ShareId, what: Limited) -> u64 {
        let ledger = self.get(share);
        ledger.map_or(0, |ledger| ledger.room(what, &self.common))
    }

    /// A limit of the tenant's share of a GPU, and what counts against it.
    pub(super) fn limit(&self, gpu: GpuId, what: Limited) -> Option<LimitView> {
        Some(self.on(gpu)?.limit_view(what, &self.common))
    }

    /// The ledger of a GPU of which the tenant has a share now.
    pub(super) fn active_mut(&mut self, gpu: GpuId) -> Result<&mut Ledger, NoSuchShare> {
        let mut ledgers = self.list.iter_mut();
        let active = ledgers.find(|ledger| ledger.active && ledger.gpu() == gpu);
        active.ok_or(NoSuchShare)
    }
}
