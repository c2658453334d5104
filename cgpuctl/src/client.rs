// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The control device `/dev/cgpuctl` behind [`Control`]: one `ioctl(2)` per method.
//!
//! The only unsafe code of the tool. The request codes are computed by ioctl-sys from direction,
//! number and record type, and compared with those of the ABI at compile time.

use crate::control::Control;
use cgpu_uapi::{
    nr, request, Gpu, GpuCompute, GpuSetCompute, Instance, InstanceCompute, InstanceCreate,
    InstanceGet, InstanceKey, InstanceRefusals, InstanceSetCapabilities, InstanceSetCompute,
    InstanceSetManaged, InstanceSetMemory, InstanceSetWeight, RecordList, Refusal, Version,
    CONTROL_PATH, MAGIC,
};
use nix::errno::Errno;
use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd,
};
use zerocopy::FromZeros;

/// Declares the call of each command with `ioctl_sys::ioctl!` and holds its code against the ABI's.
macro_rules! commands {
    ($($direction:tt $code:ident $name:ident, $number:ident, $record:ty;)*) => {
        mod call {
            use super::*;
            $(ioctl_sys::ioctl!(try $direction $name with MAGIC, nr::$number; $record);)*
        }
        const _: () = {
            $(assert!(
                ioctl_sys::$code!(MAGIC, nr::$number, size_of::<$record>()) == request::$number
            );)*
        };
    };
}

commands! {
    read ior version, VERSION, Version;
    readwrite iorw gpu_list, GPU_LIST, RecordList;
    readwrite iorw instance_create, INSTANCE_CREATE, InstanceCreate;
    write iow instance_destroy, INSTANCE_DESTROY, InstanceKey;
    readwrite iorw instance_get, INSTANCE_GET, InstanceGet;
    readwrite iorw instance_list, INSTANCE_LIST, RecordList;
    write iow instance_set_memory, INSTANCE_SET_MEMORY, InstanceSetMemory;
    write iow instance_set_weight, INSTANCE_SET_WEIGHT, InstanceSetWeight;
    write iow instance_set_managed, INSTANCE_SET_MANAGED, InstanceSetManaged;
    write iow instance_set_capabilities, INSTANCE_SET_CAPABILITIES, InstanceSetCapabilities;
    readwrite iorw instance_refusals, INSTANCE_REFUSALS, InstanceRefusals;
    write iow gpu_set_compute, GPU_SET_COMPUTE, GpuSetCompute;
    write iow instance_set_compute, INSTANCE_SET_COMPUTE, InstanceSetCompute;
    readwrite iorw gpu_compute, GPU_COMPUTE, RecordList;
    readwrite iorw instance_compute, INSTANCE_COMPUTE, RecordList;
}

/// Room for refused calls, to begin with: more kinds than a program that fails makes.
const REFUSALS_ROOM: usize = 128;

/// The open control device.
#[derive(Debug)]
pub struct Client {
    device: File,
}

/// The errno of an I/O error; `EIO` for one that has none, which files never give.
pub(crate) fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

impl Client {
    /// Opens the control device.
    pub fn open() -> Result<Self, Errno> {
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .open(CONTROL_PATH)
            .map_err(|e| errno(&e))?;
        Ok(Self { device })
    }

    /// All records of a list that is a command of its own.
    fn list<T: Copy + FromZeros>(
        &self,
        call: unsafe fn(i32, *mut RecordList) -> io::Result<()>,
        room: usize,
    ) -> Result<Vec<T>, Errno> {
        Self::records(room, |list| {
            // SAFETY: the descriptor is open and `list` is valid for reads and writes; `records`
            // made it.
            unsafe { call(self.device.as_raw_fd(), list) }.map_err(|e| errno(&e))
        })
    }

