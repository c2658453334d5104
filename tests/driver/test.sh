#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# test.sh: the floor `driver`: one boot of the test machine with NVIDIA's own modules (session.sh).
#
#   CASES="..."   only these of cuda-check's cases
#   KEEP=FILE     keeps the kernel's log there, and the emulator's beside it
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec "$here/../vm/run.sh" --no-build --driver real --load '' --name driver \
	--limit "${LIMIT:-1800}" ${KEEP:+--keep "$KEEP"} \
	--file "$here/../vm/guest-check.sh" --file "$here/session.sh" -- \
	env "CASES=${CASES:-}" sh /files/session.sh
