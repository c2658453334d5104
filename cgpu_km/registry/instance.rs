// SPDX-License-Identifier: GPL-2.0
//! An instance: a tenant's share of one GPU, as the host's root sees and changes it.

use super::{
    gpu::{
        HostGpu,
        Overcommit, //
    },
    seldom::Seldom,
    tenant::Tenant,
    usage::{
        Patience,
        ToldUsage,
        Usage, //
    }, //
};
use crate::{
    failure::Failure,
    nvidia::capability::Capabilities,
    os_interface::{
        log::pr_warn,
        DeviceNumber,
        Gate, //
    },
    policy::{
        sched::{
            InstanceId,
            InstanceView,
            Terms, //
        },
        Accounting,
        AuditRecord,
        LimitView,
        Limited,
        ManagedMode,
        NoSuchShare,
        ProcessId,
        MOST_RECORDS, //
    },
    uapi::Cause, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// The calls that were taken note of.
pub struct NotedCalls {
    /// One for each kind of call.
    pub records: KVec<AuditRecord>,
    /// How many calls there were of kinds without a record.
    pub others: u64,
}

/// A limit or a mode was changed, and what the driver does for the tenant may not fit any more.
#[must_use = "`dispatch::rebalance` has the driver follow"]
pub struct Unbalanced<'a>(&'a Tenant);

impl Unbalanced<'_> {
    /// The tenant whose limit or mode it was.
    pub fn tenant(&self) -> &Tenant {
        self.0
    }
}

/// A tenant's share of one GPU.
#[pin_data]
pub struct TenantInstance {
    pub(super) id: u32,
    pub(super) gpu: Arc<HostGpu>,
    pub(super) tenant: Arc<Tenant>,
    pub(super) nodes: InstanceNodes,
    /// Its usage, as it was told last.
    pub(super) told: Arc<ToldUsage>,
    /// Before the registers that its programs map.
    pub(super) gate: Arc<Gate>,
    /// The host's log, of forks that made too many mappings of them.
    pub(super) told_of_mappings: Seldom,
    /// Held while one of its limits is changed, in the GPU's division and in the tenant, for which
    /// the change may wait.
    #[pin]
    pub(super) changing: Mutex<()>,
}

/// Numbers of the host nodes.
#[derive(Clone, Copy, Debug)]
pub struct InstanceNodes {
    /// Of the instance itself.
    pub own: DeviceNumber,
    /// Of the tenant's control node.
    pub control: DeviceNumber,
    /// Of the tenant's UVM node.
    pub uvm: DeviceNumber,
}

impl TenantInstance {
    /// Its number, `N` of `/dev/cgpuN`.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its GPU.
    pub fn gpu(&self) -> &Arc<HostGpu> {
        &self.gpu
    }

    /// Its tenant.
    pub fn tenant(&self) -> &Arc<Tenant> {
        &self.tenant
    }

    /// The numbers of its nodes.
    pub fn nodes(&self) -> &InstanceNodes {
        &self.nodes
    }

    /// How it is used now; `None` once it is destroyed.
    pub fn usage(&self) -> Option<Usage> {
        self.tenant.state.lock().usage(self.id)
    }

    /// The same for a report about all instances, which does not wait for a tenant.
    pub(super) fn reported_usage(&self, patience: &Patience) -> Option<Usage> {
        self.tenant.reported_usage(&self.told, self.id, patience)
    }

    /// Its free memory, and what each process holds, in bytes, as of one moment; `None` once it is
    /// destroyed.
    pub fn memory(
        &self,
        free: impl FnOnce(u64),
        process: impl FnMut(ProcessId, u64),
    ) -> Option<()> {
        let state = self.tenant.state.lock();
        state.share(self.id)?;
        free(state.accounting.share(self.gpu.id())?.free());
        state.accounting.processes(self.gpu.id(), process);
        Some(())
    }

