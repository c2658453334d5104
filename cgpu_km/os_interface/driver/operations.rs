// SPDX-License-Identifier: GPL-2.0
//! The functions of the driver's interface for other kernel modules, and one call of it.

use crate::{
    nvidia::{
        nvos::nvos33,
        rmapi, //
    },
    os_interface::base::extra, //
};
use core::{
    mem::offset_of,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};
use kernel::prelude::*;

/// The driver's functions, which C calls by their types (`driver/shim.h`).
///
/// # Invariants
///
/// A driver has filled them in.
pub(super) struct RmOperations(extra::nvidia_modeset_rm_ops_t);

const _: () = {
    use extra::nvidia_modeset_rm_ops_t as RmOps;
    use rmapi::operations;
    assert!(size_of::<RmOps>() == operations::SIZE);
    assert!(offset_of!(RmOps, version_string) == operations::VERSION_STRING.offset());
    assert!(offset_of!(RmOps, alloc_stack) == operations::ALLOC_STACK.offset());
    assert!(offset_of!(RmOps, free_stack) == operations::FREE_STACK.offset());
    assert!(offset_of!(RmOps, op) == operations::OP.offset());
};

/// Bytes that the driver takes for a struct of its own.
#[repr(C, align(8))]
pub(super) struct Aligned<const N: usize>(pub(super) [u8; N]);

impl RmOperations {
    /// Asks a driver of this version. `None`: it is of another one.
    ///
    /// # Safety
    ///
    /// `get` is a driver's `nvidia_get_rm_ops()`.
    pub(super) unsafe fn get(get: NonNull<c_void>, version: &CStr) -> Option<Self> {
        let mut operations: extra::nvidia_modeset_rm_ops_t = pin_init::zeroed();
        operations.version_string = version.as_char_ptr();
        // SAFETY: It reads the version and fills in the table, whose size is that of all branches.
        let status = unsafe { extra::cgpu_shim_driver_interface(get.as_ptr(), &mut operations) };
        // INVARIANT: It did so, with functions of its own.
        (status == 0).then_some(Self(operations))
    }

    /// A stack for calls.
    ///
    /// # Safety
    ///
    /// The driver stays for as long as this is borrowed.
    pub(super) unsafe fn stack(&self) -> Result<Stack<'_>> {
        let mut place = null_mut();
        // SAFETY: The driver's functions, by the invariant; the place is there.
        let status = unsafe { extra::cgpu_shim_driver_stack(&self.0, &raw mut place) };
        if status != 0 {
            return Err(ENOMEM);
        }
        // INVARIANT: The driver has just given the stack.
        Ok(Stack {
            place,
            operations: self,
        })
    }
}

/// A stack that the driver has given for calls.
///
/// # Invariants
///
/// The driver is there for as long as its functions are borrowed, and the stack is theirs.
pub(super) struct Stack<'a> {
    place: *mut extra::nvidia_stack_s,
    operations: &'a RmOperations,
}

impl Stack<'_> {
    /// Makes a call; its own struct is `argument`, in and out.
    ///
    /// # Safety
    ///
    /// Addresses in the struct are null, or of what the call may read and write.
    pub(super) unsafe fn call(&mut self, operation: u32, argument: &mut [u8]) -> Result {
        let mut request = Aligned([0; rmapi::SIZE]);
        rmapi::OPERATION.set(&mut request.0, operation);
        let end = rmapi::ARGUMENT.saturating_add(argument.len());
        let place = rmapi::ARGUMENT..end;
        let room = request.0.get_mut(place.clone()).ok_or(EINVAL)?;
        room.copy_from_slice(argument);
        let (operations, made) = (&raw const self.operations.0, request.0.as_mut_ptr());
        // SAFETY: The driver's function, on its own stack, by the invariant. The request is as
        // large as in any branch, and `argument` is one that the caller may hand to the driver. It
        // may sleep here.
        unsafe { extra::cgpu_shim_driver_call(operations, self.place, made.cast()) };
        argument.copy_from_slice(request.0.get(place).ok_or(EINVAL)?);
        Ok(())
    }
}

impl Drop for Stack<'_> {
    fn drop(&mut self) {
        // SAFETY: By the invariant the driver gave it, and nothing uses it any more.
        unsafe { extra::cgpu_shim_drop_driver_stack(&self.operations.0, self.place) };
    }
}

/// See [`mapping_slot`](super::rmapi::KernelClient::mapping_slot). It has its stack from before the
/// call, so that nothing can fail behind that.
pub struct MappingSlot<'a>(Stack<'a>);

impl<'a> MappingSlot<'a> {
    pub(super) fn new(stack: Stack<'a>) -> Self {
        Self(stack)
    }
}

impl Drop for MappingSlot<'_> {
    /// A mapping for the kernel frees what is in the slot, whatever becomes of it
    /// (`rm_kernel_rmapi_op()` in osapi.c). This one is refused: there is no client 0.
    fn drop(&mut self) {
        // SAFETY: There is no address in it.
        let called = unsafe { self.0.call(rmapi::MAP, &mut [0; nvos33::SIZE]) };
        // It fails for a struct of a wrong size alone.
        called.unwrap_or(());
    }
}
