// SPDX-License-Identifier: GPL-2.0
//! From a file operation to a proxied call: a process in an ioctl and the tenant whose file it
//! holds are, together, what [`crate::proxy`] works on.

mod endpoint;

use crate::{
    nvidia::{
        handle::ClientHandle,
        nvos::Card,
        tables::Tables, //
    },
    os_interface::{
        self,
        log::{
            pr_info,
            pr_warn, //
        },
        CallRoute,
        Caller,
        HeldFile,
        KeptFile,
        Pages,
        ProgramMapping,
        RwGuard,
        Shown,
        Unmapped, //
    },
    policy::{
        Accounting,
        Audited,
        FileId,
        GpuId,
        ProcessId,
        Reason, //
    },
    proxy::{
        self,
        Call,
        ClientUse,
        Errno,
        FileAt,
        Held,
        Host,
        Part,
        Returned,
        Role,
        Route,
        Session,
        UserAddr, //
    },
    registry::{
        Tenant,
        TenantFile,
        TenantNode,
        Unbalanced, //
    },
    store::Exhausted, //
};
use core::ops::Range;
use kernel::prelude::*;

/// A call for a tenant. `C` is the process inside an ioctl on one of its files, or `()` for what
/// the host's root changes.
struct TenantCall<'a, C> {
    tenant: &'a Tenant,
    caller: C,
    /// The client that the call has alone, until it is over: what it has made there is in the
    /// accounting, and known to the scheduler, before another call can use it.
    alone: Option<(ClientHandle, RwGuard<'a>)>,
}

/// A client that a call shares with others, until this is dropped.
struct UsedClient<'a> {
    _lock: RwGuard<'a>,
    /// The client's file, if the call comes through another one.
    _file: Option<KeptFile>,
}

impl Held for HeldFile<TenantNode> {
    fn session(&self) -> Session {
        session(self.file())
    }
}

impl<'a> TenantCall<'a, &Caller<'_>> {
    /// Waits until a call may work on its client, and keeps away those that may not work beside it.
    fn use_client(
        &mut self,
        request: u32,
        parts: &[Part<'_>],
    ) -> Result<Option<UsedClient<'a>>, Errno> {
        let argument = parts.first().map(|part| &*part.bytes);
        let client_use = argument.and_then(|argument| ClientUse::of(request, argument));
        let Some(client_use) = client_use else {
            return Ok(None);
        };
        let client = client_use.client;
        if self
            .alone
            .as_ref()
            .is_some_and(|(alone, _)| *alone == client)
        {
            return Ok(None);
        }
        // A task has one lock at a time.
        self.alone = None;
        let guard = self.tenant.use_client(client_use).map_err(errno)?;
        if client_use.alone {
            self.alone = Some((client, guard));
            return Ok(None);
        }
        // With the lock no other client gets the handle, and so none of another file.
        let file = client_use.from_outside.then(|| {
            let file = self.tenant.look(|a| a.client_file(client));
            let file = file.and_then(|file| self.tenant.called_file(file));
            file.and_then(|file| file.keep()).ok_or(Errno::EBADF)
        });
        Ok(Some(UsedClient {
            _lock: guard,
            _file: file.transpose()?,
        }))
    }

    /// Calls the driver.
    fn pass(&mut self, request: u32, parts: &mut [Part<'_>], route: CallRoute<'_>) -> Returned {
        let _client = self.use_client(request, parts)?;
        let answer = self.caller.forward(request, parts, route);
        answer.map_err(errno)
    }
}

impl<C> Host for TenantCall<'_, C> {
    fn forward_on(&mut self, file: FileId, request: u32, parts: &mut [Part<'_>]) -> Returned {
        let file = self.tenant.called_file(file).ok_or(Errno::EBADF)?;
        file.forward(request, parts).map_err(errno)
    }

    fn end_mappings(&mut self, file: FileId) {
        self.tenant.end_mappings(file);
    }

    fn has_doorbell(&self, gpu: GpuId) -> bool {
        self.tenant.has_doorbell(gpu)
    }

    fn expect_channel(&mut self, gpu: GpuId) -> Result<(), Exhausted> {
        self.tenant.expect_channel(gpu)
    }

    /// The clock by which the GPU's thread looks.
    fn uptime_s(&self) -> u64 {
        os_interface::clock::now() / 1_000_000_000
    }

    fn tables(&self) -> &'static Tables {
        self.tenant.tables()
    }

    fn gpu_by_uuid(&self, uuid: &[u8; 16]) -> Option<GpuId> {
        self.tenant.gpu_by_uuid(uuid)
    }

    fn gpu_by_id(&self, id: u32) -> Option<GpuId> {
        self.tenant.gpu_by_id(id)
    }

    fn card(&self, number: usize) -> Option<Card> {
        self.tenant.card(number)
    }

    fn accounting<R>(&mut self, work: impl FnOnce(&mut Accounting) -> R) -> R {
        self.tenant.with_accounting(work)
    }

    fn look<R>(&mut self, work: impl FnOnce(&Accounting) -> R) -> R {
        self.tenant.look(work)
    }
}

