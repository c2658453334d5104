#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# node-test.sh: pods on a node of a real Kubernetes, in the test machine: kubelet and Debian's
# containerd with runc, beside the module, the stand-in driver and cgpu-dra. The rest of the cluster
# runs on this host (node-cluster.sh). The machine boots twice with the same disk, so the second
# time the node is rebooted (node-session.sh).
#
#   LIMIT=SECONDS   a boot is stopped after that (7200)
#   PAIRS=COUNT     how many pods with a claim and without are timed (3; 20 for a measurement)
#   KEEP=FOLDER     the disk of the machine and the logs of the cluster are kept there
set -euo pipefail
# shellcheck source-path=SCRIPTDIR/../vm source=../vm/lib.sh
. "$(dirname "$0")/../vm/lib.sh"

here=$CGPU_TREE/tests/kubernetes
vm=$CGPU_TREE/tests/vm
components=$("$here/build.sh")
engine=$("$vm/engine-env.sh")
network=$("$here/network.sh")
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
cluster=$work/cluster
mkdir -p "$cluster"/{bin,keys,objects}
mkdir -p "$disk"/{etc/kubernetes,etc/containerd,etc/cni/net.d,images,root,var/log,usr/{bin,sbin}} \
	"$disk/var/lib/kubelet"
ln -s /run "$disk/var/run"
ln -s -t "$cluster/bin" \
	"$components"/{etcd,kube-apiserver,kube-scheduler,kube-controller-manager,kubectl}
cp "$components/kubelet" "$disk/usr/bin/"
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
printf '%s\n' "127.0.0.1 localhost" "10.0.0.1 node" >"$disk/etc/hosts"
# The kubelet does not start without these.
echo "root:x:0:0:root:/root:/bin/sh" >"$disk/etc/passwd"
echo "root:x:0:" >"$disk/etc/group"
md5sum <<<node | cut -c1-32 >"$disk/etc/machine-id"
cp "$CGPU_TREE/tests/traces/cuda-driver-api.jsonl.xz" "$disk/images/trace.jsonl.xz"
# chart OPTION...: the chart's objects. The machine has no network for pods: theirs is the node's.
version=$("$components/kubectl" version --client | sed -n 's/^Client.*: v//p')
chart() {
	"$components/helm" template cgpu "$CGPU_TREE/dist/helm/cgpu" --namespace cgpu \
		--kube-version "$version" "$@" |
		sed 's/^\( *\)serviceAccountName: .*/&\n\1hostNetwork: true/'
}
objects=$cluster/objects
chart --set webhook.enabled=true >"$objects/chart.yaml"
chart --set 'devicePlugin.profiles={2g=2Gi:5:1}' >"$objects/plugin.yaml"
for size in 1 2 4 8 16; do
	cat <<END
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu-$size}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {deviceClassName: gpu.cgpu.io, capacity: {requests: {memory: ${size}Gi}}}
END
done >"$objects/templates.yaml"
"$here/image.py" "$(sed -n 's/^ *image: //p' "$objects/chart.yaml" | sort -u)" \
	"$disk/images/cgpu-dra.tar" --recipe "$CGPU_TREE/dist/image/Dockerfile" \
	"$CGPU_BUILD/target/$target/release"
keys=$cluster/keys
openssl ecparam -name prime256v1 -genkey -noout -out "$keys/accounts.key"
# The components would make RSA keys, whose use takes the emulated machine long.
log "$work/openssl.log" openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
	-subj /CN=10.96.0.1 -addext subjectAltName=IP:10.96.0.1,IP:10.0.0.1 \
	-addext basicConstraints=critical,CA:FALSE -days 3650 -keyout "$keys/tls.key" \
	-out "$keys/tls.crt"
cp "$keys"/tls.* "$disk/etc/kubernetes/"
printf '%s\n' "admin-of-the-tests,admin,1,system:masters" \
	"node-of-the-tests,system:node:node,2,system:nodes" >"$keys/tokens"
# access TOKEN CERTIFICATE: a configuration of kubectl's and of the components.
access() {
	cat <<END
apiVersion: v1
kind: Config
current-context: c
clusters:
- name: c
  cluster: {server: 'https://10.96.0.1', certificate-authority: $2}
users: [{name: u, user: {token: $1}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
END
}
access node-of-the-tests /etc/kubernetes/tls.crt >"$disk/etc/kubernetes/node.conf"
access admin-of-the-tests "$keys/tls.crt" >"$keys/admin.conf"
truncate --size 4G "$work/disk.ext4"
log "$work/mke2fs.log" in_root "$engine" "$work" /stage rw -- \
	mke2fs -q -t ext4 -E lazy_itable_init=1 -d /stage/disk /stage/disk.ext4
rm -rf "$disk"

rc=0
unshare --net "$here/node-cluster.sh" "$cluster" "$work/disk.ext4" "$network" || rc=$?
if [ -n "${KEEP:-}" ]; then
	mkdir -p "$KEEP"
	mv "$work/disk.ext4" "$cluster/log" "$KEEP/"
fi
exit "$rc"
