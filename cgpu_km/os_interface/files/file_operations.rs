// SPDX-License-Identifier: GPL-2.0
//! The file operations of every proxied node: an open file that the NVIDIA driver takes for its
//! own.
//!
//! The driver knows its files by their inode's number and by what it put into `private_data`. So
//! `open` lets the file of the caller take over the backing file's inode and calls the driver's
//! `open` for it. From then on a descriptor of this file may stand in any parameter of the driver,
//! and no file that is not proxied is ever in the caller's reach. (Two checks look at the file's
//! operations as well: that is what the [worker](crate::os_interface::calls::worker) is for.)
//!
//! # What `open` takes over and what `release` gives back
//!
//! | | after `open` | why it balances |
//! |---|---|---|
//! | `f_inode`, `f_mapping` | the driver's | put back in `release` (1) |
//! | `cdev` of our node, and its module | dropped | `__fput` looks at the driver's inode |
//! | `cdev` of the driver, and its module | one more | `__fput` drops it for that inode |
//! | `f_op` | the session's | the node's table again in `release`; same owner |
//!
//! (1) `__fput` read `f_inode` before, but gives back the read count (`put_file_access`) after.
//!
//! All fields are changed before anybody else can see the file (in `open`) or when nobody can any
//! more (in `release`). The session holds the backing file, and with it the real inode and the
//! driver; the file holds this module through the owner of its operations.

use super::{
    first_memory::FirstMemory,
    opening::{
        NodeSide,
        OwnMappings,
        OwnedFile, //
    },
    registers,
    session::{
        release,
        session,
        Endpoint,
        FileSession, //
    },
    vm_operations::make, //
};
use crate::{
    os_interface::{
        base::{
            creds::{
                self,
                KeptCreds, //
            },
            extra,
            vma::NewVma, //
        },
        calls::{
            caller::Caller,
            open_file::OpenFile, //
        },
        driver::backing_file::BackingFile,
        gate::GatedFile,
        scratch::recent::Recent, //
    },
    proxy::UserAddr, //
};
use core::{
    mem::MaybeUninit,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::{
        from_result,
        to_result, //
    },
    prelude::*,
    sync::Arc, //
};

/// Opens `filp`, a file of the node that `inode` is, as a proxied file of `endpoint`: what the
/// `open` operation of a node returns.
///
/// # Safety
///
/// Called from the `open` file operation with its own arguments and nothing else done to them;
/// `filp->f_op` is a static table of this module. What endpoints have for their backing file, no
/// endpoint of another type has.
pub(in crate::os_interface) unsafe fn open_endpoint<E: Endpoint>(
    inode: *mut bindings::inode,
    filp: *mut bindings::file,
    endpoint: &Arc<E>,
) -> Result {
    let filp = NonNull::new(filp).ok_or(EINVAL)?;
    // SAFETY: The argument of an `open` that runs.
    let opening = unsafe { OwnedFile::new(filp) };
    // SAFETY: It is being opened on this inode, and its operations are a static table.
    let node = unsafe { opening.node(inode) }?;
    endpoint.may_open()?;
    let backing = endpoint.backing()?;
    let handle = OpenFile::new(backing.clone())?;
    let file = endpoint.open(&handle)?;
    let shows = E::shows_objects(&file);
    let own = match shows.then(OwnMappings::new).transpose() {
        Ok(own) => own,
        Err(e) => {
            E::release(file);
            return Err(e);
        }
    };
    let mut session = FileSession::<E> {
        operations: MaybeUninit::uninit(),
        own,
        node,
        backing,
        gated: None,
        first: FirstMemory::new(),
        recent: Recent::new(),
        opener: None,
        handle,
        file,
    };
    // The session must be there before the driver's `open`, after which nothing may fail.
    let place = match KBox::<FileSession<E>>::new_uninit(GFP_KERNEL_ACCOUNT) {
        Ok(place) => place,
        Err(e) => {
            E::release(session.file);
            return Err(e.into());
        }
    };
    match take_over(&opening, &session.node, &session.backing) {
        Ok(opener) => {
            session.opener = opener;
            if let Some(own) = &session.own {
                own.give(&opening);
            }
            let gate = E::gate(&session.file).cloned();
            // SAFETY: The driver has opened the file, which has its list of mappings now; `release`
            // calls `close`.
            session.gated = gate.and_then(|gate| unsafe { GatedFile::new(gate, filp) });
        }
        Err(e) => {
            E::refused(&session.file);
            E::release(session.file);
            return Err(e);
        }
    }
    let session = KBox::into_raw(KBox::write(place, session));
    // SAFETY: The box is there, and has the operations as its first field.
    let table = unsafe { (*session).operations.as_mut_ptr() };
    // SAFETY: A place for them, and static functions; the driver's file is open.
    unsafe {
        let real = (*session).backing.as_ptr();
        extra::cgpu_shim_file_operations(table, real, const { &callbacks::<E>() }, shows);
    }
    // INVARIANT: The box is leaked to the file until `release`.
    opening.set_operations(table.cast());
    // SAFETY: The box is initialized; the driver has opened the file, and `release` closes the
    // handle.
    unsafe { (*session).handle.set(filp) };
    Ok(())
}

