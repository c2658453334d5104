// SPDX-License-Identifier: GPL-2.0
//! The sealed scratch: where the driver reads the parameters that were checked.
//!
//! The driver copies its parameters from user memory by itself, after we looked at them; another
//! thread of the process can change them in between (91 of 100 plain forwarded calls were tampered
//! with in a test that tried). So the checked copy is put on pages of ours that are mapped into the
//! process at an address that nobody but the driver, inside this call, can write:
//!
//! * The mapping is sealed and shared, and has no page of the process's own: it cannot be unmapped,
//!   moved, protected, split or replaced, `ptrace` and `process_vm_writev` do not reach it, and a
//!   fork child has none of it.
//! * A page is mapped only on a fault of the task that executes the driver (the owner of the slot),
//!   and read-only until that task writes to it. Another thread's store, and any system call of
//!   another thread that writes to user memory, gets `SIGBUS` or `EFAULT`. The owner itself is in
//!   the driver.
//! * After the call the pages are unmapped again, before their content is read back.
//!
//! Once the driver has written to a page, other threads can too until the call ends. So each
//! separately copied struct has pages of its own, and what comes back is trusted no more than what
//! the process could have written into its own memory.
//!
//! A process has one mapping with [`SLOTS`] slots, one for each call in flight; a caller who finds
//! none free waits, killably. Pages are allocated when they are first needed, charged to the
//! process's memory cgroup, and freed when the mapping goes with its address space.
//!
//! # Lock rules
//!
//! 1. A slot is held over a call into the driver, which faults, which takes `mmap_lock`. So no
//!    callback of the mapping (`mmap`, `fault`, `pfn_mkwrite`, `close`) may wait for a slot.
//! 2. A fault takes no lock at all: it reads atomics and pages that are set once.
//! 3. `close` runs under `mmap_lock` and takes the lock of a table shard. So nothing that faults or
//!    takes `mmap_lock` runs under a shard's lock; it is a spin lock, held for list operations.
//! 4. `Pool::mapping` is taken before `mmap_lock` (by `vm_mmap`), never by a callback.
//! 5. The driver does not copy to or from user memory with `mmap_lock` held; it never could.

use super::{caller::Part, extra, table, wait::Semaphore, UserAddr};
use core::ptr::{null_mut, without_provenance_mut};
use kernel::{
    bindings,
    error::from_err_ptr,
    impl_list_arc_safe, impl_list_item,
    list::ListLinks,
    mm::{virt::VmaRef, MmWithUser},
    new_mutex,
    page::{Page, PAGE_SIZE},
    prelude::*,
    sync::{
        atomic::{Acquire, Atomic, Relaxed, Release},
        Arc, Mutex, SetOnce,
    },
};

/// Calls that a process can have in flight through the scratch.
pub const SLOTS: usize = 8;
/// Most bytes of one part.
pub const PART_MAX: usize = 64 << 10;
/// Most parts of one call.
pub const PARTS_MAX: usize = 16;
/// Pages of a slot: room for the outer struct, a parameter struct of the largest size and the lists
/// that it points to.
const SLOT_PAGES: usize = 32;
const SLOT_BYTES: usize = SLOT_PAGES * PAGE_SIZE;
const POOL_BYTES: usize = SLOTS * SLOT_BYTES;

/// Pages for one call at a time.
struct Slot {
    /// The task that may touch the pages now; null between calls.
    owner: Atomic<*mut bindings::task_struct>,
    /// How many of the pages belong to the call. Written while there is no owner.
    live: Atomic<usize>,
    pages: [SetOnce<Page>; SLOT_PAGES],
}

impl Slot {
    const fn new() -> Self {
        Self {
            owner: Atomic::new(null_mut()),
            live: Atomic::new(0),
            pages: [const { SetOnce::new() }; SLOT_PAGES],
        }
    }
}

/// Where a pool's mapping is.
#[derive(Clone, Copy)]
enum Mapping {
    /// Not made yet.
    None,
    /// Here, until `close`.
    At(usize),
    /// It could not be made, or is gone: the pool is out of the table, and useless.
    Dead,
}

