#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# check-log-test.sh: check-log.sh finds each fault that it knows in lines as the kernel writes them,
# and finds nothing in a quiet log.
set -euo pipefail

here=$(dirname "$0")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0

verdict() {
	if [ "$1" = yes ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "check-log: $2"
	fi
}

# A program's own lines about faults are not the kernel's, nor are harmless lines of a boot.
cat >"$log" <<'END'
[    0.000000] Linux version 7.2.12 (x86_64-linux-gnu-gcc-14)
[    0.231234] LSM: initializing lsm=lockdown,capability
[    3.889349] cgpu_km: loading out-of-tree module taints kernel.
[    3.600000] cgpu-vm: begin 3.57
kernel_warnings: 0 BUG: WARNING: Oops
END
if "$here/check-log.sh" "$log" >/dev/null; then
	verdict yes
else
	verdict no "finds a fault in a quiet log"
fi

# Errors that a session asks for are its own business, and nothing else is.
cat >"$log" <<'END'
[    3.700000] cgpu-vm: GPUs fail
[    4.000000] NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.
END
if "$here/check-log.sh" "$log" >/dev/null; then
	verdict yes
else
	verdict no "counts an error that was asked for"
fi
echo '[    5.000000] WARNING: fs/inode.c:417 at drop_nlink' >>"$log"
if "$here/check-log.sh" "$log" >/dev/null; then
	verdict no "finds nothing where GPUs fail"
else
	verdict yes
fi

while IFS='|' read -r name line; do
	[ -n "$name" ] || continue
	printf '[    1.000000] quiet\nprogram output[   12.345678] %s\n' "$line" >"$log"
	seen=$("$here/check-log.sh" "$log" || :)
	if grep -q "^kernel fault: $name: " <<<"$seen"; then
		verdict yes
	else
		verdict no "does not find $name in: $line"
	fi
done <<'END'
bug|BUG: kernel NULL pointer dereference, address: 0000000000000008
bug-on|kernel BUG at mm/slub.c:448!
warning|WARNING: CPU: 0 PID: 77 at fs/file_table.c:120 __fput+0x2a0/0x2b0
warning|WARNING: fs/inode.c:417 at drop_nlink+0x4a/0x50, CPU#1: rm/91
oops|Oops: 0000 [#1] SMP NOPTI
panic|Kernel panic - not syncing: Fatal exception
protection-fault|Oops: general protection fault, probably for non-canonical address 0x6: 0000 [#1]
page-fault|BUG: unable to handle page fault for address: ffffc90000a3f000
kasan|BUG: KASAN: slab-use-after-free in release+0x3c/0x90 [cgpu_km]
ubsan|UBSAN: array-index-out-of-bounds in fake_rm.c:12:3
refcount|refcount_t: underflow; use-after-free.
lockdep|INFO: possible circular locking dependency detected
lockdep|INFO: trying to register non-static key.
rcu-usage|WARNING: suspicious RCU usage
rcu-stall|rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:
hung-task|INFO: task replay:112 blocked for more than 60 seconds.
soft-lockup|watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [replay:90]
sleep-in-atomic|BUG: sleeping function called from invalid context at kernel/locking/mutex.c:285
scheduling-in-atomic|BUG: scheduling while atomic: replay/97/0x00000002
list-corruption|list_del corruption. prev->next should be ffff88800, but was ffff88801
debug-objects|ODEBUG: free active (active state 0) object: ffff888 object type: timer_list
held-lock-freed|WARNING: held lock freed!
slab|BUG kmalloc-64 (Tainted: G O): Poison overwritten
slab-left|BUG cgpu (Tainted: G O): Objects remaining on __kmem_cache_shutdown()
bad-page|BUG: Bad page state in process replay pfn:01234
bad-page|BUG: Bad rss-counter state mm:ffff type:MM_FILEPAGES val:1
leak|kmemleak: 3 new suspected memory leaks (see /sys/kernel/debug/kmemleak)
rust-panic|rust_kernel: panicked at cgpu_km/registry.rs:10:5:
memory-type|x86/PAT: cuda-check:99 freeing invalid memtype [mem 0x20fc090000-0x20fc09ffff]
xid|NVRM: Xid (PCI:0000:01:00): 31, pid=99, name=cuda-check, Ch 00000008, MMU Fault
out-of-memory|Out of memory: Killed process 91 (replay)
guest|cgpu-vm: fault: rmmod cgpu_km (references: 1)
END
echo "check-log: $passed passed, $failed failed"
[ "$failed" = 0 ]
