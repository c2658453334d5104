// SPDX-License-Identifier: GPL-2.0
/*
 * The two older ways to memory: NV_ESC_RM_VID_HEAP_CONTROL and
 * NV_ESC_RM_ALLOC_MEMORY (src/nvidia/interface/deprecated/
 * rmapi_deprecated_vidheapctrl.c, rmapi_deprecated_allocmemory.c,
 * escape.c:RmCreateOsDescriptor of 580). Both become ordinary allocations of
 * a class. Their parameters are all in the outer argument, so they are read
 * once.
 */
#include "fake.h"

#define MAX_PINNED	(1u << 20)	/* pages of one descriptor */

static u32 alloc(struct nvos32 *p, struct fake_client *client,
		 const struct fake_sec *sec, struct fake_call *log)
{
	struct nv_memory_params m = {
		.owner = p->u.alloc.owner, .type = p->u.alloc.type,
		.flags = p->u.alloc.flags, .attr = p->u.alloc.attr,
		.attr2 = p->u.alloc.attr2, .format = p->u.alloc.format,
		.height = p->u.alloc.height, .size = p->u.alloc.size,
		.align = p->u.alloc.align, .offset = p->u.alloc.offset,
		.limit = p->u.alloc.limit,
		.vaspace = p->vaspace, .numa = p->u.alloc.numa,
	};
	u32 class = NV01_MEMORY_LOCAL_USER, status;

	if (m.flags & NVOS32_ALLOC_FLAGS_USE_BEGIN_END) {
		m.range_lo = p->u.alloc.range_begin;
		m.range_hi = p->u.alloc.range_end;
	}
	p->u.alloc.stride = 256;
	if (!(m.flags & NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED))
		p->u.alloc.memory = 0;
	if (m.flags & NVOS32_ALLOC_FLAGS_VIRTUAL)
		class = NV50_MEMORY_VIRTUAL;
	else if ((m.attr & ATTR_LOCATION_MASK) >> ATTR_LOCATION_SHIFT !=
		 ATTR_LOCATION_VIDMEM)
		class = NV01_MEMORY_SYSTEM;
	status = fake_construct(client, p->parent, &p->u.alloc.memory,
				fake_class(class), &m, sec, log);
	p->free = 0;
	p->total = 0;
	log->object = p->u.alloc.memory;
	if (status != NV_OK)
		return status;		/* m is as it was */
	p->u.alloc.size = m.size;
	p->u.alloc.offset = m.offset;
	p->u.alloc.limit = m.limit;
	p->u.alloc.attr = m.attr;
	p->u.alloc.attr2 = m.attr2;
	p->u.alloc.format = m.format;
	return NV_OK;
}

static u32 info(struct nvos32 *p, struct fake_client *client)
{
	struct fake_object *dev = fake_object(client, p->parent);

	if (!dev)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!dev->gpu)
		return NV_ERR_INVALID_OBJECT_PARENT;
	p->free = fake_heap_free(dev->gpu);
	p->total = dev->gpu->heap;
	p->u.info.base = 0;
	p->u.info.size = p->free;
	p->u.info.offset = 0;
	return NV_OK;
}

/* escape.c:RmCreateOsDescriptor(): the pages are pinned before anything is
 * asked about the client */
static u32 pin(u64 address, u64 limit, struct fake_mem **out)
{
	struct fake_mem *mem;
	u64 pages;
	int n;

	if (offset_in_page(address))
		return NV_ERR_NOT_SUPPORTED;
	if (limit + 1 == 0)
		return NV_ERR_INVALID_LIMIT;
	pages = 1 + (limit >> PAGE_SHIFT);
	if (pages > MAX_PINNED)
		return NV_ERR_NO_MEMORY;
	mem = fake_mem_plain(NULL, PLACE_USER, limit + 1);
	if (!mem)
		return NV_ERR_NO_MEMORY;
	mem->pages = fake_zalloc(pages * sizeof(*mem->pages));
	if (!mem->pages) {
		fake_mem_put(mem);
		return NV_ERR_NO_MEMORY;
	}
	n = pin_user_pages_fast(address, pages, FOLL_WRITE | FOLL_LONGTERM,
				mem->pages);
	mem->npages = max(n, 0);
	if (n != pages) {
		fake_mem_put(mem);
		return NV_ERR_INVALID_ADDRESS;
	}
	*out = mem;
	return NV_OK;
}

static u32 os_descriptor(u32 root, u32 parent, u32 *handle, u64 address,
			 u64 limit, const struct fake_sec *sec,
			 struct fake_call *log)
{
	struct fake_client *client;
	struct fake_object *o, *dev;
	struct fake_mem *mem;
	u32 status = pin(address, limit, &mem);

	if (status != NV_OK)
		return status;
	log->bytes = limit + 1;
	mutex_lock(&rm_lock);
	status = fake_client_validate(root, sec, &client);
	if (status != NV_OK)
		goto out;
	dev = fake_object(client, parent);
	if (!dev)
		status = NV_ERR_OBJECT_NOT_FOUND;
	else if (dev->class->kind != KIND_DEVICE)
		status = NV_ERR_INVALID_OBJECT_PARENT;
	else
		status = fake_handle_assign(client, handle);
	if (status != NV_OK)
		goto out;
	status = fake_object_new(client, dev, *handle,
				 fake_class(NV01_MEMORY_SYSTEM_OS_DESCRIPTOR),
				 &o);
	if (status != NV_OK)
		goto out;
	mem->gpu = dev->gpu;
	mem->holders = 1;
	o->mem = mem;
	mutex_unlock(&rm_lock);
	return NV_OK;
out:
	mutex_unlock(&rm_lock);
	fake_mem_put(mem);
	return status;
}

