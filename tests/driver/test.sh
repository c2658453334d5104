#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# test.sh [--kernel KERNEL] [session|orders|suite|faults|sharing ...]: the floor `driver`, all of it
# or these parts: NVIDIA's own modules in the test machine, on its stock kernel or another one of
# ../vm/build.sh's. One boot compares programs without our module and in instances (session.sh),
# another is for two GPUs and the other orders of loading (orders.sh), a third one for what `make
# test-vm` tests with the stand-in (suite.sh), the next for what goes wrong with GPUs (faults.sh),
# and the last for GPU time (sharing.sh). Whole sessions on branch 550 must have as many cases as
# docs/testing.md says, and NVIDIA's modules may log only what lines.txt has.
#
#   CASES="..."     only these of cuda-check's cases
#   ONLY=WORDS      only the suite's cases with these words
#   BESIDE=N        the attacks are also made beside so many other instances (0)
#   LIMIT=SECONDS   a boot is stopped after that (1800)
#   KEEP=FILE       keeps the kernel's logs there (FILE.session and so on), the emulator's beside
set -euo pipefail
parts="session orders suite faults sharing"
kernel=stock
asked=()
while [ $# -gt 0 ]; do
	case " $parts " in
	*" $1 "*) asked+=("$1") ;;
	*)
		if [ "$1" != --kernel ] || [ $# = 1 ]; then
			echo "test.sh: unknown word: $1. Known are $parts, and --kernel KERNEL." >&2
			exit 2
		fi
		kernel=$2
		shift
		;;
	esac
	shift
done
[ ${#asked[@]} -gt 0 ] || read -r -a asked <<<"$parts"
here=$(cd "$(dirname "$0")" && pwd)
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
KEEP=${KEEP:-$kept/log}

# The emulator may answer at most a fifth of the kinds of questions by echo, which knows nothing.
echoes() {
	awk '/kinds known/ {
		gsub(/[^0-9 ]/, "")
		known += $2; recorded += $3; echo += $4
	}
	END {
		all = known + recorded + echo
		bad = all == 0 || 5 * echo > all
		printf "emulator: %d kinds known, %d recorded, %d by echo: ", known, recorded, echo
		print 1 - bad " passed, " bad + 0 " failed"
		exit bad
	}' "$1"
}

boot() {
	local session=$1 rc=0
	shift
	"$here/../vm/run.sh" --no-build --kernel "$kernel" --driver real --load '' --name "$session" \
		--limit "${LIMIT:-1800}" --keep "$KEEP.$session" "$@" \
		--file "$here/../vm/guest-check.sh" --file "$here/programs.sh" \
		--file "$here/$session.sh" -- \
		env "CASES=${CASES:-}" "ONLY=${ONLY:-}" "BESIDE=${BESIDE:-0}" \
		sh "/files/$session.sh" |
		tee "$kept/$session.said" || rc=$?
	echoes "$KEEP.$session.emulator.said" || rc=1
	if [ "$rc" = 0 ] &&
		[ -z "${CASES:-}${ONLY:-}${BESIDE:-}${DRIVER_BRANCH:-}${NVIDIA_SRC:-}" ]; then
		"$here/counted.py" "$session.sh" "$kept/$session.said" \
			"$KEEP.$session.emulator.said" || rc=1
		"$here/lines.py" "$session" "$KEEP.$session" || rc=1
	fi
	return "$rc"
}

rc=0
for part in "${asked[@]}"; do
	gpus=2
	case $part in session | sharing) gpus=1 ;; esac
	boot "$part" --gpus "$gpus" || rc=$?
done
exit "$rc"
