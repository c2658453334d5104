// SPDX-License-Identifier: GPL-2.0
//! A small RM client: just enough of the driver's interface to allocate memory by hand.

use crate::{
    bytes::{put_u32, put_u64, u32_at, u64_at},
    facts, layout,
    sys::{self, Errno},
};

/// Class NV01_ROOT_CLIENT.
pub const ROOT: u32 = 0x41;
/// Class NV01_DEVICE_0.
pub const DEVICE: u32 = 0x80;
/// Class NV20_SUBDEVICE_0.
pub const SUBDEVICE: u32 = 0x2080;
/// Class NV01_MEMORY_LOCAL_USER.
pub const VIDEO_MEMORY: u32 = layout::CLASS_VIDEO_MEMORY;
/// Class NV01_MEMORY_SYSTEM.
pub const SYSTEM_MEMORY: u32 = 0x3E;
/// Class KEPLER_CHANNEL_GROUP_A.
pub const CHANNEL_GROUP: u32 = 0xA06C;
/// Class HOPPER_CHANNEL_GPFIFO_A.
pub const CHANNEL: u32 = 0xC86F;
/// NV2080_ENGINE_TYPE_GRAPHICS: compute as well.
pub const COMPUTE: u32 = 1;
/// Class HOPPER_USERMODE_A: the doorbell.
pub const USERMODE: u32 = 0xC661;
/// Offset of NOTIFY_CHANNEL_PENDING, the doorbell's register, in the mapping of [`USERMODE`].
pub const BELL: u64 = 0x90;
/// The flags with which libcuda maps the doorbell (recorded): NVOS33_FLAGS_ACCESS is WRITE_ONLY.
pub const MAP_OF_DOORBELL: u32 = 0x0008_0002;
/// The flags with which libcuda maps memory (recorded).
pub const MAP_OF_MEMORY: u32 = 0x000c_0000;
/// NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE.
pub const TOTAL_RAM_SIZE: u32 = 0x08;
/// NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE.
pub const HEAP_FREE: u32 = 0x16;
/// An event of a subdevice: the graphics engine has done something, as CUDA asks for it.
pub const ENGINE_EVENT: u32 = 0x3800_000C;
/// NV_ERR_NO_MEMORY.
pub const NO_MEMORY: u32 = 0x51;
/// NV_ERR_OBJECT_NOT_FOUND.
pub const NOT_FOUND: u32 = 0x57;

/// The request code of an escape.
pub const fn request(nr: u32, size: u32) -> u32 {
    3 << 30 | size << 16 | layout::NV_TYPE << 8 | nr
}

/// Why a call did not work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The ioctl itself.
    Errno(Errno),
    /// RM's status.
    Status(u32),
}

impl Failure {
    /// RM's status, if it is one.
    pub fn status(&self) -> Option<u32> {
        match self {
            Self::Errno(_) => None,
            Self::Status(status) => Some(*status),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Errno(e) => write!(f, "errno {e}"),
            Self::Status(s) => write!(f, "status {s:#x}"),
        }
    }
}

/// A program's files and its RM client.
#[derive(Debug)]
pub struct Client {
    /// Descriptor of the control node.
    pub ctl: i32,
    /// Descriptor of the GPU's node.
    pub gpu: i32,
    /// The client's handle.
    pub handle: u32,
}

/// Parameters of a memory object of `bytes` bytes: as CUDA fills them for plain video memory.
pub fn memory_params(client: u32, bytes: u64) -> [u8; 128] {
    let mut params = [0; 128];
    put_u32(&mut params, 0, client);
    // Flags and attributes of the recorded allocations (class 0x40).
    put_u32(&mut params, 8, 0x0001_C101);
    put_u32(&mut params, 24, 0x1800_0000);
    put_u32(&mut params, 28, 0x0010_0005);
    put_u64(&mut params, layout::MEMORY_SIZE_AT, bytes);
    params
}

