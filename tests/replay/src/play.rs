// SPDX-License-Identifier: GPL-2.0
//! Replaying the calls of one process, in that process.

use crate::{
    buffers::Buffers,
    bytes::{fd_at, u32_at, u64_at},
    decode::Decoded,
    layout::{self, Effect, Kind},
    nodes::Nodes,
    record::{Ioctl, Nested, NestedKind, Op, Record},
    report::{Mismatch, Outcome, Refused},
    space::{object_name, Mapping, ReplaySpace},
    standin, sys,
};

/// Replays one process.
pub struct Player<'a> {
    records: &'a [Record],
    pub(crate) nodes: Nodes,
    /// The objects, files and mappings of this process.
    pub space: ReplaySpace,
    /// Bytes that the recording's GPU was short of at the first question, held by processes that
    /// are not part of the replay.
    pub(crate) held_by_others: Option<u64>,
    /// Whether other processes of the replay are alive.
    pub(crate) company: bool,
    blind_call_told: bool,
    /// Process and descriptor there that the next [`Op::Receive`] gets.
    pub(crate) parcel: Option<(i32, i32)>,
}

fn skipped() -> Outcome {
    Outcome {
        skipped: true,
        ..Outcome::default()
    }
}

/// A mismatch that is no place in a buffer.
pub fn differs(index: usize, call: &str, what: &str, recorded: String, seen: String) -> Mismatch {
    Mismatch {
        trace: None,
        index,
        call: call.to_owned(),
        what: what.to_owned(),
        at: None,
        recorded,
        seen,
    }
}

fn shown(result: &Result<i32, i32>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(e) => format!("errno {e}"),
    }
}

impl<'a> Player<'a> {
    /// A player of these calls on these nodes.
    pub fn new(records: &'a [Record], nodes: Nodes) -> Self {
        Self {
            records,
            nodes,
            space: ReplaySpace::default(),
            held_by_others: None,
            company: false,
            blind_call_told: false,
            parcel: None,
        }
    }

    /// Makes one call of the recording. `company`: other processes of the replay are alive.
    pub fn play(&mut self, index: usize, company: bool) -> Outcome {
        let Some(record) = self.records.get(index) else {
            return Outcome::default();
        };
        self.company = company;
        let mut outcome = self.call(index, &record.op);
        outcome.missing = self.space.take_changes();
        outcome
    }

    fn call(&mut self, index: usize, op: &Op) -> Outcome {
        match op {
            Op::Open {
                path,
                flags,
                result,
            } => self.open(index, path, *flags, *result),
            Op::Close { fd } => self.close(index, *fd),
            Op::Ioctl(io) => self.ioctl(index, io),
            Op::Mmap {
                fd,
                addr,
                len,
                prot,
                flags,
                offset,
                result,
            } => {
                let wanted = Wanted {
                    fd: *fd,
                    addr: *addr,
                    len: *len,
                    prot: *prot,
                    flags: *flags,
                    offset: *offset,
                };
                self.mmap(index, &wanted, *result)
            }
            Op::Munmap { addr, len, .. } => self.munmap(index, *addr, *len),
            Op::Send { fd, .. } => self.send(*fd),
            Op::Receive { fd, .. } => self.receive(*fd),
        }
    }

    fn open(
        &mut self,
        index: usize,
        path: &str,
        flags: i32,
        recorded: Result<i32, i32>,
    ) -> Outcome {
        let mut out = Outcome::default();
        let Some(real) = self.nodes.path(path) else {
            // A node that an instance does not have.
            if let Ok(fd) = recorded {
                self.space.lose_fd(fd);
            }
            return skipped();
        };
        let seen = sys::open(&real, flags);
        if let Err(libc::ENOENT) = seen {
            if let (Ok(fd), true) = (recorded, Nodes::is_optional(path)) {
                self.space.lose_fd(fd);
                return skipped();
            }
        }
        if seen.map(drop) != recorded.map(drop) {
            let call = format!("open {path}");
            out.mismatches.push(differs(
                index,
                &call,
                "result",
                shown(&recorded),
                shown(&seen),
            ));
        }
        match (recorded, seen) {
            (Ok(wanted), Ok(fd)) => {
                let cloexec = flags & libc::O_CLOEXEC != 0;
                match sys::renumber(fd, wanted, cloexec) {
                    Ok(()) => self.space.open(wanted),
                    Err(_) => self.space.lose_fd(wanted),
                }
            }
            (Ok(wanted), Err(_)) => self.space.lose_fd(wanted),
            (Err(_), Ok(fd)) => drop(sys::close(fd)),
            (Err(_), Err(_)) => {}
        }
        out
    }

    fn close(&mut self, index: usize, fd: i32) -> Outcome {
        if !self.space.close(fd) {
            return skipped();
        }
        let mut out = Outcome {
            charges: true,
            ..Outcome::default()
        };
        if let Err(e) = sys::close(fd) {
            let seen = format!("errno {e}");
            out.mismatches
                .push(differs(index, "close", "result", "ok".into(), seen));
        }
        out
    }

