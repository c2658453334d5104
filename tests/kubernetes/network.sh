#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# network.sh: prints a folder with the modules of the test machine's kernel that drive QEMU's
# network card, in the order in which they are loaded. They are in a package of 38 MB, of which the
# folder of kernel-env.sh has nothing.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR/../vm source=../vm/lib.sh
. "$(dirname "$0")/../vm/lib.sh"

root=$("$CGPU_TREE/tests/vm/kernel-env.sh")
kernel=$(cat "$root/../kernel")
if kept "network-$kernel" "the drivers of the machine's network"; then
	echo "$final/modules"
	exit
fi
step "drivers of the machine's network"
mkdir "$work/modules" "$work/deb"
# shellcheck disable=SC2016  # the inner shell expands
log "$work/apt.log" in_root "$root" "$work/deb" /stage rw -- sh -c \
	'cd /stage && apt-get download -o APT::Sandbox::User=root "$1"' sh \
	"linux-modules-$kernel=$(cat "$root/../kernel-version")"
dpkg-deb -x "$work"/deb/*.deb "$work/deb/x"
n=0
for name in failover net_failover virtio_net; do
	n=$((n + 1))
	find "$work/deb/x" -name "$name.ko.xz" -exec xz -dc {} + >"$work/modules/$n-$name.ko"
	[ -s "$work/modules/$n-$name.ko" ] || die "the package has no $name"
done
rm -r "$work/deb"
keep
echo "$final/modules"
