#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# suite.sh: what `cgpu-guest suite`, `storm` and `hammer` test, on NVIDIA's driver and two GPUs.
# Cases that need the stand-in's levers are left out by name. Ends in "suite: N passed, N failed",
# which counts the parts; the suite counts its cases itself.
#
# The attacks are made a second time, beside so many other instances, if BESIDE is not 0.
#
#   ONLY=WORDS   only the suite's cases with these words
#   BESIDE=N     (0)
# shellcheck disable=SC1091  # paths in the machine
. /vm.conf
. /guest-lib.sh
. /files/guest-check.sh

load_driver
# Somebody has the GPUs open: otherwise the driver starts them anew for each program.
exec 8<>/dev/nvidia0 9<>/dev/nvidia1
load_module
cgpu-guest suite --only "${ONLY:-}"
rc=$?
: >"$out/said"
check "the suite" is $rc 0
if [ -z "${ONLY:-}" ]; then
	check "a storm of random calls" run cgpu-guest storm --seconds 10 --seed 1
	check "a storm of pages" run cgpu-guest storm-pages --seconds 10 --seed 1
	check "proxies that are opened again and again" run cgpu-guest hammer 500
	check "attacks through an instance" run cgpu-guest attacks
	cat "$out/said"
	if [ "${BESIDE:-0}" != 0 ]; then
		check "attacks beside $BESIDE other instances" \
			run cgpu-guest attacks --beside "$BESIDE"
		cat "$out/said"
	fi
	# These ask the driver what it charged or read, which this driver does not show.
	for part in storm-memory race weights; do
		echo "left out $part: compares with the stand-in's accounts"
	done
fi
exec 8>&- 9>&-
unload_module
unload_driver
rm -rf "$out"
echo "suite: $passed passed, $failed failed"
[ "$failed" = 0 ]
