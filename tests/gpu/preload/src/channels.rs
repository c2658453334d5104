// SPDX-License-Identifier: GPL-2.0
//! The process's part in scheduling: it learns of its channels and doorbells from the calls that
//! pass, and does to them what the scheduler asks for.
//!
//! A doorbell is gated by taking the rights to its page away. The touch is a `SIGSEGV`, whose
//! handler waits for as long as the gate is shut: what the fault handler of the module does in the
//! kernel.

use std::sync::{
    atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering},
    Mutex, OnceLock,
};

use cgpu_gpu::{
    compute::{Duty, Name, News, Request, Seen, OPEN},
    state::State,
    sys,
};
use cgpu_km::nvidia::{
    class::Kind,
    escape::Escape,
    handle::{ClassId, ControlCmd},
    nvos::{self, nvos00, nvos21, nvos33, nvos54, nvos64},
    params,
    rmapi::{disable_channels, DISABLE_CHANNELS, GPUMON_SAMPLES, PREEMPT, SET_TIMESLICE},
    tables::Tables,
};

use crate::setting::setting;

/// Most doorbell pages of a process.
const DOORBELLS: usize = 64;

/// The driver's objects of the process.
#[derive(Default)]
struct Known {
    /// Subdevices and the descriptors through which their clients are used.
    subdevices: Vec<(Name, i32)>,
    /// Channel groups; whether they are for compute.
    groups: Vec<(Name, bool)>,
    /// Objects of the usermode region.
    usermodes: Vec<Name>,
}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
/// The descriptor whose next mapping is a doorbell; -1: none.
static DOORBELL_FILE: AtomicI32 = AtomicI32::new(-1);
/// Address and length of each doorbell page; read by the signal handler.
static PAGES: [(AtomicU64, AtomicU64); DOORBELLS] =
    [const { (AtomicU64::new(0), AtomicU64::new(0)) }; DOORBELLS];
static PAGE_COUNT: AtomicUsize = AtomicUsize::new(0);
/// The agent of this process.
static AGENT: OnceLock<Option<usize>> = OnceLock::new();

fn is_scheduled(state: &State) -> bool {
    state.compute.scheduled.load(Ordering::Relaxed) != 0
}

/// A call has returned: learns what it made or freed.
pub(crate) fn learn(state: &'static State, fd: i32, request: u64, argument: u64) {
    if !is_scheduled(state) {
        return;
    }
    // CAST: the kernel takes the low 32 bits of a request.
    let (nr, size) = nvos::request_parts(request as u32);
    let known = Escape::from_nr(nr).filter(|escape| {
        matches!(
            escape,
            Escape::RmFree | Escape::RmAlloc | Escape::RmMapMemory
        )
    });
    let Some(escape) = known.filter(|_| size <= 64) else {
        return;
    };
    let mut outer = [0; 64];
    if sys::peek(argument, &mut outer[..size]).is_err() {
        return;
    }
    let outer = &outer[..size];
    match escape {
        Escape::RmAlloc => allocated(state, fd, outer),
        Escape::RmFree => freed(state, outer),
        _ => mapped(outer),
    }
}

fn with_known<R>(work: impl FnOnce(&mut Known) -> R) -> Option<R> {
    let mut known = KNOWN.lock().ok()?;
    Some(work(known.get_or_insert_with(Known::default)))
}

fn allocated(state: &'static State, fd: i32, outer: &[u8]) {
    let status = match outer.len() {
        nvos64::SIZE => nvos64::STATUS.get(outer),
        _ => nvos21::STATUS.get(outer),
    };
    if status != Some(0) {
        return;
    }
    let number = |field: cgpu_km::nvidia::wire::Field<u32>| field.get(outer).unwrap_or_default();
    let client = number(nvos64::H_ROOT);
    let name = [client, number(nvos64::H_OBJECT_NEW)];
    let parent = [client, number(nvos64::H_OBJECT_PARENT)];
    let tables: &Tables = state.tables();
    let kind = tables
        .class(ClassId(number(nvos64::H_CLASS)))
        .map(|entry| entry.kind);
    match kind {
        Some(Kind::Subdevice) => {
            with_known(|known| known.subdevices.push((name, fd)));
        }
        Some(Kind::UserMode) => {
            with_known(|known| known.usermodes.push(name));
        }
        Some(Kind::ChannelGroup) => {
            let mut params = [0; params::nva06c::SIZE];
            let at = nvos64::P_ALLOC_PARMS.get(outer).unwrap_or_default();
            let compute = sys::peek(at, &mut params).is_ok()
                && params::engine(Kind::ChannelGroup, &params)
                    .is_some_and(params::is_compute_engine);
            with_known(|known| known.groups.push((name, compute)));
        }
        Some(Kind::Channel) => {
            let group = with_known(|known| {
                let mut groups = known.groups.iter();
                groups.find(|(group, _)| *group == parent).copied()
            });
            let (group, compute) = group.flatten().unwrap_or((name, true));
            if let Some(agent) = *AGENT.get_or_init(|| attend(state)) {
                state.compute.tell(News::Channel {
                    group,
                    channel: name,
                    compute,
                    // CAST: at most 64.
                    agent: agent as u32,
                });
            }
        }
        _ => {}
    }
}

