// SPDX-License-Identifier: GPL-2.0
//! The commands of `/dev/cgpuctl`: from the records of [`crate::uapi`] to the registry and back.
//!
//! A record is copied once from the caller, its reserved fields and flags are checked, and every
//! refusal is a [`Cause`] with an errno of its own. Who may call at all was checked before, by
//! [`crate::os_interface::control_device`].

mod compute;
mod records;

use crate::{
    dispatch::rebalance,
    failure::Failure,
    nvidia::{
        capability::Capabilities,
        tables::Tables, //
    },
    os_interface::{
        control_device::{
            write_record,
            Control, //
        },
        Changes,
        UserAddr, //
    },
    policy::{
        AuditRecord,
        Limited,
        ManagedMode,
        Reason, //
    },
    registry::{
        HostGpu,
        InstanceWish,
        Overcommit,
        Registry,
        ShareTerms,
        TenantInstance,
        Usage,
        VERSION, //
    },
    uapi::{
        self,
        put_text,
        request,
        Cause, //
    }, //
};
use kernel::{
    alloc::KVVec,
    prelude::*,
    str::CString,
    sync::Arc, //
};
use records::{
    check_size,
    fill_list,
    read,
    read_list,
    write_list, //
};
use zerocopy::FromZeros;

/// The commands, on the registry.
pub struct Commands(Arc<Registry>);

