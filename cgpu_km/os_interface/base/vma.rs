// SPDX-License-Identifier: GPL-2.0
//! Mappings in a program's memory under their lock, the entries of their page tables, and faults.

use super::{
    extra,
    frame::Frame, //
};
use core::{
    marker::PhantomData,
    mem::MaybeUninit,
    ops::{
        ControlFlow,
        Deref, //
    },
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::to_result,
    mm::MmWithUser,
    page::Page,
    prelude::*,
    task::CurrentTask, //
};

/// The address space of the current task; `None` for a kernel thread that borrows none. (The kernel
/// crate has the same, by a field of the task's structure.)
pub(in crate::os_interface) fn memory_of(_current: &CurrentTask) -> Option<&MmWithUser> {
    // SAFETY: Looks at the current task.
    let memory = unsafe { extra::cgpu_shim_memory() };
    // SAFETY: A task's own address space is in use for as long as it is one of this task.
    (!memory.is_null()).then(|| unsafe { MmWithUser::from_raw(memory) })
}

/// Calls `look` with the current task's mapping at `address`, which is locked meanwhile. `None` if
/// there is no mapping.
pub(in crate::os_interface) fn look_at<T>(
    task: &CurrentTask,
    address: usize,
    look: impl FnOnce(LockedVma<'_>) -> Option<T>,
) -> Option<T> {
    let memory = memory_of(task)?.as_raw();
    // SAFETY: The task's own address space, whose lock it does not hold.
    let vma = unsafe { extra::cgpu_shim_lock_mapping(memory, address) };
    if vma.is_null() {
        return None;
    }
    // SAFETY: The mapping was found and locked above, and is unlocked below.
    let seen = look(unsafe { LockedVma::new(vma) });
    // SAFETY: The lock was taken above; nothing of the mapping is used any more.
    unsafe { extra::cgpu_shim_unlock_memory(memory) };
    seen
}

/// The kind of pages to which a mapping's entries refer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::os_interface) enum Holds {
    /// A device's registers or memory. On some processors entries of it always give access.
    Device,
    /// The host's memory.
    Memory,
}

/// A mapping that is locked, so that it and its page tables stay.
///
/// # Invariants
///
/// `mmap_lock` or the mapping's own lock is held for as long as this exists.
#[derive(Clone, Copy)]
pub(in crate::os_interface) struct LockedVma<'a>(
    NonNull<bindings::vm_area_struct>,
    PhantomData<&'a bindings::vm_area_struct>,
);

impl<'a> LockedVma<'a> {
    /// A mapping that an operation was handed.
    ///
    /// # Safety
    ///
    /// The mapping is valid, and locked for `'a`.
    pub(in crate::os_interface) unsafe fn new(vma: *mut bindings::vm_area_struct) -> Self {
        // INVARIANT: The mapping is locked for `'a`.
        // SAFETY: A valid mapping's address is not null.
        Self(unsafe { NonNull::new_unchecked(vma) }, PhantomData)
    }

    /// The mapping, valid as long as `self`.
    pub(in crate::os_interface) fn as_ptr(self) -> *mut bindings::vm_area_struct {
        self.0.as_ptr()
    }

    /// Its present state.
    pub(in crate::os_interface) fn seen(self) -> extra::cgpu_vma {
        let mut seen = MaybeUninit::uninit();
        // SAFETY: By the type's invariant the mapping is valid; a place for what is written.
        unsafe { extra::cgpu_shim_vma(self.as_ptr(), seen.as_mut_ptr()) };
        // SAFETY: All of it was written.
        unsafe { seen.assume_init() }
    }

    /// Its first address.
    pub(in crate::os_interface) fn start(self) -> usize {
        self.seen().start
    }

    /// The address behind its last one.
    pub(in crate::os_interface) fn end(self) -> usize {
        self.seen().end
    }

    /// Its length in bytes.
    pub(in crate::os_interface) fn length(self) -> usize {
        let seen = self.seen();
        seen.end.saturating_sub(seen.start)
    }

    /// Whether each access reaches the device by itself and in order, as those to registers must.
    pub(in crate::os_interface) fn is_uncached(self) -> bool {
        // SAFETY: By the type's invariant the mapping is valid.
        unsafe { extra::cgpu_shim_is_uncached(self.as_ptr()) }
    }

