#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# package-test.sh: what an operator does on Debian 13, in a Debian 13 folder with the kernel's
# headers: installs the package (DKMS builds the module), removes it, and runs install.sh with its
# own builds. Every path is compared with what was there before. The modules that came out are
# loaded in the test machine.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

here=$CGPU_TREE/tests/vm
engine=$("$here/engine-env.sh")
build=$CGPU_CACHE/build-$(sha256sum <<<"$CGPU_TREE" | cut -c1-12)
out=$(cat "$build/last-stock")
release=$(cat "$out/release")
work=$(mktemp -d "$CGPU_CACHE/package-XXXXXXXX")
trap 'rm -rf "$work"' EXIT

step "a Debian folder of its own"
# Linked, but for what is written to in place.
cp -al "$engine" "$work/root"
for folder in etc var; do
	rm -rf "${work:?}/root/$folder"
	cp -a "$engine/$folder" "$work/root/$folder"
done
root=$work/root
# This folder was made without manual pages; an operator's machine has them.
rm "$root"/etc/dpkg/dpkg.cfg.d/*mmdebstrap
mkdir -p "$root/files" "$root/tree" "$root/target"
# What is in /run goes with a boot. DKMS makes a key to sign with, once for all modules; it is not
# ours.
snapshot() {
	local but=() path
	for path in proc files tree target run var/log 'var/lib/dkms/mok.*' var/lib/dpkg var/cache \
		tmp; do
		but+=(-path "./$path" -prune -o)
	done
	(cd "$root" && find . "${but[@]}" -print | sort)
}
snapshot >"$work/before"

step "make package"
deb=$("$CGPU_TREE/dist/package.sh" --prebuilt "$out/bin" --output "$work")
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
step "dpkg --install: DKMS builds the module"
log "$work/dpkg.log" in_root "$root" -- dpkg --install "/files/$(basename "$deb")"
module=$(find "$root/lib/modules/$release/" -name 'cgpu_km.ko*')
[ -n "$module" ] || { cat "$work/dpkg.log" >&2; die "no module was built"; }
ok "the package installs, and DKMS builds the module"
cp "$module" "$work/"
[ ! -e "$work/cgpu_km.ko.xz" ] || xz -d "$work/cgpu_km.ko.xz"
mv "$work/cgpu_km.ko" "$work/dkms.ko"
in_root "$root" -- cgpuctl --version | grep -q "^cgpuctl " && ok "cgpuctl runs"
[ -s "$root/usr/share/man/man8/cgpuctl-cdi-generate.8.gz" ] && ok "manual pages are there"
in_root "$root" -- udevadm verify /usr/lib/udev/rules.d/71-cgpu.rules >"$work/verify.log" 2>&1 &&
	ok "udev understands the rule"
in_root "$root" -- systemd-analyze verify --man=no /usr/lib/systemd/system/cgpu.service \
	>>"$work/verify.log" 2>&1 &&
	ok "systemd understands the unit"
cat "$work/verify.log" >&2
log "$work/dpkg.log" in_root "$root" -- dpkg --remove cgpu
log "$work/dpkg.log" in_root "$root" -- dpkg --purge cgpu
snapshot >"$work/after"
diff "$work/before" "$work/after" ||
	die "removing the package leaves something, or removes too much"
ok "the package removes exactly what it installed"

step "install.sh, with its own builds"
# The libraries of the tool come along: this folder needs no network.
(cd "$CGPU_TREE" && git ls-files -z --cached --others --exclude-standard -- . ':!tests/traces') |
	(cd "$CGPU_TREE" && xargs -0 cp --parents -t "$root/tree")
mkdir -p "$root/tree/.cargo"
(cd "$CGPU_TREE" && cargo vendor --quiet --locked "$work/vendor" >/dev/null)
cat >"$root/tree/.cargo/config.toml" <<'END'
[source.crates-io]
replace-with = "vendor"
[source.vendor]
directory = "/vendor"
END
mkdir -p "$build/debian-target"
log "$work/install.log" \
	in_root "$root" "$work/vendor" /vendor ro "$build/debian-target" /target rw -- \
	env CARGO_TARGET_DIR=/target CARGO_NET_OFFLINE=true \
	/tree/install.sh --root /files/installed --kernel "$release" \
	--kdir "/usr/src/linux-headers-$release"
ok "install.sh builds with Debian's own rustc and cargo"
cp "$root/files/installed/lib/modules/$release/updates/cgpu_km.ko" "$work/installed.ko"
# shellcheck disable=SC2016  # the inner shell expands
in_root "$root" -- /tree/install.sh --root /files/installed --kernel "$release" |
	grep -q "nothing to do" &&
	ok "again, it has nothing to do"
in_root "$root" -- /tree/uninstall.sh --root /files/installed >/dev/null
[ -z "$(find "$root/files/installed" -mindepth 1)" ] &&
	ok "uninstall.sh removes exactly what was made"

step "both modules load"
cat >"$work/session" <<'END'
for module in dkms installed; do
	insmod "/files/$module.ko" && cgpuctl inst create a --gpu 0 --mem 2GiB >&2 &&
		cgpuctl unload >&2 && echo "ok $module.ko loads, works, and goes"
done
END
"$here/run.sh" --no-build --name package --load driver --file "$work/dkms.ko" \
	--file "$work/installed.ko" \
	--file "$work/session" -- sh /files/session >"$work/said" || :
cat "$work/said"
passed=$((passed + $(grep -c '^ok ' "$work/said" || :)))
all=13
echo "package: $passed passed, $((all - passed)) failed"
[ "$passed" = "$all" ]
