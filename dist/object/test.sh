#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# test.sh: the object is the same, bit for bit, when a tree at another place makes it, and when the
# kernel's structures have their fields elsewhere. Needs what build.sh needs; some minutes.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../../tests/vm/lib.sh
. "$(dirname "$0")/../../tests/vm/lib.sh"

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
