// SPDX-License-Identifier: GPL-2.0
/*
 * Objects that hold on to memory, or are held by something, in ways that
 * nobody accounts for (nvencsession.c, sem_surf.c, mem_mapper.c,
 * third_party_p2p.c, context_dma.c, kernel_channel_gv100.c,
 * kernel_sm_debugger_session_ctrl.c of 580).
 */
#include "fake.h"

/* nvencsession.c:nvencsessionConstruct_IMPL(): memory by a bare pointer */
u32 fake_session_make(struct fake_object *o, const struct nv_session_params *p)
{
	struct fake_object *memory;

	if (p->version != NVA0BC_ALLOC_PARAMS_VER_1)
		return NV_OK;
	memory = fake_object(o->client, p->memory);
	if (!memory || !memory->mem)
		return NV_ERR_OBJECT_NOT_FOUND;
	o->session.handle = p->memory;
	o->session.memory = memory;
	return NV_OK;
}

/* nvencsessionDestruct_IMPL() */
void fake_session_end(const struct fake_object *o)
{
	if (o->session.memory &&
	    o->session.memory != fake_object(o->client, o->session.handle))
		fake_harm(HARM_FREED);
}

/* sem_surf.c:semsurfConstruct_IMPL(): a duplicate of host memory */
u32 fake_surface_make(struct fake_object *o, const struct nv_surface_params *p)
{
	struct fake_object *memory = fake_object(o->client, p->memory);

	if (p->flags)
		return NV_ERR_INVALID_ARGUMENT;
	if (!memory || !memory->mem)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (memory->mem->place != PLACE_SYSMEM)
		return NV_ERR_INVALID_PARAMETER;
	o->surface = fake_mem_get(memory->mem);
	o->surface->holders++;
	return NV_OK;
}

void fake_surface_end(const struct fake_object *o)
{
	if (!o->surface)
		return;
	o->surface->holders--;
	fake_mem_put(o->surface);
}

/* mem_mapper.c:memmapperConstruct_IMPL() */
u32 fake_mapper_make(struct fake_object *o, const struct nv_mapper_params *p)
{
	struct fake_object *told = fake_object(o->client, p->notification);
	struct fake_object *surface = fake_object(o->client,
						  p->semaphore_surface);

	if (!p->queue)
		return NV_ERR_INVALID_ARGUMENT;
	if (!told || !surface)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!told->mem || surface->class->class != NV_SEMAPHORE_SURFACE)
		return NV_ERR_INVALID_ARGUMENT;
	if (p->queue * 56ull > SZ_1M)		/* the host's, and nobody's */
		fake_harm(HARM_LOST);
	if (told->mem->place == PLACE_VIDMEM)	/* a place in BAR1 */
		fake_harm(HARM_LOST);
	o->surface = fake_mem_get(surface->surface);
	o->surface->holders++;
	return NV_OK;
}

/* context_dma.c:ctxdmaConstruct_IMPL() */
u32 fake_context_make(struct fake_object *o,
		      const struct nv_context_dma_params *p)
{
	struct fake_object *memory = fake_object(o->client, p->memory);

	if (!memory)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (memory->parent != o->parent)
		return NV_ERR_INVALID_OBJECT_PARENT;
	/* a place in BAR1 for notes, which _ctxdmaDestroyFBMappings() leaves
	 * there where there is firmware at work */
	if ((p->flags & NVOS03_FLAGS_TYPE_MASK) == NVOS03_FLAGS_TYPE_NOTIFIER &&
	    memory->mem && memory->mem->place == PLACE_VIDMEM)
		fake_harm(HARM_LOST);
	return fake_depend(o, memory);
}

/*
 * kernel_channel_gv100.c:kchannelCreateUserdMemDesc_GV100(): the place of a
 * channel's control page, and a reference to the memory's descriptor. Host
 * memory is freed with the last of those (mem_desc.c:memdescFree()). Video
 * memory is freed with its objects (mem_mgr.c:memmgrFree_IMPL()), and whoever
 * gets it then has the page. With memory of the program's own goes the channel.
 * Of a range of addresses the driver tells the GPU an address as a place.
 */
