// SPDX-License-Identifier: GPL-2.0
//! The target `uvm`: see [`cgpu_fuzz::run::uvm`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| cgpu_fuzz::run::uvm(input));
