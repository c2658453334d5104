// SPDX-License-Identifier: GPL-2.0
//! NVIDIA's calls as plain bytes. Offsets are those of NVIDIA's headers at 580, written here once
//! more and not taken from the stand-in, whose own numbers they test.

use std::{ffi::CString, io};

/// A status of nvstatuscodes.h.
pub(crate) mod status {
    pub(crate) const OK: u32 = 0;
}

/// The escapes used here, and the classes.
pub(crate) mod number {
    pub(crate) const ALLOC_MEMORY: u32 = 0x27;
    pub(crate) const FREE: u32 = 0x29;
    pub(crate) const CONTROL: u32 = 0x2A;
    pub(crate) const ALLOC: u32 = 0x2B;
    pub(crate) const DUP: u32 = 0x34;
    pub(crate) const SHARE: u32 = 0x35;
    pub(crate) const VID_HEAP: u32 = 0x4A;
    pub(crate) const MAP: u32 = 0x4E;
    pub(crate) const CARD_INFO: u32 = 200;
    pub(crate) const REGISTER_FD: u32 = 201;
    pub(crate) const OS_EVENT: u32 = 206;
    pub(crate) const XFER: u32 = 211;
    pub(crate) const NUMA_INFO: u32 = 215;

    pub(crate) const DEVICE: u32 = 0x80;
    pub(crate) const SUBDEVICE: u32 = 0x2080;
    pub(crate) const VIDEO: u32 = 0x40;
    pub(crate) const SYSTEM: u32 = 0x3E;
    pub(crate) const VASPACE: u32 = 0x90F1;
    pub(crate) const GROUP: u32 = 0xA06C;
    pub(crate) const USERMODE: u32 = 0xC661;
    pub(crate) const EVENT: u32 = 0x79;
}

/// An open file of the driver; closed when dropped.
pub(crate) struct File(pub(crate) i32);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this object's own.
        unsafe { libc::close(self.0) };
    }
}

/// Opens a node, or says why not.
pub(crate) fn open(path: &str) -> Result<File, i32> {
    let path = CString::new(path).map_err(|_| libc::EINVAL)?;
    // SAFETY: the path ends in a zero.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(errno());
    }
    Ok(File(fd))
}

/// The control device.
pub(crate) fn ctl() -> File {
    open("/dev/nvidiactl").unwrap_or_else(|e| panic!("/dev/nvidiactl: errno {e}"))
}

/// A GPU's device.
pub(crate) fn gpu(minor: u32) -> File {
    open(&format!("/dev/nvidia{minor}")).unwrap_or_else(|e| panic!("/dev/nvidia{minor}: errno {e}"))
}

/// UVM's device.
pub(crate) fn uvm() -> File {
    open("/dev/nvidia-uvm").unwrap_or_else(|e| panic!("/dev/nvidia-uvm: errno {e}"))
}

/// The last error number.
pub(crate) fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// ioctl with a plain request number.
pub(crate) fn request(file: &File, number: u64, argument: &mut [u8]) -> Result<(), i32> {
    // SAFETY: the argument is at least as long as the driver's struct of this request.
    let r = unsafe { libc::ioctl(file.0, number as libc::c_ulong, argument.as_mut_ptr()) };
    if r < 0 {
        return Err(errno());
    }
    Ok(())
}

/// An escape: _IOWR('F', number, size of the argument).
pub(crate) fn escape(file: &File, number: u32, argument: &mut [u8]) -> Result<(), i32> {
    let code = 3 << 30 | (argument.len() as u64) << 16 | u64::from(b'F') << 8 | u64::from(number);
    request(file, code, argument)
}

