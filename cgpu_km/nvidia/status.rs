// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Statuses as the driver puts them into the answered structs (nvstatuscodes.h). The numbers are
//! the same in all branches.

/// A status of the driver. An escape usually returns 0 and says with this what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct NvStatus(pub u32);

impl NvStatus {
    /// Whether it says that the call has not worked. Warnings are numbered from 0x10000 on.
    pub fn is_error(self) -> bool {
        self != Self::NV_OK && self.0 < 0x1_0000
    }

    /// Done.
    pub const NV_OK: Self = Self(0x0);
    /// No GPU has this UUID.
    pub const NV_ERR_GPU_UUID_NOT_FOUND: Self = Self(0x12);
    /// In use.
    pub const NV_ERR_IN_USE: Self = Self(0x17);
    /// The handle exists already.
    pub const NV_ERR_INSERT_DUPLICATE_NAME: Self = Self(0x19);
    /// Some table of the driver is full.
    pub const NV_ERR_INSUFFICIENT_RESOURCES: Self = Self(0x1a);
    /// The caller may not do this.
    pub const NV_ERR_INSUFFICIENT_PERMISSIONS: Self = Self(0x1b);
    /// No such address.
    pub const NV_ERR_INVALID_ADDRESS: Self = Self(0x1e);
    /// Something about the arguments.
    pub const NV_ERR_INVALID_ARGUMENT: Self = Self(0x1f);
    /// No such channel.
    pub const NV_ERR_INVALID_CHANNEL: Self = Self(0x21);
    /// No such class here: also what a GPU without an engine says to the engine's class.
    pub const NV_ERR_INVALID_CLASS: Self = Self(0x22);
    /// No such client, or not the caller's.
    pub const NV_ERR_INVALID_CLIENT: Self = Self(0x23);
    /// No such device, or not open.
    pub const NV_ERR_INVALID_DEVICE: Self = Self(0x26);
    /// No such event.
    pub const NV_ERR_INVALID_EVENT: Self = Self(0x28);
    /// Flags that do not go together.
    pub const NV_ERR_INVALID_FLAGS: Self = Self(0x29);
    /// A limit that is none.
    pub const NV_ERR_INVALID_LIMIT: Self = Self(0x2e);
    /// No such object.
    pub const NV_ERR_INVALID_OBJECT: Self = Self(0x31);
    /// No such object, or of another kind.
    pub const NV_ERR_INVALID_OBJECT_HANDLE: Self = Self(0x33);
    /// The parent does not exist, or takes no such child.
    pub const NV_ERR_INVALID_OBJECT_PARENT: Self = Self(0x36);
    /// The parameters have the wrong size.
    pub const NV_ERR_INVALID_PARAM_STRUCT: Self = Self(0x3a);
    /// Something about the parameters.
    pub const NV_ERR_INVALID_PARAMETER: Self = Self(0x3b);
    /// Not in this state.
    pub const NV_ERR_INVALID_STATE: Self = Self(0x40);
    /// No channel or group of channels is left.
    pub const NV_ERR_NO_FREE_FIFOS: Self = Self(0x4f);
    /// No memory left: of the GPU, or of the host.
    pub const NV_ERR_NO_MEMORY: Self = Self(0x51);
    /// Not on this GPU, or not by this driver.
    pub const NV_ERR_NOT_SUPPORTED: Self = Self(0x56);
    /// No such object.
    pub const NV_ERR_OBJECT_NOT_FOUND: Self = Self(0x57);
    /// Beyond the range.
    pub const NV_ERR_OUT_OF_RANGE: Self = Self(0x5b);
    /// In use in another state.
    pub const NV_ERR_STATE_IN_USE: Self = Self(0x63);
    /// The address range has a use already (UVM).
    pub const NV_ERR_UVM_ADDRESS_IN_USE: Self = Self(0x68);
    /// Nothing to do: the answer to `UVM_MM_INITIALIZE` in the shared mode.
    pub const NV_WARN_NOTHING_TO_DO: Self = Self(0x0001_0006);
}
