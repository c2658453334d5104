// SPDX-License-Identifier: GPL-2.0
//! Streams of profilers, and what a profiler binds.

use crate::{
    nvidia::{
        class::Kind,
        handle::{
            ClientHandle,
            ObjectHandle, //
        }, //
    },
    policy::{
        accounting::Accounting,
        event::{
            RefusalCause,
            RmMapTicket,
            StreamPart, //
        },
        records::RecordId, //
    },
    store::Exhausted, //
};

/// The streams of a profiler.
struct Streams {
    /// The driver has made one.
    is_made: bool,
    /// Those that were asked for, and that failed or are not answered yet.
    unmade: u16,
    /// Calls in flight that bind.
    binding: u16,
}

impl Streams {
    fn of(asked: u64) -> Self {
        // CAST: parts of the word.
        Self {
            is_made: asked >> 32 != 0,
            unmade: asked as u16,
            binding: (asked >> 16) as u16,
        }
    }

    fn joined(&self) -> u64 {
        u64::from(self.is_made) << 32 | u64::from(self.binding) << 16 | u64::from(self.unmade)
    }
}

/// A profiler's call that the driver was asked.
#[derive(Debug)]
#[must_use = "the end of the call must be told"]
pub struct ProfilerTicket {
    names: RmMapTicket,
    is_stream: bool,
}

impl Accounting {
    /// A profiler is about to be asked for a stream into two pieces of memory.
    ///
    /// From branch 570 on the driver makes room for the memory of streams before it makes the first
    /// one. If that fails, the room stays as it came from the allocator, and the next call that
    /// binds follows the pointers in it (`profilerBaseCtrlCmdAllocPmaStream_IMPL()` and
    /// `profilerBaseCtrlCmdBindPmResources_IMPL()`, kern_profiler_v2_ctrl.c). So nothing is bound
    /// until a stream is made, if one was asked for.
    ///
    /// The driver does not ask of which GPU the memory is: it tells the profiler's firmware the
    /// places of its pages (`memdescRegisterToGSP()`, mem_desc.c; `memRegisterWithGsp()`, mem.c).
    ///
    /// # Errors
    ///
    /// It is no profiler, no memory, or not of one GPU; a part is not in its memory; what the
    /// profiler has is being bound.
    pub fn begin_stream(
        &mut self,
        client: ClientHandle,
        profiler: ObjectHandle,
        parts: [StreamPart; 2],
    ) -> Result<ProfilerTicket, RefusalCause> {
        // Without its memory the driver may make a stream that fills no room.
        let mut named = [None; 2];
        for (named, part) in named.iter_mut().zip(parts) {
            let (_, id) = self.on_one_gpu(client, profiler, part.memory)?;
            let memory = self.forest.objects.get(id).ok_or(Exhausted)?;
            if !memory.kind.is_memory() {
                return Err(RefusalCause::NoMemoryOfIts);
            }
            let end = part.offset.checked_add(part.size);
            if end.is_none_or(|end| end > memory.size()) {
                return Err(RefusalCause::BeyondMemory);
            }
            *named = Some(id);
        }
        let id = self.change_streams(client, profiler, |streams| {
            if !streams.is_made && streams.binding != 0 {
                return Err(RefusalCause::UnmadeStream);
            }
            streams.unmade = streams.unmade.checked_add(1).ok_or(Exhausted)?;
            Ok(())
        })?;
        let [records, count] = named;
        Ok(ProfilerTicket {
            names: self.name_map([Some(id), records, count]),
            is_stream: true,
        })
    }

    /// A profiler is about to bind what it has.
    ///
    /// # Errors
    ///
    /// It is no profiler; no stream is made, and one was asked for.
    pub fn begin_bind_streams(
        &mut self,
        client: ClientHandle,
        profiler: ObjectHandle,
    ) -> Result<ProfilerTicket, RefusalCause> {
        let id = self.change_streams(client, profiler, |streams| {
            if !streams.is_made && streams.unmade != 0 {
                return Err(RefusalCause::UnmadeStream);
            }
            streams.binding = streams.binding.checked_add(1).ok_or(Exhausted)?;
            Ok(())
        })?;
        Ok(ProfilerTicket {
            names: self.name_map([Some(id), None, None]),
            is_stream: false,
        })
    }

    /// The driver has answered. `is_ok`: it did for certain what it was asked.
    pub fn end_profiler_call(&mut self, ticket: ProfilerTicket, is_ok: bool) {
        let [profiler, ..] = ticket.names.names;
        let id = profiler.and_then(|profiler| self.forest.objects.find(profiler));
        if let Some(object) = id.and_then(|id| self.forest.objects.get_mut(id)) {
            let mut streams = Streams::of(object.asked());
            match (ticket.is_stream, is_ok) {
                (true, true) => {
                    streams.unmade = streams.unmade.saturating_sub(1);
                    streams.is_made = true;
                }
                (true, false) => {}
                (false, _) => streams.binding = streams.binding.saturating_sub(1),
            }
            object.ask(streams.joined());
        }
        self.end_named_map(ticket.names);
    }

    fn change_streams(
        &mut self,
        client: ClientHandle,
        profiler: ObjectHandle,
        change: impl FnOnce(&mut Streams) -> Result<(), RefusalCause>,
    ) -> Result<RecordId, RefusalCause> {
        let id = self.required(client, profiler, Kind::Profiler)?;
        let object = self.forest.objects.get_mut(id);
        let object = object.ok_or(RefusalCause::UnknownObject)?;
        let mut streams = Streams::of(object.asked());
        change(&mut streams)?;
        object.ask(streams.joined());
        Ok(id)
    }
}
