// SPDX-License-Identifier: GPL-2.0
//! Types that the proxy and the accounting exchange: requests, the tickets of calls in flight, and
//! the causes of refusals.

use crate::{
    nvidia::{
        class::Kind,
        handle::{
            ClassId,
            ClientHandle,
            ObjectHandle, //
        },
        memory::PageSize,
        params::is_compute_engine,
        status::NvStatus, //
    },
    policy::{
        audit::Reason,
        ids::{
            FileId,
            GpuId,
            ProcessId, //
        },
        overhead::{
            ContextCost,
            CHANNEL,
            OTHER_GROUP, //
        },
        records::{
            RecordId,
            Ref, //
        }, //
    },
    store::{
        Exhausted,
        List, //
    },
    uapi::Limited, //
};

/// An object that a call is about to make: `NV_ESC_RM_ALLOC`, or function 2 of
/// `NV_ESC_RM_VID_HEAP_CONTROL`.
#[derive(Clone, Copy, Debug)]
pub struct Alloc {
    /// The file that the call came through. A client belongs to the file that it was made on.
    pub file: FileId,
    /// The calling process. A client, and what is charged to it, counts for the process that made
    /// it.
    pub process: ProcessId,
    /// hRoot: the client; of no meaning for [`Kind::Root`].
    pub client: ClientHandle,
    /// hObjectParent; of no meaning for [`Kind::Root`].
    pub parent: ObjectHandle,
    /// hObjectNew: the new object's handle, for [`Kind::Root`] that of the new client. 0: the
    /// caller leaves the choice to the driver; see [`Ticket::handle`].
    pub object: ObjectHandle,
    /// hClass.
    pub class: ClassId,
    /// The kind of the class.
    pub kind: Kind,
    /// `deviceId` of `NV0080_ALLOC_PARAMETERS`, for [`Kind::Device`]. `None` where the caller gave
    /// no parameters, which the driver takes as 0 (device.c, `deviceConstruct_IMPL`).
    pub device_instance: Option<u32>,
    /// GPU memory that the object will take, in bytes, rounded as the driver will round it.
    pub bytes: u64,
    /// And page tables, in bytes, which no object shows: charged as overhead.
    pub tables: u64,
    /// Memory of the host that it will take, in bytes, rounded in the same way. An object takes
    /// either this or GPU memory.
    pub host: u64,
    /// Bytes of memory as they were asked for: there are as many, and may be no more. (What it
    /// takes is rounded up as the driver does at most.)
    pub size: u64,
    /// By what pages it can be mapped at most; of no meaning but for memory.
    pub page: PageSize,
    /// engineType of a channel group or of a channel, for which the driver makes a group where it
    /// is in none. Charged with [`ContextCost`] and as `super::overhead` says.
    pub engine: Option<u32>,
    /// For a channel: the memory in which the driver notes its errors, or a context for DMA over
    /// it. For a context for DMA: the memory that it is over.
    pub memory: Option<ObjectHandle>,
    /// For a device: another client, whose addresses it is to have (`hClientShare`).
    pub addresses_of: Option<ClientHandle>,
    /// Objects that the driver uses with it, which have to be of its GPU: the memory of a channel's
    /// control page (`hUserdMemory`), an address space (`hVASpace`).
    pub uses: [Option<ObjectHandle>; 2],
    /// The offset of a channel's control page in its memory (`userdOffset`).
    pub control_page: u64,
}

impl Alloc {
    /// A request for an object that costs nothing.
    pub fn of(
        file: FileId,
        process: ProcessId,
        (client, parent): (ClientHandle, ObjectHandle),
        object: ObjectHandle,
        (class, kind): (ClassId, Kind),
    ) -> Self {
        Self {
            file,
            process,
            client,
            parent,
            object,
            class,
            kind,
            device_instance: None,
            bytes: 0,
            tables: 0,
            host: 0,
            size: 0,
            page: PageSize::Small,
            engine: None,
            memory: None,
            uses: [None; 2],
            addresses_of: None,
            control_page: 0,
        }
    }

    /// It takes memory of a size that is known.
    pub(super) fn takes_memory(&self) -> bool {
        self.bytes > 0 || self.tables > 0 || self.host > 0
    }

