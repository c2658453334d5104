// SPDX-License-Identifier: GPL-2.0
//! The target `frontend`: see [`cgpu_fuzz::run::frontend`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| cgpu_fuzz::run::frontend(input));
