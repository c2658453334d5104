// SPDX-License-Identifier: GPL-2.0
//! The system that a proxied call runs on.
//!
//! [`Host`] is what is there without a program: a tenant, its GPUs, the accounting. [`Call`] adds
//! the calling program: its memory, its descriptors, and the way on to the driver.

use super::part::{
    FileAt,
    Part, //
};
use crate::{
    nvidia::{
        handle::ClientHandle,
        nvos::Card,
        tables::Tables, //
    },
    policy::{
        Accounting,
        Audited,
        FileId,
        GpuId,
        ProcessId, //
    },
    store::Exhausted, //
};
use core::ops::Range;

/// An address in the memory of the calling program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserAddr(pub u64);

impl UserAddr {
    /// Whether this is the null pointer.
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }

    /// The address `offset` bytes further on; `EFAULT` beyond the end of the address space.
    pub(super) fn behind(self, offset: usize) -> Result<Self, Errno> {
        let offset = u64::try_from(offset).ok();
        let address = offset.and_then(|offset| self.0.checked_add(offset));
        address.map(Self).ok_or(Errno::EFAULT)
    }
}

/// A positive errno for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// UVM returns it while the machine is suspended.
    pub const EAGAIN: Self = Self(11);
    /// The file is closed.
    pub const EBADF: Self = Self(9);
    /// Not enough host memory.
    pub const ENOMEM: Self = Self(12);
    /// A bad address in the program's memory.
    pub const EFAULT: Self = Self(14);
    /// `nvidia_ioctl()` returns it for every request that it does not take.
    pub const EINVAL: Self = Self(22);
}

impl From<Exhausted> for Errno {
    fn from(_: Exhausted) -> Self {
        Self::ENOMEM
    }
}

/// The driver's return value. (A negative errno is a value here, because the driver was reached.)
/// It is an error if the driver was not reached: the parts are too large, the caller was killed
/// while it waited, or no memory was left.
pub type Returned = Result<i32, Errno>;

/// Which task runs the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The calling task itself: the driver binds UVM calls to its process.
    Caller,
    /// The worker of this GPU, in the caller's memory. It holds a file of the driver's own, for
    /// which `nv_is_gpu_accessible()` (kernel-open/nvidia/nv.c) searches the task's descriptor
    /// table.
    Worker(GpuId),
    /// The calling task, by the driver's kernel interface, for a device of this GPU: who calls
    /// there is the kernel, and need hold no file.
    Kernel(GpuId),
    /// The calling task, but by the driver's kernel interface if there is one. The parameters are
    /// in memory that no program can read before the report is cut down to what is the tenant's
    /// own.
    Unseen,
}

/// An open file of the tenant's, which stays open for as long as this exists.
pub trait Held {
    /// The proxy's view of it.
    fn session(&self) -> Session;
}

/// The driver and one tenant's share of it.
pub trait Host {
    /// The tables of the running driver.
    fn tables(&self) -> &'static Tables;

    /// The tenant's GPU with this UUID, as UVM names GPUs.
    fn gpu_by_uuid(&self, uuid: &[u8; 16]) -> Option<GpuId>;

    /// The tenant's GPU with this id, as RM names GPUs.
    fn gpu_by_id(&self, id: u32) -> Option<GpuId>;

    /// The driver's record of one of the tenant's GPUs, counted from 0 in the order of their
    /// minors. `None`: there are not so many.
    fn card(&self, number: usize) -> Option<Card>;

    /// Whether this GPU has a module-owned doorbell page in BAR1 that programs can be shown.
    /// Without one their doorbells go through BAR0, which works, but slower.
    fn has_doorbell(&self, _gpu: GpuId) -> bool {
        false
    }

    /// The driver is about to make a channel on one of the tenant's GPUs; the accounting has it
    /// already. Makes room to schedule it. A channel that cannot be noted once it is there could
    /// not be switched off.
    ///
    /// # Errors
    ///
    /// There is no memory.
    fn expect_channel(&mut self, _gpu: GpuId) -> Result<(), Exhausted> {
        Ok(())
    }

    /// Ends what a file shows that is [in reach](Call::keep_in_reach): no page of it is in any
    /// process's memory afterwards, and none can come. Nothing happens if the file is closed.
    fn end_mappings(&mut self, file: FileId);

    /// Seconds of a clock that nobody sets.
    fn uptime_s(&self) -> u64;

    /// Works on the tenant's accounting, alone.
    fn accounting<R>(&mut self, work: impl FnOnce(&mut Accounting) -> R) -> R;

    /// Reads the tenant's accounting, alone.
    fn look<R>(&mut self, work: impl FnOnce(&Accounting) -> R) -> R {
        self.accounting(|accounting| work(accounting))
    }

