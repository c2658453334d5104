// SPDX-License-Identifier: GPL-2.0
//! The classes that need more than their entry in the tables, one after the other.
//!
//! To add a class: a row in `tests/abi/classes.txt` is all for one that takes no memory and whose
//! parameters may say anything; read its constructor, which `resource_list.h` names. Otherwise the
//! row's kind gets its [`ClassRules`] here, and [`ClassRules::of`] does not compile before it has.

use super::{
    call::Errno,
    stop::{
        get,
        Stop, //
    }, //
};
use crate::{
    nvidia::{
        capability::{
            Capabilities,
            GRAPHICS, //
        },
        class::{
            Kind,
            NV01_EVENT,
            NV01_EVENT_OS_EVENT,
            NV50_MEMORY_VIRTUAL,
            NV50_P2P, //
        },
        handle::{
            ClassId,
            ClientHandle,
            ObjectHandle, //
        },
        memory,
        nvos,
        params::{
            self,
            channel,
            context_share,
            encoder,
            mapper,
            nv0002,
            nv0005,
            nv0070,
            nv0080,
            nv00de,
            nv503b,
            nva06c,
            surface,
            usermode,
            vaspace, //
        },
        status::NvStatus,
        wire::Field, //
    },
    policy::{
        tables_of,
        Alloc,
        Reason,
        RefusalCause, //
    }, //
};

/// The steps for the objects of one kind, beside looking up their class.
pub(super) struct ClassRules {
    /// Refuses what no container's parameters may say, beside other tenants' clients.
    pub(super) check: fn(ClassId, Capabilities, &[u8]) -> Result<(), Stop>,
    /// Completes a request that costs nothing yet by what the parameters say.
    pub(super) complete: fn(&mut Alloc, &[u8]) -> Result<(), Errno>,
    /// The field that the program finds as it left it.
    pub(super) keep: fn(&Alloc, &[u8]) -> KeptField,
}

/// Nothing at all.
const PLAIN: ClassRules = ClassRules {
    check: |_, _, _| Ok(()),
    complete: |_, _| Ok(()),
    keep: |_, _| KeptField::Nothing,
};

static ORDINARY: ClassRules = PLAIN;

/// A device names its GPU, whose worker makes it.
///
/// One that shares no client's addresses would get those of the whole GPU, which all tenants had in
/// common (`deviceInitClientShare()`, device_share.c). So it shares its own client's, as CUDA's
/// devices do. One without parameters could not be told so, and no program makes it. Another client
/// has to be one that the accounting lets it share with (policy/forest/sharing.rs).
static DEVICE: ClassRules = ClassRules {
    check: |_, _, params| allowed_if(!params.is_empty(), NvStatus::NV_ERR_INVALID_ARGUMENT),
    keep: |request, params| match nv0080::H_CLIENT_SHARE.get(params) {
        Some(0) => KeptField::ClientShare(request.client),
        _ => KeptField::Nothing,
    },
    complete: |request, params| {
        // Without parameters the first GPU, as deviceConstruct_IMPL() has it
        // (src/nvidia/src/kernel/gpu/device.c).
        request.device_instance = Some(params::DEVICE_ID.get(params).unwrap_or(0));
        let shared = nv0080::H_CLIENT_SHARE.get(params).unwrap_or(0);
        let is_other = shared != 0 && shared != request.client.0;
        request.addresses_of = is_other.then_some(ClientHandle(shared));
        Ok(())
    },
};

/// Video memory costs what the driver rounds its size to.
static VIDEO_MEMORY: ClassRules = ClassRules {
    check: |_, _, params| check_place(get(memory::FLAGS, params)?),
    complete: |request, params| {
        request.bytes = memory::taken_bytes(params).ok_or(Errno::EINVAL)?;
        request.size = get(memory::SIZE, params)?;
        request.page = memory::page_size_of(params);
        Ok(())
    },
    keep: withheld,
};

/// Host memory costs what the driver rounds its size to.
static SYSTEM_MEMORY: ClassRules = ClassRules {
    complete: |request, params| {
        request.host = memory::host_bytes(params).ok_or(Errno::EINVAL)?;
        request.size = get(memory::SIZE, params)?;
        Ok(())
    },
    keep: withheld,
    ..PLAIN
};

