// SPDX-License-Identifier: GPL-2.0
//! The attacker and the victim.

use std::{
    cell::RefCell,
    fmt::Display,
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::OnceLock,
};

use cgpu_uapi as uapi;

use super::{rest::NAMED, seen::State, victims};
use crate::{
    bytes::{put_u32, put_u64, u32_at, u64_at},
    control::{folder, Control},
    facts,
    guest::{
        process::spawn,
        rm,
        tools::{control, Verdict},
        uvm,
    },
    layout, standin, sys,
};

/// A call's answer, in words.
pub(super) fn told<T>(result: Result<T, rm::Failure>) -> Verdict {
    result.map(drop).map_err(|failure| failure.to_string())
}

/// The file in which an attack in its own process leaves its report.
pub(super) const NOTE: &str = "/tmp/attack-note";
/// The GPU of all attacks.
pub(super) const GPU: u32 = 0;
/// A mebibyte.
pub(super) const MIB: u64 = 1 << 20;
/// The limit of each instance.
pub(super) const LIMIT: u64 = 1 << 30;
/// An ordinary user.
const NOBODY: u32 = 65534;

/// Handles that attackers give to objects of their own.
pub(super) const OWN: u32 = 0x5c00_0030;

/// The place where programs run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// On the driver's own nodes.
    Driver,
    /// In an instance each.
    Instance,
}

impl Place {
    pub(super) fn folder(self, name: &str) -> String {
        match self {
            Self::Driver => "/dev".to_owned(),
            Self::Instance => folder(name),
        }
    }
}

/// The GPUs, as the driver names them.
#[derive(Debug, Clone)]
pub(super) struct Gpus {
    /// Of the attacks' GPU: device instance.
    pub(super) instance: u32,
    /// A GPU that is not the tenants': id and device instance.
    pub(super) other: (u32, u32),
    /// Its UUID.
    pub(super) other_uuid: [u8; 16],
    /// The attacks' GPU's UUID.
    pub(super) uuid: [u8; 16],
    /// Its bus and slot.
    pub(super) pci: (u8, u8),
}

pub(super) fn gpus() -> Result<Gpus, String> {
    static FOUND: OnceLock<Gpus> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found.clone());
    }
    let control = control()?;
    let gpus = control.gpus().map_err(|e| format!("GPUs: errno {e}"))?;
    let (ours, others): (Vec<&uapi::Gpu>, Vec<&uapi::Gpu>) =
        gpus.iter().partition(|gpu| gpu.minor == GPU);
    let ours = ours.first().ok_or("there is no GPU")?;
    let other = others.first().ok_or("there is no second GPU")?;
    let pci = uapi::text(&ours.pci);
    let part =
        |from: usize| u8::from_str_radix(pci.get(from..from + 2).unwrap_or(""), 16).unwrap_or(0);
    let found = Gpus {
        instance: ours.device_instance,
        other: (other.gpu_id, other.device_instance),
        other_uuid: uvm::uuid(other.minor)?,
        uuid: uvm::uuid(GPU)?,
        pci: (part(5), part(8)),
    };
    Ok(FOUND.get_or_init(|| found).clone())
}

/// A call with a struct; the status at `at` in it.
pub(super) fn escape(fd: i32, nr: u32, outer: &mut [u8], at: usize) -> Result<(), rm::Failure> {
    let size = u32::try_from(outer.len()).unwrap_or(0);
    let request = 3 << 30 | size << 16 | layout::NV_TYPE << 8 | nr;
    sys::ioctl(fd, request, outer).map_err(rm::Failure::Errno)?;
    match u32_at(outer, at) {
        0 => Ok(()),
        status => Err(rm::Failure::Status(status)),
    }
}

/// A program with objects that are worth something.
#[derive(Debug)]
pub(super) struct Victim {
    place: Place,
    client: rm::Client,
    /// The attackers' guess.
    pub(super) known: Known,
    control: Control,
}

/// Facts of the victim that everybody can guess or find out.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// Its client.
    pub(super) client: u32,
    /// Its process.
    pub(super) process: u32,
    /// The address of its memory, as the driver names it.
    pub(super) mapped: u64,
    /// The GPUs.
    pub(super) gpus: Gpus,
}

fn instance(control: &Control, name: &str) -> Result<(), String> {
    let made = control.create(name, GPU, LIMIT, 1);
    made.map(drop)
        .map_err(|e| format!("create {name}: errno {e}"))
}

/// Removes all instances but the neighbours': what a failed attack left must not fail the next one.
pub(super) fn clean_up(control: &Control) {
    for instance in control.instances().unwrap_or_default() {
        let name = instance.key.name.as_str();
        if let Some(name) = name.filter(|name| !name.starts_with(NAMED)) {
            let _ = control.destroy(name, instance.key.gpu_minor);
        }
    }
}

