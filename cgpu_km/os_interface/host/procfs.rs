// SPDX-License-Identifier: GPL-2.0
//! Folders and text files in `/proc`, for the host alone.
//!
//! A container's `/proc` shows these entries too, so `open` refuses (`EPERM`) a caller who is not
//! in the initial user namespace and the initial PID namespace, and writing needs CAP_SYS_ADMIN.
//!
//! Removing an entry waits for the calls that are in it, and no call begins afterwards. So whoever
//! drops a [`ProcFolder`] must hold no lock that a function of a [`TextFile`] takes.

use super::control_device::is_host_admin;
use crate::{
    os_interface::base::extra,
    proxy::UserAddr, //
};
use core::{
    fmt,
    ptr::{
        null_mut,
        NonNull, //
    }, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::Arc,
    types::ForeignOwnable, //
};

/// Longest text that can be written to a file, bytes.
const STORE_MAX: usize = 64;

/// The text that a file shows, as far as it is written.
///
/// # Invariants
///
/// The pointer is valid for as long as this exists.
pub struct Text(NonNull<bindings::seq_file>);

impl Text {
    /// Writes more. What does not fit makes the kernel call again with a larger buffer.
    pub fn print(&self, more: fmt::Arguments<'_>) {
        // A value that cannot be printed is left out.
        let _ = fmt::write(&mut Writer(self), more);
    }
}

struct Writer<'a>(&'a Text);

impl fmt::Write for Writer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let from = text.as_ptr().cast();
        // SAFETY: The file is valid by the type's invariant; as many bytes are there.
        unsafe { bindings::seq_write(self.0 .0.as_ptr(), from, text.len()) };
        Ok(())
    }
}

/// Writes more text, as `print!` does.
macro_rules! seq_print {
    ($out:expr, $($text:tt)*) => {
        $out.print(core::format_args!($($text)*))
    };
}

pub(crate) use seq_print;

/// A file about something of type `T`.
pub struct TextFile<T: 'static> {
    /// Its name.
    pub name: &'static CStr,
    /// Prints the content. An error is what `read` then returns.
    pub show: fn(&T, &Text) -> Result,
    /// Takes what the owner (root) wrote, without the white space around it. `None`: the file is
    /// for reading.
    pub store: Option<fn(&T, &str) -> Result>,
}

/// A folder with its files. Both are removed when it is dropped, after the folders in it, each of
/// which holds it.
///
/// # Invariants
///
/// `entry` is a folder that is registered; the data of its files are in `files`.
pub struct ProcFolder {
    entry: NonNull<bindings::proc_dir_entry>,
    files: KVec<ProcData>,
    _parent: Option<Arc<ProcFolder>>,
}

// SAFETY: The entry is only used to add to it and to remove it, which the kernel does under its own
// lock.
unsafe impl Send for ProcFolder {}
// SAFETY: A shared folder cannot be changed.
unsafe impl Sync for ProcFolder {}

impl ProcFolder {
    /// Makes a folder in `parent`, or in `/proc` itself. The name must be free: the kernel warns
    /// where it is not.
    pub fn new(parent: Option<&Arc<ProcFolder>>, name: &CStr) -> Result<Self> {
        let place = parent.map_or(null_mut(), |p| p.entry.as_ptr());
        // SAFETY: The name is a string; the parent is registered by its invariant.
        let entry = unsafe { extra::proc_mkdir(name.as_char_ptr(), place) };
        Ok(Self {
            entry: NonNull::new(entry).ok_or(ENOMEM)?,
            files: KVec::new(),
            _parent: parent.cloned(),
        })
    }

    /// Adds files about `about`. Everybody reads them (mode 0444 or 0644).
    pub fn add<T: Send + Sync + 'static>(
        &mut self,
        about: &Arc<T>,
        files: &'static [TextFile<T>],
    ) -> Result {
        for file in files {
            let mode = if file.store.is_some() { 0o644 } else { 0o444 };
            // INVARIANT: The data are in the list before the file exists.
            let data = OpenText {
                callbacks: &ProcOperations::<T>::CALLBACKS,
                about: about.clone(),
                file,
            };
            self.files.push(ProcData::new(data)?, GFP_KERNEL)?;
            let data = self.files.last().map_or(null_mut(), |d| d.pointer);
            let (name, folder) = (file.name.as_char_ptr(), self.entry.as_ptr());
            // SAFETY: The name is a string, the folder is registered; the operations are static and
            // made for data of this type, which live until the folder has been removed.
            let entry = unsafe { extra::cgpu_shim_text_file(name, mode, folder, data) };
            if entry.is_null() {
                self.files.pop();
                return Err(ENOMEM);
            }
        }
        Ok(())
    }
}