    /// Calls `each` for the entries of the addresses from `start` to `end`, until it breaks. Does
    /// not sleep. Where there is no page table there is no entry.
    pub(in crate::os_interface) fn each_entry<F>(self, start: usize, end: usize, each: F)
    where
        F: FnMut(PageEntry<'_>) -> ControlFlow<()>,
    {
        struct VmaWalk<'a, F> {
            vma: LockedVma<'a>,
            each: F,
        }
        unsafe extern "C" fn step<F: FnMut(PageEntry<'_>) -> ControlFlow<()>>(
            entry: *mut bindings::pte_t,
            address: c_ulong,
            walk: *mut c_void,
        ) -> c_int {
            // SAFETY: `each_entry` passes a walk of this type, which nobody else uses meanwhile.
            let walk = unsafe { &mut *walk.cast::<VmaWalk<'_, F>>() };
            // INVARIANT: `cgpu_shim_each_entry` has locked the table of this entry.
            let entry = PageEntry {
                vma: walk.vma,
                address,
                entry,
            };
            c_int::from((walk.each)(entry).is_break())
        }
        let end = end.min(self.end());
        let mut walk = VmaWalk { vma: self, each };
        // SAFETY: The range lies in the mapping, whose lock is held by the type's invariant; `step`
        // takes the walk for what it is, and nobody keeps it.
        unsafe {
            extra::cgpu_shim_each_entry(
                self.seen().memory,
                start,
                end,
                Some(step::<F>),
                (&raw mut walk).cast(),
            )
        };
    }

    /// Gives the access that the mapping's flags name to the entries of the addresses from `start`
    /// to `end`, whole pages of it, that refer to frames and have none. Does not sleep.
    pub(in crate::os_interface) fn give_access(self, start: usize, end: usize) {
        // SAFETY: By the type's invariant the mapping is valid and locked.
        unsafe { extra::cgpu_shim_give_access(self.as_ptr(), start, end) };
    }

    /// Takes out the pages of a mapping of page frames.
    pub(in crate::os_interface) fn zap_frames(self) {
        let (vma, start, length) = (self.as_ptr(), self.start(), self.length());
        // SAFETY: The whole mapping, which is valid and locked by the type's invariant.
        unsafe { extra::cgpu_shim_zap_frames(vma, start, length) };
    }

    /// Entries that are made from now on give nobody access.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the mapping's protection until it is restored.
    pub(in crate::os_interface) unsafe fn take_access(self, holds: Holds) {
        let of_device = holds == Holds::Device;
        // SAFETY: The mapping is valid, and its protection is ours by this function's contract.
        unsafe { extra::cgpu_shim_take_access(self.as_ptr(), of_device) };
    }

    /// Entries that are made from now on give the access that the mapping's flags name.
    ///
    /// # Safety
    ///
    /// As for [`Self::take_access`].
    pub(in crate::os_interface) unsafe fn restore_access(self) {
        // SAFETY: The mapping is valid, and its protection is ours by this function's contract.
        unsafe { extra::cgpu_shim_restore_protection(self.as_ptr()) };
    }
}

/// A copy of a mapping that the kernel has just made.
///
/// # Invariants
///
/// The address spaces of the copy and of its original are locked for writing for as long as this
/// exists.
#[derive(Clone, Copy)]
pub(in crate::os_interface) struct CopiedVma<'a>(LockedVma<'a>);

impl<'a> Deref for CopiedVma<'a> {
    type Target = LockedVma<'a>;

    fn deref(&self) -> &LockedVma<'a> {
        &self.0
    }
}

impl CopiedVma<'_> {
    /// The mapping that an `open` operation was handed.
    ///
    /// # Safety
    ///
    /// The operation is running, and the mapping is its argument.
    pub(in crate::os_interface) unsafe fn new(vma: *mut bindings::vm_area_struct) -> Self {
        // INVARIANT: The kernel calls the operation with these locks held.
        // SAFETY: The mapping is valid during the operation, as this function's contract says.
        Self(unsafe { LockedVma::new(vma) })
    }

    /// Whether it is one for a child of fork. Otherwise it is in the same memory as its original,
    /// which goes if it was moved.
    pub(in crate::os_interface) fn is_for_child(self) -> bool {
        // SAFETY: Looks at the current task.
        self.seen().memory != unsafe { extra::cgpu_shim_memory() }
    }

    /// Leaves a child without its pages, gives it other operations, and lets no further child have
    /// a copy of this mapping or its original.
    ///
    /// # Safety
    ///
    /// It is a mapping of page frames for a child. The operations are valid as long as its file is
    /// open, and are for such a mapping.
    pub(in crate::os_interface) unsafe fn spoil(
        self,
        operations: *const bindings::vm_operations_struct,
    ) {
        // SAFETY: By the type's invariant both mappings may be changed. The mapping is one of page
        // frames, and the operations are for such a one and live as long as its file.
        unsafe {
            extra::cgpu_shim_spoil_copy(self.as_ptr());
            extra::cgpu_shim_set_operations(self.as_ptr(), operations);
        }
    }
}

