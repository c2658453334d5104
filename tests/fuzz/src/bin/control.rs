// SPDX-License-Identifier: GPL-2.0
//! The target `control`: see [`cgpu_fuzz::run::control`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| cgpu_fuzz::run::control(input));
