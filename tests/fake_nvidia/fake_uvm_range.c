// SPDX-License-Identifier: GPL-2.0
/*
 * UVM's address ranges: external mappings, managed memory, semaphore pools
 * (kernel-open/nvidia-uvm/uvm_map_external.c, uvm_va_range.c, uvm_migrate.c,
 * uvm.c of 580).
 *
 * An external mapping duplicates the memory object into UVM's own client:
 * the object may be freed, its memory stays until the range is unmapped or
 * freed. The duplication asks for the caller's process, not for its file
 * (nvGpuOpsDupMemory, RS_SHARE_TYPE_PID).
 *
 * There are no GPU faults. Managed memory comes onto a GPU by UVM_MIGRATE,
 * or when a test writes to debugfs gpu_touch; it leaves with the range, not
 * when it is migrated back, as recorded. Nothing is evicted.
 */
#include "fake_uvm.h"

#define GRANULE		(2ull << 20)

static const u8 cpu_uuid[16] = {
	0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2,
	0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73,
};

static struct va_range *of(struct rb_node *n)
{
	return rb_entry(n, struct va_range, node);
}

/* the first range that ends at or after addr */
static struct va_range *range_from(struct va_space *s, u64 addr)
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

static void insert(struct va_space *s, struct va_range *fresh)
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
	INIT_LIST_HEAD(&r->maps);
	xa_init(&r->pages);
	insert(s, r);
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

static void map_destroy(struct ext_map *m)
{
	list_del(&m->list);
	mem_release(m->mem);
	fake_free(m);
}

