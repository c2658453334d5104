// SPDX-License-Identifier: GPL-2.0
//! An instance that several processes share: its accounting, its open files, its counters.
//!
//! It is a file that every process maps at [`arena::BASE`]. Who starts an instance makes it
//! ([`State::create`]); the programs in it come to it by the environment ([`State::join`]).

use std::{
    cell::UnsafeCell,
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd,
    path::Path,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

use cgpu_km::{
    nvidia::{nvos::card_info, tables::Tables, version::Branch},
    policy::{channel_limit::Engines, Accounting, ContextCost, FileId, GpuId},
    proxy::Role,
};

use crate::{
    arena::{self, Arena, Lock},
    compute::{Compute, GPUS},
    driver::GpuFacts,
    sys,
};

/// The environment variable with the file of the instance.
pub const VARIABLE: &str = "CGPU_GPU_STATE";

/// Most files that an instance has open at once.
pub const FILES: usize = 4096;
/// Most processes that have one file open.
const HOLDERS: usize = 64;
/// Most descriptors that are in sockets at a time.
const FLIGHTS: usize = 64;
/// Written last when an instance is made, so that nobody works on a half-made one.
const MAGIC: u64 = 0x6367_7075_5f67_7075;

/// A GPU of the instance.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Gpu {
    /// The driver's facts about it.
    pub facts: GpuFacts,
    /// The limit when the instance was made, in bytes.
    pub limit_bytes: u64,
}

impl Gpu {
    /// A GPU that no driver is asked about, with a limit of all its memory.
    pub fn unasked(memory_bytes: u64) -> Self {
        let facts = GpuFacts {
            minor: 0,
            gpu_id: 0,
            device_instance: 0,
            memory_bytes,
            uuid: [0; 16],
            architecture: 0,
            engines: Engines::of(0, false),
            card: [0; card_info::SIZE],
        };
        let limit_bytes = memory_bytes;
        Self { facts, limit_bytes }
    }
}

/// An open file, by its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(usize);

impl Place {
    /// The number of the place, below [`FILES`].
    pub const fn number(self) -> usize {
        self.0
    }

    /// The place with this number.
    pub const fn new(number: usize) -> Self {
        Self(number)
    }
}

/// An open file.
#[derive(Debug)]
#[repr(C)]
struct OpenFile {
    /// Its number and 1; 0: the place is free.
    id: u64,
    /// 0: control, 1: UVM, else 2 and the GPU's device instance.
    role: u32,
    /// The processes that have it open.
    holders: [i32; HOLDERS],
}

impl OpenFile {
    /// A process has it open.
    fn hold(&mut self, process: i32) {
        if !self.holders.contains(&process) {
            if let Some(free) = self.holders.iter_mut().find(|holder| **holder == 0) {
                *free = process;
            }
        }
    }
}

/// A descriptor that was put into a socket and has not come out yet.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Flight {
    /// The number of its file and 1; 0: the place is free.
    id: u64,
    /// The sender, and the number of the descriptor there.
    process: i32,
    fd: i32,
    /// Those that are sent later have higher ones.
    order: u64,
}

/// Counters over all processes.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Counters {
    /// Calls that went through the proxy.
    pub calls: AtomicU64,
    /// Calls that reached the driver.
    pub forwarded: AtomicU64,
}

/// The shared memory of an instance.
#[repr(C)]
pub struct State {
    /// First: the allocator looks for it at [`arena::BASE`].
    arena: Arena,
    magic: AtomicU64,
    lock: Lock,
    next_file: AtomicU64,
    branch: u32,
    gpu_count: AtomicU32,
    gpus: UnsafeCell<[Gpu; GPUS]>,
    /// Counters of the instance.
    pub counters: Counters,
    /// Its compute.
    pub compute: Compute,
    files: UnsafeCell<[OpenFile; FILES]>,
    flights: UnsafeCell<[Flight; FLIGHTS]>,
    accounting: UnsafeCell<Accounting>,
}

