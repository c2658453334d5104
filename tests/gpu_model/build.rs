// SPDX-License-Identifier: GPL-2.0
//! Compiles the model, as freestanding as in a kernel module.

fn main() {
    for file in ["model.c", "model.h", "host.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    cc::Build::new()
        .files(["model.c", "host.c"])
        .std("gnu11")
        .flag("-ffreestanding")
        .warnings(true)
        .warnings_into_errors(true)
        .opt_level(2)
        .compile("gpu_model");
}
