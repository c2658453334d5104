// SPDX-License-Identifier: GPL-2.0
//! A proxied call, from the program's `ioctl` to the driver and back.
//!
//! Every call takes the same four steps, and this module is the only place that knows their order:
//!
//! 1. **decode**: the request number and the parameters, copied once from the program's memory;
//! 2. **ask policy**: the tables of [`crate::nvidia`] say whether the call may pass and how large
//!    its parameters are, the tenant's [`Accounting`] whether the memory is there;
//! 3. **forward**: the copies, not the program's memory, go to the driver ([`Call::forward`]);
//! 4. **record**: what the driver did goes into the accounting, and the results to the program.
//!
//! The bytes that were decided on are the bytes that the driver acts on. What the driver writes back
//! is another matter: other threads of the program can overwrite it before we read it (see
//! `SECURITY.md`), so an output may only ever raise a charge or name one of the program's own
//! objects.
//!
//! A refusal looks like the driver's own: `ioctl` returns 0 and the status field holds an
//! `NV_STATUS`, or the errno that the driver's `nvidia_ioctl()` and `uvm_ioctl()` give to what they
//! do not know.
//!
//! Nothing here knows an operating system: the kernel module and the user-space harness each bring
//! a [`Call`].

use crate::nvidia::handle::ClientHandle;
use crate::nvidia::nvos::Card;
use crate::nvidia::tables::Tables;
use crate::policy::Accounting;
use crate::policy::Audited;
use crate::policy::FileId;
use crate::policy::GpuId;
use crate::policy::ProcessId;
use crate::store::Exhausted;

mod alloc;
mod answer;
mod clients;
mod control;
mod copied;
mod exports;
mod few;
mod frontend;
mod handles;
mod heap;
mod lists;
mod managed;
mod uvm;
mod uvm_map;

use copied::Copied;

#[cfg(test)]
mod tests;

/// An address in the memory of the calling program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserAddr(pub u64);

impl UserAddr {
    /// Whether this is the null pointer.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// So many bytes behind it; `EFAULT` beyond the end of all addresses.
    fn behind(self, offset: usize) -> Result<Self, Errno> {
        let offset = u64::try_from(offset).ok();
        let address = offset.and_then(|offset| self.0.checked_add(offset));
        address.map(Self).ok_or(Errno::EFAULT)
    }
}

/// A positive errno for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// What UVM gives while the machine is suspended.
    pub const EAGAIN: Self = Self(11);
    /// A file that is closed.
    pub const EBADF: Self = Self(9);
    /// Not enough host memory.
    pub const ENOMEM: Self = Self(12);
    /// A bad address in the program's memory.
    pub const EFAULT: Self = Self(14);
    /// What `nvidia_ioctl()` gives for every request that it does not take.
    pub const EINVAL: Self = Self(22);
}

impl From<Exhausted> for Errno {
    fn from(_: Exhausted) -> Self {
        Self::ENOMEM
    }
}

/// Which task runs the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The calling task itself: the driver binds UVM calls to its process.
    Caller,
    /// The worker of this GPU, in the caller's memory: it holds a file of the driver's own, which
    /// `nv_is_gpu_accessible()` (kernel-open/nvidia/nv.c) looks for in the task's descriptor table.
    Worker(GpuId),
    /// The calling task, but by the driver's interface for the kernel: with parameters in memory
    /// that no program reads before it is cut down to what is its own. For
    /// [the controls](crate::nvidia::rmapi::tells_too_much) of which that is so.
    Unseen,
}

/// One separately copied struct of a call.
///
/// The driver copies each struct when it gets to it, so each gets memory of its own: what it writes
/// back to one leaves the others as they were checked.
#[derive(Debug)]
pub struct Part<'a> {
    /// The struct, without its gap: what the driver is to read, and then what it wrote.
    pub bytes: &'a mut [u8],
    /// What of the struct is not in `bytes`.
    pub gap: Gap,
    /// Where the pointer to this part stands. `None` for the first part, whose address is the
    /// argument of the `ioctl`. Whoever forwards puts the part's address there for the driver and
    /// the program's own pointer back afterwards. The pointer to an empty part stays as it is.
    pub pointer: Option<PointerAt>,
}

