// SPDX-License-Identifier: GPL-2.0
//! A hostile container: its files, its processes, the tenant's accounting behind them, and its
//! calls.
//!
//! A call reads the next bytes of the input from the program's memory, wherever the pointer points
//! to: two looks at the same address see different bytes, as they would in a program whose other
//! threads write there. What the driver answers can be overwritten before it is read, as other
//! threads can do, and other calls can run before and after the driver works on one.

use cgpu_km::{
    nvidia::{
        nvos::{card_info, Card},
        tables::Tables,
        version::Branch,
    },
    policy::{Accounting, FileId, GpuId, ProcessId},
    proxy::{self, Call, Errno, Host, Part, Returned, Role, Route, Session, UserAddr},
    whole::whole,
};

use crate::{
    driver::{Caller, Driver, FOREIGN, GPUS},
    stream::{put_u32, u32_at, u64_at, Input, Stream},
};

/// Address of every call's argument.
pub const ARGUMENT: u64 = 0x7000_0000;
/// Addresses that cannot be read.
const BAD: std::ops::Range<u64> = 0..0x1000;
/// Calls that run inside one another at most.
const DEEPEST: u32 = 2;
/// Forged words of one answer at most.
const MOST_FORGED: u8 = 8;

/// A proxied file, open all the time: closing it opens another one in its place.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// Its number.
    pub file: u64,
    /// Its role.
    pub role: Role,
    /// The process that uses it.
    pub process: i32,
    /// Calls on it that are in flight, for which it cannot be closed.
    busy: u32,
}

/// A call out of a recording, that is to become an input: what it reads is the recording's, and is
/// noted.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The argument.
    pub argument: Vec<u8>,
    /// The parameters behind its pointer, which stands at offset 16.
    pub nested: Vec<u8>,
    /// Everything that was read, in the form of an input.
    pub log: Input,
    /// The argument as the program finds it afterwards.
    pub told: Vec<u8>,
}

impl Recorded {
    fn look(&mut self, from: UserAddr, into: &mut [u8]) {
        let nested_at = u64_at(&self.argument, 16);
        let offset = usize::try_from(from.0.wrapping_sub(ARGUMENT)).unwrap_or(usize::MAX);
        let bytes = match from.0 {
            _ if offset < self.argument.len() => &self.argument[offset..],
            at if at == nested_at => self.nested.as_slice(),
            // Lists behind pointers were not recorded.
            _ => &[],
        };
        let there = into.len().min(bytes.len());
        into[there..].fill(0);
        into[..there].copy_from_slice(&bytes[..there]);
        self.log.bytes(into);
    }
}

/// A container and the driver.
#[derive(Debug)]
pub struct Program<'a> {
    /// The source of decisions.
    pub input: Stream<'a>,
    /// The accounting that is checked.
    pub accounting: Accounting,
    /// The driver that it is checked against.
    pub driver: Driver,
    /// The open files.
    pub nodes: Vec<Node>,
    /// Limits in bytes, for each of [`GPUS`].
    pub limits: [u64; 2],
    /// A limit was changed, so that more may be held than it allows.
    pub limit_moved: [bool; 2],
    /// A recorded call in the place of the input.
    pub recorded: Option<Recorded>,
    /// The next call's argument, where the input does not say it.
    pub argument: Option<Vec<u8>>,
    /// The act of another thread before or after the driver's work.
    meanwhile: fn(&mut Self),
    tables: &'static Tables,
    at: usize,
    depth: u32,
    files: u64,
    /// The argument was read and no pointer to the same place was.
    argument_read: bool,
}

