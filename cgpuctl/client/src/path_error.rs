// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A file operation of the host that failed, with what a sentence about it needs.

use crate::client::errno;
use nix::errno::Errno;
use std::{
    io,
    path::{Path, PathBuf},
};

/// A file operation of the host that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{action} {} failed: {}", .path.display(), .errno.desc())]
pub struct PathError {
    /// The action that failed, as in "… failed".
    pub action: &'static str,
    /// On what.
    pub path: PathBuf,
    /// Why it failed.
    pub errno: Errno,
}

impl PathError {
    /// The failure of an action on a path, for `map_err` on the errors of std, nix and rustix.
    pub fn on<E: Into<io::Error>>(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Self + use<E> {
        let path = path.to_owned();
        move |error| Self {
            action,
            path,
            errno: errno(&error.into()),
        }
    }

    /// Whether rights were missing.
    pub fn is_permission(&self) -> bool {
        matches!(self.errno, Errno::EPERM | Errno::EACCES)
    }
}
