#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# go.sh: prints the folder of a Go that can build the control plane (components/go.mod says which),
# and installs Debian's where there is none. Without one it says why and fails.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
wanted=$(sed -n 's/^go //p' "$here/components/go.mod")

new_enough() { # new_enough VERSION
	[ "$(printf '%s\n' "$wanted" "$1" | sort -V | head -n 1)" = "$wanted" ]
}
usable() { # usable FOLDER
	local version
	version=$(GOTOOLCHAIN=local "$1/go" env GOVERSION 2>/dev/null) && new_enough "${version#go}"
}
find_go() {
	local go folder
	go=$(command -v go || true)
	for folder in ${go:+"$(dirname "$go")"} /usr/local/go/bin /usr/lib/go-*/bin; do
		if usable "$folder"; then
			echo "$folder"
			return
		fi
	done
	return 1
}

find_go && exit
minor=${wanted%.*}
why="there is no Go $minor or newer"
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "$why, and only root can install Debian's" >&2
	exit 1
fi
apt-get update -qq >/dev/null 2>&1 || true
for name in $(apt-cache pkgnames golang-1. | grep -E '^golang-1\.[0-9]+-go$' | sort -rV); do
	version=${name#golang-}
	if new_enough "${version%-go}.99" &&
		apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends "$name" \
			>/dev/null 2>&1; then
		find_go && exit
	fi
done
echo "$why, and this Debian has none" >&2
exit 1