/// A handler of faults.
pub(in crate::os_interface) type FaultHandler =
    unsafe extern "C" fn(*mut bindings::vm_fault) -> bindings::vm_fault_t;

/// A page fault that is being served.
///
/// # Invariants
///
/// The fault is valid and its mapping locked for `'a`.
#[derive(Clone, Copy)]
pub(in crate::os_interface) struct PageFault<'a>(
    NonNull<bindings::vm_fault>,
    PhantomData<&'a bindings::vm_fault>,
);

impl<'a> PageFault<'a> {
    /// The fault that a handler was handed. `None`: it cannot be served. Some kernels since 6.7 let
    /// userfaultfd write marks into the page tables of any mapping, and a page can go where there
    /// is none only. Such a fault would be served for ever.
    ///
    /// # Safety
    ///
    /// The handler runs for `'a`, and `vmf` is its argument.
    pub(in crate::os_interface) unsafe fn new(vmf: *mut bindings::vm_fault) -> Option<Self> {
        // SAFETY: The kernel calls a handler with a valid fault, whose mapping it has locked.
        if unsafe { extra::cgpu_shim_is_marked(vmf) } {
            return None;
        }
        // INVARIANT: The handler runs for `'a`, so the fault is valid, and the kernel keeps the
        // mapping locked.
        NonNull::new(vmf).map(|fault| Self(fault, PhantomData))
    }

    /// The fault, valid as long as `self`.
    pub(in crate::os_interface) fn as_ptr(self) -> *mut bindings::vm_fault {
        self.0.as_ptr()
    }

    /// Its facts, which do not change.
    pub(in crate::os_interface) fn seen(self) -> extra::cgpu_fault {
        let mut seen = MaybeUninit::uninit();
        // SAFETY: By the type's invariant the fault is valid; a place for what is written.
        unsafe { extra::cgpu_shim_fault(self.as_ptr(), seen.as_mut_ptr()) };
        // SAFETY: All of it was written.
        unsafe { seen.assume_init() }
    }

    /// Whether it has this flag.
    pub(in crate::os_interface) fn has(self, flag: c_uint) -> bool {
        self.seen().flags & flag != 0
    }

    /// The mapping that it is in.
    pub(in crate::os_interface) fn vma(self) -> LockedVma<'a> {
        // SAFETY: By the type's invariant the mapping is locked for as long.
        unsafe { LockedVma::new(self.seen().vma) }
    }

    /// Whether the entry of its address refers to something by now.
    pub(in crate::os_interface) fn is_served(self) -> bool {
        let page = self.seen().address & kernel::page::PAGE_MASK;
        let end = page.saturating_add(kernel::page::PAGE_SIZE);
        let mut is_there = false;
        self.vma().each_entry(page, end, |entry| {
            is_there = entry.frame().is_some();
            ControlFlow::Break(())
        });
        is_there
    }

    /// The mapping's file; open as long as the fault is served.
    pub(in crate::os_interface) fn file(self) -> *mut bindings::file {
        self.vma().seen().file
    }

    /// Has the driver serve it, by its own operations. `VM_FAULT_SIGBUS`: they have no handler.
    ///
    /// # Safety
    ///
    /// The operations are those that the driver gave this mapping.
    pub(in crate::os_interface) unsafe fn serve(
        self,
        by: *const bindings::vm_operations_struct,
    ) -> bindings::vm_fault_t {
        // SAFETY: The fault is valid by the type's invariant, and the driver gave its mapping `by`.
        unsafe { extra::cgpu_shim_driver_fault(by, self.as_ptr()) }
    }

    /// Gives up the lock under which it is served. Its handler returns `VM_FAULT_RETRY` then, and
    /// the kernel does the fault anew.
    ///
    /// # Safety
    ///
    /// The fault may be done anew (`FAULT_FLAG_ALLOW_RETRY`), and neither it nor its mapping is
    /// used any more.
    pub(in crate::os_interface) unsafe fn release_lock(self) {
        // SAFETY: The lock is held by the type's invariant, and may be given up by the contract.
        unsafe { extra::cgpu_shim_release_fault_lock(self.as_ptr()) };
    }
}

