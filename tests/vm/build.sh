#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# build.sh [--kernel KERNEL] [--without WORD,...] [--clippy] [--modules-only]: builds what the test
# machine runs and prints the folder it is in. KERNEL is stock, debug, cfi, or a stock kernel of
# host-kernel.sh: SERIES or newest (6.12, say) for the module from the object (dist/object), or
# in-tree-SERIES (in-tree-7.3) for the module with the kernel's own Rust. KERNEL is path for the
# module from the object and a kernel that KHEADERS and KIMAGE name (path-kernel.sh). With --without
# the module does not use these features of the kernel (cgpu_km/os_interface/features.mk), as on a
# kernel that lacks them.
#
#   modules/*.ko   cgpu_km and the stand-in driver, for that kernel; for SERIES, path, cfi cgpu_km
#                  from the object (dist/object), by gcc and the kernel's headers alone
#   bin/*          the programs of the workspace, static
#   vmlinuz, release, root   the kernel, its release, the Debian folder (links and a text)
#
# Nothing is written into the source tree, not even Cargo's `target`. Every work tree has a folder
# of its own in the cache, so that a second build does only what changed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source-path=SCRIPTDIR source=find-kernel.sh
. "$(dirname "$0")/find-kernel.sh"

kernel=stock
without=
clippy=
programs=yes
while [ $# -gt 0 ]; do
	case $1 in
	--kernel) kernel=$2; shift ;;
	--without) without=$2; shift ;;
	--clippy) clippy=CLIPPY=1 ;;
	--modules-only) programs= ;;
	*) die "unknown option: $1" ;;
	esac
	shift
done

find_kernel "$kernel"
need_root

