#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# documents.sh: runs the commands of README and docs/ in their order, on one machine, a Debian 13
# host with the stand-in driver and two GPUs. documents.py has the commands, those that are left
# out with the reason, and judges what they print.
#
# host     this machine, in a copy of the tree: `make object` and `make package`
# folder   the Debian folder before it starts as a machine: what builds the module by the kernel's
#          headers, which an emulated processor would do in minutes
# machine  the same folder, started in QEMU: all the rest
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../vm/lib.sh
. "$(dirname "$0")/../vm/lib.sh"

here=$CGPU_TREE/tests/documents
engine=$("$CGPU_TREE/tests/vm/engine-env.sh")
out=$(cat "$CGPU_BUILD/last-stock")
release=$(cat "$out/release")
work=$(mktemp -d "$CGPU_CACHE/documents-XXXXXXXX")
trap 'rm -rf "$work"' EXIT
for place in host folder machine; do
	"$here/documents.py" "$place" >"$work/$place"
done

step "commands of the host: the object and the package"
tree=$work/tree
mkdir "$tree"
(cd "$CGPU_TREE" && git ls-files -z --cached --others --exclude-standard -- . ':!tests/traces') |
	(cd "$CGPU_TREE" && xargs -0 cp --parents -t "$tree")
(cd "$tree" && CARGO_TARGET_DIR=$CGPU_BUILD/target bash "$work/host") >"$work/host.said"

step "commands of the folder: both ways to install"
root=$work/root
link_folder "$engine" "$root"
mv "$tree" "$root/opt/cgpu"
tree=$root/opt/cgpu
mkdir -p "$tree/.cargo" "$CGPU_BUILD/debian-target"
(cd "$tree" && cargo vendor --quiet --locked "$work/vendor" >/dev/null)
cat >"$tree/.cargo/config.toml" <<'END'
[source.crates-io]
replace-with = "vendor"
[source.vendor]
directory = "/vendor"
END
cp "$work/folder" "$root/opt/commands"
in_root "$root" "$work/vendor" /vendor ro "$CGPU_BUILD/debian-target" /target rw -- \
	env CARGO_TARGET_DIR=/target CARGO_NET_OFFLINE=true RELEASE="$release" \
	sh -c 'cd /opt/cgpu && bash /opt/commands' >"$work/folder.said"

step "commands of the machine"
# It compiles nothing any more; of the headers it is asked whether they are there.
find "$root"/usr/src/linux-headers-* -mindepth 1 -maxdepth 1 ! -name Makefile -exec rm -rf {} +
for path in usr/lib/llvm-19 usr/lib/rustlib usr/src/rustc-* usr/libexec/gcc usr/lib/gcc \
	usr/bin/qemu-system-* usr/share/qemu usr/bin/x86_64-linux-gnu-lto-dump-* \
	usr/lib/x86_64-linux-gnu/lib{LLVM,rustc,clang,z3}* usr/lib/cni usr/bin/cargo usr/include; do
	# shellcheck disable=SC2086  # a pattern
	rm -rf "${root:?}"/$path
done
mkdir -p "$work/prebuilt" "$work/image/bin" "$work/image/tmp"
cp "$out"/bin/cgpu{ctl,-hook,-runtime} "$out/modules/cgpu_km.ko" "$work/prebuilt/"
# An image that has the name of NVIDIA's, and a program that has the name of its own: it makes a
# client in the driver, by the container's nodes.
cp "$out/bin/cgpu-guest" "$root/usr/bin/busybox" "$work/image/bin/"
ln -s busybox "$work/image/bin/sh"
cat >"$work/image/bin/nvidia-smi" <<'END'
#!/bin/sh
exec 3<>/dev/nvidiactl 4<>/dev/nvidia0 5<>/dev/nvidia-uvm && exec /bin/cgpu-guest use-fd 3
END
chmod 755 "$work/image/bin/nvidia-smi"
tar -C "$work/image" --owner=0 --group=0 -cf "$work/image.tar" .
rc=0
"$CGPU_TREE/tests/vm/run.sh" --no-build --name documents --gpus 2 --load driver --memory 5120 \
	--limit "${LIMIT:-2400}" --folder "$root:/machine" --file "$work/image.tar" \
	--file "$work/prebuilt" --file "$work/machine:/files/commands" \
	--file "$here/session.sh" -- sh /files/session.sh >"$work/machine.said" || rc=$?
"$here/documents.py" --judge "$work"/{host,folder,machine}.said || rc=1
exit "$rc"
