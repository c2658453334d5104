// SPDX-License-Identifier: GPL-2.0
/*
 * Memory: the heap of each GPU and what a memory object stands on
 * (src/nvidia/src/kernel/mem_mgr/video_mem.c, system_mem.c, virtual_mem.c,
 * standard_mem.c, and the figures of the recordings).
 *
 * The recordings show, exactly: a video memory object of default page size
 * and at least 2 MiB takes its size rounded up to 2 MiB (they have no smaller
 * ones: for those the driver's source decides); free = heap - objects -
 * managed memory - 7,744 KiB for the first context of a GPU and 4,416 KiB for
 * each more, and 64 KiB for each channel (with CUDA's 20: 9,024 and 5,696); a
 * request that does not fit fails with 0x51 and changes nothing.
 *
 * Offsets are given out from a bitmap of 2 MiB blocks, lowest first; a block
 * need not be contiguous for the size to be granted, as with PMA.
 */
#include <linux/bitmap.h>
#include <linux/ktime.h>
#include <linux/nodemask.h>
#include "fake.h"

#define BLOCK_SHIFT	21
#define CONTEXT_BLOCKS	3ull

u64 fake_overhead(const struct fake_gpu *gpu)
{
	u64 contexts = gpu->contexts ? (u64)gpu->contexts * FAKE_CONTEXT_KIB +
				       FAKE_CONTEXT_SHARED_KIB : 0;

	return (contexts << 10) + gpu->pools;
}

/* UVM has one piece for its tables from the first context on. */
static u64 table_pieces(const struct fake_gpu *gpu)
{
	const u64 piece = 2ull << 20;

	return gpu->tables > piece ? round_up(gpu->tables - piece, piece) : 0;
}

/*
 * Memory that UVM takes of a GPU once it is registered, also where nobody has a
 * context (h200-nccl-b, on the GPU that the other process uses). A first
 * context was measured with it, and is counted with it.
 */
static u64 uvm_alone(const struct fake_gpu *gpu)
{
	return gpu->uvm_spaces && !gpu->contexts ?
		(u64)FAKE_CONTEXT_SHARED_KIB << 10 : 0;
}

/* Each context was measured with one address space, and its tables; so was
 * what UVM takes. */
static u64 range_tables(const struct fake_gpu *gpu)
{
	u64 within = (gpu->contexts ?: gpu->uvm_spaces > 0) * FAKE_SPACE_TABLES;

	return gpu->ranges > within ? gpu->ranges - within : 0;
}

static u64 heap_free(const struct fake_gpu *gpu)
{
	u64 taken = gpu->used + gpu->managed + fake_overhead(gpu) +
		    uvm_alone(gpu) + table_pieces(gpu) + range_tables(gpu);

	return taken < gpu->heap ? gpu->heap - taken : 0;
}

/* cl00de.h of 580: a counter that is odd while a section is written, and a
 * time where the firmware polls */
#define RUSD_SEQ_START		0xff00000000000000ull
#define RUSD_IN_PROGRESS	(~0ull)

struct rusd {
	u64 bar1_seq;
	u32 bar1_size, bar1_free;	/* KiB */
	u64 seq, total, free;		/* bytes */
	u64 err_cont[2], gr_info[2];
	u64 clk_time;
	u32 clk_mhz[4];			/* graphics, memory, video, SM */
	u8 throttle[1880];
	u64 util_time;
	u32 util[10];			/* GPU, memory, then four engines */
};

static_assert(offsetof(struct rusd, clk_time) == 72);
static_assert(offsetof(struct rusd, util_time) == 1976);

static void rusd_open(u64 *seq)
{
	WRITE_ONCE(*seq, *seq ? *seq + 1 : RUSD_SEQ_START + 1);
	smp_wmb();
}

static void rusd_close(u64 *seq)
{
	smp_wmb();
	WRITE_ONCE(*seq, *seq + 1);
}

/*
 * The page of class 0xde as mem_mgr.c and the firmware keep it, under the
 * lock. What is polled is polled all the time, as if somebody watched the GPU:
 * clocks that stand, and a GPU that others use in full.
 */
