#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# node-test.sh: pods on a node of a real Kubernetes, in the test machine: etcd, apiserver,
# scheduler, controllers, kubelet and Debian's containerd with runc, beside the module, the stand-in
# driver and cgpu-dra. The machine boots twice with the same disk, so the second time the node is
# rebooted (node-session.sh).
#
#   LIMIT=SECONDS   a boot is stopped after that (7200)
#   KEEP=FOLDER     the disk of the machine is kept there, with the logs of all components
set -euo pipefail
# shellcheck source-path=SCRIPTDIR/../vm source=../vm/lib.sh
. "$(dirname "$0")/../vm/lib.sh"

here=$CGPU_TREE/tests/kubernetes
vm=$CGPU_TREE/tests/vm
components=$("$here/build.sh")
engine=$("$vm/engine-env.sh")
out=$("$vm/build.sh")
step "cgpu-dra"
target=x86_64-unknown-linux-gnu
# Static, as the other programs of the machine.
(
	cd "$CGPU_TREE"
	export CARGO_ENCODED_RUSTFLAGS="-Ctarget-feature=+crt-static"
	export CARGO_PROFILE_RELEASE_STRIP=debuginfo CARGO_TERM_COLOR=never
	cargo build --quiet --release --locked -p cgpu-dra --target "$target" \
		--target-dir "$CGPU_BUILD/target"
) >&2
work=$(mktemp -d "$CGPU_CACHE/node-test-XXXXXXXX")
trap 'rm -rf "$work"' EXIT

# ---- the disk
disk=$work/disk
mkdir -p "$disk"/{etc/kubernetes,etc/containerd,etc/cni/net.d,images,root,var/log,usr/{bin,sbin}} \
	"$disk/var/lib/kubelet"
ln -s /run "$disk/var/run"
cp "$components"/{etcd,kube-apiserver,kube-scheduler,kube-controller-manager,kubelet,kubectl} \
	"$CGPU_BUILD/target/$target/release/cgpu-dra" "$disk/usr/bin/"
cp "$out/bin/cgpu-hook" "$disk/usr/sbin/"
programs=(/usr/bin/containerd /usr/bin/containerd-shim-runc-v2 /usr/bin/ctr /usr/sbin/runc)
programs+=(/usr/bin/mount /usr/bin/umount)
cp -t "$disk/usr/bin" "${programs[@]/#/$engine}"
# The libraries that they need, by the loader of their own folder.
while read -r library; do
	mkdir -p "$disk$(dirname "$library")"
	cp "$engine$(in_root "$engine" -- readlink -f "$library")" "$disk$library"
done < <(in_root "$engine" -- ldd "${programs[@]}" | grep -oE '(/usr)?/lib[^ ]*\.so[^ ]*' | sort -u)
busybox=$engine/usr/bin/busybox
"$here/image.py" cgpu.test/pause:1 "$disk/images/pause.tar" "busybox=$busybox"
"$here/image.py" cgpu.test/client:1 "$disk/images/client.tar" "busybox=$busybox" tmp/ \
	"cgpu-guest=$out/bin/cgpu-guest" \
	"trace.jsonl.xz=$CGPU_TREE/tests/traces/cuda-driver-api.jsonl.xz"
cp -r "$here/node/." "$disk/etc/"
: >"$disk/etc/resolv.conf"
echo "127.0.0.1 localhost" >"$disk/etc/hosts"
# The kubelet does not start without these.
echo "root:x:0:0:root:/root:/bin/sh" >"$disk/etc/passwd"
echo "root:x:0:" >"$disk/etc/group"
md5sum <<<node | cut -c1-32 >"$disk/etc/machine-id"
cp "$CGPU_TREE/tests/traces/cuda-driver-api.jsonl.xz" "$disk/images/trace.jsonl.xz"
"$components/helm" template cgpu "$CGPU_TREE/dist/helm/cgpu" --namespace cgpu \
	--kube-version 1.36.0 >"$disk/etc/kubernetes/chart.yaml"
openssl ecparam -name prime256v1 -genkey -noout -out "$disk/etc/kubernetes/accounts.key"
# The components would make RSA keys, which takes the emulated machine long, and so does their use.
log "$work/openssl.log" openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
	-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
	-addext basicConstraints=critical,CA:FALSE -days 3650 -keyout "$disk/etc/kubernetes/tls.key" \
	-out "$disk/etc/kubernetes/tls.crt"
truncate --size 4G "$work/disk.ext4"
log "$work/mke2fs.log" in_root "$engine" "$work" /stage rw -- \
	mke2fs -q -t ext4 -E lazy_itable_init=1 -d /stage/disk /stage/disk.ext4
rm -rf "$disk"

# ---- the two boots
boot() {
	local name=$1
	shift
	"$vm/run.sh" --no-build --name "$name" --memory 4096 --limit "${LIMIT:-7200}" \
		--disk "$work/disk.ext4" --file "$vm/guest-check.sh" --file "$here/node-session.sh" \
		--file "$here/node-first.sh" --file "$here/node-again.sh" \
		-- sh /files/node-session.sh "$@"
}
rc=0
boot "Kubernetes" first || rc=$?
[ "$rc" != 0 ] || boot "Kubernetes, rebooted" again || rc=$?
if [ -n "${KEEP:-}" ]; then
	mkdir -p "$KEEP"
	mv "$work/disk.ext4" "$KEEP/"
fi
exit "$rc"