/// A buffer with 32-bit words at offsets.
pub(crate) fn words(size: usize, values: &[(usize, u32)]) -> Vec<u8> {
    let mut b = vec![0; size];
    for &(at, v) in values {
        b[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }
    b
}

/// Sets a 64-bit word.
pub(crate) fn set64(b: &mut [u8], at: usize, v: u64) {
    b[at..at + 8].copy_from_slice(&v.to_le_bytes());
}

/// Reads a 32-bit word.
pub(crate) fn get32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Reads a 64-bit word.
pub(crate) fn get64(b: &[u8], at: usize) -> u64 {
    u64::from(get32(b, at)) | u64::from(get32(b, at + 4)) << 32
}

/// RM_ALLOC in its long form (NVOS64): the status and the new handle.
pub(crate) fn alloc(
    file: &File,
    root: u32,
    parent: u32,
    new: u32,
    class: u32,
    params: &mut [u8],
) -> (u32, u32) {
    let mut a = words(48, &[(0, root), (4, parent), (8, new), (12, class)]);
    if !params.is_empty() {
        set64(&mut a, 16, params.as_mut_ptr() as u64);
    }
    match escape(file, number::ALLOC, &mut a) {
        Ok(()) => (get32(&a, 40), get32(&a, 8)),
        Err(e) => panic!("RM_ALLOC of {class:#x}: errno {e}"),
    }
}

/// A new client.
pub(crate) fn client(file: &File) -> u32 {
    let (s, h) = alloc(file, 0, 0, 0, 0, &mut []);
    assert_eq!(s, status::OK, "a client");
    h
}

/// RM_CONTROL.
pub(crate) fn control(file: &File, client: u32, object: u32, cmd: u32, params: &mut [u8]) -> u32 {
    let mut a = words(
        32,
        &[
            (0, client),
            (4, object),
            (8, cmd),
            (24, params.len() as u32),
        ],
    );
    if !params.is_empty() {
        set64(&mut a, 16, params.as_mut_ptr() as u64);
    }
    match escape(file, number::CONTROL, &mut a) {
        Ok(()) => get32(&a, 28),
        Err(e) => panic!("RM_CONTROL {cmd:#x}: errno {e}"),
    }
}

/// RM_FREE.
pub(crate) fn free(file: &File, client: u32, object: u32) -> u32 {
    let mut a = words(16, &[(0, client), (8, object)]);
    escape(file, number::FREE, &mut a).unwrap_or_else(|e| panic!("RM_FREE: errno {e}"));
    get32(&a, 12)
}

/// RM_DUP_OBJECT.
pub(crate) fn dup(file: &File, client: u32, parent: u32, new: u32, from: u32, object: u32) -> u32 {
    let mut a = words(
        28,
        &[(0, client), (4, parent), (8, new), (12, from), (16, object)],
    );
    escape(file, number::DUP, &mut a).unwrap_or_else(|e| panic!("RM_DUP_OBJECT: errno {e}"));
    get32(&a, 24)
}

/// RM_MAP_MEMORY with a descriptor: status and address.
pub(crate) fn map(
    file: &File,
    client: u32,
    device: u32,
    memory: u32,
    length: u64,
    fd: i32,
) -> (u32, u64) {
    let mut a = words(
        56,
        &[(0, client), (4, device), (8, memory), (48, fd as u32)],
    );
    set64(&mut a, 24, length);
    escape(file, number::MAP, &mut a).unwrap_or_else(|e| panic!("RM_MAP_MEMORY: errno {e}"));
    (get32(&a, 40), get64(&a, 32))
}

/// NV_MEMORY_ALLOCATION_PARAMS with this owner, these attributes and this size.
pub(crate) fn memory(owner: u32, attr: u32, size: u64) -> Vec<u8> {
    let mut p = words(128, &[(0, owner), (24, attr)]);
    set64(&mut p, 64, size);
    p
}

/// NV_VASPACE_ALLOCATION_PARAMETERS of an address space that is to be UVM's, as CUDA has it:
/// externally owned, with faults.
pub(crate) fn uvm_space() -> Vec<u8> {
    words(56, &[(4, 0x48)])
}

/// A client with a device ([`DEVICE`]) and a subdevice ([`SUBDEVICE`]), and its two files.
pub(crate) struct Program {
    /// The control file.
    pub(crate) ctl: File,
    /// The GPU's file.
    pub(crate) gpu: File,
    /// The client.
    pub(crate) client: u32,
}

/// Device handle of a [`Program`].
pub(crate) const DEVICE: u32 = 0x5C00_0001;
/// Subdevice handle of a [`Program`].
pub(crate) const SUBDEVICE: u32 = 0x5C00_0002;

impl Program {
    /// RM_ALLOC of an object of its client: the status.
    pub(crate) fn alloc(&self, parent: u32, new: u32, class: u32, params: &mut [u8]) -> u32 {
        alloc(&self.ctl, self.client, parent, new, class, params).0
    }

    /// The same, where it works.
    #[track_caller]
    pub(crate) fn make(&self, parent: u32, new: u32, class: u32, params: &mut [u8]) {
        assert_eq!(self.alloc(parent, new, class, params), status::OK);
    }

    /// RM_CONTROL of an object of its client: the status.
    pub(crate) fn control(&self, object: u32, cmd: u32, params: &mut [u8]) -> u32 {
        control(&self.ctl, self.client, object, cmd, params)
    }

    /// RM_FREE of an object of its client: the status.
    pub(crate) fn free(&self, object: u32) -> u32 {
        free(&self.ctl, self.client, object)
    }

    /// RM_MAP_MEMORY of an object of its client for a file: the status.
    pub(crate) fn map(&self, parent: u32, memory: u32, length: u64, file: &File) -> u32 {
        map(&self.ctl, self.client, parent, memory, length, file.0).0
    }

    /// Video memory under the device: the status and the size that came back.
    pub(crate) fn video(&self, handle: u32, size: u64) -> (u32, u64) {
        // In video memory, in pieces if need be, of pages as the driver likes.
        let mut p = memory(self.client, 0x1800_0000, size);
        let status = self.alloc(DEVICE, handle, number::VIDEO, &mut p);
        (status, get64(&p, 64))
    }
}

/// mmap: the address or the error number.
pub(crate) fn mmap(
    file: &File,
    at: u64,
    length: u64,
    protection: i32,
    offset: u64,
) -> Result<u64, i32> {
    let fixed = if at == 0 {
        0
    } else {
        libc::MAP_FIXED_NOREPLACE
    };
    // SAFETY: a new mapping where nothing is (NOREPLACE).
    let p = unsafe {
        libc::mmap(
            at as *mut libc::c_void,
            length as usize,
            protection,
            libc::MAP_SHARED | fixed,
            file.0,
            offset as libc::off_t,
        )
    };
    if p == libc::MAP_FAILED {
        return Err(errno());
    }
    Ok(p as u64)
}

/// munmap of what [`mmap`] gave.
pub(crate) fn munmap(at: u64, length: u64) {
    // SAFETY: a mapping of ours that nothing refers to.
    unsafe { libc::munmap(at as *mut libc::c_void, length as usize) };
}

/// Runs `f` in a child process, and gives what it returned.
pub(crate) fn in_child(f: impl FnOnce() -> u8) -> u8 {
    // SAFETY: the program has one thread.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = f();
        // SAFETY: leaves the child without running the parent's ends.
        unsafe { libc::_exit(i32::from(code)) };
    }
    let mut state = 0;
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(pid, &mut state, 0) };
    libc::WEXITSTATUS(state) as u8
}
