// SPDX-License-Identifier: GPL-2.0
//! An address space of UVM: just enough of `/dev/nvidia-uvm` to map memory by hand.

use crate::{
    bytes::{put_u32, put_u64, u32_at},
    facts,
    guest::{rm::Failure, tools::control},
    layout, sys,
};

/// The CPU as UVM names it (`NV_PROCESSOR_UUID_CPU_DEFAULT`).
pub const CPU: [u8; 16] = [
    0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2, 0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
];
/// Class FERMI_VASPACE_A: a GPU's address space.
pub const VA_SPACE: u32 = 0x90F1;
/// Parameters of a [`VA_SPACE`] that is to be UVM's, as CUDA makes it: externally owned, with
/// faults. The driver registers no other.
pub fn space_params() -> [u8; 56] {
    let mut params = [0; 56];
    put_u32(&mut params, 4, 0x48);
    params
}

/// UVM_REGISTER_GPU_VASPACE.
const REGISTER_VA_SPACE: u32 = 25;
/// UVM_UNREGISTER_GPU_VASPACE.
const UNREGISTER_VA_SPACE: u32 = 26;
/// UVM_MAP_EXTERNAL_ALLOCATION.
const MAP_EXTERNAL: u32 = 33;
/// UVM_FREE.
const FREE: u32 = 34;
/// UVM_REGISTER_GPU.
const REGISTER_GPU: u32 = 37;
/// UVM_UNMAP_EXTERNAL.
const UNMAP_EXTERNAL: u32 = 66;
/// UVM_CREATE_EXTERNAL_RANGE.
const CREATE_EXTERNAL_RANGE: u32 = 73;

/// A GPU as UVM names it, by its minor.
pub fn uuid(minor: u32) -> Result<[u8; 16], String> {
    let control = control()?;
    let gpus = control.gpus();
    let gpus = gpus.map_err(|e| format!("list of GPUs: errno {e}"))?;
    let gpu = gpus.iter().find(|gpu| gpu.minor == minor);
    let gpu = gpu.ok_or_else(|| format!("no GPU with minor {minor}"))?;
    let text = cgpu_uapi::text(&gpu.uuid);
    let digits = text.trim_start_matches("GPU-").replace('-', "");
    let number = u128::from_str_radix(&digits, 16).map_err(|e| format!("{text}: {e}"))?;
    Ok(number.to_be_bytes())
}

/// `UVM_MM_INITIALIZE`, without which the driver registers no GPU's address space: a second file
/// for the one of `fd`. `None`: that is in shared mode and needs none, as all are through an
/// instance.
pub fn companion(path: &str, fd: i32) -> Result<Option<i32>, Failure> {
    let second = sys::open(path, libc::O_RDWR | libc::O_CLOEXEC).map_err(Failure::Errno)?;
    let mut params = [0; 8];
    put_u32(&mut params, 0, u32::try_from(fd).unwrap_or(u32::MAX));
    sys::ioctl(second, layout::UVM_MM_INITIALIZE, &mut params).map_err(Failure::Errno)?;
    match u32_at(&params, 4) {
        0 => Ok(Some(second)),
        layout::NOTHING_TO_DO => sys::close(second).map(|()| None).map_err(Failure::Errno),
        status => Err(Failure::Status(status)),
    }
}

/// UVM_MAP_EXTERNAL_ALLOCATION_PARAMS of the driver that is loaded: a range, a GPU, and an RM
/// client's memory. The last word is the status. `None`: nobody knows this driver's.
pub fn map_params(
    (base, length): (u64, u64),
    gpu: &[u8; 16],
    (client, memory): (u32, u32),
) -> Option<Vec<u8>> {
    // Between the first fields and the last ones there is an entry for each GPU that can be.
    let size = facts::uvm_size(MAP_EXTERNAL)?;
    let mut params = vec![0; size];
    put_u64(&mut params, 0, base);
    put_u64(&mut params, 8, length);
    params[24..40].copy_from_slice(gpu);
    put_u64(&mut params, size - 24, 1);
    put_u32(&mut params, size - 12, client);
    put_u32(&mut params, size - 8, memory);
    Some(params)
}

fn node(folder: &str) -> String {
    format!("{folder}/nvidia-uvm")
}

/// An open file with an address space.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// Its descriptor.
    pub fd: i32,
    /// That of the file that keeps the address space of the process for it; none in shared mode.
    companion: Option<i32>,
}

