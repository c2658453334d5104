#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# rust-metadata.sh: Rust's metadata for a kernel whose headers lack it, as Debian's do. A module in
# Rust is compiled against rust/*.rmeta, which only the kernel's source gives.
#
#   --check HEADERS                says whether the headers have it, and whether this machine's
#                                  compiler is the one that built the kernel; a line for each thing
#                                  that is not so
#   --make HEADERS SOURCE OUT      makes it from the kernel's source (a folder or its tar), in OUT:
#                                  rust/* and scripts/target.json; takes 2 GB in OUT while it works
#
# The names of Rust's symbols hold a hash of the compiler's version, so another compiler will not
# do. That the symbols are the kernel's own is checked against the headers' Module.symvers.
set -euo pipefail

die() {
	printf 'rust-metadata.sh: %s\n' "$*" >&2
	exit 1
}

failed=
fail() {
	printf 'rust-metadata.sh: %s\n' "$*" >&2
	failed=yes
}

compiler() { # compiler HEADERS
	local wanted have
	if ! grep -q '^CONFIG_RUST=y' "$1/.config" 2>/dev/null; then
		fail "the kernel of $1 was built without Rust (CONFIG_RUST); take one with it"
		return
	fi
	wanted=$(sed -n 's/^CONFIG_RUSTC_VERSION_TEXT="\(.*\)"$/\1/p' "$1/.config")
	have=$(rustc --version 2>/dev/null || echo none)
	[ "$wanted" = "$have" ] || fail "the kernel of $1 was built with '$wanted', this machine has '$have'; install that one (Debian: apt install rustc rust-src bindgen)"
	command -v bindgen >/dev/null || fail "needs bindgen (Debian: apt install bindgen)"
}

case ${1:-} in
--check)
	headers=${2:?}
	compiler "$headers"
	compgen -G "$headers/rust/*.rmeta" >/dev/null || fail "the headers in $headers lack Rust's metadata (rust/*.rmeta); install.sh --metadata makes it"
	[ -z "$failed" ] || exit 1
	exit 0
	;;
--make) headers=${2:?} source=${3:?} out=${4:?} ;;
*) die "what is ${1:-nothing}? (--check, --make)" ;;
esac

compiler "$headers"
[ -z "$failed" ] || exit 1
mkdir -p "$out/build"
if [ ! -d "$source" ]; then
	mkdir -p "$out/source"
	# Only what making the metadata reads: no driver is compiled. All Kconfig files must stay.
	tar -C "$out/source" --strip-components=1 -xf "$source" \
		--exclude='*/drivers/*.[cS]' --exclude='*/sound/*.[ch]' \
		--exclude='*/Documentation/*/*' --exclude='*/tools/testing/*'
	source=$out/source
fi
cp "$headers/.config" "$out/build/.config"
cc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$headers/.config")
release=$(cat "$headers/include/config/kernel.release")
kmake() { make -s -C "$source" O="$out/build" CC="$cc" KERNELRELEASE="$release" -j"$(nproc)" "$@"; }
kmake olddefconfig
grep -q '^CONFIG_RUST=y' "$out/build/.config" || die "the configuration lost CONFIG_RUST: make -C $source rustavailable tells why"
kmake prepare
sed -E -n 's/.*\((.*)\);/\1/p' "$out"/build/rust/exports_*_generated.h | sort >"$out/symbols"
[ -s "$out/symbols" ] || die "the metadata names no symbol"
missing=$(cut -f2 "$headers/Module.symvers" | sort | comm -13 - "$out/symbols" | wc -l)
[ "$missing" = 0 ] || die "$missing Rust symbols are not those of kernel $release: is $source its source?"
mkdir -p "$out/rust" "$out/scripts"
cp "$out"/build/rust/*.rmeta "$out"/build/rust/*.so "$out/rust/"
cp "$out/build/scripts/target.json" "$out/scripts/"
rm -rf "$out/build" "$out/source" "$out/symbols"