impl<'a> Program<'a> {
    /// A tenant with `limit` bytes of each of [`GPUS`], and two control files, two UVM files and a
    /// file of each GPU.
    pub fn new(input: &'a [u8], branch: Branch, limit: u64, meanwhile: fn(&mut Self)) -> Self {
        let mut accounting = Accounting::new(7);
        for gpu in GPUS {
            assert!(accounting.add_share(GpuId(gpu), limit).is_ok(), "no memory");
        }
        let Some(tables) = Tables::of(branch) else {
            panic!("no tables of {branch:?}");
        };
        let roles = [
            Role::Control,
            Role::Control,
            Role::Gpu(GpuId(GPUS[0])),
            Role::Gpu(GpuId(GPUS[1])),
            Role::Uvm,
            Role::Uvm,
        ];
        let mut program = Self {
            input: Stream::new(input),
            accounting,
            driver: Driver::default(),
            nodes: Vec::new(),
            limits: [limit; 2],
            limit_moved: [false; 2],
            recorded: None,
            argument: None,
            meanwhile,
            tables,
            at: 0,
            depth: 0,
            files: 0,
            argument_read: false,
        };
        for (number, role) in roles.into_iter().enumerate() {
            program.files += 1;
            program.nodes.push(Node {
                file: program.files,
                role,
                process: 100 + i32::try_from(number % 2).unwrap_or(0),
                busy: 0,
            });
        }
        program
    }

    /// An ioctl on one of the files: what it reads and what the driver does comes from the input.
    pub fn ioctl(&mut self, node: usize, request: u32) -> Returned {
        let node = node % self.nodes.len();
        let Some(open) = self.nodes.get_mut(node) else {
            return Err(Errno::EINVAL);
        };
        open.busy += 1;
        let session = Session {
            file: FileId(open.file),
            role: open.role,
        };
        let outer = (self.at, self.argument_read);
        self.at = node;
        self.argument_read = false;
        self.depth += 1;
        let returned = proxy::ioctl(self, &session, request, UserAddr(ARGUMENT));
        self.depth -= 1;
        (self.at, self.argument_read) = outer;
        if let Some(open) = self.nodes.get_mut(node) {
            open.busy -= 1;
        }
        returned
    }

    /// Closes a file, as its last user does, and opens another one in its place.
    pub fn reopen(&mut self, node: usize) {
        let node = node % self.nodes.len();
        let Some(open) = self.nodes.get_mut(node).filter(|open| open.busy == 0) else {
            return;
        };
        self.files += 1;
        let gone = std::mem::replace(&mut open.file, self.files);
        self.driver.close(gone);
        self.accounting.close_file(FileId(gone));
    }

    /// Checks what must hold between any two events.
    pub fn check(&self) {
        for (index, gpu) in GPUS.into_iter().enumerate() {
            let held = self.driver.held(gpu);
            // A share that was taken away is not told of.
            if let Some(share) = self.accounting.share(GpuId(gpu)) {
                let charged = share.used + share.overhead;
                assert!(
                    charged.saturating_add(share.reserved) >= held,
                    "GPU {gpu}: {held} bytes are held, {charged} charged"
                );
                assert!(
                    self.depth > 0 || share.reserved == 0,
                    "GPU {gpu}: {} bytes are reserved and no call is in flight",
                    share.reserved
                );
                let mut of_processes = 0;
                self.accounting
                    .processes(GpuId(gpu), |_, bytes| of_processes += bytes);
                assert_eq!(of_processes, share.used, "GPU {gpu}: the processes' sum");
            }
            assert!(
                self.limit_moved[index] || held <= self.limits[index],
                "GPU {gpu}: {held} bytes are held, the limit is {}",
                self.limits[index]
            );
        }
    }

    /// Ends the container: all files are closed, and nothing may be left.
    pub fn end(mut self) {
        for node in 0..self.nodes.len() {
            self.reopen(node);
            self.check();
        }
        assert!(self.driver.is_empty(), "the driver's own accounting");
        for gpu in GPUS {
            if let Some(share) = self.accounting.share(GpuId(gpu)) {
                let left = (
                    share.used,
                    share.overhead,
                    share.reserved,
                    share.objects,
                    share.clients,
                );
                assert_eq!(left, (0, 0, 0, 0, 0), "GPU {gpu}: left at the end");
            }
        }
        assert!(
            self.accounting.is_idle(),
            "something is left: {:?}",
            self.accounting
        );
    }

    /// Another thread's call, before or after the driver's work.
    fn interrupt(&mut self) {
        if self.depth < DEEPEST {
            (self.meanwhile)(self);
        }
    }

