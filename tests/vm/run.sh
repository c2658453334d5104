#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# run.sh [OPTIONS] -- COMMAND...: boots the test machine, runs the command in it (with sh) and
# passes its exit code through. The command's output comes on stdout, everything else on stderr. A
# kernel fault is a failure however the command ended (check-log.sh).
#
#   --kernel KERNEL        which kernel (stock): see build.sh
#   --without WORD,...     the module does not use these features of the kernel: see build.sh
#   --driver stand-in|real our stand-in (the default), or NVIDIA's own on emulated GPUs (../driver)
#   --gpus N               GPUs (1)
#   --fake "a=1 b=2"       more parameters for the stand-in driver; with the real one: nvidia-uvm's
#   --load WORDS           what to load before the command: driver, module ("driver module"); both
#                          are in /modules, and what is loaded at the end is unloaded
#   --file FROM[:TO]       puts a file into the machine, at /files/NAME or TO; may be repeated
#   --folder FROM:TO       puts a folder there, with its links as they are; may be repeated
#   --network OPTIONS      a network card behind QEMU's own network, with these options of it; the
#                          machine is 10.0.2.15 there, this host 10.0.2.2
#   --disk FILE            the machine's disk /dev/nvme0n1; what it writes there stays in the file
#   --limit SECONDS        the machine is stopped after that (600)
#   --memory MIB           (1024; debug kernel and real driver 2048)
#   --count-instructions   one processor, whose clock counts its instructions as nanoseconds
#   --plugin FROM:TO       a plugin of QEMU's (profile.c), and where what it writes is put
#   --leaks                with the debug kernel: kmemleak before and after (20 s more)
#   --keep FILE            keeps the console log there, and what the emulator wrote (FILE.gpu.log)
#   --name NAME            what it is called in messages
#   --no-build             takes what build.sh built last
#
# Exit codes of its own: 97 kernel fault, 98 the machine died or was stopped.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

kernel=stock without='' driver=stand-in gpus=1 fake='' load='driver module' limit=600 memory='' \
	leaks=no plugin='' disk='' network=() keep='' name='' files=() folders=() build=yes
processors=(-accel tcg,thread=multi -smp 2)
while [ $# -gt 0 ]; do
	case $1 in
	--kernel) kernel=$2; shift ;;
	--without) without=$2; shift ;;
	--driver) driver=$2; shift ;;
	--gpus) gpus=$2; shift ;;
	--fake) fake=$2; shift ;;
	--load) load=$2; shift ;;
	--file) files+=("$2"); shift ;;
	--folder) folders+=("$2"); shift ;;
	--disk) disk=$2; shift ;;
	--network)
		network=(-netdev "user,id=network,$2" -device virtio-net-pci,netdev=network)
		shift
		;;
	--limit) limit=$2; shift ;;
	--memory) memory=$2; shift ;;
	--count-instructions)
		processors=(-accel tcg,thread=single -icount 'shift=0,sleep=off' -smp 1)
		;;
	--plugin) plugin=$2; shift ;;
	--leaks) leaks=yes ;;
	--keep) keep=$2; shift ;;
	--name) name=$2; shift ;;
	--no-build) build= ;;
	--) shift; break ;;
	*) die "unknown option: $1" ;;
	esac
	shift
done
[ $# -gt 0 ] || die "no command"
name=${name:-$1}
if [ "$kernel" = debug ] || [ "$driver" = real ]; then
	memory=${memory:-2048}
fi
memory=${memory:-1024}
here=$CGPU_TREE/tests/vm
need_root

remembered=$CGPU_BUILD/last-$kernel
remembered+=${without:+-without-${without//,/-}}
if [ -n "$build" ]; then
	out=$("$here/build.sh" --kernel "$kernel" --without "$without")
else
	out=$(cat "$remembered" 2>/dev/null) || die "nothing was built yet"
fi
root=$(readlink -f "$out/root")
# The machine's driver: its module, the folder with its QEMU, devices.
module=fake_nvidia qemu_root=$root HARDWARE=()
case $driver in
stand-in) ;;
real)
	module=nvidia
	# shellcheck source=../driver/machine.sh
	. "$CGPU_TREE/tests/driver/machine.sh"
	;;
*) die "no such driver: $driver" ;;
esac