impl Space {
    /// Opens the node of a folder and makes the address space.
    pub fn open(folder: &str) -> Result<Self, Failure> {
        let space = Self::with_flags(folder, 0)?;
        let companion = companion(&node(folder), space.fd)?;
        Ok(Self { companion, ..space })
    }

    /// The same, for several processes.
    pub fn open_shared(folder: &str) -> Result<Self, Failure> {
        // UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE.
        Self::with_flags(folder, 2)
    }

    fn with_flags(folder: &str, flags: u64) -> Result<Self, Failure> {
        let fd = sys::open(&node(folder), libc::O_RDWR | libc::O_CLOEXEC);
        let space = Self {
            fd: fd.map_err(Failure::Errno)?,
            companion: None,
        };
        let mut params = [0; 16];
        put_u64(&mut params, 0, flags);
        if let Err(failure) = space.call(layout::UVM_INITIALIZE, &mut params, 8) {
            space.close();
            return Err(failure);
        }
        Ok(space)
    }

    /// Closes it.
    pub fn close(self) {
        for fd in [Some(self.fd), self.companion].into_iter().flatten() {
            let _ = sys::close(fd);
        }
    }

    /// A request whose status stands at an offset of its parameters.
    pub fn call(&self, request: u32, params: &mut [u8], status_at: usize) -> Result<(), Failure> {
        sys::ioctl(self.fd, request, params).map_err(Failure::Errno)?;
        match u32_at(params, status_at) {
            0 => Ok(()),
            status => Err(Failure::Status(status)),
        }
    }

    /// A GPU alone.
    pub fn register_gpu(&self, gpu: &[u8; 16]) -> Result<(), Failure> {
        let mut params = [0; 40];
        params[..16].copy_from_slice(gpu);
        self.call(REGISTER_GPU, &mut params, 36)
    }

    /// A GPU and an object of class [`VA_SPACE`] on it.
    pub fn register(&self, gpu: &[u8; 16], client: u32, object: u32) -> Result<(), Failure> {
        self.register_gpu(gpu)?;
        self.register_space(gpu, client, object)
    }

    /// The object alone.
    pub fn register_space(&self, gpu: &[u8; 16], client: u32, object: u32) -> Result<(), Failure> {
        let mut params = [0; 32];
        params[..16].copy_from_slice(gpu);
        put_u32(&mut params, 20, client);
        put_u32(&mut params, 24, object);
        self.call(REGISTER_VA_SPACE, &mut params, 28)
    }

    /// Takes it back.
    pub fn unregister_space(&self, gpu: &[u8; 16]) -> Result<(), Failure> {
        let mut params = [0; 20];
        params[..16].copy_from_slice(gpu);
        self.call(UNREGISTER_VA_SPACE, &mut params, 16)
    }

    /// A range for memory of RM.
    pub fn create_range(&self, base: u64, length: u64) -> Result<(), Failure> {
        self.range(CREATE_EXTERNAL_RANGE, base, length)
    }

    /// Frees a range with all that is mapped in it.
    pub fn free_range(&self, base: u64, length: u64) -> Result<(), Failure> {
        self.range(FREE, base, length)
    }

    fn range(&self, request: u32, base: u64, length: u64) -> Result<(), Failure> {
        let mut params = [0; 24];
        put_u64(&mut params, 0, base);
        put_u64(&mut params, 8, length);
        self.call(request, &mut params, 16)
    }

    /// Maps an RM client's memory for a GPU.
    pub fn map(
        &self,
        range: (u64, u64),
        gpu: &[u8; 16],
        memory: (u32, u32),
    ) -> Result<(), Failure> {
        let params = map_params(range, gpu, memory);
        let mut params = params.ok_or(Failure::Errno(libc::ENOTTY))?;
        let status_at = params.len() - 4;
        self.call(MAP_EXTERNAL, &mut params, status_at)
    }

    /// Unmaps for a GPU.
    pub fn unmap(&self, (base, length): (u64, u64), gpu: &[u8; 16]) -> Result<(), Failure> {
        let mut params = [0; 40];
        put_u64(&mut params, 0, base);
        put_u64(&mut params, 8, length);
        params[16..32].copy_from_slice(gpu);
        self.call(UNMAP_EXTERNAL, &mut params, 32)
    }
}
