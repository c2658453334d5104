// SPDX-License-Identifier: GPL-2.0
//! Calls in flight in any order, against a driver with few handles and two GPUs.
//!
//! Each call has three moments: it begins in the accounting, the driver executes it, it ends in the
//! accounting. The steps put the moments of several calls in any order, as threads that can stop
//! each other anywhere would. Whatever the order is, the accounting must never say less than the
//! driver has.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

const FILES: u64 = 2;
/// Few handles, so that they change their meaning all the time.
const HANDLES: u32 = 5;
/// As few that programs choose for clients; those that the driver chooses come once.
const CLIENTS: u32 = 2;
const FIRST_CLIENT: u32 = 0xc1d0_0000;
const GPUS: [GpuId; 2] = [GPU, OTHER_GPU];

#[derive(Clone, Copy, Debug)]
enum What {
    /// A client of this handle; 0: of the driver's choice.
    Client(u32),
    Device(GpuId),
    Memory(u64),
    /// Of this object of this client.
    Dup(u32, u32),
    Free,
    Close,
}

/// A call on `file`: it makes `handle` below `object` of `client`, or does something to `object`.
#[derive(Clone, Copy, Debug)]
struct RaceCall {
    what: What,
    file: u64,
    client: u32,
    object: u32,
    handle: u32,
}

/// Numbers select among what there is at that moment.
#[derive(Clone, Debug)]
enum RaceStep {
    Begin {
        what: u8,
        file: u64,
        place: (usize, usize),
        source: (usize, usize),
        handle: u32,
        bytes: u64,
    },
    /// The driver executes a call that has begun, or a call that it has executed ends.
    Advance(usize),
}

fn step() -> impl Strategy<Value = RaceStep> {
    let place = (any::<usize>(), any::<usize>());
    // Some handles are left to the driver.
    let handle = prop_oneof![1 => Just(0), 4 => 1..=HANDLES];
    let begin = (0..32u8, 0..FILES, place, place, handle, 1..1000u64);
    let begin = begin.prop_map(
        |(what, file, place, source, handle, bytes)| RaceStep::Begin {
            what,
            file,
            place,
            source,
            handle,
            bytes,
        },
    );
    prop_oneof![2 => begin, 3 => any::<usize>().prop_map(RaceStep::Advance)]
}

#[derive(Clone, Copy, Default)]
struct RaceObject {
    parent: u32,
    gpu: Option<GpuId>,
    memory: Option<usize>,
}

struct RaceMemory {
    gpu: GpuId,
    bytes: u64,
    references: usize,
}

/// The driver's state, by the rules of its resource server.
#[derive(Default)]
struct RaceDriver {
    /// The file of each client.
    clients: BTreeMap<u32, u64>,
    /// By client and handle; a client itself is an object of its own handle.
    objects: BTreeMap<(u32, u32), RaceObject>,
    memory: Vec<RaceMemory>,
    last_client: u32,
}

impl RaceDriver {
    /// Adds an object below another one, on its GPU if none is named.
    fn add(&mut self, call: RaceCall, gpu: Option<GpuId>, memory: Option<usize>) -> Option<u32> {
        let parent = *self.objects.get(&(call.client, call.object))?;
        let key = (call.client, call.handle);
        if self.clients.get(&call.client) != Some(&call.file) || self.objects.contains_key(&key) {
            return None;
        }
        assert_ne!(call.handle, 0, "a call in flight without a handle");
        let object = RaceObject {
            parent: call.object,
            gpu: gpu.or(parent.gpu),
            memory,
        };
        self.objects.insert(key, object);
        if let Some(memory) = memory {
            self.memory[memory].references += 1;
        }
        Some(call.handle)
    }

    fn remove(&mut self, client: u32, handle: u32) {
        let Some(object) = self.objects.remove(&(client, handle)) else {
            return;
        };
        if let Some(memory) = object.memory {
            self.memory[memory].references -= 1;
        }
        let below = |(key, object): (&(u32, u32), &RaceObject)| {
            (key.0 == client && object.parent == handle).then_some(key.1)
        };
        let below: Vec<u32> = self.objects.iter().filter_map(below).collect();
        for child in below {
            self.remove(client, child);
        }
        if handle == client {
            self.clients.remove(&client);
        }
    }

    fn close(&mut self, file: u64) {
        let clients = self.clients.iter().filter(|(_, of)| **of == file);
        let clients: Vec<u32> = clients.map(|(&client, _)| client).collect();
        for client in clients {
            self.remove(client, client);
        }
    }

    fn taken(&self, gpu: GpuId) -> u64 {
        let taken = |memory: &&RaceMemory| memory.gpu == gpu && memory.references > 0;
        self.memory.iter().filter(taken).map(|m| m.bytes).sum()
    }

