// SPDX-License-Identifier: GPL-2.0
//! A tenant: what everything of one name has in common.
//!
//! A tenant is a name: its instances, one on a GPU, share one control and one UVM node, since a
//! program has one of each for all its GPUs. Everything that changes is in one [`TenantState`] per
//! tenant: who may open what, how many files are open, and the accounting. So "is it in use?" and
//! "take it away" are one step, and no file can be opened in between.

use super::{
    client_handles::ClientHandles,
    driver_refusals::DriverRefusals,
    share::{
        RealNode,
        ShareTerms,
        TenantShare, //
    },
    shared_data::{
        MemoryView,
        SharedData, //
    },
    usage::{
        Patience,
        ToldUsage,
        Usage, //
    }, //
};
use crate::{
    client_locks::ClientLocks,
    nvidia::{
        handle::ClientHandle,
        nvos::Card,
        tables::Tables, //
    },
    os_interface::{
        self,
        rmapi::KernelClient,
        shared_page::{
            DriverPage,
            Shadow, //
        },
        BackingFile,
        Changes,
        Frame,
        LateEnds,
        MustWait,
        OpenFile,
        RwGuard,
        TaskGuard,
        TaskLock,
        Worker, //
    },
    policy::{
        sched::InstanceId,
        Accounting,
        ContextCost,
        FbView,
        FileId,
        GpuId,
        GpuSize, //
    },
    proxy::ClientUse,
    store::Exhausted,
    uapi::{
        Cause,
        Name,
        MAX_GPUS, //
    }, //
};
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

/// Everything that has one name.
#[pin_data]
pub struct Tenant {
    name: Name,
    tables: &'static Tables,
    /// Told when a share comes to be over its limit, or no longer is.
    changes: Arc<Changes>,
    /// Held by the task that makes a client of the driver's.
    clients: Arc<TaskLock>,
    /// Held by the task that has a worker do something.
    jobs: Arc<TaskLock>,
    /// Calls of one client of the driver's, which are kept apart.
    client_locks: Arc<ClientLocks>,
    /// The handles of the clients of all tenants.
    client_handles: Arc<ClientHandles>,
    /// Calls that the driver has refused.
    refusals: DriverRefusals,
    #[pin]
    late_ends: LateEnds,
    /// A report was not told the usage of its shares.
    usage_asked: Atomic<bool>,
    /// Taken after a GPU's division. Held for computations only, never over a call of the driver, a
    /// copy to or from user memory, or the removal of a node or of a `/proc` entry.
    #[pin]
    pub(super) state: Mutex<TenantState>,
}

/// The part of a tenant that changes.
pub(super) struct TenantState {
    pub(super) accounting: Accounting,
    /// [`Accounting::over_changes`] and [`Accounting::boost_changes`] of which those who wait for
    /// them were told.
    over_told: u64,
    boosts_told: u64,
    pub(super) control: RealNode,
    pub(super) uvm: RealNode,
    /// In the order of the GPUs' minors.
    shares: KVec<TenantShare>,
    /// Open files of the control and UVM nodes, for calls on them from elsewhere, in the order of
    /// their numbers.
    pub(super) called_files: KVVec<(FileId, OpenFile)>,
    /// Open files that show objects, or did, in the order of their numbers.
    pub(super) shown_files: KVVec<(FileId, OpenFile)>,
}

/// The part that was taken from a tenant. It is to be dropped without any lock: files are closed,
/// and the last one of a GPU ends its worker.
pub(super) struct Withdrawn {
    _share: TenantShare,
    _control: Option<Arc<BackingFile>>,
    _uvm: Option<Arc<BackingFile>>,
}

/// When a share may be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// When nothing uses it.
    Idle,
    /// Now. A file that is open meanwhile has no GPU any more.
    Always,
}

impl Tenant {
    /// A tenant without instances.
    pub(super) fn new(
        name: Name,
        tables: &'static Tables,
        control: RealNode,
        uvm: RealNode,
        changes: Arc<Changes>,
        client_handles: Arc<ClientHandles>,
    ) -> Result<Arc<Self>> {
        let (clients, jobs) = (TaskLock::new()?, TaskLock::new()?);
        let client_locks = ClientLocks::new()?;
        Arc::pin_init(
            pin_init!(Self {
                name,
                tables,
                changes,
                clients,
                jobs,
                client_locks,
                client_handles,
                refusals: DriverRefusals::new(),
                late_ends <- LateEnds::new(),
                usage_asked: Atomic::new(false),
                state <- new_mutex!(TenantState {
                    accounting: Accounting::new(os_interface::random()),
                    over_told: 0,
                    boosts_told: 0,
                    control,
                    uvm,
                    shares: KVec::new(),
                    called_files: KVVec::new(),
                    shown_files: KVVec::new(),
                }),
            }),
            GFP_KERNEL,
        )
    }

