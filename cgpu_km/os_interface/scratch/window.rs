// SPDX-License-Identifier: GPL-2.0
//! The sealed mapping of a [`Pool`]: how it is made, and what the kernel calls for it.

use super::{layout::POOL_BYTES, pool::Pool, slot::ScratchSlot, table};
use crate::os_interface::base::extra;
use core::ptr::{null_mut, without_provenance_mut};
use kernel::{
    bindings,
    error::from_err_ptr,
    mm::{virt::VmaRef, MmWithUser},
    page::{Page, PAGE_SIZE},
    prelude::*,
    sync::{
        atomic::{Relaxed, Release},
        Arc,
    },
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

/// Runs `f` with the mapping of `pool` in `mm`, if it is there, at `base`. The mapping's own lock
/// is held meanwhile, or `mmap_lock` for reading.
pub(super) fn with<R>(
    pool: &Pool,
    mm: &MmWithUser,
    base: usize,
    f: impl FnOnce(&VmaRef) -> R,
) -> Option<R> {
    let ours = |vma: &&VmaRef| {
        // SAFETY: The lock keeps the mapping.
        let operations = unsafe { (*vma.as_ptr()).vm_ops };
        // SAFETY: The lock keeps the mapping.
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
    get_unmapped_area: Some(extra::cgpu_shim_aligned_area),
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
    // SAFETY: The mapping is new and locked for writing.
    unsafe { (*vma).vm_private_data = pool };
    // SAFETY: The mapping is new and locked for writing.
    unsafe { (*vma).vm_ops = &raw const VM_OPERATIONS.0 };
    0
}

unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
    // SAFETY: The last reference of the file is gone; `make` gave it one of the pool.
    let pool = unsafe { (*file).private_data };
    // SAFETY: It came from `into_raw`, and is taken back once.
    drop(unsafe { Arc::from_raw(pool.cast::<Pool>().cast_const()) });
    0
}

/// The pool of a mapping.
///
/// # Safety
///
/// `vma` has our operations and is valid for `'a`.
unsafe fn pool_of<'a>(vma: *mut bindings::vm_area_struct) -> &'a Pool {
    // SAFETY: The mapping is valid, as this function's contract says.
    let pool = unsafe { (*vma).vm_private_data };
    // SAFETY: `mmap` put the pool there, of which the mapping's file holds a reference.
    unsafe { &*pool.cast_const().cast() }
}

unsafe extern "C" fn close(vma: *mut bindings::vm_area_struct) {
    // SAFETY: Called through our operations.
    let pool = unsafe { pool_of(vma) };
    pool.base.store(0, Release);
    table::remove(pool);
}

unsafe extern "C" fn may_split(_vma: *mut bindings::vm_area_struct, _addr: c_ulong) -> c_int {
    EINVAL.to_errno()
}

/// The slot that this fault is in and the page there, if the current task may touch it now.
///
/// # Safety
///
/// `vmf` is that of a fault in a mapping with our operations.
unsafe fn faulted<'a>(vmf: *mut bindings::vm_fault) -> Option<(&'a ScratchSlot, usize)> {
    // SAFETY: The fault is being served, as this function's contract says.
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

/// The page table that has the entry of a fault, locked as long as this exists.
///
/// # Invariants
///
/// `entry` is that of the fault's address, number `number` of the table.
struct FaultTable<'a> {
    vmf: &'a bindings::vm_fault,
    entry: *mut bindings::pte_t,
    number: usize,
    lock: *mut bindings::spinlock_t,
}

impl<'a> FaultTable<'a> {
    /// `None`: there is no table yet.
    ///
    /// # Safety
    ///
    /// `vmf` is that of a fault that is being served.
    unsafe fn lock(vmf: &'a bindings::vm_fault) -> Option<Self> {
        let mut lock = null_mut();
        let fault = (&raw const *vmf).cast_mut();
        // SAFETY: The fault is being served, and nothing of it is changed.
        let entry = unsafe { extra::cgpu_shim_lock_entry(fault, &raw mut lock) };
        let page = vmf.__bindgen_anon_1.address / PAGE_SIZE;
        // INVARIANT: A table has an entry for each of so many pages, and begins with a multiple of
        // their number.
        (!entry.is_null()).then(|| Self {
            vmf,
            entry,
            number: page % ENTRIES,
            lock,
        })
    }

