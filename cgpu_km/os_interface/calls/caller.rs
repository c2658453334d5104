// SPDX-License-Identifier: GPL-2.0
//! A process inside a proxied call: its memory, and the way on to the driver.

use super::{
    descriptor::Descriptor,
    worker::{
        CallRoute,
        DriverCall, //
    }, //
};
use crate::{
    os_interface::{
        base::{
            extra,
            one_file, //
        },
        driver::backing_file::BackingFile,
        scratch::{
            lease::Lease,
            recent::Recent, //
        }, //
    },
    proxy::{
        Part,
        UserAddr, //
    }, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    types::NotThreadSafe, //
};

/// The calling task, inside an ioctl on a proxied file.
pub struct Caller<'a> {
    file: NonNull<bindings::file>,
    backing: &'a BackingFile,
    recent: &'a Recent,
    /// Not `Send`: the call reads the current task's memory.
    _task: PhantomData<NotThreadSafe>,
}

impl<'a> Caller<'a> {
    /// The current task, which is in an ioctl on `file`.
    ///
    /// # Safety
    ///
    /// `file` was opened by the driver behind `backing`, and is open for as long as this exists.
    pub(in crate::os_interface) unsafe fn new(
        file: NonNull<bindings::file>,
        backing: &'a BackingFile,
        recent: &'a Recent,
    ) -> Self {
        Self {
            file,
            backing,
            recent,
            _task: PhantomData,
        }
    }

    /// The process id (thread group id) in the initial PID namespace.
    pub fn process(&self) -> i32 {
        // SAFETY: The current task is valid, and its thread group id never changes while it runs.
        unsafe { extra::cgpu_shim_process() }
    }

    /// Translates a process id of the caller's PID namespace to that of the initial one. `None` if
    /// there is no such process.
    pub fn process_by_number(&self, number: u32) -> Option<i32> {
        let number = i32::try_from(number).ok()?;
        // SAFETY: Any number may be asked for; the current task runs, so it has a PID namespace.
        let process = unsafe { extra::cgpu_shim_pid_by_vnr(number) };
        (process > 0).then_some(process)
    }

    /// Copies from the process's memory; `EFAULT` if it cannot be read. Other threads may change
    /// the bytes at any time: read once, decide on the copy, forward the copy.
    pub fn read(&self, from: UserAddr, bytes: &mut [u8]) -> Result {
        from.read(bytes)
    }

    /// Copies to the process's memory; `EFAULT` if it cannot be written.
    pub fn write(&self, to: UserAddr, bytes: &[u8]) -> Result {
        to.write(bytes)
    }

    /// Stores a word in the process's memory at once, where [`Self::write`] may do so byte by byte.
    pub fn write_word(&self, to: UserAddr, word: u32) -> Result {
        to.write_word(word)
    }

    /// Unmaps a range of the process's memory, as `munmap(2)` does.
    pub fn unmap(&self, base: UserAddr, length: u64) -> Result {
        // CAST: `c_ulong` and `usize` are 64 bits wide.
        let (base, length) = (base.get() as c_ulong, length as usize);
        // SAFETY: Any range may be asked for; the current task is in a call, so it has memory.
        to_result(unsafe { bindings::vm_munmap(base, length) })
    }

