#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# package.sh [OPTIONS]: makes cgpu_VERSION_amd64.deb and prints its path. In it are the tools, and
# what DKMS builds the module of for each kernel of the host: the object, and C.
#
#   --rpm            makes cgpu-VERSION-1.x86_64.rpm instead (cgpu.spec)
#   --prebuilt DIR   takes the tools from there instead of building them with cargo (with the C
#                    library in them, so that they run on hosts of any age)
#   --object DIR     takes what `make object` made from there instead of making it
#   --output DIR     puts the package there (target/package)
set -euo pipefail

die() {
	printf 'package.sh: %s\n' "$*" >&2
	exit 1
}
dist=$(cd "$(dirname "$0")" && pwd -P)
tree=$(dirname "$dist")
# shellcheck source-path=SCRIPTDIR source=userland.sh
. "$dist/userland.sh"
rpm='' prebuilt='' object='' output=$tree/target/package
while [ $# -gt 0 ]; do
	case $1 in
	--rpm) rpm=yes ;;
	--prebuilt) prebuilt=${2:?}; shift ;;
	--object) object=${2:?}; shift ;;
	--output) output=${2:?}; shift ;;
	*) die "unknown option: $1" ;;
	esac
	shift
done
builder=${rpm:+rpmbuild} builder=${builder:-dpkg-deb}
command -v "$builder" >/dev/null || die "needs $builder"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$tree/Cargo.toml" | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/built" "$work/scripts" "$output"

if [ -n "$prebuilt" ]; then
	cp "${programs[@]/#/$prebuilt/}" "$work/built/"
else
	triple=x86_64-unknown-linux-gnu
	# As the tests build them, so that they need not be built again.
	(cd "$tree" && CARGO_ENCODED_RUSTFLAGS=-Ctarget-feature=+crt-static \
		CARGO_PROFILE_RELEASE_STRIP=debuginfo \
		cargo build --quiet --release --locked -p cgpuctl --target "$triple")
	target=${CARGO_TARGET_DIR:-$tree/target}/$triple
	cp "${programs[@]/#/$target/release/}" "$work/built/"
fi
file() { # file FROM TO MODE
	install -D -m "$3" "$1" "$work/root$2"
}
say() { :; }
userland "$work/built" /usr
find "$work/root/usr/share/man" -name '*.8' -exec gzip -9n {} +
if [ -n "$rpm" ]; then
	(cd "$work/root/usr/share/zsh" && mv vendor-completions site-functions)
fi

source=/usr/src/cgpu-$version
object=${object:-$("$dist/object/build.sh")}
(cd "$object" && find . -type f ! -name made-of) | while IFS= read -r path; do
	file "$object/$path" "$source/${path#./}" 644
done
sed "s/@VERSION@/$version/" "$dist/dkms.conf" >"$work/dkms.conf"
file "$work/dkms.conf" "$source/dkms.conf" 644
file "$dist/supported.sh" "$source/supported.sh" 755
doc=$work/root/usr/share/doc/cgpu
mkdir -p "$work/root/etc/cgpu" "$doc"
# The object is a binary; whoever gets it gets what it was made of.
(cd "$tree" && find Kbuild Makefile LICENSES cgpu_km dist/object -type f ! -name '*_generated.rs' \
	! -name '*.o' ! -name '.*' -print0 | LC_ALL=C sort -z |
	tar --null --no-recursion --owner=0 --group=0 --mtime=@0 --mode=go=rX,u+rw -T - -cf - |
	xz -9) >"$doc/source.tar.xz"
{
	echo "cgpu: shares of an NVIDIA GPU for containers."
	echo
	echo "The module is GPL-2.0 (/usr/share/common-licenses/GPL-2); cgpu_km/uapi, cgpu_km/nvidia and cgpuctl may also be used under the MIT licence."
	echo
	echo "$source/cgpu_core.o_shipped is made of source.tar.xz in this folder, of the directory rust in Debian's $(cat "$object/kernel-source") (GPL-2.0), and of core in Debian's rust-src (MIT or Apache-2.0)."
	echo
	cat "$tree/LICENSES/MIT.txt"
} >"$doc/copyright"

# ---- what the package does when it comes and goes
# RPM gives the number of versions that will be there, Debian a word.
if [ -n "$rpm" ]; then
	removes='[ "$1" = 0 ]' safely=--rpm_safe_upgrade
else
	removes='[ "$1" = remove ]' safely=
fi
cat >"$work/scripts/preinst" <<END
# Refuses beside what install.sh installed, whose module and tools would shadow these, and beside
# another module of the same name.
set -e
if [ -e /var/lib/cgpu/manifest ]; then
	echo "cgpu: install.sh has installed cgpu on this machine (/var/lib/cgpu/manifest); run its ./uninstall.sh first" >&2
	exit 1