/// The scratch of one address space.
///
/// # Invariants
///
/// * `base` is 0 or the start of the mapping.
/// * The mapping's `vm_private_data` and its file's `private_data` are this pool; the file holds a
///   reference of it, so the pages outlive every page-table entry that maps them.
#[pin_data]
pub(super) struct Pool {
    /// The address space, for comparison only.
    mm: *const bindings::mm_struct,
    base: Atomic<usize>,
    #[pin]
    mapping: Mutex<Mapping>,
    /// One place per slot without its bit in `taken`.
    #[pin]
    free: Semaphore,
    /// A bit per slot in use.
    taken: Atomic<u32>,
    slots: [Slot; SLOTS],
    #[pin]
    links: ListLinks,
}

// SAFETY: `mm` and the owners are never dereferenced, only compared.
unsafe impl Send for Pool {}
// SAFETY: As above; everything that changes is atomic, set once or behind a lock.
unsafe impl Sync for Pool {}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Pool { untracked; }
}
impl_list_item! {
    impl ListItem<0> for Pool { using ListLinks { self.links }; }
}

impl Pool {
    /// A pool without a mapping, for the table.
    pub(super) fn new(mm: &MmWithUser) -> impl PinInit<Self, Error> + '_ {
        // CAST: 8.
        let places = SLOTS as c_int;
        try_pin_init!(Self {
            mm: mm.as_raw().cast_const(),
            base: Atomic::new(0),
            mapping <- new_mutex!(Mapping::None),
            free <- Semaphore::new(places),
            taken: Atomic::new(0),
            slots: [const { Slot::new() }; SLOTS],
            links <- ListLinks::new(),
        })
    }

    /// Whether this is the pool of `mm`.
    pub(super) fn is_of(&self, mm: &MmWithUser) -> bool {
        core::ptr::eq(self.mm, mm.as_raw())
    }

    /// Whether `len` bytes at `addr` touch the mapping.
    pub(super) fn contains_any(&self, addr: UserAddr, len: usize) -> bool {
        let base = self.base.load(Acquire);
        let (Ok(start), true) = (usize::try_from(addr.get()), base != 0) else {
            return false;
        };
        start < base.saturating_add(POOL_BYTES) && start.saturating_add(len) > base
    }

    /// Makes sure that the mapping is there, in `mm`, the current task's address space. `false` if
    /// the pool is dead and another one is to be made.
    fn ready(self: &Arc<Self>, mm: &MmWithUser) -> Result<bool> {
        let base = self.base.load(Acquire);
        if base != 0 && self.is_mapped(mm, base) {
            return Ok(true);
        }
        let mut mapping = self.mapping.lock();
        match *mapping {
            Mapping::Dead => return Ok(false),
            Mapping::At(base) => {
                if self.is_mapped(mm, base) {
                    return Ok(true);
                }
                // Nothing can take a sealed mapping away; if something did, start anew.
                *mapping = Mapping::Dead;
                drop(mapping);
                table::remove(self);
                return Ok(false);
            }
            Mapping::None => {}
        }
        match self.map() {
            Ok(base) => {
                *mapping = Mapping::At(base);
                self.base.store(base, Release);
                Ok(true)
            }
            Err(e) => {
                *mapping = Mapping::Dead;
                drop(mapping);
                table::remove(self);
                Err(e)
            }
        }
    }

    fn map(self: &Arc<Self>) -> Result<usize> {
        let private = Arc::into_raw(self.clone()).cast_mut();
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

    /// Whether the mapping at `base` is there and is ours.
    fn is_mapped(&self, mm: &MmWithUser, base: usize) -> bool {
        self.with_mapping(mm, base, |_| ()).is_some()
    }

    /// Runs `f` with the mapping, if there is one at `base` and it is ours. The mapping's own lock is
    /// held meanwhile, or `mmap_lock` for reading.
    fn with_mapping<R>(
        &self,
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
                && core::ptr::eq(private.cast_const().cast(), self)
        };
        if let Some(guard) = mm.lock_vma_under_rcu(base) {
            return Some(&*guard).filter(ours).map(f);
        }
        let guard = mm.mmap_read_lock();
        guard.vma_lookup(base).filter(ours).map(f)
    }

    /// The address space, as a key.
    pub(super) fn address_space(&self) -> usize {
        self.mm.addr()
    }

    /// The page that the current task may touch now, at page `index` of the mapping.
    fn admit(&self, index: usize) -> Option<&Page> {
        let slot = self.slots.get(index / SLOT_PAGES)?;
        // SAFETY: Reads a per-CPU variable; there is no precondition.
        let current = unsafe { bindings::get_current() };
        // Acquire: what `Lease::fill` set up for this owner is seen with him.
        if !core::ptr::eq(slot.owner.load(Acquire), current) {
            return None;
        }
        let page = index % SLOT_PAGES;
        if page >= slot.live.load(Relaxed) {
            return None;
        }
        slot.pages.get(page)?.as_ref()
    }
}

