// SPDX-License-Identifier: GPL-2.0
//! The messages (rpc_global_enums.h), each by what it does to the GPU.

use super::{
    answers,
    controls::Control,
    counts::{Question, Source},
    knowledge::Knowledge,
    objects::GspObject,
    queues::Message,
};
use crate::{
    abi::{Abi, Record, TooShort},
    clock,
    host::channel::ChannelSetup,
    mmu::aperture_of,
    names::{ChannelId, ObjectId},
    place::Place,
    registers::NV_PGSP_FALCON_MAILBOX0,
    units::Units,
};

const CONTROL: &str = "rpc_gsp_rm_control_v03_00";
const ALLOC: &str = "rpc_gsp_rm_alloc_v03_00";
/// Bit of mailbox 0 that says that the firmware has stopped (kgspWaitForProcessorSuspend_TU102).
const SUSPENDED: u32 = 1 << 31;
/// Class of a channel group (cla06c.h).
const CHANNEL_GROUP: u32 = 0xa06c;
/// Class of an address space (cl90f1.h).
const ADDRESS_SPACE: u32 = 0x90f1;
/// Class of a device (cl0080.h).
const DEVICE: u32 = 0x80;
/// `NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_FLAGS_CILP_SET`, and the mode
/// `NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_COMPUTE_CILP` (ctrl2080gr.h).
const SET_COMPUTE_MODE: u32 = 1;
const CILP: u32 = 2;
/// Class of a subcontext (cl9067.h).
const CONTEXT_SHARE: u32 = 0x9067;

/// Classes whose objects need no more than to be remembered: an allocation has no answer but the
/// status. Clients, virtual memory, events, devices, subdevices, diagnostics, I2C, the debugger,
/// 2D, two of UVM's, copy engines, 3D, compute (class/*.h).
const PLAIN: [u32; 17] = [
    0x0000, 0x0041, 0x0070, 0x0079, 0x007e, 0x0005, 0x0080, 0x2080, 0x2081, 0x402c, 0x83de, 0x902d,
    0xc076, 0xc574, 0xc8b5, 0xcb97, 0xcbc0,
];

/// Lists of index and value whose values are looked up one by one (GPU_GET_INFO_V2 and the like).
const LISTS: [u32; 3] = [0x2080_0102, 0x2080_1823, 0x2080_1303];
/// Of these, the one of the GPU. The driver marks what the firmware is to answer, and wants the
/// mark taken away (`INDEX_FORWARD_TO_PHYSICAL` of subdevice_ctrl_gpu_kernel.c).
const GPU_INFO: u32 = 0x2080_0102;
const FORWARDED: u32 = 1 << 31;
/// Of these, the one of video memory: sizes are this GPU's, in KiB.
const FB_INFO: u32 = 0x2080_1303;
/// A size of memory in KiB is larger than this, other figures are not.
const LARGE_KIB: u32 = 100 << 20;

/// Bytes of a message's body with all its parts, if the message says so: a control with long
/// parameters.
pub(super) fn whole_length(abi: &Abi, message: &Message) -> Option<usize> {
    if message.function != abi.rpc("GSP_RM_CONTROL") {
        return None;
    }
    let control = Record::of(abi, CONTROL, message.body.as_slice()).ok()?;
    Some(abi.offset(CONTROL, "params") + control.get("paramsSize") as usize)
}

/// The fate of a message after it was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handled {
    /// Its answer has this result.
    Answer(u32),
    /// It wants no answer.
    Silent,
    /// Its answer has this result and is the last one: the driver goes away.
    Last(u32),
}