void range_destroy(struct va_space *s, struct va_range *r)
{
	struct ext_map *m, *next;
	struct page *page;
	unsigned long i;

	list_for_each_entry_safe(m, next, &r->maps, list)
		map_destroy(m);
	xa_for_each(&r->pages, i, page)
		put_page(page);
	xa_destroy(&r->pages);
	if (r->resident)
		fake_managed(r->resident, -(s64)r->resident_bytes);
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

/* uvm_map_external.c:uvm_unmap_external_in_range(): cuts what overlaps */
static u32 unmap_in(struct va_range *r, struct fake_gpu *gpu, u64 start,
		    u64 end)
{
	struct ext_map *m, *next, *rest;

	list_for_each_entry_safe(m, next, &r->maps, list) {
		if (m->gpu != gpu || m->end < start || m->start > end)
			continue;
		if (m->start >= start && m->end <= end) {
			map_destroy(m);
			continue;
		}
		if (m->start < start && m->end > end) {
			rest = fake_zalloc(sizeof(*rest));
			if (!rest)
				return NV_ERR_NO_MEMORY;
			*rest = *m;
			rest->start = end + 1;
			fake_mem_get(rest->mem);
			mutex_lock(&rm_lock);
			rest->mem->holders++;
			mutex_unlock(&rm_lock);
			list_add(&rest->list, &r->maps);
			m->end = start - 1;
		} else if (m->start < start) {
			m->end = start - 1;
		} else {
			m->start = end + 1;
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
		status = NV_ERR_INVALID_ARGUMENT;
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

/* What a GPU's faults would do: bring managed memory to it. Bytes taken. */
u64 ranges_touch(struct va_space *s, struct fake_gpu *gpu, u64 base,
		 u64 length)
{
	u64 end = base + length - 1, taken = 0;
	struct va_range *r;

	for (r = range_from(s, base); r && r->start <= end;
	     r = range_from(s, r->end + 1)) {
		u64 from = max(r->start, base), to = min(r->end, end);
		u64 want = round_up(to - from + 1, GRANULE);
		u64 size = round_up(r->end - r->start + 1, GRANULE);

		if (r->type != RANGE_MANAGED || (r->resident &&
						 r->resident != gpu))
			goto next;
		want = min(want, size - r->resident_bytes);
		want = fake_managed(gpu, want);
		r->resident = gpu;
		r->resident_bytes += want;
		taken += want;
next:
		if (r->end == U64_MAX)
			break;
	}
	return taken;
}

/* uvm_migrate.c:uvm_api_migrate() */
u32 range_migrate(struct va_space *s, struct uvm_migrate *p)
{
	struct fake_gpu *gpu = NULL;
	bool async = p->flags & 1;

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
		struct va_range *r = range_find(s, p->semaphore);

		if (p->semaphore & 3 || !r || r->type != RANGE_SEMAPHORE)
			return NV_ERR_INVALID_ADDRESS;
	}
	if (memcmp(p->uuid, cpu_uuid, 16)) {
		gpu = fake_gpu_by_uuid(p->uuid);
		if (!gpu || !(s->gpu_vaspace & BIT(gpu->minor)))
			return NV_ERR_INVALID_DEVICE;
	}
	if (!p->length)
		return NV_OK;
	if (!ranges_managed(s, p->base, p->length))
		return NV_ERR_INVALID_ADDRESS;
	if (gpu)
		ranges_touch(s, gpu, p->base, p->length);
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
	struct page *page;
	unsigned long i;

	if (!r || r->start == at || r->type != RANGE_MANAGED)
		return NV_OK;
	rest = fake_zalloc(sizeof(*rest));
	if (!rest)
		return NV_ERR_NO_MEMORY;
	rest->start = at;
	rest->end = r->end;
	rest->type = r->type;
	rest->group = r->group;
	INIT_LIST_HEAD(&rest->maps);
	xa_init(&rest->pages);
	xa_for_each_start(&r->pages, i, page, at >> PAGE_SHIFT) {
		if (xa_err(xa_store(&rest->pages, i, page, GFP_KERNEL)))
			put_page(page);
		xa_erase(&r->pages, i);
	}
	if (r->resident) {
		rest->resident = r->resident;
		rest->resident_bytes = min(r->resident_bytes,
					   rest->end - rest->start + 1);
		r->resident_bytes -= rest->resident_bytes;
	}
	r->end = at - 1;
	insert(s, rest);
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

static void managed_close(struct vm_area_struct *vma)
{
	struct va_space *s = space_of(vma);
	struct va_range *r;

	atomic_dec(&fake_mappings);
	down_write(&s->lock);
	split(s, vma->vm_end);
	while ((r = range_from(s, vma->vm_start)) && r->start < vma->vm_end &&
	       r->type == RANGE_MANAGED)
		range_destroy(s, r);
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

static vm_fault_t managed_fault(struct vm_fault *vmf)
{
	struct va_space *s = space_of(vmf->vma);
	vm_fault_t ret = VM_FAULT_SIGBUS;
	struct va_range *r;
	struct page *page;
	int err;

	down_write(&s->lock);
	r = range_find(s, vmf->address);
	if (r && r->type == RANGE_MANAGED) {
		page = range_page(r, vmf->address);
		ret = VM_FAULT_OOM;
		if (page) {
			err = vm_insert_page(vmf->vma,
					     vmf->address & PAGE_MASK, page);
			ret = !err || err == -EBUSY ? VM_FAULT_NOPAGE :
						      VM_FAULT_SIGBUS;
		}
	}
	up_write(&s->lock);
	return ret;
}

static const struct vm_operations_struct managed_ops = {
	.open = managed_open,
	.close = managed_close,
	.fault = managed_fault,
	.page_mkwrite = NULL,
};

static void pool_close(struct vm_area_struct *vma)
{
	struct va_space *s = space_of(vma);
	struct va_range *r;

	atomic_dec(&fake_mappings);
	down_write(&s->lock);
	r = range_find(s, vma->vm_start);
	if (r && r->type == RANGE_SEMAPHORE)
		r->cpu_mapped = false;
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

static vm_fault_t disabled_fault(struct vm_fault *vmf)
{
	return VM_FAULT_SIGBUS;
}

static const struct vm_operations_struct pool_ops = {
	.open = disabled_open,
	.close = pool_close,
	.fault = disabled_fault,
};

static const struct vm_operations_struct disabled_ops = {
	.open = disabled_open,
	.close = disabled_close,
	.fault = disabled_fault,
};

static int map_pool(struct va_space *s, struct va_range *r,
		    struct vm_area_struct *vma)
{
	u64 addr;

	for (addr = vma->vm_start; addr < vma->vm_end; addr += PAGE_SIZE) {
		struct page *page = range_page(r, addr);

		if (!page || vm_insert_page(vma, addr, page))
			return -ENOMEM;
	}
	vma->vm_ops = &pool_ops;
	r->cpu_mapped = true;
	return 0;
}

/* uvm.c:uvm_mmap() */
int fake_uvm_mmap(struct file *filp, struct vm_area_struct *vma)
{
	struct uvm_file *f = filp->private_data;
	struct va_space *s = f->space;
	struct va_range *r;
	int ret = 0;
	u32 status;

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
	} else if (status == NV_ERR_UVM_ADDRESS_IN_USE) {
		r = range_find(s, vma->vm_start);
		if (r && r->type == RANGE_SEMAPHORE &&
		    r->start == vma->vm_start && r->end + 1 == vma->vm_end)
			ret = map_pool(s, r, vma);
		else
			ret = -EBUSY;
	} else {
		ret = -ENOMEM;
	}
	up_write(&s->lock);
	if (!ret)
		atomic_inc(&fake_mappings);
	return ret;
}
