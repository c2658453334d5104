// SPDX-License-Identifier: GPL-2.0
//! The call of a step: the bytes of a call, built from what exists at that moment.

use super::{
    super::*,
    machine::{
        uuid,
        MachineObject,
        CHANNEL_GROUP,
        EXPORT,
        IMPORT,
        VA_SPACE,
        VIDEO_MEMORY, //
    },
    scale::{
        Rng,
        GPUS, //
    },
    world::{
        File,
        StormKind,
        World, //
    }, //
};

const NVOS21: u32 = 0xc020_462b;
const DUP: u32 = 0xc01c_4634;
const VID_HEAP: u32 = 0xc0b8_464a;
const ALLOC_MEMORY: u32 = 0xc038_4627;
const MAP_MEMORY: u32 = 0xc038_464e;
const UNMAP_MEMORY: u32 = 0xc020_464f;
const FB_GET_INFO: u32 = 0x2080_1303;
/// Handles that programs choose; few, so that they meet.
const HANDLES: u64 = 24;
/// Addresses of UVM's ranges, each of this size, in pieces of 2 MiB: side by side and far apart, so
/// that they share page tables and do not.
const RANGES: [u64; 4] = [
    0x20_0000_0000,
    0x20_0100_0000,
    0x20_2000_0000,
    0x90_0000_0000,
];
const RANGE: u64 = 16 * MIB;
const PIECE: u64 = 2 * MIB;

/// A call as a program makes it.
#[derive(Clone, Debug)]
pub(super) struct StormRequest {
    pub(super) code: u32,
    pub(super) argument: u64,
    pub(super) blocks: BTreeMap<u64, Vec<u8>>,
    pub(super) sense: Sense,
}

/// The check of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sense {
    Nothing,
    /// An object comes to be: where its handle and the status stand, and what it takes.
    Makes {
        client: u32,
        parent: u32,
        handle_at: usize,
        status_at: usize,
        bytes: u64,
    },
    /// FB_GET_INFO tells what is left.
    Tells {
        client: u32,
        object: u32,
    },
}

/// The bytes that a call for memory of this size takes; compare [`super::machine`].
fn taken(size: u64, page: u32, alignment: u64) -> u64 {
    let unit = match page {
        0 if size >= 2 * MIB => 2 * MIB,
        0..=2 => 64 << 10,
        _ => 2 * MIB,
    };
    size.next_multiple_of(unit.max(alignment))
}

fn size(rng: &mut Rng) -> u64 {
    match rng.below(16) {
        0..=3 => rng.below(100) + 1,
        4..=6 => rng.below(4 * MIB) + 1,
        7..=13 => (rng.below(12) + 1) * MIB,
        _ => (30 + rng.below(60)) * MIB,
    }
}

/// The client, the parent and the object that a call names.
struct Names {
    client: u32,
    parent: u32,
    handle: u32,
}

/// Whether memory and channels are made below an object.
fn is_device(object: &MachineObject) -> bool {
    object.class == 0x80
}

impl World {
    /// A client of the file, rarely any other, or one that there is not.
    fn client(&self, file: u64, rng: &mut Rng) -> u32 {
        let foreign = rng.below(24);
        let fits = |of: u64| foreign == 1 || of == file;
        let clients = &self.machine.clients;
        let fit: Vec<u32> = clients
            .iter()
            .filter(|(_, client)| fits(client.file))
            .map(|(&handle, _)| handle)
            .collect();
        match rng.pick(&fit) {
            Some(&client) if foreign != 0 => client,
            _ => 0xdead,
        }
    }

    /// An object of a client, mostly one that is fit, rarely any or none.
    fn object(&self, client: u32, rng: &mut Rng, fit: impl Fn(&MachineObject) -> bool) -> u32 {
        let any = rng.below(16) == 0;
        let objects = self.machine.objects.range((client, 0)..=(client, u32::MAX));
        let found: Vec<u32> = objects
            .filter(|(_, object)| any || fit(object))
            .map(|(key, _)| key.1)
            .collect();
        match rng.pick(&found) {
            Some(&object) => object,
            None => client,
        }
    }

