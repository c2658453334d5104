// SPDX-License-Identifier: GPL-2.0
/*
 * The place of managed memory: in a GPU's memory, in host memory, or nowhere yet
 * (kernel-open/nvidia-uvm/uvm_va_block.c, uvm_pmm_gpu.c of 580).
 *
 * Memory moves by blocks, those parts of a range that lie in one 2 MiB of
 * addresses; the driver moves pages, but its prefetching soon brings the rest
 * of a block. A GPU that a block was on keeps the block's memory when the
 * block goes elsewhere ("unused", uvm_pmm_gpu_mark_root_chunk_unused), until
 * somebody needs it or the range goes: as was measured.
 *
 * A GPU's access brings a block to where block_select_processor_residency
 * says: to the GPU itself if it is duplicated there; nowhere, if it is there
 * already; to the preferred location if the GPU can access that, which is so
 * for host memory and, without peers, for no other GPU; else to the GPU.
 *
 * A GPU that has used a block in host memory has it mapped, and does not
 * fault on it again: the block stays where it is, whatever is preferred by
 * then, until it moves, until that GPU is made its preferred location
 * (uvm_policy.c:preferred_location_unmap_remote_pages), or until it is to be
 * duplicated (va_block_set_read_duplication_locked). Seen on an H100.
 *
 * When a GPU is full, blocks make room, unused ones first, for other blocks
 * and for memory objects alike (uvm_pmm_gpu_pma_evict_pages).
 */
#include "fake_uvm.h"

struct block {
	struct list_head list;		/* of all, least recently used first */
	u64 bytes;
	u32 held;			/* a bit for each GPU that has room */
	u32 resident;			/* the same, and IN_HOST */
	u32 remote;			/* GPUs that use it in host memory */
	u32 tables;			/* GPUs that have page tables of it */
};

#define IN_HOST		BIT(31)

/* A leaf: under it only the GPUs' own locks are taken. */
static DEFINE_MUTEX(residency_lock);
static LIST_HEAD(blocks);

static void moved(struct block *b, u32 to)
{
	u32 i;

	for (i = 0; i < gpus; i++)
		if ((b->resident ^ to) & BIT(i))
			fake_managed_resident(&fake_gpus[i], to & BIT(i) ?
					      b->bytes : -(s64)b->bytes);
	if (b->resident != to)
		b->remote = 0;
	b->resident = to;
}

static void give_up(struct block *b, struct fake_gpu *gpu)
{
	b->held &= ~BIT(gpu->minor);
	fake_managed(gpu, -(s64)b->bytes);
}

static u64 evict(struct fake_gpu *gpu, u64 want, const struct block *but)
{
	struct block *b;
	u64 freed = 0;
	int pass;

	for (pass = 0; pass < 2; pass++)
		list_for_each_entry(b, &blocks, list) {
			if (freed >= want)
				return freed;
			if (b == but || !(b->held & BIT(gpu->minor)))
				continue;
			if (b->resident & BIT(gpu->minor)) {
				u32 rest = b->resident & ~BIT(gpu->minor);

				if (!pass)
					continue;
				moved(b, rest ?: IN_HOST);
			}
			give_up(b, gpu);
			freed += b->bytes;
		}
	return freed;
}

u64 fake_uvm_evict(struct fake_gpu *gpu, u64 want)
{
	u64 freed;

	mutex_lock(&residency_lock);
	freed = evict(gpu, want, NULL);
	mutex_unlock(&residency_lock);
	return freed;
}

static bool hold(struct block *b, struct fake_gpu *gpu)
{
	u64 free;

	if (b->held & BIT(gpu->minor))
		return true;
	free = fake_heap_free(gpu);
	if (free < b->bytes)
		evict(gpu, b->bytes - free, b);
	if (!fake_managed(gpu, b->bytes))
		return false;
	b->held |= BIT(gpu->minor);
	return true;
}

static u64 bytes_in(const struct va_range *r, u64 index)
{
	return min(r->end, index * GRANULE + GRANULE - 1) -
	       max(r->start, index * GRANULE) + 1;
}

static struct block *block_of(struct va_range *r, u64 index)
{
	struct block *b = xa_load(&r->blocks, index);

	if (b)
		return b;
	b = fake_zalloc(sizeof(*b));
	if (!b)
		return NULL;
	b->bytes = bytes_in(r, index);
	if (xa_err(xa_store(&r->blocks, index, b, GFP_KERNEL))) {
		fake_free(b);
		return NULL;
	}
	list_add_tail(&b->list, &blocks);
	return b;
}

static void bring(struct block *b, struct fake_gpu *gpu, bool duplicated)
{
	if (gpu && !hold(b, gpu))
		gpu = NULL;		/* no room: it stays in host memory */
	moved(b, (gpu ? BIT(gpu->minor) : IN_HOST) |
		 (duplicated ? b->resident : 0));
	list_move_tail(&b->list, &blocks);
}

