// SPDX-License-Identifier: GPL-2.0
//! A request of `/dev/nvidia-uvm` with its argument, taken from the program's memory.

use super::{
    call::{
        Call,
        Errno,
        Returned,
        Route, //
    },
    part::{
        Hole,
        Part, //
    },
    stop::get, //
};
use crate::{
    nvidia::{
        status::NvStatus,
        uvm::{
            self,
            UvmEntry, //
        }, //
    },
    policy::{
        FileId,
        GpuId,
        Span, //
    }, //
};

/// A processor, as UVM names it.
pub(super) type Uuid = [u8; 16];

/// One request under way.
pub(super) struct UvmCall<'a> {
    /// The file that it came through.
    pub(super) file: FileId,
    /// Its row in the tables, with the places that its fields have in `bytes`.
    pub(super) entry: &'a UvmEntry,
    /// Its argument, without the hole.
    pub(super) bytes: &'a mut [u8],
    /// The stretch of the argument that was not taken.
    pub(super) hole: Hole,
}

impl UvmCall<'_> {
    /// The addresses that it is about. All requests that name addresses begin with them.
    pub(super) fn range(&self) -> Result<AddressRange, Errno> {
        Ok(AddressRange {
            base: get(uvm::map_external::BASE, self.bytes)?,
            length: get(uvm::map_external::LENGTH, self.bytes)?,
        })
    }

    /// The processor that is named at `at`.
    pub(super) fn uuid(&self, at: usize) -> Result<Uuid, Errno> {
        let end = at.saturating_add(size_of::<Uuid>());
        let uuid = self.bytes.get(at..end).ok_or(Errno::EINVAL)?;
        Uuid::try_from(uuid).map_err(|_| Errno::EINVAL)
    }

    /// Has the driver run it in the calling task.
    pub(super) fn forward(&mut self, call: &mut impl Call) -> Returned {
        self.forward_by(call, Route::Caller)
    }

    /// Has the driver run it.
    pub(super) fn forward_by(&mut self, call: &mut impl Call, route: Route) -> Returned {
        let mut part = Part::argument(self.bytes);
        part.hole = self.hole;
        call.forward(self.entry.cmd, &mut [part], route)
    }

    /// Whether the driver was reached and says that it has worked.
    pub(super) fn has_worked(&self, returned: Returned) -> bool {
        returned == Ok(0) && self.entry.status.get(self.bytes) == Some(NvStatus::NV_OK.0)
    }
}

/// Addresses that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressRange {
    /// The first address.
    pub(super) base: u64,
    /// Bytes.
    pub(super) length: u64,
}

impl AddressRange {
    /// The same for one GPU, or all, of a file. `None`: it has no byte, or goes beyond the end of
    /// the address space.
    pub(super) fn span(&self, file: FileId, gpu: Option<GpuId>) -> Option<Span> {
        let last = self.base.checked_add(self.length.checked_sub(1)?)?;
        Some(Span {
            file,
            gpu,
            base: self.base,
            last,
        })
    }
}
