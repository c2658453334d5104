// SPDX-License-Identifier: GPL-2.0
//! The doorbell of a program whose launches are counted one by one: stores that the module carries out.
//!
//! That is where doorbells are all there is to share a GPU by, and the instance is under a cap. It may stop there at any
//! moment, of course: what must hold is that each store arrives, once, in its order, whatever the gate does meanwhile.

use core::arch::asm;
use std::time::{Duration, Instant};

use super::doorbell::{faults, put, status, wait_for, wait_parked, Bell};
use super::mappings::{read, write, DOORBELL};
use super::turns::{DoorbellsAlone, Policy};
use super::{at, equal, holds, sys, Outcome, Test};
use crate::guest::process::{in_child, spawn};
use crate::guest::work::Work;
use crate::sys as os;

pub(super) const TESTS: &[Test] = &[
    ("metered: plain stores of every form", plain),
    ("metered: other instructions work as well", others),
    ("metered: a store at the end of a page of code", at_the_end),
    ("metered: code that is changed meanwhile", changed),
    (
        "metered: a program that is gone through step by step",
        stepped,
    ),
    ("metered: each store comes once, in its order", in_order),
    (
        "metered: launches of several threads and channels",
        launches,
    ),
    ("metered: reading gives nobody the page", reads),
    (
        "metered: protection that is changed gives nobody the page",
        protected,
    ),
    (
        "metered: children are metered, and killed while they wait",
        killed,
    ),
    ("metered: the driver takes the page away", revoked),
];

/// `NV_VIRTUAL_FUNCTION_DOORBELL` in the mapping.
const BELL: u64 = 0x90;

/// An instance under a cap, on a driver without its interface for the kernel.
struct Scene {
    bell: Bell,
    policy: Policy,
    alone: DoorbellsAlone,
}

impl Scene {
    fn new(name: &'static str) -> Result<Self, String> {
        let alone = DoorbellsAlone::set()?;
        let bell = Bell::new(name)?;
        put(&format!("{name}/weight"), "30")?;
        let policy = Policy::set("3")?;
        Ok(Self {
            bell,
            policy,
            alone,
        })
    }

    fn register(&self) -> u64 {
        self.bell.address() + BELL
    }

    /// Stores, and sees that it has arrived.
    fn store(&self, what: &str, token: u32, by: impl FnOnce(u64, u32)) -> Outcome {
        by(self.register(), token);
        equal(what, &self.bell.direct.rung(), &token)
    }

    fn end(self) -> Outcome {
        drop(self.policy);
        self.bell.end()?;
        drop(self.alone);
        Ok(())
    }
}

/// Page faults of this process that were served at once.
fn own_faults() -> u64 {
    // SAFETY: all zeroes are a valid record, and the kernel fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = core::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    u64::try_from(usage.ru_minflt).unwrap_or(0)
}

/// Has one instruction store a token; the template knows them as `{at}` and `{token}`, others by name.
macro_rules! by {
    ($template:literal $(, $name:ident = $value:expr)*) => {
        |at: u64, token: u32| {
            // SAFETY: `at` is a register of the test's, which nothing else of the program refers to.
            unsafe {
                asm!(
                    concat!("/* {at} {token:e} */\n", $template),
                    at = in(reg) at,
                    token = in(reg) token,
                    $($name = in(reg) $value,)*
                    options(nostack),
                )
            }
        }
    };
}