static void tell_rusd(struct fake_gpu *gpu)
{
	struct rusd *page = page_address(gpu->rusd);
	u64 now = ktime_get_real_ns();
	int i;

	rusd_open(&page->bar1_seq);
	page->bar1_size = fake_board->bar1_kib;
	page->bar1_free = fake_board->bar1_free_kib;
	rusd_close(&page->bar1_seq);
	rusd_open(&page->seq);
	WRITE_ONCE(page->total, gpu->heap);
	WRITE_ONCE(page->free, heap_free(gpu));
	rusd_close(&page->seq);

	WRITE_ONCE(page->clk_time, RUSD_IN_PROGRESS);
	WRITE_ONCE(page->util_time, RUSD_IN_PROGRESS);
	smp_wmb();
	for (i = 0; i < ARRAY_SIZE(page->clk_mhz); i++)
		page->clk_mhz[i] = 1980;
	for (i = 0; i < 2; i++)
		page->util[i] = 100;
	smp_wmb();
	WRITE_ONCE(page->clk_time, now);
	WRITE_ONCE(page->util_time, now);
}

u64 fake_heap_free(struct fake_gpu *gpu)
{
	u64 n;

	spin_lock(&gpu->lock);
	n = heap_free(gpu);
	spin_unlock(&gpu->lock);
	return n;
}

/* Managed memory takes so much, or gives it back; false: there is not so
 * much. */
bool fake_managed(struct fake_gpu *gpu, s64 by)
{
	bool fits;

	spin_lock(&gpu->lock);
	fits = by < 0 || by <= heap_free(gpu);
	if (fits)
		gpu->managed += by;
	tell_rusd(gpu);
	spin_unlock(&gpu->lock);
	return fits;
}

/* One more address space of UVM's has the GPU, or one less. */
void fake_uvm_space(struct fake_gpu *gpu, bool more)
{
	spin_lock(&gpu->lock);
	if (more)
		gpu->uvm_spaces++;
	else
		gpu->uvm_spaces--;
	tell_rusd(gpu);
	spin_unlock(&gpu->lock);
}

/* The same for page tables of UVM's. */
bool fake_tables(struct fake_gpu *gpu, s64 by)
{
	bool fits;

	spin_lock(&gpu->lock);
	gpu->tables += by;
	fits = by < 0 || gpu->used + gpu->managed + range_tables(gpu) +
			 fake_overhead(gpu) + uvm_alone(gpu) +
			 table_pieces(gpu) <= gpu->heap;
	if (!fits)
		gpu->tables -= by;
	tell_rusd(gpu);
	spin_unlock(&gpu->lock);
	return fits;
}

/* So much of it holds data, or no longer. */
void fake_managed_resident(struct fake_gpu *gpu, s64 by)
{
	spin_lock(&gpu->lock);
	gpu->resident += by;
	spin_unlock(&gpu->lock);
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

/* Just those blocks, for whoever asks for a place (video_mem.c:_vidmemPmaAllocate()). */
static u64 take_place(struct fake_gpu *gpu, u64 offset, u64 size)
{
	u64 at = offset >> BLOCK_SHIFT, n = DIV_ROUND_UP(size, 1 << BLOCK_SHIFT);

	if (at >= gpu->map_bits || n > gpu->map_bits - at ||
	    find_next_bit(gpu->map, at + n, at) < at + n)
		return ~0ull;
	bitmap_set(gpu->map, at, n);
	return at << BLOCK_SHIFT;
}

static void give_blocks(struct fake_gpu *gpu, u64 offset, u64 size)
{
	u32 at = offset >> BLOCK_SHIFT, n = DIV_ROUND_UP(size, 1 << BLOCK_SHIFT);

	if (offset == ~0ull)
		return;
	if (n > 1)
		bitmap_set(gpu->scrub, at, n);
	else
		bitmap_clear(gpu->map, at, n);
}

/* Memory that a compute context takes beside its objects; three blocks of it
 * have a place in the heap. `held` remembers them. */
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
	tell_rusd(gpu);
	spin_unlock(&gpu->lock);
}

/* The pools of groups take so much, or give it back; false: there is not so
 * much. */
bool fake_pool(struct fake_gpu *gpu, s64 by)
{
	bool fits;

	spin_lock(&gpu->lock);
	fits = by <= 0 || by <= heap_free(gpu);
	if (fits)
		gpu->pools += by;
	tell_rusd(gpu);
	spin_unlock(&gpu->lock);
	return fits;
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
	mem->page = PAGE_SIZE;
	return mem;
}

