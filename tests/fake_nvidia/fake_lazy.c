// SPDX-License-Identifier: GPL-2.0
/*
 * Ranges of addresses whose page tables RM makes with what is mapped there,
 * and not with the range: those that are made lazily, and class 0x70, which
 * is a whole address space (virtual_mem.c:virtmemMapTo_IMPL(),
 * virt_mem_allocator_gm107.c:dmaAllocMapping_GM107() of 580). Tables go with
 * the last mapping that uses them. All is mapped by pages of 4 KiB here.
 */
#include <linux/xarray.h>
#include "fake.h"

#define DMA_OFFSET_FIXED	(1u << 15)	/* NVOS46_FLAGS_DMA_OFFSET_FIXED */
#define LOWEST			(1ull << 32)	/* where the first one goes */

struct fake_lazy {
	struct table_users tables;
	struct xarray maps;		/* page's number -> pages */
	struct fake_mem *range;
	u64 next;
};

static bool take(struct table_users *t, struct fake_gpu *gpu, s64 by)
{
	return fake_mem_tables(container_of(t, struct fake_lazy, tables)->range,
			       by);
}

bool fake_lazy_make(struct fake_mem *range)
{
	struct fake_lazy *lazy = fake_zalloc(sizeof(*lazy));

	if (!lazy)
		return false;
	xa_init(&lazy->tables.users);
	lazy->tables.take = take;
	xa_init(&lazy->maps);
	lazy->range = range;
	lazy->next = LOWEST;
	range->lazy = lazy;
	return true;
}

/* The tables are the range's to give back. */
void fake_lazy_end(struct fake_mem *range)
{
	struct fake_lazy *lazy = range->lazy;

	if (!lazy)
		return;
	xa_destroy(&lazy->maps);
	xa_destroy(&lazy->tables.users);
	fake_free(lazy);
}

/* under rm_lock */
u32 fake_lazy_map(struct fake_mem *range, struct nvos46 *p)
{
	struct fake_lazy *lazy = range->lazy;
	u64 at = p->flags & DMA_OFFSET_FIXED ? p->dma_offset : lazy->next;
	u64 first = at >> PAGE_SHIFT, pages, end;

	if (!p->length || check_add_overflow(at, p->length - 1, &end))
		return NV_ERR_INVALID_ARGUMENT;
	pages = (end >> PAGE_SHIFT) - first + 1;
	if (xa_load(&lazy->maps, first))
		return NV_ERR_STATE_IN_USE;
	if (xa_err(xa_store(&lazy->maps, first, xa_mk_value(pages),
			    GFP_KERNEL)))
		return NV_ERR_NO_MEMORY;
	if (!tables_get(&lazy->tables, range->gpu, at, end, PAGES_SMALL)) {
		xa_erase(&lazy->maps, first);
		return NV_ERR_NO_MEMORY;
	}
	if (at == lazy->next)
		lazy->next = (first + pages) << PAGE_SHIFT;
	p->dma_offset = at;
	return NV_OK;
}

/* under rm_lock */
void fake_lazy_unmap(struct fake_mem *range, u64 at)
{
	struct fake_lazy *lazy = range->lazy;
	void *pages = xa_erase(&lazy->maps, at >> PAGE_SHIFT);
	u64 start = round_down(at, PAGE_SIZE);

	if (pages)
		tables_put(&lazy->tables, range->gpu, start,
			   start + (xa_to_value(pages) << PAGE_SHIFT) - 1,
			   PAGES_SMALL);
}
