// SPDX-License-Identifier: GPL-2.0
//! The driver's reports about a GPU's memory, rewritten to what the tenant's share allows.
//!
//! `NV2080_CTRL_CMD_FB_GET_INFO` and `_V2` answer a list of pairs, index and number
//! (kern_mem_sys_ctrl.c). Measured on an H200: nvidia-smi takes its total from index 0x08, CUDA
//! from 0x09, and nvidia-smi shows the difference as reserved. With both at the limit the two
//! agree, and what nvidia-smi shows as used, the total less what is free, is what the share is
//! charged.
//!
//! The question is taken from the parameters as they were checked, not from those that came back:
//! another thread can have changed which number is which in between.

use super::share_view::FbView;
use crate::nvidia::fb;

/// The pairs that the parameters of FB_GET_INFO_V2 or GPU_GET_INFO_V2 ask for: their number, then
/// the pairs. A number beyond the buffer ends with the buffer.
pub fn fb_info_v2_pairs(params: &[u8]) -> &[u8] {
    let count = fb::COUNT_V2.get(params).unwrap_or(0);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let pairs = params.get(fb::LIST_V2..).unwrap_or_default();
    let wanted = count.saturating_mul(fb::PAIR).min(pairs.len());
    pairs.get(..wanted).unwrap_or_default()
}

/// The sizes that pairs ask for: a total, the free part, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeAsked {
    /// The size, for later.
    Size,
    /// The free part of a size that is known.
    Free,
    /// Both, or neither.
    Other,
}

/// Whether pairs ask for the GPU's size, or for what is left without it. Recorded: CUDA asks for
/// the one at its start and for the other in `cuMemGetInfo`, nvidia-smi for both at once.
pub fn size_asked(pairs: &[u8]) -> SizeAsked {
    let has = |index| {
        let mut pairs = pairs.chunks_exact(fb::PAIR);
        pairs.any(|pair| fb::INDEX.get(pair) == Some(index))
    };
    match (has(fb::index::TOTAL_RAM_SIZE), has(fb::index::HEAP_FREE)) {
        (true, false) => SizeAsked::Size,
        (false, true) => SizeAsked::Free,
        _ => SizeAsked::Other,
    }
}

/// Rewrites the parameters of a successful FB_GET_INFO_V2; `asked` is what [`fb_info_v2_pairs`]
/// gave before the call.
pub fn rewrite_fb_info_v2(view: FbView, asked: &[u8], params: &mut [u8]) {
    if let Some(pairs) = params.get_mut(fb::LIST_V2..) {
        rewrite_fb_info(view, asked, pairs);
    }
}

/// Rewrites the pairs of a successful FB_GET_INFO, which its parameters point to; `asked` is the
/// list as it was before the call. Bytes after the last whole pair stay as they are.
pub fn rewrite_fb_info(view: FbView, asked: &[u8], pairs: &mut [u8]) {
    let asked = asked.chunks_exact(fb::PAIR);
    for (pair, asked) in pairs.chunks_exact_mut(fb::PAIR).zip(asked) {
        let (Some(index), Some(real)) = (fb::INDEX.get(asked), fb::DATA.get(pair)) else {
            return;
        };
        let _ = fb::INDEX.set(pair, index);
        let _ = fb::DATA.set(pair, told(view, index, real));
    }
}

/// Rewrites the parameters of a successful GPU_GET_INFO_V2, whose list is of the same form; `asked`
/// as for [`rewrite_fb_info_v2`]. The GPU has no dma-bufs: what asks for one is answered so.
pub fn rewrite_gpu_info_v2(asked: &[u8], params: &mut [u8]) {
    let pairs = params.get_mut(fb::LIST_V2..).unwrap_or_default();
    let asked = asked.chunks_exact(fb::PAIR);
    for (pair, asked) in pairs.chunks_exact_mut(fb::PAIR).zip(asked) {
        let index = fb::INDEX.get(asked).map(|index| index & fb::GPU_INDEX_MASK);
        if index == Some(fb::GPU_DMABUF_CAPABILITY) {
            let _ = fb::DATA.set(pair, 0);
        }
    }
}

