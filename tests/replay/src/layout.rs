// SPDX-License-Identifier: GPL-2.0
//! Places of handles, descriptors, pointers and statuses in the driver's parameters, as far as a
//! replay must know: branch 580, from NVIDIA's headers (`nvos.h`, `nv-ioctl*.h`, `uvm_ioctl.h`,
//! `ctrl/*.h`, `resource_list.h` of 580.142).
//!
//! Written for the replayer alone, not taken from the module's tables, so that a wrong offset there
//! cannot cancel out here.

/// The kind of a field in a call's argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An RM client's handle.
    Client,
    /// Handle of an object of the client in field 0 of the same structure.
    Object,
    /// Handle of an object of the client in the field at this offset.
    ObjectOf(usize),
    /// A descriptor, 32 bits.
    Fd,
    /// An address that the driver made up and that is given back to it (`pLinearAddress`).
    Linear,
    /// An address at which the program mapped memory.
    Mapped,
    /// Start of the program's own memory; its last byte's offset is in the field at this offset.
    HostMemory(usize),
    /// A number that the driver chose (UVM range groups).
    Group,
    /// A pointer to handles, whose number is in the 32 bits at this offset.
    List(usize),
}

/// A field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Offset in bytes.
    pub at: usize,
    /// Its kind.
    pub kind: Kind,
}

const fn f(at: usize, kind: Kind) -> Field {
    Field { at, kind }
}

/// A call's effect on the driver's objects, as far as later calls depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that a later call depends on.
    None,
    /// Makes the object whose handle is at this offset.
    Create(usize),
    /// Frees the object whose handle is at this offset, with all that hangs on it.
    Free(usize),
    /// Prepares the file of the descriptor at this offset for `mmap`.
    MapContext(usize),
    /// Maps memory into the UVM range that starts at the address in field 0.
    UvmMap,
    /// Needs a mapping in the UVM range that starts at the address in field 0.
    UvmUnmap,
    /// Ends the UVM range that starts at the address in field 0.
    UvmFree,
}

/// Layout of the argument of one request.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// NVIDIA's name.
    pub name: &'static str,
    /// Size of the structure, 0 where the request code tells it.
    pub size: usize,
    /// Offset of the status, if there is one.
    pub status: Option<usize>,
    /// Handles, descriptors and addresses.
    pub fields: &'static [Field],
    /// Its effect.
    pub effect: Effect,
}

const fn call(
    name: &'static str,
    size: usize,
    status: usize,
    fields: &'static [Field],
    effect: Effect,
) -> Call {
    Call {
        name,
        size,
        status: if status == NO { None } else { Some(status) },
        fields,
        effect,
    }
}

const NO: usize = usize::MAX;
use Effect as E;
use Kind::{Client, Fd, Group, HostMemory, Linear, List, Mapped, Object, ObjectOf};

/// The NVIDIA ioctl type of the nodes `/dev/nvidiactl` and `/dev/nvidiaN`.
pub const NV_TYPE: u32 = b'F' as u32;
/// RM_CONTROL.
pub const NR_CONTROL: u32 = 0x2A;
/// RM_ALLOC.
pub const NR_ALLOC: u32 = 0x2B;
/// RM_ALLOC_MEMORY.
pub const NR_ALLOC_MEMORY: u32 = 0x27;
/// RM_VID_HEAP_CONTROL.
pub const NR_VID_HEAP: u32 = 0x4A;
/// The request that carries another request's number and pointer.
pub const NR_XFER: u32 = 211;
/// UVM_INITIALIZE.
pub const UVM_INITIALIZE: u32 = 0x3000_0001;
/// UVM_MM_INITIALIZE.
pub const UVM_MM_INITIALIZE: u32 = 75;
/// UVM_MAP_DYNAMIC_PARALLELISM_REGION.
pub const UVM_MAP_DYNAMIC_PARALLELISM_REGION: u32 = 65;
/// UVM_ALLOC_SEMAPHORE_POOL.
pub const UVM_ALLOC_SEMAPHORE_POOL: u32 = 68;
/// NV_WARN_NOTHING_TO_DO: the answer to UVM_MM_INITIALIZE in shared mode, as every file of an
/// instance is.
pub const NOTHING_TO_DO: u32 = 0x0001_0006;

const CLIENT_OBJECT: &[Field] = &[f(0, Client), f(4, Object)];
const CLIENT_3: &[Field] = &[f(0, Client), f(4, Object), f(8, Object)];
const OS_EVENT: &[Field] = &[f(0, Client), f(4, Object), f(8, Fd)];
const ALLOC: Effect = E::Create(8);