    fn names(&self, file: u64, rng: &mut Rng, fit: impl Fn(&MachineObject) -> bool) -> Names {
        let client = self.client(file, rng);
        let handle = match rng.below(16) {
            0..=3 => 0,
            4 => u64::from(client),
            _ => rng.below(HANDLES) + 1,
        };
        Names {
            client,
            parent: self.object(client, rng, fit),
            handle: u32::try_from(handle).expect("a handle"),
        }
    }

    /// Something to do on a control file.
    pub(super) fn escape(&self, file: u64, rng: &mut Rng) -> StormRequest {
        // A client and a device come first: all else needs them.
        let has = |class: u32| {
            let objects = self.machine.objects.iter();
            let mut own = objects.filter(|(key, _)| self.machine.clients[&key.0].file == file);
            own.any(|(_, object)| object.class == class)
        };
        let what = match rng.below(64) {
            0..=31 if !has(0x41) => 0,
            0..=31 if !has(0x80) => 4,
            what => what,
        };
        match what {
            0..=3 => {
                // Mostly the driver chooses the client's handle.
                let chosen = u32::try_from(rng.below(4)).expect("small");
                let root = if rng.below(8) == 0 { chosen } else { 0 };
                one(NV_ESC_RM_ALLOC, nvos64(root, 0, 0, 0x41, 0))
            }
            4..=8 => {
                let names = self.names(file, rng, |object| object.class == 0x41);
                let mut params = vec![0; 56];
                let gpu = rng.index(GPUS + 1);
                put32(&mut params, 0, u32::try_from(gpu).expect("few"));
                made(&names, 0x80, params, 0, rng)
            }
            9..=10 => made(
                &self.names(file, rng, is_device),
                0x2080,
                vec![0; 4],
                0,
                rng,
            ),
            11 => made(
                &self.names(file, rng, is_device),
                VA_SPACE,
                vec![0; 56],
                20 << 10,
                rng,
            ),
            12 => {
                // Mostly in a group, whose engine counts then.
                let is_below = |object: &MachineObject| object.class == CHANNEL_GROUP;
                let names = match rng.below(8) {
                    0 => self.names(file, rng, is_device),
                    _ => self.names(file, rng, is_below),
                };
                let mut params = vec![0; 368];
                let engine = [super::machine::COPIES, super::machine::COMPUTE];
                put32(&mut params, 128, *rng.pick(&engine).expect("two"));
                if rng.below(4) > 0 {
                    let is_memory = |object: &MachineObject| object.class == VIDEO_MEMORY;
                    let memory = self.object(names.client, rng, is_memory);
                    put32(&mut params, 32, memory);
                    put64(&mut params, 64, rng.below(8).saturating_sub(4) * MIB);
                }
                let most = super::machine::CONTEXT + super::machine::POOL;
                made(&names, super::machine::CHANNEL, params, most, rng)
            }
            13..=14 => {
                let mut params = vec![0; 20];
                let (engine, context) = match rng.below(2) {
                    0 => (super::machine::COPIES, 0),
                    _ => (super::machine::COMPUTE, super::machine::CONTEXT),
                };
                put32(&mut params, 12, engine);
                let names = self.names(file, rng, is_device);
                made(&names, CHANNEL_GROUP, params, context, rng)
            }
            15..=30 => {
                let names = self.names(file, rng, is_device);
                let (size, page) = (size(rng), u32::try_from(rng.below(4)).expect("small"));
                let alignment = [4096, 64 << 10, 2 * MIB][(size % 3) as usize];
                let mut params = memory_params(size);
                put32(&mut params, 24, 0x1800_0000 | page << 23);
                put64(&mut params, 72, alignment);
                let bytes = taken(size, page, alignment);
                made(&names, VIDEO_MEMORY, params, bytes, rng)
            }
            31..=34 => self.heap(file, rng),
            35..=41 => self.duplicate(file, rng),
            42..=43 => self.show(file, rng),
            44..=57 => {
                let client = self.client(file, rng);
                // Memory above all; what is higher takes much with it.
                let which = rng.below(8);
                let low = which > 0;
                let object = self.object(client, rng, |object| match which {
                    0 => true,
                    1 => self.machine.has_control_page(object),
                    _ => object.memory.is_some(),
                });
                let object = if low && object == client { 7 } else { object };
                if rng.below(8) == 0 {
                    let outer = words(184, &[(0, client), (8, 3), (44, object)]);
                    return one(VID_HEAP, outer);
                }
                let outer = words(16, &[(0, client), (8, object)]);
                one(NV_ESC_RM_FREE, outer)
            }
            58 => {
                let names = self.names(file, rng, is_device);
                let outer = words(
                    56,
                    &[
                        (0, names.client),
                        (4, names.parent),
                        (8, names.handle),
                        (12, VIDEO_MEMORY),
                    ],
                );
                one(ALLOC_MEMORY, outer)
            }
            59..=61 => self.share(file, rng, what == 61),
            _ => {
                let client = self.client(file, rng);
                let object = self.object(client, rng, |object| object.class == 0x2080);
                let mut outer = words(
                    32,
                    &[(0, client), (4, object), (8, FB_GET_INFO), (24, 1028)],
                );
                put64(&mut outer, 16, PARAMS);
                let params = words(1028, &[(0, 2), (4, 0x16), (12, 0x08)]);
                let mut request = one(NV_ESC_RM_CONTROL, outer);
                request.blocks.insert(PARAMS, params);
                request.sense = Sense::Tells { client, object };
                request
            }
        }
    }