fn freed(state: &State, outer: &[u8]) {
    if nvos00::STATUS.get(outer) != Some(0) {
        return;
    }
    let client = nvos00::H_ROOT.get(outer).unwrap_or_default();
    let object = nvos00::H_OBJECT_OLD.get(outer).unwrap_or_default();
    state.compute.tell(if client == object {
        News::ClientFreed(client)
    } else {
        News::Freed([client, object])
    });
}

fn mapped(outer: &[u8]) {
    let number = |field: cgpu_km::nvidia::wire::Field<u32>| field.get(outer).unwrap_or_default();
    let name = [number(nvos33::H_CLIENT), number(nvos33::H_MEMORY)];
    if with_known(|known| known.usermodes.contains(&name)) == Some(true) {
        let fd = nvos33::FD.get(outer).unwrap_or(-1);
        DOORBELL_FILE.store(fd, Ordering::Relaxed);
    }
}

/// A file of the driver was mapped.
pub(crate) fn map(state: &'static State, fd: i32, at: u64, len: u64) {
    if !is_scheduled(state) || fd < 0 {
        return;
    }
    let expected = DOORBELL_FILE.compare_exchange(fd, -1, Ordering::Relaxed, Ordering::Relaxed);
    if expected.is_err() {
        return;
    }
    let index = PAGE_COUNT.fetch_add(1, Ordering::Relaxed);
    if let Some((start, length)) = PAGES.get(index) {
        length.store(len, Ordering::Relaxed);
        start.store(at, Ordering::Release);
        catch_faults();
        protect(state);
    }
}

/// Gives or takes the rights to the doorbells, as the gate says.
fn protect(state: &State) {
    loop {
        let gate = state.compute.gate.load(Ordering::Acquire);
        let rights = if gate == OPEN {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_NONE
        };
        for (start, length) in &PAGES {
            let at = start.load(Ordering::Acquire);
            if at != 0 {
                let len = length.load(Ordering::Relaxed);
                // SAFETY: The mapping is one of the driver's registers, in which nothing of ours
                // is. CAST: rights are small.
                unsafe { sys::call(libc::SYS_mprotect, [at, len, rights as u64, 0, 0, 0]) };
            }
        }
        // Another one may have changed the gate meanwhile: what was done last must fit it.
        if state.compute.gate.load(Ordering::Acquire) == gate {
            return;
        }
    }
}

fn catch_faults() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        // SAFETY: All zeroes are a valid action; the handler is one for three arguments, as
        // SA_SIGINFO says.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGSEGV, &raw const action, core::ptr::null_mut());
        }
    });
}

extern "C" fn fault(_signal: i32, info: *const libc::siginfo_t, _context: *const libc::c_void) {
    // SAFETY: The kernel hands a valid one to a handler with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as u64;
    let is_doorbell = PAGES.iter().any(|(start, length)| {
        let at = start.load(Ordering::Acquire);
        at != 0 && (at..at + length.load(Ordering::Relaxed)).contains(&address)
    });
    match setting().state {
        Some(state) if is_doorbell => {
            state.compute.ring();
            protect(state);
        }
        // Not ours: the fault comes again, and ends the process as it would have.
        // SAFETY: The default action may always be set.
        _ => unsafe {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        },
    }
}

/// Starts the agents of this process; the index of the one for calls.
fn attend(state: &'static State) -> Option<usize> {
    let start = |duty| {
        let index = state.compute.attend(duty)?;
        std::thread::spawn(move || {
            state
                .compute
                .serve(index, |request, names| perform(state, request, names))
        });
        Some(index)
    };
    start(Duty::Gates)?;
    start(Duty::Calls)
}