/// The pool of the current task's address space, with its mapping in place.
fn current_pool(mm: &MmWithUser) -> Result<Arc<Pool>> {
    loop {
        let pool = table::find_or_insert(mm)?;
        if pool.ready(mm)? {
            return Ok(pool);
        }
    }
}

/// Whether `len` bytes at `addr` in the current task's address space touch its scratch.
pub(super) fn touches(addr: UserAddr, len: usize) -> bool {
    let task = current!();
    let Some(mm) = task.mm() else {
        return false;
    };
    table::find(mm).is_some_and(|pool| pool.contains_any(addr, len))
}

/// A slot of the current address space, for one call.
///
/// # Invariants
///
/// The slot's bit in `taken` is ours. Between calls, and so before [`Lease::grant`] and after
/// [`Lease::finish`], the slot has no owner and no page of it is mapped.
pub(super) struct Lease {
    pool: Arc<Pool>,
    slot: usize,
}

/// While this exists, the task that made it may touch the lease's pages.
pub(super) struct Grant<'a>(&'a Slot);

impl Drop for Grant<'_> {
    fn drop(&mut self) {
        self.0.owner.store(null_mut(), Release);
    }
}

impl Lease {
    /// Takes a slot of the current address space, waiting for one if all are in use.
    ///
    /// `EINTR` if the task is killed while it waits, `ENOMEM`, or `EFAULT` for a task without an
    /// address space.
    pub(super) fn take() -> Result<Self> {
        let task = current!();
        let pool = current_pool(task.mm().ok_or(EFAULT)?)?;
        pool.free.take()?;
        let mut taken = pool.taken.load(Relaxed);
        loop {
            let slot = taken.trailing_ones();
            match pool.taken.cmpxchg(taken, taken | 1 << slot, Acquire) {
                // INVARIANT: The bit was clear, and whoever clears it has put the slot in order.
                Ok(_) => {
                    // CAST: below SLOTS, since the semaphore counts the clear bits.
                    let slot = slot as usize;
                    return Ok(Self { pool, slot });
                }
                Err(now) => taken = now,
            }
        }
    }

    fn slot(&self) -> &Slot {
        // INDEX: `take` found the number below SLOTS.
        &self.pool.slots[self.slot % SLOTS]
    }

    /// The address of a page of the slot, for the driver.
    fn address(&self, page: usize) -> u64 {
        let base = self.pool.base.load(Relaxed);
        // CAST: usize is 64 bits wide.
        (base + self.slot * SLOT_BYTES + page * PAGE_SIZE) as u64
    }