# In the cache: a /tmp in memory would take from the machine what it needs.
mkdir -p "$CGPU_CACHE/run"
work=$(mktemp -d "$CGPU_CACHE/run/XXXXXXXX")
machine=
follower=
keep_logs() {
	local log
	cp "$work/console" "$keep" 2>/dev/null || :
	for log in "$work"/gpu.log* "$work"/emulator.said; do
		[ ! -e "$log" ] || cp "$log" "$keep.$(basename "$log")"
	done
}
cleanup() {
	[ -z "$machine" ] || kill -- "-$machine" 2>/dev/null || :
	[ -z "$machine" ] || wait "$machine" || :
	[ -z "$follower" ] || kill "$follower" 2>/dev/null || :
	[ -z "$plugin" ] || cp "$work/plugin.out" "${plugin#*:}" 2>/dev/null || :
	[ "$driver" != real ] || real_kill
	[ -z "$keep" ] || keep_logs
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

plugins=()
if [ -n "$plugin" ]; then
	cp "${plugin%%:*}" "$work/plugin.so"
	plugins=(-plugin /stage/plugin.so,out=/stage/plugin.out)
fi
disks=() disk_mount=()
if [ -n "$disk" ]; then
	disk=$(readlink -f "$disk")
	disk_mount=("$(dirname "$disk")" /disk rw)
	disks=(-drive "if=none,id=disk,format=raw,file=/disk/$(basename "$disk")"
		-device nvme,drive=disk,serial=disk)
fi
stage=$work/stage
mkdir -p "$stage/bin" "$stage/modules" "$stage/files" "$stage/usr/bin"
cp "$root/usr/bin/busybox" "$stage/bin/"
cp "$here/guest-lib.sh" "$stage/"
cp "$here/guest-init" "$stage/init"
chmod 755 "$stage/init"
cp "$out"/modules/*.ko "$stage/modules/"
find "$out/bin" -type f -exec cp -t "$stage/bin" {} +
for file in "${files[@]}"; do
	from=${file%%:*}
	to=/files/$(basename "$from")
	[ "$from" = "$file" ] || to=${file#*:}
	[ -r "$from" ] || die "cannot read $from"
	mkdir -p "$stage$(dirname "$to")"
	cp -rL "$from" "$stage$to"
done
for folder in "${folders[@]}"; do
	mkdir -p "$(dirname "$stage${folder#*:}")"
	cp -al "${folder%%:*}" "$stage${folder#*:}"
done
if [ "$driver" = real ]; then
	real_stage "$stage" "$out" "$kernel"
	qemu_root=$REAL_ROOT
fi
# The command's words as they came.
printf '%q ' "$@" >"$stage/command"
cat >"$stage/vm.conf" <<END
DRIVER='$module'
GPUS='$gpus'
FAKE_PARAMETERS='$fake'
LOAD='$load'
LEAKS='$leaks'
END
in_root "$root" "$stage" /stage ro -- sh -c 'cd /stage && find . | cpio -o -H newc --quiet' \
	>"$work/initramfs"
rm -rf "$stage"
: >"$work/console"
: >"$work/progress"

# Without five-level page tables: identify_cpu() forgets for a moment that the processor has them,
# and an interrupt then makes KASAN report a wild access and switch lockdep off, a few milliseconds
# into the boot.
arguments="console=ttyS0,115200 printk.devkmsg=on loglevel=7 panic=-1 oops=panic"
# The emulated processors stand still whenever this machine is busy with something else: the clock
# is to be believed, and only what hangs for long hangs.
arguments+=" tsc=reliable watchdog_thresh=60 rcupdate.rcu_cpu_stall_timeout=180"
arguments+=" sysctl.kernel.hung_task_timeout_secs=120"
# Nor does it get its timer interrupts in time then, by whose number the kernel judges whether it
# has a timer.
arguments+=" no_timer_check"
[ "$kernel" != debug ] || [ "$leaks" = yes ] || arguments+=" kmemleak=off"

[ "$driver" != real ] || real_start "$work" "$out" "$gpus" "$memory"
step "$name: booting $(cat "$out/release")"
tail -n +1 -f "$work/progress" >&2 &
follower=$!
rc=0
# In a group of its own, QEMU included: whoever ends this script ends it.
set -m
in_root "$qemu_root" "$work" /stage rw "$(dirname "$(readlink -f "$out/vmlinuz")")" /build ro \
	"${disk_mount[@]}" -- \
	timeout --foreground --kill-after=5 "$limit" \
	qemu-system-x86_64 "${processors[@]}" "${plugins[@]}" -cpu max,la57=off "${HARDWARE[@]}" \
	"${disks[@]}" "${network[@]}" -m "$memory" -nodefaults -display none -monitor none -no-reboot \
	-kernel /build/vmlinuz -initrd /stage/initramfs -append "$arguments" \
	-serial file:/stage/console \
	-chardev stdio,id=results,signal=off -serial chardev:results \
	-serial file:/stage/progress </dev/null 2>"$work/qemu.log" &
machine=$!
set +m
wait "$machine" || rc=$?
machine=
sleep 0.2
kill "$follower" 2>/dev/null || :
follower=
# A device that is gone makes QEMU say so at every access. The emulated one reports no errors of the
# bus, and need not.
grep -v "Could not enable error recovery" "$work/qemu.log" | head -n 20 >&2 || :

faults=0
[ "$driver" != real ] || real_end "$work" || faults=1
"$here/check-log.sh" "$work/console" >&2 || faults=1
code=$(sed -n 's/.*cgpu-vm: exit \([0-9]*\).*/\1/p' "$work/console" | tail -n 1)
if [ -z "$code" ]; then
	tail -n 60 "$work/console" >&2
	if [ "$rc" = 124 ] || [ "$rc" = 137 ]; then
		step "$name: stopped after $limit s"
	else
		step "$name: the machine ended early ($rc)"
	fi
	exit 98
fi
if [ "$faults" != 0 ] && [ "$code" = 0 ]; then
	code=97
fi
step "$name: exit code $code"
exit "$code"