/// The functions behind the operations of a session's file.
const fn callbacks<E: Endpoint>() -> extra::cgpu_file_callbacks {
    extra::cgpu_file_callbacks {
        release: Some(release::<E>),
        ioctl: Some(ioctl::<E>),
        compat_ioctl: Some(compat_ioctl::<E>),
        mmap: Some(mmap::<E>),
        entered: Some(entered::<E>),
        poll: Some(poll::<E>),
    }
}

/// Makes a file one of the driver: takes the inode over and has the driver open it. Returned are
/// the credentials under which it did so, if they had to be reduced. On failure everything is as
/// before.
fn take_over(
    opening: &OwnedFile,
    node: &NodeSide,
    backing: &BackingFile,
) -> Result<Option<KeptCreds>> {
    let real_cdev = CdevRef::of_open(backing)?;
    opening.become_real(backing);
    let mut opener = None;
    let (real, file) = (backing.as_ptr(), opening.as_non_null().as_ptr());
    let opened = creds::reduced_by(&mut opener, || {
        // SAFETY: The inode is the driver's, and the new file refers to it, as in the VFS's call.
        to_result(unsafe { extra::cgpu_shim_driver_open(real, file) })
    });
    if let Err(e) = opened.and_then(|opened| opened) {
        // `chrdev_open` and `do_dentry_open` clean up on our own inode.
        opening.become_node(node);
        return Err(e);
    }
    // From here on `__fput` puts the driver's cdev, not ours.
    real_cdev.leave_to_fput();
    // A host node was opened through `chrdev_open`, which took a reference of our cdev and of this
    // module; a proxy node has no cdev.
    // SAFETY: The inode is valid during its `open`, and has its cdev as long as that is open.
    let node_cdev = unsafe { extra::cgpu_shim_node_cdev(node.inode()) };
    if let Some(cdev) = NonNull::new(node_cdev) {
        // SAFETY: `chrdev_open` took this reference for this file; it is valid until given back.
        drop(unsafe { CdevRef::from_taken(cdev) });
    }
    Ok(opener)
}

/// A reference of a `cdev` and of its module, as `cdev_get` takes them.
struct CdevRef(NonNull<bindings::cdev>);

impl CdevRef {
    /// Takes a reference of the cdev of a device that is open.
    fn of_open(backing: &BackingFile) -> Result<Self> {
        // SAFETY: An open device's inode has its cdev.
        let cdev = unsafe { extra::cgpu_shim_node_cdev(backing.inode()) };
        let cdev = NonNull::new(cdev).ok_or(ENXIO)?;
        // SAFETY: The open file holds the cdev.
        if !unsafe { extra::cgpu_shim_take_cdev(cdev.as_ptr()) } {
            return Err(ENXIO);
        }
        Ok(Self(cdev))
    }

