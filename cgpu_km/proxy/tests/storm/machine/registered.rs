// SPDX-License-Identifier: GPL-2.0
//! Channels that UVM keeps, in the reference model.

use super::*;

impl Machine {
    /// UVM keeps a channel, with its memory and its group, when it is freed.
    pub(super) fn register(&mut self, task: &Task, gpu: usize, channel: (u32, u32)) -> Outcome {
        let client = self.clients.get(&channel.0);
        if client.is_none_or(|client| client.tenant != task.tenant) {
            return Err(NvStatus::NV_ERR_INVALID_OBJECT_HANDLE);
        }
        let object = self.objects.get(&channel);
        // UVM finds it by way of an address space of that GPU.
        let is_channel = |object: &&MachineObject| object.class == CHANNEL;
        let object = object.filter(|object| is_channel(object) && object.gpu == Some(gpu));
        let memory = object.and_then(|object| object.memory);
        let memory = memory.ok_or(NvStatus::NV_ERR_OBJECT_NOT_FOUND)?;
        let key = (task.file, channel.0, channel.1);
        if self.registered.contains_key(&key) {
            return Err(NvStatus::NV_ERR_INVALID_CHANNEL);
        }
        self.refer(memory);
        self.registered.insert(key, (gpu, memory));
        self.met.note("a channel is registered");
        Ok(())
    }

    pub(super) fn let_go(&mut self, key: (u64, u32, u32)) -> Outcome {
        let registered = self.registered.remove(&key);
        let (_, memory) = registered.ok_or(NvStatus::NV_ERR_INVALID_CHANNEL)?;
        if self.memory[&memory].references == 1 {
            self.met.note("a channel goes with its registration");
        }
        self.drop(Some(memory));
        Ok(())
    }

    pub(super) fn let_go_all(&mut self, file: u64, is_of: impl Fn(usize) -> bool) {
        let of = self
            .registered
            .range((file, 0, 0)..=(file, u32::MAX, u32::MAX));
        let of = of.filter(|(_, (gpu, _))| is_of(*gpu));
        let keys: Vec<_> = of.map(|(&key, _)| key).collect();
        for key in keys {
            let _ = self.let_go(key);
        }
    }
}
