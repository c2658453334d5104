// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The commands of `/dev/nvidia-uvm` that containers may use. A request is the bare command: its
//! size is not in it, so it is here.

pub use super::generated::uvm::*;

/// What a command is to the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UvmKind {
    /// `UVM_INITIALIZE`.
    Initialize,
    /// `UVM_DEINITIALIZE`: takes no argument.
    Deinitialize,
    /// `UVM_MM_INITIALIZE`: answered without the driver.
    MmInitialize,
    /// `UVM_REGISTER_GPU`: needs the driver's own file in the caller's table.
    RegisterGpu,
    /// `UVM_UNREGISTER_GPU`.
    UnregisterGpu,
    /// Names a client and one of its objects, in the layout of the struct of that name in
    /// this module.
    RegisterVaSpace,
    /// As above.
    RegisterChannel,
    /// As above.
    UnregisterChannel,
    /// Maps a memory object, which UVM keeps alive until the mapping ends.
    MapExternal,
    /// Ends a mapping.
    UnmapExternal,
    /// Ends all mappings of a range.
    Free,
    /// Names no client.
    Plain,
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
    /// Where the result (an [`NvStatus`](super::status::NvStatus)) lies in it.
    pub status_at: u32,
    /// What it is.
    pub kind: UvmKind,
}

/// In [`initialize::FLAGS`]: several processes may use the file
/// (`UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE`, uvm_types.h).
pub const FLAG_MULTI_PROCESS_SHARING_MODE: u64 = 0x2;

pub(super) const fn entry(
    cmd: u32,
    name: &'static str,
    size: u32,
    status_at: u32,
    kind: UvmKind,
) -> UvmEntry {
    UvmEntry {
        cmd,
        name,
        size,
        status_at,
        kind,
    }
}