u32 fake_userd_make(struct fake_object *o, const struct nv_channel_params *p)
{
	struct fake_object *memory;
	u64 at = p->userd_offset[0];
	struct fake_mem *mem;

	if (!p->userd_memory[0])
		return NV_OK;
	memory = fake_object(o->client, p->userd_memory[0]);
	if (!memory || !memory->mem)
		return NV_ERR_OBJECT_NOT_FOUND;
	mem = memory->mem;
	if (mem->place == PLACE_USER)
		return fake_depend(o, memory);
	if (mem->place == PLACE_SYSMEM) {
		o->channel.userd = fake_mem_page(mem, at >> PAGE_SHIFT);
		o->channel.userd_mem = fake_mem_get(mem);
		mem->holders++;
	} else if (mem->place == PLACE_VIDMEM && mem->offset != ~0ull) {
		o->channel.userd = fake_bar_page(mem->gpu, mem->offset, at);
	} else if (mem->place == PLACE_VIRTUAL) {
		fake_harm(HARM_PLACE);
	}
	o->channel.userd_at = at & ~PAGE_MASK;
	o->channel.entries = p->gpfifo_entries;
	return NV_OK;
}

void fake_userd_end(const struct fake_object *o)
{
	if (!o->channel.userd_mem)
		return;
	o->channel.userd_mem->holders--;
	fake_mem_put(o->channel.userd_mem);
}

struct control_page {			/* clc86f.h: Nvc86fControl */
	u32 other[0x22];
	u32 get, put;			/* GPGet, GPPut */
};
static_assert(offsetof(struct control_page, put) == 0x8c);

/*
 * A group of channels on the runlist: the GPU takes the entries of each ring,
 * which do nothing here, and notes in the control page how far it is.
 */
static u32 schedule_group(struct fake_ctrl *c)
{
	struct control_page *page;
	struct fake_object *o;

	list_for_each_entry(o, &c->object->children, sibling) {
		if (o->class->kind != KIND_CHANNEL || !o->channel.userd)
			continue;
		if (o->channel.userd_at > PAGE_SIZE - sizeof(*page))
			continue;
		page = page_address(o->channel.userd) + o->channel.userd_at;
		if (READ_ONCE(page->put) < o->channel.entries)
			WRITE_ONCE(page->get, READ_ONCE(page->put));
	}
	return NV_OK;
}

struct register_space {			/* 0x503c0102 */
	u32 space;
	u64 token;
};
static_assert(sizeof(struct register_space) == 16);

/*
 * third_party_p2p.c:CliAddThirdPartyP2PVASpace(): a record of any number; of
 * any object, which then takes this one with it. One that depends on itself
 * would be freed without end, on the kernel's stack.
 */
static u32 register_space(struct fake_ctrl *c)
{
	struct register_space *p = c->params;
	struct fake_object *o = fake_object(c->client, p->space);
	u32 status = NV_OK;

	if (o == c->object)
		fake_harm(HARM_STACK);
	else if (o && o->class->kind == KIND_VASPACE)
		status = fake_depend(c->object, o);
	if (status == NV_OK &&
	    !fake_answer(ANSWER_CONTROL, c->cmd, p, c->size, NULL, &status))
		p->token = 0xfe00;
	return status;
}

struct register_memory {		/* 0x503c0104 */
	u32 memory;
	u64 address, size, offset;
};
static_assert(sizeof(struct register_memory) == 32);

static void forget(struct fake_registered *r)
{
	list_del(&r->with);
	list_del(&r->of);
	fake_free(r);
}

/*
 * third_party_p2p.c:thirdpartyp2pDestruct_IMPL(); for video memory
 * CliUnregisterMemoryFromThirdPartyP2P()
 */
void fake_registered_end(struct fake_object *o)
{
	struct fake_registered *r, *next;

	if (o->class->kind == KIND_P2P)
		list_for_each_entry_safe(r, next, &o->registered, with)
			forget(r);
	else
		list_for_each_entry_safe(r, next, &o->registered, of)
			forget(r);
}

static struct fake_registered *registered(struct fake_object *o, u32 memory)
{
	struct fake_registered *r;

	list_for_each_entry(r, &o->registered, with)
		if (r->memory == memory)
			return r;
	return NULL;
}

static const struct fake_object *device_of(const struct fake_object *o)
{
	while (o && o->class->kind != KIND_DEVICE)
		o = o->parent;
	return o;
}

