// SPDX-License-Identifier: GPL-2.0
//! The control device: a misc device for the host's root alone.
//!
//! The kernel crate has misc devices, but its file operations name no owner, so that the module
//! could be unloaded under an open file; these do. To open it and for each of its commands a caller
//! needs CAP_SYS_ADMIN in the initial user namespace, whatever the mode of the node says and
//! whoever passed the file on.
//!
//! A file can be polled: it is readable (POLLIN, POLLPRI) when something has changed since a
//! command on it told the state last, or since it was opened.

use super::changes::Changes;
use crate::{
    os_interface::base::extra,
    proxy::UserAddr, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    container_of,
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    types::Opaque, //
};
use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes, //
};

/// The implementation of the commands.
pub trait Control: Send + Sync + 'static {
    /// One command, by a caller who has CAP_SYS_ADMIN; called by many tasks at once.
    fn ioctl(&self, cmd: u32, arg: UserAddr) -> Result<i32>;

    /// The changes for which files of the device can be polled.
    fn changes(&self) -> &Changes;

    /// Whether a command tells the state in which something may have changed.
    fn tells(cmd: u32) -> bool;
}

/// An open file of the device.
struct Opened {
    /// The device, as `misc_open` knows it.
    device: NonNull<c_void>,
    /// How much of the changes has been told through this file.
    seen: Atomic<u64>,
}

/// Copies a record from the caller, once.
pub fn read_record<T: FromBytes + IntoBytes>(from: UserAddr) -> Result<T> {
    let mut record = T::new_zeroed();
    from.read(record.as_mut_bytes())?;
    Ok(record)
}

/// Copies a record to the caller.
pub fn write_record<T: IntoBytes + Immutable>(to: UserAddr, record: &T) -> Result {
    to.write(record.as_bytes())
}

/// Whether the caller has CAP_SYS_ADMIN in the initial user namespace.
pub fn is_host_admin() -> bool {
    // CAST: a capability's number.
    let capability = bindings::CAP_SYS_ADMIN as c_int;
    // SAFETY: `capable` looks at the current task alone, and takes any capability.
    unsafe { bindings::capable(capability) }
}

/// The registered device; it goes when this is dropped.
///
/// # Invariants
///
/// `device` is registered.
#[pin_data(PinnedDrop)]
pub struct ControlDevice<C: Control> {
    #[pin]
    device: Opaque<extra::cgpu_misc_device>,
    control: C,
}

// SAFETY: `device` is never changed between registration and removal, but by the
// kernel under its own lock; `C` may be used by any task.
unsafe impl<C: Control> Send for ControlDevice<C> {}
// SAFETY: Nothing changes `device` by a shared reference, and `C` is `Sync`.
unsafe impl<C: Control> Sync for ControlDevice<C> {}

impl<C: Control> ControlDevice<C> {
    const CALLBACKS: extra::cgpu_misc_callbacks = extra::cgpu_misc_callbacks {
        open: Some(Self::open),
        release: Some(Self::release),
        poll: Some(Self::poll),
        // The records have one layout for 32-bit and 64-bit callers.
        ioctl: Some(Self::ioctl),
    };

