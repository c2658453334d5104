#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# kernel-env.sh: makes the Debian 13 folder in which the module is built and the test machine runs,
# and prints its path. In it: Debian's rustc and gcc, QEMU, busybox, the stock kernel 7.2 with its
# headers, and the Rust metadata that Debian's headers lack.
#
# The metadata is made from the kernel's source with the stock .config and the very rustc that built
# the kernel. That the symbols are the stock kernel's is checked, not assumed.
#
# The folder is kept under ~/.cache/cgpu by the hash of this script; what was in the archive on the
# day it was made is written in its file `versions`. Needs root, apt and a Debian mirror: the one
# that this machine's apt uses, or CGPU_DEBIAN_MIRROR.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

SUITE=trixie
SERIES=7.2
PREFERRED=7.2.12
FLAVOUR=cloud-amd64
TOOLS=gcc,libc6-dev,make,bc,bison,flex,libelf-dev,libssl-dev,libdw-dev
TOOLS+=,rustc,rust-src,rustfmt,rust-clippy,bindgen
TOOLS+=,python3-minimal,xz-utils,kmod,cpio,pahole,lz4,busybox-static,qemu-system-x86,ca-certificates
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

key=$(hash_of_scripts "$0")
final=$CGPU_CACHE/kernel-$key
if [ -e "$final/ready" ]; then
	echo "$final/root"
	exit 0
fi
need_root
lock "$CGPU_CACHE/kernel-$key.lock" "the Debian folder"
if [ -e "$final/ready" ]; then
	echo "$final/root"
	exit 0
fi

# Left by a run that was stopped. This run holds the lock, so nobody else uses it.
rm -rf "$CGPU_CACHE/kernel-$key.tmp"
work=$CGPU_CACHE/kernel-$key.tmp
root=$work/root
mkdir -p "$work"

