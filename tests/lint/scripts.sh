#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# scripts.sh: the scripts can be parsed, stop at errors, and pass shellcheck where there is one.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Some releases of it take these for faults: words with a comma in an array, a hyphen in a word, and
# variables that another script sets or reads, which a machine sources from a path of its own.
FALSE=SC2034,SC2054,SC2100,SC2154
failed=0
while IFS= read -r -d '' file; do
	[ -f "$file" ] || continue
	first=$(head -n 1 "$file" | tr -d '\0')
	case $first in
	'#!/bin/bash'*)
		bash -n "$file" || failed=1
		grep -q '^set -euo pipefail$' "$file" || {
			echo "$file: does not stop at errors (set -euo pipefail)"
			failed=1
		}
		;;
	'#!/bin/busybox sh'* | '#!/bin/sh'*) sh -n "$file" || failed=1 ;;
	'#!/usr/bin/env python3'*)
		# Parsed without leaving a cache behind.
		python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$file" || failed=1
		continue
		;;
	*) continue ;;
	esac
	if command -v shellcheck >/dev/null; then
		shellcheck -x -S warning --exclude="$FALSE" --shell="$([[ $first = *bash* ]] && echo bash || echo dash)" "$file" || failed=1
	fi
done < <(git ls-files -z --cached --others --exclude-standard)
exit $failed