    /// Calls the driver with copies of `parts` that no program can change (see `scratch.rs`). The
    /// first part is the argument of the ioctl; without parts the argument is 0.
    ///
    /// Returns what the driver returned, a negative errno included. `parts` then hold what the
    /// driver wrote.
    ///
    /// # Errors
    ///
    /// The driver was not called, and `parts` are unchanged:
    ///
    /// * `EINTR`, `ERESTARTSYS`: the task was killed while it waited.
    /// * `E2BIG`: the parts do not fit the scratch.
    /// * `EINVAL`: a pointer lies in no earlier part, or a descriptor not inside its part.
    /// * `EFAULT`: the task has no memory, or a parameter is an address of the scratch.
    /// * `ENOMEM`.
    pub fn forward(&self, cmd: u32, parts: &mut [Part<'_>], route: CallRoute<'_>) -> Result<i32> {
        // SAFETY: The file is the driver's, and open for as long as `self` exists.
        unsafe {
            forward(
                self.file,
                (self.backing, Some(self.recent)),
                cmd,
                parts,
                route,
            )
        }
    }
}

impl BackingFile {
    /// Calls the driver's `ioctl` on this file, as [`Caller::forward`] does. An errno of the
    /// driver is an error here too.
    ///
    /// The module's own calls (`attach`) run in the context of the host's root, but like every
    /// forwarded call without the capabilities of an administrator.
    pub fn forward(&self, cmd: u32, parts: &mut [Part<'_>], route: CallRoute<'_>) -> Result<i32> {
        // SAFETY: By the type's invariant this is an open file, and `self` holds it for longer
        // than the call lasts.
        let answer = unsafe { forward(self.as_non_null(), (self, None), cmd, parts, route) };
        let answer = answer?;
        if answer < 0 {
            return Err(Error::from_errno(answer));
        }
        Ok(answer)
    }
}

/// Calls the driver on `file`, with copies of `parts` in the current task's scratch; see
/// [`Caller::forward`]. `recent` has the scratch that was used last, which usually serves again.
///
/// # Safety
///
/// `file` is an open file of the driver behind `backing`, and stays open during the call.
pub(in crate::os_interface) unsafe fn forward(
    file: NonNull<bindings::file>,
    (backing, recent): (&BackingFile, Option<&Recent>),
    cmd: u32,
    parts: &mut [Part<'_>],
    route: CallRoute<'_>,
) -> Result<i32> {
    let mut lease = None;
    let arg = match parts {
        [] => 0,
        _ => lease.insert(Lease::take(recent)?).fill(parts)?,
    };
    let request = DriverCall {
        file,
        backing,
        cmd,
        arg,
        lease: lease.as_ref(),
    };
    let mut own = None;
    let answer = match route {
        // SAFETY: The file is open, as the contract says; the lease is of this address space.
        CallRoute::Caller => unsafe { request.execute_reduced() },
        // SAFETY: The file is open, as the contract says; the lease is of this address space.
        CallRoute::Worker(worker) => unsafe { worker.call(&request) },
        CallRoute::Holding(descriptor) => {
            own = Some((descriptor, *descriptor.number(parts).ok_or(EINVAL)?));
            // SAFETY: The file is open, as the contract says; the lease is of this address space.
            unsafe { execute_holding(&request, parts, descriptor) }
        }
    }?;
    if let Some(slot) = &mut lease {
        slot.finish(parts)?;
    }
    if let Some((descriptor, own)) = own {
        if let Some(number) = descriptor.number_mut(parts) {
            *number = own;
        }
    }
    Ok(answer)
}

/// Makes a call in the current task while a number in its parameters stands for a file that is
/// held, whatever other threads do to the program's descriptors.
///
/// # Safety
///
/// As for [`DriverCall::execute_reduced`].
unsafe fn execute_holding(
    request: &DriverCall<'_>,
    parts: &[Part<'_>],
    descriptor: Descriptor<'_>,
) -> Result<i32> {
    let place = Lease::place(parts, descriptor.part, descriptor.offset)?;
    request.lease.ok_or(EINVAL)?.put(place, one_file::NUMBER)?;
    // SAFETY: The request's file is open and of the driver behind its `backing`; its lease is of
    // the current address space.
    let execute = || unsafe { request.execute_reduced() };
    one_file::with_only(descriptor.file, execute)?
}

/// As [`forward`] with [`CallRoute::Caller`], but it also works while the task is being killed.
///
/// # Safety
///
/// As for [`forward`].
pub(in crate::os_interface) unsafe fn forward_always(
    file: NonNull<bindings::file>,
    backing: &BackingFile,
    cmd: u32,
    parts: &mut [Part<'_>],
) -> Result<i32> {
    let mut slot = Lease::take_always()?;
    let request = DriverCall {
        file,
        backing,
        cmd,
        arg: slot.fill(parts)?,
        lease: Some(&slot),
    };
    // SAFETY: The file is open, as the contract says; the lease is of this address space.
    let answer = unsafe { request.execute_reduced() }?;
    slot.finish(parts)?;
    Ok(answer)
}
