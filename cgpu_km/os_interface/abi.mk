# SPDX-License-Identifier: GPL-2.0
# The version of what Rust and C agree on: a hash of the headers between the two. Rust has a symbol
# of that name and the C refers to it, so that the two do not link if they are of different versions.
cgpu-abi := $(shell cat $(sort $(wildcard $(src)/cgpu_km/os_interface/*/*.h)) | sha256sum | \
	cut -c1-16)
CFLAGS_cgpu_km/os_interface/entry/shim.o := -DCGPU_ABI=cgpu_core_abi_$(cgpu-abi)
