#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# package-test.sh [--kernel SERIES]: what an operator does on Debian 13, in a Debian 13 folder with
# the headers of two kernels, 7.2 and another: installs the package (DKMS builds the module, without
# rustc), updates the kernel, removes the package, does the same with the RPM as far as Debian's rpm
# goes, and runs install.sh with its own builds. Every path is compared with what was there before.
# The modules that came out are loaded in the test machine. SERIES is the other kernel, one of
# host-kernel.sh (6.12).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

series=6.12
case $#:${1:-} in
0:) ;;
2:--kernel) series=$2 ;;
*) die "usage: package-test.sh [--kernel SERIES]" ;;
esac
here=$CGPU_TREE/tests/vm
engine=$("$here/engine-env.sh")
out=$(cat "$CGPU_BUILD/last-stock")
release=$(cat "$out/release")
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$CGPU_TREE/Cargo.toml" | head -n 1)
host=$("$here/host-kernel.sh" "$series")
other=$(cat "$host/release")
[ "$other" != "$release" ] || die "$series is the kernel that is there anyway, $release"
object=$("$CGPU_TREE/dist/object/build.sh" --output "$CGPU_BUILD/object")
work=$(mktemp -d "$CGPU_CACHE/package-XXXXXXXX")
trap 'rm -rf "$work"' EXIT

