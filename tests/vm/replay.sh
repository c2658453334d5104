#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# replay.sh [--mem SIZE] [--managed MODE] [--caps LIST] [--direct] [--verbose] RECORDING...: replays
# recordings in the test machine, merged by their clock, through an instance or directly on the
# stand-in driver. One JSON object on stdout. The machine gets as many GPUs as the recordings name,
# of their kind.
set -euo pipefail
here=$(dirname "$0")

words=() files=() inside=()
while [ $# -gt 0 ]; do
	case $1 in
	--mem | --managed | --caps) words+=("$1" "$2"); shift ;;
	--direct | --verbose) words+=("$1") ;;
	-*) echo "replay: unknown option: $1" >&2; exit 2 ;;
	*)
		if ! [ -r "$1" ]; then
			echo "replay: cannot read $1" >&2
			exit 2
		fi
		# A folder each: two recordings may have the same name.
		to=/files/${#files[@]}/$(basename "$1")
		files+=("$1")
		inside+=("$to")
		;;
	esac
	shift
done
if [ ${#files[@]} = 0 ]; then
	echo 'usage: make replay TRACE="a.jsonl.xz [b.jsonl.xz]" [MEM=8GiB] [MANAGED=spill]' >&2
	echo '                   [CAPS=compute,utility] [DIRECT=1] [V=1]' >&2
	exit 2
fi
machine=$(python3 - "${files[@]}" <<'END'
import json, lzma, re, sys
highest, model = 0, "h200"
for name in sys.argv[1:]:
    data = open(name, "rb").read()
    if data[:6] == b"\xfd7zXZ\0":
        data = lzma.decompress(data)
    minors = map(int, re.findall(rb'"/dev/nvidia(\d{1,2})"', data))
    highest = max([highest, *(m for m in minors if m < 16)])
    for line in data.splitlines():
        # NV_ESC_CARD_INFO: the first card's PCI device.
        if b'"nr":200,' in line and bytes.fromhex(json.loads(line)["out"])[14:16] == b"\x30\x23":
            model = "h100"
print(highest + 1, f"model={model}", "neighbours=1" if highest else "")
END
)
gpus=${machine%% *}
options=()
for i in "${!files[@]}"; do
	options+=(--file "${files[i]}:${inside[i]}")
done
exec "$here/run.sh" --name replay --limit "${LIMIT:-300}" --gpus "$gpus" \
	--fake "${machine#* }" "${options[@]}" -- \
	replay run "${words[@]}" "${inside[@]}"
