// SPDX-License-Identifier: GPL-2.0
//! A process of the storm: threads that share its files, each with RM clients of its own.

use std::sync::atomic::Ordering::Relaxed;

use super::board::{Board, THREADS};
use crate::{
    bytes::{put_u32, u64_at},
    guest::{
        process::spawn,
        rm::{self, Failure, DEVICE_HANDLE, SUBDEVICE_HANDLE},
        tools::MIB,
        uvm::{space_params, Space, VA_SPACE},
    },
    layout,
    random::Random,
    sys,
};

const SPACE_HANDLE: u32 = 0x5C00_0004;
const FIRST_MEMORY: u32 = 0x5C00_0100;
/// Objects with memory that a thread has at a time.
const MOST: usize = 12;
/// Control files with an object that a thread has at a time.
const MOST_EXPORTS: usize = 4;
/// The address of UVM's first mapping, and the distance between two.
const BASE: u64 = 0x20_0000_0000;
const STRIDE: u64 = 64 * MIB;

/// The GPU that all use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    pub(super) minor: u32,
    pub(super) device_instance: u32,
    pub(super) uuid: [u8; 16],
}

/// Runs until it is killed.
pub(super) fn run(
    board: &'static Board,
    seat: usize,
    folder: &str,
    seed: u64,
    setting: Setting,
) -> i32 {
    let mut random = Random(seed);
    // Opening fails where allocations do.
    let (files, space) = loop {
        if let Some(open) = open_all(folder, &setting) {
            break open;
        }
        sys::sleep_ms(1);
    };
    let mut threads = Vec::new();
    for number in 0..THREADS {
        let seed = random.next();
        let folder = folder.to_owned();
        let make = move || {
            Worker {
                board,
                seat,
                number,
                setting,
                folder,
                random: Random(seed),
                files,
                space: (number == 0).then_some(space),
                client: None,
                memory: Vec::new(),
                contexts: Vec::new(),
                maps: Vec::new(),
                exports: Vec::new(),
                next: FIRST_MEMORY,
            }
            .work();
        };
        threads.push(std::thread::spawn(make));
    }
    for thread in threads {
        let _ = thread.join();
    }
    1
}

/// The control file and the GPU's.
#[derive(Debug, Clone, Copy)]
struct Files {
    ctl: i32,
    gpu: i32,
}

fn open_all(folder: &str, setting: &Setting) -> Option<(Files, Space)> {
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    let ctl = sys::open(&format!("{folder}/nvidiactl"), flags).ok()?;
    let gpu = sys::open(&format!("{folder}/nvidia{}", setting.minor), flags).ok();
    let space = Space::open(folder).ok();
    match (gpu, space) {
        (Some(gpu), Some(space)) => Some((Files { ctl, gpu }, space)),
        _ => {
            for fd in [Some(ctl), gpu] {
                let _ = fd.map(sys::close);
            }
            let _ = space.map(Space::close);
            None
        }
    }
}

struct Worker {
    board: &'static Board,
    seat: usize,
    number: u32,
    setting: Setting,
    folder: String,
    random: Random,
    files: Files,
    /// The first thread maps.
    space: Option<Space>,
    client: Option<u32>,
    /// Handles of objects with memory, and sizes.
    memory: Vec<(u32, u64)>,
    contexts: Vec<u32>,
    /// Which places are mapped, and how far.
    maps: Vec<(u64, u64)>,
    /// Control files that have an object.
    exports: Vec<i32>,
    next: u32,
}

impl Worker {
    fn work(&mut self) {
        loop {
            self.stand_still();
            self.board.calls.fetch_add(1, Relaxed);
            let Some(client) = self.client else {
                self.client = self.open_client();
                continue;
            };
            match self.random.below(64) {
                0..=15 if self.memory.len() < MOST => self.allocate(client),
                16..=19 if self.memory.len() < MOST => self.allocate_from_heap(client),
                20..=25 if self.memory.len() < MOST => self.copy(client),
                26..=41 => self.free(client),
                42..=43 => self.context(client),
                44..=46 => self.report(client),
                47..=52 => self.map(client),
                53..=54 => self.unmap(),
                55 => self.export(client),
                56 if self.space.is_none() => self.leave(client),
                57 if self.space.is_none() => self.free_device(client),
                58 if self.board.wild.load(Relaxed) != 0 => self.fork(),
                59..=60 if self.board.wild.load(Relaxed) != 0 => self.meddle(),
                61 if self.memory.len() < MOST => self.import(client),
                62 => self.forget_export(),
                _ => self.refused(client),
            }
        }
    }

