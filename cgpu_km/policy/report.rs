// SPDX-License-Identifier: GPL-2.0
//! What the driver reports about a GPU's memory, rewritten to what the tenant's share allows.
//!
//! `NV2080_CTRL_CMD_FB_GET_INFO` and `_V2` answer a list of pairs, index and number
//! (kern_mem_sys_ctrl.c). Measured on an H200: nvidia-smi takes its total from index 0x08, CUDA from
//! 0x09, and nvidia-smi shows the difference as reserved. With both at the limit the two agree, and
//! what nvidia-smi shows as used, the total less what is free, is what the share is charged.

use super::ledger::FbView;
use crate::nvidia::fb;

/// Rewrites the parameters of a successful FB_GET_INFO_V2: the count of pairs, then the pairs. A
/// count beyond the buffer ends with the buffer.
pub fn rewrite_fb_info_v2(view: FbView, params: &mut [u8]) {
    let count = fb::COUNT_V2.get(params).unwrap_or(0);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if let Some(pairs) = params.get_mut(fb::LIST_V2..) {
        let wanted = count.saturating_mul(fb::PAIR).min(pairs.len());
        if let Some(pairs) = pairs.get_mut(..wanted) {
            rewrite_fb_info(view, pairs);
        }
    }
}

/// Rewrites the pairs of a successful FB_GET_INFO, which its parameters point to. Bytes after the last
/// whole pair stay as they are.
pub fn rewrite_fb_info(view: FbView, pairs: &mut [u8]) {
    for pair in pairs.chunks_exact_mut(fb::PAIR) {
        let (Some(index), Some(real)) = (fb::INDEX.get(pair), fb::DATA.get(pair)) else {
            return;
        };
        let _ = fb::DATA.set(pair, told(view, index, real));
    }
}

/// What the tenant is told under one index instead of `real`. Sizes are in KiB.
fn told(view: FbView, index: u32, real: u32) -> u32 {
    use fb::index::*;
    match index {
        RAM_SIZE | TOTAL_RAM_SIZE | HEAP_SIZE | MAPPABLE_HEAP_SIZE | USABLE_RAM_SIZE => {
            kib(view.limit)
        }
        // Never more than there is: others may hold what this tenant could still have.
        HEAP_FREE | LARGEST_FREE_REGION_SIZE | PROTECTED_MEM_SIZE_FREE => real.min(kib(view.free)),
        // The aperture, as large as the memory behind it at most.
        BAR1_SIZE => real.min(kib(view.limit)),
        BAR1_AVAIL_SIZE => real.min(kib(view.free)),
        PROTECTED_MEM_SIZE_TOTAL => real.min(kib(view.limit)),
        _ => real,
    }
}

/// Whole KiB, as far as they fit into the field.
fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes / 1024).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: FbView = FbView {
        limit: 8 << 30,
        free: 3 << 30,
    };
    const LIMIT: u32 = 8 << 20;
    const FREE: u32 = 3 << 20;
    /// More than either; arbitrary.
    const REAL: u32 = 146_591_680;

    fn list(pairs: &[(u32, u32)]) -> Vec<u8> {
        let words = pairs.iter().flat_map(|&(index, data)| [index, data]);
        words.flat_map(u32::to_le_bytes).collect()
    }

    fn with_count(count: u32, pairs: &[(u32, u32)]) -> Vec<u8> {
        let mut params = count.to_le_bytes().to_vec();
        params.extend(list(pairs));
        params
    }

    #[test]
    fn nvidia_smi_and_cuda_are_told_the_limit_and_what_is_free_of_it() {
        // As recorded: nvidia-smi asks for these, CUDA for the first, the last and 0x10.
        let mut smi = with_count(3, &[(0x16, 144_973_760), (0x08, 147_221_504), (0x09, REAL)]);
        rewrite_fb_info_v2(VIEW, &mut smi);
        let expected = [(0x16, FREE), (0x08, LIMIT), (0x09, LIMIT)];
        assert_eq!(smi, with_count(3, &expected));
        let mut cuda = with_count(3, &[(0x16, 146_048_128), (0x09, REAL), (0x10, 0)]);
        rewrite_fb_info_v2(VIEW, &mut cuda);
        assert_eq!(
            cuda,
            with_count(3, &[(0x16, FREE), (0x09, LIMIT), (0x10, 0)])
        );
    }

    #[test]
    fn each_index_is_told_what_the_table_says() {
        for index in 0..0x80 {
            let expected = match index {
                0x05 | 0x07 | 0x08 | 0x09 | 0x0a | 0x20 | 0x33 => LIMIT,
                0x12 | 0x16 | 0x1d | 0x34 => FREE,
                _ => REAL,
            };
            let mut pairs = list(&[(index, REAL)]);
            rewrite_fb_info(VIEW, &mut pairs);
            assert_eq!(pairs, list(&[(index, expected)]), "index {index:#x}");
        }
    }

    #[test]
    fn nothing_is_told_to_be_free_that_the_gpu_has_not() {
        for real in [0, FREE - 1, FREE, FREE + 1] {
            for index in [0x12, 0x16, 0x1d, 0x34] {
                let mut pairs = list(&[(index, real)]);
                rewrite_fb_info(VIEW, &mut pairs);
                assert_eq!(pairs, list(&[(index, real.min(FREE))]));
            }
        }
        // Without confidential computing there is no protected memory, and no more is told.
        let mut pairs = list(&[(0x33, 0)]);
        rewrite_fb_info(VIEW, &mut pairs);
        assert_eq!(pairs, list(&[(0x33, 0)]));
    }

    #[test]
    fn a_count_is_not_believed_beyond_the_buffer() {
        let pairs = [(0x08, REAL), (0x08, REAL)];
        for (count, rewritten) in [(0, 0), (1, 1), (2, 2), (3, 2), (u32::MAX, 2)] {
            let mut params = with_count(count, &pairs);
            params.extend([0xaa; 7]);
            rewrite_fb_info_v2(VIEW, &mut params);
            let mut expected = pairs;
            for pair in expected.iter_mut().take(rewritten) {
                pair.1 = LIMIT;
            }
            let mut expected = with_count(count, &expected);
            expected.extend([0xaa; 7]);
            assert_eq!(params, expected, "count {count}");
        }
        for len in 0..4 {
            let mut short = vec![1; len];
            rewrite_fb_info_v2(VIEW, &mut short);
            assert_eq!(short, vec![1; len]);
        }
    }

    #[test]
    fn what_does_not_fit_into_the_field_is_told_as_the_largest_that_does() {
        let view = FbView {
            limit: u64::MAX,
            free: (1 << 42) - 1,
        };
        let mut pairs = list(&[(0x08, 1), (0x16, u32::MAX)]);
        rewrite_fb_info(view, &mut pairs);
        assert_eq!(pairs, list(&[(0x08, u32::MAX), (0x16, u32::MAX)]));
    }
}
