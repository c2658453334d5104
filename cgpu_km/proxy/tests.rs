// SPDX-License-Identifier: GPL-2.0
//! Calls from end to end against a driver that is a closure: what is forwarded, what is not, and
//! what the program sees.

mod answers;
mod capabilities;
mod client_use;
mod clients;
mod crashes;
mod doorbell;
mod events;
mod exports;
mod handles;
mod heap;
mod preemption;
mod profilers;
mod shown;
mod surfaces;
mod uvm_channels;
mod uvm_maps;

use super::*;
use crate::{
    nvidia::{
        handle::ClientHandle,
        nvos::Card,
        rmapi::GET_HANDLE_INFO,
        status::NvStatus,
        tables::Tables,
        version::Branch,
        wire::Field, //
    },
    policy::{
        Accounting,
        AuditRecord,
        CallKind,
        FileId,
        GpuId,
        ProcessId,
        Reason, //
    },
    store::Exhausted,
    whole::whole, //
};
use proptest::prelude::*;
use std::{
    cell::RefCell,
    collections::{
        BTreeMap,
        BTreeSet, //
    },
    ops::Range,
    rc::Rc, //
};
mod believed;
mod lists;
mod managed;
mod storm;
mod tools;

const GPU: GpuId = GpuId(1);
const OTHER_GPU: GpuId = GpuId(GPU.0 + 1);
/// The id of [`GPU`], in the middle of its host's.
const OWN: u32 = 0x2900;
const UUID: [u8; 16] = *b"GPU-under-test-1";
const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// The number that a held file has where the driver is called.
const ELSEWHERE: i32 = 17;

/// The driver's input in one call: request, route, and the bytes of every part.
#[derive(Clone, Debug)]
struct Seen {
    request: u32,
    route: Route,
    /// The file, if it was not that of the call.
    on: Option<FileId>,
    parts: Vec<Vec<u8>>,
}