fn plain() -> Outcome {
    let scene = Scene::new("meterforms")?;
    // Each several times: the gate need not be metered from the first moment on.
    for round in 0..50_u32 {
        let token = |form: u32| round * 100 + form + 1;
        scene.store("89", token(0), by!("mov [{at}], {token:e}"))?;
        scene.store("disp8", token(1), |at, token| {
            by!("mov [{at} + 0x10], {token:e}")(at - 0x10, token);
        })?;
        scene.store("disp32", token(2), |at, token| {
            by!("mov [{at} - 0x1234], {token:e}")(at + 0x1234, token);
        })?;
        scene.store("sib", token(3), |at, token| {
            by!("mov [{at} + {index} * 8 + 8], {token:e}", index = 3_u64)(at - 32, token);
        })?;
        scene.store("index alone", token(4), |at, token| {
            let half = at / 2;
            by!("mov [{half} * 2], {token:e}", half = half)(at, token);
        })?;
        scene.store("movnti", token(5), by!("movnti [{at}], {token:e}"))?;
        scene.store("c7", 0x89ab_cdef, |at, token| {
            by!("mov dword ptr [{at}], 0x89abcdef")(at, token);
        })?;
        scene.store("c7, disp8", 0x7654_3210, |at, token| {
            by!("mov dword ptr [{at} - 4], 0x76543210")(at + 4, token);
        })?;
        scene.store("r8 to r15", token(8), |at, token| {
            // SAFETY: as in `by`.
            unsafe {
                asm!(
                    "mov [r13 + r12], r9d",
                    in("r13") at - 5,
                    in("r12") 5_u64,
                    in("r9") token,
                    options(nostack),
                )
            }
        })?;
        // What is stored is what the register has at that moment, and what follows is done once.
        let last = token(9) + 3;
        scene.store("one after the other", last, |at, last| {
            // SAFETY: as in `by`.
            unsafe {
                asm!(
                    "mov [{at}], {token:e}",
                    "add {token:e}, 1",
                    "mov [{at}], {token:e}",
                    "add {token:e}, 2",
                    "mov [{at}], {token:e}",
                    at = in(reg) at,
                    token = inout(reg) last - 3 => _,
                    options(nostack),
                )
            }
        })?;
    }
    scene.end()
}

fn others() -> Outcome {
    let scene = Scene::new("meterothers")?;
    let rung = || scene.bell.direct.rung();
    for round in 0..20_u32 {
        let token = round * 100 + 1;
        scene.store("xchg", token, |at, token| {
            // SAFETY: as in `by`.
            unsafe { asm!("xchg [{at}], {token:e}", at = in(reg) at, token = inout(reg) token => _, options(nostack)) }
        })?;
        scene.store("add", token + token, |at, _| {
            write(at, token);
            by!("add [{at}], {token:e}")(at, token);
        })?;
        scene.store("lock or", token | 0x100_0000, |at, _| {
            write(at, token);
            by!("lock or dword ptr [{at}], 0x1000000")(at, token);
        })?;
        scene.store("rep stosd", token + 1, |at, token| {
            // SAFETY: as in `by`; the direction is forward, by the ABI.
            unsafe {
                asm!("rep stosd", inout("rdi") at => _, inout("ecx") 1 => _, in("eax") token, options(nostack));
            }
        })?;
        scene.store("8 bytes", token + 2, |at, token| {
            by!("mov [{at}], {long}", long = u64::from(token))(at, token);
        })?;
        scene.store("movd", token + 3, |at, token| {
            // SAFETY: as in `by`.
            unsafe {
                asm!(
                    "movd xmm0, {token:e}", "movd [{at}], xmm0",
                    at = in(reg) at, token = in(reg) token, out("xmm0") _, options(nostack),
                );
            }
        })?;
        // Two bytes, and one.
        write(scene.register(), 0);
        by!("mov word ptr [{at}], 0x1234")(scene.register(), 0);
        equal("2 bytes", &rung(), &0x1234)?;
        by!("mov byte ptr [{at} + 1], 0x56")(scene.register(), 0);
        equal("1 byte", &rung(), &0x5634)?;
    }
    scene.end()
}

const PAGE: u64 = 4096;

/// Two pages for code.
fn code_pages() -> Result<u64, String> {
    let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    sys("mmap", os::mmap(0, 2 * PAGE, prot, flags, -1, 0))
}

fn unmap(address: u64, length: u64) -> Outcome {
    // SAFETY: the tests unmap what they have mapped, and use it no more.
    sys("munmap", unsafe { os::munmap(address, length) })
}

/// `mov [rdi], esi; ret`.
const CODE: [u8; 3] = [0x89, 0x37, 0xc3];