/// A range of addresses costs its page tables.
static VIRTUAL_MEMORY: ClassRules = ClassRules {
    check: |class, capabilities, params| {
        if class != NV50_MEMORY_VIRTUAL {
            return Ok(());
        }
        check_range(capabilities, get(memory::FLAGS, params)?)
    },
    complete: |request, params| {
        if request.class == NV50_MEMORY_VIRTUAL {
            let (flags, length) = (get(memory::FLAGS, params)?, get(memory::SIZE, params)?);
            request.tables = range_tables(flags, length);
            request.size = length;
            request.uses[0] = space_of_range(memory::H_VA_SPACE, params);
        } else {
            request.uses[0] = space_of_range(nv0070::H_VA_SPACE, params);
        }
        Ok(())
    },
    keep: withheld,
};

/// An address space costs its first page tables, and is one of the program's own.
///
/// The driver has others for all tenants, by an index. And it makes one of the fabric for whoever
/// asks by a flag: when that goes, the GPU's own is forgotten, and the space is never freed
/// (`vaspaceapiDestruct_IMPL()`, vaspace_api.c; `_gvaspaceFlaVaspaceDestruct()`, gpu_vaspace.c).
static VA_SPACE: ClassRules = ClassRules {
    check: |_, _, params| {
        let (index, flags) = (get(vaspace::INDEX, params)?, get(vaspace::FLAGS, params)?);
        let is_own = matches!(index, VA_SPACE_NEW | VA_SPACE_OF_DEVICE);
        allowed_if(
            is_own && flags & !VA_SPACE_FLAGS == 0,
            NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS,
        )
    },
    complete: |request, params| {
        request.tables = params::address_space_tables(params);
        Ok(())
    },
    ..PLAIN
};

/// `NV_VASPACE_ALLOCATION_INDEX_GPU_*` (nvos.h).
const VA_SPACE_NEW: u32 = 0;
const VA_SPACE_OF_DEVICE: u32 = 3;
/// `NV_VASPACE_ALLOCATION_FLAGS_*` that a program may set: small page tables, page tables in host
/// memory where there is no other, space that UVM manages, page faults, address 0. The recorded
/// programs set three of them.
const VA_SPACE_FLAGS: u32 = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 6 | 1 << 8;

/// A channel costs what it takes for its engine. Its errors are noted in memory that the driver
/// takes on trust, and so is the place of its control page (`Accounting::begin_alloc`). No program
/// has a place of its own for errors of ECC.
static CHANNEL: ClassRules = ClassRules {
    check: |_, _, params| {
        no_notes(&[channel::H_OBJECT_ECC_ERROR], params)?;
        allowed_if(
            channel::FLAGS.get(params).unwrap_or(0) & !CHANNEL_FLAGS == 0,
            NvStatus::NV_ERR_INVALID_ARGUMENT,
        )
    },
    complete: |request, params| {
        request.engine = Some(params::engine(request.kind, params).unwrap_or(0));
        let notes = channel::H_OBJECT_ERROR.get(params);
        request.memory = notes.filter(|notes| *notes != 0).map(ObjectHandle);
        // Those behind the first are for GPUs that are linked to one (SLI).
        let userd = channel::H_USERD_MEMORY.item(0);
        let userd = userd.and_then(|userd| named(userd, params));
        let offset = channel::USERD_OFFSET.item(0);
        request.control_page = offset.and_then(|offset| offset.get(params)).unwrap_or(0);
        request.uses = [userd, named(channel::H_VA_SPACE, params)];
        Ok(())
    },
    ..PLAIN
};

/// `NVOS04_FLAGS_*` that a program may set (alloc_channel.h): the run queue, later scheduling, no
/// physical addresses, no privilege, a control page that it maps itself, an end to long waits, the
/// thread. The recorded programs set two of them.
///
/// One of the others is for GPUs with confidential computing. Where that is off, the driver returns
/// with the locks of all GPUs, and never lets go of them (`kchannelConstruct_IMPL()`,
/// kernel_channel.c). Another one chooses the channel's id, and one leaves out its buffers.
const CHANNEL_FLAGS: u32 = 1 << 4 | 1 << 6 | 1 << 7 | 1 << 22 | 1 << 24 | 1 << 27 | 3 << 28;

