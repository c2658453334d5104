// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The tables of each branch of the driver.

use super::class::ClassEntry;
use super::control::ControlEntry;
use super::escape::{self, EscapeEntry};
use super::generated::r580;
use super::handle::{ClassId, ControlCmd};
use super::uvm::UvmEntry;
use super::version::{Branch, DriverVersion};

/// Everything that is known of one branch.
#[derive(Debug)]
pub struct Tables {
    /// The release whose headers and sources they were made from.
    pub release: DriverVersion,
    /// Sorted by number.
    pub escapes: &'static [EscapeEntry],
    /// Sorted by class.
    pub classes: &'static [ClassEntry],
    /// Sorted by command.
    pub controls: &'static [ControlEntry],
    /// Sorted by command.
    pub uvm: &'static [UvmEntry],
}

static R580: Tables = Tables {
    release: r580::RELEASE,
    escapes: &escape::R580,
    classes: &r580::CLASSES,
    controls: &r580::CONTROLS,
    uvm: &r580::UVM,
};

impl Tables {
    /// The tables of `branch`. `None`: they were not made, so a GPU with such a driver is refused
    /// when it is attached.
    pub const fn of(branch: Branch) -> Option<&'static Self> {
        match branch {
            Branch::R580 => Some(&R580),
            Branch::R535 | Branch::R550 | Branch::R570 | Branch::R595 => None,
        }
    }

    /// The escape with this number; `None` for one that the driver does not know.
    pub fn escape(&self, nr: u8) -> Option<&'static EscapeEntry> {
        find(self.escapes, |entry| entry.nr, nr)
    }

    /// The class; `None` for one that is refused (`NV_ERR_INVALID_CLASS`).
    pub fn class(&self, class: ClassId) -> Option<&'static ClassEntry> {
        find(self.classes, |entry| entry.class, class)
    }

    /// The control; `None` for one that is refused (`NV_ERR_NOT_SUPPORTED`).
    ///
    /// Controls of the firmware ([`ControlCmd::is_gss_legacy`]) have no public layout, so none is in
    /// the tables; their parameters have the size that the caller says.
    pub fn control(&self, cmd: ControlCmd) -> Option<&'static ControlEntry> {
        find(self.controls, |entry| entry.cmd, cmd)
    }

    /// The command of UVM; `None` for one that is refused as UVM refuses an unknown one (`ENOSYS`,
    /// `uvm_test_ioctl()` in uvm_test.c).
    pub fn uvm(&self, cmd: u32) -> Option<&'static UvmEntry> {
        find(self.uvm, |entry| entry.cmd, cmd)
    }
}

fn find<T, K: Ord>(table: &'static [T], key: impl Fn(&T) -> K, wanted: K) -> Option<&'static T> {
    let at = table
        .binary_search_by(|entry| key(entry).cmp(&wanted))
        .ok()?;
    table.get(at)
}
