// SPDX-License-Identifier: GPL-2.0
/*
 * Memory: the heap of each GPU and what a memory object stands on
 * (src/nvidia/src/kernel/mem_mgr/video_mem.c, system_mem.c, virtual_mem.c,
 * standard_mem.c, and the figures of the recordings).
 *
 * The recordings show, exactly: a video memory object of default page size
 * takes its size rounded up to 2 MiB; free = heap - objects - managed memory
 * - 9,024 KiB for the first context of a GPU and 5,696 KiB for each more; a
 * request that does not fit fails with 0x51 and changes nothing.
 *
 * Offsets are given out from a bitmap of 2 MiB blocks, lowest first; a block
 * need not be contiguous for the size to be granted, as with PMA.
 */
#include <linux/bitmap.h>
#include "fake.h"

#define BLOCK_SHIFT	21
#define CONTEXT_BLOCKS	3ull

int fake_heap_init(struct fake_gpu *gpu)
{
	gpu->map_bits = gpu->heap >> BLOCK_SHIFT;
	gpu->map = bitmap_zalloc(gpu->map_bits, GFP_KERNEL);
	gpu->scrub = bitmap_zalloc(gpu->map_bits, GFP_KERNEL);
	if (!gpu->map || !gpu->scrub)
		return -ENOMEM;
	bitmap_set(gpu->map, 0, 2);	/* the driver's own, as recorded */
	return 0;
}

void fake_heap_exit(struct fake_gpu *gpu)
{
	bitmap_free(gpu->map);
	bitmap_free(gpu->scrub);
}

u64 fake_overhead(const struct fake_gpu *gpu)
{
	return gpu->contexts ? ((u64)gpu->contexts * FAKE_CONTEXT_KIB +
				FAKE_CONTEXT_SHARED_KIB) << 10 : 0;
}

static u64 heap_free(const struct fake_gpu *gpu)
{
	u64 taken = gpu->used + gpu->managed + gpu->other + fake_overhead(gpu);

	return taken < gpu->heap ? gpu->heap - taken : 0;
}

u64 fake_heap_free(struct fake_gpu *gpu)
{
	u64 n;

	spin_lock(&gpu->lock);
	n = heap_free(gpu);
	spin_unlock(&gpu->lock);
	return n;
}

/* Managed memory: gives what was taken, at most what is free. */
u64 fake_managed(struct fake_gpu *gpu, s64 by)
{
	spin_lock(&gpu->lock);
	if (by > 0)
		by = min_t(u64, by, heap_free(gpu));
	gpu->managed += by;
	spin_unlock(&gpu->lock);
	return by < 0 ? 0 : by;
}

/*
 * The lowest free run of blocks. What was freed since the last allocation and
 * is larger than a block is still being scrubbed and used only if nothing else
 * fits, as the recordings show (cuda-out-of-memory 580). Memory that is free
 * but not in one piece is granted too, without a place of its own.
 */
static u64 take_blocks(struct fake_gpu *gpu, u64 size)
{
	u32 n = size >> BLOCK_SHIFT, at, pass;

	for (pass = 0; pass < 2; pass++) {
		at = bitmap_find_next_zero_area(gpu->map, gpu->map_bits, 0, n,
						0);
		if (at < gpu->map_bits)
			bitmap_set(gpu->map, at, n);
		bitmap_andnot(gpu->map, gpu->map, gpu->scrub, gpu->map_bits);
		bitmap_zero(gpu->scrub, gpu->map_bits);
		if (at < gpu->map_bits)
			return (u64)at << BLOCK_SHIFT;
	}
	return ~0ull;
}

static void give_blocks(struct fake_gpu *gpu, u64 offset, u64 size)
{
	u32 at = offset >> BLOCK_SHIFT, n = size >> BLOCK_SHIFT;

	if (offset == ~0ull)
		return;
	if (n > 1)
		bitmap_set(gpu->scrub, at, n);
	else
		bitmap_clear(gpu->map, at, n);
}

/* What a compute context takes beside its objects; three blocks of it have a
 * place in the heap. `held` remembers them. */
void fake_context(struct fake_gpu *gpu, u64 *held, bool make)
{
	spin_lock(&gpu->lock);
	if (make) {
		gpu->contexts++;
		*held = take_blocks(gpu, CONTEXT_BLOCKS << BLOCK_SHIFT);
	} else {
		gpu->contexts--;
		give_blocks(gpu, *held, CONTEXT_BLOCKS << BLOCK_SHIFT);
	}
	spin_unlock(&gpu->lock);
}

