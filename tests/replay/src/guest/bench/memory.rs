// SPDX-License-Identifier: GPL-2.0
//! The memory that the module keeps, by the kernel's own accounts: what is there with an instance
//! and not without.

use std::fs;

use serde::Serialize;

use crate::{
    control::folder,
    guest::{rm::Client, tools::GPU},
};

/// Bytes of the module's.
#[derive(Debug, Default, Clone, Copy, Serialize)]
pub struct KernelMemory {
    /// An instance that nobody has open.
    pub instance_bytes: f64,
    /// A client with its two files, device and subdevice.
    pub client_bytes: f64,
    /// An object of video memory.
    pub object_bytes: f64,
}

/// Clients that are opened to weigh one.
const CLIENTS: u32 = 200;

/// Bytes in the kernel's slabs, in `vmalloc`, per processor, in stacks and page tables.
pub(super) fn kernel_bytes() -> Result<f64, String> {
    let path = "/proc/meminfo";
    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    let mut sum = 0.0;
    for key in ["Slab", "VmallocUsed", "Percpu", "KernelStack"] {
        sum += kib(&text, key)? as f64 * 1024.0;
    }
    Ok(sum)
}

/// A line of `/proc/meminfo`, in KiB.
pub(in crate::guest) fn kib(text: &str, key: &str) -> Result<u64, String> {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|rest| rest.strip_prefix(':')?.trim().split(' ').next());
    let number = number.and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("/proc/meminfo has no {key}"))
}

/// Bytes of the module's for a client: of one in an instance, less those of one without.
pub(super) fn client(name: &str, device_instance: u32) -> Result<f64, String> {
    let weigh = |folder: &str| -> Result<f64, String> {
        let before = kernel_bytes()?;
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let client = Client::open(folder, GPU, device_instance);
            clients.push(client.map_err(|e| format!("client on {folder}: {e}"))?);
        }
        let taken = kernel_bytes()? - before;
        for client in clients {
            client.close();
        }
        Ok(taken / f64::from(CLIENTS))
    };
    Ok(weigh(&folder(name))? - weigh("/dev")?)
}