/// Two GPUs, or one and itself, that see each other's memory. The driver chooses by which number.
///
/// It takes any number that a program names as an index, and re-programs the GPU for it, whoever
/// uses that number (`kbusCreateP2PMappingForNvlink_GP100()`, kern_bus_gp100.c). The place of
/// mailboxes is the GPU's, not the program's.
static PEER_MEMORY: ClassRules = ClassRules {
    check: |class, _, params| {
        if class != NV50_P2P {
            return Ok(());
        }
        let words = [
            nv503b::SUB_DEVICE_PEER_ID_MASK,
            nv503b::PEER_SUB_DEVICE_PEER_ID_MASK,
            nv503b::MAILBOX_TOTAL_SIZE,
            nv503b::FLAGS,
            nv503b::SUB_DEVICE_EGM_PEER_ID_MASK,
            nv503b::PEER_SUB_DEVICE_EGM_PEER_ID_MASK,
        ];
        let is_zero = |field: &Field<u32>| field.get(params).unwrap_or(0) == 0;
        let chooses = nv503b::MAILBOX_BAR1_ADDR.get(params).unwrap_or(0) != 0;
        allowed_if(
            !chooses && words.iter().all(is_zero),
            NvStatus::NV_ERR_INVALID_ARGUMENT,
        )
    },
    ..PLAIN
};

/// A context for DMA goes with the memory that it is over.
static CONTEXT_DMA: ClassRules = ClassRules {
    complete: |request, params| {
        request.memory = Some(ObjectHandle(get(nv0002::H_MEMORY, params)?));
        let (flags, last) = (get(nv0002::FLAGS, params)?, get(nv0002::LIMIT, params)?);
        request.host = kernel_tables(flags, last);
        Ok(())
    },
    ..PLAIN
};

/// Bytes of the page tables by which the host's kernel sees the memory of a context for DMA, if it
/// is mapped for it. They have 8 bytes for each of its pages.
pub(super) fn kernel_tables(flags: u32, last: u64) -> u64 {
    const PAGE: u64 = 4096;
    if flags & nvos::DMA_FOR_KERNEL == 0 {
        return 0;
    }
    (last / PAGE * 8 / PAGE + 1) * PAGE
}

/// A group of channels costs what it takes for its engine. Its channels would have its memory for
/// errors, whatever has become of that; no program names any.
static CHANNEL_GROUP: ClassRules = ClassRules {
    check: |_, _, params| {
        let places = [nva06c::H_OBJECT_ERROR, nva06c::H_OBJECT_ECC_ERROR];
        no_notes(&places, params)
    },
    complete: |request, params| {
        request.engine = Some(params::engine(request.kind, params).unwrap_or(0));
        request.uses[0] = named(nva06c::H_VA_SPACE, params);
        Ok(())
    },
    ..PLAIN
};

/// A share of a group's state has an address space of its own.
static CONTEXT_SHARE: ClassRules = ClassRules {
    complete: |request, params| {
        request.uses[0] = named(context_share::H_VA_SPACE, params);
        Ok(())
    },
    ..PLAIN
};

/// Refuses parameters that name memory for errors.
fn no_notes(places: &[Field<u32>], params: &[u8]) -> Result<(), Stop> {
    let mut named = places.iter().filter_map(|place| place.get(params));
    if named.all(|notes| notes == 0) {
        return Ok(());
    }
    Err(RefusalCause::NoNotes.into())
}

/// A place in NVLink's fabric must be for memory of its own client from the beginning.
static FABRIC_MEMORY: ClassRules = ClassRules {
    check: |_, _, params| match params::fabric_memory(params) {
        Some(_) => Ok(()),
        None => Err(Stop::refused(
            NvStatus::NV_ERR_NOT_SUPPORTED,
            Reason::Parameters,
        )),
    },
    ..PLAIN
};

/// A queue of operations that no program can fill, because its controls are not on the allowlist.
/// So the driver makes it for one operation. It would take as much host memory as the program
/// says, charged to nobody (`memmapperConstruct_IMPL()` in mem_mapper.c).
static MEMORY_MAPPER: ClassRules = ClassRules {
    complete: |request, params| {
        request.uses = [mapper::H_SEMAPHORE_SURFACE, mapper::H_NOTIFICATION_MEMORY]
            .map(|object| named(object, params));
        Ok(())
    },
    keep: |_, params| {
        let wanted = mapper::MAX_QUEUE_SIZE.get(params);
        wanted.map_or(KeptField::Nothing, KeptField::QueueSize)
    },
    ..PLAIN
};

