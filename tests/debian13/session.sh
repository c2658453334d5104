#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# session.sh: what the user of test.sh does on the Debian 13 machine, when it has started. The
# kernel's command line says which part: session=first, session=second. Ends in "debian13: N passed,
# N failed".
# shellcheck disable=SC1091  # paths in the machine
. /opt/session/guest-check.sh
# Bytes as they come.
stty -F /dev/ttyS1 raw -echo
part=$(sed -n 's/.*\bsession=\([a-z]*\).*/\1/p' /proc/cmdline)

IMAGE=localhost/client
LIMIT=$((4 << 30))
told() { sed "s/^/    /" "$out/said"; }
gone() { [ ! -e "$1" ]; }
active() {
	is "$(systemctl is-active "$1")" active && return
	systemctl status --no-pager --full "$1" >"$out/said" 2>&1
	return 1
}
idle() { is "$(value web memory_used_bytes)" 0; }

# in_container ENGINE COMMAND...: in a container of the image with the instance.
in_container() {
	engine=$1
	shift
	run "$engine" run --rm --network=none --device cgpu.io/gpu=web $IMAGE "$@"
}
containers() {
	for engine in podman docker; do
		check "$engine: nvidia-smi runs in a container with the instance" \
			in_container $engine nvidia-smi
		told
		check "$engine: it shows the instance's memory" says "/   4096MiB"
		check "$engine: a CUDA program runs there, and sees the limit" \
			in_container $engine cuda-check --total $LIMIT memory copies
		told
		check "$engine: nothing is left of it" within 10 idle
	done
}

echo "== $part start: $(uname -r), $(cut -d' ' -f1 /proc/uptime) s"
check "udev has loaded the driver" grep -q "Open Kernel Module" /proc/driver/nvidia/version
check "the driver's programs run" run nvidia-smi -L
told

first() {
	check "modprobe loads the module" run modprobe cgpu_km
	check "doctor finds nothing that fails" run cgpuctl doctor
	told
	check "an instance is made" run cgpuctl inst create web --gpu 0 --mem 4GiB
	check "udev writes the CDI file" within 20 [ -e /run/cdi/cgpu.json ]
	check "podman takes the image" run podman import --quiet /opt/session/image.tar $IMAGE
	check "docker runs" active docker
	check "docker takes the image" run docker import /opt/session/image.tar $IMAGE
	containers
	check "the instance is saved" run cgpuctl inst save
	check "the unit is enabled" run systemctl enable cgpu
}

second() {
	check "the unit has made the instance" active cgpu
	check "its limit is the saved one" is "$(value web memory_limit_bytes)" $LIMIT
	check "the unit has written the CDI file" [ -e /run/cdi/cgpu.json ]
	containers
	check "the package is removed" run env DEBIAN_FRONTEND=noninteractive apt-get purge -y cgpu
	told
	for path in /sys/module/cgpu_km /dev/cgpuctl /proc/cgpu_km /run/cdi/cgpu.json \
		/etc/systemd/system/multi-user.target.wants/cgpu.service /usr/sbin/cgpuctl; do
		check "$path is gone" gone $path
	done
	check "the driver still runs" run nvidia-smi -L
}

$part
rm -rf "$out"
echo "debian13: $passed passed, $failed failed"
