// SPDX-License-Identifier: GPL-2.0
//! cgpu: shares an NVIDIA GPU between containers, each under its own limits.
//!
//! The root of the kernel module, and its table of contents. `nvidia`, `policy`, `proxy` and `uapi`
//! are pure: `host.rs` compiles the very same files into a library for tests. `os_interface` alone
//! knows the kernel's unsafe side; every other file is checked to hold no unsafe code.

#![deny(unsafe_code)]

// The pure files derive zerocopy's traits by the names that `use zerocopy::...` brings in with
// Cargo; the kernel passes the derives as a crate of their own.
#[macro_use]
extern crate zerocopy_derive;

use kernel::{
    prelude::*,
    sync::Arc, //
};
use os_interface::{
    control_device::ControlDevice,
    entry::{
        entry,
        Module,
        Parameters, //
    },
    log::pr_info, //
};
use registry::{
    Registry,
    Settings,
    Views, //
};

// The kernel's side: the only unsafe code, the only C, the only kernel bindings.
#[allow(unsafe_code)]
pub mod os_interface;

// Pure code, shared with the host. Its imports of zerocopy's derives name only traits here.
#[allow(unused_imports)]
pub mod nvidia;
#[allow(unused_imports)]
pub mod policy;
pub mod proxy;
pub use os_interface::vector;
pub mod store;
#[allow(unused_imports)]
#[path = "uapi/lib.rs"]
pub mod uapi;

// Glue between the two, from the lowest floor up (see ARCHITECTURE.md).
pub mod attach;
pub mod client_locks;
pub mod control;
pub mod dispatch;
pub mod failure;
pub mod procfs;
pub mod registry;
pub mod sched;

struct CgpuModule {
    // First: no command comes any more. It holds the registry, which goes with it.
    _control: Arc<ControlDevice<control::Commands>>,
    // The ends of files are over by then; the last work of the queue may still return.
    _late: os_interface::LateQueue,
    // The shadows are gone by then.
    _pages: os_interface::PageQueue,
    // Last: open files and mappings use it, and all of them are gone by then.
    _scratch: os_interface::Scratch,
}

impl Module for CgpuModule {
    fn start(parameters: Parameters) -> Result<Self> {
        let scratch = os_interface::Scratch::start()?;
        let late = os_interface::LateQueue::start()?;
        let pages = os_interface::PageQueue::start()?;
        let registry = Registry::new(Settings {
            assumed_branch: parameters.assumed_branch,
            views: Views {
                root: procfs::root,
                gpu: procfs::gpu_folder,
                instance: procfs::instance_folder,
            },
        })?;
        let commands = control::Commands::new(registry);
        let control = ControlDevice::register(c"cgpuctl", commands)?;
        pr_info!("loaded\n");
        Ok(Self {
            _control: control,
            _late: late,
            _pages: pages,
            _scratch: scratch,
        })
    }
}

entry!(CgpuModule);
