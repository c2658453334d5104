#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# env.sh: makes the disk of a Debian 13 host with a GPU, and prints its path: stock kernel 6.12,
# NVIDIA's open driver built by DKMS from Debian's package, nvidia-smi, libcuda, podman and docker.
# Nothing but Debian's packages is in it. In its /var/cache/apt is the kernel 7.2 of backports, not
# installed. Beside the disk:
#
#   release, update   the two kernels' releases
#   driver            the driver's version, such as 550.163.01
#   edited            is there if Debian's driver had to be edited to compile for this kernel
#   versions          what was in the archive
#
# The disk is an ext4 file system without a partition table or boot loader. It is kept under
# ~/.cache/cgpu. Needs root, a loop device and the Debian folder of ../vm/kernel-env.sh.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../vm/lib.sh
. "$(dirname "$0")/../vm/lib.sh"

FLAVOUR=cloud-amd64
SIZE=12G
BASE=systemd,systemd-sysv,udev,dbus,kmod,initramfs-tools,ca-certificates
ENGINES=(podman crun netavark docker.io docker-cli containerd runc)
DRIVER=(nvidia-open-kernel-dkms nvidia-smi libcuda1 libnvidia-ptxjitcompiler1 nvidia-modprobe)

base=$("$CGPU_TREE/tests/vm/kernel-env.sh")
update=$(cat "$base/../kernel")
key=$({
	hash_of_scripts "$0"
	cat "$base/../kernel-version"
} | sha256sum | cut -c1-12)
if kept "debian13-$key" "the disk with Debian 13"; then
	echo "$final/disk"
	exit 0
fi
root=$work/root
# "deb [signed-by=KEYRING] MIRROR SUITE main"
read -r _ signed mirror suite _ <"$base/etc/apt/sources.list"
keyring=${signed#*=}
options=()
for file in "$base"/etc/apt/apt.conf.d/*; do
	while IFS= read -r line; do
		options+=("--aptopt=$line")
	done < <(grep -E '^Acquire::(http|https)::' "$file" || :)
done

step "Debian $suite (about a minute)"
sections="main contrib non-free non-free-firmware"
log "$work/mmdebstrap.log" mmdebstrap --mode=root --variant=minbase \
	--keyring="${keyring%]}" --aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	"${options[@]}" --include="$BASE" "$suite" "$root" \
	"deb $signed $mirror $suite $sections" "deb $signed $mirror $suite-backports $sections"
# Nothing is started by what is installed here.
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
log "$work/apt.log" in_root "$root" -- apt-get update
install() { # install PACKAGE...
	log "$work/apt.log" in_root "$root" -- env DEBIAN_FRONTEND=noninteractive \
		apt-get install -y "$@"
}
install "linux-image-$FLAVOUR" "linux-headers-$FLAVOUR" "${ENGINES[@]}"
release=$(basename "$root"/boot/vmlinuz-*)
release=${release#vmlinuz-}
step "NVIDIA's driver by DKMS for $release (about 5 minutes)"
by_dkms() { # by_dkms COMMAND...
	in_root "$root" -- env DEBIAN_FRONTEND=noninteractive "$@" \
		>>"$work/driver.log" 2>&1
}
if ! by_dkms apt-get install -y "${DRIVER[@]}"; then
	# Debian's 550.163.01-2, and -4~bpo13+1 of backports, do not compile for 6.12.107 and later of
	# Debian 13: pci_resize_resource() has a fourth argument there, which BARs must stay.
	step "it does not compile: $(grep -h -m1 'error:' \
		"$root"/var/lib/dkms/nvidia-*/*/build/make.log)"
	source=$(echo "$root"/usr/src/nvidia-*/nvidia/nv-pci.c)
	sed -i 's/\(pci_resize_resource(pci_dev, NV_GPU_BAR1, requested_size\));/\1, 0);/' "$source"
	[ "$(grep -c 'requested_size, 0);' "$source")" = 1 ] || die "its call is not as expected"
	by_dkms dpkg --configure -a || die "nor with one argument more (see $work/driver.log)"
	touch "$work/edited"
fi
in_root "$root" -- dkms status >"$work/dkms"
grep -q "^nvidia.*, $release, .*: installed" "$work/dkms" ||
	die "DKMS has not built the driver for $release: $(cat "$work/dkms") (see $work/driver.log)"

step "kernel $update, for later"
in_root "$root" -- apt-get clean
log "$work/download.log" in_root "$root" -- apt-get install -y --download-only \
	-t "$suite-backports" "linux-image-$update" "linux-headers-$update"
rm "$root/usr/sbin/policy-rc.d"
in_root "$root" -- dpkg-query -W -f '${Package} ${Version}\n' >"$work/versions"
echo "$release" >"$work/release"
echo "$update" >"$work/update"
sed -n -E 's/^libcuda1 ([0-9.]+)-.*/\1/p' "$work/versions" >"$work/driver"
step "disk"
log "$work/mke2fs.log" mke2fs -q -t ext4 -d "$root" -L root "$work/disk" "$SIZE"
rm -rf "$root"
keep
step "ready: $release with driver $(cat "$final/driver")"
echo "$final/disk"
