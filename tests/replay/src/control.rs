// SPDX-License-Identifier: GPL-2.0
//! The control device, for test programs.

use cgpu_uapi as uapi;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::sys::{self, Errno};

/// An open control device.
#[derive(Debug)]
pub struct Control {
    fd: i32,
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = sys::close(self.fd);
    }
}

/// Names an instance. A name that is not valid is passed on as it is, cut to the field.
pub fn key(name: &str, gpu_minor: u32) -> uapi::InstanceKey {
    let mut field = [0; uapi::NAME_LEN];
    for (to, from) in field.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    uapi::InstanceKey::new(uapi::Name(field), gpu_minor)
}

/// At most as many records as there is room for, by a command that fills a list.
fn records<T: FromBytes + Clone>(
    room: usize,
    ask: impl FnOnce(&mut uapi::RecordList) -> Result<(), Errno>,
) -> Result<Vec<T>, Errno> {
    let mut records = vec![T::new_zeroed(); room];
    let mut list = uapi::RecordList {
        records: records.as_mut_ptr() as u64,
        capacity: u32::try_from(room).unwrap_or(0),
        count: 0,
        record_size: u32::try_from(size_of::<T>()).unwrap_or(0),
        reserved: [0; 5],
    };
    ask(&mut list)?;
    records.truncate(usize::try_from(list.count).unwrap_or(0));
    Ok(records)
}

impl Control {
    /// Opens it.
    pub fn open() -> Result<Self, Errno> {
        let fd = sys::open(uapi::CONTROL_PATH, libc::O_RDWR | libc::O_CLOEXEC)?;
        Ok(Self { fd })
    }

    /// Any command with any record.
    pub fn call<T: FromBytes + IntoBytes>(
        &self,
        request: u32,
        record: &mut T,
    ) -> Result<(), Errno> {
        sys::ioctl(self.fd, request, record.as_mut_bytes()).map(drop)
    }

    /// How a GPU's compute time is shared.
    pub fn gpu_compute(&self, gpu: u32) -> Result<uapi::GpuCompute, Errno> {
        let all: Vec<uapi::GpuCompute> = self.list(uapi::request::GPU_COMPUTE, uapi::MAX_GPUS)?;
        let found = all.into_iter().find(|record| record.minor == gpu);
        found.ok_or(libc::ENXIO)
    }

    /// The compute time that an instance was given.
    pub fn compute(&self, name: &str, gpu: u32) -> Result<uapi::InstanceCompute, Errno> {
        let all: Vec<uapi::InstanceCompute> =
            self.list(uapi::request::INSTANCE_COMPUTE, uapi::MAX_INSTANCES_PER_GPU)?;
        let wanted = key(name, gpu);
        let found = all
            .into_iter()
            .find(|i| i.key.name == wanted.name && i.key.gpu_minor == gpu);
        found.ok_or(libc::ENOENT)
    }

    /// Changes how a GPU's compute time is shared.
    pub fn set_gpu_compute(
        &self,
        gpu: u32,
        fill: impl FnOnce(&mut uapi::GpuSetCompute),
    ) -> Result<(), Errno> {
        let mut set = uapi::GpuSetCompute::new_zeroed();
        set.gpu_minor = gpu;
        fill(&mut set);
        self.call(uapi::request::GPU_SET_COMPUTE, &mut set)
    }

    /// Changes the priority of an instance, suspends or resumes it.
    pub fn set_compute(
        &self,
        name: &str,
        gpu: u32,
        fill: impl FnOnce(&mut uapi::InstanceSetCompute),
    ) -> Result<(), Errno> {
        let mut set = uapi::InstanceSetCompute::new_zeroed();
        set.key = key(name, gpu);
        fill(&mut set);
        self.call(uapi::request::INSTANCE_SET_COMPUTE, &mut set)
    }

    /// Versions.
    pub fn version(&self) -> Result<uapi::Version, Errno> {
        let mut version = uapi::Version::new_zeroed();
        self.call(uapi::request::VERSION, &mut version)?;
        Ok(version)
    }

    fn list<T: FromBytes + IntoBytes + Clone>(
        &self,
        request: u32,
        room: usize,
    ) -> Result<Vec<T>, Errno> {
        records(room, |list| self.call(request, list))
    }

    /// GPUs.
    pub fn gpus(&self) -> Result<Vec<uapi::Gpu>, Errno> {
        self.list(uapi::request::GPU_LIST, uapi::MAX_GPUS)
    }

    /// Instances of all GPUs.
    pub fn instances(&self) -> Result<Vec<uapi::Instance>, Errno> {
        let room = uapi::MAX_GPUS * uapi::MAX_INSTANCES_PER_GPU;
        self.list(uapi::request::INSTANCE_LIST, room)
    }

    /// Makes an instance; its number.
    pub fn create(&self, name: &str, gpu: u32, limit: u64, weight: u32) -> Result<u32, Errno> {
        self.create_managed(name, gpu, limit, weight, uapi::ManagedMode::Spill.number())
    }

    /// The same with a mode of managed memory.
    pub fn create_managed(
        &self,
        name: &str,
        gpu: u32,
        limit: u64,
        weight: u32,
        managed_mode: u32,
    ) -> Result<u32, Errno> {
        let mut create = uapi::InstanceCreate {
            key: key(name, gpu),
            memory_limit_bytes: limit,
            weight,
            flags: 0,
            id: 0,
            managed_mode,
            // The default.
            capabilities: 0,
            reserved: [0; 7],
        };
        self.call(uapi::request::INSTANCE_CREATE, &mut create)?;
        Ok(create.id)
    }

