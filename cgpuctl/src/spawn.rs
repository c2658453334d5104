// SPDX-License-Identifier: GPL-2.0 OR MIT
//! A program in a mount namespace of its own, in which some files are others.
//!
//! This process goes there itself and starts the program. While that runs, what would end this
//! process is held back, so that it can clean up. A terminal sends its signals to the program as
//! well; those that a process has sent to this one are passed on.

use crate::{container::Mount, exit::Exit, host::PathError};
use nix::{
    errno::Errno,
    mount::{mount, umount2, MntFlags, MsFlags},
    sched::{unshare, CloneFlags},
    sys::{
        signal::{kill, SigSet, Signal},
        signalfd::{siginfo, SfdFlags, SignalFd},
    },
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
    let blocked = awaited.thread_block();
    let signals = blocked.and_then(|()| SignalFd::with_flags(&awaited, SfdFlags::SFD_CLOEXEC));
    let signals = signals.map_err(PathError::on("starting", path))?;
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
    let ended = started.and_then(|child| wait(child, &signals));
    ended
        .map(|status| Exit::Program(code(status)))
        .map_err(PathError::on("starting", path))
}

fn wait(mut child: Child, signals: &SignalFd) -> std::io::Result<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        let Some(info) = signals.read_signal()? else {
            continue;
        };
        if let (Some(signal), Ok(pid)) = (passed_on(&info), i32::try_from(child.id())) {
            // It has ended just now; the next turn sees that.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

/// The signal, if a process has sent it, and to this process: those of a terminal are the kernel's,
/// whose codes are above zero (sigaction(2)).
fn passed_on(info: &siginfo) -> Option<Signal> {
    let signal = i32::try_from(info.ssi_signo).ok()?;
    let signal = Signal::try_from(signal).ok()?;
    (info.ssi_code <= 0 && ENDINGS.contains(&signal)).then_some(signal)
}

/// The exit code that a shell gives it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::raise;

    #[test]
    fn signals_of_processes_are_passed_on() {
        let awaited: SigSet = [Signal::SIGHUP, Signal::SIGUSR1].into_iter().collect();
        awaited.thread_block().expect("blocked");
        let signals = SignalFd::new(&awaited).expect("made");
        for (signal, is_passed) in [(Signal::SIGHUP, true), (Signal::SIGUSR1, false)] {
            raise(signal).expect("sent");
            let mut info = signals.read_signal().expect("read").expect("a signal");
            assert_eq!(passed_on(&info), is_passed.then_some(signal));
            // SI_KERNEL, as of a terminal.
            info.ssi_code = 0x80;
            assert_eq!(passed_on(&info), None);
        }
    }
}
