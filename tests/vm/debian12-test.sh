#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# debian12-test.sh: what an operator does on Debian 12, in a folder with Debian 12's packages: apt
# installs the package with all that it needs, DKMS builds the module for 6.1 and for a kernel that
# comes later, by Debian 12's gcc and without rustc; apt removes it. Then install.sh, with its own
# builds. The modules that came out are loaded on 6.1 in the test machine.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

here=$CGPU_TREE/tests/vm
folder=$("$here/debian12-env.sh")
release=$(cat "$("$here/host-kernel.sh" 6.1)/release")
out=$(cat "$CGPU_BUILD/last-stock")
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$CGPU_TREE/Cargo.toml" | head -n 1)
object=$("$CGPU_TREE/dist/object/build.sh" --output "$CGPU_BUILD/object")

work=$(mktemp -d "$CGPU_CACHE/debian12-work-XXXXXXXX")
trap 'rm -rf "$work"' EXIT
root=$work/root
link_folder "$folder" "$root"
mkdir -p "$root/files" "$work/modules"

snapshot() { # without what goes with a boot, and DKMS's key, which is not ours
	local but=() path
	for path in proc files tree target vendor object rust run var/log 'var/lib/dkms/mok.*' \
		var/lib/dpkg var/lib/apt var/cache tmp; do
		but+=(-path "./$path" -prune -o)
	done
	(cd "$root" && find . "${but[@]}" -print | sort)
}
apt_get() { # apt_get LOG ARGUMENTS...
	local to=$1
	shift
	log "$work/$to.log" in_root "$root" -- env DEBIAN_FRONTEND=noninteractive apt-get -y "$@"
}

# As the kernel's package does on a host.
in_root "$root" -- depmod "$release"
snapshot >"$work/before"
in_root "$root" -- sh -c '! command -v rustc cargo' || die "the folder has Rust"
step "apt install ./cgpu_*.deb"
deb=$("$CGPU_TREE/dist/package.sh" --prebuilt "$out/bin" --object "$object" --output "$work")
cp "$deb" "$root/files/"
apt_get update update
apt_get install install "/files/$(basename "$deb")"
dkms_module "$root" "$release" "$work/modules/package.ko" "$work/install.log"
ok "apt installs the package, and DKMS builds and signs the module for $release"
in_root "$root" -- cgpuctl --version | grep -q "^cgpuctl $version" && ok "cgpuctl runs"
in_root "$root" -- cgpu-preflight >"$work/preflight" || :
grep -q '^cgpu-preflight: ' "$work/preflight" && ok "cgpu-preflight says what is in the way"
in_root "$root" -- systemd-analyze verify --man=no /usr/lib/systemd/system/cgpu.service \
	>"$work/verify" 2>&1 || :
! grep cgpu "$work/verify" || die "Debian 12's systemd does not understand the unit"
ok "systemd understands the unit"

step "apt purge cgpu"
apt_get purge purge cgpu
snapshot | diff "$work/before" - || die "apt purge leaves something, or removes too much"
ok "apt purge leaves nothing"

step "another kernel comes"
# That of backports, or an older one. Its image comes along, and stays.
later=$(in_root "$root" -- apt-cache search --names-only '^linux-headers-[0-9].*-cloud-amd64$' |
	sed -E 's/^linux-headers-([^ ]*) .*/\1/' | grep -vxF "$release" | sort -V | tail -n 1)
[ -n "$later" ] || die "the mirror has no other kernel for Debian 12"
apt_get install install "/files/$(basename "$deb")"
apt_get another install "linux-headers-$later"
dkms_module "$root" "$later" "$work/later.ko" "$work/another.log"
ok "DKMS builds the module for $later as it comes"
apt_get purge purge cgpu
left=$(find "$root" -xdev -path "$root/files" -prune -o -name '*cgpu*' -print)
[ -z "$left" ] || die "apt purge leaves $left"
ok "apt purge removes the modules of both kernels"

step "install.sh"
offline_tree "$root" "$work/vendor"
mkdir -p "$CGPU_BUILD/debian12-target"
# install TOOLCHAIN: installs into /files/installed, with the cargo of a folder, or without one.
install() {
	in_root "$root" "$work/vendor" /vendor ro "$object" /object ro "$1" /rust ro \
		"$CGPU_BUILD/debian12-target" /target rw -- \
		env CARGO_TARGET_DIR=/target CARGO_NET_OFFLINE=true PATH=/rust/bin:/usr/sbin:/usr/bin \
		/tree/install.sh --root /files/installed --kernel "$release" --object /object
}
mkdir "$work/nothing"
install "$work/nothing" >"$work/refused" 2>&1 && die "install.sh does without cargo"
grep -q 'install.sh: .*cargo' "$work/refused" || die "no word of cargo: $(cat "$work/refused")"
[ ! -e "$root/files/installed" ] || die "a refused install.sh leaves something"
ok "install.sh asks for cargo, which Debian 12 has too old"
# The toolchain that rustup brings runs on Debian 12, too.
log "$work/script.log" install "$(rustc --print sysroot)"
cp "$root/files/installed/lib/modules/$release/updates/cgpu_km.ko" "$work/modules/script.ko"
ok "install.sh builds with Debian 12's gcc and the cargo of rustup"
in_root "$root" -- /tree/uninstall.sh --root /files/installed >/dev/null
[ -z "$(find "$root/files/installed" -mindepth 1)" ] && ok "uninstall.sh leaves nothing"

step "the modules load"
cat >"$work/session" <<'END'
for module in package script; do
	insmod /files/$module.ko && cgpuctl inst create a --gpu 0 --mem 2GiB >&2 &&
		cgpuctl unload >&2 && echo "ok the module of the $module loads, works, and goes"
done
END
rc=0
"$here/run.sh" --no-build --kernel 6.1 --name "Debian 12" --load driver \
	--file "$work/modules/package.ko" --file "$work/modules/script.ko" \
	--file "$work/session" -- sh /files/session >"$work/said" || rc=$?
# Two of them load, and the kernel has no fault.
all=12
[ "$rc" = 0 ] || all=$((all + 1))
tally debian12 "$all" <"$work/said"