/// RM_ALLOC on any descriptor; the new object's handle.
pub fn alloc(
    fd: i32,
    client: u32,
    parent: u32,
    handle: u32,
    class: u32,
    params: &mut [u8],
) -> Result<u32, Failure> {
    let mut outer = [0; 48];
    put_u32(&mut outer, 0, client);
    put_u32(&mut outer, 4, parent);
    put_u32(&mut outer, 8, handle);
    put_u32(&mut outer, 12, class);
    if !params.is_empty() {
        put_u64(&mut outer, 16, params.as_mut_ptr() as u64);
    }
    sys::ioctl(fd, request(0x2B, 48), &mut outer).map_err(Failure::Errno)?;
    match u32_at(&outer, 40) {
        0 => Ok(u32_at(&outer, 8)),
        status => Err(Failure::Status(status)),
    }
}

/// RM_FREE.
pub fn free(fd: i32, client: u32, object: u32) -> Result<(), Failure> {
    let mut outer = [0; 16];
    put_u32(&mut outer, 0, client);
    put_u32(&mut outer, 8, object);
    sys::ioctl(fd, request(0x29, 16), &mut outer).map_err(Failure::Errno)?;
    status(u32_at(&outer, 12))
}

/// Makes a client and frees it, over and over. A refusal is none of its business.
pub(super) fn client_after_client(ctl: i32) -> ! {
    loop {
        if let Ok(handle) = alloc(ctl, 0, 0, 0, ROOT, &mut []) {
            let _ = free(ctl, handle, handle);
        }
    }
}

/// RM_CONTROL.
pub fn control(
    fd: i32,
    client: u32,
    object: u32,
    cmd: u32,
    params: &mut [u8],
) -> Result<(), Failure> {
    let mut outer = [0; 32];
    put_u32(&mut outer, 0, client);
    put_u32(&mut outer, 4, object);
    put_u32(&mut outer, 8, cmd);
    if !params.is_empty() {
        put_u64(&mut outer, 16, params.as_mut_ptr() as u64);
    }
    put_u32(&mut outer, 24, u32::try_from(params.len()).unwrap_or(0));
    sys::ioctl(fd, request(0x2A, 32), &mut outer).map_err(Failure::Errno)?;
    status(u32_at(&outer, 28))
}

fn status(status: u32) -> Result<(), Failure> {
    match status {
        0 => Ok(()),
        status => Err(Failure::Status(status)),
    }
}

/// RM_DUP_OBJECT into a client.
pub fn dup(
    fd: i32,
    client: u32,
    parent: u32,
    handle: u32,
    source: (u32, u32),
) -> Result<u32, Failure> {
    let mut outer = [0; 28];
    for (at, value) in [
        (0, client),
        (4, parent),
        (8, handle),
        (12, source.0),
        (16, source.1),
    ] {
        put_u32(&mut outer, at, value);
    }
    sys::ioctl(fd, request(0x34, 28), &mut outer).map_err(Failure::Errno)?;
    status(u32_at(&outer, 24)).map(|()| u32_at(&outer, 8))
}

/// RM_SHARE: gives others, of a kind (`RS_SHARE_TYPE_*`), the right to duplicate an object.
pub fn share(fd: i32, (client, object): (u32, u32), kind: u8) -> Result<(), Failure> {
    let mut outer = [0; 24];
    put_u32(&mut outer, 0, client);
    put_u32(&mut outer, 4, object);
    put_u32(&mut outer, 12, 1);
    outer[16] = kind;
    sys::ioctl(fd, request(0x35, 24), &mut outer).map_err(Failure::Errno)?;
    status(u32_at(&outer, 20))
}

/// OS_UNIX_EXPORT_OBJECT_TO_FD: puts an object into a control file.
pub fn export(client: &Client, object: u32, fd: i32) -> Result<(), Failure> {
    let mut params = [0; 24];
    put_u32(&mut params, 0, 1);
    put_u32(&mut params, 4, DEVICE_HANDLE);
    put_u32(&mut params, 8, DEVICE_HANDLE);
    put_u32(&mut params, 12, object);
    params[16..20].copy_from_slice(&fd.to_le_bytes());
    control(
        client.ctl,
        client.handle,
        client.handle,
        0x3D05,
        &mut params,
    )
}