    /// Other threads overwrite parts of what the driver has written.
    fn forge(&mut self, parts: &mut [Part<'_>]) {
        let words = self.input.byte() % (MOST_FORGED + 1);
        for _ in 0..words {
            let (part, at, value) = (self.input.byte(), self.input.short(), self.input.word());
            let number = usize::from(part) % parts.len().max(1);
            // SECURITY.md, "Residual risks": a new client's handle is known from an output alone,
            // and can be forged so that another tenant's client looks like an own one.
            if FOREIGN.contains(&value) {
                continue;
            }
            if let Some(part) = parts.get_mut(number) {
                put_u32(part.bytes, usize::from(at), value);
            }
        }
    }
}

impl Host for Program<'_> {
    fn forward_on(&mut self, _: FileId, request: u32, parts: &mut [Part<'_>]) -> Returned {
        self.forward(request, parts, Route::Caller)
    }

    /// They have no descriptors, so nothing shows anything.
    fn end_mappings(&mut self, _: FileId) {}

    /// Nothing that is looked at depends on it.
    fn uptime_s(&self) -> u64 {
        1
    }

    fn tables(&self) -> &'static Tables {
        self.tables
    }

    fn gpu_by_uuid(&self, uuid: &[u8; 16]) -> Option<GpuId> {
        let known = |gpu: &u32| uuid_of(*gpu) == *uuid;
        GPUS.into_iter().find(known).map(GpuId)
    }

    fn gpu_by_id(&self, id: u32) -> Option<GpuId> {
        GPUS.into_iter().find(|gpu| id_of(*gpu) == id).map(GpuId)
    }

    /// As many as the tenant could have; the size that the program gives says how many there is
    /// room for.
    fn card(&self, number: usize) -> Option<Card> {
        (number < GPUS.len()).then_some([1; card_info::SIZE])
    }

    fn accounting<R>(&mut self, work: impl FnOnce(&mut Accounting) -> R) -> R {
        work(&mut self.accounting)
    }
}

impl Call for Program<'_> {
    type Held = Session;

    /// These programs have no descriptors.
    fn hold(&mut self, _: i32) -> Option<Session> {
        None
    }

    fn read(&mut self, from: UserAddr, into: &mut [u8]) -> Result<(), Errno> {
        if from.0 == ARGUMENT {
            // Unless the program itself has put something else there.
            assert!(!self.argument_read, "the argument is read twice");
            self.argument_read = true;
        }
        if BAD.contains(&from.0) || from.0 >> 63 != 0 {
            return Err(Errno::EFAULT);
        }
        let given = self.argument.take_if(|_| from.0 == ARGUMENT);
        match (given, &mut self.recorded) {
            (Some(argument), _) => {
                let there = into.len().min(argument.len());
                into[there..].fill(0);
                into[..there].copy_from_slice(&argument[..there]);
            }
            (None, Some(recorded)) => recorded.look(from, into),
            (None, None) => self.input.fill(into),
        }
        if into.windows(8).any(|word| word == ARGUMENT.to_le_bytes()) {
            self.argument_read = false;
        }
        Ok(())
    }

    fn write(&mut self, to: UserAddr, from: &[u8]) -> Result<(), Errno> {
        if let Some(recorded) = &mut self.recorded {
            let offset = usize::try_from(to.0.wrapping_sub(ARGUMENT)).unwrap_or(usize::MAX);
            if offset < recorded.argument.len() {
                recorded.told.resize(offset + from.len(), 0);
                recorded.told[offset..].copy_from_slice(from);
            }
        }
        if BAD.contains(&to.0) || to.0 >> 63 != 0 {
            Err(Errno::EFAULT)
        } else {
            Ok(())
        }
    }

    fn unmap(&mut self, _: u64, _: u64) {
        // Nothing is mapped here.
    }

    /// The first byte says what the driver does: bits 0 and 1, whether it is reached (3: not); bit
    /// 2, other threads overwrite the answer; bits 3 and 4, another event comes before or after its
    /// work.
    fn forward(&mut self, request: u32, parts: &mut [Part<'_>], _route: Route) -> Returned {
        let how = match &mut self.recorded {
            Some(recorded) => {
                recorded.log.byte(0);
                0
            }
            None => self.input.byte(),
        };
        if how & 3 == 3 {
            return Err(Errno::EAGAIN);
        }
        if how & 8 != 0 {
            self.interrupt();
        }
        check_pointers(parts);
        let Some(node) = self.nodes.get(self.at).copied() else {
            return Err(Errno::EINVAL);
        };
        let caller = Caller {
            file: node.file,
            control: node.role == Role::Control,
        };
        let returned = if node.role == Role::Uvm {
            whole(parts, |parts| {
                if let Some(part) = parts.first_mut() {
                    self.driver.uvm(caller, request, part.bytes);
                }
            });
            0
        } else {
            let nr = request.to_le_bytes()[0];
            no_foreign_client(nr, parts);
            let mut bytes: Vec<&mut [u8]> = parts.iter_mut().map(|part| &mut *part.bytes).collect();
            self.driver.escape(caller, nr, &mut bytes)
        };
        if how & 4 != 0 {
            self.forge(parts);
        }
        if how & 16 != 0 {
            self.interrupt();
        }
        Ok(returned)
    }

    fn process(&self) -> ProcessId {
        ProcessId(self.nodes.get(self.at).map_or(0, |node| node.process))
    }

    fn process_by_number(&self, number: u32) -> Option<ProcessId> {
        i32::try_from(number)
            .ok()
            .filter(|number| *number < 1000)
            .map(ProcessId)
    }
}

