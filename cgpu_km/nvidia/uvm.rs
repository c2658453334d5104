// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The commands of `/dev/nvidia-uvm` that containers may use. A request is the bare command: its
//! size is not in it, so it is here.

use super::{
    capability::Capabilities,
    wire::Field, //
};

pub use super::generated::uvm::*;

/// The treatment of a command. Each row of `tests/abi/uvm.txt` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UvmKind {
    /// `UVM_INITIALIZE`: is made one that processes share.
    Initialize,
    /// `UVM_DEINITIALIZE`: takes no argument.
    Deinitialize,
    /// `UVM_MM_INITIALIZE`: answered without the driver.
    MmInitialize,
    /// `UVM_REGISTER_GPU`: needs the driver's own file in the caller's table.
    RegisterGpu,
    /// A GPU gives up an address space, or goes altogether, with all that is mapped for it.
    UnregisterGpu,
    /// A GPU gets an address space, and from then on can hold managed memory.
    RegisterVaSpace,
    /// Gives UVM a channel.
    RegisterChannel,
    /// Takes it back.
    UnregisterChannel,
    /// Reserves addresses for mappings.
    CreateRange,
    /// Makes semaphores of UVM's own, whose page tables stay charged.
    SemaphorePool,
    /// Maps a page of UVM's own, by which work starts work.
    ParallelismRegion,
    /// Maps a memory object, which UVM keeps alive until the mapping ends.
    MapExternal,
    /// Ends a mapping.
    UnmapExternal,
    /// Ends all mappings of a range.
    Free,
    /// Brings managed memory onto a GPU, or changes what the program wants of it.
    Touch(UvmWish),
    /// Migrates ranges that the call does not name.
    MigrateGroup,
    /// Maps managed memory for a processor, or no longer, and may cut its ranges.
    Split,
    /// Makes a range group.
    CreateGroup,
    /// Takes it away.
    DestroyGroup,
    /// Puts managed memory into a range group, and may cut what was there.
    SetGroup,
    /// Lets two GPUs use each other's memory, or no longer.
    PeerAccess,
    /// Asks whether there is a range.
    Validate,
    /// Nothing: it passes as it is.
    Plain,
}

/// A program's wish about its managed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UvmWish {
    /// To be at one place if possible.
    Prefer,
    /// To be anywhere.
    Unprefer,
    /// To be at several places while it is only read.
    Duplicate,
    /// To be at one place at a time.
    Unduplicate,
    /// To be brought to one place now.
    Migrate,
}

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UvmEntry {
    /// Its number.
    pub cmd: u32,
    /// NVIDIA's name.
    pub name: &'static str,
    /// Bytes of its argument; 0: the argument is not looked at.
    pub size: u32,
    /// The field of the result, an [`NvStatus`](super::status::NvStatus).
    pub status: Field<u32>,
    /// The field with a client, which must be the caller's own; 0: there is none.
    pub client: Option<Field<u32>>,
    /// The field with an object of that client: an address space, a channel, memory.
    pub object: Option<Field<u32>>,
    /// Its treatment.
    pub kind: UvmKind,
    /// The sets of capabilities that allow it.
    pub capabilities: Capabilities,
}

impl UvmEntry {
    /// The same for parameters that lack `len` bytes at `at`.
    pub fn without(&self, at: usize, len: usize) -> Self {
        let moved = |field: Field<u32>| {
            let gone = if field.offset() < at { 0 } else { len };
            Field::at(field.offset().saturating_sub(gone))
        };
        Self {
            status: moved(self.status),
            client: self.client.map(moved),
            object: self.object.map(moved),
            ..*self
        }
    }
}

/// `UVM_UNMAP_EXTERNAL`, which the module calls itself, as those below.
pub const UNMAP_EXTERNAL: u32 = 66;
/// `UVM_REGISTER_GPU_VASPACE`.
pub const REGISTER_GPU_VASPACE: u32 = 25;
/// `UVM_UNREGISTER_CHANNEL`.
pub const UNREGISTER_CHANNEL: u32 = 28;
/// `UVM_SET_PREFERRED_LOCATION`.
pub const SET_PREFERRED_LOCATION: u32 = 42;
/// `UVM_UNSET_PREFERRED_LOCATION`.
pub const UNSET_PREFERRED_LOCATION: u32 = 43;
/// `UVM_ENABLE_READ_DUPLICATION`.
pub const ENABLE_READ_DUPLICATION: u32 = 44;
/// `UVM_DISABLE_READ_DUPLICATION`.
pub const DISABLE_READ_DUPLICATION: u32 = 45;
/// `UVM_MIGRATE`.
pub const MIGRATE: u32 = 51;

/// The CPU, where GPUs are named by their UUIDs (`NV_PROCESSOR_UUID_CPU_DEFAULT`,
/// kernel-open/nvidia-uvm/nvCpuUuid.c).
pub const CPU_UUID: [u8; 16] = [
    0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
];

/// Any node of the CPU (`NUMA_NO_NODE`).
pub const ANY_NODE: i32 = -1;

/// In [`migrate::FLAGS`]: the call may end before the migration does (`UVM_MIGRATE_FLAG_ASYNC`,
/// uvm_ioctl.h).
pub const MIGRATE_FLAG_ASYNC: u32 = 0x1;

/// In `UVM_MAP_EXTERNAL_ALLOCATION_PARAMS`, the GPUs that the memory is mapped for
/// (`UvmGpuMappingAttributes`, uvm_types.h): as many as the branch has room for, each begins with
/// its UUID.
pub mod map_gpus {
    /// Offset of the first.
    pub const AT: usize = 24;
    /// The size of one.
    pub const SIZE: usize = 36;
    /// From the number of them (a u64), which follows them, to the end of the struct.
    pub const COUNT_TO_END: usize = 24;
}

/// In the parameters of `UVM_ENABLE_PEER_ACCESS` and `UVM_DISABLE_PEER_ACCESS`: offsets of the
/// UUIDs of the two GPUs.
pub const PEERS: [usize; 2] = [0, 16];

/// In [`initialize::FLAGS`]: several processes may use the file
/// (`UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE`, uvm_types.h).
pub const FLAG_MULTI_PROCESS_SHARING_MODE: u64 = 0x2;

pub(super) const fn entry(
    cmd: u32,
    name: &'static str,
    size: u32,
    status: usize,
    names: Option<[usize; 2]>,
    kind: UvmKind,
    capabilities: Capabilities,
) -> UvmEntry {
    let (client, object) = match names {
        Some([client, object]) => (Some(Field::at(client)), Some(Field::at(object))),
        None => (None, None),
    };
    UvmEntry {
        cmd,
        name,
        size,
        status: Field::at(status),
        client,
        object,
        kind,
        capabilities,
    }
}
