// SPDX-License-Identifier: GPL-2.0
/*
 * The log of what the stand-in read and acted on: the last 4,096 calls. It
 * is the stand-in's own view, taken from its own copies, so that a test can
 * see whether a parameter was changed behind a proxy's check.
 */
#include <linux/sched.h>
#include "fake.h"

#define ENTRIES	4096

struct entry {
	struct fake_call call;
	u64 seq;
	pid_t pid;
};

static struct entry *ring;
static u64 next_seq, first_seq;
static DEFINE_SPINLOCK(lock);

/* FNV-1a: what was read, so that it can be told from what was to be read */
u64 fake_sum(const void *bytes, u32 size)
{
	const u8 *byte = bytes, *end = byte + size;
	u64 sum = 0xcbf29ce484222325ull;

	while (byte < end)
		sum = (sum ^ *byte++) * 0x100000001b3ull;
	return sum;
}

void fake_log(const struct fake_call *call)
{
	struct entry *e;

	spin_lock(&lock);
	e = &ring[next_seq % ENTRIES];
	e->call = *call;
	e->seq = next_seq++;
	e->pid = task_tgid_nr(current);
	spin_unlock(&lock);
}

int fake_log_show(struct seq_file *m, void *v)
{
	struct entry e;
	u64 i, end;

	spin_lock(&lock);
	end = next_seq;
	i = max(first_seq, end > ENTRIES ? end - ENTRIES : 0);
	spin_unlock(&lock);
	for (; i < end; i++) {
		spin_lock(&lock);
		e = ring[i % ENTRIES];
		spin_unlock(&lock);
		if (e.seq != i)
			continue;	/* overwritten meanwhile */
		seq_printf(m, "seq=%llu pid=%d node=%s nr=0x%x size=%u what=0x%x client=0x%08x object=0x%08x read=%u bytes=%llu status=0x%x parent=0x%08x peer=0x%08x sum=0x%016llx\n",
			   e.seq, e.pid, e.call.node, e.call.nr, e.call.outer,
			   e.call.what, e.call.client, e.call.object,
			   e.call.read, e.call.bytes, e.call.status,
			   e.call.parent, e.call.peer, e.call.sum);
	}
	return 0;
}

void fake_log_clear(void)
{
	spin_lock(&lock);
	first_seq = next_seq;
	spin_unlock(&lock);
}

int fake_log_init(void)
{
	ring = kvcalloc(ENTRIES, sizeof(*ring), GFP_KERNEL);
	return ring ? 0 : -ENOMEM;
}

void fake_log_exit(void)
{
	kvfree(ring);
}
