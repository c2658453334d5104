// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The driver's numbers for clients, objects, classes and controls, one type each.

/// A client: the root of a tree of objects, bound to the control file that made it. Unique in
/// the driver; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ClientHandle(pub u32);

impl ClientHandle {
    /// The first handle that the module chooses for containers. The driver chooses from 0xc1d0_0000
    /// on for programs and the kernel, from 0xc1e0_0000 on for itself, and from 0xe000_0000 on for
    /// virtual GPUs (`RS_CLIENT_HANDLE_BASE` and others, resserv.h).
    pub const BASE: u32 = 0xc1c0_0000;
    /// The first handle of the module's own clients. The driver's lists are in order, and a lookup
    /// ends at what it looks for. So it passes no container's client on its way to one of these.
    const OWN_BASE: u32 = 0xc1b0_0000;
    /// So many handles are for containers, and as many for the module. Each of the driver's rows
    /// has as many (`RS_CLIENT_HANDLE_MAX`).
    pub const COUNT: u32 = 0x10_0000;
    /// In so many lists the driver has its clients (`RS_CLIENT_HANDLE_BUCKET_COUNT`).
    pub const LISTS: u32 = 0x400;

    /// One of those for containers. The row begins anew after the last one.
    pub const fn chosen(number: u32) -> Self {
        Self(Self::BASE | (number % Self::COUNT))
    }

    /// One of those for the module's own clients. The row begins anew after the last one.
    pub const fn own(number: u32) -> Self {
        Self(Self::OWN_BASE | (number % Self::COUNT))
    }

    /// The driver's list in which a client with this handle is.
    pub const fn list(self) -> u32 {
        self.0 % Self::LISTS
    }

    /// The handle of the client as an object, the root of its tree.
    pub const fn root(self) -> ObjectHandle {
        ObjectHandle(self.0)
    }
}

/// The handle of an object, unique within its client. 0 is none. The client's own handle is that of
/// its root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ObjectHandle(pub u32);

impl ObjectHandle {
    /// In the place of a new range's address space it stands for addresses of the host
    /// (`NV_MEMORY_VIRTUAL_SYSMEM_DYNAMIC_HVASPACE`, cl0070.h). Everywhere else it is a handle as
    /// any other.
    pub const HOST_ADDRESSES: Self = Self(u32::MAX);

    /// First of the handles that the driver gives to objects of its own in a program's client
    /// (rs_client.h, `RS_UNIQUE_HANDLE_BASE`).
    const FIRST_OF_DRIVER: u32 = 0xcaf0_0000;

    /// How many those are (rs_client.h, `RS_UNIQUE_HANDLE_RANGE`).
    pub const COUNT_OF_DRIVER: u32 = 0x0008_0000;

    /// First handle behind those of the driver.
    pub const AFTER_DRIVER: Self = Self(Self::FIRST_OF_DRIVER + Self::COUNT_OF_DRIVER);

    /// Whether the driver may have an object of its own under this handle.
    pub const fn is_of_driver(self) -> bool {
        self.0 >= Self::FIRST_OF_DRIVER && self.0 < Self::AFTER_DRIVER.0
    }
}

/// The class of an object, which says what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ClassId(pub u32);

/// A control of an object. The upper half is usually the class that it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ControlCmd(pub u32);

impl ControlCmd {
    /// Set in the controls that the driver hands on unseen to the GPU's own firmware
    /// (`RM_GSS_LEGACY_MASK` in rmapi_gss_legacy_control.c) and takes from administrators alone
    /// (`RM_GSS_LEGACY_MASK_PRIVILEGED`): they set clocks, voltages, fans and power limits.
    pub const GSS_LEGACY_PRIVILEGED: u32 = 0xc000;

    /// Whether it is one of those that the driver takes from administrators alone.
    pub const fn is_gss_privileged(self) -> bool {
        self.0 & Self::GSS_LEGACY_PRIVILEGED == Self::GSS_LEGACY_PRIVILEGED
    }
}