impl<'a> Part<'a> {
    /// The argument of the `ioctl`.
    pub fn argument(bytes: &'a mut [u8]) -> Self {
        Self {
            bytes,
            gap: Gap::default(),
            pointer: None,
        }
    }

    /// A struct that an earlier part points to.
    pub fn pointed(bytes: &'a mut [u8], pointer: PointerAt) -> Self {
        Self {
            bytes,
            gap: Gap::default(),
            pointer: Some(pointer),
        }
    }

    /// Bytes of the whole struct.
    pub fn size(&self) -> usize {
        self.bytes.len().saturating_add(self.gap.len)
    }

    /// What is there of the struct, each piece with its place.
    pub fn pieces(&self) -> [(usize, &[u8]); 2] {
        self.gap.pieces(self.bytes)
    }

    /// What the driver may have written that is to be taken, and its place.
    pub fn results(&mut self) -> (usize, &mut [u8]) {
        let (place, at) = self.gap.results();
        (place, self.bytes.get_mut(at..).unwrap_or_default())
    }
}

/// Bytes in the midst of a struct that the driver copies without looking at them: room for more entries of a list
/// than there are. It reads there whatever stands there. What it writes is taken from behind that alone: before it are
/// only inputs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// Where it begins; 0: there is none.
    pub at: usize,
    /// Its length; 0 as well where the list is full.
    pub len: usize,
}

impl Gap {
    /// What is before it and behind it of the bytes of a struct without it, each with its place.
    fn pieces<'a>(&self, bytes: &'a [u8]) -> [(usize, &'a [u8]); 2] {
        let (before, behind) = bytes.split_at(self.at.min(bytes.len()));
        [(0, before), (self.end(), behind)]
    }

    /// Where results begin: in the struct, and in its bytes without the gap.
    fn results(&self) -> (usize, usize) {
        (self.end(), self.at)
    }

    /// Where it ends.
    fn end(&self) -> usize {
        self.at.saturating_add(self.len)
    }
}

/// Place of a 64-bit pointer: a byte offset in an earlier part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerAt {
    /// Index of the part that holds the pointer.
    pub part: usize,
    /// Its offset there.
    pub offset: usize,
}

/// A descriptor's number in a part that is to stand for a file that is held.
#[derive(Debug)]
pub struct FileAt<'a, H> {
    /// The file.
    pub file: &'a H,
    /// Index of the part that holds the number, 32 bits wide.
    pub part: usize,
    /// Its offset there.
    pub offset: usize,
}

/// An open file of the tenant's, which stays open for as long as this exists.
pub trait Held {
    /// What it is to the proxy.
    fn session(&self) -> Session;
}

/// What a proxied call needs from the system it runs on.
pub trait Call {
    /// A file that is held.
    type Held: Held;

    /// Copies from the program's memory.
    fn read(&mut self, from: UserAddr, into: &mut [u8]) -> Result<(), Errno>;

    /// Copies to the program's memory.
    fn write(&mut self, to: UserAddr, from: &[u8]) -> Result<(), Errno>;

