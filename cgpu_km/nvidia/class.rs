// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The classes of objects that containers may have, with the size of their parameters.

use super::{
    capability::Capabilities,
    handle::ClassId, //
};

/// The module's view of an object. Classes of one kind differ only in the GPU's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A client. Made without a parent.
    Root,
    /// A GPU, by its device instance: every object of a GPU descends from one.
    Device,
    /// A GPU below a [`Kind::Device`]; without SLI the same thing again.
    Subdevice,
    /// Video memory: what a limit on memory is about.
    VideoMemory,
    /// Memory of the host, by the driver.
    SystemMemory,
    /// Memory of the host, the caller's own pages.
    OsDescriptor,
    /// A range of a GPU address space; takes no memory but page tables.
    VirtualMemory,
    /// A GPU address space.
    VaSpace,
    /// A group of channels that are scheduled as one.
    ChannelGroup,
    /// A share of the engine state among channels of a group.
    ContextShare,
    /// A channel: a queue of work.
    Channel,
    /// An object of any other engine on a channel: copies, video and so on.
    Engine,
    /// An object of the graphics engine on a channel: compute, 3D, 2D, copies inline. With the
    /// first of a group the driver makes the context that its work runs in.
    GraphicsObject,
    /// The page with the doorbell register.
    UserMode,
    /// The page in which the driver keeps numbers about the GPU up to date.
    SharedData,
    /// A notification of something that happens to an object.
    Event,
    /// A debugger's session; names another client.
    Debugger,
    /// Memory registered for other devices (GPUDirect RDMA), or a link between two GPUs.
    PeerMemory,
    /// A place in NVLink's fabric for memory of its own client.
    FabricMemory,
    /// A context for DMA, over memory of its own client.
    ContextDma,
    /// A queue of operations on a GPU's address spaces, which the driver carries out.
    MemoryMapper,
    /// Semaphores that a GPU and programs share, in memory of its own client, which it keeps.
    SemaphoreSurface,
    /// How a program uses an encoder, by its own word.
    EncoderSession,
    /// The counters of a GPU, as a profiler has them.
    Profiler,
    /// Anything else: no memory, no work, no name of another client.
    Inert,
}

impl Kind {
    /// Whether its objects are memory of a program's. All else that the driver can map or read is
    /// the GPU's, or everybody's.
    pub fn is_memory(self) -> bool {
        matches!(
            self,
            Self::VideoMemory | Self::SystemMemory | Self::OsDescriptor | Self::FabricMemory
        )
    }

    /// Whether the driver copies such objects (`resCanCopy`), and a copy keeps what it uses.
    ///
    /// Not groups of channels and shares of their state, which it copies as well. They have their
    /// address space by a bare pointer. A copy is freed with the space only if that is below the
    /// copy's own device (`kchangrpapiCopyConstruct_IMPL()`, kernel_channel_group_api.c). A share
    /// has a bare pointer to its group, too, and is copied below any
    /// (`kctxshareapiCopyConstruct_IMPL()`, kernel_ctxshare.c).
    pub fn is_copyable(self) -> bool {
        self.is_memory()
            || matches!(
                self,
                Self::VirtualMemory
                    | Self::VaSpace
                    | Self::UserMode
                    | Self::SharedData
                    | Self::SemaphoreSurface
            )
    }
}

/// A client.
pub const NV01_ROOT: ClassId = ClassId(0x00);
/// A context for DMA, over memory.
pub const NV01_CONTEXT_DMA: ClassId = ClassId(0x02);
/// An event, of the class that its parameters name.
pub const NV01_EVENT: ClassId = ClassId(0x05);
/// An event for a program.
pub const NV01_EVENT_OS_EVENT: ClassId = ClassId(0x79);
/// Memory of the host.
pub const NV01_MEMORY_SYSTEM: ClassId = ClassId(0x3e);
/// The registers of a GPU.
pub const NV01_MEMORY_LOCAL_PRIVILEGED: ClassId = ClassId(0x3f);
/// Video memory.
pub const NV01_MEMORY_LOCAL_USER: ClassId = ClassId(0x40);
/// The caller's own pages.
pub const NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: ClassId = ClassId(0x71);
/// A range of an address space.
pub const NV50_MEMORY_VIRTUAL: ClassId = ClassId(0x50a0);
/// Two GPUs that see each other's memory.
pub const NV50_P2P: ClassId = ClassId(0x503b);
/// A GPU, as a client has it.
pub const NV01_DEVICE_0: ClassId = ClassId(0x80);
/// The page of a GPU's figures that the driver shares ([`rusd`](super::rusd)).
pub const RM_USER_SHARED_DATA: ClassId = ClassId(0xde);
/// A GPU without the others that may work as one with it.
pub const NV20_SUBDEVICE_0: ClassId = ClassId(0x2080);
/// The first class of doorbells that can be made through BAR1; all later GPUs have it too.
pub const HOPPER_USERMODE_A: ClassId = ClassId(0xc661);

/// Whether the driver takes a class without parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// A null pointer will do.
    Optional,
    /// It refuses a null pointer.
    Required,
}

/// One class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassEntry {
    /// Its number.
    pub class: ClassId,
    /// NVIDIA's name.
    pub name: &'static str,
    /// Bytes of parameters that the driver copies; 0: none, a pointer is not looked at.
    pub params: u32,
    /// Its kind.
    pub kind: Kind,
    /// Whether the parameters may be left out.
    pub presence: Presence,
    /// The sets of capabilities that allow it.
    pub capabilities: Capabilities,
    /// Offsets at which its parameters name a client (`u32`): 0, or one that must be the caller's
    /// own. The driver asks for none of them whose it is: a device takes over the address space of
    /// any client (`deviceInitClientShare()` in src/nvidia/src/kernel/gpu/device_share.c), a
    /// debugger reads the memory of any.
    pub clients: &'static [usize],
}

pub(super) const fn entry(
    class: u32,
    name: &'static str,
    params: u32,
    kind: Kind,
    presence: Presence,
    capabilities: Capabilities,
    clients: &'static [usize],
) -> ClassEntry {
    ClassEntry {
        class: ClassId(class),
        name,
        params,
        kind,
        presence,
        capabilities,
        clients,
    }
}
