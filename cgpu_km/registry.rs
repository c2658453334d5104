// SPDX-License-Identifier: GPL-2.0
//! GPUs, tenants and instances: what there is, and how it comes and goes.
//!
//! # Locks, in the order in which they are taken
//!
//! 1. [`Registry::admin`]: one command of the control device at a time. Held while nodes and
//!    `/proc` entries are made and removed and while the driver is asked about its GPUs; so nothing
//!    that those wait for may take it: no file operation of a node, nothing in `/proc`.
//! 2. A GPU's division (`registry/gpu.rs`).
//! 3. A tenant's state (`registry/tenant.rs`).
//!
//! The last two are held for computations only. What was taken out of them is dropped after them.
//!
//! # Numbers
//!
//! An instance's number is the minor of its node, `N` of `/dev/cgpuN`. The upper half of the minors
//! belongs to the tenants, two each. No number is given twice while the module is loaded; there are
//! enough for half a million instances.
//!
//! # When the driver is held
//!
//! While there are instances, their backing files hold the driver and keep its GPUs initialized.
//! Without instances nothing is held, the driver can be unloaded, and the next command that needs
//! the GPUs asks for them anew.

mod admin;
mod client_handles;
mod driver_refusals;
mod endpoint;
mod gpu;
mod instance;
mod seldom;
mod share;
mod shared_data;
mod tenant;
mod usage;

pub use endpoint::{
    TenantFile,
    TenantNode, //
};
pub use gpu::{
    HostGpu,
    Overcommit, //
};
pub use instance::{
    TenantInstance,
    Unbalanced, //
};
pub use share::ShareTerms;
pub use tenant::Tenant;
pub use usage::Usage;

