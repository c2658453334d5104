#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# node-session.sh first|again: a node of Kubernetes in the test machine, and pods with claims on it
# (node-test.sh makes the disk, node-cluster.sh the cluster). `first` ends with everything killed;
# `again` goes on with the same disk. Ends in "kubernetes: N passed, N failed".
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
# As systemd has it: what a container mounts can be seen on the node, and so in others.
mount --make-rshared /
# The driver has to mount it itself.
umount /run/cgpu/dev
export PATH=/usr/bin:/bin HOME=/root
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
# A condition is waited for as long as it may take on the busiest machine. To ask takes the
# machine's time, which what is asked for needs, too: at most half of it.
PAUSE=2
in_time() {
	asked=$(date +%s)
	last=$((asked + 3000))
	until "$@" >/dev/null 2>&1; do
		now=$(date +%s)
		[ "$now" -lt "$last" ] || return 1
		sleep $PAUSE
		sleep $((now - asked))
		asked=$(date +%s)
	done
}
# kubectl ...: that of the host, with what this one reads if it has `-f -`.
kubectl() {
	printf '%s\n' "$@" "" >"$out/request"
	[ "$3" != - ] || cat >>"$out/request"
	wget -qO "$out/answer" --post-file "$out/request" http://10.96.0.1:8001/ || return 1
	sed '$d' "$out/answer"
	return "$(tail -n 1 "$out/answer")"
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
# The slices, by their uids. A kubelet that starts deletes those that are there, so after a reboot
# there is another one.
slices() { kubectl get resourceslices -o 'jsonpath={.items[*].metadata.uid}'; }
published() {
	now_there=$(slices) && [ -n "$now_there" ] && not is "$now_there" "$before_boot"
}

# The machine's side of the host's network, where it has the address 10.0.0.1.
start_network() {
	hostname node
	for module in /files/network/*; do
		insmod "$module" || return 1
	done
	ip address add 10.0.0.1/32 dev lo
	ip address add 10.0.2.15/24 dev eth0
	ip link set eth0 up
	ip route add default via 10.0.2.2
}

start_node() {
	check "the cluster answers" in_time kubectl get --raw /readyz
	serve containerd containerd
	run cgpu-guest answers /images/trace.jsonl.xz
	in_time ctr version
	for image in pause client cgpu-dra; do
		run ctr --namespace k8s.io images import --snapshotter native "/images/$image.tar"
	done
	serve kubelet kubelet --kubeconfig=/etc/kubernetes/node.conf \
		--config=/etc/kubernetes/kubelet.yaml --hostname-override=node --node-ip=10.0.0.1
	check "the kubelet registers the node, and it is ready" in_time node_is_ready
}

# The driver in a pod of the chart's DaemonSet.
driver_runs() {
	[ -n "$(processes "$DRIVER")" ] &&
		is "$(kubectl get daemonset cgpu-dra --namespace cgpu \
			-o 'jsonpath={.status.numberReady}')" 1
}
DRIVER='^/cgpu-dra (--|device-plugin)'
start_driver() {
	check "the chart's DaemonSet runs cgpu-dra in a pod" in_time driver_runs
	check "it publishes the GPU" in_time published
}

# ---- pods
# pod NAME COMMAND [GIB|LIMITS]: makes a pod, with a claim if it has a size, or with limits of
# resources.
pod() {
	claims='[]' uses='{}'
	case ${3:-} in
	'') ;;
	*:*) uses="{limits: {$3}}" ;;
	*)
		claims="[{name: gpu, resourceClaimTemplateName: gpu-$3}]"
		uses='{claims: [{name: gpu}]}'
		;;
	esac
	run kubectl create -f - <<POD
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
}
running() {
	run kubectl wait --for=jsonpath='{.status.phase}'=Running "pod/$1" --timeout=50m && return
	kubectl describe pod "$1" | tail -n 20
	return 1
}
# looks NAME GIB [LIMITS]: a pod that looks at its GPU, runs a recorded CUDA program and then holds
# half of its memory.
looks() {
	look="/cgpu-guest inside --limit ${2}GiB"
	pod "$1" "$look --trace /trace.jsonl.xz && exec $look --hold" "${3:-$2}"
}
# tenant NAME GIB [LIMITS]: the same, and it gets there.
tenant() { looks "$@" && running "$1" && in_time holds "$1" "$2"; }
# The name of a pod's instance.
instance() {
	kubectl get resourceclaims \
		-o 'jsonpath={range .items[*]}{.status.reservedFor[0].name} {.metadata.uid}{"\n"}{end}' |
		sed -n "s/^$1 /claim-/p"
}
# half INSTANCE GIB: a half of its memory is held.
half() { is "$(value "$1" memory_used_bytes)" $(($2 << 29)); }
# holds POD GIB
holds() { half "$(instance "$1")" "$2"; }
# limit INSTANCE GIB
limit() { is "$(value "$1" memory_limit_bytes)" $(($2 << 30)); }
# logged POD TEXT: how often the pod's newest container has said so.
logged() {
	for log in "/var/log/pods/default_$1_"*/main/*.log; do :; done
	grep -c "inside: $2" "$log"
}
# The process of a pod that holds its half.
process() { processes "^/cgpu-guest inside --limit ${1}GiB --hold"; }
# of_pod POD PATH: what it says there.
of_pod() { kubectl get pod "$1" -o "jsonpath={$2}"; }
restarts() { of_pod "$1" '.status.containerStatuses[0].restartCount'; }
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
# killed REGEX: a program is killed, and is there again, as another process. Leaves the time in
# `died`.
killed() {
	old=$(processes "$1")
	kill -9 "$old" || return 1
	died=$(date +%s)
	in_time another "$1" "$old"
}
another() { new=$(processes "$1"); [ -n "$new" ] && not is "$new" "$2"; }

# Nothing gets to end in order, and the session ends.
all_dead() {
	ours='sh -c while|etcd|kube|containerd|/usr/bin/containerd|/cgpu-dra|/busybox|/cgpu-guest'
	left=$(processes "^($ours)")
	# shellcheck disable=SC2086  # process numbers are words
	[ -z "$left" ] || { kill -9 $left; return 1; }
}
finish() {
	[ "$failed" = 0 ] || find /var/log -maxdepth 1 -type f -exec tail -n 20 -- {} + \
		-o -path '*/cgpu_*.log' -exec tail -n 20 -- {} +
	in_time all_dead
	rm -rf "$out"
	echo "kubernetes: $passed passed, $failed failed"
	[ "$failed" = 0 ]
	exit
}
# Without this no case can pass.
needed() { [ "$failed" = 0 ] || finish; }

before_boot=
[ "$1" != again ] || read -r before_boot </images/slices
check "the machine has a network" start_network
needed
start_node
needed
if [ "$1" = first ]; then
	run kubectl create namespace cgpu
	run kubectl label namespace cgpu pod-security.kubernetes.io/enforce=privileged
	check "the chart is applied" run kubectl apply -f chart.yaml
	check "templates of claims are made" run kubectl apply -f templates.yaml
	check "the node is labelled" run kubectl label node node cgpu.io/gpu=true
fi
start_driver
needed
# shellcheck source-path=SCRIPTDIR source=node-first.sh
. "/files/node-$1.sh"
finish
