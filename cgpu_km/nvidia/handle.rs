// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The driver's numbers for clients, objects, classes and controls, one type each.

/// A client: the root of a tree of objects, bound to the control file that made it. Unique in
/// the driver; 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ClientHandle(pub u32);

impl ClientHandle {
    /// The first handle of a client that is not internal to the driver (`RS_CLIENT_HANDLE_BASE`,
    /// resserv.h). Clients of programs and of the kernel are numbered in one row.
    pub const BASE: u32 = 0xc1d0_0000;
    /// The row begins anew after so many handles (`RS_CLIENT_HANDLE_MAX`).
    const COUNT: u32 = 0x10_0000;

    /// The handle of the client as an object, the root of its tree.
    pub const fn root(self) -> ObjectHandle {
        ObjectHandle(self.0)
    }

    /// The handle that the driver gives to the next client, unless a client still has it.
    pub const fn next(self) -> Self {
        Self(Self::BASE | (self.0.wrapping_add(1) % Self::COUNT))
    }

    /// How many handles come after this one, up to `later` and with it.
    pub const fn until(self, later: Self) -> u32 {
        later.0.wrapping_sub(self.0) % Self::COUNT
    }
}

/// The handle of an object, unique within its client. 0 is none. The client's own handle is that of
/// its root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ObjectHandle(pub u32);

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
    /// (`RM_GSS_LEGACY_MASK` in rmapi_gss_legacy_control.c); their parameters have no public
    /// layout.
    pub const GSS_LEGACY: u32 = 0x8000;

    /// Set as well in those of them that the driver takes from administrators alone
    /// (`RM_GSS_LEGACY_MASK_PRIVILEGED`): they set clocks, voltages, fans and power limits.
    pub const GSS_LEGACY_PRIVILEGED: u32 = 0xc000;

    /// Whether the driver hands this control on unseen to the GPU's firmware.
    pub const fn is_gss_legacy(self) -> bool {
        self.0 & Self::GSS_LEGACY != 0
    }

    /// Whether it is one of those that the driver takes from administrators alone.
    pub const fn is_gss_privileged(self) -> bool {
        self.0 & Self::GSS_LEGACY_PRIVILEGED == Self::GSS_LEGACY_PRIVILEGED
    }
}