    fn stand_still(&self) {
        if self.board.pause.load(Relaxed) == 0 {
            return;
        }
        let still = &self.board.seats[self.seat].still;
        still.fetch_add(1, Relaxed);
        while self.board.pause.load(Relaxed) != 0 {
            sys::sleep_ms(2);
        }
        still.fetch_sub(1, Relaxed);
    }

    fn wrong(&self, what: u32) {
        self.board.wrong.store(what, Relaxed);
    }

    /// A client with a device and a subdevice; the first thread's has an address space that UVM
    /// knows.
    fn open_client(&mut self) -> Option<u32> {
        let ctl = self.files.ctl;
        let client = rm::alloc(ctl, 0, 0, 0, rm::ROOT, &mut []).ok()?;
        let made = self.open_device(client).and_then(|()| match self.space {
            Some(space) => {
                self.alloc(client, SPACE_HANDLE, VA_SPACE, &mut space_params())?;
                space.register(&self.setting.uuid, client, SPACE_HANDLE)
            }
            None => Ok(()),
        });
        if made.is_err() {
            // It may be gone already where a thread of the process has meddled.
            let _ = rm::free(ctl, client, client);
            return None;
        }
        self.memory.clear();
        self.contexts.clear();
        self.next = FIRST_MEMORY;
        Some(client)
    }

    fn open_device(&self, client: u32) -> Result<(), Failure> {
        let ctl = self.files.ctl;
        let mut device = [0; 56];
        put_u32(&mut device, 0, self.setting.device_instance);
        rm::alloc(ctl, client, client, DEVICE_HANDLE, rm::DEVICE, &mut device)?;
        let class = rm::SUBDEVICE;
        rm::alloc(
            ctl,
            client,
            DEVICE_HANDLE,
            SUBDEVICE_HANDLE,
            class,
            &mut [0; 4],
        )
        .map(drop)
    }

    /// A few bytes to a few MiB, rarely many.
    fn size(&mut self) -> u64 {
        match self.random.below(16) {
            0..=3 => self.random.below(256 << 10) + 1,
            4..=13 => self.random.below(8 * MIB) + 1,
            _ => self.random.below(64 * MIB) + 1,
        }
    }

