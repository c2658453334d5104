#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# load-order.sh: the module may come before the driver, and the driver may go and come back, as one
# that is not known or that exports nothing.
set -euo pipefail
here=$(dirname "$0")
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
"$here/run.sh" --no-build --name load-order --load '' -- sh -euc '
	. /vm.conf
	. /guest-lib.sh
	insmod /modules/cgpu_km.ko
	[ -c /dev/cgpuctl ] && echo "ok control device without a driver"
	! cgpuctl inst create early --gpu 0 --mem 2GiB 2>/dev/null &&
		echo "ok no instance without a driver"
	mount_cgpufs
	load_driver
	cgpuctl inst create late --gpu 0 --mem 2GiB >/dev/null &&
		echo "ok instance after the driver came"
	cgpuctl gpu list >&2
	[ -c /run/cgpu/dev/late/nvidiactl ] && echo "ok proxy nodes"
	cgpuctl inst destroy late && echo "ok destroyed"
	unload_module && echo "ok unloaded before the driver"
	load_module
	cgpuctl inst create again --gpu 0 --mem 2GiB >/dev/null && echo "ok loaded again"
	cgpuctl inst destroy again
	cgpuctl unload && [ ! -e /dev/cgpuctl ] && ! mounted /run/cgpu/dev && echo "ok cgpuctl unload"
	unload_driver
	FAKE_PARAMETERS="$FAKE_PARAMETERS version=999.10.02" load_driver
	load_module
	code=0
	cgpuctl inst create new --gpu 0 --mem 2GiB 2>/dev/null || code=$?
	[ "$code" = 7 ] && echo "ok no instance with a driver of an unknown branch"
	unload_module
	insmod /modules/cgpu_km.ko unsafe_assume_branch=999
	code=0
	cgpuctl inst create new --gpu 0 --mem 2GiB 2>/dev/null || code=$?
	[ "$code" = 7 ] && echo "ok no instance with tables that there are not"
	unload_module
	insmod /modules/cgpu_km.ko unsafe_assume_branch=580
	cgpuctl inst create new --gpu 0 --mem 2GiB >/dev/null &&
		echo "ok an instance where the operator takes the risk"
	cgpuctl status | grep -q "unknown branch and taken for 580" && echo "ok status says so"
	cgpuctl inst destroy new
	cgpuctl unload >/dev/null
	unload_driver
	DRIVER=fake_nvidia_plain
	load_driver
	load_module
	cgpuctl inst create plain --gpu 0 --mem 2GiB >/dev/null
	grep -q "^mechanism_switch: 1" /proc/cgpu_km/0/status &&
		echo "ok an interface that the driver does not export is found"
	cgpuctl inst destroy plain
	cgpuctl unload >/dev/null
	unload_driver
	FAKE_PARAMETERS="$FAKE_PARAMETERS kernel_rmapi=0" load_driver
	load_module
	code=0
	cgpuctl inst create apart --gpu 0 --mem 2GiB 2>/dev/null || code=$?
	[ "$code" = 7 ] && echo "ok no instance with a driver without an interface for the kernel"
	echo 1 >/sys/module/$DRIVER/parameters/kernel_rmapi
	cgpuctl inst create apart --gpu 0 --mem 2GiB >/dev/null && echo "ok one when it is there"
	cgpuctl inst destroy apart
	cgpuctl unload >/dev/null
	unload_driver
' | tally "load order" 15
