// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A program in a mount namespace of its own, in which some files are others.
//!
//! This process goes there itself and starts the program. While that runs, what would end this
//! process is held back, so that it can clean up. From a terminal the program gets the same
//! signals; SIGTERM is passed on.

use crate::{container::Mount, exit::Exit, host::PathError};
use nix::{
    errno::Errno,
    mount::{mount, umount2, MntFlags, MsFlags},
    sched::{unshare, CloneFlags},
    sys::signal::{kill, SigSet, Signal},
    unistd::Pid,
};
use std::{
    ffi::OsString,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus},
};

/// Signals that would end this process before its program.
const ENDINGS: [Signal; 4] = [
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGHUP,
];

/// Runs a program with these mounts and waits for its end.
pub(crate) fn run(program: &[OsString], mounts: &[Mount]) -> Result<Exit, PathError> {
    let root = Path::new("/");
    unshare(CloneFlags::CLONE_NEWNS).map_err(PathError::on("unsharing the mounts below", root))?;
    // Mounts made here must not be seen anywhere else.
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, root, None::<&str>, private, None::<&str>)
        .map_err(PathError::on("keeping to itself the mounts below", root))?;
    for Mount {
        source,
        destination,
    } in mounts
    {
        mount(
            Some(&**source),
            &**destination,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
        .map_err(PathError::on(
            "mounting a proxy node at",
            Path::new(destination),
        ))?;
    }
    let ended = spawn(program);
    for mount in mounts {
        // The namespace goes with this process; without the mounts the instance can go before.
        let _ = umount2(&*mount.destination, MntFlags::MNT_DETACH);
    }
    ended
}

fn spawn(program: &[OsString]) -> Result<Exit, PathError> {
    let (name, arguments) = program.split_first().ok_or(PathError {
        action: "starting",
        path: "".into(),
        errno: Errno::ENOENT,
    })?;
    let path = Path::new(name);
    let mut awaited: SigSet = ENDINGS.into_iter().collect();
    awaited.add(Signal::SIGCHLD);
    awaited
        .thread_block()
        .map_err(PathError::on("starting", path))?;
    // A program has the mask of the thread that starts it.
    let start = || {
        awaited
            .thread_unblock()
            .map_err(|e| e as i32)
            .map_err(std::io::Error::from_raw_os_error)?;
        Command::new(name).args(arguments).spawn()
    };
    let started = std::thread::scope(|scope| scope.spawn(start).join());
    let started =
        started.unwrap_or_else(|_| Err(std::io::Error::from_raw_os_error(Errno::EIO as i32)));
    let ended = started.and_then(|child| wait(child, &awaited));
    ended
        .map(|status| Exit::Program(code(status)))
        .map_err(PathError::on("starting", path))
}

fn wait(mut child: Child, awaited: &SigSet) -> std::io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let signal = awaited.wait()?;
        // A terminal sends the others to the program as well.
        if signal == Signal::SIGTERM {
            if let Ok(pid) = i32::try_from(child.id()) {
                // It has ended just now; the next turn sees that.
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
    }
}

/// The exit code that a shell gives it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}
