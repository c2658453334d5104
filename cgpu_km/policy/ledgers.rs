// SPDX-License-Identifier: GPL-2.0
//! The ledgers of one tenant: which GPU has which.

use crate::{
    nvidia::capability::Capabilities,
    policy::{
        ids::{GpuId, ShareId, MAX_SHARES},
        ledger::Ledger,
    },
    store::{Exhausted, List},
    uapi::ManagedMode,
};

/// The tenant has no share of that GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchShare;

/// The ledgers of one tenant. Few: looked through in order.
#[derive(Debug, Default)]
pub(super) struct Ledgers(List<Ledger>);

impl Ledgers {
    /// Opens a share, or brings one back that was taken away and is still charged.
    pub(super) fn open(&mut self, gpu: GpuId, limit: u64) -> Result<(), Exhausted> {
        if let Some(ledger) = self.known(gpu) {
            ledger.active = true;
            ledger.set_limit(limit);
            ledger.managed_mode = ManagedMode::default();
            ledger.capabilities = Capabilities::DEFAULT;
            return Ok(());
        }
        let vacant = |(_, ledger): &(ShareId, &mut Ledger)| !ledger.active && ledger.is_clear();
        if let Some((share, ledger)) = self.each_mut().find(vacant) {
            *ledger = Ledger::new(share, gpu, limit);
            return Ok(());
        }
        if self.0.len() >= MAX_SHARES {
            return Err(Exhausted);
        }
        let next = ShareId::at(self.0.len()).ok_or(Exhausted)?;
        self.0.push(Ledger::new(next, gpu, limit))
    }

    /// Takes a share away. Its charges stay until they are credited.
    pub(super) fn close(&mut self, gpu: GpuId) {
        if let Ok(ledger) = self.active_mut(gpu) {
            ledger.active = false;
        }
    }

    /// All ledgers with their shares, those of shares that were taken away included.
    pub(super) fn each(&self) -> impl Iterator<Item = (ShareId, &Ledger)> {
        (0..).map_while(ShareId::at).zip(self.0.iter())
    }

    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = (ShareId, &mut Ledger)> {
        (0..).map_while(ShareId::at).zip(self.0.iter_mut())
    }

    /// The tenant's rights on any of its GPUs.
    pub(super) fn all_capabilities(&self) -> Capabilities {
        let active = self.0.iter().filter(|ledger| ledger.active);
        active.fold(Capabilities::NONE, |all, ledger| {
            all.or(ledger.capabilities)
        })
    }

    /// The share of a GPU, if the tenant has one now.
    pub(super) fn of(&self, gpu: GpuId) -> Option<ShareId> {
        let index = self.0.iter().position(|l| l.active && l.gpu() == gpu)?;
        ShareId::at(index)
    }

    /// The ledger of a GPU, that of a share which was taken away included.
    pub(super) fn known(&mut self, gpu: GpuId) -> Option<&mut Ledger> {
        self.0.iter_mut().find(|ledger| ledger.gpu() == gpu)
    }

    /// The ledger of a GPU of which the tenant has a share now.
    pub(super) fn on(&self, gpu: GpuId) -> Option<&Ledger> {
        self.get(self.of(gpu)?)
    }

    pub(super) fn is_active(&self, share: ShareId) -> bool {
        self.get(share).is_some_and(|ledger| ledger.active)
    }

    pub(super) fn get(&self, share: ShareId) -> Option<&Ledger> {
        self.0.get(share.index())
    }

    pub(super) fn get_mut(&mut self, share: ShareId) -> Option<&mut Ledger> {
        self.0.get_mut(share.index())
    }

    /// Counts a call that was refused for another reason than the limit.
    pub(super) fn count_refused_call(&mut self, gpu: Option<GpuId>) {
        for ledger in self.0.iter_mut() {
            if gpu.is_none_or(|gpu| gpu == ledger.gpu()) {
                let calls = &mut ledger.refusals.calls;
                *calls = calls.saturating_add(1);
            }
        }
    }

    /// How often a share has come to be over its limit or has come back below it.
    pub(super) fn over_changes(&self) -> u64 {
        let changes = self.0.iter().map(|ledger| ledger.over_changes());
        changes.fold(0, u64::wrapping_add)
    }

    /// Nothing is charged or asked for on any GPU.
    pub(super) fn are_clear(&self) -> bool {
        self.0.iter().all(Ledger::is_clear)
    }

    /// The ledger of a GPU of which the tenant has a share now.
    pub(super) fn active_mut(&mut self, gpu: GpuId) -> Result<&mut Ledger, NoSuchShare> {
        let mut ledgers = self.0.iter_mut();
        let active = ledgers.find(|ledger| ledger.active && ledger.gpu() == gpu);
        active.ok_or(NoSuchShare)
    }
}
