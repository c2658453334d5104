// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: what it consists of, and the events that change it.

mod answers;
pub(super) mod balance;
mod channels;
pub(super) mod cuts;
mod exports;
pub(super) mod lookup;
mod managed;
mod maps;
mod objects;
mod one_gpu;
mod open;
mod os_events;
mod preemption;
mod profilers;
mod ranges;
mod registered;
pub(super) mod rm_maps;
mod shown;
pub(super) mod structs;
mod surfaces;

use crate::{
    nvidia::{
        capability::Capabilities,
        handle::ClientHandle, //
    },
    policy::{
        audit::{
            Audit,
            Audited,
            Notice,
            Reason, //
        },
        channel_limit::Engines,
        channels::ChannelChange,
        charge::Accounts,
        descriptor::Exports,
        file_costs::FileCosts,
        forest::Forest,
        gpu_mapping::GpuMappings,
        ids::{
            FileId,
            GpuId,
            ProcessId, //
        },
        ledgers::NoSuchShare,
        managed::Managed,
        mapped_host::MappedHosts,
        os_events::OsEvents,
        overhead::ContextCost,
        quota::GpuSize,
        ranges::Ranges,
        registered::RegisteredChannels, //
    },
    store::Exhausted,
    uapi::Limited, //
};

/// Everything that one tenant owns on all its GPUs.
///
/// No method blocks. Finding an object takes constant time, freeing one takes time in proportion to
/// what is below it.
///
/// Only the `begin_*` methods and [`Accounting::add_share`] allocate. One that fails has changed
/// nothing, and the call is not forwarded: its error is what the caller is told. The other methods
/// fail if the tenant has no such share or object.
#[derive(Debug)]
pub struct Accounting {
    pub(super) accounts: Accounts,
    pub(super) forest: Forest,
    pub(super) mappings: GpuMappings,
    pub(super) ranges: Ranges,
    pub(super) registered: RegisteredChannels,
    pub(super) managed: Managed,
    pub(super) mapped_hosts: MappedHosts,
    pub(super) exports: Exports,
    pub(super) file_costs: FileCosts,
    pub(super) os_events: OsEvents,
    pub(super) audit: Audit,
}

impl Accounting {
    /// Accounting without a share. The tenant must know nothing of the seed: it chooses its handles
    /// itself, and could choose them so that looking one up takes long.
    pub fn new(seed: u64) -> Self {
        Self {
            accounts: Accounts::new(seed),
            forest: Forest::new(seed),
            mappings: GpuMappings::new(seed),
            ranges: Ranges::new(seed),
            registered: RegisteredChannels::new(seed),
            managed: Managed::default(),
            mapped_hosts: MappedHosts::new(seed),
            exports: Exports::new(seed),
            file_costs: FileCosts::new(seed),
            os_events: OsEvents::new(seed),
            audit: Audit::default(),
        }
    }

    /// The tenant gets a share of a GPU, of `limit` bytes, with the default capabilities. A share
    /// that it has gets that limit; one that was taken away comes back with what it is still
    /// charged, or is as new if that is nothing. It fails without memory, and if there are
    /// [`super::MAX_SHARES`] shares.
    pub fn add_share(&mut self, gpu: GpuId, limit: u64) -> Result<(), Exhausted> {
        self.accounts.ledgers.open(gpu, limit)?;
        self.audit.forget(gpu);
        Ok(())
    }

    /// The tenant loses its share of a GPU: no new device object, no new memory. Its memory there
    /// is credited as it goes.
    pub fn remove_share(&mut self, gpu: GpuId) {
        self.accounts.ledgers.close(gpu);
    }

    /// Changes a limit, in bytes. Below what is taken, nothing new is granted until enough is
    /// freed.
    pub fn set_limit(&mut self, gpu: GpuId, limit: u64) -> Result<(), NoSuchShare> {
        self.accounts.ledgers.active_mut(gpu)?.set_limit(limit);
        Ok(())
    }

    /// Sets the cost of contexts on a GPU. To be called before there is any.
    pub fn set_context_cost(&mut self, gpu: GpuId, cost: ContextCost) -> Result<(), NoSuchShare> {
        self.accounts.ledgers.active_mut(gpu)?.cost = cost;
        Ok(())
    }

