// SPDX-License-Identifier: GPL-2.0
//! The numbers of a step choose among what there is at that moment, so every list of steps is
//! valid.

use super::{
    reference::{
        ModelEvent,
        Reference, //
    },
    step::*, //
};
use crate::policy::tests::*;

impl Reference {
    /// The present meaning of a step. The end of a call is the driver's to say.
    pub(super) fn event(&self, step: &ModelStep) -> Option<ModelEvent> {
        Some(match *step {
            ModelStep::Client {
                file,
                process,
                chosen,
                ..
            } => ModelEvent::Alloc(Alloc {
                object: ObjectHandle(chosen),
                ..client_request(FileId(file), ProcessId(process))
            }),
            ModelStep::Alloc {
                client,
                parent,
                handle,
                class,
                ..
            } => {
                let client = self.any_client(client);
                let parent = self.any_object(client, parent);
                ModelEvent::Alloc(class.request(client, parent, new_handle(client, handle)))
            }
            ModelStep::Dup {
                client,
                parent,
                handle,
                source_client,
                source,
                ..
            } => {
                let (client, source_client) =
                    (self.any_client(client), self.any_client(source_client));
                ModelEvent::Dup {
                    client,
                    parent: self.any_object(client, parent),
                    object: new_handle(client, handle),
                    source: (source_client, self.any_object(source_client, source)),
                }
            }
            ModelStep::End(_) => return None,
            ModelStep::Free { client, object } => {
                let client = self.any_client(client);
                ModelEvent::Free(client, self.any_object(client, object))
            }
            ModelStep::FreeClient(client) => {
                let client = self.any_client(client);
                ModelEvent::Free(client, client.root())
            }
            ModelStep::Close(file) => ModelEvent::Close(FileId(file)),
            ModelStep::Limit(gpu, limit) => ModelEvent::Limit(GPUS[gpu], limit),
        })
    }

    /// A client among the living, rarely one that does not exist.
    fn any_client(&self, number: usize) -> ClientHandle {
        let objects = self.clients.keys().map(|number| &self.objects[number]);
        let alive: Vec<ClientHandle> = objects.filter(|o| o.here).map(|o| o.name.0).collect();
        if number % 64 == 0 || alive.is_empty() {
            return ClientHandle(0xdead);
        }
        alive[number % alive.len()]
    }

    /// An object of a client among what there is, rarely one that there is not.
    fn any_object(&self, client: ClientHandle, number: usize) -> ObjectHandle {
        let of_client = self
            .objects
            .values()
            .filter(|o| o.here && o.name.0 == client);
        let alive: Vec<ObjectHandle> = of_client.map(|object| object.name.1).collect();
        match number % 32 {
            0 => ObjectHandle(HANDLES),
            1 => client.root(),
            _ if alive.is_empty() => client.root(),
            _ => alive[number % alive.len()],
        }
    }
}

/// A small number as a new handle: the client's own for 1.
fn new_handle(client: ClientHandle, number: u32) -> ObjectHandle {
    match number {
        1 => client.root(),
        number => ObjectHandle(number),
    }
}