    /// Memory by the older way.
    fn heap(&self, file: u64, rng: &mut Rng) -> StormRequest {
        let names = self.names(file, rng, is_device);
        let (size, page) = (size(rng), u32::try_from(rng.below(4)).expect("small"));
        let provided = if names.handle == 0 { 0 } else { 0x4000 };
        let mut outer = words(
            184,
            &[
                (0, names.client),
                (4, names.parent),
                (8, 2),
                (44, names.handle),
                (52, provided),
                (56, 0x1800_0000 | page << 23),
            ],
        );
        put64(&mut outer, 88, size);
        StormRequest {
            sense: Sense::Makes {
                client: names.client,
                parent: names.parent,
                handle_at: 44,
                status_at: 20,
                bytes: taken(size, page, 1),
            },
            ..one(VID_HEAP, outer)
        }
    }

    /// A second object over memory.
    fn duplicate(&self, file: u64, rng: &mut Rng) -> StormRequest {
        let names = self.names(file, rng, is_device);
        // Of any client of the tenant: two processes that share memory.
        let source_file = match rng.below(3) {
            0 => file,
            _ => {
                let all: Vec<u64> = self.files.keys().copied().collect();
                *rng.pick(&all).unwrap_or(&file)
            }
        };
        let client = self.client(source_file, rng);
        let source = self.object(client, rng, |object| object.memory.is_some());
        let mut outer = vec![0; 28];
        for (at, value) in [
            (0, names.client),
            (4, names.parent),
            (8, names.handle),
            (12, client),
            (16, source),
        ] {
            put32(&mut outer, at, value);
        }
        StormRequest {
            sense: Sense::Makes {
                client: names.client,
                parent: names.parent,
                handle_at: 8,
                status_at: 24,
                bytes: 0,
            },
            ..one(DUP, outer)
        }
    }

