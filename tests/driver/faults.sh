#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# faults.sh: what goes wrong with real GPUs, on NVIDIA's driver and two emulated GPUs. The first one
# has the faults (the emulator's src/faults.rs): errors in the log, a refused allocation, firmware
# that is slow or dead, a channel that fails, a GPU that is gone. The module answers, the neighbour
# on that GPU runs as long as the GPU does, the tenant of the other GPU notices nothing, and nothing
# is left. Ends in "faults: N passed, N failed".
# shellcheck disable=SC1091,SC3045  # paths in the machine, whose sh is busybox
. /vm.conf
. /guest-lib.sh
. /files/guest-check.sh
. /files/programs.sh

# The line to the first GPU's emulator. It stays open: else its mode is forgotten.
say "GPUs fail"
exec 7<>/dev/ttyS3
stty -F /dev/ttyS3 raw -echo
# inject WORDS: a fault. It has happened when the emulator says so.
inject() {
	echo "$*" >&7
	while read -r -t 300 line <&7; do
		[ "$line" != "done: $*" ] || return 0
	done
	echo "FAILED: the emulator does not take the fault: $*"
	exit 1
}
logs() { dmesg | grep -E "NVRM: Xid .*: $1,"; }
# CUDA programs: in an instance, and what they say. One that hangs is killed, before cuda-check
# gives up by itself.
program() {
	instance=$1
	shift
	run inside "$instance" timeout -s KILL 300 cuda-check "$@"
}
# They fail by what they are told, in a case (1) or before (2), and not because they were killed
# (137).
has_failed() { [ "$1" = 1 ] || is "$1" 2; }
program_fails() {
	program "$@"
	has_failed $?
}
idle() { is "$(value "$1" memory_used_bytes)" 0 && is "$(value "$1" open_file_count)" 0; }

load_driver
# Somebody has the GPUs open: otherwise the driver starts them anew for each program.
exec 8<>/dev/nvidia0 9<>/dev/nvidia1
# As the driver names it in its errors: PCI:0000:00:04.
bus=$(nvidia-smi -i 0 --query-gpu=pci.bus_id --format=csv,noheader)
first_gpu=PCI:$(echo "${bus#0000}" | sed 's/\.0$//' | tr A-F a-f)
load_module
check "an instance is made" run cgpuctl inst create a --gpu 0 --mem 2GiB
check "another on the same GPU" run cgpuctl inst create b --gpu 0 --mem 2GiB
check "one on the other GPU" run cgpuctl inst create other --gpu 1 --mem 2GiB
# So the scheduler's own calls meet the faults as well.
check "weights count" run cgpuctl gpu set 0 --policy weight

# ---- errors that concern no channel, those of ECC memory among them
for error in "43 a test" "48 DBE (double bit error) ECC Error" "94 Contained ECC error"; do
	number=${error%% *}
	inject "xid $error"
	check "error $number is in the log" within 5 logs "$number"
done
check "a program runs after them" program a memory copies
check "nothing is left of it" within 10 idle a

# ---- an allocation that the firmware refuses: the next channel
inject "refuse 0xc86f 0x51"
check "a program whose channel is refused fails" program_fails a memory
check "the neighbour runs" program b memory
check "nothing is left of it" within 10 idle a
check "the next one runs" program a memory copies
check "nothing is left of that" within 10 idle a

# ---- firmware that is slow
inject "slow 30"
inside a timeout -s KILL 300 cuda-check memory copies >"$out/slow" 2>&1 &
waiting=$!
answers_beside() { run cgpuctl inst show a && kill -0 "$1"; }
# From then on the program waits for the firmware most of the time.
has_files() { kill -0 "$1" && [ "$(value a open_file_count)" -gt 0 ]; }
# Asked so often, the module is asked in the midst of such a call.
answers_all_along() {
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		answers_beside "$1" || return 1
	done
	has_files "$1"
}
check "a program is at work with slow firmware" within 60 has_files $waiting
check "the module answers all along" answers_all_along $waiting
check "the neighbour runs" program b memory
wait $waiting
check "a program runs with slow firmware" is $? 0
inject "slow 0"
check "nothing is left of the neighbour's program" within 10 idle b
check "nothing is left of it" within 10 idle a

# ---- a channel that fails
fails_of() { program a --broken-by "echo rc last 31 >/dev/ttyS3"; }
check "a program whose channel failed is told" fails_of
check "error 31 is in the log" within 5 logs 31
check "nothing is left of it" within 10 idle a
check "the neighbour runs" program b memory copies
check "the tenant itself runs again" program a memory copies

# ---- firmware that is dead, and at last a GPU that is gone
inject mute
inside b timeout -s KILL 900 cuda-check memory >"$out/mute" 2>&1 &
waiting=$!
check "error 119 is in the log" within 60 logs 119
check "the module answers meanwhile" answers_beside $waiting
check "the tenant of the other GPU runs" program other memory copies
inject lost
ended() { ! kill -0 $waiting 2>/dev/null; }
check "the program on the dead GPU ends" within 60 ended
wait $waiting
check "and has failed" has_failed $?
check "error 79 is in the log" within 20 logs 79
check "a new program fails" program_fails a memory
check "the tenant of the other GPU runs" program other memory copies
# count NUMBER: the errors of that number, of either GPU.
count() { dmesg | grep -cE "NVRM: Xid .*: $1,"; }
for number in 43 48 94 31; do
	check "there is one error $number" is "$(count $number)" 1
done
others() { dmesg | grep "NVRM: Xid" | grep -vE ": (43|48|94|31|119|79|154),"; }
check "there are no errors but these" not others
of_the_other() { dmesg | grep "NVRM: Xid" | grep -v "$first_gpu"; }
check "and none of the other GPU" not of_the_other
for instance in a b other; do
	check "nothing is left of $instance's programs" within 20 idle $instance
	check "$instance goes" run cgpuctl inst destroy $instance
done
exec 8>&- 9>&-
unload_module
unload_driver
exec 7>&-
rm -rf "$out"
echo "faults: $passed passed, $failed failed"
[ "$failed" = 0 ]
