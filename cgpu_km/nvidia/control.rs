// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The controls that containers may use, with the size of their parameters and the pointers in them.

use super::handle::ControlCmd;
use super::wire::Field;

/// Most bytes of parameters that a control may have here: a piece of a call must fit a slot of the
/// module's scratch memory. The driver's own limit is 1 MiB (`RMAPI_PARAM_COPY_MAX_PARAMS_SIZE`,
/// src/nvidia/inc/kernel/rmapi/param_copy.h); of the controls in the tables none comes near.
pub const LARGEST_PARAMS: u32 = 64 << 10;

/// Which way the bytes behind a pointer go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The driver reads them.
    In,
    /// The driver writes them.
    Out,
    /// Both.
    InOut,
}

/// How many bytes lie behind a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Always so many.
    Fixed(usize),
    /// `elem` bytes for each of the `u32` at `at` in the parameters; more than `max` of them are
    /// refused.
    Counted {
        /// Where the count lies in the parameters.
        at: usize,
        /// Bytes of one element.
        elem: usize,
        /// Most elements: what the driver takes, or what fits a piece of 64 KiB if that is less.
        max: u32,
    },
}

/// A pointer in a control's parameters, behind which the driver reads or writes (it copies them as
/// `embedded_param_copy.c` or the handlers of deprecated controls say). A null pointer passes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Where the pointer (`u64`) lies in the parameters.
    pub at: usize,
    /// Bytes behind it.
    pub length: Length,
    /// Which way they go.
    pub direction: Direction,
}

impl Pointer {
    /// How many bytes lie behind it; `None` where `params` is too short or names more elements than
    /// are allowed.
    pub fn bytes(&self, params: &[u8]) -> Option<usize> {
        match self.length {
            Length::Fixed(bytes) => Some(bytes),
            Length::Counted { at, elem, max } => {
                let count = Field::<u32>::at(at).get(params)?;
                let count = (count <= max).then_some(usize::try_from(count).ok()?)?;
                count.checked_mul(elem)
            }
        }
    }
}

/// One control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlEntry {
    /// Its number.
    pub cmd: ControlCmd,
    /// NVIDIA's name.
    pub name: &'static str,
    /// Bytes of its parameters: the driver refuses any other size. 0: it has none.
    pub params: u32,
    /// The pointers in them.
    pub pointers: &'static [Pointer],
}
