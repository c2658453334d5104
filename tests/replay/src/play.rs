// SPDX-License-Identifier: GPL-2.0
//! Replaying the calls of one process, in that process.

use crate::buffers::Buffers;
use crate::bytes::{fd_at, u32_at, u64_at};
use crate::compare;
use crate::layout::{self, Call, Effect, Kind};
use crate::nodes::Nodes;
use crate::record::{Ioctl, Nested, NestedKind, Op, Record};
use crate::report::{Mismatch, Outcome, Refused, Told};
use crate::space::{object_name, Mapping, Space};
use crate::sys;

/// NV_ERR_NO_MEMORY: what an allocation over the limit gets.
pub const NO_MEMORY: u32 = 0x51;
/// NV_WARN_NOTHING_TO_DO: the module's answer to UVM_MM_INITIALIZE.
const NOTHING_TO_DO: u32 = 0x0001_0006;

/// Replays one process.
pub struct Player<'a> {
    records: &'a [Record],
    nodes: Nodes,
    /// What exists here.
    pub space: Space,
    /// Bytes that the recording's GPU was short of at the first question, held by processes that
    /// are not part of the replay.
    held_by_others: Option<u64>,
    blind_call_told: bool,
}

/// An `ioctl` of the recording with the layout of its argument.
pub struct Decoded<'a> {
    /// The recorded call.
    pub io: &'a Ioctl,
    /// Its layout; a call without one has no fields.
    pub call: Call,
    /// Whether the request is known at all.
    pub known: bool,
    /// `_IOC_NR` of an escape, the request of a UVM call.
    pub nr: u32,
    /// Whether it is on a UVM file.
    pub uvm: bool,
}

const UNKNOWN: Call = Call {
    name: "unknown request",
    size: 0,
    status: None,
    fields: &[],
    effect: Effect::None,
};

impl<'a> Decoded<'a> {
    /// Finds the layout of a recorded `ioctl`.
    pub fn new(io: &'a Ioctl) -> Self {
        let uvm = io.path.ends_with("/nvidia-uvm");
        let escape = !uvm && io.request >> 8 & 0xFF == layout::NV_TYPE;
        let nr = if uvm { io.request } else { io.request & 0xFF };
        let size = io.argument.as_ref().map_or(0, |a| a.input.len());
        let mut call = if uvm {
            layout::uvm(nr)
        } else if escape {
            layout::escape(nr, size)
        } else {
            None
        };
        if let (Some(call), Some(argument)) = (&mut call, &io.argument) {
            // Of the functions of VID_HEAP_CONTROL, ALLOC_SIZE (2) makes an object.
            if !uvm && nr == layout::NR_VID_HEAP && u32_at(&argument.input, 8) != 2 {
                call.effect = Effect::None;
            }
        }
        Self {
            io,
            known: call.is_some(),
            call: call.unwrap_or(UNKNOWN),
            nr,
            uvm,
        }
    }

    /// The argument before the call.
    pub fn input(&self) -> &'a [u8] {
        self.io.argument.as_ref().map_or(&[], |a| &a.input)
    }

    fn output(&self) -> &'a [u8] {
        self.io.argument.as_ref().map_or(&[], |a| &a.output)
    }

    /// Bytes of the argument that the driver reads or writes.
    pub fn size(&self) -> usize {
        let size = self.input().len();
        if self.call.size == 0 {
            size
        } else {
            self.call.size.min(size)
        }
    }

    /// Bytes of the nested parameters that the driver reads or writes. All that was recorded, where
    /// a class is not known: an unknown class is compared whole rather than not at all.
    pub fn nested_size(&self, nested: &Nested) -> usize {
        let recorded = nested.bytes.as_ref().map_or(0, |b| b.input.len());
        match nested.kind {
            NestedKind::Control => recorded,
            NestedKind::Alloc => {
                layout::class_params(nested.code).map_or(recorded, |s| s.min(recorded))
            }
        }
    }

    fn status(&self, output: &[u8]) -> Option<u32> {
        let at = self.call.status?;
        (output.len() >= at + 4).then(|| u32_at(output, at))
    }

    fn class(&self) -> u32 {
        match self.nr {
            layout::NR_VID_HEAP => layout::CLASS_VIDEO_MEMORY,
            _ => u32_at(self.input(), 12),
        }
    }

    fn allocates(&self) -> bool {
        let nrs = [
            layout::NR_ALLOC,
            layout::NR_ALLOC_MEMORY,
            layout::NR_VID_HEAP,
        ];
        !self.uvm && nrs.contains(&self.nr)
    }

    fn bytes_wanted(&self) -> u64 {
        match self.nr {
            layout::NR_VID_HEAP => u64_at(self.input(), 88),
            layout::NR_ALLOC_MEMORY => u64_at(self.input(), 32).saturating_add(1),
            _ if matches!(self.class(), 0x3E | 0x40 | 0x50A0) => {
                let nested = self.io.nested.as_ref().and_then(|n| n.bytes.as_ref());
                nested.map_or(0, |b| u64_at(&b.input, layout::MEMORY_SIZE_AT))
            }
            _ => 0,
        }
    }

    /// The call for people: `RM_ALLOC 0x40`.
    pub fn title(&self) -> String {
        match &self.io.nested {
            Some(n) => format!("{} {:#x}", self.call.name, n.code),
            None if !self.known => format!("request {:#x} on {}", self.io.request, self.io.path),
            None => self.call.name.to_owned(),
        }
    }
}