impl Drop for ProcFolder {
    fn drop(&mut self) {
        // SAFETY: It is registered by the type's invariant. This removes the files too, and waits
        // for the calls in them; their data are dropped after it.
        unsafe { extra::proc_remove(self.entry.as_ptr()) };
    }
}

/// The data of a file.
#[repr(C)]
struct OpenText<T: 'static> {
    /// First, where C looks for them.
    callbacks: &'static extra::cgpu_text_callbacks,
    about: Arc<T>,
    file: &'static TextFile<T>,
}

/// The same, of a type that only the file's operations know.
///
/// # Invariants
///
/// `pointer` owns what `drop` drops.
struct ProcData {
    pointer: *mut c_void,
    drop: unsafe fn(*mut c_void),
}

impl ProcData {
    fn new<T: Send + Sync + 'static>(data: OpenText<T>) -> Result<Self> {
        // INVARIANT: `drop` takes back what `into_foreign` gave.
        Ok(Self {
            pointer: KBox::new(data, GFP_KERNEL)?.into_foreign(),
            drop: Self::take_back::<T>,
        })
    }

    /// # Safety
    ///
    /// `pointer` came from `into_foreign` of a box of this type, and is not used any more.
    unsafe fn take_back<T: Send + Sync + 'static>(pointer: *mut c_void) {
        // SAFETY: The pointer is such a box's, and is not used any more, as the contract says.
        drop(unsafe { KBox::<OpenText<T>>::from_foreign(pointer) });
    }
}

impl Drop for ProcData {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant, and this is the only call.
        unsafe { (self.drop)(self.pointer) };
    }
}

/// The operations of files about something of type `T`.
struct ProcOperations<T>(core::marker::PhantomData<T>);

impl<T: Send + Sync + 'static> ProcOperations<T> {
    const CALLBACKS: extra::cgpu_text_callbacks = extra::cgpu_text_callbacks {
        may_open: Some(may_open),
        show: Some(Self::show),
        write: Some(Self::write),
    };

    /// # Safety
    ///
    /// `seq` is of a file whose data are `data`, an [`OpenText<T>`].
    unsafe extern "C" fn show(seq: *mut bindings::seq_file, data: *mut c_void) -> c_int {
        // SAFETY: The entry's data, which outlive every call of its operations.
        let data = unsafe { &*data.cast::<OpenText<T>>() };
        // INVARIANT: The kernel passes a valid file.
        let shown = NonNull::new(seq).map(Text).ok_or(EINVAL);
        match shown.and_then(|text| (data.file.show)(&data.about, &text)) {
            Ok(()) => 0,
            Err(e) => e.to_errno(),
        }
    }

    /// # Safety
    ///
    /// `data` are those of the file that is written to, an [`OpenText<T>`].
    unsafe extern "C" fn write(data: *mut c_void, from: *const c_char, len: usize) -> isize {
        if !is_host_admin() {
            // CAST: an errno.
            return EPERM.to_errno() as isize;
        }
        // SAFETY: The entry's data; the entry exists during the call.
        let data = unsafe { &*data.cast::<OpenText<T>>() };
        // CAST: an address is as wide as `usize`, which fits `u64`.
        let from = UserAddr::new(from.addr() as u64);
        match data.store(from, len) {
            // CAST: `len` is at most `STORE_MAX`.
            Ok(()) => len as isize,
            // CAST: an errno.
            Err(e) => e.to_errno() as isize,
        }
    }
}

/// Whether the calling task may open a file, to write to it or not; an errno if not.
unsafe extern "C" fn may_open(writes: bool) -> c_int {
    // SAFETY: The function takes no argument, and looks at the current task alone.
    let initial = unsafe { extra::cgpu_shim_in_initial_namespaces() };
    if initial && (!writes || is_host_admin()) {
        0
    } else {
        EPERM.to_errno()
    }
}

impl<T: 'static> OpenText<T> {
    /// Hands what was written to the file.
    fn store(&self, from: UserAddr, len: usize) -> Result {
        let mut buffer = [0; STORE_MAX];
        let bytes = buffer.get_mut(..len).ok_or(EINVAL)?;
        from.read(bytes)?;
        let text = core::str::from_utf8(bytes).map_err(|_| EINVAL)?;
        // The mode says so too, but root may open any file.
        let store = self.file.store.ok_or(EACCES)?;
        store(&self.about, text.trim())
    }
}