/// Handles a message: its body becomes the answer's.
pub(super) fn handle(gsp: &mut Knowledge, units: &mut Units, message: &mut Message) -> Handled {
    let name = units.facts.abi.rpc_name(message.function).to_string();
    let question = Question::Rpc(message.function);
    let body = message.body.as_mut_slice();
    let done = match name.as_str() {
        "SET_SYSTEM_INFO" | "GSP_SET_SYSTEM_INFO" | "SET_REGISTRY" => {
            units
                .log
                .say("gsp", format_args!("{name}, {} bytes", body.len()));
            gsp.counts.add(question, Source::Known);
            return Handled::Silent;
        }
        "GSP_RM_CONTROL" => control(gsp, units, body),
        "GSP_RM_ALLOC" => alloc(gsp, units, body),
        "FREE" => free(gsp, units, body),
        "DUP_OBJECT" => duplicate(gsp, units, body),
        "SET_PAGE_DIRECTORY" => set_page_directory(units, body),
        "GET_GSP_STATIC_INFO" => answers::static_info(&units.facts, body),
        "UPDATE_BAR_PDE" => update_bar_pde(units, body),
        "UNLOADING_GUEST_DRIVER" => {
            units.registers.set(NV_PGSP_FALCON_MAILBOX0, SUSPENDED);
            Ok(0)
        }
        // Memory and versions that the firmware keeps for itself.
        "SET_GUEST_SYSTEM_INFO" | "ALLOC_MEMORY" | "UNSET_PAGE_DIRECTORY" => Ok(0),
        _ => {
            units
                .log
                .say("gsp", format_args!("{name} ({}): echo", message.function));
            gsp.counts.add(question, Source::Echo);
            return Handled::Answer(0);
        }
    };
    gsp.counts.add(question, Source::Known);
    let refused = units.facts.abi.word("NV_ERR_INVALID_PARAM_STRUCT");
    let result = done.unwrap_or(refused);
    let quiet = matches!(name.as_str(), "GSP_RM_CONTROL" | "GSP_RM_ALLOC");
    if !quiet || result != 0 {
        units.log.say("gsp", format_args!("{name} -> {result:#x}"));
    }
    if name == "UNLOADING_GUEST_DRIVER" {
        return Handled::Last(result);
    }
    Handled::Answer(result)
}

/// A control: by knowledge, from a recording, or by echo.
fn control(gsp: &mut Knowledge, units: &mut Units, body: &mut [u8]) -> Result<u32, TooShort> {
    let abi = &units.facts.abi;
    let said = Record::of(abi, CONTROL, &*body)?;
    let object = ObjectId {
        client: said.word("hClient"),
        handle: said.word("hObject"),
    };
    let (command, size) = (said.word("cmd"), said.get("paramsSize") as usize);
    let (at, status_at) = (abi.offset(CONTROL, "params"), abi.offset(CONTROL, "status"));
    let params = body.get_mut(at..at + size).ok_or(TooShort)?;
    let (source, status) = match knowing(gsp, units, object, command, params) {
        Some(status) => {
            let refused = units.facts.abi.word("NV_ERR_INVALID_PARAM_STRUCT");
            (Source::Known, status.unwrap_or(refused))
        }
        None => match recorded(gsp, units, command, params) {
            Some(status) => (Source::Recorded, status),
            None => (Source::Echo, 0),
        },
    };
    gsp.counts.add(Question::Control(command), source);
    let ObjectId { client, handle } = object;
    units.log.say(
        "gsp",
        format_args!(
            "control {command:#x} {size:#x} of {client:#x} {handle:#x}: {status:#x} {source}"
        ),
    );
    body[status_at..status_at + 4].copy_from_slice(&status.to_le_bytes());
    Ok(0)
}

