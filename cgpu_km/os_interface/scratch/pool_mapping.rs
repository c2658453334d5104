// SPDX-License-Identifier: GPL-2.0
//! The sealed mapping of a [`Pool`]: how it is made, and what the kernel calls for it.

use super::{
    layout::POOL_BYTES,
    pool::Pool,
    slot::ScratchSlot,
    table, //
};
use crate::os_interface::base::{
    extra,
    vma::{
        LockedVma,
        PageFault, //
    }, //
};
use core::ptr::{
    null_mut,
    without_provenance_mut, //
};
use kernel::{
    bindings,
    error::from_err_ptr,
    mm::MmWithUser,
    page::{
        Page,
        PAGE_SIZE, //
    },
    prelude::*,
    sync::{
        atomic::{
            Relaxed,
            Release, //
        },
        Arc, //
    }, //
};

/// Maps `pool` into the current task's address space, and gives the address.
pub(super) fn make(pool: &Arc<Pool>) -> Result<usize> {
    let private = Arc::into_raw(pool.clone()).cast_mut();
    // SAFETY: `private` is a reference of a `Pool`, for which the file's operations take it.
    let file = from_err_ptr(unsafe { extra::cgpu_shim_scratch_file(private.cast()) }).inspect_err(
        |_| {
            // SAFETY: No file took the reference.
            drop(unsafe { Arc::from_raw(private.cast_const()) })
        },
    )?;
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
    f: impl FnOnce(LockedVma<'_>) -> R,
) -> Option<R> {
    let pool = (&raw const *pool).cast_mut().cast();
    let mut whole = false;
    // SAFETY: The address space is in use as long as `mm`; the lock is given back below.
    let vma = unsafe { extra::cgpu_shim_lock_scratch(mm.as_raw(), base, pool, &raw mut whole) };
    if vma.is_null() {
        return None;
    }
    // SAFETY: The mapping was locked, and is until the end of this function.
    let result = f(unsafe { LockedVma::new(vma) });
    // SAFETY: `cgpu_shim_lock_scratch()` locked it, and nobody uses it any more.
    unsafe { extra::cgpu_shim_unlock_scratch(mm.as_raw(), vma, whole) };
    Some(result)
}

/// Whether a mapping of so many bytes may be made of the file of `pool`.
///
/// # Safety
///
/// The file is open, and [`make`] gave it the pool.
#[no_mangle]
unsafe extern "C" fn cgpu_scratch_may_map(pool: *const c_void, length: usize) -> bool {
    // Only `make` maps this file, which nobody has a descriptor of; once, and in full.
    // SAFETY: The file holds a reference of the pool.
    let unmapped = unsafe { (*pool.cast::<Pool>()).base.load(Relaxed) } == 0;
    unmapped && length == POOL_BYTES
}

/// The file of a pool is closed.
///
/// # Safety
///
/// The last reference of the file is gone, and [`make`] gave it the pool.
#[no_mangle]
unsafe extern "C" fn cgpu_scratch_release(pool: *const c_void) {
    // SAFETY: It came from `into_raw`, and is taken back once.
    drop(unsafe { Arc::from_raw(pool.cast::<Pool>()) });
}

/// The mapping of a pool is closed.
///
/// # Safety
///
/// `pool` is that of a file that is open.
#[no_mangle]
unsafe extern "C" fn cgpu_scratch_close(pool: *const c_void) {
    // SAFETY: The file holds a reference of the pool.
    let pool = unsafe { &*pool.cast::<Pool>() };
    pool.base.store(0, Release);
    table::remove(pool);
}

/// A fault that is being served in a mapping of a pool, at a page that the current task may touch
/// now.
///
/// # Invariants
///
/// `fault` is what is to be known of `served`, which is being served at page `index` of `slot`.
struct ScratchFault<'a> {
    served: PageFault<'a>,
    fault: extra::cgpu_fault,
    slot: &'a ScratchSlot,
    index: usize,
}

