#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# demo.sh [--check]: two containers share an emulated GPU in the test machine, with NVIDIA's own
# driver, CUDA and nvidia-smi (tests/driver/demo.sh): a table on stdout, progress on stderr.
# --check: the table is README's, but for what the driver's version changes: how much CUDA and
# nvidia-smi count as used. So is what nvidia-smi prints in an instance without programs.
set -euo pipefail
here=$(dirname "$0")

demo() { # demo [--idle]
	# As much memory as an H100 has, of which the machine need not keep account page by page (HMM).
	REAL_MEMORY=81920 "$here/run.sh" --name demo --driver real --limit 1800 \
		--fake uvm_disable_hmm=1 \
		--file "$here/guest-check.sh" --file "$here/../driver/demo.sh" -- sh /files/demo.sh "$@"
}

# The lines of the table, without the columns' width and the memory that is used.
comparable() {
	sed -nE '/^instance  +limit /,/^```/ {
		/^```/d
		s/  +/|/g
		s/^([^|]*\|[^|]*)\|[^|]*/\1/
		s/[0-9]+MiB of/... of/g
		p
	}' "$@"
}

# The upper table of nvidia-smi, the first that there is, but for versions and what is used.
upper() {
	awk '/^```/ { inside = !inside } /^\+-/ && inside + all { on = 1 }
		on && !/^[+|]/ { exit } on' all="$1" "$2" |
		sed -E 's/[0-9]+\.[0-9.]+/N/g; s/[0-9]+MiB \//N \//' | tr -s ' '
}

[ "${1:-}" = --check ] || {
	demo
	exit
}
told=$(mktemp)
trap 'rm -f "$told"' EXIT
table=$(demo --idle 2> >(tee "$told" >&2))
printf '%s\n' "$table"
if ! diff <(comparable "$here/../../README.md") <(comparable <<<"$table") >&2; then
	echo "demo: README.md shows another table than the demo prints" >&2
	exit 1
fi
if ! diff <(upper 0 "$here/../../README.md") <(upper 1 "$told") >&2; then
	echo "demo: README.md shows another table of nvidia-smi than there is" >&2
	exit 1
fi
