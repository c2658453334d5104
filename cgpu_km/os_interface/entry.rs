// SPDX-License-Identifier: GPL-2.0
//! How the module begins and ends. The kernel calls C, which knows the module's parameters and what
//! is said of it in the file; that calls the functions which [`entry`] makes.

use crate::os_interface::base::extra;
use core::cell::UnsafeCell;
use kernel::prelude::*;

/// The module's parameters, as the operator gave them.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// The driver branch whose tables are used for a driver of an unknown branch; 0: none.
    pub assumed_branch: u32,
}

/// How many calls of a tenant the driver may refuse in a second for each of its GPUs, as the
/// operator has it now; 0: as many as it likes.
pub fn driver_refusals() -> u32 {
    // SAFETY: Reads a number; there is no precondition.
    unsafe { extra::cgpu_shim_driver_refusals() }
}

/// All that there is while the module is loaded; dropped when it is unloaded.
pub trait Module: Sized + Send + Sync + 'static {
    /// Builds it up. An error keeps the module from being loaded.
    fn start(parameters: Parameters) -> Result<Self>;
}

/// The place of a [`Module`].
pub struct Place<M>(UnsafeCell<Option<M>>);

// SAFETY: It is written to by `start` and `stop` alone, which the kernel calls one after the other.
unsafe impl<M: Module> Sync for Place<M> {}

impl<M: Module> Place<M> {
    /// A place with nothing in it.
    pub const fn empty() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// Starts the module; 0, or an errno.
    ///
    /// # Safety
    ///
    /// Called once, when the module is loaded.
    pub unsafe fn start(&self, parameters: Parameters) -> c_int {
        match M::start(parameters) {
            Ok(module) => {
                // SAFETY: Nobody else looks at the place, as the contract says.
                unsafe { *self.0.get() = Some(module) };
                0
            }
            Err(e) => e.to_errno(),
        }
    }

    /// Ends it.
    ///
    /// # Safety
    ///
    /// Called once, when the module is unloaded; it was started.
    pub unsafe fn stop(&self) {
        // SAFETY: Nobody else looks at the place, as the contract says.
        drop(unsafe { (*self.0.get()).take() });
    }
}

/// Makes a type the module: the functions that C calls.
macro_rules! entry {
    ($module:ty) => {
        #[allow(unsafe_code)]
        const _: () = {
            use $crate::os_interface::entry::{
                Parameters,
                Place, //
            };

            /// C refers to it by this name, which is that of its own headers: see `abi.mk`.
            #[export_name = concat!("cgpu_core_abi_", env!("CGPU_ABI"))]
            static ABI: u8 = 0;

            static MODULE: Place<$module> = Place::empty();

            /// # Safety
            ///
            /// Called once, when the module is loaded.
            #[no_mangle]
            unsafe extern "C" fn cgpu_core_start(assumed_branch: u32) -> core::ffi::c_int {
                // SAFETY: Called once, when the module is loaded, as this function is.
                unsafe { MODULE.start(Parameters { assumed_branch }) }
            }

            /// # Safety
            ///
            /// Called once, when the module is unloaded.
            #[no_mangle]
            unsafe extern "C" fn cgpu_core_stop() {
                // SAFETY: Called once, when the module is unloaded, as this function is.
                unsafe { MODULE.stop() };
            }
        };
    };
}

pub(crate) use entry;
