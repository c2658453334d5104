// SPDX-License-Identifier: GPL-2.0
//! A number in the parameters of a call that stands for a file.

use crate::{
    os_interface::base::file_ref::FileRef,
    proxy::Part, //
};

/// A number in the parameters of a call, 32 bits wide, that is to stand for a file.
#[derive(Clone, Copy)]
pub struct Descriptor<'a> {
    /// The file that the driver is to find by the number.
    pub(in crate::os_interface) file: &'a FileRef,
    /// The part of the parameters that has the number, by its place among the parts.
    pub(in crate::os_interface) part: usize,
    /// The number's offset in the part.
    pub(in crate::os_interface) offset: usize,
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