/// Puts code there, and gives it as a function.
fn put_code(at: u64, code: &[u8]) -> extern "C" fn(u64, u32) {
    // SAFETY: the page is mapped, and the code is a function's.
    unsafe {
        core::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len());
        core::mem::transmute::<u64, extern "C" fn(u64, u32)>(at)
    }
}

fn at_the_end() -> Outcome {
    let scene = Scene::new("meterend")?;
    let pages = code_pages()?;
    // Over two pages, of which the second may not be looked for beyond what is there.
    let over = put_code(pages + PAGE - 1, &CODE);
    for token in 1..50 {
        scene.store("over two pages", token, |at, token| over(at, token))?;
    }
    unmap(pages + PAGE, PAGE)?;
    let last = put_code(pages + PAGE - 3, &CODE);
    for token in 50..100 {
        scene.store("at the end", token, |at, token| last(at, token))?;
    }
    unmap(pages, PAGE)?;
    scene.end()
}

/// While one thread stores, another one changes which register is stored.
fn changed() -> Outcome {
    let scene = Scene::new("meterchange")?;
    let pages = code_pages()?;
    let store = put_code(pages, &CODE);
    let run = || -> Outcome {
        let end = Instant::now() + Duration::from_millis(1500);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while Instant::now() < end {
                    // mov [rdi], edi, and back; or a load, which is no store at all.
                    for code in [0x3f89_u16, 0x3789, 0x378b, 0x3789] {
                        // SAFETY: the page is mapped, and all are instructions of the same length.
                        unsafe { (pages as *mut u16).write_volatile(code) };
                    }
                }
            });
            let at = scene.register();
            // CAST: the lower half is what is stored.
            let other = at as u32;
            let mut token = 0;
            while Instant::now() < end {
                token += 1;
                store(at, token);
                let rung = scene.bell.direct.rung();
                // Where it was the load: what was there before.
                let known = rung == token || rung == other || rung < token;
                holds(&format!("{rung:#x} arrived, not {token:#x}"), known)?;
            }
            Ok(())
        })
    };
    in_child(run)?;
    unmap(pages, 2 * PAGE)?;
    scene.end()
}

/// A debugger goes through a child's code, which must see each instruction.
fn stepped() -> Outcome {
    let scene = Scene::new("meterstep")?;
    let child = spawn(|| {
        // SAFETY: takes no pointer; then the process stops itself until it is stepped on.
        unsafe {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            libc::raise(libc::SIGSTOP);
        }
        for token in 1..=20 {
            scene.bell.ring(token);
        }
        0
    });
    let child = sys("fork", child)?;
    let mut status = sys("wait", wait_stopped(child))?;
    let mut steps = 0;
    let mut rung = vec![];
    while libc::WIFSTOPPED(status) {
        // SAFETY: the child is stopped.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) };
        status = sys("wait", wait_stopped(child))?;
        steps += 1;
        let now = scene.bell.direct.rung();
        if rung.last() != Some(&now) {
            rung.push(now);
        }
    }
    equal("ended", &status, &0)?;
    holds(&format!("{steps} steps"), steps > 60)?;
    // None is passed over: one step stores one.
    equal("rung", &rung, &(0..=20).collect::<Vec<u32>>())?;
    scene.end()
}

/// Waits until a traced child stops or ends; its status.
fn wait_stopped(child: i32) -> Result<i32, os::Errno> {
    let mut status = 0;
    // SAFETY: the status lives over the call.
    match unsafe { libc::waitpid(child, &raw mut status, 0) } {
        -1 => Err(os::errno()),
        _ => Ok(status),
    }
}

fn in_order() -> Outcome {
    let scene = Scene::new("meterorder")?;
    let before = (own_faults(), faults()?);
    let since = || Ok::<_, String>((own_faults() - before.0, faults()? - before.1));
    for token in 1..=20_000 {
        let (mine, drivers) = since()?;
        if token > 3000 && mine > drivers + 20 {
            break;
        }
        scene.store("in its order", token, |_, token| scene.bell.ring(token))?;
    }
    let (mine, drivers) = since()?;
    // Or this has shown nothing: without a metered gate the driver has to put the page in each time.
    holds(
        &format!("{mine} faults, the driver's {drivers}"),
        mine > drivers + 20,
    )?;
    scene.end()
}

