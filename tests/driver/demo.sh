#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# demo.sh [--idle]: two containers share an emulated GPU in the test machine, where tests/vm/demo.sh
# starts this. In each a CUDA program takes memory until there is no more, and nvidia-smi is asked
# then. It must say what `cgpuctl inst list` calls USED. The limit of one is raised while its
# program runs. Progress goes to stderr, the table to stdout. --idle: also shows what nvidia-smi
# says before the programs start.
# shellcheck disable=SC1091  # paths in the machine
. /vm.conf
. /guest-lib.sh
. /files/guest-check.sh

# Memory that a program allocates at a time, in MiB.
PIECE=512
# Seconds that anything may take, on a host that is busy with something else.
PATIENCE=600

tell() { echo "demo: $*" >&2; }
end() {
	tell "$*"
	exit 1
}
# operator COMMAND...: shows it, and runs it.
operator() {
	tell "# $*"
	"$@" >/dev/null || end "$1 exited with $?"
}
gib() { awk -v bytes="$1" 'BEGIN { printf "%.2f GiB", bytes / 1073741824 }'; }

# container NAME COMMAND...: runs a command with a root and namespaces of its own. Its /dev has the
# nodes of the instance of that name and no others.
container() {
	# shellcheck disable=SC2016  # the inner shell expands
	unshare -m -u -i -p -f sh -euc '
		name=$1
		root=/containers/$name
		shift
		hostname "$name"
		for folder in bin lib64 usr proc dev tmp; do
			mkdir -p "$root/$folder"
		done
		for folder in bin lib64 usr; do
			mount --bind "/$folder" "$root/$folder"
		done
		mount -t proc proc "$root/proc"
		mount -t tmpfs tmpfs "$root/dev"
		for node in /dev/null "/run/cgpu/dev/$name"/*; do
			: >"$root/dev/${node##*/}"
			mount --bind "$node" "$root/dev/${node##*/}"
		done
		exec chroot "$root" "$@"' sh "$@"
}
# A container's program does this each time when it holds all that it gets: it asks nvidia-smi, and
# waits until the operator lets it go on.
full() {
	echo "nvidia-smi >/tmp/$1.table && touch /tmp/$1.full
		until [ -e /tmp/$1.go-on ]; do sleep 0.1; done"
}
# program NAME TIMES...: the CUDA program in the container of that name.
program() {
	name=$1
	shift
	mkdir -p "/containers/$name/tmp"
	for time; do
		set -- "$@" "$(full "$time")"
		shift
	done
	container "$name" cuda-check --fill $PIECE "$@" >"/containers/$name/tmp/said" 2>&1
	echo $? >"/containers/$name/tmp/ended"
}
# holds NAME TIME: waits until its program holds all that it gets, and shows what it says.
holds() {
	patience=$PATIENCE
	until [ -e "/containers/$1/tmp/$2.full" ]; do
		[ ! -e "/containers/$1/tmp/ended" ] && [ $patience -gt 0 ] ||
			end "$1 ended early: $(cat "/containers/$1/tmp/said")"
		patience=$((patience - 1))
		sleep 1
	done
	tell "$1: $(tail -n 1 "/containers/$1/tmp/said")"
}
go_on() { touch "/containers/$1/tmp/$2.go-on"; }
# memory NAME TIME: used and total, of nvidia-smi's table.
memory() {
	sed -n -E 's/.* ([0-9]+MiB) *\/ *([0-9]+MiB) .*/\1 of \2/p' "/containers/$1/tmp/$2.table"
}
# listed NAME: USED of `cgpuctl inst list`.
listed() { cgpuctl inst list | awk -v name="$1" '$1 == name { print $4 " " $5 }'; }
# agree NAME TIME: keeps what is listed. It is what nvidia-smi said in the container a moment ago:
# that rounds up to a MiB, and the list down to a hundredth of a GiB.
agree() {
	listed "$1" >"/containers/$1/tmp/$2.listed"
	mib=$(memory "$1" "$2")
	mib=${mib%%MiB*}
	charged=$(value "$1" memory_charged_bytes)
	if [ "$mib" != $(((charged + 1048575) / 1048576)) ] ||
		! awk -v mib="$mib" \
			'{ exit !($2 == "GiB" && $1 * 1024 <= mib && mib - 1 < ($1 + 0.01) * 1024) }' \
			"/containers/$1/tmp/$2.listed"; then
		end "$1: nvidia-smi says $mib MiB, inst list $(listed "$1") of $charged bytes"
	fi
}
free_again() { [ "$(value "$1" memory_used_bytes)" = 0 ]; }
# row NAME LIMIT TIME...: a line of the table at the end.
row() {
	name=$1
	limit=$2
	shift 2
	used='' shown=''
	for time; do
		used="$used${used:+, then }$(cat "/containers/$name/tmp/$time.listed")"
		shown="$shown${shown:+, then }$(memory "$name" "$time")"
	done
	echo "$name|$limit|$used|$shown"
}

# Somebody has the GPU open: otherwise the driver starts it anew for each program.
exec 9<>/dev/nvidia0
operator cgpuctl inst create infer --gpu 0 --mem 16GiB
operator cgpuctl inst create train --gpu 0 --mem 8GiB
if [ "${1:-}" = --idle ]; then
	tell "train# nvidia-smi"
	container train nvidia-smi >&2 || end "nvidia-smi exited with $?"
fi
program infer first &
program train first second &
holds infer first
agree infer first
holds train first
agree train first
operator cgpuctl inst set train --mem 24GiB
go_on train first
holds train second
agree train second
tell "train# nvidia-smi"
cat /containers/train/tmp/second.table >&2
{
	echo "instance|limit|inst list|nvidia-smi"
	row infer "$(gib "$(value infer memory_limit_bytes)")" first
	row train "8.00 GiB, then $(gib "$(value train memory_limit_bytes)")" first second
} >/tmp/table
go_on infer first
go_on train second
wait
for name in infer train; do
	[ "$(cat /containers/$name/tmp/ended)" = 0 ] ||
		end "$name's program exited with $(cat /containers/$name/tmp/ended)"
	within 10 free_again $name || end "$name still has memory charged"
	operator cgpuctl inst destroy $name
done
exec 9>&-
awk -F '|' '
	{
		for (at = 1; at <= NF; at++) {
			cell[NR, at] = $at
			if (length($at) > width[at]) width[at] = length($at)
		}
	}
	END {
		for (row = 1; row <= NR; row++) {
			for (at = 1; at < NF; at++) printf "%-" width[at] + 2 "s", cell[row, at]
			print cell[row, NF]
		}
	}' /tmp/table