static struct fake_mem *mem_new(struct fake_gpu *gpu, enum fake_place place,
				u64 size)
{
	struct fake_mem *mem = fake_zalloc(sizeof(*mem));

	if (!mem)
		return NULL;
	refcount_set(&mem->ref, 1);
	mutex_init(&mem->page_lock);
	mem->gpu = gpu;
	mem->place = place;
	mem->size = size;
	return mem;
}

struct fake_mem *fake_mem_plain(struct fake_gpu *gpu, enum fake_place place,
				u64 size)
{
	return mem_new(gpu, place, size);
}

struct fake_mem *fake_mem_get(struct fake_mem *mem)
{
	refcount_inc(&mem->ref);
	return mem;
}

void fake_mem_put(struct fake_mem *mem)
{
	struct fake_gpu *gpu = mem->gpu;
	u32 i;

	if (!refcount_dec_and_test(&mem->ref))
		return;
	if (mem->place == PLACE_VIDMEM) {
		spin_lock(&gpu->lock);
		gpu->used -= mem->size;
		gpu->blocks--;
		give_blocks(gpu, mem->offset, mem->size);
		spin_unlock(&gpu->lock);
	}
	for (i = 0; i < mem->npages && mem->pages; i++)
		if (mem->pages[i])
			__free_page(mem->pages[i]);
	fake_free(mem->pages);
	mutex_destroy(&mem->page_lock);
	fake_free(mem);
}

/*
 * The page behind a piece of system memory. A large object has only
 * FAKE_SYSMEM_PAGES different ones, which repeat.
 */
struct page *fake_mem_page(struct fake_mem *mem, u64 index)
{
	struct page *page = NULL;

	if (mem->place == PLACE_RUSD)
		return index ? NULL : mem->gpu->rusd;
	if (mem->place != PLACE_SYSMEM ||
	    index >= PAGE_ALIGN(mem->size) >> PAGE_SHIFT)
		return NULL;
	mutex_lock(&mem->page_lock);
	if (!mem->pages) {
		u32 n = min_t(u64, FAKE_SYSMEM_PAGES,
			      PAGE_ALIGN(mem->size) >> PAGE_SHIFT);

		mem->pages = fake_zalloc(n * sizeof(*mem->pages));
		if (!mem->pages)
			goto out;
		mem->npages = n;
	}
	index %= mem->npages;
	if (!mem->pages[index])
		mem->pages[index] = alloc_page(GFP_KERNEL | __GFP_ZERO);
	page = mem->pages[index];
out:
	mutex_unlock(&mem->page_lock);
	return page;
}

static u32 attr_get(u32 attr, u32 mask, u32 shift)
{
	return (attr & mask) >> shift;
}

static u32 attr_set(u32 attr, u32 mask, u32 shift, u32 value)
{
	return (attr & ~mask) | value << shift;
}

/* the rounding that memmgrDeterminePageSize and PMA come to */
static u64 vid_page_size(const struct nv_memory_params *p)
{
	switch (attr_get(p->attr, ATTR_PAGE_SIZE_MASK, ATTR_PAGE_SIZE_SHIFT)) {
	case ATTR_PAGE_SIZE_4KB:
	case ATTR_PAGE_SIZE_BIG:
		return 0x10000;		/* PMA gives 64 KiB frames */
	default:
		if ((p->attr2 & ATTR2_PAGE_SIZE_HUGE_MASK) ==
		    ATTR2_PAGE_SIZE_HUGE_512MB)
			return 512ull << 20;
		return 2ull << 20;
	}
}

/* Class 0x40. video_mem.c:vidmemConstruct_IMPL() */
u32 fake_mem_vid(struct fake_gpu *gpu, struct nv_memory_params *p,
		 struct fake_mem **out)
{
	u64 page, size;
	struct fake_mem *mem;
	u32 mode;