// SAFETY: Fields that are not atomic are written under `lock`, or before `magic` is.
unsafe impl Sync for State {}

impl State {
    /// Makes an instance in `path`, which must not exist.
    ///
    /// # Errors
    ///
    /// The file cannot be made or mapped, or the accounting has no room.
    pub fn create(path: &Path, branch: Branch, gpus: &[Gpu]) -> io::Result<&'static Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        file.set_len(arena::SIZE)?;
        let at = map(&file, Some(arena::BASE))?;
        // SAFETY: The memory is mapped for good, zeroed, and nobody else works on it before `magic`
        // is set. All fields but the accounting may be zero, and those are written here.
        let state = unsafe {
            (&raw mut (*at).accounting).write(UnsafeCell::new(Accounting::new(u64::from(
                std::process::id(),
            ))));
            (&raw mut (*at).branch).write(branch.major());
            &*at
        };
        // CAST: sizes are 64 bits wide.
        state.arena.begin(size_of::<Self>() as u64);
        for (place, gpu) in gpus.iter().take(GPUS).enumerate() {
            // SAFETY: Nobody else works on it before `magic` is set.
            unsafe { (*state.gpus.get())[place] = *gpu };
            state.gpu_count.fetch_add(1, Ordering::Relaxed);
            let id = GpuId(gpu.facts.device_instance);
            let cost = ContextCost::of(gpu.facts.architecture);
            let is_added = state.with_accounting(|accounting| {
                accounting.add_share(id, gpu.limit_bytes).is_ok()
                    && accounting.set_context_cost(id, cost).is_ok()
                    && accounting.set_engines(id, gpu.facts.engines).is_ok()
            });
            if !is_added {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
        }
        state.magic.store(MAGIC, Ordering::Release);
        Ok(state)
    }