impl Call for TenantCall<'_, &Caller<'_>> {
    type Held = HeldFile<TenantNode>;

    fn hold(&mut self, descriptor: i32) -> Option<HeldFile<TenantNode>> {
        let held = HeldFile::<TenantNode>::of(self.caller, descriptor)?;
        let is_own = core::ptr::eq::<Tenant>(&**held.file().tenant(), self.tenant);
        is_own.then_some(held)
    }

    fn forward_holding(
        &mut self,
        request: u32,
        parts: &mut [Part<'_>],
        file: FileAt<'_, HeldFile<TenantNode>>,
    ) -> Returned {
        // The instance was destroyed while the call was under way.
        let driver = self.tenant.driver().ok_or(Errno::EINVAL)?;
        let _slot = driver.mapping_slot().map_err(errno)?;
        let descriptor = file.file.at(file.part, file.offset);
        self.pass(request, parts, CallRoute::Holding(descriptor))
    }

    fn read(&mut self, from: UserAddr, into: &mut [u8]) -> Result<(), Errno> {
        self.caller.read(from, into).map_err(errno)
    }

    fn write(&mut self, to: UserAddr, from: &[u8]) -> Result<(), Errno> {
        self.caller.write(to, from).map_err(errno)
    }

    fn write_word(&mut self, to: UserAddr, word: u32) -> Result<(), Errno> {
        self.caller.write_word(to, word).map_err(errno)
    }

    fn forward(&mut self, request: u32, parts: &mut [Part<'_>], route: Route) -> Returned {
        match route {
            Route::Caller => self.pass(request, parts, CallRoute::Caller),
            Route::Worker(gpu) => {
                // The instance was destroyed while the call was under way.
                let worker = self.tenant.worker(gpu).ok_or(Errno::EINVAL)?;
                let tenant = self.tenant;
                let _guard = tenant.jobs().map_err(errno)?;
                self.pass(request, parts, CallRoute::Worker(&worker))
            }
            Route::Kernel(gpu) => {
                // The instance was destroyed while the call was under way.
                let driver = self.tenant.driver_of(gpu).ok_or(Errno::EINVAL)?;
                let _client = self.use_client(request, parts)?;
                driver.device_for(parts).map(|()| 0).map_err(errno)
            }
            Route::Unseen => {
                // The instance was destroyed while the call was under way.
                let driver = self.tenant.driver().ok_or(Errno::EINVAL)?;
                let _client = self.use_client(request, parts)?;
                let made = match parts {
                    [_] => driver.mapping_for(request, parts),
                    _ => driver.control_for(parts),
                };
                made.map(|()| 0).map_err(errno)
            }
        }
    }

    fn unmap(&mut self, base: u64, length: u64) {
        let gone = self.caller.unmap(UserAddr(base), length);
        // The task is being killed: its memory goes with it.
        gone.unwrap_or(());
    }

    fn while_pinned<R>(&mut self, at: Range<u64>, work: impl FnOnce(&mut Self) -> R) -> Option<R> {
        let (start, length) = (UserAddr(at.start), at.end.saturating_sub(at.start));
        os_interface::while_pinned(self.caller, start, length, || work(self))
    }

    fn clients<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> Result<R, Errno> {
        let tenant = self.tenant;
        let _guard = tenant.clients().map_err(errno)?;
        Ok(work(self))
    }

    fn unused_client(&mut self) -> Result<Option<ClientHandle>, Errno> {
        // The instance was destroyed while the call was under way.
        let driver = self.tenant.driver().ok_or(Errno::EINVAL)?;
        for _ in 0..ClientHandle::COUNT {
            let client = self.tenant.give_client().map_err(errno)?;
            match driver.is_client(client) {
                Ok(false) => return Ok(Some(client)),
                // A program of the host has chosen it.
                Ok(true) => self.tenant.take_back_client(client),
                Err(e) => {
                    self.tenant.take_back_client(client);
                    return Err(errno(e));
                }
            }
        }
        Err(Errno::ENOMEM)
    }

    fn take_back_client(&mut self, client: ClientHandle) {
        self.tenant.take_back_client(client);
    }

    fn is_client(&mut self, client: ClientHandle) -> Result<bool, Errno> {
        let driver = self.tenant.driver().ok_or(Errno::EINVAL)?;
        driver.is_client(client).map_err(errno)
    }

    fn keep_in_reach(&mut self, file: &HeldFile<TenantNode>) -> Result<(), Errno> {
        file.file().keep_in_reach().map_err(errno)
    }

    fn show_doorbell(&mut self, file: &HeldFile<TenantNode>) {
        file.file().show_doorbell();
    }

    fn process(&self) -> ProcessId {
        ProcessId(self.caller.process())
    }

    fn process_by_number(&self, number: u32) -> Option<ProcessId> {
        self.caller.process_by_number(number).map(ProcessId)
    }

    fn refused_by_driver(&mut self) {
        self.tenant.note_refusal();
    }

    fn audit(&mut self, noted: &Audited, gpu: Option<GpuId>) {
        let process = self.process();
        let now = os_interface::clock::seconds();
        let accounting =
            |accounting: &mut Accounting| accounting.note_call(noted, gpu, process, now);
        let Some(notice) = self.tenant.with_accounting(accounting) else {
            return;
        };
        let tenant = self.tenant.name().as_str().unwrap_or_default();
        let title = noted.title(self.tenant.tables()).unwrap_or("no name");
        let (call, reason) = (noted, &noted.reason);
        let (process, count) = (process.0, notice.count);
        if noted.reason == Reason::PassedUnseen {
            pr_info!(
                "{tenant}: {call} of process {process} went to the GPU's firmware unseen ({count} \
                 times)\n"
            );
            return;
        }
        pr_warn!(
            "{tenant}: {call} ({title}) of process {process} refused: {reason} ({count} times)\n"
        );
        if notice.suppressed > 0 {
            pr_warn!(
                "{tenant}: {} similar lines were left out\n",
                notice.suppressed
            );
        }
    }
}

/// The errno of a failed operation, as the pure code knows it.
fn errno(error: Error) -> Errno {
    Errno(-error.to_errno())
}

/// The proxy's view of an open file.
fn session(file: &TenantFile) -> Session {
    Session {
        file: file.id(),
        role: match file.endpoint() {
            TenantNode::Gpu(instance) => Role::Gpu(instance.gpu().id()),
            TenantNode::Control(_) => Role::Control,
            TenantNode::Uvm(_) => Role::Uvm,
        },
    }
}

/// Runs an ioctl on a proxied file.
fn ioctl(
    file: &TenantFile,
    caller: &mut Caller<'_>,
    request: u32,
    argument: UserAddr,
) -> Result<i32> {
    let tenant = file.tenant();
    tenant.wait_for_refusals()?;
    let mut call = TenantCall {
        tenant,
        caller: &*caller,
        alone: None,
    };
    let answer = proxy::ioctl(&mut call, &session(file), request, argument);
    answer.map_err(|Errno(errno)| Error::from_errno(-errno))
}

/// A mapping of a tenant's UVM file was made. Where the driver has put pages in at once it is none
/// of managed memory (`uvm_mem_map_cpu_user()` of a semaphore pool, uvm_mem.c), whose pages come
/// with faults.
fn mapped<'a>(
    file: &TenantFile,
    tenant: &Tenant,
    made: &ProgramMapping,
    pages: &Pages<'_>,
) -> Result<Shown<'a>> {
    if pages.first().is_some() {
        return Ok(Shown::AsMade);
    }
    let (base, length) = (made.start.get(), made.length);
    let entered =
        tenant.with_accounting(|accounting| accounting.map_managed(file.id(), base, length));
    // UVM's own mmap fails with this when there is no memory.
    let is_shown_later = entered.map_err(|_| ENOMEM)?;
    Ok(if is_shown_later {
        Shown::Later
    } else {
        Shown::AsMade
    })
}

/// Before the program gets the address of a mapping that [`mapped`] said this of.
fn settle(
    file: &TenantFile,
    caller: &mut Caller<'_>,
    made: &ProgramMapping,
    is_late: impl Fn() -> bool,
) {
    let tenant = file.tenant();
    let mut call = TenantCall {
        tenant,
        caller: &*caller,
        alone: None,
    };
    proxy::settle(&mut call, file.id(), made.start.get(), made.length, is_late);
}

/// A mapping of a tenant's file, or a part of one, is gone.
fn unmapped(file: &TenantFile, gone: &ProgramMapping, how: Unmapped) {
    // Of a program that has ended, the driver keeps the memory until the file is closed.
    if let (TenantNode::Uvm(tenant), Unmapped::ByProgram) = (file.endpoint(), how) {
        let (base, length) = (gone.start.get(), gone.length);
        tenant.with_accounting(|accounting| accounting.unmap_managed(file.id(), base, length));
    }
}

/// Has the driver follow a changed limit or mode of a tenant.
pub fn rebalance(changed: Unbalanced<'_>) {
    proxy::rebalance(&mut TenantCall {
        tenant: changed.tenant(),
        caller: (),
        alone: None,
    });
}
