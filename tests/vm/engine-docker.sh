# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# engine-docker.sh: docker on containerd with runc. To be sourced by engine-session.sh, whose
# functions it uses.
mkdir -p /etc/docker
# Nothing that needs a module of the kernel: no overlay, no bridge.
cat >/etc/docker/daemon.json <<'END'
{
	"features": {"cdi": true},
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
check "a CDI file is written" run cgpuctl cdi generate --output /run/cdi/cgpu.json
check "docker: --device cgpu.io/gpu=NAME" \
	run docker run --rm --network=none --device cgpu.io/gpu=train \
	--security-opt seccomp=unconfined \
	client /cgpu-guest inside --limit 8GiB --trace /trace.jsonl.xz
check "all of it was looked at" is "$(grep -c '^inside:' "$out/said")" 7
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

kill "$dockerd" && wait "$dockerd"
kill "$containerd" && wait "$containerd"
run cgpuctl inst destroy train
