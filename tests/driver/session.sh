#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# session.sh: NVIDIA's driver and unmodified programs in the test machine (test.sh puts the files
# there): first without our module, then through an instance, then through two at once. What
# programs and the kernel say is compared. Ends in "session: N passed, N failed".
# shellcheck disable=SC1091  # paths in the machine
. /vm.conf
. /guest-lib.sh
. /files/guest-check.sh
. /files/programs.sh

# When the driver refuses to make an object, the module frees the object's handle all the same
# (cgpu_km/proxy/sent.rs). Branch 535 logs that there is none; later branches do not.
left_out() {
	if grep -q ' 535\.' /proc/driver/nvidia/version; then
		grep -v 'serverFreeResourceTree: hObject N not found'
	else
		cat
	fi
}
# Numbers, such as processes and handles, are others each time.
nvrm_lines() {
	dmesg -c | sed -n -E -e 's/0x[0-9a-fA-F]+|[0-9]+/N/g' -e 's/.*(NVRM: .*)/\1/p' |
		left_out | sort -u
}

# Questions to nvidia-smi, with the file that keeps the answer.
FIELDS=name,uuid,pci.bus_id,utilization.gpu,compute_mode,persistence_mode
cat >"$out/questions" <<END
table nvidia-smi
list nvidia-smi -L
all nvidia-smi -q
topology nvidia-smi topo -m
processes nvidia-smi pmon -c 1
monitor nvidia-smi dmon -c 1
query nvidia-smi --query-gpu=$FIELDS --format=csv
apps nvidia-smi --query-compute-apps=pid,process_name --format=csv
opencl clinfo
END
# ask WAY COMMAND...: all of it, answers and exit codes in $out/WAY.NAME.
ask() {
	way=$1
	shift
	while read -r name words; do
		# shellcheck disable=SC2086  # words
		"$@" $words >"$out/$way.$name" 2>&1 </dev/null
		echo "exit code $?" >>"$out/$way.$name"
	done <"$out/questions"
}

# Lines that are meant to differ in an instance: memory is its limit, some counters are the whole
# GPU's, and time passes. The LUID is what clinfo finds in its memory: the driver writes none where
# "Valid Device LUID" is No. Of a line with an amount of memory the rest is compared.
DIFFERENT='Timestamp|^[A-Z][a-z]{2} [A-Z][a-z]{2} |Addressing Mode|Tx Throughput|Rx Throughput'
DIFFERENT="$DIFFERENT|Global memory size|Max memory allocation|^ +Device LUID "
DIFFERENT="$DIFFERENT|Encoder|Decoder|JPEG|OFA|FBC Stats|Active Sessions|Average (FPS|Latency)"
# answers_alike NAME: there is an answer, it is the same, and the program says that all is well.
answers_alike() {
	for way in direct instance; do
		grep -v -E "$DIFFERENT" "$out/$way.$1" | sed -E 's/ *[0-9]+ ?MiB/ N MiB/g' >"$out/$way"
		# Two lines, of which the last one is that of the exit code.
		[ "$(wc -l <"$out/$way")" -ge 2 ] || { echo "FAILED $way: no answer"; return 1; }
		if [ "$(tail -n 1 "$out/$way")" != "exit code 0" ]; then
			sed "s/^/FAILED $way: /" "$out/$way" | tail -n 3
			return 1
		fi
	done
	diff "$out/direct" "$out/instance" >"$out/different" && return
	# With this word each of the lines is told again at the end of make test.
	sed 's/^[<>]/FAILED &/' "$out/different"
	return 1
}

CASES=${CASES:-$(cuda-check --list)}
# MiB of the GPU that are in use, as the host is told by the driver, which counts what UVM has.
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits; }

