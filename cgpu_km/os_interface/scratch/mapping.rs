// SPDX-License-Identifier: GPL-2.0
//! The sealed mapping of a [`Pool`]: how it is made, and what the kernel calls for it.

use super::{
    pool::{Pool, Slot},
    POOL_BYTES,
};
use crate::os_interface::extra;
use core::ptr::{null_mut, without_provenance_mut};
use kernel::{
    bindings,
    error::from_err_ptr,
    mm::{virt::VmaRef, MmWithUser},
    page::{Page, PAGE_SIZE},
    prelude::*,
    sync::{atomic::Relaxed, Arc},
};

/// Maps `pool` into the current task's address space, and gives the address.
pub(super) fn make(pool: &Arc<Pool>) -> Result<usize> {
    let private = Arc::into_raw(pool.clone()).cast_mut();
    // CAST: O_RDWR is 2.
    let flags = bindings::O_RDWR as c_int;
    // SAFETY: A static name and static operations, which take `private` for what it is.
    let file = from_err_ptr(unsafe {
        extra::anon_inode_getfile(
            c"[cgpu-scratch]".as_char_ptr(),
            &raw const FILE_OPERATIONS.0,
            private.cast(),
            flags,
        )
    })
    .inspect_err(|_| {
        // SAFETY: No file took the reference.
        drop(unsafe { Arc::from_raw(private.cast_const()) })
    })?;
    // CAST: small bit masks.
    let protection = (extra::PROT_READ | extra::PROT_WRITE) as c_ulong;
    let shared = extra::MAP_SHARED as c_ulong;
    // SAFETY: `file` is open; we are in an ioctl of a task with an address space, and hold none
    // of its locks.
    let base = unsafe { bindings::vm_mmap(file, 0, POOL_BYTES, protection, shared, 0) };
    // SAFETY: The reference is ours; the mapping, if there is one, has its own. With the last
    // one goes the reference of the pool.
    unsafe { bindings::fput(file) };
    // An address, or an errno in the way of an error pointer.
    let base = from_err_ptr(without_provenance_mut::<c_void>(base))?;
    Ok(base.addr())
}

/// Runs `f` with the mapping of `pool` in `mm`, if it is there, at `base`. The mapping's own lock is
/// held meanwhile, or `mmap_lock` for reading.
pub(super) fn with<R>(
    pool: &Pool,
    mm: &MmWithUser,
    base: usize,
    f: impl FnOnce(&VmaRef) -> R,
) -> Option<R> {
    let ours = |vma: &&VmaRef| {
        // SAFETY: The lock keeps the mapping.
        let operations = unsafe { (*vma.as_ptr()).vm_ops };
        // SAFETY: As above.
        let private = unsafe { (*vma.as_ptr()).vm_private_data };
        core::ptr::eq(operations, &raw const VM_OPERATIONS.0)
            && core::ptr::eq(private.cast_const().cast(), pool)
    };
    if let Some(guard) = mm.lock_vma_under_rcu(base) {
        return Some(&*guard).filter(ours).map(f);
    }
    let guard = mm.mmap_read_lock();
    guard.vma_lookup(base).filter(ours).map(f)
}

/// `struct file_operations` in a static.
struct FileOperations(bindings::file_operations);
// SAFETY: Never written.
unsafe impl Sync for FileOperations {}

/// `struct vm_operations_struct` in a static.
struct VmOperations(bindings::vm_operations_struct);
// SAFETY: Never written.
unsafe impl Sync for VmOperations {}

static FILE_OPERATIONS: FileOperations = FileOperations(bindings::file_operations {
    owner: crate::THIS_MODULE.as_ptr(),
    mmap: Some(mmap),
    release: Some(release),
    ..pin_init::zeroed()
});

static VM_OPERATIONS: VmOperations = VmOperations(bindings::vm_operations_struct {
    close: Some(close),
    may_split: Some(may_split),
    fault: Some(fault),
    pfn_mkwrite: Some(pfn_mkwrite),
    ..pin_init::zeroed()
});