    /// Keeps what the descriptor stands for, until the receiver has taken it.
    fn send(&self, fd: i32) -> Outcome {
        if !self.space.is_open(fd) {
            return skipped();
        }
        Outcome {
            sent: sys::dup_above(fd, sys::OWN_FDS).ok(),
            ..Outcome::default()
        }
    }

    /// Takes what another process has kept.
    fn receive(&mut self, fd: i32) -> Outcome {
        let taken = self.parcel.take();
        let taken = taken.and_then(|(process, kept)| sys::take_descriptor(process, kept).ok());
        match taken.map(|real| sys::renumber(real, fd, true)) {
            Some(Ok(())) => {
                self.space.open(fd);
                Outcome::default()
            }
            _ => {
                self.space.lose_fd(fd);
                skipped()
            }
        }
    }

    fn mmap(&mut self, index: usize, wanted: &Wanted, recorded: Option<u64>) -> Outcome {
        let mut out = Outcome::default();
        if self.space.is_dead_context(wanted.fd) || !self.space.is_open(wanted.fd) {
            if let Some(at) = recorded {
                let map = Mapping {
                    len: wanted.len,
                    real: None,
                    managed: false,
                };
                self.space.add_map(at, map);
            }
            return skipped();
        }
        let at = recorded.unwrap_or(wanted.addr);
        if at != 0 && wanted.flags & libc::MAP_FIXED != 0 {
            self.unmap_range(at, wanted.len);
        }
        let map = |at| {
            sys::mmap(
                at,
                wanted.len,
                wanted.prot,
                wanted.flags,
                wanted.fd,
                wanted.offset,
            )
        };
        let mut seen = map(at);
        // An RM mapping may be anywhere; of a UVM mapping the driver wants address == offset.
        if seen == Err(libc::EEXIST) && wanted.offset == 0 {
            seen = map(0);
        }
        // RM wants offset 0, UVM the address.
        let managed = wanted.offset != 0;
        out.charges = managed;
        if managed && recorded.is_some() && seen == Err(libc::ENOMEM) {
            out.refused = Some(Refused {
                trace: None,
                index,
                class: "managed".to_owned(),
                bytes: wanted.len,
                status: "ENOMEM".to_owned(),
            });
        } else if seen.is_ok() != recorded.is_some() {
            let text = |ok: bool| if ok { "ok" } else { "failed" }.to_owned();
            let real = seen.map_or_else(|e| format!("errno {e}"), |_| text(true));
            out.mismatches.push(differs(
                index,
                "mmap",
                "result",
                text(recorded.is_some()),
                real,
            ));
        }
        if let (true, true, Ok(at)) = (managed, standin::is_in_reach(), seen) {
            // The recordings show no access of a GPU: it touches all of it. (The first GPU alone,
            // as the recorded programs have one. A semaphore pool does not mind. A container
            // sees no debugfs to ask for it by.)
            if let Err(e) = standin::touch(0, at, wanted.len) {
                out.mismatches
                    .push(differs(index, "gpu_touch", "result", "ok".into(), e));
            }
        }
        match (recorded, seen) {
            (Some(at), real) => {
                let map = Mapping {
                    len: wanted.len,
                    real: real.ok(),
                    managed,
                };
                self.space.add_map(at, map);
            }
            (None, Ok(real)) => self.unmap_real(real, wanted.len),
            (None, Err(_)) => {}
        }
        out
    }

    fn munmap(&mut self, index: usize, addr: u64, len: u64) -> Outcome {
        let cut = self.space.cut_maps(addr, len);
        if !cut.is_empty() && cut.iter().all(|(_, m)| m.real.is_none()) {
            return skipped();
        }
        let mut out = Outcome {
            charges: true,
            ..Outcome::default()
        };
        for (_, map) in cut {
            let Some(real) = map.real else { continue };
            // SAFETY: the range is one that `mmap` or `host_memory` mapped for the replay.
            if let Err(e) = unsafe { sys::munmap(real, map.len) } {
                let seen = format!("errno {e}");
                out.mismatches
                    .push(differs(index, "munmap", "result", "ok".into(), seen));
            }
        }
        out
    }

    fn unmap_range(&mut self, addr: u64, len: u64) {
        for (_, map) in self.space.cut_maps(addr, len) {
            if let Some(real) = map.real {
                self.unmap_real(real, map.len);
            }
        }
    }

    fn unmap_real(&self, real: u64, len: u64) {
        // SAFETY: the range is one that was mapped for the replay. A failure leaves it mapped,
        // which the next `mmap` there tells.
        let _ = unsafe { sys::munmap(real, len) };
    }

