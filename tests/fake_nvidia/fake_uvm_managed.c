// SPDX-License-Identifier: GPL-2.0
/*
 * UVM's managed memory and semaphore pools: what programs map
 * (kernel-open/nvidia-uvm/uvm.c, uvm_policy.c, uvm_migrate.c,
 * uvm_range_group.c of 580).
 *
 * There are no GPU faults. Managed memory comes onto a GPU by UVM_MIGRATE,
 * when a test writes to debugfs gpu_touch, or, with the parameter touch_new,
 * the moment that it is mapped, as by a GPU that looks at an address all the
 * time. Where it goes then: fake_uvm_residency.c. Nor are there faults of
 * processors: what is in it the real driver shows (tests/driver).
 */
#include <linux/module.h>
#include "fake_uvm.h"

static bool touch_new;
module_param(touch_new, bool, 0644);
MODULE_PARM_DESC(touch_new, "GPUs touch managed memory as soon as it exists");

static const u8 cpu_uuid[16] = {
	0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2,
	0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
};

/* uvm_policy.c:uvm_api_range_type_check(): managed all the way */
bool ranges_managed(struct va_space *s, u64 base, u64 length)
{
	u64 at = base, end = base + length - 1;

	if (base & ~PAGE_MASK || length & ~PAGE_MASK || !length || end < base)
		return false;
	for (;;) {
		struct va_range *r = range_find(s, at);

		if (!r || r->type != RANGE_MANAGED)
			return false;
		if (r->end >= end)
			return true;
		at = r->end + 1;
	}
}

/* The managed ranges in a span, one after the other. */
#define for_managed(r, s, from, to)					\
	for (r = range_from(s, from); r && r->start <= (to);		\
	     r = r->end == U64_MAX ? NULL : range_from(s, r->end + 1))	\
		if (r->type == RANGE_MANAGED)

/* A GPU's accesses. The memory of a process that has ended is out of reach
 * (uvm_va_block_check_logical_permissions). */
void ranges_touch(struct va_space *s, struct fake_gpu *gpu, u64 base,
		  u64 length)
{
	u64 end = base + length - 1;
	struct va_range *r;

	for_managed(r, s, base, end)
		if (!r->zombie)
			residency_move(r, gpu, true, max(r->start, base),
				       min(r->end, end));
}

static u32 split(struct va_space *s, u64 at);

/* uvm_policy.c:split_span_as_needed() */
static u32 split_span(struct va_space *s, u64 base, u64 length,
		      bool (*needed)(const struct va_range *r, int to), int to)
{
	u64 at[2] = { base, base + length };
	u32 status = NV_OK, i;

	for (i = 0; i < 2 && status == NV_OK; i++) {
		struct va_range *r = range_find(s, at[i]);

		if (r && r->start != at[i] && needed(r, to))
			status = split(s, at[i]);
	}
	return status;
}

static bool prefers_other(const struct va_range *r, int to)
{
	return r->preferred != to;
}

static bool duplicates_other(const struct va_range *r, int to)
{
	return r->duplicated != to;
}

/* uvm_api_set_preferred_location(), uvm_api_unset_preferred_location() */
u32 ranges_prefer(struct va_space *s, u64 base, u64 length, const u8 *uuid)
{
	int to = PREFER_NOTHING;
	struct va_range *r;
	u32 status;

	if (!ranges_managed(s, base, length))
		return NV_ERR_INVALID_ADDRESS;
	if (uuid && !memcmp(uuid, cpu_uuid, 16)) {
		to = PREFER_HOST;
	} else if (uuid) {
		struct fake_gpu *gpu = fake_gpu_by_uuid(uuid);

		if (!gpu || !(s->registered & BIT(gpu->minor)))
			return NV_ERR_INVALID_DEVICE;
		to = gpu->minor;
	}
	status = split_span(s, base, length, prefers_other, to);
	if (status == NV_OK)
		for_managed(r, s, base, base + length - 1) {
			r->preferred = to;
			if (to >= 0 && !r->duplicated)
				residency_unmap_remote(r, BIT(to));
		}
	return status;
}

/* uvm_api_enable_read_duplication(), uvm_api_disable_read_duplication() */
u32 ranges_duplicate(struct va_space *s, u64 base, u64 length, bool to)
{
	struct va_range *r;
	u32 status;

	if (!ranges_managed(s, base, length))
		return NV_ERR_INVALID_ADDRESS;
	status = split_span(s, base, length, duplicates_other, to);
	if (status == NV_OK)
		for_managed(r, s, base, base + length - 1) {
			if (r->duplicated && !to)
				residency_collapse(r);
			if (to)
				residency_unmap_remote(r, ~0u);
			r->duplicated = to;
		}
	return status;
}