/// A surface of semaphores keeps its memory (`semsurfConstruct_IMPL()`, sem_surf.c), so it costs
/// something of its own (`Accounting::begin_alloc`).
static SEMAPHORE_SURFACE: ClassRules = ClassRules {
    complete: |request, params| {
        request.uses = [surface::H_SEMAPHORE_MEM, surface::H_MAX_SUBMITTED_MEM]
            .map(|memory| named(memory, params));
        Ok(())
    },
    ..PLAIN
};

/// A session says how an encoder is used, in memory that the driver uses after it was freed
/// (`nvencsessionDestruct_IMPL()`, nvencsession.c). So it gets none, and what `nvidia-smi` says of
/// the encoder's use stays 0.
static ENCODER_SESSION: ClassRules = ClassRules {
    keep: |_, params| {
        let version = encoder::VERSION.get(params);
        version.map_or(KeptField::Nothing, KeptField::EncoderVersion)
    },
    ..PLAIN
};

/// `NVA0BC_ALLOC_PARAMS_VER_0` (cla0bc.h).
const ENCODER_WITHOUT_MEMORY: u32 = 0;

/// A page of shared data. What of it is kept up to date is asked of the object afterwards, by a
/// control (`Accounting::begin_poll`): NVIDIA's programs ask for nothing here.
static SHARED_DATA: ClassRules = ClassRules {
    keep: |_, params| match nv00de::POLLED_DATA_MASK.get(params) {
        None | Some(0) => KeptField::Nothing,
        Some(wanted) => KeptField::PolledData(wanted),
    },
    ..PLAIN
};

/// An event of the general class is one of the class that its parameters name
/// (`rmapiFixupAllocParams()` in rmapi_specific.c). Any other than the one for programs would be a
/// callback in the kernel.
static EVENT: ClassRules = ClassRules {
    check: |class, _, params| {
        let wanted = nv0005::H_CLASS.get(params);
        if class == NV01_EVENT && wanted != Some(NV01_EVENT_OS_EVENT.0) {
            return Err(Stop::refused(
                NvStatus::NV_ERR_INVALID_CLASS,
                Reason::Parameters,
            ));
        }
        Ok(())
    },
    keep: |_, params| match (nv0005::DATA.get(params), nv0005::NOTIFY_INDEX.get(params)) {
        (Some(data), Some(index)) => KeptField::Event { data, index },
        _ => KeptField::Nothing,
    },
    ..PLAIN
};

/// The doorbell page of the privileged is refused here as the driver refuses it
/// (`usrmodeConstruct_IMPL()` in usermode_api.c), whatever it takes the caller for.
///
/// # The doorbell page, and BAR1
///
/// CUDA asks for it through BAR1 since Hopper, and has to have it there. Through BAR0, work of a
/// program was not taken up until its next ring whenever another program started (seen on an H200;
/// the ring seems to overtake what is written through BAR1 before it). But an object that is made
/// so could be mapped into a GPU's address space (`usrmodeGetMemInterMapParams_IMPL()` there).
///
/// So the program's object is made through BAR0. Its mapping shows the page through BAR1 of an
/// object that is no program's ([`Call::show_doorbell`](super::call::Call::show_doorbell)), by
/// which rings arrive as well (docs/measurements/2026-11-22-doorbell.md). Before
/// Hopper there is none, and the program's is made as asked for. To map either for the GPU is
/// refused by the escape that would.
static USER_MODE: ClassRules = ClassRules {
    check: |_, _, params| {
        let is_for_privileged = usermode::B_PRIV.get(params).is_some_and(|is| is != 0);
        if !is_for_privileged {
            return Ok(());
        }
        let status = match usermode::B_BAR1_MAPPING.get(params) {
            None | Some(0) => NvStatus::NV_ERR_INVALID_PARAMETER,
            Some(_) => NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS,
        };
        Err(Stop::refused(status, Reason::Parameters))
    },
    keep: |_, params| {
        let wanted = usermode::B_BAR1_MAPPING.get(params);
        wanted.map_or(KeptField::Nothing, KeptField::Bar1Mapping)
    },
    ..PLAIN
};

