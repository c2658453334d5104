// SPDX-License-Identifier: GPL-2.0
//! The base of everything else here: user memory, waiting, threads, clocks, credentials, frames,
//! and the bindings.

pub mod clock;
pub(super) mod closure;
pub(super) mod creds;
pub(super) mod extra;
pub(super) mod file_ref;
pub(super) mod frame;
pub mod log;
pub(super) mod one_file;
pub(super) mod random;
pub(super) mod rt_mutex;
pub(super) mod rw_semaphore;
pub mod thread;
pub(super) mod user;
pub(super) mod vma;
pub(super) mod wait;
