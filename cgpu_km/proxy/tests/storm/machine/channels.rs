// SPDX-License-Identifier: GPL-2.0
//! Channels, and their control pages, which the GPU reads and writes as long as there are the
//! channels.

use super::*;

impl Machine {
    /// The memory of the group that a channel is to be in.
    fn group_of(&self, client: u32, parent: u32) -> Option<usize> {
        let parent = self.objects.get(&(client, parent))?;
        parent.memory.filter(|_| parent.class == CHANNEL_GROUP)
    }

    /// The memory of a channel is set aside in the pool of its group before anything can fail, and
    /// stays there.
    pub(in super::super) fn fill_pool(&mut self, task: &Task, request: u32, outer: &[u8]) {
        if task.uvm || request & 0xff != 0x2b || get32(outer, 12) != CHANNEL {
            return;
        }
        let Some(group) = self.group_of(get32(outer, 0), get32(outer, 4)) else {
            return;
        };
        let group = self.memory.get_mut(&group).expect("there");
        if group.channels * POOL == group.taken.pools {
            group.taken.pools += POOL;
            self.taken[group.tenant][group.gpu].pools += POOL;
        }
    }

    pub(super) fn channel(
        &mut self,
        task: &Task,
        names: (u32, u32, u32),
        params: &[u8],
    ) -> Outcome {
        let engine = get32(params, 128);
        let gpu = self.gpu(names.0, names.1)?;
        let control_page = self.control_page(names.0, params)?;
        let group = self.group_of(names.0, names.1);
        let taken = match group {
            Some(_) => Taken::default(),
            None => Taken {
                contexts: u64::from(engine == COMPUTE),
                pools: POOL,
                ..Taken::default()
            },
        };
        let memory = self.take(task, gpu, taken, 4 << 10);
        if let Some(group) = group {
            self.refer(group);
            self.memory.get_mut(&group).expect("there").channels += 1;
            self.memory.get_mut(&memory).expect("there").group = Some(group);
        }
        self.met.note("a channel is made");
        self.enter_or_drop(task, names, CHANNEL, memory)?;
        if let Some(page) = control_page {
            self.control_pages.insert((names.0, names.2), page);
            self.met.note("a channel has a control page");
        }
        Ok(())
    }

    /// The control page that a new channel names; `None`: the driver has one for it. It takes any
    /// place, and keeps no memory for it (`kchannelCreateUserdMemDesc_GV100()`).
    fn control_page(&self, client: u32, params: &[u8]) -> Result<Option<SeenPage>, NvStatus> {
        let (handle, offset) = (get32(params, 32), get64(params, 64));
        if handle == 0 {
            return Ok(None);
        }
        let object = self.objects.get(&(client, handle));
        let object = object.filter(|object| object.class == VIDEO_MEMORY);
        let memory = object.and_then(|object| object.memory);
        let memory = memory.ok_or(NvStatus::NV_ERR_OBJECT_NOT_FOUND)?;
        let page = self.pages.at(self.memory[&memory].gpu, memory, offset);
        Ok(Some(page.expect("memory has pages")))
    }

    /// Whether a channel's control page is in an object.
    pub(in super::super) fn has_control_page(&self, object: &MachineObject) -> bool {
        let mut pages = self.control_pages.values();
        pages.any(|page| Some(page.memory()) == object.memory)
    }

    /// No control page is free, or another tenant's.
    pub(in super::super) fn expect_own_control_pages(&self) {
        for (channel, page) in &self.control_pages {
            let tenant = self.clients[&channel.0].tenant;
            let is_foreign = self.pages.is_foreign(page, tenant);
            assert!(!is_foreign, "{channel:x?} has {page:?}");
        }
    }
}