type DriverStub = Box<dyn FnMut(&mut [Part<'_>]) -> i32>;

/// A program's memory, a tenant, and a driver.
struct Program {
    memory: BTreeMap<u64, Vec<u8>>,
    accounting: Accounting,
    seen: Vec<Seen>,
    /// An address at which a file shows an object.
    shown_at: Option<u64>,
    driver: DriverStub,
    /// No call reaches the driver: the caller is killed while it waits.
    is_killed: bool,
    /// A status that another thread writes over a control's, where the program's memory has it.
    forged: Option<NvStatus>,
    /// Ranges that were taken out of the program's memory: address and length.
    unmapped: Vec<(u64, u64)>,
    branch: Branch,
    /// Sessions behind the program's descriptors, as far as the files are the tenant's.
    descriptors: BTreeMap<i32, Session>,
    /// The files that were held in calls of the driver.
    held: Vec<FileId>,
    /// The clients that there are, if the module chooses their handles.
    clients: Option<Rc<RefCell<BTreeSet<u32>>>>,
    /// The number of the next handle that it chooses.
    next_client: u32,
    /// The class that the driver says memory for errors is of; 0: there is none.
    class_of_notes: u32,
    /// The driver's words about the tenant's GPUs.
    cards: Vec<Card>,
    /// The time.
    uptime_s: u64,
    /// Whether there is a doorbell that is nobody's.
    has_doorbell: bool,
    /// For how many channels more the scheduler has room.
    channel_room: u32,
    /// Calls that the driver has refused.
    refused: u32,
    /// A block of memory that cannot be written.
    read_only: Option<u64>,
    /// The files that are to show it.
    shown: Vec<FileId>,
    /// The files of which what they show was ended, and how many calls had reached the driver then.
    ended: Vec<(FileId, usize)>,
}

impl Program {
    /// A tenant with `limit` bytes on [`GPU`] and a driver that accepts everything unchanged.
    fn new(limit: u64) -> Self {
        let mut accounting = Accounting::new(0);
        accounting.add_share(GPU, limit).expect("memory");
        Self {
            memory: BTreeMap::new(),
            accounting,
            seen: Vec::new(),
            shown_at: None,
            driver: Box::new(|_| 0),
            is_killed: false,
            forged: None,
            unmapped: Vec::new(),
            // The branch of the recordings.
            branch: Branch::R580,
            descriptors: BTreeMap::new(),
            held: Vec::new(),
            clients: None,
            next_client: 0,
            class_of_notes: 0x40,
            cards: Vec::new(),
            uptime_s: 1000,
            has_doorbell: false,
            channel_room: u32::MAX,
            refused: 0,
            read_only: None,
            shown: Vec::new(),
            ended: Vec::new(),
        }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) -> UserAddr {
        self.memory.insert(at, bytes.to_vec());
        UserAddr(at)
    }

    fn at(&self, at: u64) -> &[u8] {
        &self.memory[&at]
    }

    /// The block that holds `len` bytes at `at`, and the offset in it.
    fn block(&self, at: u64, len: usize) -> Result<(u64, usize), Errno> {
        let (&base, block) = self.memory.range(..=at).next_back().ok_or(Errno::EFAULT)?;
        let offset = usize::try_from(at - base).map_err(|_| Errno::EFAULT)?;
        match offset.checked_add(len) {
            Some(end) if end <= block.len() => Ok((base, offset)),
            _ => Err(Errno::EFAULT),
        }
    }
}

impl Host for Program {
    fn forward_on(&mut self, file: FileId, request: u32, parts: &mut [Part<'_>]) -> Returned {
        assert!(file == UVM.file || file == CONTROL.file);
        let at = self.seen.len();
        let returned = self.forward(request, parts, Route::Caller);
        self.seen[at].on = Some(file);
        returned
    }

    fn end_mappings(&mut self, file: FileId) {
        self.ended.push((file, self.seen.len()));
    }

    fn has_doorbell(&self, gpu: GpuId) -> bool {
        self.has_doorbell && gpu == GPU
    }

    fn expect_channel(&mut self, gpu: GpuId) -> Result<(), Exhausted> {
        assert_eq!(gpu, GPU);
        self.channel_room = self.channel_room.checked_sub(1).ok_or(Exhausted)?;
        Ok(())
    }

    fn uptime_s(&self) -> u64 {
        self.uptime_s
    }

    fn tables(&self) -> &'static Tables {
        Tables::of(self.branch).expect("a known branch")
    }

    fn gpu_by_uuid(&self, uuid: &[u8; 16]) -> Option<GpuId> {
        (*uuid == UUID).then_some(GPU)
    }

    fn gpu_by_id(&self, id: u32) -> Option<GpuId> {
        (id == OWN).then_some(GPU)
    }

    fn card(&self, number: usize) -> Option<Card> {
        self.cards.get(number).copied()
    }

    fn accounting<R>(&mut self, work: impl FnOnce(&mut Accounting) -> R) -> R {
        work(&mut self.accounting)
    }
}

impl Call for Program {
    type Held = Session;

    fn while_pinned<R>(&mut self, at: Range<u64>, work: impl FnOnce(&mut Self) -> R) -> Option<R> {
        let shown = self.shown_at.filter(|shown| at.contains(shown));
        shown.is_none().then(|| work(self))
    }

    fn hold(&mut self, descriptor: i32) -> Option<Session> {
        self.descriptors.get(&descriptor).copied()
    }

    fn forward_holding(
        &mut self,
        request: u32,
        parts: &mut [Part<'_>],
        file: FileAt<'_, Session>,
    ) -> Returned {
        self.held.push(file.file.file);
        let number = Field::<i32>::at(file.offset);
        let own = number.get(parts[file.part].bytes).expect("inside");
        number
            .set(parts[file.part].bytes, ELSEWHERE)
            .expect("inside");
        let returned = self.forward(request, parts, Route::Caller);
        number.set(parts[file.part].bytes, own).expect("inside");
        returned
    }

    fn read(&mut self, from: UserAddr, into: &mut [u8]) -> Result<(), Errno> {
        let (base, offset) = self.block(from.0, into.len())?;
        into.copy_from_slice(&self.memory[&base][offset..offset + into.len()]);
        Ok(())
    }

    fn write(&mut self, to: UserAddr, from: &[u8]) -> Result<(), Errno> {
        let (base, offset) = self.block(to.0, from.len())?;
        if self.read_only == Some(base) {
            return Err(Errno::EFAULT);
        }
        let block = self.memory.get_mut(&base).expect("found above");
        block[offset..offset + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn forward(&mut self, request: u32, parts: &mut [Part<'_>], route: Route) -> Returned {
        if self.is_killed {
            return Err(Errno(4)); // EINTR
        }
        whole(parts, |parts| {
            if route == Route::Unseen && get32(parts[0].bytes, 8) == GET_HANDLE_INFO.0 {
                let told = self.class_of_notes;
                let status = if told == 0 {
                    NvStatus::NV_ERR_OBJECT_NOT_FOUND.0
                } else {
                    0
                };
                put32(parts[0].bytes, 28, status);
                put32(parts[1].bytes, 8, told);
                return Ok(0);
            }
            self.seen.push(Seen {
                request,
                route,
                on: None,
                parts: parts.iter().map(|p| p.bytes.to_vec()).collect(),
            });
            let returned = (self.driver)(parts);
            let is_seen = matches!(route, Route::Caller | Route::Worker(_));
            let forged = self
                .forged
                .filter(|_| is_seen && request == NV_ESC_RM_CONTROL);
            if let Some(forged) = forged {
                put32(parts[0].bytes, 28, forged.0);
            }
            Ok(returned)
        })
    }

    fn unmap(&mut self, base: u64, length: u64) {
        // As munmap(): the driver closes the mapping, and tells.
        self.unmapped.push((base, length));
        self.accounting.unmap_managed(UVM.file, base, length);
    }

    fn unused_client(&mut self) -> Result<Option<ClientHandle>, Errno> {
        self.next_client += 1;
        let chosen = ClientHandle::chosen(self.next_client);
        Ok(self.clients.is_some().then_some(chosen))
    }

    fn take_back_client(&mut self, client: ClientHandle) {
        self.next_client = client.0 - ClientHandle::BASE - 1;
    }

    fn is_client(&mut self, client: ClientHandle) -> Result<bool, Errno> {
        let clients = self.clients.as_ref().ok_or(Errno::EINVAL)?.borrow();
        Ok(clients.contains(&client.0))
    }

    fn refused_by_driver(&mut self) {
        self.refused += 1;
    }

    fn show_doorbell(&mut self, file: &Session) {
        self.shown.push(file.file);
    }

    fn process(&self) -> ProcessId {
        ProcessId(77)
    }

    fn process_by_number(&self, number: u32) -> Option<ProcessId> {
        // In a namespace of its own, this program is number 7.
        (number < 1000).then(|| ProcessId(i32::try_from(number).expect("small") + 70))
    }
}

const CONTROL: Session = Session {
    file: FileId(1),
    role: Role::Control,
};
const UVM: Session = Session {
    file: FileId(2),
    role: Role::Uvm,
};
const GPU_NODE: Session = Session {
    file: FileId(3),
    role: Role::Gpu(GPU),
};
const NV_ESC_RM_ALLOC: u32 = 0xc030_462b;
const NV_ESC_RM_FREE: u32 = 0xc010_4629;
const NV_ESC_RM_CONTROL: u32 = 0xc020_462a;
const NV_ESC_XFER: u32 = 0xc010_46d3;
const CLIENT: u32 = 0xc1d0_0018;
const DEVICE: u32 = 0x5c00_0002;
const SUBDEVICE: u32 = 0x5c00_0003;

const OUTER: u64 = 0x1000;
const PARAMS: u64 = 0x10_0000;

/// The calls that were noted.
fn noted(program: &Program) -> Vec<(CallKind, u32, Reason)> {
    let each = program.accounting.noted_calls(GPU);
    each.map(|record: &AuditRecord| (record.call.kind, record.call.number, record.call.reason))
        .collect()
}

fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
fn put64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
fn get32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
fn get64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A struct of so many bytes: 32-bit numbers by their offsets, and zeros.
fn words(size: usize, numbers: &[(usize, u32)]) -> Vec<u8> {
    let mut bytes = vec![0; size];
    for &(at, number) in numbers {
        put32(&mut bytes, at, number);
    }
    bytes
}

/// An NVOS64 (offsets from nvos.h).
fn nvos64(root: u32, parent: u32, new: u32, class: u32, params: u64) -> Vec<u8> {
    let mut outer = words(48, &[(0, root), (4, parent), (8, new), (12, class)]);
    put64(&mut outer, 16, params);
    outer
}

/// An NV_MEMORY_ALLOCATION_PARAMS of `size` bytes of video memory, as CUDA fills it in.
fn memory_params(size: u64) -> Vec<u8> {
    let mut params = words(128, &[(8, 0x1c101), (24, 0x1800_0000)]);
    put64(&mut params, 64, size);
    put64(&mut params, 72, 0x20_0000);
    params
}

impl Program {
    /// A call with a struct at [`OUTER`].
    fn try_call(&mut self, session: &Session, code: u32, bytes: &[u8]) -> Returned {
        self.put(OUTER, bytes);
        ioctl(self, session, code, UserAddr(OUTER))
    }

    /// The same where `ioctl` succeeds; the status, which is at an offset of the struct then.
    #[track_caller]
    fn call(&mut self, session: &Session, code: u32, bytes: &[u8], status: usize) -> u32 {
        assert_eq!(self.try_call(session, code, bytes), Ok(0));
        get32(self.at(OUTER), status)
    }

    /// Frees an object of [`CLIENT`]; the status.
    #[track_caller]
    fn free(&mut self, object: u32) -> u32 {
        let outer = words(16, &[(0, CLIENT), (8, object)]);
        self.call(&CONTROL, NV_ESC_RM_FREE, &outer, 12)
    }

    fn alloc(&mut self, outer: &[u8], params: &[u8]) -> u32 {
        self.put(PARAMS, params);
        self.call(&CONTROL, NV_ESC_RM_ALLOC, outer, 40)
    }

    /// A client with device and subdevice.
    fn with_subdevice(limit: u64) -> Self {
        let mut program = Self::new(limit);
        program.driver = Box::new(|parts| {
            if get32(parts[0].bytes, 12) == 0 {
                put32(parts[0].bytes, 8, CLIENT);
            }
            0
        });
        assert_eq!(program.alloc(&nvos64(0, 0, 0, 0, 0), &[]), 0);
        let device = words(56, &[(0, GPU.0)]);
        let made = program.alloc(&nvos64(CLIENT, CLIENT, DEVICE, 0x80, PARAMS), &device);
        assert_eq!(made, 0);
        assert_eq!(
            program.seen.last().expect("forwarded").route,
            Route::Kernel(GPU)
        );
        assert_eq!(
            program.alloc(&nvos64(CLIENT, DEVICE, SUBDEVICE, 0x2080, PARAMS), &[0; 4]),
            0
        );
        program.seen.clear();
        program
    }

    /// A descriptor of a GPU file of the tenant's; the file.
    fn gpu_file(&mut self, descriptor: u32) -> FileId {
        let file = FileId(u64::from(descriptor));
        let role = Role::Gpu(GPU);
        let number = i32::try_from(descriptor).expect("small");
        self.descriptors.insert(number, Session { file, role });
        file
    }

    fn memory(&mut self, handle: u32, size: u64) -> u32 {
        let outer = nvos64(CLIENT, DEVICE, handle, 0x40, PARAMS);
        self.alloc(&outer, &memory_params(size))
    }

    fn used(&self) -> u64 {
        self.accounting.share(GPU).expect("added").used
    }
}

#[test]
fn memory_is_charged_with_what_the_driver_took() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|parts| {
        put64(parts[1].bytes, 64, 6 * MIB);
        0
    });
    assert_eq!(program.memory(0x5c00_0010, 0x42_0000), 0);
    assert_eq!(program.used(), 6 * MIB);
    assert_eq!(get64(program.at(PARAMS), 64), 6 * MIB);
}

#[test]
fn an_output_cannot_lower_a_charge() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|parts| {
        put64(parts[1].bytes, 64, 4096);
        0
    });
    assert_eq!(program.memory(0x5c00_0010, 64 * MIB), 0);
    assert_eq!(program.used(), 64 * MIB);
}

#[test]
fn memory_over_the_limit_gets_no_memory_status() {
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(program.memory(0x5c00_0010, GIB - 2 * MIB), 0);
    program.seen.clear();
    let before = memory_params(4 * MIB);
    assert_eq!(
        program.memory(0x5c00_0011, 4 * MIB),
        NvStatus::NV_ERR_NO_MEMORY.0
    );
    assert!(program.seen.is_empty(), "the driver was asked");
    assert_eq!(program.at(PARAMS), before, "parameters stay untouched");
    assert_eq!(
        program.memory(0x5c00_0012, 2 * MIB),
        0,
        "the rest is still there"
    );
    assert_eq!(program.used(), GIB);
}

#[test]
fn unnamed_handles_are_chosen_before_the_call() {
    const NV_ESC_RM_DUP_OBJECT: u32 = 0xc01c_4634;
    const NV_ESC_RM_VID_HEAP_CONTROL: u32 = 0xc0b8_464a;
    const PROVIDED: u32 = 0x4000;
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(program.memory(0, 2 * MIB), 0);
    assert_eq!(get32(&program.seen[0].parts[0], 8), 0xcaf8_0000);
    assert_eq!(get32(program.at(OUTER), 8), 0xcaf8_0000);

    let outer = words(
        28,
        &[(0, CLIENT), (4, DEVICE), (12, CLIENT), (16, 0xcaf8_0000)],
    );
    assert_eq!(
        program.try_call(&CONTROL, NV_ESC_RM_DUP_OBJECT, &outer),
        Ok(0)
    );
    assert_eq!(get32(&program.seen[1].parts[0], 8), 0xcaf8_0001);
    assert_eq!(get32(program.at(OUTER), 8), 0xcaf8_0001);

    // Here a flag says whether there is a handle; what is in its place otherwise says nothing.
    let mut outer = words(184, &[(0, CLIENT), (4, DEVICE), (8, 2), (44, 0xcaf8_0000)]);
    put64(&mut outer, 88, 2 * MIB);
    assert_eq!(
        program.try_call(&CONTROL, NV_ESC_RM_VID_HEAP_CONTROL, &outer),
        Ok(0)
    );
    assert_eq!(get32(&program.seen[2].parts[0], 44), 0xcaf8_0002);
    assert_eq!(get32(&program.seen[2].parts[0], 52) & PROVIDED, PROVIDED);
    assert_eq!(get32(program.at(OUTER), 44), 0xcaf8_0002);
    assert_eq!(get32(program.at(OUTER), 52) & PROVIDED, 0);

    // After a refusal by the driver the program finds its parameters as they were.
    program.driver = Box::new(|parts| {
        if parts[0].bytes.len() == 48 {
            put32(parts[0].bytes, 40, NvStatus::NV_ERR_NO_MEMORY.0);
        }
        0
    });
    assert_eq!(program.memory(0, 2 * MIB), NvStatus::NV_ERR_NO_MEMORY.0);
    assert_eq!(get32(program.at(OUTER), 8), 0);
}

#[test]
fn memory_that_the_driver_refuses_is_not_charged() {
    let mut program = Program::with_subdevice(GIB);
    program.driver = Box::new(|parts| {
        if parts[0].bytes.len() == 48 {
            put32(parts[0].bytes, 40, NvStatus::NV_ERR_NO_MEMORY.0);
        }
        0
    });
    assert_eq!(
        program.memory(0x5c00_0010, 64 * MIB),
        NvStatus::NV_ERR_NO_MEMORY.0
    );
    assert_eq!(program.used(), 0);
    program.driver = Box::new(|parts| if parts[0].bytes.len() == 48 { -22 } else { 0 });
    program.put(PARAMS, &memory_params(64 * MIB));
    assert_eq!(
        program.try_call(
            &CONTROL,
            NV_ESC_RM_ALLOC,
            &nvos64(CLIENT, DEVICE, 0x5c00_0010, 0x40, PARAMS)
        ),
        Ok(-22)
    );
    assert_eq!(program.used(), 0);
}

#[test]
fn free_credits_object_and_children() {
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(program.memory(0x5c00_0010, 64 * MIB), 0);
    assert_eq!(program.memory(0x5c00_0011, 32 * MIB), 0);
    assert_eq!(program.free(0x5c00_0010), 0);
    assert_eq!(program.used(), 32 * MIB);
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 12, NvStatus::NV_ERR_INVALID_STATE.0);
        0
    });
    assert_eq!(program.free(DEVICE), NvStatus::NV_ERR_INVALID_STATE.0);
    assert_eq!(program.used(), 32 * MIB, "the driver did not free it");
    program.driver = Box::new(|_| 0);
    assert_eq!(program.free(DEVICE), 0);
    assert_eq!(program.used(), 0);
}