    fn handle(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// An object of the client's device.
    fn alloc(
        &self,
        client: u32,
        handle: u32,
        class: u32,
        params: &mut [u8],
    ) -> Result<u32, Failure> {
        rm::alloc(self.files.ctl, client, DEVICE_HANDLE, handle, class, params)
    }

    fn note(&mut self, client: u32, handle: u32, asked: u64, result: Result<u64, Failure>) {
        match result {
            Ok(given) => {
                if given < asked {
                    self.wrong(1);
                }
                self.board.granted.fetch_add(1, Relaxed);
                self.memory.push((handle, given));
                if self.random.below(4) == 0 {
                    self.show(client, handle);
                }
            }
            Err(Failure::Status(rm::NO_MEMORY)) => {
                self.board.refused.fetch_add(1, Relaxed);
            }
            Err(_) => {}
        }
    }

    /// Lets other processes copy an object.
    fn show(&mut self, client: u32, handle: u32) {
        // RS_SHARE_TYPE_ALL, RS_ACCESS_DUP_OBJECT.
        if rm::share(self.files.ctl, (client, handle), 1).is_ok() {
            let shown = &self.board.seats[self.seat].memory;
            let at = self.random.index(shown.len());
            shown[at].store(u64::from(client) << 32 | u64::from(handle), Relaxed);
        }
    }

    fn allocate(&mut self, client: u32) {
        let (handle, size) = (self.handle(), self.size());
        let mut params = rm::memory_params(client, size);
        let made = self.alloc(client, handle, rm::VIDEO_MEMORY, &mut params);
        let given = made.map(|_| u64_at(&params, layout::MEMORY_SIZE_AT));
        self.note(client, handle, size, given);
    }

    fn allocate_from_heap(&mut self, client: u32) {
        let size = self.size();
        let made = rm::vid_heap_alloc(self.files.ctl, client, DEVICE_HANDLE, 0, size);
        let (handle, given) = match made {
            Ok((handle, given)) => (handle, Ok(given)),
            Err(e) => (0, Err(e)),
        };
        self.note(client, handle, size, given);
    }

    /// Of an own object, or of one that another thread or process shows.
    fn copy(&mut self, client: u32) {
        let own = self.memory.get(self.random.clone().index(MOST));
        let source = match (own, self.random.below(2)) {
            (Some(&(handle, _)), 0) => (client, handle),
            _ => match self.shown() {
                Some(source) => source,
                None => return,
            },
        };
        let handle = self.handle();
        if rm::dup(self.files.ctl, client, DEVICE_HANDLE, handle, source).is_ok() {
            self.memory.push((handle, 0));
        }
    }

    fn shown(&mut self) -> Option<(u32, u32)> {
        let seats = &self.board.seats;
        let seat = &seats[self.random.index(seats.len())];
        let shown = seat.memory[self.random.index(seat.memory.len())].load(Relaxed);
        let half = |number: u64| u32::try_from(number & 0xFFFF_FFFF).unwrap_or(0);
        (shown != 0).then_some((half(shown >> 32), half(shown)))
    }

    fn free(&mut self, client: u32) {
        if self.memory.is_empty() {
            return;
        }
        let at = self.random.index(self.memory.len());
        let (handle, _) = self.memory[at];
        // If copying to user memory fails, it may be gone without a word.
        if rm::free(self.files.ctl, client, handle).is_ok() || self.random.below(4) == 0 {
            self.memory.swap_remove(at);
        }
    }

    fn context(&mut self, client: u32) {
        if let Some(context) = self.contexts.pop() {
            let _ = rm::free(self.files.ctl, client, context);
            return;
        }
        let mut params = [0; 20];
        put_u32(&mut params, 12, 1);
        let handle = self.handle();
        let made = self.alloc(client, handle, rm::CHANNEL_GROUP, &mut params);
        if made.is_err() {
            return;
        }
        self.contexts.push(handle);
        // Its pool has as many channels as there ever were at once.
        for _ in 0..self.random.below(4) {
            let channel = self.handle();
            let params = &mut [0; 368];
            let made = rm::alloc(self.files.ctl, client, handle, channel, rm::CHANNEL, params);
            if made.is_ok() && self.random.below(2) == 0 {
                let _ = rm::free(self.files.ctl, client, channel);
            }
        }
    }

    fn report(&mut self, client: u32) {
        if let Ok(told) = self
            .own_client(client)
            .fb_info(&[rm::TOTAL_RAM_SIZE, rm::HEAP_FREE])
        {
            let most = super::board::TENANTS[self.seat / super::board::PROCESSES].1 >> 10;
            if told[1] > told[0] || u64::from(told[0]) > most {
                self.wrong(2);
            }
        }
    }

    /// Maps an object for the GPU; what is mapped stays when the object goes.
    fn map(&mut self, client: u32) {
        let (Some(space), false) = (self.space, self.memory.is_empty()) else {
            return;
        };
        let (handle, size) = self.memory[self.random.index(self.memory.len())];
        if size < 2 * MIB || self.maps.len() >= MOST {
            return;
        }
        let length = size / (2 * MIB) * 2 * MIB;
        let free = |place: &u64| self.maps.iter().all(|map| map.0 != *place);
        let places = (0..64).map(|number| BASE + number * STRIDE);
        let Some(base) = places.clone().find(free) else {
            return;
        };
        if space.create_range(base, length).is_err() {
            return;
        }
        let mapped = space.map((base, length), &self.setting.uuid, (client, handle));
        if mapped.is_ok() {
            self.maps.push((base, length));
        } else {
            let _ = space.free_range(base, length);
        }
    }

    fn unmap(&mut self) {
        let (Some(space), false) = (self.space, self.maps.is_empty()) else {
            return;
        };
        let at = self.random.index(self.maps.len());
        let map = self.maps[at];
        if self.random.below(2) == 0 {
            let _ = space.unmap(map, &self.setting.uuid);
        }
        if space.free_range(map.0, map.1).is_ok() {
            self.maps.swap_remove(at);
        }
    }

    fn own_client(&self, client: u32) -> rm::Client {
        rm::Client {
            ctl: self.files.ctl,
            gpu: self.files.gpu,
            handle: client,
        }
    }

    /// Puts an object into a control file, where it stays when the object goes.
    fn export(&mut self, client: u32) {
        if self.memory.is_empty() || self.exports.len() >= MOST_EXPORTS {
            return;
        }
        let (handle, _) = self.memory[self.random.index(self.memory.len())];
        let path = format!("{}/nvidiactl", self.folder);
        let Ok(file) = sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC) else {
            return;
        };
        // If it fails, the file may have the object all the same, as far as the accounting knows.
        let _ = rm::export(&self.own_client(client), handle, file);
        self.exports.push(file);
    }

