// SPDX-License-Identifier: GPL-2.0
//! The naive model and the accounting beside it: each step goes to both.

use super::*;
use std::collections::BTreeMap;

type Id = usize;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    Coming,
    Here,
}

#[derive(Clone, Debug)]
struct Thing {
    client: Option<Id>,
    /// Client and handle as numbers; the handle is 0 where it has none.
    name: (u32, u32),
    parent: Option<Id>,
    kind: Kind,
    gpu: Option<GpuId>,
    cost: Option<Id>,
    life: Life,
}

#[derive(Clone, Debug)]
struct Client {
    file: u64,
    process: i32,
    closed: bool,
}

#[derive(Clone, Debug)]
struct Cost {
    gpu: GpuId,
    bytes: u64,
    context: bool,
    given: bool,
    /// Things that hold it, the oldest first, and their processes.
    holders: Vec<(Id, i32)>,
}

#[derive(Clone, Debug)]
struct Share {
    limit: u64,
    peak: u64,
    overhead_peak: u64,
    refused: u64,
    /// The limit was lowered below what is taken, or the driver gave more than was asked.
    excused: bool,
}

/// A call in flight: its ticket, the thing it makes, and how it will end.
struct Flight {
    ticket: Ticket,
    thing: Id,
    /// The names that it uses.
    names: Vec<(u32, u32)>,
    dup: bool,
    asked: u64,
    answer: Answer,
}

pub(super) struct World {
    accounting: Accounting,
    shares: BTreeMap<u32, Share>,
    things: BTreeMap<Id, Thing>,
    /// By the thing that stands for them.
    clients: BTreeMap<Id, Client>,
    costs: BTreeMap<Id, Cost>,
    flights: Vec<Flight>,
    next_id: Id,
    next_client: u32,
}

/// What contexts cost, in bytes: 9,024 KiB the first, 5,696 KiB each further one.
fn price(contexts: u64) -> u64 {
    match contexts {
        0 => 0,
        some => (9024 + 5696 * (some - 1)) << 10,
    }
}

impl World {
    pub(super) fn new() -> Self {
        let mut accounting = Accounting::with_seed(7);
        let mut shares = BTreeMap::new();
        for gpu in GPUS {
            accounting.add_share(gpu, LIMIT).unwrap();
            let share = Share {
                limit: LIMIT,
                peak: 0,
                overhead_peak: 0,
                refused: 0,
                excused: false,
            };
            shares.insert(gpu.0, share);
        }
        Self {
            accounting,
            shares,
            things: BTreeMap::new(),
            clients: BTreeMap::new(),
            costs: BTreeMap::new(),
            flights: Vec::new(),
            next_id: 0,
            next_client: 0xc1d0_0000,
        }
    }

