// SPDX-License-Identifier: GPL-2.0
//! The reference model: a driver that has nothing but lists of what exists.
//!
//! It makes those of the real driver's checks on which the accounting leans (a client is used
//! through its own file, a handle is given once, a duplicate is made of what is there), keeps
//! memory as long as an object or a mapping refers to it, and adds up who has how much. It reads
//! the bytes that it was given and knows nothing of the accounting.

mod channels;
mod registered;

use super::{
    super::*,
    pages::{
        PageOwner,
        SeenPage,
        StormPages, //
    },
    scale::{
        GPUS,
        TENANTS, //
    }, //
};

/// The task that makes a call, and its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) tenant: usize,
    pub(super) file: u64,
    pub(super) uvm: bool,
    pub(super) process: i32,
}

/// How a call ends in the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// As it must.
    Done,
    /// With a status, for a reason of the driver's own.
    Refused,
    /// With an errno, and nothing done.
    Errno,
    /// Done, but the caller was killed, and nothing could be written to it.
    Untold,
}

/// The memory of a GPU that a tenant has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) bytes: u64,
    /// Contexts, whose memory no object shows.
    pub(super) contexts: u64,
    /// Bytes of the page tables of what is mapped, which none shows either.
    pub(super) tables: u64,
    /// And of address spaces.
    pub(super) spaces: u64,
    /// And of the pools of groups of channels.
    pub(super) pools: u64,
}

impl Taken {
    /// Bytes of its contexts, of which the first of a GPU takes more than the others, and of page
    /// tables beyond what those have.
    pub(super) fn overhead(&self) -> u64 {
        let contexts = match self.contexts {
            0 => 0,
            some => CONTEXT + FURTHER_CONTEXT * (some - 1),
        };
        let tables = self.tables + self.spaces;
        contexts + self.pools + tables.saturating_sub(self.contexts * (96 << 10))
    }
}

/// A mapping at an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapped {
    pub(super) length: u64,
    memory: usize,
    /// By pages of so many bytes.
    page: u64,
}