/// Each of several threads has a channel. A ring that comes twice would let the second launch through without one.
fn launches() -> Outcome {
    const EACH: u32 = 200;
    const THREADS: usize = 4;
    let scene = Scene::new("meterwork")?;
    let works: Result<Vec<_>, _> = (0..THREADS)
        .map(|_| Work::new(&scene.bell.instance))
        .collect();
    let works = works?;
    std::thread::scope(|scope| -> Outcome {
        let threads: Vec<_> = works
            .iter()
            .map(|work| scope.spawn(|| (0..EACH).try_for_each(|_| work.launch(20_000, 1, 2))))
            .collect();
        for thread in threads {
            let ended = thread.join().map_err(|_| "a thread ended")?;
            at("launch", ended)?;
        }
        Ok(())
    })?;
    for work in works {
        wait_for("all kernels", || {
            Ok(work.account()?.finished == u64::from(EACH))
        })?;
        equal("submitted", &work.account()?.submitted, &u64::from(EACH))?;
        work.close()?;
    }
    scene.end()
}

fn reads() -> Outcome {
    let scene = Scene::new("meterread")?;
    let mut faulted = 0;
    // How often it is metered is the scheduler's business: in short windows, now and then.
    for token in 1..=20_000 {
        if faulted > 20 && token > 700 {
            break;
        }
        let before = own_faults();
        scene.bell.ring(token);
        faulted += own_faults() - before;
        equal("read", &read(scene.register()), &token)?;
        // A page that nobody has stored to yet.
        read(scene.bell.address() + u64::from(token % 16) * PAGE);
    }
    // The scheduler meters at first; had a read given the page, no store would fault afterwards.
    holds(&format!("{faulted} rings faulted"), faulted > 20)?;
    scene.end()
}

fn protected() -> Outcome {
    let scene = Scene::new("meterprotect")?;
    let protect = |rights| {
        let start = scene.bell.address() as *mut libc::c_void;
        // SAFETY: the mapping is the test's, which does not use it while it may not.
        let result = unsafe { libc::mprotect(start, DOORBELL as usize, rights) };
        equal("mprotect", &result, &0)
    };
    let before = own_faults();
    for token in 1..=5000 {
        if own_faults() - before > 20 {
            break;
        }
        scene.bell.ring(token);
        for rights in [
            libc::PROT_READ,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::PROT_NONE,
            libc::PROT_READ | libc::PROT_WRITE,
        ] {
            protect(rights)?;
        }
        scene.store("rung", token + 1, |_, token| scene.bell.ring(token))?;
    }
    let faulted = own_faults() - before;
    holds(&format!("{faulted} faults"), faulted > 20)?;
    scene.end()
}

/// Children ring as fast as they can, so that they are stopped again and again.
fn killed() -> Outcome {
    let scene = Scene::new("meterkill")?;
    let parkings = || status(&scene.bell.instance, "compute_parkings");
    for _ in 0..5 {
        let before = parkings()?;
        let children: Result<Vec<_>, _> = (0..3)
            .map(|_| {
                spawn(|| {
                    for token in 1.. {
                        scene.bell.ring(token);
                    }
                    0
                })
            })
            .collect();
        let children = sys("fork", children)?;
        wait_for("parkings", || Ok(parkings()? > before + 3))?;
        for child in children {
            sys("kill", os::kill(child, libc::SIGKILL))?;
            equal("ended", &sys("wait", os::wait(child))?, &libc::SIGKILL)?;
        }
        wait_parked(&scene.bell.instance, 0)?;
    }
    scene.end()
}

fn revoked() -> Outcome {
    let scene = Scene::new("meterpower")?;
    let path = format!("{}/revoke", crate::standin::DEBUGFS);
    let before = faults()?;
    for token in 1..=200 {
        at(&path, std::fs::write(&path, format!("{}", super::GPU)))?;
        scene.store("rung", token, |_, token| scene.bell.ring(token))?;
    }
    holds("no fault of the driver's", faults()? >= before + 200)?;
    scene.end()
}
