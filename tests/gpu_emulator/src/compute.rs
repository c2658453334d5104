// SPDX-License-Identifier: GPL-2.0
//! The compute engine's methods (class cbc0, `NVCBC0_*`), as far as a launch's completion.
//!
//! A kernel itself does not run: there are no multiprocessors. A launch names a QMD, a block of
//! memory that says what runs and which semaphores are released at its end. [`Kernel`] carries
//! that to whoever keeps the engine's time: the seam for `tests/gpu_model`.

use crate::{
    clock,
    host::semaphore::{Semaphore, SemaphoreAction},
    memory::Memory,
    mmu::{AddressSpace, MmuFault},
};

/// Addresses of the methods that are looked at.
mod method {
    pub(super) const SET_REPORT_SEMAPHORE_A: u16 = 0x1b00;
    pub(super) const SET_REPORT_SEMAPHORE_D: u16 = 0x1b0c;
}

/// A launched kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Virtual address of its QMD.
    pub qmd: u64,
    /// The channel's address space.
    pub space: AddressSpace,
    /// Semaphores to release when it has ended.
    pub releases: Vec<Semaphore>,
}

/// What the engine remembers of a channel between methods.
#[derive(Debug, Default)]
pub struct ComputeState {}

impl ComputeState {
    /// Takes a method whose value is already among those that `get` knows. Returns a kernel if
    /// the method launches one.
    pub fn method(
        &mut self,
        memory: &mut Memory,
        space: AddressSpace,
        get: &dyn Fn(u16) -> u32,
        address: u16,
        value: u32,
    ) -> Result<Option<Kernel>, MmuFault> {
        if address == method::SET_REPORT_SEMAPHORE_D {
            report(memory, space, get, value)?;
        }
        Ok(None)
    }
}

/// Releases the semaphore of `SET_REPORT_SEMAPHORE_A` to `_D`.
fn report(
    memory: &mut Memory,
    space: AddressSpace,
    get: &dyn Fn(u16) -> u32,
    value: u32,
) -> Result<(), MmuFault> {
    let at = method::SET_REPORT_SEMAPHORE_A;
    let semaphore = Semaphore {
        address: u64::from(get(at)) << 32 | u64::from(get(at + 4)),
        payload: u64::from(get(at + 8)),
        bytes: 4,
        // `STRUCTURE_SIZE`: four words have the time, one has not.
        action: SemaphoreAction::Release {
            timestamp: value >> 28 & 1 == 0,
        },
    };
    semaphore.execute(memory, space, clock::now()).map(|_| ())
}