/// The layout of a request on `/dev/nvidiactl` or `/dev/nvidiaN`, by its `_IOC_NR` and `_IOC_SIZE`.
pub fn escape(nr: u32, size: usize) -> Option<Call> {
    Some(match (nr, size) {
        (0x27, _) => call(
            "RM_ALLOC_MEMORY",
            0,
            40,
            const { &[f(0, Client), f(4, Object), f(24, HostMemory(32)), f(48, Fd)] },
            ALLOC,
        ),
        (0x29, _) => call("RM_FREE", 0, 12, CLIENT_3, E::Free(8)),
        (0x2A, _) => call("RM_CONTROL", 0, 28, CLIENT_OBJECT, E::None),
        (0x2B, 32) => call("RM_ALLOC", 0, 28, CLIENT_OBJECT, ALLOC),
        (0x2B, _) => call("RM_ALLOC", 0, 40, CLIENT_OBJECT, ALLOC),
        (0x34, _) => call(
            "RM_DUP_OBJECT",
            0,
            24,
            const {
                &[
                    f(0, Client),
                    f(4, Object),
                    f(12, Client),
                    f(16, ObjectOf(12)),
                ]
            },
            ALLOC,
        ),
        (0x35, _) => call(
            "RM_SHARE",
            0,
            20,
            const { &[f(0, Client), f(4, Object), f(8, Client)] },
            E::None,
        ),
        (0x41, _) => call(
            "RM_IDLE_CHANNELS",
            0,
            48,
            const {
                &[
                    f(0, Client),
                    f(4, Object),
                    f(8, Object),
                    f(16, List(12)),
                    f(24, List(12)),
                    f(32, List(12)),
                ]
            },
            E::None,
        ),
        (0x4A, _) => call("RM_VID_HEAP_CONTROL", 0, 20, CLIENT_OBJECT, E::Create(44)),
        (0x4E, _) => call(
            "RM_MAP_MEMORY",
            0,
            40,
            const {
                &[
                    f(0, Client),
                    f(4, Object),
                    f(8, Object),
                    f(32, Linear),
                    f(48, Fd),
                ]
            },
            E::MapContext(48),
        ),
        (0x4F, _) => call(
            "RM_UNMAP_MEMORY",
            0,
            24,
            const { &[f(0, Client), f(4, Object), f(8, Object), f(16, Linear)] },
            E::None,
        ),
        (0x54, _) => call(
            "RM_ALLOC_CONTEXT_DMA2",
            0,
            48,
            const { &[f(0, Client), f(4, Object), f(24, Object)] },
            ALLOC,
        ),
        (0x57, 56) => call("RM_MAP_MEMORY_DMA", 0, 48, DMA, E::None),
        (0x57, _) => call("RM_MAP_MEMORY_DMA", 0, 56, DMA, E::None),
        (0x58, 40) => call("RM_UNMAP_MEMORY_DMA", 0, 32, DMA, E::None),
        (0x58, _) => call("RM_UNMAP_MEMORY_DMA", 0, 40, DMA, E::None),
        (0x59, _) => call("RM_BIND_CONTEXT_DMA", 0, 12, CLIENT_3, E::None),
        (0x5E, _) => call(
            "RM_UPDATE_DEVICE_MAPPING_INFO",
            0,
            32,
            const {
                &[
                    f(0, Client),
                    f(4, Object),
                    f(8, Object),
                    f(16, Linear),
                    f(24, Mapped),
                ]
            },
            E::None,
        ),
        (200, _) => call("CARD_INFO", 0, NO, &[], E::None),
        (201, _) => call("REGISTER_FD", 0, NO, const { &[f(0, Fd)] }, E::None),
        (206, _) => call("ALLOC_OS_EVENT", 0, 12, OS_EVENT, E::None),
        (207, _) => call("FREE_OS_EVENT", 0, 12, OS_EVENT, E::None),
        (210, _) => call("CHECK_VERSION_STR", 0, 4, &[], E::None),
        (211, _) => call("IOCTL_XFER_CMD", 0, NO, &[], E::None),
        (212, _) => call("ATTACH_GPUS_TO_FD", 0, NO, &[], E::None),
        (214, _) => call("SYS_PARAMS", 0, NO, &[], E::None),
        (215, _) => call("NUMA_INFO", 0, NO, &[], E::None),
        (217, _) => call(
            "EXPORT_TO_DMABUF_FD",
            0,
            NO,
            const { &[f(0, Fd), f(4, Client)] },
            E::None,
        ),
        (218, _) => call("WAIT_OPEN_COMPLETE", 0, 4, &[], E::None),
        _ => return None,
    })
}