# ---- without the module
load_driver
# Somebody has the GPU open: otherwise the driver starts it anew for each program.
exec 9<>/dev/nvidia0
check "the GPU starts" grep -q "UUID:.*GPU-[0-9a-f]" /proc/driver/nvidia/gpus/*/information
check "nvidia-smi names it" run nvidia-smi -L
check "and its UUID" says "UUID: GPU-"
ask direct
check "OpenCL finds it" grep -q "Device Name.*NVIDIA H200" "$out/direct.opencl"
nvrm_lines >"$out/start.nvrm"
check "the kernel's log has what the driver says" grep -q "loading NVIDIA UNIX" "$out/start.nvrm"
at_first=$(used)
# shellcheck disable=SC2086  # words
cuda-check $CASES >"$out/direct.cuda" 2>&1
cases directly "$out/direct.cuda"
nvrm_lines >"$out/direct.nvrm"

# ---- through an instance
load_module
check "an instance is made" run cgpuctl inst create a --gpu 0 --mem 4GiB
interface() { cgpuctl doctor | grep -q 'kernel-interface.*can be switched'; }
check "the module uses the driver's kernel interface" interface
ask instance inside a
while read -r name words; do
	check "$words: as without the module" answers_alike "$name"
done <"$out/questions"
# shellcheck disable=SC2086
inside a cuda-check --total $((4 << 30)) $CASES >"$out/instance.cuda" 2>&1
cases "in an instance" "$out/instance.cuda"
idle() { is "$(value "$1" memory_used_bytes)" 0 && is "$(value "$1" open_file_count)" 0; }
check "nothing is left of its programs" within 10 idle a
run cgpuctl inst show a --refused
sed 's/^/refused: /' "$out/said"
# Calls of 550's own programs that the module does not know, and refuses: they go on without.
# Sessions of MIG; the load of the video engines, of PCIe, and sessions of encoders and NvFBC, which
# are of the whole GPU; two of which NVIDIA's open sources have nothing.
UNLISTED="0xc639 0xc640 0x20802087 0x20801819 0x2080016d 0x2080017b 0x80028b 0x20800152"
no_other_refusals() {
	awk '/ unlisted / { print $3 }' "$out/said" | sort >"$out/unlisted"
	printf '%s\n' $UNLISTED | sort | diff - "$out/unlisted"
}
if grep -q ' 550\.' /proc/driver/nvidia/version && [ "$CASES" = "$(cuda-check --list)" ]; then
	check "its programs' calls are known, but for eight" no_other_refusals
fi

# ---- two at once
check "a second instance is made" run cgpuctl inst create b --gpu 0 --mem 2GiB
inside b cuda-check --total $((2 << 30)) memory copies out-of-memory >"$out/b.cuda" 2>&1 &
inside a cuda-check --total $((4 << 30)) memory copies out-of-memory >"$out/a.cuda" 2>&1
wait $!
cases "in one of two" "$out/a.cuda"
cases "in the other" "$out/b.cuda"
check "nothing is left" within 10 idle a
check "nothing is left" within 10 idle b

# ---- two programs at once, each in its instance: who is told of which
ask_who="nvidia-smi --query-compute-apps=pid --format=csv,noheader"
touch "$out/both"
inside a cuda-check --around "while [ -e $out/both ]; do sleep 0.2; done" >"$out/a.cuda" 2>&1 &
working=$!
check "a program is at work in one of them" within 60 grep -q "^before: " "$out/a.cuda"
cat >"$out/ask" <<END
$ask_who >$out/b.apps
nvidia-smi pmon -c 1 >$out/b.pmon
touch $out/asked
while [ -e $out/both ]; do sleep 0.2; done
END
inside b cuda-check --around "sh $out/ask" >"$out/b.cuda" 2>&1 &
beside=$!
check "nvidia-smi is asked beside a program in the other" within 60 test -e "$out/asked"
$ask_who >"$out/host.apps"
check "the host is told of both" is "$(grep -c '[0-9]' "$out/host.apps")" 2
check "inside there is one" is "$(grep -c '[0-9]' "$out/b.apps")" 1
check "pmon has that one, too" is "$(awk '$1 == 0 && $2 > 0' "$out/b.pmon" | wc -l)" 1
rm "$out/both"
wait $working $beside
check "nothing is left" within 10 idle a
check "nothing is left" within 10 idle b

# ---- a limit that changes under a program
# told WHEN WHICH: the bytes that the last program was told; WHICH: 2 free, 4 of how many.
told() { awk -v when="$1:" -v which="$2" '$1 == when { print $which }' "$out/said"; }
around() { run inside a cuda-check --around "cgpuctl inst set-mem a $1 >/dev/null"; }
check "the limit is raised under a program" around 6GiB
for when in before after later; do
	check "$when: the total is that of its start" is "$(told $when 4)" $((4 << 30))
done
check "as much is free of it as before" is "$(told after 2)" "$(told before 2)"
# The page tables of another context's semaphores stay charged.
less=$(($(told before 2) - $(told later 2)))
check "no more is free after another context" [ $less -ge 0 ]
check "and less by few page tables" [ $less -le 65536 ]
check "a new program is told the new limit" run inside a cuda-check --total $((6 << 30)) memory
check "the limit is lowered under a program" around 3GiB
less=$(($(told before 2) - $(told after 2)))
check "as much less is free as the limit is lower" is $less $((3 << 30))
check "a new program is told the lower limit" run inside a cuda-check --total $((3 << 30)) memory
check "nothing is left" within 10 idle a

# ---- managed memory beyond the limit
check "an instance for managed memory is made" run cgpuctl inst create m --gpu 0 --mem 1GiB
before=$(used)
inside m cuda-check --managed-beyond 256 \
	"touch $out/full; until [ -e $out/seen ]; do sleep 0.2; done" >"$out/m.cuda" 2>&1 &
working=$!
check "a program has more managed memory than its limit" within 200 test -e "$out/full"
more=$(($(used) - before))
touch "$out/seen"
# between LEAST VALUE MOST
between() { echo "$2, not from $1 to $3"; [ "$2" -ge "$1" ] && [ "$2" -le "$3" ]; }
# UVM takes 128 MiB from the driver at a time (`alloc_root_chunk()`, uvm_pmm_gpu.c).
check "the GPU has no more of it than the limit" between 512 $more $((1024 + 126))
check "the rest is spilled" [ "$(value m memory_spilled_bytes)" -ge $((200 << 20)) ]
wait $working
cp "$out/m.cuda" "$out/said"
check "all of its bytes are right" says "managed: all marks are there"
check "nothing is left" within 10 idle m
check "instances go" run cgpuctl inst destroy m
nvrm_lines >"$out/instance.nvrm"
no_other_lines() {
	# Twice there: what is left alone is the instance's.
	sort "$out/direct.nvrm" "$out/direct.nvrm" "$out/instance.nvrm" | uniq -u >"$out/ours"
	[ ! -s "$out/ours" ] || { cat "$out/ours"; return 1; }
}
check "the driver logs nothing that it does not log without the module" no_other_lines
check "instances go" run cgpuctl inst destroy a
check "instances go" run cgpuctl inst destroy b
unload_module
check "as much of the GPU's memory is in use as at first" is "$(used)" "$at_first"
exec 9>&-
unload_driver
rm -rf "$out"
echo "session: $passed passed, $failed failed"
[ "$failed" = 0 ]
