// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The controls that containers may use, with the size of their parameters and the pointers in them.

use super::capability::Capabilities;
use super::handle::ControlCmd;
use super::wire::Field;

/// Most bytes of parameters that a control may have here: a piece of a call must fit a slot of the
/// module's scratch memory. The driver's own limit is 1 MiB (`RMAPI_PARAM_COPY_MAX_PARAMS_SIZE`,
/// src/nvidia/inc/kernel/rmapi/param_copy.h); of the controls in the tables none comes near. The largest that a
/// program was seen to use is nvidia-smi -q's to the firmware, 0x2080a0a4 with 67,396 bytes.
pub const LARGEST_PARAMS: u32 = 96 << 10;

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
    /// `elem` bytes for each of the `u32` at `at` in the parameters; more than `max` of them are
    /// refused.
    Counted {
        /// Where the count lies in the parameters.
        at: usize,
        /// Bytes of one element.
        elem: usize,
        /// Most elements: what the driver takes, or what fits a piece of 64 KiB if that is less.
        max: usize,
    },
    /// The same for the square of the `u32` at `at`: a table of pairs.
    Squared {
        /// Where the number lies in the parameters.
        at: usize,
        /// Bytes of one element.
        elem: usize,
        /// Most elements.
        max: usize,
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
        let count = |at| usize::try_from(Field::<u32>::at(at).get(params)?).ok();
        let (count, elem, max) = match self.length {
            Length::Counted { at, elem, max } => (count(at)?, elem, max),
            Length::Squared { at, elem, max } => {
                let side = count(at)?;
                (side.checked_mul(side)?, elem, max)
            }
        };
        (count <= max).then(|| count.checked_mul(elem))?
    }
}

/// Sets how long a channel group runs before another one has its turn.
pub const SET_TIMESLICE: ControlCmd = ControlCmd(0xa06c_0103);
/// Asks for it.
pub const GET_TIMESLICE: ControlCmd = ControlCmd(0xa06c_0104);
/// Takes a channel group off the GPU.
pub const PREEMPT: ControlCmd = ControlCmd(0xa06c_0105);
/// Reserves the GPU for one client, where the administrator has set it to exclusive use
/// (`subdeviceCtrlCmdGpuAcquireComputeModeReservation_IMPL()`, subdevice_ctrl_gpu_kernel.c).
pub const ACQUIRE_COMPUTE_MODE_RESERVATION: ControlCmd = ControlCmd(0x2080_0145);
/// Ends that.
pub const RELEASE_COMPUTE_MODE_RESERVATION: ControlCmd = ControlCmd(0x2080_0146);
/// Keeps the clocks of the whole GPU down while a program wants it.
pub const PERF_CUDA_LIMIT: ControlCmd = ControlCmd(0x0080_1909);
/// Makes the timestamps of the whole GPU finer while a program wants it.
pub const SET_GR_TICK_FREQ: ControlCmd = ControlCmd(0x2080_0407);
/// What the processes of the GPU did in the last seconds.
pub const GPUMON_SAMPLES: ControlCmd = ControlCmd(0x2080_2096);

/// Puts an object behind a descriptor.
pub const EXPORT_OBJECT_TO_FD: ControlCmd = ControlCmd(0x3d05);
/// Takes it from there.
pub const IMPORT_OBJECT_FROM_FD: ControlCmd = ControlCmd(0x3d06);
/// Asks what is behind a descriptor.
pub const GET_EXPORT_OBJECT_INFO: ControlCmd = ControlCmd(0x3d08);
/// Puts objects behind a descriptor.
pub const EXPORT_OBJECTS_TO_FD: ControlCmd = ControlCmd(0x3d0b);
/// Takes them from there.
pub const IMPORT_OBJECTS_FROM_FD: ControlCmd = ControlCmd(0x3d0c);

/// What is to be watched about a control, beside its client, object and sizes. Nothing that these
/// say makes one safe by itself: it is for the code that acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Care {
    /// Nothing.
    Plain,
    /// It names GPUs, in what it takes or gives: those of other tenants too.
    Gpus,
    /// It names processes.
    Processes,
    /// It tells how much memory there is.
    Memory,
    /// It gives others the use of an object.
    Share,
    /// It puts objects behind a descriptor, or takes them from one: memory that outlives its object.
    Export,
    /// It changes how channels are scheduled.
    Schedule,
    /// It never reaches the driver, and the program is told that it has worked: it would take the GPU,
    /// or time on it, from others, or tell of them, and programs use it as a matter of course.
    Answer,
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
    /// What is to be watched.
    pub care: Care,
    /// The pointers in them.
    pub pointers: &'static [Pointer],
    /// The sets of capabilities that allow it.
    pub capabilities: Capabilities,
    /// Where its parameters name a client (`u32`): 0, or one that must be the caller's own.
    pub clients: &'static [usize],
}

pub(super) const fn entry(
    cmd: u32,
    name: &'static str,
    params: u32,
    care: Care,
    pointers: &'static [Pointer],
    capabilities: Capabilities,
    clients: &'static [usize],
) -> ControlEntry {
    ControlEntry {
        cmd: ControlCmd(cmd),
        name,
        params,
        care,
        pointers,
        capabilities,
        clients,
    }
}

pub(super) const fn counted(
    at: usize,
    count: usize,
    elem: usize,
    max: usize,
    direction: Direction,
) -> Pointer {
    Pointer {
        at,
        length: Length::Counted {
            at: count,
            elem,
            max,
        },
        direction,
    }
}

pub(super) const fn squared(
    at: usize,
    count: usize,
    elem: usize,
    max: usize,
    direction: Direction,
) -> Pointer {
    Pointer {
        at,
        length: Length::Squared {
            at: count,
            elem,
            max,
        },
        direction,
    }
}
