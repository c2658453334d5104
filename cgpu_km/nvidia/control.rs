// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The controls that containers may use, with the size of their parameters and the pointers in
//! them.

use super::{
    capability::Capabilities,
    class::Kind,
    fb::FbReport,
    handle::ControlCmd,
    names::{
        GpuNames,
        ProcessNames, //
    },
    wire::Field, //
};

/// Most bytes of a control's parameters, and of a list behind a pointer in them: each must fit a
/// slot of the module's scratch memory. `tests/abi/generate.py` reads this number.
///
/// The driver's own limit is 1 MiB (`RMAPI_PARAM_COPY_MAX_PARAMS_SIZE`,
/// src/nvidia/inc/kernel/rmapi/param_copy.h); no control in the tables comes near. The largest that
/// a program was seen to use is nvidia-smi -q's to the firmware, 0x2080a0a4 with 67,396 bytes.
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

/// A pointer in a control's parameters, behind which the driver reads or writes. (It copies them as
/// `embedded_param_copy.c` or the handlers of deprecated controls say.) A null pointer passes
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Offset of the pointer (`u64`) in the parameters.
    pub at: usize,
    /// Offset of the number of elements behind it (`u32`) in the parameters.
    pub count_at: usize,
    /// There are as many elements as the square of that number: a table of pairs.
    pub is_squared: bool,
    /// Bytes of one element.
    pub elem: usize,
    /// Most elements: what the driver takes, or what fits [`LARGEST_PARAMS`] if that is less.
    pub max: usize,
    /// Which way they go.
    pub direction: Direction,
}

impl Pointer {
    /// How many bytes lie behind it; `None` where `params` is too short or names more elements than
    /// are allowed.
    pub fn bytes(&self, params: &[u8]) -> Option<usize> {
        let number = Field::<u32>::at(self.count_at).get(params)?;
        let number = usize::try_from(number).ok()?;
        let factor = if self.is_squared { number } else { 1 };
        let count = number.checked_mul(factor)?;
        (count <= self.max).then(|| count.checked_mul(self.elem))?
    }
}

/// The treatment of a control, beside checks of its client, object, sizes and pointers. Each row of
/// `tests/abi/controls.txt` says it, and the proxy does what the row says.
///
/// To add a control: see CONTRIBUTING.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Care {
    /// Nothing: it passes as it is.
    Plain,
    /// It names GPUs, in what it takes or in what it reports. The tenant sees its own.
    Gpus(GpuNames),
    /// It names processes. The tenant sees its own.
    Processes(ProcessNames),
    /// It reports how much memory there is. The tenant sees its share.
    Memory(FbReport),
    /// It reports what the GPU can do. The tenant's GPU has no dma-bufs.
    Features,
    /// It gives others the use of an object.
    Share,
    /// It puts objects behind a descriptor, or takes them from one: memory that outlives its
    /// object.
    Export(Exported),
    /// It puts channels on the runlist.
    Schedule,
    /// It names memory that the driver reaches by way of the object's GPU. It has to be that GPU's.
    OneGpu,
    /// It names an address space with which the driver frees the object. It has to be one.
    AddressSpace,
    /// It binds a channel to a surface of semaphores, or takes that back. The driver keeps records
    /// of what is bound.
    Bound(Binding),
    /// It gives a profiler a stream of counters, or binds what it has. Where a stream has failed
    /// there is nothing that could be bound.
    Profile(ProfileStep),
    /// It names memory for statistics, which the driver would write whatever becomes of it. It may
    /// name none.
    Statistics,
    /// It says which sections of the page of shared data are wanted. There are only so many that
    /// want any.
    Poll,
    /// The driver hands it to the GPU's firmware unseen, and nothing else is known of it. Its
    /// object is a device or a subdevice, and its parameters are no longer than the row says.
    Firmware,
    /// It says when the GPU may take compute work off. It says so at any time.
    Preemption,
    /// It never reaches the driver, and the program is told that it has worked. It would take the
    /// GPU, or time on it, from others, or report what they do, and programs use it as a matter of
    /// course.
    Answer(Answered),
}

