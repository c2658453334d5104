#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# check-log.sh LOG: names the faults that a kernel's console log tells of, a line each, and fails if
# there are any. Only the kernel's own lines count: they begin with a time. A session that makes
# GPUs fail says so there, "cgpu-vm: GPUs fail", and looks at the driver's errors (Xids) itself.
set -euo pipefail

LOG=${1:?a console log}
found=0
asked=no
! grep -qE '^\[ *[0-9]+\.[0-9]{6}\] cgpu-vm: GPUs fail' "$LOG" || asked=yes
while IFS='|' read -r name pattern; do
	[ -n "$name" ] || continue
	[ "$asked $name" != "yes xid" ] || continue
	if line=$(grep -m1 -E "\[ *[0-9]+\.[0-9]{6}\].*$pattern" "$LOG"); then
		printf 'kernel fault: %s: %s\n' "$name" "$line"
		found=1
	fi
done <<'PATTERNS'
bug|BUG:
bug-on|kernel BUG at
warning|WARNING:
oops|Oops
panic|Kernel panic
protection-fault|general protection fault
page-fault|unable to handle
kasan|KASAN:
ubsan|UBSAN:
kcsan|KCSAN:
refcount|refcount_t:
lockdep|INFO: (possible|inconsistent|trying to register|lockdep)
rcu-usage|suspicious RCU
rcu-stall|rcu: INFO:|self-detected stall
hung-task|INFO: task .* blocked
soft-lockup|soft lockup|hard LOCKUP
sleep-in-atomic|sleeping function called
scheduling-in-atomic|scheduling while atomic
list-corruption|list_(add|del) corruption
debug-objects|ODEBUG:
held-lock-freed|held lock freed
slab|BUG [a-z0-9-]+ \(.*\): 
slab-left|Objects remaining
double-free|double free|Invalid wait context
bad-page|Bad page|bad_page|Bad rss-counter
module-busy|Module .* is in use
leak|kmemleak: [0-9]+ new suspected
rust-panic|rust_kernel: panicked
memory-type|freeing invalid memtype
xid|NVRM: Xid
out-of-memory|Out of memory:|oom-kill:
guest|cgpu-vm: fault:
PATTERNS
exit $found
