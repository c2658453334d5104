#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# engine-session.sh: instances in containers that real engines make, in the test machine
# (engine-test.sh puts the files there). podman with crun first by the CDI file, then by the hook;
# then docker on containerd with runc (engine-docker.sh). Ends in "engine: N passed, N failed".
#
# The machine's root is an initramfs, out of which no runtime can pivot: everything runs in a mount
# namespace with a root of its own.
if [ "$1" != inside ]; then
	mkdir /newroot
	exec unshare -m --propagation private sh -c '
		mount -t tmpfs tmpfs /newroot && cd /newroot || exit 1
		mkdir -p var/tmp root newroot && chmod 1777 var/tmp && ln -s /run var/run &&
			touch /etc/hosts /etc/resolv.conf
		for folder in bin sbin lib lib64 usr etc files dev proc sys run tmp; do
			mkdir -p "/$folder" "$folder" && mount --rbind "/$folder" "$folder" || exit 1
		done
		mount --move . / && exec chroot . sh /files/engine-session.sh inside'
fi
cd / || exit 1
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

. /files/guest-check.sh
# A runtime may keep what a hook says to itself: the hook says it to the kernel's log, too. There it
# counts from `untold` on.
untold() { lines_before=$(dmesg | wc -l); }
told() { says "$1" || dmesg | tail -n "+$((lines_before + 1))" | grep -qF -- "$1"; }
untold
idle() { is "$(value "$1" memory_used_bytes)" 0 && is "$(value "$1" open_file_count)" 0; }
# kill_now PID...: an engine says 0 of what does not run, and kill takes that for everybody.
kill_now() {
	for pid in "$@"; do
		[ "$pid" -gt 1 ] 2>/dev/null || { echo "\"$pid\" is no process"; return 1; }
	done
	kill -9 "$@"
}
pid_of() { podman inspect -f "{{.State.$1}}" "$2"; }
instances() { cgpuctl inst list --json | grep -c '"gpu_minor"'; }

IMAGE=localhost/client
container() { podman run --network=none --log-driver=k8s-file "$@"; }

check "an image is made of local files" run podman import --quiet /files/image.tar $IMAGE
run cgpu-guest answers /files/trace.jsonl.xz

# A program of the driver's, which containers get from the host.
echo nvidia-smi >/usr/bin/nvidia-smi
chmod 755 /usr/bin/nvidia-smi

# ---- CDI
run cgpuctl inst create train --gpu 0 --mem 8GiB
run cgpuctl inst create infer --gpu 0 --mem 3GiB
check "a CDI file is written" run cgpuctl cdi generate --to-file /run/cdi/cgpu.json
check "it is valid, and agrees with the instances" run cgpuctl cdi validate
check "and its devices are ready" sh -c "cgpuctl cdi list | grep -c ready | grep -qx 2"
cgpuctl cdi generate --watch --to-file /run/cdi/cgpu.json >/dev/null 2>&1 &
watcher=$!

check "--device cgpu.io/gpu=NAME: a program sees its limit, and a recorded one runs" \
	run container --rm --device cgpu.io/gpu=train --security-opt seccomp=unconfined \
	$IMAGE /cgpu-guest inside --limit 8GiB --trace /trace.jsonl.xz
check "all of it was looked at" is "$(grep -c '^inside:' "$out/said")" 8
check "nothing is left of it" within 5 idle train

check "two containers share the GPU: the first" \
	run container --detach --name first --device cgpu.io/gpu=train \
	$IMAGE /cgpu-guest inside --limit 8GiB --hold
check "and the second" \
	run container --detach --name second --device cgpu.io/gpu=infer \
	$IMAGE /cgpu-guest inside --limit 3GiB --hold
holds() { is "$(value "$1" memory_used_bytes)" "$2"; }
check "each holds its half" within 20 holds train $((4 << 30))
check "each holds its half" within 20 holds infer $((3 << 29))
check "doctor sees that they are kept from the real nodes" \
	is "$(cgpuctl doctor | grep -c '^ok  *containers .*kept from the real nodes')" 2
check "what is in use is not destroyed" fails cgpuctl inst destroy train
check "a container is killed" run podman kill first
check "its memory is free again" within 10 idle train
check "the other one's is not" holds infer $((3 << 29))