    /// Issues `request` on the backing file with the first part as its argument, and returns the
    /// driver's return value (a negative errno is a value here: the driver was reached).
    ///
    /// # Errors
    ///
    /// The driver was not reached: the parts are too large, the caller was killed while it waited,
    /// or no memory was left.
    fn forward(&mut self, request: u32, parts: &mut [Part<'_>], route: Route)
        -> Result<i32, Errno>;

    /// As [`Call::forward`] with [`Route::Caller`], on another file that the tenant has open.
    ///
    /// # Errors
    ///
    /// As there, or the file is closed.
    fn forward_on(
        &mut self,
        file: FileId,
        request: u32,
        parts: &mut [Part<'_>],
    ) -> Result<i32, Errno>;

    /// Takes a mapping out of the calling program's memory.
    fn unmap(&mut self, base: u64, length: u64);

    /// The file that one of the program's descriptors stands for at this moment. `None`: it stands for
    /// none, or for one that is not this tenant's.
    fn hold(&mut self, descriptor: i32) -> Option<Self::Held>;

    /// As [`Call::forward`], by a task in whose descriptor table the program changes nothing: the driver
    /// finds `file` there, under a number that is put in the place of the program's own, which is put
    /// back afterwards. Not for calls that the driver binds to the caller's process.
    ///
    /// # Errors
    ///
    /// As for [`Call::forward`].
    fn forward_holding(
        &mut self,
        request: u32,
        parts: &mut [Part<'_>],
        file: FileAt<'_, Self::Held>,
    ) -> Result<i32, Errno>;

    /// Works while nobody else makes a client of the driver's through this.
    ///
    /// # Errors
    ///
    /// The caller was killed while it waited.
    fn clients<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> Result<R, Errno> {
        Ok(work(self))
    }

    /// The handle that the driver gave a client of the kernel's just now, which is freed again: no program can
    /// write that. `None` in a harness that has no such client: what the driver tells the program is believed.
    ///
    /// # Errors
    ///
    /// The driver made no client.
    fn passing_client(&mut self) -> Result<Option<ClientHandle>, Errno> {
        Ok(None)
    }

    /// Whether there is a doorbell page through BAR1 of nobody's, to be shown in the place of programs' own.
    fn has_doorbell(&self, _gpu: GpuId) -> bool {
        false
    }

    /// Has what a file of the tenant's maps from now on, if it is a doorbell page, be that one.
    fn show_doorbell(&mut self, _descriptor: i32) {}

    /// The calling process.
    fn process(&self) -> ProcessId;

    /// Seconds of a clock that nobody sets.
    fn uptime_s(&self) -> u64;

    /// The tables of the running driver.
    fn tables(&self) -> &'static Tables;

    /// The tenant's GPU with this UUID, as UVM names GPUs.
    fn gpu_by_uuid(&self, uuid: &[u8; 16]) -> Option<GpuId>;

    /// The tenant's GPU with this id, as RM names GPUs.
    fn gpu_by_id(&self, id: u32) -> Option<GpuId>;

    /// What the driver says of one of the tenant's GPUs, which are counted from 0 in the order of their minors.
    /// `None`: there are not so many.
    fn card(&self, number: usize) -> Option<Card>;

    /// The process that has this number in the PID namespace of the calling process; `None` where
    /// it has none. (The driver gives processes the numbers of the caller's namespace.)
    fn process_by_number(&self, number: u32) -> Option<ProcessId>;

    /// Takes note of a call that was refused, or let through unseen; see [`Accounting::note_call`]. A system
    /// with a clock and a log uses both.
    fn audit(&mut self, noted: &Audited, gpu: Option<GpuId>) {
        let process = self.process();
        self.accounting(|accounting| accounting.note_call(noted, gpu, process, 0));
    }

    /// Works on the tenant's accounting, alone.
    fn accounting<R>(&mut self, work: impl FnOnce(&mut Accounting) -> R) -> R;

    /// Looks into them, alone.
    fn look<R>(&mut self, work: impl FnOnce(&Accounting) -> R) -> R {
        self.accounting(|accounting| work(accounting))
    }
}

/// Which of the driver's nodes a proxied file stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `/dev/nvidiactl`.
    Control,
    /// `/dev/nvidiaN`.
    Gpu(GpuId),
    /// `/dev/nvidia-uvm`.
    Uvm,
}

/// One open proxied file.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Its number, never used twice.
    pub file: FileId,
    /// What it stands for.
    pub role: Role,
}

impl Session {
    /// The GPU that it stands for; `None` for the nodes that a tenant has once.
    fn gpu(&self) -> Option<GpuId> {
        match self.role {
            Role::Gpu(gpu) => Some(gpu),
            Role::Control | Role::Uvm => None,
        }
    }
}

/// Runs one `ioctl` and returns what the program's `ioctl` returns.
pub fn ioctl(
    call: &mut impl Call,
    session: &Session,
    request: u32,
    argument: UserAddr,
) -> Result<i32, Errno> {
    match session.role {
        Role::Control | Role::Gpu(_) => frontend::ioctl(call, session, request, argument),
        Role::Uvm => uvm::ioctl(call, session, request, argument),
    }
}

pub use managed::{rebalance, settle};
