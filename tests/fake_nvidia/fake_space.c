// SPDX-License-Identifier: GPL-2.0
/*
 * Address spaces of a GPU: new ones, and those that the driver has by an index
 * (src/nvidia/src/kernel/gpu/mem_mgr/vaspace_api.c, gpu/device_share.c of 580).
 */
#include "fake.h"

/* More clients than any program shares the addresses of, one after the other. */
#define DEEP	64

static struct fake_object *device_of(struct fake_client *client,
				     const struct fake_gpu *gpu)
{
	struct fake_object *o;

	list_for_each_entry(o, &client->root->children, sibling)
		if (o->class->kind == KIND_DEVICE && o->gpu == gpu)
			return o;
	return NULL;
}

/*
 * device_share.c:deviceInitClientShare(): a device has the addresses of all,
 * its own client's, or those of another client's device, which may have them
 * of a third. Where two share with each other, the driver calls itself until
 * the kernel's stack is full.
 */
static u32 addresses_of(const struct fake_object *device)
{
	struct fake_client *client;
	u32 i;

	for (i = 0; i < DEEP; i++) {
		if (!device->device.share ||
		    device->device.share == device->client->handle)
			return NV_OK;
		client = fake_client(device->device.share);
		if (!client)
			return NV_ERR_INVALID_OBJECT_HANDLE;
		device = device_of(client, device->gpu);
		if (!device)
			return NV_ERR_OBJECT_NOT_FOUND;
	}
	fake_harm(HARM_STACK);
	return NV_ERR_INVALID_STATE;
}

/* vaspaceapiConstruct_IMPL() */
u32 fake_space_make(struct fake_object *o, struct nv_vaspace_params *p)
{
	struct fake_object *device = o->parent;

	switch (p->index) {
	case NV_VASPACE_ALLOCATION_INDEX_GPU_HOST:
		return NV_ERR_INVALID_ARGUMENT;	/* the kernel's alone */
	case NV_VASPACE_ALLOCATION_INDEX_GPU_GLOBAL:
		fake_harm(HARM_SPACE);
		return NV_OK;
	case NV_VASPACE_ALLOCATION_INDEX_GPU_DEVICE:
		if (device->class->kind != KIND_DEVICE)
			device = device->parent;
		return addresses_of(device) == NV_OK ? NV_OK :
						       NV_ERR_INVALID_STATE;
	case NV_VASPACE_ALLOCATION_INDEX_GPU_FLA:
		return NV_ERR_NOT_SUPPORTED;	/* no such space is set up */
	}
	if (!p->size) {			/* 57 bits less the base, as recorded */
		if (!p->base)
			p->base = 1 << 20;
		p->size = (1ull << 57) - p->base;
	}
	o->space.fabric = p->flags & NV_VASPACE_ALLOCATION_FLAGS_IS_FLA;
	if (p->flags & NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED)
		return NV_OK;
	o->mem = fake_mem_plain(o->gpu, PLACE_VIRTUAL, 0);
	if (!o->mem)
		return NV_ERR_NO_MEMORY;
	o->mem->holders++;
	return fake_mem_tables(o->mem, FAKE_SPACE_TABLES) ? NV_OK :
							    NV_ERR_NO_MEMORY;
}

/*
 * gpu_vaspace.c:_gvaspaceFlaVaspaceDestruct(): with a program's space of the
 * fabric the driver forgets the GPU's own, and takes a null pointer for it
 * later (kern_bus_ga100.c:kbusGetFlaVaspace_GA100()).
 */
void fake_space_end(const struct fake_object *o)
{
	if (o->space.fabric)
		fake_harm(HARM_NULL);
}
