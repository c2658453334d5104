# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# node-told.sh: what the kubelet and the driver tell each other and the cluster of claims that are
# in use: figures, sizes, failures. To be sourced by node-first.sh, whose pods it looks at.
claim=$(of_pod small '.status.resourceClaimStatuses[0].resourceClaimName')

# ---- figures
check "an account may read the figures" run kubectl create serviceaccount reader -n cgpu
check "by the chart's role" run kubectl create clusterrolebinding reader \
	--clusterrole=cgpu-metrics-reader --serviceaccount=cgpu:reader
token=$(kubectl create token reader -n cgpu)
# figures TOKEN: the page, by the network between the driver's pod and the cluster.
figures() {
	kubectl --kubeconfig=/dev/null --server=https://10.0.0.1:9400 --insecure-skip-tls-verify \
		"--token=$1" get --raw /metrics
}
# sample FIGURE LABEL...: the value of its only sample with these labels.
sample() {
	figures "$token" >"$out/figures" && grep "^$1{" "$out/figures" >"$out/some"
	shift
	for label in "$@"; do
		grep -F "$label" "$out/some" >"$out/fewer"
		mv "$out/fewer" "$out/some"
	done
	sed 's/.*} //' "$out/some"
}
# told VALUE FIGURE LABEL...: the figures say so of the pod `small`. In time, because the driver
# does not wait long for the kubelet.
told() {
	wanted=$1 figure=$2
	shift 2
	is "$(sample "$figure" 'namespace="default"' 'pod="small"' "claim=\"$claim\"" \
		"instance=\"$small\"" "$@")" "$wanted"
}
check "the figures have an instance with its pod, namespace and claim" \
	in_time told $((8 << 30)) cgpu_instance_memory_limit_bytes
check "and what it holds" in_time told $((4 << 30)) cgpu_instance_memory_used_bytes
check "and its container" in_time told 1 cgpu_dra_container_info 'container="main"'

unknown() { figures nobody 2>&1 | grep -F "You must be logged in"; }
check "they are not for everybody" in_time unknown

# ---- a claim is resized
resized() {
	is "$(kubectl get resourceclaim "$claim" -o \
		'jsonpath={.status.devices[0].conditions[?(@.type=="Resized")].status}')" "$1"
}
sees() { kubectl exec "$1" -- /cgpu-guest inside --limit "${2}GiB" 2>&1 | grep -F "has $2.00 GiB"; }
before=$(process 8)
check "a claim is annotated with a smaller size" \
	run kubectl annotate resourceclaim "$claim" cgpu.io/memory=6Gi
check "the limit of its instance follows" in_time limit "$small" 6
check "its status says so" in_time resized True
check "its figure follows" in_time told $((6 << 30)) cgpu_instance_memory_limit_bytes
check "a new program in the pod sees it" in_time sees small 6
check "the program that was there runs on" same small 8 "$before"
check "a size that was not set aside is refused" \
	run kubectl annotate --overwrite resourceclaim "$claim" cgpu.io/memory=9Gi
check "the status says so" in_time resized False
check "and the limit stays" limit "$small" 6
check "the annotation is taken away" run kubectl annotate resourceclaim "$claim" cgpu.io/memory-
check "the limit is what was set aside" in_time limit "$small" 8

# ---- a GPU fails
FAKE=/sys/kernel/debug/fake_nvidia
tainted() {
	is "$(kubectl get resourceslices \
		-o 'jsonpath={.items[*].spec.devices[*].taints[*].key}')" "$1"
}
health() {
	status='.status.containerStatuses[0].allocatedResourcesStatus[*].resources[*].health'
	is "$(of_pod small "$status")" "$1"
}
waits() {
	condition='.status.conditions[?(@.type=="PodScheduled")].reason'
	is "$(of_pod "$1" "$condition")" Unschedulable
}
check "the kubelet says that a pod's GPU is healthy" in_time health Healthy
# run.sh is to take the driver's message for what it is.
echo "cgpu-vm: GPUs fail" >/dev/kmsg
# Remapping of rows has failed, and programs run on.
echo "0 64" >$FAKE/xid
check "the driver reports an Xid, and the GPU is tainted" in_time tainted gpu.cgpu.io/xid
check "the pod's status says that its GPU is unhealthy" in_time health Unhealthy
check "a new pod with a claim is made" looks third 4
check "it waits" in_time waits third
check "the other pods run on" same small 8 "$before"
check "the operator removes the note of the failure" rm /run/cgpu/dra/failed/*
check "the taint goes" in_time tainted ""
check "the pod's GPU is healthy" in_time health Healthy
check "the pod that waited runs" in_time holds third 4
