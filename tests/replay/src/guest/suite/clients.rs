// SPDX-License-Identifier: GPL-2.0
//! A new client's handle, which the driver writes where other threads of the program can write as
//! well.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::{
    bytes::put_u32,
    guest::{
        instance::Instance,
        process::{in_child, spawn},
        rm,
        tools::{at, holds, open_node, sys, tests, Verdict, GIB, MIB},
    },
    standin, sys as os,
};

tests! {
    "clients: a forged handle is not the new client's" => forged;
    "clients: in time beside threads that get no processor" => in_time;
    "clients: none is refused beside others that make clients" => beside_others;
    "clients: each is alone in the driver's list" => alone_in_list;
    "clients: the module's own are found first" => own_first;
}

const SHARED: u32 = 0x5C00_0300;
const STOLEN: u32 = 0x5C00_0301;
const CALLS: u32 = 6000;
/// Calls at most, until the other thread has written something.
const MOST_CALLS: u32 = 100 * CALLS;

/// The module's scratch of this process: first and last address.
pub(super) fn scratch() -> Result<(u64, u64), String> {
    let maps = at("maps", std::fs::read_to_string("/proc/self/maps"))?;
    let line = maps.lines().find(|line| line.contains("[cgpu-scratch]"));
    let range = line.and_then(|line| line.split(' ').next());
    let (start, end) = range
        .and_then(|range| range.split_once('-'))
        .ok_or("the process has no scratch")?;
    let number = |text| at("maps", u64::from_str_radix(text, 16));
    Ok((number(start)?, number(end)?))
}

/// The outcome of new clients beside threads that write a neighbour's handle.
#[derive(Debug)]
struct Seen {
    /// Writes that arrived in the scratch.
    written: u64,
    /// Clients that were said to be the neighbour's.
    forged: u32,
    /// Memory of the neighbour's was duplicated.
    stolen: bool,
}

fn attack() -> Result<Seen, String> {
    let (neighbour, own) = (
        Instance::new("neighbour", GIB)?,
        Instance::new("forger", GIB)?,
    );
    let victim = neighbour.client()?;
    at("memory", victim.memory(SHARED, 2 * MIB))?;
    // As CUDA does for IPC: with everybody.
    at("share", rm::share(victim.ctl, (victim.handle, SHARED), 1))?;
    let client = own.client()?;
    let steal = || {
        let source = (victim.handle, SHARED);
        let parent = rm::DEVICE_HANDLE;
        rm::dup(client.ctl, client.handle, parent, STOLEN, source).is_ok()
    };
    holds("the neighbour's memory is in reach before", !steal())?;

    let file = "/tmp/forged-handle";
    at(file, std::fs::write(file, victim.handle.to_le_bytes()))?;
    let file = sys(file, os::open(file, libc::O_RDONLY | libc::O_CLOEXEC))?;
    let (start, end) = scratch()?;
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut forged = 0;
    std::thread::scope(|scope| {
        let write = || {
            while !stop.load(Relaxed) {
                for page in (start..end).step_by(4096) {
                    // hObjectNew of NVOS21 and NVOS64.
                    let arrived = os::pread_into(file, page + 8, 4) == Ok(4);
                    written.fetch_add(u64::from(arrived), Relaxed);
                }
            }
        };
        scope.spawn(write);
        let mut calls = 0;
        while calls < CALLS || calls < MOST_CALLS && written.load(Relaxed) == 0 {
            match rm::alloc(client.ctl, 0, 0, 0, 0x41, &mut []) {
                Ok(handle) if handle == victim.handle => forged += 1,
                Ok(handle) => drop(rm::free(client.ctl, handle, handle)),
                // A handle that is none, or what else was written.
                Err(_) => {}
            }
            calls += 1;
        }
        stop.store(true, Relaxed);
    });
    let stolen = steal();
    sys("close", os::close(file))?;
    client.close();
    victim.close();
    Ok(Seen {
        written: written.into_inner(),
        forged,
        stolen,
    })
}

fn forged() -> Verdict {
    let seen = attack()?;
    println!("        {seen:?}");
    holds("nothing was written", seen.written > 0)?;
    holds(
        "a forged handle is believed",
        seen.forged == 0 && !seen.stolen,
    )
}