#[test]
fn content_of_an_envelope_is_checked() {
    let mut program = Program::with_subdevice(GIB);
    program.put(OUTER, &nvos64(CLIENT, DEVICE, 0x5c00_0010, 0x40, PARAMS));
    program.put(PARAMS, &memory_params(2 * GIB));
    program.driver = Box::new(|parts| {
        put32(parts[0].bytes, 40, 0);
        0
    });
    let mut envelope = words(16, &[(0, 0x2b), (4, 48)]);
    put64(&mut envelope, 8, OUTER);
    program.put(0x2000, &envelope);
    assert_eq!(
        ioctl(&mut program, &CONTROL, NV_ESC_XFER, UserAddr(0x2000)),
        Ok(0)
    );
    assert_eq!(get32(program.at(OUTER), 40), NvStatus::NV_ERR_NO_MEMORY.0);

    put64(
        &mut program.memory.get_mut(&PARAMS).expect("put")[..],
        64,
        2 * MIB,
    );
    assert_eq!(
        ioctl(&mut program, &CONTROL, NV_ESC_XFER, UserAddr(0x2000)),
        Ok(0)
    );
    let seen = program.seen.last().expect("forwarded");
    assert_eq!(seen.request, NV_ESC_RM_ALLOC, "the driver sees no envelope");
    assert_eq!(program.used(), 2 * MIB);
}