	if (attr_get(p->attr, ATTR_LOCATION_MASK, ATTR_LOCATION_SHIFT) !=
	    ATTR_LOCATION_VIDMEM || p->flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		return NV_ERR_INVALID_ARGUMENT;
	size = p->size;
	if (!size)			/* heap.c: from height and pitch */
		size = (u64)p->height * abs(p->pitch);
	if (!size)
		return NV_ERR_INVALID_ARGUMENT;
	page = vid_page_size(p);
	if (size > U64_MAX - page)
		return NV_ERR_NO_MEMORY;
	size = round_up(size, page);
	mem = mem_new(gpu, PLACE_VIDMEM, size);
	if (!mem)
		return NV_ERR_NO_MEMORY;
	spin_lock(&gpu->lock);
	if (size > heap_free(gpu)) {
		spin_unlock(&gpu->lock);
		mem->place = PLACE_VIRTUAL;	/* nothing to give back */
		fake_mem_put(mem);
		return NV_ERR_NO_MEMORY;
	}
	mem->offset = page < 2ull << 20 ? ~0ull : take_blocks(gpu, size);
	gpu->used += size;
	gpu->peak = max(gpu->peak, gpu->used);
	gpu->blocks++;
	spin_unlock(&gpu->lock);

	mode = page >= 2ull << 20 ? ATTR_PAGE_SIZE_HUGE :
	       attr_get(p->attr, ATTR_PAGE_SIZE_MASK, ATTR_PAGE_SIZE_SHIFT);
	p->attr = attr_set(p->attr, ATTR_PAGE_SIZE_MASK, ATTR_PAGE_SIZE_SHIFT,
			   mode);
	p->attr = attr_set(p->attr, ATTR_PHYSICALITY_MASK,
			   ATTR_PHYSICALITY_SHIFT,
			   mem->offset == ~0ull ?
			   ATTR_PHYSICALITY_NONCONTIGUOUS :
			   ATTR_PHYSICALITY_CONTIGUOUS);
	p->attr2 |= ATTR2_ZBC_PREFER_NO;
	if (!(p->attr2 & ATTR2_CACHEABLE_MASK))
		p->attr2 |= ATTR2_CACHEABLE_YES;
	if (mode == ATTR_PAGE_SIZE_HUGE &&
	    !(p->attr2 & ATTR2_PAGE_SIZE_HUGE_MASK))
		p->attr2 |= ATTR2_PAGE_SIZE_HUGE_2MB;
	p->format = 6;			/* kind GENERIC_MEMORY */
	p->size = size;
	p->offset = mem->offset == ~0ull ? 0 : mem->offset;
	p->limit = size - 1;
	*out = mem;
	return NV_OK;
}

/* Class 0x3e. system_mem.c:sysmemConstruct_IMPL() */
u32 fake_mem_sys(struct fake_gpu *gpu, struct nv_memory_params *p,
		 struct fake_mem **out)
{
	static atomic64_t next_linear = ATOMIC64_INIT(0x15dd84000);
	u32 where = attr_get(p->attr, ATTR_LOCATION_MASK, ATTR_LOCATION_SHIFT);
	struct fake_mem *mem;
	u64 size;

