// SPDX-License-Identifier: GPL-2.0
//! The target `kubernetes`: see [`cgpu_fuzz::kubernetes::any`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| cgpu_fuzz::kubernetes::any(input));