#[test]
fn an_envelope_in_an_envelope_is_refused() {
    let mut program = Program::with_subdevice(GIB);
    let mut envelope = words(16, &[(0, 211), (4, 16)]);
    put64(&mut envelope, 8, 0x2000);
    program.put(0x2000, &envelope);
    assert_eq!(
        ioctl(&mut program, &CONTROL, NV_ESC_XFER, UserAddr(0x2000)),
        Err(Errno::EINVAL)
    );
    assert!(program.seen.is_empty());
}

#[test]
fn unlisted_calls_are_refused_as_the_driver_does() {
    let mut program = Program::with_subdevice(GIB);
    // NV01_MEMORY_LOCAL_PHYSICAL: the whole frame buffer.
    assert_eq!(
        program.alloc(&nvos64(CLIENT, DEVICE, 0x5c00_0010, 0xc2, PARAMS), &[0; 64]),
        NvStatus::NV_ERR_INVALID_CLASS.0
    );
    // NV_ESC_RM_ACCESS_REGISTRY.
    assert_eq!(
        program.try_call(&CONTROL, 0xc048_464d, &[0; 72]),
        Err(Errno::EINVAL)
    );
    // UVM_TOOLS_READ_PROCESS_MEMORY.
    assert_eq!(program.try_call(&UVM, 62, &[0; 64]), Err(Errno::EINVAL));
    assert!(program.seen.is_empty());
}

