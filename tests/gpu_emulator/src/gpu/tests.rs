// SPDX-License-Identifier: GPL-2.0
//! The firmware's life as a driver sees it, with queues in a machine's memory that is a file.

use super::*;
use crate::abi::Record;
use std::fs::File;

const PAGE: usize = 4096;
/// Address on the bus of the machine's memory, and its length.
const BASE: u64 = 0x1_0000_0000;
const PAGES: usize = 20;
/// Pages of it: boot arguments, those of the operating system, those of RM, the table of the
/// queues' pages, the queues.
const BOOT: usize = 0;
const LIST: usize = 1;
const ARGUMENTS: usize = 2;
const TABLE: usize = 3;
const COMMANDS: usize = 4;
const ANSWERS: usize = 12;
/// Elements of a queue, after its header's page.
const ELEMENTS: u32 = 7;
/// Offset of the header of a queue's reader.
const READER: u64 = 64;

fn place(page: usize, inside: usize) -> Place {
    Place::system(BASE + (page * PAGE + inside) as u64)
}

/// A GPU in a machine, with the bus for itself.
fn gpu() -> Gpu {
    let abi = Abi::of("550").expect("has a table");
    let mut gpu = Gpu::new(abi, GpuModel::h200(), Log::none());
    let name = format!(
        "gpu-emulator-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let path = std::env::temp_dir().join(name);
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .expect("a new file");
    std::fs::remove_file(&path).expect("is there");
    file.set_len((PAGES * PAGE) as u64).expect("is a file");
    let machine = &mut gpu.units.memory.machine;
    machine
        .map(BASE, (PAGES * PAGE) as u64, file, 0)
        .expect("is a file");
    gpu.write(Region::Config, 4, &[6, 0]);
    gpu
}

fn put(gpu: &mut Gpu, at: Place, value: u64) {
    let written = gpu.units.memory.write(at, &value.to_le_bytes());
    written.expect("is memory");
}

/// Writes a struct of the driver's.
fn put_record(gpu: &mut Gpu, at: Place, name: &'static str, fields: &[(&str, u64)]) {
    let mut bytes = vec![0; gpu.units.facts.abi.size(name)];
    let mut record = Record::of(&gpu.units.facts.abi, name, &mut bytes).expect("has its size");
    for (field, value) in fields {
        record.set(field, *value);
    }
    gpu.units.memory.write(at, &bytes).expect("is memory");
}

/// Writes what a driver has ready when it asks for the firmware, and boots it.
fn boot(gpu: &mut Gpu) {
    let field = gpu
        .units
        .facts
        .abi
        .offset("GSP_FMC_BOOT_PARAMS", "gspRmParams.bootArgsOffset");
    put(gpu, place(BOOT, field), place(LIST, 0).address);
    let name = u64::from_be_bytes(*b"\0\0RMARGS");
    let entry = [("id8", name), ("pa", place(ARGUMENTS, 0).address)];
    put_record(gpu, place(LIST, 0), "LibosMemoryRegionInitArgument", &entry);
    let count = PAGES - COMMANDS;
    let queues = [
        ("sharedMemPhysAddr", place(TABLE, 0).address),
        ("pageTableEntryCount", count as u64),
        ("cmdQueueOffset", 0),
        ("statQueueOffset", ((ANSWERS - COMMANDS) * PAGE) as u64),
    ]
    .map(|(field, value)| (format!("messageQueueInitArguments.{field}"), value));
    let queues: Vec<(&str, u64)> = queues.iter().map(|(f, v)| (f.as_str(), *v)).collect();
    put_record(gpu, place(ARGUMENTS, 0), "GSP_ARGUMENTS_CACHED", &queues);
    for index in 0..count {
        let page = place(COMMANDS + index, 0).address;
        put(gpu, place(TABLE, 8 * index), page);
    }
    let header = [
        ("msgSize", PAGE as u64),
        ("msgCount", u64::from(ELEMENTS)),
        ("rxHdrOff", READER),
        ("entryOff", PAGE as u64),
    ];
    put_record(gpu, place(COMMANDS, 0), "msgqTxHeader", &header);
    gpu.gsp.boot(&mut gpu.units, place(BOOT, 0).address);
}

/// Puts a message without parameters into the queue as the one with this number, and rings.
fn send(gpu: &mut Gpu, number: u32, name: &str) {
    let abi = &gpu.units.facts.abi;
    let (element, header) = ("GSP_MSG_QUEUE_ELEMENT", "rpc_message_header_v");
    let (count, rpc) = (abi.offset(element, "elemCount"), abi.offset(element, "rpc"));
    let message = [
        ("signature", abi.number("NV_VGPU_MSG_SIGNATURE_VALID")),
        ("function", u64::from(abi.rpc(name))),
        ("length", abi.size(header) as u64),
    ];
    let written = abi.offset("msgqTxHeader", "writePtr");
    let page = COMMANDS + 1 + number as usize;
    put(gpu, place(page, count), 1);
    put_record(gpu, place(page, rpc), header, &message);
    let pointer = place(COMMANDS, written);
    let moved = gpu.units.memory.write32(pointer, number + 1);
    moved.expect("is memory");
    gpu.write(Region::Bar0, registers::NV_PGSP_QUEUE_HEAD_0, &[0; 4]);
}

/// How many elements the firmware has written, its word that it has booted among them.
fn answers(gpu: &Gpu) -> u32 {
    let written = gpu.units.facts.abi.offset("msgqTxHeader", "writePtr");
    let pointer = gpu.units.memory.read32(place(ANSWERS, written));
    pointer.expect("is memory")
}

fn memory(gpu: &Gpu) -> Vec<u8> {
    let all = gpu.units.memory.bytes(place(0, 0), PAGES * PAGE);
    all.expect("is memory")
}

#[test]
fn firmware_boots_and_answers() {
    let mut gpu = gpu();
    boot(&mut gpu);
    assert_eq!((gpu.gsp.is_up(), answers(&gpu)), (true, 1));
    send(&mut gpu, 0, "SET_GUEST_SYSTEM_INFO");
    assert_eq!((gpu.gsp.is_up(), answers(&gpu)), (true, 2));
}

#[test]
fn unloaded_firmware_leaves_memory_alone() {
    let mut gpu = gpu();
    boot(&mut gpu);
    send(&mut gpu, 0, "UNLOADING_GUEST_DRIVER");
    // That was answered. The next message lies in memory that another GPU's queue has by now.
    send(&mut gpu, 1, "SET_GUEST_SYSTEM_INFO");
    gpu.tick();
    assert_eq!((gpu.gsp.is_up(), answers(&gpu)), (false, 2));
}

#[test]
fn device_without_the_bus_reaches_no_memory() {
    let mut gpu = gpu();
    boot(&mut gpu);
    let before = memory(&gpu);
    gpu.write(Region::Config, 4, &[2, 0]);
    assert!(gpu.units.memory.read32(place(0, 0)).is_err());
    gpu.inject(Fault::Xid(79, "an event for the driver".to_string()));
    gpu.write(Region::Config, 4, &[6, 0]);
    assert!(memory(&gpu) == before);
}