/// A program with a client, on the nodes of a folder.
pub(super) fn open_client(folder: &str) -> Result<rm::Client, String> {
    let client = rm::Client::open(folder, GPU, gpus()?.instance);
    client.map_err(|failure| format!("client: {failure}"))
}

/// Runs a part of an attack with an instance for the attacker and one for the victim.
pub(super) fn in_instances<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let control = control()?;
    clean_up(&control);
    for name in ["attacker", "victim"] {
        instance(&control, name)?;
    }
    let result = run();
    clean_up(&control);
    result
}

impl Victim {
    /// Makes a victim, and in [`Place::Instance`] both instances.
    pub(super) fn new(place: Place) -> Result<Self, String> {
        let control = control()?;
        if place == Place::Instance {
            clean_up(&control);
            instance(&control, "victim")?;
            instance(&control, "attacker")?;
        }
        let gpus = gpus()?;
        let opened = rm::Client::open(&place.folder("victim"), GPU, gpus.instance);
        let client = opened.map_err(|e| format!("the victim's client: {e}"))?;
        let known = Known {
            client: client.handle,
            process: std::process::id(),
            mapped: furnish(&client).map_err(|e| format!("the victim's objects: {e}"))?,
            gpus,
        };
        Ok(Self {
            place,
            client,
            known,
            control,
        })
    }

    /// Gives the attacker's instance all capabilities.
    pub(super) fn grant(&self) -> Result<(), String> {
        let given = self
            .control
            .set_capabilities("attacker", GPU, uapi::capability::ALL);
        given.map_err(|errno| format!("capabilities: errno {errno}"))
    }

    /// Its visible state.
    fn state(&self) -> Result<State, String> {
        State::of(&self.client)
    }

    /// Ends it.
    pub(super) fn close(self) {
        self.client.close();
        if self.place == Place::Instance {
            clean_up(&self.control);
        }
    }
}

/// Gives the victim what it has; where its memory is mapped.
pub(super) fn furnish(client: &rm::Client) -> Result<u64, rm::Failure> {
    use victims::*;
    client.memory(MEMORY, 4 * MIB)?;
    client.memory(SHARED, 2 * MIB)?;
    let mut share = [0; 24];
    put_u32(&mut share, 0, client.handle);
    put_u32(&mut share, 4, SHARED);
    // The right to duplicate, for all.
    put_u32(&mut share, 12, 1);
    share[16] = 1;
    escape(client.ctl, 0x35, &mut share, 20)?;
    client.alloc(rm::DEVICE_HANDLE, VASPACE, 0x90f1, &mut [0; 56])?;
    let mut group = [0; 20];
    put_u32(&mut group, 8, VASPACE);
    put_u32(&mut group, 12, 1);
    client.alloc(rm::DEVICE_HANDLE, GROUP, rm::CHANNEL_GROUP, &mut group)?;
    client.channel(GROUP, CHANNEL)?;
    client.alloc(CHANNEL, COMPUTE, 0xcbc0, &mut [0; 16])?;
    let mut key = [0; 16];
    put_u32(&mut key, 0, client.handle);
    put_u32(&mut key, 8, EVENT);
    escape(client.ctl, 206, &mut key, 12)?;
    let mut map = [0; 56];
    for (at, value) in [(0, client.handle), (4, rm::DEVICE_HANDLE), (8, MEMORY)] {
        put_u32(&mut map, at, value);
    }
    put_u64(&mut map, 24, MIB);
    put_u32(&mut map, 48, u32::try_from(client.gpu).unwrap_or(0));
    escape(client.ctl, 0x4e, &mut map, 40)?;
    Ok(u64_at(&map, 32))
}

/// A program that attacks.
#[derive(Debug)]
pub(super) struct Attacker {
    /// Its own client.
    pub(super) client: rm::Client,
    /// The folder of its nodes.
    pub(super) folder: String,
    /// Its knowledge of the victim.
    pub(super) victim: Known,
    /// A step before the attack that failed: nothing was attacked.
    unprepared: RefCell<Option<String>>,
}

/// `RM_GSS_LEGACY_MASK`: a control for the firmware, which the driver hands on.
const GSS_LEGACY: u32 = 0x8000;
/// The driver's status for parameters of another size than a control has.
const INVALID_PARAM_STRUCT: u32 = 0x3a;