impl ClassRules {
    /// The steps for a kind.
    pub(super) const fn of(kind: Kind) -> &'static Self {
        match kind {
            Kind::Device => &DEVICE,
            Kind::VideoMemory => &VIDEO_MEMORY,
            Kind::SystemMemory => &SYSTEM_MEMORY,
            Kind::VirtualMemory => &VIRTUAL_MEMORY,
            Kind::VaSpace => &VA_SPACE,
            Kind::Channel => &CHANNEL,
            Kind::ChannelGroup => &CHANNEL_GROUP,
            Kind::ContextShare => &CONTEXT_SHARE,
            Kind::ContextDma => &CONTEXT_DMA,
            Kind::FabricMemory => &FABRIC_MEMORY,
            Kind::Event => &EVENT,
            Kind::UserMode => &USER_MODE,
            Kind::MemoryMapper => &MEMORY_MAPPER,
            Kind::SemaphoreSurface => &SEMAPHORE_SURFACE,
            Kind::EncoderSession => &ENCODER_SESSION,
            Kind::SharedData => &SHARED_DATA,
            Kind::PeerMemory => &PEER_MEMORY,
            // A client has no parent, and is told its handle: see `super::alloc`.
            Kind::Root
            | Kind::Subdevice
            | Kind::OsDescriptor
            | Kind::Engine
            | Kind::GraphicsObject
            | Kind::Debugger
            | Kind::Profiler
            | Kind::Inert => &ORDINARY,
        }
    }
}

/// Refuses parameters that no container's may be, with this status.
fn allowed_if(is_allowed: bool, status: NvStatus) -> Result<(), Stop> {
    if is_allowed {
        Ok(())
    } else {
        Err(Stop::refused(status, Reason::Parameters))
    }
}

/// The object that a field names, which the driver will look up.
pub(super) fn named(field: Field<u32>, params: &[u8]) -> Option<ObjectHandle> {
    let handle = field.get(params)?;
    (handle != 0).then_some(ObjectHandle(handle))
}

/// The address space that the field of a new range names.
pub(super) fn space_of_range(field: Field<u32>, params: &[u8]) -> Option<ObjectHandle> {
    named(field, params).filter(|space| *space != ObjectHandle::HOST_ADDRESSES)
}

/// The bits of memory's attributes that the driver never gets. No recorded program sets one.
///
/// One says that the firmware is to know the memory. It keeps eight bytes for each page, in a heap
/// that all tenants share (`memRegisterWithGsp()` in mem.c; `memdescRegisterToGSP()` in mem_desc.c
/// of 550). If that fails, as it does for a range of addresses, the driver frees an object that is
/// still in its device's tree (`memConstructCommon_IMPL()`). Calls that need the firmware to know
/// memory tell it themselves.
///
/// Another one says that host memory is to be of a node that the parameters name. Where the GPU
/// is of none, the driver takes any number, and the kernel uses it as an index
/// (`sysmemConstruct_IMPL()`, system_mem.c; `nv_alloc_contig_pages()`, nv-vm.c).
///
/// Two say, from 580 on, that video memory is to be near one half of the GPU. For a page of it the
/// driver keeps 64 MiB from all other memory, until all of them are free (`pmaAllocatePages()`,
/// phys_mem_allocator.c).
fn withheld(_: &Alloc, params: &[u8]) -> KeptField {
    match memory::ATTR2.get(params).unwrap_or(0) & memory::ATTR2_WITHHELD {
        0 => KeptField::Nothing,
        bits => KeptField::Attributes(bits),
    }
}

/// Refuses video memory at a place that the program chooses, as the driver does where the memory is
/// also the host's (`vidmemAllocResources()`, video_mem.c).
///
/// Everywhere else it asks for no right. It has managed memory of others leave that place
/// (`_pmaEvictContiguous()`, phys_mem_allocator.c), and by its answer tells where others have
/// memory. No recorded program chooses.
pub(super) fn check_place(flags: u32) -> Result<(), Stop> {
    allowed_if(
        flags & memory::FLAGS_PLACED == 0,
        NvStatus::NV_ERR_INVALID_ARGUMENT,
    )
}

