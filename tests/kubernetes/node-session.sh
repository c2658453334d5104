#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# node-session.sh first|again: a node of Kubernetes in the test machine, with everything that makes
# a cluster, and pods with claims on it (node-test.sh makes the disk). `first` ends with everything
# killed; `again` goes on with the same disk. Ends in "kubernetes: N passed, N failed".
#
# No runtime can pivot out of the machine's root, which is an initramfs: the disk becomes the root.
if [ "$1" != inside ]; then
	mkdir /newroot
	exec unshare -m --propagation private sh -c '
		until mount -t ext4 /dev/nvme0n1 /newroot; do sleep 1; done 2>/dev/null
		cd /newroot || exit 1
		for folder in bin files dev proc sys run tmp; do
			mkdir -p "$folder" && mount --rbind "/$folder" "$folder" || exit 1
		done
		mount --move . / && exec chroot . sh /files/node-session.sh inside "$1"' sh "$1"
fi
shift
cd / || exit 1
export PATH=/usr/bin:/bin HOME=/root KUBECONFIG=/etc/kubernetes/admin.conf
. /files/guest-check.sh
# How Kubernetes writes a time.
FORMAT=%Y-%m-%dT%H:%M:%SZ

# processes REGEX: those whose command line it matches.
processes() {
	for folder in /proc/[0-9]*; do
		tr '\0' ' ' <"$folder/cmdline" | grep -qE "$1" && echo "${folder#/proc/}"
	done 2>/dev/null
}

