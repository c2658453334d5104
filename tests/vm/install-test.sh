#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# install-test.sh: `make` and install.sh as a user calls them. A copy of the tree is built by its
# Makefile in the Debian folder; what came out is installed, used and removed in the test machine,
# and every path there is compared with what was there before.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

here=$CGPU_TREE/tests/vm
out=$(cat "$CGPU_BUILD/last-stock")
root=$(readlink -f "$out/root")
release=$(cat "$out/release")
work=$(mktemp -d "$CGPU_CACHE/install-XXXXXXXX")
trap 'rm -rf "$work"' EXIT

step "make in a copy of the tree"
mkdir "$work/tree" "$work/prebuilt"
(cd "$CGPU_TREE" &&
	git ls-files -z --cached --others --exclude-standard -- Kbuild Makefile cgpu_km) |
	(cd "$CGPU_TREE" && xargs -0 cp --parents -t "$work/tree")
log "$work/make.log" in_root "$root" "$work/tree" /stage rw -- \
	make -C /stage KDIR="/usr/src/linux-headers-$release"
[ -e "$work/tree/cgpu_km.ko" ] || die "make leaves no cgpu_km.ko at the top"
ok "make leaves cgpu_km.ko at the top of the tree"
cp "$work/tree/cgpu_km.ko" "$out"/bin/cgpu{ctl,-hook,-runtime} "$work/prebuilt/"
make -s -C "$work/tree" clean
(cd "$work/tree" && find . -type f | sort) >"$work/after"
(cd "$CGPU_TREE" && git ls-files --cached --others --exclude-standard -- Kbuild Makefile cgpu_km |
	sed 's,^,./,' | sort) >"$work/before"
diff "$work/before" "$work/after" || die "make clean leaves something, or removes too much"
ok "make clean leaves the tree as it was"

step "install, use, uninstall"
cat >"$work/session" <<'END'
set -euo pipefail
snapshot() { find / -xdev ! -path ~root/\* ! -path '/sys/*' | sort; ls -A /run; }
refused() { if "$@" >/tmp/said 2>&1; then return 1; fi; cat /tmp/said >&2; }
mkdir -p "/lib/modules/$(uname -r)" /usr/local /var/lib
depmod
snapshot >/tmp/before

/files/install.sh --dry-run --prebuilt /files/prebuilt >&2
snapshot | diff /tmp/before - && echo "ok dry run changes nothing"
# Things that may stop a container afterwards are printed, and stop no installation.
mkdir /tmp/host
fake() { printf '#!/bin/sh\necho "%s"\n' "$2" >"/tmp/host/$1"; chmod 755 "/tmp/host/$1"; }
fake getenforce Enforcing
fake nvidia-smi Enabled
fake dockerd "Docker version 26.1.5+dfsg1, build a72d7cd"
fake containerd "containerd github.com/containerd/containerd 1.7.24~ds1 1.7.24~ds1-6"
fake podman "podman version 3.4.4"
warns() { PATH=/tmp/host:$PATH /files/install.sh --dry-run --prebuilt /files/prebuilt 2>&1; }
warns >/tmp/said
told='SELinux is|in MIG|docker 26.1 has|containerd 1 has|podman 3.4 has'
[ "$(grep -cE "$told" /tmp/said)" = 5 ] &&
	echo "ok SELinux, MIG and engines without CDI are told"
fake dockerd "Docker version 28.1.1, build 01f442b"
warns >/tmp/said
grep -q 'docker 28.1 has CDI switched off' /tmp/said &&
	echo "ok docker before 28.2 has CDI switched off"
fake getenforce Permissive
fake nvidia-smi "[N/A]"
fake dockerd "Docker version 28.2.0, build 7e9ffc6"
fake containerd "containerd github.com/containerd/containerd/v2 v2.0.2 c507a02"
fake podman "podman version 4.1.0"
warns >/tmp/said
! grep -E 'SELinux|MIG|docker|containerd|podman' /tmp/said >&2 &&
	echo "ok and not where nothing is in the way"
mkdir /etc/docker
echo '{"features": {"cdi": false}}' >/etc/docker/daemon.json
warns >/tmp/said
grep -q 'docker 28.2 has CDI switched off' /tmp/said &&
	echo "ok docker from 28.2 on can have it switched off too"
rm -r /etc/docker
rm -r /tmp/host

