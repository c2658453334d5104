#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# uninstall.sh [--dry-run] [--root DIR]: removes exactly what install.sh wrote into its manifest,
# last thing first. A file that somebody changed since is left where it is, and folders only go when
# they are empty. It refuses while an instance is in use: nothing is removed then.
set -euo pipefail

say() { printf '%s\n' "$*"; }
die() {
	printf 'uninstall.sh: %s\n' "$*" >&2
	exit 1
}

dry='' root=''
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry=yes ;;
	--root)
		[ $# -ge 2 ] || die "--root needs a folder"
		root=${2%/}
		shift
		;;
	-h | --help) sed -n '3,/^set /{s/^# \{0,1\}//;/^set /d;p}' "$0"; exit 0 ;;
	*) die "unknown option: $1 (see --help)" ;;
	esac
	shift
done
manifest=$root/var/lib/cgpu/manifest
[ -e "$manifest" ] || die "nothing is installed ($manifest is not there)"
[ -n "$dry" ] || [ "$(id -u)" = 0 ] || die "run it as root"

unload() {
	grep -q '^cgpu_km ' /proc/modules || return 0
	if [ -n "$dry" ]; then
		say "would unmount /run/cgpu/dev and unload cgpu_km"
		return 0
	fi
	local tool
	tool=$root$(sed -n "s,^file \(.*/sbin/cgpuctl\) .*,\1,p" "$manifest")
	# It says what is in the way, and leaves everything as it was then.
	if [ "$tool" != "$root" ] && [ -x "$tool" ] && "$tool" unload; then
		say "unloaded cgpu_km"
	else
		die "cgpu_km cannot be unloaded; nothing was removed"
	fi
}

# It was loaded by install.sh, by the unit or by hand. With --root it is another system's.
[ -n "$root" ] || unload
left=0 reload=''
depmods=() holds_manifest=()
mapfile -t lines <"$manifest"
for ((i = ${#lines[@]} - 1; i >= 0; i--)); do
	read -r kind path sum <<<"${lines[i]}"
	case $kind in
	depmod) depmods+=("$path") ;;
	reload)
		if [ -z "$dry" ] && [ -d /run/systemd/system ]; then
			# It may be enabled; that link is the operator's, made with our unit.
			systemctl disable --now cgpu.service 2>/dev/null || :
			reload=yes
		fi
		;;
	file)
		if [ ! -e "$root$path" ]; then
			say "already gone: $root$path"
		elif [ "$(sha256sum <"$root$path" | cut -d' ' -f1)" != "$sum" ]; then
			say "left, because it was changed: $root$path" >&2
			left=1
		elif [ -n "$dry" ]; then
			say "would remove $root$path"
		else
			rm "$root$path"
			say "removed $root$path"
		fi
		# Left by an installation that was stopped.
		[ -n "$dry" ] || rm -f "$root$path.new"
		;;
	folder)
		if [ -n "$dry" ]; then
			say "would remove $root$path if it is empty"
		elif [ "${manifest#"$root$path"/}" != "$manifest" ]; then
			holds_manifest+=("$path")
		elif rmdir "$root$path" 2>/dev/null; then
			say "removed $root$path"
		fi
		;;
	# Earlier ones say too that the module was loaded.
	'#' | loaded) ;;
	*) die "the manifest has a line that is not understood: $kind $path" ;;
	esac
done
for release in "${depmods[@]}"; do
	[ -n "$dry" ] || depmod "$release" || say "depmod $release failed" >&2
done
if [ -n "$reload" ]; then
	systemctl daemon-reload
fi
[ -z "$dry" ] || exit 0
if [ "$left" = 1 ]; then
	die "not everything was removed; $manifest is kept"
fi
rm "$manifest"
for path in "${holds_manifest[@]}"; do
	rmdir "$root$path" 2>/dev/null || :
done
say "done"