    /// The most that it is charged, its invisible part included, in bytes. Each further context
    /// of a GPU costs less, so a context counts here with the largest cost.
    pub fn most(&self) -> u64 {
        let overhead = self.engine.map_or(0, |engine| {
            let contexts = u64::from(is_compute_engine(engine));
            ContextCost::LARGEST.all(contexts) + CHANNEL + OTHER_GROUP
        });
        self.bytes
            .saturating_add(overhead)
            .saturating_add(self.tables)
    }
}

/// Memory that RM is about to map into a range of a GPU's addresses (`NV_ESC_RM_MAP_MEMORY_DMA`).
#[derive(Clone, Copy, Debug)]
pub struct RmMap {
    /// hClient.
    pub client: ClientHandle,
    /// hDevice: the device by way of which it is mapped.
    pub device: ObjectHandle,
    /// hDma.
    pub range: ObjectHandle,
    /// hMemory.
    pub memory: ObjectHandle,
    /// The first byte of the memory that is mapped.
    pub offset: u64,
    /// Bytes of it.
    pub length: u64,
    /// The driver maps it for the host's kernel as well: video memory through BAR1.
    pub for_kernel: bool,
    /// By another kind of page than the object has.
    pub of_other_kind: bool,
}

/// Addresses of a range that RM is about to unmap (`NV_ESC_RM_UNMAP_MEMORY_DMA`).
#[derive(Clone, Copy, Debug)]
pub struct RmUnmap {
    /// hClient.
    pub client: ClientHandle,
    /// hDevice: the device by way of which it was mapped.
    pub device: ObjectHandle,
    /// hDma.
    pub range: ObjectHandle,
    /// The first address.
    pub base: u64,
    /// How many; 0: those of the mapping that begins there.
    pub length: u64,
}

/// Memory that a call is about to map for one GPU.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// The UVM file.
    pub file: FileId,
    /// The GPU that is to reach the memory.
    pub gpu: GpuId,
    /// The same, as UVM names it.
    pub uuid: [u8; 16],
    /// hClient.
    pub client: ClientHandle,
    /// hMemory.
    pub memory: ObjectHandle,
    /// The first address.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// Their offset in the memory.
    pub offset: u64,
}

/// Objects that a call is about to put into a control file, or to take out of one.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorPlaces<'a> {
    /// The file that the driver will use: held by the caller until the call ends.
    pub file: FileId,
    /// The place of the first.
    pub first: u16,
    /// hClient.
    pub client: ClientHandle,
    /// The handles, one for each place: of the objects that are exported (0: none, its place stays
    /// as it is), or for those that are imported (0: the caller leaves the choice to the driver).
    pub objects: &'a [ObjectHandle],
    /// How many places the driver makes for the file, if it has none; 0: it makes none.
    pub made: u16,
}

impl DescriptorPlaces<'_> {
    /// The places and what is said of each; `None` beyond the last place that a file can have.
    pub(super) fn each(&self) -> impl Iterator<Item = (Option<u16>, ObjectHandle)> + '_ {
        let places = (usize::from(self.first)..).map(|place| u16::try_from(place).ok());
        places.zip(self.objects.iter().copied())
    }
}

/// The driver's answer about an object that it made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocDone {
    /// A new client's handle, as the call's output has it. Of no meaning where [`Ticket::handle`]
    /// named one.
    pub object: ObjectHandle,
    /// The size that the driver says the object has, in bytes; 0 where it says none. It can raise
    /// the charge above what was reserved, not lower it.
    pub bytes: u64,
}

/// A call that makes an object and that the accounting has agreed to.
///
/// It stands for reserved memory and held names, and must be handed back to the `end_*` method of
/// the `begin_*` method that gave it, whatever became of the call.
#[derive(Debug)]
#[must_use = "what a ticket reserves stays reserved until it is handed back"]
pub struct Ticket {
    /// The object that is being made.
    pub(super) object: Ref,
    pub(super) handle: ObjectHandle,
    /// Objects that the call names: its client, its parent, the source of a duplication or what the
    /// context of a graphics object belongs to, and [`Alloc::uses`].
    pub(super) names: [Option<Ref>; 5],
    /// Memory that is not freed before the call is over: for a channel's errors, and for its
    /// control page.
    pub(super) kept: [Option<RecordId>; 2],
}