/// Answers a control with knowledge, if there is any.
fn knowing(
    gsp: &Knowledge,
    units: &mut Units,
    object: ObjectId,
    command: u32,
    params: &mut [u8],
) -> Option<Result<u32, TooShort>> {
    let number = |name: &str| units.facts.abi.word(name);
    if command == number("NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES") {
        return Some(copy_page_directories(gsp, units, object, params));
    }
    if command == number("NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS") {
        return Some(disable_channels(units, params));
    }
    if command == number("NVA06F_CTRL_CMD_STOP_CHANNEL") {
        return Some(Ok(stop(units, object)));
    }
    let schedules = [
        "NVA06C_CTRL_CMD_GPFIFO_SCHEDULE",
        "NVA06F_CTRL_CMD_GPFIFO_SCHEDULE",
    ];
    if schedules.into_iter().any(|name| command == number(name)) {
        return Some(schedule(units, object, params));
    }
    if command == number("NVA06C_CTRL_CMD_SET_TIMESLICE") {
        return Some(set_timeslice(units, object, params));
    }
    if command == number("NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE") {
        return Some(set_preemption(units, object.client, params));
    }
    if command == number("NVA06C_CTRL_CMD_PREEMPT") {
        units.host.engine.preempt(clock::now(), object);
        return Some(Ok(0));
    }
    match gsp.controls.get(&command).copied() {
        Some(Control::Answer(answer)) => Some(answer(&units.facts, params)),
        Some(Control::Told | Control::Absent) => Some(Ok(0)),
        None => None,
    }
}

/// The first table of an address space, when the driver hands over its upper levels.
fn copy_page_directories(
    gsp: &Knowledge,
    units: &mut Units,
    object: ObjectId,
    params: &mut [u8],
) -> Result<u32, TooShort> {
    let name = "NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS";
    let levels = Record::of(&units.facts.abi, name, params)?;
    let aperture = match levels.at("levels[].aperture", &[0]) {
        1 => Place::video(0).aperture,
        _ => Place::system(0).aperture,
    };
    let root = Place {
        aperture,
        address: levels.at("levels[].physAddress", &[0]),
    };
    units
        .log
        .say("gsp", format_args!("root of {object:x?} is {root:x?}"));
    units.host.set_root(object, root);
    // The device's own address space outlives the handle by which it was reached.
    if let Some(device) = gsp.objects.get(object).filter(|space| space.space != 0) {
        units.host.set_root(
            ObjectId {
                client: object.client,
                handle: device.space,
            },
            root,
        );
    }
    Ok(0)
}

/// Sets the time slice of a group.
fn set_timeslice(units: &mut Units, group: ObjectId, params: &mut [u8]) -> Result<u32, TooShort> {
    let slice = Record::of(&units.facts.abi, "NVA06C_CTRL_TIMESLICE_PARAMS", params)?;
    let slice = slice.get("timesliceUs");
    units.host.engine.set_slice(clock::now(), group, slice);
    Ok(0)
}

/// Sets how compute work of a context is preempted: mode 2 (CILP) within a kernel, 0 and 1 (WFI,
/// CTA) after it.
fn set_preemption(units: &mut Units, client: u32, params: &mut [u8]) -> Result<u32, TooShort> {
    let name = "NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS";
    let mode = Record::of(&units.facts.abi, name, params)?;
    let (flags, handle) = (mode.word("flags"), mode.word("hChannel"));
    if flags & SET_COMPUTE_MODE != 0 {
        let waits = mode.word("cilpPreemptMode") != CILP;
        units.host.set_waits(ObjectId { client, handle }, waits);
    }
    Ok(0)
}

/// Removes a channel from its runlist.
fn stop(units: &mut Units, channel: ObjectId) -> u32 {
    if units.host.schedule(channel, false) {
        return 0;
    }
    units.facts.abi.word("NV_ERR_INVALID_OBJECT_HANDLE")
}

/// Puts a channel, or the channels of a group, on the runlist or removes them. The parameters are
/// the same for both.
fn schedule(units: &mut Units, object: ObjectId, params: &mut [u8]) -> Result<u32, TooShort> {
    let name = "NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS";
    let on = Record::of(&units.facts.abi, name, params)?.get("bEnable") != 0;
    units.host.schedule(object, on);
    Ok(0)
}

