# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# engine-docker.sh: docker on containerd with runc. To be sourced by engine-session.sh, whose
# functions it uses.
mkdir -p /etc/docker
# Nothing that needs a module of the kernel: no overlay, no bridge.
cat >/etc/docker/daemon.json <<'END'
{
	"features": {"cdi": true},
	"runtimes": {"cgpu": {"path": "/bin/cgpu-runtime"}},
	"storage-driver": "vfs",
	"bridge": "none",
	"iptables": false,
	"ip6tables": false,
	"userland-proxy": false
}
END
# docker would wait 15 seconds for a containerd of its own: too short where the machine is emulated.
containerd >"$out/containerd" 2>&1 &
containerd=$!
in_time() { within 120 "$@" || { tail -n 20 "$out/containerd" "$out/dockerd"; return 1; }; }
check "containerd starts" in_time ctr version
dockerd --containerd /run/containerd/containerd.sock >"$out/dockerd" 2>&1 &
dockerd=$!
check "docker starts" in_time docker version
check "an image is made of local files" run docker import /files/image.tar client
run cgpuctl inst create train --gpu 0 --mem 8GiB
check "a CDI file is written" run cgpuctl cdi generate --to-file /run/cdi/cgpu.json
check "docker: --device cgpu.io/gpu=NAME" \
	run docker run --rm --network=none --device cgpu.io/gpu=train \
	--security-opt seccomp=unconfined \
	client /cgpu-guest inside --limit 8GiB --trace /trace.jsonl.xz
check "all of it was looked at" is "$(grep -c '^inside:' "$out/said")" 8
check "nothing is left of it" within 5 idle train
# shellcheck disable=SC2046  # the arguments are words
check "docker: what cgpuctl inst mounts prints" \
	run docker run --rm --network=none $(cgpuctl inst mounts train --format docker) client \
	/cgpu-guest --version
check "docker: another one stays" \
	run docker run --detach --name held --network=none --device cgpu.io/gpu=train \
	client /cgpu-guest inside --limit 8GiB --hold
check "docker: and its half" within 20 holds train $((4 << 30))
check "docker: a container is killed" run docker kill held
check "docker: its memory is free again" within 10 idle train
check "docker: a container that is there starts again" run docker start held
check "docker: and has its half again" within 60 holds train $((4 << 30))
holds train $((4 << 30)) || docker logs held
check "docker: it is removed" run docker rm --force held
check "docker: and has given it back" within 10 idle train
run cgpuctl inst destroy train

# ---- the environment, by cgpu-runtime
by_request() {
	docker run --network=none --runtime cgpu --env NVIDIA_VISIBLE_DEVICES=0 "$@"
}
check "docker: a container that asks for memory has an instance" \
	run by_request --rm --env CGPU_MEM=8GiB --security-opt seccomp=unconfined \
	client /cgpu-guest inside --limit 8GiB --trace /trace.jsonl.xz
check "all of it was looked at" is "$(grep -c '^inside:' "$out/said")" 8
no_instances() { cgpuctl inst list | grep -q 'No instances'; }
check "docker: it goes with the container" within 10 no_instances
check "docker: two at once: the first" \
	run by_request --detach --name first --env CGPU_MEM=8GiB \
	client /cgpu-guest inside --limit 8GiB --hold
check "docker: and the second, by HAMi's variable" \
	run by_request --detach --name second --env CUDA_DEVICE_MEMORY_LIMIT=3g \
	client /cgpu-guest inside --limit 3GiB --hold
name_of() { docker inspect --format '{{.Id}}' "$1" | cut -c1-12; }
first=$(name_of first) second=$(name_of second)
check "docker: each holds its half" within 60 holds "$first" $((4 << 30))
check "docker: each holds its half" within 60 holds "$second" $((3 << 29))
check "docker: a container is killed" run docker kill first
gone() { ! cgpuctl inst show "$1"; }
check "docker: its instance goes" within 10 gone "$first"
check "docker: the other one's does not" holds "$second" $((3 << 29))
run docker rm --force second first
check "docker: nothing is left" within 10 no_instances
check "docker: a container that asks for nothing is let alone" \
	run by_request --rm client /cgpu-guest --version
untold
check "docker: too much is refused" fails by_request --rm --env CGPU_MEM=999GiB \
	client /cgpu-guest --version
check "docker: with the reason" told "take at most"
# containerd's own client, which has no CDI.
check "ctr: an image is made of local files" run sh -c \
	'mkdir -p /tmp/layer && tar -xf /files/image.tar -C /tmp/layer'
check "ctr: a container that asks for memory has an instance" \
	run ctr run --rm --rootfs --runc-binary /bin/cgpu-runtime --env CGPU_MEM=8GiB \
	--env NVIDIA_VISIBLE_DEVICES=0 \
	/tmp/layer asked /cgpu-guest inside --limit 8GiB
check "ctr: it goes with the container" within 10 no_instances
# The recipe of the image of cgpu-dra, with another program by its name.
mkdir /tmp/recipe && cp /tmp/layer/cgpu-guest /tmp/recipe/cgpu-dra
check "docker: the recipe of cgpu-dra makes an image" \
	run docker build --file /files/Dockerfile --tag cgpu-dra /tmp/recipe
check "docker: the image runs its program" run docker run --rm --network=none cgpu-dra --version

kill "$dockerd" && wait "$dockerd"
kill "$containerd" && wait "$containerd"