# Machines on which the module would not work. Each lacks nothing else.
machine() { # machine [DRIVER]: the /proc and /sys of a machine, with this line of its driver
	rm -rf /tmp/machine
	mkdir -p /tmp/machine/proc/driver/nvidia /tmp/machine/sys/firmware/efi/efivars
	touch /tmp/machine/proc/modules
	printf 'NVRM version: NVIDIA UNIX %s\n' "${1:-$open  580.142  Release Build}" \
		>/tmp/machine/proc/driver/nvidia/version
}
open="Open Kernel Module for x86_64"
tab=$(printf '\t')
closed="x86_64 Kernel Module  580.142  Thu Jul 23 01:44:26 UTC 2026"
secure() { # secure VALUE: the firmware's variable, of four bytes of attributes and its value
	printf '\006\000\000\000%b' "$1" >/tmp/machine/sys/firmware/efi/efivars/SecureBoot-8be4
}
judged() { # judged CODE [OPTIONS...]: whether a dry run on this machine exits with CODE
	local code=$1 rc=0
	shift
	CGPU_INSTALL_HOST=/tmp/machine /files/install.sh --dry-run --prebuilt /files/prebuilt "$@" \
		>/tmp/said 2>&1 || rc=$?
	cat /tmp/said >&2
	[ "$rc" = "$code" ]
}
alone() { [ "$(grep -c '^install.sh: ' /tmp/said)" = 1 ] && grep -q "^install.sh: $1" /tmp/said; }
machine
judged 0 && ! grep -q '^install.sh: ' /tmp/said && echo "ok a machine in order has no warning"
mkdir /tmp/machine/proc/cgpu_km
touch /tmp/machine/proc/cgpu_km/inst_ctl
echo "cgpu_km 32768 0 - Live 0x0" >/tmp/machine/proc/modules
judged 1 && alone "Alibaba's cGPU is loaded" && echo "ok no second cgpu_km beside Alibaba's"
rm /tmp/machine/proc/cgpu_km/inst_ctl
judged 1 && alone "cgpu_km is loaded already; cgpuctl unload" && echo "ok nor beside one of ours"
machine
secure '\001'
judged 1 && alone "Secure Boot is on: .*give --sign KEY CERT" && echo "ok Secure Boot wants a key"
judged 0 --no-load && echo "ok but not where nothing is loaded"
mkdir -p /tmp/headers/scripts
cp /bin/true /tmp/headers/scripts/sign-file
judged 0 --kdir /tmp/headers --sign /key /cert &&
	grep -q "would sign cgpu_km.ko with /key" /tmp/said &&
	echo "ok nor with a key"
secure '\000'
judged 0 && ! grep -q '^install.sh: ' /tmp/said && echo "ok Secure Boot that is off is none"
machine "$closed"
judged 1 && alone "the NVIDIA driver's kernel modules are the proprietary ones" &&
	echo "ok the closed driver is refused"
machine "$open  615.71.09  Release Build"
judged 0 && alone "warning: the NVIDIA driver is of branch 615, " &&
	[ "$(grep -e '^apt install nvidia-open-' -e '^apt-mark hold' /files/docs/install.md |
		sed 's/^/    /' | grep -cxFf - /tmp/said)" = 2 ] &&
	echo "ok another branch is warned of, with the pin of the document"
machine "$open  535.54.03  Release Build"
judged 0 && alone "warning: the NVIDIA driver is 535.54, " &&
	echo "ok a release of 535 before 535.86 is warned of"
machine "$open  535.86.10  Release Build"
judged 0 && ! grep -q '^install.sh: ' /tmp/said && echo "ok and 535.86 is not"
rm /tmp/machine/proc/driver/nvidia/version
judged 0 && alone "warning: the NVIDIA driver is not loaded" &&
	echo "ok a driver that is not loaded is warned of"
# Everything at once.
machine "$closed"
secure '\001'
mkdir /tmp/machine/proc/cgpu_km
touch /tmp/machine/proc/cgpu_km/inst_ctl
judged 1 && grep -q "3 things stand in the way" /tmp/said && echo "ok all of that at once"
# The same checks for a host without install.sh. There is no module for this kernel here.
preflight() { # preflight CODE: whether it exits with CODE on that machine
	local rc=0
	CGPU_INSTALL_HOST=/tmp/machine /files/dist/preflight.sh >/tmp/said 2>&1 || rc=$?
	cat /tmp/said >&2
	[ "$rc" = "$1" ]
}
preflight 1 && grep -q '^cgpu-preflight: no headers of kernel ' /tmp/said &&
	grep -q "^cgpu-preflight: Alibaba's cGPU is loaded" /tmp/said &&
	grep -q '^cgpu-preflight: Secure Boot is on.*mokutil --import ' /tmp/said &&
	grep -q "^cgpu-preflight: the NVIDIA driver's kernel modules are the proprietary" /tmp/said &&
	[ "$(wc -l </tmp/said)" = 4 ] && echo "ok preflight reports all of that at once"
CGPU_INSTALL_HOST=/tmp/machine /files/dist/preflight.sh --report >/tmp/said || :
[ "$(grep -c "^lack$tab[^$tab]*$tab[^$tab]*$tab[^$tab]*$" /tmp/said)" = 4 ] &&
	echo "ok preflight reports fields to programs"