    /// Puts `parts` on the pages of the slot, each on pages of its own, with the pointers between
    /// them turned to where they are, and gives the address of the first one.
    ///
    /// `E2BIG` where a part, their number or their sum is too large, `EINVAL` where a pointer is not
    /// inside an earlier part, `ENOMEM`.
    pub(super) fn fill(&mut self, parts: &[Part<'_>]) -> Result<u64> {
        if parts.len() > PARTS_MAX || parts.iter().any(|part| part.bytes.len() > PART_MAX) {
            return Err(E2BIG);
        }
        let pages: usize = parts.iter().map(Part::pages).sum();
        if pages > SLOT_PAGES {
            return Err(E2BIG);
        }
        let slot = self.slot();
        for place in slot.pages.iter().take(pages) {
            if place.as_ref().is_none() {
                place.populate(Page::alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO)?);
            }
        }
        slot.live.store(pages, Relaxed);
        let mut first = 0;
        for (number, part) in parts.iter().enumerate() {
            self.copy_in(first, 0, part.bytes)?;
            if let Some((holder, offset)) = part.pointer {
                let page: usize = parts.iter().take(holder).map(Part::pages).sum();
                let room = parts.get(holder).filter(|_| holder < number);
                room.and_then(|holder| holder.pointer_at(offset))
                    .ok_or(EINVAL)?;
                if !part.bytes.is_empty() {
                    self.copy_in(page, offset, &self.address(first).to_ne_bytes())?;
                }
            }
            first += part.pages();
        }
        Ok(self.address(0))
    }

    /// Lets the current task touch the pages until the result is dropped. Nothing of `self` is
    /// changed meanwhile.
    pub(super) fn grant(&self) -> Grant<'_> {
        let slot = self.slot();
        // SAFETY: Reads a per-CPU variable; there is no precondition.
        let current = unsafe { bindings::get_current() };
        slot.owner.store(current, Release);
        Grant(slot)
    }

    /// Unmaps the pages and then reads `parts` back, as the driver left them, the pointers as the
    /// caller gave them.
    pub(super) fn finish(&mut self, parts: &mut [Part<'_>]) -> Result {
        self.seal();
        let mut pointers = [[0; 8]; PARTS_MAX];
        for number in 0..parts.len() {
            let pointer = parts.get(number).and_then(|part| part.pointer);
            let saved = pointer.and_then(|(part, at)| parts.get(part)?.pointer_at(at));
            if let (Some(place), Some(saved)) = (pointers.get_mut(number), saved) {
                *place = saved;
            }
        }
        let mut first = 0;
        for part in parts.iter_mut() {
            self.copy_out(first, part.bytes)?;
            first += part.pages();
        }
        for (number, saved) in pointers.iter().enumerate() {
            let pointer = parts.get(number).and_then(|part| part.pointer);
            if let Some((part, offset)) = pointer {
                let bytes = parts.get_mut(part).ok_or(EINVAL)?;
                let place = bytes.bytes.get_mut(offset..).and_then(|b| b.get_mut(..8));
                place.ok_or(EINVAL)?.copy_from_slice(saved);
            }
        }
        Ok(())
    }

    /// Takes the pages out of the process's page tables.
    fn seal(&mut self) {
        let slot = self.slot();
        let live = slot.live.load(Relaxed);
        if live == 0 {
            return;
        }
        slot.live.store(0, Relaxed);
        let base = self.pool.base.load(Relaxed);
        let start = base + self.slot * SLOT_BYTES;
        let task = current!();
        let Some(mm) = task.mm() else {
            return;
        };
        self.pool.with_mapping(mm, base, |vma| {
            // SAFETY: The mapping is valid under its lock, is one of page frames, and spans the
            // whole pool.
            unsafe { bindings::zap_special_vma_range(vma.as_ptr(), start, live * PAGE_SIZE) }
        });
    }

    /// Copies `bytes` to `offset` bytes after the start of page `first`.
    fn copy_in(&self, first: usize, offset: usize, bytes: &[u8]) -> Result {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let (page, start) = (first + at / PAGE_SIZE, at % PAGE_SIZE);
            let (now, later) = rest.split_at(rest.len().min(PAGE_SIZE - start));
            let page = self.slot().pages.get(page).and_then(SetOnce::as_ref);
            // SAFETY: `now` is that long, and nobody else has the page: by the type's invariant it
            // is not mapped, and the slot is ours.
            unsafe {
                page.ok_or(E2BIG)?
                    .write_raw(now.as_ptr(), start, now.len())?
            };
            at += now.len();
            rest = later;
        }
        Ok(())
    }

    /// Copies from the start of page `first`.
    fn copy_out(&self, first: usize, bytes: &mut [u8]) -> Result {
        for (number, now) in bytes.chunks_mut(PAGE_SIZE).enumerate() {
            let page = self
                .slot()
                .pages
                .get(first + number)
                .and_then(SetOnce::as_ref);
            // SAFETY: `now` is that long, and nobody else has the page: `seal` unmapped it, and the
            // slot is ours.
            unsafe {
                page.ok_or(E2BIG)?
                    .read_raw(now.as_mut_ptr(), 0, now.len())?
            };
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.seal();
        let mut taken = self.pool.taken.load(Relaxed);
        while let Err(now) = self
            .pool
            .taken
            .cmpxchg(taken, taken & !(1 << self.slot), Release)
        {
            taken = now;
        }
        self.pool.free.give();
    }
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
    // SAFETY: The file is open, and `Pool::map` gave it the pool.
    let pool = unsafe { (*file).private_data };
    // SAFETY: The mapping is being made by this task, under `mmap_lock`.
    let range = unsafe { (*vma).__bindgen_anon_1.__bindgen_anon_1 };
    // Only `Pool::map` maps this file, which nobody has a descriptor of; once, and in full.
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
    // SAFETY: The last reference of the file is gone; `Pool::map` gave it one of the pool.
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
    table::remove(unsafe { pool_of(vma) });
}

