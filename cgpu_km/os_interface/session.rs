// SPDX-License-Identifier: GPL-2.0
//! The file operations of every proxied node: an open file that the NVIDIA driver takes for its own.
//!
//! The driver knows its files by their inode's number and by what it put into `private_data`. So
//! `open` lets the file of the caller take over the backing file's inode and calls the driver's
//! `open` for it. From then on a descriptor of this file may stand in any parameter of the driver,
//! and no file that is not proxied is ever in the caller's reach. (Two checks look at the file's
//! operations as well: that is what the [worker](super::worker) is for.)
//!
//! What is ours of an open file, its [`Session`], has no place in a file that the driver fills. It
//! embeds the file's own table of operations instead, so it is found from `f_op`: no lookup, no lock.
//!
//! # What `open` takes over and what `release` gives back
//!
//! | | after `open` | why it balances |
//! |---|---|---|
//! | `f_inode`, `f_mapping` | the driver's | put back in `release`: `__fput` read `f_inode` before, but gives back the read count (`put_file_access`) after |
//! | `cdev` of our node, and its module | dropped | `__fput` will not find it, since it looks at the driver's inode |
//! | `cdev` of the driver, and its module | one more | `__fput` drops it for the inode that it read |
//! | `f_op` | the session's | the node's table again in `release`, before the session goes; same owner |
//!
//! All fields are changed before anybody else can see the file (in `open`) or when nobody can any
//! more (in `release`). The session holds the backing file, and with it the real inode and the
//! driver; the file holds this module through the owner of its operations.

use super::{
    caller::Caller,
    creds::{self, Kept},
    doorbell::Doorbell,
    gate::Gate,
    mapping::{make, AtOnce, Mapping, Mappings, Pages, Shown, Unmapped},
    open_file::OpenFile,
    registers,
    scratch::Recent,
    worker::QueueKey,
    BackingFile, UserAddr,
};
use core::ptr::{null_mut, NonNull};
use kernel::{bindings, error::to_result, prelude::*, sync::Arc};

