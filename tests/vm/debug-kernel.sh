#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# debug-kernel.sh [cfi]: builds the kernel of `make test-debug` and prints its folder: KASAN,
# lockdep, kmemleak, object and list checks, CFI, KCOV (debug-*.config says what and why), from the
# same source as the stock kernel, with clang 19 and Debian's rustc. It takes about ten minutes of
# two cores once and is kept under ~/.cache/cgpu by the hash of this script, the configuration and
# the kernel's version. With the word it is a kernel with CFI alone, for the module from the object.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

COMPILER=clang-19
here=$CGPU_TREE/tests/vm
root=$("$here/kernel-env.sh")
version=$(cat "$root/../kernel-version")
kind=${1:-debug}
case $kind in
debug)
	needed=(KASAN PROVE_LOCKING DEBUG_ATOMIC_SLEEP DEBUG_KMEMLEAK KCOV FAILSLAB FAIL_PAGE_ALLOC)
	needed+=(FAULT_INJECTION_DEBUG_FS FAULT_INJECTION_STACKTRACE_FILTER FAULT_INJECTION_USERCOPY)
	;;
cfi) needed=(DYNAMIC_FTRACE) ;;
*) die "no such kernel: $kind" ;;
esac
checks=$kind-checks.config
key=$({
	hash_of_scripts "$0" "$here/debug-base.config" "$here/$checks"
	echo "$version $(grep -E '^(rustc|bindgen|gcc-14) ' "$root/../versions")"
} | sha256sum | cut -c1-12)
if kept "$kind-$key" "the $kind kernel"; then
	echo "$final"
	exit 0
fi
mkdir "$work/ksrc" "$work/out" "$work/debs"

if [ ! -x "$root/usr/bin/$COMPILER" ]; then
	step "$COMPILER"
	(
		# The folder is shared by every work tree: one package manager at a time.
		flock 8
		log "$work/apt.log" in_root "$root" -- apt-get update
		log "$work/apt.log" in_root "$root" -- apt-get install -y \
			--no-install-recommends "$COMPILER"
	) 8>"$root/../apt.lock"
fi
step "source"
series=$(sed -E 's/^([0-9]+\.[0-9]+).*/\1/' "$root/../kernel")
[ -n "$(ls -A "$root/var/lib/apt/lists" 2>/dev/null)" ] ||
	log "$work/apt.log" in_root "$root" -- apt-get update
# shellcheck disable=SC2016  # the inner shell expands
log "$work/apt.log" in_root "$root" "$work/debs" /stage rw -- sh -c \
	'cd /stage && apt-get download -o APT::Sandbox::User=root "$1"' sh \
	"linux-source-$series=$version"
dpkg-deb --fsys-tarfile "$work"/debs/*.deb | tar -xO --wildcards '*.tar.xz' |
	tar -C "$work/ksrc" --strip-components=1 -xJf - \
		--exclude="linux-source-$series/Documentation/*/*" \
		--exclude="linux-source-$series/tools/testing/*"
rm -rf "$work/debs"

kmake() {
	log "$work/make.log" in_root "$root" "$work/ksrc" /ksrc ro "$work/out" /kout rw -- \
		env KBUILD_BUILD_TIMESTAMP=2026-01-01 KBUILD_BUILD_USER=cgpu KBUILD_BUILD_HOST=cgpu \
		make -s -C /ksrc O=/kout CC="$COMPILER" "$@"
}
step "configuration"
kmake tinyconfig
cp "$here"/debug-base.config "$here/$checks" "$work/out/"
log "$work/make.log" in_root "$root" "$work/ksrc" /ksrc ro "$work/out" /kout rw -- sh -c \
	"cd /kout && /ksrc/scripts/kconfig/merge_config.sh -O /kout -m .config debug-base.config $checks"
kmake olddefconfig
# An option whose dependency is missing vanishes without a word: what the tests stand on is checked.
for option in RUST MODULES CFI DEBUG_FS DEVTMPFS SERIAL_8250_CONSOLE CGROUP_BPF CGROUP_DEVICE \
	USER_NS PID_NS IO_URING EPOLL MULTIUSER TMPFS IA32_EMULATION USERFAULTFD \
	CROSS_MEMORY_ATTACH DMA_SHARED_BUFFER INET X86_PAT CGROUP_FREEZER "${needed[@]}"; do
	grep -q "^CONFIG_$option=y" "$work/out/.config" || die "the configuration lost CONFIG_$option"
done

step "kernel (about ten minutes)"
kmake -j"${CGPU_JOBS:-$(nproc)}" bzImage modules
cp "$work/out/arch/x86/boot/bzImage" "$work/vmlinuz"
# Building a module reads headers, scripts and metadata, no driver's source.
find "$work/ksrc/drivers" "$work/ksrc/fs" "$work/ksrc/net" "$work/ksrc/sound" -name '*.c' -delete
find "$work/out" -name '*.o' -not -path '*/scripts/*' -not -path '*/tools/*' -delete
rm -f "$work"/out/vmlinux "$work"/out/vmlinux.a "$work"/out/.tmp_vmlinux*
keep
step "ready: $kind kernel $version"
echo "$final"