/// Threads of the attacker's that make clients, and that keep their processor busy.
const STARVED: u32 = 6;
const BUSY: u32 = 2;
/// Of the clients that it makes alone, a neighbour makes at least one in so many beside them. (The
/// longest is none to judge by: a thread without a processor can have a lock of the driver's.)
const PART: u32 = 10;

/// How often that is tried: a turn that starved threads keep is kept every time.
const TRIES: u32 = 3;

pub(super) fn stay_on(processor: usize) {
    // SAFETY: the set lives over the call; a failure leaves the thread as it was.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Makes clients for ever on processor 1, in threads of idle priority beside busy ones, so that
/// each is soon without a processor, and has the turn then.
fn starve(folder: &str) -> i32 {
    std::thread::scope(|scope| {
        for _ in 0..STARVED {
            scope.spawn(|| -> Result<(), String> {
                stay_on(1);
                os::be_idle();
                rm::client_after_client(open_node(folder, "nvidiactl")?)
            });
        }
        for _ in 0..BUSY {
            scope.spawn(|| {
                stay_on(1);
                loop {
                    std::hint::spin_loop();
                }
            });
        }
    });
    0
}

/// New clients of a neighbour in three seconds: how many, and the longest.
fn made(ctl: i32) -> Result<(u32, Duration), String> {
    let (mut count, mut longest) = (0, Duration::ZERO);
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        let began = Instant::now();
        let handle = at("client", rm::alloc(ctl, 0, 0, 0, 0x41, &mut []))?;
        longest = longest.max(began.elapsed());
        at("free", rm::free(ctl, handle, handle))?;
        count += 1;
    }
    Ok((count, longest))
}

/// New clients by the nodes of a folder: alone, and beside starved threads with those of another.
fn figures(own: &str, other: &str) -> Result<[(u32, Duration); 2], String> {
    let ctl = open_node(own, "nvidiactl")?;
    let alone = made(ctl)?;
    let child = sys("fork", spawn(|| starve(other)))?;
    os::sleep_ms(500);
    let beside = made(ctl);
    sys("kill", os::kill(child, libc::SIGKILL))?;
    sys("wait", os::wait(child))?;
    sys("close", os::close(ctl))?;
    Ok([alone, beside?])
}

fn in_time() -> Verdict {
    let (own, other) = (
        Instance::new("intime", GIB)?,
        Instance::new("starved", GIB)?,
    );
    in_child(|| {
        stay_on(0);
        let enough = |[alone, beside]: [(u32, Duration); 2]| beside.0 >= alone.0 / PART;
        let mut seen = Vec::new();
        // By chance a starved thread has a lock of the driver's for most of the time.
        for _ in 0..TRIES {
            let tried = figures(&own.folder(), &other.folder())?;
            if enough(tried) {
                return Ok(());
            }
            seen.push(tried);
        }
        // If that is no chance, the driver does the same without us: it is not to be worse.
        let direct = figures("/dev", "/dev")?;
        println!("        alone and beside starved threads {seen:?}, directly {direct:?}");
        holds("starved threads keep others waiting", !enough(direct))?;
        let best = seen.iter().map(|[_, (beside, _)]| *beside).max();
        let (best, driver) = (best.unwrap_or(0), direct[1].0);
        holds("more than in the driver itself", 2 * best >= driver)
    })
}

/// Opens and closes debugger sessions for ever. For each the driver makes a client of its own, by a
/// number of the same row. An error says that there is no session.
fn session_after_session(instance: &Instance) -> Verdict {
    const GROUP: u32 = 0x5C00_0310;
    const CHANNEL: u32 = 0x5C00_0311;
    const OBJECT: u32 = 0x5C00_0312;
    const SESSION: u32 = 0x5C00_0313;
    let client = instance.client()?;
    at("group", client.channel_group(GROUP, rm::COMPUTE))?;
    at("channel", client.channel(GROUP, CHANNEL))?;
    let object = client.alloc(CHANNEL, OBJECT, 0xcbc0, &mut [0; 16]);
    at("compute object", object)?;
    loop {
        let mut params = [0; 12];
        put_u32(&mut params, 4, client.handle);
        put_u32(&mut params, 8, OBJECT);
        let made = client.alloc(rm::DEVICE_HANDLE, SESSION, 0x83de, &mut params);
        at("session", made)?;
        at("free", client.free(SESSION))?;
    }
}

