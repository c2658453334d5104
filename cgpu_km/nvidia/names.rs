// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Where controls name GPUs and processes.
//!
//! The driver's answers are the same for every client: all GPUs of the host, and all processes that
//! the caller's PID namespace has (`gpumgrGetProbedGpuIds()` in gpu_mgr.c and its like,
//! `gpuGetProcWithObject()` in gpu_rmapi.c).

use super::handle::ControlCmd;
use super::params::{attach_ids, attached_ids, detach_ids, p2p_caps, p2p_caps_matrix, probed_ids};
use super::wire::{Field, Items};

/// An id that no GPU has: an id is made of PCI domain, bus and device, and the device number has five
/// bits (`gpuGenerate32BitId()`, gpu.h). It differs from what ends a list.
pub const GPU_ID_UNKNOWN: u32 = 0xffff_fffe;
/// First in a list: all GPUs (`NV0000_CTRL_GPU_ATTACH_ALL_PROBED_IDS`, ctrl0000gpu.h).
pub const GPU_ID_ALL: u32 = 0xffff;
/// A number that no process has: Linux counts to 2^22.
pub const PID_UNKNOWN: u32 = 0xffff_ffff;
/// Most GPUs of a host (`NV_MAX_DEVICES`, nvlimits.h).
pub const MOST_GPUS: usize = 32;

/// A list of ids that the driver is given.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    /// Room for them.
    pub ids: Items<u32>,
    /// How many they are; `None`: all that there is room for, or up to what ends the list.
    pub count: Option<Field<u32>>,
}

impl Given {
    const fn all(ids: Items<u32>) -> Self {
        Self { ids, count: None }
    }

    const fn counted(ids: Items<u32>, count: Field<u32>) -> Self {
        Self {
            ids,
            count: Some(count),
        }
    }

    /// How many ids the driver reads.
    pub fn used(&self, params: &[u8]) -> usize {
        let count = match &self.count {
            Some(count) => count.get(params),
            None => None,
        };
        let count = count.and_then(|count| usize::try_from(count).ok());
        count.map_or(self.ids.count(), |count| count.min(self.ids.count()))
    }
}

/// One id, as the first thing in the parameters.
const FIRST: Given = Given::all(Items::at(0, 1));
const ATTACH: Given = Given::all(attach_ids::GPU_IDS);
const DETACH: Given = Given::all(detach_ids::GPU_IDS);
const P2P: Given = Given::counted(p2p_caps::GPU_IDS, p2p_caps::GPU_COUNT);
const SIDE_A: Given = Given::counted(p2p_caps_matrix::GPU_ID_GRP_A, p2p_caps_matrix::GRP_A_COUNT);
const SIDE_B: Given = Given::counted(p2p_caps_matrix::GPU_ID_GRP_B, p2p_caps_matrix::GRP_B_COUNT);

/// What a control names, and in which direction.
#[derive(Clone, Copy, Debug)]
pub enum Names {
    /// In: ids of GPUs.
    Given(&'static [Given]),
    /// Out: ids of GPUs, then [`GPU_ID_END`](super::params::GPU_ID_END).
    Attached,
    /// Out: the same, what the administrator excluded, and a word about each of the first.
    Probed,
    /// Out: a bit for each device instance.
    Instances,
    /// Out: entries that each begin with a GPU's id.
    Active,
    /// Out: groups of GPUs.
    Groups,
    /// Out: processes.
    Processes,
    /// In: processes of which something is asked.
    ProcessInfo,
}

/// Asks what processes hold (`NV2080_CTRL_CMD_GPU_GET_PID_INFO`, ctrl2080gpu.h).
pub const GET_PID_INFO: ControlCmd = ControlCmd(0x2080_018e);

/// What a control names; `None`: neither a GPU nor a process.
pub const fn names(cmd: ControlCmd) -> Option<Names> {
    Some(match cmd.0 {
        // SYSTEM_GET_P2P_CAPS and its second form, _MATRIX.
        0x127 | 0x12b => Names::Given(&[P2P]),
        0x13a => Names::Given(&[SIDE_A, SIDE_B]),
        // GPU_GET_ATTACHED_IDS, _DEVICE_IDS, _PROBED_IDS, _ACTIVE_DEVICE_IDS.
        0x201 => Names::Attached,
        0x204 => Names::Instances,
        0x214 => Names::Probed,
        0x288 => Names::Active,
        // GPU_ATTACH_IDS, _DETACH_IDS.
        0x215 => Names::Given(&[ATTACH]),
        0x216 => Names::Given(&[DETACH]),
        // GPU_GET_ID_INFO and its second form, _GET_PCI_INFO, _GET_UUID_FROM_GPU_ID,
        // _QUERY_DRAIN_STATE, _ASYNC_ATTACH_ID, _WAIT_ATTACH_ID; GPUACCT_GET_ACCOUNTING_STATE.
        0x202 | 0x205 | 0x21b | 0x275 | 0x279 | 0x289 | 0x290 | 0xb02 => Names::Given(&[FIRST]),
        // SYNC_GPU_BOOST_GROUP_INFO.
        0xa04 => Names::Groups,
        // GPU_GET_PIDS, _PID_INFO.
        0x2080_018d => Names::Processes,
        0x2080_018e => Names::ProcessInfo,
        _ => return None,
    })
}

/// Of `GPU_GET_PROBED_IDS`: a word for each GPU, where the branch has them.
pub const PROBED_FLAGS: Items<u32> = Items::at(
    probed_ids::EXCLUDED_GPU_IDS.offset() + 4 * probed_ids::EXCLUDED_GPU_IDS.count(),
    attached_ids::GPU_IDS.count(),
);
/// Of `GPU_GET_PID_INFO`: most entries (`NV2080_CTRL_GPU_GET_PID_INFO_MAX_COUNT`, ctrl2080gpu.h).
pub const MOST_PID_INFOS: usize = 200;
