#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# engine-env.sh: makes a second Debian folder beside that of kernel-env.sh and prints its path: the
# same folder with what operators have and the test machine does not need: podman with crun, docker
# with containerd and runc, udev, systemd, DKMS, cargo and rpm. It costs no second copy of what both
# have: files are linked, and /etc and /var copied.
#
# It has a key of its own, so that another package here costs nobody the kernel's folder.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

PACKAGES=(podman crun conmon netavark golang-github-containers-common dkms cargo)
PACKAGES+=(docker.io docker-cli containerd runc systemd udev rpm e2fsprogs)

beside_kernel engine "the folder with podman"
step "podman, docker, udev, DKMS, cargo and rpm (about 60 s)"
# No service is started, no kernel module built by what is installed here.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
log "$work/apt.log" in_root "$root" -- apt-get update
log "$work/apt.log" in_root "$root" -- env DEBIAN_FRONTEND=noninteractive \
	apt-get install -y --no-install-recommends "${PACKAGES[@]}"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/cache/apt/*.bin "$root"/var/lib/apt/lists/*
in_root "$root" -- dpkg-query -W -f '${Package} ${Version}\n' >"$work/versions"
keep
step "ready: $(grep -E '^(podman|crun|docker.io|containerd) ' "$final/versions" | tr '\n' ' ')"
echo "$final/root"
