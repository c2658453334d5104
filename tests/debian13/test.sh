#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# test.sh: the way of a user of Debian 13 with a GPU, on the disk of env.sh and an emulated GPU:
#
# 1. apt install ./cgpu_*.deb
# 2. start on 6.12: instances, nvidia-smi and CUDA, podman and docker (session.sh first)
# 3. the kernel of backports is installed
# 4. start on that: the saved instance is there, a container runs in it; apt remove cgpu
#    (session.sh second)
# 5. nothing of cgpu is left
#
# Compilers run on this machine, in the disk's root, because they take too long on an emulated
# processor. KEEP=FOLDER keeps the consoles' logs there.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../vm/lib.sh
. "$(dirname "$0")/../vm/lib.sh"
# shellcheck source-path=SCRIPTDIR source=../driver/machine.sh
. "$CGPU_TREE/tests/driver/machine.sh"

# Mounts are this script's alone, and go with it.
if [ "${1:-}" != inside ]; then
	need_root
	exec unshare --mount --propagation private "$0" inside
fi
here=$CGPU_TREE/tests/debian13
LIMIT=${LIMIT:-2400}
MEMORY=4096
# have_tools: what env.sh makes the disk with, where a fresh machine lacks it.
have_tools() {
	local missing=()
	command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
	command -v mke2fs >/dev/null || missing+=(e2fsprogs)
	[ ${#missing[@]} -gt 0 ] || return 0
	step "installing ${missing[*]}"
	log "$1" apt-get update
	log "$1" apt-get install -y --no-install-recommends "${missing[@]}"
}
have_tools "$CGPU_CACHE/debian13-apt.log"
disk=$("$here/env.sh")
kept=$(dirname "$disk")
release=$(cat "$kept/release")
update=$(cat "$kept/update")
out=$(cat "$CGPU_BUILD/last-stock")
object=$("$CGPU_TREE/dist/object/build.sh" --output "$CGPU_BUILD/object")
REAL_ROOT=$("$CGPU_TREE/tests/driver/env.sh")
REAL_RELEASE=$(cat "$kept/driver")
work=$(mktemp -d "$CGPU_CACHE/debian13-XXXXXXXX")
machine=
cleanup() {
	[ -z "$machine" ] || kill -- "-$machine" 2>/dev/null || :
	real_kill
	if [ -n "${KEEP:-}" ]; then
		mkdir -p "$KEEP"
		cp "$work"/*.log "$work"/console.* "$work"/said.* "$KEEP/" 2>/dev/null || :
	fi
	umount "$work/root" 2>/dev/null || :
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
root=$work/root
mkdir "$root"
mounted() { mount -o loop "$work/disk" "$root"; }
# boot NAME KERNEL: starts the disk with that kernel and its initramfs, as a boot loader would, and
# runs session.sh NAME at the end of the start. Its cases are counted.
boot() {
	local name=$1 kernel=$2 arguments rc=0
	cp "$root/boot/vmlinuz-$kernel" "$work/vmlinuz"
	cp "$root/boot/initrd.img-$kernel" "$work/initrd"
	umount "$root"
	arguments="root=/dev/vda rw console=ttyS0,115200 printk.devkmsg=on loglevel=6 panic=-1 oops=panic"
	arguments+=" tsc=reliable watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=180 no_timer_check"
	# A host that is busy may need longer than what systemd waits for.
	arguments+=" systemd.default_timeout_start_sec=900 udev.event_timeout=900"
	arguments+=" systemd.show_status=0 systemd.unit=session.target session=$name"
	: >"$work/console.$name"
	real_start "$work" "$out" 1 "$MEMORY"
	step "$name: booting $kernel"
	set -m
	in_root "$REAL_ROOT" "$work" /stage rw -- \
		timeout --foreground --kill-after=5 "$LIMIT" \
		qemu-system-x86_64 -accel tcg,thread=multi -smp 2 -cpu max,la57=off "${HARDWARE[@]}" \
		-m "$MEMORY" -nodefaults -display none -monitor none -no-reboot \
		-drive file=/stage/disk,format=raw,if=virtio,cache=unsafe \
		-kernel /stage/vmlinuz -initrd /stage/initrd -append "$arguments" \
		-serial "file:/stage/console.$name" -serial "file:/stage/said.$name" \
		</dev/null 2>"$work/qemu.log" &
	machine=$!
	set +m
	wait "$machine" || rc=$?
	machine=
	real_end "$work" || rc=1
	rm -f "$work"/gpu.sock* "$work"/faults.sock* "$work/ready"
	grep -v "Could not enable error recovery" "$work/qemu.log" | head -n 20 >&2 || :
	if ! "$CGPU_TREE/tests/vm/check-log.sh" "$work/console.$name" >&2 || [ "$rc" != 0 ]; then
		tail -n 60 "$work/console.$name" >&2
		cat "$work/said.$name" >&2
		die "$name: the machine ended with $rc, or its kernel's log has a fault"
	fi
	# The tally of both is made at the end.
	grep -v '^debian13: ' "$work/said.$name" || :
	passed=$((passed + $(grep -c '^ok: ' "$work/said.$name" || :)))
	mounted
}

step "the package"
deb=$("$CGPU_TREE/dist/package.sh" --prebuilt "$out/bin" --object "$object" --output "$work")
step "the disk"
[ ! -e "$kept/edited" ] || step "Debian's driver is edited there: it does not compile for $release"
cp --sparse=always "$disk" "$work/disk"
mounted
real_programs "$out"
# The image of containers: the C library, a shell and the CUDA program. The driver's programs and
# libraries come from the host.
mkdir -p "$work/image"/{usr/bin,usr/lib64,tmp,proc,dev,sys}
for folder in bin lib lib64; do
	ln -s "usr/$folder" "$work/image/$folder"
done
(cd "$root" && grep -hE '^/(usr/)?lib.*\.so' var/lib/dpkg/info/{libc6,libgcc-s1}:amd64.list |
	grep -v gconv/ | sed 's,^/\(usr/\)\?,usr/,' | sort -u | xargs cp -a --parents -t "$work/image")
cp "$root/bin/dash" "$work/image/usr/bin/sh"
cp "$out/cuda/cuda-check" "$work/image/usr/bin/"
mkdir "$root/opt/session"
tar -C "$work/image" --owner=0 --group=0 -cf "$root/opt/session/image.tar" .
cp "$here/session.sh" "$CGPU_TREE/tests/vm/guest-check.sh" "$root/opt/session/"
cp "$here"/session.{service,target} "$root/etc/systemd/system/"
tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
# As docs/install.md says for this version of docker.
mkdir -p "$root/etc/docker"
# These units have limits of their own, and the emulated machine is slow.
for unit in systemd-modules-load cgpu; do
	mkdir -p "$root/etc/systemd/system/$unit.service.d"
	printf '[Service]\nTimeoutSec=900\n' >"$root/etc/systemd/system/$unit.service.d/patience.conf"
done
echo '{"features": {"cdi": true}}' >"$root/etc/docker/daemon.json"
# The emulated GPU has no processor that could run NVIDIA's firmware.
rm -f "$root/lib/firmware/nvidia/$REAL_RELEASE"/gsp_*.bin
"$out/bin/gpu-emulator" firmware --branch "$REAL_RELEASE" "$root/lib/firmware/nvidia/$REAL_RELEASE"

step "apt install ./$(basename "$deb")"
cp "$deb" "$root/opt/session/"
log "$work/install.log" in_root "$root" -- env DEBIAN_FRONTEND=noninteractive \
	apt-get install -y "/opt/session/$(basename "$deb")"
# built WHAT KERNEL: whether DKMS has built and installed it.
built() {
	in_root "$root" -- dkms status >"$work/dkms.log"
	grep -q "^$1.*, $2, .*: installed" "$work/dkms.log"
}
built cgpu/ "$release" || die "$(cat "$work"/{install,dkms}.log)"
ok "apt installs the package, and DKMS builds the module for $release"
boot first "$release"

step "kernel $update of backports"
# Debian's driver knows no kernel that is so new. A user has to tell DKMS, or its hook fails, and
# with that the kernel's package.
driver=$(basename "$(ls -d "$root"/var/lib/dkms/nvidia-*)")
echo 'BUILD_EXCLUSIVE_KERNEL_MAX="6.99"' >"$root/etc/dkms/$driver.conf"
log "$work/update.log" in_root "$root" -- env DEBIAN_FRONTEND=noninteractive \
	apt-get install -y --no-download -t trixie-backports \
	"linux-image-$update" "linux-headers-$update"
built cgpu/ "$update" || die "$(cat "$work"/{update,dkms}.log)"
ok "DKMS builds the module when the kernel comes"
# The same driver, with the edits of tests/driver.
modules=$("$CGPU_TREE/tests/driver/build.sh")
[ "$(cat "$modules/release")" = "$REAL_RELEASE" ] ||
	die "the disk has driver $REAL_RELEASE, and tests/driver builds $(cat "$modules/release"): make clean-cache makes both anew"
cp "$modules/nvidia.ko" "$root/lib/modules/$update/updates/dkms/$driver.ko"
cp "$modules/nvidia-uvm.ko" "$root/lib/modules/$update/updates/dkms/$driver-uvm.ko"
in_root "$root" -- depmod "$update"
boot second "$update"

rm "$root"/opt/session/cgpu_*.deb
left=$(cd "$root" && find . -xdev \( -path ./var/log -o -path ./etc/cgpu -o -path ./tmp \) -prune \
	-o -iname '*cgpu*' -print)
[ -z "$left" ] || die "the package is gone, and leaves: $left"
ok "nothing of the package is left"
failed=$(cat "$work"/said.* | grep -c '^FAILED: ' || :)
[ "$(grep -c '^debian13: ' "$work/said.first" "$work/said.second" | grep -c ':1$')" = 2 ] ||
	die "a session has not come to its end"
echo "debian13: $passed passed, $failed failed"
[ "$failed" = 0 ]