/// Does what the scheduler asks for; a status of RM, or a negative errno.
fn perform(state: &State, request: &Request, names: &[Name]) -> i32 {
    match *request {
        Request::Gate => {
            protect(state);
            0
        }
        Request::Switch { disable, count } => {
            // CAST: at most 64.
            let names = &names[..count as usize];
            let client = names.first().map_or(0, |name| name[0]);
            let Some((subdevice, fd)) = subdevice_of(client) else {
                return -libc::ENODEV;
            };
            let mut params = [0u8; disable_channels::SIZE];
            disable_channels::B_DISABLE.set(&mut params, u8::from(disable));
            disable_channels::NUM_CHANNELS.set(&mut params, count);
            for (i, &[client, channel]) in names.iter().enumerate() {
                let lists = (
                    disable_channels::H_CLIENT_LIST.item(i),
                    disable_channels::H_CHANNEL_LIST.item(i),
                );
                let (Some(clients), Some(channels)) = lists else {
                    return -libc::EINVAL;
                };
                clients.set(&mut params, client);
                channels.set(&mut params, channel);
            }
            control(fd, subdevice, DISABLE_CHANNELS, &mut params)
        }
        Request::Timeslice { microseconds } => {
            let mut params = u64::from(microseconds).to_le_bytes();
            group_control(names, SET_TIMESLICE, &mut params)
        }
        Request::Samples => samples(state),
        Request::Preempt => {
            // bWait, bManualTimeout, timeoutUs.
            let mut params = [1, 0, 0, 0, 0, 0, 0, 0];
            group_control(names, PREEMPT, &mut params)
        }
    }
}

/// Tells the driver's samples, one each 139 ms of the last ten seconds; a status, or a negative
/// errno.
fn samples(state: &State) -> i32 {
    let any = with_known(|known| known.subdevices.first().copied());
    let Some((subdevice, fd)) = any.flatten() else {
        return -libc::ENODEV;
    };
    let layout = state.tables().samples;
    let mut params = vec![0u8; layout.ring];
    layout.ask(&mut params);
    let status = control(fd, subdevice, GPUMON_SAMPLES, &mut params);
    if status == 0 {
        let seen = layout.samples(&params).map(|sample| Seen {
            stamp: sample.stamp,
            process: sample
                .process
                .map_or(0, |process| i32::try_from(process).unwrap_or(0)),
        });
        state.compute.tell_samples(seen);
    }
    status
}

fn group_control(names: &[Name], command: ControlCmd, params: &mut [u8]) -> i32 {
    let Some(name) = names.first() else {
        return -libc::EINVAL;
    };
    match subdevice_of(name[0]) {
        Some((_, fd)) => control(fd, *name, command, params),
        None => -libc::ENODEV,
    }
}

fn subdevice_of(client: u32) -> Option<(Name, i32)> {
    let of = |known: &mut Known| {
        let mut all = known.subdevices.iter();
        all.find(|(name, _)| name[0] == client).copied()
    };
    with_known(of).flatten()
}

/// A control, straight to the driver: the scheduler's own calls pass no policy.
fn control(fd: i32, object: Name, command: ControlCmd, params: &mut [u8]) -> i32 {
    let mut outer = [0; nvos54::SIZE];
    nvos54::H_CLIENT.set(&mut outer, object[0]);
    nvos54::H_OBJECT.set(&mut outer, object[1]);
    nvos54::CMD.set(&mut outer, command.0);
    // CAST: at most 536; pointers are 64 bits wide.
    nvos54::PARAMS_SIZE.set(&mut outer, params.len() as u32);
    nvos54::PARAMS.set(&mut outer, params.as_mut_ptr() as u64);
    let Some(code) = nvos::request_code(Escape::RmControl.nr(), nvos54::SIZE) else {
        return -libc::EINVAL;
    };
    // SAFETY: The parameters are as large as the driver's headers say.
    let answer = unsafe { sys::ioctl(fd, u64::from(code), outer.as_mut_ptr() as u64) };
    match i32::try_from(answer) {
        Ok(0) => nvos54::STATUS
            .get(&outer)
            .and_then(|status| i32::try_from(status).ok())
            .unwrap_or(-libc::EIO),
        Ok(errno) => errno,
        Err(_) => -libc::EIO,
    }
}
