// SPDX-License-Identifier: GPL-2.0
//! An open file of a node: the [`Endpoint`] behind the node, and the [`FileSession`] of the file.
//!
//! A file that the driver fills has no place for what is ours of it. A session embeds the file's
//! own table of operations instead, so it is found from `f_op`: no lookup, no lock.

use super::{
    first_memory::FirstMemory,
    late::{
        is_late,
        LateEnds,
        LateRest,
        LeftFile, //
    },
    mapping::{
        CopiedBy,
        Pages,
        ProgramMapping,
        Shown,
        TooManyCopies,
        Unmapped, //
    },
    opening::{
        NodeSide,
        OwnMappings,
        OwnedFile, //
    }, //
};
use crate::{
    os_interface::{
        base::{
            creds::KeptCreds,
            extra, //
        },
        calls::{
            caller::Caller,
            open_file::{
                MustWait,
                OpenFile, //
            }, //
        },
        driver::backing_file::BackingFile,
        gate::{
            doorbell::Doorbell,
            Gate,
            GatedFile, //
        },
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
    prelude::*,
    sync::Arc, //
};

/// The object behind a node.
pub trait Endpoint: Send + Sync + 'static {
    /// The endpoint's state for one open file.
    type File: Send + Sync + 'static;

    /// The real device behind the node; `ENODEV` once the endpoint is destroyed.
    fn backing(&self) -> Result<Arc<BackingFile>>;

    /// Whether a file may be opened. It may wait: nothing is held yet, and not the real device.
    fn may_open(&self) -> Result;

    /// A file is opened. [`Endpoint::release`] is called for what this returns, always: also when
    /// the driver's `open` refuses afterwards. `handle` is for calls on the file from elsewhere.
    fn open(self: &Arc<Self>, handle: &OpenFile) -> Result<Self::File>;

    /// A call, native or of a 32-bit process. The result is what the program gets.
    fn ioctl(file: &Self::File, call: &mut Caller<'_>, cmd: u32, arg: UserAddr) -> Result<i32>;

    /// Whether mappings of a file show objects of the driver's, and end when
    /// [`OpenFile::end_mappings`] says so: for a file always the same.
    fn shows_objects(file: &Self::File) -> bool;

    /// The gate of a file that may show registers: always the same. Without one, [`Shown::Gated`]
    /// is an error.
    fn gate(file: &Self::File) -> Option<&Arc<Gate>>;

    /// The doorbell that a file's mappings show in the place of the driver's own: for a file, there
    /// is none, or the same from some moment on.
    fn doorbell(file: &Self::File) -> Option<&Doorbell>;

    /// Whether the driver may be asked for a mapping; an error is what `mmap` gives. The address
    /// space is locked.
    fn may_map(file: &Self::File) -> Result;

    /// Whether one address space alone may have mappings of a file: for a file always the same.
    /// `EOPNOTSUPP` for any other than the first one that asks.
    fn maps_in_one(file: &Self::File) -> bool;

    /// The driver has refused to open the file, or to map it.
    fn refused(file: &Self::File);

    /// The driver has made a mapping: what the program is to have. An error takes it away again,
    /// and is what `mmap` gives. For this one and [`Endpoint::unmapped`] see the rules on locks in
    /// [`vm_operations`](super::vm_operations).
    fn mapped<'a>(
        file: &'a Self::File,
        made: &ProgramMapping,
        pages: &Pages<'_>,
    ) -> Result<Shown<'a>>;

    /// The rest of the work before the program gets a mapping of which [`Endpoint::mapped`] said
    /// [`Shown::Later`]. `is_late`: by now more time has passed since the driver has made it than
    /// the driver's own calls take.
    fn settle(
        file: &Self::File,
        call: &mut Caller<'_>,
        made: &ProgramMapping,
        is_late: impl Fn() -> bool,
    );

    /// A mapping of registers is made; an error takes it away again, and is what `mmap` gives. For
    /// this one and the next two, too, see the rules on locks.
    fn enter_registers(file: &Self::File) -> Result;

    /// A mapping of registers was copied. An error, for [`CopiedBy::Fork`] alone: it is one too
    /// many, so nobody can use it; it is there all the same.
    fn copy_registers(file: &Self::File, how: CopiedBy) -> Result<(), TooManyCopies>;

    /// A mapping of registers, or a copy, is gone.
    fn leave_registers(file: &Self::File);

    /// A program touched registers whose gate is not open.
    fn rang(file: &Self::File);

    /// A mapping, or the part of one that this says, is gone, for the driver too. Fork, `mremap`
    /// and a split make mappings that nobody tells of, and whose end is told. (Of UVM's managed
    /// memory a child or a moved mapping has none: `uvm_vm_open_managed()` disables the copy.)
    fn unmapped(file: &Self::File, gone: &ProgramMapping, how: Unmapped);

    /// The late ends of the file's tenant, which the file holds.
    fn late_ends(file: &Self::File) -> &LateEnds;

    /// Whether there is work before the driver's `release`, [`Endpoint::closing`], which may wait
    /// for the tenant in whatever task: for a file always the same.
    fn waits_at_end(file: &Self::File) -> bool;

    /// A file that [waits at its end](Endpoint::waits_at_end) is closed, and the driver's `release`
    /// is going to run. It may wait for the tenant.
    fn closing(file: &Self::File);

    /// As [`Endpoint::closing`], which is called later if this fails because it would wait.
    fn try_closing(file: &Self::File) -> Result<(), MustWait>;

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
pub(super) struct FileSession<E: Endpoint> {
    /// First, so that a pointer to it is one to the session.
    pub(super) operations: MaybeUninit<extra::cgpu_file_operations>,
    /// The node that the file was opened on, and is of again in `release`.
    pub(super) node: NodeSide,
    pub(super) backing: Arc<BackingFile>,
    /// If it [may map registers](Endpoint::gate).
    pub(super) gated: Option<GatedFile>,
    /// The list of its mappings, if it [shows objects](Endpoint::shows_objects) and the driver
    /// gives it none.
    pub(super) own: Option<OwnMappings>,
    /// The one that has its mappings, if it [has them in one](Endpoint::maps_in_one).
    pub(super) first: FirstMemory,
    /// The scratch of the last call.
    pub(super) recent: Recent,
    /// Reduced, if there was anything to reduce.
    pub(super) opener: Option<KeptCreds>,
    pub(super) handle: OpenFile,
    pub(super) file: E::File,
}

/// The session of an open file.
///
/// # Safety
///
/// `file` is open for `'a`, and a proxied file of `E`: `file_operations::open_endpoint` of the same
/// `E` succeeded on it.
pub(super) unsafe fn session<'a, E: Endpoint>(file: *mut bindings::file) -> &'a FileSession<E> {
    // SAFETY: The file is open, as this function's contract says.
    let operations = unsafe { extra::cgpu_shim_operations(file) };
    // SAFETY: `open_endpoint` set `f_op` to the first field of a session, which lives until
    // `release` changes it back.
    unsafe { &*operations.cast() }
}

/// Whether a file is a proxied one of `E`. No other file has its `release`.
///
/// # Safety
///
/// `file` is open.
pub(super) unsafe fn is_of<E: Endpoint>(file: *mut bindings::file) -> bool {
    // SAFETY: The file is open. Its operations change in `open`, before anybody else can see it,
    // and in `release`.
    unsafe { extra::cgpu_shim_is_released_by(file, Some(release::<E>)) }
}

/// The `release` operation: the driver's, and everything that `open` took over is put back.
pub(super) unsafe extern "C" fn release<E: Endpoint>(
    _inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    let Some(file) = NonNull::new(file) else {
        return EINVAL.to_errno();
    };
    // SAFETY: The argument of a `release` that runs.
    let closing = unsafe { OwnedFile::new(file) };
    // SAFETY: The VFS calls this through the session's own operations.
    let operations = unsafe { extra::cgpu_shim_operations(file.as_ptr()) };
    // SAFETY: By the session's invariant the operations are the start of a box that the file owns,
    // and nobody else has the file any more.
    let session = unsafe { KBox::from_raw(operations.cast::<FileSession<E>>()) };
    session.handle.close();
    if let Some(gated) = &session.gated {
        gated.close();
    }
    let (node, is_late) = (session.node, is_late());
    let waits = E::waits_at_end(&session.file);
    if is_late || (waits && E::try_closing(&session.file).is_err()) {
        let room = E::late_ends(&session.file).room();
        if let (Some(room), Some(left)) = (room, LeftFile::of(&closing)) {
            closing.become_node(&node);
            // SAFETY: The session's file holds the ends, and the file that is closing the module.
            unsafe { room.leave(LateWhole { session, left }) };
            return 0;
        }
        if waits {
            E::closing(&session.file);
        }
    }
    // SAFETY: The driver has opened the file, which nobody else has any more.
    let result = unsafe { end_in_driver(&session, file.as_ptr()) };
    closing.become_node(&node);
    let rest = Released::of(session);
    match is_late.then(|| E::late_ends(&rest.file).room()).flatten() {
        // SAFETY: The session's file holds the ends, and the caller of a `release` the module.
        Some(room) => unsafe { room.leave(rest) },
        None => rest.end(),
    }
    result
}

/// The driver's `release`.
///
/// # Safety
///
/// `file` is the one that the driver has opened, or has what that had of the driver's. The driver
/// gets it for the last time.
unsafe fn end_in_driver<E: Endpoint>(session: &FileSession<E>, file: *mut bindings::file) -> c_int {
    let (real, inode) = (session.backing.as_ptr(), session.backing.inode());
    // SAFETY: The driver has opened the file with this inode, and has not released what it keeps
    // for the file.
    unsafe { extra::cgpu_shim_driver_release(real, inode, file) }
}

/// The whole end of a file, which may wait for its tenant. The driver's part takes its time, too:
/// that of a UVM file stops the program's channels, frees its memory and may be the last to have
/// the GPU (`uvm_va_space_destroy()`, uvm_va_space.c).
struct LateWhole<E: Endpoint> {
    session: KBox<FileSession<E>>,
    left: LeftFile,
}

impl<E: Endpoint> LateRest for LateWhole<E> {
    fn end(self) {
        if E::waits_at_end(&self.session.file) {
            E::closing(&self.session.file);
        }
        // SAFETY: `release` has left to this file what the driver has of the session's.
        unsafe { end_in_driver(&self.session, self.left.as_ptr()) };
        Released::of(self.session).end();
    }
}

/// A session after the driver's `release`.
struct Released<E: Endpoint> {
    file: E::File,
    backing: Arc<BackingFile>,
}

impl<E: Endpoint> Released<E> {
    /// The file has other operations by now.
    fn of(session: KBox<FileSession<E>>) -> Self {
        let FileSession { backing, file, .. } = KBox::into_inner(session);
        Self { file, backing }
    }
}

impl<E: Endpoint> LateRest for Released<E> {
    fn end(self) {
        E::release(self.file);
        drop(self.backing);
    }
}
