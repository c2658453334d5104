// SPDX-License-Identifier: GPL-2.0
//! The books of one tenant: what is mapped through UVM.

use super::books::Books;
use super::event::{FileId, GpuId, MapTicket, Refusal, RefusalCause};
use super::mapping::{Conflict, Mapped, Span};
use super::slots::Slot;
use crate::nvidia::handle::{ClientHandle, ObjectHandle};

/// Memory that a call is about to map for one GPU.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// The UVM file.
    pub file: FileId,
    /// The GPU that is to reach the memory.
    pub gpu: GpuId,
    /// The same, as UVM names it.
    pub uuid: [u8; 16],
    /// hClient.
    pub client: ClientHandle,
    /// hMemory.
    pub memory: ObjectHandle,
    /// The first address.
    pub base: u64,
    /// Bytes.
    pub length: u64,
}

impl Books {
    /// A memory object is about to be mapped (`UVM_MAP_EXTERNAL_ALLOCATION`), for one GPU. What it costs
    /// stays charged from now on.
    ///
    /// Of mappings that are there the new one may take parts; one that would go whole must have been
    /// taken away before ([`Books::mapped`]).
    ///
    /// # Errors
    ///
    /// What to tell the caller instead of forwarding the call.
    pub fn begin_map(&mut self, map: &Map) -> Result<MapTicket, Refusal> {
        let root = self
            .forest
            .find_root(map.client)
            .ok_or(RefusalCause::ForeignClient)?;
        let process = self
            .forest
            .client(map.client)
            .ok_or(RefusalCause::ForeignClient)?
            .process;
        let memory = self
            .forest
            .find(map.client, map.memory)
            .ok_or(RefusalCause::UnknownObject)?;
        let last = match map.length.checked_sub(1) {
            Some(more) => map.base.checked_add(more),
            None => None,
        };
        let last = last.ok_or(RefusalCause::NoRange)?;
        let cost = self.forest.objects.get(memory).and_then(|o| o.hold);
        let hold = match cost {
            Some(cost) => Some(self.accounts.share(cost, process)?),
            None => None,
        };
        let prepared = self.mappings.prepare(map.file, map.gpu, map.base, last);
        if let Err(conflict) = prepared {
            self.release_hold(hold);
            return Err(match conflict {
                Conflict::InFlight => RefusalCause::MappingInFlight.into(),
                Conflict::Exhausted => RefusalCause::Exhausted.into(),
            });
        }
        // Room for it was made above.
        let mapping = self.mappings.insert(map, hold)?;
        let forest = &mut self.forest;
        Ok(MapTicket {
            mapping,
            names: [forest.hold_name(root), forest.hold_name(memory), None],
        })
    }

    /// The driver has answered a call that [`Books::begin_map`] agreed to. Not `made`: it certainly has
    /// no such mapping.
    pub fn end_map(&mut self, ticket: MapTicket, made: bool) {
        let MapTicket { mapping, names } = ticket;
        if made {
            self.mappings.settle(mapping);
        } else {
            let hold = self.mappings.drop(mapping);
            self.release_hold(hold);
        }
        self.release_names(names);
    }

    /// The present moment, for [`Books::mapped`].
    pub fn moment(&self) -> u64 {
        self.mappings.now()
    }

    /// A mapping that lies whole in a span and was there at that moment; `None`: there is none, or no
    /// more of them.
    pub fn mapped(&self, span: Span, moment: u64) -> Option<Mapped> {
        self.mappings.within(span, moment)
    }

    /// The driver has unmapped just this mapping's addresses for its GPU. Nothing where it is gone
    /// already, or where a later mapping has taken a part of it: then the driver may have refused.
    pub fn unmapped(&mut self, mapped: Mapped) {
        let hold = self.mappings.drop(mapped.name);
        self.release_hold(hold);
    }

    pub(super) fn release_hold(&mut self, hold: Option<Slot>) {
        if let Some(hold) = hold {
            self.accounts.release(hold);
        }
    }
}
