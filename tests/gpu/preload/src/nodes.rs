// SPDX-License-Identifier: GPL-2.0
//! The driver's nodes, and the descriptors of this process that stand for them.

use std::{
    ffi::CStr,
    sync::atomic::{AtomicU32, Ordering},
};

use cgpu_gpu::state::{Gpu, Place, State};
use libc::{c_int, c_long};

use crate::setting::setting;

/// Descriptors that can be the driver's; more than a process has by default.
pub(crate) const DESCRIPTORS: usize = 1 << 16;
/// Bits of a [`Descriptor`]: the node, its minor, and the place of the file in the instance.
pub(crate) const CONTROL: u32 = 1 << 30;
pub(crate) const UVM: u32 = 2 << 30;
pub(crate) const GPU: u32 = 3 << 30;
pub(crate) const MINOR_SHIFT: u32 = 16;
pub(crate) const PLACE_MASK: u32 = 0xffff;

/// The node behind each descriptor of this process; 0: none of the driver's.
pub(crate) static DESCRIPTOR: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];
/// How many descriptors of this process each file of the instance has.
pub(crate) static USES: [AtomicU32; cgpu_gpu::state::FILES] =
    [const { AtomicU32::new(0) }; cgpu_gpu::state::FILES];

/// The number of a driver's node by its path; `None` for any other file.
pub(crate) fn node(path: &CStr) -> Option<u32> {
    let name = path.to_bytes().strip_prefix(b"/dev/nvidia")?;
    match name {
        b"ctl" => Some(CONTROL),
        b"-uvm" => Some(UVM),
        digits => {
            let text = core::str::from_utf8(digits).ok()?;
            let minor: u32 = text.parse().ok().filter(|minor| *minor < 1 << 8)?;
            Some(GPU | minor << MINOR_SHIFT)
        }
    }
}

pub(crate) fn path_of(node: u32) -> String {
    match node & GPU {
        CONTROL => "/dev/nvidiactl".to_owned(),
        UVM => "/dev/nvidia-uvm".to_owned(),
        _ => format!("/dev/nvidia{}", node >> MINOR_SHIFT & 0xff),
    }
}

/// The GPU of a node, if the instance has it.
pub(crate) fn gpu_of(state: &State, node: u32) -> Option<&Gpu> {
    let minor = node >> MINOR_SHIFT & 0xff;
    state.gpus().iter().find(|gpu| gpu.facts.minor == minor)
}

pub(crate) fn descriptor(fd: c_int) -> Option<&'static AtomicU32> {
    DESCRIPTOR.get(usize::try_from(fd).ok()?)
}

/// The node behind `fd`, if it is the driver's.
pub(crate) fn known(fd: c_int) -> Option<u32> {
    Some(descriptor(fd)?.load(Ordering::Relaxed)).filter(|node| *node != 0)
}

pub(crate) fn place(node: u32) -> Place {
    // CAST: 16 bits.
    Place::new((node & PLACE_MASK) as usize)
}

/// Whether a container has no such file: a capability's node, or that of a GPU of which the
/// instance has no share.
pub(crate) fn is_absent(path: &CStr) -> bool {
    // First: what is asked of other files may be asked while the setting is being made.
    if !path.to_bytes().starts_with(b"/dev/nvidia") {
        return false;
    }
    let Some(state) = setting().state else {
        return false;
    };
    node(path).is_none_or(|node| node & GPU == GPU && gpu_of(state, node).is_none())
}

/// The C library's form of a system call's result.
pub(crate) fn result(result: i64) -> c_int {
    // CAST: what these calls return are descriptors and results of 32 bits.
    to_c(result) as c_int
}

pub(crate) fn to_c(result: i64) -> c_long {
    if (-4095..0).contains(&result) {
        // SAFETY: The thread's own errno. CAST: it was just compared.
        unsafe { *libc::__errno_location() = -result as c_int };
        -1
    } else {
        result
    }
}
