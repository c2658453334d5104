#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# supported.sh HEADERS [EXPORTS]: says in one sentence why the module cannot be built for the kernel
# of these headers, and exits with 77 then. DKMS takes that number as "not for this kernel", so that
# the kernel's own package is installed all the same. EXPORTS is the object's list of the kernel's
# functions that it calls (dist/object). If it is not given, it is the file `exports` beside this
# one.
set -euo pipefail

no() {
	printf 'cgpu: no module for the kernel of %s: %s\n' "$headers" "$*" >&2
	exit 77
}
headers=${1:?the folder of a kernel\'s headers}
exports=${2:-$(dirname "$0")/exports}
config=$headers/.config

has() {
	grep -q "^CONFIG_$1=y" "$config"
}
[ -e "$headers/Makefile" ] || no "its headers are not installed"
[ -e "$config" ] || no "the headers have no .config"
has X86_64 || no "it is not for x86-64"
has MODULES || no "it takes no modules"
# It takes the marks away where an unchecked call may land, and Rust's functions have no others.
! has FINEIBT || no "it checks indirect calls where they land (CONFIG_FINEIBT)"
# A kernel without sealed mappings needs what scratch/seal.c needs. Debian's headers are in two
# folders, and the Makefile of one names the other.
common=$(sed -n 's,^include \(/.*\)/Makefile$,\1,p' "$headers/Makefile")
mappings=${common:-$headers}/include/linux/mm.h
if [ -e "$mappings" ] && ! grep -qw VM_SEALED "$mappings"; then
	for name in DYNAMIC_FTRACE_WITH_REGS USERFAULTFD; do
		has $name || no "it has no sealed mappings (VM_SEALED), and without them needs CONFIG_$name"
	done
	! has LTO || no "it has no sealed mappings (VM_SEALED), and without them must not have CONFIG_LTO"
fi
symbols=$headers/Module.symvers
[ -s "$symbols" ] || no "its headers have no Module.symvers"
missing=$(cut -f2 "$symbols" | LC_ALL=C sort | LC_ALL=C comm -13 - "$exports" | tr '\n' ' ')
# The C alone calls these, and some distributions do not export them. Of several names one will do.
for names in task_work_add 'zap_vma_range|zap_page_range_single|zap_page_range'; do
	grep -qE "^\S+\s($names)\s" "$symbols" || missing+="${names//|/ or } "
done
[ -z "$missing" ] || no "it does not export to modules: $missing"
