#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# demo.sh: two containers share a GPU in the test machine (`cgpu-guest demo`): a table on stdout,
# progress on stderr.
set -euo pipefail
here=$(dirname "$0")
traces=$here/../traces
files=()
for trace in cuda-driver-api cuda-out-of-memory nvidia-smi-idle; do
	files+=(--file "$traces/$trace.jsonl.xz")
done
exec "$here/run.sh" --name demo --limit 300 "${files[@]}" -- cgpu-guest demo \
	--first /files/cuda-driver-api.jsonl.xz --second /files/cuda-out-of-memory.jsonl.xz \
	--smi /files/nvidia-smi-idle.jsonl.xz