fi
if [ -e /proc/cgpu_km/inst_ctl ]; then
	echo "cgpu: Alibaba's cGPU is loaded, whose module is called cgpu_km too; stop and remove it first" >&2
	exit 1
fi
END
cat >"$work/scripts/postinst" <<END
# Builds the module for the kernels that are here. If one cannot be supported, the reason is said,
# and the package is installed all the same.
set -e
failed() {
	echo "cgpu: see above why DKMS does not build the module; 'dkms install cgpu/$version' tries again" >&2
}
# fits BUILD: whether the module can be built with these headers. Of the running kernel
# cgpu-preflight says it below.
fits() {
	[ -e "\$1/Makefile" ] || return 1
	if why=\$($source/supported.sh "\$1" 2>&1); then return 0; fi
	[ "\$1" = "/lib/modules/\$(uname -r)/build" ] || echo "\$why" >&2
	return 1
}
END
if [ -n "$rpm" ]; then
	cat >>"$work/scripts/postinst" <<END
dkms add -m cgpu -v $version $safely >/dev/null || :
for build in /lib/modules/*/build; do
	fits "\$build" || continue
	kernel=\${build%/build}
	dkms install -m cgpu -v $version -k "\${kernel##*/}" $safely || failed
done
END
else
	cat >>"$work/scripts/postinst" <<END
[ "\$1" = configure ] || exit 0
/usr/lib/dkms/common.postinst cgpu $version "" "" "\$2" || failed
# That is for the running kernel and the newest. The module of an older package is gone from all.
for build in /lib/modules/*/build; do
	fits "\$build" || continue
	kernel=\${build%/build}
	kernel=\${kernel##*/}
	dkms status -m cgpu -v $version -k "\$kernel" | grep -q installed ||
		dkms install -m cgpu -v $version -k "\$kernel" || failed
done
END
fi
cat >>"$work/scripts/postinst" <<END
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
if [ -S /run/udev/control ]; then udevadm control --reload; fi
# All that is still in the way of the module or of containers. The package is installed all the
# same: afterwards 'cgpuctl doctor' and 'cgpu-preflight' say the same.
cgpu-preflight >&2 || :
END
cat >"$work/scripts/prerm" <<END
# Refuses while an instance is in use: the module would stay, without its tool.
set -e
if $removes && grep -qs '^cgpu_km ' /proc/modules; then
	cgpuctl unload || { echo "cgpu: not removed, see above" >&2; exit 1; }
fi
if $removes && [ -d /run/systemd/system ]; then
	systemctl disable --now cgpu.service || :
fi
dkms remove -m cgpu -v $version --all $safely || :
END
cat >"$work/scripts/postrm" <<END
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
END

if [ -n "$rpm" ]; then
	# Folders that every host has belong to other packages.
	(cd "$work/root" && find . -type f -printf '"/%P"\n' -o -type d -regextype egrep \
		-regex '.*(cgpu|/oci|/zsh|/fish|/bash-completion).*' -printf '%%dir "/%P"\n' \
	) >"$work/listed"
	rpmbuild --quiet -bb --target x86_64 --define "_topdir $work/rpmbuild" \
		--define "version $version" --define "staged $work/root" --define "listed $work/listed" \
		--define "scripts $work/scripts" "$dist/cgpu.spec" >&2
	rpm=$output/cgpu-$version-1.x86_64.rpm
	cp "$work"/rpmbuild/RPMS/x86_64/*.rpm "$rpm"
	echo "$rpm"
	exit 0
fi
mkdir "$work/root/DEBIAN"
for script in preinst postinst prerm postrm; do
	{
		echo "#!/bin/sh"
		cat "$work/scripts/$script"
	} >"$work/root/DEBIAN/$script"
	chmod 755 "$work/root/DEBIAN/$script"
done
cat >"$work/root/DEBIAN/control" <<END
Package: cgpu
Version: $version
Architecture: amd64
Maintainer: cgpu <cgpu@localhost>
Section: admin
Priority: optional
Depends: dkms (>= 3.0)
Suggests: podman
Installed-Size: $(du -sk "$work/root" | cut -f1)
Description: shares of an NVIDIA GPU for containers, with limits that hold
 A kernel module puts proxies in front of the NVIDIA driver's device files; each
 container gets its own set, an instance, with a memory limit and a weight. The
 module is built by DKMS, with gcc and the kernel's headers.
END
deb=$output/cgpu_${version}_amd64.deb
dpkg-deb --root-owner-group --build "$work/root" "$deb" >&2
echo "$deb"