    /// Its name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The tables of the driver's branch, for its programs' calls.
    pub fn tables(&self) -> &'static Tables {
        self.tables
    }

    /// The late ends of its files.
    pub fn late_ends(&self) -> &LateEnds {
        &self.late_ends
    }

    /// Looks into its accounting, alone. `work` computes: it calls nobody.
    pub fn look<R>(&self, work: impl FnOnce(&Accounting) -> R) -> R {
        work(&self.state.lock().accounting)
    }

    /// Works on its accounting, alone. `work` computes: it calls nobody, and copies no user memory.
    pub fn with_accounting<R>(&self, work: impl FnOnce(&mut Accounting) -> R) -> R {
        self.with_state(|state| work(&mut state.accounting))
    }

    /// Works on all that changes. Where a share has come to be over its limit by that, or no longer
    /// is, the tasks that wait for it are told.
    pub(super) fn with_state<R>(&self, work: impl FnOnce(&mut TenantState) -> R) -> R {
        let mut state = self.state.lock();
        let result = work(&mut state);
        let over = state.accounting.over_changes();
        let changed = core::mem::replace(&mut state.over_told, over) != over;
        // In the order in which they happened, so before anybody else changes the accounting.
        while let Some(change) = state.accounting.take_channel_change() {
            let share = state.shares.iter().find(|s| s.gpu.id() == change.gpu);
            if let Some(share) = share {
                let id = InstanceId(share.instance);
                share.gpu.conductor().channel_changed(id, &change);
            }
        }
        while let Some(client) = state.accounting.take_gone_client() {
            self.client_handles.take_back(client);
        }
        let boosts = state.accounting.boost_changes();
        if core::mem::replace(&mut state.boosts_told, boosts) != boosts {
            for share in &state.shares {
                let boost = state.accounting.boost(share.gpu.id());
                let id = InstanceId(share.instance);
                share.gpu.conductor().want_boost(id, boost);
            }
        }
        if self.usage_asked.load(Relaxed) {
            self.usage_asked.store(false, Relaxed);
            state.tell_usage();
        }
        drop(state);
        if changed {
            self.changes.note();
        }
        result
    }

    /// The usage of an instance for a report about all: now, or as it was told last if the lock is
    /// taken for longer than there is `patience`. `None` once it is destroyed.
    pub(super) fn reported_usage(
        &self,
        told: &ToldUsage,
        instance: u32,
        patience: &Patience,
    ) -> Option<Usage> {
        loop {
            if let Some(state) = self.state.try_lock() {
                let usage = state.usage(instance);
                told.set(usage);
                return usage;
            }
            // The task that has the lock tells it, before anything changes after that.
            self.usage_asked.store(true, Relaxed);
            if !patience.waits() {
                return told.get();
            }
        }
    }

    /// The one of its GPUs whose page of shared data is in this frame, and the page.
    pub(super) fn shared_data(&self, frame: Frame) -> Option<(GpuId, Arc<DriverPage>)> {
        let state = self.state.lock();
        state.shares.iter().find_map(|share| {
            let page = share.shared_data.as_ref()?;
            (page.frame() == frame).then(|| (share.gpu.id(), page.clone()))
        })
    }

    /// The page that its files are shown in the place of the driver's one in `frame`, with a use of
    /// it that [`Self::leave_shadow`] ends; `None` if that is no page of shared data.
    pub(super) fn use_shadow(
        self: &Arc<Self>,
        frame: Frame,
    ) -> Result<Option<Arc<Shadow<SharedData>>>> {
        let Some((gpu, page)) = self.shared_data(frame) else {
            return Ok(None);
        };
        if let Some(shadow) = self.enter_shadow(gpu, None) {
            return Ok(Some(shadow));
        }
        // Made without the lock, which it takes.
        let made = SharedData::show(self.clone(), self.tables.shared_data, gpu, page)?;
        let made = Arc::new(made, GFP_KERNEL_ACCOUNT)?;
        // Another thread may have been faster: then its one is taken.
        let shadow = self.enter_shadow(gpu, Some(&made));
        shadow.map(Some).ok_or(ENODEV)
    }

    /// Begins a use of a GPU's page, or of `new` if there is none.
    fn enter_shadow(
        &self,
        gpu: GpuId,
        new: Option<&Arc<Shadow<SharedData>>>,
    ) -> Option<Arc<Shadow<SharedData>>> {
        let mut state = self.state.lock();
        let share = state.shares.iter_mut().find(|s| s.gpu.id() == gpu)?;
        if share.shadow.is_none() {
            share.shadow = Some((new?.clone(), 0));
        }
        let (shadow, users) = share.shadow.as_mut()?;
        *users = users.saturating_add(1);
        Some(shadow.clone())
    }

    /// Ends a use of a page. Without the lock, which is taken to refresh it: the last one waits for
    /// that.
    pub(super) fn leave_shadow(&self, shadow: Arc<Shadow<SharedData>>) {
        let mut state = self.state.lock();
        let is_it = |s: &&mut TenantShare| {
            let own = s.shadow.as_ref();
            own.is_some_and(|(own, _)| Arc::ptr_eq(own, &shadow))
        };
        // None where its instance was destroyed.
        let share = state.shares.iter_mut().find(is_it);
        let unused = share.and_then(|share| {
            let (_, users) = share.shadow.as_mut()?;
            *users = users.saturating_sub(1);
            share.shadow.take_if(|(_, users)| *users == 0)
        });
        drop(state);
        drop(unused);
        drop(shadow);
    }

    /// One of its open control or UVM files.
    pub fn called_file(&self, id: FileId) -> Option<OpenFile> {
        let state = self.state.lock();
        let (_, handle) = state.called_files.get(state.place_of_called(id)?)?;
        Some(handle.clone())
    }

    /// One of its open files that [show an object](TenantFile::keep_in_reach).
    fn shown_file(&self, id: FileId) -> Option<OpenFile> {
        let state = self.state.lock();
        let place = state.place_of_shown(id).ok()?;
        let (_, handle) = state.shown_files.get(place)?;
        Some(handle.clone())
    }

    /// Ends what one of its files shows, if that is still open. It may wait for the tenant.
    pub fn end_mappings(&self, id: FileId) {
        if let Some(handle) = self.shown_file(id) {
            handle.end_mappings();
        }
    }

    /// As [`Self::end_mappings`], but it fails where that would wait.
    pub fn try_end_mappings(&self, id: FileId) -> Result<(), MustWait> {
        self.shown_file(id)
            .map_or(Ok(()), |handle| handle.try_end_mappings())
    }

    /// The worker of one of its GPUs.
    pub fn worker(&self, gpu: GpuId) -> Option<Arc<Worker>> {
        let state = self.state.lock();
        let share = state.shares.iter().find(|s| s.gpu.id() == gpu)?;
        Some(share.worker.clone())
    }

    /// The driver has refused a call of a program's, to open a file, or to map it.
    pub fn note_refusal(&self) {
        self.refusals.note();
    }

    /// Whether a call of a program's would wait now.
    pub fn waits_for_refusals(&self) -> bool {
        self.refusals.is_waiting()
    }

    /// Waits, before a call of a program's, until the driver may refuse it. The caller holds no
    /// lock. `ERESTARTNOINTR` if a signal comes meanwhile.
    #[inline]
    pub fn wait_for_refusals(&self) -> Result {
        self.refusals.wait(&self.name)
    }

    /// Waits until no other task of the tenant makes a client of the driver's, so that a tenant of
    /// many threads has one of them in the driver. It fails if the calling task is killed while it
    /// waits.
    pub fn clients(&self) -> Result<TaskGuard<'_>> {
        self.clients.lock()
    }

    /// Waits in the same way until no other task of the tenant waits for a worker. So a worker's
    /// queue is no longer than there are tenants.
    pub fn jobs(&self) -> Result<TaskGuard<'_>> {
        self.jobs.lock()
    }

    /// A handle for a new client. It counts as used until it is taken back, or the client that got
    /// it is gone from the accounting.
    pub fn give_client(&self) -> Result<ClientHandle> {
        self.client_handles.give()
    }

    /// No client was made with this handle.
    pub fn take_back_client(&self, client: ClientHandle) {
        self.client_handles.take_back(client);
    }

    /// Waits until a call may work on its client of the driver's. It fails if the calling task is
    /// killed while it waits. A task does so for one call at a time.
    pub fn use_client(&self, client_use: ClientUse) -> Result<RwGuard<'_>> {
        self.client_locks.take(client_use)
    }

    /// Keeps the schedulers of its GPUs from the clients that were made on a file. None of these
    /// makes a call on one of them when this returns, and none will.
    pub(super) fn leave_clients_of(&self, file: FileId) {
        let mut left = [const { None }; MAX_GPUS];
        let state = self.state.lock();
        state.accounting.clients_of(file, |client| {
            for (place, share) in left.iter_mut().zip(&state.shares) {
                share.gpu.conductor().leave_client(client);
                *place = Some(share.gpu.clone());
            }
        });
        drop(state);
        for gpu in left.iter().flatten() {
            gpu.conductor().wait_for_call();
        }
    }

    /// The driver's kernel interface, by any of its GPUs: it is the same.
    pub fn driver(&self) -> Option<Arc<KernelClient>> {
        let state = self.state.lock();
        let mut shares = state.shares.iter();
        shares.find_map(|share| share.gpu.conductor().driver())
    }

    /// The same, by this one of its GPUs.
    pub fn driver_of(&self, gpu: GpuId) -> Option<Arc<KernelClient>> {
        let state = self.state.lock();
        let share = state.shares.iter().find(|share| share.gpu.id() == gpu)?;
        share.gpu.conductor().driver()
    }

    /// A program of its is about to have the driver make a channel on this GPU, and the accounting
    /// has it already: makes room for it in the scheduler.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn expect_channel(&self, gpu: GpuId) -> Result<(), Exhausted> {
        let state = self.state.lock();
        let share = state.shares.iter().find(|share| share.gpu.id() == gpu);
        // Without a share there is no channel to schedule.
        let Some(share) = share else {
            return Ok(());
        };
        let (device, id) = (share.gpu.clone(), InstanceId(share.instance));
        let objects = state.accounting.scheduled_objects();
        drop(state);
        device.conductor().expect_channels(id, objects)
    }

    /// Whether this one of its GPUs has a doorbell that is nobody's.
    pub fn has_doorbell(&self, gpu: GpuId) -> bool {
        let driver = self.driver_of(gpu);
        driver.is_some_and(|driver| driver.doorbell().is_some())
    }

    /// The one of its GPUs with this UUID, as UVM names GPUs.
    pub fn gpu_by_uuid(&self, uuid: &[u8; 16]) -> Option<GpuId> {
        let state = self.state.lock();
        let mut shares = state.shares.iter();
        let share = shares.find(|s| s.gpu.facts().uuid == *uuid)?;
        Some(share.gpu.id())
    }

    /// The one of its GPUs with this id, as RM names GPUs.
    pub fn gpu_by_id(&self, id: u32) -> Option<GpuId> {
        let state = self.state.lock();
        let mut shares = state.shares.iter();
        let share = shares.find(|s| s.gpu.facts().gpu_id == id)?;
        Some(share.gpu.id())
    }

    /// The entry of one of its GPUs in the driver's list, in the order of their minors.
    pub fn card(&self, number: usize) -> Option<Card> {
        let state = self.state.lock();
        Some(state.shares.get(number)?.card)
    }

    /// Adds a share with these terms. `EBUSY` if the tenant's last instance is being destroyed.
    pub(super) fn add(&self, share: TenantShare, terms: &ShareTerms) -> Result {
        let (id, locks) = (InstanceId(share.instance), self.client_locks.clone());
        share.gpu.conductor().set_client_locks(id, locks);
        let mut state = self.state.lock();
        if state.control.backing.is_none() {
            return Err(EBUSY);
        }
        state.shares.reserve(1, GFP_KERNEL)?;
        let (gpu, accounting) = (share.gpu.id(), &mut state.accounting);
        accounting.add_share(gpu, terms.limit).map_err(|_| ENOMEM)?;
        let cost = ContextCost::of(share.gpu.facts().architecture);
        // None of these can fail: the share was added above.
        let _ = accounting.set_context_cost(gpu, cost);
        let _ = accounting.set_engines(gpu, share.gpu.facts().engines);
        let _ = accounting.set_channel_limit(gpu, terms.channels);
        let size = GpuSize {
            max_instances: terms.max_instances,
            memory: share.gpu.facts().memory_bytes,
            bar1: share.gpu.facts().bar1_bytes,
            host: share.gpu.facts().host_bytes,
            exports: share.gpu.facts().export_handles,
        };
        let _ = accounting.set_size(gpu, size);
        let _ = accounting.set_capabilities(gpu, terms.capabilities);
        let _ = accounting.set_managed_mode(gpu, terms.managed_mode);
        let minor = share.gpu.facts().minor;
        let mut minors = state.shares.iter().map(|s| s.gpu.facts().minor);
        let place = minors.position(|other| other > minor);
        let place = place.unwrap_or(state.shares.len());
        let inserted = state.shares.insert_within_capacity(place, share);
        inserted.map_err(|_| ENOMEM)?;
        self.refusals.set_gpus(state.shares.len());
        state.tell_usage();
        Ok(())
    }

    /// Takes an instance's share away, and with the last one all that is left. [`Condition::Idle`]
    /// refuses where something is in use: an open file of the instance (or of the tenant, which the
    /// last one takes along), an RM object or memory on the GPU.
    pub(super) fn withdraw(&self, instance: u32, condition: Condition) -> Result<Withdrawn, Cause> {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let place = state.shares.iter().position(|s| s.instance == instance);
        let place = place.ok_or(Cause::NoSuchInstance)?;
        let share = state.shares.get(place).ok_or(Cause::NoSuchInstance)?;
        let gpu = share.gpu.id();
        let is_last = state.shares.len() == 1;
        let files = if is_last {
            share.node.files() | state.control.files() | state.uvm.files()
        } else {
            share.node.files()
        };
        // Objects that a call in flight is making count as well.
        let is_busy = files != 0 || !state.accounting.is_share_idle(gpu);
        if is_busy && condition == Condition::Idle {
            return Err(Cause::Busy);
        }
        let share = state.shares.remove(place);
        let share = share.map_err(|_| Cause::NoSuchInstance)?;
        share.told.set(None);
        state.accounting.remove_share(gpu);
        self.refusals.set_gpus(state.shares.len());
        let mut withdrawn = Withdrawn {
            _share: share,
            _control: None,
            _uvm: None,
        };
        if is_last {
            withdrawn._control = state.control.backing.take();
            withdrawn._uvm = state.uvm.backing.take();
        }
        Ok(withdrawn)
    }

    /// Takes the devices behind the nodes of a tenant that never got an instance: who has opened
    /// one of the nodes meanwhile must not keep the driver.
    pub(super) fn shut(&self) -> (Option<Arc<BackingFile>>, Option<Arc<BackingFile>>) {
        let mut state = self.state.lock();
        (state.control.backing.take(), state.uvm.backing.take())
    }
}

