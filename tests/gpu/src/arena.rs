// SPDX-License-Identifier: GPL-2.0
//! Memory that lies at one address in every process of an instance.
//!
//! The accounting is a structure of growable lists. For several processes to work on the same
//! accounting, everything in them must be in shared memory and every pointer must hold in every
//! process. So the program's allocator is replaced by [`Allocator`]: while a thread works on the
//! accounting it allocates in the arena, else where it always would.

use core::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
    ptr::null_mut,
    sync::atomic::{AtomicI32, AtomicU64, Ordering},
};
use std::alloc::System;

use crate::sys;

/// Its address. Neither the kernel nor CUDA places anything there of itself (CUDA's ranges in the
/// recordings begin below 2^37 and above 2^46).
pub const BASE: u64 = 0x1500_0000_0000;
/// Its size in bytes. Pages that nobody has touched take no memory.
pub const SIZE: u64 = 1 << 30;

/// Blocks are powers of two, the smallest of these many bytes.
const SMALLEST: u64 = 64;
const CLASSES: usize = 24;

/// The free blocks of an arena. It lies at the beginning of the shared memory, zeroed.
#[derive(Debug)]
#[repr(C)]
pub struct Arena {
    lock: Lock,
    /// Offset of the first byte that was never given out; 0: none was yet.
    fresh: AtomicU64,
    /// Addresses of the first free block of each size; the first word of a free block is the next.
    free: [AtomicU64; CLASSES],
}

/// A lock among processes. One that dies with it loses it to the next who asks.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Lock(AtomicI32);

impl Lock {
    /// Takes it, waiting for as long as its owner lives.
    pub fn take(&self) {
        let me = sys::own();
        let mut tries = 0u32;
        while let Err(owner) =
            self.0
                .compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed)
        {
            tries = tries.wrapping_add(1);
            if tries % 1024 == 0 && owner != 0 && sys::has_ended(owner) {
                let _ = self
                    .0
                    .compare_exchange(owner, 0, Ordering::Acquire, Ordering::Relaxed);
            }
            if tries % 16 == 0 {
                sys::give_way();
            }
        }
    }

    /// Takes a free lock in somebody else's name.
    #[cfg(test)]
    pub(crate) fn seize(&self, owner: i32) {
        self.0.store(owner, Ordering::Relaxed);
    }

    /// Gives it back.
    pub fn give_back(&self) {
        self.0.store(0, Ordering::Release);
    }
}

impl Arena {
    /// Gives out nothing below `offset`, which the owner of the arena uses itself.
    pub fn begin(&self, offset: u64) {
        self.fresh
            .store(offset.next_multiple_of(4096), Ordering::Relaxed);
    }

    /// Bytes that were ever given out.
    pub fn used(&self) -> u64 {
        self.fresh.load(Ordering::Relaxed)
    }

    fn class(layout: Layout) -> Option<usize> {
        // CAST: sizes are 64 bits wide.
        let size = layout.size().max(layout.align()) as u64;
        let size = size.max(SMALLEST).next_power_of_two();
        let class = (size / SMALLEST).trailing_zeros() as usize;
        (class < CLASSES).then_some(class)
    }

    fn take(&self, layout: Layout) -> *mut u8 {
        let Some(class) = Self::class(layout) else {
            return null_mut();
        };
        let size = SMALLEST << class;
        self.lock.take();
        let first = &self.free[class];
        let mut at = first.load(Ordering::Relaxed);
        if at != 0 {
            // SAFETY: A free block is the arena's, and its first word the next one.
            let next = unsafe { *(at as *const u64) };
            first.store(next, Ordering::Relaxed);
        } else {
            let fresh = self.fresh.load(Ordering::Relaxed).next_multiple_of(size);
            if fresh + size <= SIZE {
                self.fresh.store(fresh + size, Ordering::Relaxed);
                at = BASE + fresh;
            }
        }
        self.lock.give_back();
        at as *mut u8
    }

    fn give_back(&self, block: *mut u8, layout: Layout) {
        let Some(class) = Self::class(layout) else {
            return;
        };
        self.lock.take();
        let first = &self.free[class];
        // SAFETY: The block was given out with this layout, so it has a word, and nobody uses it.
        unsafe { *block.cast::<u64>() = first.load(Ordering::Relaxed) };
        first.store(block as u64, Ordering::Relaxed);
        self.lock.give_back();
    }
}

std::thread_local! {
    /// Whether this thread allocates in the arena.
    static SHARED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` with every allocation of this thread in the arena.
pub fn shared<R>(work: impl FnOnce() -> R) -> R {
    let before = SHARED.replace(true);
    let result = work();
    SHARED.set(before);
    result
}

/// The allocator of a program with an arena.
#[derive(Debug)]
pub struct Allocator;

/// The mapped arena.
fn arena() -> &'static Arena {
    // SAFETY: Only threads inside `shared`, and addresses in the arena, lead here: it is mapped
    // then, and begins with an `Arena`, for which all-zero bytes are valid.
    unsafe { &*(BASE as *const Arena) }
}

fn is_shared(block: *mut u8) -> bool {
    (BASE..BASE + SIZE).contains(&(block as u64))
}

// SAFETY: Blocks of the arena are as large and aligned as their class, which covers the layout;
// they are given out once until they come back. All else is the system's allocator.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if SHARED.get() {
            arena().take(layout)
        } else {
            // SAFETY: `GlobalAlloc` has the contract of `System`.
            unsafe { System.alloc(layout) }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_shared(block) {
            arena().give_back(block, layout);
        } else {
            // SAFETY: The block is the system's, and `GlobalAlloc` has the contract of `System`.
            unsafe { System.dealloc(block, layout) }
        }
    }
}