    /// Changes how many channels an instance may have.
    pub fn set_channels(
        &self,
        name: &str,
        gpu: u32,
        channel_limit: u32,
        flags: u32,
    ) -> Result<(), Errno> {
        let mut set = uapi::InstanceSetChannels {
            key: key(name, gpu),
            channel_limit,
            flags,
            reserved: [0; 4],
        };
        self.call(uapi::request::INSTANCE_SET_CHANNELS, &mut set)
    }

    /// Changes a limit of an instance.
    pub fn set_limit(&self, name: &str, gpu: u32, what: u32, limit: u64) -> Result<(), Errno> {
        let mut set = uapi::InstanceSetLimit {
            key: key(name, gpu),
            limit,
            what,
            reserved: [0; 5],
        };
        self.call(uapi::request::INSTANCE_SET_LIMIT, &mut set)
    }

    /// The limits of an instance.
    pub fn limits(&self, name: &str, gpu: u32) -> Result<Vec<uapi::InstanceLimit>, Errno> {
        let mut ask = uapi::InstanceLimits::new_zeroed();
        ask.key = key(name, gpu);
        records(uapi::Limited::ALL.len(), |list| {
            ask.list = *list;
            self.call(uapi::request::INSTANCE_LIMITS, &mut ask)?;
            *list = ask.list;
            Ok(())
        })
    }

    /// Changes what an instance is for.
    pub fn set_capabilities(&self, name: &str, gpu: u32, capabilities: u32) -> Result<(), Errno> {
        let mut set = uapi::InstanceSetCapabilities {
            key: key(name, gpu),
            capabilities,
            reserved: [0; 5],
        };
        self.call(uapi::request::INSTANCE_SET_CAPABILITIES, &mut set)
    }

    /// The refused calls of an instance, at most as many as there are records, and how many more
    /// there were.
    pub fn refusals(&self, name: &str, gpu: u32) -> Result<(Vec<uapi::Refusal>, u64), Errno> {
        let mut ask = uapi::InstanceRefusals::new_zeroed();
        ask.key = key(name, gpu);
        let records = records(128, |list| {
            ask.list = *list;
            self.call(uapi::request::INSTANCE_REFUSALS, &mut ask)?;
            *list = ask.list;
            Ok(())
        })?;
        Ok((records, ask.others))
    }

    /// Removes an instance.
    pub fn destroy(&self, name: &str, gpu: u32) -> Result<(), Errno> {
        self.call(uapi::request::INSTANCE_DESTROY, &mut key(name, gpu))
    }

    /// One instance.
    pub fn get(&self, name: &str, gpu: u32) -> Result<uapi::Instance, Errno> {
        let mut get = uapi::InstanceGet::new_zeroed();
        get.key = key(name, gpu);
        self.call(uapi::request::INSTANCE_GET, &mut get)?;
        Ok(get.instance)
    }

    /// Waits so long for an instance to come over its limit or below it, since this file last asked
    /// for instances; whether one did.
    pub fn changed(&self, milliseconds: i32) -> Result<bool, Errno> {
        let mut poll = libc::pollfd {
            fd: self.fd,
            events: libc::POLLIN | libc::POLLPRI,
            revents: 0,
        };
        // SAFETY: one record, which lives over the call.
        match unsafe { libc::poll(&mut poll, 1, milliseconds) } {
            0 => Ok(false),
            1 if poll.revents & libc::POLLERR == 0 => Ok(true),
            1 => Err(libc::EIO),
            _ => Err(sys::errno()),
        }
    }

    /// Changes a limit.
    pub fn set_memory(&self, name: &str, gpu: u32, limit: u64) -> Result<(), Errno> {
        let mut set = uapi::InstanceSetMemory {
            key: key(name, gpu),
            memory_limit_bytes: limit,
            flags: 0,
            reserved: [0; 5],
        };
        self.call(uapi::request::INSTANCE_SET_MEMORY, &mut set)
    }

    /// Changes what becomes of managed memory.
    pub fn set_managed(&self, name: &str, gpu: u32, managed_mode: u32) -> Result<(), Errno> {
        let mut set = uapi::InstanceSetManaged {
            key: key(name, gpu),
            managed_mode,
            reserved: [0; 5],
        };
        self.call(uapi::request::INSTANCE_SET_MANAGED, &mut set)
    }

    /// Changes a weight.
    pub fn set_weight(&self, name: &str, gpu: u32, weight: u32) -> Result<(), Errno> {
        let mut set = uapi::InstanceSetWeight {
            key: key(name, gpu),
            weight,
            reserved: [0; 5],
        };
        self.call(uapi::request::INSTANCE_SET_WEIGHT, &mut set)
    }
}

/// The folder with the nodes of an instance.
#[must_use]
pub fn folder(name: &str) -> String {
    format!("{}/{name}", uapi::CGPUFS_MOUNT)
}

/// Mounts the filesystem of the proxy nodes where the tool does, unless it is mounted.
pub fn mount_cgpufs() -> Result<(), String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").map_err(|e| e.to_string())?;
    let mounted = mounts
        .lines()
        .any(|l| l.split(' ').nth(1) == Some(uapi::CGPUFS_MOUNT));
    if mounted {
        return Ok(());
    }
    std::fs::create_dir_all(uapi::CGPUFS_MOUNT).map_err(|e| e.to_string())?;
    sys::mount(uapi::CGPUFS_TYPE, uapi::CGPUFS_MOUNT, uapi::CGPUFS_TYPE, 0)
        .map_err(|e| format!("mount {}: errno {e}", uapi::CGPUFS_MOUNT))
}
