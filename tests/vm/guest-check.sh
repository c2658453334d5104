# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=sh
# guest-check.sh: what the sessions in the test machine count their cases with. To be sourced there.
# `out` is a folder of its own, which the session removes.
out=$(mktemp -d)
passed=0
failed=0
# check SENTENCE COMMAND...: a case. If it fails, it is shown with what the command said, and with
# what the last `run` kept.
check() {
	sentence=$1
	shift
	if "$@" >"$out/check" 2>&1; then
		passed=$((passed + 1))
		echo "ok: $sentence"
	else
		failed=$((failed + 1))
		echo "FAILED: $sentence"
		sed 's/^/    /' "$out/check" "$out/said"
	fi
}
says() { grep -qF -- "$1" "$out/said"; }
not() { ! "$@"; }
# run COMMAND...: keeps what it says.
run() { "$@" >"$out/said" 2>&1; }
fails() { ! run "$@"; }
value() { cgpuctl inst show "$1" --json | sed -n "s/^ *\"$2\": \\([0-9]*\\),\\?\$/\\1/p"; }
is() { [ "$1" = "$2" ] || { echo "\"$1\" is not \"$2\""; return 1; }; }
# within SECONDS COMMAND...: becomes true. The seconds are those of a machine with nothing else to
# do; an emulated one that has to share its processors gets five times as many.
within() {
	end=$(($(date +%s) + 5 * $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$(date +%s)" -lt "$end" ] || return 1
		sleep 0.2
	done
}