unsafe extern "C" fn mmap(file: *mut bindings::file, vma: *mut bindings::vm_area_struct) -> c_int {
    // SAFETY: The file is open, and `make` gave it the pool.
    let pool = unsafe { (*file).private_data };
    // SAFETY: The mapping is being made by this task, under `mmap_lock`.
    let range = unsafe { (*vma).__bindgen_anon_1.__bindgen_anon_1 };
    // Only `make` maps this file, which nobody has a descriptor of; once, and in full.
    // SAFETY: The file holds a reference of the pool.
    let unmapped = unsafe { (*pool.cast::<Pool>()).base.load(Relaxed) } == 0;
    if !unmapped || range.vm_end - range.vm_start != POOL_BYTES {
        return EPERM.to_errno();
    }
    // SAFETY: A constant of the shim.
    let flags = unsafe { extra::cgpu_shim_scratch_vm_flags };
    // SAFETY: The mapping is new and locked for writing.
    unsafe { extra::cgpu_shim_vm_flags_set(vma, flags) };
    // SAFETY: As above.
    unsafe { (*vma).vm_private_data = pool };
    // SAFETY: As above.
    unsafe { (*vma).vm_ops = &raw const VM_OPERATIONS.0 };
    0
}

unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    // SAFETY: The last reference of the file is gone; `make` gave it one of the pool.
    let pool = unsafe { (*file).private_data };
    // SAFETY: As above.
    drop(unsafe { Arc::from_raw(pool.cast::<Pool>().cast_const()) });
    0
}

/// The pool of a mapping.
///
/// # Safety
///
/// `vma` has our operations and is valid for `'a`.
unsafe fn pool_of<'a>(vma: *mut bindings::vm_area_struct) -> &'a Pool {
    // SAFETY: The caller promises that the mapping is valid.
    let pool = unsafe { (*vma).vm_private_data };
    // SAFETY: `mmap` put the pool there, of which the mapping's file holds a reference.
    unsafe { &*pool.cast_const().cast() }
}

unsafe extern "C" fn close(vma: *mut bindings::vm_area_struct) {
    // SAFETY: Called through our operations.
    unsafe { pool_of(vma) }.close();
}

unsafe extern "C" fn may_split(_vma: *mut bindings::vm_area_struct, _addr: c_ulong) -> c_int {
    EINVAL.to_errno()
}

/// The slot that this fault is in and the page there, if the current task may touch it now.
///
/// # Safety
///
/// `vmf` is that of a fault in a mapping with our operations.
unsafe fn faulted<'a>(vmf: *mut bindings::vm_fault) -> Option<(&'a Slot, usize)> {
    // SAFETY: The caller promises that the fault is being served.
    let vmf = unsafe { &*vmf };
    if vmf.flags & bindings::fault_flag_FAULT_FLAG_USER != 0 {
        return None;
    }
    // SAFETY: A fault's mapping is valid while it is served.
    let pool = unsafe { pool_of(vmf.__bindgen_anon_1.vma) };
    pool.admits(vmf.__bindgen_anon_1.pgoff)
}

/// The frame of a page.
fn frame(page: &Page) -> c_ulong {
    // SAFETY: The page is allocated.
    unsafe { extra::cgpu_shim_page_to_pfn(page.as_ptr()) }
}

/// Pages of a slot that are to be put into page tables, read-only.
struct Frames<'a> {
    mm: *mut bindings::mm_struct,
    protection: bindings::pgprot_t,
    /// Where page 0 of the slot is.
    start: c_ulong,
    slot: &'a Slot,
    /// A bit for each of them.
    wanted: u64,
}