/// OS_UNIX_IMPORT_OBJECT_FROM_FD: takes it out of there; the copy's handle.
pub fn import(client: &Client, handle: u32, fd: i32) -> Result<u32, Failure> {
    import_below(client, DEVICE_HANDLE, handle, fd)
}

/// The same below another device of the client's.
pub fn import_below(client: &Client, device: u32, handle: u32, fd: i32) -> Result<u32, Failure> {
    let mut params = [0; 20];
    params[..4].copy_from_slice(&fd.to_le_bytes());
    put_u32(&mut params, 4, 1);
    put_u32(&mut params, 8, device);
    put_u32(&mut params, 12, device);
    put_u32(&mut params, 16, handle);
    control(
        client.ctl,
        client.handle,
        client.handle,
        0x3D06,
        &mut params,
    )?;
    Ok(u32_at(&params, 16))
}

/// VID_HEAP_CONTROL function 2 (ALLOC_SIZE): handle and size of the new object.
pub fn vid_heap_alloc(
    fd: i32,
    client: u32,
    parent: u32,
    handle: u32,
    bytes: u64,
) -> Result<(u32, u64), Failure> {
    let mut outer = [0; 184];
    put_u32(&mut outer, 0, client);
    put_u32(&mut outer, 4, parent);
    put_u32(&mut outer, 8, 2);
    put_u32(&mut outer, 40, client);
    put_u32(&mut outer, 44, handle);
    put_u32(&mut outer, 52, 0x0001_C101);
    put_u32(&mut outer, 56, 0x1800_0000);
    put_u64(&mut outer, 88, bytes);
    put_u32(&mut outer, 144, 0x0010_0005);
    sys::ioctl(fd, request(0x4A, 184), &mut outer).map_err(Failure::Errno)?;
    status(u32_at(&outer, 20)).map(|()| (u32_at(&outer, 44), u64_at(&outer, 88)))
}

/// RM_MAP_MEMORY: prepares the file `fd` for an `mmap` of an object's first `len` bytes. Returns
/// the address by which the driver names the mapping.
pub fn map(
    ctl: i32,
    names: (u32, u32, u32),
    len: u64,
    flags: u32,
    fd: i32,
) -> Result<u64, Failure> {
    map_part(ctl, names, (0, len), flags, fd)
}

/// The same of a part of it: from which byte on, and how many.
pub fn map_part(
    ctl: i32,
    (client, parent, object): (u32, u32, u32),
    (offset, len): (u64, u64),
    flags: u32,
    fd: i32,
) -> Result<u64, Failure> {
    let mut outer = [0; 56];
    for (at, value) in [(0, client), (4, parent), (8, object), (44, flags)] {
        put_u32(&mut outer, at, value);
    }
    put_u64(&mut outer, 16, offset);
    put_u64(&mut outer, 24, len);
    put_u32(&mut outer, 48, u32::try_from(fd).unwrap_or(u32::MAX));
    sys::ioctl(ctl, request(0x4E, 56), &mut outer).map_err(Failure::Errno)?;
    status(u32_at(&outer, 40))?;
    Ok(u64_at(&outer, 32))
}

/// RM_UNMAP_MEMORY of the mapping that the driver has told at this address.
pub fn unmap(
    ctl: i32,
    (client, parent, object): (u32, u32, u32),
    address: u64,
) -> Result<(), Failure> {
    let mut outer = [0; 32];
    for (at, value) in [(0, client), (4, parent), (8, object)] {
        put_u32(&mut outer, at, value);
    }
    put_u64(&mut outer, 16, address);
    sys::ioctl(ctl, request(0x4F, 32), &mut outer).map_err(Failure::Errno)?;
    status(u32_at(&outer, 24))
}

/// IOCTL_XFER_CMD around another request.
pub fn xfer(fd: i32, nr: u32, argument: &mut [u8]) -> Result<i32, Errno> {
    let mut outer = [0; 16];
    put_u32(&mut outer, 0, nr);
    put_u32(&mut outer, 4, u32::try_from(argument.len()).unwrap_or(0));
    put_u64(&mut outer, 8, argument.as_mut_ptr() as u64);
    sys::ioctl(fd, request(layout::NR_XFER, 16), &mut outer)
}