struct fake_mem *fake_mem_plain(struct fake_gpu *gpu, enum fake_place place,
				u64 size)
{
	return mem_new(gpu, place, size);
}

/* Page tables more or less that RM makes for an object. */
bool fake_mem_tables(struct fake_mem *mem, s64 by)
{
	struct fake_gpu *gpu = mem->gpu;
	bool fits;

	spin_lock(&gpu->lock);
	fits = by <= 0 || by <= heap_free(gpu);
	if (fits) {
		mem->tables += by;
		gpu->ranges += by;
	}
	tell_rusd(gpu);
	spin_unlock(&gpu->lock);
	return fits;
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
		give_blocks(gpu, mem->offset, mem->size);
		tell_rusd(gpu);
		spin_unlock(&gpu->lock);
	}
	fake_lazy_end(mem);
	if (mem->tables)
		fake_mem_tables(mem, -(s64)mem->tables);
	if (mem->place == PLACE_USER && mem->npages)
		unpin_user_pages_dirty_lock(mem->pages, mem->npages, true);
	else
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

/*
 * The rounding that memmgrDeterminePageSize_IMPL() (mem_mgr.c) and PMA come to.
 * Left to the driver, a client's object of less than a huge page is of big
 * pages (_memmgrPickDefaultGpuPageSize()).
 */
