// SPDX-License-Identifier: GPL-2.0
//! More files and mappings than a program needs: the module keeps and walks lists of both.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{
    attack::Own,
    rest::alone,
    scene::{in_instances, open_client, Place, GPU},
};
use crate::{
    control::Control,
    guest::{
        process::spawn,
        suite::{
            doorbell::ended,
            mappings::{map_doorbell_in, read, DOORBELL},
        },
    },
    standin, sys,
};
use cgpu_uapi::Limited;

pub(super) const ATTACKS: &[Own] = &[
    Own {
        name: "files opened without end",
        function: "nv.c:nvidia_open",
        run: files,
    },
    Own {
        name: "registers mapped by forks without end",
        function: "nv-mmap.c:nvidia_vma_open",
        run: forks,
    },
];

/// How many of each a program asks for, and how many an instance may have.
const ASKED: u32 = 100;
const ALLOWED: u32 = 20;

type Take = fn(&str) -> Result<u32, String>;

/// On the driver's nodes a program gets all. Through an instance it gets as many as it may have, a
/// neighbour gets what it asks for, and nothing stays counted.
fn compare(what: Limited, take: Take) -> Result<String, String> {
    if standin::is_in_reach() {
        match alone(|| take(&Place::Driver.folder("attacker")))? {
            ASKED => {}
            count => return Err(format!("{count} of {ASKED} on the driver's nodes")),
        }
    }
    let (own, other) = in_instances(|| limited(what, take))?;
    match (own, other) {
        (ALLOWED, ASKED) => Ok(format!("{ALLOWED} of {ASKED}")),
        _ => Err(format!("{own} of {ASKED}, the neighbour {other}")),
    }
}

fn limited(what: Limited, take: Take) -> Result<(u32, u32), String> {
    let control = Control::open().map_err(|errno| format!("control device: errno {errno}"))?;
    let errno = |errno| format!("limits: errno {errno}");
    let set = control.set_limit("attacker", GPU, what.number(), u64::from(ALLOWED));
    set.map_err(errno)?;
    let own = take(&Place::Instance.folder("attacker"))?;
    let other = take(&Place::Instance.folder("victim"))?;
    let limits = control.limits("attacker", GPU).map_err(errno)?;
    let limit = limits.iter().find(|limit| limit.what == what.number());
    let limit = limit.ok_or("there is no such limit")?;
    if limit.used != 0 || limit.refused == 0 {
        return Err(format!("{} left, {} refused", limit.used, limit.refused));
    }
    Ok((own, other))
}

/// How many files of a GPU's node a program can open.
fn opened(folder: &str) -> Result<u32, String> {
    let path = format!("{folder}/nvidia{GPU}");
    let mut files = Vec::new();
    let mut end = Ok(());
    while files.len() < ASKED as usize && end.is_ok() {
        let opened = sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC);
        end = opened.map(|fd| files.push(fd));
    }
    let count = u32::try_from(files.len()).unwrap_or(u32::MAX);
    for fd in files {
        sys::close(fd).map_err(|errno| format!("close: errno {errno}"))?;
    }
    match end {
        // As the driver's own where it has no memory for a file.
        Ok(()) | Err(libc::ENOMEM) => Ok(count),
        Err(errno) => Err(format!("{path}: errno {errno}")),
    }
}

/// How many processes of a program, which forks, can submit work at the same time.
fn submitting(folder: &str) -> Result<u32, String> {
    let client = open_client(folder)?;
    let doorbell = map_doorbell_in(folder, &client)?;
    read(doorbell);
    let able: &AtomicU32 = sys::shared()?;
    able.store(1, Ordering::Relaxed);
    let children = (1..ASKED).map(|_| fork(doorbell, able));
    let children: Result<Vec<i32>, String> = children.collect();
    // They end before this process does, whatever came of it.
    for child in children?.into_iter().filter(|child| *child != 0) {
        sys::kill(child, libc::SIGKILL).map_err(|errno| format!("kill: errno {errno}"))?;
        ended(child)?;
    }
    client.close();
    // SAFETY: The driver gave the range, and nothing else of the program is there.
    let gone = unsafe { sys::munmap(doorbell, DOORBELL) };
    gone.map_err(|errno| format!("munmap: errno {errno}"))?;
    Ok(able.load(Ordering::Relaxed))
}

/// Forks a child that looks at the registers and stays; 0 if that ended it.
fn fork(doorbell: u64, able: &AtomicU32) -> Result<i32, String> {
    let before = able.load(Ordering::Relaxed);
    let child = spawn(|| {
        read(doorbell);
        able.fetch_add(1, Ordering::Relaxed);
        loop {
            sys::sleep_ms(1000);
        }
    });
    let child = child.map_err(|errno| format!("fork: errno {errno}"))?;
    let mut status = 0;
    loop {
        if able.load(Ordering::Relaxed) != before {
            return Ok(child);
        }
        // SAFETY: the status is there to be written.
        if unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == child {
            return match status & 0x7f {
                libc::SIGBUS | libc::SIGSEGV => Ok(0),
                _ => Err(format!("a child ended with status {status:#x}")),
            };
        }
        sys::sleep_ms(1);
    }
}

fn files() -> Result<String, String> {
    compare(Limited::Files, opened)
}

fn forks() -> Result<String, String> {
    compare(Limited::Mappings, submitting)
}