    /// Executes a call: the handle of what it made, or whether it did something.
    fn execute(&mut self, call: RaceCall) -> Option<u32> {
        match call.what {
            What::Client(wanted) => {
                let mut client = wanted;
                if client == 0 {
                    self.last_client += 1;
                    client = 0xc1e0_0000 + self.last_client;
                }
                if self.clients.contains_key(&client) {
                    return None;
                }
                self.clients.insert(client, call.file);
                self.objects.insert((client, client), RaceObject::default());
                Some(client)
            }
            What::Device(gpu) => self.add(call, Some(gpu), None),
            What::Memory(bytes) => {
                let gpu = self.objects.get(&(call.client, call.object))?.gpu?;
                let references = 0;
                self.memory.push(RaceMemory {
                    gpu,
                    bytes,
                    references,
                });
                self.add(call, None, Some(self.memory.len() - 1))
            }
            What::Dup(client, object) => {
                let source = *self.objects.get(&(client, object))?;
                self.add(call, None, source.memory)
            }
            What::Free => {
                if self.clients.get(&call.client) != Some(&call.file) {
                    return None;
                }
                // Success also where there is no such object.
                self.remove(call.client, call.object);
                Some(0)
            }
            What::Close => {
                self.close(call.file);
                Some(0)
            }
        }
    }
}

enum Paper {
    Alloc(Ticket),
    Dup(Ticket),
    Free(FreeTicket),
    Close,
}

struct RaceFlight {
    call: RaceCall,
    paper: Paper,
    /// The driver's answer, once there is one.
    answer: Option<Option<u32>>,
}

struct RaceWorld {
    accounting: Accounting,
    driver: RaceDriver,
    flights: Vec<RaceFlight>,
}

impl RaceWorld {
    fn new() -> Self {
        let mut accounting = Accounting::new(0);
        for gpu in GPUS {
            accounting.add_share(gpu, u64::MAX).unwrap();
        }
        let mut world = Self {
            accounting,
            driver: RaceDriver::default(),
            flights: Vec::new(),
        };
        // A client with a device object of each GPU to begin with.
        let whats = [
            What::Client(FIRST_CLIENT),
            What::Device(GPUS[0]),
            What::Device(GPUS[1]),
        ];
        for (what, handle) in whats.into_iter().zip(0..) {
            world.begin(RaceCall {
                what,
                file: 0,
                client: FIRST_CLIENT,
                object: FIRST_CLIENT,
                handle,
            });
            world.advance(0);
            world.advance(0);
        }
        world
    }

    fn take(&mut self, step: &RaceStep) {
        match *step {
            RaceStep::Begin {
                what,
                file,
                place,
                source,
                handle,
                bytes,
            } => {
                let (client, mut object) = self.select(place, None);
                let what = match what {
                    0 => What::Client(FIRST_CLIENT + handle % CLIENTS),
                    1 if bytes % 2 == 0 => What::Client(0),
                    1..=4 => What::Device(GPUS[place.1 / 16 % 2]),
                    5..=14 => {
                        object = self.select(place, Some(Kind::Device)).1;
                        What::Memory(bytes)
                    }
                    15..=24 => {
                        object = self.select(place, Some(Kind::Device)).1;
                        let (client, source) = self.select(source, Some(Kind::VideoMemory));
                        What::Dup(client, source)
                    }
                    25..=30 => {
                        object = self.select(place, Some(Kind::VideoMemory)).1;
                        What::Free
                    }
                    _ if bytes % 16 == 0 => What::Close,
                    _ => What::Free,
                };
                // Others than the client's own file the driver refuses; a few come all the same.
                let own = self.driver.clients.get(&client).copied();
                let file = match what {
                    What::Client(_) | What::Close => file,
                    _ => own.filter(|_| bytes % 16 > 0).unwrap_or(file),
                };
                let object = match what {
                    What::Device(_) => client,
                    _ => object,
                };
                self.begin(RaceCall {
                    what,
                    file,
                    client,
                    object,
                    handle,
                });
            }
            RaceStep::Advance(number) => self.advance(number),
        }
    }