    /// Makes an instance of which this process keeps the compute part alone. A process has one
    /// arena, so one that looks after several instances works on the accounting of none.
    ///
    /// # Errors
    ///
    /// As [`State::create`].
    pub fn create_outside(
        path: &Path,
        branch: Branch,
        gpus: &[Gpu],
    ) -> io::Result<&'static Compute> {
        Self::create(path, branch, gpus)?;
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let at = map(&file, None)?;
        // SAFETY: `create` made the mapping, nobody uses it, and nothing else is there.
        unsafe { sys::call(libc::SYS_munmap, [arena::BASE, arena::SIZE, 0, 0, 0, 0]) };
        // SAFETY: Mapped for good, and made; the compute part has no pointers.
        Ok(unsafe { &(*at).compute })
    }

    /// Comes to the instance that the environment names; `None` where it names none.
    ///
    /// # Errors
    ///
    /// The file that it names is no instance.
    pub fn join() -> io::Result<Option<&'static Self>> {
        let Some(path) = std::env::var_os(VARIABLE) else {
            return Ok(None);
        };
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let at = map(&file, Some(arena::BASE))?;
        // SAFETY: The file is as long as the arena, mapped for good, and was zeroed before it was
        // made: all fields that are read before `magic` was seen are atomic.
        let state = unsafe { &*at };
        if state.magic.load(Ordering::Acquire) == MAGIC {
            Ok(Some(state))
        } else {
            Err(io::Error::from(io::ErrorKind::InvalidData))
        }
    }

    /// Works on the accounting, alone among all processes.
    pub fn with_accounting<R>(&self, work: impl FnOnce(&mut Accounting) -> R) -> R {
        self.lock.take();
        // SAFETY: The lock is ours.
        let accounting = unsafe { &mut *self.accounting.get() };
        let boosts = accounting.boost_changes();
        let result = arena::shared(|| work(accounting));
        if accounting.boost_changes() != boosts {
            for (gpu, boost) in self.gpus().iter().zip(&self.compute.boosts) {
                let wanted = accounting.boost(GpuId(gpu.facts.device_instance));
                boost.store(wanted.number(), Ordering::Release);
            }
        }
        self.lock.give_back();
        result
    }

    /// The tables of the running driver.
    ///
    /// # Panics
    ///
    /// The instance was made for a branch that has none, which [`State::create`]'s type prevents.
    pub fn tables(&self) -> &'static Tables {
        Branch::ALL
            .into_iter()
            .find(|branch| branch.major() == self.branch)
            .and_then(Tables::of)
            .expect("an instance is made for a known branch")
    }

    /// The GPUs of the instance.
    pub fn gpus(&self) -> &[Gpu] {
        // CAST: at most 16.
        let count = self.gpu_count.load(Ordering::Relaxed) as usize;
        // SAFETY: They are written before anybody else sees the instance.
        unsafe { &(&*self.gpus.get())[..count.min(GPUS)] }
    }

    /// Bytes of shared memory that were ever used.
    pub fn arena_bytes(&self) -> u64 {
        self.arena.used()
    }

    fn with_files<R>(&self, work: impl FnOnce(&mut [OpenFile; FILES]) -> R) -> R {
        self.lock.take();
        // SAFETY: The lock is ours.
        let result = work(unsafe { &mut *self.files.get() });
        self.lock.give_back();
        result
    }

    /// This process has opened a file; `None` where too many are open.
    pub fn open(&self, role: Role) -> Option<Place> {
        let id = self.next_file.fetch_add(1, Ordering::Relaxed) + 1;
        self.with_files(|files| {
            let place = files.iter().position(|file| file.id == 0)?;
            let file = &mut files[place];
            file.id = id;
            file.role = role_number(role);
            file.holders = [0; HOLDERS];
            file.holders[0] = sys::process();
            Some(Place(place))
        })
    }

    /// The accounting's number of an open file, and its role.
    pub fn file(&self, place: Place) -> Option<(FileId, Role)> {
        self.with_files(|files| {
            let file = files.get(place.0).filter(|file| file.id != 0)?;
            let role = match file.role {
                0 => Role::Control,
                1 => Role::Uvm,
                gpu => Role::Gpu(GpuId(gpu - 2)),
            };
            Some((FileId(file.id - 1), role))
        })
    }

    /// This process has an open file of another one, too: it was forked.
    pub fn hold(&self, place: Place) {
        let me = sys::process();
        self.with_files(|files| {
            if let Some(file) = files.get_mut(place.0).filter(|file| file.id != 0) {
                file.hold(me);
            }
        });
    }

    fn with_flights<R>(
        &self,
        work: impl FnOnce(&mut [OpenFile; FILES], &mut [Flight; FLIGHTS]) -> R,
    ) -> R {
        self.lock.take();
        // SAFETY: The lock is ours.
        let result = unsafe { work(&mut *self.files.get(), &mut *self.flights.get()) };
        self.lock.give_back();
        result
    }

    /// This process puts a descriptor of a file into a socket: the file stays open until it has
    /// come out.
    pub fn send(&self, place: Place, fd: i32) {
        self.with_flights(|files, flights| {
            let order = flights.iter().map(|flight| flight.order).max().unwrap_or(0) + 1;
            let file = files.get(place.0).filter(|file| file.id != 0);
            let free = flights.iter_mut().find(|flight| flight.id == 0);
            // If too many are on their way, this one is not followed, and its receiver says so.
            if let (Some(file), Some(free)) = (file, free) {
                *free = Flight {
                    id: file.id,
                    process: sys::process(),
                    fd,
                    order,
                };
            }
        });
    }

    /// The socket did not take it.
    pub fn not_sent(&self, place: Place, fd: i32) {
        let me = sys::process();
        self.with_flights(|files, flights| {
            let id = files.get(place.0).map_or(0, |file| file.id);
            let mut mine = flights.iter_mut();
            if let Some(flight) = mine.find(|f| (f.id, f.process, f.fd) == (id, me, fd)) {
                flight.id = 0;
            }
        });
    }

    /// A descriptor came out of a socket, and is held by this process from now on. `same` says
    /// whether a descriptor of another process is the same open file; where its sender has closed
    /// it since, none is.
    pub fn receive(&self, role: Role, same: impl Fn(i32, i32) -> bool) -> Option<Place> {
        let me = sys::process();
        self.with_flights(|files, flights| {
            let of = |flight: &Flight| files.iter().position(|file| file.id == flight.id);
            let mut fitting: Vec<_> = flights
                .iter_mut()
                .filter(|flight| flight.id != 0)
                .filter_map(|flight| Some((of(flight)?, flight)))
                .filter(|(at, _)| files[*at].role == role_number(role))
                .map(|(at, flight)| (same(flight.process, flight.fd), at, flight))
                .collect();
            // First the one known to be it, then those of other processes, then the oldest.
            fitting.sort_by_key(|(same, _, flight)| (!same, flight.process == me, flight.order));
            let (_, at, flight) = fitting.into_iter().next()?;
            flight.id = 0;
            // At once: its sender may be closing its own one.
            files[at].hold(me);
            Some(Place(at))
        })
    }

    /// A process has closed a file. With the last one the driver has released it, and the
    /// accounting credit what was on it.
    pub fn close(&self, place: Place) {
        let me = sys::process();
        self.leave(place, |holder| holder == me);
    }

    /// Closes the files of processes that are no more.
    pub fn reap(&self) {
        // Nobody receives any more what a process has sent that is gone: so far as this follows it.
        self.with_flights(|_, flights| {
            for flight in flights {
                if flight.id != 0 && sys::has_ended(flight.process) {
                    flight.id = 0;
                }
            }
        });
        for place in 0..FILES {
            self.leave(Place(place), sys::has_ended);
        }
    }

    /// Closes the files that a process has: it is about to run another program, and the driver's
    /// files are closed on that.
    pub fn leave_all(&self) {
        for place in 0..FILES {
            self.close(Place(place));
        }
    }

    fn leave(&self, place: Place, gone: impl Fn(i32) -> bool) {
        let closed = self.with_flights(|files, flights| {
            let file = files.get_mut(place.0).filter(|file| file.id != 0)?;
            for holder in &mut file.holders {
                if *holder != 0 && gone(*holder) {
                    *holder = 0;
                }
            }
            let on_its_way = flights.iter().any(|flight| flight.id == file.id);
            if on_its_way || file.holders.iter().any(|holder| *holder != 0) {
                return None;
            }
            let id = file.id;
            file.id = 0;
            Some(FileId(id - 1))
        });
        if let Some(id) = closed {
            self.with_accounting(|accounting| accounting.close_file(id));
        }
    }
}