/// Runs a control on the subdevice and returns its status.
fn control(program: &mut Program, client: u32, cmd: u32, params: &[u8]) -> u32 {
    control_of(program, client, SUBDEVICE, cmd, params)
}

/// Runs a control on any object.
fn control_of(program: &mut Program, client: u32, object: u32, cmd: u32, params: &[u8]) -> u32 {
    let mut outer = words(
        32,
        &[
            (0, client),
            (4, object),
            (8, cmd),
            (24, u32::try_from(params.len()).expect("small")),
        ],
    );
    put64(&mut outer, 16, if params.is_empty() { 0 } else { PARAMS });
    program.put(PARAMS, params);
    program.call(&CONTROL, NV_ESC_RM_CONTROL, &outer, 28)
}

#[test]
fn stopping_other_tenants_channels_is_refused() {
    let mut program = Program::with_subdevice(GIB);
    // NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
    assert_eq!(
        control(&mut program, CLIENT, 0x2080_110b, &[0; 536]),
        NvStatus::NV_ERR_NOT_SUPPORTED.0
    );
    assert!(program.seen.is_empty());
}

#[test]
fn another_tenants_client_is_refused() {
    let mut program = Program::with_subdevice(GIB);
    assert_eq!(
        control(&mut program, CLIENT + 1, 0x2080_1303, &[0; 1028]),
        NvStatus::NV_ERR_INVALID_CLIENT.0
    );
    assert!(program.seen.is_empty());
}