# ---- the cluster
# serve NAME COMMAND...: runs a component, and runs it again when it ends, as systemd would.
serve() {
	name=$1
	shift
	# shellcheck disable=SC2016  # for the shell inside
	setsid sh -c 'while :; do "$@"; echo "$1 has ended ($?)"; sleep 1; done' sh "$@" \
		>>"/var/log/$name" 2>&1 &
}
# A condition is waited for as long as it may take on the busiest machine. To ask takes seconds of
# the machine's time, which what is asked for needs, too.
in_time() {
	last=$(($(date +%s) + 3000))
	until "$@" >/dev/null 2>&1; do
		[ "$(date +%s)" -lt "$last" ] || return 1
		sleep 3
	done
}
# kubectl ...: asks again when a busy machine did not let the apiserver answer in time.
kubectl() {
	until command kubectl "$@" 2>"$out/complaint"; do
		if ! grep -qE "TLS handshake timeout|connection refused" "$out/complaint"; then
			cat "$out/complaint" >&2
			return 1
		fi
		sleep 3
	done
}
ready() {
	is "$(wget -qO- --no-check-certificate \
		--header "Authorization: Bearer admin-of-the-tests" https://127.0.0.1:6443/readyz)" ok
}
# Not what it was before the machine booted.
node_is_ready() {
	status='{.status.nodeInfo.bootID} {.status.conditions[?(@.type=="Ready")].status}'
	is "$(kubectl get node node -o "jsonpath=$status")" \
		"$(cat /proc/sys/kernel/random/boot_id) True"
}
# heard_since TIME: the kubelet has said since then that the node is ready.
heard_since() {
	condition='.status.conditions[?(@.type=="Ready")]'
	heard=$(kubectl get node node \
		-o "jsonpath={$condition.status} {$condition.lastHeartbeatTime}") || return 1
	is "${heard% *}" True && [ "$(date -u -D $FORMAT -d "${heard#* }" +%s)" -gt "$1" ]
}
published() { kubectl get resourceslices -o name | grep -q .; }

CONTROLLERS=resourceclaim-controller,node-lifecycle-controller,namespace-controller
CONTROLLERS=$CONTROLLERS,serviceaccount-controller,garbage-collector-controller
CONTROLLERS=$CONTROLLERS,pod-garbage-collector-controller
start_control_plane() {
	hostname node
	ip address add 10.0.0.1/32 dev lo
	key=/etc/kubernetes/accounts.key
	serve etcd etcd --data-dir=/var/lib/etcd --unsafe-no-fsync \
		--heartbeat-interval=1000 --election-timeout=10000 \
		--listen-client-urls=http://127.0.0.1:2379 --advertise-client-urls=http://127.0.0.1:2379 \
		--listen-peer-urls=http://127.0.0.1:2380
	serve apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
		--tls-cert-file=/etc/kubernetes/tls.crt --tls-private-key-file=/etc/kubernetes/tls.key \
		--secure-port=6443 --advertise-address=10.0.0.1 \
		--service-cluster-ip-range=10.96.0.0/16 \
		--service-account-issuer=https://cgpu.test --service-account-key-file=$key \
		--service-account-signing-key-file=$key \
		--token-auth-file=/etc/kubernetes/tokens --authorization-mode=Node,RBAC \
		--allow-privileged=true --enable-admission-plugins=NodeRestriction \
		--disable-admission-plugins=ServiceAccount --request-timeout=10m \
		--enable-priority-and-fairness=false
	serve containerd containerd
	check "the apiserver is ready" in_time ready
	serve scheduler kube-scheduler --kubeconfig=$KUBECONFIG --leader-elect=false --secure-port=0
	serve controllers kube-controller-manager --kubeconfig=$KUBECONFIG --leader-elect=false \
		--secure-port=0 --service-account-private-key-file=$key \
		--controllers="$CONTROLLERS" \
		--node-monitor-grace-period=30m
}

start_node() {
	run cgpu-guest answers /images/trace.jsonl.xz
	in_time ctr version
	for image in pause client; do
		run ctr --namespace k8s.io images import --snapshotter native "/images/$image.tar"
	done
	serve kubelet kubelet --kubeconfig=/etc/kubernetes/node.conf \
		--config=/etc/kubernetes/kubelet.yaml --hostname-override=node --node-ip=10.0.0.1
	check "the kubelet registers the node, and it is ready" in_time node_is_ready
}

# The driver, with what a pod of the chart's DaemonSet would have: its account, bound to the node.
start_driver() {
	token=$(kubectl create token cgpu-dra --namespace cgpu --bound-object-kind Node \
		--bound-object-name node --duration 12h)
	sed "s/admin-of-the-tests/$token/" $KUBECONFIG >/run/driver.conf
	serve cgpu-dra env KUBECONFIG=/run/driver.conf cgpu-dra --node node
	check "cgpu-dra publishes the GPU" in_time published
}

# ---- pods
# template GIB: claims of such templates have so much memory.
template() {
	cat <<TEMPLATE
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu-$1}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly: {deviceClassName: gpu.cgpu.io, capacity: {requests: {memory: ${1}Gi}}}
TEMPLATE
}
# pod NAME COMMAND [GIB]: makes a pod, with a claim if it has a size.
pod() {
	claims='[]' uses='{}'
	if [ -n "${3:-}" ]; then
		claims="[{name: gpu, resourceClaimTemplateName: gpu-$3}]"
		uses='{claims: [{name: gpu}]}'
	fi
	cat >"$out/pod" <<POD
apiVersion: v1
kind: Pod
metadata: {name: $1}
spec:
  hostNetwork: true
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 1
  resourceClaims: $claims
  containers:
  - name: main
    image: cgpu.test/client:1
    imagePullPolicy: Never
    command: [/busybox, sh, -c, "$2"]
    resources: $uses
POD
	run kubectl create -f "$out/pod"
}
running() {
	run kubectl wait --for=jsonpath='{.status.phase}'=Running "pod/$1" --timeout=50m && return
	kubectl describe pod "$1" | tail -n 20
	return 1
}
# tenant NAME GIB: a pod that looks at its GPU, runs a recorded CUDA program and then holds half of
# its memory.
tenant() {
	limit="--limit ${2}GiB"
	look="/cgpu-guest inside $limit"
	pod "$1" "$look --trace /trace.jsonl.xz && exec $look --hold" "$2"
	running "$1" && in_time holds "$1" "$2"
}
# The name of a pod's instance.
instance() {
	kubectl get resourceclaims \
		-o 'jsonpath={range .items[*]}{.status.reservedFor[0].name} {.metadata.uid}{"\n"}{end}' |
		sed -n "s/^$1 /claim-/p"
}
# holds POD GIB
holds() { is "$(value "$(instance "$1")" memory_used_bytes)" $(($2 << 29)); }
# logged POD TEXT: how often the pod's newest container has said so.
logged() {
	for log in "/var/log/pods/default_$1_"*/main/*.log; do :; done
	grep -c "inside: $2" "$log"
}
# The process of a pod that holds its half.
process() { processes "^/cgpu-guest inside --limit ${1}GiB --hold"; }
restarts() { kubectl get pod "$1" -o 'jsonpath={.status.containerStatuses[0].restartCount}'; }
restarted() { is "$(restarts "$1")" "$2"; }
delete() { run kubectl delete pod "$1" --timeout=50m; }
# gone INSTANCE: nothing of it is left.
gone() {
	cgpuctl inst list --json >"$out/list" && ! grep -qF "\"$1\"" "$out/list" &&
		[ ! -e "/run/cgpu/dev/$1" ] && [ ! -e "/run/cgpu/dra/claims/${1#claim-}.json" ] &&
		[ ! -e "/run/cdi/cgpu.io-$1.json" ]
}
nothing() {
	cgpuctl inst list --json >"$out/list" && ! grep -q gpu_minor "$out/list" &&
		is "$(find /run/cgpu /run/cdi -mindepth 1 ! -type d ! -path '*/failed/*' \
			! -name last-record)" ""
}
# same POD GIB PROCESS: it has run on.
same() { is "$(process "$2")" "$3" && is "$(restarts "$1")" 0; }
# killed NAME: a program is killed, and is there again, as another process. Leaves the time in
# `died`.
killed() {
	old=$(pidof "$1")
	kill -9 "$old" || return 1
	died=$(date +%s)
	in_time another "$1" "$old"
}
another() { new=$(pidof "$1") && not is "$new" "$2"; }
# Seconds from a pod's creation to its container's start, by the times that its status has.
seconds() {
	start='{.status.containerStatuses[0].state.running.startedAt}'
	kubectl get pod "$1" -o "jsonpath={.metadata.creationTimestamp} $start" >"$out/times"
	# There is no newline at its end, so `read` fails.
	read -r from to <"$out/times"
	[ -n "$to" ] || return 1
	echo $(($(date -u -D $FORMAT -d "$to" +%s) - $(date -u -D $FORMAT -d "$from" +%s)))
}

# Nothing gets to end in order, and the session ends.
all_dead() {
	ours='sh -c while|etcd|kube|containerd|/usr/bin/containerd|cgpu-dra|/busybox|/cgpu-guest'
	left=$(processes "^($ours)")
	# shellcheck disable=SC2086  # process numbers are words
	[ -z "$left" ] || { kill -9 $left; return 1; }
}
finish() {
	[ "$failed" = 0 ] || find /var/log -maxdepth 1 -type f -exec tail -n 20 -- {} +
	in_time all_dead
	rm -rf "$out"
	echo "kubernetes: $passed passed, $failed failed"
	[ "$failed" = 0 ]
	exit
}
# Without this no case can pass.
needed() { [ "$failed" = 0 ] || finish; }

start_control_plane
needed
if [ "$1" = first ]; then
	run kubectl create namespace cgpu
	check "the chart is applied" run kubectl apply -f /etc/kubernetes/chart.yaml
	for size in 1 2 4 8 16; do template $size; done >"$out/templates"
	check "templates of claims are made" run kubectl apply -f "$out/templates"
	needed
fi
start_node
needed
start_driver
needed
# shellcheck source-path=SCRIPTDIR source=node-first.sh
. "/files/node-$1.sh"
finish
