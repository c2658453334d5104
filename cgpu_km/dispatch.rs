// SPDX-License-Identifier: GPL-2.0
//! From a file operation to a proxied call: a process in an ioctl and the tenant whose file it holds
//! are, together, what [`crate::proxy`] works on.

use crate::{
    nvidia::tables::Tables,
    os_interface::{self, Caller, Printed},
    policy::{Audited, Books, GpuId, ProcessId, Reason},
    proxy::{self, Call, Errno, Part, Role, Route, Session, UserAddr},
    registry::{Endpoint, File, Tenant},
};
use kernel::prelude::*;

/// A process inside an ioctl on a tenant's file.
struct TenantCall<'a, 'b> {
    tenant: &'a Tenant,
    caller: &'a Caller<'b>,
}

impl Call for TenantCall<'_, '_> {
    fn read(&mut self, from: UserAddr, into: &mut [u8]) -> Result<(), Errno> {
        let from = os_interface::UserAddr::new(from.0);
        self.caller.read(from, into).map_err(errno)
    }

    fn write(&mut self, to: UserAddr, from: &[u8]) -> Result<(), Errno> {
        let to = os_interface::UserAddr::new(to.0);
        self.caller.write(to, from).map_err(errno)
    }

    fn forward(
        &mut self,
        request: u32,
        parts: &mut [Part<'_>],
        route: Route,
    ) -> Result<i32, Errno> {
        let answer = match route {
            Route::Caller => self
                .caller
                .forward(request, parts, os_interface::Route::Caller),
            Route::Worker(gpu) => {
                // The instance was destroyed while the call was under way.
                let worker = self.tenant.worker(gpu).ok_or(Errno::EINVAL)?;
                let route = os_interface::Route::Worker(&worker);
                self.caller.forward(request, parts, route)
            }
        };
        answer.map_err(errno)
    }

    fn process(&self) -> ProcessId {
        ProcessId(self.caller.process())
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

    fn process_by_number(&self, number: u32) -> Option<ProcessId> {
        self.caller.process_by_number(number).map(ProcessId)
    }

    fn audit(&mut self, noted: &Audited, gpu: Option<GpuId>) {
        let process = self.process();
        let now = os_interface::clock::seconds();
        let books = |books: &mut Books| books.note_call(noted, gpu, process, now);
        let Some(notice) = self.tenant.with_books(books) else {
            return;
        };
        let tenant = self.tenant.name().as_str().unwrap_or_default();
        let title = noted.title(self.tenant.tables()).unwrap_or("no name");
        let (call, reason) = (Printed(noted), Printed(&noted.reason));
        let (process, count) = (process.0, notice.count);
        if noted.reason == Reason::PassedUnseen {
            pr_info!("{tenant}: {call} of process {process} passed unseen ({count} times)\n");
            return;
        }
        pr_warn!(
            "{tenant}: {call} ({title}) of process {process} refused: {reason} ({count} times)\n"
        );
        if notice.suppressed > 0 {
            pr_warn!(
                "{tenant}: {} lines like it were left out\n",
                notice.suppressed
            );
        }
    }

    fn books<R>(&mut self, work: impl FnOnce(&mut Books) -> R) -> R {
        self.tenant.with_books(work)
    }
}

/// The errno of a failed operation, as the pure code knows it.
fn errno(error: Error) -> Errno {
    Errno(-error.to_errno())
}

/// Runs an ioctl on a proxied file.
pub fn ioctl(
    file: &File,
    caller: &mut Caller<'_>,
    request: u32,
    argument: os_interface::UserAddr,
) -> Result<i32> {
    let endpoint = file.endpoint();
    let session = Session {
        file: file.id(),
        role: match endpoint {
            Endpoint::Gpu(instance) => Role::Gpu(instance.gpu().id()),
            Endpoint::Control(_) => Role::Control,
            Endpoint::Uvm(_) => Role::Uvm,
        },
    };
    let mut call = TenantCall {
        tenant: endpoint.tenant(),
        caller,
    };
    let answer = proxy::ioctl(&mut call, &session, request, UserAddr(argument.get()));
    answer.map_err(|Errno(errno)| Error::from_errno(-errno))
}