	if (where == ATTR_LOCATION_VIDMEM ||
	    p->flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		return NV_ERR_INVALID_ARGUMENT;
	size = p->size ? p->size : (u64)p->height * abs(p->pitch);
	if (!size || size > 1ull << 40)
		return size ? NV_ERR_NO_MEMORY : NV_ERR_INVALID_ARGUMENT;
	size = round_up(size, PAGE_SIZE);
	mem = mem_new(gpu, PLACE_SYSMEM, size);
	if (!mem)
		return NV_ERR_NO_MEMORY;
	mem->linear = atomic64_fetch_add(size + PAGE_SIZE, &next_linear);
	p->attr = attr_set(p->attr, ATTR_LOCATION_MASK, ATTR_LOCATION_SHIFT,
			   ATTR_LOCATION_PCI);
	p->attr = attr_set(p->attr, ATTR_PAGE_SIZE_MASK, ATTR_PAGE_SIZE_SHIFT,
			   ATTR_PAGE_SIZE_4KB);
	p->attr = attr_set(p->attr, ATTR_PHYSICALITY_MASK,
			   ATTR_PHYSICALITY_SHIFT,
			   ATTR_PHYSICALITY_NONCONTIGUOUS);
	p->attr2 |= ATTR2_ZBC_PREFER_NO;
	if (!(p->attr2 & ATTR2_CACHEABLE_MASK))
		p->attr2 |= ATTR2_CACHEABLE_NO;
	p->format = 6;
	p->size = size;
	p->align = PAGE_SIZE;
	p->limit = size - 1;
	*out = mem;
	return NV_OK;
}

/* Class 0x50a0. virtual_mem.c:virtmemConstruct_IMPL(): addresses only */
u32 fake_mem_virt(struct fake_gpu *gpu, struct nv_memory_params *p,
		  struct fake_mem **out)
{
	if (!p->size)
		return NV_ERR_INVALID_ARGUMENT;
	*out = mem_new(gpu, PLACE_VIRTUAL, p->size);
	if (!*out)
		return NV_ERR_NO_MEMORY;
	p->attr = attr_set(p->attr, ATTR_LOCATION_MASK, ATTR_LOCATION_SHIFT,
			   ATTR_LOCATION_ANY);
	p->attr = attr_set(p->attr, ATTR_PHYSICALITY_MASK,
			   ATTR_PHYSICALITY_SHIFT,
			   ATTR_PHYSICALITY_CONTIGUOUS);
	p->attr2 |= ATTR2_ZBC_PREFER_NO | ATTR2_CACHEABLE_YES |
		    ATTR2_PAGE_SIZE_HUGE_2MB;
	p->format = 6;
	p->range_lo = p->offset;
	p->range_hi = 0xffffffff;
	p->align = 2ull << 20;
	p->limit = p->size - 1;
	return NV_OK;
}

static struct fake_object *device_parent(u32 root, u32 parent,
					 const struct fake_sec *sec,
					 struct fake_client **client,
					 u32 *status)
{
	struct fake_object *o;

	*status = fake_client_validate(root, sec, client);
	if (*status != NV_OK)
		return NULL;
	o = fake_object(*client, parent);
	if (!o || !o->gpu) {
		*status = o ? NV_ERR_INVALID_OBJECT_PARENT :
			      NV_ERR_OBJECT_NOT_FOUND;
		return NULL;
	}
	return o;
}

/* NVOS32_FUNCTION_ALLOC_SIZE. mem_mgr/heap... rmapi/vidheapctrl: it becomes
 * an allocation of class 0x40, or 0x3e where the attribute says PCI */
static u32 heap_alloc(struct nvos32 *p, struct fake_client *client,
		      const struct fake_sec *sec, struct fake_call *log)
{
	struct nv_memory_params m = {
		.owner = p->u.alloc.owner, .type = p->u.alloc.type,
		.flags = p->u.alloc.flags, .width = p->u.alloc.width,
		.height = p->u.alloc.height, .attr = p->u.alloc.attr,
		.attr2 = p->u.alloc.attr2, .format = p->u.alloc.format,
		.size = p->u.alloc.size, .align = p->u.alloc.align,
		.offset = p->u.alloc.offset,
		.range_lo = p->u.alloc.range_begin,
		.range_hi = p->u.alloc.range_end,
		.vaspace = p->vaspace, .numa = p->u.alloc.numa,
	};
	u32 class = NV01_MEMORY_LOCAL_USER, status, handle = 0;

	if (m.flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		class = NV50_MEMORY_VIRTUAL;
	else if (attr_get(m.attr, ATTR_LOCATION_MASK, ATTR_LOCATION_SHIFT) !=
		 ATTR_LOCATION_VIDMEM)
		class = NV01_MEMORY_SYSTEM;
	if (m.flags & NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED)
		handle = p->u.alloc.memory;
	status = fake_construct(client, p->parent, &handle, fake_class(class),
				&m, sec, log);
	if (status != NV_OK)
		return status;
	p->u.alloc.memory = handle;
	p->u.alloc.attr = m.attr;
	p->u.alloc.attr2 = m.attr2;
	p->u.alloc.format = m.format;
	p->u.alloc.size = m.size;
	p->u.alloc.align = m.align;
	p->u.alloc.offset = m.offset;
	p->u.alloc.limit = m.limit;
	log->object = handle;
	return NV_OK;
}

static u32 os_descriptor(u32 parent, u32 *handle, u64 address, u64 limit,
			 struct fake_client *client)
{
	struct fake_object *o, *dev = fake_object(client, parent);
	u32 status;

	if (offset_in_page(address))
		return NV_ERR_NOT_SUPPORTED;
	if (limit + 1 == 0)
		return NV_ERR_INVALID_LIMIT;
	if (!access_ok(u64_to_user_ptr(address), limit + 1))
		return NV_ERR_INVALID_ADDRESS;
	if (!dev)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (dev->class->kind != KIND_DEVICE)
		return NV_ERR_INVALID_OBJECT_PARENT;
	status = fake_handle_assign(client, handle);
	if (status != NV_OK)
		return status;
	status = fake_object_new(client, dev, *handle,
				 fake_class(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR),
				 &o);
	if (status != NV_OK)
		return status;
	o->mem = fake_mem_plain(dev->gpu, PLACE_USER, limit + 1);
	if (!o->mem) {
		fake_object_free(o);
		return NV_ERR_NO_MEMORY;
	}
	o->mem->holders++;
	return NV_OK;
}

/* NV_ESC_RM_VID_HEAP_CONTROL: functions 2, 3, 5 and 27 */
u32 fake_vid_heap(struct nvos32 *p, const struct fake_sec *sec,
		  struct fake_call *log)
{
	struct fake_client *client;
	struct fake_object *dev;
	u32 status;

	log->what = p->function;
	log->client = p->root;
	mutex_lock(&rm_lock);
	dev = device_parent(p->root, p->parent, sec, &client, &status);
	if (!dev)
		goto out;
	switch (p->function) {
	case NVOS32_FUNCTION_ALLOC_SIZE:
		status = heap_alloc(p, client, sec, log);
		break;
	case NVOS32_FUNCTION_FREE: {
		struct fake_object *o = fake_object(client,
						    p->u.free_.memory);

		log->object = p->u.free_.memory;
		if (!(p->u.free_.flags &
		      NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED))
			status = NV_ERR_INVALID_ARGUMENT;
		else if (!o || !o->mem)
			status = NV_ERR_INVALID_OBJECT_HANDLE;
		else
			fake_object_free(o);
		break;
	}
	case NVOS32_FUNCTION_INFO:
		p->u.info.size = fake_heap_free(dev->gpu);
		p->u.info.offset = 0;
		p->u.info.base = 0;
		break;
	case NVOS32_FUNCTION_ALLOC_OS_DESCRIPTOR:
		status = os_descriptor(p->parent, &p->u.osdesc.memory,
				       p->u.osdesc.descriptor,
				       p->u.osdesc.limit, client);
		break;
	default:
		status = NV_ERR_NOT_SUPPORTED;
	}
	p->total = dev->gpu->heap;
	p->free = fake_heap_free(dev->gpu);
out:
	mutex_unlock(&rm_lock);
	return status;
}

/* NV_ESC_RM_ALLOC_MEMORY: rmapi/deprecated; class 0x40 of an ordinary user
 * makes an empty object and tells the heap's size (nvidia-protocol 2.4) */
u32 fake_alloc_memory(struct nvos02 *p, const struct fake_sec *sec,
		      struct fake_call *log)
{
	struct nv_memory_params m = {};
	struct fake_client *client;
	struct fake_object *dev;
	u32 status, handle = p->new;

	log->what = p->class;
	log->client = p->root;
	if (p->class == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR &&
	    ((p->flags >> 8 & 15) || (p->flags >> 30) != 1))
		return NV_ERR_INVALID_FLAGS;
	mutex_lock(&rm_lock);
	dev = device_parent(p->root, p->parent, sec, &client, &status);
	if (!dev)
		goto out;
	switch (p->class) {
	case NV01_MEMORY_SYSTEM_OS_DESCRIPTOR:
		status = os_descriptor(p->parent, &handle, p->memory,
				       p->limit, client);
		log->bytes = p->limit + 1;
		break;
	case NV01_MEMORY_SYSTEM:
		m.attr = ATTR_LOCATION_PCI << ATTR_LOCATION_SHIFT;
		m.size = p->limit + 1;
		status = fake_construct(client, p->parent, &handle,
					fake_class(p->class), &m, sec, log);
		if (status == NV_OK && (p->flags >> 16 & 3) != 1 &&
		    (p->flags >> 30) != 1) {
			struct fake_object *o = fake_object(client, handle);

			p->memory = o->mem->linear;
			status = fake_map_add(p->fd, o->gpu, PLACE_SYSMEM, 0,
					      o->mem->size, o->mem, true);
		}
		break;
	case NV01_MEMORY_LOCAL_USER: {
		struct fake_object *o;

		status = fake_handle_assign(client, &handle);
		if (status == NV_OK)
			status = fake_object_new(client, dev, handle,
						 fake_class(p->class), &o);
		if (status == NV_OK)
			p->limit = dev->gpu->heap - 1;
		break;
	}
	default:
		status = NV_ERR_INVALID_CLASS;
	}
	if (status == NV_OK)
		p->new = handle;
	log->object = p->new;
out:
	mutex_unlock(&rm_lock);
	return status;
}
