// SPDX-License-Identifier: GPL-2.0
//! The records of GPUs, tenants and instances, which one command at a time changes.

use super::{
    endpoint::TenantNode,
    gpu::HostGpu,
    instance::TenantInstance,
    share::OpenGpu,
    tenant::Tenant, //
};
use crate::{
    attach::{
        self,
        Driver, //
    },
    failure::Failure,
    os_interface::{
        cgpufs::ProxyNodeFile,
        devices::HostNode,
        log::{
            pr_info,
            pr_warn, //
        },
        procfs::ProcFolder,
        rmapi::KernelClient,
        BackingFile,
        Worker, //
    },
    uapi::{
        self,
        Cause,
        Name, //
    }, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// All that commands of the control device change.
pub(super) struct Admin {
    pub(super) driver: Option<Driver>,
    /// Tenants, each with at least one instance.
    pub(super) tenants: KVec<TenantRecord>,
    pub(super) gpus: KVec<GpuRecord>,
    /// The control and the UVM device, while there are tenants. It is asked for here and not of a
    /// tenant: a command must not wait for a lock that another tenant's programs take.
    pub(super) files: Option<(Arc<BackingFile>, Arc<BackingFile>)>,
    /// The next instance's number.
    pub(super) next_instance: u32,
    /// The next tenant's.
    pub(super) next_tenant: u32,
}

/// A GPU and its folder in `/proc`.
pub(super) struct GpuRecord {
    pub(super) gpu: Arc<HostGpu>,
    pub(super) folder: Arc<ProcFolder>,
    /// Its device, while it has instances.
    pub(super) opened: Option<OpenGpu>,
}

/// The part of the driver that the last instance of a GPU has held. It is to be dropped without a
/// lock: files are closed, and the last one of a GPU ends its worker.
pub(super) struct Parted {
    _client: Option<Arc<KernelClient>>,
    _opened: Option<OpenGpu>,
    _files: Option<(Arc<BackingFile>, Arc<BackingFile>)>,
}

/// A tenant and what is to be seen of it.
pub(super) struct TenantRecord {
    pub(super) instances: KVec<InstanceRecord>,
    pub(super) faces: TenantFaces,
    pub(super) tenant: Arc<Tenant>,
}

/// An instance and what is to be seen of it.
pub(super) struct InstanceRecord {
    pub(super) _faces: InstanceFaces,
    pub(super) instance: Arc<TenantInstance>,
}

/// The nodes and proxy nodes of a tenant.
pub(super) struct TenantFaces {
    pub(super) control: HostNode<TenantNode>,
    pub(super) uvm: HostNode<TenantNode>,
    pub(super) _control_proxy: ProxyNodeFile<TenantNode>,
    pub(super) _uvm_proxy: ProxyNodeFile<TenantNode>,
}

/// The node, the proxy node and the `/proc` folder of an instance.
pub(super) struct InstanceFaces {
    pub(super) _folder: ProcFolder,
    pub(super) _proxy_node: ProxyNodeFile<TenantNode>,
    pub(super) _node: HostNode<TenantNode>,
}

impl Admin {
    pub(super) fn instances(&self) -> impl Iterator<Item = &Arc<TenantInstance>> {
        let records = self
            .tenants
            .iter()
            .flat_map(|tenant| tenant.instances.iter());
        records.map(|record| &record.instance)
    }

    pub(super) fn gpu(&self, minor: u32) -> Option<&GpuRecord> {
        self.gpus.iter().find(|r| r.gpu.facts().minor == minor)
    }

    pub(super) fn find(&self, name: &Name, gpu_minor: u32) -> Result<Arc<TenantInstance>, Cause> {
        name.as_str().ok_or(Cause::BadName)?;
        let mut named = self.instances().filter(|i| i.tenant().name() == name);
        if gpu_minor == uapi::GPU_ANY {
            let only = named.next().ok_or(Cause::NoSuchInstance)?;
            return match named.next() {
                None => Ok(only.clone()),
                Some(_) => Err(Cause::Ambiguous),
            };
        }
        // Without any instance the GPUs may not be known yet.
        if !self.tenants.is_empty() && self.gpu(gpu_minor).is_none() {
            return Err(Cause::NoSuchGpu);
        }
        let found = named.find(|i| i.gpu().facts().minor == gpu_minor);
        found.cloned().ok_or(Cause::NoSuchInstance)
    }

    /// The control and the UVM device: those that are open already, or newly opened.
    pub(super) fn common_files(&mut self) -> Result<(Arc<BackingFile>, Arc<BackingFile>), Failure> {
        if self.files.is_none() {
            self.files = Some((attach::open_control()?, attach::open_uvm()?));
        }
        Ok(self.files.clone().ok_or(ENODEV)?)
    }

    /// Gives the conductor of a GPU that is open the driver's kernel interface, if it has none yet.
    /// Without one there is no instance: what the driver tells the kernel alone keeps tenants apart
    /// (see SECURITY.md), and channels cannot be switched.
    pub(super) fn introduce(&self, gpu: &HostGpu, opened: &OpenGpu) -> Result<(), Failure> {
        let Some(driver) = self.driver.filter(|_| gpu.conductor().driver().is_none()) else {
            return Ok(());
        };
        let minor = gpu.facts().minor;
        match attach::kernel_client(&driver, gpu.facts(), opened.backing.clone()) {
            Ok(client) => {
                if client.doorbell().is_none() {
                    pr_info!("GPU {minor}: no doorbell page through BAR1 (GPUs before Hopper have none)\n");
                }
                gpu.conductor().adopt(client);
            }
            Err(missing) => {
                pr_warn!(
                    "GPU {minor}: no instance: the driver's interface for other kernel modules \
                     cannot be used ({missing:?})\n"
                );
                return Err(Cause::NoKernelInterface.into());
            }
        }
        Ok(())
    }

    /// Takes what the driver gave for a GPU, if that has no instances, and for the last tenant.
    pub(super) fn part(&mut self, gpu: &Arc<HostGpu>) -> Parted {
        let is_idle = !self.instances().any(|i| Arc::ptr_eq(i.gpu(), gpu));
        let mut records = self.gpus.iter_mut();
        let record = records.find(|r| is_idle && Arc::ptr_eq(&r.gpu, gpu));
        Parted {
            _opened: record.and_then(|record| record.opened.take()),
            _client: is_idle.then(|| gpu.conductor().release()).flatten(),
            _files: self.files.take_if(|_| self.tenants.is_empty()),
        }
    }

    /// A GPU's device and what hangs on its being open: what is there already, or all anew.
    pub(super) fn open_gpu(&mut self, gpu: &HostGpu) -> Result<OpenGpu, Failure> {
        let driver = self.driver.ok_or(Cause::DriverMissing)?;
        let minor = gpu.facts().minor;
        let mut records = self.gpus.iter_mut();
        let record = records.find(|r| r.gpu.facts().minor == minor);
        let record = record.ok_or(Cause::NoSuchGpu)?;
        if let Some(opened) = &record.opened {
            return Ok(opened.clone());
        }
        let backing = attach::open_gpu(minor)?;
        let shared_data = attach::shared_data(&driver, gpu.facts(), &backing)?;
        let shared_data = shared_data.map(|page| Arc::new(page, GFP_KERNEL));
        let shared_data = shared_data.transpose()?;
        let opened = OpenGpu {
            card: attach::card(gpu.facts())?,
            worker: Arc::new(Worker::start(minor, backing.clone())?, GFP_KERNEL)?,
            backing,
            shared_data,
        };
        record.opened = Some(opened.clone());
        Ok(opened)
    }
}