unsafe extern "C" fn may_split(_vma: *mut bindings::vm_area_struct, _addr: c_ulong) -> c_int {
    EINVAL.to_errno()
}

/// The page that this fault is about, if the current task may touch it now.
///
/// # Safety
///
/// `vmf` is that of a fault in a mapping with our operations.
unsafe fn faulted<'a>(vmf: *mut bindings::vm_fault) -> Option<&'a Page> {
    // SAFETY: The caller promises that the fault is being served.
    let vmf = unsafe { &*vmf };
    if vmf.flags & bindings::fault_flag_FAULT_FLAG_USER != 0 {
        return None;
    }
    // SAFETY: A fault's mapping is valid while it is served.
    let pool = unsafe { pool_of(vmf.__bindgen_anon_1.vma) };
    pool.admit(vmf.__bindgen_anon_1.pgoff)
}

unsafe extern "C" fn fault(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: Called through our operations.
    let Some(page) = (unsafe { faulted(vmf) }) else {
        return bindings::vm_fault_reason_VM_FAULT_SIGBUS;
    };
    // SAFETY: The fault is being served.
    let vmf = unsafe { &*vmf };
    // Read-only until the owner writes: any other task's write finds no way in, then.
    let mut access = bindings::VM_READ | bindings::VM_SHARED;
    if vmf.flags & bindings::fault_flag_FAULT_FLAG_WRITE != 0 {
        access |= bindings::VM_WRITE;
    }
    // SAFETY: There is no precondition.
    let protection = unsafe { bindings::vm_get_page_prot(access) };
    // SAFETY: The page is allocated.
    let frame = unsafe { extra::cgpu_shim_page_to_pfn(page.as_ptr()) };
    let (vma, address) = (vmf.__bindgen_anon_1.vma, vmf.__bindgen_anon_1.address);
    // SAFETY: The mapping is one of page frames and is locked by the fault, the address is in it,
    // and the page lives as long as the mapping's file.
    unsafe { bindings::vmf_insert_pfn_prot(vma, address, frame, protection) }
}

unsafe extern "C" fn pfn_mkwrite(vmf: *mut bindings::vm_fault) -> bindings::vm_fault_t {
    // SAFETY: Called through our operations.
    match unsafe { faulted(vmf) } {
        Some(_) => 0,
        None => bindings::vm_fault_reason_VM_FAULT_SIGBUS,
    }
}