    /// A reference that somebody took already.
    ///
    /// # Safety
    ///
    /// The reference is given to the result.
    unsafe fn from_taken(cdev: NonNull<bindings::cdev>) -> Self {
        Self(cdev)
    }

    /// Leaves the reference to the file, whose `__fput` gives it back.
    fn leave_to_fput(self) {
        core::mem::forget(self);
    }
}

impl Drop for CdevRef {
    fn drop(&mut self) {
        // SAFETY: The reference is ours, and is given back here.
        unsafe { extra::cgpu_shim_drop_cdev(self.0.as_ptr()) };
    }
}

/// An ioctl on a proxied file.
///
/// # Safety
///
/// `filp` is an open proxied file of `E`.
unsafe fn call<E: Endpoint>(filp: *mut bindings::file, cmd: c_uint, arg: c_ulong) -> Result<i32> {
    // SAFETY: The file is one of `E`, as this function's contract says.
    let session = unsafe { session::<E>(filp) };
    let file = NonNull::new(filp).ok_or(EINVAL)?;
    // SAFETY: The VFS holds the file open during the call; the session's backing file is the one
    // that it was opened on.
    let mut caller = unsafe { Caller::new(file, &session.backing, &session.recent) };
    // CAST: c_ulong is 64 bits wide.
    E::ioctl(&session.file, &mut caller, cmd, UserAddr::new(arg as u64))
}

/// The return value of an ioctl.
fn answer(result: Result<i32>) -> c_long {
    // CAST: from 32 to 64 bits.
    match result {
        Ok(value) => value as c_long,
        Err(e) => e.to_errno() as c_long,
    }
}

unsafe extern "C" fn ioctl<E: Endpoint>(
    filp: *mut bindings::file,
    cmd: c_uint,
    arg: c_ulong,
) -> c_long {
    // SAFETY: The VFS calls this through the session's own operations.
    answer(unsafe { call::<E>(filp, cmd, arg) })
}

unsafe extern "C" fn compat_ioctl<E: Endpoint>(
    filp: *mut bindings::file,
    cmd: c_uint,
    arg: c_ulong,
) -> c_long {
    // As compat_ptr() does: a 32-bit process has addresses of 32 bits.
    // CAST: c_ulong is 64 bits wide.
    let arg = arg & u32::MAX as c_ulong;
    // SAFETY: The VFS calls this through the session's own operations.
    answer(unsafe { call::<E>(filp, cmd, arg) })
}

unsafe extern "C" fn mmap<E: Endpoint>(
    filp: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    from_result(|| {
        let file = NonNull::new(filp).ok_or(EINVAL)?;
        // SAFETY: The VFS calls this through the session's own operations.
        let session = unsafe { session::<E>(filp) };
        // SAFETY: The argument of an `mmap` that runs.
        let vma = unsafe { NewVma::new(vma) };
        // SAFETY: The mapping is of this file, and the session is the file's.
        unsafe { make(session, file, vma) }
    })
}

unsafe extern "C" fn entered<E: Endpoint>(
    filp: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    from_result(|| {
        let file = NonNull::new(filp).ok_or(EINVAL)?;
        // SAFETY: The kernel has entered the mapping, and its lock is held for writing.
        let vma = unsafe { NewVma::new(vma) };
        // SAFETY: These operations are given to files of `E` alone.
        unsafe { registers::enter::<E>(file, vma) }
    })
}

unsafe extern "C" fn poll<E: Endpoint>(
    filp: *mut bindings::file,
    table: *mut bindings::poll_table_struct,
) -> bindings::__poll_t {
    // SAFETY: The VFS calls this through the session's own operations.
    let session = unsafe { session::<E>(filp) };
    // SAFETY: The arguments are those of this `poll`, and the file is one that the driver opened.
    unsafe { extra::cgpu_shim_driver_poll(session.backing.as_ptr(), filp, table) }
}