fn role_number(role: Role) -> u32 {
    match role {
        Role::Control => 0,
        Role::Uvm => 1,
        Role::Gpu(GpuId(instance)) => 2 + instance,
    }
}

/// Maps an instance, at the address where its pointers hold or anywhere.
fn map(file: &File, at: Option<u64>) -> io::Result<*mut State> {
    let fixed = at.map_or(0, |_| libc::MAP_FIXED_NOREPLACE);
    // CAST: pointers and descriptors as the system call takes them.
    let arguments = [
        at.unwrap_or(0),
        arena::SIZE,
        (libc::PROT_READ | libc::PROT_WRITE) as u64,
        (libc::MAP_SHARED | fixed | libc::MAP_NORESERVE) as u64,
        file.as_raw_fd() as u64,
        0,
    ];
    // SAFETY: Nothing is replaced, and the mapping stays for as long as it is used.
    let mapped = unsafe { sys::call(libc::SYS_mmap, arguments) };
    match u64::try_from(mapped) {
        Ok(mapped) if at.is_none_or(|at| at == mapped) => Ok(mapped as *mut State),
        _ => {
            let errno = i32::try_from(-mapped).unwrap_or(libc::EINVAL);
            Err(io::Error::from_raw_os_error(errno))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgpu_km::{
        nvidia::{
            class::Kind,
            handle::{ClassId, ClientHandle, ObjectHandle},
        },
        policy::{Alloc, ProcessId},
    };

    #[global_allocator]
    static ALLOCATOR: crate::arena::Allocator = crate::arena::Allocator;

    /// All zeroes, as an information about signals begins.
    fn nothing() -> libc::siginfo_t {
        // SAFETY: Numbers and pointers, for all of which zero is valid.
        unsafe { core::mem::zeroed() }
    }

    /// A client of this process, made as the driver would make it.
    fn client(state: &State, file: FileId, handle: u32) {
        let request = Alloc::of(
            file,
            ProcessId(sys::process()),
            (ClientHandle(0), ObjectHandle(0)),
            ObjectHandle(handle),
            (ClassId(0), Kind::Root),
        );
        let done = cgpu_km::policy::AllocDone {
            object: ObjectHandle(handle),
            bytes: 0,
        };
        state.with_accounting(|accounting| {
            let ticket = accounting
                .begin_alloc(&request)
                .expect("the accounting has room");
            accounting.end_alloc(ticket, Some(done));
        });
    }

    /// One test, since there is one arena in a process: what a child writes the parent reads, and
    /// what it had open is closed when it has ended.
    #[test]
    fn processes_share_the_accounting() {
        let path = std::env::temp_dir().join(format!("cgpu-gpu-test.{}", std::process::id()));
        let gpu = Gpu::unasked(1 << 30);
        let state = State::create(&path, Branch::R580, &[gpu]).expect("an instance");
        std::fs::remove_file(&path).expect("it was just made");
        let own = state.open(Role::Control).expect("a place");
        let (file, role) = state.file(own).expect("it is open");
        assert_eq!(role, Role::Control);
        client(state, file, 0xc1d0_0001);

        // SAFETY: The child uses no lock that another thread may hold: the test's own only.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let place = state.open(Role::Control).expect("a place");
            let (file, _) = state.file(place).expect("it is open");
            for handle in 2..1000 {
                client(state, file, 0xc1d0_0000 + handle);
            }
            // SAFETY: Ends the child without what the parent has to do at its end.
            unsafe { libc::_exit(0) };
        }
        let mut info: libc::siginfo_t = nothing();
        // SAFETY: Waits for the child's end and leaves it a zombie; the pointer is to a local.
        unsafe {
            libc::waitid(
                libc::P_PID,
                child as libc::id_t,
                &raw mut info,
                libc::WEXITED | libc::WNOWAIT,
            )
        };
        let knows = |handle| {
            state.with_accounting(|accounting| accounting.owns_client(ClientHandle(handle)))
        };
        assert!(knows(0xc1d0_0001) && knows(0xc1d0_0002) && knows(0xc1d0_03e7));
        state.reap();
        let mut status = 0;
        // SAFETY: Waits for the child; the pointer is to a local.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0);
        assert!(knows(0xc1d0_0001) && !knows(0xc1d0_0002) && !knows(0xc1d0_03e7));

        let used = state.arena_bytes();
        state.close(own);
        assert!(!knows(0xc1d0_0001));
        assert!(state.file(own).is_none());
        let again = state.open(Role::Uvm).expect("a place");
        assert_eq!(again, own, "the place is free again");
        assert_eq!(state.arena_bytes(), used, "closing takes no memory");
        state.close(again);
    }

    #[test]
    fn a_dead_owner_loses_the_lock() {
        let lock = Lock::default();
        // SAFETY: The child ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: The child has made nothing that would have to be ended.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: Waits for the child; no status is asked for.
        unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
        lock.seize(child);
        lock.take();
        lock.give_back();
    }
}