/// Beside a program that makes clients all the time: on the driver's own nodes, and of another
/// instance; and beside one of that instance with debugger sessions.
fn beside_others() -> Verdict {
    let (own, other) = (Instance::new("calm", GIB)?, Instance::new("eager", GIB)?);
    let ctl = open_node(&own.folder(), "nvidiactl")?;
    let clients = |folder: &str| match open_node(folder, "nvidiactl") {
        Ok(ctl) => rm::client_after_client(ctl),
        Err(_) => 1,
    };
    let sessions = || {
        let ended = session_after_session(&other);
        println!("        no sessions: {ended:?}");
        1
    };
    let loads: [(&str, &dyn Fn() -> i32); 3] = [
        ("the host's clients", &|| clients("/dev")),
        ("another instance's clients", &|| clients(&other.folder())),
        ("debugger sessions", &sessions),
    ];
    for (load, run) in loads {
        let child = sys("fork", spawn(run))?;
        let made = made(ctl);
        sys("kill", os::kill(child, libc::SIGKILL))?;
        let status = sys("wait", os::wait(child))?;
        holds(&format!("{load}: none"), status == libc::SIGKILL)?;
        let (count, _) = made.map_err(|why| format!("{load}: {why}"))?;
        holds(&format!("{load}: no client was made"), count > 0)?;
    }
    sys("close", os::close(ctl))
}

/// The driver's list in which a client is (`RS_CLIENT_HANDLE_BUCKET_MASK`, resserv.h).
const LIST: u32 = 0x3ff;
/// More clients than the driver has lists: whoever counts handles up comes to each of them.
const ROUNDS: u32 = LIST + 100;
/// Clients that two tenants have at the same time, each.
const AT_ONCE: usize = 40;

/// One client of a tenant that stays, and many of another one that come and go; then many of both.
fn alone_in_list() -> Verdict {
    let (own, other) = (Instance::new("stays", GIB)?, Instance::new("passes", GIB)?);
    let make = |ctl| at("client", rm::alloc(ctl, 0, 0, 0, 0x41, &mut []));
    let (mine, passing) = (
        open_node(&own.folder(), "nvidiactl")?,
        open_node(&other.folder(), "nvidiactl")?,
    );
    let stays = make(mine)?;
    let mut beside = 0;
    for _ in 0..ROUNDS {
        let client = make(passing)?;
        beside += u32::from(client & LIST == stays & LIST);
        at("free", rm::free(passing, client, client))?;
    }
    holds(&format!("{beside} clients in another's list"), beside == 0)?;
    let mut lists = BTreeSet::from([stays & LIST]);
    for _ in 0..AT_ONCE {
        lists.insert(make(mine)? & LIST);
        lists.insert(make(passing)? & LIST);
    }
    // With a file its clients are gone.
    sys("close", os::close(passing))?;
    sys("close", os::close(mine))?;
    let all = 2 * AT_ONCE + 1;
    holds(&format!("{} lists", lists.len()), lists.len() == all)
}

/// The driver's lists are in the order of the handles.
fn own_first() -> Verdict {
    let tenant = Instance::new("behind", GIB)?;
    let client = tenant.client()?;
    let clients = at("clients", standin::read("clients"))?;
    client.close();
    let mut others = clients.keys().filter(|handle| handle.as_str() != "total");
    let handles = others.try_fold(Vec::new(), |mut all, text| {
        let hex = text.strip_prefix("0x").unwrap_or(text);
        all.push(at(text, u32::from_str_radix(hex, 16))?);
        Ok::<_, String>(all)
    })?;
    let is_container = |handle: &&u32| (0xc1c0_0000..0xc1d0_0000).contains(*handle);
    let containers = handles.iter().filter(is_container).count();
    holds(
        &format!("{containers} clients of containers"),
        containers == 1,
    )?;
    // Nobody else has one here.
    let behind = handles.iter().find(|handle| **handle >= 0xc1d0_0000);
    holds(&format!("an own client is {behind:x?}"), behind.is_none())
}
