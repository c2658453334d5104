#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# engine-test.sh [--kernel KERNEL]: containers with instances, made by real engines in the test
# machine: Debian's podman with crun, by CDI and by the hook, docker on containerd with runc, by
# CDI. One boot for all (engine-session.sh). KERNEL is that of build.sh (stock).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

kernel=stock
case $#:${1:-} in
0:) ;;
2:--kernel) kernel=$2 ;;
*) die "usage: engine-test.sh [--kernel KERNEL]" ;;
esac
here=$CGPU_TREE/tests/vm
engine=$("$here/engine-env.sh")
out=$(cat "$CGPU_BUILD/last-$kernel")
work=$(mktemp -d "$CGPU_CACHE/engine-test-XXXXXXXX")
trap 'rm -rf "$work"' EXIT

# The container's image: two programs, a recording, nothing else.
mkdir -p "$work/image/tmp" "$work/hooks"
cp "$out/bin/cgpu-guest" "$work/image/"
cp "$CGPU_TREE/tests/traces/cuda-driver-api.jsonl.xz" "$work/image/trace.jsonl.xz"
chmod 1777 "$work/image/tmp"
tar -C "$work/image" --owner=0 --group=0 -cf "$work/image.tar" .
# As install.sh installs them, where the machine has the programs.
for hook in "$CGPU_TREE"/dist/hooks/*.json; do
	sed 's,@SBIN@,/bin,' "$hook" >"$work/hooks/$(basename "$hook")"
done
sed 's,@SBIN@,/bin,' "$CGPU_TREE/dist/cgpu.rules" >"$work/cgpu.rules"
cat >"$work/containers.conf" <<'END'
[containers]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "crun"
END
cat >"$work/storage.conf" <<'END'
[storage]
driver = "vfs"
graphroot = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
END

programs=(/usr/bin/podman /usr/bin/crun /usr/bin/conmon /usr/lib/podman/netavark)
programs+=(/usr/bin/docker /usr/sbin/dockerd /usr/bin/containerd /usr/bin/containerd-shim-runc-v2 \
	/usr/bin/ctr /usr/sbin/runc)
programs+=(/usr/bin/udevadm /usr/bin/setpriv)
files=()
for path in "${programs[@]}" /etc/containers/policy.json /usr/share/containers/seccomp.json; do
	files+=(--file "$engine$path:$path")
done
files+=(--file "$engine/usr/bin/udevadm:/usr/lib/systemd/systemd-udevd")
# The libraries that they need, by the loader of their own folder.
while read -r library; do
	files+=(--file "$engine$(in_root "$engine" -- readlink -f "$library"):$library")
done < <(in_root "$engine" -- ldd "${programs[@]}" | grep -oE '(/usr)?/lib[^ ]*\.so[^ ]*' | sort -u)

exec 9>&-
rc=0
"$here/run.sh" --no-build --kernel "$kernel" --name engine --memory 2560 \
	--limit "${LIMIT:-2400}" "${files[@]}" \
	--file "$work/containers.conf:/etc/containers/containers.conf" \
	--file "$work/storage.conf:/etc/containers/storage.conf" \
	--file "$work/image.tar" --file "$work/hooks" \
	--file "$work/image/trace.jsonl.xz" \
	--file "$work/cgpu.rules:/usr/lib/udev/rules.d/71-cgpu.rules" \
	--file "$CGPU_TREE/dist/image/Dockerfile" \
	--file "$here/guest-check.sh" --file "$here/engine-docker.sh" \
	--file "$here/engine-session.sh" -- sh /files/engine-session.sh || rc=$?
exit "$rc"
