#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# test.sh: the object is the same, bit for bit, when a tree at another place makes it, and when the
# kernel's structures have their fields elsewhere; and it does not link with C of another version.
# Needs what build.sh needs; some minutes.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../tests/vm/lib.sh
. "$(dirname "$0")/../../tests/vm/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../../tests/vm/find-kernel.sh
. "$(dirname "$0")/../../tests/vm/find-kernel.sh"

here=$CGPU_TREE/dist/object
mkdir -p "$CGPU_CACHE"
work=$(mktemp -d "$CGPU_CACHE/same-XXXXXXXX")
trap 'rm -rf "$work"' EXIT

made=$("$here/build.sh" --output "$work/here")
copy="$work/a copy of the tree"
mkdir "$copy"
(cd "$CGPU_TREE" && cp -r --parents cgpu_km dist/object tests/vm tests/lint "$copy/")
elsewhere=$("$copy/dist/object/build.sh" --output "$work/elsewhere")
diff -r "$made" "$elsewhere" || die "a tree at another place makes another object"
ok "a tree at another place makes the same object"

# A comment in a header is another version of what Rust and C agree on (abi.mk).
find_kernel stock
link() { # link FOLDER: builds the module from a copy of the object's folder
	in_root "$root" "$1" /build rw -- make -s -C "$kdir" M=/build "${compiler[@]}" \
		-j"$(nproc)" modules
}
cp -r "$made" "$work/same"
cp -r "$made" "$work/other"
echo "/* another version */" >>"$work/other/cgpu_km/os_interface/base/shim.h"
log "$work/same.log" link "$work/same"
[ -e "$work/same/cgpu_km.ko" ] || die "no module comes of the object"
link "$work/other" >"$work/other.log" 2>&1 && die "Rust links with C of another version"
grep -q 'cgpu_core_abi_.*undefined' "$work/other.log" || die "$(tail -n 5 "$work/other.log")"
ok "Rust does not link with C of another version"

# That fields are moved at all is looked at in the bindings.
crates=$("$here/crates.sh" --moved)
moved=$(grep -c '^    pub _moved: ' "$crates/objtree/rust/bindings/bindings_generated.rs" || :)
[ "$moved" -gt 1000 ] || die "only $moved structures of the kernel's were changed"
ok "the fields of $moved of the kernel's structures were moved"
elsewhere=$("$here/build.sh" --moved --output "$work/moved")
for file in cgpu_core.o_shipped cgpu_core.h; do
	cmp "$made/$file" "$elsewhere/$file" || die "the object knows a field of the kernel's ($file)"
done
ok "the object knows no field of them"
echo "object: $passed passed, 0 failed"
