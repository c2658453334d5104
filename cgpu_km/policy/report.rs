// SPDX-License-Identifier: GPL-2.0
//! What the driver reports about a GPU's memory, rewritten to what the tenant's share allows.
//!
//! `NV2080_CTRL_CMD_FB_GET_INFO` and `_V2` answer a list of (index, data) pairs, both `u32`, sizes in
//! KiB (ctrl2080fb.h; kern_mem_sys_ctrl.c, `memsysGetFbInfos`). Measured on an H200: nvidia-smi takes
//! its total from index 0x08, CUDA from 0x09, and nvidia-smi shows the difference as reserved; with
//! both at the limit the two agree, and "used" is what the share is charged.

use super::ledger::FbView;

/// Bytes of one (index, data) pair.
pub const PAIR: usize = 8;

/// Where the pairs begin in the parameters of FB_GET_INFO_V2, after their count.
const V2_PAIRS: usize = 4;

mod index {
    pub(super) const RAM_SIZE: u32 = 0x07;
    pub(super) const TOTAL_RAM_SIZE: u32 = 0x08;
    pub(super) const HEAP_SIZE: u32 = 0x09;
    pub(super) const MAPPABLE_HEAP_SIZE: u32 = 0x0a;
    pub(super) const LARGEST_FREE_REGION_SIZE: u32 = 0x12;
    pub(super) const HEAP_FREE: u32 = 0x16;
    pub(super) const BAR1_AVAIL_SIZE: u32 = 0x1d;
    pub(super) const USABLE_RAM_SIZE: u32 = 0x20;
    pub(super) const PROTECTED_MEM_SIZE_TOTAL: u32 = 0x33;
    pub(super) const PROTECTED_MEM_SIZE_FREE: u32 = 0x34;
}

/// Rewrites the parameters of a successful FB_GET_INFO_V2: the count of pairs, then the pairs. A
/// count beyond the buffer ends with the buffer.
pub fn rewrite_fb_info_v2(view: FbView, params: &mut [u8]) {
    let Some((count, pairs)) = params.split_first_chunk_mut::<V2_PAIRS>() else {
        return;
    };
    let count = usize::try_from(u32::from_le_bytes(*count)).unwrap_or(usize::MAX);
    let wanted = count.saturating_mul(PAIR).min(pairs.len());
    if let Some(pairs) = pairs.get_mut(..wanted) {
        rewrite_fb_info(view, pairs);
    }
}

/// Rewrites the pairs of a successful FB_GET_INFO, which its parameters point to. Bytes after the last
/// whole pair stay as they are.
pub fn rewrite_fb_info(view: FbView, pairs: &mut [u8]) {
    for pair in pairs.chunks_exact_mut(PAIR) {
        let Some((index, data)) = pair.split_first_chunk_mut::<4>() else {
            return;
        };
        let Some((data, _)) = data.split_first_chunk_mut::<4>() else {
            return;
        };
        let index = u32::from_le_bytes(*index);
        let told = rewritten(view, index, u32::from_le_bytes(*data));
        *data = told.to_le_bytes();
    }
}

/// What the tenant is told for one index instead of `real`, in KiB.
fn rewritten(view: FbView, index: u32, real: u32) -> u32 {
    use index::*;
    match index {
        RAM_SIZE | TOTAL_RAM_SIZE | HEAP_SIZE | MAPPABLE_HEAP_SIZE | USABLE_RAM_SIZE => {
            kib(view.limit)
        }
        // Never more than there is: another tenant may hold what this one could still have.
        HEAP_FREE | LARGEST_FREE_REGION_SIZE | BAR1_AVAIL_SIZE | PROTECTED_MEM_SIZE_FREE => {
            real.min(kib(view.free))
        }
        // Not 0 with confidential computing alone.
        PROTECTED_MEM_SIZE_TOTAL => real.min(kib(view.limit)),
        _ => real,
    }
}

/// Whole KiB, as far as they fit into the field.
fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes / 1024).unwrap_or(u32::MAX)
}