impl Attacker {
    /// Takes the result of a step before the attack. The attack has not failed as it should if this
    /// step does, so that is noted.
    pub(super) fn prepare<T, E: Display>(
        &self,
        step: &str,
        result: Result<T, E>,
    ) -> Result<T, String> {
        result.map_err(|e| {
            let why = format!("not prepared, {step}: {e}");
            self.unprepared.borrow_mut().get_or_insert(why).clone()
        })
    }

    /// RM_CONTROL on its own client.
    pub(super) fn control(&self, object: u32, cmd: u32, params: &mut [u8]) -> Verdict {
        self.control_of(self.client.handle, object, cmd, params)
    }

    /// The same on any client. Parameters of a wrong size would be refused for that alone.
    pub(super) fn control_of(
        &self,
        client: u32,
        object: u32,
        cmd: u32,
        params: &mut [u8],
    ) -> Verdict {
        let known = facts::control_size(cmd).is_none_or(|size| {
            // Of these the driver takes any size, up to that one.
            let is_free = cmd & GSS_LEGACY != 0 && params.len() < size;
            is_free || size == params.len()
        });
        match rm::control(self.client.ctl, client, object, cmd, params) {
            Err(rm::Failure::Status(INVALID_PARAM_STRUCT)) => {
                self.prepare("size of the parameters", Err("refused"))
            }
            _ if !known => self.prepare("size of the parameters", Err("not this branch's")),
            answer => told(answer),
        }
    }

    /// The same with the parameters' beginning that the driver's branch has.
    pub(super) fn control_as_sized(
        &self,
        client: u32,
        object: u32,
        cmd: u32,
        params: &mut [u8],
    ) -> Verdict {
        let size = facts::control_size(cmd).ok_or("this branch has no such control");
        let size = self.prepare("size of the parameters", size)?;
        let params = params.get_mut(..size).ok_or("too few bytes");
        let params = self.prepare("size of the parameters", params)?;
        self.control_of(client, object, cmd, params)
    }

    /// GPFIFO_SCHEDULE of a group. Branches before 580 have no third byte, `bSkipEnable`.
    pub(super) fn schedule(&self, group: u32, skip_submit: bool) -> Verdict {
        let mut params = [1, u8::from(skip_submit), 0];
        self.control_as_sized(self.client.handle, group, 0xa06c_0101, &mut params)
    }

    /// An escape on its control file.
    pub(super) fn escape(&self, nr: u32, outer: &mut [u8], status_at: usize) -> Verdict {
        told(escape(self.client.ctl, nr, outer, status_at))
    }

    /// RM_ALLOC in its own client.
    pub(super) fn alloc(&self, parent: u32, handle: u32, class: u32, params: &mut [u8]) -> Verdict {
        told(self.client.alloc(parent, handle, class, params))
    }

    /// A channel group of its own, before the attack; as are those below.
    pub(super) fn group(&self) -> Result<u32, String> {
        self.group_on(OWN, rm::COMPUTE)?;
        Ok(OWN)
    }

    /// The same on any engine.
    pub(super) fn group_on(&self, handle: u32, engine: u32) -> Verdict {
        self.prepare("a group", self.client.channel_group(handle, engine))
    }

    /// A channel in a group of its own.
    pub(super) fn channel(&self) -> Result<u32, String> {
        self.channel_in(self.group()?, OWN + 1)?;
        Ok(OWN + 1)
    }

    /// The same in any group.
    pub(super) fn channel_in(&self, group: u32, handle: u32) -> Verdict {
        self.prepare("a channel", self.client.channel(group, handle))
    }

    /// A compute object on a channel of its own.
    pub(super) fn compute(&self) -> Result<u32, String> {
        let channel = self.channel()?;
        let made = self.alloc(channel, OWN + 2, 0xcbc0, &mut [0; 16]);
        self.prepare("a compute object", made)?;
        Ok(OWN + 2)
    }

    /// A debugger of a compute object of its own.
    pub(super) fn debugger(&self) -> Result<u32, String> {
        let mut params = [0; 12];
        put_u32(&mut params, 4, self.client.handle);
        put_u32(&mut params, 8, self.compute()?);
        let made = self.alloc(rm::DEVICE_HANDLE, OWN + 3, 0x83de, &mut params);
        self.prepare("a debugger", made)?;
        Ok(OWN + 3)
    }

    /// Video memory.
    pub(super) fn memory(&self, handle: u32, bytes: u64) -> Verdict {
        let made = self.client.memory(handle, bytes);
        self.prepare("memory", made).map(drop)
    }

    /// An object for other devices, of BAR1, as CUDA makes it.
    pub(super) fn peer_memory(&self, handle: u32) -> Verdict {
        let made = self.alloc(rm::SUBDEVICE_HANDLE, handle, 0x503c, &mut [1, 0, 0, 0]);
        let made = made.map_err(|why| standin::not_here(&format!("no memory for others: {why}")));
        self.prepare("peer memory", made)
    }

