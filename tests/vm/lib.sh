# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# What the scripts of the test machine share: where things are kept, how they speak, how they work
# inside the Debian folder. To be sourced by bash with `set -euo pipefail`.

CGPU_TREE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
CGPU_CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/cgpu
# The folder of what is built from this tree: build.sh fills it, the tests read it.
CGPU_BUILD=$CGPU_CACHE/build-$(sha256sum <<<"$CGPU_TREE" | cut -c1-12)
CGPU_STARTED=${CGPU_STARTED:-$(date +%s)}
export CGPU_STARTED

# Everything that people read goes to stderr: stdout belongs to results.
step() {
	printf '[%3ds] %s\n' "$(($(date +%s) - CGPU_STARTED))" "$*" >&2
}

die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

# ok CASE: a case of a test has passed. A test ends in "NAME: $passed passed, 0 failed".
passed=0
ok() {
	passed=$((passed + 1))
	echo "ok $1"
}

# tally NAME COUNT: shows what a script in the machine prints, and fails unless it says "ok CASE" so
# often.
tally() {
	local line
	while IFS= read -r line; do
		if [ "${line#ok }" = "$line" ]; then
			echo "$line"
		else
			ok "${line#ok }"
		fi
	done
	echo "$1: $passed passed, $(($2 - passed)) failed"
	[ "$passed" = "$2" ]
}

# The hash of scripts without what does not change their work: comments, empty lines, indentation.
# A cached folder is found by it, so that a better comment does not cost anybody two minutes. Other
# files count as they are: in C, Rust and a kernel's configuration a line with # means something.
hash_of_scripts() {
	local file
	for file; do
		case $file in
		*.sh | *.py) sed -E -e 's/^[[:space:]]+//' -e '/^(#|$)/d' "$file" ;;
		*) cat "$file" ;;
		esac
	done | sha256sum | cut -c1-12
}

# in_root ROOT [FROM TO ro|rw]... -- COMMAND...: runs a command in a Debian folder with these
# folders mounted. The mounts are in a namespace of their own, so that nothing stays mounted however
# the command ends. /proc is needed by rustc.
in_root() {
	unshare --mount --propagation private sh -euc '
		root=$1
		shift
		mount -t proc proc "$root/proc"
		while [ "$1" != -- ]; do
			mkdir -p "$root$2"
			mount --bind "$1" "$root$2"
			[ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
			shift 3
		done
		shift
		exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
			LC_ALL=C.UTF-8 "$@"' sh "$@"
}

# link_folder FROM TO: a second Debian folder beside one that kernel-env.sh made. Files are linked;
# /etc and /var are copied, because packages will be installed there.
link_folder() {
	local folder
	(
		# The debug kernel's script installs a compiler there.
		flock 8
		# Files in its /tmp may go at any moment, because somebody may compile there.
		mkdir "$2"
		find "$1" -mindepth 1 -maxdepth 1 ! -name tmp -exec cp -al -t "$2" {} +
		mkdir -m 1777 "$2/tmp"
		for folder in etc var; do
			rm -rf "${2:?}/$folder"
			cp -a "$1/$folder" "$2/$folder"
		done
	) 8>"$1/../apt.lock"
}

# dkms_module ROOT KERNEL TO LOG...: keeps as the file TO, uncompressed, the module that DKMS left
# for a kernel in a Debian folder. Ends the script if there is none, and shows the logs, or if DKMS
# did not sign it.
dkms_module() {
	local root=$1 kernel=$2 to=$3 module
	shift 3
	module=$(find "$root/lib/modules/$kernel/" -name 'cgpu_km.ko*')
	[ -n "$module" ] || {
		cat "$@" >&2
		die "no module was built for $kernel"
	}
	case $module in
	*.xz) xz -dc "$module" >"$to" ;;
	*) cp "$module" "$to" ;;
	esac
	tail -c 28 "$to" | grep -q "^~Module signature appended~$" ||
		die "DKMS did not sign the module for $kernel"
}

# offline_tree ROOT VENDOR: copies this tree to ROOT/tree. Cargo finds its libraries there without a
# network, in /vendor, where the folder VENDOR belongs.
offline_tree() {
	mkdir -p "$1/tree/.cargo"
	(cd "$CGPU_TREE" &&
		git ls-files -z --cached --others --exclude-standard -- . ':!tests/traces') |
		(cd "$CGPU_TREE" && xargs -0 cp --parents -t "$1/tree")
	(cd "$CGPU_TREE" && cargo vendor --quiet --locked "$2" >/dev/null)
	cat >"$1/tree/.cargo/config.toml" <<-'END'
		[source.crates-io]
		replace-with = "vendor"
		[source.vendor]
		directory = "/vendor"
	END
}

need_root() {
	[ "$(id -u)" = 0 ] || die "needs root (it works in a Debian folder with chroot and mount)"
	unshare --mount true 2>/dev/null || die "needs CAP_SYS_ADMIN: this container may not mount"
}

# lock FILE WHAT: one at a time, until this script ends.
lock() {
	mkdir -p "$(dirname "$1")"
	exec 9>"$1"
	if ! flock --nonblock 9; then
		step "waiting: another one is at $2"
		flock 9
	fi
}

# kept NAME WHAT: whether the folder NAME of the cache is ready; `final` is its path. If it is not,
# this script holds its lock from now on, and `work` is an empty folder in which it is made. WHAT is
# said to whoever waits. `keep` then puts it in its place.
kept() {
	final=$CGPU_CACHE/$1
	[ ! -e "$final/ready" ] || return 0
	need_root
	lock "$final.lock" "$2"
	# Somebody else may have made it meanwhile.
	[ ! -e "$final/ready" ] || return 0
	work=$final.tmp
	rm -rf "$work"
	mkdir -p "$work"
	return 1
}

keep() {
	mv "$work" "$final"
	touch "$final/ready"
}

# beside_kernel NAME WHAT: the same for a Debian folder beside that of kernel-env.sh. NAME gets a
# key of its own, by the calling script and that folder. Ends the script if the folder is ready; if
# not, `root` is the folder in `work`, with all that the other one has.
beside_kernel() {
	local base key
	base=$("$CGPU_TREE/tests/vm/kernel-env.sh")
	key=$({
		hash_of_scripts "$0"
		basename "$(dirname "$base")"
	} | sha256sum | cut -c1-12)
	if kept "$1-$key" "$2"; then
		echo "$final/root"
		exit 0
	fi
	root=$work/root
	link_folder "$base" "$root"
}

# An archive's signature that was not verified: of which file the keys are, and what to do.
unverified() { # unverified FILE: the output of apt
	grep -qE 'NO_PUBKEY|EXPKEYSIG|is not signed|signatures .* verified' "$1" || return 0
	cat >&2 <<-END
		The archive's signature was not verified: ${KEYRING:-the keyring of apt} lacks its key.
		Install a newer debian-archive-keyring, such as Debian 13's. Or run \`make object\` on
		another machine, copy its folder target/object, and pass it: ./install.sh --object DIR
	END
}

# log FILE COMMAND...: runs it with its output in a file, and shows the end of that if it fails.
log() {
	local file=$1 rc=0
	shift
	"$@" >"$file" 2>&1 9>&- || rc=$?
	if [ "$rc" != 0 ]; then
		tail -n 40 "$file" >&2
		unverified "$file"
		die "failed ($rc): $* (all of its output: $file)"
	fi
}
