// SPDX-License-Identifier: GPL-2.0
//! Tests of the accounting as a whole.

mod audit;
mod behaviour;
mod boost;
mod channels;
mod exports;
mod failing;
mod managed;
mod maps;
mod model;
mod page_tables;
mod quotas;
mod races;
mod ranges;
mod rm_maps;
mod scale;
mod sharing;
mod smoke;
mod uvm_structs;

use super::{
    channel_limit::Engines,
    *, //
};
use crate::nvidia::{
    class::Kind,
    handle::{
        ClassId,
        ClientHandle,
        ObjectHandle, //
    },
    memory::PageSize, //
};
use proptest::test_runner::Config as ProptestConfig;

/// Arbitrary, as all numbers in these tests are that nothing is said about.
const GPU: GpuId = GpuId(3);
const OTHER_GPU: GpuId = GpuId(1);
const FILE: FileId = FileId(11);
const UVM: FileId = FileId(21);
const PROCESS: ProcessId = ProcessId(1000);
const CLIENT: ClientHandle = ClientHandle(0xc1d0_0019);
const DEVICE: ObjectHandle = ObjectHandle(0x5c00_0002);
const MIB: u64 = 1 << 20;

/// How many cases a property is tried with: as many as PROPTEST_CASES says, or `usual`. None is
/// written down for the next run; a failure prints its seed and its shrunk steps.
fn cases(usual: u32) -> ProptestConfig {
    let said = std::env::var("PROPTEST_CASES").ok();
    ProptestConfig {
        cases: said.and_then(|said| said.parse().ok()).unwrap_or(usual),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// The engine of compute, and one that copies (`NV2080_ENGINE_TYPE_GRAPHICS`, `_COPY2`).
const COMPUTE: u32 = 1;
const COPIES: u32 = 11;

/// A request without memory; tests change what they are about.
fn request(client: ClientHandle, parent: ObjectHandle, object: ObjectHandle) -> Alloc {
    let class = (ClassId(0x90f1), Kind::Inert);
    Alloc {
        page: PageSize::Huge,
        ..Alloc::of(FILE, PROCESS, (client, parent), object, class)
    }
}

/// A request for host memory.
fn host_request(
    client: ClientHandle,
    parent: ObjectHandle,
    object: ObjectHandle,
    bytes: u64,
) -> Alloc {
    Alloc {
        class: ClassId(0x3e),
        kind: Kind::SystemMemory,
        host: bytes,
        size: bytes,
        ..request(client, parent, object)
    }
}

fn client_request(file: FileId, process: ProcessId) -> Alloc {
    Alloc {
        file,
        process,
        class: ClassId(0x41),
        kind: Kind::Root,
        ..request(ClientHandle(0), ObjectHandle(0), ObjectHandle(0))
    }
}

fn device_request(client: ClientHandle, device: ObjectHandle, gpu: GpuId) -> Alloc {
    Alloc {
        class: ClassId(0x80),
        kind: Kind::Device,
        device_instance: Some(gpu.0),
        ..request(client, ObjectHandle(client.0), device)
    }
}

fn memory_request(
    client: ClientHandle,
    parent: ObjectHandle,
    object: ObjectHandle,
    bytes: u64,
) -> Alloc {
    Alloc {
        class: ClassId(0x40),
        kind: Kind::VideoMemory,
        bytes,
        size: bytes,
        ..request(client, parent, object)
    }
}

fn context_request(client: ClientHandle, parent: ObjectHandle, object: ObjectHandle) -> Alloc {
    Alloc {
        class: ClassId(0xa06c),
        kind: Kind::ChannelGroup,
        engine: Some(COMPUTE),
        ..request(client, parent, object)
    }
}

/// A channel in a group, or in none where its engine counts.
fn channel_request(
    client: ClientHandle,
    parent: ObjectHandle,
    object: ObjectHandle,
    engine: u32,
) -> Alloc {
    Alloc {
        class: ClassId(0xc86f),
        kind: Kind::Channel,
        engine: Some(engine),
        ..request(client, parent, object)
    }
}

/// The driver's answer that it has made an object.
fn done(object: ObjectHandle, bytes: u64) -> Option<AllocDone> {
    Some(AllocDone { object, bytes })
}

/// A mapping of memory from its first byte on.
fn map(gpu: GpuId, memory: ObjectHandle, base: u64, length: u64) -> Map {
    Map {
        file: UVM,
        gpu,
        uuid: [0; 16],
        client: CLIENT,
        memory,
        base,
        length,
        offset: 0,
    }
}

/// Short forms of the events, each from its beginning to its end.
impl Accounting {
    /// A call that the driver grants as it was asked.
    fn alloc(&mut self, alloc: &Alloc) -> Result<(), RefusalCause> {
        let ticket = self.begin_alloc(alloc)?;
        let (object, bytes) = (ticket.handle(), alloc.bytes);
        self.end_alloc(ticket, Some(AllocDone { object, bytes }));
        Ok(())
    }

    /// Memory of the client's, below its device.
    fn memory(&mut self, object: ObjectHandle, bytes: u64) -> Result<(), RefusalCause> {
        self.alloc(&memory_request(CLIENT, DEVICE, object, bytes))
    }

    /// A compute context of the client's, below its device.
    fn context(&mut self, object: ObjectHandle) -> Result<(), RefusalCause> {
        self.alloc(&context_request(CLIENT, DEVICE, object))
    }

    /// An object of the client's without memory.
    fn child(&mut self, parent: ObjectHandle, object: ObjectHandle) -> Result<(), RefusalCause> {
        self.alloc(&request(CLIENT, parent, object))
    }

    /// A device object.
    fn device(
        &mut self,
        client: ClientHandle,
        device: ObjectHandle,
        gpu: GpuId,
    ) -> Result<(), RefusalCause> {
        self.alloc(&device_request(client, device, gpu))
    }

    /// A client for which the driver chose the handle.
    fn client(&mut self, client: ClientHandle, file: FileId, process: ProcessId) {
        let ticket = self.begin_alloc(&client_request(file, process)).unwrap();
        let object = ObjectHandle(client.0);
        self.end_alloc(ticket, Some(AllocDone { object, bytes: 0 }));
    }

    fn dup(
        &mut self,
        client: ClientHandle,
        parent: ObjectHandle,
        object: ObjectHandle,
        source_client: ClientHandle,
        source_object: ObjectHandle,
    ) -> Result<(), RefusalCause> {
        let ticket = self.begin_dup(client, parent, object, source_client, source_object)?;
        self.end_dup(ticket, Some(object));
        Ok(())
    }

    fn used(&self, gpu: GpuId) -> u64 {
        self.share(gpu).unwrap().used
    }

    fn held(&self, gpu: GpuId) -> Vec<(i32, u64)> {
        let mut held = Vec::new();
        self.processes(gpu, |process, bytes| held.push((process.0, bytes)));
        held.sort_unstable();
        held
    }
}

/// Accounting with one share, one client and one device object.
fn accounting(limit: u64) -> Accounting {
    let mut accounting = Accounting::new(0);
    accounting.add_share(GPU, limit).unwrap();
    accounting.client(CLIENT, FILE, PROCESS);
    accounting.device(CLIENT, DEVICE, GPU).unwrap();
    accounting
}

fn object(number: u32) -> ObjectHandle {
    ObjectHandle(number)
}
