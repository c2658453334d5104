// SPDX-License-Identifier: GPL-2.0
//! A recorded `ioctl` together with the layout of its argument.

use crate::{
    bytes::{u32_at, u64_at},
    layout::{self, Call, Effect},
    record::{Ioctl, Nested, NestedKind},
};

/// An `ioctl` of the recording with the layout of its argument.
pub struct Decoded<'a> {
    /// The recorded call.
    pub io: &'a Ioctl,
    /// Its layout; a call without one has no fields.
    pub call: Call,
    /// Whether the request is known at all.
    pub known: bool,
    /// `_IOC_NR` of an escape, the request of a UVM call.
    pub nr: u32,
    /// Whether it is on a UVM file.
    pub uvm: bool,
}

/// `paramsSize` of RM_CONTROL, and the most that the driver takes
/// (RMAPI_PARAM_COPY_MAX_PARAMS_SIZE).
const CONTROL_SIZE_AT: usize = 24;
const PARAMETERS_MAX: usize = 1 << 20;

const UNKNOWN: Call = Call {
    name: "unknown request",
    size: 0,
    status: None,
    fields: &[],
    effect: Effect::None,
};

impl<'a> Decoded<'a> {
    /// Finds the layout of a recorded `ioctl`.
    pub fn new(io: &'a Ioctl) -> Self {
        let uvm = io.path.ends_with("/nvidia-uvm");
        let escape = !uvm && io.request >> 8 & 0xFF == layout::NV_TYPE;
        let nr = if uvm { io.request } else { io.request & 0xFF };
        let size = io.argument.as_ref().map_or(0, |a| a.input.len());
        let mut call = if uvm {
            layout::uvm(nr)
        } else if escape {
            layout::escape(nr, size)
        } else {
            None
        };
        if let (Some(call), Some(argument)) = (&mut call, &io.argument) {
            // Of the functions of VID_HEAP_CONTROL, ALLOC_SIZE (2) makes an object.
            if !uvm && nr == layout::NR_VID_HEAP && u32_at(&argument.input, 8) != 2 {
                call.effect = Effect::None;
            }
        }
        Self {
            io,
            known: call.is_some(),
            call: call.unwrap_or(UNKNOWN),
            nr,
            uvm,
        }
    }

    /// The argument before the call.
    pub fn input(&self) -> &'a [u8] {
        self.io.argument.as_ref().map_or(&[], |a| &a.input)
    }

    /// The argument after the call.
    pub fn output(&self) -> &'a [u8] {
        self.io.argument.as_ref().map_or(&[], |a| &a.output)
    }

    /// Bytes of the argument that the driver reads or writes.
    pub fn size(&self) -> usize {
        let size = self.input().len();
        if self.call.size == 0 {
            size
        } else {
            self.call.size.min(size)
        }
    }

    /// Bytes of the nested parameters that the driver reads or writes. All that was recorded, where
    /// a class is not known: an unknown class is compared whole rather than not at all.
    pub fn nested_size(&self, nested: &Nested) -> usize {
        let recorded = nested.bytes.as_ref().map_or(0, |b| b.input.len());
        match nested.kind {
            NestedKind::Control => recorded,
            NestedKind::Alloc => {
                layout::class_params(nested.code).map_or(recorded, |s| s.min(recorded))
            }
        }
    }

    /// Bytes of the nested parameters that the driver may write: as many as the call says, of which
    /// a recording may have only the first.
    pub fn nested_reach(&self, nested: &Nested) -> usize {
        let size = self.nested_size(nested);
        match nested.kind {
            NestedKind::Control => {
                let said = usize::try_from(u32_at(self.input(), CONTROL_SIZE_AT)).unwrap_or(0);
                size.max(said.min(PARAMETERS_MAX))
            }
            NestedKind::Alloc => size,
        }
    }

    /// The status in an argument, if it has one.
    pub fn status(&self, output: &[u8]) -> Option<u32> {
        let at = self.call.status?;
        (output.len() >= at + 4).then(|| u32_at(output, at))
    }

    /// The class that an allocation names.
    pub fn class(&self) -> u32 {
        match self.nr {
            layout::NR_VID_HEAP => layout::CLASS_VIDEO_MEMORY,
            _ => u32_at(self.input(), 12),
        }
    }

    /// Whether the call allocates an object.
    pub fn allocates(&self) -> bool {
        let nrs = [
            layout::NR_ALLOC,
            layout::NR_ALLOC_MEMORY,
            layout::NR_VID_HEAP,
        ];
        !self.uvm && nrs.contains(&self.nr)
    }

    /// Bytes that an allocation of memory asks for, else 0.
    pub fn bytes_wanted(&self) -> u64 {
        match self.nr {
            layout::NR_VID_HEAP => u64_at(self.input(), 88),
            layout::NR_ALLOC_MEMORY => u64_at(self.input(), 32).saturating_add(1),
            _ if matches!(self.class(), 0x3E | 0x40 | 0x50A0) => {
                let nested = self.io.nested.as_ref().and_then(|n| n.bytes.as_ref());
                nested.map_or(0, |b| u64_at(&b.input, layout::MEMORY_SIZE_AT))
            }
            _ => 0,
        }
    }

    /// The call for people: `RM_ALLOC 0x40`.
    pub fn title(&self) -> String {
        match &self.io.nested {
            Some(n) => format!("{} {:#x}", self.call.name, n.code),
            None if !self.known => format!("request {:#x} on {}", self.io.request, self.io.path),
            None => self.call.name.to_owned(),
        }
    }
}