impl MemoryView for Tenant {
    fn fb_view(&self, gpu: GpuId) -> Option<FbView> {
        self.with_accounting(|accounting| accounting.fb_view(gpu))
    }
}

impl TenantState {
    /// The place of a file among those on which calls are made from elsewhere.
    pub(super) fn place_of_called(&self, id: FileId) -> Option<usize> {
        let found = self
            .called_files
            .binary_search_by_key(&id.0, |(file, _)| file.0);
        found.ok()
    }

    /// The place of a file among those that show objects, or the place where it would be.
    pub(super) fn place_of_shown(&self, id: FileId) -> core::result::Result<usize, usize> {
        self.shown_files
            .binary_search_by_key(&id.0, |(file, _)| file.0)
    }

    /// The share of an instance; `None` once it is destroyed.
    pub(super) fn share(&self, instance: u32) -> Option<&TenantShare> {
        self.shares.iter().find(|s| s.instance == instance)
    }

    /// The same, to be changed.
    pub(super) fn share_mut(&mut self, instance: u32) -> Option<&mut TenantShare> {
        self.shares.iter_mut().find(|s| s.instance == instance)
    }

    /// How an instance is used now; `None` once it is destroyed.
    pub(super) fn usage(&self, instance: u32) -> Option<Usage> {
        let tenant_files = self.control.files().saturating_add(self.uvm.files());
        self.share(instance)?.usage(&self.accounting, tenant_files)
    }

    /// Tells the usage of all shares, for reports that do not wait for the lock.
    fn tell_usage(&self) {
        for share in &self.shares {
            share.told.set(self.usage(share.instance));
        }
    }
}