/* RmDeprecatedVidHeapControl() */
u32 fake_vid_heap(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos32 *p = arg;
	struct fake_client *client;
	u32 status;

	log->what = p->function;
	if (p->ivc_heap > 0)
		return NV_ERR_NOT_SUPPORTED;
	mutex_lock(&rm_lock);
	status = fake_client_validate(p->root, sec, &client);
	if (status != NV_OK)
		goto out;
	switch (p->function) {
	case NVOS32_FUNCTION_ALLOC_SIZE:
		status = alloc(p, client, sec, log);
		break;
	case NVOS32_FUNCTION_FREE:
		/* RmFree of any object, also of the client itself */
		log->object = p->u.free_.memory;
		status = p->u.free_.flags &
			 NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED ?
			fake_free_object(p->root, p->u.free_.memory, sec) :
			NV_ERR_INVALID_ARGUMENT;
		break;
	case NVOS32_FUNCTION_INFO:
		status = info(p, client);
		break;
	default:
		status = NV_ERR_INVALID_ARGUMENT;
	}
out:
	mutex_unlock(&rm_lock);
	return status;
}

/*
 * rmapi_deprecated_misc.c:RmDeprecatedAllocContextDma(): an object of any
 * class, beside the memory that it names, by the parameters of a context for
 * DMA. Larger ones are not modelled, nor what is over class 0x70.
 */
u32 fake_context_dma(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos39 *p = arg;
	struct nv_context_dma_params m = {
		.subdevice = p->subdevice, .flags = p->flags,
		.memory = p->memory, .offset = p->offset, .limit = p->limit,
	};
	const struct fake_class *class = fake_class(p->class);
	struct fake_client *client;
	struct fake_object *memory;
	u32 status;

	log->what = p->class;
	mutex_lock(&rm_lock);
	status = fake_client_validate(p->client, sec, &client);
	if (status != NV_OK)
		goto out;
	memory = fake_object(client, p->memory);
	if (!memory || !memory->parent)
		status = NV_ERR_OBJECT_NOT_FOUND;
	else if (!class || class->params > sizeof(m) ||
		 class->kind == KIND_ROOT)
		status = NV_ERR_INVALID_CLASS;
	else
		status = fake_construct(client, memory->parent->handle, &p->new,
					class, &m, sec, log);
out:
	mutex_unlock(&rm_lock);
	return status;
}

static u32 system_memory(struct nvos02 *p, struct fake_client *client,
			 const struct fake_sec *sec, struct fake_call *log)
{
	struct nv_memory_params m = {
		.owner = 0x7368696d,	/* "shim" */
		.size = p->limit + 1,
		.attr = ATTR_LOCATION_PCI << ATTR_LOCATION_SHIFT,
		.attr2 = p->flags & 1u << 27 ? ATTR2_FIRMWARE_KNOWS : 0,
	};
	u32 handle = p->new, status;
	struct fake_object *o;

	if (p->flags >> 8 & 15 || (p->flags >> 16 & 3) == 1)
		return NV_ERR_INVALID_FLAGS;
	p->memory = 0;
	status = fake_construct(client, p->parent, &handle,
				fake_class(NV01_MEMORY_SYSTEM), &m, sec, log);
	log->object = handle;
	if (status != NV_OK || p->flags >> 30)
		return status;
	o = fake_object(client, handle);
	p->memory = o->mem->linear;
	/* escape.c: the descriptor's file gets the mapping context at once */
	return fake_map_add(p->fd, o->gpu, PLACE_SYSMEM, 0, o->mem->size,
			    o->mem, true);
}

/* An ordinary user's class 0x40 is a question for the size of the memory; an
 * administrator's is all of it (class 0xc2). */
static u32 local_user(struct nvos02 *p, struct fake_client *client,
		      const struct fake_sec *sec, struct fake_call *log)
{
	u32 handle = p->new, status;
	struct fake_object *o;
	u64 none[3] = {};

	status = fake_construct(client, p->parent, &handle,
				fake_class(sec->admin ?
					   NV01_MEMORY_LOCAL_PHYSICAL :
					   NV01_MEMORY_VIRTUAL),
				none, sec, log);
	if (status != NV_OK)
		return status;
	o = fake_object(client, handle);
	p->limit = o->gpu->total - 1;
	log->object = handle;
	return NV_OK;
}

/* RmDeprecatedAllocMemory(); escape.c treats the descriptor class itself */
u32 fake_alloc_memory(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos02 *p = arg;
	struct fake_client *client;
	u32 status, handle = p->new;

	log->what = p->class;
	if (p->class == NV01_MEMORY_SYSTEM_OS_DESCRIPTOR) {
		if (p->flags >> 8 & 15 || p->flags >> 30 != 1)
			return NV_ERR_INVALID_FLAGS;
		status = os_descriptor(p->root, p->parent, &handle, p->memory,
				       p->limit, sec, log);
		log->object = handle;
		return status;
	}
	mutex_lock(&rm_lock);
	status = fake_client_validate(p->root, sec, &client);
	if (status == NV_OK)
		switch (p->class) {
		case NV01_MEMORY_SYSTEM:
			status = system_memory(p, client, sec, log);
			break;
		case NV01_MEMORY_LOCAL_USER:
			status = local_user(p, client, sec, log);
			break;
		case NV01_MEMORY_LOCAL_PRIVILEGED:
			p->limit = 0xffffffff;
			status = fake_construct(client, p->parent, &handle,
						fake_class(p->class), NULL,
						sec, log);
			log->object = handle;
			break;
		default:
			status = NV_ERR_INVALID_CLASS;
		}
	mutex_unlock(&rm_lock);
	return status;
}