#[test]
fn a_control_of_the_wrong_size_is_refused() {
    let mut program = Program::with_subdevice(GIB);
    // As large as 550 has it, a little less, a little more.
    for size in [444, 1024, 1032, 4096] {
        assert_eq!(
            control(&mut program, CLIENT, 0x2080_1303, &vec![0; size]),
            NvStatus::NV_ERR_INVALID_ARGUMENT.0,
            "{size}"
        );
    }
    assert!(program.seen.is_empty());
}

#[test]
fn parameters_in_another_encoding_are_refused() {
    let mut program = Program::with_subdevice(GIB);
    let mut outer = nvos64(CLIENT, DEVICE, 0x5c00_0010, 0x40, PARAMS);
    put32(&mut outer, 36, 1);
    assert_eq!(
        program.alloc(&outer, &memory_params(2 * MIB)),
        NvStatus::NV_ERR_INVALID_ARGUMENT.0
    );
    for flag in [1, 2, 4] {
        let mut outer = words(
            32,
            &[
                (0, CLIENT),
                (4, SUBDEVICE),
                (8, 0x2080_1303),
                (12, flag),
                (24, 1028),
            ],
        );
        put64(&mut outer, 16, PARAMS);
        program.put(PARAMS, &[0; 1028]);
        let status = program.call(&CONTROL, NV_ESC_RM_CONTROL, &outer, 28);
        assert_eq!(status, NvStatus::NV_ERR_INVALID_ARGUMENT.0);
    }
    assert!(program.seen.is_empty());
    assert_eq!(program.used(), 0);
}

