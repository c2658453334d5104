// SPDX-License-Identifier: GPL-2.0
//! The nodes that a race runs on, and the objects that its calls name.

use super::case::SwappedFiles;
use crate::{
    control::Control,
    guest::{
        rm::{self, Client},
        tools,
        uvm::{self, Space},
    },
    standin,
};

pub(super) const GPU: u32 = 0;
/// Names of the instances.
pub(super) const NAMES: [&str; 2] = ["race-one", "race-two"];

/// The nodes that are used, and the objects that a call can name.
pub(super) struct Scene {
    /// The caller's.
    pub(super) own: Client,
    /// Another tenant's; without instances, of another file.
    pub(super) foreign: Client,
    /// The caller's nodes.
    pub(super) folder: String,
    pub(super) uvm: Space,
    pub(super) gpu: [u8; 16],
    /// The caller's instance; `None`: the driver's own nodes.
    pub(super) control: Option<Control>,
    /// Charge and heap before the first call, bytes.
    idle: (u64, u64),
}

/// Memory of the foreign client that all may duplicate.
pub(super) const FOREIGN_MEMORY: u32 = 0x5C00_0200;
const SPACE_HANDLE: u32 = 0x5C00_0004;

impl Scene {
    pub(super) fn new(folders: [&str; 2], control: Option<Control>) -> Result<Self, String> {
        let failed = |what: &'static str| move |e: rm::Failure| format!("{what}: {e}");
        let instance = {
            let control = tools::control()?;
            let gpus = control.gpus().map_err(|e| format!("GPUs: errno {e}"))?;
            let gpu = gpus.iter().find(|gpu| gpu.minor == GPU).ok_or("no GPU")?;
            gpu.device_instance
        };
        let own = Client::open(folders[0], GPU, instance).map_err(failed("client"))?;
        let foreign = Client::open(folders[1], GPU, instance).map_err(failed("client"))?;
        foreign
            .memory(FOREIGN_MEMORY, 1 << 20)
            .and_then(|_| rm::share(foreign.ctl, (foreign.handle, FOREIGN_MEMORY), 1))
            .map_err(failed("foreign memory"))?;
        // Under the same handle, so that the client alone tells one from the other.
        own.memory(FOREIGN_MEMORY, 1 << 20)
            .map_err(failed("own memory"))?;
        let gpu = uvm::uuid(GPU)?;
        own.alloc(
            rm::DEVICE_HANDLE,
            SPACE_HANDLE,
            uvm::VA_SPACE,
            &mut uvm::space_params(),
        )
        .map_err(failed("address space"))?;
        let space = Space::open(folders[0]).map_err(failed("UVM"))?;
        space
            .register(&gpu, own.handle, SPACE_HANDLE)
            .map_err(failed("UVM register"))?;
        let mut scene = Self {
            own,
            foreign,
            folder: folders[0].to_owned(),
            uvm: space,
            gpu,
            control,
            idle: (0, 0),
        };
        scene.idle = scene.charged_and_held()?;
        Ok(scene)
    }

    /// Charge of the caller's instance and content of the heap, both since the beginning.
    pub(super) fn charged_and_held(&self) -> Result<(u64, u64), String> {
        let held = standin::heap(GPU)?.used - self.idle.1;
        let Some(control) = &self.control else {
            return Ok((held, held));
        };
        let instance = control.get(NAMES[0], GPU);
        let instance = instance.map_err(|e| format!("get: errno {e}"))?;
        Ok((instance.memory_used_bytes - self.idle.0, held))
    }

    pub(super) fn close(self) {
        self.uvm.close();
        self.own.close();
        self.foreign.close();
        SwappedFiles::close_all();
    }
}
