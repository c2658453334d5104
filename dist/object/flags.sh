# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# flags.sh: the flags of rustc for code that is to run in any kernel for x86-64, for crates.sh and
# build.sh. To be sourced; sets FLAGS. They are the kernel's own (its Makefile and
# arch/x86/Makefile), with every mitigation that a kernel may have: what a kernel does not use does
# no harm there. Frame pointers are for kernels that unwind by them, the 16 bytes before a function
# for those that patch calls (CALL_PADDING).
FLAGS=(
	--edition=2021 --cap-lints=allow -Zunstable-options
	-Copt-level=2 -Ccodegen-units=1 -Cpanic=abort
	-Cdebug-assertions=n -Coverflow-checks=y
	-Csymbol-mangling-version=v0 -Cforce-unwind-tables=n -Zfunction-sections=n
	-Crelocation-model=static -Ccode-model=kernel -Cno-redzone=y -Cforce-frame-pointers=y
	-Ctarget-cpu=x86-64 -Ztune-cpu=generic
	-Ctarget-feature=-sse,-sse2,-sse3,-ssse3,-sse4.1,-sse4.2,-avx,-avx2
	-Zcf-protection=branch -Zno-jump-tables -Zfunction-return=thunk-extern
	-Zpatchable-function-entry=16,16
	--target=/object/target.json --sysroot=/dev/null -L/object/lib
	--remap-path-prefix=/object/= --remap-path-prefix=/src/= --remap-path-prefix=/usr/src/=
	--remap-path-prefix=/helpers/=
)
