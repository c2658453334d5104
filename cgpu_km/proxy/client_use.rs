// SPDX-License-Identifier: GPL-2.0
//! Which calls may run beside each other on one client of the driver's.
//!
//! The driver looks for the client and the object of every control before it takes any lock. It is
//! the first thing that `_nv04ControlWithSecInfo()` does (entry_points.c; 535 to 595), in
//! `RmDeprecatedGetControlHandler()` (rmapi_deprecated_control.c). A call on another thread that
//! frees the object meanwhile, or the client, would have it read memory that is free. So a call
//! that may take an object out of a client has that client alone.
//!
//! The same holds for one request of UVM. The driver looks for an address space that is to be
//! registered, gives its lock back, and takes it again before it reads what it has found
//! (`nvGpuOpsDupAddressSpace()`, nv_gpu_ops.c; 535 to 595). Such a request does not come through
//! the client's own file, so that file must stay open as well. (For channels and memory the driver
//! keeps its locks: `nvGpuOpsRetainChannel()`, `dupMemory()`.)

use crate::nvidia::{
    escape::Escape,
    handle::ClientHandle,
    nvos::{
        self,
        nvos00,
        nvos02,
        nvos21,
        nvos32,
        nvos39,
        nvos54,
        nvos55, //
    },
    uvm, //
};

/// The client on which a call works, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientUse {
    /// The client.
    pub client: ClientHandle,
    /// Whether objects of it may go by that: those that are freed, and one that is made and then
    /// refused. Otherwise the call only looks at them.
    pub alone: bool,
    /// Whether the call comes through another file than the client's. That one must be open until
    /// the call is over, because its close frees the client.
    pub from_outside: bool,
}

impl ClientUse {
    /// Of a call with this request code and argument, as they go to the driver. `None` if the
    /// driver takes its own locks before it looks at anything.
    pub fn of(request: u32, argument: &[u8]) -> Option<Self> {
        if request == uvm::REGISTER_GPU_VASPACE {
            let client = uvm::register_vaspace::H_CLIENT.get(argument)?;
            return Some(Self {
                client: ClientHandle(client),
                alone: false,
                from_outside: true,
            });
        }
        // UVM's requests have other codes.
        let [nr, kind, ..] = request.to_le_bytes();
        if kind != nvos::MAGIC {
            return None;
        }
        let escape = Escape::from_nr(nr)?;
        let client = match escape {
            Escape::RmControl => nvos54::H_CLIENT,
            Escape::RmFree => nvos00::H_ROOT,
            Escape::RmAlloc => nvos21::H_ROOT,
            Escape::RmAllocMemory => nvos02::H_ROOT,
            Escape::RmVidHeapControl => nvos32::H_ROOT,
            Escape::RmAllocContextDma2 => nvos39::H_OBJECT_PARENT,
            Escape::RmDupObject => nvos55::H_CLIENT,
            _ => return None,
        };
        let client = client.get(argument)?;
        // Some controls of the client itself make objects in it: those that import.
        let only_looks =
            escape == Escape::RmControl && nvos54::H_OBJECT.get(argument) != Some(client);
        Some(Self {
            client: ClientHandle(client),
            alone: !only_looks,
            from_outside: false,
        })
    }
}
