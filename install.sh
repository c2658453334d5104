#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# install.sh [OPTIONS]: checks this machine, builds the module and the tools, installs them, loads
# the module and mounts /run/cgpu/dev. If the machine lacks something, it says all that it lacks,
# and changes nothing. Everything it makes is written down, before it is made, in
# /var/lib/cgpu/manifest; uninstall.sh removes exactly that. If something fails half-way, what was
# made is removed again. Run again, it finds what it made and does nothing.
#
#   --dry-run        says what would be done, and changes nothing
#   --root DIR       installs into this folder instead of /, and loads nothing (for packages)
#   --prefix DIR     where the tools go: DIR/sbin (/usr/local)
#   --kernel RELEASE for this kernel (the running one)
#   --kdir DIR       that kernel's headers (/lib/modules/RELEASE/build)
#   --object DIR     builds the module from what `make object` made there (target/object)
#   --in-tree        for developers: compiles the Rust against the kernel's own crates, on a kernel
#                    7.2 or later with Rust
#   --metadata SRC   with --in-tree: makes the headers' Rust metadata if they lack it, from the
#                    kernel's source: a folder, its tar (Debian: /usr/src/linux-source-*.tar.xz), or
#                    `apt` to fetch the package
#   --sign KEY CERT  signs the module (Secure Boot)
#   --prebuilt DIR   takes cgpu_km.ko and the tools from this folder and builds nothing
#   --no-load        installs, but does not load
#
# Installed are the module, cgpuctl, the hook for container runtimes, a udev rule that keeps the CDI
# file, a systemd unit (not enabled) that makes the instances of /etc/cgpu/instances.toml at boot,
# cgpu-preflight, completions, manual pages, and the documents in /usr/share/doc/cgpu.
set -euo pipefail

say() { printf '%s\n' "$*"; }
warn() { printf 'install.sh: warning: %s\n' "$*" >&2; }
die() {
	printf 'install.sh: %s\n' "$*" >&2
	exit 1
}

# Requirements that are not met. All of them are printed at once.
lacks=()
lack() { lacks+=("$*"); }
report() { # report STATE SUBJECT FOUND FIX: for the checks of preflight.sh
	if [ "$1" = lack ]; then lack "$3; $4"; else warn "$3; $4"; fi
}

here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source-path=SCRIPTDIR source=dist/userland.sh
. "$here/dist/userland.sh"
# shellcheck source-path=SCRIPTDIR source=dist/preflight.sh
. "$here/dist/preflight.sh"
# The documents of this tree: none is installed yet.
pages=docs
dry='' root='' prefix=/usr/local release=$(uname -r) kdir='' prebuilt='' load=yes
metadata='' object='' in_tree='' key='' cert=''
while [ $# -gt 0 ]; do
	case $1 in
	--dry-run) dry=yes ;;
	--in-tree) in_tree=yes ;;
	--root | --prefix | --kernel | --kdir | --prebuilt | --metadata | --object)
		[ $# -ge 2 ] || die "$1 needs a value"
		case $1 in
		--root) root=${2%/} load='' ;;
		--prefix) prefix=${2%/} ;;
		--kernel) release=$2 ;;
		--kdir) kdir=$2 ;;
		--prebuilt) prebuilt=$2 ;;
		--metadata) metadata=$2 ;;
		--object) object=$2 ;;
		esac
		shift
		;;
	--sign)
		[ $# -ge 3 ] || die "--sign needs a key and a certificate"
		key=$2 cert=$3
		shift 2
		;;
	--no-load) load='' ;;
	-h | --help) sed -n '3,/^set /{s/^# \{0,1\}//;/^set /d;p}' "$0"; exit 0 ;;
	*) die "unknown option: $1 (see --help)" ;;
	esac
	shift