static struct page *range_page(struct va_range *r, u64 addr);

/* uvm_migrate.c:semaphore_release_from_cpu(): with no mapping of the pool, the
 * driver takes its place from a null pointer */
static u32 release(struct va_space *s, struct va_range *pool,
		   const struct uvm_migrate *p)
{
	struct page *page;

	if (!pool->cpu_mapped && !s->gpu_vaspace) {
		fake_harm(HARM_NULL);
		return NV_OK;
	}
	page = range_page(pool, p->semaphore);
	if (!page)
		return NV_ERR_NO_MEMORY;
	WRITE_ONCE(*(u32 *)(page_address(page) + offset_in_page(p->semaphore)),
		   p->payload);
	return NV_OK;
}

/* uvm_migrate.c:uvm_api_migrate() */
u32 range_migrate(struct va_space *s, struct uvm_migrate *p)
{
	struct fake_gpu *gpu = NULL;
	bool async = p->flags & 1;
	struct va_range *r, *pool = NULL;

	if (p->length || !async || !p->semaphore)
		if (!p->length || p->base & ~PAGE_MASK ||
		    p->length & ~PAGE_MASK || p->base + p->length < p->base)
			return NV_ERR_INVALID_ADDRESS;
	if (p->flags & ~1u)
		return NV_ERR_INVALID_ARGUMENT;
	if (!async && p->semaphore)
		return NV_ERR_INVALID_ARGUMENT;
	if (async && !p->semaphore && p->payload)
		return NV_ERR_INVALID_ARGUMENT;
	if (async && p->semaphore) {
		pool = range_find(s, p->semaphore);
		if (p->semaphore & 3 || !pool || pool->type != RANGE_SEMAPHORE)
			return NV_ERR_INVALID_ADDRESS;
	}
	if (memcmp(p->uuid, cpu_uuid, 16)) {
		gpu = fake_gpu_by_uuid(p->uuid);
		if (!gpu || !(s->gpu_vaspace & BIT(gpu->minor)))
			return NV_ERR_INVALID_DEVICE;
	}
	if (p->length) {
		if (!ranges_managed(s, p->base, p->length))
			return NV_ERR_INVALID_ADDRESS;
		for_managed(r, s, p->base, p->base + p->length - 1)
			residency_move(r, gpu, false, max(r->start, p->base),
				       min(r->end, p->base + p->length - 1));
	}
	return pool ? release(s, pool, p) : NV_OK;
}

/* uvm_range_group.c:uvm_api_set_range_group(); a group has whole ranges here,
 * where the driver has spans of its own */
u32 ranges_group(struct va_space *s, u64 group, u64 base, u64 length)
{
	struct va_range *r;

	if (group && !xa_load(&s->groups, group))
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!ranges_managed(s, base, length))
		return NV_ERR_INVALID_ADDRESS;
	if (split(s, base) != NV_OK || split(s, base + length) != NV_OK)
		return NV_ERR_NO_MEMORY;
	for_managed(r, s, base, base + length - 1)
		r->group = group;
	return NV_OK;
}

/* ---- mmap ---- */

static struct va_space *space_of(const struct vm_area_struct *vma)
{
	struct uvm_file *f = vma->vm_file->private_data;

	return f->space;
}

static const struct vm_operations_struct disabled_ops;

static u32 split(struct va_space *s, u64 at)
{
	struct va_range *r = range_find(s, at), *rest;

	if (!r || r->start == at || r->type != RANGE_MANAGED)
		return NV_OK;
	rest = fake_zalloc(sizeof(*rest));
	if (!rest)
		return NV_ERR_NO_MEMORY;
	rest->space = s;
	rest->start = at;
	rest->end = r->end;
	rest->type = r->type;
	rest->group = r->group;
	rest->preferred = r->preferred;
	rest->duplicated = r->duplicated;
	rest->zombie = r->zombie;
	INIT_LIST_HEAD(&rest->maps);
	xa_init(&rest->pages);
	xa_init(&rest->blocks);
	residency_split(r, rest);
	r->end = at - 1;
	range_insert(s, rest);
	return NV_OK;
}

/* uvm.c:uvm_vm_open_managed(): a fork's or a moved copy is switched off, a
 * split vma splits its range */
static void managed_open(struct vm_area_struct *vma)
{
	struct va_space *s = space_of(vma);
	bool bad;

	atomic_inc(&fake_mappings);
	down_write(&s->lock);
	bad = vma->vm_start != vma->vm_pgoff << PAGE_SHIFT ||
	      vma->vm_private_data != vma->vm_mm ||
	      split(s, vma->vm_start) || split(s, vma->vm_end);
	up_write(&s->lock);
	if (bad)
		vma->vm_ops = &disabled_ops;
}