    /// Says how the engines of a GPU share its runlists. To be called before there is a channel.
    pub fn set_engines(&mut self, gpu: GpuId, engines: Engines) -> Result<(), NoSuchShare> {
        self.accounts.ledgers.active_mut(gpu)?.engines = engines;
        Ok(())
    }

    /// Sets how many groups and channels, each, the tenant may have on a runlist of a GPU. Below
    /// what there is, no more are made until enough are gone.
    pub fn set_channel_limit(&mut self, gpu: GpuId, limit: u32) -> Result<(), NoSuchShare> {
        let ledger = self.accounts.ledgers.active_mut(gpu)?;
        ledger.channels.set_limit(limit);
        Ok(())
    }

    /// Says how large a GPU is, so that its instances' limits follow from that where none is set.
    ///
    /// # Errors
    ///
    /// The tenant has no share of that GPU.
    pub fn set_size(&mut self, gpu: GpuId, size: GpuSize) -> Result<(), NoSuchShare> {
        self.accounts.ledgers.active_mut(gpu)?.quotas.open(size);
        Ok(())
    }

    /// Sets how much there may be of a thing; `None`: the default. Below what there is, no more is
    /// granted until enough is gone.
    ///
    /// # Errors
    ///
    /// The tenant has no share of that GPU.
    pub fn set_limit_of(
        &mut self,
        gpu: GpuId,
        what: Limited,
        limit: Option<u64>,
    ) -> Result<(), NoSuchShare> {
        let ledger = self.accounts.ledgers.active_mut(gpu)?;
        ledger.quotas.set(what, limit);
        Ok(())
    }

    /// Says what the tenant's share of a GPU is for.
    pub fn set_capabilities(
        &mut self,
        gpu: GpuId,
        capabilities: Capabilities,
    ) -> Result<(), NoSuchShare> {
        self.accounts.ledgers.active_mut(gpu)?.capabilities = capabilities;
        Ok(())
    }

    /// A call by `process` was refused for another reason than the limit, or let through unseen;
    /// `gpu` `None`: it concerns no GPU in particular. `now` is in seconds since 1970. The kernel
    /// log is to have a line where there is a [`Notice`].
    pub fn note_call(
        &mut self,
        call: &Audited,
        gpu: Option<GpuId>,
        process: ProcessId,
        now: u64,
    ) -> Option<Notice> {
        if call.reason != Reason::PassedUnseen {
            self.accounts.ledgers.count_refused_call(gpu);
        }
        self.audit.note(call, gpu, process, now)
    }

    /// The oldest thing that happened to a channel or a channel group and was not taken yet. To be
    /// taken whenever the accounting was changed, before it is let go.
    pub fn take_channel_change(&mut self) -> Option<ChannelChange> {
        loop {
            let noted = self.forest.channels.take()?;
            // A ledger stays as long as the accounting does.
            if let Some(ledger) = self.accounts.ledgers.get(noted.share) {
                return Some(ChannelChange {
                    gpu: ledger.gpu(),
                    client: noted.client,
                    object: noted.object,
                    what: noted.what,
                });
            }
        }
    }

    /// Channels and channel groups that are asked for or there, on all of its GPUs.
    pub fn scheduled_objects(&self) -> usize {
        self.forest.channels.objects()
    }

    /// A client that is gone, in the driver too, and was not taken yet. To be taken whenever the
    /// accounting was changed, before it is let go; a test that takes none loses those for which
    /// there is no room.
    pub fn take_gone_client(&mut self) -> Option<ClientHandle> {
        self.forest.gone.pop()
    }

    /// The driver has released a file, and with it all clients that were made on it, all that was
    /// mapped through it and all that was put into it.
    pub fn close_file(&mut self, file: FileId) {
        while let Some(gone) = self.mappings.take_of(file) {
            self.release_mapping(Some(gone));
        }
        while let Some(hold) = self.registered.take_of(file) {
            self.release_hold(hold);
        }
        self.forest.shown.remove(file);
        while let Some(hold) = self.mapped_hosts.take_of(file) {
            self.accounts.release(hold);
        }
        self.close_ranges(file);
        self.close_os_events(file);
        self.close_managed(file);
        while let Some(export) = self.exports.take_of(file) {
            self.release_export(&export);
        }
        self.close_file_costs(file);
        self.forest.close_file(file, &mut self.accounts);
    }
}