impl ControlEntry {
    /// Whether its parameters may have this size.
    pub const fn takes(&self, size: u32) -> bool {
        size == self.params || (matches!(self.care, Care::Firmware) && size < self.params)
    }
}

impl Care {
    /// Whether no program may see the parameters while the driver has them: a report on all GPUs or
    /// processes or on a GPU's whole memory, which is cut down before the program can read it, or
    /// a word that the module has put there. Nor can it write the status then, by which a count may
    /// be lowered.
    ///
    /// None of these controls has an address among its parameters, but for [`FbReport::Info`] that
    /// of its list.
    pub const fn is_unseen(self) -> bool {
        match self {
            Self::Gpus(names) => names.given().is_empty(),
            Self::Processes(ProcessNames::Listed)
            | Self::Memory(_)
            | Self::Preemption
            | Self::Bound(_)
            | Self::Profile(_) => true,
            // It reports on what it is given alone.
            Self::Processes(ProcessNames::Given) => false,
            Self::Plain
            | Self::Features
            | Self::Share
            | Self::Export(_)
            | Self::Schedule
            | Self::OneGpu
            | Self::AddressSpace
            | Self::Statistics
            | Self::Poll
            | Self::Firmware
            | Self::Answer(_) => false,
        }
    }
}

/// A control that puts objects behind a descriptor, or takes them from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exported {
    /// Makes places behind it, for objects that are put there later.
    Create,
    /// Puts one object behind it.
    Put,
    /// Puts several objects behind it.
    PutMany,
    /// Takes one object from behind it.
    Take,
    /// Takes several objects from behind it.
    TakeMany,
    /// Asks what is behind it.
    Ask,
}

/// The binding of a channel to a surface of semaphores, as a control leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binding {
    /// Makes it.
    Made,
    /// Takes it back.
    TakenBack,
}

/// A step of a profiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProfileStep {
    /// Asks for a stream.
    Stream,
    /// Binds what it has.
    Bind,
}

/// A control that is answered in the driver's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answered {
    /// Has no effect on an object of this kind, and is refused on others.
    Ignored(Kind),
    /// Sets how long a channel group runs before another one has its turn. It is remembered.
    SetTimeslice,
    /// Asks for that.
    GetTimeslice,
    /// Takes a channel group off the GPU. Its limits are checked, and it has no effect.
    Preempt,
    /// Raises the GPU's clocks. The module does so itself when programs wait for work.
    PerfBoost,
    /// Asks what the processes of the GPU did in the last seconds. It has no sample.
    Samples,
}

/// One control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlEntry {
    /// Its number.
    pub cmd: ControlCmd,
    /// NVIDIA's name.
    pub name: &'static str,
    /// Bytes of its parameters: the driver refuses any other size. 0: it has none. The most of
    /// them, for [`Care::Firmware`].
    pub params: u32,
    /// Its treatment.
    pub care: Care,
    /// The pointers in them.
    pub pointers: &'static [Pointer],
    /// The sets of capabilities that allow it.
    pub capabilities: Capabilities,
    /// Offsets at which its parameters name a client (`u32`): 0, or one that must be the caller's
    /// own.
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

/// A pointer to as many elements as the parameters say at `count_at`.
pub(super) const fn counted(
    at: usize,
    count_at: usize,
    elem: usize,
    max: usize,
    direction: Direction,
) -> Pointer {
    Pointer {
        at,
        count_at,
        is_squared: false,
        elem,
        max,
        direction,
    }
}

/// The same for the square of what they say.
pub(super) const fn squared(
    at: usize,
    count_at: usize,
    elem: usize,
    max: usize,
    direction: Direction,
) -> Pointer {
    Pointer {
        is_squared: true,
        ..counted(at, count_at, elem, max, direction)
    }
}
