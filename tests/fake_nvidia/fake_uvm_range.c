// SPDX-License-Identifier: GPL-2.0
/*
 * UVM's address ranges, and external mappings
 * (kernel-open/nvidia-uvm/uvm_map_external.c, uvm_va_range.c of 580).
 *
 * An external mapping duplicates the memory object into UVM's own client:
 * the object may be freed, its memory stays until the range is unmapped or
 * freed. The duplication asks for the caller's process, not for its file
 * (nvGpuOpsDupMemory, RS_SHARE_TYPE_PID).
 */
#include "fake_uvm.h"

static struct va_range *of(struct rb_node *n)
{
	return rb_entry(n, struct va_range, node);
}

/* the first range that ends at or after addr */
struct va_range *range_from(struct va_space *s, u64 addr)
{
	struct rb_node *n = s->ranges.rb_node;
	struct va_range *best = NULL;

	while (n) {
		struct va_range *r = of(n);

		if (r->end >= addr) {
			best = r;
			n = n->rb_left;
		} else {
			n = n->rb_right;
		}
	}
	return best;
}

struct va_range *range_find(struct va_space *s, u64 addr)
{
	struct va_range *r = range_from(s, addr);

	return r && r->start <= addr ? r : NULL;
}

void range_insert(struct va_space *s, struct va_range *fresh)
{
	struct rb_node **link = &s->ranges.rb_node, *parent = NULL;

	while (*link) {
		parent = *link;
		link = fresh->start < of(parent)->start ? &parent->rb_left :
							  &parent->rb_right;
	}
	rb_link_node(&fresh->node, parent, link);
	rb_insert_color(&fresh->node, &s->ranges);
}

/* Maps a range that UVM maps itself for all GPUs, in pages of 4 KiB. */
static bool map_fixed(struct va_space *s, struct va_range *r)
{
	u32 i;

	for (i = 0; i < gpus; i++) {
		if (!(s->gpu_vaspace & BIT(i)))
			continue;
		if (!tables_get(&s->tables, &fake_gpus[i], r->start, r->end,
				PAGES_SMALL))
			return false;
		r->tables |= BIT(i);
	}
	return true;
}

u32 range_create(struct va_space *s, u64 base, u64 length,
		 enum range_type type, struct va_range **out)
{
	struct va_range *r = range_from(s, base);

	if (r && r->start <= base + length - 1)
		return NV_ERR_UVM_ADDRESS_IN_USE;
	r = fake_zalloc(sizeof(*r));
	if (!r)
		return NV_ERR_NO_MEMORY;
	r->start = base;
	r->end = base + length - 1;
	r->type = type;
	r->space = s;
	INIT_LIST_HEAD(&r->maps);
	xa_init(&r->pages);
	xa_init(&r->blocks);
	r->preferred = PREFER_NOTHING;
	range_insert(s, r);
	if ((type == RANGE_SEMAPHORE || type == RANGE_SKED) &&
	    !map_fixed(s, r)) {
		range_destroy(s, r);
		return NV_ERR_NO_MEMORY;
	}
	if (out)
		*out = r;
	return NV_OK;
}

static void mem_release(struct fake_mem *mem)
{
	mutex_lock(&rm_lock);
	mem->holders--;
	mutex_unlock(&rm_lock);
	fake_mem_put(mem);
}

static void map_destroy(struct va_space *s, struct ext_map *m)
{
	list_del(&m->list);
	tables_put(&s->tables, m->gpu, m->start, m->end, m->pages);
	mem_release(m->mem);
	fake_free(m);
}

void range_destroy(struct va_space *s, struct va_range *r)
{
	struct ext_map *m, *next;
	struct page *page;
	unsigned long i;
	u32 gpu;

	list_for_each_entry_safe(m, next, &r->maps, list)
		map_destroy(s, m);
	for (gpu = 0; gpu < gpus; gpu++)
		if (r->tables & BIT(gpu))
			tables_put(&s->tables, &fake_gpus[gpu], r->start, r->end,
				   PAGES_SMALL);
	xa_for_each(&r->pages, i, page)
		put_page(page);
	xa_destroy(&r->pages);
	residency_drop(r);
	rb_erase(&r->node, &s->ranges);
	fake_free(r);
}

void range_destroy_all(struct va_space *s)
{
	struct rb_node *n;

	while ((n = rb_first(&s->ranges)))
		range_destroy(s, of(n));
}

/* uvm_map_external.c:uvm_free() */
u32 range_free(struct va_space *s, u64 base, u64 length)
{
	struct va_range *r;

	if (range_invalid_4k(base, length))
		return NV_ERR_INVALID_ADDRESS;
	r = range_find(s, base);
	if (!r || r->start != base || r->end != base + length - 1 ||
	    r->type == RANGE_MANAGED)
		return NV_ERR_INVALID_ADDRESS;
	if (r->type == RANGE_SEMAPHORE && r->cpu_mapped)
		return NV_ERR_INVALID_ARGUMENT;
	range_destroy(s, r);
	return NV_OK;
}

