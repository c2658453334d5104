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
//! * A page is read-only until the task that executes the driver (the owner of the slot) writes to
//!   it. Another thread's store, and any system call of another thread that writes to user memory,
//!   gets `SIGBUS` or `EFAULT`. The owner itself is in the driver.
//! * A page that the driver has written to carries parameters again only after it was unmapped,
//!   which flushes it from every processor.
//!
//! Once the driver has written to a page, other threads can too until it is unmapped. So each
//! separately copied struct has pages of its own, but for the first two: the driver has copied the
//! whole of its argument (`nvidia_ioctl()`, nv.c) before it looks for what that points to, and
//! writes it back last, so that they share a page where they fit. And what comes back is copied
//! once, and trusted no more than what the process could have written into its own memory.
//!
//! Each of these has a page that is never there before and after it, so nothing that runs over the
//! end of one reaches another. An address inside the mapping among the parameters is refused: the
//! driver, which may write there, would do it for the caller.
//!
//! # Slots, and how they are used up
//!
//! A process has one mapping with [`SLOTS`] slots, one for each call in flight; a caller who finds
//! none free waits, killably. Pages are allocated when they are first needed, charged to the
//! process's memory cgroup, and freed when the mapping goes with its address space.
//!
//! Unmapping costs more than all else, with a processor to be interrupted for each thread that
//! runs. So a call whose parts fit on one page leaves it mapped, after it has taken the results and
//! wiped what was there (a report may have more in it than the program is told), and the next one
//! takes the next page of the slot. When there is none left, all are unmapped, and it begins anew.
//! The first read of a round maps those that later calls of the round will have, too, read-only. A
//! call whose argument alone takes three pages, as that of `UVM_MAP_EXTERNAL_ALLOCATION` does, has
//! a *cell* of as many, which the driver's first write makes writable at once, and cells are used
//! up in the same way. Other calls of several pages unmap when they end, before anything is read
//! back.
//!
//! # Lock rules
//!
//! 1. A slot is held over a call into the driver, which faults, which takes `mmap_lock`. So no
//!    callback of the mapping (`mmap`, `fault`, `pfn_mkwrite`, `close`) may wait for a slot.
//! 2. A fault takes no lock but that of its page table: it reads atomics and pages that are set
//!    once.
//! 3. `close` runs under `mmap_lock` and takes the lock of a table shard. So nothing that faults or
//!    takes `mmap_lock` runs under a shard's lock; it is a spin lock, held for list operations.
//! 4. A pool's [`PoolStage`](pool::Pool) is locked before `mmap_lock` (by `vm_mmap`), never by a
//!    callback.
//! 5. The driver does not copy to or from user memory with `mmap_lock` held; it never could.

mod current;
mod layout;
pub(super) mod lease;
pub(super) mod place;
mod pool;
mod pool_mapping;
pub(super) mod recent;
mod slot;
mod table;

pub use table::Scratch;