done
kdir=${kdir:-/lib/modules/$release/build}
object=${object:-$here/target/object}
case $prefix in
*[[:space:]]*) die "--prefix '$prefix': it may have no space: it would be taken for two words" ;;
/* | '') ;;
*) die "--prefix $prefix: a path from the root, which begins with /" ;;
esac
[ -z "$metadata" ] || [ -n "$in_tree" ] || die "--metadata goes with --in-tree"
manifest=$root/var/lib/cgpu/manifest
module=/lib/modules/$release/updates/cgpu_km.ko
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/Cargo.toml" | head -n 1)
what="cgpu $version for $release in $prefix"

[ -n "$dry" ] || [ "$(id -u)" = 0 ] || die "run it as root"
[ -z "$load" ] || [ "$release" = "$(uname -r)" ] || load=''

# ---- what is there already
replaces=
if [ -e "$manifest" ]; then
	[ "$(tail -n 1 "$manifest")" = "# complete" ] ||
		die "an installation was interrupted; run ./uninstall.sh first ($manifest lists what was made)"
	if grep -qxF "# $what" "$manifest"; then
		while read -r kind path sum; do
			[ "$kind" = file ] || continue
			[ "$(sha256sum <"$root$path" 2>/dev/null | cut -d' ' -f1)" = "$sum" ] ||
				die "$root$path is not what was installed; run uninstall.sh and install.sh again"
		done <"$manifest"
		say "$what is installed already; nothing to do"
		exit 0
	fi
	installed=$(sed -n 's/^# \(cgpu .*\)/\1/p' "$manifest")
	[ -n "$dry" ] || die "cgpu is installed already ($installed); run uninstall.sh first"
	# Whether the new one can be installed is of use to know while the old one is there.
	warn "$installed is installed; run its uninstall.sh before this installation"
	replaces=yes
fi
for place in "$module" "${programs[@]/#/$prefix/sbin/}"; do
	[ -n "$replaces" ] || [ ! -e "$root$place" ] ||
		lack "$root$place exists, and no manifest of install.sh lists it; remove it first"
done
# Two modules and two tools would shadow each other.
if [ -z "$root" ] && dpkg-query -W -f '${db:Status-Abbrev}' cgpu 2>/dev/null | grep -q '^.i'; then
	lack "the package cgpu is installed; dpkg --remove cgpu first, or keep the package"
fi
if [ -z "$root" ] && rpm --query cgpu >/dev/null 2>&1; then
	lack "the package cgpu is installed; rpm --erase cgpu first, or keep the package"
fi

case $prefix in
'' | /usr | /usr/local) ;;
*)
	warn "udev and systemd do not look below $prefix/lib: link lib/udev/rules.d/71-cgpu.rules of" \
		"$prefix into /etc/udev/rules.d, and lib/systemd/system/cgpu.service into /etc/systemd/system"
	;;
esac

# ---- what this machine must have
make_metadata=
tools=(cargo make)
if [ -n "$prebuilt" ]; then
	tools=()
	for file in cgpu_km.ko "${programs[@]}"; do
		[ -r "$prebuilt/$file" ] || lack "$prebuilt/$file is not there"
	done
elif [ -n "$in_tree" ]; then
	if ! reaches "$(series_of "$release")" 7.2; then
		lack "kernel $release is older than 7.2, for whose Rust interface the module is written;" \
			"without --in-tree other kernels will do"
	fi
	if headers_are_there "$release" "$kdir"; then
		while IFS= read -r why; do
			if [ -n "$metadata" ] && [[ $why = *"lack Rust's metadata"* ]]; then
				make_metadata=yes
			else
				lack "${why#rust-metadata.sh: }"
			fi
		done < <("$here/dist/rust-metadata.sh" --check "$kdir" 2>&1)
	fi
else
	tools+=(gcc)
	exports=$object/exports
	if [ ! -r "$object/cgpu_core.o_shipped" ]; then
		lack "no object in $object; make object makes it (root, apt and a Debian mirror), or give --object"
		# The rest of the kernel can be looked at.
		exports=/dev/null
	fi
	if headers_are_there "$release" "$kdir"; then
		kernel_is_fit "$here/dist/supported.sh" "$kdir" "$exports"
		choose_compiler "$release" "$kdir"
	fi
fi
for tool in "${tools[@]}"; do
	command -v "$tool" >/dev/null && continue
	if [ "$tool" = cargo ] && [ -n "${SUDO_USER-}" ]; then
		lack "no cargo for root; that of rustup is its user's alone: run rustup, and this, in \`sudo -i\`" \
			"(Debian 13: apt install cargo)"
	else
		lack "no $tool; install it (Debian: apt install $tool)"
	fi
done
if [ -z "$prebuilt" ] && has=$(cargo --version 2>/dev/null); then
	has=$(sed -n 's/^cargo \([0-9]*\.[0-9]*\)\..*/\1/p' <<<"$has")
	wants=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$here/Cargo.toml" | head -n 1)
	if [ -z "$has" ] || ! reaches "$has" "$wants"; then
		lack "cargo $has is too old, $wants is needed; take it from rustup.rs, or the tools and the module from another machine (--prebuilt)"
	fi
