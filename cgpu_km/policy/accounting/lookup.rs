// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: what it can tell.

use crate::{
    nvidia::{
        capability::Capabilities,
        class::Kind,
        handle::{
            ClientHandle,
            ObjectHandle, //
        }, //
    },
    policy::{
        accounting::Accounting,
        audit::AuditRecord,
        boost::Boost,
        ids::{
            FileId,
            GpuId,
            ProcessId, //
        },
        ledger::Ledger,
        object::Object,
        quota::LimitView,
        share_view::{
            FbView,
            ShareView, //
        }, //
    },
    uapi::Limited, //
};

/// An object that a call names, or below which it makes another one: where it is.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Its GPU, if the tenant has a share of that.
    pub gpu: Option<GpuId>,
    /// The capabilities of the tenant's share of that GPU, or of all its shares.
    pub capabilities: Capabilities,
    /// The file that its client was made on; `None`: the tenant has no such client.
    pub made_on: Option<FileId>,
}

impl Accounting {
    /// The state of the tenant's share of a GPU; `None`: it has none.
    pub fn share(&self, gpu: GpuId) -> Option<ShareView> {
        self.accounts.ledgers.on(gpu).map(Ledger::view)
    }

    /// How much of a thing the tenant may have on a GPU, and has; `None`: it has no share of it.
    pub fn limit_of(&self, gpu: GpuId, what: Limited) -> Option<LimitView> {
        self.accounts.ledgers.limit(gpu, what)
    }

    /// The size of a GPU's memory as the tenant is told it; `None`: it has no share of the GPU.
    pub fn fb_view(&self, gpu: GpuId) -> Option<FbView> {
        self.accounts.ledgers.on(gpu).map(Ledger::fb_view)
    }

    /// The same for a client that asks what is left, and not for the size: CUDA shows the one
    /// beside the size that it asked for at its start.
    pub fn fb_view_known(&self, client: ClientHandle, gpu: GpuId) -> Option<FbView> {
        let view = self.fb_view(gpu)?;
        let share = self.accounts.ledgers.of(gpu)?;
        Some(view.as_told(self.forest.told_size(client, share)))
    }

    /// The same for a client that asks for the size, and remembers it.
    pub fn tell_size(&mut self, client: ClientHandle, gpu: GpuId) -> Option<FbView> {
        let view = self.fb_view(gpu)?;
        let share = self.accounts.ledgers.of(gpu)?;
        self.forest.tell_size(client, share, view.limit_kib());
        Some(view)
    }

    /// The tenant's rights on a GPU; without one, or with one that is not its own, what it may
    /// do with any of its own.
    pub fn capabilities(&self, gpu: Option<GpuId>) -> Capabilities {
        let ledgers = &self.accounts.ledgers;
        let own = gpu.and_then(|gpu| ledgers.on(gpu));
        own.map_or_else(|| ledgers.all_capabilities(), |ledger| ledger.capabilities)
    }

    /// The calls that were taken note of, kind by kind: those for a GPU, and those for none in
    /// particular.
    pub fn noted_calls(&self, gpu: GpuId) -> impl Iterator<Item = &AuditRecord> {
        let records = self.audit.records();
        records.filter(move |record| record.gpu.is_none_or(|of| of == gpu))
    }

    /// How many more there were, of kinds for which there was no room.
    pub fn other_noted_calls(&self) -> u64 {
        self.audit.others()
    }

    /// Calls `each` with every process that holds memory of a GPU, and its bytes. They add up to
    /// what is `used` of the share. Shared memory counts for the process that has had it longest.
    pub fn processes(&self, gpu: GpuId, mut each: impl FnMut(ProcessId, u64)) {
        if let Some(share) = self.accounts.ledgers.of(gpu) {
            for (process, bytes) in self.accounts.processes.holders(share) {
                each(process, bytes);
            }
        }
    }

    /// How often a share has come to be over its limit or has come back below it, on any GPU.
    pub fn over_changes(&self) -> u64 {
        self.accounts.ledgers.over_changes()
    }

