# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# The real driver in the test machine: what ../vm/run.sh adds for `--driver real`. To be sourced
# after lib.sh. The GPUs are emulated by tests/gpu_emulator, to which QEMU speaks over sockets
# (vfio-user).

# Video memory of a GPU, in MiB. Less than any real one has: the tests fill it.
REAL_MEMORY=${REAL_MEMORY:-8192}

# The process of the emulator, while it runs.
EMULATOR=

# real_programs OUT: compiles the CUDA program into OUT, the folder of what was built for this tree.
# It loads libcuda, so it is linked with the C library of the machine: in the Debian folder. One at
# a time: two machines may start at once.
real_programs() {
	local out=$1 sources
	exec 7>"$out/cuda.lock"
	flock 7
	sources=$(cd "$CGPU_TREE/tests/cuda" && find src -type f -print0 | sort -z |
		xargs -0 sha256sum | sha256sum)
	mkdir -p "$out/cuda"
	if [ "$(cat "$out/cuda/sources" 2>/dev/null)" != "$sources" ]; then
		step "CUDA program"
		log "$out/cuda/rustc.log" in_root "$REAL_ROOT" "$CGPU_TREE" /src ro "$out/cuda" /build rw \
			-- rustc --edition 2021 -O -C strip=debuginfo -o /build/cuda-check \
			/src/tests/cuda/src/main.rs
		echo "$sources" >"$out/cuda/sources"
	fi
	exec 7>&-
}

# real_stage STAGE OUT KERNEL: puts the driver, its firmware, its libraries and nvidia-smi into the
# machine, and the CUDA program. OUT is the folder of what was built for this tree. Sets REAL_ROOT,
# the Debian folder with the QEMU that is needed, and REAL_RELEASE.
real_stage() {
	local stage=$1 out=$2 kernel=$3 modules user libraries=/usr/lib/x86_64-linux-gnu library version
	REAL_ROOT=$("$CGPU_TREE/tests/driver/env.sh")
	modules=$("$CGPU_TREE/tests/driver/build.sh" --kernel "$kernel")
	REAL_RELEASE=$(cat "$modules/release")
	user=$(dirname "$REAL_ROOT")
	cp "$modules"/*.ko "$stage/modules/"
	"$out/bin/gpu-emulator" firmware --branch "$REAL_RELEASE" \
		"$stage/lib/firmware/nvidia/$REAL_RELEASE"

	mkdir -p "$stage/lib64" "$stage$libraries"
	cp -L "$REAL_ROOT$libraries/ld-linux-x86-64.so.2" "$stage/lib64/"
	for library in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libgcc_s.so.1; do
		cp -L "$REAL_ROOT$libraries/$library" "$stage$libraries/"
	done
	real_programs "$out"
	cp "$out/cuda/cuda-check" "$stage/bin/"
	# NVIDIA's programs refuse a driver of another release than their own.
	if [ "$REAL_RELEASE" != "$(cat "$user/release")" ]; then
		step "the driver is $REAL_RELEASE: without nvidia-smi and libcuda, which are $(cat "$user/release")"
		return
	fi
	cp "$user/user/nvidia-smi" "$REAL_ROOT/usr/bin/clinfo" "$stage/bin/"
	cp -L "$REAL_ROOT$libraries/libOpenCL.so.1" "$stage$libraries/"
	for library in "$user"/user/lib*; do
		cp "$library" "$stage$libraries/"
		library=$(basename "$library")
		version=1
		[ "${library%%.*}" != libnvidia-nvvm ] || version=4
		ln -s "$library" "$stage$libraries/${library%%.*}.so.$version"
	done
	mkdir -p "$stage/etc/OpenCL/vendors"
	echo libnvidia-opencl.so.1 >"$stage/etc/OpenCL/vendors/nvidia.icd"
}

# real_start WORK OUT GPUS MEMORY: starts the emulator, and says in HARDWARE what QEMU needs for its
# GPUs. WORK is /stage in QEMU's folder.
real_start() {
	local work=$1 out=$2 gpus=$3 memory=$4 n line socket slot device
	# A socket's path may have 107 characters: the name alone, and the folder is the program's.
	mkfifo "$work/ready"
	(
		cd "$work"
		exec "$out/bin/gpu-emulator" serve --socket gpu.sock --log gpu.log --gpus "$gpus" \
			--memory "$REAL_MEMORY" --branch "$REAL_RELEASE" --control faults.sock
	) >"$work/ready" 2>"$work/emulator.errors" </dev/null 9>&- &
	EMULATOR=$!
	exec 8<"$work/ready"
	read -r line <&8 ||
		die "the emulator did not start: $(tail -n 3 "$work/emulator.errors")"
	cat <&8 >"$work/emulator.said" &
	exec 8<&-
	# The device reads and writes the machine's memory itself: it is shared with it.
	HARDWARE=(-object "memory-backend-memfd,id=ram,size=${memory}M,share=on")
	HARDWARE+=(-machine "q35,memory-backend=ram")
	# Faults of the first GPU: what the machine writes to ttyS3.
	socket=/stage/faults.sock
	[ "$gpus" = 1 ] || socket+=.0
	HARDWARE+=(-chardev "socket,id=faults,path=$socket,server=off")
	HARDWARE+=(-device isa-serial,chardev=faults,index=3)
	for ((n = 0; n < gpus; n++)); do
		socket=/stage/gpu.sock
		[ "$gpus" = 1 ] || socket+=.$n
		slot="chassis=$((n + 1)),slot=$((n + 1))"
		# On the root bus QEMU takes the link's capabilities away from a device.
		HARDWARE+=(-device "pcie-root-port,id=port$n,$slot,x-speed=32,x-width=16")
		# A host that is busy may take longer over an answer than the five seconds that QEMU waits.
		device="\"driver\":\"vfio-user-pci\",\"bus\":\"port$n\",\"rombar\":0"
		device+=",\"x-msg-timeout\":300000"
		HARDWARE+=(-device "{$device,\"socket\":{\"path\":\"$socket\",\"type\":\"unix\"}}")
	done
}

# real_end WORK: after the machine. Fails if the emulator had to be ended, or ended badly.
real_end() {
	local work=$1 rc=0 patience
	for ((patience = 1200; patience > 0; patience--)); do
		kill -0 "$EMULATOR" 2>/dev/null || break
		sleep 0.1
	done
	if [ "$patience" = 0 ]; then
		kill -9 "$EMULATOR"
		step "the emulator did not end with the machine"
	fi
	wait "$EMULATOR" || rc=$?
	EMULATOR=
	if [ "$rc" != 0 ] || [ -s "$work/emulator.errors" ]; then
		step "the emulator's exit code is $rc: $(tail -n 5 "$work/emulator.errors")"
		return 1
	fi
}

# real_kill: if it still runs.
real_kill() {
	[ -z "$EMULATOR" ] || kill -9 "$EMULATOR" 2>/dev/null || :
}
