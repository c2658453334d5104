#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# crates.sh [--moved]: compiles the crates that the object is linked with and prints the folder that
# they are in:
#
#   lib/           core, the kernel's own crate and what that needs, with LLVM's bitcode
#   target.json    what they are compiled for
#   objtree/       the bindings
#   prototypes     of the helpers that the kernel's crate calls
#
# With --moved the fields of all of the kernel's structures lie elsewhere, as on another kernel. The
# object must come out the same: test.sh.
#
# core is that of Debian's rust-src. The kernel's crate is taken from Debian's source of the kernel
# whose headers the Debian folder has, and adapted (crates/adapt.py). Nothing of either is kept in
# this repository. The folder is kept under ~/.cache/cgpu by the hash of what it is made with. Needs
# root and what kernel-env.sh needs.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../tests/vm/lib.sh
. "$(dirname "$0")/../../tests/vm/lib.sh"

here=$CGPU_TREE/dist/object
helpers=$CGPU_TREE/cgpu_km/os_interface/helpers
root=$("$CGPU_TREE/tests/vm/kernel-env.sh")
kernel=$(cat "$root/../kernel")
moved=
case ${1:-} in
'') ;;
--moved) moved=--moved ;;
*) die "unknown option: $1" ;;
esac
places=$CGPU_TREE/cgpu_km/os_interface/base/places.h
bindgen=$CGPU_TREE/cgpu_km/os_interface/bindgen.mk
key=$({
	hash_of_scripts "$0" "$here/flags.sh" "$here/target.json" "$helpers/runtime.rs" \
		"$here/crates/Kbuild" "$here/crates/adapt.py" "$bindgen" "$places"
	basename "$(dirname "$root")"
} | sha256sum | cut -c1-12)
if kept "object$moved-$key" "the crates of the object"; then
	echo "$final"
	exit 0
fi

step "the kernel's own crate, from its source"
version=$(cat "$root/../kernel-version")
mkdir -p "$work/debs" "$work/bindings" "$work/lib" "$work/objtree/rust/bindings" \
	"$work/objtree/rust/uapi" "$work/objtree/rust/kernel"
# shellcheck disable=SC2016  # the inner shell expands
in_root "$root" "$work" /object rw -- sh -c '
	cd /object/debs && exec apt-get download -o APT::Sandbox::User=root "$1"' sh \
	"linux-source-$(cut -d. -f1,2 <<<"$kernel")=$version" >"$work/apt.log" 2>&1 9>&- ||
	die "the mirror does not give the source of $kernel ($work/apt.log); if it has a newer one, make clean-cache and build anew"
dpkg-deb --fsys-tarfile "$work"/debs/*.deb | tar -C "$work/debs" -xf - --wildcards '*.tar.xz' \
	--transform 's,.*/,,'
tar -C "$work/bindings" --strip-components=1 -xf "$work"/debs/*.tar.xz --wildcards '*/rust' \
	'*/drivers/base/base.h'
rm -rf "$work/debs"

step "bindings of $kernel"
cp "$here/crates/Kbuild" "$bindgen" "$work/bindings/"
cp "$here/target.json" "$work/"
log "$work/bindings.log" in_root "$root" "$work" /object rw -- \
	make -s -C "/usr/src/linux-headers-$kernel" M=/object/bindings -j"$(nproc)" modules
"$here/crates/adapt.py" "$work/bindings/rust" "$work/bindings" "$places" $moved
cp "$work"/bindings/bindings_*generated.rs "$work/objtree/rust/bindings/"
cp "$work/bindings/uapi_generated.rs" "$work/objtree/rust/uapi/"
cp "$work/bindings/prototypes" "$work/"
cp "$work"/bindings/generated_*.rs "$work/objtree/rust/kernel/"
# The macros run in the compiler, whose own they must be: those that the kernel's headers have.
cp "$root/usr/src/linux-headers-$kernel/rust/"*.so "$work/lib/"

step "crates of the object (about a minute)"
cat >"$work/compile" <<'END'
set -eu
. /src/flags.sh
cd /object
rust=/object/bindings/rust
export OBJTREE=/object/objtree RUSTC_BOOTSTRAP=1 CARGO_PKG_VERSION=0
crate() { # crate NAME FILE FLAGS...
	local name=$1 file=$2
	shift 2
	# Bitcode alone: machine code comes when all of it is linked.
	rustc "${FLAGS[@]}" -Clinker-plugin-lto --crate-type rlib --crate-name "$name" \
		--emit=link="lib/lib$name.rlib",metadata="lib/lib$name.rmeta" "$@" "$file"
}
kernel=(@/object/cfg)
crate core "$(rustc --print sysroot)/lib/rustlib/src/rust/library/core/src/lib.rs" \
	--cfg no_fp_fmt_parse
crate compiler_builtins "$rust/compiler_builtins.rs" "${kernel[@]}"
crate ffi "$rust/ffi.rs" "${kernel[@]}"
crate build_error "$rust/build_error.rs" "${kernel[@]}"
crate pin_init "$rust/pin-init/src/lib.rs" "${kernel[@]}" --cfg kernel --cfg USE_RUSTC_FEATURES \
	--extern pin_init_internal --extern macros
crate zerocopy "$rust/zerocopy/src/lib.rs" "${kernel[@]}" --cfg no_fp_fmt_parse
crate bindings "$rust/bindings/lib.rs" "${kernel[@]}" --extern ffi --extern pin_init
crate uapi "$rust/uapi/lib.rs" "${kernel[@]}" --extern ffi --extern pin_init
crate kernel "$rust/kernel/lib.rs" "${kernel[@]}" --extern ffi --extern pin_init \
	--extern build_error --extern macros --extern bindings --extern uapi \
	--extern zerocopy --extern zerocopy_derive
crate runtime /helpers/runtime.rs
END
cp "$root/usr/src/linux-headers-$kernel/include/generated/rustc_cfg" "$work/cfg"
log "$work/crates.log" in_root "$root" "$work" /object rw "$here" /src ro \
	"$helpers" /helpers ro -- bash /object/compile
rm -rf "$work/bindings" "$work/compile"
keep
step "ready: the crates of the object"
echo "$final"
