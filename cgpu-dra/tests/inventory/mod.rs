// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A node with two GPUs, for what reads claims; tests/fuzz uses it too.

use cgpu_dra::gpus::{Inventory, NodeGpu};

/// The GPUs 0 and 1, of 128 GiB each.
pub(crate) fn inventory() -> Inventory {
    let gpu = |minor| NodeGpu {
        minor,
        uuid: format!("GPU-{minor}"),
        pci: format!("0000:0{minor}:00.0"),
        product: None,
        memory_bytes: 1 << 37,
        largest_bytes: 1 << 37,
        weight: 100,
        instances: 64,
    };
    Inventory {
        driver: "580.142".to_owned(),
        gpus: vec![gpu(0), gpu(1)],
    }
}
