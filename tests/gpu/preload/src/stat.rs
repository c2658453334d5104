// SPDX-License-Identifier: GPL-2.0
//! Calls by which a program looks at a path before it opens it: nodes that a container does not
//! have are not there.
//!
//! On x86-64 the C library's `struct stat` and `struct stat64` are the kernel's, in every version
//! of it.

use std::ffi::CStr;

use cgpu_gpu::sys;
use libc::{c_char, c_int, c_uint, c_void};

use crate::nodes::{is_absent, result};

/// A system call that looks at `path`.
///
/// # Safety
///
/// `path` is a string of C or null, and the arguments are what the call demands.
pub(crate) unsafe fn look(path: *const c_char, number: i64, arguments: [u64; 6]) -> i64 {
    // SAFETY: It is a string of C, as the contract says, and not null.
    if !path.is_null() && is_absent(unsafe { CStr::from_ptr(path) }) {
        return -i64::from(libc::ENOENT);
    }
    // SAFETY: The arguments are what the call demands, as the contract says.
    unsafe { sys::call(number, arguments) }
}

/// `newfstatat(2)`.
///
/// # Safety
///
/// As [`look`].
unsafe fn stat_at(folder: c_int, path: *const c_char, into: *mut c_void, flags: c_int) -> c_int {
    // CAST: registers are 64 bits wide.
    let arguments = [folder as u64, path as u64, into as u64, flags as u64, 0, 0];
    // SAFETY: `path` is a string of C or null, and there is room for the result at `into`.
    result(unsafe { look(path, libc::SYS_newfstatat, arguments) })
}

/// Defines functions of the C library that are `newfstatat` with some of its arguments.
macro_rules! stats {
    ($(
        $(#[$about:meta])*
        $name:ident($($argument:ident: $type:ty),*)
            = $folder:expr, $path:ident, $into:ident, $flags:expr;
    )*) => {$(
        $(#[$about])*
        ///
        /// # Safety
        ///
        /// As the C library's.
        #[no_mangle]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: The C library's function has the same contract.
            unsafe { stat_at($folder, $path, $into, $flags) }
        }
    )*};
}

stats! {
    /// `stat(3)`.
    stat(path: *const c_char, into: *mut c_void) = libc::AT_FDCWD, path, into, 0;
    /// `stat64(3)`.
    stat64(path: *const c_char, into: *mut c_void) = libc::AT_FDCWD, path, into, 0;
    /// `lstat(3)`.
    lstat(path: *const c_char, into: *mut c_void)
        = libc::AT_FDCWD, path, into, libc::AT_SYMLINK_NOFOLLOW;
    /// `lstat64(3)`.
    lstat64(path: *const c_char, into: *mut c_void)
        = libc::AT_FDCWD, path, into, libc::AT_SYMLINK_NOFOLLOW;
    /// `fstatat(3)`.
    fstatat(folder: c_int, path: *const c_char, into: *mut c_void, flags: c_int)
        = folder, path, into, flags;
    /// `fstatat64(3)`.
    fstatat64(folder: c_int, path: *const c_char, into: *mut c_void, flags: c_int)
        = folder, path, into, flags;
    /// `stat` of programs that were linked with a C library before 2.33, NVIDIA's among them.
    __xstat(_version: c_int, path: *const c_char, into: *mut c_void)
        = libc::AT_FDCWD, path, into, 0;
    /// The same of `stat64`.
    __xstat64(_version: c_int, path: *const c_char, into: *mut c_void)
        = libc::AT_FDCWD, path, into, 0;
    /// The same of `lstat`.
    __lxstat(_version: c_int, path: *const c_char, into: *mut c_void)
        = libc::AT_FDCWD, path, into, libc::AT_SYMLINK_NOFOLLOW;
    /// The same of `lstat64`.
    __lxstat64(_version: c_int, path: *const c_char, into: *mut c_void)
        = libc::AT_FDCWD, path, into, libc::AT_SYMLINK_NOFOLLOW;
    /// The same of `fstatat`.
    __fxstatat(_version: c_int, folder: c_int, path: *const c_char, into: *mut c_void, flags: c_int)
        = folder, path, into, flags;
    /// The same of `fstatat64`.
    __fxstatat64(_v: c_int, folder: c_int, path: *const c_char, into: *mut c_void, flags: c_int)
        = folder, path, into, flags;
}

/// `statx(3)`.
///
/// # Safety
///
/// As the C library's.
#[no_mangle]
pub(crate) unsafe extern "C" fn statx(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    into: *mut c_void,
) -> c_int {
    // CAST: registers are 64 bits wide.
    let arguments = [
        folder as u64,
        path as u64,
        flags as u64,
        u64::from(mask),
        into as u64,
        0,
    ];
    // SAFETY: The C library's function has the same contract.
    result(unsafe { look(path, libc::SYS_statx, arguments) })
}

/// `access(3)`.
///
/// # Safety
///
/// As the C library's.
#[no_mangle]
pub(crate) unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // CAST: registers are 64 bits wide.
    let arguments = [path as u64, mode as u64, 0, 0, 0, 0];
    // SAFETY: The C library's function has the same contract.
    result(unsafe { look(path, libc::SYS_access, arguments) })
}