/* third_party_p2p_ctrl.c:thirdpartyp2pCtrlCmdRegisterVidmem_IMPL() */
static u32 register_memory(struct fake_ctrl *c)
{
	const struct register_memory *p = c->params;
	struct fake_object *o = fake_object(c->client, p->memory);
	struct fake_registered *r;
	u64 last, end;

	if (!o || !o->mem || device_of(o) != device_of(c->object))
		return NV_ERR_OBJECT_NOT_FOUND;
	if (o->class->class != NV01_MEMORY_LOCAL_USER)
		return NV_ERR_NOT_SUPPORTED;
	if (!p->size || (p->address | p->size | p->offset) & (SZ_64K - 1) ||
	    check_add_overflow(p->address, p->size - 1, &last) ||
	    check_add_overflow(p->size, p->offset, &end) || end > o->mem->size)
		return NV_ERR_INVALID_ARGUMENT;
	list_for_each_entry(r, &c->object->registered, with)
		if (r->memory == p->memory ||
		    (p->address <= r->last && last >= r->start))
			return NV_ERR_INSERT_DUPLICATE_NAME;
	r = fake_zalloc(sizeof(*r));
	if (!r)
		return NV_ERR_NO_MEMORY;
	r->memory = p->memory;
	r->start = p->address;
	r->last = last;
	list_add(&r->with, &c->object->registered);
	list_add(&r->of, &o->registered);
	return NV_OK;
}

/* CliDelThirdPartyP2PVidmemInfo() */
static u32 unregister_memory(struct fake_ctrl *c)
{
	const u32 *memory = c->params;
	struct fake_registered *r = registered(c->object, *memory);

	if (!r)
		return NV_ERR_OBJECT_NOT_FOUND;
	forget(r);
	return NV_OK;
}

struct debug_memory {			/* 0x83de0315 */
	u32 memory, length;
	u64 offset, buffer;
};
static_assert(sizeof(struct debug_memory) == 24);

/*
 * kernel_sm_debugger_session_ctrl.c:_nv83deCtrlCmdDebugAccessMemory(): with a
 * copy engine, which takes an address of a range for one of the bus. What is
 * in memory is not told here.
 */
static u32 debug_memory(struct fake_ctrl *c)
{
	struct debug_memory *p = c->params;
	struct fake_object *o = fake_object(c->client, p->memory);
	u64 end;

	if (!o)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	if (!o->mem || !p->length ||
	    check_add_overflow(p->offset, p->length, &end) || end > o->mem->size)
		return NV_ERR_INVALID_ARGUMENT;
	if (o->mem->place == PLACE_VIRTUAL)
		fake_harm(HARM_PLACE);
	return NV_OK;
}

struct bind_channel {			/* 0x00da0002 */
	u32 channel, count, indices[8];
};
static_assert(sizeof(struct bind_channel) == 40);

/*
 * sem_surf.c:semsurfCtrlCmdBindChannel_IMPL(): a record of the channel and an
 * event for each index, which stay when the channel goes
 */
static u32 bind_channel(struct fake_ctrl *c)
{
	const struct bind_channel *p = c->params;
	struct fake_object *channel = fake_object(c->client, p->channel);

	if (!channel || channel->class->kind != KIND_CHANNEL)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (p->count > ARRAY_SIZE(p->indices))
		return NV_ERR_INVALID_PARAMETER;
	if (++c->object->bonds > 2300)		/* the host's, and nobody's */
		fake_harm(HARM_LOST);
	return NV_OK;
}

struct records {			/* 0xb0cc0105 */
	u32 buffer;
	u64 offset, size;
	u32 count;
	u64 count_offset;
	u32 ctxsw, channel;
	u64 address;
};
static_assert(sizeof(struct records) == 56);

/*
 * kern_profiler_v2_ctrl.c:profilerBaseCtrlCmdAllocPmaStream_IMPL(): room for
 * streams, which is not cleared, and then a stream by the firmware
 */
static u32 make_stream(struct fake_ctrl *c)
{
	const struct records *p = c->params;

	if (!fake_object(c->client, p->buffer) ||
	    !fake_object(c->client, p->count))
		return NV_ERR_OBJECT_NOT_FOUND;
	c->object->room = true;
	if (!p->size)
		return NV_ERR_INVALID_ARGUMENT;
	c->object->stream = true;
	return NV_OK;
}

/* profilerBaseCtrlCmdBindPmResources_IMPL(): follows what is in the room */
static u32 bind_counters(struct fake_ctrl *c)
{
	if (c->object->room && !c->object->stream)
		fake_harm(HARM_NULL);
	return NV_OK;
}

const struct fake_ctrl_entry fake_ctrl_hold[] = {
	{ 0x00da0002, 40, NULL, bind_channel },
	{ 0x503c0102, 16, NULL, register_space },
	{ 0x503c0104, 32, NULL, register_memory },
	{ 0x503c0105, 4, NULL, unregister_memory },
	{ 0x83de0315, 24, NULL, debug_memory },
	{ 0xa06c0101, 3, NULL, schedule_group },
	{ 0xb0cc0105, 56, NULL, make_stream },
	{ 0xb0cc0107, 0, NULL, bind_counters },
	{ }
};
