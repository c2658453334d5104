#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# gpu.sh [GROUP...]: builds the real-GPU harness (tests/gpu) and runs its tests, where there is a
# GPU: a table on stderr, JSON on stdout. Ends with 0 where all passed or there is no GPU, with 1
# where one failed, with 2 where they could not be made. What it builds runs on a machine with
# nothing but the driver, python3 and a C library: --bundle DIR puts it there together, to be
# carried to such a machine and started with run.py --bin .
set -euo pipefail
cd "$(dirname "$0")/.."

bundle=
if [ "${1:-}" = --bundle ]; then
	bundle=${2:?"gpu.sh --bundle: which folder?"}
	shift 2
fi
target=${CARGO_TARGET_DIR:-target}/gpu
if command -v cargo >/dev/null; then
	cargo build --quiet --profile gpu --locked -p cgpu-gpu -p cgpu-preload >&2 || exit 2
elif ! [ -x "$target/cgpu-gpu" ]; then
	echo "test-gpu: there is no cargo to build it with, and nothing built in $target" >&2
	exit 2
fi
if [ -n "$bundle" ]; then
	mkdir -p "$bundle"
	cp -r tests/gpu/run.py tests/gpu/weights.py tests/gpu/peers.py tests/gpu/programs "$bundle/"
	cp "$target/cgpu-gpu" "$target/libcgpu_preload.so" "$bundle/"
	strip "$bundle/cgpu-gpu" "$bundle/libcgpu_preload.so"
	echo "test-gpu: bundle in $bundle: on the machine with the GPU, ./run.py --bin ."
	exit 0
fi
if ! [ -c /dev/nvidiactl ]; then
	echo "test-gpu: SKIPPED: this machine has no NVIDIA GPU with a driver (/dev/nvidiactl); what runs there is built" >&2
	echo '{"skipped": "no NVIDIA GPU with a driver"}'
	exit 0
fi
exec tests/gpu/run.py --bin "$target" "$@"