#[derive(Clone, Copy, Debug)]
struct Memory {
    tenant: usize,
    gpu: usize,
    taken: Taken,
    /// Bytes of the largest pages by which it can be mapped.
    page: u64,
    references: usize,
    /// Of a group: how many channels have their memory in its pool.
    channels: u64,
    /// Of a channel: the memory of its group.
    group: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MachineObject {
    pub(super) parent: u32,
    pub(super) class: u32,
    pub(super) gpu: Option<usize>,
    pub(super) memory: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MachineClient {
    pub(super) file: u64,
    pub(super) tenant: usize,
}

/// The driver.
#[derive(Debug, Default)]
pub(super) struct Machine {
    pub(super) clients: BTreeMap<u32, MachineClient>,
    /// By client and handle. A client is an object of its own handle.
    pub(super) objects: BTreeMap<(u32, u32), MachineObject>,
    memory: BTreeMap<usize, Memory>,
    /// UVM's ranges: length by file and address.
    pub(super) ranges: BTreeMap<(u64, u64), u64>,
    /// Mappings, by file, GPU and address.
    pub(super) maps: BTreeMap<(u64, usize, u64), Mapped>,
    /// That has changed since page tables were counted.
    remapped: bool,
    /// Channels that UVM keeps, by file, client and handle: their GPU and memory.
    pub(super) registered: BTreeMap<(u64, u32, u32), (usize, usize)>,
    /// By client and handle of the channel.
    control_pages: BTreeMap<(u32, u32), SeenPage>,
    /// The object behind a file: a class and its memory.
    exports: BTreeMap<u64, (u32, Option<usize>)>,
    /// The object that a file shows to the processor, as client and handle. The driver itself never
    /// takes it away.
    shown: BTreeMap<u64, (u32, u32)>,
    /// The pages that a file shows of it, which the driver does not take away either.
    shown_pages: BTreeMap<u64, Vec<SeenPage>>,
    pages: StormPages,
    /// Files in which no page of it can be touched any more.
    ended: std::collections::BTreeSet<u64>,
    pub(super) taken: [[Taken; GPUS]; TENANTS],
    next_client: u32,
    next_memory: usize,
    pub(super) met: Met,
}

/// How often something was met, so that a storm that has become a breeze is noticed.
#[derive(Clone, Debug, Default)]
pub(super) struct Met(BTreeMap<&'static str, u64>);

impl Met {
    pub(super) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_insert(0) += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_insert(0) += times;
        }
    }

    pub(super) fn times(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

type Outcome = Result<(), NvStatus>;

/// The first handle that the driver gives a client, less one.
pub(super) const FIRST_CLIENT: u32 = 0xc1d0_0000;
/// Memory of a GPU's first context, as the recordings show it.
pub(super) const CONTEXT: u64 = 7744 << 10;
/// And of each further one.
const FURTHER_CONTEXT: u64 = 4416 << 10;
/// Engines of a channel group: compute, and one that copies.
pub(super) const COMPUTE: u32 = 1;
pub(super) const COPIES: u32 = 11;
/// Bytes that a channel takes in the pool of its group, or in one of its own.
pub(super) const POOL: u64 = 64 << 10;
pub(super) const VIDEO_MEMORY: u32 = 0x40;
pub(super) const CHANNEL: u32 = 0xc86f;
pub(super) const CHANNEL_GROUP: u32 = 0xa06c;
pub(super) const VA_SPACE: u32 = 0x90f1;
/// Controls that put an object behind a descriptor, and take it from there.
pub(super) const EXPORT: u32 = 0x3d05;
pub(super) const IMPORT: u32 = 0x3d06;

/// How a GPU is called in UVM.
pub(super) fn uuid(gpu: usize) -> [u8; 16] {
    let mut uuid = *b"GPU-under-test-?";
    uuid[15] = b'0' + u8::try_from(gpu).expect("few");
    uuid
}

fn gpu_of(uuid: &[u8]) -> Option<usize> {
    (0..GPUS).find(|&gpu| self::uuid(gpu) == uuid)
}

/// Bytes that an object of `size` bytes takes, with the frame that its alignment blocks, and the
/// size that it tells: by the page size in `attr`.
fn rounded(size: u64, attr: u32, alignment: u64) -> (u64, u64) {
    const BIG: u64 = 64 << 10;
    const HUGE: u64 = 2 << 20;
    let up = |unit: u64| size.div_ceil(unit).saturating_mul(unit);
    let (bytes, told) = match (attr >> 23) & 3 {
        0 if size >= HUGE => (up(HUGE), up(HUGE)),
        // Pages of 4 KiB out of pieces of 64.
        1 => (up(BIG), up(4 << 10)),
        0 | 2 => (up(BIG), up(BIG)),
        _ => (up(HUGE), up(HUGE)),
    };
    (bytes.max(up(alignment.clamp(1, HUGE))), told)
}

/// The alignment that the flags say counts.
fn alignment(flags: u32, asked: u64) -> u64 {
    match flags & 0x180 {
        0 => 0,
        _ => asked,
    }
}

impl Machine {
    /// Runs a call on what it was given, and leaves its results there.
    pub(super) fn execute(
        &mut self,
        task: &Task,
        request: u32,
        parts: &mut [Part<'_>],
        fate: Fate,
        hostile: bool,
    ) -> i32 {
        self.fill_pool(task, request, parts[0].bytes);
        if fate == Fate::Errno {
            self.met.note("fails in the driver");
            return -22;
        }
        let size = parts[0].bytes.len();
        let status_at = match (task.uvm, request & 0xff, size) {
            (true, 33, _) => 9260,
            (true, 66, _) => 32,
            (true, 27, _) => 48,
            (true, 28, _) => 24,
            (true, _, _) => 16,
            (_, 0x2b, 48) => 40,
            (_, 0x2b, _) => 28,
            (_, 0x29, _) => 12,
            (_, 0x2a, _) => 28,
            (_, 0x34, _) => 24,
            (_, 0x4a, _) => 20,
            (_, 0x27 | 0x4e, _) => 40,
            (_, 0x4f, _) => 24,
            (_, nr, _) => panic!("a call that the model does not know: {nr:#x}"),
        };
        let mut told: Vec<Vec<u8>> = parts.iter().map(|part| part.bytes.to_vec()).collect();
        let outcome = match (fate, task.uvm) {
            (Fate::Refused, _) if !self.must_work(task, request, &told, hostile) => {
                self.met.note("refused by the driver");
                Err(NvStatus::NV_ERR_NO_MEMORY)
            }
            (_, true) => self.uvm(task, request, &told[0]),
            (_, false) => self.escape(task, request & 0xff, &mut told),
        };
        if fate == Fate::Untold {
            self.met.note("done and not told");
            return -14;
        }
        // A call that fails changes its status alone.
        if outcome.is_ok() {
            for (part, told) in parts.iter_mut().zip(&told) {
                part.bytes.copy_from_slice(told);
            }
        }
        let status = outcome.err().map_or(0, |status| status.0);
        put32(parts[0].bytes, status_at, status);
        0
    }

    /// Calls that the driver does not refuse, whatever a program does: a free through the client's
    /// own file (`rmapiFreeWithSecInfo()`; it fails while the GPU is reset or asleep), an unmapping
    /// that splits nothing (`uvm_unmap_external_in_range()`), and the end of an external range
    /// (`uvm_free()`). And that UVM lets go of a channel (`uvm_unregister_channel()`).
    fn must_work(&self, task: &Task, request: u32, told: &[Vec<u8>], hostile: bool) -> bool {
        let outer = &told[0];
        if !task.uvm {
            let is_free = match request & 0xff {
                0x29 => true,
                0x4a => get32(outer, 8) == 3,
                _ => false,
            };
            return is_free && hostile;
        }
        let (base, length) = (get64(outer, 0), get64(outer, 8));
        if request == 34 {
            return self.ranges.get(&(task.file, base)) == Some(&length);
        }
        if request != 66 {
            return request == 28;
        }
        let Some(gpu) = gpu_of(&outer[16..32]) else {
            return false;
        };
        let end = base + length;
        let mut meeting = self.meeting(task.file, gpu, base, end);
        meeting.all(|(at, map)| base <= at && at + map.length <= end)
    }

    fn escape(&mut self, task: &Task, nr: u32, told: &mut [Vec<u8>]) -> Outcome {
        let (outer, rest) = told.split_first_mut().expect("an argument");
        let names = (get32(outer, 0), get32(outer, 4), get32(outer, 8));
        match nr {
            0x2b => self.alloc(task, outer, rest.first_mut()),
            0x29 => self.free(task, names.0, names.2),
            0x34 => self.dup(task, names, (get32(outer, 12), get32(outer, 16))),
            0x4a if names.2 == 2 => {
                // VID_HEAP_CONTROL, ALLOC_SIZE.
                let names = (names.0, names.1, get32(outer, 44));
                assert!(get32(outer, 52) & 0x4000 != 0, "the handle is not given");
                let alignment = alignment(get32(outer, 52), get64(outer, 96));
                let memory = (get64(outer, 88), get32(outer, 56), alignment);
                let size = self.video(task, names, memory)?;
                put64(outer, 88, size);
                Ok(())
            }
            0x4a => self.free(task, names.0, get32(outer, 44)),
            0x4e => self.show(task, (names.0, names.2), get32(outer, 48)),
            0x4f => {
                self.client(task, names.0)?;
                self.expect_hidden((names.0, names.2));
                Ok(())
            }
            0x27 => {
                // ALLOC_MEMORY of video memory tells how much there is and makes nothing.
                self.client(task, names.0)?;
                put64(outer, 32, (1 << 40) - 1);
                Ok(())
            }
            0x2a => {
                self.client(task, names.0)?;
                if matches!(names.2, EXPORT | IMPORT) {
                    return self.pass(task, names, rest.first_mut().expect("parameters"));
                }
                let list = rest.first_mut().expect("parameters");
                for at in (8..list.len()).step_by(8) {
                    put32(list, at, 1 << 30);
                }
                Ok(())
            }
            _ => panic!("a call that the model does not know: {nr:#x}"),
        }
    }

    /// A file is prepared for a mapping of an object, once and for ever.
    fn show(&mut self, task: &Task, object: (u32, u32), file: u32) -> Outcome {
        self.client(task, object.0)?;
        let found = self.objects.get(&object);
        let memory = found.ok_or(NvStatus::NV_ERR_OBJECT_NOT_FOUND)?.memory;
        let file = u64::from(file);
        if self.shown.contains_key(&file) {
            return Err(NvStatus::NV_ERR_STATE_IN_USE);
        }
        self.shown.insert(file, object);
        let pages = memory.map(|memory| self.pages.seen(self.memory[&memory].gpu, memory));
        let pages = pages.unwrap_or_default();
        if !pages.is_empty() {
            self.met.note("video memory is shown");
        }
        self.shown_pages.insert(file, pages);
        let ended = self.ended.contains(&file);
        self.met
            .note(if ended { "shown too late" } else { "shown" });
        Ok(())
    }

    /// All mappings of an object have ended before the driver may give its place to others.
    fn expect_hidden(&self, object: (u32, u32)) {
        let mut shown = self.shown.iter();
        let still = shown.find(|(file, of)| **of == object && !self.ended.contains(file));
        assert_eq!(still, None, "a file shows what is gone");
    }

    /// Nothing of what a file shows can be touched any more.
    pub(super) fn end_mappings(&mut self, file: u64) {
        if self.shown.contains_key(&file) {
            self.met.note("a mapping ends");
        }
        self.ended.insert(file);
    }

    /// Whether a file can be mapped: `Some(false)` if it was prepared, and all that it showed has
    /// ended.
    pub(super) fn can_be_mapped(&self, file: u64) -> Option<bool> {
        self.shown.get(&file).map(|_| !self.ended.contains(&file))
    }

    /// No page that a tenant reaches by its file, now or by a later mapping, is free or another's.
    pub(super) fn expect_own_pages(&self, tenant_of: impl Fn(u64) -> usize) {
        for (&file, pages) in &self.shown_pages {
            if !self.ended.contains(&file) {
                let tenant = tenant_of(file);
                let foreign = pages
                    .iter()
                    .find(|page| self.pages.is_foreign(page, tenant));
                assert!(
                    foreign.is_none(),
                    "file {file} of {tenant} shows {foreign:?}"
                );
            }
        }
    }

    /// An object behind a descriptor, whose number is its file's.
    fn pass(&mut self, task: &Task, names: (u32, u32, u32), params: &[u8]) -> Outcome {
        if names.2 == EXPORT {
            let (object, file) = (get32(params, 12), u64::from(get32(params, 16)));
            let object = self.objects.get(&(names.0, object));
            let object = *object.ok_or(NvStatus::NV_ERR_OBJECT_NOT_FOUND)?;
            if self.exports.contains_key(&file) {
                return Err(NvStatus::NV_ERR_STATE_IN_USE);
            }
            if let Some(memory) = object.memory {
                self.refer(memory);
            }
            self.exports.insert(file, (object.class, object.memory));
            self.met.note("put behind a descriptor");
            return Ok(());
        }
        let (file, parent, handle) = (get32(params, 0), get32(params, 12), get32(params, 16));
        let export = self.exports.get(&u64::from(file));
        let (class, memory) = *export.ok_or(NvStatus::NV_ERR_OBJECT_NOT_FOUND)?;
        self.enter(task, (names.0, parent, handle), class, None, memory)?;
        self.met.note("taken from behind a descriptor");
        Ok(())
    }

    /// A client can be used through its own file alone.
    fn client(&self, task: &Task, client: u32) -> Outcome {
        match self.clients.get(&client) {
            None => Err(NvStatus::NV_ERR_INVALID_OBJECT_HANDLE),
            Some(client) if client.file != task.file => Err(NvStatus::NV_ERR_INVALID_CLIENT),
            Some(_) => Ok(()),
        }
    }

    fn alloc(&mut self, task: &Task, outer: &mut [u8], params: Option<&mut Vec<u8>>) -> Outcome {
        let names = (get32(outer, 0), get32(outer, 4), get32(outer, 8));
        let class = get32(outer, 12);
        match (class, params) {
            (0 | 0x41, _) => {
                let mut handle = names.0;
                if handle == 0 {
                    self.next_client += 1;
                    handle = FIRST_CLIENT + self.next_client;
                }
                if self.clients.contains_key(&handle) {
                    return Err(NvStatus::NV_ERR_INSERT_DUPLICATE_NAME);
                }
                let (file, tenant) = (task.file, task.tenant);
                self.clients.insert(handle, MachineClient { file, tenant });
                let root = MachineObject {
                    parent: 0,
                    class,
                    gpu: None,
                    memory: None,
                };
                self.objects.insert((handle, handle), root);
                put32(outer, 8, handle);
                Ok(())
            }
            (0x80, Some(params)) => {
                let gpu = usize::try_from(get32(params, 0)).expect("small");
                self.enter(task, names, class, Some(gpu), None)
            }
            (VIDEO_MEMORY, Some(params)) => {
                let alignment = alignment(get32(params, 8), get64(params, 72));
                let memory = (get64(params, 64), get32(params, 24), alignment);
                let size = self.video(task, names, memory)?;
                put64(params, 64, size);
                Ok(())
            }
            (CHANNEL_GROUP, Some(params)) => {
                let gpu = self.gpu(names.0, names.1)?;
                let group = Taken {
                    contexts: u64::from(get32(params, 12) == COMPUTE),
                    ..Taken::default()
                };
                let memory = self.take(task, gpu, group, 4 << 10);
                self.enter_or_drop(task, names, class, memory)
            }
            (CHANNEL, Some(params)) => self.channel(task, names, params),
            (VA_SPACE, _) => {
                let gpu = self.gpu(names.0, names.1)?;
                let space = Taken {
                    spaces: 20 << 10,
                    ..Taken::default()
                };
                let memory = self.take(task, gpu, space, 4 << 10);
                self.enter_or_drop(task, names, class, memory)
            }
            _ => self.enter(task, names, class, None, None),
        }
    }

    fn gpu(&self, client: u32, object: u32) -> Result<usize, NvStatus> {
        let object = self.objects.get(&(client, object));
        let object = object.ok_or(NvStatus::NV_ERR_OBJECT_NOT_FOUND)?;
        object.gpu.ok_or(NvStatus::NV_ERR_INVALID_OBJECT_PARENT)
    }

    /// Video memory; the size that it tells.
    fn video(
        &mut self,
        task: &Task,
        names: (u32, u32, u32),
        (size, attr, alignment): (u64, u32, u64),
    ) -> Result<u64, NvStatus> {
        let gpu = self.gpu(names.0, names.1)?;
        let (bytes, told) = rounded(size, attr, alignment);
        let taken = Taken {
            bytes,
            ..Taken::default()
        };
        let page = match (attr >> 23) & 3 {
            0 if size >= 2 * MIB => 2 * MIB,
            1 => 4 << 10,
            3 => 2 * MIB,
            _ => 64 << 10,
        };
        let memory = self.take(task, gpu, taken, page);
        self.enter_or_drop(task, names, VIDEO_MEMORY, memory)?;
        self.met.note("memory is given");
        Ok(told)
    }

    fn enter_or_drop(
        &mut self,
        task: &Task,
        names: (u32, u32, u32),
        class: u32,
        memory: usize,
    ) -> Outcome {
        self.refer(memory);
        let entered = self.enter(task, names, class, None, Some(memory));
        self.drop(Some(memory));
        entered
    }

    /// Adds an object: client, parent and handle.
    fn enter(
        &mut self,
        task: &Task,
        (client, parent, handle): (u32, u32, u32),
        class: u32,
        gpu: Option<usize>,
        memory: Option<usize>,
    ) -> Outcome {
        self.client(task, client)?;
        let above = self.objects.get(&(client, parent));
        let above = *above.ok_or(NvStatus::NV_ERR_OBJECT_NOT_FOUND)?;
        assert_ne!(handle, 0, "the driver was to choose a handle");
        if self.objects.contains_key(&(client, handle)) {
            return Err(NvStatus::NV_ERR_INSERT_DUPLICATE_NAME);
        }
        let object = MachineObject {
            parent,
            class,
            gpu: gpu.or(above.gpu),
            memory,
        };
        self.objects.insert((client, handle), object);
        if let Some(memory) = memory {
            self.refer(memory);
        }
        Ok(())
    }

    fn dup(&mut self, task: &Task, names: (u32, u32, u32), source: (u32, u32)) -> Outcome {
        self.client(task, names.0)?;
        let from = self.clients.get(&source.0);
        let from = from.ok_or(NvStatus::NV_ERR_INVALID_OBJECT_HANDLE)?;
        if from.tenant != task.tenant {
            // Objects are shared within a process, or with whom a program names.
            return Err(NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS);
        }
        let object = self.objects.get(&source);
        let object = *object.ok_or(NvStatus::NV_ERR_OBJECT_NOT_FOUND)?;
        self.enter(task, names, object.class, None, object.memory)?;
        if object.memory.is_some() {
            self.met.note("memory is shared");
        }
        Ok(())
    }

    fn free(&mut self, task: &Task, client: u32, object: u32) -> Outcome {
        self.client(task, client)?;
        // Success also where there is no such object.
        self.remove(client, object);
        Ok(())
    }

    fn remove(&mut self, client: u32, handle: u32) {
        let Some(object) = self.objects.remove(&(client, handle)) else {
            return;
        };
        let below: Vec<u32> = self
            .objects
            .range((client, 0)..=(client, u32::MAX))
            .filter(|(_, below)| below.parent == handle)
            .map(|(key, _)| key.1)
            .collect();
        for child in below {
            self.remove(client, child);
        }
        if handle == client {
            self.clients.remove(&client);
        }
        self.expect_hidden((client, handle));
        self.control_pages.remove(&(client, handle));
        self.drop(object.memory);
    }

    fn take(&mut self, task: &Task, gpu: usize, taken: Taken, page: u64) -> usize {
        self.next_memory += 1;
        let memory = Memory {
            tenant: task.tenant,
            gpu,
            taken,
            page,
            references: 0,
            channels: 0,
            group: None,
        };
        self.memory.insert(self.next_memory, memory);
        let owner = PageOwner {
            tenant: task.tenant,
            memory: self.next_memory,
        };
        self.pages.give(gpu, owner, taken.bytes);
        let sum = &mut self.taken[task.tenant][gpu];
        sum.bytes += taken.bytes;
        sum.contexts += taken.contexts;
        sum.spaces += taken.spaces;
        sum.pools += taken.pools;
        self.next_memory
    }

    fn refer(&mut self, memory: usize) {
        self.memory.get_mut(&memory).expect("there").references += 1;
    }

    fn drop(&mut self, memory: Option<usize>) {
        let Some(id) = memory else { return };
        let memory = self.memory.get_mut(&id).expect("there");
        memory.references -= 1;
        if memory.references == 0 {
            let sum = &mut self.taken[memory.tenant][memory.gpu];
            sum.bytes -= memory.taken.bytes;
            sum.contexts -= memory.taken.contexts;
            sum.spaces -= memory.taken.spaces;
            sum.pools -= memory.taken.pools;
            self.pages.take_back(memory.gpu, id);
            let group = self.memory.remove(&id).and_then(|memory| memory.group);
            if let Some(group) = group {
                self.memory.get_mut(&group).expect("there").channels -= 1;
                self.drop(Some(group));
            }
        }
    }

    fn uvm(&mut self, task: &Task, request: u32, told: &[u8]) -> Outcome {
        let (base, length) = (get64(told, 0), get64(told, 8));
        match request {
            73 => {
                let end = base + length;
                let overlaps = |((_, at), &len): (&(u64, u64), &u64)| *at < end && at + len > base;
                let mut ranges = self.ranges.range((task.file, 0)..=(task.file, u64::MAX));
                if ranges.any(overlaps) {
                    return Err(NvStatus::NV_ERR_UVM_ADDRESS_IN_USE);
                }
                self.ranges.insert((task.file, base), length);
                Ok(())
            }
            33 => {
                self.range(task, base, length)?;
                let object = (get32(told, 9252), get32(told, 9256));
                // One of another process would be refused, by its tenant all the more.
                let client = self.clients.get(&object.0);
                if client.is_none_or(|client| client.tenant != task.tenant) {
                    return Err(NvStatus::NV_ERR_INVALID_OBJECT_HANDLE);
                }
                let memory = self.objects.get(&object).and_then(|object| object.memory);
                let memory = memory.ok_or(NvStatus::NV_ERR_OBJECT_NOT_FOUND)?;
                for number in 0..usize::try_from(get64(told, 9240)).expect("few") {
                    let at = 24 + 36 * number;
                    let gpu = gpu_of(&told[at..at + 16]).expect("a GPU");
                    self.unmap(task.file, gpu, base, length);
                    self.refer(memory);
                    let key = (task.file, gpu, base);
                    let numbers = base | length | get64(told, 16) | self.memory[&memory].page;
                    let mapped = Mapped {
                        length,
                        memory,
                        page: 1 << numbers.trailing_zeros(),
                    };
                    self.maps.insert(key, mapped);
                    self.remapped = true;
                }
                Ok(())
            }
            66 => {
                self.range(task, base, length)?;
                let gpu = gpu_of(&told[16..32]).expect("a GPU");
                self.unmap(task.file, gpu, base, length);
                Ok(())
            }
            34 => {
                if self.ranges.get(&(task.file, base)) != Some(&length) {
                    return Err(NvStatus::NV_ERR_INVALID_ADDRESS);
                }
                self.ranges.remove(&(task.file, base));
                for gpu in 0..GPUS {
                    self.unmap(task.file, gpu, base, length);
                }
                Ok(())
            }
            38 => {
                let gpu = gpu_of(&told[..16]).expect("a GPU");
                self.unmap(task.file, gpu, 0, u64::MAX);
                self.let_go_all(task.file, |of| of == gpu);
                Ok(())
            }
            27 => {
                let gpu = gpu_of(&told[..16]).expect("a GPU");
                self.register(task, gpu, (get32(told, 20), get32(told, 24)))
            }
            28 => self.let_go((task.file, get32(told, 16), get32(told, 20))),
            _ => panic!("a request that the model does not know: {request}"),
        }
    }

    /// Counts the page tables of all that is mapped: each one that anything needs, once.
    pub(super) fn count_tables(&mut self) {
        if !core::mem::take(&mut self.remapped) {
            return;
        }
        let mut tables = std::collections::BTreeSet::new();
        for (&(file, gpu, at), map) in &self.maps {
            let last = at + map.length - 1;
            let mut touch = |shift: u32, bytes: u64| {
                let tenant = self.memory[&map.memory].tenant;
                for number in at >> shift..=last >> shift {
                    tables.insert((tenant, gpu, file, shift, bytes, number));
                }
            };
            match map.page {
                page if page < 64 << 10 => touch(21, 4096),
                page if page < 2 * MIB => touch(21, 256),
                _ => {}
            }
            for shift in [29, 38, 47] {
                touch(shift, 4096);
            }
        }
        for sum in self.taken.iter_mut().flatten() {
            sum.tables = 0;
        }
        for (tenant, gpu, _, _, bytes, _) in tables {
            self.taken[tenant][gpu].tables += bytes;
            self.met.note("page tables are taken");
        }
    }

    /// Addresses lie in one range.
    fn range(&self, task: &Task, base: u64, length: u64) -> Outcome {
        let mut before = self.ranges.range((task.file, 0)..=(task.file, base));
        match before.next_back() {
            Some((&(_, at), &len)) if base + length <= at + len => Ok(()),
            _ => Err(NvStatus::NV_ERR_INVALID_ADDRESS),
        }
    }

    /// The mappings that have some of these addresses, by where they begin.
    fn meeting(
        &self,
        file: u64,
        gpu: usize,
        base: u64,
        end: u64,
    ) -> impl Iterator<Item = (u64, Mapped)> + '_ {
        let maps = self.maps.range((file, gpu, 0)..(file, gpu, end));
        maps.map(|(key, map)| (key.2, *map))
            .filter(move |(at, map)| at + map.length > base)
    }

    /// Takes away what is mapped at these addresses; of what is there in parts the rest stays.
    fn unmap(&mut self, file: u64, gpu: usize, base: u64, length: u64) {
        let end = base.saturating_add(length);
        let hit: Vec<_> = self.meeting(file, gpu, base, end).collect();
        self.remapped |= !hit.is_empty();
        for (at, map) in hit {
            let (len, memory) = (map.length, map.memory);
            self.maps.remove(&(file, gpu, at));
            let left = base.saturating_sub(at);
            let right = (at + len).saturating_sub(end);
            if left > 0 {
                self.refer(memory);
                let left = Mapped {
                    length: left,
                    ..map
                };
                self.maps.insert((file, gpu, at), left);
            }
            if right > 0 {
                self.refer(memory);
                let right = Mapped {
                    length: right,
                    ..map
                };
                self.maps.insert((file, gpu, end), right);
            }
            if self.memory[&memory].references == 1 {
                self.met.note("memory goes with its mapping");
            }
            self.drop(Some(memory));
        }
    }

    /// The last descriptor of a file is gone.
    pub(super) fn close(&mut self, file: u64) {
        let of =
            |(handle, client): (&u32, &MachineClient)| (client.file == file).then_some(*handle);
        let clients: Vec<u32> = self.clients.iter().filter_map(of).collect();
        for client in clients {
            self.remove(client, client);
        }
        for gpu in 0..GPUS {
            self.unmap(file, gpu, 0, u64::MAX);
        }
        self.ranges.retain(|key, _| key.0 != file);
        self.let_go_all(file, |_| true);
        self.shown.remove(&file);
        self.shown_pages.remove(&file);
        self.ended.remove(&file);
        if let Some((_, memory)) = self.exports.remove(&file) {
            self.drop(memory);
        }
    }

    /// Something is behind this file.
    pub(super) fn is_export(&self, file: u64) -> bool {
        self.exports.contains_key(&file)
    }

    /// Nothing exists.
    pub(super) fn is_empty(&self) -> bool {
        self.clients.is_empty()
            && self.objects.is_empty()
            && self.memory.is_empty()
            && self.maps.is_empty()
            && self.exports.is_empty()
            && self.registered.is_empty()
            && self.control_pages.is_empty()
            && self.pages.are_free()
            && self.taken.iter().flatten().all(|t| *t == Taken::default())
    }
}
