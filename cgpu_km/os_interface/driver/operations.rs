// SPDX-License-Identifier: GPL-2.0
//! The functions of the driver's interface for other kernel modules, and one call of it.

use crate::nvidia::{
    nvos::nvos33,
    rmapi, //
};
use core::{
    marker::PhantomData,
    mem::offset_of,
    ptr::null_mut, //
};
use kernel::prelude::*;

/// `nvidia_modeset_rm_ops_t` (nv-modeset-interface.h), the same in all branches but for arguments
/// of functions that are not called here.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct RmOperations {
    pub(super) version_string: *const c_char,
    allow_write_combining: u8,
    alloc_stack: Option<unsafe extern "C" fn(*mut *mut c_void) -> c_int>,
    free_stack: Option<unsafe extern "C" fn(*mut c_void)>,
    enumerate_gpus: *const c_void,
    open_gpu: *const c_void,
    close_gpu: *const c_void,
    op: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    set_callbacks: *const c_void,
}

const _: () = {
    use rmapi::operations;
    assert!(size_of::<RmOperations>() == operations::SIZE);
    assert!(offset_of!(RmOperations, version_string) == operations::VERSION_STRING.offset());
    assert!(offset_of!(RmOperations, alloc_stack) == operations::ALLOC_STACK.offset());
    assert!(offset_of!(RmOperations, free_stack) == operations::FREE_STACK.offset());
    assert!(offset_of!(RmOperations, op) == operations::OP.offset());
};

/// Bytes that the driver takes for a struct of its own.
#[repr(C, align(8))]
pub(super) struct Aligned<const N: usize>(pub(super) [u8; N]);

impl RmOperations {
    /// A stack for calls.
    ///
    /// # Safety
    ///
    /// A driver has filled in the table, and stays for as long as that is borrowed.
    pub(super) unsafe fn stack(&self) -> Result<Stack<'_>> {
        let Self {
            alloc_stack: Some(alloc_stack),
            free_stack: Some(free_stack),
            op: Some(op),
            ..
        } = *self
        else {
            return Err(ENODEV);
        };
        let mut place = null_mut();
        // SAFETY: The driver's function, by the contract; the place is there.
        if unsafe { alloc_stack(&raw mut place) } != 0 {
            return Err(ENOMEM);
        }
        // INVARIANT: They are functions of one driver, and it has just given the stack.
        Ok(Stack {
            place,
            op,
            free_stack,
            _driver: PhantomData,
        })
    }
}

/// A stack that the driver has given for calls.
///
/// # Invariants
///
/// The functions are of one driver, which is there for as long as the table is borrowed, and the
/// stack is theirs.
pub(super) struct Stack<'a> {
    place: *mut c_void,
    op: unsafe extern "C" fn(*mut c_void, *mut c_void),
    free_stack: unsafe extern "C" fn(*mut c_void),
    _driver: PhantomData<&'a RmOperations>,
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
        // SAFETY: The driver's function, on its own stack, by the invariant. The request is as
        // large as in any branch, and `argument` is one that the caller may hand to the driver. It
        // may sleep here.
        unsafe { (self.op)(self.place, request.0.as_mut_ptr().cast()) };
        argument.copy_from_slice(request.0.get(place).ok_or(EINVAL)?);
        Ok(())
    }
}

impl Drop for Stack<'_> {
    fn drop(&mut self) {
        // SAFETY: By the invariant the driver gave it, and nothing uses it any more.
        unsafe { (self.free_stack)(self.place) };
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
