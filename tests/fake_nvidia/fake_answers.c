// SPDX-License-Identifier: GPL-2.0
/*
 * Answers from a recording, for what the stand-in does not model. The format
 * is in README.md.
 */
#include <linux/hashtable.h>
#if __has_include(<linux/unaligned.h>)
#include <linux/unaligned.h>
#else
#include <asm/unaligned.h>
#endif
#include "fake.h"

#define MAGIC	0x41564e46
#define HEADER	16
#define ENTRY	24

struct answer {
	struct hlist_node hash;		/* unique inputs of (kind, cmd, size) */
	struct list_head again;		/* the same input, in recorded order */
	struct answer *cursor;		/* head only: the next to give */
	u32 kind, cmd, status, in_size, out_size;
	s32 ret;
	u8 data[];			/* in, in_mask, out, out_mask */
};

static DEFINE_HASHTABLE(table, 8);
static DEFINE_MUTEX(lock);
static u32 entries;
static u64 given, bytes;

struct unanswered {
	struct list_head list;
	u32 kind, cmd, size;
	u64 count;
};

static LIST_HEAD(missing);
static u64 missing_total;

static u32 key(u32 kind, u32 cmd, u32 size)
{
	return kind * 0x9e3779b1u ^ cmd * 0x85ebca6bu ^ size;
}

static struct answer *head_of(struct answer *a, struct answer *fresh)
{
	u32 n = a->in_size;

	/* the same question: equal masks, equal input where it counts */
	if (memcmp(a->data + n, fresh->data + n, n))
		return NULL;
	for (u32 i = 0; i < n; i++)
		if ((a->data[i] ^ fresh->data[i]) & a->data[n + i])
			return NULL;
	return a;
}

static void insert(struct answer *fresh)
{
	u32 k = key(fresh->kind, fresh->cmd, fresh->in_size);
	struct answer *a;

	entries++;
	bytes += 2 * fresh->in_size + 2 * fresh->out_size;
	hash_for_each_possible(table, a, hash, k) {
		if (a->kind != fresh->kind || a->cmd != fresh->cmd ||
		    a->in_size != fresh->in_size || !head_of(a, fresh))
			continue;
		list_add_tail(&fresh->again, &a->again);
		return;
	}
	INIT_LIST_HEAD(&fresh->again);
	fresh->cursor = fresh;
	hash_add(table, &fresh->hash, k);
}

static struct answer *parse(const u8 *p, size_t left, size_t *taken)
{
	u32 in_size, out_size;
	struct answer *a;
	size_t n;

	if (left < ENTRY)
		return ERR_PTR(-EINVAL);
	in_size = get_unaligned_le32(p + 16);
	out_size = get_unaligned_le32(p + 20);
	if (in_size > RMAPI_PARAM_COPY_MAX_PARAMS_SIZE ||
	    (out_size && out_size != in_size))
		return ERR_PTR(-EINVAL);
	n = 2 * (size_t)in_size + 2 * (size_t)out_size;
	if (left < ENTRY + n)
		return ERR_PTR(-EINVAL);
	a = fake_zalloc(sizeof(*a) + n);
	if (!a)
		return ERR_PTR(-ENOMEM);
	a->kind = get_unaligned_le32(p);
	a->cmd = get_unaligned_le32(p + 4);
	a->ret = (s32)get_unaligned_le32(p + 8);
	a->status = get_unaligned_le32(p + 12);
	a->in_size = in_size;
	a->out_size = out_size;
	memcpy(a->data, p + ENTRY, n);
	*taken = round_up(ENTRY + n, 8);
	if (a->kind < ANSWER_ESCAPE || a->kind > ANSWER_UVM || a->ret > 0) {
		fake_free(a);
		return ERR_PTR(-EINVAL);
	}
	return a;
}

