#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# seal-test.sh [RUN'S OPTIONS]: on a kernel without seals for mappings, the module loads only if it
# can seal them itself, and nobody can switch that off while it is loaded. The test loads the module
# itself. A step that fails prints no "ok": the tally wants five.
set -euo pipefail
here=$(dirname "$0")
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
"$here/run.sh" --no-build --name seals --load '' "$@" -- sh -euc '
	. /vm.conf
	. /guest-lib.sh
	enabled=/proc/sys/kernel/ftrace_enabled
	echo 0 >$enabled
	! insmod /modules/cgpu_km.ko 2>/dev/null && echo "ok not loaded without ftrace"
	dmesg | grep -q "cgpu_km: cannot protect calls here: .*kernel.ftrace_enabled=1" &&
		echo "ok the log says why"
	echo 1 >$enabled
	insmod /modules/cgpu_km.ko && echo "ok loaded with it"
	! echo 0 2>/dev/null >$enabled && [ "$(cat $enabled)" = 1 ] &&
		echo "ok ftrace stays on while it is loaded"
	rmmod cgpu_km && echo 0 >$enabled && [ "$(cat $enabled)" = 0 ] &&
		echo "ok switched off again without it"
' | tally seals 5
