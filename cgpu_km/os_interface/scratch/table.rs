// SPDX-License-Identifier: GPL-2.0
//! Which address space has which scratch.
//!
//! A hash table of lists, each behind a spin lock of its own. A pool is entered before it has its
//! mapping and leaves when the mapping is closed, which is before the address space can be freed:
//! so an address space that is found here is the one that was entered, never one that got the same
//! memory later.

use super::pool::Pool;
use crate::os_interface::base::extra;
use core::ptr::null_mut;
use kernel::{
    error::to_result,
    list::{
        List,
        ListArc, //
    },
    mm::MmWithUser,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        SpinLock, //
    }, //
};

const SHARD_BITS: u32 = 6;

/// # Invariants
///
/// Taken for list operations only: it nests in `mmap_lock` (see the lock rules in
/// [`scratch`](super)).
#[pin_data]
struct Shard {
    #[pin]
    pools: SpinLock<List<Pool>>,
}

/// The table. There is one, from [`Scratch::start`] until the module is unloaded.
static TABLE: Atomic<*mut PoolTable> = Atomic::new(null_mut());

struct PoolTable(KVec<Pin<KBox<Shard>>>);

/// Keeps the scratch usable; the module owns one for as long as it is loaded.
pub struct Scratch(());

impl Scratch {
    /// Sets the scratch up. Must be called first in the module's start, and once. It fails if a
    /// program could take its scratch away on this kernel, and says why in the kernel's log.
    pub fn start() -> Result<Self> {
        let mut shards = KVec::with_capacity(1 << SHARD_BITS, GFP_KERNEL)?;
        for _ in 0..1 << SHARD_BITS {
            let shard = KBox::pin_init(
                pin_init!(Shard {
                    pools <- new_spinlock!(List::new()),
                }),
                GFP_KERNEL,
            )?;
            shards.push(shard, GFP_KERNEL)?;
        }
        let table = KBox::new(PoolTable(shards), GFP_KERNEL)?;
        // SAFETY: Called once, by the task that loads the module.
        to_result(unsafe { extra::cgpu_shim_start_seals() })?;
        TABLE.store(KBox::into_raw(table), Release);
        Ok(Self(()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let table = TABLE.xchg(null_mut(), kernel::sync::atomic::Full);
        if !table.is_null() {
            // SAFETY: `start` made it of a box. Nobody uses it any more: that is done by open files
            // and by mappings, and each of them holds the module.
            drop(unsafe { KBox::from_raw(table) });
        }
        // SAFETY: They were started, and nothing is sealed any more.
        unsafe { extra::cgpu_shim_stop_seals() };
    }
}

/// The shard of the address space at `mm`.
fn shard(mm: usize) -> Option<&'static Shard> {
    // SAFETY: Null, or the table, which is freed only when the module is unloaded and nothing that
    // could call this exists any more.
    let table = unsafe { TABLE.load(Acquire).as_ref() }?;
    // The multiplier of the kernel's hash_64(): the golden ratio.
    let hash = mm.wrapping_mul(0x61C8_8646_80B5_83EB) >> (usize::BITS - SHARD_BITS);
    table.0.get(hash).map(|shard| &**shard)
}

fn find_in(pools: &List<Pool>, mm: &MmWithUser) -> Option<Arc<Pool>> {
    let mut iter = pools.iter();
    iter.find(|pool| pool.is_of(mm)).map(Arc::from)
}

/// The pool of `mm`, if it has one.
fn find(mm: &MmWithUser) -> Option<Arc<Pool>> {
    let shard = shard(mm.as_raw().addr())?;
    let pools = shard.pools.lock();
    find_in(&pools, mm)
}

/// The pool of `mm`; a new one, without its mapping yet, if it had none.
pub(super) fn find_or_insert(mm: &MmWithUser) -> Result<Arc<Pool>> {
    if let Some(pool) = find(mm) {
        return Ok(pool);
    }
    let shard = shard(mm.as_raw().addr()).ok_or(ENODEV)?;
    let new = ListArc::pin_init(Pool::new(mm), GFP_KERNEL_ACCOUNT)?;
    let mut pools = shard.pools.lock();
    // Another thread may have been faster; then `new` goes, after the lock.
    if let Some(pool) = find_in(&pools, mm) {
        drop(pools);
        return Ok(pool);
    }
    let pool = new.clone_arc();
    pools.push_front(new);
    Ok(pool)
}

/// Takes `pool` out, if it is in.
pub(super) fn remove(pool: &Pool) {
    let Some(shard) = shard(pool.address_space()) else {
        return;
    };
    let mut pools = shard.pools.lock();
    // SAFETY: A pool is only ever put into the list of its address space's shard.
    let removed = unsafe { pools.remove(pool) };
    drop(pools);
    // The reference goes without the lock; it is not the last one while the mapping's file, which
    // calls this, holds another.
    drop(removed);
}
