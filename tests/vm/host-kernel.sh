#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# host-kernel.sh SERIES: fetches the newest stock Debian kernel of a series (6.1, 6.12, 7.2, 7.3),
# or the newest of all (newest), and prints the folder it is in:
#
#   tree/    its headers: usr/src/linux-headers-*, usr/lib/linux-kbuild-*
#   vmlinuz, release, version   the image, the kernel's release, the package's version
#
# The index of a suite lacks the headers of a series that a newer one has replaced there. The mirror
# may still have the files. For such a series superseded.sha256 names the packages (6.18, 7.0), with
# the hashes that they must have, because no index says them.
#
# Hosts run such kernels, most of them without Rust: a module is built there by gcc and headers
# alone. If the Debian folder's rustc built the kernel of a named series, the headers get Rust
# metadata (dist/rust-metadata.sh), so that a module in Rust can be built too. The folder is kept
# under ~/.cache/cgpu by the hash of both scripts. Needs root and the Debian folder of
# kernel-env.sh, whose apt fetches the packages.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

FLAVOUR=cloud-amd64
series=${1:?a series, such as 6.12}
pattern=${series//./\\.}
here=$CGPU_TREE/tests/vm
case $series in
6.1) suite=bookworm ;;
6.12) suite=trixie ;;
newest) suite=trixie-backports pattern='[0-9]+\.[0-9]+' ;;
*) suite=trixie-backports ;;
esac

metadata=$CGPU_TREE/dist/rust-metadata.sh
list=$here/superseded.sha256
superseded=
[ "$series" = newest ] || superseded=$(grep -E -- "-$pattern\.[0-9]+\+" "$list" || true)
if kept "host-$series-$(hash_of_scripts "$0" "$metadata" "$list")" "kernel $series"; then
	echo "$final"
	exit 0
fi
root=$("$here/kernel-env.sh")
# "deb [signed-by=KEYRING] MIRROR SUITE main"
read -r _ signed mirror _ <"$root/etc/apt/sources.list"
keyring=${signed#*=}
mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/debs" "$work/tree"
cp "${keyring%]}" "$work/apt/keyring.gpg"
echo "deb [signed-by=/stage/apt/keyring.gpg] $mirror $suite main" >"$work/apt/sources.list"

# A tool of apt's in the Debian folder, with sources and lists of its own.
with_apt() {
	local tool=$1
	shift
	in_root "$root" "$work" /stage rw -- "$tool" -o Dir::Etc::SourceList=/stage/apt/sources.list \
		-o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=/stage/apt/lists \
		-o Dir::Cache=/stage/apt/cache -o APT::Sandbox::User=root "$@"
}

# unpack: the downloaded packages go into the tree.
unpack() {
	local deb
	for deb in "$work"/debs/*.deb; do
		log "$work/apt.log" dpkg-deb -x "$deb" "$work/tree"
		rm "$deb"
	done
}

# fetch PACKAGE...: downloads and unpacks them.
fetch() {
	# shellcheck disable=SC2016  # the inner shell expands
	log "$work/apt.log" in_root "$root" "$work" /stage rw -- sh -c '
		cd /stage/debs && exec apt-get -o Dir::Etc::SourceList=/stage/apt/sources.list \
			-o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists=/stage/apt/lists \
			-o Dir::Cache=/stage/apt/cache -o APT::Sandbox::User=root download "$@"' sh "$@"
	unpack
}

# fetch_superseded: downloads and unpacks what the list names of the series.
fetch_superseded() {
	local hash path
	while read -r hash path; do
		in_root "$root" "$work" /stage rw -- /usr/lib/apt/apt-helper -o APT::Sandbox::User=root \
			download-file "$mirror/$path" "/stage/debs/${path##*/}" "SHA256:$hash" \
			>>"$work/apt.log" 2>&1 || {
			tail -n 3 "$work/apt.log" >&2
			die "the mirror has ${path##*/} no more, or another one"
		}
	done <<<"$superseded"
	unpack
}

step "kernel $series of $suite"
if [ -n "$superseded" ]; then
	read -r headers version < <(sed -nE \
		"s,.*/(linux-headers-.*-$FLAVOUR)_(.*)_amd64\.deb\$,\\1 \\2,p" <<<"$superseded")
	fetch_superseded
else
	log "$work/apt.log" with_apt apt-get update
	headers=$(with_apt apt-cache search --names-only \
		"^linux-headers-$pattern(\\.[0-9]+)?(-[0-9]+|\\+deb[0-9]+)-$FLAVOUR\$" |
		sed -E 's/ .*//' | sort -V | tail -n 1)
	[ -n "$headers" ] || die "the mirror has no kernel $series in $suite"
	# Since 6.19 a package of its own holds what the image's package had.
	image=linux-binary-${headers#linux-headers-}
	with_apt apt-cache show "$image" >/dev/null 2>&1 ||
		image=linux-image-${headers#linux-headers-}
	depends=$(with_apt apt-cache depends "$headers" |
		grep -oE 'linux-(headers-.*-common|kbuild-.*)$')
	version=$(with_apt apt-cache show --no-all-versions "$headers" | sed -n 's/^Version: //p')
	# shellcheck disable=SC2086  # names are words
	fetch "$image" "$headers" $depends
fi
release=${headers#linux-headers-}
vmlinuz=$(find "$work/tree" -name vmlinuz -o -name "vmlinuz-$release" | head -n 1)
[ -n "$vmlinuz" ] || die "the packages of $release have no vmlinuz"
cp "$vmlinuz" "$work/vmlinuz"
echo "$release" >"$work/release"
echo "$version" >"$work/version"

# in_tree COMMAND...: the same as in_root, with the kernel's headers where their packages put them.
in_tree() {
	local mounts=() folder
	for folder in "$work"/tree/usr/src/linux-headers-* "$work"/tree/usr/lib/linux-kbuild-*; do
		mounts+=("$folder" "${folder#"$work/tree"}" ro)
	done
	in_root "$root" "$work" /stage rw "$CGPU_TREE/dist" /dist ro "${mounts[@]}" -- "$@"
}
config=$work/tree/usr/src/$headers/.config
wanted=$(sed -n 's/^CONFIG_RUSTC_VERSION_TEXT="\(.*\)"$/\1/p' "$config")
rustc=$(in_root "$root" -- rustc --version)
if [ -z "$superseded" ] && [ "$series" != newest ] && [ "$wanted" = "$rustc" ] &&
	grep -q '^CONFIG_RUST=y' "$config"; then
	step "Rust metadata for $release (about 70 s)"
	fetch "linux-source-$series=$version"
	log "$work/make.log" in_tree /dist/rust-metadata.sh --make "/usr/src/$headers" \
		"/stage/tree/usr/src/linux-source-$series.tar.xz" /stage/made
	cp -r "$work/made/rust" "$work/tree/usr/src/$headers/"
	cp "$work"/made/scripts/target.json "$work"/tree/usr/lib/linux-kbuild-*/scripts/
	rm -rf "$work/made" "$work"/tree/usr/src/linux-source-*
fi
# The kernel's own modules are not loaded in the machine.
rm -rf "$work/debs" "$work/apt" "$work"/tree/{boot,lib,usr/lib/modules,usr/share}
keep
step "ready: $release"
echo "$final"
