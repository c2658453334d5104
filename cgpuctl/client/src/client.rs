// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The control device `/dev/cgpuctl` behind [`Control`]: one `ioctl(2)` per method.
//!
//! The only unsafe code of this crate. The compiler checks that each command gets a record of its
//! size, and that the record is mutable if the module writes to it.

use crate::control::Control;
use cgpu_uapi::{
    request, Gpu, GpuCompute, GpuSetCompute, Instance, InstanceCompute, InstanceCreate,
    InstanceGet, InstanceKey, InstanceLimit, InstanceLimits, InstanceRefusals,
    InstanceSetCapabilities, InstanceSetChannels, InstanceSetCompute, InstanceSetLimit,
    InstanceSetManaged, InstanceSetMemory, InstanceSetWeight, Limited, RecordList, Refusal,
    Version, CONTROL_PATH,
};
use nix::{errno::Errno, libc};
use std::{
    fs::{File, OpenOptions},
    io,
    os::fd::AsRawFd,
    ptr,
};
use zerocopy::FromZeros;

/// How many kinds of refused calls are asked for at first. Few programs make as many.
const REFUSALS_ROOM: usize = 128;

/// The open control device.
#[derive(Debug)]
pub struct Client {
    device: File,
}

/// The errno of an I/O error; `EIO` if it has none. (Errors of files always have one.)
pub fn errno(error: &io::Error) -> Errno {
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

    /// Runs a command whose record the module only reads.
    fn send<const COMMAND: u32, T>(&self, record: &T) -> Result<(), Errno> {
        const {
            assert!(
                COMMAND >> 30 == 1,
                "use exchange(): the module writes to this record"
            )
        };
        self.call::<COMMAND, T>(ptr::from_ref(record).cast_mut())
    }

    /// Runs a command whose record the module reads and writes.
    fn exchange<const COMMAND: u32, T>(&self, record: &mut T) -> Result<(), Errno> {
        self.call::<COMMAND, T>(record)
    }

    /// Runs a command with its record.
    fn call<const COMMAND: u32, T>(&self, record: *mut T) -> Result<(), Errno> {
        const {
            assert!(
                COMMAND >> 16 & 0x3fff == size_of::<T>() as u32,
                "the record is not that of the command"
            )
        };
        // SAFETY: the descriptor is open. The record is borrowed for the call and has the size that
        // is in the request code, so the module stays inside it.
        let result = unsafe { libc::ioctl(self.device.as_raw_fd(), COMMAND.into(), record) };
        Errno::result(result).map(drop)
    }

    /// Runs a command that fills a list, and returns all its records.
    fn list<const COMMAND: u32, T: Copy + FromZeros>(&self, room: usize) -> Result<Vec<T>, Errno> {
        Self::records(room, |list| self.exchange::<COMMAND, _>(list))
    }

    /// Returns all records of a list. Asks again with more room if the list was longer than
    /// `room`.
    ///
    /// `ask` has the module write at most `capacity` records of `record_size` bytes to `records`.
    /// There is room for them, and a record is plain integers, so any bytes make a valid one.
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

impl Control for Client {
    fn version(&self) -> Result<Version, Errno> {
        let mut version = Version::new_zeroed();
        self.exchange::<{ request::VERSION }, _>(&mut version)?;
        Ok(version)
    }

    fn gpus(&self) -> Result<Vec<Gpu>, Errno> {
        self.list::<{ request::GPU_LIST }, _>(cgpu_uapi::MAX_GPUS)
    }

    fn instances(&self) -> Result<Vec<Instance>, Errno> {
        self.list::<{ request::INSTANCE_LIST }, _>(cgpu_uapi::MAX_INSTANCES_PER_GPU)
    }

    fn create(&self, request: &mut InstanceCreate) -> Result<(), Errno> {
        self.exchange::<{ request::INSTANCE_CREATE }, _>(request)
    }

    fn destroy(&self, key: &InstanceKey) -> Result<(), Errno> {
        self.send::<{ request::INSTANCE_DESTROY }, _>(key)
    }

    fn get(&self, request: &mut InstanceGet) -> Result<(), Errno> {
        self.exchange::<{ request::INSTANCE_GET }, _>(request)
    }

    fn set_memory(&self, request: &InstanceSetMemory) -> Result<(), Errno> {
        self.send::<{ request::INSTANCE_SET_MEMORY }, _>(request)
    }

    fn set_weight(&self, request: &InstanceSetWeight) -> Result<(), Errno> {
        self.send::<{ request::INSTANCE_SET_WEIGHT }, _>(request)
    }

    fn set_managed(&self, request: &InstanceSetManaged) -> Result<(), Errno> {
        self.send::<{ request::INSTANCE_SET_MANAGED }, _>(request)
    }

    fn set_channels(&self, request: &InstanceSetChannels) -> Result<(), Errno> {
        self.send::<{ request::INSTANCE_SET_CHANNELS }, _>(request)
    }

    fn set_limit(&self, request: &InstanceSetLimit) -> Result<(), Errno> {
        self.send::<{ request::INSTANCE_SET_LIMIT }, _>(request)
    }

    fn limits(&self, key: &InstanceKey) -> Result<Vec<InstanceLimit>, Errno> {
        Self::records(Limited::ALL.len(), |list| {
            let mut request = InstanceLimits::new_zeroed();
            request.key = *key;
            request.list = *list;
            self.exchange::<{ request::INSTANCE_LIMITS }, _>(&mut request)?;
            *list = request.list;
            Ok(())
        })
    }

    fn set_capabilities(&self, request: &InstanceSetCapabilities) -> Result<(), Errno> {
        self.send::<{ request::INSTANCE_SET_CAPABILITIES }, _>(request)
    }

    fn refusals(&self, key: &InstanceKey) -> Result<(Vec<Refusal>, u64), Errno> {
        let mut others = 0;
        let records = Self::records(REFUSALS_ROOM, |list| {
            let mut request = InstanceRefusals::new_zeroed();
            request.key = *key;
            request.list = *list;
            self.exchange::<{ request::INSTANCE_REFUSALS }, _>(&mut request)?;
            *list = request.list;
            others = request.others;
            Ok(())
        })?;
        Ok((records, others))
    }

    fn set_gpu_compute(&self, request: &GpuSetCompute) -> Result<(), Errno> {
        self.send::<{ request::GPU_SET_COMPUTE }, _>(request)
    }

    fn set_instance_compute(&self, request: &InstanceSetCompute) -> Result<(), Errno> {
        self.send::<{ request::INSTANCE_SET_COMPUTE }, _>(request)
    }

    fn gpu_compute(&self) -> Result<Vec<GpuCompute>, Errno> {
        self.list::<{ request::GPU_COMPUTE }, _>(cgpu_uapi::MAX_GPUS)
    }

    fn instance_compute(&self) -> Result<Vec<InstanceCompute>, Errno> {
        self.list::<{ request::INSTANCE_COMPUTE }, _>(cgpu_uapi::MAX_INSTANCES_PER_GPU)
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