/// Refuses a range of addresses that reads as zeros, unless it is for graphics.
///
/// The driver keeps such a range's page tables after its end, until something else happens in its
/// address space (seen on an H200). No accounting has them. Nothing but graphics needs such ranges.
pub(super) fn check_range(capabilities: Capabilities, flags: u32) -> Result<(), Stop> {
    allowed_if(
        flags & memory::FLAGS_SPARSE == 0 || capabilities.meets(GRAPHICS),
        NvStatus::NV_ERR_NOT_SUPPORTED,
    )
}

/// Bytes of the page tables that the driver makes for a range of addresses. It makes them at once,
/// unless it is asked not to.
pub(super) fn range_tables(flags: u32, length: u64) -> u64 {
    if memory::makes_tables(flags) {
        tables_of(length)
    } else {
        0
    }
}

/// A field of the parameters that the program finds as it left it, whatever the driver was given in
/// its place or has written there.
pub(super) enum KeptField {
    /// No field.
    Nothing,
    /// Whether a doorbell page is asked for through BAR1.
    Bar1Mapping(u8),
    /// Of an event: its descriptor number, in whose place the driver leaves the kernel address of
    /// its event object; and which one it is, with flags. It never comes with data: those the
    /// driver keeps for a call that no container may make (`NV_ESC_GET_EVENT_DATA`), and takes host
    /// memory for each time that the event happens (`nv_post_event()`, nv.c).
    Event { data: u64, index: u32 },
    /// Bits of memory's attributes, to which the driver writes.
    Attributes(u32),
    /// For how many operations a queue is to have room.
    QueueSize(u32),
    /// Whether an encoder's session has memory for what it says.
    EncoderVersion(u32),
    /// Which shared data are to be kept up to date.
    PolledData(u64),
    /// No client whose addresses a device of this client is to share.
    ClientShare(ClientHandle),
}

impl KeptField {
    /// Takes out what the driver must never see.
    pub(super) fn take_out(&self, params: &mut [u8]) {
        // Parameters without the field have nothing to be taken out.
        let _ = match *self {
            Self::Attributes(bits) => {
                let asked = memory::ATTR2.get(params).unwrap_or(0);
                memory::ATTR2.set(params, asked & !bits)
            }
            // The driver refuses a queue without room.
            Self::QueueSize(wanted) => mapper::MAX_QUEUE_SIZE.set(params, wanted.min(1)),
            Self::EncoderVersion(_) => encoder::VERSION.set(params, ENCODER_WITHOUT_MEMORY),
            Self::PolledData(_) => nv00de::POLLED_DATA_MASK.set(params, 0),
            Self::ClientShare(own) => nv0080::H_CLIENT_SHARE.set(params, own.0),
            Self::Event { index, .. } => {
                nv0005::NOTIFY_INDEX.set(params, index | nvos::EVENT_WITHOUT_DATA)
            }
            Self::Nothing | Self::Bar1Mapping(_) => None,
        };
    }

    /// Writes the field, to give the program its own word back.
    pub(super) fn put_back(&self, params: &mut [u8]) {
        // Parameters without the field have nothing to be put back.
        let _ = match *self {
            Self::Nothing => None,
            Self::Bar1Mapping(wanted) => usermode::B_BAR1_MAPPING.set(params, wanted),
            Self::Event { data, index } => nv0005::DATA
                .set(params, data)
                .and(nv0005::NOTIFY_INDEX.set(params, index)),
            Self::QueueSize(wanted) => mapper::MAX_QUEUE_SIZE.set(params, wanted),
            Self::EncoderVersion(wanted) => encoder::VERSION.set(params, wanted),
            Self::PolledData(wanted) => nv00de::POLLED_DATA_MASK.set(params, wanted),
            Self::ClientShare(_) => nv0080::H_CLIENT_SHARE.set(params, 0),
            Self::Attributes(bits) => {
                let told = memory::ATTR2.get(params).unwrap_or(0);
                memory::ATTR2.set(params, told | bits)
            }
        };
    }

    /// Whether a doorbell page is asked for through BAR1.
    pub(super) fn wants_bar1(&self) -> bool {
        matches!(*self, Self::Bar1Mapping(wanted) if wanted != 0)
    }
}