#[test]
fn refused_call_leaves_the_list() {
    let mut program = Program::with_subdevice(GIB);
    let mut params = words(32, &[(0, 2)]);
    put64(&mut params, 8, 0x20_0000);
    program.put(0x20_0000, &[7; 16]);
    program.driver = Box::new(|parts| {
        parts[2].bytes.fill(9);
        put32(parts[0].bytes, 28, NvStatus::NV_ERR_NOT_SUPPORTED.0);
        0
    });
    assert_eq!(
        control(&mut program, CLIENT, 0x2080_1201, &params),
        NvStatus::NV_ERR_NOT_SUPPORTED.0
    );
    assert_eq!(program.at(0x20_0000), [7; 16]);
}

#[test]
fn report_of_free_memory_fits_a_told_size() {
    let mut program = Program::with_subdevice(2 * GIB);
    assert_eq!(program.memory(0x5c00_0010, GIB / 2), 0);
    program.driver = Box::new(|parts| {
        for i in 0..3 {
            put32(parts[1].bytes, 4 + 8 * i + 4, 147_221_504);
        }
        0
    });
    let ask = |program: &mut Program, indices: &[u32]| {
        let count = u32::try_from(indices.len()).expect("few");
        let mut params = words(1028, &[(0, count)]);
        for (i, index) in indices.iter().enumerate() {
            put32(&mut params, 4 + 8 * i, *index);
        }
        assert_eq!(control(program, CLIENT, 0x2080_1303, &params), 0);
        // In half GiB.
        let told = program.at(PARAMS);
        let told = (0..indices.len()).map(|i| get32(told, 8 + 8 * i) >> 19);
        told.collect::<Vec<_>>()
    };
    let limit = |program: &mut Program, gib| {
        let limit = program.accounting.set_limit(GPU, gib * GIB);
        assert!(limit.is_ok());
    };
    const CUDA: [u32; 2] = [0x16, 0x09];
    const SMI: [u32; 3] = [0x16, 0x08, 0x09];
    // It has not asked for the size yet.
    limit(&mut program, 3);
    assert_eq!(ask(&mut program, &CUDA), [5, 6]);
    limit(&mut program, 2);
    assert_eq!(ask(&mut program, &[0x08]), [4]);
    assert_eq!(ask(&mut program, &CUDA), [3, 4]);
    limit(&mut program, 4);
    assert_eq!(ask(&mut program, &CUDA), [3, 4]);
    // A program that asks for all at once is told all anew, and counts as knowing none.
    assert_eq!(ask(&mut program, &SMI), [7, 8, 8]);
    assert_eq!(ask(&mut program, &CUDA), [3, 4]);
    limit(&mut program, 1);
    assert_eq!(ask(&mut program, &CUDA), [1, 2]);
    limit(&mut program, 4);
    assert_eq!(program.memory(0x5c00_0011, 2 * GIB), 0);
    assert_eq!(ask(&mut program, &CUDA), [0, 4]);
    assert_eq!(ask(&mut program, &[0x08]), [8]);
    assert_eq!(ask(&mut program, &CUDA), [3, 8]);
}