variant=${without:+-without-${without//,/-}}
out=$CGPU_BUILD/$id$variant
mkdir -p "$out/modules" "$out/bin"
lock "$out/lock" "building here"
echo "$CGPU_TREE" >"$CGPU_BUILD/tree"
ln -sfn "$vmlinuz" "$out/vmlinuz"
ln -sfn "$root" "$out/root"

# remember TEXT FILE: whoever reads it meanwhile finds the old text or the new one, never none.
remember() {
	echo "$1" >"$2.new"
	mv -f "$2.new" "$2"
}
remember "$release" "$out/release"

# publish FOLDER: puts the files whose names come on stdin there. Whoever boots a machine meanwhile
# finds the old one or the new one, whole.
publish() {
	rm -rf "$out/new"
	mkdir "$out/new"
	xargs -0 cp -t "$out/new"
	mv -f "$out/new"/* "$out/$1/"
}

# build_module FOLDER NAME: FOLDER is seen from the tree. Compilers' warnings are shown, and fail
# lint.
build_module() {
	local objects=$out/objects/$2$clippy rc=0
	mkdir -p "$objects"
	local place=(M="/src$1" MO=/build)
	if [ -z "$rust" ]; then
		# Kernels before 6.13 know no MO, and build beside the sources.
		mkdir -p "$objects/tests"
		cp -rpu "$CGPU_TREE"/tests/{fake_nvidia,gpu_model} "$objects/tests/"
		place=(M="/build$1")
	fi
	in_root "$root" "$CGPU_TREE" /src ro "$objects" /build rw "${mounts[@]}" -- \
		make -s -C "$kdir" "${place[@]}" "${compiler[@]}" $clippy \
		CGPU_WITHOUT="${without//,/ }" -j"$(nproc)" modules \
		>"$out/$2.log" 2>&1 9>&- || rc=$?
	cat "$out/$2.log" >&2
	[ "$rc" = 0 ] || die "$2.ko does not build for the $kernel kernel"
	if [ -n "$clippy" ]; then
		! grep -q '^warning' "$out/$2.log" || die "clippy has warnings in $2"
	else
		find "$objects" -name '*.ko' -print0 | publish modules
	fi
}

# build_from_object: cgpu_km as DKMS builds it, from the folder of dist/object, which is one for all
# kernels. Warnings are errors, those of objtool and modpost too.
build_from_object() {
	local objects=$out/objects/from_object why
	"$CGPU_TREE/dist/object/build.sh" --output "$CGPU_BUILD/object" >/dev/null 9>&-
	why=$(in_root "$root" "$CGPU_TREE/dist" /dist ro "$CGPU_BUILD/object" /build ro \
		"${mounts[@]}" -- /dist/supported.sh "$kdir" /build/exports 2>&1) || die "$why"
	rm -rf "$objects"
	mkdir -p "$out/objects"
	cp -r "$CGPU_BUILD/object" "$objects"
	log "$out/cgpu_km.log" in_root "$root" "$objects" /build rw "${mounts[@]}" -- \
		make -s -C "$kdir" M=/build "${compiler[@]}" KCFLAGS=-Werror \
		CGPU_WITHOUT="${without//,/ }" -j"$(nproc)" modules
	# A distribution's kernel may have been built by other tools than the folder's.
	! grep -v 'differs from the one used to build' "$out/cgpu_km.log" | grep -i warning >&2 ||
		die "cgpu_km.ko builds with warnings for $kernel"
	printf '%s\0' "$objects/cgpu_km.ko" | publish modules
}

if [ -n "$clippy" ]; then
	# Clippy speaks only when it compiles: what was clean once is remembered, not asked again.
	sources=$(cd "$CGPU_TREE" && find Kbuild cgpu_km -type f ! -path 'cgpu_km/target/*' -print0 |
		sort -z |
		xargs -0 sha256sum | sha256sum)
	if [ "$(cat "$out/clippy-clean" 2>/dev/null)" != "$sources" ]; then
		rm -rf "$out/objects/cgpu_km$clippy"
		step "clippy on cgpu_km.ko"
		build_module "" cgpu_km
		echo "$sources" >"$out/clippy-clean"
	fi
	exit 0
fi
step "modules for $release"
if [ -n "$rust" ]; then
	build_module "" cgpu_km
else
	build_from_object
fi
build_module /tests/fake_nvidia fake_nvidia
# With the debug kernel's checks in it, the same code takes more.
if [ "$kernel" != debug ]; then
	in_root "$root" "$out/modules" /build ro -- \
		objdump --disassemble --demangle --no-show-raw-insn /build/cgpu_km.ko |
		"$CGPU_TREE/tests/lint/frames.py" cgpu_km.ko >&2 ||
		die "a function of cgpu_km.ko takes too much of the stack"
fi

if [ -n "$programs" ]; then
	step "programs"
	command -v cargo >/dev/null || die "needs cargo"
	# A fresh machine has cargo, but maybe nothing that links.
	if ! command -v cc >/dev/null; then
		step "installing gcc and libc6-dev"
		log "$out/apt.log" apt-get update
		log "$out/apt.log" apt-get install -y --no-install-recommends gcc libc6-dev
	fi
	# Static, so that they run in an initramfs; with a target named, build scripts and macros are
	# not. The CUDA program loads a library, and is compiled with the real driver (../driver).
	target=x86_64-unknown-linux-gnu
	(
		cd "$CGPU_TREE"
		export CARGO_ENCODED_RUSTFLAGS="-Ctarget-feature=+crt-static"
		export CARGO_PROFILE_RELEASE_STRIP=debuginfo CARGO_TERM_COLOR=never
		# Nothing in the machine runs Kubernetes, whose crates are the most of all: what is fuzzed
		# is made of them, too.
		cargo build --quiet --release --locked --workspace --exclude cuda-check \
			--exclude cgpu-dra --exclude cgpu-fuzz --bins \
			--target "$target" --target-dir "$out/../target"
	) >&2 9>&-
	built=$out/../target/$target/release
	# A program that is no more in the tree.
	for program in "$out"/bin/*; do
		[ -e "$built/${program##*/}" ] || rm -f "$program"
	done
	find "$built" -maxdepth 1 -type f -perm -u+x -print0 | publish bin
fi
remember "$out" "$CGPU_BUILD/last-$kernel$variant"
echo "$out"
