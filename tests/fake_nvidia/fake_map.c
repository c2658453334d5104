// SPDX-License-Identifier: GPL-2.0
/*
 * RM_MAP_MEMORY and its relatives: a CPU address for a piece of a memory
 * object and the mapping context on the file whose descriptor the call names
 * (src/nvidia/src/kernel/rmapi/mapping_cpu.c, osapi.c:RmCreateMmapContext).
 *
 * The answer in `flags` is as recorded: the caching type is the
 * driver's, the mapping type says whether the object was mapped directly.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include "fake.h"

static bool static_bar1 = true;
module_param(static_bar1, bool, 0644);
MODULE_PARM_DESC(static_bar1, "all memory is in BAR1 for ever, as since branch 580 where it fits");

#define CACHING_DEFAULT		(6u << 23)	/* NVOS33_FLAGS_CACHING_TYPE */
#define CACHING_MASK		(7u << 23)
#define CACHING_UNCACHED	(1u << 23)
#define CACHING_WRITECOMBINED	(2u << 23)
#define MAPPING_DIRECT		(1u << 15)	/* NVOS33_FLAGS_MAPPING */
#define MAPPING_REFLECTED	(2u << 15)
#define MEM_SPACE_USER		(1u << 14)	/* NVOS33_FLAGS_MEM_SPACE */
#define ACCESS_MASK		3u		/* NVOS33_FLAGS_ACCESS */
#define ACCESS_READ_ONLY	1u

/*
 * If BAR1 does not show all memory, each mapping takes a piece of its own. It is of whole pages of
 * the memory's size, and stays until the mapping or its object ends; the file has no part in that
 * (kern_bus_gm107.c:kbusMapFbAperture_GM107, dmaAllocMapping_GM107).
 */
static u32 bar1_charge(struct fake_gpu *gpu, const struct fake_mem *mem,
		       const struct nvos33 *p, u64 *bytes)
{
	u64 end = round_up(p->offset + p->length, mem->page);

	*bytes = static_bar1 ? 0 : end - round_down(p->offset, mem->page);
	if (*bytes > ((u64)fake_board->bar1_kib << 10) - gpu->bar1_used)
		return NV_ERR_NO_MEMORY;
	gpu->bar1_used += *bytes;
	return NV_OK;
}

/* A mapping goes, under rm_lock. */
void fake_cpu_map_free(struct fake_gpu *gpu, struct fake_cpu_map *map)
{
	if (map->bar1)
		gpu->bar1_used -= map->bar1;
	list_del(&map->list);
	fake_free(map);
}

/* The mapping at an address, or NULL. */
static struct fake_cpu_map *map_at(const struct fake_object *o, u64 address)
{
	struct fake_cpu_map *map;

	list_for_each_entry(map, &o->maps, list)
		if (map->address == address)
			return map;
	return NULL;
}

/*
 * The second half of a mapping has refused: the driver unmaps by address what the first half has
 * mapped, and the first one of that address goes (escape.c:RmIoctl, rs_resource.c:
 * refFindCpuMappingWithFilter). If that is another one, a file goes on showing its place in BAR1,
 * which others get unless that is static.
 */
static void unmap_refused(struct fake_object *o, struct fake_cpu_map *refused)
{
	struct fake_cpu_map *map = map_at(o, refused->address);

	if (map != refused)
		fake_harm(HARM_PLACE);
	fake_cpu_map_free(o->gpu, map);
}

/*
 * Mappings go with the device or subdevice that they were made by, though their objects stay, and
 * files go on showing their places (rs_client.c:_clientUnmapBackRefMappings).
 */
void fake_maps_end_by(const struct fake_object *device)
{
	struct fake_cpu_map *map, *next;
	struct fake_object *o;
	unsigned long handle;

	xa_for_each(&device->client->objects, handle, o) {
		list_for_each_entry_safe(map, next, &o->maps, list) {
			if (map->by != device)
				continue;
			fake_harm(HARM_PLACE);
			fake_cpu_map_free(o->gpu, map);
		}
	}
}