#[test]
fn lists_behind_parameters_are_copied_too() {
    // NV2080_CTRL_CMD_GR_GET_INFO: a count at 0, a list of pairs behind the pointer at 8.
    let mut program = Program::with_subdevice(GIB);
    let mut params = words(32, &[(0, 2)]);
    put64(&mut params, 8, 0x20_0000);
    program.put(0x20_0000, &[7; 16]);
    program.driver = Box::new(|parts| {
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[2].pointer, Some(PointerAt { part: 1, offset: 8 }));
        assert_eq!(parts[2].bytes, [7; 16]);
        parts[2].bytes.fill(9);
        0
    });
    assert_eq!(control(&mut program, CLIENT, 0x2080_1201, &params), 0);
    assert_eq!(program.at(0x20_0000), [9; 16]);
}

#[test]
fn uvm_shared_mode_is_set_unseen() {
    let mut program = Program::new(GIB);
    assert_eq!(program.try_call(&UVM, 0x3000_0001, &[0; 16]), Ok(0));
    assert_eq!(get64(&program.seen[0].parts[0], 0), 2);
    assert_eq!(get64(program.at(OUTER), 0), 0);
    let status = program.call(&UVM, 75, &[5, 0, 0, 0, 0, 0, 0, 0], 4);
    assert_eq!(status, 0x0001_0006);
    assert_eq!(program.seen.len(), 1, "answered without the driver");
}

#[test]
fn own_gpus_registration_runs_on_the_worker() {
    let mut program = Program::new(GIB);
    let mut params = vec![0; 40];
    params[..16].copy_from_slice(&UUID);
    assert_eq!(program.try_call(&UVM, 37, &params), Ok(0));
    assert_eq!(program.seen[0].route, Route::Worker(GPU));
    // Another GPU's does not reach the driver, which would open it.
    params[0] ^= 1;
    let status = program.call(&UVM, 37, &params, 36);
    assert_eq!(status, NvStatus::NV_ERR_GPU_UUID_NOT_FOUND.0);
    assert_eq!(program.seen.len(), 1);
}

proptest! {
    /// No call of a program makes the module panic, or is charged beyond the limit.
    #[test]
    fn any_call_is_survived(
        calls in prop::collection::vec(
            (
                0u8..3,
                any::<u32>(),
                0usize..40,
                prop::collection::vec(any::<u8>(), 0..600),
                prop::collection::vec(any::<u8>(), 0..600),
                any::<u32>(),
            ),
            1..40,
        )
    ) {
        let nrs = [
            0x27u32, 0x29, 0x2a, 0x2b, 0x34, 0x35, 0x4a, 0x4e, 0x4f, 0x5e, 200, 201, 206, 207, 210,
            211, 212, 214, 215, 217, 218,
        ];
        let sizes = [0u32, 4, 8, 16, 24, 28, 32, 48, 56, 72, 184, 560, 2304];
        let mut program = Program::with_subdevice(GIB);
        for (role, code, pick, outer, params, word) in calls {
            let session = match role {
                0 => CONTROL,
                1 => UVM,
                _ => GPU_NODE,
            };
            let request = match (role, pick) {
                (1, _) => code % 90,
                (_, 0) => code,
                _ => {
                    let size = sizes[usize::try_from(code).expect("64 bit") % sizes.len()];
                    0xc000_4600 | nrs[pick % nrs.len()] | size << 16
                }
            };
            let mut outer = outer;
            outer.resize(10_000, 0);
            if word % 2 == 0 {
                // Something that gets past the first checks.
                put32(&mut outer, 0, CLIENT);
                put32(&mut outer, 4, DEVICE);
                put64(&mut outer, 16, PARAMS);
            }
            let mut params = params;
            params.resize(70_000, 0);
            program.put(OUTER, &outer);
            program.put(PARAMS, &params);
            let status = word;
            program.driver = Box::new(move |parts| {
                for part in parts.iter_mut() {
                    for (i, byte) in part.bytes.iter_mut().enumerate().skip(64) {
                        *byte ^= u8::try_from(i % 251).expect("small");
                    }
                }
                if status % 7 == 0 { -22 } else { 0 }
            });
            let _ = ioctl(&mut program, &session, request, UserAddr(OUTER));
            let share = program.accounting.share(GPU).expect("added");
            prop_assert!(share.reserved == 0, "a reservation was left open");
        }
    }
}