static void touch(struct va_range *r, struct block *b, struct fake_gpu *gpu)
{
	if (b->resident & BIT(gpu->minor))
		list_move_tail(&b->list, &blocks);
	else if (b->remote & BIT(gpu->minor))
		return;			/* mapped: no fault */
	else if (r->duplicated)
		bring(b, gpu, true);
	else
		bring(b, r->preferred == PREFER_HOST ? NULL : gpu, false);
	if (!(b->resident & BIT(gpu->minor)))
		b->remote |= BIT(gpu->minor);
}

/* The page tables of a block stay as long as the block. */
static bool get_tables(struct va_range *r, struct block *b, u64 index,
		       struct fake_gpu *gpu)
{
	u64 start = index * GRANULE;

	if (b->tables & BIT(gpu->minor))
		return true;
	if (!tables_get(&r->space->tables, gpu, start, start + GRANULE - 1,
			PAGES_SMALL | PAGES_BIG))
		return false;
	b->tables |= BIT(gpu->minor);
	return true;
}

static void put_tables(struct va_range *r, struct block *b, u64 index)
{
	u64 start = index * GRANULE;
	u32 i;

	for (i = 0; i < gpus; i++)
		if (b->tables & BIT(i))
			tables_put(&r->space->tables, &fake_gpus[i], start,
				   start + GRANULE - 1,
				   PAGES_SMALL | PAGES_BIG);
	b->tables = 0;
}

/* Accesses (or, without `access`, a migration) of a part of a range. */
void residency_move(struct va_range *r, struct fake_gpu *gpu, bool access,
		    u64 start, u64 end)
{
	u64 i;

	mutex_lock(&residency_lock);
	for (i = start / GRANULE; i <= end / GRANULE; i++) {
		struct block *b = block_of(r, i);

		if (b && gpu && !get_tables(r, b, i, gpu))
			continue;	/* the driver ends the program */
		if (b && access)
			touch(r, b, gpu);
		else if (b)
			bring(b, gpu, r->duplicated);
	}
	mutex_unlock(&residency_lock);
}

/* Has these GPUs fault again on what they use in host memory. */
void residency_unmap_remote(struct va_range *r, u32 of)
{
	struct block *b;
	unsigned long i;

	mutex_lock(&residency_lock);
	xa_for_each(&r->blocks, i, b)
		b->remote &= ~of;
	mutex_unlock(&residency_lock);
}

/* uvm_policy.c:va_block_unset_read_duplication_locked(): one copy stays */
void residency_collapse(struct va_range *r)
{
	struct block *b;
	unsigned long i;

	mutex_lock(&residency_lock);
	xa_for_each(&r->blocks, i, b) {
		u32 wanted = r->preferred == PREFER_HOST ? IN_HOST :
			     r->preferred >= 0 ? BIT(r->preferred) : 0;
		u32 one = b->resident & wanted ?: b->resident & IN_HOST ?:
			  b->resident & -b->resident;

		moved(b, one);
	}
	mutex_unlock(&residency_lock);
}

/* A range was cut: `rest` is what followed, with its start set already. */
int residency_split(struct va_range *r, struct va_range *rest)
{
	u64 first = rest->start / GRANULE;
	unsigned long i;
	struct block *b;
	int ret = 0;

	mutex_lock(&residency_lock);
	xa_for_each_start(&r->blocks, i, b, first) {
		struct block *part = b;

		if (i == first && rest->start % GRANULE) {
			part = fake_zalloc(sizeof(*part));
			if (!part) {
				ret = -ENOMEM;
				break;
			}
			*part = *b;
			part->tables = 0;
			part->bytes = bytes_in(rest, i);
			b->bytes -= part->bytes;
			list_add_tail(&part->list, &blocks);
		} else {
			xa_erase(&r->blocks, i);
		}
		ret = xa_err(xa_store(&rest->blocks, i, part, GFP_KERNEL));
		WARN(ret, "fake_nvidia: a block is lost\n");
	}
	mutex_unlock(&residency_lock);
	return ret;
}

void residency_drop(struct va_range *r)
{
	unsigned long i;
	struct block *b;
	u32 minor;

	mutex_lock(&residency_lock);
	xa_for_each(&r->blocks, i, b) {
		moved(b, 0);
		put_tables(r, b, i);
		for (minor = 0; minor < gpus; minor++)
			if (b->held & BIT(minor))
				give_up(b, &fake_gpus[minor]);
		list_del(&b->list);
		fake_free(b);
	}
	xa_destroy(&r->blocks);
	mutex_unlock(&residency_lock);
}