/// Switches channels off or on.
fn disable_channels(units: &mut Units, params: &mut [u8]) -> Result<u32, TooShort> {
    let name = "NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS";
    let list = Record::of(&units.facts.abi, name, params)?;
    let disabled = list.get("bDisable") != 0;
    let count = list.get("numChannels") as usize;
    if count > list.count("hChannelList[]", 0) {
        return Ok(units.facts.abi.word("NV_ERR_INVALID_ARGUMENT"));
    }
    let mut status = 0;
    for index in 0..count {
        let channel = ObjectId {
            client: list.at("hClientList[]", &[index]) as u32,
            handle: list.at("hChannelList[]", &[index]) as u32,
        };
        if !units.host.disable(channel, disabled) {
            status = units.facts.abi.word("NV_ERR_INVALID_OBJECT_HANDLE");
        }
    }
    Ok(status)
}

/// Answers a control as a real driver did, if there is a recording.
fn recorded(gsp: &mut Knowledge, units: &Units, command: u32, params: &mut [u8]) -> Option<u32> {
    if LISTS.contains(&command) {
        return look_up(gsp, units, command, params);
    }
    if !is_state_of_the_gpu(command) {
        return None;
    }
    let answer = gsp.recordings().find(command, params)?;
    params.copy_from_slice(&answer.after);
    Some(answer.status)
}

