# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# programs.sh: unmodified programs in instances, and what is counted of them. To be sourced in the
# test machine after guest-check.sh, whose functions it uses.

# inside INSTANCE COMMAND...: with the instance's nodes in the place of the driver's.
inside() {
	# shellcheck disable=SC2016  # the inner shell expands
	unshare -m sh -c '
		instance=$1
		shift
		for node in "/run/cgpu/dev/$instance"/*; do
			mount --bind "$node" "/dev/${node##*/}" || exit 99
		done
		exec "$@"' sh "$@"
}

# cases WAY FILE: what cuda-check said, a case for each line of its.
cases() {
	sed -n -E 's/^([a-z-]+): (ok|FAILED.*)$/\1 \2/p' "$2" >"$out/lines"
	while read -r name verdict; do
		check "CUDA $1: $name" is "$verdict" ok
	done <"$out/lines"
	cp "$2" "$out/said"
	check "CUDA $1: it ended" says " 0 failed"
}
