// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Request codes as `ioctl(2)` takes them (x86-64 and every other architecture with the generic
//! encoding of `asm-generic/ioctl.h`). A code says what is done, in which direction and with how
//! large a record.

#[cfg(doc)]
use super::{
    Gpu,
    GpuCompute,
    Instance,
    InstanceCompute, //
};
use super::{
    GpuSetCompute,
    InstanceCreate,
    InstanceGet,
    InstanceKey,
    InstanceLimits,
    InstanceRefusals,
    InstanceSetCapabilities,
    InstanceSetChannels,
    InstanceSetCompute,
    InstanceSetLimit,
    InstanceSetManaged,
    InstanceSetMemory,
    InstanceSetWeight,
    RecordList,
    Version, //
};
use core::mem::size_of;

/// The ioctl type ("magic") of every command of the control device.
const MAGIC: u32 = 0xC6;
/// The module reads a record.
const WRITE: u32 = 1;
/// The module writes a record.
const READ: u32 = 2;

/// Declares the commands: `NAME = number, direction, record;`.
macro_rules! commands {
    ($($(#[$about:meta])* $name:ident = $number:literal, $direction:expr, $record:ty;)*) => {
        $(
            $(#[$about])*
            // CAST: the records are far below the 14 bits that the size has in a request code.
            pub const $name: u32 =
                ($direction) << 30 | (size_of::<$record>() as u32) << 16 | MAGIC << 8 | $number;
        )*

        /// Every command: its name, its code, and the name and size in bytes of its record.
        pub const ALL: [(&str, u32, &str, usize); [$($number),*].len()] =
            [$((stringify!($name), $name, stringify!($record), size_of::<$record>())),*];
    };
}

commands! {
    /// Versions of the ABI, the module and the NVIDIA driver.
    VERSION = 0x01, READ, Version;
    /// GPUs of this host: records of [`Gpu`].
    GPU_LIST = 0x02, READ | WRITE, RecordList;
    /// Makes an instance.
    INSTANCE_CREATE = 0x10, READ | WRITE, InstanceCreate;
    /// Removes an instance.
    INSTANCE_DESTROY = 0x11, WRITE, InstanceKey;
    /// One instance.
    INSTANCE_GET = 0x12, READ | WRITE, InstanceGet;
    /// All instances: records of [`Instance`].
    INSTANCE_LIST = 0x13, READ | WRITE, RecordList;
    /// Changes the memory limit of an instance, also while it is in use.
    INSTANCE_SET_MEMORY = 0x14, WRITE, InstanceSetMemory;
    /// Changes the weight of an instance, also while it is in use.
    INSTANCE_SET_WEIGHT = 0x15, WRITE, InstanceSetWeight;
    /// Changes what becomes of managed memory of an instance, also while it is in use.
    INSTANCE_SET_MANAGED = 0x16, WRITE, InstanceSetManaged;
    /// Changes how many channels an instance may have, also while it is in use.
    INSTANCE_SET_CHANNELS = 0x17, WRITE, InstanceSetChannels;
    /// Changes a limit of an instance, also while it is in use.
    INSTANCE_SET_LIMIT = 0x18, WRITE, InstanceSetLimit;
    /// Changes the capabilities of an instance, also while it is in use.
    INSTANCE_SET_CAPABILITIES = 0x20, WRITE, InstanceSetCapabilities;
    /// The calls of an instance that were refused.
    INSTANCE_REFUSALS = 0x21, READ | WRITE, InstanceRefusals;
    /// The limits of an instance beside those of memory and channels.
    INSTANCE_LIMITS = 0x22, READ | WRITE, InstanceLimits;
    /// Changes how the compute time of a GPU is shared, also while it is in use.
    GPU_SET_COMPUTE = 0x30, WRITE, GpuSetCompute;
    /// Changes the priority of an instance, suspends or resumes it, also while it is in use.
    INSTANCE_SET_COMPUTE = 0x31, WRITE, InstanceSetCompute;
    /// How the compute time of each GPU is shared: records of [`GpuCompute`].
    GPU_COMPUTE = 0x32, READ | WRITE, RecordList;
    /// The GPU time of each instance: records of [`InstanceCompute`].
    INSTANCE_COMPUTE = 0x33, READ | WRITE, RecordList;
}