/* uvm.c:uvm_vm_close_managed(): in an address space that processes share, the
 * memory of one that ends stays until the file is closed */
static void managed_close(struct vm_area_struct *vma)
{
	bool ends = !current->mm;
	struct va_space *s = space_of(vma);
	struct va_range *r;
	u64 at;

	atomic_dec(&fake_mappings);
	down_write(&s->lock);
	split(s, vma->vm_end);
	if (ends && s->flags & UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE) {
		for (at = vma->vm_start; (r = range_find(s, at)) &&
		     at < vma->vm_end && r->type == RANGE_MANAGED;
		     at = r->end + 1)
			r->zombie = true;
	} else {
		while ((r = range_from(s, vma->vm_start)) &&
		       r->start < vma->vm_end && r->type == RANGE_MANAGED)
			range_destroy(s, r);
	}
	up_write(&s->lock);
}

static struct page *range_page(struct va_range *r, u64 addr)
{
	unsigned long index = addr >> PAGE_SHIFT;
	struct page *page = xa_load(&r->pages, index);

	if (page)
		return page;
	page = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (page && xa_err(xa_store(&r->pages, index, page, GFP_KERNEL))) {
		__free_page(page);
		return NULL;
	}
	return page;
}

static const struct vm_operations_struct managed_ops = {
	.open = managed_open,
	.close = managed_close,
};

/* uvm.c:uvm_destroy_vma_semaphore_pool() */
static void pool_close(struct vm_area_struct *vma)
{
	struct va_space *s = space_of(vma);
	struct va_range *r;

	atomic_dec(&fake_mappings);
	down_write(&s->lock);
	r = range_find(s, vma->vm_start);
	if (r && r->type == RANGE_SEMAPHORE)
		r->cpu_mapped = false;
	else
		fake_harm(HARM_NULL);	/* or what has taken its place */
	up_write(&s->lock);
}

static void disabled_open(struct vm_area_struct *vma)
{
	atomic_inc(&fake_mappings);
	vma->vm_ops = &disabled_ops;
}

static void disabled_close(struct vm_area_struct *vma)
{
	atomic_dec(&fake_mappings);
}

static const struct vm_operations_struct pool_ops = {
	.open = disabled_open,
	.close = pool_close,
};

static const struct vm_operations_struct disabled_ops = {
	.open = disabled_open,
	.close = disabled_close,
};

static int map_pool(struct va_space *s, struct va_range *r,
		    struct vm_area_struct *vma)
{
	u64 addr;

	vma->vm_ops = &pool_ops;
	if (r->cpu_mapped)
		return 0;		/* by another process, the driver thinks */
	for (addr = vma->vm_start; addr < vma->vm_end; addr += PAGE_SIZE) {
		struct page *page = range_page(r, addr);

		if (!page || vm_insert_page(vma, addr, page))
			return -ENOMEM;
	}
	r->cpu_mapped = true;
	return 0;
}

/* uvm.c:uvm_mmap() */
int fake_uvm_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct uvm_file *f = filp->private_data;
	struct va_space *s = f->space;
	struct va_range *r;
	u32 status, minor;
	int ret = 0;

	if (atomic_read(&f->type) != UVM_FD_VA_SPACE)
		return -EBADFD;
	if (s->mm && s->mm != current->mm)
		return -EOPNOTSUPP;
	if (vma->vm_start != vma->vm_pgoff << PAGE_SHIFT)
		return -EINVAL;
	if ((vma->vm_flags & (VM_SHARED | VM_READ | VM_WRITE)) !=
	    (VM_SHARED | VM_READ | VM_WRITE))
		return -EINVAL;
	vm_flags_set(vma, VM_MIXEDMAP | VM_DONTEXPAND | VM_DONTCOPY);
	vma->vm_private_data = vma->vm_mm;
	down_write(&s->lock);
	status = range_create(s, vma->vm_start, vma->vm_end - vma->vm_start,
			      RANGE_MANAGED, NULL);
	if (status == NV_OK) {
		vma->vm_ops = &managed_ops;
		for (minor = 0; touch_new && minor < gpus; minor++)
			if (s->gpu_vaspace & BIT(minor))
				ranges_touch(s, &fake_gpus[minor], vma->vm_start,
					     vma->vm_end - vma->vm_start);
	} else if (status == NV_ERR_UVM_ADDRESS_IN_USE) {
		r = range_find(s, vma->vm_start);
		if (r && r->type == RANGE_SEMAPHORE &&
		    r->start == vma->vm_start && r->end + 1 == vma->vm_end)
			ret = map_pool(s, r, vma);
		else
			ret = -EADDRINUSE;
	} else {
		ret = -ENOMEM;
	}
	up_write(&s->lock);
	if (!ret)
		atomic_inc(&fake_mappings);
	return ret;
}