const DMA: &[Field] = &[f(0, Client), f(4, Object), f(8, Object), f(12, Object)];

/// The layout of a request on `/dev/nvidia-uvm`.
pub fn uvm(request: u32) -> Option<Call> {
    const FIRST_GROUP: &[Field] = &[f(0, Group)];
    // Managed memory; an address that the program did not map stays as it is.
    const SPAN: &[Field] = &[f(0, Mapped)];
    let (name, size, status, fields, effect): (_, _, _, &'static [Field], _) = match request {
        UVM_INITIALIZE => ("UVM_INITIALIZE", 16, 8, &[], E::None),
        0x3000_0002 => ("UVM_DEINITIALIZE", 0, NO, &[], E::None),
        23 => ("UVM_CREATE_RANGE_GROUP", 16, 8, FIRST_GROUP, E::None),
        24 => ("UVM_DESTROY_RANGE_GROUP", 16, 8, FIRST_GROUP, E::None),
        25 => (
            "UVM_REGISTER_GPU_VASPACE",
            32,
            28,
            const { &[f(16, Fd), f(20, Client), f(24, ObjectOf(20))] },
            E::None,
        ),
        26 => ("UVM_UNREGISTER_GPU_VASPACE", 20, 16, &[], E::None),
        27 => (
            "UVM_REGISTER_CHANNEL",
            56,
            48,
            const { &[f(16, Fd), f(20, Client), f(24, ObjectOf(20))] },
            E::None,
        ),
        28 => (
            "UVM_UNREGISTER_CHANNEL",
            28,
            24,
            const { &[f(16, Client), f(20, ObjectOf(16))] },
            E::None,
        ),
        29 => ("UVM_ENABLE_PEER_ACCESS", 36, 32, &[], E::None),
        30 => ("UVM_DISABLE_PEER_ACCESS", 36, 32, &[], E::None),
        31 => (
            "UVM_SET_RANGE_GROUP",
            32,
            24,
            const { &[f(0, Group), f(8, Mapped)] },
            E::None,
        ),
        33 => (
            "UVM_MAP_EXTERNAL_ALLOCATION",
            9264,
            9260,
            const { &[f(9248, Fd), f(9252, Client), f(9256, ObjectOf(9252))] },
            E::UvmMap,
        ),
        34 => ("UVM_FREE", 24, 16, &[], E::UvmFree),
        37 => (
            "UVM_REGISTER_GPU",
            40,
            36,
            const { &[f(24, Fd), f(28, Client), f(32, ObjectOf(28))] },
            E::None,
        ),
        38 => ("UVM_UNREGISTER_GPU", 20, 16, &[], E::None),
        39 => ("UVM_PAGEABLE_MEM_ACCESS", 8, 4, &[], E::None),
        40 => ("UVM_PREVENT_MIGRATION_RANGE_GROUPS", 272, 264, &[], E::None),
        41 => ("UVM_ALLOW_MIGRATION_RANGE_GROUPS", 272, 264, &[], E::None),
        42 => ("UVM_SET_PREFERRED_LOCATION", 40, 36, SPAN, E::None),
        43 => ("UVM_UNSET_PREFERRED_LOCATION", 24, 16, SPAN, E::None),
        44 => ("UVM_ENABLE_READ_DUPLICATION", 24, 16, SPAN, E::None),
        45 => ("UVM_DISABLE_READ_DUPLICATION", 24, 16, SPAN, E::None),
        46 => ("UVM_SET_ACCESSED_BY", 40, 32, SPAN, E::None),
        47 => ("UVM_UNSET_ACCESSED_BY", 40, 32, SPAN, E::None),
        51 => ("UVM_MIGRATE", 80, 72, SPAN, E::None),
        53 => ("UVM_MIGRATE_RANGE_GROUP", 32, 24, FIRST_GROUP, E::None),
        54 => ("UVM_ENABLE_SYSTEM_WIDE_ATOMICS", 20, 16, &[], E::None),
        55 => ("UVM_DISABLE_SYSTEM_WIDE_ATOMICS", 20, 16, &[], E::None),
        65 => ("UVM_MAP_DYNAMIC_PARALLELISM_REGION", 40, 32, &[], E::None),
        66 => ("UVM_UNMAP_EXTERNAL", 40, 32, &[], E::UvmUnmap),
        68 => ("UVM_ALLOC_SEMAPHORE_POOL", 9248, 9240, &[], E::None),
        70 => ("UVM_PAGEABLE_MEM_ACCESS_ON_GPU", 24, 20, &[], E::None),
        71 => ("UVM_POPULATE_PAGEABLE", 24, 20, &[], E::None),
        72 => ("UVM_VALIDATE_VA_RANGE", 24, 16, SPAN, E::None),
        73 => ("UVM_CREATE_EXTERNAL_RANGE", 24, 16, &[], E::None),
        74 => ("UVM_MAP_EXTERNAL_SPARSE", 40, 32, &[], E::None),
        UVM_MM_INITIALIZE => ("UVM_MM_INITIALIZE", 8, 4, const { &[f(0, Fd)] }, E::None),
        78 => (
            "UVM_ALLOC_DEVICE_P2P",
            56,
            52,
            const { &[f(40, Fd), f(44, Client), f(48, ObjectOf(44))] },
            E::UvmMap,
        ),
        79 => ("UVM_CLEAR_ALL_ACCESS_COUNTERS", 4, 0, &[], E::None),
        80 => ("UVM_DISCARD", 32, 24, &[], E::None),
        _ => return None,
    };
    Some(call(name, size, status, fields, effect))
}