/* Cuts a mapping to the part that stays, with its tables: those are there already. */
static void shrink(struct va_space *s, struct ext_map *m, u64 start, u64 end)
{
	if (!tables_get(&s->tables, m->gpu, start, end, m->pages))
		return;			/* no memory: it stays as it is */
	tables_put(&s->tables, m->gpu, m->start, m->end, m->pages);
	m->start = start;
	m->end = end;
}

/* uvm_map_external.c:uvm_unmap_external_in_range(): cuts what overlaps */
static u32 unmap_in(struct va_range *r, struct fake_gpu *gpu, u64 start,
		    u64 end)
{
	struct va_space *s = r->space;
	struct ext_map *m, *next, *rest;

	list_for_each_entry_safe(m, next, &r->maps, list) {
		if (m->gpu != gpu || m->end < start || m->start > end)
			continue;
		if (m->start >= start && m->end <= end) {
			map_destroy(r->space, m);
			continue;
		}
		if (m->start < start && m->end > end) {
			rest = fake_zalloc(sizeof(*rest));
			if (!rest)
				return NV_ERR_NO_MEMORY;
			*rest = *m;
			rest->start = end + 1;
			if (!tables_get(&s->tables, gpu, rest->start, rest->end,
					rest->pages)) {
				fake_free(rest);
				return NV_ERR_NO_MEMORY;
			}
			fake_mem_get(rest->mem);
			mutex_lock(&rm_lock);
			rest->mem->holders++;
			mutex_unlock(&rm_lock);
			list_add(&rest->list, &r->maps);
			shrink(s, m, m->start, start - 1);
		} else if (m->start < start) {
			shrink(s, m, m->start, start - 1);
		} else {
			shrink(s, m, end + 1, m->end);
		}
	}
	return NV_OK;
}

/* nv_gpu_ops.c:nvGpuOpsDupMemory() */
static u32 dup_memory(u32 hclient, u32 hmemory, u64 offset, u64 length,
		      struct fake_mem **out)
{
	struct fake_client *client;
	struct fake_object *o;
	u32 status = NV_OK;

	mutex_lock(&rm_lock);
	client = fake_client(hclient);
	o = client ? fake_object(client, hmemory) : NULL;
	if (!client)
		status = NV_ERR_INVALID_CLIENT;
	else if (!o)
		status = NV_ERR_OBJECT_NOT_FOUND;
	else if (!o->mem || (o->mem->place == PLACE_REGISTERS &&
			     !o->mem->bar1_bell))
		status = NV_ERR_NOT_SUPPORTED;
	else if (!fake_pid_owns(o))
		status = NV_ERR_INSUFFICIENT_PERMISSIONS;
	else if (length > o->mem->size || offset > o->mem->size - length)
		status = NV_ERR_INVALID_OFFSET;
	if (status == NV_OK) {
		*out = fake_mem_get(o->mem);
		o->mem->holders++;
	}
	mutex_unlock(&rm_lock);
	return status;
}

/* uvm_map_external.c:uvm_map_external_allocation() */
u32 range_map_external(struct va_space *s, struct uvm_map_external *p)
{
	u64 end = p->base + p->length - 1, i;
	struct va_range *r;
	u32 status = NV_OK;

	if (range_invalid_4k(p->base, p->length))
		return NV_ERR_INVALID_ADDRESS;
	if (!p->count || p->count > UVM_MAX_GPUS)
		return NV_ERR_INVALID_ARGUMENT;
	r = range_find(s, p->base);
	if (!r || r->type != RANGE_EXTERNAL || r->end < end)
		return NV_ERR_INVALID_ADDRESS;
	for (i = 0; i < p->count && status == NV_OK; i++) {
		struct fake_gpu *gpu = fake_gpu_by_uuid(p->gpu[i].uuid);
		struct ext_map *m;

		if (!gpu || !(s->gpu_vaspace & BIT(gpu->minor)))
			return NV_ERR_INVALID_DEVICE;
		status = unmap_in(r, gpu, p->base, end);
		if (status != NV_OK)
			break;
		m = fake_zalloc(sizeof(*m));
		if (!m)
			return NV_ERR_NO_MEMORY;
		m->start = p->base;
		m->end = end;
		m->gpu = gpu;
		status = dup_memory(p->client, p->memory, p->offset,
				    p->length, &m->mem);
		if (status == NV_OK) {
			m->pages = tables_pages(p->base, p->length, p->offset,
						m->mem->page);
			if (!tables_get(&s->tables, gpu, m->start, m->end, m->pages)) {
				mem_release(m->mem);
				status = NV_ERR_NO_MEMORY;
			}
		}
		if (status == NV_OK)
			list_add(&m->list, &r->maps);
		else
			fake_free(m);
	}
	return status;
}

u32 range_unmap_external(struct va_space *s, u64 base, u64 length,
			 const u8 *uuid)
{
	struct fake_gpu *gpu = fake_gpu_by_uuid(uuid);
	struct va_range *r;

	if (range_invalid_4k(base, length))
		return NV_ERR_INVALID_ADDRESS;
	r = range_find(s, base);
	if (!r || r->type != RANGE_EXTERNAL || r->end < base + length - 1)
		return NV_ERR_INVALID_ADDRESS;
	if (!gpu || !(s->registered & BIT(gpu->minor)))
		return NV_ERR_INVALID_DEVICE;
	return unmap_in(r, gpu, base, base + length - 1);
}
