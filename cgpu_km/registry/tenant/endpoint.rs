// SPDX-License-Identifier: GPL-2.0
//! What a node of a tenant stands for, and its open files.

use super::{super::shared_data::SharedData, Instance, Tenant};
use crate::{
    dispatch,
    os_interface::{
        self, rmapi::KernelClient, shared_page::Shadow, BackingFile, Caller, Doorbell, Gate,
        Mapping, OpenFile, Pages, QueueKey, Shown, Unmapped, UserAddr,
    },
    policy::{sched::InstanceId, FileId},
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{Atomic, Relaxed},
        Arc, SetOnce,
    },
};

/// Number of the next open file. They are never reused: 64 bits are not used up.
static NEXT_FILE: Atomic<u64> = Atomic::new(0);

/// What a node stands for.
pub enum Endpoint {
    /// The GPU of an instance.
    Gpu(Arc<Instance>),
    /// The control device, for a tenant.
    Control(Arc<Tenant>),
    /// The UVM device, for a tenant.
    Uvm(Arc<Tenant>),
}

impl Endpoint {
    /// Whose it is.
    pub fn tenant(&self) -> &Arc<Tenant> {
        match self {
            Self::Gpu(instance) => &instance.tenant,
            Self::Control(tenant) | Self::Uvm(tenant) => tenant,
        }
    }
}

/// An open file of a node.
pub struct File {
    id: FileId,
    endpoint: Arc<Endpoint>,
    /// What it maps in the place of the driver's shared data, once it has done so.
    shared_data: SetOnce<Shadow<SharedData>>,
    /// Who has the doorbell that it maps in the place of the driver's, once it is to do so; mapped, it is needed
    /// for as long as the file is open.
    doorbell: SetOnce<Arc<KernelClient>>,
}

impl File {
    /// Its number, never used twice.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// What it was opened on.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whose it is.
    pub fn tenant(&self) -> &Arc<Tenant> {
        self.endpoint.tenant()
    }

    /// Has it show the doorbell of its GPU's that is nobody's, where there is one.
    pub fn show_doorbell(&self) {
        if let Endpoint::Gpu(instance) = self.endpoint() {
            let driver = instance.gpu().conductor().driver();
            if let Some(driver) = driver.filter(|driver| driver.doorbell().is_some()) {
                // It may do so already.
                self.doorbell.populate(driver);
            }
        }
    }
}

impl os_interface::Endpoint for Endpoint {
    type File = File;

    fn backing(&self) -> Result<Arc<BackingFile>> {
        let mut state = self.tenant().state.lock();
        let door = state.door(self).ok_or(ENODEV)?;
        door.backing.clone().ok_or(ENODEV)
    }

    fn queue(&self) -> QueueKey {
        QueueKey::tenant(self.tenant().number)
    }

    fn open(self: &Arc<Self>, handle: &OpenFile) -> Result<File> {
        let mut state = self.tenant().state.lock();
        let id = FileId(NEXT_FILE.fetch_add(1, Relaxed));
        if matches!(**self, Endpoint::Uvm(_)) {
            state.uvm_files.reserve(1, GFP_KERNEL_ACCOUNT)?;
        }
        state.door(self).ok_or(ENODEV)?.enter()?;
        if matches!(**self, Endpoint::Uvm(_)) {
            // Room was made above.
            let _ = state.uvm_files.push_within_capacity((id, handle.clone()));
        }
        Ok(File {
            id,
            endpoint: self.clone(),
            shared_data: SetOnce::new(),
            doorbell: SetOnce::new(),
        })
    }

    fn ioctl(file: &File, call: &mut Caller<'_>, cmd: u32, arg: UserAddr) -> Result<i32> {
        dispatch::ioctl(file, call, cmd, arg)
    }

    fn gate(file: &File) -> Option<&Arc<Gate>> {
        match file.endpoint() {
            Self::Gpu(instance) => Some(&instance.gate),
            Self::Control(_) | Self::Uvm(_) => None,
        }
    }

    fn doorbell(file: &File) -> Option<&Doorbell> {
        file.doorbell.as_ref()?.doorbell()
    }

    fn mapped<'a>(file: &'a File, made: &Mapping, pages: &Pages<'_>) -> Result<Shown<'a>> {
        match file.endpoint() {
            Self::Gpu(instance) => {
                // While the GPU sleeps there are no pages, and it is not known what they will be. A doorbell
                // through BAR1 lies among memory there. What the driver says of it is that it is not cached, and it
                // says so of nothing else that it shows through BAR1 (`cachingType` in memMap_IMPL(),
                // mapping_cpu.c), whatever the program asked for.
                let facts = instance.gpu().facts();
                let gated = pages.are_uncached() || pages.any(|frame| facts.is_register(frame));
                match gated || pages.first().is_none() {
                    true => Ok(Shown::Gated),
                    false => Ok(Shown::AsMade),
                }
            }
            Self::Control(tenant) => {
                let found = pages.first().and_then(|frame| tenant.shared_data(frame));
                let Some((gpu, page)) = found else {
                    return Ok(Shown::AsMade);
                };
                if file.shared_data.as_ref().is_none() {
                    let shadow = SharedData::show(tenant.clone(), gpu, page)?;
                    // Another thread may have been faster: then its one is taken.
                    file.shared_data.populate(shadow);
                }
                // It is there, unless that other thread is just putting it there.
                let shadow = file.shared_data.as_ref().ok_or(EAGAIN)?;
                Ok(Shown::Instead(shadow.page()))
            }
            Self::Uvm(tenant) => dispatch::mapped(file, tenant, made, pages),
        }
    }

    fn rang(file: &File) {
        if let Self::Gpu(instance) = file.endpoint() {
            instance.gpu().conductor().rang(InstanceId(instance.id));
        }
    }

    fn settle(file: &File, call: &mut Caller<'_>, made: &Mapping, late: bool) {
        dispatch::settle(file, call, made, late);
    }

    fn unmapped(file: &File, gone: &Mapping, how: Unmapped) {
        dispatch::unmapped(file, gone, how);
    }

    fn release(file: File) {
        let handle = file.tenant().with_state(|state| {
            let place = state.uvm_files.iter().position(|(id, _)| *id == file.id);
            let handle = place.and_then(|place| state.uvm_files.remove(place).ok());
            // The driver has freed the clients that were made on the file.
            state.accounting.close_file(file.id);
            if let Some(door) = state.door(&file.endpoint) {
                door.leave();
            }
            handle
        });
        // Dropped without the lock: with it may go the last reference of the real device's file.
        drop(handle);
    }
}