int fake_answers_load(const u8 *blob, size_t size)
{
	struct answer *a, *next;
	LIST_HEAD(fresh);
	size_t at = HEADER, taken;
	u32 i, n;
	int ret = 0;

	if (size < HEADER || get_unaligned_le32(blob) != MAGIC ||
	    get_unaligned_le32(blob + 4) != 1 ||
	    get_unaligned_le32(blob + 12))
		return -EINVAL;
	n = get_unaligned_le32(blob + 8);
	for (i = 0; i < n; i++) {
		if (at > size) {
			ret = -EINVAL;
			break;
		}
		a = parse(blob + at, size - at, &taken);
		if (IS_ERR(a)) {
			ret = PTR_ERR(a);
			break;
		}
		list_add_tail(&a->again, &fresh);
		at += taken;
	}
	if (!ret && at != round_up(size, 8))
		ret = -EINVAL;
	mutex_lock(&lock);
	list_for_each_entry_safe(a, next, &fresh, again) {
		list_del(&a->again);
		if (ret)
			fake_free(a);
		else
			insert(a);
	}
	mutex_unlock(&lock);
	return ret;
}

void fake_answers_clear(void)
{
	struct answer *a, *b, *next;
	struct hlist_node *tmp;
	int bucket;

	mutex_lock(&lock);
	hash_for_each_safe(table, bucket, tmp, a, hash) {
		list_for_each_entry_safe(b, next, &a->again, again)
			fake_free(b);
		hash_del(&a->hash);
		fake_free(a);
	}
	entries = 0;
	given = 0;
	bytes = 0;
	mutex_unlock(&lock);
}

static bool fits(const struct answer *a, const u8 *data)
{
	const u8 *mask = a->data + a->in_size;
	u32 i;

	for (i = 0; i < a->in_size; i++)
		if ((a->data[i] ^ data[i]) & mask[i])
			return false;
	return true;
}

bool fake_answer(u32 kind, u32 cmd, void *data, u32 size, int *ret,
		 u32 *status)
{
	struct answer *a, *give = NULL;
	const u8 *out, *mask;
	u32 i;

	mutex_lock(&lock);
	hash_for_each_possible(table, a, hash, key(kind, cmd, size)) {
		if (a->kind != kind || a->cmd != cmd || a->in_size != size ||
		    !fits(a, data))
			continue;
		give = a->cursor;
		if (!list_is_last(&give->again, &a->again))
			a->cursor = list_next_entry(give, again);
		break;
	}
	if (give) {
		out = give->data + 2 * give->in_size;
		mask = out + give->out_size;
		for (i = 0; i < give->out_size; i++)
			if (mask[i])
				((u8 *)data)[i] = out[i];
		if (ret)
			*ret = give->ret;
		if (status)
			*status = give->status;
		given++;
	}
	mutex_unlock(&lock);
	return give;
}

void fake_unanswered(u32 kind, u32 cmd, u32 size)
{
	struct unanswered *u;

	mutex_lock(&lock);
	missing_total++;
	list_for_each_entry(u, &missing, list)
		if (u->kind == kind && u->cmd == cmd && u->size == size)
			goto found;
	u = fake_zalloc(sizeof(*u));
	if (!u)
		goto out;
	u->kind = kind;
	u->cmd = cmd;
	u->size = size;
	list_add_tail(&u->list, &missing);
found:
	u->count++;
out:
	mutex_unlock(&lock);
}

int fake_unanswered_show(struct seq_file *m, void *v)
{
	static const char * const names[] = { "", "escape", "control", "uvm" };
	struct unanswered *u;

	mutex_lock(&lock);
	seq_printf(m, "total: %llu\n", missing_total);
	list_for_each_entry(u, &missing, list)
		seq_printf(m, "%s 0x%08x size %u: %llu\n", names[u->kind],
			   u->cmd, u->size, u->count);
	mutex_unlock(&lock);
	return 0;
}

void fake_unanswered_clear(void)
{
	struct unanswered *u, *next;

	mutex_lock(&lock);
	list_for_each_entry_safe(u, next, &missing, list) {
		list_del(&u->list);
		fake_free(u);
	}
	missing_total = 0;
	mutex_unlock(&lock);
}

int fake_answers_show(struct seq_file *m, void *v)
{
	mutex_lock(&lock);
	seq_printf(m, "entries: %u\ngiven: %llu\nbytes: %llu\n", entries,
		   given, bytes);
	mutex_unlock(&lock);
	return 0;
}
