#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# node-cluster.sh FOLDER DISK NETWORK: a control plane of Kubernetes, and beside it the node, which
# boots twice from DISK (node-session.sh). FOLDER has the programs, keys and objects, NETWORK the
# machine's drivers; node-test.sh makes all of them. To be run with a network of its own. There
# 10.96.0.1 is the service of the apiserver and 10.0.0.1 the node: what is sent to that address,
# QEMU passes on to the machine.
#
# The control plane is not in the machine: emulated, it takes ten times as long for everything, and
# beside other work it is too slow for the kubelet's fixed ten seconds. For the same reason the
# machine asks the kubectl of this host (node-kubectl.py).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR/../vm source=../vm/lib.sh
. "$(dirname "$0")/../vm/lib.sh"
here=$CGPU_TREE/tests/kubernetes
vm=$CGPU_TREE/tests/vm
folder=$1 disk=$2 network=$3
export KUBECONFIG=$folder/keys/admin.conf

ip link set lo up
for address in 10.0.0.1 10.0.0.2 10.96.0.1; do
	ip address add "$address/32" dev lo
done
# A call of the node comes from another address: the machine does not answer to its own.
ip route replace local 10.0.0.1 dev lo src 10.0.0.2 table local
mkdir -p "$folder/log"
started=()
trap '[ ${#started[@]} = 0 ] || kill -9 "${started[@]}" 2>/dev/null || :' EXIT
serve() {
	"$folder/bin/$1" "${@:2}" >"$folder/log/$1" 2>&1 &
	started+=($!)
}
keys=$folder/keys
serve etcd "--data-dir=$folder/etcd" --unsafe-no-fsync \
	--heartbeat-interval=1000 --election-timeout=10000 \
	--listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
	--listen-peer-urls=http://127.0.0.1:2380
serve kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
	"--tls-cert-file=$keys/tls.crt" "--tls-private-key-file=$keys/tls.key" \
	--secure-port=443 --advertise-address=10.0.0.2 --enable-aggregator-routing=true \
	--kubelet-preferred-address-types=InternalIP \
	--service-cluster-ip-range=10.96.0.0/16 \
	--service-account-issuer=https://cgpu.test \
	"--service-account-key-file=$keys/accounts.key" \
	"--service-account-signing-key-file=$keys/accounts.key" \
	"--token-auth-file=$keys/tokens" --authorization-mode=Node,RBAC \
	--allow-privileged=true --enable-admission-plugins=NodeRestriction --request-timeout=10m
end=$(($(date +%s) + 1200))
until "$folder/bin/kubectl" get --raw /readyz >/dev/null 2>&1; do
	if [ "$(date +%s)" -ge "$end" ]; then
		tail -n 20 "$folder"/log/* >&2
		exit 1
	fi
	sleep 1
done
config=(--kubeconfig="$KUBECONFIG" --leader-elect=false --secure-port=0)
serve kube-scheduler "${config[@]}"
controllers=resourceclaim-controller,node-lifecycle-controller,namespace-controller
controllers+=,serviceaccount-controller,garbage-collector-controller
controllers+=,pod-garbage-collector-controller,daemonset-controller
controllers+=,root-ca-certificate-publisher-controller,deployment-controller
controllers+=,replicaset-controller,endpointslice-controller
# A machine that is busy is not to lose its node.
serve kube-controller-manager "${config[@]}" --node-monitor-grace-period=30m \
	--service-account-private-key-file="$keys/accounts.key" --root-ca-file="$keys/tls.crt" \
	--controllers="$controllers"
"$here/node-kubectl.py" "$folder" &
started+=($!)

forwarded=
# To the kubelet, to the webhook and to the figures.
for port in 10250 9443 9400; do
	forwarded+=,hostfwd=tcp:10.0.0.1:$port-:$port
done
boot() {
	local name=$1
	shift
	"$vm/run.sh" --no-build --name "$name" --memory 3072 --limit "${LIMIT:-7200}" \
		--disk "$disk" --network "${forwarded#,}" --folder "$network:/files/network" \
		--file "$vm/guest-check.sh" --file "$here/node-session.sh" \
		--file "$here/node-first.sh" --file "$here/node-told.sh" --file "$here/node-times.sh" \
		--file "$here/node-again.sh" --file "$here/node-plugin.sh" \
		-- env "PAIRS=${PAIRS:-}" sh /files/node-session.sh "$@"
}
rc=0
boot "Kubernetes" first || rc=$?
[ "$rc" != 0 ] || boot "Kubernetes, rebooted" again || rc=$?
[ "$rc" = 0 ] || tail -n 20 "$folder"/log/* >&2
exit "$rc"
