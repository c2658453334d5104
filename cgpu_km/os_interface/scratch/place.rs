// SPDX-License-Identifier: GPL-2.0
//! The places of a call's parts among its pages.

use super::layout::{
    ALIGNMENT,
    CELL_PAGES, //
};
use crate::proxy::{
    Part,
    PointerAt, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// A place among the pages of a call.
#[derive(Clone, Copy)]
pub(in crate::os_interface) struct ScratchPlace {
    /// Pages after the first one.
    pub(super) page: usize,
    /// Bytes from there.
    pub(super) offset: usize,
}

impl ScratchPlace {
    /// The first one.
    pub(super) const START: Self = Self { page: 0, offset: 0 };

    /// So many bytes behind it.
    pub(super) fn behind(self, bytes: usize) -> Self {
        let offset = self.offset + bytes;
        Self {
            page: self.page + offset / PAGE_SIZE,
            offset: offset % PAGE_SIZE,
        }
    }

    /// The start of the next page.
    pub(super) fn after(self) -> Self {
        Self {
            page: self.page + 1,
            offset: 0,
        }
    }
}

/// Offset of the second part, if it is on the page of the first.
pub(super) fn shared_page(parts: &[Part<'_>]) -> Option<usize> {
    let (first, second) = (parts.first()?, parts.get(1)?);
    if first.hole.len + second.hole.len != 0 {
        return None;
    }
    let offset = first.bytes.len().saturating_add(ALIGNMENT - 1) & !(ALIGNMENT - 1);
    let both = offset.checked_add(second.bytes.len())?;
    (both <= PAGE_SIZE).then_some(offset)
}

/// The pointer at `at`, if that is inside a part.
pub(super) fn pointer(parts: &[Part<'_>], at: PointerAt) -> Option<[u8; 8]> {
    let holder = parts.get(at.part)?;
    holder.bytes.get(at.offset..)?.first_chunk().copied()
}

/// The start of part `number` of `parts`, in pages after the first one. A page that belongs to none
/// follows each. For a number beyond the last it is the place of one more part.
pub(super) fn place(parts: &[Part<'_>], number: usize) -> ScratchPlace {
    if number == 0 {
        return ScratchPlace::START;
    }
    let shared = shared_page(parts);
    if let (1, Some(offset)) = (number, shared) {
        return ScratchPlace { page: 0, offset };
    }
    let before = parts.iter().enumerate().take(number);
    let before = before.filter(|(other, _)| *other != 1 || shared.is_none());
    let pages = before.map(|(_, part)| part.size().div_ceil(PAGE_SIZE) + 1);
    ScratchPlace {
        page: pages.sum(),
        offset: 0,
    }
}

/// Whether a call is of an argument alone that takes the pages of a cell.
pub(super) fn fits_cell(parts: &[Part<'_>]) -> bool {
    match parts {
        [only] => only.pointer.is_none() && only.size().div_ceil(PAGE_SIZE) == CELL_PAGES,
        _ => false,
    }
}

/// Parts that fit on one page, whose pointers are in order.
pub(super) struct Alone<'a> {
    pub(super) first: &'a [u8],
    /// The second part: its offset, the offset of the pointer to it in the first, and its bytes.
    pub(super) second: Option<(usize, Option<usize>, &'a [u8])>,
}

impl<'a> Alone<'a> {
    pub(super) fn of(parts: &'a [Part<'_>]) -> Option<Self> {
        match parts {
            [first]
                if first.pointer.is_none()
                    && first.hole.len == 0
                    && first.bytes.len() <= PAGE_SIZE =>
            {
                Some(Self {
                    first: first.bytes,
                    second: None,
                })
            }
            [first, second] if first.pointer.is_none() => {
                let offset = shared_page(parts)?;
                let at = match second.pointer {
                    Some(at) if at.part == 0 => {
                        pointer(parts, at)?;
                        Some(at.offset)
                    }
                    Some(_) => return None,
                    None => None,
                };
                Some(Self {
                    first: first.bytes,
                    second: Some((offset, at, second.bytes)),
                })
            }
            _ => None,
        }
    }

    /// The end of the last part.
    pub(super) fn end(&self) -> usize {
        match self.second {
            Some((at, _, second)) => at + second.len(),
            None => self.first.len(),
        }
    }
}

/// Puts a pointer back.
pub(super) fn put_back(parts: &mut [Part<'_>], at: PointerAt, pointer: &[u8; 8]) -> Result {
    let holder = parts.get_mut(at.part).ok_or(EINVAL)?;
    let place = holder.bytes.get_mut(at.offset..);
    let place = place.and_then(|bytes| bytes.first_chunk_mut());
    *place.ok_or(EINVAL)? = *pointer;
    Ok(())
}

/// A place in part `number`.
pub(super) fn inside(parts: &[Part<'_>], number: usize, offset: usize) -> ScratchPlace {
    place(parts, number).behind(offset)
}