# The engine is gone, the container is not; then the engine comes back.
check "the second container outlives its monitor" kill_now "$(pid_of ConmonPid second)"
check "and goes on" holds infer $((3 << 29))
run podman rm --force --time 0 second
check "it is removed by a new engine" within 10 idle infer

check "a container that may open the real nodes" \
	run container --detach --name loose --device cgpu.io/gpu=infer \
	--device-cgroup-rule 'c 195:* rw' \
	$IMAGE /cgpu-guest inside --limit 3GiB --hold
check "has its instance" within 20 holds infer $((3 << 29))
found() { cgpuctl doctor | grep -q '^failed  *containers .*may open 195:0, 195:255'; }
check "and is found by doctor" found
run podman rm --force --time 0 loose
check "it is gone" within 10 idle infer

# A new instance of the name has other numbers; the file follows, and the container with it.
before=$(value train id)
run cgpuctl inst destroy train
run cgpuctl inst create train --gpu 0 --mem 8GiB
check "a new instance has a new number" not is "$(value train id)" "$before"
check "the CDI file follows by itself" within 10 cgpuctl cdi validate
check "a container that was there before starts again" run podman start first
check "and gets the new instance" within 20 holds train $((4 << 30))
run podman rm --force --time 0 first
check "and gives it back" within 10 idle train
check "a device that is not there is refused" fails container --rm \
	--device cgpu.io/gpu=nobody $IMAGE /cgpu-guest --version
check "by its name" says "cgpu.io/gpu=nobody"

# Without root an engine cannot give out a GPU: the proxy nodes are out of its reach.
user() {
	/usr/bin/setpriv --reuid=1000 --regid=1000 --clear-groups \
		env HOME=/tmp/user XDG_RUNTIME_DIR=/run/user/1000 "$@"
}
echo "user:x:1000:1000::/tmp/user:/bin/sh" >>/etc/passwd
mkdir -p /tmp/user /run/user/1000
chown 1000:1000 /tmp/user /run/user/1000
rootless() { user podman run --network=none --log-driver=k8s-file --cgroups=disabled --rm "$@"; }
check "podman runs without root" run user podman import --quiet /files/image.tar $IMAGE
check "a container without a GPU runs" run rootless $IMAGE /cgpu-guest --version
check "one with a GPU is refused" fails rootless --device cgpu.io/gpu=train $IMAGE /cgpu-guest \
	--version
check "and it says which path is out of reach" says "/run/cgpu/dev/train/nvidia"
check "and why" says "ermission denied"
# As does the process that keeps the user's namespaces for the next container.
check "podman without root ends" run user podman system migrate
kill "$watcher"
run cgpuctl inst destroy train
run cgpuctl inst destroy infer
run cgpuctl cdi generate --to-file /run/cdi/cgpu.json
check "without instances there is no file" [ ! -e /run/cdi/cgpu.json ]

# As install.sh leaves it: udev keeps the file.
mkdir -p /run/udev
/usr/lib/systemd/systemd-udevd --daemon
check "udev takes the rule" run udevadm control --reload
run cgpuctl inst create train --gpu 0 --mem 8GiB
check "the rule writes the file when an instance comes" within 20 [ -e /run/cdi/cgpu.json ]
run cgpuctl inst create infer --gpu 0 --mem 3GiB
both() { is "$(cgpuctl cdi list | grep -c ready)" 2; }
check "and again with the next one" within 20 both
run cgpuctl inst destroy train
check "and when one goes" within 20 cgpuctl cdi validate
run cgpuctl inst destroy infer
check "and removes it with the last" within 20 [ ! -e /run/cdi/cgpu.json ]
# It keeps a mount namespace of its own, with the proxy nodes in it, and so the module.
udev_is_gone() { ! pidof systemd-udevd >/dev/null; }
# shellcheck disable=SC2046  # process numbers are words
kill $(pidof systemd-udevd)
check "udev ends" within 20 udev_is_gone

