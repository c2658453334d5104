// SPDX-License-Identifier: GPL-2.0
//! The accounting and the reference side by side: each event goes to both, and all that the
//! accounting can tell is compared.

use super::{
    reference::{
        Expected,
        ModelEvent,
        Reference, //
    },
    step::*, //
};
use crate::policy::tests::*;

pub(super) struct ModelWorld {
    accounting: Accounting,
    reference: Reference,
    /// The tickets of the reference's calls in flight, and what the driver is to answer.
    tickets: Vec<(Ticket, ModelAnswer)>,
    /// The last handle that the driver gave to a client.
    last_client: u32,
}

impl ModelWorld {
    pub(super) fn new() -> Self {
        let mut accounting = Accounting::new(7);
        for gpu in GPUS {
            accounting.add_share(gpu, LIMIT).unwrap();
            let most = u32::try_from(MOST_CHANNELS).unwrap();
            accounting.set_channel_limit(gpu, most).unwrap();
            let host = Some(MOST_HOST);
            accounting
                .set_limit_of(gpu, Limited::HostMemory, host)
                .unwrap();
        }
        // The other one is of an unknown architecture.
        accounting
            .set_engines(GPUS[0], Engines::of(0x180, true))
            .unwrap();
        Self {
            accounting,
            reference: Reference::new(&GPUS, LIMIT),
            tickets: Vec::new(),
            last_client: 0xc1d0_0000,
        }
    }

    pub(super) fn take(&mut self, step: &ModelStep) {
        if let ModelStep::End(number) = *step {
            if let Some(place) = number.checked_rem(self.tickets.len()) {
                self.end(place);
            }
        } else if let Some(event) = self.reference.event(step) {
            let (answer, later) = step.answer();
            let begun = self.begin(&event, answer);
            if begun && !later {
                self.end(self.tickets.len() - 1);
            }
        }
    }

    /// Gives an event to both; whether a call is in flight because of it.
    fn begin(&mut self, event: &ModelEvent, answer: ModelAnswer) -> bool {
        let accounting = &mut self.accounting;
        let begun = match *event {
            ModelEvent::Alloc(alloc) => Some((alloc.object, accounting.begin_alloc(&alloc))),
            ModelEvent::Dup {
                client,
                parent,
                object,
                source,
            } => {
                let ticket = accounting.begin_dup(client, parent, object, source.0, source.1);
                Some((object, ticket))
            }
            ModelEvent::Free(client, object) => {
                accounting.free(client, object);
                None
            }
            ModelEvent::Close(file) => {
                accounting.close_file(file);
                None
            }
            ModelEvent::Limit(gpu, limit) => {
                accounting.set_limit(gpu, limit).unwrap();
                None
            }
            ModelEvent::End(..) => panic!("the driver has not answered"),
        };
        let expected = self.reference.apply(event);
        let told = match &begun {
            None => Expected::Done,
            Some((_, Ok(_))) => Expected::Begun,
            Some((_, Err(refusal))) => Expected::Refused(refusal.status()),
        };
        assert_eq!(told, expected, "{event:?}");
        let Some((wanted, Ok(ticket))) = begun else {
            return false;
        };
        let is_client = matches!(event, ModelEvent::Alloc(alloc) if alloc.kind == Kind::Root);
        if wanted.0 == 0 && !is_client {
            self.reference.choose(ticket.handle());
        } else {
            assert_eq!(ticket.handle(), wanted);
        }
        self.tickets.push((ticket, answer));
        true
    }

    /// The driver answers the call in flight at a place.
    fn end(&mut self, place: usize) {
        let (ticket, answer) = self.tickets.swap_remove(place);
        let flight = &self.reference.flights[place];
        let bytes = match answer {
            ModelAnswer::Granted => Some(flight.asked),
            ModelAnswer::Raised => Some(flight.asked + MIB),
            ModelAnswer::Lowered => Some(flight.asked / 2),
            ModelAnswer::Refused => None,
        };
        let (copies, mut object) = (flight.copies, self.reference.objects[&flight.object].name.1);
        if object.0 == 0 && bytes.is_some() {
            self.last_client += 1;
            object = ObjectHandle(self.last_client);
        }
        let done = bytes.map(|bytes| AllocDone { object, bytes });
        if copies {
            self.accounting.end_dup(ticket, done.map(|_| object));
        } else {
            self.accounting.end_alloc(ticket, done);
        }
        let ended = self.reference.apply(&ModelEvent::End(place, done));
        assert_eq!(ended, Expected::Done);
    }

    pub(super) fn compare(&self) {
        for gpu in GPUS {
            let told = self.accounting.share(gpu).expect("a share");
            let expected = ShareView {
                // Has a test of its own.
                over_count: told.over_count,
                ..self.reference.share(gpu)
            };
            assert_eq!(told, expected);
            assert_eq!(self.accounting.held(gpu), self.reference.held(gpu));
            let host = self.accounting.limit_of(gpu, Limited::HostMemory);
            assert_eq!(host.unwrap().used, self.reference.host(gpu));
        }
        assert_eq!(self.accounting.is_idle(), self.reference.is_idle());
    }

    /// Everything that can be asked about single objects.
    pub(super) fn compare_objects(&self) {
        for thing in self.reference.objects.values() {
            let (client, object) = thing.name;
            if thing.here && object.0 != 0 {
                assert_eq!(self.accounting.kind_of(client, object), Some(thing.kind));
                assert_eq!(self.accounting.gpu_of(client, object), thing.gpu);
            } else if self.reference.find(thing.name).is_none() {
                assert_eq!(self.accounting.kind_of(client, object), None);
            }
        }
        for (number, client) in &self.reference.clients {
            let root = &self.reference.objects[number];
            if root.here {
                assert_eq!(self.accounting.client_file(root.name.0), Some(client.file));
            }
        }
    }

    /// Everything ends: nothing may be left.
    pub(super) fn finish(mut self) {
        while let Some(place) = self.tickets.len().checked_sub(1) {
            self.end(place);
        }
        for file in 0..FILES {
            self.take(&ModelStep::Close(file));
        }
        self.compare();
        assert!(self.accounting.is_idle());
        for gpu in GPUS {
            let share = self.accounting.share(gpu).unwrap();
            assert_eq!((share.used, share.overhead, share.reserved), (0, 0, 0));
            assert_eq!((share.objects, share.clients), (0, 0));
        }
    }
}