static bool is_below(const struct fake_object *o, const struct fake_object *top)
{
	for (; o; o = o->parent)
		if (o == top)
			return true;
	return false;
}

static u64 bar1_take(struct fake_gpu *gpu, u64 size)
{
	u64 at = gpu->bar1_next;

	size = round_up(size, 0x10000);
	if (at + size > fake_board->aperture)
		at = (u64)FAKE_BAR_PAGES << PAGE_SHIFT;
	gpu->bar1_next = at + size;
	return gpu->bar1 + at;
}

/*
 * The place of a thread's mapping of video memory, between the two halves of the
 * call. The second half refuses another process's client before it takes it
 * (osapi.c: rm_create_mmap_context, RmCreateMmapContextLocked); the thread's
 * next mapping, of whatever, then shows that place. (What is left for good is the driver's loss,
 * and not counted.)
 */
struct slot {
	struct list_head list;
	pid_t thread;
	u64 start, size;
};
static LIST_HEAD(slots);

static void slot_leave(u64 start, u64 size)
{
	struct slot *slot = kzalloc(sizeof(*slot), GFP_KERNEL);

	if (!slot)
		return;
	slot->thread = task_pid_nr(current);
	slot->start = start;
	slot->size = size;
	list_add(&slot->list, &slots);
}

/* Takes out the place that the thread has left, if there is one. */
static bool slot_take(u64 *start, u64 *size)
{
	struct slot *slot;

	list_for_each_entry(slot, &slots, list) {
		if (slot->thread != task_pid_nr(current))
			continue;
		*start = slot->start;
		*size = slot->size;
		list_del(&slot->list);
		kfree(slot);
		return true;
	}
	return false;
}

void fake_map_exit(void)
{
	struct slot *slot, *next;

	list_for_each_entry_safe(slot, next, &slots, list)
		kfree(slot);
}

/* By way of a device, or of none: that the object is of the same GPU is not asked (mapping_cpu.c,
 * memMap_IMPL). */
static u32 map_object(struct nvos33 *p, struct fake_object *o, const struct fake_object *device,
		      const struct fake_sec *sec)
{
	struct fake_gpu *gpu = device ? device->gpu : o->gpu;
	enum fake_place place = o->mem->place;
	struct fake_mem *mem = NULL;
	struct fake_cpu_map *map;
	u64 start, size, end, bar1 = 0;
	u32 status;

	if (!p->length || check_add_overflow(p->offset, p->length, &end) ||
	    end > o->mem->size)
		return NV_ERR_INVALID_LIMIT;
	size = PAGE_ALIGN(end) - (p->offset & PAGE_MASK);
	start = p->offset & PAGE_MASK;
	p->flags = (p->flags & ~CACHING_MASK) | CACHING_DEFAULT;
	switch (place) {
	case PLACE_REGISTERS:
		if (o->mem->bar1_bell) {
			/* one place for all mappings, as seen on an H200 */
			p->address = gpu->bar1 + FAKE_BAR1_BELL + p->offset;
			p->flags = (p->flags & ~CACHING_MASK) |
				   CACHING_UNCACHED | MAPPING_REFLECTED;
			place = PLACE_BAR1_REGISTERS;
		} else {
			p->address = gpu->bar0 + FAKE_BELL_OFFSET + p->offset;
		}
		break;
	case PLACE_VIDMEM:
		if (o->mem->offset == ~0ull) {
			p->address = bar1_take(gpu, size) +
				     (p->offset & ~PAGE_MASK);
			start = p->address & PAGE_MASK;
		} else {
			/* BAR1 is larger than the memory, and shows all of it
			 * for ever: kern_bus_tu102.c, kbusEnableStaticBar1Mapping */
			p->address = gpu->bar1 +
				     ((u64)FAKE_BAR_PAGES << PAGE_SHIFT) +
				     o->mem->offset + p->offset;
			start += o->mem->offset >> 21 << PAGE_SHIFT;
		}
		p->flags = (p->flags & ~CACHING_MASK) |
			   CACHING_WRITECOMBINED | MAPPING_REFLECTED;
		break;
	case PLACE_SYSMEM:
		mem = o->mem;
		p->address = mem->linear + p->offset;
		p->flags |= MAPPING_DIRECT;
		break;
	case PLACE_RUSD:
		mem = o->mem;
		place = PLACE_SYSMEM;
		p->address = 0x11efab000ull + p->offset;
		p->flags |= MAPPING_DIRECT;
		break;
	default:
		return NV_ERR_NOT_SUPPORTED;
	}
	/* rmapiValidateKernelMapping(): addresses for programs' memory, which
	 * programs themselves get by way of a file, are told to the kernel */
	if (sec->kernel && (!(p->flags & MEM_SPACE_USER) ||
			    o->mem->place != PLACE_REGISTERS)) {
		WARN(1, "fake_nvidia: the stand-in lacks this kernel mapping\n");
		return NV_ERR_NOT_SUPPORTED;
	}
	if (!sec->kernel && p->flags & MEM_SPACE_USER)
		return NV_ERR_INVALID_FLAGS;
	if (!sec->kernel && o->client->pid != task_tgid_nr(current)) {
		if (place == PLACE_VIDMEM)
			slot_leave(start, size);
		return NV_ERR_INVALID_CLIENT;
	}
	if (place == PLACE_VIDMEM) {
		status = bar1_charge(o->gpu, o->mem, p, &bar1);
		if (status != NV_OK)
			return status;
	}
	map = fake_zalloc(sizeof(*map));
	if (!map) {
		if (bar1)
			o->gpu->bar1_used -= bar1;
		return NV_ERR_NO_MEMORY;
	}
	if (!sec->kernel && slot_take(&start, &size)) {
		place = PLACE_VIDMEM;
		mem = NULL;
	}
	status = sec->kernel ? NV_OK : fake_map_add(p->fd, gpu, place, start, size, mem,
			      (p->flags & ACCESS_MASK) != ACCESS_READ_ONLY);
	map->address = p->address;
	map->size = size;
	map->bar1 = bar1;
	map->by = device && !is_below(o, device) ? device : NULL;
	list_add_tail(&map->list, &o->maps);
	if (status != NV_OK)
		unmap_refused(o, map);
	return status;
}