    /// How often the tenant's programs came to want another boost, on any GPU.
    pub fn boost_changes(&self) -> u64 {
        self.forest.boost_changes
    }

    /// How long the tenant's programs want the highest clock of a GPU.
    pub fn boost(&self, gpu: GpuId) -> Boost {
        let ledger = self.accounts.ledgers.on(gpu);
        ledger.map_or(Boost::OFF, |ledger| ledger.boosters.wish())
    }

    /// Bytes of a GPU's memory that a process holds: its part of [`Accounting::processes`].
    pub fn held_by(&self, gpu: GpuId, process: ProcessId) -> u64 {
        let share = self.accounts.ledgers.of(gpu);
        share.map_or(0, |share| self.accounts.processes.bytes(share, process))
    }

    /// Nothing of a GPU is charged or asked for, and no object is at or below a device object of
    /// it, or on its way there. No UVM file has it, and nothing of it is behind a descriptor.
    pub fn is_share_idle(&self, gpu: GpuId) -> bool {
        self.accounts.ledgers.on(gpu).is_none_or(Ledger::is_clear)
    }

    /// Whether a process has a client here, or memory that is still there.
    pub fn has_process(&self, process: ProcessId) -> bool {
        self.accounts.processes.has(process)
    }

    /// Nothing is charged or asked for, and there is no client, no mapping or range for one, no
    /// managed memory and nothing behind a descriptor.
    pub fn is_idle(&self) -> bool {
        self.forest.is_empty()
            && self.mappings.is_empty()
            && self.ranges.is_empty()
            && self.registered.is_empty()
            && self.managed.is_empty()
            && self.mapped_hosts.is_empty()
            && self.exports.is_empty()
            && self.file_costs.is_empty()
            && self.os_events.is_empty()
            && self.accounts.are_clear()
    }

    /// The GPU that an object belongs to: that of the NV01_DEVICE_0 that it is or is below of.
    pub fn gpu_of(&self, client: ClientHandle, object: ObjectHandle) -> Option<GpuId> {
        let share = self.object(client, object)?.share?;
        let ledger = self.accounts.ledgers.get(share)?;
        self.accounts.ledgers.is_active(share).then(|| ledger.gpu())
    }

    /// The kind of an object's class; `None`: the client has no such object.
    pub fn kind_of(&self, client: ClientHandle, object: ObjectHandle) -> Option<Kind> {
        Some(self.object(client, object)?.kind)
    }

    /// The handle of the object that it is below of.
    pub fn parent_of(&self, client: ClientHandle, object: ObjectHandle) -> Option<ObjectHandle> {
        let parent = self.object(client, object)?.parent?;
        Some(self.forest.objects.get(parent)?.handle)
    }

    /// The client is one of this tenant's.
    pub fn owns_client(&self, client: ClientHandle) -> bool {
        self.forest.find_root(client).is_some()
    }

    /// The facts about an object and its client that a call has to know first.
    pub fn surroundings(&self, client: ClientHandle, object: ObjectHandle) -> Surroundings {
        let ledgers = &self.accounts.ledgers;
        let object = self.object(client, object);
        let owner = object.and_then(|object| self.forest.clients.get(object.owner?));
        let owner = owner.or_else(|| self.forest.client(client));
        let share = object.and_then(|object| ledgers.get(object.share?));
        let share = share.filter(|share| share.active);
        Surroundings {
            gpu: share.map(Ledger::gpu),
            capabilities: share
                .map_or_else(|| ledgers.all_capabilities(), |share| share.capabilities),
            made_on: owner.map(|owner| owner.file),
        }
    }

    /// The file that a client was made on.
    pub fn client_file(&self, client: ClientHandle) -> Option<FileId> {
        Some(self.forest.client(client)?.file)
    }

    /// Calls `work` with each of the clients that were made on a file.
    pub fn clients_of(&self, file: FileId, work: impl FnMut(ClientHandle)) {
        self.forest.clients_of(file, work);
    }

    fn object(&self, client: ClientHandle, object: ObjectHandle) -> Option<&Object> {
        self.forest.objects.get(self.forest.find(client, object)?)
    }
}