missing=()
[ -x /usr/bin/mmdebstrap ] || missing+=(mmdebstrap)
[ -e "$KEYRING" ] || missing+=(debian-archive-keyring)
if [ ${#missing[@]} -gt 0 ]; then
	step "installing ${missing[*]}"
	log "$work/apt.log" apt-get update
	log "$work/apt.log" apt-get install -y --no-install-recommends "${missing[@]}"
fi

mirror=${CGPU_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' |
	sed -n -E '/\/debian\/?$/{p;q}')}
[ -n "$mirror" ] || die "this machine's apt knows no Debian mirror; set CGPU_DEBIAN_MIRROR"

# The options by which this machine reaches its mirror are the folder's too.
mmdebstrap_options=()
while IFS= read -r line; do
	mmdebstrap_options+=("--aptopt=$line")
done < <(apt-config dump | grep -E '^Acquire::(http|https)::(Proxy|CaInfo)' | grep -v '""' || :)

step "Debian $SUITE folder with the toolchain (about 40 s)"
log "$work/mmdebstrap.log" mmdebstrap --mode=root --variant=minbase --keyring="$KEYRING" \
	--aptopt='APT::Install-Recommends "false"' \
	--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	"${mmdebstrap_options[@]}" --include="$TOOLS" "$SUITE" "$root" \
	"deb [signed-by=$KEYRING] $mirror $SUITE main" \
	"deb [signed-by=$KEYRING] $mirror $SUITE-backports main"

step "stock kernel"
log "$work/apt.log" in_root "$root" -- apt-get update
# Releases of the series that have everything we need, newest last. linux-binary-* holds vmlinuz.
releases=$(in_root "$root" -- apt-cache search --names-only \
	"^linux-headers-${SERIES//./\\.}(\\.[0-9]+)?\\+deb[0-9]+-$FLAVOUR\$" |
	sed -E "s/^linux-headers-([^ ]*)-$FLAVOUR .*/\\1/" | sort -V)
release=
for candidate in $releases $(grep -F "$PREFERRED+" <<<"$releases" || :); do
	if in_root "$root" -- apt-cache show "linux-binary-$candidate-$FLAVOUR" >/dev/null 2>&1; then
		release=$candidate
	fi
done
[ -n "$release" ] || die "the mirror has no kernel $SERIES in $SUITE-backports"
version=$(in_root "$root" -- apt-cache show --no-all-versions "linux-headers-$release-$FLAVOUR" |
	sed -n 's/^Version: //p')
kernel=$release-$FLAVOUR
mkdir "$root/debs"
# shellcheck disable=SC2016  # the inner shell expands
log "$work/apt.log" in_root "$root" -- sh -c 'cd /debs && apt-get download -o APT::Sandbox::User=root "$@"' sh \
	"linux-source-$SERIES=$version" "linux-headers-$release-common=$version" "linux-kbuild-$release=$version" \
	"linux-headers-$kernel=$version" "linux-binary-$kernel=$version"
for deb in "$root"/debs/*.deb; do
	log "$work/apt.log" dpkg-deb -x "$deb" "$root"
done
headers=/usr/src/linux-headers-$kernel
# Rust's symbol names hold a hash of the compiler's version string: another compiler, other names.
wanted=$(sed -n 's/^CONFIG_RUSTC_VERSION_TEXT="\(.*\)"$/\1/p' "$root$headers/.config")
have=$(in_root "$root" -- rustc --version)
[ "$wanted" = "$have" ] || die "kernel $kernel was built with '$wanted', the folder has '$have'"

step "source of $kernel"
# Only what making the metadata reads: no driver is compiled. All Kconfig files must stay.
source=linux-source-$SERIES
except=(--exclude="$source/drivers/*.[cS]" --exclude="$source/sound/*.[ch]" --exclude="$source/fs/*.c"
	--exclude="$source/net/*.c" --exclude="$source/drivers/gpu/drm/amd/*.h"
	--exclude="$source/Documentation/*/*" --exclude="$source/tools/testing/*")
for arch in alpha arc arm arm64 csky hexagon loongarch m68k microblaze mips nios2 openrisc parisc \
	powerpc riscv s390 sh sparc xtensa; do
	except+=(--exclude="$source/arch/$arch/*.[chS]" --exclude="$source/arch/$arch/*.dts*")
done
mkdir "$root/ksrc" "$root/kout"
tar -C "$root/ksrc" --strip-components=1 -xf "$root/usr/src/$source.tar.xz" "${except[@]}"

step "Rust metadata for $kernel (about 70 s)"
compiler=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$root$headers/.config")
cp "$root$headers/.config" "$root/kout/"
kmake() {
	log "$work/make.log" in_root "$root" -- make -s -C /ksrc O=/kout CC="$compiler" \
		KERNELRELEASE="$kernel" -j"$(nproc)" "$@"
}
kmake olddefconfig
grep -q '^CONFIG_RUST=y' "$root/kout/.config" || die "the kernel's configuration lost CONFIG_RUST"
kmake prepare
cat "$root"/kout/rust/exports_*_generated.h | sed -E 's/.*\((.*)\);/\1/' | sort >"$work/symbols"
cut -f2 "$root$headers/Module.symvers" | sort | comm -13 - "$work/symbols" >"$work/missing"
[ -s "$work/symbols" ] || die "the metadata names no symbol"
if [ -s "$work/missing" ]; then
	head -n 5 "$work/missing" >&2
	die "$(wc -l <"$work/missing") Rust symbols are not the stock kernel's"
fi
mkdir -p "$root$headers/rust"
cp "$root"/kout/rust/*.rmeta "$root"/kout/rust/*.so "$root$headers/rust/"
cp "$root/kout/scripts/target.json" "$root/usr/lib/linux-kbuild-$release/scripts/"

# The folders that the build scripts mount, and what nothing needs any more.
rm -rf "$root/ksrc" "$root/kout" "$root/debs" "$root/usr/src/$source".tar.* "$root"/var/cache/apt/*.bin
mkdir "$root/src" "$root/build" "$root/stage"
echo "$kernel" >"$work/kernel"
echo "$version" >"$work/kernel-version"
in_root "$root" -- dpkg-query -W -f '${Package} ${Version}\n' >"$work/versions"
echo "linux-$kernel $version" >>"$work/versions"
mv "$work" "$final"
touch "$final/ready"
step "ready: $kernel"
echo "$final/root"