impl Ticket {
    /// The handle under which the driver must be asked for the object, whatever the caller wrote:
    /// where the caller left the choice to the driver, the accounting has chosen. 0 for a client
    /// alone, which the driver gives a handle that no client of the whole machine has.
    pub fn handle(&self) -> ObjectHandle {
        self.handle
    }
}

/// A control that sets when the work of a channel group can be preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptionOrder {
    /// The subdevice that it is called on.
    pub subdevice: ObjectHandle,
    /// The group, or a channel in none.
    pub channels: ObjectHandle,
}

/// A call that frees an object and everything below it. Must be handed back to
/// `Accounting::end_free`.
#[derive(Debug)]
#[must_use = "an object is credited when its ticket is handed back"]
pub struct FreeTicket {
    /// The object that is being freed; `None` where the accounting knows no such object.
    pub(super) object: Option<Ref>,
    /// The driver had it before the call. If not, the call may have come before the object.
    pub(super) was_here: bool,
    /// The note of a name that nothing had.
    pub(super) unknown: Option<RecordId>,
    /// Its client.
    pub(super) client: Option<Ref>,
}

/// A call by which RM maps memory, or uses it or an address space. Must be handed back to
/// `Accounting::end_named_map`.
#[derive(Debug)]
#[must_use = "what it names keeps its name until the ticket is handed back"]
pub struct RmMapTicket {
    /// The device, the memory, and the range of addresses if it is mapped into one.
    pub(super) names: [Option<Ref>; 3],
}

/// A call that maps memory through UVM for one GPU. Must be handed back to
/// `Accounting::end_map`.
#[derive(Debug)]
#[must_use = "what a mapping holds stays charged until its ticket is handed back"]
pub struct MapTicket {
    /// The mapping that is being made.
    pub(super) mapping: Ref,
    /// Objects that the call names: the memory and its client.
    pub(super) names: [Option<Ref>; 3],
}

/// A call that registers a channel with UVM. Must be handed back to `Accounting::end_register`.
#[derive(Debug)]
#[must_use = "what a registration holds stays charged until its ticket is handed back"]
pub struct RegisterTicket {
    /// The registration that is being made.
    pub(super) registration: Ref,
    /// Objects that the call names: the channel and its client.
    pub(super) names: [Option<Ref>; 3],
}

/// A call that puts objects behind a descriptor. Must be handed back to
/// `Accounting::end_export`.
#[derive(Debug)]
#[must_use = "the names that an export uses stay held until its ticket is handed back"]
pub struct ExportTicket {
    /// Objects that the call names, and their client.
    pub(super) names: List<Ref>,
    /// The objects that it puts behind the descriptor.
    pub(super) exports: List<Ref>,
}

/// A call that takes objects from behind a descriptor. Must be handed back to
/// `Accounting::end_import`.
#[derive(Debug)]
#[must_use = "what an import makes stays in flight until its ticket is handed back"]
pub struct ImportTicket {
    pub(super) file: FileId,
    /// For each place, the object that comes out of it; `None` where nothing is.
    pub(super) objects: List<Option<Ticket>>,
}

impl ImportTicket {
    /// The handle under which the driver must be asked for what is in one of the places, by its
    /// number in the call, whatever the caller wrote; `None` where nothing is.
    pub fn handle(&self, number: usize) -> Option<ObjectHandle> {
        Some(self.objects.get(number)?.as_ref()?.handle())
    }
}