fn skipped() -> Outcome {
    Outcome {
        skipped: true,
        ..Outcome::default()
    }
}

fn differs(index: usize, call: &str, what: &str, recorded: String, seen: String) -> Mismatch {
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
            space: Space::default(),
            held_by_others: None,
            blind_call_told: false,
        }
    }

    /// Makes one call of the recording.
    pub fn play(&mut self, index: usize) -> Outcome {
        let Some(record) = self.records.get(index) else {
            return Outcome::default();
        };
        match &record.op {
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
        if seen.is_ok() != recorded.is_some() {
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
        match (recorded, seen) {
            (Some(at), real) => {
                let map = Mapping {
                    len: wanted.len,
                    real: real.ok(),
                    // RM wants offset 0, UVM the address.
                    managed: wanted.offset != 0,
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
                Kind::Linear | Kind::HostMemory(_) | Kind::Group => false,
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
        self.space.mentions_dead(u32_at(input, 0), params)
            || fd.is_some_and(|at| self.space.is_dead_fd(fd_at(params, at)))
    }

    /// Notes that what the call would have done is not done.
    fn lose_effect(&mut self, d: &Decoded<'_>) {
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

    /// Compares what came back, and learns from it.
    fn judge(
        &mut self,
        index: usize,
        d: &Decoded<'_>,
        buffers: &Buffers,
        seen: Result<i32, i32>,
    ) -> Outcome {
        let mut out = Outcome {
            charges: d.allocates() || matches!(d.call.effect, Effect::Free(_)),
            ..Outcome::default()
        };
        let call = d.title();
        let recorded = if d.io.ret < 0 {
            Err(d.io.errno)
        } else {
            Ok(d.io.ret)
        };
        if recorded != seen {
            let text = |r: &Result<i32, i32>| match r {
                Ok(v) => v.to_string(),
                Err(e) => format!("errno {e}"),
            };
            out.mismatches
                .push(differs(index, &call, "ret", text(&recorded), text(&seen)));
        }
        let wanted = d.status(d.output());
        let status = d.status(buffers.seen());
        let refused = d.allocates() && status == Some(NO_MEMORY) && seen.is_ok();
        if refused {
            out.refused = Some(Refused {
                trace: None,
                index,
                class: format!("{:#x}", d.class()),
                bytes: d.bytes_wanted(),
                status: format!("{NO_MEMORY:#x}"),
            });
        }
        let shared_mode = d.uvm
            && d.nr == layout::UVM_MM_INITIALIZE
            && !self.nodes.is_direct()
            && status == Some(NOTHING_TO_DO);
        let excused = refused && !self.nodes.is_direct() && wanted == Some(0);
        if wanted != status && seen.is_ok() && !excused && !shared_mode {
            let text = |s: Option<u32>| s.map_or("none".to_owned(), |s| format!("{s:#x}"));
            out.mismatches
                .push(differs(index, &call, "status", text(wanted), text(status)));
        }
        let worked = |ok: bool, status: Option<u32>| ok && status.unwrap_or(0) == 0;
        match (
            worked(recorded.is_ok(), wanted),
            worked(seen.is_ok(), status),
        ) {
            (true, true) => self.learn(d, buffers, &mut out),
            (true, false) if !shared_mode => self.lose_effect(d),
            _ => {}
        }
        if seen.is_ok() {
            told(d, buffers, &mut out.told);
            if wanted == status {
                self.compare(index, d, buffers, &mut out);
            }
        }
        out
    }

    /// Takes over what a call that worked made.
    fn learn(&mut self, d: &Decoded<'_>, buffers: &Buffers, out: &mut Outcome) {
        let (input, output, seen) = (d.input(), d.output(), buffers.seen());
        let client = u32_at(input, 0);
        match d.call.effect {
            Effect::Create(at) => {
                let (made, real) = (u32_at(output, at), u32_at(seen, at));
                if d.nr == layout::NR_ALLOC && matches!(d.class(), 0 | 1 | 0x41) {
                    self.space.add_client(made, real);
                    self.space.add_object((made, made), real);
                    out.clients.push((made, real));
                } else {
                    self.space.add_object((client, made), real);
                    if d.nr == layout::NR_ALLOC && layout::is_channel(d.class()) {
                        self.space.add_channel((client, made));
                    }
                }
            }
            Effect::Free(at) => self.space.free((client, u32_at(input, at))),
            Effect::MapContext(at) => self.space.add_context(fd_at(input, at)),
            Effect::UvmMap | Effect::UvmFree => self.space.restore_range(u64_at(input, 0)),
            Effect::UvmUnmap | Effect::None => {}
        }
        for field in d.call.fields {
            let (old, new) = (u64_at(output, field.at), u64_at(seen, field.at));
            match field.kind {
                Kind::Linear if matches!(d.call.effect, Effect::MapContext(_)) => {
                    self.space.add_linear(old, new);
                }
                Kind::Group if u64_at(input, field.at) != old => self.space.add_group(old, new),
                _ => {}
            }
        }
        if let (Some(nested), Some(real)) = (&d.io.nested, buffers.nested_seen()) {
            if nested.kind == NestedKind::Control && nested.code == layout::GID_INFO {
                let (at, len) = layout::GID_BYTES;
                let part = |b: &[u8]| b.get(at..at + len).and_then(|b| b.try_into().ok());
                let old = nested.bytes.as_ref().and_then(|b| part(&b.output));
                if let (Some(old), Some(new)) = (old, part(real)) {
                    self.space.add_uuid(old, new);
                }
            }
        }
    }

    /// Compares the outputs, whole without an instance; nobody may write behind the parameters.
    fn compare(&mut self, index: usize, d: &Decoded<'_>, buffers: &Buffers, out: &mut Outcome) {
        let call = d.title();
        let mut check = |what: &str, expected: &[u8], seen: &[u8], volatile: &[_]| {
            let found = compare::buffers(index, &call, what, expected, seen, volatile);
            out.mismatches.extend(found);
        };
        let size = d.size();
        let (sent, seen) = (buffers.sent(), buffers.seen());
        check("tail", &sent[size..], &seen[size..], &[]);
        if self.nodes.is_direct() {
            let expected = buffers.expected(d, &self.space);
            let nr = if d.uvm { u32::MAX } else { d.nr };
            let volatile = compare::volatile_argument(nr);
            check("out", &expected[..size], &seen[..size], volatile);
        }
        let (Some(nested), Some(seen), Some(sent)) =
            (&d.io.nested, buffers.nested_seen(), buffers.nested_sent())
        else {
            return;
        };
        let size = d.nested_size(nested);
        check("tail", &sent[size..], &seen[size..], &[]);
        if self.nodes.is_direct() {
            let mut expected = buffers.nested_expected(d, nested, &self.space);
            match nested.kind {
                NestedKind::Alloc => compare::excuse_pieces(nested.code, &mut expected, seen),
                NestedKind::Control => compare::excuse_use(nested.code, &mut expected, seen),
            }
            if nested.kind == NestedKind::Control && nested.code == layout::FB_GET_INFO_V2 {
                let managed = self.space.managed();
                compare::excuse_free(&mut expected, seen, &mut self.held_by_others, managed);
            }
            let volatile = match nested.kind {
                NestedKind::Alloc => compare::volatile_class(nested.code),
                NestedKind::Control => compare::volatile_control(nested.code),
            };
            check("nout", &expected[..size], &seen[..size], volatile);
        }
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

/// Reads the answer to a question about memory.
fn told(d: &Decoded<'_>, buffers: &Buffers, told: &mut Told) {
    let (Some(nested), Some(answer)) = (&d.io.nested, buffers.nested_seen()) else {
        return;
    };
    if nested.kind != NestedKind::Control || nested.code != layout::FB_GET_INFO_V2 {
        return;
    }
    let pairs = usize::try_from(u32_at(answer, 0)).unwrap_or(0).min(256);
    for i in 0..pairs {
        let at = 4 + 8 * i;
        let bytes = Some(u64::from(u32_at(answer, at + 4)) << 10);
        match u32_at(answer, at) {
            0x08 => told.total_bytes = bytes,
            0x09 => told.heap_bytes = bytes,
            0x16 => told.free_bytes = bytes,
            _ => {}
        }
    }
}
