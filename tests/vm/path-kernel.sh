#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# path-kernel.sh: a kernel that paths name, such as Ubuntu's or Red Hat's. Prints a folder like that
# of host-kernel.sh, with links to what the paths name.
#
#   KHEADERS=PATH   its headers: their folder (usr/src/linux-headers-*, usr/src/kernels/*), or the
#                   folder into which the packages with the headers were unpacked
#   KIMAGE=PATH     its vmlinuz
#
# Distributions divide the headers among packages, which refer to each other. What belongs to a
# folder below usr/src is found beside it: other headers there, and usr/lib/linux-kbuild-*.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
shopt -s nullglob

[ -n "${KHEADERS:-}" ] || die "KHEADERS is not set: it names the kernel's headers"
[ -n "${KIMAGE:-}" ] || die "KIMAGE is not set: it names the kernel's vmlinuz"
headers=$(readlink -e "$KHEADERS") || die "KHEADERS=$KHEADERS: there is no such folder"
image=$(readlink -e "$KIMAGE") || die "KIMAGE=$KIMAGE: there is no such file"

beside=()
if [ -d "$headers/usr/src" ]; then
	# The other folders of headers do not say what the kernel exports.
	complete=("$headers"/usr/src/{linux-*headers-*,kernels/*}/Module.symvers)
	[ ${#complete[@]} = 1 ] ||
		die "KHEADERS=$KHEADERS: usr/src has ${#complete[@]} folders with a Module.symvers, not one"
	headers=${complete[0]%/Module.symvers}
fi
tree=
if [[ $headers == */usr/src/* ]]; then
	tree=${headers%/usr/src/*}
	beside=("$tree"/usr/src/linux-*headers-*/ "$tree"/usr/lib/linux-kbuild-*/)
fi
for needed in Makefile Module.symvers .config include/config/kernel.release scripts/mod/modpost; do
	[ -e "$headers/$needed" ] ||
		die "$headers has no $needed; is it in another package of this kernel's headers?"
done
# Debian's says nothing else.
included=$(sed -n 's,^include \(/usr/src/.*\),\1,p' "$headers/Makefile")
[ -z "$included" ] || [ -e "$tree$included" ] ||
	die "$headers needs $included; is it in another package of this kernel's headers?"
release=$(cat "$headers/include/config/kernel.release")

# bytes FROM COUNT: bytes of the image, with ends of lines in the place of zeros.
bytes() {
	dd if="$image" bs=1 skip="$1" count="$2" status=none | tr '\0' '\n'
}
# The header of x86's boot protocol: its mark, and where the text of the version is.
[ "$(bytes 514 4)" = HdrS ] || die "KIMAGE=$KIMAGE is no vmlinuz of x86"
at=$(od -An -tu2 -j 526 -N 2 "$image")
booted=$(bytes $((at + 512)) 256 | sed -n '1s/ .*//p')
[ "$booted" = "$release" ] ||
	die "KIMAGE=$KIMAGE is $booted, and the headers in $headers are those of $release"

key=$(sha256sum "$headers"/{Module.symvers,.config} | sha256sum | cut -c1-12)
folder=$CGPU_BUILD/kernels/path-$key
mkdir -p "$folder"/tree/usr/{src,lib}
for other in "${beside[@]}"; do
	other=${other%/}
	ln -sfn "$other" "$folder/tree${other#"$tree"}"
done
ln -sfn "$headers" "$folder/tree/usr/src/linux-headers-$release"
cp "$image" "$folder/vmlinuz.new"
mv -f "$folder/vmlinuz.new" "$folder/vmlinuz"
echo "$release" >"$folder/release"
echo "$folder"