/// A part of memory that a stream fills: the memory, its first byte, and how many.
#[derive(Clone, Copy, Debug)]
pub struct StreamPart {
    /// Handle of the memory, of the profiler's client.
    pub memory: ObjectHandle,
    /// Offset in bytes.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Why a call is not forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// The share has not as much memory left.
    NoMemory {
        /// Bytes that the call would take, its invisible part included.
        wanted: u64,
        /// Bytes that were left.
        free: u64,
    },
    /// The share has as many groups of channels on a runlist as it may.
    NoGroups,
    /// The share has as many channels on a runlist as it may.
    NoChannels,
    /// The tenant has as much of this as it may.
    LimitReached(Limited),
    /// The tenant has this key of an event, or a call is about it.
    KeyTaken,
    /// The accounting itself got no memory from the kernel.
    Exhausted,
    /// The tenant has no such client.
    ForeignClient,
    /// The client was made on another control file.
    OtherFile,
    /// A context for DMA is not beside its memory.
    OtherParent,
    /// The client has no object of the handle that a call names.
    UnknownObject,
    /// The client has an object of that handle already, or a call that makes one is in flight.
    HandleInUse,
    /// No object may have the handle of its client.
    HandleOfClient,
    /// The handle stands for no object where a range of addresses is made.
    HandleOfNone,
    /// The handle is one of those that the driver gives to objects of its own.
    HandleOfDriver,
    /// Memory can only be had below a device.
    NoDevice,
    /// The tenant has no share of that GPU.
    NoSuchGpu,
    /// The driver does not duplicate such objects.
    NotCopyable,
    /// A copy would not keep the address space that it works in.
    KeepsNoSpace,
    /// The object is of a class that has not what the call wants of it.
    WrongClass,
    /// A profiler would bind after a stream that failed, or during a call for one.
    UnmadeStream,
    /// A doorbell page is to be mapped for a GPU.
    Doorbell,
    /// The memory has a place in NVLink's fabric already.
    InFabric,
    /// The caller left the choice of a handle to the driver, and all of those are taken.
    NoHandle,
    /// Addresses that are no range: of no bytes, beyond the end of the address space, or of a range
    /// that is on its way.
    NoRange,
    /// There is a range of these addresses, or of some of them.
    AddressInUse,
    /// The client has no such channel that UVM could keep.
    UnknownChannel,
    /// UVM has a channel of this name in this file, or is about to have it.
    ChannelRegistered,
    /// Another call maps the same addresses.
    MappingInFlight,
    /// Another mapping lies whole in these addresses and must be unmapped before.
    MappingInTheWay,
    /// The tenant may not have managed memory.
    ManagedDenied,
    /// A file has no such place for an object.
    NoPlace,
    /// The place of a file has been used for an object.
    PlaceTaken,
    /// Another call imports from the file.
    FileInFlight,
    /// The file has been prepared for a mapping of something else.
    FileInUse,
    /// The channels are on the runlist, and no call has set when their work can be preempted.
    RunsAlready,
    /// Another call is setting when the work of these channels can be preempted.
    PreemptionBeingSet,
    /// The channels' device has no subdevice, which the control that sets it needs.
    NoSubdevice,
    /// The errors of a channel are to be noted in what is no memory of its device.
    NoNotes,
    /// A channel is being made that uses this memory for its errors or its control page, or such
    /// memory is being freed.
    MemoryInFlight,
    /// A channel is there that uses this memory so.
    MemoryInUse,
    /// A device is to have the addresses of a client that could go before it, or that has
    /// another's itself.
    NotShareable,
    /// A device of another client has the addresses of this one.
    SpaceInUse,
    /// A context for DMA would map for the host's kernel what is no host memory.
    NoHostMemory,
    /// The objects that a call uses together are not of one GPU.
    OtherGpu,
    /// A part of memory that the memory has not.
    BeyondMemory,
    /// More is to be mapped than the memory has, or the range of addresses.
    NoSuchPart,
    /// An object that is no memory of the program's is to be mapped or read as such.
    NoMemoryOfIts,
    /// An object that is no address space is to be registered as one, or memory is to be mapped
    /// into what is no range of addresses.
    NoAddressSpace,
    /// Too many objects of the share want shared data to be kept up to date, or too often.
    PolledTooOften,
}

/// The driver's answer where it has no more of what is limited.
const fn status_of_limit(what: Limited) -> NvStatus {
    match what {
        // No handles: rmobjexportimport.c, RmExportObject. No place in BAR1:
        // kernel/gpu/bus/arch/maxwell/kern_bus_gm107.c, kbusMapFbAperture_GM107 (seen with driver
        // 550). Host memory: kernel-open/nvidia/nv-vm.c, nv_alloc_system_pages.
        Limited::Exports | Limited::Bar1 | Limited::HostMemory => NvStatus::NV_ERR_NO_MEMORY,
        // No memory: rs_server.c, _serverCreateEntryAndLockForNewClient, and rs_client.c.
        _ => NvStatus::NV_ERR_INSUFFICIENT_RESOURCES,
    }
}

