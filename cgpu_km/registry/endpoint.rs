// SPDX-License-Identifier: GPL-2.0
//! The object behind a tenant's node, and its open files.

use super::{
    instance::TenantInstance,
    share::RealNode,
    shared_data::SharedData,
    tenant::{
        Tenant,
        TenantState, //
    }, //
};
use crate::{
    os_interface::{
        rmapi::KernelClient,
        shared_page::{
            Shadow,
            ShownPage, //
        },
        BackingFile,
        CopiedBy,
        Doorbell,
        Frame,
        MustWait,
        OpenFile,
        TooManyCopies, //
    },
    policy::{
        FileId,
        GpuId,
        Limited,
        RefusalCause, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SetOnce, //
    }, //
};

/// Number of the next open file. They are never reused: 64 bits are not used up.
static NEXT_FILE: Atomic<u64> = Atomic::new(0);

/// The object behind a node.
pub enum TenantNode {
    /// The GPU of an instance.
    Gpu(Arc<TenantInstance>),
    /// The control device, for a tenant.
    Control(Arc<Tenant>),
    /// The UVM device, for a tenant.
    Uvm(Arc<Tenant>),
}

impl TenantNode {
    /// The tenant that it belongs to.
    pub fn tenant(&self) -> &Arc<Tenant> {
        match self {
            Self::Gpu(instance) => instance.tenant(),
            Self::Control(tenant) | Self::Uvm(tenant) => tenant,
        }
    }

    /// The real device behind it; `ENODEV` once it is destroyed.
    pub fn backing(&self) -> Result<Arc<BackingFile>> {
        let mut state = self.tenant().state.lock();
        self.node(&mut state).ok_or(ENODEV)?.backing()
    }

    /// The GPU that it is for; `None`: for all of its tenant's.
    fn gpu(&self) -> Option<GpuId> {
        match self {
            Self::Gpu(instance) => Some(instance.gpu().id()),
            Self::Control(_) | Self::Uvm(_) => None,
        }
    }

    /// Opens a file of it; `ENODEV` once it is destroyed, `ENOMEM` if there are too many.
    /// [`TenantFile::close`] is called for what this returns.
    pub fn open(self: &Arc<Self>, handle: &OpenFile) -> Result<TenantFile> {
        let mut state = self.tenant().state.lock();
        let id = FileId(NEXT_FILE.fetch_add(1, Relaxed));
        let is_called = !matches!(**self, Self::Gpu(_));
        if is_called {
            state.called_files.reserve(1, GFP_KERNEL_ACCOUNT)?;
        }
        let gpu = self.gpu();
        self.node(&mut state).ok_or(ENODEV)?.enter()?;
        if state.accounting.enter(gpu, Limited::Files).is_err() {
            if let Some(node) = self.node(&mut state) {
                node.leave();
            }
            // As nvidia_open() and uvm_open() where there is no memory for the file.
            return Err(ENOMEM);
        }
        if is_called {
            // Room was made above. Numbers grow, because they are given under the tenant's lock.
            let _ = state
                .called_files
                .push_within_capacity((id, handle.clone()));
        }
        Ok(TenantFile {
            id,
            handle: handle.clone(),
            endpoint: self.clone(),
            shared_data: SetOnce::new(),
            doorbell: SetOnce::new(),
        })
    }

    /// Its real node; `None` once it is destroyed.
    fn node<'a>(&self, state: &'a mut TenantState) -> Option<&'a mut RealNode> {
        match self {
            Self::Gpu(instance) => Some(&mut state.share_mut(instance.id())?.node),
            Self::Control(_) => Some(&mut state.control),
            Self::Uvm(_) => Some(&mut state.uvm),
        }
    }
}

/// An open file of a node.
pub struct TenantFile {
    id: FileId,
    handle: OpenFile,
    endpoint: Arc<TenantNode>,
    /// The page that it maps in the place of the driver's shared data, once it has done so.
    shared_data: SetOnce<Arc<Shadow<SharedData>>>,
    /// The client whose doorbell it maps in the place of the driver's, once it is to do so. While
    /// the file is open that may be mapped, so the client stays.
    doorbell: SetOnce<Arc<KernelClient>>,
}

impl TenantFile {
    /// Its number, never used twice.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// The node that it was opened on.
    pub fn endpoint(&self) -> &TenantNode {
        &self.endpoint
    }

    /// The tenant that it belongs to.
    pub fn tenant(&self) -> &Arc<Tenant> {
        self.endpoint.tenant()
    }

    /// Has it show the module's own doorbell of its GPU, if there is one.
    pub fn show_doorbell(&self) {
        if let TenantNode::Gpu(instance) = self.endpoint() {
            let driver = instance.gpu().conductor().driver();
            if let Some(driver) = driver.filter(|driver| driver.doorbell().is_some()) {
                // It may do so already.
                self.doorbell.populate(driver);
            }
        }
    }

    /// The doorbell that it shows.
    pub fn doorbell(&self) -> Option<&Doorbell> {
        self.doorbell.as_ref()?.doorbell()
    }

