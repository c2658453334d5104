// SPDX-License-Identifier: GPL-2.0
//! The accounting of one tenant: channels, and the memory that they use.

use crate::{
    nvidia::class::Kind,
    policy::{
        accounting::Accounting,
        event::{
            Alloc,
            RefusalCause,
            Ticket, //
        },
        records::RecordId, //
    },
    store::Exhausted, //
};

/// Bytes of a channel's control page (`NV_RAMUSERD_CHAN_SIZE`, dev_ram.h).
const CONTROL_PAGE: u64 = 512;

impl Accounting {
    /// A channel names memory for its errors and for its control page. Both stay until it is gone.
    pub(super) fn begin_channel(&mut self, alloc: &Alloc) -> Result<Ticket, RefusalCause> {
        let page = self.control_memory(alloc)?;
        let errors = self.error_memory(alloc)?;
        let kept = self.forest.keep([errors, page])?;
        match self.begin_object(alloc) {
            Ok(ticket) => Ok(Ticket { kept, ..ticket }),
            Err(refusal) => {
                self.forest.let_go(kept, None);
                Err(refusal)
            }
        }
    }

    /// The driver does not look whether there is memory for errors before it uses it
    /// (`kchannelConstruct_IMPL()`, kernel_channel.c): the kernel of the host would take a null
    /// pointer.
    fn error_memory(&self, alloc: &Alloc) -> Result<Option<RecordId>, RefusalCause> {
        let Some(handle) = alloc.memory else {
            return Ok(None);
        };
        let notes = self.forest.find(alloc.client, handle);
        let notes = notes.ok_or(RefusalCause::NoNotes)?;
        let parent = self.forest.named(alloc.client, alloc.parent)?.id;
        if !self.forest.takes_notes(notes) || !self.forest.are_of_one_device(notes, parent) {
            return Err(RefusalCause::NoNotes);
        }
        self.on_one_gpu(alloc.client, alloc.parent, handle)?;
        Ok(Some(notes))
    }

    /// A channel's control page lies whole in its memory, which is video memory or the host's. Up
    /// to branch 580 the driver takes any offset, and the GPU reads and writes there. It takes any
    /// class as well: of a range of addresses it tells the GPU an address as a place
    /// (`kchannelCreateUserdMemDesc_GV100()`, kernel_channel_gv100.c).
    fn control_memory(&self, alloc: &Alloc) -> Result<Option<RecordId>, RefusalCause> {
        let Some(handle) = alloc.uses[0] else {
            return Ok(None);
        };
        let (_, memory) = self.on_one_device(alloc.client, alloc.parent, handle)?;
        let object = self.forest.objects.get(memory).ok_or(Exhausted)?;
        if !matches!(object.kind, Kind::VideoMemory | Kind::SystemMemory) {
            return Err(RefusalCause::NoMemoryOfIts);
        }
        let end = alloc.control_page.checked_add(CONTROL_PAGE);
        if end.is_some_and(|end| end <= object.size()) {
            Ok(Some(memory))
        } else {
            Err(RefusalCause::BeyondMemory)
        }
    }
}
