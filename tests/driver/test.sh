#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# test.sh [session|orders]: the floor `driver`: NVIDIA's own modules in the test machine. One boot
# compares programs without our module and in instances (session.sh), another is for two GPUs and
# the other orders of loading (orders.sh).
#
#   CASES="..."   only these of cuda-check's cases
#   KEEP=FILE     keeps the kernel's logs there (FILE.session, FILE.orders), the emulator's beside
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

boot() {
	local session=$1
	shift
	"$here/../vm/run.sh" --no-build --driver real --load '' --name "$session" \
		--limit "${LIMIT:-1800}" ${KEEP:+--keep "$KEEP.$session"} "$@" \
		--file "$here/../vm/guest-check.sh" --file "$here/programs.sh" \
		--file "$here/$session.sh" -- env "CASES=${CASES:-}" sh "/files/$session.sh"
}

rc=0
case ${1:-all} in all | session) boot session || rc=$? ;; esac
case ${1:-all} in all | orders) boot orders --gpus 2 || rc=$? ;; esac
exit "$rc"
