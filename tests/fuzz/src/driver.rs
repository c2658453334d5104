// SPDX-License-Identifier: GPL-2.0
//! The driver behind the proxy: RM objects and what they hold, kept by what the calls say and by
//! nothing that the accounting says. It is what the accounting is compared with.
//!
//! Written from the driver's sources, not from the module's tables: offsets stand here as numbers
//! (nvos.h, uvm_ioctl.h). It does less than the real driver, never more: what it does not know
//! succeeds and keeps nothing.

use std::collections::BTreeMap;

use crate::{
    stream::{put_u32, put_u64, u32_at, u64_at},
    uvm::{Memory, Spaces},
};

/// GPUs with a share, by device instance. Another one, [`OTHER_GPU`], is not the tenant's.
pub const GPUS: [u32; 2] = [0, 1];
/// A GPU of other tenants.
pub const OTHER_GPU: u32 = 5;
/// Clients of other tenants. The driver takes calls for them where it does not ask whose they are,
/// so no call may name one.
pub const FOREIGN: [u32; 2] = [0xc1d0_0001, 0xc1d0_0002];
/// The first client that the driver makes.
pub const FIRST_CLIENT: u32 = 0xc1d0_0010;
/// Memory of a GPU: more than any limit, so that limits are what refuses.
const HEAP: u64 = 1 << 40;
/// Bytes that each compute context of a GPU takes without its channels (measured: docs/memory.md).
const CONTEXT: u64 = 4416 << 10;
/// Bytes that each channel takes in its group's pool, or in that of a group of its own.
const CHANNEL: u64 = 64 << 10;
/// And what a GPU takes as soon as it has any.
const ANY_CONTEXT: u64 = 3328 << 10;

const OK: u32 = 0;
const NO_MEMORY: u32 = 0x51;
const INVALID_CLIENT: u32 = 0x23;
const OBJECT_NOT_FOUND: u32 = 0x57;
const ADDRESS_IN_USE: u32 = 0x68;
const DUPLICATE: u32 = 0x19;

/// An object.
#[derive(Debug, Clone)]
struct Object {
    parent: u32,
    gpu: Option<u32>,
    memory: Option<Memory>,
}

#[derive(Debug)]
struct Client {
    file: u64,
    objects: BTreeMap<u32, Object>,
}

/// Memory that something holds.
#[derive(Debug)]
struct Block {
    gpu: u32,
    bytes: u64,
    holders: u32,
    what: BlockKind,
}

/// The use of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Object,
    Context,
}

/// The caller.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// The number of the file that the call came through.
    pub file: u64,
    /// It is a control file, to which clients belong.
    pub control: bool,
}

/// The driver.
#[derive(Debug, Default)]
pub struct Driver {
    clients: BTreeMap<u32, Client>,
    blocks: BTreeMap<Memory, Block>,
    spaces: Spaces,
    made: u64,
    next_client: u32,
}

impl Driver {
    /// Bytes of a GPU that are held.
    pub fn held(&self, gpu: u32) -> u64 {
        let blocks = || self.blocks.values().filter(|block| block.gpu == gpu);
        let any_context = blocks().any(|block| block.what == BlockKind::Context);
        let bytes: u64 = blocks().map(|block| block.bytes).sum();
        bytes + if any_context { ANY_CONTEXT } else { 0 }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.blocks.is_empty() && self.spaces.is_empty()
    }

    /// A file is closed, and with it go its clients and its mappings.
    pub fn close(&mut self, file: u64) {
        for memory in self.spaces.close(file) {
            self.drop_memory(memory);
        }
        let of_file = |(handle, client): (&u32, &Client)| (client.file == file).then_some(*handle);
        let gone: Vec<u32> = self.clients.iter().filter_map(of_file).collect();
        for client in gone {
            self.free(client, client);
        }
    }