impl<'a> ScratchFault<'a> {
    /// `None`: the task may not touch the page.
    ///
    /// # Safety
    ///
    /// `vmf` is a fault in a mapping of a pool, and is served for `'a`.
    unsafe fn new(vmf: *mut bindings::vm_fault) -> Option<Self> {
        // SAFETY: The argument of a handler that runs for `'a`.
        let served = unsafe { PageFault::<'a>::new(vmf) }?;
        let fault = served.seen();
        if fault.flags & bindings::fault_flag_FAULT_FLAG_USER != 0 {
            return None;
        }
        // SAFETY: The mapping has the pool as its data, and its file a reference of that.
        let pool = unsafe { &*fault.private.cast_const().cast::<Pool>() };
        let (slot, index) = pool.admits(fault.page)?;
        // INVARIANT: `admits` gives the slot and the page's number in it if the current task owns
        // that slot.
        Some(Self {
            served,
            fault,
            slot,
            index,
        })
    }
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
    fault: &'a extra::cgpu_fault,
    entry: *mut bindings::pte_t,
    number: usize,
    lock: *mut bindings::spinlock_t,
}

impl<'a> FaultTable<'a> {
    /// `None`: there is no table yet.
    fn lock(of: &'a ScratchFault<'_>) -> Option<Self> {
        let fault = &of.fault;
        let mut lock = null_mut();
        // SAFETY: By the type's invariant the fault is being served, and nothing of it is changed.
        let entry = unsafe { extra::cgpu_shim_lock_entry(of.served.as_ptr(), &raw mut lock) };
        let page = fault.address / PAGE_SIZE;
        // INVARIANT: A table has an entry for each of so many pages, and begins with a multiple of
        // their number.
        (!entry.is_null()).then(|| Self {
            fault,
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
        let address = self.fault.address.wrapping_add(distance);
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
fn show(of: &ScratchFault<'_>) -> bool {
    let Some(table) = FaultTable::lock(of) else {
        return false;
    };
    let (slot, mm) = (of.slot, of.fault.memory);
    let protection = protection(bindings::VM_READ);
    let mut wanted = slot.readable();
    slot.maps(wanted);
    while wanted != 0 {
        // CAST: below 64.
        let number = wanted.trailing_zeros() as usize;
        wanted &= wanted - 1;
        let entry = table.entry(of.index, number);
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

/// A page is not there.
///
/// # Safety
///
/// `vmf` is a fault in a mapping of a pool, which is being served.
#[no_mangle]
unsafe extern "C" fn cgpu_scratch_fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: The kernel calls this for a fault in a mapping of a pool, and serves it meanwhile.
    let Some(of) = (unsafe { ScratchFault::new(vmf) }) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    let writes = of.fault.flags & bindings::fault_flag_FAULT_FLAG_WRITE != 0;
    if !writes && show(&of) {
        return bindings::vm_fault_reason_VM_FAULT_NOPAGE;
    }
    let Ok(page) = of.slot.page(of.index) else {
        return bindings::vm_fault_reason_VM_FAULT_OOM;
    };
    of.slot.maps(1 << of.index);
    // Read-only until the owner writes: any other task's write finds no way in, then.
    let access = if writes {
        bindings::VM_READ | bindings::VM_WRITE
    } else {
        bindings::VM_READ
    };
    let (vma, address) = (of.fault.vma, of.fault.address);
    // SAFETY: The mapping is one of page frames and is locked by the fault; the page lives as long
    // as the mapping's file.
    unsafe { bindings::vmf_insert_pfn_prot(vma, address, frame(page), protection(access)) }
}

/// A page is there, and written to while it is read-only.
///
/// # Safety
///
/// As for [`cgpu_scratch_fault`].
#[no_mangle]
unsafe extern "C" fn cgpu_scratch_mkwrite(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: The kernel calls this for a fault in a mapping of a pool, and serves it meanwhile.
    let Some(of) = (unsafe { ScratchFault::new(vmf) }) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    let Some(table) = FaultTable::lock(&of) else {
        // The table has gone, and the page with it: the driver's next try faults anew.
        return bindings::vm_fault_reason_VM_FAULT_NOPAGE;
    };
    for page in of.slot.written_with(of.index) {
        if let Some((entry, _)) = table.entry(of.index, page) {
            // SAFETY: The entry is one of the locked table.
            unsafe { extra::cgpu_shim_make_writable(entry) };
        }
    }
    // The faulting page is mapped, so the kernel has nothing left to do.
    bindings::vm_fault_reason_VM_FAULT_NOPAGE
}