# ---- the hook
mkdir -p /usr/share/containers/oci/hooks.d
cp /files/hooks/*.json /usr/share/containers/oci/hooks.d/
check "CGPU_MEM: a program gets an instance of its own" \
	run container --rm --env CGPU_MEM=2GiB --env CGPU_WEIGHT=7 --env NVIDIA_VISIBLE_DEVICES=0 \
	--security-opt seccomp=unconfined \
	$IMAGE /cgpu-guest inside --limit 2GiB --trace /trace.jsonl.xz
check "all of it was looked at" is "$(grep -c '^inside:' "$out/said")" 8
check "and it is gone with the container" is "$(instances)" 0

check "HAMi's cap is refused where no policy keeps it" fails container --rm \
	--env CUDA_DEVICE_MEMORY_LIMIT=1024m --env CUDA_DEVICE_SM_LIMIT=30 \
	--env NVIDIA_VISIBLE_DEVICES=0 $IMAGE /cgpu-guest --version
check "with the remedy" told "set 0 --policy fixed"
run cgpuctl gpu set 0 --policy fixed
run container --detach --name hami --env CUDA_DEVICE_MEMORY_LIMIT=1024m \
	--env CUDA_DEVICE_SM_LIMIT=30 \
	--env NVIDIA_VISIBLE_DEVICES=0 $IMAGE /cgpu-guest inside --limit 1GiB --hold
id=$(podman inspect -f '{{.Id}}' hami | cut -c1-12)
check "HAMi's settings: the instance is called like the container" within 20 holds "$id" \
	$((1 << 29))
check "and has the weight" is "$(value "$id" weight)" 30
check "ps tells the container of its process" sh -c \
	"cgpuctl ps --json | grep -q '\"container_id\": \"$id'"
# Nobody is left to call the hook: monitor and container are killed.
victim=$(pid_of Pid hami)
check "monitor and container are killed" kill_now "$(pid_of ConmonPid hami)" "$victim"
gone() { [ ! -d "/proc/$victim" ]; }
within 5 gone
check "a container that ends without its hook leaves its instance" is "$(instances)" 1
check "which the next hook removes" sh -c \
	"cgpu-hook collect && cgpuctl inst list | grep -q 'No instances'"
run podman rm --force --time 0 hami
run cgpuctl gpu set 0 --policy native
check "and the journal is empty" [ ! -e /run/cgpu/hook ]

check "a container without settings is let alone" run container --rm $IMAGE /cgpu-guest --version
check "so is one that says so" run container --rm --env CGPU_DISABLE=1 \
	--env CGPU_MEM=1GiB $IMAGE /cgpu-guest --version
untold
check "a privileged container is refused" fails container --rm --privileged --env CGPU_MEM=1GiB \
	--env NVIDIA_VISIBLE_DEVICES=0 $IMAGE /cgpu-guest --version
check "with the reason" told "run it without --privileged"
untold
check "so is one with the real node, and no GPU by name" fails container --rm \
	--device /dev/nvidia0 --env CGPU_MEM=1GiB --env NVIDIA_VISIBLE_DEVICES=void \
	$IMAGE /cgpu-guest --version
check "with the reason" told "the real /dev/nvidia0"
run cgpuctl inst create given --gpu 0 --mem 3GiB
run cgpuctl cdi generate --to-file /run/cdi/cgpu.json
check "an image's settings add nothing to an instance of the operator" run container --rm \
	--device cgpu.io/gpu=given --env CGPU_MEM=1GiB --env ALIYUN_COM_GPU_VISIBLE_DEVICES=0 \
	$IMAGE /cgpu-guest inside --limit 3GiB
check "which goes afterwards" within 10 run cgpuctl inst destroy given
rm -f /run/cdi/cgpu.json
untold
check "too much is refused" fails container --rm --env CGPU_MEM=999GiB \
	--env NVIDIA_VISIBLE_DEVICES=0 $IMAGE /cgpu-guest --version
check "with the reason" told "take at most"
check "nothing is left of what was refused" sh -c \
	"cgpuctl inst list | grep -q 'No instances' && [ ! -e /run/cgpu/hook ]"

# shellcheck source-path=SCRIPTDIR source=engine-docker.sh
. /files/engine-docker.sh

rm -rf "$out"
echo "engine: $passed passed, $failed failed"
[ "$failed" = 0 ]