/// An entry of a page table that is locked as long as this exists.
///
/// # Invariants
///
/// `entry` is that of `address` in `vma`, and its table is locked.
pub(in crate::os_interface) struct PageEntry<'a> {
    vma: LockedVma<'a>,
    address: c_ulong,
    entry: *mut bindings::pte_t,
}

impl PageEntry<'_> {
    /// The frame that it refers to; `None` if it is empty.
    pub(in crate::os_interface) fn frame(&self) -> Option<Frame> {
        let mut frame = 0;
        // SAFETY: By the type's invariant the entry is valid and locked.
        let present = unsafe { extra::cgpu_shim_pte_frame(self.entry, &raw mut frame) };
        // CAST: `c_ulong` is 64 bits wide.
        present.then(|| Frame::new(frame as u64))
    }

    /// The page that it refers to, with a reference that the caller puts back. `None` if it is
    /// empty, or refers to what is no host memory.
    pub(in crate::os_interface) fn get_page(&self) -> Option<NonNull<bindings::page>> {
        // CAST: `c_ulong` is 64 bits wide.
        let frame = self.frame()?.number() as c_ulong;
        // SAFETY: A page that a mapping refers to stays while the entry is locked.
        NonNull::new(unsafe { extra::cgpu_shim_get_frame(frame) })
    }

    /// Has it refer to another frame, with the access that the mapping's flags name. It refers to
    /// one already, to which nobody has access, or to this one.
    pub(in crate::os_interface) fn set_frame(&self, frame: Frame) {
        // CAST: `c_ulong` is 64 bits wide.
        let frame = frame.number() as c_ulong;
        let vma = self.vma.as_ptr();
        // SAFETY: By the type's invariant the entry is valid and locked, and of this mapping.
        unsafe { extra::cgpu_shim_set_frame(vma, self.address, self.entry, frame) };
    }
}

/// A mapping that the current task is making: the program cannot use it yet.
///
/// # Invariants
///
/// `mmap_lock` is held for writing for as long as this exists, so the mapping's fields and pages
/// may be changed.
#[derive(Clone, Copy)]
pub(in crate::os_interface) struct NewVma<'a>(LockedVma<'a>);

impl<'a> Deref for NewVma<'a> {
    type Target = LockedVma<'a>;

    fn deref(&self) -> &LockedVma<'a> {
        &self.0
    }
}

impl NewVma<'_> {
    /// The mapping that an `mmap` or `mapped` operation was handed.
    ///
    /// # Safety
    ///
    /// The operation is running, and the mapping is its argument.
    pub(in crate::os_interface) unsafe fn new(vma: *mut bindings::vm_area_struct) -> Self {
        // INVARIANT: The kernel calls both operations with the lock held for writing.
        // SAFETY: The mapping is valid during the operation, as this function's contract says.
        Self(unsafe { LockedVma::new(vma) })
    }

    /// Its operations, null if it has none.
    pub(in crate::os_interface) fn operations(self) -> *const bindings::vm_operations_struct {
        self.seen().operations
    }

    /// Gives it operations.
    ///
    /// # Safety
    ///
    /// They are valid as long as the mapping's file is open, and are for such a mapping.
    pub(in crate::os_interface) unsafe fn set_operations(
        self,
        operations: *const bindings::vm_operations_struct,
    ) {
        // SAFETY: By the type's invariant the field may be changed. The operations are for such a
        // mapping, and live as long as its file.
        unsafe { extra::cgpu_shim_set_operations(self.as_ptr(), operations) };
    }

    /// Ends the note of the frames that the driver has put in. Otherwise the kernel asks the
    /// entries for it when they are taken out.
    pub(in crate::os_interface) fn end_tracking(self) {
        // SAFETY: By the type's invariant the mapping is valid and its entries may be changed.
        unsafe { extra::cgpu_shim_end_tracking(self.as_ptr()) };
    }

    /// Puts `page` in the place of what is in a mapping of one page of host memory, for reading.
    /// What made the mapping has nothing to do with it any more.
    pub(in crate::os_interface) fn show(self, page: &Page) -> Result {
        let vma = self.as_ptr();
        if self.length() != kernel::page::PAGE_SIZE {
            return Err(EINVAL);
        }
        // SAFETY: By the type's invariant all of the mapping may be changed, which takes a
        // reference of the page.
        to_result(unsafe { extra::cgpu_shim_show_page(vma, page.as_ptr()) })
    }
}
