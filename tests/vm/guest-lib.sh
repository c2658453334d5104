# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=dash
# What guest-init and commands in the test machine share: loading and unloading the two modules.
# /vm.conf says which driver (DRIVER: nvidia, fake_nvidia, or fake_nvidia_plain, which exports
# nothing), how many GPUs (GPUS) and what parameters (FAKE_PARAMETERS) the stand-in or nvidia-uvm
# has.
FAKE=/sys/kernel/debug/fake_nvidia

mounted() { grep -q "^[^ ]* $1 " /proc/mounts; }
# Into the kernel's log, where run.sh reads it.
say() { echo "cgpu-vm: $*" >/dev/kmsg; }
fault() { say "fault: $*"; }

# The driver's nodes, open to everybody as the real ones are.
real_nodes() {
	local uvm n=0
	uvm=$(sed -n 's/^ *\([0-9]*\) nvidia-uvm$/\1/p' /proc/devices)
	[ -n "$uvm" ] || { fault "no nvidia-uvm in /proc/devices"; return 1; }
	mknod -m 666 /dev/nvidiactl c 195 255
	mknod -m 666 /dev/nvidia-uvm c "$uvm" 0
	while [ "$n" -lt "$GPUS" ]; do
		mknod -m 666 "/dev/nvidia$n" c 195 "$n"
		n=$((n + 1))
	done
}

load_driver() {
	if [ "$DRIVER" = nvidia ]; then
		insmod /modules/nvidia.ko || { fault "insmod nvidia"; return 1; }
		# shellcheck disable=SC2086  # parameters are words
		insmod /modules/nvidia-uvm.ko $FAKE_PARAMETERS || { fault "insmod nvidia-uvm"; return 1; }
		real_nodes
		return
	fi
	# shellcheck disable=SC2086  # parameters are words
	insmod "/modules/$DRIVER.ko" "gpus=$GPUS" $FAKE_PARAMETERS ||
		{ fault "insmod $DRIVER"; return 1; }
	real_nodes
	cat $FAKE/leaks >/tmp/leaks-before
}

mount_cgpufs() {
	mkdir -p -m 700 /run/cgpu
	mkdir -p -m 700 /run/cgpu/dev
	mount -t cgpufs cgpufs /run/cgpu/dev || { fault "mount cgpufs"; return 1; }
}

load_module() {
	insmod /modules/cgpu_km.ko || { fault "insmod cgpu_km"; return 1; }
	mount_cgpufs
}

# Processes that have a file of the module open, or a mount of it in their namespace.
holders() {
	local folder
	for folder in /proc/[0-9]*; do
		if grep -qs ' cgpufs ' "$folder/mountinfo" ||
			ls -l "$folder/fd" 2>/dev/null | grep -q 'cgpu'; then
			echo "${folder#/proc/} $(tr '\0' ' ' <"$folder/cmdline")"
		fi
	done | tr '\n' ';'
}

unload_module() {
	local n
	while mounted /run/cgpu/dev; do
		umount /run/cgpu/dev || { fault "umount /run/cgpu/dev"; break; }
	done
	# A mount namespace is put away by a worker after its last process: what that had mounted counts
	# until then.
	n=0
	while [ "$n" -lt 600 ] && [ "$(cat /sys/module/cgpu_km/refcnt)" != 0 ]; do
		sleep 0.1
		n=$((n + 1))
	done
	rmmod cgpu_km || {
		fault "rmmod cgpu_km (references: $(cat /sys/module/cgpu_km/refcnt); held by: $(holders))"
		return 1
	}
	[ ! -e /dev/cgpuctl ] || fault "/dev/cgpuctl is left behind"
	[ ! -e /proc/cgpu_km ] || fault "/proc/cgpu_km is left behind"
}

# The stand-in counts what is open or allocated once nobody uses it: it was lost by somebody.
unload_driver() {
	local node n before
	if [ "$DRIVER" = nvidia ]; then
		rmmod nvidia_uvm || fault "rmmod nvidia_uvm (references: $(cat /sys/module/nvidia_uvm/refcnt))"
		rmmod nvidia || fault "rmmod nvidia (references: $(cat /sys/module/nvidia/refcnt))"
		rm -f /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm
		return
	fi
	sed -n 's/^\([a-z0-9]*\)_open: \([1-9][0-9]*\)$/\1 \2/p' $FAKE/opens | while read -r node n; do
		fault "the driver's $node is open $n times at the end"
	done
	# The answers that it was given, and the calls that it noted.
	: >$FAKE/answers
	echo 0 >$FAKE/unanswered
	# Files are put away by a worker after the last close.
	n=0
	while [ "$n" -lt 600 ] && ! cmp -s $FAKE/leaks /tmp/leaks-before; do
		sleep 0.1
		n=$((n + 1))
	done
	cmp -s $FAKE/leaks /tmp/leaks-before || {
		before=$(tr '\n' ' ' </tmp/leaks-before)
		fault "the driver's own structures: $before-> $(tr '\n' ' ' <$FAKE/leaks)"
	}
	rmmod "$DRIVER" || fault "rmmod $DRIVER (references: $(cat "/sys/module/$DRIVER/refcnt"))"
	rm -f /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm
}