/// Handle of the device object that [`Client::open`] makes.
pub const DEVICE_HANDLE: u32 = 0x5C00_0002;
/// Handle of the subdevice object that [`Client::open`] makes.
pub const SUBDEVICE_HANDLE: u32 = 0x5C00_0003;
/// Handle of the memory of all channels' USERD.
const USERD_HANDLE: u32 = 0x5CAD_0001;
/// The first branch whose driver has a channel's program bring the memory of USERD
/// (kernel_channel.c, `_kchannelAllocOrDescribeInstMem`).
const OWN_USERD: u32 = 595;
/// `NV_ERR_INSERT_DUPLICATE_NAME`: the handle is taken.
pub const DUPLICATE_NAME: u32 = 0x19;

/// Makes a client, a device and a subdevice on open files of a folder's nodes.
impl Client {
    /// Opens `nvidiactl` and `nvidia<minor>` of a folder and makes the objects.
    pub fn open(folder: &str, minor: u32, device_instance: u32) -> Result<Self, Failure> {
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        let ctl = sys::open(&format!("{folder}/nvidiactl"), flags).map_err(Failure::Errno)?;
        let gpu = sys::open(&format!("{folder}/nvidia{minor}"), flags).map_err(Failure::Errno)?;
        let mut register = [0; 4];
        put_u32(&mut register, 0, u32::try_from(ctl).unwrap_or(0));
        sys::ioctl(gpu, request(201, 4), &mut register).map_err(Failure::Errno)?;
        let handle = alloc(ctl, 0, 0, 0, ROOT, &mut [])?;
        let client = Self { ctl, gpu, handle };
        let mut device = [0; 56];
        put_u32(&mut device, 0, device_instance);
        client.alloc(handle, DEVICE_HANDLE, DEVICE, &mut device)?;
        client.alloc(DEVICE_HANDLE, SUBDEVICE_HANDLE, SUBDEVICE, &mut [0; 4])?;
        Ok(client)
    }

    /// RM_ALLOC.
    pub fn alloc(
        &self,
        parent: u32,
        handle: u32,
        class: u32,
        params: &mut [u8],
    ) -> Result<u32, Failure> {
        alloc(self.ctl, self.handle, parent, handle, class, params)
    }

    /// Asks for a channel in no group that has a share of a group's state. The driver refuses it
    /// with lines in the log. An error says that it did not.
    pub fn refused_channel(&self, handle: u32) -> Result<(), String> {
        let mut params = [0; 368];
        put_u32(&mut params, 24, handle + 1);
        put_u32(&mut params, 128, COMPUTE);
        match self.alloc(DEVICE_HANDLE, handle, CHANNEL, &mut params) {
            Err(Failure::Status(_)) => Ok(()),
            other => Err(format!("a share of no group's state: {other:?}")),
        }
    }

    /// RM_CONTROL of an object.
    pub fn control(&self, object: u32, cmd: u32, params: &mut [u8]) -> Result<(), Failure> {
        control(self.ctl, self.handle, object, cmd, params)
    }

    /// Video memory; its size as the driver gave it.
    pub fn memory(&self, handle: u32, bytes: u64) -> Result<u64, Failure> {
        let mut params = memory_params(self.handle, bytes);
        self.alloc(DEVICE_HANDLE, handle, VIDEO_MEMORY, &mut params)?;
        Ok(u64_at(&params, layout::MEMORY_SIZE_AT))
    }

    /// A group of channels on an engine (`NV2080_ENGINE_TYPE_*`).
    pub fn channel_group(&self, handle: u32, engine: u32) -> Result<(), Failure> {
        let mut params = [0; 20];
        put_u32(&mut params, 12, engine);
        let made = self.alloc(DEVICE_HANDLE, handle, CHANNEL_GROUP, &mut params);
        made.map(drop)
    }

    /// A channel in a group.
    pub fn channel(&self, group: u32, handle: u32) -> Result<(), Failure> {
        let mut params = self.channel_params()?;
        self.alloc(group, handle, CHANNEL, &mut params).map(drop)
    }

