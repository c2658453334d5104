// SPDX-License-Identifier: GPL-2.0
//! The caller, on the driver's own nodes or in an instance, and the others beside it.

use super::{
    figures::{FEW, LIMIT},
    memory::kernel_bytes,
};
use crate::{
    control::{folder, Control},
    guest::{
        process::spawn,
        rm::{self, Client},
        tools::{control, sys, GPU},
        uvm::{self, Space},
    },
    sys as os,
};

/// Handles of the objects that are only there.
const CROWD: u32 = 0x6000_0000;
/// Most clients of the bench itself in an instance: callers, and those whose memory is measured.
const OWN_CLIENTS: u64 = 1000;
const SPACE_HANDLE: u32 = 0x5C00_0008;
/// The memory of the smallest object.
pub(super) const SMALL: u64 = 64 << 10;
/// The size of one mapping of UVM.
pub(super) const PIECE: u64 = 2 << 20;
/// Memory that stays mapped, and where.
const MAPPED: u32 = 0x5C00_0009;
const MAPPED_AT: u64 = 0x10_0000_0000;

/// A program with a client, an address space of UVM and some memory.
pub(super) struct BenchSide {
    /// The folder of its nodes.
    pub(super) folder: String,
    /// Its client.
    pub(super) client: Client,
    /// Its address space.
    pub(super) space: Space,
    /// The GPU, as UVM calls it.
    pub(super) gpu: [u8; 16],
    objects: u32,
}

impl BenchSide {
    /// On the nodes of a folder.
    pub(super) fn open(folder: &str, device_instance: u32) -> Result<Self, String> {
        let failed = |e: rm::Failure| format!("a program on {folder}: {e}");
        let client = Client::open(folder, GPU, device_instance).map_err(failed)?;
        let made = client.alloc(
            rm::DEVICE_HANDLE,
            SPACE_HANDLE,
            uvm::VA_SPACE,
            &mut uvm::space_params(),
        );
        made.map_err(failed)?;
        let space = Space::open(folder).map_err(failed)?;
        let gpu = uvm::uuid(GPU)?;
        space
            .register(&gpu, client.handle, SPACE_HANDLE)
            .map_err(failed)?;
        // As many mappings as a side has objects when nothing else is said: a program that maps
        // more has some.
        client.memory(MAPPED, PIECE).map_err(failed)?;
        for number in 0..FEW {
            let base = MAPPED_AT + u64::from(number) * PIECE;
            space.create_range(base, PIECE).map_err(failed)?;
            let memory = (client.handle, MAPPED);
            space.map((base, PIECE), &gpu, memory).map_err(failed)?;
        }
        Ok(Self {
            folder: folder.to_owned(),
            client,
            space,
            gpu,
            objects: 0,
        })
    }

    /// Allocates until there are so many objects, and tells how many bytes each takes in the
    /// kernel.
    pub(super) fn grow(&mut self, objects: u32) -> Result<f64, String> {
        let before = kernel_bytes()?;
        let new = objects.saturating_sub(self.objects);
        for number in self.objects..objects {
            let made = self.client.memory(CROWD + number, SMALL);
            made.map_err(|e| format!("object {number} on {}: {e}", self.folder))?;
        }
        self.objects = self.objects.max(objects);
        Ok((kernel_bytes()? - before) / f64::from(new.max(1)))
    }

    /// Ends it.
    pub(super) fn close(self) {
        self.space.close();
        self.client.close();
    }
}

/// Others, who do nothing.
pub(super) struct Crowd {
    names: Vec<String>,
    clients: Vec<Client>,
    pids: Vec<i32>,
    /// Bytes that each instance takes in the kernel before anybody opens it.
    pub(super) each_instance: f64,
}

impl Crowd {
    /// Instances with a client and an object in each.
    pub(super) fn instances(
        control: &Control,
        device_instance: u32,
        count: u32,
    ) -> Result<Self, String> {
        let names: Vec<_> = (0..count).map(|n| format!("other{n}")).collect();
        let before = kernel_bytes()?;
        for name in &names {
            sys(name, control.create(name, GPU, LIMIT / 256, 1))?;
        }
        let each_instance = (kernel_bytes()? - before) / f64::from(count.max(1));
        let mut clients = Vec::new();
        for name in &names {
            let client = Client::open(&folder(name), GPU, device_instance);
            let client = client.map_err(|e| format!("client of {name}: {e}"))?;
            let made = client.memory(CROWD, SMALL);
            made.map_err(|e| format!("memory of {name}: {e}"))?;
            clients.push(client);
        }
        Ok(Self {
            names,
            clients,
            pids: Vec::new(),
            each_instance,
        })
    }

    /// Processes with a client and an object in one instance.
    pub(super) fn processes(name: &str, device_instance: u32, count: u32) -> Result<Self, String> {
        let folder = folder(name);
        let mut crowd = Self {
            names: Vec::new(),
            clients: Vec::new(),
            pids: Vec::new(),
            each_instance: 0.0,
        };
        let control = control()?;
        // More than an instance has by default, and room for the bench's own beside them.
        let clients = cgpu_uapi::Limited::Clients.number();
        let raised = control.set_limit(name, GPU, clients, u64::from(count) + OWN_CLIENTS);
        sys("limit of clients", raised)?;
        for _ in 0..count {
            let pid = spawn(|| {
                let Ok(client) = Client::open(&folder, GPU, device_instance) else {
                    return 1;
                };
                if client.memory(CROWD, SMALL).is_err() {
                    return 2;
                }
                loop {
                    os::sleep_ms(1_000_000);
                }
            });
            crowd.pids.push(sys("fork", pid)?);
        }
        // The caller is one of them.
        for _ in 0..6000 {
            let now = sys("get", control.get(name, GPU))?;
            if now.processes > count && now.memory_used_bytes >= u64::from(count) * SMALL {
                return Ok(crowd);
            }
            os::sleep_ms(20);
        }
        Err(format!("{count} processes do not come up"))
    }

    /// Ends them.
    pub(super) fn end(self, control: &Control) -> Result<(), String> {
        for pid in &self.pids {
            sys("kill", os::kill(*pid, libc::SIGKILL))?;
        }
        for pid in &self.pids {
            sys("wait", os::wait(*pid))?;
        }
        for client in self.clients {
            client.close();
        }
        for name in &self.names {
            sys(name, control.destroy(name, GPU))?;
        }
        Ok(())
    }
}
