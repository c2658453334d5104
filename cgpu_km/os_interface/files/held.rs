// SPDX-License-Identifier: GPL-2.0
//! A file of a program that is held, and how the driver finds it.
//!
//! Some calls name a file by its descriptor. So that what it stands for cannot change between the
//! check and the driver, the file is held, and the task makes the call with a [descriptor
//! table](crate::os_interface::base::one_file) in which there is this file alone.

use super::session::{
    is_of,
    session,
    Endpoint, //
};
use crate::os_interface::{
    base::file_ref::FileRef,
    calls::{
        caller::Caller,
        descriptor::Descriptor, //
    }, //
};
use core::marker::PhantomData;

/// An open file that is proxied for an `E`.
///
/// # Invariants
///
/// `file` is one for which [`is_of`] says yes. That stays so while it is open.
pub struct HeldFile<E: Endpoint> {
    file: FileRef,
    _endpoint: PhantomData<E>,
}

impl<E: Endpoint> HeldFile<E> {
    /// The file that one of the caller's descriptors stands for now, if it is one of an `E`.
    pub fn of(_caller: &Caller<'_>, descriptor: i32) -> Option<Self> {
        let file = FileRef::of_current(descriptor)?;
        // SAFETY: The file is open as long as `file` is there.
        let is_ours = unsafe { is_of::<E>(file.as_ptr()) };
        // INVARIANT: Just asked.
        is_ours.then_some(Self {
            file,
            _endpoint: PhantomData,
        })
    }

    /// The endpoint's part of it.
    pub fn file(&self) -> &E::File {
        // SAFETY: By the type's invariants it is open, for as long as `self` is there, and an
        // `E`'s.
        &unsafe { session::<E>(self.file.as_ptr()) }.file
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
