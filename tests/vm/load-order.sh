#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# load-order.sh: the module may come before the driver, and the driver may go and come back.
set -euo pipefail
here=$(dirname "$0")
"$here/run.sh" --no-build --name load-order --load '' -- sh -euc '
	. /vm.conf
	. /guest-lib.sh
	insmod /modules/cgpu_km.ko
	[ -c /dev/cgpuctl ] && echo "ok control device without a driver"
	! cgpuctl inst create early --gpu 0 --mem 2GiB 2>/dev/null && echo "ok no instance without a driver"
	mount_twins
	load_driver
	cgpuctl inst create late --gpu 0 --mem 2GiB >/dev/null && echo "ok instance after the driver came"
	cgpuctl gpu list >&2
	[ -c /run/cgpu/dev/late/nvidiactl ] && echo "ok twins"
	cgpuctl inst destroy late && echo "ok destroyed"
	unload_module && echo "ok unloaded before the driver"
	load_module
	cgpuctl inst create again --gpu 0 --mem 2GiB >/dev/null && echo "ok loaded again"
	cgpuctl inst destroy again
	cgpuctl unload && [ ! -e /dev/cgpuctl ] && ! mounted /run/cgpu/dev && echo "ok cgpuctl unload"
' | {
	passed=0
	while IFS= read -r line; do
		echo "$line"
		[ "${line#ok}" = "$line" ] || passed=$((passed + 1))
	done
	echo "load order: $passed passed, $((8 - passed)) failed"
	[ "$passed" = 8 ]
}
