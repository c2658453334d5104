// SPDX-License-Identifier: GPL-2.0
//! The target `sequence`: see [`cgpu_fuzz::run::sequence`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| cgpu_fuzz::run::sequence(input));