    /// A client and one of its objects, mostly of one kind, that the driver or the accounting have;
    /// rarely what neither has.
    fn select(&self, (client, object): (usize, usize), kind: Option<Kind>) -> (u32, u32) {
        let mut clients = self.driver.clients.keys();
        let client = match clients.len() {
            0 => FIRST_CLIENT,
            _ if client % 16 == 0 => FIRST_CLIENT,
            count => *clients.nth(client / 16 % count).unwrap(),
        };
        let handles = (1..=HANDLES).chain((0..HANDLES).map(|handle| 0xcaf8_0000 + handle));
        let known = |handle: u32| {
            let accounting = self
                .accounting
                .kind_of(ClientHandle(client), ObjectHandle(handle));
            let driver = self.driver.objects.get(&(client, handle));
            let driver = driver.map(|object| match object.memory {
                Some(_) => Kind::VideoMemory,
                None => Kind::Device,
            });
            driver.or(accounting)
        };
        let mut found: Vec<u32> = handles
            .clone()
            .filter(|&handle| known(handle).is_some_and(|k| kind.is_none_or(|kind| k == kind)))
            .collect();
        if found.is_empty() || object % 16 == 1 {
            found = handles.filter(|&handle| known(handle).is_some()).collect();
        }
        if found.is_empty() || object % 64 == 2 {
            found = vec![client];
        }
        let object = match object % 16 {
            0 => 1,
            _ => found[object / 16 % found.len()],
        };
        (client, object)
    }

    fn begin(&mut self, mut call: RaceCall) {
        // A file is closed when no call on it is in flight, and there is none after that.
        let close = |call: &RaceCall| matches!(call.what, What::Close);
        let in_the_way = |flight: &RaceFlight| {
            flight.call.file == call.file && (close(&call) || close(&flight.call))
        };
        if self.flights.iter().any(in_the_way) {
            return;
        }
        let accounting = &mut self.accounting;
        let (client, object) = (ClientHandle(call.client), ObjectHandle(call.object));
        let handle = ObjectHandle(call.handle);
        let paper = match call.what {
            What::Client(wanted) => accounting.begin_alloc(&Alloc {
                object: ObjectHandle(wanted),
                ..client_request(FileId(call.file), PROCESS)
            }),
            What::Device(gpu) => accounting.begin_alloc(&device_request(client, handle, gpu)),
            What::Memory(bytes) => {
                accounting.begin_alloc(&memory_request(client, object, handle, bytes))
            }
            What::Dup(source_client, source) => {
                let source = (ClientHandle(source_client), ObjectHandle(source));
                accounting.begin_dup(client, object, handle, source.0, source.1)
            }
            What::Free => {
                if let Ok(ticket) = accounting.begin_free(client, object, None) {
                    self.fly(call, Paper::Free(ticket));
                }
                return;
            }
            What::Close => {
                self.fly(call, Paper::Close);
                return;
            }
        };
        if let Ok(ticket) = paper {
            call.handle = ticket.handle().0;
            self.fly(
                call,
                match call.what {
                    What::Dup(..) => Paper::Dup(ticket),
                    _ => Paper::Alloc(ticket),
                },
            );
        }
    }

    fn fly(&mut self, call: RaceCall, paper: Paper) {
        let answer = None;
        self.flights.push(RaceFlight {
            call,
            paper,
            answer,
        });
    }

    /// Mostly the latest call goes on, so that a few stand still while much happens.
    fn advance(&mut self, number: usize) {
        if self.flights.is_empty() {
            return;
        }
        let at = match number % 4 {
            0 => number / 4 % self.flights.len(),
            _ => self.flights.len() - 1,
        };
        if self.flights[at].answer.is_none() {
            let answer = self.driver.execute(self.flights[at].call);
            self.flights[at].answer = Some(answer);
            return;
        }
        let flight = self.flights.remove(at);
        let answer = flight.answer.unwrap();
        match flight.paper {
            Paper::Alloc(ticket) => {
                let done = answer.map(|handle| AllocDone {
                    object: ObjectHandle(handle),
                    bytes: 0,
                });
                self.accounting.end_alloc(ticket, done);
            }
            Paper::Dup(ticket) => self.accounting.end_dup(ticket, answer.map(ObjectHandle)),
            Paper::Free(ticket) => self.accounting.end_free(ticket, answer.is_some()),
            Paper::Close => self.accounting.close_file(FileId(flight.call.file)),
        }
    }

    fn compare(&self) {
        for gpu in GPUS {
            let share = self.accounting.share(gpu).unwrap();
            let taken = self.driver.taken(gpu);
            let charged = share.used + share.reserved;
            assert!(charged >= taken, "{taken} taken, {charged} charged");
        }
    }

    fn finish(mut self) {
        while !self.flights.is_empty() {
            self.advance(0);
            self.compare();
        }
        for &client in self.driver.clients.keys() {
            assert!(self.accounting.owns_client(ClientHandle(client)));
        }
        for file in 0..FILES {
            self.driver.close(file);
            self.accounting.close_file(FileId(file));
            self.compare();
        }
        assert!(
            self.accounting.is_idle(),
            "something is left: {:?}",
            self.accounting
        );
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn accounting_never_undercounts_calls_in_flight(
        steps in proptest::collection::vec(step(), 0..600)
    ) {
        let mut world = RaceWorld::new();
        for step in &steps {
            world.take(step);
            world.compare();
        }
        world.finish();
    }
}