impl Commands {
    /// The commands on this registry.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self(registry)
    }

    fn run(&self, cmd: u32, at: UserAddr) -> Result<(), Failure> {
        match cmd {
            request::VERSION => Ok(write_record(at, &self.version())?),
            request::GPU_LIST => self.list_gpus(at),
            request::INSTANCE_CREATE => self.create(at),
            request::INSTANCE_DESTROY => {
                let key: uapi::InstanceKey = read(at)?;
                self.0.destroy(&key.name, key.gpu_minor)
            }
            request::INSTANCE_GET => self.get(at),
            request::INSTANCE_LIST => self.list_instances(at),
            request::INSTANCE_SET_MEMORY => {
                let set: uapi::InstanceSetMemory = read(at)?;
                let (limit, overcommit) = (set.memory_limit_bytes, overcommit(set.flags));
                rebalance(self.find(&set.key)?.set_limit(limit, overcommit)?);
                Ok(())
            }
            request::INSTANCE_SET_WEIGHT => {
                let set: uapi::InstanceSetWeight = read(at)?;
                self.find(&set.key)?.set_weight(set.weight)
            }
            request::INSTANCE_SET_MANAGED => {
                let set: uapi::InstanceSetManaged = read(at)?;
                let instance = self.find(&set.key)?;
                rebalance(instance.set_managed_mode(managed_mode(set.managed_mode)?)?);
                Ok(())
            }
            request::INSTANCE_SET_CHANNELS => {
                let set: uapi::InstanceSetChannels = read(at)?;
                let instance = self.0.find(&set.key.name, set.key.gpu_minor)?;
                instance.set_channel_limit(set.channel_limit, overcommit(set.flags))
            }
            request::INSTANCE_SET_LIMIT => {
                let set: uapi::InstanceSetLimit = read(at)?;
                let limit = (set.limit != uapi::LIMIT_DEFAULT).then_some(set.limit);
                self.find(&set.key)?.set_limit_of(limited(set.what)?, limit)
            }
            request::INSTANCE_SET_CAPABILITIES => {
                let set: uapi::InstanceSetCapabilities = read(at)?;
                let instance = self.find(&set.key)?;
                instance.set_capabilities(capabilities(set.capabilities)?)
            }
            request::INSTANCE_REFUSALS => self.list_refusals(at),
            request::INSTANCE_LIMITS => self.list_limits(at),
            request::GPU_SET_COMPUTE
            | request::INSTANCE_SET_COMPUTE
            | request::GPU_COMPUTE
            | request::INSTANCE_COMPUTE => compute::run(&self.0, cmd, at),
            _ => Err(Cause::UnknownCommand.into()),
        }
    }

    fn find(&self, key: &uapi::InstanceKey) -> Result<Arc<TenantInstance>, Failure> {
        self.0.find(&key.name, key.gpu_minor)
    }

    fn version(&self) -> uapi::Version {
        let mut version = uapi::Version::new_zeroed();
        version.abi = uapi::ABI_VERSION;
        put_text(&mut version.module, VERSION);
        if let Some(driver) = self.0.driver() {
            version.branch = driver.branch.major();
            version.branch_assumed = u32::from(driver.is_assumed);
            version.driver = driver.version;
        }
        version
    }

    #[inline(never)] // As `get`.
    fn create(&self, at: UserAddr) -> Result<(), Failure> {
        let mut create: uapi::InstanceCreate = read(at)?;
        let instance = self.0.create(&InstanceWish {
            name: create.key.name,
            gpu_minor: create.key.gpu_minor,
            weight: create.weight,
            overcommit: overcommit(create.flags),
            terms: ShareTerms {
                limit: create.memory_limit_bytes,
                // As the GPU's rules have it.
                channels: 0,
                max_instances: 0,
                managed_mode: managed_mode(create.managed_mode)?,
                capabilities: match create.capabilities {
                    0 => Capabilities::DEFAULT,
                    bits => capabilities(bits)?,
                },
            },
        })?;
        create.id = instance.id();
        // The instance exists, whether its number can be told or not.
        Ok(write_record(at, &create)?)
    }

    #[inline(never)] // Its record would stand in the frame of every command.
    fn get(&self, at: UserAddr) -> Result<(), Failure> {
        let mut get: uapi::InstanceGet = read(at)?;
        get.instance = instance_now(&*self.find(&get.key)?);
        Ok(write_record(at, &get)?)
    }

    fn list_gpus(&self, at: UserAddr) -> Result<(), Failure> {
        let list = read_list::<uapi::Gpu>(at)?;
        let mut records = KVVec::new();
        self.0.gpus(|gpu, instances, used| {
            records.push(gpu_record(gpu, instances, used)?, GFP_KERNEL)?;
            Ok(())
        })?;
        write_list(at, list, &records)
    }

    #[inline(never)] // As `get`.
    fn list_refusals(&self, at: UserAddr) -> Result<(), Failure> {
        let mut refusals: uapi::InstanceRefusals = read(at)?;
        check_size::<uapi::Refusal>(&refusals.list)?;
        let instance = self.find(&refusals.key)?;
        let noted = instance.noted_calls()?;
        let tables = instance.tenant().tables();
        let mut records = KVVec::with_capacity(noted.records.len(), GFP_KERNEL)?;
        for record in &noted.records {
            records.push(refusal_record(record, tables), GFP_KERNEL)?;
        }
        fill_list(&mut refusals.list, &records)?;
        refusals.others = noted.others;
        Ok(write_record(at, &refusals)?)
    }

    #[inline(never)] // As `get`.
    fn list_limits(&self, at: UserAddr) -> Result<(), Failure> {
        let mut limits: uapi::InstanceLimits = read(at)?;
        check_size::<uapi::InstanceLimit>(&limits.list)?;
        let instance = self.find(&limits.key)?;
        let mut records = [uapi::InstanceLimit::new_zeroed(); Limited::ALL.len()];
        for (record, what) in records.iter_mut().zip(Limited::ALL) {
            let view = instance.limit_of(what).ok_or(Cause::NoSuchInstance)?;
            record.what = what.number();
            record.is_set = u32::from(view.is_set);
            record.limit = view.limit;
            record.used = view.used;
            record.refused = view.refused;
        }
        fill_list(&mut limits.list, &records)?;
        Ok(write_record(at, &limits)?)
    }

    #[inline(never)] // As `get`.
    fn list_instances(&self, at: UserAddr) -> Result<(), Failure> {
        let list = read_list::<uapi::Instance>(at)?;
        let mut records = KVVec::new();
        self.0.usages(|instance, usage| {
            records.push(instance_record(instance, Some(usage)), GFP_KERNEL)?;
            Ok(())
        })?;
        write_list(at, list, &records)
    }
}

impl Control for Commands {
    fn changes(&self) -> &Changes {
        self.0.changes()
    }

    /// Those that tell how much memory instances have, and whether that is above their limits.
    fn tells(cmd: u32) -> bool {
        matches!(cmd, request::INSTANCE_GET | request::INSTANCE_LIST)
    }

    fn ioctl(&self, cmd: u32, arg: UserAddr) -> Result<i32> {
        self.run(cmd, arg)?;
        Ok(0)
    }
}