# With the module, one of the running kernel, and the key of DKMS.
machine
touch "/lib/modules/$(uname -r)/cgpu_km.ko"
preflight 0 && grep -qx 'cgpu-preflight: nothing stands in the way' /tmp/said &&
	echo "ok preflight finds nothing in a machine in order"
secure '\001'
mkdir /tmp/host
fake mokutil "/var/lib/dkms/mok.pub is already enrolled"
PATH=/tmp/host:$PATH preflight 0 && echo "ok preflight knows an enrolled key"
fake mokutil "/var/lib/dkms/mok.pub is not enrolled"
! PATH=/tmp/host:$PATH preflight 0 && grep -q 'Secure Boot is on' /tmp/said &&
	echo "ok and one that is not"
fake uname 6.1.0-50-amd64
mkdir -p /lib/modules/6.1.0-50-amd64 /tmp/machine/proc/sys/kernel
touch /lib/modules/6.1.0-50-amd64/cgpu_km.ko
echo 0 >/tmp/machine/proc/sys/kernel/ftrace_enabled
secure '\000'
! PATH=/tmp/host:$PATH preflight 0 && grep -q 'sysctl kernel.ftrace_enabled=1' /tmp/said &&
	echo "ok preflight sees that a kernel before 6.10 has ftrace off"
echo 1 >/tmp/machine/proc/sys/kernel/ftrace_enabled
PATH=/tmp/host:$PATH preflight 0 && echo "ok and nothing where it is on"
rm -r /tmp/host /lib/modules/6.1.0-50-amd64 "/lib/modules/$(uname -r)/cgpu_km.ko"
rm -r /tmp/machine /tmp/headers

/files/install.sh --dry-run --prebuilt /files/prebuilt --prefix /opt/cgpu >/tmp/said 2>&1
grep -q 'do not look below /opt/cgpu/lib' /tmp/said &&
	echo "ok a prefix where nobody looks is told"
refused /files/install.sh --prebuilt /files/prebuilt --sign /key /cert &&
	grep -q 'scripts/sign-file, which is not there' /tmp/said && echo "ok no program that signs"
refused /files/install.sh --prebuilt /nowhere && echo "ok nothing to install"
refused /files/install.sh && echo "ok no headers"
[ "$(grep -c '^install.sh: no ' /tmp/said)" = 5 ] &&
	grep -q "5 things stand in the way" /tmp/said &&
	echo "ok all that is missing is told at once"
# An older gcc than the kernel's. Without the object the kernel is looked at all the same.
mkdir -p /tmp/host /tmp/kdir
fake gcc 11
touch /tmp/kdir/Makefile
printf 'CONFIG_GCC_VERSION=120300\nCONFIG_CC_VERSION_TEXT="%s (Ubuntu) 12.3.0"\n' \
	x86_64-linux-gnu-gcc-12 >/tmp/kdir/.config
! PATH=/tmp/host:$PATH /files/install.sh --dry-run --kdir /tmp/kdir >/tmp/said 2>&1
grep -q 'no x86_64-linux-gnu-gcc-12, .* apt install gcc-12)' /tmp/said &&
	echo "ok the kernel's compiler is named"
grep -q 'it is not for x86-64' /tmp/said && echo "ok a kernel is judged without the object"
fake gcc 12
! PATH=/tmp/host:$PATH /files/install.sh --dry-run --kdir /tmp/kdir >/tmp/said 2>&1
! grep 'no x86_64-linux-gnu-gcc-12' /tmp/said >&2 && echo "ok another name of it will do"
rm -r /tmp/host /tmp/kdir
snapshot | diff /tmp/before - && echo "ok a refusal changes nothing"

# A module that the kernel refuses: everything goes back.
mkdir /tmp/bad
cp /files/prebuilt/cgpu{ctl,-hook,-runtime} /tmp/bad/
head -c 4096 /files/prebuilt/cgpu_km.ko >/tmp/bad/cgpu_km.ko
refused /files/install.sh --prebuilt /tmp/bad
snapshot | diff /tmp/before - && echo "ok a failure half-way leaves nothing"

/files/install.sh --prebuilt /files/prebuilt >&2
cat /var/lib/cgpu/manifest >&2
[ -c /dev/cgpuctl ] && grep -q ' /run/cgpu/dev cgpufs ' /proc/mounts && echo "ok loaded and mounted"
/usr/local/sbin/cgpuctl gpu list >&2
/usr/local/sbin/cgpuctl inst create a --gpu 0 --mem 2GiB >&2
[ -c /run/cgpu/dev/a/nvidia0 ] && echo "ok usable"
snapshot >/tmp/installed
/files/install.sh --prebuilt /files/prebuilt | grep -q "nothing to do" && snapshot |
	diff /tmp/installed - && echo "ok twice is once"