    /// A file to show an object, or an object to be shown no more.
    fn show(&self, file: u64, rng: &mut Rng) -> StormRequest {
        let client = self.client(file, rng);
        let object = self.object(client, rng, |object| object.class == VIDEO_MEMORY);
        let found = self.machine.objects.get(&(client, object));
        let (parent, gpu) = found.map_or((client, None), |found| (found.parent, found.gpu));
        let unmaps = rng.below(4) == 0;
        let mut outer = vec![0; if unmaps { 32 } else { 56 }];
        put32(&mut outer, 0, client);
        put32(&mut outer, 4, parent);
        put32(&mut outer, 8, object);
        if unmaps {
            return one(UNMAP_MEMORY, outer);
        }
        // Mostly one of the object's GPU.
        let any = rng.below(8) == 0;
        let fit = |(_, file): &(&u64, &File)| any || file.gpu.is_some() && file.gpu == gpu;
        let files: Vec<u64> = self.files.iter().filter(fit).map(|(&id, _)| id).collect();
        let shows = rng.pick(&files).copied().unwrap_or(99);
        put32(&mut outer, 48, u32::try_from(shows).expect("few"));
        one(MAP_MEMORY, outer)
    }

    /// Memory into a file, or out of one.
    fn share(&self, file: u64, rng: &mut Rng, is_import: bool) -> StormRequest {
        let names = self.names(file, rng, is_device);
        let fit = |number: &&u64| {
            let behind = self.machine.is_export(**number);
            !self.files[number].uvm && behind == (is_import)
        };
        let files: Vec<u64> = self.files.keys().filter(fit).copied().collect();
        let behind = u32::try_from(rng.pick(&files).copied().unwrap_or(99)).expect("few");
        let (cmd, params) = if is_import {
            let device = self.object(names.client, rng, is_device);
            (
                IMPORT,
                [behind, 1, device, names.parent, names.handle].to_vec(),
            )
        } else {
            let object = self.object(names.client, rng, |object| object.memory.is_some());
            (
                EXPORT,
                [1, names.parent, names.parent, object, behind, 0].to_vec(),
            )
        };
        let params: Vec<u8> = params.into_iter().flat_map(u32::to_le_bytes).collect();
        let mut outer = words(
            32,
            &[
                (0, names.client),
                (4, names.client),
                (8, cmd),
                (24, u32::try_from(params.len()).expect("few")),
            ],
        );
        put64(&mut outer, 16, PARAMS);
        let mut request = one(NV_ESC_RM_CONTROL, outer);
        request.blocks.insert(PARAMS, params);
        request
    }

    /// Something to do on a UVM file.
    pub(super) fn uvm(&self, tenant: usize, file: u64, rng: &mut Rng) -> StormRequest {
        // In pieces of different sizes one mapping can take a part of another.
        let whole = self.kind == StormKind::Exact;
        let range = RANGES[rng.index(RANGES.len())];
        let base = range + rng.below(RANGE / PIECE) * PIECE;
        let room = (range + RANGE - base) / PIECE;
        let length = if whole {
            PIECE
        } else {
            (rng.below(room) + 1) * PIECE
        };
        match rng.below(32) {
            0..=4 => {
                let mut params = vec![0; 24];
                put64(&mut params, 0, range);
                put64(&mut params, 8, RANGE);
                one(73, params)
            }
            18..=20 => self.register(tenant, file, rng),
            5..=17 => {
                let files: Vec<u64> = self
                    .files
                    .iter()
                    .filter(|(_, other)| other.tenant == tenant)
                    .map(|(&id, _)| id)
                    .collect();
                let client = self.client(*rng.pick(&files).unwrap_or(&file), rng);
                let memory = self.object(client, rng, |object| object.memory.is_some());
                let mut params = vec![0; 9264];
                put64(&mut params, 0, base);
                put64(&mut params, 8, length);
                // By pages of 2 MiB at most, of 64 KiB, of 4 KiB.
                let offset = [0, 64 << 10, 4 << 10][(base / PIECE % 3) as usize];
                put64(&mut params, 16, offset);
                let first = rng.index(GPUS);
                let count = 1 + usize::from(rng.below(4) == 0);
                for number in 0..count {
                    let at = 24 + 36 * number;
                    params[at..at + 16].copy_from_slice(&uuid((first + number) % GPUS));
                }
                put64(&mut params, 9240, u64::try_from(count).expect("few"));
                put32(&mut params, 9252, client);
                put32(&mut params, 9256, memory);
                one(33, params)
            }
            21..=27 => {
                // Just what is mapped, or some addresses.
                let gpu = rng.index(GPUS);
                let maps = self
                    .machine
                    .maps
                    .range((file, gpu, 0)..=(file, gpu, u64::MAX));
                let maps: Vec<(u64, u64)> = maps.map(|(key, map)| (key.2, map.length)).collect();
                let (base, length) = match rng.pick(&maps) {
                    Some(&map) if rng.below(4) > 0 => map,
                    _ if whole => (range, RANGE),
                    _ => (base, length),
                };
                let mut params = vec![0; 40];
                put64(&mut params, 0, base);
                put64(&mut params, 8, length);
                params[16..32].copy_from_slice(&uuid(gpu));
                one(66, params)
            }
            28..=30 => {
                let mut params = vec![0; 24];
                put64(&mut params, 0, range);
                put64(&mut params, 8, RANGE);
                one(34, params)
            }
            _ => {
                let mut params = vec![0; 24];
                params[..16].copy_from_slice(&uuid(rng.index(GPUS)));
                one(38, params)
            }
        }
    }
}