impl RefusalCause {
    /// The driver's answer to the same mistake. File and function are those of
    /// open-gpu-kernel-modules 580.142, in `src/nvidia/src`.
    pub const fn status(self) -> NvStatus {
        match self {
            // A full heap (kernel/mem_mgr/vid_mem_alloc.c), which CUDA reads as out of memory; RM
            // without memory of its own (rmapiAllocWithSecInfo); a runlist without an id for a
            // channel (kernel/gpu/fifo/kernel_fifo.c, kfifoChidMgrAllocChid_IMPL; eheap_old.c).
            // A mapping has no status: the program's mmap gives ENOMEM, as where UVM has no memory.
            Self::NoMemory { .. } | Self::NoChannels | Self::Exhausted | Self::ManagedDenied => {
                NvStatus::NV_ERR_NO_MEMORY
            }
            // kernel_fifo.c, kfifoChidMgrAllocChannelGroupHwID_IMPL.
            Self::NoGroups => NvStatus::NV_ERR_NO_FREE_FIFOS,
            // libraries/resserv/src/rs_server.c, _serverLockClientWithLockInfo: no such client at
            // all. (For a client that exists on another file, client.c, rmclientValidate_IMPL says
            // NV_ERR_INVALID_CLIENT. A neighbour's client must not be told from none.)
            Self::ForeignClient => NvStatus::NV_ERR_INVALID_OBJECT_HANDLE,
            Self::HandleOfNone | Self::HandleOfDriver => NvStatus::NV_ERR_INVALID_OBJECT_HANDLE,
            // rmapi/client.c, rmclientValidate_IMPL.
            Self::OtherFile | Self::NotShareable => NvStatus::NV_ERR_INVALID_CLIENT,
            // rs_client.c, clientGetResourceRef_IMPL.
            Self::UnknownObject => NvStatus::NV_ERR_OBJECT_NOT_FOUND,
            // rs_client.c, clientValidateNewResourceHandle_IMPL.
            Self::HandleInUse => NvStatus::NV_ERR_INSERT_DUPLICATE_NAME,
            // kernel/rmapi/alloc_free.c, serverAllocResourceUnderLock: a class that has parents, or
            // has others. And context_dma.c, ctxdmaConstruct_IMPL.
            Self::HandleOfClient | Self::OtherParent | Self::NoDevice => {
                NvStatus::NV_ERR_INVALID_OBJECT_PARENT
            }
            // kernel/gpu/device.c, deviceConstruct_IMPL: the process has no file of that GPU.
            Self::NoSuchGpu => NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS,
            // rs_server.c, serverCopyResource: resCanCopy says no, as it does where a class does
            // not say otherwise (rs_resource.c, resCanCopy_IMPL). And 595's memdescCreateSubMem.
            Self::NotCopyable | Self::KeepsNoSpace | Self::BeyondMemory => {
                NvStatus::NV_ERR_INVALID_ARGUMENT
            }
            // rs_resource.c, resControlLookup_IMPL: a control that the class has not.
            Self::WrongClass | Self::NoMemoryOfIts | Self::NoHostMemory => {
                NvStatus::NV_ERR_NOT_SUPPORTED
            }
            // kernel/gpu/fifo/usermode_api.c, usrmodeGetMemInterMapParams_IMPL: no page for that.
            Self::Doorbell | Self::NoAddressSpace => NvStatus::NV_ERR_INVALID_PARAMETER,
            // kernel/mem_mgr/fabric_vaspace.c, fabricvaspaceAllocNonContiguous_IMPL: none is left.
            Self::InFabric => NvStatus::NV_ERR_NO_MEMORY,
            Self::LimitReached(what) => status_of_limit(what),
            // arch/nvalloc/unix/src/osapi.c, RmAllocOsEvent, whatever is wrong.
            Self::KeyTaken => NvStatus::NV_ERR_INSUFFICIENT_RESOURCES,
            // rs_client.c, clientGenResourceHandle_IMPL.
            Self::NoHandle | Self::PolledTooOften => NvStatus::NV_ERR_INSUFFICIENT_RESOURCES,
            // kernel-open/nvidia-uvm/uvm_ioctl.c, uvm_api_range_invalid_4k.
            Self::NoRange => NvStatus::NV_ERR_INVALID_ADDRESS,
            // kernel-open/nvidia-uvm/uvm_range_tree.c, uvm_range_tree_add.
            Self::AddressInUse => NvStatus::NV_ERR_UVM_ADDRESS_IN_USE,
            // kernel/rmapi/nv_gpu_ops.c, nvGpuOpsGetChannelData and above: no such channel.
            Self::UnknownChannel => NvStatus::NV_ERR_INVALID_OBJECT_HANDLE,
            // kernel-open/nvidia-uvm/uvm_user_channel.c, uvm_register_channel_under_write.
            Self::ChannelRegistered => NvStatus::NV_ERR_INVALID_CHANNEL,
            // None of the driver's: it would let one of two calls take the place of the other.
            Self::MappingInFlight | Self::MappingInTheWay => NvStatus::NV_ERR_IN_USE,
            // arch/nvalloc/unix/src/os.c, cliresCtrlCmdOsUnixExportObjectsToFd_IMPL.
            Self::NoPlace => NvStatus::NV_ERR_OUT_OF_RANGE,
            // kern_profiler_v2_ctrl.c, profilerBaseCtrlCmdBindPmResources_IMPL: without its memory.
            Self::UnmadeStream => NvStatus::NV_ERR_INVALID_STATE,
            // The same file, _initializeExportObjectFd: a file that has an object. (A list of
            // objects it would put in the place of those that are there.) And
            // kernel-open/nvidia/nv-usermap.c, nv_add_mapping_context_to_file.
            Self::PlaceTaken | Self::FileInFlight | Self::FileInUse => {
                NvStatus::NV_ERR_STATE_IN_USE
            }
            // None of the driver's, which makes contexts that cannot be preempted.
            Self::RunsAlready | Self::NoSubdevice => NvStatus::NV_ERR_INVALID_STATE,
            Self::PreemptionBeingSet => NvStatus::NV_ERR_STATE_IN_USE,
            // kernel/gpu/fifo/kernel_channel.c, kchannelGetNotifierInfo: no such memory.
            Self::NoNotes => NvStatus::NV_ERR_OBJECT_NOT_FOUND,
            // None of the driver's, which goes on writing to what it has freed
            // (kernel/gpu/fifo/kernel_channel.c, kchannelUpdateNotifierMem_IMPL).
            Self::MemoryInFlight | Self::MemoryInUse | Self::SpaceInUse => NvStatus::NV_ERR_IN_USE,
            // rmapi/mapping.c, serverInterMap_Prologue. And none of the driver's.
            Self::NoSuchPart => NvStatus::NV_ERR_INVALID_LIMIT,
            Self::OtherGpu => NvStatus::NV_ERR_INVALID_DEVICE,
        }
    }

    /// Why it is noted among the refused calls.
    ///
    /// `None`: the driver would refuse the call as well, or the tenant has no memory left, which is
    /// counted as such.
    pub const fn reason(self) -> Option<Reason> {
        match self {
            Self::ForeignClient => Some(Reason::Foreign),
            Self::Doorbell
            | Self::InFabric
            | Self::HandleOfNone
            | Self::HandleOfDriver
            | Self::RunsAlready
            | Self::NoSubdevice
            | Self::NoNotes
            | Self::MemoryInUse
            | Self::NotShareable
            | Self::NoHostMemory
            | Self::SpaceInUse
            | Self::KeepsNoSpace
            | Self::BeyondMemory
            | Self::NoMemoryOfIts
            | Self::NoAddressSpace
            | Self::PolledTooOften
            | Self::OtherGpu => Some(Reason::Parameters),
            _ => None,
        }
    }
}

impl From<Limited> for RefusalCause {
    fn from(what: Limited) -> Self {
        Self::LimitReached(what)
    }
}

impl From<Exhausted> for RefusalCause {
    fn from(_: Exhausted) -> Self {
        Self::Exhausted
    }
}
