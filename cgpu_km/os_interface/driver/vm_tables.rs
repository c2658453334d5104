// SPDX-License-Identifier: GPL-2.0
//! Operations of mappings that stand in front of the driver's.
//!
//! They are kept in the backing file of the file that was mapped. Every mapping holds its file,
//! from `mmap` or fork or split until after `close`, and the file holds its session, which has the
//! backing file, this module and the driver. So nothing is counted here, and the driver may give a
//! mapping operations without ours at any time, as UVM does in a child (`uvm_disable_vma()`).

use crate::os_interface::base::{
    extra,
    vma::LockedVma, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::SetOnce, //
};

/// How many kinds of mappings a file can have. UVM has four: managed memory, semaphore pools,
/// device memory for peers, and disabled ones. A GPU's files have one, behind three guards. Threads
/// that make the same table at once can take a place each.
const KINDS: usize = 8;

/// The guard of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::os_interface) enum Guard {
    /// Nothing.
    Nothing,
    /// A gate.
    Gate,
    /// The same, and nobody can use it.
    Wall,
}

/// Operations that stand before the driver's own for one kind of mapping.
///
/// # Invariants
///
/// `original` are operations of the driver, which are valid as long as a file of it is open.
#[repr(C)]
pub(in crate::os_interface) struct VmTable {
    /// First, so that a pointer to it is one to the table.
    operations: extra::cgpu_vm_operations,
    original: *const bindings::vm_operations_struct,
    guard: Guard,
}

// SAFETY: The pointer is to a static of the driver's; nothing is written after it was made.
unsafe impl Send for VmTable {}
// SAFETY: A shared table is only read, as its static is.
unsafe impl Sync for VmTable {}

impl VmTable {
    /// The table whose operations a mapping has.
    ///
    /// # Safety
    ///
    /// The mapping has operations of a [`VmTables`].
    pub(in crate::os_interface) unsafe fn of(vma: LockedVma<'_>) -> &Self {
        let operations = vma.seen().operations;
        // SAFETY: They are the first field of a table, as this function's contract says, and the
        // mapping holds it by way of its file.
        unsafe { &*operations.cast() }
    }

    /// Ours.
    pub(in crate::os_interface) fn operations(&self) -> *const bindings::vm_operations_struct {
        (&raw const self.operations).cast()
    }

    /// The guard that the mapping is behind.
    pub(in crate::os_interface) fn guard(&self) -> Guard {
        self.guard
    }

    /// The driver's operations.
    pub(in crate::os_interface) fn original(&self) -> *const bindings::vm_operations_struct {
        self.original
    }

    fn is_for(&self, original: *const bindings::vm_operations_struct, guard: Guard) -> bool {
        self.original == original && self.guard == guard
    }

    /// Tells the driver of a copy of a mapping.
    ///
    /// # Safety
    ///
    /// The kernel has copied a mapping that the driver has made.
    pub(in crate::os_interface) unsafe fn open_original(&self, vma: LockedVma<'_>) {
        // SAFETY: The driver made the mapping with these operations, and has its file open.
        unsafe { extra::cgpu_shim_open_mapping(self.original, vma.as_ptr()) };
    }

    /// Tells the driver that a mapping is closed.
    ///
    /// # Safety
    ///
    /// The driver has made the mapping, or was told of it by `open`.
    pub(in crate::os_interface) unsafe fn close_original(&self, vma: LockedVma<'_>) {
        // SAFETY: By the type's invariant, as a task with this table has a file of the driver open;
        // the mapping is one of the driver's, as this function's contract says.
        unsafe { extra::cgpu_shim_close_mapping(self.original, vma.as_ptr()) };
    }
}

/// The tables for all mappings of a backing file's sessions, made when they are needed.
pub(in crate::os_interface) struct VmTables([SetOnce<KBox<VmTable>>; KINDS]);

impl VmTables {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self([const { SetOnce::new() }; KINDS])
    }

    /// The table that stands in front of `original`, less what `ours` says, made at its first
    /// use. All callers have the same `ours` for the same `guard`.
    ///
    /// `EMFILE` if there are more kinds than there can be, `ENOMEM`.
    ///
    /// # Safety
    ///
    /// `original` are operations of a mapping of the driver that the backing file is of.
    pub(in crate::os_interface) unsafe fn replacing(
        &self,
        original: *const bindings::vm_operations_struct,
        guard: Guard,
        ours: &extra::cgpu_covering,
    ) -> Result<&VmTable> {
        for slot in &self.0 {
            if slot.as_ref().is_none() {
                // Another thread may be faster: its table is looked at like any other, or, if it is
                // not there yet, the next place is taken.
                // INVARIANT: `original` are operations of a mapping of the driver.
                let mut table = KBox::new(
                    VmTable {
                        operations: pin_init::zeroed(),
                        original,
                        guard,
                    },
                    GFP_KERNEL,
                )?;
                let place = (&raw mut table.operations).cast();
                // SAFETY: A place for them; the driver's are valid while its file is mapped.
                unsafe { extra::cgpu_shim_cover(place, original, ours) };
                slot.populate(table);
            }
            if let Some(table) = slot.as_ref().filter(|table| table.is_for(original, guard)) {
                return Ok(table);
            }
        }
        Err(EMFILE)
    }

    /// The table that was made for these.
    pub(in crate::os_interface) fn find(
        &self,
        original: *const bindings::vm_operations_struct,
        guard: Guard,
    ) -> Option<&VmTable> {
        let mut made = self.0.iter().filter_map(|slot| slot.as_ref());
        let found = made.find(|table| table.is_for(original, guard));
        found.map(|table| &**table)
    }
}
