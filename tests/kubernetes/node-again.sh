# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# node-again.sh: the cases after the node's reboot. To be sourced by node-session.sh, whose
# functions it uses.
read -r third id sixth </images/before
check "a pod from before the reboot runs again, with its claim prepared anew" in_time holds third 4
check "by the same name" is "$(instance third)" "$third"
check "with its limit" is "$(value "$third" memory_limit_bytes)" $((4 << 30))
check "it sees its limit" is "$(logged third 'the GPU has 4.00 GiB')" 2
sixth_is_gone() { is "$(kubectl get pod sixth --ignore-not-found -o name || echo asked)" ""; }
check "a pod that was deleted while the node was down is gone" in_time sixth_is_gone
check "and nothing of it is left" in_time gone "$sixth"
check "a new pod gets an instance" tenant seventh 8
check "pods are deleted" run kubectl delete pods --all --timeout=50m
check "their instances are gone" in_time gone "$third"
check "and nothing is left of any claim" in_time nothing

# ---- a device plugin in the place of claims
# shellcheck source-path=SCRIPTDIR source=node-plugin.sh
. /files/node-plugin.sh
