#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# resource-manager.sh SOURCE: compiles the resource manager of a tree of NVIDIA's
# open-gpu-kernel-modules, the part of nvidia.ko that knows no kernel, and prints the path of the
# object file. 20 minutes of two cores; the result is kept under ~/.cache/cgpu by the hash of what
# went into it.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../vm/lib.sh
. "$(dirname "$0")/../vm/lib.sh"

source=$1
root=$("$CGPU_TREE/tests/driver/env.sh")
base=$("$CGPU_TREE/tests/vm/kernel-env.sh")
# The sources. Files that a build left in somebody's tree are none.
files() {
	find src version.mk utils.mk -type f ! -path '*/_out/*' ! -name '*.o' -print0 | sort -z
}
key=$({
	hash_of_scripts "$0"
	grep -E '^gcc-14 ' "$base/../versions"
	cd "$source" && files | xargs -0 sha256sum
} | sha256sum | cut -c1-12)
if kept "driver-rm-$key" "the resource manager"; then
	echo "$final/nv-kernel.o"
	exit 0
fi
mkdir "$work/tree"
(cd "$source" && files | xargs -0 cp --parents -t "$work/tree")
step "resource manager of $(sed -n 's/^NVIDIA_VERSION = //p' "$source/version.mk") (about 20 minutes)"
log "$work/make.log" in_root "$root" "$work/tree" /build rw -- \
	make -C /build/src/nvidia -j"$(nproc)" CC=gcc-14
mv "$work"/tree/src/nvidia/_out/*/nv-kernel.o "$work/nv-kernel.o"
rm -rf "$work/tree"
keep
echo "$final/nv-kernel.o"
