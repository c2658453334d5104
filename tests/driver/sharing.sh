#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# sharing.sh: the scheduler, from a CUDA program's launch to the engine and back, on NVIDIA's
# driver: kernels take time on the emulated GPU, whose engine is that of tests/gpu_model. What two
# programs get is compared with their instances' weights. Ends in "sharing: N passed, N failed".
# shellcheck disable=SC1091  # paths in the machine
. /vm.conf
. /guest-lib.sh
. /files/guest-check.sh
. /files/programs.sh

# Kernels of so many microseconds, for so many seconds.
LENGTH=10000
TIME=6
# How often programs are killed in the midst of their work.
KILLS=3
# works INSTANCE: a program that always has work; what it says is in $out/work.INSTANCE.
works() { inside "$1" timeout -s KILL 900 cuda-check --work $LENGTH $TIME >"$out/work.$1" 2>&1; }
begun() { grep -q begins "$out/work.$1"; }
# How many of its kernels have ended.
ended() { sed -n 's/^ended: //p' "$out/work.$1" | tail -n 1; }
# between LEAST VALUE MOST
between() { echo "$2, not from $1 to $3" && [ "$2" -ge "$1" ] && [ "$2" -le "$3" ]; }
# share LEAST MOST: the part of a's kernels of those that end while both work, in percent. A host
# that is busy with something else may keep a program from launching, and the other one then has
# its turns: of five windows one has to be right. Weights that do not count are right in none.
share() {
	for window in 1 2 3 4 5; do
		a=$(ended a) b=$(ended b)
		sleep 6
		a=$(($(ended a) - a)) b=$(($(ended b) - b))
		echo "window $window: $a of a's, $b of b's"
		[ $((a + b)) -gt 0 ] || continue
		part=$((100 * a / (a + b)))
		[ $part -lt "$1" ] || [ $part -gt "$2" ] || return 0
	done
	return 1
}
# more_than COUNT: so many of a's kernels have ended, and then some.
more_than() { [ "$(ended a)" -gt "$1" ]; }
# stands_still MOST: a's program is there, and in five seconds no more than MOST kernels end.
stands_still() {
	before=$(ended a)
	sleep 5
	kill -0 $working && between 0 $(($(ended a) - before)) "$1"
}
# killed TIMES: a program in each instance is killed while its kernels run, so many times.
killed() {
	for time in $(seq "$1"); do
		echo "time $time"
		works a &
		works b &
		within 60 begun a || return 1
		within 60 begun b || return 1
		killall -9 cuda-check
		wait
	done
}
idle() { is "$(value "$1" memory_used_bytes)" 0 && is "$(value "$1" open_file_count)" 0; }

load_driver
exec 9<>/dev/nvidia0
load_module
check "an instance is made" run cgpuctl inst create a --gpu 0 --mem 2GiB --weight 75
check "a second instance is made" run cgpuctl inst create b --gpu 0 --mem 2GiB --weight 25

# A program that moves memory and launches kernels does so under every policy.
for policy in native fair preemptive weight fixed soft; do
	check "the policy is $policy" run cgpuctl gpu set 0 --policy $policy
	inside a cuda-check copies memset launch >"$out/policy" 2>&1
	cases "with the policy $policy" "$out/policy"
done
check "weights count" run cgpuctl gpu set 0 --policy weight

check "a program alone works" works a
# The host may be busy with something else, and takes the time from all.
most=$((TIME * 1000000 / LENGTH))
check "its kernels take as long as they say" between $((most / 3)) "$(ended a)" $((most + 4))

# Both work from here on, and what they get follows what is set.
TIME=900
works a &
works b &
check "two work at once: one" within 60 begun a
check "two work at once: the other" within 60 begun b
check "75 to 25: a has three quarters" share 65 85
check "weights are turned round" run cgpuctl inst set-weight a 25
check "weights are turned round" run cgpuctl inst set-weight b 75
check "25 to 75: a has one quarter" share 15 35
check "an instance has high priority" run cgpuctl inst set-priority a high
check "high priority: a has more than its weight" share 40 100
check "priority is normal again" run cgpuctl inst set-priority a normal
killall -9 cuda-check
wait
check "nothing is left of a's program" within 20 idle a
check "nothing is left of b's program" within 20 idle b

# The driver stops the channels of a killed program, unmaps its memory, and frees the channels, in
# this order. A kernel that ended in between would write to unmapped memory (Xid 31 in the log).
check "programs are killed while their kernels run" killed $KILLS
check "nothing is left of a's programs" within 20 idle a
check "nothing is left of b's programs" within 20 idle b

# Suspended, a program waits and loses nothing.
TIME=30
works a &
working=$!
check "a program works" within 60 begun a
check "its kernels end" within 20 more_than 0
check "and go on ending" within 20 more_than "$(ended a)"
check "it is suspended" run cgpuctl inst suspend a
sleep 3
check "suspended, next to none of its kernels ends" stands_still 10
before=$(ended a)
check "it is resumed" run cgpuctl inst resume a
wait $working
check "and goes on to its end" between $((before + 1)) "$(ended a)" $((TIME * 1000000 / LENGTH))

# The same in the midst of a kernel: its context is preempted within it (CILP).
# It is so long that it has not ended when the instance is suspended, on a busy machine too.
LENGTH=8000000
TIME=1
works a &
working=$!
check "a program works in long kernels" within 60 begun a
check "it is suspended in the midst of one" run cgpuctl inst suspend a
sleep 10
check "the kernel does not end" not grep -q "^ended" "$out/work.a"
check "it is resumed" run cgpuctl inst resume a
check "the kernel ends" within 60 grep -q "^ended" "$out/work.a"
killall -9 cuda-check
wait $working

for instance in a b; do
	check "nothing is left of $instance's programs" within 20 idle $instance
	check "$instance goes" run cgpuctl inst destroy $instance
done
exec 9>&-
unload_module
unload_driver
rm -rf "$out"
echo "sharing: $passed passed, $failed failed"
[ "$failed" = 0 ]
