// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The commands of the control device `/dev/cgpuctl`, as a trait.
//!
//! [`Client`](crate::client::Client) is the device itself; the tests have a model of it in memory.
//!
//! ```no_run
//! use cgpu_client::{client::Client, control::Control};
//!
//! fn names() -> Result<Vec<String>, nix::errno::Errno> {
//!     let instances = Client::open()?.instances()?;
//!     let names = instances.iter().filter_map(|i| i.key.name.as_str());
//!     Ok(names.map(str::to_owned).collect())
//! }
//! ```
//!
//! An errno is a [`cgpu_uapi::Cause`].

use cgpu_uapi::{
    Gpu, GpuCompute, GpuSetCompute, Instance, InstanceCompute, InstanceCreate, InstanceGet,
    InstanceKey, InstanceLimit, InstanceSetCapabilities, InstanceSetChannels, InstanceSetCompute,
    InstanceSetLimit, InstanceSetManaged, InstanceSetMemory, InstanceSetWeight, Refusal, Version,
};
use nix::errno::Errno;

/// The commands of `/dev/cgpuctl`, one method each. Errors are errno values, which
/// [`cgpu_uapi::Cause`] gives a meaning.
pub trait Control {
    /// Versions of ABI, module and driver.
    fn version(&self) -> Result<Version, Errno>;
    /// All GPUs, by minor.
    fn gpus(&self) -> Result<Vec<Gpu>, Errno>;
    /// All instances.
    fn instances(&self) -> Result<Vec<Instance>, Errno>;
    /// Makes an instance; fills in its number.
    fn create(&self, request: &mut InstanceCreate) -> Result<(), Errno>;
    /// Removes an instance.
    fn destroy(&self, key: &InstanceKey) -> Result<(), Errno>;
    /// Reads one instance.
    fn get(&self, request: &mut InstanceGet) -> Result<(), Errno>;
    /// Changes a memory limit.
    fn set_memory(&self, request: &InstanceSetMemory) -> Result<(), Errno>;
    /// Changes a weight.
    fn set_weight(&self, request: &InstanceSetWeight) -> Result<(), Errno>;
    /// Changes what becomes of managed memory.
    fn set_managed(&self, request: &InstanceSetManaged) -> Result<(), Errno>;
    /// Changes how many channels an instance may have.
    fn set_channels(&self, request: &InstanceSetChannels) -> Result<(), Errno>;
    /// Changes a limit of an instance.
    fn set_limit(&self, request: &InstanceSetLimit) -> Result<(), Errno>;
    /// The limits of an instance beside those of memory and channels.
    fn limits(&self, key: &InstanceKey) -> Result<Vec<InstanceLimit>, Errno>;
    /// Changes what an instance is for.
    fn set_capabilities(&self, request: &InstanceSetCapabilities) -> Result<(), Errno>;
    /// The refused calls of an instance, and how many more there were without a record.
    fn refusals(&self, key: &InstanceKey) -> Result<(Vec<Refusal>, u64), Errno>;
    /// Changes how the compute time of a GPU is shared.
    fn set_gpu_compute(&self, request: &GpuSetCompute) -> Result<(), Errno>;
    /// Changes the priority of an instance, suspends or resumes it.
    fn set_instance_compute(&self, request: &InstanceSetCompute) -> Result<(), Errno>;
    /// How the compute time of each GPU is shared.
    fn gpu_compute(&self) -> Result<Vec<GpuCompute>, Errno>;
    /// The GPU time of each instance.
    fn instance_compute(&self) -> Result<Vec<InstanceCompute>, Errno>;
}