impl Frames<'_> {
    /// Puts them in place. (vmf_insert_pfn() would look up for each how its memory is to be cached: ours is memory
    /// like any other.)
    ///
    /// # Safety
    ///
    /// `mm` is the address space of a fault that is being served, in a mapping of page frames that spans the
    /// slot; the pages live as long as its file.
    unsafe fn insert(&mut self) -> bindings::vm_fault_t {
        unsafe extern "C" fn each(
            entry: *mut bindings::pte_t,
            address: c_ulong,
            frames: *mut c_void,
        ) -> c_int {
            // SAFETY: Below, `insert` passes itself, which nobody changes meanwhile.
            let frames = unsafe { &*frames.cast_const().cast::<Frames<'_>>() };
            let number = address.wrapping_sub(frames.start) / PAGE_SIZE;
            // CAST: below 64.
            if frames.wanted.checked_shr(number as u32).unwrap_or(0) & 1 == 0 {
                return 0;
            }
            if let Some(page) = frames.slot.present(number) {
                let (mm, frame, protection) = (frames.mm, frame(page), frames.protection);
                // SAFETY: `apply_to_page_range` calls this with an entry that it has locked.
                unsafe { extra::cgpu_shim_set_frame(mm, address, entry, frame, protection) };
            }
            0
        }
        // CAST: at most 64.
        let first = self.wanted.trailing_zeros() as usize;
        let end = (u64::BITS - self.wanted.leading_zeros()) as usize;
        self.slot.reached(end.saturating_sub(1));
        // CAST: Within a slot, and usize is 64 bits wide.
        let from = self.start.wrapping_add((first * PAGE_SIZE) as c_ulong);
        let length = (end.saturating_sub(first) * PAGE_SIZE) as c_ulong;
        let (mm, data) = (self.mm, (&raw mut *self).cast());
        // SAFETY: The caller promises that the mapping spans the slot, and that its fault locks it.
        let done = unsafe { bindings::apply_to_page_range(mm, from, length, Some(each), data) };
        match done {
            0 => bindings::vm_fault_reason_VM_FAULT_NOPAGE,
            _ => bindings::vm_fault_reason_VM_FAULT_OOM,
        }
    }
}

unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: Called through our operations.
    let Some((slot, index)) = (unsafe { faulted(vmf) }) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    // SAFETY: The fault is being served.
    let vmf = unsafe { &*vmf };
    let (vma, address) = (vmf.__bindgen_anon_1.vma, vmf.__bindgen_anon_1.address);
    // SAFETY: There is no precondition.
    let protection = |access| unsafe { bindings::vm_get_page_prot(access) };
    if vmf.flags & bindings::fault_flag_FAULT_FLAG_WRITE != 0 {
        let Ok(page) = slot.page(index) else {
            return bindings::vm_fault_reason_VM_FAULT_OOM;
        };
        slot.reached(index);
        let access = bindings::VM_READ | bindings::VM_WRITE | bindings::VM_SHARED;
        // SAFETY: The mapping is one of page frames and is locked by the fault; the page lives as long as the
        // mapping's file.
        return unsafe {
            bindings::vmf_insert_pfn_prot(vma, address, frame(page), protection(access))
        };
    }
    // Read-only until the owner writes: any other task's write finds no way in, then. All at once: a fault for
    // each page would cost more.
    let mut frames = Frames {
        // SAFETY: A fault's mapping is valid while it is served.
        mm: unsafe { (*vma).vm_mm },
        protection: protection(bindings::VM_READ | bindings::VM_SHARED),
        // CAST: usize is 64 bits wide.
        start: address.wrapping_sub((index * PAGE_SIZE) as c_ulong),
        slot,
        // The page of the fault is one of the call's, and so there.
        wanted: slot.readable(),
    };
    // SAFETY: The fault is being served, in a mapping of page frames that spans all slots; pages live as long as
    // its file.
    unsafe { frames.insert() }
}

unsafe extern "C" fn pfn_mkwrite(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    unsafe extern "C" fn each(entry: *mut bindings::pte_t, _: c_ulong, _: *mut c_void) -> c_int {
        // SAFETY: `apply_to_page_range` calls this with an entry that it has locked.
        unsafe { extra::cgpu_shim_make_writable(entry) };
        0
    }
    // SAFETY: Called through our operations.
    let Some((slot, index)) = (unsafe { faulted(vmf) }) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    // The driver has copied the whole of its argument before it writes any of it back
    // (`__UVM_ROUTE_CMD_ALLOC()`, uvm_api.h), so that one fault can do for all of its pages.
    if let Some(pages) = slot.long_argument(index) {
        // SAFETY: The fault is being served.
        let vmf = unsafe { &*vmf };
        let (vma, address) = (vmf.__bindgen_anon_1.vma, vmf.__bindgen_anon_1.address);
        // SAFETY: A fault's mapping is valid while it is served.
        let mm = unsafe { (*vma).vm_mm };
        // CAST: Within a slot, and usize is 64 bits wide.
        let before = ((index - pages.start) * PAGE_SIZE) as c_ulong;
        let length = (pages.len() * PAGE_SIZE) as c_ulong;
        let first = address.wrapping_sub(before);
        // SAFETY: The mapping spans the slot, and the fault locks it.
        unsafe { bindings::apply_to_page_range(mm, first, length, Some(each), null_mut()) };
    }
    0
}