    fn id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id
    }

    fn find(&self, client: u32, handle: u32) -> Option<Id> {
        let named = |thing: &Thing| thing.name == (client, handle) && thing.life == Life::Here;
        let found = self.things.iter().find(|(_, thing)| named(thing));
        found.map(|(&id, _)| id).filter(|_| handle != 0)
    }

    fn find_client(&self, client: u32) -> Option<Id> {
        self.find(client, client)
    }

    /// A thing has that name, or a call in flight uses it.
    fn is_taken(&self, name: (u32, u32)) -> bool {
        self.things.values().any(|thing| thing.name == name)
            || self.flights.iter().any(|f| f.names.contains(&name))
    }

    /// A client by a number that selects among the living, rarely one that does not exist.
    fn select_client(&self, number: usize) -> ClientHandle {
        let alive: Vec<u32> = self
            .clients
            .keys()
            .map(|id| &self.things[id])
            .filter(|thing| thing.life == Life::Here)
            .map(|thing| thing.name.0)
            .collect();
        match number % 64 {
            0 => ClientHandle(0xdead),
            _ if alive.is_empty() => ClientHandle(0xdead),
            _ => ClientHandle(alive[number % alive.len()]),
        }
    }

    /// An object of a client by a number that selects among what there is, rarely one that there is
    /// not.
    fn select_object(&self, client: ClientHandle, number: usize) -> ObjectHandle {
        let here = |thing: &&Thing| thing.name.0 == client.0 && thing.life == Life::Here;
        let alive: Vec<u32> = self
            .things
            .values()
            .filter(here)
            .map(|t| t.name.1)
            .collect();
        match number % 32 {
            0 => ObjectHandle(HANDLES),
            1 => ObjectHandle(client.0),
            _ if alive.is_empty() => ObjectHandle(client.0),
            _ => ObjectHandle(alive[number % alive.len()]),
        }
    }

    /// A small number as a new handle: the client's own for 1.
    fn new_handle(client: ClientHandle, number: u32) -> ObjectHandle {
        match number {
            1 => ObjectHandle(client.0),
            number => ObjectHandle(number),
        }
    }

    fn used(&self, gpu: GpuId) -> (u64, u64, u64) {
        let (mut used, mut reserved) = (0, 0);
        for cost in self.costs.values().filter(|cost| cost.gpu == gpu) {
            match cost.given {
                true => used += cost.bytes,
                false => reserved += cost.bytes,
            }
        }
        let (given, all) = self.contexts(gpu);
        let overhead = price(given);
        (used, reserved + price(all) - overhead, overhead)
    }

    /// Contexts that there are, and with those that are coming.
    fn contexts(&self, gpu: GpuId) -> (u64, u64) {
        let contexts = self.costs.values().filter(|c| c.gpu == gpu && c.context);
        let given = contexts.clone().filter(|cost| cost.given).count();
        (given as u64, contexts.count() as u64)
    }

    /// What an object would take.
    fn wanted(&self, gpu: GpuId, alloc: &Alloc) -> u64 {
        let (_, all) = self.contexts(gpu);
        alloc.bytes + price(all + u64::from(alloc.context)) - price(all)
    }

    fn free(&self, gpu: GpuId) -> u64 {
        let (used, reserved, overhead) = self.used(gpu);
        let limit = self.shares[&gpu.0].limit;
        limit.saturating_sub(used + reserved + overhead)
    }

    fn expect_handle(&self, client: u32, handle: u32) -> Option<u32> {
        match handle {
            0 => None,
            _ if handle == client => Some(0x36),
            _ if self.is_taken((client, handle)) => Some(0x19),
            _ => None,
        }
    }

    /// The status with which a request must be refused.
    fn expect_alloc(&self, alloc: &Alloc) -> Option<u32> {
        let client = alloc.client.0;
        if self.find_client(client).is_none() {
            return Some(0x33);
        }
        let Some(parent) = self.find(client, alloc.parent.0) else {
            return Some(0x57);
        };
        if let Some(status) = self.expect_handle(client, alloc.object.0) {
            return Some(status);
        }
        let gpu = match (alloc.kind, alloc.device_instance) {
            (Kind::Device, Some(gpu)) if gpu == FOREIGN.0 => return Some(0x1b),
            (Kind::Device, Some(gpu)) => Some(GpuId(gpu)),
            _ => self.things[&parent].gpu,
        };
        match gpu {
            _ if alloc.bytes == 0 && !alloc.context => None,
            None => Some(0x36),
            Some(gpu) if self.wanted(gpu, alloc) > self.free(gpu) => Some(0x51),
            Some(_) => None,
        }
    }

    fn expect_dup(&self, dup: (u32, u32, u32), source: (u32, u32)) -> Option<u32> {
        let (client, parent, handle) = dup;
        if self.find_client(client).is_none() || self.find_client(source.0).is_none() {
            return Some(0x33);
        }
        let Some(thing) = self.find(source.0, source.1) else {
            return Some(0x57);
        };
        if matches!(self.things[&thing].kind, Kind::Root | Kind::Device) {
            return Some(0x1f);
        }
        if self.find(client, parent).is_none() {
            return Some(0x57);
        }
        self.expect_handle(client, handle)
    }

    pub(super) fn take(&mut self, step: &Step) {
        match *step {
            Step::Client {
                file,
                process,
                chosen,
                later,
            } => {
                let request = Alloc {
                    object: ObjectHandle(chosen),
                    ..client_request(FileId(file), ProcessId(process))
                };
                let taken = chosen != 0 && self.is_taken((chosen, chosen));
                let result = self.accounting.begin_alloc(&request);
                assert_eq!(
                    result.as_ref().err().map(|r| r.status.0),
                    taken.then_some(0x19)
                );
                let Ok(ticket) = result else { return };
                let id = self.id();
                let thing = Thing {
                    client: Some(id),
                    name: (chosen, chosen),
                    parent: None,
                    kind: Kind::Root,
                    gpu: None,
                    cost: None,
                    life: Life::Coming,
                };
                self.things.insert(id, thing);
                let closed = false;
                self.clients.insert(
                    id,
                    Client {
                        file,
                        process,
                        closed,
                    },
                );
                self.fly(ticket, id, vec![], false, 0, Answer::Granted, later);
            }
            Step::Alloc {
                client,
                parent,
                handle,
                class,
                answer,
                later,
            } => {
                let client = self.select_client(client);
                let parent = self.select_object(client, parent);
                let object = Self::new_handle(client, handle);
                let request = match class {
                    Class::Device(gpu) => Alloc {
                        parent,
                        ..device_request(client, object, gpu)
                    },
                    Class::Memory(bytes) => memory_request(client, parent, object, bytes),
                    Class::Context => context_request(client, parent, object),
                    Class::Other => request(client, parent, object),
                };
                self.alloc(&request, answer, later);
            }
            Step::Dup {
                client,
                parent,
                handle,
                source_client,
                source,
                answer,
                later,
            } => {
                let client = self.select_client(client);
                let parent = self.select_object(client, parent);
                let object = Self::new_handle(client, handle);
                let source_client = self.select_client(source_client);
                let source = self.select_object(source_client, source);
                let expected =
                    self.expect_dup((client.0, parent.0, object.0), (source_client.0, source.0));
                let result =
                    self.accounting
                        .begin_dup(client, parent, object, source_client, source);
                assert_eq!(result.as_ref().err().map(|r| r.status.0), expected);
                let Ok(ticket) = result else { return };
                let from = self.things[&self.find(source_client.0, source.0).unwrap()].clone();
                let id = self.plant(client, parent, ticket.handle(), from.kind);
                self.things.get_mut(&id).unwrap().cost = from.cost;
                let process = self.process_of(id);
                if let Some(cost) = from.cost {
                    let cost = self.costs.get_mut(&cost).unwrap();
                    cost.holders.push((id, process));
                }
                let names = [
                    (client, client.root()),
                    (client, parent),
                    (source_client, source),
                ];
                let names = names.map(|name| (name.0 .0, name.1 .0)).to_vec();
                self.fly(ticket, id, names, true, 0, answer, later);
            }
            Step::End(number) => {
                if !self.flights.is_empty() {
                    let flight = self.flights.swap_remove(number % self.flights.len());
                    self.end(flight);
                }
            }
            Step::Free { client, object } => {
                let client = self.select_client(client);
                let object = self.select_object(client, object);
                self.free_object(client, object);
            }
            Step::FreeClient(client) => {
                let client = self.select_client(client);
                self.free_object(client, ObjectHandle(client.0));
            }
            Step::Close(file) => {
                self.accounting.close_file(FileId(file));
                let gone: Vec<Id> = self
                    .clients
                    .iter()
                    .filter(|(_, client)| client.file == file)
                    .map(|(&id, _)| id)
                    .collect();
                for id in gone {
                    match self.things[&id].life {
                        Life::Here => self.fell(id),
                        Life::Coming => self.clients.get_mut(&id).unwrap().closed = true,
                    }
                }
            }
            Step::Limit(gpu, limit) => {
                assert!(self.accounting.set_limit(GPUS[gpu], limit));
                self.shares.get_mut(&GPUS[gpu].0).unwrap().limit = limit;
                self.excuse(GPUS[gpu]);
            }
        }
    }

    fn alloc(&mut self, request: &Alloc, answer: Answer, later: bool) {
        let expected = self.expect_alloc(request);
        if expected == Some(0x51) {
            let parent = self.find(request.client.0, request.parent.0).unwrap();
            let gpu = match request.kind {
                Kind::Device => GpuId(request.device_instance.unwrap()),
                _ => self.things[&parent].gpu.unwrap(),
            };
            self.shares.get_mut(&gpu.0).unwrap().refused += 1;
        }
        let result = self.accounting.begin_alloc(request);
        assert_eq!(
            result.as_ref().err().map(|r| r.status.0),
            expected,
            "{request:?}"
        );
        let Ok(ticket) = result else { return };
        let handle = ticket.handle();
        if request.object.0 == 0 {
            assert!(!self.is_taken((request.client.0, handle.0)));
        } else {
            assert_eq!(handle, request.object);
        }
        let id = self.plant(request.client, request.parent, handle, request.kind);
        if request.kind == Kind::Device {
            self.things.get_mut(&id).unwrap().gpu = request.device_instance.map(GpuId);
        }
        if request.bytes > 0 || request.context {
            let cost = Cost {
                gpu: self.things[&id].gpu.unwrap(),
                bytes: request.bytes,
                context: request.context,
                given: false,
                holders: vec![(id, self.process_of(id))],
            };
            self.costs.insert(id, cost);
            self.things.get_mut(&id).unwrap().cost = Some(id);
        }
        let client = request.client.0;
        let names = vec![(client, client), (client, request.parent.0)];
        self.fly(ticket, id, names, false, request.bytes, answer, later);
    }

    fn plant(
        &mut self,
        client: ClientHandle,
        parent: ObjectHandle,
        object: ObjectHandle,
        kind: Kind,
    ) -> Id {
        let id = self.id();
        let parent = self.find(client.0, parent.0);
        let thing = Thing {
            client: self.find_client(client.0),
            name: (client.0, object.0),
            parent,
            kind,
            gpu: parent.and_then(|parent| self.things[&parent].gpu),
            cost: None,
            life: Life::Coming,
        };
        self.things.insert(id, thing);
        id
    }

    fn process_of(&self, id: Id) -> i32 {
        self.clients[&self.things[&id].client.unwrap()].process
    }

    #[allow(clippy::too_many_arguments)]
    fn fly(
        &mut self,
        ticket: Ticket,
        thing: Id,
        names: Vec<(u32, u32)>,
        dup: bool,
        asked: u64,
        answer: Answer,
        later: bool,
    ) {
        let flight = Flight {
            ticket,
            thing,
            names,
            dup,
            asked,
            answer,
        };
        if later {
            self.flights.push(flight);
        } else {
            self.end(flight);
        }
    }

    fn end(&mut self, flight: Flight) {
        let id = flight.thing;
        let thing = self.things[&id].clone();
        let bytes = match flight.answer {
            Answer::Granted => flight.asked,
            Answer::Raised => flight.asked + MIB,
            Answer::Lowered => flight.asked / 2,
            Answer::Refused => {
                self.end_in_accounting(flight, None);
                self.remove(id);
                return;
            }
        };
        let mut handle = thing.name.1;
        if handle == 0 {
            self.next_client += 1;
            handle = self.next_client;
        }
        let dup = flight.dup;
        let done = AllocDone {
            object: ObjectHandle(handle),
            bytes,
        };
        self.end_in_accounting(flight, Some(done));

        if let (Some(cost), false) = (thing.cost, dup) {
            let cost = self.costs.get_mut(&cost).unwrap();
            cost.given = true;
            cost.bytes = cost.bytes.max(bytes);
            let gpu = cost.gpu;
            let (used, _, overhead) = self.used(gpu);
            let share = self.shares.get_mut(&gpu.0).unwrap();
            share.peak = share.peak.max(used);
            share.overhead_peak = share.overhead_peak.max(overhead);
            self.excuse(gpu);
        }
        let thing = self.things.get_mut(&id).unwrap();
        thing.life = Life::Here;
        if thing.kind == Kind::Root {
            thing.name = (handle, handle);
            if self.clients[&id].closed {
                self.fell(id);
            }
            return;
        }
        if thing.client.is_none() {
            // Its client went.
            self.remove(id);
        }
    }

    fn end_in_accounting(&mut self, flight: Flight, done: Option<AllocDone>) {
        if flight.dup {
            self.accounting
                .end_dup(flight.ticket, done.map(|d| d.object));
        } else {
            self.accounting.end_alloc(flight.ticket, done);
        }
    }

    fn excuse(&mut self, gpu: GpuId) {
        let (used, reserved, overhead) = self.used(gpu);
        let share = self.shares.get_mut(&gpu.0).unwrap();
        share.excused = used + reserved + overhead > share.limit;
    }

    fn free_object(&mut self, client: ClientHandle, object: ObjectHandle) {
        let found = self.find(client.0, object.0);
        self.accounting.free(client, object);
        if let Some(id) = found.filter(|_| self.find_client(client.0).is_some()) {
            self.fell(id);
        }
    }

    /// Takes a thing away with all below it; what is coming stays, below its client if there is one.
    fn fell(&mut self, top: Id) {
        let root = self.things[&top].client.filter(|&root| root != top);
        let children: Vec<Id> = self
            .things
            .iter()
            .filter(|(_, thing)| thing.parent == Some(top))
            .map(|(&id, _)| id)
            .collect();
        for id in children {
            if self.things[&id].life == Life::Here {
                self.fell(id);
            } else {
                self.things.get_mut(&id).unwrap().parent = root;
            }
        }
        if root.is_none() {
            for thing in self.things.values_mut() {
                if thing.client == Some(top) {
                    thing.client = None;
                    thing.parent = None;
                }
            }
        }
        self.remove(top);
    }

    fn remove(&mut self, id: Id) {
        let thing = self.things.remove(&id).unwrap();
        self.clients.remove(&id);
        if let Some(cost) = thing.cost {
            self.drop_holder(cost, id);
        }
    }

    fn drop_holder(&mut self, cost: Id, holder: Id) {
        let holders = &mut self.costs.get_mut(&cost).unwrap().holders;
        let at = holders.iter().position(|h| h.0 == holder).unwrap();
        holders.remove(at);
        if holders.is_empty() {
            let gpu = self.costs.remove(&cost).unwrap().gpu;
            self.excuse(gpu);
        }
    }

    pub(super) fn compare(&self) {
        for gpu in GPUS {
            let (used, reserved, overhead) = self.used(gpu);
            let share = &self.shares[&gpu.0];
            let below = |thing: &&Thing| thing.life == Life::Here && thing.gpu == Some(gpu);
            let mut clients: Vec<Id> = self
                .things
                .values()
                .filter(below)
                .filter(|thing| thing.kind == Kind::Device)
                .map(|thing| thing.client.unwrap())
                .collect();
            clients.sort_unstable();
            clients.dedup();
            let expected = ShareView {
                limit: share.limit,
                used,
                reserved,
                overhead,
                peak: share.peak,
                overhead_peak: share.overhead_peak,
                // Has a test of its own.
                over_count: self
                    .accounting
                    .share(gpu)
                    .map_or(0, |share| share.over_count),
                refused: share.refused,
                refused_calls: 0,
                objects: self.things.values().filter(below).count() as u64,
                clients: clients.len() as u64,
                ..ShareView::default()
            };
            assert_eq!(self.accounting.share(gpu), Some(expected));
            let within = used + overhead + reserved <= share.limit;
            assert!(within || share.excused, "over the limit: {expected:?}");

            let mut held = BTreeMap::new();
            let costs = self.costs.values().filter(|cost| cost.gpu == gpu);
            for cost in costs.filter(|cost| cost.given && cost.bytes > 0) {
                *held.entry(cost.holders[0].1).or_insert(0) += cost.bytes;
            }
            assert_eq!(
                self.accounting.held(gpu),
                held.into_iter().collect::<Vec<_>>()
            );
        }
        let idle = self.things.is_empty() && self.costs.is_empty() && self.flights.is_empty();
        assert_eq!(self.accounting.is_idle(), idle);
    }

    /// Everything that can be asked about single objects.
    pub(super) fn compare_objects(&self) {
        for thing in self.things.values() {
            let (client, object) = (ClientHandle(thing.name.0), ObjectHandle(thing.name.1));
            let there = thing.life == Life::Here && object.0 != 0;
            if there {
                assert_eq!(self.accounting.kind_of(client, object), Some(thing.kind));
                assert_eq!(self.accounting.gpu_of(client, object), thing.gpu);
            } else if self.find(client.0, object.0).is_none() {
                assert_eq!(self.accounting.kind_of(client, object), None);
            }
        }
        for (id, client) in &self.clients {
            let thing = &self.things[id];
            let handle = ClientHandle(thing.name.0);
            if thing.life == Life::Here {
                assert_eq!(
                    self.accounting.client_file(handle),
                    Some(FileId(client.file))
                );
            }
        }
    }

    /// Everything ends: nothing may be left.
    pub(super) fn finish(mut self) {
        while let Some(flight) = self.flights.pop() {
            self.end(flight);
        }
        for file in 0..FILES {
            self.take(&Step::Close(file));
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
