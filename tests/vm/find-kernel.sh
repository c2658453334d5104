# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash disable=SC2034  # whoever sources it reads what is set
# Where a kernel is, of those that build.sh knows: its headers, its image, and how modules are built
# for it. To be sourced after lib.sh.

# find_kernel KERNEL: makes or fetches one of the kernels of build.sh, and sets of it
#
#   root, mounts        the Debian folder to build modules in, and what in_root mounts there
#   kdir                its headers, as seen in that folder
#   release, vmlinuz    its release, its image
#   compiler            what make is told of the compiler
#   rust                empty if the module for it comes from the object (dist/object)
#   id                  a name for what is built for it
find_kernel() {
	local kernel=$1 scripts=$CGPU_TREE/tests/vm debug host folder
	root=$("$scripts/kernel-env.sh")
	rust=yes mounts=() compiler=()
	case $kernel in
	stock)
		release=$(cat "$root/../kernel")
		kdir=/usr/src/linux-headers-$release
		vmlinuz=$root/usr/lib/modules/$release/vmlinuz
		id=$(basename "$(dirname "$root")")
		;;
	debug | cfi)
		debug=$("$scripts/debug-kernel.sh" "$kernel")
		[ "$kernel" = debug ] || rust=
		release=$(cat "$debug/out/include/config/kernel.release")
		kdir=/kout
		vmlinuz=$debug/vmlinuz
		mounts=("$debug/ksrc" /ksrc ro "$debug/out" /kout ro)
		compiler=(CC=clang-19)
		id=$(basename "$debug")
		;;
	[0-9]* | newest | in-tree-[0-9]* | path)
		if [ "$kernel" = path ]; then
			host=$("$scripts/path-kernel.sh")
		else
			host=$("$scripts/host-kernel.sh" "${kernel#in-tree-}")
		fi
		release=$(cat "$host/release")
		kdir=/usr/src/linux-headers-$release
		vmlinuz=$host/vmlinuz
		for folder in "$host"/tree/usr/src/linux-*headers-* "$host"/tree/usr/lib/linux-kbuild-*; do
			[ ! -d "$folder" ] || mounts+=("$folder" "${folder#"$host/tree"}" ro)
		done
		# Also where the kernel was built by an older one, which the folder has not.
		compiler=(CC=gcc)
		if [ "$kernel" = "${kernel#in-tree-}" ]; then
			rust=
		elif [ ! -d "$host/tree$kdir/rust" ]; then
			die "$release was not built with the Debian folder's rustc: no module in Rust fits it"
		fi
		id=$(basename "$host")${rust:+-in-tree}
		;;
	*) die "no such kernel: $kernel" ;;
	esac
}

# outside PATH: where a path in the Debian folder of find_kernel's is, seen from outside.
outside() {
	local i
	for ((i = 0; i < ${#mounts[@]}; i += 3)); do
		if [[ $1/ == "${mounts[i + 1]}"/* ]]; then
			echo "${mounts[i]}${1#"${mounts[i + 1]}"}"
			return
		fi
	done
	echo "$root$1"
}
