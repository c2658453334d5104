# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# node-first.sh: the cases of the node's first boot. To be sourced by node-session.sh, whose
# functions it uses.

# ---- two pods on one GPU
check "a pod with 8 GiB runs" tenant small 8
check "a pod with 16 GiB runs on the same GPU" tenant large 16
small=$(instance small) large=$(instance large)
for pod in small large; do
	check "$pod: it sees its limit, before its program and after" \
		is "$(logged $pod "the GPU has $([ $pod = small ] && echo 8 || echo 16).00 GiB")" 2
	check "$pod: a recorded CUDA program ran in it" \
		is "$(logged $pod 'a recorded CUDA program ran')" 1
	check "$pod: more than its limit is refused" \
		is "$(logged $pod 'more than the limit is refused')" 2
done
check "small: the instance has the limit" is "$(value "$small" memory_limit_bytes)" $((8 << 30))
check "large: the instance has the limit" is "$(value "$large" memory_limit_bytes)" $((16 << 30))

# ---- what the kubelet and the driver tell of them
# shellcheck source-path=SCRIPTDIR source=node-told.sh
. /files/node-told.sh

# ---- a container is killed
id=$(value "$small" id)
before=$(process 8)
check "a container is killed" kill -9 "$before"
other_process() { new=$(process "$1"); [ -n "$new" ] && [ "$new" != "$2" ]; }
check "it is started again" in_time other_process 8 "$before"
check "with the same instance" is "$(instance small) $(value "$small" id)" "$small $id"
check "which it can use" in_time holds small 8
check "the kubelet counts one restart" in_time restarted small 1

# ---- a pod is deleted
check "a pod is deleted" delete large
check "its instance is gone, and its CDI file" in_time gone "$large"
check "the other pod has run on" holds small 8

# ---- another system's names
webhook_runs() {
	is "$(kubectl get deployment cgpu-webhook --namespace cgpu \
		-o 'jsonpath={.status.readyReplicas}')" 1
}
check "the chart's Deployment runs the webhook in a pod" in_time webhook_runs
# The apiserver does not wait long for it.
check "a pod with HAMi's names is made" \
	in_time looks other 2 'nvidia.com/gpu: 1, nvidia.com/gpumem: 2048'
check "it gets a claim, and runs" in_time holds other 2
check "it is deleted" delete other

# ---- cgpu-dra is killed
third=$(instance third)
before=$(process 4)
check "cgpu-dra is killed in its container, and comes back" killed "$DRIVER"
check "a new pod gets an instance" tenant fourth 2
check "a pod from before has run on" same third 4 "$before"
check "with its instance" holds third 4
check "a pod from before is deleted" delete small
check "and nothing of it is left" in_time gone "$small"

# ---- the kubelet is killed
fourth=$(instance fourth)
check "the kubelet is killed, and comes back" killed '^kubelet '
check "it says that the node is ready" in_time heard_since "$died"
check "a new pod gets an instance" tenant fifth 2
check "a pod from before has run on" same third 4 "$before"
check "a pod from before is deleted" delete fourth
check "and nothing of it is left" in_time gone "$fourth"
check "a new one is deleted, too" delete fifth

# ---- how long it takes
# shellcheck source-path=SCRIPTDIR source=node-times.sh
. /files/node-times.sh
only_third() { is "$(cgpuctl inst list --json | grep -c '"gpu_minor"')" 1; }
check "of all that are gone nothing is left" in_time only_third

# ---- for the next boot
check "a pod runs that will be deleted while the node is down" tenant sixth 2
# Without a kubelet.
# shellcheck disable=SC2046  # process numbers are words
kill -9 $(processes '^(sh -c while.* sh )?kubelet ')
check "its deletion waits for the node" run kubectl delete pod sixth --wait=false
echo "$third $(value "$third" id) $(instance sixth)" >/images/before
slices >/images/slices
check "the slice of this boot is noted" [ -s /images/slices ]
