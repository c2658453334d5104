# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# node-plugin.sh: the chart with a profile of a device plugin, as clusters before Kubernetes 1.34
# have it. To be sourced by node-again.sh.
slot=slot-2g-gpu-0-0
resource='cgpu.io/gpu-2g: 1'
gone_from() { is "$(processes "$DRIVER")" ""; }
offered() {
	is "$(kubectl get node node -o 'jsonpath={.status.allocatable.cgpu\.io/gpu-2g}')" "$1"
}
# Nobody has it open, and nothing is held.
clean() {
	for field in memory_used_bytes memory_overhead_bytes open_file_count tenant_open_file_count; do
		is "$(value $slot $field)" 0 || return 1
	done
}
check "the chart is removed" run kubectl delete -f chart.yaml --timeout=50m
check "cgpu-dra is gone" in_time gone_from
check "the chart is applied with a profile" run kubectl apply -f plugin.yaml
check "its DaemonSet runs the device plugin in a pod" in_time driver_runs
check "the node offers the only slot" in_time offered 1
check "a pod with the slot runs" looks slotted 2 "$resource"
check "it holds half of the slot's memory" in_time half $slot 2
check "it sees 2 GiB, before its program and after" \
	is "$(logged slotted 'the GPU has 2.00 GiB')" 2
before=$(process 2)
check "another pod wants the slot, too" looks next 2 "$resource"

check "the kubelet is killed, and comes back" killed '^kubelet '
check "it says that the node is ready" in_time heard_since "$died"
check "the pod has run on" same slotted 2 "$before"
check "the node offers the slot" in_time offered 1
check "the other pod waits" is "$(of_pod next .status.phase)" Pending
check "the pod is deleted" delete slotted
check "the other one runs in the slot, which was registered anew" running next
check "and holds half of it" in_time half $slot 2
check "it sees 2 GiB, before its program and after" is "$(logged next 'the GPU has 2.00 GiB')" 2
# Lower, because what is above the profile goes as soon as no program is there. Nobody waits for the
# slot, so only the kubelet's word that no container has it can bring the profile's values back.
changed() { is "$(value $slot memory_limit_bytes) $(value $slot weight)" "$1 $2"; }
check "an operator makes the slot smaller" run cgpuctl inst set $slot --mem 1536MiB --weight 3
check "it is" changed $((1536 << 20)) 3
check "the pod is deleted, too" delete next
check "the slot is free and clean" in_time clean
check "it has the profile's limit and weight again" in_time changed $((2 << 30)) 5