use crate::{
    attach::{
        self,
        Driver, //
    },
    failure::Failure,
    os_interface::{
        cgpufs::{
            Cgpufs,
            ProxyNode, //
        },
        devices::{
            HostNodes,
            MINORS, //
        },
        procfs::ProcFolder,
        Changes,
        Gate, //
    },
    uapi::{
        self,
        Cause,
        Name, //
    }, //
};
use admin::{
    Admin,
    GpuRecord,
    InstanceFaces,
    InstanceRecord,
    TenantFaces,
    TenantRecord, //
};
use client_handles::ClientHandles;
use instance::InstanceNodes;
use kernel::{
    new_mutex,
    prelude::*,
    str::CString,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use seldom::Seldom;
use share::{
    OpenGpu,
    RealNode,
    TenantShare, //
};
use tenant::Condition;
use usage::{
    Patience,
    ToldUsage, //
};

/// The module's version.
pub const VERSION: &str = "0.1.0";

/// The first minor of the tenants' nodes.
const TENANT_MINORS: u32 = MINORS / 2;

/// The decisions of the module's root for the registry.
pub struct Settings {
    /// The branch whose tables are used for a driver of an unknown one; 0: none
    /// (`unsafe_assume_branch`).
    pub assumed_branch: u32,
    /// Makes the folders in `/proc`.
    pub views: Views,
}

/// Makes the folders in `/proc`, whose files read the registry and stand above it.
pub struct Views {
    /// The folder of the module.
    pub root: fn() -> Result<ProcFolder>,
    /// The folder of a GPU, in that of the module.
    pub gpu: fn(&Arc<ProcFolder>, &Arc<HostGpu>) -> Result<ProcFolder>,
    /// The folder of an instance, in that of its GPU.
    pub instance: fn(&Arc<ProcFolder>, &Arc<TenantInstance>) -> Result<ProcFolder>,
}

/// All GPUs, tenants and instances of the loaded module.
#[pin_data]
pub struct Registry {
    #[pin]
    admin: Mutex<Admin>,
    nodes: Arc<HostNodes<TenantNode>>,
    proxy_nodes: Arc<Cgpufs<TenantNode>>,
    proc_root: Arc<ProcFolder>,
    settings: Settings,
    changes: Arc<Changes>,
    client_handles: Arc<ClientHandles>,
}

/// The place of a new instance.
struct NewInstance {
    id: u32,
    terms: ShareTerms,
    gpu: Arc<HostGpu>,
    folder: Arc<ProcFolder>,
    gate: Arc<Gate>,
}

/// The wishes for a new instance.
pub struct InstanceWish {
    /// Its name.
    pub name: Name,
    /// The GPU's minor.
    pub gpu_minor: u32,
    /// 1 to [`uapi::WEIGHT_MAX`].
    pub weight: u32,
    /// Whether the limits may add up to more than there is.
    pub overcommit: Overcommit,
    /// Its memory, and the calls that its programs may make.
    pub terms: ShareTerms,
}

impl Registry {
    /// Registers nodes, filesystem and `/proc` folder; there is nothing in them yet.
    pub fn new(settings: Settings) -> Result<Arc<Self>> {
        let nodes = HostNodes::register()?;
        let proxy_nodes = Cgpufs::register(c"cgpufs")?;
        let proc_root = Arc::new((settings.views.root)()?, GFP_KERNEL)?;
        let (changes, client_handles) = (Changes::new()?, ClientHandles::new()?);
        Arc::pin_init(
            pin_init!(Self {
                admin <- new_mutex!(Admin {
                    driver: None,
                    tenants: KVec::new(),
                    gpus: KVec::new(),
                    files: None,
                    next_instance: 0,
                    next_tenant: 0,
                }),
                nodes,
                proxy_nodes,
                proc_root,
                settings,
                changes,
                client_handles,
            }),
            GFP_KERNEL,
        )
    }

    /// Happens when an instance comes to have more than it may, or no longer has.
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The driver whose GPUs are known, if there is one.
    pub fn driver(&self) -> Option<Driver> {
        self.admin.lock().driver
    }

    /// The GPUs, each with the number of its instances and the bytes charged to them. Asks the
    /// driver if nothing holds it.
    pub fn gpus(&self, mut each: impl FnMut(&HostGpu, u32, u64) -> Result) -> Result<(), Failure> {
        let mut admin = self.admin.lock();
        self.attach(&mut admin)?;
        let gpus = all(admin.gpus.iter().map(|record| &record.gpu))?;
        let instances = all(admin.instances())?;
        drop(admin);
        let patience = Patience::of_a_report();
        for gpu in &gpus {
            let (mut count, mut used) = (0u32, 0u64);
            for instance in instances.iter().filter(|i| Arc::ptr_eq(i.gpu(), gpu)) {
                count = count.saturating_add(1);
                let usage = instance.reported_usage(&patience);
                if let Some(share) = usage.map(|usage| usage.share) {
                    let taken = share.used.saturating_add(share.overhead);
                    used = used.saturating_add(taken.saturating_add(share.managed));
                }
            }
            each(gpu, count, used)?;
        }
        Ok(())
    }

    /// A GPU, by the minor number of its node.
    pub fn gpu(&self, minor: u32) -> Result<Arc<HostGpu>, Failure> {
        let mut admin = self.admin.lock();
        self.attach(&mut admin)?;
        let record = admin.gpu(minor).ok_or(Cause::NoSuchGpu)?;
        Ok(record.gpu.clone())
    }

    /// Works on every instance that there is now. No command waits meanwhile.
    pub fn instances(
        &self,
        mut each: impl FnMut(&TenantInstance) -> Result,
    ) -> Result<(), Failure> {
        let instances = all(self.admin.lock().instances())?;
        for instance in &instances {
            each(instance)?;
        }
        Ok(())
    }

    /// Works on every instance that there is now, with its usage. It waits for no tenant, but for a
    /// command that does: one that adds a GPU to a tenant.
    pub fn usages(
        &self,
        mut each: impl FnMut(&TenantInstance, &Usage) -> Result,
    ) -> Result<(), Failure> {
        let patience = Patience::of_a_report();
        self.instances(|instance| match instance.reported_usage(&patience) {
            Some(usage) => each(instance, &usage),
            // It was destroyed this very moment.
            None => Ok(()),
        })
    }

    /// The instance of this name on this GPU, or on the only one that has it for
    /// [`uapi::GPU_ANY`].
    pub fn find(&self, name: &Name, gpu_minor: u32) -> Result<Arc<TenantInstance>, Failure> {
        Ok(self.admin.lock().find(name, gpu_minor)?)
    }

    /// Makes an instance.
    pub fn create(&self, wish: &InstanceWish) -> Result<Arc<TenantInstance>, Failure> {
        let text = wish.name.as_str().ok_or(Cause::BadName)?;
        if uapi::RESERVED_NAMES.contains(&text) {
            return Err(Cause::BadName.into());
        }
        let mut admin = self.admin.lock();
        self.attach(&mut admin)?;
        let record = admin.gpu(wish.gpu_minor).ok_or(Cause::NoSuchGpu)?;
        let (gpu, folder) = (record.gpu.clone(), record.folder.clone());
        if admin.find(&wish.name, wish.gpu_minor).is_ok() {
            return Err(Cause::NameTaken.into());
        }
        let id = admin.next_instance;
        if id >= TENANT_MINORS {
            return Err(Cause::TooMany.into());
        }
        let gate = Gate::new()?;
        let max_instances = gpu.rules().max_instances;
        let channels = gpu.allot(id, wish.terms.limit, wish.weight, wish.overcommit, &gate)?;
        // From here on the number is used up: a node may be seen, whatever becomes of it.
        admin.next_instance += 1;
        let place = NewInstance {
            id,
            terms: ShareTerms {
                channels,
                max_instances,
                ..wish.terms
            },
            gpu,
            folder,
            gate,
        };
        let made = self.make(&mut admin, &wish.name, &place);
        let parted = made.is_err().then(|| {
            place.gpu.retract(id);
            admin.part(&place.gpu)
        });
        // Not with the lock held, as in `destroy`.
        drop(admin);
        drop(parted);
        made
    }

    /// Makes an instance whose part of the GPU is allotted, and its tenant if it is the first of
    /// its name.
    fn make(
        &self,
        admin: &mut Admin,
        name: &Name,
        place: &NewInstance,
    ) -> Result<Arc<TenantInstance>, Failure> {
        let opened = admin.open_gpu(&place.gpu)?;
        admin.introduce(&place.gpu, &opened)?;
        if !admin.tenants.iter().any(|r| r.tenant.name() == name) {
            admin.tenants.reserve(1, GFP_KERNEL)?;
            let record = self.make_tenant(admin, name)?;
            admin.tenants.push(record, GFP_KERNEL)?;
        }
        let mut tenants = admin.tenants.iter_mut();
        let record = tenants.find(|r| r.tenant.name() == name).ok_or(ENOENT)?;
        let made = self.make_instance(record, place, opened);
        if made.is_err() {
            // If the tenant was made for this instance, it goes.
            let mut unused = admin.tenants.iter().filter(|r| r.instances.is_empty());
            drop(unused.next().map(|record| record.tenant.shut()));
            admin.tenants.retain(|r| !r.instances.is_empty());
        }
        made
    }

    #[inline(never)] // What it makes would stand in the frame of `make`.
    fn make_tenant(&self, admin: &mut Admin, name: &Name) -> Result<TenantRecord, Failure> {
        let driver = admin.driver.ok_or(Cause::DriverMissing)?;
        let minor = admin.next_tenant.checked_mul(2);
        let minor = minor.and_then(|n| n.checked_add(TENANT_MINORS));
        let control_minor = minor.filter(|&m| m < MINORS - 1).ok_or(Cause::TooMany)?;
        let uvm_minor = control_minor + 1;
        // From here on the numbers are used up, whatever becomes of them.
        admin.next_tenant += 1;

        let (control, uvm) = admin.common_files()?;
        let (control_shown, uvm_shown) = (control.number(), uvm.number());
        let tenant = Tenant::new(
            *name,
            driver.tables,
            RealNode::new(control),
            RealNode::new(uvm),
            self.changes.clone(),
            self.client_handles.clone(),
        )?;
        let control = Arc::new(TenantNode::Control(tenant.clone()), GFP_KERNEL)?;
        let uvm = Arc::new(TenantNode::Uvm(tenant.clone()), GFP_KERNEL)?;
        let text = name.as_str().ok_or(Cause::BadName)?;
        let folder = CString::try_from_fmt(format_args!("{text}"))?;
        let control_name = CString::try_from_fmt(format_args!("cgpu-{text}-ctl"))?;
        let uvm_name = CString::try_from_fmt(format_args!("cgpu-{text}-uvm"))?;
        let control_proxy = ProxyNode {
            endpoint: control.clone(),
            number: self.nodes.number(control_minor),
            stat_number: control_shown,
        };
        let uvm_proxy = ProxyNode {
            endpoint: uvm.clone(),
            number: self.nodes.number(uvm_minor),
            stat_number: uvm_shown,
        };
        let show = || -> Result<TenantFaces> {
            Ok(TenantFaces {
                _control_proxy: self.proxy_nodes.add(&folder, c"nvidiactl", control_proxy)?,
                _uvm_proxy: self.proxy_nodes.add(&folder, c"nvidia-uvm", uvm_proxy)?,
                control: self.nodes.add(control_minor, &control_name, control)?,
                uvm: self.nodes.add(uvm_minor, &uvm_name, uvm)?,
            })
        };
        let faces = show().inspect_err(|_| drop(tenant.shut()))?;
        Ok(TenantRecord {
            instances: KVec::new(),
            faces,
            tenant,
        })
    }

    #[inline(never)] // As `make_tenant`.
    fn make_instance(
        &self,
        record: &mut TenantRecord,
        place: &NewInstance,
        opened: OpenGpu,
    ) -> Result<Arc<TenantInstance>, Failure> {
        record.instances.reserve(1, GFP_KERNEL)?;
        let tenant = record.tenant.clone();
        let (id, gpu) = (place.id, &place.gpu);
        let nodes = InstanceNodes {
            own: self.nodes.number(id),
            control: record.faces.control.number(),
            uvm: record.faces.uvm.number(),
        };
        let told = ToldUsage::new()?;
        let (tenant_of_it, told_of_it) = (tenant.clone(), told.clone());
        let instance = pin_init!(TenantInstance {
            id,
            gpu: gpu.clone(),
            tenant: tenant_of_it,
            nodes,
            told: told_of_it,
            gate: place.gate.clone(),
            told_of_mappings: Seldom::new(),
            changing <- new_mutex!(()),
        });
        let instance = Arc::pin_init(instance, GFP_KERNEL)?;
        let endpoint = Arc::new(TenantNode::Gpu(instance.clone()), GFP_KERNEL)?;
        let proxy_node = ProxyNode {
            endpoint,
            number: nodes.own,
            stat_number: opened.backing.number(),
        };
        let share = TenantShare::new(id, gpu.clone(), opened, told);
        tenant.add(share, &place.terms)?;
        match self.show_instance(&instance, proxy_node, &place.folder) {
            Ok(faces) => {
                let record_of_it = InstanceRecord {
                    _faces: faces,
                    instance: instance.clone(),
                };
                record.instances.push(record_of_it, GFP_KERNEL)?;
                Ok(instance)
            }
            Err(e) => {
                drop(tenant.withdraw(id, Condition::Always));
                Err(e.into())
            }
        }
    }

    /// Makes what is to be seen of an instance.
    fn show_instance(
        &self,
        instance: &Arc<TenantInstance>,
        proxy_node: ProxyNode<TenantNode>,
        gpu_folder: &Arc<ProcFolder>,
    ) -> Result<InstanceFaces> {
        let id = instance.id();
        let text = instance.tenant().name().as_str().ok_or(EINVAL)?;
        let folder_name = CString::try_from_fmt(format_args!("{text}"))?;
        let proxy_name =
            CString::try_from_fmt(format_args!("nvidia{}", proxy_node.stat_number.minor))?;
        let node_name = CString::try_from_fmt(format_args!("cgpu{id}"))?;
        let endpoint = proxy_node.endpoint.clone();
        Ok(InstanceFaces {
            _folder: (self.settings.views.instance)(gpu_folder, instance)?,
            _proxy_node: self
                .proxy_nodes
                .add(&folder_name, &proxy_name, proxy_node)?,
            _node: self.nodes.add(id, &node_name, endpoint)?,
        })
    }

    /// Removes an instance that is not in use, and its tenant with the last one.
    pub fn destroy(&self, name: &Name, gpu_minor: u32) -> Result<(), Failure> {
        let instance = self.admin.lock().find(name, gpu_minor)?;
        // Nobody can open it any more once this has succeeded. It waits for the tenant's own lock,
        // so other commands must not wait for this one.
        let withdrawn = instance.tenant().withdraw(instance.id(), Condition::Idle)?;
        let mut admin = self.admin.lock();
        instance.gpu().retract(instance.id());
        for record in &mut admin.tenants {
            record
                .instances
                .retain(|i| i.instance.id() != instance.id());
        }
        admin.tenants.retain(|record| !record.instances.is_empty());
        let parted = admin.part(instance.gpu());
        // Closing the last file of a GPU ends its worker: not with the lock held.
        drop(admin);
        drop(parted);
        drop(withdrawn);
        Ok(())
    }

    /// Finds the GPUs, unless they are known and held.
    fn attach(&self, admin: &mut Admin) -> Result<(), Failure> {
        if !admin.tenants.is_empty() {
            return Ok(());
        }
        let found = attach::probe(self.settings.assumed_branch).inspect_err(|failure| {
            if let Failure::Cause(_) = failure {
                admin.driver = None;
                admin.gpus.clear();
            }
        })?;
        // A GPU that is as it was keeps its settings.
        let is_found = |record: &GpuRecord| found.gpus.iter().any(|f| f == record.gpu.facts());
        admin.gpus.retain(|record| is_found(record));
        for facts in &found.gpus {
            if admin.gpus.iter().any(|record| record.gpu.facts() == facts) {
                continue;
            }
            let gpu = HostGpu::new(facts.clone())?;
            let folder = (self.settings.views.gpu)(&self.proc_root, &gpu)?;
            let folder = Arc::new(folder, GFP_KERNEL)?;
            // In the order of their minors, by insertion: core's sort can panic.
            let mut minors = admin.gpus.iter().map(|record| record.gpu.facts().minor);
            let place = minors.position(|minor| minor > facts.minor);
            let place = place.unwrap_or(admin.gpus.len());
            admin.gpus.reserve(1, GFP_KERNEL)?;
            let inserted = admin.gpus.insert_within_capacity(
                place,
                GpuRecord {
                    gpu,
                    folder,
                    opened: None,
                },
            );
            inserted.map_err(|_| ENOMEM)?;
        }
        admin.driver = Some(found.driver);
        Ok(())
    }
}

/// References to things of the registry, to be looked at without its lock.
fn all<'a, T: 'a>(things: impl Iterator<Item = &'a Arc<T>>) -> Result<KVec<Arc<T>>> {
    let mut all = KVec::new();
    for thing in things {
        all.push(thing.clone(), GFP_KERNEL)?;
    }
    Ok(all)
}
