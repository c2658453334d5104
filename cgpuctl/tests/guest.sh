#!/bin/sh
# SPDX-License-Identifier: GPL-2.0 OR MIT
# guest.sh [CGPUCTL]: the tool against the loaded module, in the test machine, as root.
#
# Wants tests/vm/guest-check.sh beside it, a driver (the stand-in) with at least two GPUs and their
# device nodes, and cgpu_km loaded without any instance; unloads cgpu_km at its end. Needs no more
# than busybox. Ends in "N passed, N failed".

cgpuctl=${1:-cgpuctl}
nodes=/run/cgpu/dev
# shellcheck source-path=SCRIPTDIR/../../tests/vm source=guest-check.sh
. "$(dirname "$0")/guest-check.sh"

# run CODE ARGUMENT...: whether cgpuctl ends with this exit code.
run() {
	want=$1
	shift
	"$cgpuctl" "$@" >"$out/said" 2>"$out/stderr"
	got=$?
	[ "$got" = "$want" ] || { echo "exit $got, not $want"; cat "$out/stderr"; return 1; }
}

# step CODE ARGUMENT...: the same as a check.
step() {
	check "cgpuctl $2 $3 $4 $5 ... ends with $1" run "$@"
}

complains() { grep -qF -- "$1" "$out/stderr" || { cat "$out/stderr"; return 1; }; }
absent() { [ ! -e "$1" ]; }
number() { stat -c '%F %t:%T' "$1"; }
mounted() { grep -q " $1 cgpufs " /proc/self/mounts; }

# As on a host where nothing has used the tool yet.
umount "$nodes"
rm -r /run/cgpu

step 0 status
check "status shows the driver's version" says "580."
step 0 gpu list -o wide
check "gpu list has two GPUs" is "$(grep -c GPU- "$out/said")" 2
step 0 inst list
check "no instance yet" says "No instances."
check "nothing is mounted before the first instance" not mounted "$nodes"

# A folder that is there already is closed.
mkdir -m 755 /run/cgpu
step 0 inst create solo --gpu 0 --mem 8GiB --weight 30
node=$(sed -n 's/.* \(\/dev\/cgpu[0-9]*\) .*/\1/p' "$out/said")
check "an instance has a node" test -c "$node"
check "only root can enter /run/cgpu" is "$(stat -c '%a %u' /run/cgpu)" "700 0"
check "cgpufs is mounted" mounted "$nodes"
same() { [ -c "/dev/$1" ] && is "$(number "$nodes/solo/$1")" "$(number "/dev/$1")"; }
check "a proxy node shows NVIDIA's number" same nvidia0
check "so does that of the control node" same nvidiactl
check "and that of UVM" same nvidia-uvm

step 6 inst create solo --gpu 0 --mem 1GiB
check "a name is taken" complains "the name is taken"
step 4 inst create other --gpu 7 --mem 1GiB
step 6 inst create other --gpu 0 --mem 900GiB --overcommit
check "one limit stays within the GPU" complains "take at most"
most=$(sed -n 's/.*take at most \([0-9.]*[A-Za-z]*\).*/\1/p' "$out/stderr")
step 6 inst create other --gpu 0 --mem "$most"
left=$(sed -n 's/.*take at most \([0-9.]*[A-Za-z]*\).*/\1/p' "$out/stderr")
step 0 inst create other --gpu 0 --mem "$left"
step 0 inst set-mem other "$most" --overcommit
step 0 inst set-mem other 512MiB
check "a small limit draws a warning" complains "under 1 GiB"
step 0 ls -q
check "names can be had alone" is "$(cat "$out/said")" "$(printf 'other\nsolo')"
step 0 rm other
step 0 bug-report --to-file "$out/report.tar"
check "the report has the kernel's messages of the module" sh -c \
	"tar -xOf '$out/report.tar' cgpu-bug-report/kernel-log | grep -q cgpu_km"
step 1 bug-report --to-file "$out/report.tar"
step 0 version
check "version has the module's" says "module"

step 6 inst create solo --gpu 1,0 --mem 1GiB
check "what a failed command made is gone" complains "on GPU 1 was removed again"
step 0 inst create pair --gpu 0 --gpu 1 --mem 4GiB
check "a tenant has one folder for both GPUs" test -c $nodes/pair/nvidia0 -a -c $nodes/pair/nvidia1
step 2 inst set pair --weight 7
check "a name on two GPUs needs a GPU" complains "GPUs 0 and 1"
step 0 inst set pair --weight 7 --gpu 0,1
step 0 inst show pair --json
check "the weight is set on both" is "$(grep -c '"weight": 7' "$out/said")" 2
step 0 inst mounts pair
for node in $(sed -n 's/^  --device=\([^ :]*\).*/\1/p' "$out/said" | sort -u); do
	check "$node, which mounts names, exists" test -c "$node"
done
step 0 inst mounts pair --json
minor=$(printf %d 0x"$(stat -c %T /dev/cgpu-pair-ctl)")
check "mounts tells the numbers of the nodes" says "\"minor\": $minor"

step 0 ps pair
check "nobody holds memory" says "No process holds memory."
exec 3<>$nodes/pair/nvidia1
step 6 inst destroy pair --gpu 1
check "an open file keeps an instance" complains "1 open file"
step 6 unload
check "and the module" complains "pair on GPU 1 is in use"
exec 3>&-
exec 3<>$nodes/pair/nvidiactl
step 6 unload
exec 3>&-

