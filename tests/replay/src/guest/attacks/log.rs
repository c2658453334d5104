// SPDX-License-Identifier: GPL-2.0
//! The host's log, to which the driver writes for everybody, as often as somebody makes it.

use std::time::{Duration, Instant};

use super::{
    attack::Own,
    rest::alone,
    scene::{escape, in_instances, open_client, Place, GPU, OWN},
};
use crate::{
    bytes::put_u32,
    guest::{rm, tools::Verdict},
    standin::KernelLog,
    sys,
};

pub(super) const ATTACKS: &[Own] = &[
    Own {
        name: "the host's log filled by frees (FREE_OS_EVENT)",
        function: "osapi.c:free_os_event",
        run: || filled(Frees::new),
    },
    Own {
        name: "the host's log filled by refused calls",
        function: "kernel_channel.c:kchannelConstruct_IMPL",
        run: || filled(Channels::new),
    },
    Own {
        name: "the host's log filled by refused mappings",
        function: "nv-mmap.c:nvidia_mmap_helper",
        run: || filled(Mappings::new),
    },
];

/// How many calls are made directly, each with a line or more.
const DIRECTLY: usize = 1500;
/// So many lines may come at once through an instance: of 500 calls that the driver refuses, each
/// with three at most.
const AT_ONCE: usize = 1500;
/// For so long calls are made after that.
const LATER: Duration = Duration::from_secs(5);

/// So many lines may come in some time: of 20 calls in a second.
fn most_lines(time: Duration) -> usize {
    usize::try_from(3 * 20 * time.as_millis() / 1000 + 30).unwrap_or(usize::MAX)
}

/// A program that makes the driver write to the log.
trait Writer: Sized {
    /// Makes a call that does. It fails if the call was not refused.
    fn call(&mut self) -> Verdict;

    /// It ends.
    fn close(self);
}

/// The driver's lines in the log while calls are made, until `done` says so of the calls and lines.
fn lines(
    writer: &mut impl Writer,
    mut done: impl FnMut(usize, usize) -> bool,
) -> Result<usize, String> {
    let mut log = KernelLog::from_now();
    let (mut calls, mut lines) = (0, 0);
    while !done(calls, lines) {
        writer.call()?;
        calls += 1;
        // The log keeps a limited number of lines, so it is read on the way.
        let said = log.lines();
        lines += said.iter().filter(|line| line.contains("NVRM")).count();
    }
    Ok(lines)
}

/// Lets a program write to the log directly and through an instance.
fn filled<W: Writer>(make: fn(Place) -> Result<W, String>) -> Result<String, String> {
    let directly = alone(|| {
        let mut direct = make(Place::Driver)?;
        let directly = lines(&mut direct, |calls, _| calls >= DIRECTLY)?;
        direct.close();
        Ok(directly)
    })?;
    if directly < DIRECTLY {
        return Err(format!("{DIRECTLY} calls make {directly} lines directly"));
    }
    in_instances(|| {
        let mut through = make(Place::Instance)?;
        // The budget refills while the first calls are made, too.
        let began = Instant::now();
        let first = lines(&mut through, |calls, lines| {
            calls >= DIRECTLY / 3 || lines >= AT_ONCE
        })?;
        let end = Instant::now() + LATER;
        let later = lines(&mut through, |_, _| Instant::now() >= end)?;
        let most = most_lines(began.elapsed());
        through.close();
        let how = format!("{first} lines, then {later} in {LATER:?}; {directly} directly");
        if later > most {
            return Err(how);
        }
        Ok(how)
    })
}

/// Frees of a key that is not there.
struct Frees {
    client: rm::Client,
    number: u32,
}

impl Frees {
    fn new(place: Place) -> Result<Self, String> {
        let client = open_client(&place.folder("attacker"))?;
        Ok(Self { client, number: 0 })
    }
}

impl Writer for Frees {
    fn call(&mut self) -> Verdict {
        let mut key = [0; 16];
        put_u32(&mut key, 0, self.client.handle);
        put_u32(&mut key, 8, self.number);
        self.number += 1;
        // NV_ERR_INVALID_EVENT.
        match escape(self.client.ctl, 207, &mut key, 12) {
            Err(rm::Failure::Status(0x28)) => Ok(()),
            other => Err(format!("free of no key: {other:?}")),
        }
    }

    fn close(self) {
        self.client.close();
    }
}

/// Channels in no group that have a share of a group's state.
struct Channels(rm::Client);

impl Channels {
    fn new(place: Place) -> Result<Self, String> {
        open_client(&place.folder("attacker")).map(Self)
    }
}

impl Writer for Channels {
    fn call(&mut self) -> Verdict {
        self.0.refused_channel(OWN)
    }

    fn close(self) {
        self.0.close();
    }
}

/// Mappings of a file for which no call has prepared the driver.
struct Mappings(i32);

impl Mappings {
    fn new(place: Place) -> Result<Self, String> {
        let path = format!("{}/nvidia{GPU}", place.folder("attacker"));
        let fd = sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC);
        let fd = fd.map_err(|errno| format!("{path}: errno {errno}"))?;
        Ok(Self(fd))
    }
}

impl Writer for Mappings {
    fn call(&mut self) -> Verdict {
        match sys::mmap(0, 4096, libc::PROT_READ, libc::MAP_SHARED, self.0, 0) {
            Err(libc::EINVAL | libc::EAGAIN) => Ok(()),
            other => Err(format!("mmap of no object: {other:?}")),
        }
    }

    fn close(self) {
        // Of an open file.
        let _ = sys::close(self.0);
    }
}