impl World {
    /// A channel for UVM to keep, or to let go.
    fn register(&self, tenant: usize, file: u64, rng: &mut Rng) -> StormRequest {
        let registered = self.machine.registered.keys();
        let registered: Vec<_> = registered.filter(|key| key.0 == file).collect();
        if let (Some(&&(_, client, channel)), 0) = (rng.pick(&registered), rng.below(3)) {
            return one(28, words(28, &[(16, client), (20, channel)]));
        }
        // There are few: of any client of the tenant's, mostly on its own GPU.
        let objects = self.machine.objects.iter().filter(|(key, object)| {
            let own = self.machine.clients[&key.0].tenant == tenant;
            own && object.class == super::machine::CHANNEL
        });
        let channels: Vec<_> = objects.map(|(key, object)| (*key, object.gpu)).collect();
        let (name, gpu) = rng.pick(&channels).copied().unwrap_or_default();
        let any = rng.index(GPUS);
        let gpu = gpu.filter(|_| rng.below(8) > 0).unwrap_or(any);
        let mut params = words(56, &[(20, name.0), (24, name.1)]);
        params[..16].copy_from_slice(&uuid(gpu));
        one(27, params)
    }
}

/// A call with one struct.
fn one(code: u32, outer: Vec<u8>) -> StormRequest {
    StormRequest {
        code,
        argument: OUTER,
        blocks: BTreeMap::from([(OUTER, outer)]),
        sense: Sense::Nothing,
    }
}

/// An RM_ALLOC of a class, in either envelope.
fn made(names: &Names, class: u32, params: Vec<u8>, bytes: u64, rng: &mut Rng) -> StormRequest {
    let mut outer = nvos64(names.client, names.parent, names.handle, class, PARAMS);
    let (code, status_at) = match rng.below(4) {
        0 => {
            outer.truncate(32);
            (NVOS21, 28)
        }
        _ => (NV_ESC_RM_ALLOC, 40),
    };
    let mut request = one(code, outer);
    request.blocks.insert(PARAMS, params);
    request.sense = Sense::Makes {
        client: names.client,
        parent: names.parent,
        handle_at: 8,
        status_at,
        bytes,
    };
    request
}

/// The same call in an envelope.
pub(super) fn enveloped(mut request: StormRequest) -> StormRequest {
    const ENVELOPE: u64 = 0x8000;
    let mut envelope = vec![0; 16];
    put32(&mut envelope, 0, request.code & 0xff);
    put32(&mut envelope, 4, request.code >> 16 & 0x3fff);
    put64(&mut envelope, 8, request.argument);
    request.blocks.insert(ENVELOPE, envelope);
    request.code = NV_ESC_XFER;
    request.argument = ENVELOPE;
    request
}