# A program in an instance of its own: it sees the proxy node at the GPU's place, nobody else does.
step 2 run --mem 1GiB -- true
check "run wants a GPU named where there are two" complains "name one with --gpu"
step 7 run --gpu 0 --mem 2GiB --name try -- \
	sh -c "[ /dev/nvidia0 -ef $nodes/try/nvidia0 ] && $cgpuctl ls -q && exit 7"
check "its instance is there meanwhile" says try
check "and gone after it" absent $nodes/try
check "the host's node is the real one again" sh -c "! [ /dev/nvidia0 -ef $nodes/solo/nvidia0 ]"
step 1 run --gpu 0 --mem 2GiB --name try -- /nobody
check "a program that is not there leaves no instance" absent $nodes/try
step 143 run --gpu 0 --mem 2GiB --name try -- sh -c 'kill -TERM $$'
$cgpuctl run --gpu 0 --mem 2GiB --name try -- sh -c "touch $out/runs; exec sleep 600" &
runner=$!
while [ ! -e "$out/runs" ]; do sleep 1; done
kill -TERM $runner
wait $runner
check "what ends it ends its program" is $? 143
check "and removes the instance" absent $nodes/try
$cgpuctl run --gpu 0 --mem 2GiB --name try -- sh -c "touch $out/hangs; exec sleep 600" &
runner=$!
while [ ! -e "$out/hangs" ]; do sleep 1; done
kill -HUP $runner
wait $runner
check "so does another signal to it alone" is $? 129
check "which removes the instance, too" absent $nodes/try
$cgpuctl run --gpu 0 --mem 2GiB --name try -- \
	sh -c "echo \$\$ >$out/program; touch $out/runs2; exec sleep 600" &
runner=$!
while [ ! -e "$out/runs2" ]; do sleep 1; done
kill -KILL $runner
wait $runner 2>/dev/null
check "one that is killed leaves its instance" test -e $nodes/try
step 0 run --gpu 0 --mem 2GiB --name next -- true
check "which the next one removes" absent $nodes/try
# The program of the one that was killed, whose mounts would keep the module.
kill -KILL "$(cat "$out/program")"
while kill -0 "$(cat "$out/program")" 2>/dev/null; do sleep 1; done

touch "$out/nvidia0"
mount --bind $nodes/solo/nvidia0 "$out/nvidia0"
step 6 unload
check "a proxy node mounted here is named" complains "$out/nvidia0"
umount "$out/nvidia0"
# As a container's runtime does: a mount namespace in which nothing but the proxy node is left of
# cgpufs.
unshare -m --propagation private sh -c \
	"mount --bind $nodes/solo/nvidia0 $out/nvidia0 && umount $nodes && touch $out/ready && sleep 60" &
holder=$!
while [ ! -e "$out/ready" ]; do sleep 1; done
step 6 unload
check "a proxy node mounted elsewhere keeps the module" complains "something still uses the module"
check "cgpufs is mounted again" mounted "$nodes"
step 0 inst list
check "and nothing was destroyed" is "$(grep -c /dev/cgpu "$out/said")" 3
kill "$holder"
wait "$holder" 2>/dev/null
rm -f "$out/ready"

check "a user namespace's root is not permitted" sh -c \
	"unshare -U $cgpuctl status >$out/said 2>$out/stderr; [ \$? = 5 ]"

# One more than the tool asks room for at first.
n=1
while [ $n -lt 64 ] && run 0 inst create "n$n" --gpu 1 --mem 1GiB; do n=$((n + 1)); done
check "a GPU takes 64 instances" is $n 64
step 6 inst create n64 --gpu 1 --mem 1GiB
check "and no more" complains "64 instances"
# Their limits of channels are the whole runlist, so the third setting is refused by the module.
step 6 inst set n5 --mem 2GiB --weight 9 --channels 2044
check "channels over the runlist are refused" complains "2044 of a runlist"
check "what was set before is told to be changed back" complains "was changed back"
step 0 inst show n5 --json
check "and the memory limit is the old one" says '"memory_limit_bytes": 1073741824'
check "so is the weight" says '"weight": 1,'
step 0 inst set n5 --mem 2GiB --weight 9 --overcommit --channels 2044
step 0 inst show n5 --json
check "with --overcommit all three are set" says '"memory_limit_bytes": 2147483648'
check "the weight" says '"weight": 9,'
check "and the channels" says '"channel_limit": 2044'
step 0 inst list
check "a long list is whole" is "$(grep -c /dev/cgpu "$out/said")" 66

step 0 inst save "$out/saved.toml"
step 0 apply -f "$out/saved.toml" --prune
check "what was saved is what is there" says "Nothing to change."
step 0 inst set solo --weight 50 --burst 20 --objects 9999
step 0 apply -f "$out/saved.toml"
check "apply shows what it changes" says "~ solo on GPU 0: weight 30, was 50"
step 0 apply -f "$out/saved.toml"
check "and has nothing to do then" says "Nothing to change."

step 0 inst destroy solo
step 4 inst destroy solo
check "its proxy nodes are gone" absent $nodes/solo
step 0 unload
check "idle instances are named" says "pair on GPU 1: destroyed"
check "the module is unloaded" not grep -q '^cgpu_km ' /proc/modules
check "nothing is mounted" not mounted "$nodes"
check "no folder is left" absent /run/cgpu
check "no node is left" is "$(echo /dev/cgpu*)" "/dev/cgpu*"
step 3 status
step 3 unload

rm -rf "$out"
echo "cgpuctl: $passed passed, $failed failed"
[ "$failed" = 0 ]
