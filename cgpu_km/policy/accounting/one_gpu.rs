// SPDX-License-Identifier: GPL-2.0
//! The objects that a call uses together have to be of one GPU.
//!
//! A client can have devices of several GPUs, and a call names a device and memory apart. The
//! driver does not compare them. It takes the place that the memory has on its own GPU for a place
//! on the device's, where it is whoever's: for a mapping through BAR1 (`memMap_IMPL()`,
//! mapping_cpu.c), for one into a range of addresses (`dmaAllocMapping_GM107()`,
//! virt_mem_allocator_gm107.c), for a channel's control page
//! (`kchannelCreateUserdMemDesc_GV100()`, kernel_channel_gv100.c), and for a debugger
//! (`_nv83deMapMemoryIntoGrdbgClient()`, kernel_sm_debugger_session_ctrl.c). Of an address space of
//! another GPU it takes a null pointer (`dmaUpdateVASpace_GF100()`, virt_mem_allocator_gm107.c).
//!
//! Host memory can be mapped for each GPU, and Vulkan does so: the driver enters it for that GPU
//! (`memdescMapIommu()` in `virtmemMapTo_IMPL()`, virtual_mem.c). A channel's control page and the
//! memory for its errors are not entered anew, so they are of the channel's GPU wherever they lie.
//!
//! A copy is of its original's GPU, so it cannot be below a device of another one
//! ([`RefusalCause::OtherGpu`]). So an object's GPU is that of the device above it.

use crate::{
    nvidia::{
        class::Kind,
        handle::{
            ClientHandle,
            ObjectHandle, //
        }, //
    },
    policy::{
        accounting::Accounting,
        event::{
            RefusalCause,
            RmMapTicket, //
        },
        records::RecordId, //
    },
    uapi::Limited, //
};

impl Accounting {
    /// The driver is about to reach memory by way of a device, a subdevice, a debugger, or for
    /// memory that belongs to no GPU the client. Both keep their names until
    /// [`Accounting::end_named_map`].
    ///
    /// # Errors
    ///
    /// The memory is another GPU's; or what one of the handles means is not known.
    pub fn begin_named_map(
        &mut self,
        client: ClientHandle,
        by: ObjectHandle,
        memory: ObjectHandle,
    ) -> Result<RmMapTicket, RefusalCause> {
        let (device, memory) = self.reachable(client, by, memory)?;
        Ok(self.name_map([Some(device), Some(memory), None]))
    }

    /// A debugger is about to read or write memory. Since branch 570 the driver does so with a copy
    /// engine, which takes an address of a range of addresses for one of the host
    /// (`_nv83deCtrlCmdDebugAccessMemory()`, kernel_sm_debugger_session_ctrl.c), and a place in
    /// NVLink's fabric as well. So it has to be video memory or the host's; that is the caller's as
    /// for [`Accounting::begin_named_map`].
    pub fn begin_debug_access(
        &mut self,
        client: ClientHandle,
        debugger: ObjectHandle,
        memory: ObjectHandle,
    ) -> Result<RmMapTicket, RefusalCause> {
        let kind = self.kind_of(client, memory);
        let is_readable = |kind: Kind| kind.is_memory() && kind != Kind::FabricMemory;
        if kind.is_some_and(|kind| !is_readable(kind)) {
            return Err(RefusalCause::NoMemoryOfIts);
        }
        self.begin_named_map(client, debugger, memory)
    }

    /// An address space is about to be registered with memory for other devices
    /// (`NV503C_CTRL_CMD_REGISTER_VA_SPACE`); `None`: none in particular.
    ///
    /// The driver frees the one with the other, whatever that is. An object that depends on itself
    /// would be freed without end, on the kernel's stack (`CliAddThirdPartyP2PVASpace()`,
    /// third_party_p2p.c; `clientUpdatePendingFreeList_IMPL()`, rs_server.c). Nothing that an
    /// address space goes with depends on such memory. The driver keeps a record of each, so each
    /// counts as an object until the memory's own is gone.
    ///
    /// # Errors
    ///
    /// It is no address space of the same client and GPU; there are too many objects.
    pub fn begin_register_space(
        &mut self,
        client: ClientHandle,
        peer: ObjectHandle,
        space: Option<ObjectHandle>,
    ) -> Result<RmMapTicket, RefusalCause> {
        let named = self.forest.named(client, peer)?;
        if named.object.kind != Kind::PeerMemory {
            return Err(RefusalCause::WrongClass);
        }
        let (peer_id, share) = (named.id, named.object.share);
        let space = match space {
            Some(space) => {
                let (_, id) = self.on_one_gpu(client, peer, space)?;
                if self.kind_of(client, space) != Some(Kind::VaSpace) {
                    return Err(RefusalCause::NoAddressSpace);
                }
                Some(id)
            }
            None => None,
        };
        self.accounts.ledgers.count(share, Limited::Objects, 1)?;
        if let Some(peer) = self.forest.objects.get_mut(peer_id) {
            peer.ask(peer.records().saturating_add(1));
        }
        Ok(self.name_map([Some(peer_id), space, None]))
    }

    /// The driver has answered a call that [`Accounting::begin_named_map`]
    /// or [`Accounting::begin_register_space`] agreed to.
    pub fn end_named_map(&mut self, ticket: RmMapTicket) {
        self.release_names(ticket.names);
    }

    /// Holds what a mapping names.
    pub(super) fn name_map(&mut self, names: [Option<RecordId>; 3]) -> RmMapTicket {
        RmMapTicket {
            names: names.map(|id| self.forest.hold_name(id?)),
        }
    }

    /// A device and memory that can be mapped by way of it.
    pub(super) fn reachable(
        &self,
        client: ClientHandle,
        device: ObjectHandle,
        memory: ObjectHandle,
    ) -> Result<(RecordId, RecordId), RefusalCause> {
        let host = self.kind_of(client, memory);
        if !matches!(host, Some(Kind::SystemMemory | Kind::OsDescriptor)) {
            return self.on_one_gpu(client, device, memory);
        }
        let device = self.forest.named(client, device)?.id;
        Ok((device, self.forest.named(client, memory)?.id))
    }

    /// Two objects that a call uses together; they are below one device.
    pub(super) fn on_one_device(
        &self,
        client: ClientHandle,
        one: ObjectHandle,
        other: ObjectHandle,
    ) -> Result<(RecordId, RecordId), RefusalCause> {
        let (one, other) = self.on_one_gpu(client, one, other)?;
        if self.forest.are_of_one_device(one, other) {
            Ok((one, other))
        } else {
            Err(RefusalCause::OtherGpu)
        }
    }

    /// Two objects that a call uses together; they are of one GPU.
    pub(super) fn on_one_gpu(
        &self,
        client: ClientHandle,
        one: ObjectHandle,
        other: ObjectHandle,
    ) -> Result<(RecordId, RecordId), RefusalCause> {
        let one = self.forest.named(client, one)?;
        let other = self.forest.named(client, other)?;
        if one.object.share == other.object.share {
            Ok((one.id, other.id))
        } else {
            Err(RefusalCause::OtherGpu)
        }
    }
}