static u32 find(u32 hclient, u32 hdevice, u32 hmemory,
		const struct fake_sec *sec, struct fake_object **out)
{
	struct fake_client *client;
	struct fake_object *dev;
	u32 status = fake_client_validate(hclient, sec, &client);

	if (status != NV_OK)
		return status;
	*out = fake_object(client, hmemory);
	if (!*out)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!(*out)->mem)
		return NV_ERR_NOT_SUPPORTED;
	if (hdevice == hclient)
		return NV_OK;
	dev = fake_object(client, hdevice);
	if (!dev)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (dev->class->kind != KIND_DEVICE &&
	    dev->class->kind != KIND_SUBDEVICE)
		return NV_ERR_INVALID_DEVICE;
	return NV_OK;
}

u32 fake_map_memory(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos33 *p = arg;
	struct fake_object *o, *device;
	u64 start, size;
	u32 status;

	mutex_lock(&rm_lock);
	status = find(p->client, p->device, p->memory, sec, &o);
	if (status == NV_OK) {
		device = fake_object(o->client, p->device);
		status = map_object(p, o, device, sec);
	}
	/* osapi.c: rm_kernel_rmapi_op */
	if (sec->kernel)
		slot_take(&start, &size);
	mutex_unlock(&rm_lock);
	return status;
}

u32 fake_unmap_memory(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos34 *p = arg;
	struct fake_cpu_map *map;
	struct fake_object *o;
	u32 status;

	mutex_lock(&rm_lock);
	status = find(p->client, p->device, p->memory, sec, &o);
	map = status == NV_OK ? map_at(o, p->address) : NULL;
	if (map)
		fake_cpu_map_free(o->gpu, map);
	else if (status == NV_OK)
		status = NV_ERR_OBJECT_NOT_FOUND;
	mutex_unlock(&rm_lock);
	return status;
}

