// SPDX-License-Identifier: GPL-2.0
//! A call of the process that we are in, on a file of the driver: what `dispatch.rs` and
//! `os_interface` are in the kernel.

use crate::{
    state::{Place, State},
    sys, times,
};
use cgpu_km::{
    nvidia::{nvos::Card, tables::Tables},
    policy::{Accounting, FileId, GpuId, ProcessId},
    proxy::{self, Call, Errno, Host, Part, PointerAt, Returned, Role, Route, Session, UserAddr},
};
use std::sync::{atomic::Ordering::Relaxed, Mutex};

/// Most structs of one call: the argument, its parameters, and what those point to.
const MOST_PARTS: usize = 8;
/// Nothing is mapped below this address (`vm.mmap_min_addr`).
const LOWEST: u64 = 1 << 16;

/// `UVM_ALLOC_SEMAPHORE_POOL`.
const ALLOC_SEMAPHORE_POOL: u64 = 68;

/// The addresses of this process's semaphore pools, which are mapped like managed memory and are
/// none. (The module sees it by the pages that such a mapping has at once.)
static POOLS: Mutex<Vec<u64>> = Mutex::new(Vec::new());
/// The UVM files of this process that have managed memory: their numbers and descriptors.
static SPACES: Mutex<Vec<(FileId, i32)>> = Mutex::new(Vec::new());

/// A process inside an `ioctl` on one of the driver's files.
struct Proxied {
    state: &'static State,
    fd: i32,
    find: Find,
}

/// A function that finds the place behind a descriptor of this process.
pub type Find = fn(i32) -> Option<Place>;

impl Host for Proxied {
    /// On this process's files alone: what another one has spilled comes back at its own next call.
    fn forward_on(&mut self, file: FileId, request: u32, parts: &mut [Part<'_>]) -> Returned {
        let known = |spaces: &[(FileId, i32)]| spaces.iter().find(|space| space.0 == file).copied();
        let space = SPACES.lock().ok().and_then(|spaces| known(&spaces));
        let (_, fd) = space.ok_or(Errno::EBADF)?;
        let (state, find) = (self.state, self.find);
        Self { state, fd, find }.forward(request, parts, Route::Caller)
    }

    /// Pages can be taken out of a program's memory by the module alone.
    fn end_mappings(&mut self, _: FileId) {}

    fn uptime_s(&self) -> u64 {
        // CAST: whole seconds of a clock that begins with the machine.
        sys::uptime_s() as u64
    }

    fn tables(&self) -> &'static Tables {
        self.state.tables()
    }

    fn gpu_by_uuid(&self, uuid: &[u8; 16]) -> Option<GpuId> {
        let mut gpus = self.state.gpus().iter();
        let gpu = gpus.find(|gpu| gpu.facts.uuid == *uuid)?;
        Some(GpuId(gpu.facts.device_instance))
    }

    fn gpu_by_id(&self, id: u32) -> Option<GpuId> {
        let mut gpus = self.state.gpus().iter();
        let gpu = gpus.find(|gpu| gpu.facts.gpu_id == id)?;
        Some(GpuId(gpu.facts.device_instance))
    }

    fn card(&self, number: usize) -> Option<Card> {
        Some(self.state.gpus().get(number)?.facts.card)
    }

    fn accounting<R>(&mut self, work: impl FnOnce(&mut Accounting) -> R) -> R {
        self.state.with_accounting(work)
    }
}

impl Call for Proxied {
    type Held = Session;

    /// Nothing holds it: a program that is tested here does not close it meanwhile.
    fn hold(&mut self, descriptor: i32) -> Option<Session> {
        let (file, role) = self.state.file((self.find)(descriptor)?)?;
        Some(Session { file, role })
    }

    /// A plain copy, so that what is measured is close to what the module's copy costs: a system
    /// call for each took longer than all the rest. A program with a wrong pointer crashes for it,
    /// where the module would say `EFAULT`.
    fn read(&mut self, from: UserAddr, into: &mut [u8]) -> Result<(), Errno> {
        if from.0 < LOWEST {
            return Err(Errno::EFAULT);
        }
        // SAFETY: The program says that it has a parameter there; `into` is ours alone.
        unsafe {
            core::ptr::copy_nonoverlapping(from.0 as *const u8, into.as_mut_ptr(), into.len());
        }
        Ok(())
    }

    fn write(&mut self, to: UserAddr, from: &[u8]) -> Result<(), Errno> {
        if to.0 < LOWEST {
            return Err(Errno::EFAULT);
        }
        // SAFETY: The program says that it has a parameter there; `from` is ours.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to.0 as *mut u8, from.len()) };
        Ok(())
    }

