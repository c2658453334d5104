// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The escapes: requests of `/dev/nvidiactl` and `/dev/nvidiaN`, told apart by the number in the
//! request code (nv_escape.h, nv-ioctl-numbers.h, nv-ioctl-numa.h).

use super::{
    capability::{
        Capabilities,
        BASE,
        GRAPHICS,
        VIDEO,
        WORK, //
    },
    nvos::{
        self,
        *, //
    },
    wire::Field, //
};
use Devices::{
    Both,
    Control,
    Gpu, //
};

/// On which of the devices an escape is taken: those on which the driver takes it
/// (`NV_CTL_DEVICE_ONLY` and `NV_ACTUAL_DEVICE_ONLY` in nv.c and escape.c; elsewhere `EINVAL`), or
/// fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// `/dev/nvidiactl` alone.
    Control,
    /// `/dev/nvidiaN` alone.
    Gpu,
    /// Either.
    Both,
}

/// Sizes of the argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// One of these; with another the driver says `EINVAL`.
    OneOf(&'static [usize]),
    /// Records of so many bytes, as many as there are.
    Records(usize),
}

/// One escape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EscapeEntry {
    /// Which it is.
    pub escape: Escape,
    /// Sizes of its argument.
    pub sizes: Sizes,
    /// The devices that take it.
    pub devices: Devices,
    /// It goes nowhere: `EINVAL`, as the driver says to an escape that it does not know.
    pub is_refused: bool,
    /// The sets of capabilities that allow it, where it is not refused altogether.
    pub capabilities: Capabilities,
}

impl EscapeEntry {
    /// Whether the driver takes an argument of `size` bytes.
    pub fn takes(&self, size: usize) -> bool {
        match self.sizes {
            Sizes::OneOf(sizes) => sizes.contains(&size),
            Sizes::Records(record) => size != 0 && size.checked_rem(record) == Some(0),
        }
    }

    const fn only(self, capabilities: Capabilities) -> Self {
        Self {
            capabilities,
            ..self
        }
    }
}

const fn entry(escape: Escape, sizes: &'static [usize], devices: Devices) -> EscapeEntry {
    EscapeEntry {
        escape,
        sizes: Sizes::OneOf(sizes),
        devices,
        is_refused: false,
        capabilities: BASE,
    }
}

const fn records(escape: Escape, record: usize) -> EscapeEntry {
    EscapeEntry {
        sizes: Sizes::Records(record),
        ..entry(escape, &[], Devices::Control)
    }
}

const fn refused(escape: Escape) -> EscapeEntry {
    EscapeEntry {
        is_refused: true,
        ..entry(escape, &[], Devices::Both)
    }
}

/// Declares the escapes: number, NVIDIA's name, and what becomes of it.
macro_rules! escapes {
    ($($(#[$doc:meta])* $escape:ident = $nr:literal $name:literal
        $rule:ident($($argument:expr),*) $(.only($sets:expr))?;)*) => {
        /// An escape.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Escape {
            $($(#[$doc])* $escape = $nr,)*
        }

        impl Escape {
            /// All of them, by number.
            pub const ALL: &[Self] = &[$(Self::$escape),*];

            /// The escape with this number.
            pub const fn from_nr(nr: u8) -> Option<Self> {
                match nr {
                    $($nr => Some(Self::$escape),)*
                    _ => None,
                }
            }

            /// Its number.
            pub const fn nr(self) -> u8 {
                // CAST: the discriminants are these numbers.
                self as u8
            }

            /// NVIDIA's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$escape => $name,)*
                }
            }
        }

        /// The escapes, by number: the same in all branches (535 has no
        /// `NV_ESC_WAIT_OPEN_COMPLETE`, and says so itself). Why some are refused:
        ///
        /// * They reach beyond the tenant or the GPU's own side: registry, I2C, log, adapter
        ///   status, interrupt register, NUMA onlining. Idling of anybody's channels is answered
        ///   where graphics is allowed (Vulkan asks for it and does without).
        /// * Displays alone use them: vblank callbacks, event data, binding of context DMA.
        /// * They are superseded: allocation without parameters, export and import outside of
        ///   controls.
        ///
        /// Memory that leaves by a dma-buf would leave the tenant too. The driver that imports it
        /// keeps it alive where nobody is charged, and the exporting driver looks up the client
        /// as the kernel, whoever asks. So the export is answered as on a GPU that has none.
        pub(super) static TABLE: [EscapeEntry; Escape::ALL.len()] = [
            $($rule(Escape::$escape $(, $argument)*) $(.only($sets))?,)*
        ];

        /// The index in [`TABLE`] of the escape with each number; one beyond its end if there is
        /// none.
        pub(super) static PLACES: [u8; 256] = {
            let mut places = [u8::MAX; 256];
            let mut place = u8::MAX;
            $(
                place = place.wrapping_add(1);
                places[$nr] = place;
            )*
            places
        };
    };
}