/// Rewrites the parameters of a successful FB_GET_FB_REGION_INFO: pieces of memory that lie one
/// after the other, as far as the limit reaches. What is set aside in them is the GPU's, and is not
/// told.
pub fn rewrite_regions(view: FbView, params: &mut [u8]) {
    use fb::fb_region::{
        BASE,
        LIMIT,
        RESERVED, //
    };
    use fb::fb_regions::{
        FB_REGION,
        NUM_FB_REGIONS, //
    };
    let count = NUM_FB_REGIONS.get(params).unwrap_or(0);
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let list = params.get_mut(FB_REGION..).unwrap_or_default();
    // At least one byte, or there would be no pieces to be had.
    let size = (list.len() / fb::MOST_REGIONS).max(1);
    let mut kept = 0;
    for (number, region) in list.chunks_exact_mut(size).enumerate() {
        let (base, last) = (BASE.get(region), LIMIT.get(region));
        let (Some(base), Some(last)) = (base, last) else {
            break;
        };
        if number >= count || base >= view.limit {
            region.fill(0);
            continue;
        }
        kept = u32::try_from(number).map_or(kept, |number| number.saturating_add(1));
        let _ = LIMIT.set(region, last.min(view.limit.saturating_sub(1)));
        let _ = RESERVED.set(region, 0);
    }
    let _ = NUM_FB_REGIONS.set(params, kept);
}