fi
if [ -n "$key" ] && [ ! -x "$kdir/scripts/sign-file" ]; then
	lack "--sign takes $kdir/scripts/sign-file, which is not there; install the headers of kernel $release or give --kdir"
fi
if [ -n "$load" ]; then
	no_other_module
	if [ -z "$replaces" ] && is_loaded && [ ! -e "$host/proc/cgpu_km/inst_ctl" ]; then
		lack "cgpu_km is loaded already; cgpuctl unload unloads it"
	fi
	ftrace_is_on "$release"
	if [ -z "$key" ] && secure_boot_is_on; then
		lack "Secure Boot is on: the kernel takes only signed modules; give --sign KEY CERT with a key that it knows (mokutil --import), or --no-load"
	fi
	driver_is_fit
	containers_are_fit
fi
if [ ${#lacks[@]} -gt 0 ]; then
	for why in "${lacks[@]}"; do printf 'install.sh: %s\n' "$why" >&2; done
	[ ${#lacks[@]} -eq 1 ] || printf 'install.sh: %s things stand in the way; nothing was changed\n' "${#lacks[@]}" >&2
	exit 1
fi

if [ -n "$dry" ]; then
	[ -z "$make_metadata" ] || say "would make Rust's metadata for $release from $metadata, and put it into $kdir"
	[ -n "$prebuilt" ] || say "would build cgpu_km.ko with $compiler against $kdir and the tools with cargo, in a folder in ${TMPDIR:-/tmp}"
	[ -z "$key" ] || say "would sign cgpu_km.ko with $key"
	say "would install $root$module"
	say "would install ${programs[*]} in $root$prefix/sbin, with manual pages and completions"
	say "would install the documents in $root$pages_root"
	say "would install a udev rule and a systemd unit in $root$prefix/lib, hooks in $root/usr/share/containers/oci/hooks.d"
	[ -n "$root" ] || say "would run depmod for $release"
	[ -z "$load" ] || say "would load cgpu_km and mount cgpufs at /run/cgpu/dev"
	say "would write $manifest"
	exit 0
fi

work=$(mktemp -d)
finished=
undo() {
	rm -rf "$work"
	if [ -z "$finished" ] && [ -e "$manifest" ]; then
		echo "install.sh: failed; removing what was made" >&2
		"$here/uninstall.sh" ${root:+--root "$root"} || :
	fi
}
trap undo EXIT
trap 'exit 130' INT TERM

# The manifest's own folders are the first things in it. Lines are `KIND PATH [SHA256]`; paths are
# as seen from --root. A line comes before the thing, so that nothing is ever there that it does not
# know. The last line says that nothing is missing.
made=()
parent=/var/lib/cgpu
while [ "$parent" != / ] && [ ! -d "$root$parent" ]; do
	made=("$parent" "${made[@]}")
	parent=$(dirname "$parent")
done
mkdir -p "$root/var/lib/cgpu"
{
	say "# made by cgpu's install.sh; uninstall.sh removes what is listed, last line first"
	say "# $what"
	for folder in "${made[@]}"; do say "folder $folder"; done
} >"$manifest"

folder() {
	[ ! -d "$root$1" ] || return 0
	# The root itself may not be there yet; it is its own folder.
	if [ "$1" = / ]; then
		mkdir -p "$root/"
		return
	fi
	folder "$(dirname "$1")"
	say "folder $1" >>"$manifest"
	mkdir "$root$1"
}
file() { # file FROM TO MODE
	folder "$(dirname "$2")"
	[ ! -e "$root$2" ] || die "$root$2 exists, and no manifest of install.sh lists it; remove it first"
	say "file $2 $(sha256sum <"$1" | cut -d' ' -f1)" >>"$manifest"
	cp "$1" "$root$2.new"
	chmod "$3" "$root$2.new"
	mv "$root$2.new" "$root$2"
	say "installed $root$2"
}

# ---- build
if [ -n "$make_metadata" ]; then
	source=$metadata
	if [ "$source" = apt ]; then
		series=$(sed -E 's/^([0-9]+\.[0-9]+).*/\1/' <<<"$release")
		owner=$(dpkg-query -S "$(readlink -f "$kdir")/.config" 2>/dev/null | cut -d: -f1 || :)
		debian=$(dpkg-query -W -f '${Version}' "${owner:-linux-headers-$release}")
		say "fetching linux-source-$series $debian"
		(cd "$work" && apt-get download -o APT::Sandbox::User=root "linux-source-$series=$debian")
		dpkg-deb --fsys-tarfile "$work"/linux-source-*.deb |
			tar -C "$work" -xf - --wildcards '*.tar.xz' --transform 's,.*/,,'
		source=$(compgen -G "$work/linux-source-*.tar.xz")
	fi
	say "making Rust's metadata for $release (some minutes)"
	"$here/dist/rust-metadata.sh" --make "$kdir" "$source" "$work/metadata"
	# The build looks for them below the headers, in the place that scripts/ has there.
	headers=$(readlink -f "$kdir") scripts=$(readlink -f "$kdir/scripts")
	for made in "$work"/metadata/rust/*; do
		file "$made" "${headers#"$root"}/rust/$(basename "$made")" 644
	done
	[ -e "$scripts/target.json" ] ||
		file "$work/metadata/scripts/target.json" "${scripts#"$root"}/target.json" 644
fi
mkdir "$work/built"
if [ -n "$prebuilt" ]; then
	cp "$prebuilt/cgpu_km.ko" "${programs[@]/#/$prebuilt/}" "$work/built/"
else
	# Not in the tree: it may be read-only, or used with another kernel.
	say "building cgpu_km.ko for $release"
	if [ -n "$in_tree" ]; then
		mkdir "$work/module"
		make -s -C "$kdir" M="$here" MO="$work/module" modules
	else
		cp -r "$object" "$work/module"
		make -s -C "$kdir" M="$work/module" CC="$compiler" modules
	fi
	cp "$work/module/cgpu_km.ko" "$work/built/"
	say "building the tools"
	target=${CARGO_TARGET_DIR:-$work/target}
	(cd "$here" && cargo build --quiet --release --locked -p cgpuctl --target-dir "$target")
	cp "${programs[@]/#/$target/release/}" "$work/built/"
fi
if [ -n "$key" ]; then
	"$kdir/scripts/sign-file" sha256 "$key" "$cert" "$work/built/cgpu_km.ko" ||
		die "the module cannot be signed with $key and $cert"
fi

# ---- install
file "$work/built/cgpu_km.ko" "$module" 644
# For a package, depmod runs on the machine where it is unpacked.
if [ -z "$root" ]; then
	say "depmod $release" >>"$manifest"
	depmod "$release" || die "depmod failed"
fi
userland "$work/built" "$prefix"
if [ -z "$root" ]; then
	say "reload systemd-and-udev" >>"$manifest"
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
	fi
	if [ -S /run/udev/control ]; then
		udevadm control --reload
	fi
fi

if [ -n "$load" ]; then
	modprobe cgpu_km || die "the kernel does not take the module (see dmesg)"
	for point in /run/cgpu /run/cgpu/dev; do
		[ -d "$point" ] || mkdir -m 700 "$point"
	done
	# Device nodes, but no programs. cgpuctl unload unmounts it and removes the folders.
	mount -t cgpufs -o nosuid,noexec cgpufs /run/cgpu/dev
	say "loaded cgpu_km, mounted /run/cgpu/dev"
fi
say "# complete" >>"$manifest"
finished=yes
say "done; what was made is in $manifest"