/* osapi.c:rm_update_device_mapping_info() */
u32 fake_update_mapping(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos56 *p = arg;
	struct fake_client *client;
	struct fake_object *o;
	struct fake_cpu_map *map;

	mutex_lock(&rm_lock);
	/* the driver looks the client up without asking whose it is */
	client = fake_client(p->client);
	o = client ? fake_object(client, p->memory) : NULL;
	map = o ? map_at(o, p->old_address) : NULL;
	if (map)
		map->address = p->new_address;
	mutex_unlock(&rm_lock);
	return map ? NV_OK : client ? NV_ERR_OBJECT_NOT_FOUND : NV_ERR_INVALID_CLIENT;
}

/* rmapi/mapping.c: GPU mappings are only counted as possible, but for the page
 * tables that they take */
u32 fake_map_dma(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos46 *p = arg;
	struct fake_object *o, *range;
	u32 status;

	mutex_lock(&rm_lock);
	status = find(p->client, p->device, p->memory, sec, &o);
	/* a page of a compute object's own (kernel_graphics_object.c:
	 * kgrobjGetMemInterMapParams_IMPL, kgrobjSetComputeMmio_IMPL) */
	if (status == NV_ERR_NOT_SUPPORTED && o->class->kind == KIND_ENGINE &&
	    (o->class->class & 0xff) == 0xc0) {
		status = fake_object(o->client, p->dma) ? NV_OK :
			NV_ERR_OBJECT_NOT_FOUND;
		if (status == NV_OK && (p->offset || p->length > PAGE_SIZE))
			status = NV_ERR_INVALID_LIMIT;
		/* of another kind it is where the channel's number says */
		if (status == NV_OK &&
		    p->flags & (NVOS46_FLAGS_PAGE_KIND_VIRTUAL |
				NVOS46_FLAGS_PAGE_KIND_OVERRIDE_YES))
			fake_harm(HARM_PLACE);
		goto out;
	}
	if (status == NV_OK && !fake_object(o->client, p->dma))
		status = NV_ERR_OBJECT_NOT_FOUND;
	if (status == NV_OK && o->mem->place == PLACE_REGISTERS &&
	    !o->mem->bar1_bell)
		status = NV_ERR_NOT_SUPPORTED;	/* usermode_api.c */
	/* mapping.c:serverInterMap_Prologue(): the driver fills its pool of page tables for the
	 * whole length first, and leaves it filled */
	range = status == NV_OK ? fake_object(o->client, p->dma) : NULL;
	if (range && range->mem && p->length > o->mem->size)
		fake_harm(HARM_LOST);
	if (status == NV_OK && (p->length > o->mem->size ||
				p->offset > o->mem->size - p->length))
		status = NV_ERR_INVALID_LIMIT;
	range = status == NV_OK ? fake_object(o->client, p->dma) : NULL;
	if (range && range->mem && range->mem->lazy)
		status = fake_lazy_map(range->mem, p);
	if (status == NV_OK &&
	    p->flags & NVOS46_FLAGS_DEFER_TLB_INVALIDATION_TRUE)
		fake_harm(HARM_STALE);
	if (status == NV_OK && p->flags & NVOS46_FLAGS_ACCESS_READ_ONLY)
		o->mem->read_only = true;
out:
	mutex_unlock(&rm_lock);
	return status;
}

/* mapping.c:_rmapiRmUnmapMemoryDma(): by address; the memory's handle is not
 * read, and Vulkan says 0 */
u32 fake_unmap_dma(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos47 *p = arg;
	struct fake_client *client;
	struct fake_object *range;
	u32 status;

	mutex_lock(&rm_lock);
	status = fake_client_validate(p->client, sec, &client);
	range = status == NV_OK ? fake_object(client, p->dma) : NULL;
	if (status == NV_OK && !range)
		status = NV_ERR_OBJECT_NOT_FOUND;
	if (range && range->mem && range->mem->lazy)
		fake_lazy_unmap(range->mem, p->dma_offset);
	if (status == NV_OK &&
	    p->flags & NVOS47_FLAGS_DEFER_TLB_INVALIDATION_TRUE)
		fake_harm(HARM_STALE);
	mutex_unlock(&rm_lock);
	return status;
}