/// Fills a list of index and value from all recorded lists.
fn look_up(gsp: &mut Knowledge, units: &Units, command: u32, params: &mut [u8]) -> Option<u32> {
    let word =
        |bytes: &[u8], at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let entries = |bytes: &[u8]| {
        let count = word(bytes, 0).unwrap_or(0) as usize;
        count.min(bytes.len().saturating_sub(4) / 8)
    };
    for index in 0..entries(params) {
        let at = 4 + 8 * index;
        let said = word(params, at)?;
        // The driver has answered what it knows, and marked the rest.
        if command == GPU_INFO && said & FORWARDED == 0 {
            continue;
        }
        let wanted = said & !FORWARDED;
        params[at..at + 4].copy_from_slice(&wanted.to_le_bytes());
        let known = gsp.recordings().all(command).find_map(|answer| {
            let places = (0..entries(&answer.after)).map(|index| 4 + 8 * index);
            let mut found = places.filter(|at| word(&answer.after, *at) == Some(wanted));
            word(&answer.after, found.next()? + 4)
        });
        let value = match known {
            Some(value) if command == FB_INFO && value > LARGE_KIB => {
                (units.facts.model.memory >> 10) as u32
            }
            Some(value) => value,
            None => continue,
        };
        params[at + 4..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    Some(0)
}

/// Whether a recorded answer to a control holds for this GPU: not if the control does something,
/// and not if the answer depends on what the driver has made.
fn is_state_of_the_gpu(command: u32) -> bool {
    const DONE_OR_MADE: [u32; 16] = [
        0x2080_0301,
        0xa06f_0103,
        0xa06f_0104,
        0x906f_0101,
        0xa06c_0101,
        0x2080_012b,
        0x2080_014a,
        0x2080_220c,
        0x2080_2210,
        0x2080_0110,
        0x2080_0111,
        0xc36f_0108,
        0xc36f_010a,
        0x83de_0309,
        0xa06c_0103,
        0xa06c_0105,
    ];
    !DONE_OR_MADE.contains(&command)
}

/// An allocation: the object is remembered, and a channel is made.
fn alloc(gsp: &mut Knowledge, units: &mut Units, body: &mut [u8]) -> Result<u32, TooShort> {
    let abi = &units.facts.abi;
    let said = Record::of(abi, ALLOC, &*body)?;
    let id = ObjectId {
        client: said.word("hClient"),
        handle: said.word("hObject"),
    };
    let (parent, class) = (said.word("hParent"), said.word("hClass"));
    let size = said.get("paramsSize") as usize;
    let (at, status_at) = (abi.offset(ALLOC, "params"), abi.offset(ALLOC, "status"));
    let params = body.get(at..at + size).ok_or(TooShort)?;
    if let Some(status) = refused(gsp, class) {
        body[status_at..status_at + 4].copy_from_slice(&status.to_le_bytes());
        return Ok(status);
    }
    let (mut object, mut source) = (
        GspObject {
            parent,
            class,
            engine: 0,
            space: 0,
        },
        Source::Echo,
    );
    if class == CHANNEL_GROUP {
        let group = Record::of(abi, "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", params)?;
        object.engine = group.word("engineType");
        object.space = group.word("hVASpace");
        source = Source::Known;
    } else if class == ADDRESS_SPACE {
        let space = Record::of(abi, "NV_VASPACE_ALLOCATION_PARAMETERS", params)?;
        if space.get("index") == abi.number("NV_VASPACE_ALLOCATION_INDEX_GPU_DEVICE") {
            object.space = parent;
        }
        source = Source::Known;
    } else if class == CONTEXT_SHARE {
        let share = Record::of(abi, "NV_CTXSHARE_ALLOCATION_PARAMETERS", params)?;
        object.space = share.word("hVASpace");
        source = Source::Known;
    } else if is_channel(class) {
        let (setup, spaces) = channel(gsp, units, id, parent, params)?;
        let ChannelId { runlist, number } = setup.id;
        units.log.say(
            "gsp",
            format_args!("channel {number} of runlist {runlist}: {setup:x?}"),
        );
        let group = ObjectId {
            client: id.client,
            handle: parent,
        };
        let in_group = gsp.objects.get(group);
        let in_group = in_group.is_some_and(|above| above.class == CHANNEL_GROUP);
        let group = if in_group { group } else { id };
        units.host.add((id, group), setup, spaces);
        source = Source::Known;
    }
    if PLAIN.contains(&class) {
        source = Source::Known;
    }
    if is_compute(class) {
        units.host.begin_context(ObjectId {
            client: id.client,
            handle: parent,
        });
    }
    gsp.objects.add(id, object);
    gsp.counts.add(Question::Class(class), source);
    let ObjectId { client, handle } = id;
    units.log.say(
        "gsp",
        format_args!("alloc {class:#x} {size:#x} as {client:#x} {handle:#x} under {parent:#x}"),
    );
    body[status_at..status_at + 4].fill(0);
    Ok(0)
}

/// Refuses an allocation, if a test wants it: its status, and that of the message.
fn refused(gsp: &mut Knowledge, class: u32) -> Option<u32> {
    let (_, status) = gsp.refuse.take_if(|(wanted, _)| *wanted == class)?;
    Some(status)
}

/// Classes of channels, since Kepler (`*_CHANNEL_GPFIFO_A`).
fn is_channel(class: u32) -> bool {
    class & 0xff == 0x6f && class >= 0xa06f
}

/// Classes of objects for compute (`*_COMPUTE_*`).
fn is_compute(class: u32) -> bool {
    class & 0xff == 0xc0 && class > 0xa000
}

/// The parts of a channel, and the objects that may have its address space.
fn channel(
    gsp: &Knowledge,
    units: &Units,
    id: ObjectId,
    parent: u32,
    params: &[u8],
) -> Result<(ChannelSetup, Vec<ObjectId>), TooShort> {
    let said = Record::of(&units.facts.abi, "NV_CHANNEL_ALLOC_PARAMS", params)?;
    let of_client = |handle: u32| ObjectId {
        client: id.client,
        handle,
    };
    let group = gsp.objects.get(of_client(parent));
    let share = gsp.objects.get(of_client(said.word("hContextShare")));
    let engine = match said.word("engineType") {
        0 => group.map_or(0, |group| group.engine),
        engine => engine,
    };
    let runs = |e: &&crate::engines::Engine| e.rm_type(&units.facts.abi) == engine;
    let runlist = units
        .facts
        .engines
        .iter()
        .find(runs)
        .map_or(0, |engine| engine.runlist);
    let flags = said.word("flags");
    // `NVOS04_FLAGS_CHANNEL_USERD_INDEX_PAGE_VALUE` and `_USERD_INDEX_VALUE`.
    let number = (flags >> 12 & 0x1ff) * 8 + (flags >> 8 & 7);
    let place = |memory: &str| Place {
        aperture: aperture_of(said.word(&format!("{memory}.addressSpace"))),
        address: said.get(&format!("{memory}.base")),
    };
    let setup = ChannelSetup {
        id: ChannelId { runlist, number },
        ring: said.get("gpFifoOffset"),
        entries: said.word("gpFifoEntries"),
        userd: place("userdMem"),
        notifier: Some(place("errorNotifierMem")).filter(|place| place.address != 0),
    };
    let handles = [
        said.word("hVASpace"),
        share.map_or(0, |share| share.space),
        group.map_or(0, |group| group.space),
        said.word("hContextShare"),
        gsp.objects
            .above(of_client(parent), DEVICE)
            .unwrap_or(parent),
    ];
    Ok((
        setup,
        handles
            .into_iter()
            .filter(|handle| *handle != 0)
            .map(of_client)
            .collect(),
    ))
}

fn free(gsp: &mut Knowledge, units: &mut Units, body: &mut [u8]) -> Result<u32, TooShort> {
    let said = Record::of(&units.facts.abi, "rpc_free_v03_00", body)?;
    let client = said.word("params.hRoot");
    let object = ObjectId {
        client,
        handle: said.word("params.hObjectOld"),
    };
    for gone in gsp.objects.remove(object) {
        units.host.remove(gone);
    }
    Ok(0)
}

fn duplicate(gsp: &mut Knowledge, units: &mut Units, body: &mut [u8]) -> Result<u32, TooShort> {
    let said = Record::of(&units.facts.abi, "rpc_dup_object_v03_00", body)?;
    let object = |client: &str, handle: &str| ObjectId {
        client: said.word(client),
        handle: said.word(handle),
    };
    let copy = object("params.hClient", "params.hObject");
    let original = object("params.hClientSrc", "params.hObjectSrc");
    let parent = said.word("params.hParent");
    let known = gsp.objects.get(original).copied();
    let class = GspObject {
        parent,
        class: 0,
        engine: 0,
        space: 0,
    };
    gsp.objects.add(
        copy,
        GspObject {
            parent,
            ..known.unwrap_or(class)
        },
    );
    units.host.duplicate(copy, original);
    Ok(0)
}

fn set_page_directory(units: &mut Units, body: &mut [u8]) -> Result<u32, TooShort> {
    let said = Record::of(&units.facts.abi, "rpc_set_page_directory_v1E_05", body)?;
    let space = ObjectId {
        client: said.word("hClient"),
        handle: said.word("params.hVASpace"),
    };
    let address = said.get("params.physAddress");
    // `NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_FLAGS_APERTURE`: video memory is 0.
    let root = match said.word("params.flags") & 3 {
        0 => Place::video(address),
        _ => Place::system(address),
    };
    units
        .log
        .say("gsp", format_args!("root of {space:x?} is {root:x?}"));
    units.host.set_root(space, root);
    Ok(0)
}

/// The driver has made the tables of a window; the window's first table is the firmware's.
fn update_bar_pde(units: &mut Units, body: &mut [u8]) -> Result<u32, TooShort> {
    let abi = &units.facts.abi;
    let said = Record::of(abi, "rpc_update_bar_pde_v15_00", body)?;
    let root = match said.word("info.barType") {
        bar if bar == abi.word("NV_RPC_UPDATE_PDE_BAR_1") => units.facts.bar1_root(),
        _ => units.facts.bar2_root(),
    };
    let entry = said.get("info.entryValue").to_le_bytes();
    let written = units.memory.write(Place::video(root), &entry);
    Ok(if written.is_ok() {
        0
    } else {
        abi.word("NV_ERR_INSUFFICIENT_RESOURCES")
    })
}
