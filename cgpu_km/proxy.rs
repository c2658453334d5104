// SPDX-License-Identifier: GPL-2.0
//! A proxied call, from the program's `ioctl` to the driver and back.
//!
//! Every call takes the same four steps, and this module is the only place that knows their order:
//!
//! 1. **decode**: the request number and the parameters, copied once from the program's memory;
//! 2. **ask policy**: the tables of [`crate::nvidia`] say whether the call may pass, how large its
//!    parameters are and what is done about it; the tenant's
//!    [`Accounting`](crate::policy::Accounting) says whether the memory is there;
//! 3. **forward**: the copies, not the program's memory, go to the driver ([`Call::forward`]);
//! 4. **record**: what the driver did goes into the accounting, and the results to the program.
//!
//! The driver acts on the bytes that were decided on. What it writes back is another matter: other
//! threads of the program can overwrite it before we read it (see `SECURITY.md`). So an output may
//! only ever raise a charge or name one of the program's own objects.
//!
//! A refusal looks like the driver's own: `ioctl` returns 0 and the status field holds an
//! `NV_STATUS`, or it fails with the errno that `nvidia_ioctl()` and `uvm_ioctl()` have for what
//! they do not know. Each refusal is a [`stop::Stop`], which one place notes and writes.
//!
//! Nothing here knows an operating system: the kernel module and the user-space harness each bring
//! a [`Call`].
//!
//! # Files, from the bottom up
//!
//! | file | what |
//! | --- | --- |
//! | `call`, `part` | what a call needs of its system, the structs that go to the driver |
//! | `client_use` | which calls may run beside each other |
//! | `copied`, `few` | structs out of the program's memory, short lists |
//! | `stop` | why a call ends early, and the end of every call |
//! | `sent`, `owned` | what of the driver's answers is believed, what is the tenant's own |
//! | `clients`, `orders` | handles of new clients, calls of the module's own about managed memory |
//! | `class_rules`, `alloc`, `heap`, `objects` | making, freeing and copying objects |
//! | `answer`, `exports`, `lists`, `reports`, `control` | controls |
//! | `handles` | mappings, sharing, events |
//! | `frontend` | escapes |
//! | `uvm_call`, `uvm_map`, `uvm_structs`, `managed`, `uvm` | requests of UVM |

mod alloc;
mod answer;
mod call;
mod class_rules;
mod client_use;
mod clients;
mod control;
mod copied;
mod events;
mod exports;
mod few;
mod frontend;
mod handles;
mod heap;
mod lists;
mod managed;
mod notes;
mod objects;
mod orders;
mod owned;
mod part;
mod preemption;
mod reports;
mod sent;
mod shown;
mod stop;
mod uvm;
mod uvm_call;
mod uvm_channel;
mod uvm_map;
mod uvm_structs;

#[cfg(test)]
mod tests;

pub use call::{
    Call,
    Errno,
    Held,
    Host,
    Returned,
    Role,
    Route,
    Session,
    UserAddr, //
};
pub use client_use::ClientUse;
pub use orders::{
    rebalance,
    settle, //
};
pub use part::{
    FileAt,
    Hole,
    Part,
    PointerAt, //
};

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