    /// The entry and the address of page `page` of a slot of which the fault's is page `index`;
    /// `None` where that is in another table.
    fn entry(&self, index: usize, page: usize) -> Option<(*mut bindings::pte_t, c_ulong)> {
        let number = (self.number + page).checked_sub(index)?;
        if number >= ENTRIES {
            return None;
        }
        let first = self.entry.wrapping_sub(self.number);
        // CAST: Within a slot, and usize is 64 bits wide.
        let distance = (page.wrapping_sub(index)).wrapping_mul(PAGE_SIZE) as c_ulong;
        let address = self.vmf.__bindgen_anon_1.address.wrapping_add(distance);
        Some((first.wrapping_add(number), address))
    }
}

impl Drop for FaultTable<'_> {
    fn drop(&mut self) {
        // SAFETY: `lock` took it.
        unsafe { extra::cgpu_shim_unlock_entry(self.lock) };
    }
}

/// Entries of a page table.
const ENTRIES: usize = PAGE_SIZE / size_of::<bindings::pte_t>();

/// Lets all pages be read that the slot's call has, and those of later calls that a read is to
/// bring along. (Each by a fault of its own would cost more, and so would vmf_insert_pfn(), which
/// looks up for each how its memory is to be cached: ours is memory like any other.) Gives `false`
/// where there is no page table yet.
///
/// # Safety
///
/// `vmf` is that of a fault that is being served, at page `index` of the slot.
unsafe fn show(vmf: &bindings::vm_fault, slot: &ScratchSlot, index: usize) -> bool {
    // SAFETY: The fault is being served, as this function's contract says.
    let Some(table) = (unsafe { FaultTable::lock(vmf) }) else {
        return false;
    };
    // SAFETY: A fault's mapping is valid while it is served.
    let mm = unsafe { (*vmf.__bindgen_anon_1.vma).vm_mm };
    let protection = protection(bindings::VM_READ);
    let mut wanted = slot.readable();
    slot.maps(wanted);
    while wanted != 0 {
        // CAST: below 64.
        let number = wanted.trailing_zeros() as usize;
        wanted &= wanted - 1;
        let entry = table.entry(index, number);
        if let (Some((entry, address)), Some(page)) = (entry, slot.present(number)) {
            let page = page.as_ptr();
            // SAFETY: The entry is one of the locked table, for an address in the mapping; the page
            // lives as long as the mapping's file.
            unsafe { extra::cgpu_shim_set_page(mm, address, entry, page, protection) };
        }
    }
    true
}

/// That of a page which can be so accessed.
fn protection(access: bindings::vm_flags_t) -> bindings::pgprot_t {
    // SAFETY: There is no precondition.
    unsafe { bindings::vm_get_page_prot(access | bindings::VM_SHARED) }
}

unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: Called through our operations.
    let Some((slot, index)) = (unsafe { faulted(vmf) }) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    // SAFETY: The fault is being served.
    let vmf = unsafe { &*vmf };
    let writes = vmf.flags & bindings::fault_flag_FAULT_FLAG_WRITE != 0;
    // SAFETY: The fault is being served, at this page of the slot.
    if !writes && unsafe { show(vmf, slot, index) } {
        return bindings::vm_fault_reason_VM_FAULT_NOPAGE;
    }
    let Ok(page) = slot.page(index) else {
        return bindings::vm_fault_reason_VM_FAULT_OOM;
    };
    slot.maps(1 << index);
    // Read-only until the owner writes: any other task's write finds no way in, then.
    let access = if writes {
        bindings::VM_READ | bindings::VM_WRITE
    } else {
        bindings::VM_READ
    };
    let (vma, address) = (vmf.__bindgen_anon_1.vma, vmf.__bindgen_anon_1.address);
    // SAFETY: The mapping is one of page frames and is locked by the fault; the page lives as long
    // as the mapping's file.
    unsafe { bindings::vmf_insert_pfn_prot(vma, address, frame(page), protection(access)) }
}

unsafe extern "C" fn pfn_mkwrite(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: Called through our operations.
    let Some((slot, index)) = (unsafe { faulted(vmf) }) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    // SAFETY: The fault is being served.
    let Some(table) = (unsafe { FaultTable::lock(&*vmf) }) else {
        // The table has gone, and the page with it: the driver's next try faults anew.
        return bindings::vm_fault_reason_VM_FAULT_NOPAGE;
    };
    for page in slot.written_with(index) {
        if let Some((entry, _)) = table.entry(index, page) {
            // SAFETY: The entry is one of the locked table.
            unsafe { extra::cgpu_shim_make_writable(entry) };
        }
    }
    // What the kernel would do for the one page is done.
    bindings::vm_fault_reason_VM_FAULT_NOPAGE
}