    /// All records of a list. Asks again with more room if the list has grown in between.
    ///
    /// `ask` has the module fill in the list: at most `capacity` records of `record_size` bytes at
    /// `records`, which is how much there is room for, and any bytes are a valid record (they are
    /// plain integers).
    fn records<T: Copy + FromZeros>(
        room: usize,
        mut ask: impl FnMut(&mut RecordList) -> Result<(), Errno>,
    ) -> Result<Vec<T>, Errno> {
        let mut room = room;
        loop {
            let mut records = vec![T::new_zeroed(); room];
            let mut list = RecordList::new_zeroed();
            // CAST: an address, which has at most 64 bits.
            list.records = records.as_mut_ptr() as u64;
            list.capacity = u32::try_from(room).map_err(|_| Errno::EOVERFLOW)?;
            list.record_size = u32::try_from(size_of::<T>()).map_err(|_| Errno::EOVERFLOW)?;
            ask(&mut list)?;
            let count = usize::try_from(list.count).map_err(|_| Errno::EOVERFLOW)?;
            if count <= room {
                records.truncate(count);
                return Ok(records);
            }
            room = count;
        }
    }
}

/// Calls one of the functions above with the device and a record.
macro_rules! call {
    ($client:expr, $name:ident, $record:expr) => {
        // SAFETY: the descriptor is open, and the record is borrowed for the call and of the very
        // type whose size is in the request code, so the module stays inside it.
        unsafe { call::$name($client.device.as_raw_fd(), $record) }.map_err(|e| errno(&e))
    };
}

impl Control for Client {
    fn version(&self) -> Result<Version, Errno> {
        let mut version = Version::new_zeroed();
        call!(self, version, &mut version)?;
        Ok(version)
    }

    fn gpus(&self) -> Result<Vec<Gpu>, Errno> {
        self.list(call::gpu_list, cgpu_uapi::MAX_GPUS)
    }

    fn instances(&self) -> Result<Vec<Instance>, Errno> {
        self.list(call::instance_list, cgpu_uapi::MAX_INSTANCES_PER_GPU)
    }

    fn create(&self, request: &mut InstanceCreate) -> Result<(), Errno> {
        call!(self, instance_create, request)
    }

    fn destroy(&self, key: &InstanceKey) -> Result<(), Errno> {
        call!(self, instance_destroy, key)
    }

    fn get(&self, request: &mut InstanceGet) -> Result<(), Errno> {
        call!(self, instance_get, request)
    }

    fn set_memory(&self, request: &InstanceSetMemory) -> Result<(), Errno> {
        call!(self, instance_set_memory, request)
    }

    fn set_weight(&self, request: &InstanceSetWeight) -> Result<(), Errno> {
        call!(self, instance_set_weight, request)
    }

    fn set_managed(&self, request: &InstanceSetManaged) -> Result<(), Errno> {
        call!(self, instance_set_managed, request)
    }

    fn set_capabilities(&self, request: &InstanceSetCapabilities) -> Result<(), Errno> {
        call!(self, instance_set_capabilities, request)
    }

    fn refusals(&self, key: &InstanceKey) -> Result<(Vec<Refusal>, u64), Errno> {
        let mut others = 0;
        let records = Self::records(REFUSALS_ROOM, |list| {
            let mut request = InstanceRefusals::new_zeroed();
            request.key = *key;
            request.list = *list;
            call!(self, instance_refusals, &mut request)?;
            *list = request.list;
            others = request.others;
            Ok(())
        })?;
        Ok((records, others))
    }

    fn set_gpu_compute(&self, request: &GpuSetCompute) -> Result<(), Errno> {
        call!(self, gpu_set_compute, request)
    }

    fn set_instance_compute(&self, request: &InstanceSetCompute) -> Result<(), Errno> {
        call!(self, instance_set_compute, request)
    }

    fn gpu_compute(&self) -> Result<Vec<GpuCompute>, Errno> {
        self.list(call::gpu_compute, cgpu_uapi::MAX_GPUS)
    }

    fn instance_compute(&self) -> Result<Vec<InstanceCompute>, Errno> {
        self.list(call::instance_compute, cgpu_uapi::MAX_INSTANCES_PER_GPU)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client on a file that is no control device.
    fn on(path: &str) -> Client {
        let device = File::open(path).expect("a device of every Linux");
        Client { device }
    }

    #[test]
    fn the_errno_of_a_refused_call_comes_back() {
        let null = on("/dev/null");
        assert_eq!(null.version().err(), Some(Errno::ENOTTY));
        assert_eq!(null.gpus().err(), Some(Errno::ENOTTY));
        assert_eq!(null.instances().err(), Some(Errno::ENOTTY));
        let key = InstanceKey::new_zeroed();
        assert_eq!(null.destroy(&key).err(), Some(Errno::ENOTTY));
    }
}
