#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# scripts.sh [--shellcheck]: the scripts can be parsed and stop at errors; with --shellcheck, they
# pass that. Fails if it finds fewer scripts than there must be: it has then looked at nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Fewer than there are, and far more than one folder has.
LEAST=70
# Some releases of shellcheck take these for faults: words with a comma in an array, a hyphen in a
# word, and variables that another script sets or reads, which a machine sources from a path of its
# own.
FALSE=SC2034,SC2054,SC2100,SC2154
check=${1:-}
failed=0
scripts=0
list=$(mktemp)
trap 'rm -f "$list"' EXIT
git ls-files -z --cached --others --exclude-standard >"$list"

# parse FILE FIRST: by what its first line calls.
parse() {
	case $2 in
	'#!/bin/bash'*)
		bash -n "$1" || failed=1
		grep -q '^set -euo pipefail$' "$1" || {
			echo "$1: does not stop at errors (set -euo pipefail)"
			failed=1
		}
		;;
	*python3*)
		# Parsed without leaving a cache behind.
		python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$1" || failed=1
		;;
	*) sh -n "$1" || failed=1 ;;
	esac
}

while IFS= read -r -d '' file; do
	[ -f "$file" ] || continue
	first=$(head -n 1 "$file" | tr -d '\0')
	case $first in
	'#!/bin/bash'* | '#!/bin/busybox sh'* | '#!/bin/sh'* | '#!/usr/bin/env python3'*) ;;
	*) continue ;;
	esac
	scripts=$((scripts + 1))
	if [ -z "$check" ]; then
		parse "$file" "$first"
	elif [[ $first != *python3* ]]; then
		shellcheck -x -S warning --exclude="$FALSE" --shell="$([[ $first = *bash* ]] && echo bash || echo dash)" "$file" || failed=1
	fi
done <"$list"
[ "$scripts" -ge "$LEAST" ] || {
	echo "only $scripts scripts are found, of at least $LEAST"
	failed=1
}
exit $failed