escapes! {
    /// Memory of the host, by the older way.
    RmAllocMemory = 0x27 "NV_ESC_RM_ALLOC_MEMORY" entry(&[nvos02::SIZE], Gpu).only(WORK);
    /// An object without parameters, by the older way.
    RmAllocObject = 0x28 "NV_ESC_RM_ALLOC_OBJECT" refused();
    /// Frees an object.
    RmFree = 0x29 "NV_ESC_RM_FREE" entry(&[nvos00::SIZE], Control);
    /// A control of an object.
    RmControl = 0x2a "NV_ESC_RM_CONTROL" entry(&[nvos54::SIZE], Control);
    /// A new object.
    // Events go through either device; `RmIoctl()` in escape.c.
    RmAlloc = 0x2b "NV_ESC_RM_ALLOC" entry(&[nvos21::SIZE, nvos64::SIZE], Both);
    /// A second object over the same thing.
    RmDupObject = 0x34 "NV_ESC_RM_DUP_OBJECT" entry(&[nvos55::SIZE], Control);
    /// Lets others use an object.
    RmShare = 0x35 "NV_ESC_RM_SHARE" entry(&[nvos57::SIZE], Control);
    /// The GPU's I2C busses.
    RmI2cAccess = 0x39 "NV_ESC_RM_I2C_ACCESS" refused();
    /// Waits until channels, of any client, are idle.
    RmIdleChannels = 0x41 "NV_ESC_RM_IDLE_CHANNELS"
        entry(&[nvos30::SIZE], Control).only(GRAPHICS);
    /// The older heap interface.
    RmVidHeapControl = 0x4a "NV_ESC_RM_VID_HEAP_CONTROL"
        entry(&[nvos32::SIZE], Control).only(WORK);
    /// Settings of the driver.
    RmAccessRegistry = 0x4d "NV_ESC_RM_ACCESS_REGISTRY" refused();
    /// Prepares a CPU mapping.
    RmMapMemory = 0x4e "NV_ESC_RM_MAP_MEMORY" entry(&[nvos33::SIZE], Control);
    /// Ends one.
    RmUnmapMemory = 0x4f "NV_ESC_RM_UNMAP_MEMORY" entry(&[nvos34::SIZE], Control);
    /// Reads an event's data.
    RmGetEventData = 0x52 "NV_ESC_RM_GET_EVENT_DATA" refused();
    /// A context for DMA.
    RmAllocContextDma2 = 0x54 "NV_ESC_RM_ALLOC_CONTEXT_DMA2"
        entry(&[nvos39::SIZE], Control).only(GRAPHICS);
    /// Display.
    RmAddVblankCallback = 0x56 "NV_ESC_RM_ADD_VBLANK_CALLBACK" refused();
    /// Maps an object for the GPU.
    // NVOS46 has 64 bytes since 580, and NVOS47 below has 48 since 550. The driver takes its own
    // size alone (escape.c).
    RmMapMemoryDma = 0x57 "NV_ESC_RM_MAP_MEMORY_DMA"
        entry(&[56, 64], Control).only(GRAPHICS.or(VIDEO));
    /// Ends that.
    RmUnmapMemoryDma = 0x58 "NV_ESC_RM_UNMAP_MEMORY_DMA"
        entry(&[40, 48], Control).only(GRAPHICS.or(VIDEO));
    /// Binds a context for DMA.
    RmBindContextDma = 0x59 "NV_ESC_RM_BIND_CONTEXT_DMA" refused();
    /// Exports an object, by the older way.
    RmExportObjectToFd = 0x5c "NV_ESC_RM_EXPORT_OBJECT_TO_FD" refused();
    /// Imports it.
    RmImportObjectFromFd = 0x5d "NV_ESC_RM_IMPORT_OBJECT_FROM_FD" refused();
    /// Says where a mapping lies in the process.
    RmUpdateDeviceMappingInfo = 0x5e "NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO"
        entry(&[nvos56::SIZE], Control);
    /// The driver's log.
    RmLocklessDiagnostic = 0x5f "NV_ESC_RM_LOCKLESS_DIAGNOSTIC" refused();
    /// All GPUs of the host.
    CardInfo = 200 "NV_ESC_CARD_INFO" records(card_info::SIZE);
    /// Binds a GPU's file to a control file. The driver binds a control file too. Clients that are
    /// made on that one then belong to the other one (`secInfo.clientOSInfo` in `RmIoctl()`,
    /// escape.c), and stay when it is closed. What a client costs goes with its file, so such a
    /// file is refused. No recorded program binds one.
    RegisterFd = 201 "NV_ESC_REGISTER_FD" entry(&[register_fd::SIZE], Gpu);
    /// A key for events.
    AllocOsEvent = 206 "NV_ESC_ALLOC_OS_EVENT" entry(&[os_event::SIZE], Both);
    /// Frees it.
    FreeOsEvent = 207 "NV_ESC_FREE_OS_EVENT" entry(&[free_os_event::SIZE], Both);
    /// State of an adapter.
    StatusCode = 209 "NV_ESC_STATUS_CODE" refused();
    /// Compares versions, or asks for the driver's.
    CheckVersionStr = 210 "NV_ESC_CHECK_VERSION_STR" entry(&[version::SIZE], Control);
    /// Another escape in an envelope.
    IoctlXferCmd = 211 "NV_ESC_IOCTL_XFER_CMD" entry(&[xfer::SIZE], Both);
    /// Opens GPUs without their files.
    AttachGpusToFd = 212 "NV_ESC_ATTACH_GPUS_TO_FD" records(nvos::GPU_ID_SIZE);
    /// Reads an interrupt register.
    QueryDeviceIntr = 213 "NV_ESC_QUERY_DEVICE_INTR" refused();
    /// Tells the driver the size of the host's memory blocks. It takes the first one's word for
    /// good (`nvidia_ioctl()` in nv.c), so a container has no say in it.
    SysParams = 214 "NV_ESC_SYS_PARAMS" entry(&[sys_params::SIZE], Control);
    /// GPU memory as a memory node.
    NumaInfo = 215 "NV_ESC_NUMA_INFO" entry(&[numa_info::SIZE], Gpu);
    /// Makes it one.
    SetNumaStatus = 216 "NV_ESC_SET_NUMA_STATUS" refused();
    /// Exports memory for other devices.
    ExportToDmabufFd = 217 "NV_ESC_EXPORT_TO_DMABUF_FD" entry(&nvos::DMA_BUF_SIZES, Gpu);
    /// Waits until the open has come to its end.
    WaitOpenComplete = 218 "NV_ESC_WAIT_OPEN_COMPLETE" entry(&[wait_open::SIZE], Both);
}

