// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Names of GPUs and processes in the parameters of controls.
//!
//! The driver's answers are the same for every client: all GPUs of the host, and all processes that
//! the caller's PID namespace has (`gpumgrGetProbedGpuIds()` in gpu_mgr.c and its like,
//! `gpuGetProcWithObject()` in gpu_rmapi.c).

use super::{
    params::{
        attach_ids,
        attached_ids,
        detach_ids,
        p2p_caps,
        p2p_caps_matrix,
        probed_ids, //
    },
    wire::{
        Field,
        Items, //
    }, //
};

/// An id that no GPU has: an id is made of PCI domain, bus and device, and the device number has
/// five bits (`gpuGenerate32BitId()`, gpu.h). It differs from what ends a list.
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
    /// Their number; `None`: all that there is room for, or up to what ends the list.
    pub count: Option<Field<u32>>,
}

impl Given {
    const fn new(ids: Items<u32>, count: Option<Field<u32>>) -> Self {
        Self { ids, count }
    }

    /// How many ids the driver reads.
    pub fn used(&self, params: &[u8]) -> usize {
        let count = self.count.and_then(|count| count.get(params));
        let count = count.and_then(|count| usize::try_from(count).ok());
        count.map_or(self.ids.count(), |count| count.min(self.ids.count()))
    }
}

/// How a control names GPUs (NV0000_CTRL_CMD_*, ctrl0000gpu.h, ctrl0000system.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GpuNames {
    /// In: one id, the first thing in the parameters.
    Single,
    /// In: the GPUs of `SYSTEM_GET_P2P_CAPS` and of its second form.
    P2p,
    /// In: the two groups of `SYSTEM_GET_P2P_CAPS_MATRIX`.
    P2pMatrix,
    /// In: the GPUs of `GPU_ATTACH_IDS`, which reports the one at which it failed.
    Attach,
    /// In: the GPUs of `GPU_DETACH_IDS`.
    Detach,
    /// Out: ids, then [`GPU_ID_END`](super::params::GPU_ID_END).
    Attached,
    /// Out: ids in the same form, those that the administrator excluded, and a word about each of
    /// the first.
    Probed,
    /// Out: a bit for each device instance.
    Instances,
    /// Out: entries that each begin with a GPU's id.
    Active,
    /// Out: groups of GPUs.
    BoostGroups,
}

impl GpuNames {
    /// The lists of ids that the driver is given; empty when it gives them.
    pub const fn given(self) -> &'static [Given] {
        const FIRST: Given = Given::new(Items::at(0, 1), None);
        const ATTACH: Given = Given::new(attach_ids::GPU_IDS, None);
        const DETACH: Given = Given::new(detach_ids::GPU_IDS, None);
        use p2p_caps_matrix::{
            GPU_ID_GRP_A,
            GPU_ID_GRP_B,
            GRP_A_COUNT,
            GRP_B_COUNT, //
        };
        const P2P: Given = Given::new(p2p_caps::GPU_IDS, Some(p2p_caps::GPU_COUNT));
        const SIDE_A: Given = Given::new(GPU_ID_GRP_A, Some(GRP_A_COUNT));
        const SIDE_B: Given = Given::new(GPU_ID_GRP_B, Some(GRP_B_COUNT));
        match self {
            Self::Single => &[FIRST],
            Self::P2p => &[P2P],
            Self::P2pMatrix => &[SIDE_A, SIDE_B],
            Self::Attach => &[ATTACH],
            Self::Detach => &[DETACH],
            Self::Attached | Self::Probed | Self::Instances | Self::Active | Self::BoostGroups => {
                &[]
            }
        }
    }
}

/// How a control names processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessNames {
    /// Out: processes.
    Listed,
    /// In: processes, about which it reports what they hold.
    Given,
}

/// Of `GPU_GET_PROBED_IDS`: a word for each GPU, if the branch has them.
pub const PROBED_FLAGS: Items<u32> = Items::at(
    probed_ids::EXCLUDED_GPU_IDS.offset() + 4 * probed_ids::EXCLUDED_GPU_IDS.count(),
    attached_ids::GPU_IDS.count(),
);
/// Of `GPU_GET_PID_INFO`: most entries (`NV2080_CTRL_GPU_GET_PID_INFO_MAX_COUNT`, ctrl2080gpu.h).
pub const MOST_PID_INFOS: usize = 200;
/// Of the same: what an entry asks for, the only thing that the driver knows
/// (`NV2080_CTRL_GPU_PID_INFO_INDEX_VIDEO_MEMORY_USAGE`, ctrl2080gpu.h).
pub const PID_INFO_VIDEO_MEMORY: u32 = 0;
