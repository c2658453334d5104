#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# env.sh: makes the Debian folder of the real driver and prints its path. It is the folder of
# ../vm/kernel-env.sh (linked, not copied) with a QEMU that has vfio-user-pci. Beside it:
#
#   source/   NVIDIA's open kernel modules, as Debian's nvidia-open-kernel-source has them
#   user/     nvidia-smi, libcuda, NVML, OpenCL and the compilers of the same release
#   release   the driver's version, such as 550.163.01
#   versions  what was in the archive
#
#   DRIVER_BRANCH=535   another branch that Debian has, than 550
#
# Versions are found, not pinned: the newest of the branch that the mirror really delivers, because
# an archive sometimes lists a package that it no longer has.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../vm/lib.sh
. "$(dirname "$0")/../vm/lib.sh"

BRANCH=${DRIVER_BRANCH:-550}
# The release of Debian that has the branch, if it is not the folder's own.
suite=
case $BRANCH in
550) ;;
535) suite=bookworm ;;
*) die "Debian has no driver of branch $BRANCH; NVIDIA_SRC=PATH builds NVIDIA's own source" ;;
esac
SOURCE=nvidia-open-kernel-source
USER_PACKAGES=(nvidia-smi libcuda1 libnvidia-ml1 libnvidia-ptxjitcompiler1 nvidia-opencl-icd
	libnvidia-nvvm4)
# Programs of Debian's own that use them, with their libraries.
PROGRAMS=(clinfo ocl-icd-libopencl1)
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

beside_kernel "driver${suite:+-$BRANCH}" "the folder with the real driver $BRANCH"
step "QEMU with vfio-user, NVIDIA's driver and libraries (about 30 s)"
# The same mirror, and the sections with what is not free.
sed -E -n 's/^(deb .*) main$/\1 contrib non-free/p' "$root/etc/apt/sources.list" \
	>"$root/etc/apt/sources.list.d/nvidia.list"
[ -s "$root/etc/apt/sources.list.d/nvidia.list" ] ||
	die "the folder's sources.list is not as expected"
if [ -n "$suite" ]; then
	sed -E -n "1s/ [a-z]+ contrib/ $suite contrib/p" \
		"$root/etc/apt/sources.list.d/nvidia.list" >"$root/etc/apt/sources.list.d/branch.list"
fi
log "$work/apt.log" in_root "$root" -- apt-get update
backports=$(sed -n -E 's/.* ([a-z]+-backports) .*/\1/p' "$root/etc/apt/sources.list" | head -n 1)
log "$work/apt.log" in_root "$root" -- env DEBIAN_FRONTEND=noninteractive \
	apt-get install -y --no-install-recommends -t "$backports" qemu-system-x86 "${PROGRAMS[@]}"
# No pipe: a reader that stops early would end QEMU with a signal.
devices=$(in_root "$root" -- qemu-system-x86_64 -device help)
grep -q '"vfio-user-pci"' <<<"$devices" ||
	die "the mirror's QEMU has no vfio-user-pci (it came with 10.1)"

# versions PACKAGE: those of the branch that the archive lists, newest first.
versions() {
	in_root "$root" -- apt-cache madison "$1" |
		sed -n -E "s/^[^|]*\| *($BRANCH\.[^ ]*) *\|.*/\1/p" | sort -V -r -u
}

# get PACKAGE UPSTREAM: the newest package of that release which can be fetched, into /debs.
get() {
	local version
	for version in $(versions "$1" | grep -E "^${2//./\\.}-"); do
		# shellcheck disable=SC2016  # the inner shell expands
		if in_root "$root" -- sh -c \
			'cd /debs && apt-get download -o APT::Sandbox::User=root "$1"' sh "$1=$version" >>"$work/apt.log" 2>&1; then
			echo "$1 $version" >>"$work/got"
			return 0
		fi
	done
	return 1
}

release=
for candidate in $(versions "$SOURCE" | sed 's/-.*//' | uniq); do
	rm -rf "$root/debs" "$work/got"
	mkdir "$root/debs"
	complete=yes
	for package in "$SOURCE" "${USER_PACKAGES[@]}"; do
		get "$package" "$candidate" || complete=
	done
	if [ -n "$complete" ]; then
		release=$candidate
		break
	fi
done
[ -n "$release" ] || die "the mirror has no complete driver $BRANCH (see $work/apt.log)"

mkdir -p "$work/unpacked" "$work/source" "$work/user"
for deb in "$root"/debs/*.deb; do
	dpkg-deb -x "$deb" "$work/unpacked"
done
tar -C "$work/source" --strip-components=2 -xf "$work/unpacked/usr/src/nvidia-open-kernel.tar.xz" \
	modules/nvidia-open-kernel
for file in nvidia/nv-kernel.o_binary nvidia/nvidia.Kbuild nvidia-uvm/nvidia-uvm.Kbuild \
	conftest.sh; do
	[ -s "$work/source/$file" ] || die "Debian's source of the driver has no $file"
done
for file in nvidia-smi libcuda.so libnvidia-ml.so libnvidia-ptxjitcompiler.so \
	libnvidia-opencl.so libnvidia-nvvm.so; do
	path=$(find "$work/unpacked/usr/lib" -type f \( -name "$file.$release" -o -name "$file" \))
	[ -n "$path" ] || die "Debian's packages have no $file of $release"
	cp "$path" "$work/user/"
done
rm -rf "$work/unpacked" "$root/debs" "$root"/var/cache/apt/archives/*.deb \
	"$root"/var/cache/apt/*.bin "$root"/var/lib/apt/lists/*
echo "$release" >"$work/release"
{
	cat "$work/got"
	in_root "$root" -- dpkg-query -W -f '${Package} ${Version}\n' qemu-system-x86
} >"$work/versions"
keep
step "ready: driver $release, $(tail -n 1 "$final/versions")"
echo "$final/root"
