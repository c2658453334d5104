#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# debian12-env.sh: makes a folder of Debian 12 with what a host there has before cgpu comes (gcc,
# DKMS, systemd, the headers of its kernel), and prints its path. It is kept under ~/.cache/cgpu by
# the hash of this script and the release of 6.1 that host-kernel.sh has. Needs root and a mirror.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

SUITE=bookworm
PACKAGES=gcc,make,libc6-dev,dkms,systemd,udev,kmod,xz-utils,ca-certificates

here=$CGPU_TREE/tests/vm
release=$(cat "$("$here/host-kernel.sh" 6.1)/release")
if kept "debian12-$(hash_of_scripts "$0")-$release" "the folder of Debian 12"; then
	echo "$final/root"
	exit 0
fi
base=$("$here/kernel-env.sh")
# "deb [signed-by=KEYRING] MIRROR SUITE main"
read -r _ signed mirror _ <"$base/etc/apt/sources.list"
# The options by which this machine reaches its mirror are the folder's too.
options=()
while IFS= read -r line; do
	options+=("--aptopt=$line")
done < <(apt-config dump | grep -E '^Acquire::(http|https)::(Proxy|CaInfo)' | grep -v '""' || :)
if [ ! -x /usr/bin/mmdebstrap ]; then
	step "installing mmdebstrap"
	log "$work/apt.log" apt-get update
	log "$work/apt.log" apt-get install -y --no-install-recommends mmdebstrap
fi
step "Debian 12 folder with DKMS and the headers of $release (about 60 s)"
log "$work/mmdebstrap.log" mmdebstrap --mode=root --variant=minbase \
	--aptopt='APT::Install-Recommends "false"' "${options[@]}" \
	--include="linux-headers-$release,$PACKAGES" "$SUITE" "$work/root" \
	"deb $signed $mirror $SUITE main" "deb $signed $mirror $SUITE-backports main"
keep
echo "$final/root"