    /// The parameters of a channel (`NV_CHANNEL_ALLOC_PARAMS`). Nothing runs on the channels made
    /// of them: all of a client share one page for their USERD.
    pub fn channel_params(&self) -> Result<[u8; 368], Failure> {
        let mut params = [0; 368];
        if facts::branch() >= OWN_USERD {
            match self.system_page(USERD_HANDLE) {
                Ok(_) | Err(Failure::Status(DUPLICATE_NAME)) => {}
                Err(failure) => return Err(failure),
            }
            put_u32(&mut params, 32, USERD_HANDLE);
        }
        Ok(params)
    }

    /// A context for DMA over 4 KiB of memory (`NV_ESC_RM_ALLOC_CONTEXT_DMA2`).
    pub fn context_dma(&self, memory: u32, handle: u32) -> Result<(), Failure> {
        let mut outer = [0; 56];
        put_u32(&mut outer, 0, self.handle);
        put_u32(&mut outer, 8, handle);
        put_u32(&mut outer, 12, 2);
        // No hash table: an administrator's.
        put_u32(&mut outer, 16, 1 << 29);
        put_u32(&mut outer, 24, memory);
        put_u64(&mut outer, 40, 0xfff);
        sys::ioctl(self.ctl, request(0x54, 56), &mut outer).map_err(Failure::Errno)?;
        status(u32_at(&outer, 48))
    }

    /// A page of system memory, with the flags that CUDA uses for its small ones.
    pub fn system_page(&self, handle: u32) -> Result<u32, Failure> {
        self.system_memory(handle, 4096)
    }

    /// So many bytes of it.
    pub fn system_memory(&self, handle: u32, bytes: u64) -> Result<u32, Failure> {
        let mut params = [0; 128];
        put_u32(&mut params, 0, DEVICE_HANDLE);
        put_u32(&mut params, 4, 13);
        put_u32(&mut params, 8, 0xC001);
        put_u32(&mut params, 24, 0x3A00_0000);
        put_u64(&mut params, layout::MEMORY_SIZE_AT, bytes);
        self.alloc(DEVICE_HANDLE, handle, SYSTEM_MEMORY, &mut params)
    }

    /// RM_MAP_MEMORY_DMA of an object into an address space, or a range in one: the address.
    pub fn map_dma(
        &self,
        (object, space): (u32, u32),
        length: u64,
        flags: u32,
    ) -> Result<u64, Failure> {
        let mut outer = [0; 64];
        let names = [self.handle, DEVICE_HANDLE, space, object];
        for (at, value) in (0..).step_by(4).zip(names) {
            put_u32(&mut outer, at, value);
        }
        put_u64(&mut outer, 24, length);
        put_u32(&mut outer, 32, flags);
        // Since branch 580 more flags stand before the address.
        let address = if facts::branch() < 580 { 40 } else { 48 };
        let size = address + 16;
        let request = request(0x57, u32::try_from(size).unwrap_or(0));
        sys::ioctl(self.ctl, request, &mut outer[..size]).map_err(Failure::Errno)?;
        status(u32_at(&outer, address + 8))?;
        Ok(u64_at(&outer, address))
    }

    /// RM_FREE.
    pub fn free(&self, object: u32) -> Result<(), Failure> {
        free(self.ctl, self.handle, object)
    }

    /// FB_GET_INFO_V2 for some indices, KiB each.
    pub fn fb_info(&self, indices: &[u32]) -> Result<Vec<u32>, Failure> {
        let cmd = layout::FB_GET_INFO_V2;
        let mut params = vec![0; facts::control_size(cmd).unwrap_or(0)];
        put_u32(&mut params, 0, u32::try_from(indices.len()).unwrap_or(0));
        for (i, index) in indices.iter().enumerate() {
            put_u32(&mut params, 4 + 8 * i, *index);
        }
        self.control(SUBDEVICE_HANDLE, cmd, &mut params)?;
        Ok((0..indices.len())
            .map(|i| u32_at(&params, 8 + 8 * i))
            .collect())
    }

    /// Closes both files.
    pub fn close(self) {
        let _ = sys::close(self.gpu);
        let _ = sys::close(self.ctl);
    }
}