    /// Issues `request` on a control file or UVM's that the tenant has open, as [`Call::forward`]
    /// with [`Route::Caller`] does. A file of another role is as one that is closed.
    /// It fails as that does, and with `EBADF` when the file is closed.
    fn forward_on(&mut self, file: FileId, request: u32, parts: &mut [Part<'_>]) -> Returned;
}

/// A program inside an `ioctl` on one of the tenant's files.
pub trait Call: Host {
    /// A file that is held.
    type Held: Held;

    /// Copies from the program's memory.
    fn read(&mut self, from: UserAddr, into: &mut [u8]) -> Result<(), Errno>;

    /// Copies to the program's memory.
    fn write(&mut self, to: UserAddr, from: &[u8]) -> Result<(), Errno>;

    /// Stores a word in the program's memory, at a multiple of its size. Whoever looks meanwhile
    /// sees the old one or the new one. The default is for a system in which nobody looks.
    fn write_word(&mut self, to: UserAddr, word: u32) -> Result<(), Errno> {
        self.write(to, &word.to_ne_bytes())
    }

    /// Issues `request` on the backing file with the first part as its argument.
    fn forward(&mut self, request: u32, parts: &mut [Part<'_>], route: Route) -> Returned;

    /// As [`Call::forward`] with [`Route::Caller`], while the task has a descriptor table that the
    /// program cannot change, in which the driver finds `file` alone. The file's number there
    /// replaces the program's own during the call. The default is for a system whose program
    /// changes no descriptor meanwhile: there its own number is right.
    fn forward_holding(
        &mut self,
        request: u32,
        parts: &mut [Part<'_>],
        _file: FileAt<'_, Self::Held>,
    ) -> Returned {
        self.forward(request, parts, Route::Caller)
    }

    /// Takes a mapping out of the calling program's memory.
    fn unmap(&mut self, base: u64, length: u64);

    /// Does `work`, in which the driver pins the program's memory at these addresses, while no file
    /// of a tenant's shows an object there. `None`: one does. The default is for a system in which
    /// the driver's own memory is nobody's matter.
    fn while_pinned<R>(&mut self, _at: Range<u64>, work: impl FnOnce(&mut Self) -> R) -> Option<R> {
        Some(work(self))
    }

    /// The file that one of the program's descriptors stands for at this moment. `None`: it stands
    /// for no file, or for one that is not this tenant's.
    fn hold(&mut self, descriptor: i32) -> Option<Self::Held>;

    /// Lets [`Host::end_mappings`] find a file, until that is closed. It fails if there is no
    /// memory for it. The default is for a [`Host`] that finds all files, or ends nothing.
    fn keep_in_reach(&mut self, _file: &Self::Held) -> Result<(), Errno> {
        Ok(())
    }

    /// Works while no other task of the tenant makes a client. It fails if the caller is killed
    /// while it waits. The default is for a tenant that makes one at a time, or need not wait.
    fn clients<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> Result<R, Errno> {
        Ok(work(self))
    }

    /// A handle for a new client, which no client has, and which neither the driver nor another
    /// call will choose. `None` in a harness that has no interface of the kernel's: the driver
    /// chooses, and what it tells the program is believed.
    fn unused_client(&mut self) -> Result<Option<ClientHandle>, Errno> {
        Ok(None)
    }

    /// There is no client with the handle that [`Call::unused_client`] gave. For one that there is,
    /// [`Accounting::take_gone_client`](crate::policy::Accounting::take_gone_client) says that it
    /// is gone.
    fn take_back_client(&mut self, _client: ClientHandle) {}

    /// Whether a client has this handle, as the driver tells the kernel.
    fn is_client(&mut self, _client: ClientHandle) -> Result<bool, Errno> {
        Err(Errno::EINVAL)
    }

    /// Has a file show the module's doorbell page in its later mappings. The default is for a
    /// [`Host`] that [has no such page](Host::has_doorbell).
    fn show_doorbell(&mut self, _file: &Self::Held) {}

    /// The calling process.
    fn process(&self) -> ProcessId;

    /// The process that has this number in the PID namespace of the calling process. (The driver
    /// gives processes the numbers of the caller's namespace.)
    fn process_by_number(&self, number: u32) -> Option<ProcessId>;

    /// The driver has refused the call. The default is for a system without a log that the driver
    /// could fill.
    fn refused_by_driver(&mut self) {}

    /// Notes a call that was refused, or let through unseen; see [`Accounting::note_call`]. A
    /// system with a clock and a log uses both.
    fn audit(&mut self, noted: &Audited, gpu: Option<GpuId>) {
        let process = self.process();
        self.accounting(|accounting| accounting.note_call(noted, gpu, process, 0));
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
    /// The node that it stands for.
    pub role: Role,
}

impl Held for Session {
    fn session(&self) -> Session {
        *self
    }
}

impl Session {
    /// The GPU that it stands for; `None` for the nodes that a tenant has once.
    pub(super) fn gpu(&self) -> Option<GpuId> {
        match self.role {
            Role::Gpu(gpu) => Some(gpu),
            Role::Control | Role::Uvm => None,
        }
    }

    /// The file, if it is a control file.
    pub(super) fn control(&self) -> Option<FileId> {
        (self.role == Role::Control).then_some(self.file)
    }
}