/// What a node stands for.
pub trait Endpoint: Send + Sync + 'static {
    /// What belongs to one open file.
    type File: Send + Sync + 'static;

    /// The real device behind the node; `ENODEV` once the endpoint is destroyed.
    fn backing(&self) -> Result<Arc<BackingFile>>;

    /// In whose turn the jobs of its files go to a worker.
    fn queue(&self) -> QueueKey;

    /// A file is opened. [`Endpoint::release`] is called for what this returns, always: also when
    /// the driver's `open` refuses afterwards. `handle` is for calls on the file from elsewhere.
    fn open(self: &Arc<Self>, handle: &OpenFile) -> Result<Self::File>;

    /// A call, native or of a 32-bit process. The result is what the program gets.
    fn ioctl(file: &Self::File, call: &mut Caller<'_>, cmd: u32, arg: UserAddr) -> Result<i32>;

    /// The gate of a file that may show registers: always the same. Without one, [`Shown::Gated`] is an error.
    fn gate(_file: &Self::File) -> Option<&Arc<Gate>> {
        None
    }

    /// The doorbell that a file's mappings show in the place of the driver's own: for a file, there is none, or the same
    /// from some moment on.
    fn doorbell(_file: &Self::File) -> Option<&Doorbell> {
        None
    }

    /// The driver has made a mapping: what the program is to have. An error takes it away again, and
    /// is what `mmap` gives. For this one and [`Endpoint::unmapped`] see the rules on locks in
    /// [`mapping`](super::mapping).
    fn mapped<'a>(_file: &'a Self::File, _made: &Mapping, _pages: &Pages<'_>) -> Result<Shown<'a>> {
        Ok(Shown::AsMade)
    }

    /// What is left to do before the program gets a mapping of which [`Endpoint::mapped`] said
    /// [`Shown::Later`]. `late`: more time has passed since than the driver's own calls take.
    fn settle(_file: &Self::File, _call: &mut Caller<'_>, _made: &Mapping, _late: bool) {}

    /// A program touched registers whose gate is not open. Under the gate's lock.
    fn rang(_file: &Self::File) {}

    /// A mapping, or the part of one that this says, is gone, for the driver too. Fork, `mremap` and a
    /// split make mappings that nobody tells of, and whose end is told. (Of UVM's managed memory a
    /// child or a moved mapping has none: `uvm_vm_open_managed()` disables the copy.)
    fn unmapped(_file: &Self::File, _gone: &Mapping, _how: Unmapped) {}

    /// The file is closed, and the driver's `release` has run.
    fn release(file: Self::File);
}

/// An open proxied file.
///
/// # Invariants
///
/// While a file's `f_op` points to `operations`, the session is pinned in a box that the file owns,
/// and `backing` is what the file was opened on.
#[repr(C)]
pub(super) struct Session<E: Endpoint> {
    /// First, so that a pointer to it is one to the session.
    operations: bindings::file_operations,
    /// The node's own operations, put back in `release`.
    node_operations: *const bindings::file_operations,
    /// The node's own inode, pinned by the file's path.
    node_inode: *mut bindings::inode,
    backing: Arc<BackingFile>,
    queue: QueueKey,
    mappings: Mappings,
    /// The scratch of the last call.
    recent: Recent,
    /// Reduced, if there was anything to reduce.
    opener: Option<Kept>,
    handle: OpenFile,
    file: E::File,
}

impl<E: Endpoint> Session<E> {
    pub(super) fn backing(&self) -> &BackingFile {
        &self.backing
    }

    pub(super) fn queue(&self) -> QueueKey {
        self.queue
    }

    pub(super) fn recent(&self) -> &Recent {
        &self.recent
    }

    pub(super) fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    /// The credentials of who opened the file, for calls by the same ones.
    pub(super) fn opener(&self) -> Option<&Kept> {
        self.opener.as_ref()
    }

    pub(super) fn file(&self) -> &E::File {
        &self.file
    }
}

/// Opens `filp`, a file of the node that `inode` is, as a proxied file of `endpoint`. For the `open`
/// operation of a node; its result is what that returns.
///
/// # Safety
///
/// Called from the `open` file operation with its own arguments and nothing else done to them;
/// `filp->f_op` is a static table of this module. What endpoints have for their backing file, no endpoint of
/// another type has.
pub(super) unsafe fn open_endpoint<E: Endpoint>(
    inode: *mut bindings::inode,
    filp: *mut bindings::file,
    endpoint: &Arc<E>,
) -> Result {
    let filp = NonNull::new(filp).ok_or(EINVAL)?;
    let backing = endpoint.backing()?;
    let handle = OpenFile::new(backing.clone())?;
    let file = endpoint.open(&handle)?;
    // SAFETY: The caller promises that `filp` is being opened, so nobody else uses it.
    let node_operations = unsafe { (*filp.as_ptr()).f_op };
    // SAFETY: The caller promises that it is a static table.
    let owner = unsafe { (*node_operations).owner };
    let real = backing.operations();
    let gated = E::gate(&file).is_some();
    let mut session = Session::<E> {
        operations: bindings::file_operations {
            owner,
            release: Some(release::<E>),
            unlocked_ioctl: real.unlocked_ioctl.and(Some(ioctl::<E>)),
            compat_ioctl: real.compat_ioctl.and(Some(compat_ioctl::<E>)),
            mmap: real.mmap.filter(|_| !gated).and(Some(mmap::<E>)),
            mmap_prepare: real.mmap.filter(|_| gated).and(Some(mmap_prepare::<E>)),
            poll: real.poll.and(Some(poll::<E>)),
            ..pin_init::zeroed()
        },
        node_operations,
        node_inode: inode,
        queue: endpoint.queue(),
        backing,
        mappings: Mappings::new(),
        recent: Recent::new(),
        opener: None,
        handle,
        file,
    };
    // The session must be there before the driver's `open`, after which nothing may fail.
    let place = match KBox::<Session<E>>::new_uninit(GFP_KERNEL_ACCOUNT) {
        Ok(place) => place,
        Err(e) => {
            E::release(session.file);
            return Err(e.into());
        }
    };
    // SAFETY: `inode` and `filp` are those of this `open`, by our own contract.
    match unsafe { take_over(inode, filp, &session.backing) } {
        Ok(opener) => session.opener = opener,
        Err(e) => {
            E::release(session.file);
            return Err(e);
        }
    }
    let session = KBox::into_raw(KBox::write(place, session));
    // INVARIANT: The box is leaked to the file until `release`.
    // SAFETY: `filp` is being opened, so nobody else uses it; the box is initialized.
    unsafe { (*filp.as_ptr()).f_op = &raw const (*session).operations };
    // SAFETY: The box is initialized; the driver has opened the file, and `release` closes the handle.
    unsafe { (*session).handle.set(filp) };
    Ok(())
}

/// Makes `filp` a file of the driver: takes the inode over and has the driver open it. What is returned are the
/// credentials that it did so with, if they had to be reduced. On failure everything is as before.
///
/// # Safety
///
/// `inode` and `filp` are those of an `open` file operation that is running.
unsafe fn take_over(
    inode: *mut bindings::inode,
    filp: NonNull<bindings::file>,
    backing: &BackingFile,
) -> Result<Option<Kept>> {
    let filp = filp.as_ptr();
    let real_inode = backing.inode();
    let real_cdev = CdevRef::get(real_inode)?;
    // SAFETY: The file is being opened, so nobody else uses its fields; all three lines.
    let node_mapping = unsafe { (*filp).f_mapping };
    // SAFETY: The real inode is valid as long as the backing file.
    let real_mapping = unsafe { (*real_inode).i_mapping };
    // SAFETY: As above.
    unsafe { (*filp).f_inode = real_inode };
    // SAFETY: As above.
    unsafe { (*filp).f_mapping = real_mapping };
    // SAFETY: As above.
    unsafe { (*filp).private_data = null_mut() };
    let mut opener = None;
    let opened = creds::reduced_by(&mut opener, || match backing.operations().open {
        // SAFETY: As the VFS would call it: the inode is the driver's, the file refers to it.
        Some(open) => to_result(unsafe { open(real_inode, filp) }),
        None => Ok(()),
    });
    if let Err(e) = opened.and_then(|opened| opened) {
        // `chrdev_open` and `do_dentry_open` clean up on our own inode.
        // SAFETY: As above.
        unsafe { (*filp).f_inode = inode };
        // SAFETY: As above.
        unsafe { (*filp).f_mapping = node_mapping };
        // SAFETY: As above.
        unsafe { (*filp).private_data = null_mut() };
        return Err(e);
    }
    // From here on `__fput` puts the driver's cdev, not ours.
    real_cdev.leave_to_fput();
    // An honest node was opened through `chrdev_open`, which took a reference of our cdev and of
    // this module; a twin has no cdev.
    // SAFETY: The inode is valid during its `open`, and has its cdev as long as that is open.
    let node_cdev = unsafe { (*inode).__bindgen_anon_5.i_cdev };
    if let Some(cdev) = NonNull::new(node_cdev) {
        // SAFETY: `chrdev_open` took this reference for this file; it is valid until given back.
        drop(unsafe { CdevRef::from_taken(cdev) });
    }
    Ok(opener)
}

/// A reference of a `cdev` and of its module, as `cdev_get` takes them.
struct CdevRef(NonNull<bindings::cdev>);

impl CdevRef {
    /// Takes a reference of the cdev of the driver's inode.
    fn get(inode: *mut bindings::inode) -> Result<Self> {
        // SAFETY: The caller has the inode open, and an open device's inode has its cdev.
        let cdev = NonNull::new(unsafe { (*inode).__bindgen_anon_5.i_cdev }).ok_or(ENXIO)?;
        // SAFETY: The open file holds the cdev.
        let owner = unsafe { (*cdev.as_ptr()).owner };
        // SAFETY: The cdev's owner is a module or null, both of which are allowed.
        if !unsafe { bindings::try_module_get(owner) } {
            return Err(ENXIO);
        }
        // SAFETY: The open file holds the cdev, so the object is valid.
        let taken = unsafe { bindings::kobject_get_unless_zero(&raw mut (*cdev.as_ptr()).kobj) };
        if taken.is_null() {
            // SAFETY: Taken above.
            unsafe { bindings::module_put(owner) };
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
        let cdev = self.0.as_ptr();
        // SAFETY: The reference is ours, so the cdev is valid.
        let owner = unsafe { (*cdev).owner };
        // SAFETY: As above; it is given back here.
        unsafe { bindings::kobject_put(&raw mut (*cdev).kobj) };
        // SAFETY: The reference of the module is ours, too.
        unsafe { bindings::module_put(owner) };
    }
}

/// The session of an open file.
///
/// # Safety
///
/// `filp` is an open file on which [`open_endpoint`] of the same `E` succeeded, and outlives `'a`.
pub(super) unsafe fn session<'a, E: Endpoint>(filp: *mut bindings::file) -> &'a Session<E> {
    // SAFETY: The caller promises that the file is open.
    let operations = unsafe { (*filp).f_op };
    // SAFETY: `open_endpoint` set `f_op` to the first field of a session, which lives until
    // `release` changes it back.
    unsafe { &*operations.cast() }
}

/// Whether a file was opened by [`open_endpoint`] of the same `E`. No other file has its `release`.
///
/// # Safety
///
/// `filp` is open.
pub(super) unsafe fn is_of<E: Endpoint>(filp: *mut bindings::file) -> bool {
    // SAFETY: The caller promises that the file is open; its operations change in `open`, before anybody
    // else can see it, and in `release`.
    let operations = unsafe { (*filp).f_op };
    // SAFETY: The operations of an open file are valid.
    let theirs = unsafe { (*operations).release };
    let ours: unsafe extern "C" fn(*mut bindings::inode, *mut bindings::file) -> c_int =
        release::<E>;
    theirs.is_some_and(|theirs| core::ptr::fn_addr_eq(theirs, ours))
}

/// What belongs to an open file.
///
/// # Safety
///
/// As for [`session`].
pub(super) unsafe fn file_of<'a, E: Endpoint>(filp: *mut bindings::file) -> &'a E::File {
    // SAFETY: The caller promises it.
    &unsafe { session::<E>(filp) }.file
}

/// An ioctl on a proxied file.
///
/// # Safety
///
/// As for [`session`].
unsafe fn call<E: Endpoint>(filp: *mut bindings::file, cmd: c_uint, arg: c_ulong) -> Result<i32> {
    // SAFETY: The caller promises it.
    let session = unsafe { session::<E>(filp) };
    let file = NonNull::new(filp).ok_or(EINVAL)?;
    // SAFETY: The VFS holds the file open during the call; the session's backing file is the one
    // that it was opened on.
    let mut caller = unsafe { Caller::new(file, &session.backing, session.queue, &session.recent) };
    // CAST: c_ulong is 64 bits wide.
    E::ioctl(&session.file, &mut caller, cmd, UserAddr::new(arg as u64))
}

/// What an ioctl returns.
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
    // What compat_ptr() does: a 32-bit process has addresses of 32 bits.
    // CAST: c_ulong is 64 bits wide.
    let arg = arg & u32::MAX as c_ulong;
    // SAFETY: The VFS calls this through the session's own operations.
    answer(unsafe { call::<E>(filp, cmd, arg) })
}

unsafe extern "C" fn mmap<E: Endpoint>(
    filp: *mut bindings::file,
    vma: *mut bindings::vm_area_struct,
) -> c_int {
    // SAFETY: The VFS calls this through the session's own operations.
    let session = unsafe { session::<E>(filp) };
    // SAFETY: The arguments are those of this `mmap`, and the session is the file's.
    match unsafe { make(session, filp, vma, AtOnce::TakenOut) } {
        Ok(result) => result,
        Err(e) => e.to_errno(),
    }
}

unsafe extern "C" fn mmap_prepare<E: Endpoint>(wanted: *mut bindings::vm_area_desc) -> c_int {
    // SAFETY: The VFS calls this through the session's own operations, with the mapping that is wanted of the
    // session's file.
    match unsafe { registers::prepare::<E>(wanted) } {
        Ok(()) => 0,
        Err(e) => e.to_errno(),
    }
}

unsafe extern "C" fn poll<E: Endpoint>(
    filp: *mut bindings::file,
    table: *mut bindings::poll_table_struct,
) -> bindings::__poll_t {
    // SAFETY: The VFS calls this through the session's own operations.
    let session = unsafe { session::<E>(filp) };
    match session.backing.operations().poll {
        // SAFETY: The arguments are those of this `poll`, and the file is one that the driver
        // opened.
        Some(poll) => unsafe { poll(filp, table) },
        // `open_endpoint` left `poll` out in this case.
        None => bindings::POLLERR,
    }
}

unsafe extern "C" fn release<E: Endpoint>(
    inode: *mut bindings::inode,
    filp: *mut bindings::file,
) -> c_int {
    // SAFETY: The VFS calls this through the session's own operations.
    let operations = unsafe { (*filp).f_op };
    // SAFETY: By the session's invariant the operations are the start of a box that the file owns,
    // and the last reference of the file is gone: nobody else uses it.
    let session = unsafe { KBox::from_raw(operations.cast_mut().cast::<Session<E>>()) };
    session.handle.close();
    session.mappings.leave();
    let result = match session.backing.operations().release {
        // SAFETY: `inode` is the driver's, which `__fput` read from the file.
        Some(release) => unsafe { release(inode, filp) },
        None => 0,
    };
    // SAFETY: The node's inode is pinned by the file's path until after this.
    let node_mapping = unsafe { (*session.node_inode).i_mapping };
    // SAFETY: The last reference of the file is gone, so nobody else uses its fields; all lines.
    unsafe { (*filp).f_inode = session.node_inode };
    // SAFETY: As above.
    unsafe { (*filp).f_mapping = node_mapping };
    // SAFETY: As above.
    unsafe { (*filp).private_data = null_mut() };
    // SAFETY: As above.
    unsafe { (*filp).f_op = session.node_operations };
    let Session { backing, file, .. } = KBox::into_inner(session);
    E::release(file);
    drop(backing);
    result
}