/// A pointer inside the parameters of a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pointer {
    /// Its offset.
    pub at: usize,
    /// Offset of the 32-bit number of elements behind it.
    pub count: usize,
    /// Bytes of an element.
    pub element: usize,
}

/// The pointers inside a control's parameters (`embedded_param_copy.c` and `nvdeprecated`).
pub fn pointers(control: u32) -> &'static [Pointer] {
    const fn p(at: usize, count: usize, element: usize) -> Pointer {
        Pointer { at, count, element }
    }
    match control {
        // NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_PARAMS: three strings of the same size.
        0x0101 => const { &[p(8, 0, 1), p(16, 0, 1), p(24, 0, 1)] },
        // NV0000_CTRL_SYSTEM_GET_P2P_CAPS_PARAMS: a matrix of at most 32 x 32 GPUs.
        0x0127 => const { &[p(160, 128, 4 * 32), p(168, 128, 4 * 32)] },
        // NVD_GET_DUMP
        0x0602 | 0x2080_2402 => const { &[p(0, 12, 1)] },
        // GET_SURFACE_INFO, GPU/GR/BIOS/FB/BUS GET_INFO: pairs of index and value.
        0x0041_0110 | 0x0080_1104 | 0x2080_0101 | 0x2080_0802 | 0x2080_1201 | 0x2080_1301
        | 0x2080_1802 => const { &[p(8, 0, 8)] },
        // GPU_GET_CLASSLIST, GPU_GET_ENGINES
        0x0080_0201 | 0x2080_0123 => const { &[p(8, 0, 4)] },
        // GPU_GET_ENGINE_CLASSLIST
        0x2080_0124 => const { &[p(8, 4, 4)] },
        // GR, FB, HOST and FIFO GET_CAPS
        0x0080_1102 | 0x0080_1301 | 0x0080_1401 | 0x0080_1701 => const { &[p(8, 0, 1)] },
        // CE_GET_CAPS
        0x2080_2A01 => const { &[p(8, 4, 1)] },
        // FIFO_GET_CHANNELLIST: handles in, channel numbers out.
        CHANNEL_LIST => const { &[p(8, 0, 4), p(16, 0, 4)] },
        // RC_READ_VIRTUAL_MEM
        0x2080_2204 => const { &[p(16, 24, 1)] },
        // GPU_EXEC_REG_OPS
        0x2080_0122 => const { &[p(24, 20, 32)] },
        // DEBUG_READ_MEMORY, DEBUG_WRITE_MEMORY
        0x83DE_0315 | 0x83DE_0316 => const { &[p(16, 4, 1)] },
        _ => &[],
    }
}

