// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The tables of each branch of the driver. Branches differ in little, so one has whole tables.
//! Each other branch has what differs from its base.

use super::{
    class::ClassEntry,
    control::ControlEntry,
    escape::{
        self,
        EscapeEntry, //
    },
    handle::{
        ClassId,
        ControlCmd, //
    },
    rusd::Layout,
    samples::SampleLayout,
    uvm::UvmEntry,
    version::DriverVersion, //
};

/// Everything that is known of one branch.
#[derive(Debug)]
pub struct Tables {
    /// The release whose headers and sources they were made from.
    pub release: DriverVersion,
    /// The tables that hold where these say nothing.
    pub(super) base: Option<&'static Tables>,
    /// Sorted by class.
    pub(super) classes: &'static [ClassEntry],
    /// Sorted by command.
    pub(super) controls: &'static [ControlEntry],
    /// Sorted by command.
    pub(super) uvm: &'static [UvmEntry],
    /// The sections of `RM_USER_SHARED_DATA`. They are this branch's own, whatever its base has.
    pub shared_data: Layout,
    /// The layout of this branch's samples.
    pub samples: SampleLayout,
    /// Entries of the base that this branch has not.
    pub(super) absent: &'static Absent,
}

/// Numbers, sorted.
#[derive(Debug)]
pub(super) struct Absent {
    pub(super) classes: &'static [ClassId],
    pub(super) controls: &'static [ControlCmd],
    pub(super) uvm: &'static [u32],
}

impl Tables {
    /// The escape with this number; `None` for one that the driver does not know.
    pub fn escape(&self, nr: u8) -> Option<&'static EscapeEntry> {
        escape::TABLE.get(usize::from(*escape::PLACES.get(usize::from(nr))?))
    }

    /// The class; `None` for one that is refused (`NV_ERR_INVALID_CLASS`).
    pub fn class(&self, class: ClassId) -> Option<&'static ClassEntry> {
        let own = find(self.classes, |entry| entry.class, class);
        own.or_else(|| self.base_with(self.absent.classes, class)?.class(class))
    }

    /// The control; `None` for one that is refused (`NV_ERR_NOT_SUPPORTED`).
    pub fn control(&self, cmd: ControlCmd) -> Option<&'static ControlEntry> {
        let own = find(self.controls, |entry| entry.cmd, cmd);
        own.or_else(|| self.base_with(self.absent.controls, cmd)?.control(cmd))
    }

    /// The command of UVM; `None` for one that is refused as UVM refuses an unknown one (`EINVAL`,
    /// `uvm_test_ioctl()` in uvm_test.c).
    pub fn uvm(&self, cmd: u32) -> Option<&'static UvmEntry> {
        let own = find(self.uvm, |entry| entry.cmd, cmd);
        own.or_else(|| self.base_with(self.absent.uvm, cmd)?.uvm(cmd))
    }

    /// The base, unless this branch lacks a number that the base has.
    fn base_with<K: Ord>(&self, absent: &[K], number: K) -> Option<&'static Self> {
        self.base.filter(|_| absent.binary_search(&number).is_err())
    }
}

#[cfg(test)]
impl Tables {
    /// The controls that this branch says itself.
    pub(crate) fn controls(&self) -> &'static [ControlEntry] {
        self.controls
    }

    /// The same of the commands of UVM.
    pub(crate) fn uvm_commands(&self) -> &'static [UvmEntry] {
        self.uvm
    }
}

fn find<T, K: Ord>(table: &'static [T], key: impl Fn(&T) -> K, wanted: K) -> Option<&'static T> {
    let at = table
        .binary_search_by(|entry| key(entry).cmp(&wanted))
        .ok()?;
    table.get(at)
}