/// The number for the tenant under one index instead of `real`. Sizes are in KiB.
fn told(view: FbView, index: u32, real: u32) -> u32 {
    use fb::index::*;
    match index {
        RAM_SIZE | TOTAL_RAM_SIZE | HEAP_SIZE | USABLE_RAM_SIZE => view.limit_kib(),
        // 0 on an H100 (tests/driver/h100.txt).
        MAPPABLE_HEAP_SIZE => real.min(view.limit_kib()),
        // Never more than there is: others may hold what this tenant could still have.
        HEAP_FREE | LARGEST_FREE_REGION_SIZE | PROTECTED_MEM_SIZE_FREE => real.min(view.free_kib()),
        // The aperture, as large as the memory behind it at most.
        BAR1_SIZE => real.min(view.limit_kib()),
        BAR1_AVAIL_SIZE | BAR1_MAX_CONTIGUOUS_AVAIL_SIZE => view.free_bar1_kib(real),
        // It moves as neighbours take memory.
        LARGEST_FREE_REGION_BASE => 0,
        PROTECTED_MEM_SIZE_TOTAL => real.min(view.limit_kib()),
        _ => real,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: FbView = FbView {
        limit: 8 << 30,
        free: 3 << 30,
        free_bar1: u64::MAX,
    };
    fn v2(view: FbView, params: &mut [u8]) {
        let asked = fb_info_v2_pairs(params).to_vec();
        rewrite_fb_info_v2(view, &asked, params);
    }

    fn v1(view: FbView, pairs: &mut [u8]) {
        let asked = pairs.to_vec();
        rewrite_fb_info(view, &asked, pairs);
    }

    #[test]
    fn the_question_says_which_number_is_which() {
        let asked = list(&[(0x16, 0), (0x10, 0)]);
        // Between the driver and us another thread has named both otherwise.
        let mut pairs = list(&[(0x10, REAL), (0x16, REAL)]);
        rewrite_fb_info(VIEW, &asked, &mut pairs);
        assert_eq!(pairs, list(&[(0x16, FREE), (0x10, REAL)]));
        let before = with_count(1, &[(0x08, 0)]);
        let mut after = with_count(0, &[(0x08, REAL)]);
        rewrite_fb_info_v2(VIEW, fb_info_v2_pairs(&before), &mut after);
        assert_eq!(after, with_count(0, &[(0x08, LIMIT)]));
    }

    #[test]
    fn the_pieces_of_memory_end_with_the_limit() {
        for size in [48, 56] {
            pieces_end_with_the_limit(size);
        }
    }

    /// With so many bytes for each piece: as 570 and 580 have it.
    fn pieces_end_with_the_limit(size: usize) {
        use fb::fb_region::{
            self,
            BASE,
            RESERVED, //
        };
        use fb::fb_regions::{
            FB_REGION,
            NUM_FB_REGIONS, //
        };
        let piece = |number: usize| FB_REGION + number * size;
        let mut params = vec![0; piece(fb::MOST_REGIONS)];
        NUM_FB_REGIONS.set(&mut params, 3).expect("in range");
        // The second goes beyond the limit of 8 GiB, the third lies there.
        for (number, base, last) in [
            (0, 0, (4 << 30) - 1),
            (1, 4 << 30, (12 << 30) - 1),
            (2, 12 << 30, (16 << 30) - 1),
        ] {
            let region = &mut params[piece(number)..];
            BASE.set(region, base).expect("in range");
            fb_region::LIMIT.set(region, last).expect("in range");
            RESERVED.set(region, 1 << 20).expect("in range");
        }
        rewrite_regions(VIEW, &mut params);
        assert_eq!(NUM_FB_REGIONS.get(&params), Some(2));
        let told = |number: usize| {
            let region = &params[piece(number)..];
            let last = fb_region::LIMIT.get(region);
            (BASE.get(region), last, RESERVED.get(region))
        };
        assert_eq!(told(0), (Some(0), Some((4 << 30) - 1), Some(0)));
        assert_eq!(told(1), (Some(4 << 30), Some((8 << 30) - 1), Some(0)));
        assert_eq!(told(2), (Some(0), Some(0), Some(0)));
    }

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
    fn reports_show_the_limit_and_its_free_part() {
        // As recorded: nvidia-smi asks for these, CUDA for the first, the last and 0x10.
        let mut smi = with_count(3, &[(0x16, 144_973_760), (0x08, 147_221_504), (0x09, REAL)]);
        v2(VIEW, &mut smi);
        let expected = [(0x16, FREE), (0x08, LIMIT), (0x09, LIMIT)];
        assert_eq!(smi, with_count(3, &expected));
        let mut cuda = with_count(3, &[(0x16, 146_048_128), (0x09, REAL), (0x10, 0)]);
        v2(VIEW, &mut cuda);
        assert_eq!(
            cuda,
            with_count(3, &[(0x16, FREE), (0x09, LIMIT), (0x10, 0)])
        );
    }

    #[test]
    fn size_may_be_asked_with_free_memory() {
        let asked = |indices: &[u32]| {
            let pairs: Vec<_> = indices.iter().map(|index| (*index, 0)).collect();
            size_asked(&list(&pairs))
        };
        // CUDA's, as recorded.
        assert_eq!(asked(&[0x08]), SizeAsked::Size);
        assert_eq!(asked(&[0x0b, 0x19, 0x17, 0x08]), SizeAsked::Size);
        assert_eq!(asked(&[0x16, 0x09, 0x10]), SizeAsked::Free);
        // nvidia-smi's.
        assert_eq!(asked(&[0x16, 0x08, 0x09]), SizeAsked::Other);
        assert_eq!(asked(&[0x3b]), SizeAsked::Other);
        assert_eq!(asked(&[]), SizeAsked::Other);
    }

    #[test]
    fn each_index_is_told_what_the_table_says() {
        for index in 0..0x80 {
            let expected = match index {
                0x05 | 0x07 | 0x08 | 0x09 | 0x0a | 0x20 | 0x33 => LIMIT,
                0x12 | 0x16 | 0x1d | 0x1f | 0x34 => FREE,
                0x13 => 0,
                _ => REAL,
            };
            let mut pairs = list(&[(index, REAL)]);
            v1(VIEW, &mut pairs);
            assert_eq!(pairs, list(&[(index, expected)]), "index {index:#x}");
        }
    }

    #[test]
    fn gpu_info_changes_for_dma_bufs_alone() {
        let mut params = with_count(3, &[(0x3d, 1), (0x3c, 1), (0x0100_003d, 1)]);
        let asked = fb_info_v2_pairs(&params).to_vec();
        rewrite_gpu_info_v2(&asked, &mut params);
        let expected = [(0x3d, 0), (0x3c, 1), (0x0100_003d, 0)];
        assert_eq!(params, with_count(3, &expected));
    }

    #[test]
    fn reported_free_memory_is_the_gpus_at_most() {
        for real in [0, FREE - 1, FREE, FREE + 1] {
            for index in [0x12, 0x16, 0x1d, 0x1f, 0x34] {
                let mut pairs = list(&[(index, real)]);
                v1(VIEW, &mut pairs);
                assert_eq!(pairs, list(&[(index, real.min(FREE))]));
            }
        }
        // Without confidential computing there is no protected memory, and no more is told.
        let mut pairs = list(&[(0x33, 0)]);
        v1(VIEW, &mut pairs);
        assert_eq!(pairs, list(&[(0x33, 0)]));
    }

    #[test]
    fn a_count_is_not_believed_beyond_the_buffer() {
        let pairs = [(0x08, REAL), (0x08, REAL)];
        for (count, rewritten) in [(0, 0), (1, 1), (2, 2), (3, 2), (u32::MAX, 2)] {
            let mut params = with_count(count, &pairs);
            params.extend([0xaa; 7]);
            v2(VIEW, &mut params);
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
            v2(VIEW, &mut short);
            assert_eq!(short, vec![1; len]);
        }
    }

    #[test]
    fn a_size_too_large_is_cut_to_fit() {
        let view = FbView {
            limit: u64::MAX,
            free: (1 << 42) - 1,
            free_bar1: u64::MAX,
        };
        let mut pairs = list(&[(0x08, 1), (0x16, u32::MAX)]);
        v1(view, &mut pairs);
        assert_eq!(pairs, list(&[(0x08, u32::MAX), (0x16, u32::MAX)]));
    }
}