/// NV0080_CTRL_CMD_FIFO_GET_CHANNELLIST, whose list of handles is an input that was not recorded.
pub const CHANNEL_LIST: u32 = 0x0080_170D;
/// FB_GET_INFO_V2: what `nvidia-smi` and `cuMemGetInfo` ask.
pub const FB_GET_INFO_V2: u32 = 0x2080_1303;
/// NV2080_CTRL_CMD_GPU_GET_GID_INFO: the answer has the GPU's UUID.
pub const GID_INFO: u32 = 0x2080_014A;
/// Offset and length of the UUID in the answer of [`GID_INFO`] (flags 2: binary).
pub const GID_BYTES: (usize, usize) = (12, 16);
/// NV01_MEMORY_LOCAL_USER: video memory.
pub const CLASS_VIDEO_MEMORY: u32 = 0x40;
/// Offset of the size in NV_MEMORY_ALLOCATION_PARAMS.
pub const MEMORY_SIZE_AT: usize = 64;
/// NV01_EVENT_OS_EVENT.
pub const CLASS_OS_EVENT: u32 = 0x79;

/// Places of process ids in a control's parameters: the first one and the distance to the next.
pub fn pids(control: u32) -> Option<(usize, usize)> {
    match control {
        // GPU_GET_PID_INFO: entries of 72 bytes that begin with the process id.
        0x2080_018E => Some((8, 72)),
        _ => None,
    }
}

/// Offset of a descriptor in a class's parameters (events and MIG capabilities).
pub fn class_fd(class: u32) -> Option<usize> {
    match class {
        CLASS_OS_EVENT => Some(16),
        0x000F | 0xC637 | 0xC638 | 0xC639 | 0xC640 => Some(0),
        _ => None,
    }
}

/// Offset of a descriptor in a control's parameters (object export and import).
pub fn control_fd(control: u32) -> Option<usize> {
    match control {
        0x3D05 => Some(16),
        0x3D0A => Some(72),
        0x3D06 | 0x3D08 | 0x3D0B | 0x3D0C => Some(0),
        0x00FD_0104 => Some(8),
        _ => None,
    }
}

/// NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECTS_FROM_FD.
pub const IMPORT_OBJECTS: u32 = 0x3D0C;

/// The handles in the parameters of [`IMPORT_OBJECTS`]: at most 128, from offset 8, 0 where none
/// is.
pub fn imported(params: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let handles = params.get(8..).unwrap_or_default().chunks_exact(4);
    handles
        .take(128)
        .map(|word| crate::bytes::u32_at(word, 0))
        .filter(|&handle| handle != 0)
}

/// Bytes of a class's parameters that the driver copies, as far as it is known. A recording has 384
/// bytes of which the rest is whatever lay behind them.
pub fn class_params(class: u32) -> Option<usize> {
    Some(match class {
        0x0000 | 0x0001 | 0x0041 => 4,
        0x0002 | 0x9010 | 0x0092 | 0x00F1 | 0x00FB => 32,
        0x0005 | 0x0078 | 0x0079 | 0x007E => 24,
        0x000F | 0xC637 | 0xC638 => 16,
        0x0020 | 0x0060 | 0x30F1 | 0x2080 | 0x2081 | 0x2082 | 0xCB33 | 0x503C => 4,
        0x003E | 0x0040 | 0x0042 | 0x50A0 | 0x90CE => 128,
        0x503B | 0x90CD => 72,
        0x0070 | 0x00C2 | 0x00FE => 24,
        0x0071 => 40,
        0x0080 => 56,
        0x0081..=0x0083 => 152,
        0x83DE | 0x9067 | 0x9072 => 12,
        0x90F1 | 0x00F3 => 56,
        0x00B1 => 120,
        0x00DA => 16,
        0x00DE | 0x00DB | 0xC574 | 0xC639 | 0xC640 | 0xB2CC => 8,
        0x00E0 => 244,
        0x00F8 => 48,
        0x00F9 => 64,
        0x00FD => 80,
        0xA06C | 0xA0BC | 0xA0BD => 20,
        0xB1CC => 4,
        0xC661 | 0xC761 => 2,
        // Classes without parameters.
        0x0004 | 0x003F | 0x0073 | 0x007D | 0x0090 | 0x208F | 0x402C | 0x900E | 0x9074 | 0x9096
        | 0x90CC | 0x90E6 | 0x90E7 | 0x90EC | 0xC361 | 0xC461 | 0xC561 | 0xCBA2 | 0xCBCA => 0,
        _ => match class & 0xFF {
            0x6F => 368,
            0xB5 => 8,
            // Graphics, compute, inline-to-memory and two-dimensional classes.
            0x97 | 0xC0 | 0x40 | 0x2D => 16,
            // Video engines.
            0xB0 | 0xB7 | 0xD0 | 0xD1 | 0xFA => 12,
            _ => return None,
        },
    })
}

/// Whether a class is a channel.
pub fn is_channel(class: u32) -> bool {
    class > 0xFFF && class & 0xFF == 0x6F
}