static u64 vid_page_size(const struct nv_memory_params *p)
{
	switch (attr_get(p->attr, ATTR_PAGE_SIZE_MASK, ATTR_PAGE_SIZE_SHIFT)) {
	case ATTR_PAGE_SIZE_DEFAULT:
		return p->size >= 2ull << 20 ? 2ull << 20 : 0x10000;
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

/* One that begins where a huge page does keeps others from the rest of that
 * (PMA_ALLOCATE_FORCE_ALIGNMENT, video_mem.c:_vidmemPmaAllocate()). */
static bool is_aligned(const struct nv_memory_params *p)
{
	return p->flags & NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE &&
	       p->align && !(p->align & ((2ull << 20) - 1));
}

/* Class 0x40. video_mem.c:vidmemConstruct_IMPL() */
u32 fake_mem_vid(struct fake_gpu *gpu, struct nv_memory_params *p,
		 struct fake_mem **out)
{
	u64 page, size;
	struct fake_mem *mem;
	u64 free;
	u32 mode;

	if (attr_get(p->attr, ATTR_LOCATION_MASK, ATTR_LOCATION_SHIFT) !=
	    ATTR_LOCATION_VIDMEM || p->flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		return NV_ERR_INVALID_ARGUMENT;
	size = p->size;
	if (!p->owner)			/* stdmemValidateParams() */
		return NV_ERR_INVALID_OWNER;
	if (!size)
		return NV_ERR_NO_MEMORY;
	page = vid_page_size(p);
	if (size > U64_MAX - page)
		return NV_ERR_NO_MEMORY;
	size = round_up(size, page);
	mem = mem_new(gpu, PLACE_VIDMEM, size);
	if (!mem)
		return NV_ERR_NO_MEMORY;
	free = fake_heap_free(gpu);
	if (size > free)
		fake_uvm_evict(gpu, size - free);
	spin_lock(&gpu->lock);
	if (size > heap_free(gpu)) {
		spin_unlock(&gpu->lock);
		mem->place = PLACE_VIRTUAL;	/* nothing to give back */
		fake_mem_put(mem);
		return NV_ERR_NO_MEMORY;
	}
	if (p->flags & NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE)
		mem->offset = take_place(gpu, p->offset, size);
	else if (page < 2ull << 20 && !is_aligned(p))
		mem->offset = ~0ull;
	else
		mem->offset = take_blocks(gpu, round_up(size, 2ull << 20));
	if (mem->offset == ~0ull &&
	    p->flags & NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE) {
		spin_unlock(&gpu->lock);
		mem->place = PLACE_VIRTUAL;
		fake_mem_put(mem);
		return NV_ERR_NO_MEMORY;
	}
	gpu->used += size;
	gpu->peak = max(gpu->peak, gpu->used);
	tell_rusd(gpu);
	spin_unlock(&gpu->lock);

	mode = attr_get(p->attr, ATTR_PAGE_SIZE_MASK, ATTR_PAGE_SIZE_SHIFT);
	if (mode != ATTR_PAGE_SIZE_4KB)
		mem->page = page;
	if (mode == ATTR_PAGE_SIZE_DEFAULT)
		mode = page >= 2ull << 20 ? ATTR_PAGE_SIZE_HUGE :
					    ATTR_PAGE_SIZE_BIG;
	p->attr = attr_set(p->attr, ATTR_PAGE_SIZE_MASK, ATTR_PAGE_SIZE_SHIFT,
			   mode);
	p->attr = attr_set(p->attr, ATTR_PHYSICALITY_MASK,
			   ATTR_PHYSICALITY_SHIFT,
			   mem->offset == ~0ull ?
			   ATTR_PHYSICALITY_NONCONTIGUOUS :
			   ATTR_PHYSICALITY_CONTIGUOUS);
	/* 64 MiB go to nobody else (phys_mem_allocator.c:pmaAllocatePages()) */
	if (p->attr2 & ATTR2_LOCALIZED)
		fake_harm(HARM_LOST);
	p->attr2 |= ATTR2_ZBC_PREFER_NO;
	if (!(p->attr2 & ATTR2_CACHEABLE_MASK))
		p->attr2 |= ATTR2_CACHEABLE_YES;
	if (mode == ATTR_PAGE_SIZE_HUGE &&
	    !(p->attr2 & ATTR2_PAGE_SIZE_HUGE_MASK))
		p->attr2 |= ATTR2_PAGE_SIZE_HUGE_2MB;
	p->format = 6;			/* kind GENERIC_MEMORY */
	p->size = size;
	p->align = page;
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
	if (!p->owner)
		return NV_ERR_INVALID_OWNER;
	size = p->size ? p->size : (u64)p->height * abs(p->pitch);
	if (!size || size > 1ull << 40)
		return size ? NV_ERR_NO_MEMORY : NV_ERR_INVALID_ARGUMENT;
	size = round_up(size, PAGE_SIZE);
	/* the GPU is of no node: nothing is asked (nv-vm.c:nv_alloc_contig_pages()) */
	if (p->attr2 & ATTR2_FIXED_NUMA_NODE_ID &&
	    (p->numa < 0 || p->numa >= nr_node_ids))
		fake_harm(HARM_INDEX);
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

/*
 * The page tables that gpu_vaspace.c:gvaspaceAlloc_IMPL() makes with a range
 * unless it is told to wait: those of 4 KiB pages here.
 */
static u64 tables_of(const struct nv_memory_params *p)
{
	u64 last = p->size - 1;

	return ((last >> 21) + (last >> 29) + (last >> 38) + (last >> 47) + 4) *
	       4096;
}

/* Class 0x50a0. virtual_mem.c:virtmemConstruct_IMPL(): addresses, and their
 * page tables */
u32 fake_mem_virt(struct fake_gpu *gpu, struct nv_memory_params *p,
		  struct fake_mem **out)
{
	bool waits;

	if (!p->size)
		return NV_ERR_INVALID_ARGUMENT;
	*out = mem_new(gpu, PLACE_VIRTUAL, p->size);
	if (!*out)
		return NV_ERR_NO_MEMORY;
	waits = p->flags & (NVOS32_ALLOC_FLAGS_LAZY |
			    NVOS32_ALLOC_FLAGS_EXTERNALLY_MANAGED);
	if (!(waits ? fake_lazy_make(*out) :
		      fake_mem_tables(*out, tables_of(p)))) {
		fake_mem_put(*out);
		return NV_ERR_NO_MEMORY;
	}
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

int fake_heap_init(struct fake_gpu *gpu)
{
	gpu->map_bits = gpu->heap >> BLOCK_SHIFT;
	gpu->map = bitmap_zalloc(gpu->map_bits, GFP_KERNEL);
	gpu->scrub = bitmap_zalloc(gpu->map_bits, GFP_KERNEL);
	if (!gpu->map || !gpu->scrub)
		return -ENOMEM;
	bitmap_set(gpu->map, 0, 2);	/* the driver's own, as recorded */
	tell_rusd(gpu);
	return 0;
}

void fake_heap_exit(struct fake_gpu *gpu)
{
	bitmap_free(gpu->map);
	bitmap_free(gpu->scrub);
}