impl Escape {
    /// The field of the driver's status in an argument of `size` bytes; `None` for an escape that
    /// fails with an errno alone.
    pub const fn status(self, size: usize) -> Option<Field<u32>> {
        Some(match self {
            Self::RmAllocMemory => nvos02::STATUS,
            Self::RmFree => nvos00::STATUS,
            Self::RmControl => nvos54::STATUS,
            Self::RmAlloc if size == nvos21::SIZE => nvos21::STATUS,
            Self::RmAlloc => nvos64::STATUS,
            Self::RmDupObject => nvos55::STATUS,
            Self::RmShare => nvos57::STATUS,
            Self::RmIdleChannels => nvos30::STATUS,
            Self::RmVidHeapControl => nvos32::STATUS,
            Self::RmMapMemory => nvos33::STATUS,
            Self::RmUnmapMemory => nvos34::STATUS,
            Self::RmAllocContextDma2 => nvos39::STATUS,
            Self::RmUpdateDeviceMappingInfo => nvos56::STATUS,
            Self::AllocOsEvent => os_event::STATUS,
            Self::FreeOsEvent => free_os_event::STATUS,
            // Structs that have grown with the branches: the last field, before four bytes of
            // padding.
            Self::RmMapMemoryDma | Self::RmUnmapMemoryDma | Self::ExportToDmabufFd => {
                Field::at(size.saturating_sub(8))
            }
            _ => return None,
        })
    }
}