sed -i '$d' /var/lib/cgpu/manifest
refused /files/install.sh --prebuilt /files/prebuilt && grep -q interrupted /tmp/said &&
	echo "ok an interrupted installation is told from a whole one"
echo "# complete" >>/var/lib/cgpu/manifest
refused /files/install.sh --prebuilt /files/prebuilt --prefix /usr &&
	echo "ok not beside another one"
/files/install.sh --dry-run --prebuilt /files/prebuilt --prefix /usr >/tmp/said 2>&1 &&
	grep -q 'is installed; run its uninstall.sh' /tmp/said &&
	grep -q 'would install /usr/sbin\|would install .* in /usr/sbin' /tmp/said &&
	echo "ok but a dry run looks past it"
for made in lib/udev/rules.d/71-cgpu.rules lib/systemd/system/cgpu.service \
	share/man/man8/cgpuctl.8; do
	[ -s "/usr/local/$made" ] || echo "no $made" >&2
done
! grep -r @SBIN@ /usr/local/lib /usr/share/containers &&
	grep -q '"/usr/local/sbin/cgpu-hook"' /usr/share/containers/oci/hooks.d/cgpu-create.json &&
	echo "ok rule, unit and hooks name the installed programs"

pages() { # pages: the pages that the tool's help and manual name, as paths of this machine
	{ /usr/local/sbin/cgpuctl inst list --help; cat /usr/local/share/man/man8/*; } |
		grep -o '/usr/share/doc/cgpu/[a-z/]*\.md' | sort -u
}
for page in $(pages) /usr/share/doc/cgpu/docs/install.md; do
	[ -s "$page" ] || echo "no $page"
done | diff /dev/null - && [ -n "$(pages)" ] && echo "ok the pages that the tool names are there"
/usr/local/sbin/cgpuctl doctor --json >/tmp/said || :
grep -A 2 '"check": "preflight"' /tmp/said >&2
! grep -A 2 '"check": "preflight"' /tmp/said | grep -q '"unknown"' &&
	grep -q '"check": "preflight"' /tmp/said && echo "ok doctor asks preflight"

# The unit does this at boot.
/usr/local/sbin/cgpuctl inst save >&2
/usr/local/sbin/cgpuctl inst destroy a >&2
/usr/local/sbin/cgpuctl inst restore >&2
/usr/local/sbin/cgpuctl inst show a | grep -q "2 GiB" && rm -r /etc/cgpu &&
	echo "ok saved instances come back"

# Not while somebody uses it.
exec 5<>/dev/cgpu1
refused /files/uninstall.sh && [ -e /usr/local/sbin/cgpuctl ] && echo "ok refused while in use"
exec 5>&-
/files/uninstall.sh --dry-run >&2
[ -e /usr/local/sbin/cgpuctl ] && [ -c /dev/cgpuctl ] && echo "ok dry run removes nothing"
/files/uninstall.sh >&2
[ ! -e /sys/module/cgpu_km ] && echo "ok unloaded"
depmod
snapshot | diff /tmp/before - && echo "ok removed exactly what was made"

# Loaded by hand.
/files/install.sh --prebuilt /files/prebuilt --no-load >&2
modprobe cgpu_km
/usr/local/sbin/cgpuctl inst create a --gpu 0 --mem 2GiB >&2
exec 5<>/dev/cgpu0
refused /files/uninstall.sh && [ -e /usr/local/sbin/cgpuctl ] &&
	echo "ok refused while in use that was loaded by hand"
exec 5>&-
/files/uninstall.sh >&2
[ ! -e /sys/module/cgpu_km ] && echo "ok unloaded that was loaded by hand"
END
libraries=()
for library in /lib64/ld-linux-x86-64.so.2 /lib/x86_64-linux-gnu/libc.so.6 \
	/lib/x86_64-linux-gnu/libtinfo.so.6; do
	libraries+=(--file "$root/usr$library:$library")
done
rc=0
"$here/run.sh" --no-build --name install --limit 1200 --load driver \
	--file "$root/usr/bin/bash:/bin/bash" "${libraries[@]}" \
	--file "$CGPU_TREE/install.sh" --file "$CGPU_TREE/uninstall.sh" --file "$CGPU_TREE/dist" \
	--file "$CGPU_TREE/Cargo.toml" --file "$CGPU_TREE/README.md" --file "$CGPU_TREE/docs" \
	--file "$work/prebuilt" --file "$work/session" -- bash /files/session >"$work/said" || rc=$?
# The tests that the session has, and the two above.
all=$((2 + $(grep -c 'echo "ok ' "$work/session")))
[ "$rc" = 0 ] || all=$((all + 1))
tally install "$all" <"$work/said"
