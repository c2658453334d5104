// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Statuses as the driver puts them into the answered structs (nvstatuscodes.h). The numbers are
//! the same in all branches.

use core::fmt;

/// A status of the driver. An escape usually returns 0 and says with this what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct NvStatus(pub u32);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        impl NvStatus {
            $($(#[$doc])* pub const $name: Self = Self($number);)*

            /// NVIDIA's name, where it is one of the constants here.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

statuses! {
    /// Done.
    NV_OK = 0x0;
    /// The caller's buffer is too small.
    NV_ERR_BUFFER_TOO_SMALL = 0x02;
    /// The GPU has gone.
    NV_ERR_GPU_IS_LOST = 0x0f;
    /// No GPU has this UUID.
    NV_ERR_GPU_UUID_NOT_FOUND = 0x12;
    /// In use.
    NV_ERR_IN_USE = 0x17;
    /// The handle exists already.
    NV_ERR_INSERT_DUPLICATE_NAME = 0x19;
    /// Some table of the driver is full.
    NV_ERR_INSUFFICIENT_RESOURCES = 0x1a;
    /// The caller may not do this.
    NV_ERR_INSUFFICIENT_PERMISSIONS = 0x1b;
    /// No such address.
    NV_ERR_INVALID_ADDRESS = 0x1e;
    /// Something about the arguments.
    NV_ERR_INVALID_ARGUMENT = 0x1f;
    /// No such channel.
    NV_ERR_INVALID_CHANNEL = 0x21;
    /// No such class here: also what a GPU without an engine says to the engine's class.
    NV_ERR_INVALID_CLASS = 0x22;
    /// No such client, or not the caller's.
    NV_ERR_INVALID_CLIENT = 0x23;
    /// No such command.
    NV_ERR_INVALID_COMMAND = 0x24;
    /// No such device, or not open.
    NV_ERR_INVALID_DEVICE = 0x26;
    /// No such event.
    NV_ERR_INVALID_EVENT = 0x28;
    /// Flags that do not go together.
    NV_ERR_INVALID_FLAGS = 0x29;
    /// No such function.
    NV_ERR_INVALID_FUNCTION = 0x2a;
    /// A limit that is none.
    NV_ERR_INVALID_LIMIT = 0x2e;
    /// No such object.
    NV_ERR_INVALID_OBJECT = 0x31;
    /// No such object, or of another kind.
    NV_ERR_INVALID_OBJECT_HANDLE = 0x33;
    /// The new handle is not usable.
    NV_ERR_INVALID_OBJECT_NEW = 0x34;
    /// The object to be freed does not exist.
    NV_ERR_INVALID_OBJECT_OLD = 0x35;
    /// The parent does not exist, or takes no such child.
    NV_ERR_INVALID_OBJECT_PARENT = 0x36;
    /// The parameters have the wrong size.
    NV_ERR_INVALID_PARAM_STRUCT = 0x3a;
    /// Something about the parameters.
    NV_ERR_INVALID_PARAMETER = 0x3b;
    /// An address of parameters that is none, or is missing.
    NV_ERR_INVALID_POINTER = 0x3d;
    /// Not in this state.
    NV_ERR_INVALID_STATE = 0x40;
    /// No channel or group of channels is left.
    NV_ERR_NO_FREE_FIFOS = 0x4f;
    /// No memory left: of the GPU, or of the host.
    NV_ERR_NO_MEMORY = 0x51;
    /// Not on this GPU, or not by this driver.
    NV_ERR_NOT_SUPPORTED = 0x56;
    /// No such object.
    NV_ERR_OBJECT_NOT_FOUND = 0x57;
    /// An object of another kind.
    NV_ERR_OBJECT_TYPE_MISMATCH = 0x58;
    /// Refused by the operating system.
    NV_ERR_OPERATING_SYSTEM = 0x59;
    /// Beyond the range.
    NV_ERR_OUT_OF_RANGE = 0x5b;
    /// In use in another state.
    NV_ERR_STATE_IN_USE = 0x63;
    /// Took too long.
    NV_ERR_TIMEOUT = 0x65;
    /// The address range has a use already (UVM).
    NV_ERR_UVM_ADDRESS_IN_USE = 0x68;
    /// Nothing said.
    NV_ERR_GENERIC = 0xffff;
    /// Nothing to do: the answer to `UVM_MM_INITIALIZE` in the shared mode.
    NV_WARN_NOTHING_TO_DO = 0x0001_0006;
}

impl NvStatus {
    /// Whether the driver did what it was asked (warnings are no errors: rs_utils.h).
    pub const fn is_ok(self) -> bool {
        self.0 == Self::NV_OK.0
    }
}

impl From<u32> for NvStatus {
    fn from(number: u32) -> Self {
        Self(number)
    }
}

impl fmt::Display for NvStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "status {:#x}", self.0),
        }
    }
}