    /// Takes out what a file has.
    fn import(&mut self, client: u32) {
        if self.exports.is_empty() {
            return;
        }
        let file = self.exports[self.random.index(self.exports.len())];
        let handle = self.handle();
        if rm::import(&self.own_client(client), handle, file).is_ok() {
            self.memory.push((handle, 0));
        }
    }

    fn forget_export(&mut self) {
        if !self.exports.is_empty() {
            let at = self.random.index(self.exports.len());
            let _ = sys::close(self.exports.swap_remove(at));
        }
    }

    fn leave(&mut self, client: u32) {
        if rm::free(self.files.ctl, client, client).is_ok() || self.random.below(4) == 0 {
            self.client = None;
        }
    }

    fn free_device(&mut self, client: u32) {
        if rm::free(self.files.ctl, client, DEVICE_HANDLE).is_ok() {
            self.memory.clear();
            self.contexts.clear();
            if self.open_device(client).is_err() {
                self.leave(client);
            }
        }
    }

    /// A child uses the files that it has inherited, and is killed, or not.
    fn fork(&mut self) {
        let (ctl, bytes) = (self.files.ctl, self.size());
        let instance = self.setting.device_instance;
        let patience = self.random.below(4);
        // The child makes system calls and nothing else.
        let child = spawn(|| {
            let Ok(client) = rm::alloc(ctl, 0, 0, 0, rm::ROOT, &mut []) else {
                return 0;
            };
            let mut device = [0; 56];
            put_u32(&mut device, 0, instance);
            let made = rm::alloc(ctl, client, client, DEVICE_HANDLE, rm::DEVICE, &mut device);
            let mut params = rm::memory_params(client, bytes);
            let class = rm::VIDEO_MEMORY;
            if made.is_ok() {
                let _ = rm::alloc(ctl, client, DEVICE_HANDLE, 1, class, &mut params);
            }
            let _ = rm::free(ctl, client, client);
            0
        });
        let Ok(pid) = child else { return };
        if patience > 0 {
            std::thread::sleep(std::time::Duration::from_micros(100 * patience));
            let _ = sys::kill(pid, libc::SIGKILL);
        }
        let _ = sys::wait(pid);
    }

    /// Frees what others have, objects and clients.
    fn meddle(&mut self) {
        let Some((client, handle)) = self.shown() else {
            return;
        };
        let what = match self.random.below(4) {
            0 => DEVICE_HANDLE,
            1 => client,
            _ => handle,
        };
        let _ = rm::free(self.files.ctl, client, what);
    }

    /// Calls that come to nothing: no such parent, no such class, more than there can be.
    fn refused(&mut self, client: u32) {
        let ctl = self.files.ctl;
        let (parent, class, bytes) = match self.random.below(3) {
            0 => (0x1234_5678, rm::VIDEO_MEMORY, MIB),
            1 => (DEVICE_HANDLE, 0xC2, MIB),
            _ => (DEVICE_HANDLE, rm::VIDEO_MEMORY, 1 << 50),
        };
        let mut params = rm::memory_params(client, bytes);
        let handle = self.handle();
        if rm::alloc(ctl, client, parent, handle, class, &mut params).is_ok() {
            self.wrong(3 + self.number);
        }
    }
}