    /// An address space.
    pub(super) fn space(&self, handle: u32, params: &mut [u8; 56]) -> Verdict {
        let made = self.alloc(rm::DEVICE_HANDLE, handle, uvm::VA_SPACE, params);
        self.prepare("an address space", made)
    }

    /// RM_MAP_MEMORY_DMA of an object into an address space, or a range in one, as an attack or
    /// before it: the address.
    pub(super) fn map_dma(
        &self,
        (object, space): (u32, u32),
        length: u64,
        flags: u32,
    ) -> Result<u64, String> {
        let mapped = self.client.map_dma((object, space), length, flags);
        mapped.map_err(|failure| failure.to_string())
    }

    /// The key of events of this descriptor.
    pub(super) fn event_key(&self, fd: u32) -> Verdict {
        let made = self.os_event(206, self.client.handle, fd);
        self.prepare("a key of events", made)
    }

    /// NV_ESC_ALLOC_OS_EVENT or NV_ESC_FREE_OS_EVENT, as an attack or before it.
    pub(super) fn os_event(&self, nr: u32, client: u32, fd: u32) -> Verdict {
        let mut outer = [0; 16];
        put_u32(&mut outer, 0, client);
        put_u32(&mut outer, 8, fd);
        self.escape(nr, &mut outer, 12)
    }
}

/// One byte over a socket.
fn signal(socket: &mut UnixStream) -> Result<(), String> {
    socket.write_all(&[1]).map_err(|e| e.to_string())
}

fn wait(socket: &mut UnixStream) -> Result<(), String> {
    socket.read_exact(&mut [0]).map_err(|e| e.to_string())
}

/// Runs an attack in a process of its own; what it was told, and what was to be seen just before it
/// and just after it, while the attacker was still there.
pub(super) fn run(
    place: Place,
    victim: &Victim,
    attack: fn(&Attacker) -> Verdict,
) -> Result<(Verdict, State, State), String> {
    let (ours, mut theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
    let known = victim.known.clone();
    let mut end = ours.try_clone().map_err(|e| e.to_string())?;
    let child = spawn(move || {
        drop(ours);
        let folder = place.folder("attacker");
        // The driver's nodes are everybody's. In a container, root with all rights attacks.
        // SAFETY: takes no pointer; this process has one thread.
        if place == Place::Driver && unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) } != 0 {
            return 1;
        }
        let Ok(client) = rm::Client::open(&folder, GPU, known.gpus.instance) else {
            return 2;
        };
        let attacker = Attacker {
            client,
            folder,
            victim: known,
            unprepared: RefCell::new(None),
        };
        if signal(&mut theirs)
            .and_then(|()| wait(&mut theirs))
            .is_err()
        {
            return 3;
        }
        let told = attack(&attacker);
        let text = match (attacker.unprepared.take(), told) {
            (Some(why), _) => format!("un{why}"),
            (None, Ok(())) => "ok".to_owned(),
            (None, Err(how)) => format!("no{how}"),
        };
        let length = u16::try_from(text.len()).unwrap_or(0).to_le_bytes();
        let sent = theirs
            .write_all(&length)
            .and_then(|()| theirs.write_all(text.as_bytes()));
        let _ = wait(&mut theirs);
        i32::from(sent.is_err())
    });
    let child = child.map_err(|e| format!("fork: errno {e}"))?;
    let result = watch(&mut end, victim);
    drop(end);
    let status = sys::wait(child).map_err(|e| format!("wait: errno {e}"))?;
    let result = result.map_err(|e| format!("the attacker ended with {status:#x}: {e}"))?;
    Ok(result)
}

fn watch(end: &mut UnixStream, victim: &Victim) -> Result<(Verdict, State, State), String> {
    wait(end)?;
    let before = victim.state()?;
    signal(end)?;
    let mut length = [0; 2];
    end.read_exact(&mut length).map_err(|e| e.to_string())?;
    let mut text = vec![0; usize::from(u16::from_le_bytes(length))];
    end.read_exact(&mut text).map_err(|e| e.to_string())?;
    let after = victim.state()?;
    signal(end)?;
    let text = String::from_utf8_lossy(&text);
    match text.split_at_checked(2) {
        Some(("ok", "")) => Ok((Ok(()), before, after)),
        Some(("no", how)) => Ok((Err(how.to_owned()), before, after)),
        Some(("un", why)) => Err(why.to_owned()),
        _ => Err(format!("the attacker said {text:?}")),
    }
}
