// SPDX-License-Identifier: GPL-2.0
/*
 * Page tables of an address space: UVM's (kernel-open/nvidia-uvm/uvm_mmu.c,
 * uvm_pascal_mmu.c, uvm_hopper_mmu.c of 580), and RM's, which have the same
 * levels (mmu_walk.c).
 *
 * A table lives as long as something is mapped by it. 4 KiB for each 2 MiB of
 * addresses that pages of 4 KiB are in, 256 bytes where they are of 64 KiB,
 * none where they are of 2 MiB; above that 4 KiB for each 512 MiB, 256 GiB
 * and 128 TiB. UVM takes memory for them in pieces of 2 MiB, for all address
 * spaces together (uvm_pmm_gpu.c); the first of them is in what was measured
 * of a context. So it was seen on an H100 (docs/measurements of 2026-11-22).
 */
#include "fake.h"

static const struct {
	u32 shift, bytes;
} levels[] = {
	{ 21, 4096 }, { 21, 256 }, { 29, 4096 }, { 38, 4096 }, { 47, 4096 },
};

/* how many use a table; it is there as long as that is not 0 */
static int one(struct table_users *t, struct fake_gpu *gpu, u32 level,
	       u64 index, int by)
{
	unsigned long key = (unsigned long)(gpu->minor * ARRAY_SIZE(levels) +
					    level) << 43 | index;
	void *entry = xa_load(&t->users, key);
	unsigned long users = (entry ? xa_to_value(entry) : 0) + by;
	int ret;

	if (!users) {
		xa_erase(&t->users, key);
		t->take(t, gpu, -(s64)levels[level].bytes);
		return 0;
	}
	if (users == 1 && by > 0 && !t->take(t, gpu, levels[level].bytes))
		return -ENOSPC;
	ret = xa_err(xa_store(&t->users, key, xa_mk_value(users),
			      GFP_KERNEL));
	if (ret && users == 1 && by > 0)
		t->take(t, gpu, -(s64)levels[level].bytes);
	return ret;
}

static bool has_level(u32 level, u32 pages)
{
	return level ? level > 1 || pages & PAGES_BIG : pages & PAGES_SMALL;
}

/*
 * One user more or less for the first *count tables of a span, all at the
 * most. *count becomes how many it were; false: there was no room for the next.
 */
static bool each(struct table_users *t, struct fake_gpu *gpu, u64 start,
		 u64 end, u32 pages, int by, u64 *count)
{
	u64 i, most = *count;
	u32 level;

	*count = 0;
	for (level = 0; level < ARRAY_SIZE(levels); level++) {
		if (!has_level(level, pages))
			continue;
		for (i = start >> levels[level].shift;
		     i <= end >> levels[level].shift; i++) {
			if (*count == most)
				return true;
			if (one(t, gpu, level, i, by))
				return false;
			++*count;
		}
	}
	return true;
}

void tables_put(struct table_users *t, struct fake_gpu *gpu, u64 start, u64 end,
		u32 pages)
{
	u64 all = U64_MAX;

	each(t, gpu, start, end, pages, -1, &all);
}

/* false: the GPU is full, or the kernel has no memory */
bool tables_get(struct table_users *t, struct fake_gpu *gpu, u64 start, u64 end,
		u32 pages)
{
	u64 got = U64_MAX;

	if (each(t, gpu, start, end, pages, 1, &got))
		return true;
	each(t, gpu, start, end, pages, -1, &got);
	return false;
}

/*
 * By which pages a mapping is made (uvm_map_external_allocation_on_gpu()): the
 * largest that the memory's own and all of these are multiples of.
 */
u32 tables_pages(u64 base, u64 length, u64 offset, u64 page)
{
	u64 all = base | length | offset | page;

	if (all % (64 << 10))
		return PAGES_SMALL;
	return all % (2 << 20) ? PAGES_BIG : PAGES_HUGE;
}