    /// An escape, as it arrives: the parts' bytes, the first of them the argument. Returns what the
    /// ioctl returns; the status is in the parts.
    pub fn escape(&mut self, caller: Caller, nr: u8, parts: &mut [&mut [u8]]) -> i32 {
        let Some((outer, nested)) = parts.split_first_mut() else {
            return -22;
        };
        let params = nested
            .first_mut()
            .map_or(&mut [][..], |params| &mut **params);
        match nr {
            0x2b => self.alloc(caller, outer, params),
            0x29 => {
                let status = self.free_call(caller, u32_at(outer, 0), u32_at(outer, 8));
                put_u32(outer, 12, status);
            }
            0x34 => self.dup(caller, outer),
            0x4a => self.heap(caller, outer),
            0x27 => {
                let class = u32_at(outer, 12);
                let (client, parent, new) = (u32_at(outer, 0), u32_at(outer, 4), u32_at(outer, 8));
                // Class 0x40 tells the size of the heap and makes nothing.
                let status = match class {
                    0x40 => OK,
                    _ => self.make(caller, client, parent, new, None),
                };
                put_u32(outer, 40, status);
            }
            _ => {}
        }
        0
    }

    fn client(&mut self, caller: Caller, client: u32) -> Option<&mut Client> {
        let client = self.clients.get_mut(&client)?;
        // `rmclientValidate_IMPL()`; a GPU's file is bound to a control file, which is not kept
        // here.
        (!caller.control || client.file == caller.file).then_some(client)
    }

    fn alloc(&mut self, caller: Caller, outer: &mut [u8], params: &mut [u8]) {
        let status_at = if outer.len() == 48 { 40 } else { 28 };
        let (client, parent, new) = (u32_at(outer, 0), u32_at(outer, 4), u32_at(outer, 8));
        let class = u32_at(outer, 12);
        let status = match class {
            0x0 | 0x1 | 0x41 => match self.make_client(caller, client) {
                Some(made) => {
                    put_u32(outer, 8, made);
                    OK
                }
                None => DUPLICATE,
            },
            0x80 => {
                let gpu = u32_at(params, 0);
                let status = self.make(caller, client, parent, new, None);
                if status == OK {
                    self.place(client, new, gpu);
                }
                status
            }
            0x40 => {
                let size = rounded(u64_at(params, 64), u32_at(params, 24));
                let status =
                    self.make(caller, client, parent, new, Some((BlockKind::Object, size)));
                if status == OK {
                    put_u64(params, 64, size);
                }
                status
            }
            0xa06c => {
                let context = (u32_at(params, 12) == 1).then_some((BlockKind::Context, CONTEXT));
                self.make(caller, client, parent, new, context)
            }
            0xc56f | 0xc86f => {
                let channel = Some((BlockKind::Object, CHANNEL));
                self.make(caller, client, parent, new, channel)
            }
            _ => self.make(caller, client, parent, new, None),
        };
        put_u32(outer, status_at, status);
    }

    /// A client with a handle of the caller's choice, or of the driver's.
    fn make_client(&mut self, caller: Caller, wanted: u32) -> Option<u32> {
        let taken = |driver: &Self, handle| {
            FOREIGN.contains(&handle) || driver.clients.contains_key(&handle)
        };
        if wanted != 0 && taken(self, wanted) {
            return None;
        }
        let mut handle = wanted;
        while handle == 0 || taken(self, handle) {
            handle = FIRST_CLIENT + self.next_client;
            self.next_client += 1;
        }
        let client = Client {
            file: caller.file,
            objects: BTreeMap::new(),
        };
        self.clients.insert(handle, client);
        Some(handle)
    }

    fn make(
        &mut self,
        caller: Caller,
        client: u32,
        parent: u32,
        new: u32,
        takes: Option<(BlockKind, u64)>,
    ) -> u32 {
        assert!(
            !FOREIGN.contains(&client),
            "an object for another tenant's client"
        );
        let Some(owner) = self.client(caller, client) else {
            return INVALID_CLIENT;
        };
        let gpu = match owner.objects.get(&parent) {
            Some(parent) => parent.gpu,
            None if parent == client => None,
            None => return OBJECT_NOT_FOUND,
        };
        if new == 0 || new == client || owner.objects.contains_key(&new) {
            return DUPLICATE;
        }
        let memory = match (takes, gpu) {
            (Some((what, bytes)), Some(gpu)) => match self.take(gpu, what, bytes) {
                Some(memory) => Some(memory),
                None => return NO_MEMORY,
            },
            (Some(_), None) => return OBJECT_NOT_FOUND,
            (None, _) => None,
        };
        let object = Object {
            parent,
            gpu,
            memory,
        };
        let Some(owner) = self.clients.get_mut(&client) else {
            return INVALID_CLIENT;
        };
        owner.objects.insert(new, object);
        OK
    }

