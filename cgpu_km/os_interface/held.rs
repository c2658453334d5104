// SPDX-License-Identifier: GPL-2.0
//! A file of a program that is held, and how the driver finds it.
//!
//! Some calls name a file by its descriptor. The driver looks the number up in the table of the task
//! that makes the call, after we did, and the program's threads can change what it stands for in
//! between. So the file is held, and the call made by the [worker](super::worker): it puts the file into
//! its own table, in which nobody else opens or closes anything of his, and its number there into the
//! parameters.

use super::session::{self, Endpoint};
use crate::proxy::Part;
use core::{marker::PhantomData, ptr::NonNull};
use kernel::{bindings, prelude::*};

/// An open file.
///
/// # Invariants
///
/// We hold a reference of it.
pub(super) struct OpenFile(NonNull<bindings::file>);

impl OpenFile {
    /// The file that a descriptor of the current task stands for; `None` where there is none, or one
    /// that was opened for its path alone.
    fn of_current(descriptor: i32) -> Option<Self> {
        let descriptor = c_uint::try_from(descriptor).ok()?;
        // SAFETY: Any number may be asked for.
        let file = unsafe { bindings::fget(descriptor) };
        // INVARIANT: `fget` gives a reference.
        NonNull::new(file).map(Self)
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::file {
        self.0.as_ptr()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // SAFETY: By the type's invariant the reference is ours.
        unsafe { bindings::fput(self.0.as_ptr()) };
    }
}

/// An open file that is proxied for an `E`.
///
/// # Invariants
///
/// `file` is one for which `session::is_of::<E>` says yes. That stays so while it is open.
pub struct HeldFile<E: Endpoint> {
    file: OpenFile,
    _endpoint: PhantomData<E>,
}

impl Descriptor<'_> {
    /// The number's bytes, if they are inside the part.
    pub(super) fn number<'a>(&self, parts: &'a [Part<'_>]) -> Option<&'a [u8; 4]> {
        let bytes = &parts.get(self.part)?.bytes;
        bytes.get(self.offset..)?.first_chunk()
    }

    /// The same to be changed.
    pub(super) fn number_mut<'a>(&self, parts: &'a mut [Part<'_>]) -> Option<&'a mut [u8; 4]> {
        let bytes = &mut parts.get_mut(self.part)?.bytes;
        bytes.get_mut(self.offset..)?.first_chunk_mut()
    }
}

impl<E: Endpoint> HeldFile<E> {
    /// The file that a descriptor of the current task stands for now, if it is one of an `E`.
    pub(super) fn of_current(descriptor: i32) -> Option<Self> {
        let file = OpenFile::of_current(descriptor)?;
        // SAFETY: The file is open as long as `file` is there.
        let is_ours = unsafe { session::is_of::<E>(file.as_ptr()) };
        // INVARIANT: Just asked.
        is_ours.then_some(Self {
            file,
            _endpoint: PhantomData,
        })
    }

    /// What belongs to it.
    pub fn file(&self) -> &E::File {
        // SAFETY: By the type's invariants it is open, for as long as `self` is there, and an `E`'s.
        unsafe { session::file_of::<E>(self.file.as_ptr()) }
    }

    /// The same as a number at `offset` bytes into part number `part` of a call.
    pub fn at(&self, part: usize, offset: usize) -> Descriptor<'_> {
        Descriptor {
            file: &self.file,
            part,
            offset,
        }
    }
}

/// A number in the parameters of a call, 32 bits wide, that is to stand for a file.
#[derive(Clone, Copy)]
pub struct Descriptor<'a> {
    pub(super) file: &'a OpenFile,
    pub(super) part: usize,
    pub(super) offset: usize,
}
