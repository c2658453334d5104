#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# gpu.sh: tests that need a real GPU and its driver. There are none yet: the module has so far been
# tested against the stand-in driver only.
set -euo pipefail

if ! [ -c /dev/nvidiactl ]; then
	echo "test-gpu: SKIPPED: this machine has no NVIDIA GPU with a driver (/dev/nvidiactl)"
	exit 0
fi
echo "test-gpu: this machine has an NVIDIA driver, and there is no test for real GPUs yet" >&2
exit 1
