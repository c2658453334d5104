#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# install.sh [OPTIONS]: builds the module and cgpuctl, installs them, loads the module and mounts
# /run/cgpu/dev. Everything it makes is written down, before it is made, in /var/lib/cgpu/manifest;
# uninstall.sh removes exactly that. If something fails half-way, what was made is removed again.
#
#   --dry-run        says what would be done, and changes nothing
#   --root DIR       installs into this folder instead of /, and loads nothing (for packages)
#   --prefix DIR     where cgpuctl goes: DIR/sbin (/usr/local)
#   --kernel RELEASE for this kernel (the running one)
#   --kdir DIR       that kernel's headers with Rust (/lib/modules/RELEASE/build)
#   --prebuilt DIR   takes cgpu_km.ko and cgpuctl from this folder and builds nothing
#   --no-load        installs, but does not load
#
# The module is not loaded at boot: `modprobe cgpu_km` and `cgpuctl inst create` do all that is needed.
set -euo pipefail

say() { printf '%s\n' "$*"; }
die() {
	printf 'install.sh: %s\n' "$*" >&2
	exit 1
}

here=$(cd "$(dirname "$0")" && pwd -P)
dry='' root='' prefix=/usr/local release=$(uname -r) kdir='' prebuilt='' load=yes
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry=yes ;;
	--root | --prefix | --kernel | --kdir | --prebuilt)
		[ $# -ge 2 ] || die "$1 needs a value"
		case $1 in
		--root) root=${2%/} load='' ;;
		--prefix) prefix=$2 ;;
		--kernel) release=$2 ;;
		--kdir) kdir=$2 ;;
		--prebuilt) prebuilt=$2 ;;
		esac
		shift
		;;
	--no-load) load='' ;;
	-h | --help) sed -n '3,/^set /{s/^# \{0,1\}//;/^set /d;p}' "$0"; exit 0 ;;
	*) die "what is $1? (--help)" ;;
	esac
	shift
done
kdir=${kdir:-/lib/modules/$release/build}
manifest=$root/var/lib/cgpu/manifest
module=/lib/modules/$release/updates/cgpu_km.ko
tool=$prefix/sbin/cgpuctl

[ -n "$dry" ] || [ "$(id -u)" = 0 ] || die "needs root"
[ ! -e "$manifest" ] || die "already installed ($manifest); run uninstall.sh first"
[ ! -e "$root$module" ] || die "$root$module is there and not from us"
[ ! -e "$root$tool" ] || die "$root$tool is there and not from us"
[ -z "$load" ] || [ "$release" = "$(uname -r)" ] || load=''

if [ -z "$prebuilt" ]; then
	[ -e "$kdir/Makefile" ] || die "no headers of kernel $release ($kdir); install linux-headers-$release or give --kdir"
	if ! compgen -G "$kdir/rust/*.rmeta" >/dev/null; then
		die "the headers in $kdir lack Rust's metadata (rust/*.rmeta): this kernel cannot build Rust modules from them"
	fi
	command -v cargo >/dev/null || die "needs cargo"
	command -v make >/dev/null || die "needs make"
else
	for file in cgpu_km.ko cgpuctl; do
		[ -r "$prebuilt/$file" ] || die "$prebuilt/$file is not there"
	done
fi
if [ -n "$load" ] && grep -q '^cgpu_km ' /proc/modules; then
	die "cgpu_km is loaded already; cgpuctl unload takes it out"
fi

if [ -n "$dry" ]; then
	[ -n "$prebuilt" ] || say "would build cgpu_km.ko against $kdir and cgpuctl with cargo, in a folder in ${TMPDIR:-/tmp}"
	say "would install $root$module"
	say "would install $root$tool"
	[ -n "$root" ] || say "would run depmod for $release"
	[ -z "$load" ] || say "would load cgpu_km and mount cgpufs at /run/cgpu/dev"
	say "would write $manifest"
	exit 0
fi

work=$(mktemp -d)
finished=
undo() {
	rm -rf "$work"
	if [ -z "$finished" ] && [ -e "$manifest" ]; then
		echo "install.sh: failed; removing what was made" >&2
		"$here/uninstall.sh" ${root:+--root "$root"} || :
	fi
}
trap undo EXIT
trap 'exit 130' INT TERM

if [ -n "$prebuilt" ]; then
	cp "$prebuilt/cgpu_km.ko" "$prebuilt/cgpuctl" "$work/"
else
	# Not in the tree: it may be read-only, or used with another kernel.
	say "building cgpu_km.ko for $release"
	mkdir "$work/module"
	make -s -C "$kdir" M="$here" MO="$work/module" modules
	cp "$work/module/cgpu_km.ko" "$work/"
	say "building cgpuctl"
	(cd "$here" && cargo build --quiet --release --locked -p cgpuctl --target-dir "$work/target")
	cp "$work/target/release/cgpuctl" "$work/"
fi

# The manifest's own folders are the first things in it. Lines are `KIND PATH [SHA256]`; paths are as seen
# from --root. A line comes before the thing, so that nothing is ever there that it does not know.
made=()
parent=/var/lib/cgpu
while [ ! -d "$root$parent" ]; do
	made=("$parent" "${made[@]}")
	parent=$(dirname "$parent")
done
mkdir -p "$root/var/lib/cgpu"
{
	say "# made by cgpu's install.sh; uninstall.sh removes what is listed, last line first"
	for folder in "${made[@]}"; do say "folder $folder"; done
} >"$manifest"

folder() {
	[ ! -d "$root$1" ] || return 0
	folder "$(dirname "$1")"
	say "folder $1" >>"$manifest"
	mkdir "$root$1"
}
file() { # file FROM TO MODE
	folder "$(dirname "$2")"
	say "file $2 $(sha256sum <"$1" | cut -d' ' -f1)" >>"$manifest"
	cp "$1" "$root$2.new"
	chmod "$3" "$root$2.new"
	mv "$root$2.new" "$root$2"
	say "installed $root$2"
}
file "$work/cgpu_km.ko" "$module" 644
# Whoever packs the folder runs depmod where it is unpacked.
if [ -z "$root" ]; then
	say "depmod $release" >>"$manifest"
	depmod "$release" || die "depmod failed"
fi
file "$work/cgpuctl" "$tool" 755

if [ -n "$load" ]; then
	say "loaded cgpu_km" >>"$manifest"
	modprobe cgpu_km || die "the kernel does not take the module (see dmesg)"
	for point in /run/cgpu /run/cgpu/dev; do
		[ -d "$point" ] || mkdir -m 700 "$point"
	done
	# Device nodes, but no programs. cgpuctl unload unmounts it and removes the folders.
	mount -t cgpufs -o nosuid,noexec cgpufs /run/cgpu/dev
	say "loaded cgpu_km, mounted /run/cgpu/dev"
fi
finished=yes
say "done; what was made is in $manifest"
