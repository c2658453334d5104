#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# orders.sh: NVIDIA's driver on two GPUs in the test machine: the module is there first, the driver
# comes, goes and comes back, and a tenant has an instance on both GPUs. Ends in "orders: N passed,
# N failed".
# shellcheck disable=SC1091  # paths in the machine
. /vm.conf
. /guest-lib.sh
. /files/guest-check.sh
. /files/programs.sh

load_module
check "no instance without a driver" fails cgpuctl inst create early --gpu 0 --mem 2GiB
check "and why" says "the NVIDIA driver is not loaded"
for time in first second; do
	load_driver
	# Somebody has the GPUs open: otherwise the driver starts them anew for each program.
	exec 8<>/dev/nvidia0 9<>/dev/nvidia1
	check "the driver comes for the $time time: an instance is made" \
		run cgpuctl inst create pair --gpu 0 --gpu 1 --mem 4GiB
	check "its programs run" run inside pair nvidia-smi -L
	check "and see both GPUs" is "$(grep -c UUID "$out/said")" 2
	for gpu in 0 1; do
		inside pair cuda-check --device $gpu --total $((4 << 30)) memory copies >"$out/cuda" 2>&1
		cases "on GPU $gpu of two, $time time" "$out/cuda"
	done
	check "the instance goes" run cgpuctl inst destroy pair --gpu 0,1
	exec 8>&- 9>&-
	unload_driver
done
unload_module
rm -rf "$out"
echo "orders: $passed passed, $failed failed"
[ "$failed" = 0 ]