/// How UVM names a GPU.
pub fn uuid_of(gpu: u32) -> [u8; 16] {
    let mut uuid = *b"GPU-fuzz-0000000";
    uuid[15] = b'0' + u8::try_from(gpu % 10).unwrap_or(0);
    uuid
}

/// How RM names a GPU.
pub fn id_of(gpu: u32) -> u32 {
    0x100 * gpu
}

/// A pointer to a part stands whole in an earlier part.
fn check_pointers(parts: &[Part<'_>]) {
    for (number, part) in parts.iter().enumerate() {
        let stands = match part.pointer {
            None => number == 0,
            Some(at) => {
                let holder = parts.get(at.part).filter(|_| at.part < number);
                holder.is_some_and(|holder| at.offset + 8 <= holder.bytes.len())
            }
        };
        assert!(stands, "part {number} is pointed to from nowhere");
    }
}

/// The clients that escapes name, by offset (nvos.h, nv-ioctl.h).
fn no_foreign_client(nr: u8, parts: &[Part<'_>]) {
    let places: &[usize] = match nr {
        // RM_ALLOC, RM_ALLOC_MEMORY, RM_FREE, RM_CONTROL, RM_SHARE, VID_HEAP_CONTROL,
        // RM_MAP_MEMORY, RM_UNMAP_MEMORY, UPDATE_DEVICE_MAPPING_INFO, ALLOC_OS_EVENT, FREE_OS_EVENT
        0x27 | 0x29 | 0x2a | 0x35 | 0x4a | 0x4e | 0x4f | 0x5e | 206 | 207 => &[0],
        0x34 => &[0, 12],
        _ => &[],
    };
    let Some(outer) = parts.first() else {
        return;
    };
    for at in places {
        assert!(
            !FOREIGN.contains(&u32_at(outer.bytes, *at)),
            "escape {nr:#x} names another tenant's client at {at}"
        );
    }
    // In parameters of classes: NV0080 hClientShare and hTargetClient, NV0005 hParentClient, NV83DE
    // hAppClient.
    if let (0x2b, Some(params)) = (nr, parts.get(1).filter(|part| part.bytes.len() >= 4)) {
        let class = u32_at(outer.bytes, 12);
        let places: &[usize] = match class {
            0x80 => &[4, 8],
            0x5 | 0x79 => &[0],
            0x83de => &[4],
            _ => &[],
        };
        for at in places {
            assert!(
                !FOREIGN.contains(&u32_at(params.bytes, *at)),
                "class {class:#x} names another tenant's client at {at}"
            );
        }
    }
    // A policy that names the client which gets the use of an object: RM_SHARE, and control 0xd04.
    let share = |bytes: &[u8], at: usize| {
        let client = bytes.get(at + 8..at + 10) == Some(&[3, 0]);
        assert!(
            !client || !FOREIGN.contains(&u32_at(bytes, at)),
            "an object is shared with another tenant's client"
        );
    };
    match (nr, parts.get(1)) {
        (0x35, _) => share(outer.bytes, 8),
        (0x2a, Some(params)) if u32_at(outer.bytes, 8) == 0xd04 => share(params.bytes, 0),
        _ => {}
    }
}
