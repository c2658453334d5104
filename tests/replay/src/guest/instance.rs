// SPDX-License-Identifier: GPL-2.0
//! An instance of a test, which goes away with it.

use cgpu_uapi as uapi;

use super::{
    rm,
    tools::{at, control, device_instance, sys, Verdict, GPU},
};
use crate::control::{folder, Control};

/// An instance that goes away with this value. Tests hold it over everything that uses it.
pub(super) struct Instance {
    pub(super) control: Control,
    pub(super) name: &'static str,
    gpu: u32,
}

impl Instance {
    pub(super) fn new(name: &'static str, limit: u64) -> Result<Self, String> {
        let control = control()?;
        let made = control.create(name, GPU, limit, 1);
        sys(&format!("create {name}"), made)?;
        Ok(Self {
            control,
            name,
            gpu: GPU,
        })
    }

    pub(super) fn get(&self) -> Result<uapi::Instance, String> {
        sys("get", self.control.get(self.name, self.gpu))
    }

    pub(super) fn used(&self) -> Result<u64, String> {
        self.get().map(|i| i.memory_used_bytes)
    }

    pub(super) fn set_memory(&self, limit: u64) -> Verdict {
        let set = self.control.set_memory(self.name, self.gpu, limit);
        sys("set-mem", set)
    }

    pub(super) fn folder(&self) -> String {
        folder(self.name)
    }

    /// A program with a client, a device and a subdevice in it.
    pub(super) fn client(&self) -> Result<rm::Client, String> {
        let instance = device_instance(&self.control, self.gpu)?;
        at(
            "client",
            rm::Client::open(&self.folder(), self.gpu, instance),
        )
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A test that leaves something open has failed already or is seen by the next one, whose
        // name is taken.
        let _ = self.control.destroy(self.name, self.gpu);
    }
}

/// Instances that a failed test left behind must not fail the others.
pub(super) fn clean_up() {
    let Ok(control) = Control::open() else { return };
    for instance in control.instances().unwrap_or_default() {
        if let Some(name) = instance.key.name.as_str() {
            let _ = control.destroy(name, instance.key.gpu_minor);
        }
    }
}