    /// Changes its memory limit, in bytes. While more than that is used, new allocations fail.
    pub fn set_limit(&self, limit: u64, overcommit: Overcommit) -> Result<Unbalanced<'_>, Failure> {
        let gpu = self.gpu.id();
        let _changing = self.changing.lock();
        self.gpu.set_limit(self.id, limit, overcommit, || {
            self.change(|accounting| accounting.set_limit(gpu, limit))
        })?;
        Ok(Unbalanced(&self.tenant))
    }

    /// Changes what becomes of managed memory that does not fit, for what is mapped from now on.
    pub fn set_managed_mode(&self, mode: ManagedMode) -> Result<Unbalanced<'_>, Failure> {
        let gpu = self.gpu.id();
        self.change(|accounting| accounting.set_managed_mode(gpu, mode))?;
        Ok(Unbalanced(&self.tenant))
    }

    /// Changes how many groups and channels, each, it may have on a runlist. While it has more, no
    /// more are made.
    pub fn set_channel_limit(&self, limit: u32, overcommit: Overcommit) -> Result<(), Failure> {
        let gpu = self.gpu.id();
        let _changing = self.changing.lock();
        self.gpu.set_channel_limit(self.id, limit, overcommit, || {
            self.change(|accounting| accounting.set_channel_limit(gpu, limit))
        })
    }

    /// Changes how much of a thing it may have; `None`: as much as by default. While it has more,
    /// nothing more is granted.
    pub fn set_limit_of(&self, what: Limited, limit: Option<u64>) -> Result<(), Failure> {
        if limit == Some(0) {
            return Err(Cause::LimitZero.into());
        }
        let gpu = self.gpu.id();
        Ok(self.change(|accounting| accounting.set_limit_of(gpu, what, limit))?)
    }

    /// How much of a limited thing it may have, and has; `None` once it is destroyed.
    pub fn limit_of(&self, what: Limited) -> Option<LimitView> {
        let state = self.tenant.state.lock();
        state.share(self.id)?;
        state.accounting.limit_of(self.gpu.id(), what)
    }

    /// Changes which calls its programs may make.
    pub fn set_capabilities(&self, capabilities: Capabilities) -> Result<(), Failure> {
        let gpu = self.gpu.id();
        Ok(self.change(|accounting| accounting.set_capabilities(gpu, capabilities))?)
    }

    /// Changes the accounting, unless the instance is destroyed.
    fn change(
        &self,
        work: impl FnOnce(&mut Accounting) -> Result<(), NoSuchShare>,
    ) -> Result<(), Cause> {
        self.tenant.with_state(|state| {
            state.share(self.id).ok_or(Cause::NoSuchInstance)?;
            work(&mut state.accounting).map_err(|NoSuchShare| Cause::NoSuchInstance)
        })
    }

    /// Its weight; `None` once it is destroyed.
    pub fn weight(&self) -> Option<u32> {
        self.gpu.weight(self.id)
    }

    /// Changes its weight.
    pub fn set_weight(&self, weight: u32) -> Result<(), Failure> {
        self.gpu.set_weight(self.id, weight)
    }

    /// How it is served; `None` once it is destroyed.
    pub fn served(&self) -> Option<InstanceView> {
        self.gpu.conductor().instance_view(InstanceId(self.id))
    }

    /// Changes its priority, or whether it is kept off the GPU. (Its weight is changed by
    /// [`TenantInstance::set_weight`].)
    pub fn set_terms(&self, change: impl FnOnce(&mut Terms)) -> Result<(), Failure> {
        let conductor = self.gpu.conductor();
        Ok(conductor.set_terms(InstanceId(self.id), change)?)
    }

    /// The gate before its registers.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Tells the host's log that a fork has made more mappings of registers than it may have.
    pub(super) fn tell_of_mappings(&self) {
        if !self.told_of_mappings.is_due() {
            return;
        }
        let name = self.tenant.name().as_str().unwrap_or_default();
        let limit = self
            .limit_of(Limited::Mappings)
            .map_or(0, |view| view.limit);
        let minor = self.gpu.facts().minor;
        pr_warn!(
            "{name}: a child of fork cannot submit work to GPU {minor}: the limit of {limit} \
             mappings of registers is reached (cgpuctl inst set {name} --mappings)\n"
        );
    }

    /// The refused calls of its tenant, as of one moment: those for its GPU and those for no GPU.
    pub fn noted_calls(&self) -> Result<NotedCalls, Failure> {
        // There are never more, and no memory is asked for under the lock.
        let mut records = KVec::with_capacity(MOST_RECORDS, GFP_KERNEL)?;
        let state = self.tenant.state.lock();
        state.share(self.id).ok_or(Cause::NoSuchInstance)?;
        for record in state.accounting.noted_calls(self.gpu.id()) {
            records.push(*record, GFP_KERNEL)?;
        }
        Ok(NotedCalls {
            records,
            others: state.accounting.other_noted_calls(),
        })
    }
}