step "a Debian folder of its own"
root=$work/root
link_folder "$engine" "$root"
# This folder was made without manual pages; an operator's machine has them.
rm "$root"/etc/dpkg/dpkg.cfg.d/*mmdebstrap
mkdir -p "$root/files" "$root/target"
# The other kernel's headers, as its package leaves them.
cp -al "$host"/tree/usr/src/linux-headers-* "$root/usr/src/"
cp -al "$host"/tree/usr/lib/linux-kbuild-* "$root/usr/lib/"
mkdir -p "$root/lib/modules/$other"
ln -s "/usr/src/linux-headers-$other" "$root/lib/modules/$other/build"
# On a host the package of the headers brings the compiler that they name.
compiler=$(sed -n 's/^CC = .*)\(gcc-[0-9]*\)$/\1/p' \
	"$host/tree/usr/src/linux-headers-$other/.kernelvariables")
if [ ! -e "$root/usr/bin/$compiler" ]; then
	log "$work/apt.log" in_root "$root" -- apt-get update
	log "$work/apt.log" in_root "$root" -- apt-get install -y --no-install-recommends "$compiler"
fi
# Files in /run go with a boot. DKMS makes a key to sign with, once for all modules; it is not
# ours.
snapshot() {
	local but=() path
	for path in proc files tree target run var/log 'var/lib/dkms/mok.*' var/lib/dpkg var/lib/rpm \
		var/cache tmp; do
		but+=(-path "./$path" -prune -o)
	done
	(cd "$root" && find . "${but[@]}" -print | sort)
}
snapshot >"$work/before"

step "make package"
deb=$("$CGPU_TREE/dist/package.sh" --prebuilt "$out/bin" --object "$object" --output "$work")
cp "$deb" "$root/files/"
ok "make package leaves $(basename "$deb")"
step "dpkg --install, beside install.sh's files"
mkdir -p "$root/var/lib/cgpu"
echo "# made by cgpu's install.sh" >"$root/var/lib/cgpu/manifest"
if in_root "$root" -- dpkg --install "/files/$(basename "$deb")" >"$work/refused.log" 2>&1; then
	die "the package installs over install.sh's files"
fi
grep -q "run its ./uninstall.sh first" "$work/refused.log" || die "$(cat "$work/refused.log")"
rm -r "$root/var/lib/cgpu"
in_root "$root" -- dpkg --purge cgpu >/dev/null 2>&1 || :
snapshot | diff "$work/before" - || die "a refused package leaves something"
ok "the package refuses beside install.sh's files, and leaves nothing"
# A kernel that cannot be supported is there as well, and the other one comes later.
unfit=$root/usr/src/unfit
mkdir -p "$unfit/include" "$root/lib/modules/0-unfit"
ln -s /usr/src/unfit "$root/lib/modules/0-unfit/build"
touch "$unfit/Makefile"
printf 'CONFIG_%s=y\n' X86_64 MODULES >"$unfit/.config"
echo "0x0 fget vmlinux EXPORT_SYMBOL" | tr ' ' '\t' >"$unfit/Module.symvers"
mv "$root/lib/modules/$other" "$work/later"
unsupported() { # unsupported FILE WHY
	[ "$(grep -c "^cgpu: no module for the kernel of .*unfit.*: $2" "$1")" = 1 ] ||
		die "no single sentence says '$2': $(cat "$1")"
}
step "dpkg --install: DKMS builds the module, without rustc"
mv "$root/usr/bin/rustc" "$work/"
log "$work/dpkg.log" in_root "$root" -- dpkg --install "/files/$(basename "$deb")"
unsupported "$work/dpkg.log" "it does not export to modules: .*filp_open.* task_work_add zap_vma_range or"
ok "the package says of a kernel why it cannot be supported, in a sentence"
step "kernel updates: DKMS's hooks"
log "$work/unfit.log" in_root "$root" -- /etc/kernel/header_postinst.d/dkms 0-unfit
unsupported "$root/var/lib/dkms/cgpu/$version/build/make.log" "it does not export to modules: "
ok "a kernel that cannot be supported is installed without the module"
echo CONFIG_FINEIBT=y >>"$unfit/.config"
in_root "$root" -- "/usr/src/cgpu-$version/supported.sh" /usr/src/unfit 2>"$work/why" &&
	die "a kernel with FineIBT is taken"
unsupported "$work/why" "it checks indirect calls where they land (CONFIG_FINEIBT)"
sed -i /FINEIBT/d "$unfit/.config"
mkdir "$unfit/include/linux"
touch "$unfit/include/linux/mm.h"
in_root "$root" -- "/usr/src/cgpu-$version/supported.sh" /usr/src/unfit 2>"$work/why" &&
	die "a kernel with neither sealed mappings nor ftrace is taken"
unsupported "$work/why" "it has no sealed mappings .*CONFIG_DYNAMIC_FTRACE_WITH_REGS"
ok "a kernel is not taken that can protect no call"
rm -r "$unfit" "$root/lib/modules/0-unfit"
mv "$work/later" "$root/lib/modules/$other"
began=$(date +%s%N)
log "$work/dkms.log" in_root "$root" -- /etc/kernel/header_postinst.d/dkms "$other"
step "DKMS took $((($(date +%s%N) - began) / 1000000)) ms for $other"
mv "$work/rustc" "$root/usr/bin/"
dkms_module "$root" "$release" "$work/dkms.ko" "$work/dpkg.log"
dkms_module "$root" "$other" "$work/other.ko" "$work/dkms.log"
ok "DKMS builds the module, without rustc, and signs it"
ok "DKMS builds it for a kernel that comes later"
in_root "$root" -- cgpuctl --version | grep -q "^cgpuctl " && ok "cgpuctl runs"
[ -s "$root/usr/share/man/man8/cgpuctl-cdi-generate.8.gz" ] && ok "manual pages are there"
named=$(in_root "$root" -- cgpuctl inst list --help | grep -o '/usr/share/doc/cgpu/.*\.md')
[ -s "$root$named" ] && [ -s "$root/usr/share/doc/cgpu/docs/install.md" ] &&
	[ -s "$root/usr/share/doc/cgpu/dist/grafana/cgpu.json" ] &&
	ok "the documents are there, at the paths that the tool names"
in_root "$root" -- cgpu-preflight >"$work/preflight" || :
grep -q '^cgpu-preflight: ' "$work/preflight" && ! grep -vxFf "$work/dpkg.log" "$work/preflight" &&
	ok "the package says what is in the way on this host"
in_root "$root" -- udevadm verify /usr/lib/udev/rules.d/71-cgpu.rules >"$work/verify.log" 2>&1 &&
	ok "udev understands the rule"
in_root "$root" -- systemd-analyze verify --man=no /usr/lib/systemd/system/cgpu.service \
	>>"$work/verify.log" 2>&1 &&
	ok "systemd understands the unit"
cat "$work/verify.log" >&2
# Saved instances stay.
touch "$root/etc/cgpu/instances.toml"
{ cat "$work/before"; printf './etc/cgpu%s\n' '' /instances.toml; } | sort >"$work/kept"
log "$work/dpkg.log" in_root "$root" -- dpkg --remove cgpu
snapshot | diff "$work/kept" - || die "dpkg --remove leaves something, or removes too much"
ok "dpkg --remove leaves nothing but saved instances"
rm -r "$root/etc/cgpu"
log "$work/dpkg.log" in_root "$root" -- dpkg --purge cgpu
snapshot | diff "$work/before" - || die "dpkg --purge leaves something, or removes too much"
ok "dpkg --purge leaves nothing"

step "make package as an RPM, with Debian's rpm"
rpm=$(in_root "$root" "$CGPU_TREE" /tree ro "$object" /files/object ro \
	"$out/bin" /files/prebuilt ro -- /tree/dist/package.sh --rpm --prebuilt /files/prebuilt \
	--object /files/object --output /files)
dpkg-deb --contents "$deb" | sed -n -E 's,^(-\S+) .* \./,\1 /,p' |
	sed 's,zsh/vendor-completions,zsh/site-functions,' | sort >"$work/deb-files"
in_root "$root" -- rpm --query --package --qf '[%{FILEMODES:perms} %{FILENAMES}\n]' "$rpm" |
	grep -v '^d' | sort >"$work/rpm-files"
diff "$work/deb-files" "$work/rpm-files" || die "the RPM has other files than the Debian package"
in_root "$root" -- rpm --query --package --requires "$rpm" >"$work/requires"
for wanted in 'dkms >= 3.0' gcc make; do
	grep -qxF "$wanted" "$work/requires" || die "the RPM does not require $wanted"
done
ok "the RPM has the files of the Debian package, and requires DKMS, gcc and make"
mkdir "$work/rpm"
mv "$root/usr/bin/rustc" "$root/lib/modules/$other" "$work/rpm/"
# Hosts with RPM have this folder. rpm's plugins mount, and this root is no mount point.
mkdir "$root/usr/share/man/man8"
log "$work/rpm.log" in_root "$root" -- rpm --install --nodeps --noplugins "$rpm"
[ -n "$(find "$root/lib/modules/$release/" -name 'cgpu_km.ko*')" ] || {
	cat "$work/rpm.log" >&2
	die "the RPM leaves no module for $release"
}
log "$work/rpm.log" in_root "$root" -- rpm --erase --nodeps --noplugins cgpu
rmdir "$root/usr/share/man/man8"
mv "$work/rpm/rustc" "$root/usr/bin/"
mv "$work/rpm/$other" "$root/lib/modules/"
snapshot | diff "$work/before" - || die "removing the RPM leaves something, or removes too much"
ok "the RPM's scripts build the module by DKMS, and remove exactly what was installed"

step "install.sh, with its own builds"
# The libraries of the tool come along: this folder needs no network.
offline_tree "$root" "$work/vendor"
mkdir -p "$CGPU_BUILD/debian-target"
install() { # install RELEASE OPTIONS...
	local release=$1
	shift
	log "$work/install.log" in_root "$root" "$work/vendor" /vendor ro "$object" /object ro \
		"$CGPU_BUILD/debian-target" /target rw -- \
		env CARGO_TARGET_DIR=/target CARGO_NET_OFFLINE=true \
		/tree/install.sh --root /files/installed --kernel "$release" \
		--kdir "/usr/src/linux-headers-$release" "$@"
}
uninstall() {
	in_root "$root" -- /tree/uninstall.sh --root /files/installed >/dev/null
	[ -z "$(find "$root/files/installed" -mindepth 1)" ]
}
install "$release" --in-tree
ok "install.sh --in-tree builds with Debian's own rustc and cargo"
cp "$root/files/installed/lib/modules/$release/updates/cgpu_km.ko" "$work/installed.ko"
uninstall && ok "uninstall.sh removes exactly what was made"
install "$other" --object /object
ok "install.sh builds from the object for $other"
cp "$root/files/installed/lib/modules/$other/updates/cgpu_km.ko" "$work/installed-other.ko"
# shellcheck disable=SC2016  # the inner shell expands
in_root "$root" -- /tree/install.sh --root /files/installed --kernel "$other" |
	grep -q "nothing to do" &&
	ok "again, it has nothing to do"
uninstall && ok "uninstall.sh removes exactly what was made from the object"

step "the modules load"
cat >"$work/session" <<'END'
for module in /files/*.ko; do
	insmod "$module" && cgpuctl inst create a --gpu 0 --mem 2GiB >&2 &&
		cgpuctl unload >&2 && echo "ok $module loads, works, and goes"
done
END
rc=0
"$here/run.sh" --no-build --name package --load driver --file "$work/dkms.ko" \
	--file "$work/installed.ko" \
	--file "$work/session" -- sh /files/session >"$work/said" || rc=$?
"$here/run.sh" --no-build --kernel "$series" --name "package on $series" --load driver \
	--file "$work/other.ko" --file "$work/installed-other.ko" \
	--file "$work/session" -- sh /files/session >>"$work/said" || rc=$?
# Four of them load, and neither kernel has a fault.
all=26
[ "$rc" = 0 ] || all=$((all + 1))
tally package "$all" <"$work/said"
