#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# build.sh [--kernel KERNEL]: builds nvidia.ko and nvidia-uvm.ko for a kernel of ../vm/build.sh's
# (stock, 6.1, 6.12, newest, debug) and prints the folder that they are in, with `release`, the
# driver's version.
#
#   NVIDIA_SRC=PATH   another tree of NVIDIA's open-gpu-kernel-modules, of any branch, instead of
#                     Debian's source package. Its resource manager is compiled too
#                     (resource-manager.sh, 20 minutes); Debian's has that as an object file.
#
# The sources stay as they are: a copy is built, with linux-compat.h and adapt.py. The result is
# kept under ~/.cache/cgpu by the hash of all that went into it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../vm/lib.sh
. "$(dirname "$0")/../vm/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../vm/find-kernel.sh
. "$(dirname "$0")/../vm/find-kernel.sh"

case "$# ${1:-}" in
"0 ") ;;
"2 --kernel") ;;
*) die "usage: build.sh [--kernel KERNEL]" ;;
esac
here=$CGPU_TREE/tests/driver
driver=$("$here/env.sh")
find_kernel "${2:-stock}"
# Debian has what is of no flavour in a folder of its own, which a Makefile names.
ksrc=$(sed -n 's,^include \(/.*\)/Makefile$,\1,p' "$(outside "$kdir")/Makefile")
ksrc=${ksrc:-$kdir}
source=$(readlink -f "${NVIDIA_SRC:-$(dirname "$driver")/source}")
# NVIDIA's own tree has the kernel's side in a folder, and the resource manager as source.
rm_source=
part=.
if [ -e "$source/src/nvidia/Makefile" ]; then
	rm_source=yes
	part=kernel-open
	manager=$("$here/resource-manager.sh" "$source")
fi

# The sources. Files that a build left in somebody's tree are none.
files() {
	find "$part" -type f ! -path '*/.git/*' ! -name '*.o' ! -name '*.ko' -print0 | sort -z
}
key=$({
	hash_of_scripts "$0" "$here/adapt.py" "$here/linux-compat.h"
	sha256sum "$(outside "$kdir")"/{Module.symvers,.config} | cut -d' ' -f1
	grep -E '^gcc-14 ' "$root/../versions"
	[ -z "$rm_source" ] || sha256sum "$manager"
	cd "$source" && files | xargs -0 sha256sum
} | sha256sum | cut -c1-12)
if kept "driver-modules-$key" "the real driver"; then
	echo "$final"
	exit 0
fi
mkdir "$work/tree" "$work/compat"
(cd "$source" && files | xargs -0 cp --parents -t "$work/tree")
cp "$here/linux-compat.h" "$work/compat/"
modules=$work/tree
[ -z "$rm_source" ] || modules+=/$part
version=$(sed -n -E 's/.*-DNV_VERSION_STRING=\\"([0-9.]+)\\".*/\1/p' "$modules/Kbuild")
[ -n "$version" ] || die "$source says no version of the driver"
features=$("$here/adapt.py" "$modules" "${version%%.*}" "$(outside "$ksrc")/include" \
	2>"$work/adapted") || die "the driver is not adapted: $(tail -n 1 "$work/adapted")"

nmake() {
	log "$work/make.log" in_root "$root" "$work/tree" /build rw "$work/compat" /compat ro \
		"${mounts[@]}" -- make -j"$(nproc)" "${compiler[@]:-CC=gcc-14}" "$@"
}
[ -z "$rm_source" ] || cp "$manager" "$modules/nvidia/nv-kernel.o_binary"
step "nvidia.ko and nvidia-uvm.ko $version for $release (about 3 minutes)"
# Their pahole wrapper is not that of this kernel, and nobody needs BTF of them.
nmake -C "/build${modules#"$work/tree"}" \
	SYSSRC="$ksrc" SYSOUT="$kdir" KERNEL_UNAME="$release" IGNORE_CC_MISMATCH=1 \
	NV_EXCLUDE_KERNEL_MODULES="nvidia-drm nvidia-modeset nvidia-peermem" \
	CONFIG_DEBUG_INFO_BTF_MODULES= \
	CFLAGS_MODULE="-include /compat/linux-compat.h $features" modules
for module in nvidia nvidia-uvm; do
	in_root "$root" "$modules" /build rw -- \
		strip --strip-debug -o "/build/$module.stripped" "/build/$module.ko"
	mv "$modules/$module.stripped" "$work/$module.ko"
done
rm -rf "$work/tree" "$work/compat"
echo "$version" >"$work/release"
keep
step "ready: driver $version for $release"
echo "$final"