    fn place(&mut self, client: u32, object: u32, gpu: u32) {
        let client = self.clients.get_mut(&client);
        if let Some(object) = client.and_then(|client| client.objects.get_mut(&object)) {
            object.gpu = Some(gpu);
        }
    }

    fn take(&mut self, gpu: u32, what: BlockKind, bytes: u64) -> Option<Memory> {
        let fits = self
            .held(gpu)
            .checked_add(bytes)
            .is_some_and(|all| all <= HEAP);
        fits.then(|| {
            self.made += 1;
            let block = Block {
                gpu,
                bytes,
                holders: 1,
                what,
            };
            self.blocks.insert(self.made, block);
            self.made
        })
    }

    fn hold(&mut self, memory: Memory) {
        if let Some(block) = self.blocks.get_mut(&memory) {
            block.holders += 1;
        }
    }

    fn drop_memory(&mut self, memory: Memory) {
        let Some(block) = self.blocks.get_mut(&memory) else {
            panic!("memory {memory} is held by something and gone");
        };
        block.holders -= 1;
        if block.holders == 0 {
            self.blocks.remove(&memory);
        }
    }

    fn free_call(&mut self, caller: Caller, client: u32, object: u32) -> u32 {
        assert!(
            !FOREIGN.contains(&client),
            "a free in another tenant's client"
        );
        if self.client(caller, client).is_none() {
            return INVALID_CLIENT;
        }
        self.free(client, object);
        // A free of no object is no error: serverFreeResourceTreeLockAndFindResource.
        OK
    }

    fn free(&mut self, client: u32, object: u32) {
        let Some(owner) = self.clients.get_mut(&client) else {
            return;
        };
        let mut gone = Vec::new();
        if object == client {
            gone.extend(owner.objects.values().filter_map(|object| object.memory));
            self.clients.remove(&client);
        } else {
            let mut doomed = vec![object];
            while let Some(handle) = doomed.pop() {
                if let Some(object) = owner.objects.remove(&handle) {
                    gone.extend(object.memory);
                    let below =
                        |(child, o): (&u32, &Object)| (o.parent == handle).then_some(*child);
                    doomed.extend(owner.objects.iter().filter_map(below));
                }
            }
        }
        for memory in gone {
            self.drop_memory(memory);
        }
    }

    fn dup(&mut self, caller: Caller, outer: &mut [u8]) {
        let (client, parent, new) = (u32_at(outer, 0), u32_at(outer, 4), u32_at(outer, 8));
        let (from, source) = (u32_at(outer, 12), u32_at(outer, 16));
        assert!(
            !FOREIGN.contains(&from),
            "a duplicate from another tenant's client"
        );
        let found = self
            .clients
            .get(&from)
            .and_then(|c| c.objects.get(&source))
            .cloned();
        let status = match found {
            None => OBJECT_NOT_FOUND,
            Some(object) => {
                let status = self.make(caller, client, parent, new, None);
                if status == OK {
                    if let Some(memory) = object.memory {
                        self.hold(memory);
                        let owner = self.clients.get_mut(&client);
                        if let Some(new) = owner.and_then(|owner| owner.objects.get_mut(&new)) {
                            new.memory = Some(memory);
                        }
                    }
                }
                status
            }
        };
        put_u32(outer, 24, status);
    }

    /// `NV_ESC_RM_VID_HEAP_CONTROL`: function 2 allocates, 3 frees.
    fn heap(&mut self, caller: Caller, outer: &mut [u8]) {
        const VIRTUAL: u32 = 0x8_0000;
        let (client, parent) = (u32_at(outer, 0), u32_at(outer, 4));
        let status = match u32_at(outer, 8) {
            2 => {
                let (flags, attr) = (u32_at(outer, 52), u32_at(outer, 56));
                let video = flags & VIRTUAL == 0 && (attr >> 25) & 3 == 0;
                let size = rounded(u64_at(outer, 88), attr);
                let new = u32_at(outer, 44);
                let takes = video.then_some((BlockKind::Object, size));
                let status = self.make(caller, client, parent, new, takes);
                if status == OK && video {
                    put_u64(outer, 88, size);
                }
                status
            }
            3 => self.free_call(caller, client, u32_at(outer, 44)),
            _ => 0x56,
        };
        put_u32(outer, 20, status);
    }