    /// Memory of the program itself, which the driver is to pin: anonymous pages where nothing is.
    fn host_memory(&mut self, addr: u64, len: u64) {
        let (start, end) = (addr & !0xFFF, (addr.saturating_add(len) + 0xFFF) & !0xFFF);
        if self.space.is_mapped(start, end - start) {
            return;
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let real = sys::mmap(start, end - start, prot, flags, -1, 0)
            .or_else(|_| sys::mmap(0, end - start, prot, flags, -1, 0));
        let map = Mapping {
            len: end - start,
            real: real.ok(),
            managed: false,
        };
        self.space.add_map(start, map);
    }

    /// Whether the call needs something that does not exist here.
    fn depends_on_missing(&self, d: &Decoded<'_>) -> bool {
        let input = d.input();
        if self.space.is_dead_fd(d.io.fd) || !self.space.is_open(d.io.fd) {
            return true;
        }
        for field in d.call.fields {
            if field.at + 4 > input.len() {
                continue;
            }
            let dead = match field.kind {
                Kind::Client => self.space.is_dead((u32_at(input, field.at), 0)),
                Kind::Object | Kind::ObjectOf(_) => self.space.is_dead(object_name(input, *field)),
                Kind::Fd => self.space.is_dead_fd(fd_at(input, field.at)),
                Kind::Mapped => self.space.is_dead_address(u64_at(input, field.at)),
                Kind::Linear | Kind::HostMemory(_) | Kind::Group | Kind::List(_) => false,
            };
            // A call that makes an object may make one that was missing until now.
            if dead && d.call.effect != Effect::Create(field.at) {
                return true;
            }
        }
        if d.uvm && d.call.effect == Effect::UvmUnmap && self.space.is_dead_range(u64_at(input, 0))
        {
            return true;
        }
        let Some(nested) = &d.io.nested else {
            return false;
        };
        let Some(bytes) = &nested.bytes else {
            return false;
        };
        let params = bytes.input.get(..d.nested_size(nested)).unwrap_or_default();
        let fd = match nested.kind {
            NestedKind::Alloc => layout::class_fd(nested.code),
            NestedKind::Control => layout::control_fd(nested.code),
        };
        // Through a descriptor that the recorder did not see come (an older one did not follow
        // sockets).
        let unseen = |fd| d.status(d.output()) == Some(0) && !self.space.is_open(fd);
        self.space.mentions_dead(u32_at(input, 0), params)
            || fd.is_some_and(|at| {
                let fd = fd_at(params, at);
                self.space.is_dead_fd(fd) || unseen(fd)
            })
    }

    /// Notes that what the call would have done is not done.
    pub(crate) fn lose_effect(&mut self, d: &Decoded<'_>) {
        let (input, output) = (d.input(), d.output());
        match d.call.effect {
            Effect::Create(at) => {
                let made = u32_at(output, at);
                if made != 0 {
                    let client = u32_at(input, 0);
                    let name = if client == 0 { made } else { client };
                    self.space.lose((name, made));
                }
            }
            Effect::Free(at) => self.space.free((u32_at(input, 0), u32_at(input, at))),
            Effect::MapContext(at) => self.space.lose_context(fd_at(input, at)),
            Effect::UvmMap => self.space.lose_range(u64_at(input, 0)),
            Effect::UvmFree => self.space.restore_range(u64_at(input, 0)),
            Effect::UvmUnmap | Effect::None => {}
        }
        if let Some(Nested {
            kind: NestedKind::Control,
            code: layout::IMPORT_OBJECTS,
            bytes: Some(params),
        }) = &d.io.nested
        {
            for handle in layout::imported(&params.output) {
                self.space.lose((u32_at(input, 0), handle));
            }
        }
    }

    fn ioctl(&mut self, index: usize, io: &Ioctl) -> Outcome {
        let d = Decoded::new(io);
        let blind = !d.uvm && d.nr == layout::NR_XFER;
        if blind && !self.blind_call_told {
            self.blind_call_told = true;
            eprintln!("call {index}: IOCTL_XFER_CMD points to a call that was not recorded");
        }
        if blind || self.depends_on_missing(&d) {
            self.lose_effect(&d);
            return skipped();
        }
        for field in d.call.fields {
            if let Kind::HostMemory(limit_at) = field.kind {
                let limit = u64_at(d.input(), limit_at);
                self.host_memory(u64_at(d.input(), field.at), limit.saturating_add(1));
            }
        }
        if d.call.effect == Effect::UvmFree && d.status(d.output()) == Some(0) {
            // The driver frees no range that is mapped. The program had put another mapping there,
            // to keep the addresses, which the recorder does not see.
            self.unmap_range(u64_at(d.input(), 0), u64_at(d.input(), 8));
        }
        let mut buffers = Buffers::new(&d, &self.space);
        let seen = sys::ioctl(io.fd, io.request, buffers.argument());
        self.judge(index, &d, &buffers, seen)
    }
}

/// The arguments of a recorded `mmap`.
struct Wanted {
    fd: i32,
    addr: u64,
    len: u64,
    prot: i32,
    flags: i32,
    offset: u64,
}