    /// Both routes are the same here: the process's own descriptors are of files of the driver,
    /// which is what the worker of the module is for.
    ///
    /// Nobody else knows of the parts, so they go to the driver as they are.
    fn forward(&mut self, request: u32, parts: &mut [Part<'_>], _route: Route) -> Returned {
        if let [only] = parts {
            return self.forward_one(request, only);
        }
        // The program's own pointers, which stand where they stood afterwards.
        let mut own = [[0; 8]; MOST_PARTS];
        let own = own.get_mut(..parts.len()).ok_or(Errno::EINVAL)?;
        for index in 0..parts.len() {
            if parts[index].hole.len != 0 {
                return Err(Errno::EINVAL);
            }
            if let Some(place) = pointer_to(&parts[index], parts)? {
                // CAST: pointers are 64 bits wide.
                let address = parts[index].bytes.as_mut_ptr() as u64;
                own[index] = exchange(parts, place, address.to_le_bytes());
            }
        }
        let argument = parts.first_mut().ok_or(Errno::EINVAL)?;
        let argument = argument.bytes.as_mut_ptr();
        let answer = self.driver(request, argument);
        for index in 0..parts.len() {
            if let Some(place) = pointer_to(&parts[index], parts)? {
                exchange(parts, place, own[index]);
            }
        }
        answer
    }

    fn unmap(&mut self, base: u64, length: u64) {
        // SAFETY: The program has not been told yet that anything is mapped there.
        unsafe { sys::call(libc::SYS_munmap, [base, length, 0, 0, 0, 0]) };
        unmapped(self.state, base, length);
    }

    fn process(&self) -> ProcessId {
        ProcessId(sys::own())
    }

    fn process_by_number(&self, number: u32) -> Option<ProcessId> {
        i32::try_from(number).ok().map(ProcessId)
    }
}

impl Proxied {
    /// The driver's answer to a request whose parts are as large as the tables say.
    fn driver(&self, request: u32, argument: *mut u8) -> Returned {
        // SAFETY: The argument and what it points to are ours, and as large as the request wants
        // them.
        // CAST: pointers are 64 bits wide.
        let call = || unsafe { sys::ioctl(self.fd, u64::from(request), argument as u64) };
        let answer = times::in_driver(call);
        self.state.counters.forwarded.fetch_add(1, Relaxed);
        i32::try_from(answer).map_err(|_| Errno::EINVAL)
    }

    /// As [`Call::forward`], of an argument alone, which may have a hole.
    fn forward_one(&self, request: u32, part: &mut Part<'_>) -> Returned {
        if part.hole.len == 0 {
            return self.driver(request, part.bytes.as_mut_ptr());
        }
        let mut whole = Vec::<u8>::with_capacity(part.size());
        let start = whole.as_mut_ptr();
        for (at, piece) in part.pieces() {
            // SAFETY: The pieces are inside the struct, for which there is room.
            unsafe { core::ptr::copy_nonoverlapping(piece.as_ptr(), start.add(at), piece.len()) };
        }
        let answer = self.driver(request, start);
        let (at, results) = part.results();
        // SAFETY: The results are inside the struct, and the pieces before and behind were written.
        unsafe {
            core::ptr::copy_nonoverlapping(start.add(at), results.as_mut_ptr(), results.len());
        }
        answer
    }
}

/// Puts a pointer into the part that holds it, and gives what stood there. That it is inside
/// [`pointer_to`] has seen.
fn exchange(parts: &mut [Part<'_>], place: PointerAt, pointer: [u8; 8]) -> [u8; 8] {
    let bytes = &mut parts[place.part].bytes[place.offset..][..8];
    let before = bytes.first_chunk().copied().unwrap_or_default();
    bytes.copy_from_slice(&pointer);
    before
}

/// The place of the pointer to a part, if it has one and there is something to point to.
fn pointer_to(part: &Part<'_>, parts: &[Part<'_>]) -> Result<Option<PointerAt>, Errno> {
    let Some(place) = part.pointer.filter(|_| !part.bytes.is_empty()) else {
        return Ok(None);
    };
    let holder = parts.get(place.part).ok_or(Errno::EINVAL)?;
    let inside = holder
        .bytes
        .get(place.offset..)
        .is_some_and(|rest| rest.len() >= 8);
    inside.then_some(Some(place)).ok_or(Errno::EINVAL)
}

/// Runs an `ioctl` of this process on `fd`, which is the open file `place`, as `find` says of any;
/// a negative result is an errno, as a system call gives it.
pub fn ioctl(
    state: &'static State,
    (place, find): (Place, Find),
    fd: i32,
    request: u64,
    argument: u64,
) -> i64 {
    let Some((file, role)) = state.file(place) else {
        return -i64::from(libc::EBADF);
    };
    let session = Session { file, role };
    let mut call = Proxied { state, fd, find };
    if role == Role::Uvm && request == ALLOC_SEMAPHORE_POOL && argument >= LOWEST {
        // SAFETY: The program says that it has a parameter there, which begins with the address.
        let base = unsafe { (argument as *const u64).read_unaligned() };
        if let Ok(mut pools) = POOLS.lock() {
            pools.push(base);
        }
    }
    // CAST: the kernel takes the low 32 bits of a request.
    let answer = proxy::ioctl(&mut call, &session, request as u32, UserAddr(argument));
    state.counters.calls.fetch_add(1, Relaxed);
    match answer {
        Ok(value) => i64::from(value),
        Err(Errno(errno)) => -i64::from(errno),
    }
}

/// The program has mapped a file of the driver. `false`: it is managed memory that the instance has
/// no room for, and must be unmapped again.
pub fn mapped(state: &'static State, place: Place, fd: i32, base: u64, length: u64) -> bool {
    let Some((file, Role::Uvm)) = state.file(place) else {
        return true;
    };
    let is_pool = POOLS.lock().is_ok_and(|pools| pools.contains(&base));
    if is_pool {
        return true;
    }
    if let Ok(mut spaces) = SPACES.lock() {
        spaces.retain(|space| space.0 != file);
        spaces.push((file, fd));
    }
    match state.with_accounting(|accounting| accounting.map_managed(file, base, length)) {
        Ok(true) => {
            // Only what the program names by a descriptor is looked for, and here it names none.
            let find = |_| None;
            let mut call = Proxied { state, fd, find };
            proxy::settle(&mut call, file, base, length, || false);
        }
        Ok(false) => {}
        Err(_) => return false,
    }
    true
}

/// Takes note that the program unmapped this range.
pub fn unmapped(state: &'static State, base: u64, length: u64) {
    let Ok(spaces) = SPACES.lock() else { return };
    for &(file, _) in spaces.iter() {
        state.with_accounting(|accounting| accounting.unmap_managed(file, base, length));
    }
}