    /// Whether it shows objects of the driver's, which UVM's files do not.
    pub fn shows_objects(&self) -> bool {
        !matches!(*self.endpoint, TenantNode::Uvm(_))
    }

    /// Whether its end may wait for others: a control file's ends the mappings of what is in the
    /// file's clients.
    pub fn waits_at_end(&self) -> bool {
        matches!(*self.endpoint, TenantNode::Control(_))
    }

    /// Counts a mapping of registers; an error: it is too many.
    pub fn enter_registers(&self) -> Result<(), RefusalCause> {
        let gpu = self.endpoint.gpu();
        let tenant = self.tenant();
        tenant.with_accounting(|accounting| accounting.enter(gpu, Limited::Mappings))
    }

    /// Counts a copy of one. If one that fork made is too many, it counts all the same, and is an
    /// error.
    pub fn copy_registers(&self, how: CopiedBy) -> Result<(), TooManyCopies> {
        let TenantNode::Gpu(instance) = self.endpoint() else {
            return Ok(());
        };
        let gpu = instance.gpu().id();
        let copied = self.tenant().with_accounting(|accounting| {
            let copied = match how {
                CopiedBy::Fork => accounting.enter(Some(gpu), Limited::Mappings),
                CopiedBy::Move => {
                    accounting.enter_always(gpu, Limited::Mappings);
                    Ok(())
                }
            };
            copied.map_err(|_| {
                accounting.enter_always(gpu, Limited::Mappings);
                TooManyCopies
            })
        });
        copied.inspect_err(|_| instance.tell_of_mappings())
    }

    /// A mapping of registers, or a copy, is gone.
    pub fn leave_registers(&self) {
        let gpu = self.endpoint.gpu();
        let tenant = self.tenant();
        tenant.with_accounting(|accounting| accounting.leave(gpu, Limited::Mappings));
    }

    /// Lets [`Tenant::end_mappings`] find it, until it is closed.
    pub fn keep_in_reach(&self) -> Result {
        let tenant = self.tenant();
        let mut state = tenant.state.lock();
        let Err(place) = state.place_of_shown(self.id) else {
            return Ok(());
        };
        let files = &mut state.shown_files;
        files.reserve(1, GFP_KERNEL_ACCOUNT)?;
        let inserted = files.insert_within_capacity(place, (self.id, self.handle.clone()));
        inserted.map_err(|_| ENOMEM)
    }

    /// A control file is closed, and the driver is going to free the clients that were made on it:
    /// keeps the schedulers from them, and ends the mappings of all that is in them. It waits for
    /// one that the tenant is making.
    pub fn closing(&self) {
        let tenant = self.tenant();
        tenant.leave_clients_of(self.id);
        let mut at = 0;
        while let Some(shown) = self.next_shown(&mut at) {
            tenant.end_mappings(shown);
            tenant.with_accounting(|accounting| accounting.end_shown(shown));
        }
    }

    /// As [`Self::closing`], but it fails where that would wait.
    pub fn try_closing(&self) -> Result<(), MustWait> {
        let tenant = self.tenant();
        tenant.leave_clients_of(self.id);
        let mut at = 0;
        while let Some(shown) = self.next_shown(&mut at) {
            tenant.try_end_mappings(shown)?;
            tenant.with_accounting(|accounting| accounting.end_shown(shown));
        }
        Ok(())
    }

    /// The next file that shows an object of a client that was made on this control file.
    fn next_shown(&self, at: &mut usize) -> Option<FileId> {
        let tenant = self.tenant();
        tenant.with_accounting(|accounting| accounting.shown_by_clients_of(self.id, at))
    }

    /// The page that its tenant is shown in the place of the one in `frame`; `None` if that is no
    /// page of shared data.
    pub fn shown_instead(&self, frame: Frame) -> Result<Option<&ShownPage>> {
        let tenant = self.tenant();
        let Some(shadow) = tenant.use_shadow(frame)? else {
            return Ok(None);
        };
        // One use is a file's, whatever it maps.
        if !self.shared_data.populate(shadow.clone()) {
            tenant.leave_shadow(shadow);
        }
        // It is there, unless that other thread is just putting it there.
        let shadow = self.shared_data.as_ref().ok_or(EAGAIN)?;
        Ok(Some(shadow.page()))
    }

    /// It is closed, and the driver's `release` has run.
    pub fn close(self) {
        let handle = self.tenant().with_state(|state| {
            let place = state.place_of_called(self.id);
            let handle = place.and_then(|place| state.called_files.remove(place).ok());
            let shown = state.place_of_shown(self.id).ok();
            let shown = shown.and_then(|place| state.shown_files.remove(place).ok());
            // The driver has freed the clients that were made on the file.
            state.accounting.close_file(self.id);
            state.accounting.leave(self.endpoint.gpu(), Limited::Files);
            if let Some(node) = self.endpoint.node(state) {
                node.leave();
            }
            (handle, shown)
        });
        // Dropped without the lock: with it may go the last reference of the real device's file.
        drop(handle);
        if let Some(shadow) = self.shared_data.as_ref() {
            self.tenant().leave_shadow(shadow.clone());
        }
    }
}