    /// Makes `/dev/<name>`, mode 0600.
    pub fn register(name: &'static CStr, control: C) -> Result<Arc<Self>> {
        // INVARIANT: `device` is the last field that is initialized.
        Arc::pin_init(
            try_pin_init!(Self {
                control,
                device <- Opaque::try_ffi_init(|place: *mut extra::cgpu_misc_device| {
                    let name = name.as_char_ptr();
                    // SAFETY: `place` is one that stays, and the name a static string.
                    to_result(unsafe {
                        extra::cgpu_shim_register_misc(place, name, &Self::CALLBACKS)
                    })
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// # Safety
    ///
    /// `file` is being opened on a device of a `ControlDevice<C>`.
    unsafe extern "C" fn open(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: The arguments are those of this `open`.
        match unsafe { Self::opened(file) } {
            Ok(()) => 0,
            Err(e) => e.to_errno(),
        }
    }

    /// # Safety
    ///
    /// As for [`Self::open`].
    unsafe fn opened(file: *mut bindings::file) -> Result {
        if !is_host_admin() {
            return Err(EPERM);
        }
        // SAFETY: The file is being opened; `misc_open` has put the device into its private data.
        let device = NonNull::new(unsafe { extra::cgpu_shim_file_data(file) }).ok_or(ENODEV)?;
        // SAFETY: It is the device that `misc_open` found, whose file is being opened.
        let this = unsafe { Self::of(device) };
        let seen = Atomic::new(this.control.changes().count());
        let opened = KBox::new(Opened { device, seen }, GFP_KERNEL)?;
        // SAFETY: The file is being opened, so nobody else uses it.
        unsafe { extra::cgpu_shim_set_file_data(file, KBox::into_raw(opened).cast()) };
        Ok(())
    }

    /// # Safety
    ///
    /// `file` was opened by [`Self::open`], and nobody uses it any more.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: `open` put a box there, which nobody has taken.
        drop(unsafe { KBox::from_raw(extra::cgpu_shim_file_data(file).cast::<Opened>()) });
        0
    }

    /// # Safety
    ///
    /// `device` is a device of a `ControlDevice<C>` as `misc_open` has it, and a file of it is
    /// open.
    unsafe fn of<'a>(device: NonNull<c_void>) -> &'a Self {
        // SAFETY: That is the device of a `ControlDevice<C>`, which goes with the module only, and
        // the open file holds the module.
        unsafe {
            &*container_of!(
                Opaque::cast_from(device.as_ptr().cast::<extra::cgpu_misc_device>()),
                Self,
                device
            )
        }
    }

    /// # Safety
    ///
    /// `file` was opened by [`Self::open`], and is open for as long as the result is used.
    unsafe fn parts<'a>(file: *mut bindings::file) -> (&'a Self, &'a Opened) {
        // SAFETY: `open` put a box there, which stays until `release`.
        let opened = unsafe { &*extra::cgpu_shim_file_data(file).cast::<Opened>() };
        // SAFETY: `open` found the device.
        (unsafe { Self::of(opened.device) }, opened)
    }

    /// # Safety
    ///
    /// The arguments are those of a `poll` of a file that was opened by [`Self::open`].
    unsafe extern "C" fn poll(
        file: *mut bindings::file,
        table: *mut bindings::poll_table,
    ) -> bindings::__poll_t {
        if !is_host_admin() {
            return bindings::POLLERR;
        }
        // SAFETY: `open` opened the file, and the VFS holds it open during the call.
        let (this, opened) = unsafe { Self::parts(file) };
        let changes = this.control.changes();
        // SAFETY: The arguments are those of this `poll`.
        unsafe { changes.wait(file, table) };
        if changes.count() == opened.seen.load(Relaxed) {
            0
        } else {
            bindings::POLLIN | bindings::POLLRDNORM | bindings::POLLPRI
        }
    }

    /// # Safety
    ///
    /// `file` was opened by [`Self::open`].
    unsafe extern "C" fn ioctl(file: *mut bindings::file, cmd: c_uint, arg: c_ulong) -> c_long {
        // CAST: an errno.
        let refuse = |e: Error| e.to_errno() as c_long;
        if !is_host_admin() {
            return refuse(EPERM);
        }
        // SAFETY: `open` opened the file, and the VFS holds it open during the call.
        let (this, opened) = unsafe { Self::parts(file) };
        if C::tells(cmd) {
            // Before the state is looked at: what changes meanwhile is told once more.
            let count = this.control.changes().count();
            opened.seen.store(count, Relaxed);
        }
        // CAST: `c_ulong` is 64 bits wide on every architecture that the module is built for.
        let arg = UserAddr::new(arg as u64);
        match this.control.ioctl(cmd, arg) {
            // CAST: `c_long` is at least as wide.
            Ok(value) => value as c_long,
            Err(e) => refuse(e),
        }
    }
}

#[pinned_drop]
impl<C: Control> PinnedDrop for ControlDevice<C> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: It is registered by the type's invariant.
        unsafe { bindings::misc_deregister(self.device.get().cast()) };
    }
}
