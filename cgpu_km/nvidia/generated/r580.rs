// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The tables of branch 580.

use crate::nvidia::class::ClassEntry;
use crate::nvidia::control::ControlEntry;
use crate::nvidia::uvm::UvmEntry;
use crate::nvidia::version::DriverVersion;

/// The release that they come from.
pub(in crate::nvidia) const RELEASE: DriverVersion = DriverVersion {
    major: 580,
    minor: 142,
    patch: 0,
};

/// The classes.
pub(in crate::nvidia) static CLASSES: [ClassEntry; 0] = [];

/// The controls.
pub(in crate::nvidia) static CONTROLS: [ControlEntry; 0] = [];

/// The commands of UVM.
pub(in crate::nvidia) static UVM: [UvmEntry; 0] = [];
