// SPDX-License-Identifier: GPL-2.0
//! The control device: a misc device for the host's root alone.
//!
//! The kernel crate has misc devices, but its file operations name no owner, so that the module
//! could be unloaded under an open file; these do. To open it and for each of its commands a caller
//! needs CAP_SYS_ADMIN in the initial user namespace, whatever the mode of the node says and
//! whoever passed the file on.

use super::user::UserAddr;
use kernel::{bindings, container_of, error::to_result, prelude::*, sync::Arc, types::Opaque};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// What carries out the commands.
pub trait Control: Send + Sync + 'static {
    /// One command, by a caller who has CAP_SYS_ADMIN; called by many tasks at once.
    fn ioctl(&self, cmd: u32, arg: UserAddr) -> Result<i32>;
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
    // SAFETY: No requirement.
    unsafe { bindings::capable(capability) }
}

/// The registered device; it goes when this is dropped.
///
/// # Invariants
///
/// `device` is registered with `operations` as its operations.
#[pin_data(PinnedDrop)]
pub struct ControlDevice<C: Control> {
    #[pin]
    device: Opaque<bindings::miscdevice>,
    operations: bindings::file_operations,
    control: C,
}

// SAFETY: `device` and `operations` are never changed between registration and removal, but by the
// kernel under its own lock; `C` may be used by any task.
unsafe impl<C: Control> Send for ControlDevice<C> {}
// SAFETY: As above.
unsafe impl<C: Control> Sync for ControlDevice<C> {}

impl<C: Control> ControlDevice<C> {
    /// Makes `/dev/<name>`, mode 0600.
    pub fn register(name: &'static CStr, control: C) -> Result<Arc<Self>> {
        // INVARIANT: `device` is the last field that is initialized.
        Arc::pin_init(
            try_pin_init!(&this in Self {
                operations: bindings::file_operations {
                    owner: crate::THIS_MODULE.as_ptr(),
                    open: Some(Self::open),
                    unlocked_ioctl: Some(Self::ioctl),
                    // The records have one layout for 32-bit and 64-bit callers.
                    #[cfg(CONFIG_COMPAT)]
                    compat_ioctl: bindings::compat_ptr_ioctl,
                    ..pin_init::zeroed()
                },
                control,
                device <- Opaque::try_ffi_init(|device: *mut bindings::miscdevice| {
                    let options = bindings::miscdevice {
                        // CAST: 255, which asks for any free minor.
                        minor: bindings::MISC_DYNAMIC_MINOR as c_int,
                        name: name.as_char_ptr(),
                        // SAFETY: `this` is the pinned place; `operations` was written above.
                        fops: unsafe { &raw const (*this.as_ptr()).operations },
                        mode: 0o600,
                        ..pin_init::zeroed()
                    };
                    // SAFETY: `device` is the place to initialize.
                    unsafe { device.write(options) };
                    // SAFETY: It is initialized, and stays where it is.
                    to_result(unsafe { bindings::misc_register(device) })
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// # Safety
    ///
    /// `file` is being opened on a device of a `ControlDevice<C>`.
    unsafe extern "C" fn open(_inode: *mut bindings::inode, _file: *mut bindings::file) -> c_int {
        // `misc_open` has put the device into the file's private data, where it stays.
        if is_host_admin() {
            0
        } else {
            EPERM.to_errno()
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
        // SAFETY: The file is open, and its private data are what `misc_open` put there.
        let device = unsafe { (*file).private_data };
        // SAFETY: That is the device of a `ControlDevice<C>`, which goes with the module only, and
        // the open file holds the module.
        let this = unsafe {
            &*container_of!(
                Opaque::cast_from(device.cast::<bindings::miscdevice>()),
                Self,
                device
            )
        };
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
        unsafe { bindings::misc_deregister(self.device.get()) };
    }
}