    /// A request on a UVM file.
    pub fn uvm(&mut self, caller: Caller, request: u32, params: &mut [u8]) {
        let end = params.len();
        match request {
            // UVM_MAP_EXTERNAL_ALLOCATION: its last fields are count, descriptor, client, memory,
            // status.
            33 if end >= 24 => {
                let (client, object) = (u32_at(params, end - 12), u32_at(params, end - 8));
                assert!(
                    !FOREIGN.contains(&client),
                    "a mapping from another tenant's client"
                );
                let found = self
                    .clients
                    .get(&client)
                    .and_then(|c| c.objects.get(&object));
                let status = match found.and_then(|object| object.memory) {
                    None => OBJECT_NOT_FOUND,
                    Some(memory) => self.map(caller.file, memory, params),
                };
                put_u32(params, end - 4, status);
            }
            // UVM_UNMAP_EXTERNAL
            66 => {
                let gone = self.spaces.unmap(
                    caller.file,
                    &uuid_at(params, 16),
                    u64_at(params, 0),
                    u64_at(params, 8),
                );
                self.settle(gone);
                put_u32(params, 32, OK);
            }
            // UVM_FREE: without a length from 595 on, where the status follows the address.
            34 => {
                let (base, long) = (u64_at(params, 0), end > 16);
                let length = long.then(|| u64_at(params, 8));
                let gone = self.spaces.free(caller.file, base, length);
                put_u32(
                    params,
                    if long { 16 } else { 8 },
                    if gone.is_some() { OK } else { 0x1e },
                );
                self.settle(gone.unwrap_or_default());
            }
            // UVM_CREATE_EXTERNAL_RANGE
            73 => {
                let made = self
                    .spaces
                    .create(caller.file, u64_at(params, 0), u64_at(params, 8));
                put_u32(params, 16, if made { OK } else { ADDRESS_IN_USE });
            }
            // UVM_UNREGISTER_GPU_VASPACE, UVM_UNREGISTER_GPU
            26 | 38 => {
                let gone = self.spaces.forget_gpu(caller.file, &uuid_at(params, 0));
                self.settle(gone);
            }
            _ => {}
        }
    }

    fn map(&mut self, file: u64, memory: Memory, params: &[u8]) -> u32 {
        let end = params.len();
        let (base, length) = (u64_at(params, 0), u64_at(params, 8));
        let room = (end - 24 - 24) / 36;
        let count = usize::try_from(u64_at(params, end - 24)).unwrap_or(usize::MAX);
        if count == 0 || count > room {
            return 0x1f;
        }
        for gpu in 0..count {
            let Some(gone) =
                self.spaces
                    .map(file, uuid_at(params, 24 + 36 * gpu), base, length, memory)
            else {
                return 0x1e;
            };
            self.hold(memory);
            self.settle(gone);
        }
        OK
    }

    /// Mappings were cut: pieces that were added hold their memory, pieces that went do not.
    fn settle(&mut self, cuts: Vec<(Memory, i32)>) {
        for (memory, by) in cuts {
            for _ in 0..by {
                self.hold(memory);
            }
            for _ in by..0 {
                self.drop_memory(memory);
            }
        }
    }
}

fn uuid_at(bytes: &[u8], at: usize) -> [u8; 16] {
    let uuid = bytes.get(at..at + 16).and_then(|uuid| uuid.try_into().ok());
    uuid.unwrap_or_default()
}

/// Least memory that is taken for a size: pages of 2 MiB for what is that large or asks for huge
/// ones, else of 64 KiB (`memmgrDeterminePageSize_IMPL()`, mem_mgr.c; PMA's smallest page).
fn rounded(size: u64, attr: u32) -> u64 {
    let unit: u64 = match (attr >> 23) & 3 {
        0 if size >= 2 << 20 => 2 << 20,
        3 => 2 << 20,
        _ => 64 << 10,
    };
    size.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
}
