#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# build.sh [--moved] [--output DIR]: makes a folder (target/object) from which the module is built
# for any kernel with gcc, make and that kernel's headers, and prints its path:
#
#   cgpu_core.o_shipped   all of the module's Rust, with core and the kernel's own crate linked in
#   cgpu_core.h           what the object takes for granted of a kernel; the C checks it
#   exports               the kernel's functions that it calls
#   kernel-source         Debian's package that the kernel's own crate is from, and its version
#   Kbuild, cgpu_km/      the C, and what says how it is built
#   made-of               a hash of all that it was made of: it is not made again of the same
#
# It is the same, bit for bit, wherever it is made, and with --moved (crates.sh): test.sh checks
# that.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../tests/vm/lib.sh
. "$(dirname "$0")/../../tests/vm/lib.sh"

here=$CGPU_TREE/dist/object
output=$CGPU_TREE/target/object
moved=
while [ $# -gt 0 ]; do
	case $1 in
	--moved) moved=--moved ;;
	--output) output=${2:?}; shift ;;
	*) die "unknown option: $1" ;;
	esac
	shift
done
need_root
root=$("$CGPU_TREE/tests/vm/kernel-env.sh")
kernel=$(cat "$root/../kernel")
crates=$("$here/crates.sh" $moved)
lock "$CGPU_CACHE/object-$(sha256sum <<<"$output" | cut -c1-12).lock" "the object"
made_of=$({
	cd "$CGPU_TREE" && find cgpu_km dist/object -type f ! -path '*/target/*' \
		! -name '*_generated.rs' ! -name '*.o' ! -name '.*' -print0 |
		LC_ALL=C sort -z | xargs -0 sha256sum
	basename "$crates"
} | sha256sum | cut -d' ' -f1)
if [ "$(cat "$output/made-of" 2>/dev/null)" = "$made_of" ]; then
	echo "$output"
	exit 0
fi
work=$(mktemp -d "$CGPU_CACHE/object-XXXXXXXX")
trap 'rm -rf "$work"' EXIT

step "bindings of the module's C"
interface=$CGPU_TREE/cgpu_km/os_interface
mkdir "$work/probe" "$work/out"
cp "$here"/probe/* "$interface/bindgen.mk" "$work/probe/"
in_tree() {
	in_root "$root" "$CGPU_TREE" /src ro "$crates" /object ro "$work" /build rw -- "$@"
}
log "$work/probe.log" in_tree make -s -C "/usr/src/linux-headers-$kernel" M=/build/probe modules

step "cgpu_core.o"
cat >"$work/compile" <<'END'
set -eu
. /src/dist/object/flags.sh
cd /build
export OBJTREE=/object/objtree RUSTC_BOOTSTRAP=1 RUST_MODFILE=cgpu_km
export CGPU_EXTRA=/build/probe/extra_generated.rs
CGPU_ABI=$(make -s --eval 'abi: ; @echo $(cgpu-abi)' -f /src/cgpu_km/os_interface/abi.mk src=/src)
export CGPU_ABI
features='arbitrary_self_types,asm_goto,generic_arg_infer,used_with_arg'
rustc "${FLAGS[@]}" @/object/cfg --cfg MODULE -Zcrate-attr=no_std \
	-Zcrate-attr="feature($features)" --remap-path-prefix=/build/= \
	--extern pin_init --extern kernel --extern zerocopy --extern zerocopy_derive \
	--extern force:runtime --crate-name cgpu_km_main --crate-type staticlib -Clto=fat \
	--emit=link=libcgpu.a /src/cgpu_km/cgpu_km_main.rs
ld -r -m elf_x86_64 -z noexecstack -u cgpu_core_start -o out/cgpu_core.o_shipped libcgpu.a
nm --undefined-only --format=posix out/cgpu_core.o_shipped | cut -d' ' -f1 >undefined
objdump --disassemble --demangle --no-show-raw-insn out/cgpu_core.o_shipped >disassembly
END
log "$work/compile.log" in_tree bash /build/compile
"$CGPU_TREE/tests/lint/frames.py" cgpu_core.o <"$work/disassembly" >&2 ||
	die "a function of cgpu_core.o takes too much of the stack"
"$here/assumptions.py" "$CGPU_TREE" "$work/undefined" "$work/probe" "$crates" \
	>"$work/out/cgpu_core.h"

sed -n -E 's/^extern .*\((\w+)\) \(.*/\1/p' "$work/out/cgpu_core.h" | grep -v '^cgpu_' |
	LC_ALL=C sort >"$work/out/exports"
echo "linux-source-$(cut -d. -f1,2 <<<"$kernel") $(cat "$root/../kernel-version")" \
	>"$work/out/kernel-source"
cp "$here/Kbuild" "$work/out/"
(cd "$CGPU_TREE" && find cgpu_km/os_interface \( -name '*.[ch]' -o -name features.mk \
	-o -name abi.mk \) -print0 | xargs -0 cp --parents -t "$work/out")
echo "$made_of" >"$work/out/made-of"
mkdir -p "$(dirname "$output")"
rm -rf "$output"
mv "$work/out" "$output"
step "ready: $output"
echo "$output"