/// The capabilities in a request.
fn capabilities(bits: u32) -> Result<Capabilities, Failure> {
    let capabilities = Capabilities::from_bits(bits);
    capabilities.ok_or_else(|| Cause::UnknownCapability.into())
}

fn refusal_record(noted: &AuditRecord, tables: &Tables) -> uapi::Refusal {
    let mut record = uapi::Refusal::new_zeroed();
    record.kind = noted.call.kind.number();
    record.number = noted.call.number;
    record.reason = noted.call.reason.word().number();
    if let Reason::Capability(sets) = noted.call.reason {
        record.capabilities = sets.bits();
    }
    record.count = noted.count;
    record.last_seconds = noted.last;
    record.last_process = u32::try_from(noted.process.0).unwrap_or_default();
    record.on_gpu = u32::from(noted.gpu.is_some());
    put_text(
        &mut record.name,
        noted.call.title(tables).unwrap_or_default(),
    );
    record
}

fn overcommit(flags: u32) -> Overcommit {
    if flags & uapi::FLAG_OVERCOMMIT != 0 {
        Overcommit::Allowed
    } else {
        Overcommit::Refused
    }
}

fn managed_mode(number: u32) -> Result<ManagedMode, Failure> {
    ManagedMode::from_number(number).ok_or(Cause::Malformed.into())
}

fn limited(number: u32) -> Result<Limited, Failure> {
    Limited::from_number(number).ok_or(Cause::Malformed.into())
}

fn gpu_record(gpu: &HostGpu, instances: u32, used: u64) -> Result<uapi::Gpu> {
    let facts = gpu.facts();
    let mut record = uapi::Gpu::new_zeroed();
    record.minor = facts.minor;
    record.gpu_id = facts.gpu_id;
    record.device_instance = facts.device_instance;
    record.instances = instances;
    record.max_instances = gpu.rules().max_instances;
    record.policy = gpu.rules().policy.number();
    record.free_weight = gpu.free_weight();
    record.memory_bytes = facts.memory_bytes;
    record.allotted_bytes = gpu.allotted();
    record.used_bytes = used;
    let uuid = CString::try_from_fmt(format_args!("{}", facts.uuid_text()))?;
    put_text(&mut record.uuid, uapi::text(uuid.to_bytes()));
    record.pci = facts.pci;
    record.name = facts.name;
    record.architecture = facts.architecture;
    record.implementation = facts.implementation;
    record.mig_mode = facts.mig_mode;
    Ok(record)
}

/// An instance as it is now, after a wait for its tenant.
#[inline(never)] // Its usage would stand in the frame of `get`.
fn instance_now(instance: &TenantInstance) -> uapi::Instance {
    instance_record(instance, instance.usage().as_ref())
}

/// An instance with its usage; one that was destroyed this very moment has none any more.
fn instance_record(instance: &TenantInstance, usage: Option<&Usage>) -> uapi::Instance {
    let mut record = uapi::Instance::new_zeroed();
    record.key.name = *instance.tenant().name();
    record.key.gpu_minor = instance.gpu().facts().minor;
    record.id = instance.id();
    record.weight = instance.weight().unwrap_or_default();
    let nodes = instance.nodes();
    record.major = nodes.own.major;
    record.node_minor = nodes.own.minor;
    record.control_node_minor = nodes.control.minor;
    record.uvm_node_minor = nodes.uvm.minor;
    if let Some(usage) = usage {
        let share = usage.share;
        record.memory_limit_bytes = share.limit;
        record.memory_used_bytes = share.used;
        record.memory_overhead_bytes = share.overhead;
        record.memory_reserved_bytes = share.reserved;
        record.memory_peak_bytes = share.peak;
        record.memory_refused = share.refused;
        record.calls_refused = share.refused_calls;
        record.managed_mode = share.managed_mode.number();
        record.memory_managed_bytes = share.managed;
        record.memory_spilled_bytes = share.spilled;
        record.managed_refused = share.managed_refused;
        record.channel_limit = share.channel_limit;
        record.channels = share.channels;
        record.channels_refused = u32::try_from(share.channels_refused).unwrap_or(u32::MAX);
        record.open_files = usage.open_files;
        record.tenant_open_files = usage.tenant_open_files;
        record.processes = usage.processes;
        record.capabilities = usage.capabilities.bits();
    }
    record
}
