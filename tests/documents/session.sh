#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# session.sh: runs /files/commands (documents.py) in the test machine, with the Debian folder
# /machine as its root.
#
# The machine's root is an initramfs, out of which no container's runtime can pivot: the folder's
# parts are mounted into a root of their own.
if [ "$1" != inside ]; then
	mkdir /newroot
	exec unshare -m --propagation private sh -c '
		mount -t tmpfs tmpfs /newroot && cd /newroot || exit 1
		for path in /machine/*; do
			name=${path##*/}
			if [ -L "$path" ]; then
				cp -a "$path" "$name"
			elif [ -d "$path" ]; then
				mkdir "$name"
				mount --bind "$path" "$name" || exit 1
			fi
		done
		mkdir -p files
		for folder in files dev proc sys run tmp; do
			mount --rbind "/$folder" "$folder" || exit 1
		done
		mount --move . / && exec chroot . /usr/bin/bash /files/session.sh inside'
fi
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root
cd /opt/cgpu || exit 1
# Programs come and go under the same names.
set +h
touch /etc/hosts /etc/resolv.conf
mkdir -p /etc/containers /etc/docker
# No network, and nothing that needs a module of the kernel: no overlay, no bridge.
cat >/etc/containers/containers.conf <<'END'
[containers]
log_driver = "k8s-file"
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "crun"
END
cat >/etc/containers/storage.conf <<'END'
[storage]
driver = "vfs"
graphroot = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
END
echo 'unqualified-search-registries = ["docker.io"]' >/etc/containers/registries.conf
image=nvidia/cuda:12.8.1-base-ubuntu24.04
podman import --quiet /files/image.tar docker.io/$image >&2

# engine [RUNTIME]: docker, started anew, with cgpu-runtime if that is named.
daemons=
engine() {
	deadline=$(($(date +%s) + 300)) runtimes=
	stop_engine
	[ -z "$1" ] || runtimes='"runtimes": {"cgpu": {"path": "/usr/local/sbin/cgpu-runtime"}},'
	cat >/etc/docker/daemon.json <<-END
		{$runtimes "features": {"cdi": true}, "storage-driver": "vfs", "bridge": "none",
		"iptables": false, "ip6tables": false, "userland-proxy": false}
	END
	containerd >/tmp/containerd 2>&1 &
	daemons=$!
	until ctr version >/dev/null 2>&1 || [ "$(date +%s)" -gt "$deadline" ]; do sleep 1; done
	dockerd --containerd /run/containerd/containerd.sock >/tmp/dockerd 2>&1 &
	daemons="$! $daemons"
	until docker version >/dev/null 2>&1 || [ "$(date +%s)" -gt "$deadline" ]; do sleep 1; done
	docker import /files/image.tar $image || tail -n 20 /tmp/containerd /tmp/dockerd
}
stop_engine() {
	for daemon in $daemons; do kill "$daemon" && wait "$daemon"; done
	daemons=
}

# shellcheck disable=SC1091  # a path in the machine
. /files/commands
stop_engine >&2
{ cgpuctl unload && ./uninstall.sh; } >&2
