// SPDX-License-Identifier: GPL-2.0
/*
 * Controls of a client (0x0000xxxx): versions, GPU lists, share policy,
 * exported objects (NVIDIA's ctrl0000 headers of 580). None of the GPU lists asks
 * who the caller is: every client sees every GPU.
 */
#include "fake.h"

#define MAX_IDS	32	/* NV0000_CTRL_GPU_MAX_*_GPUS */

struct build_version {			/* 0x101 */
	u32 size;
	u64 driver, version, title;
	u32 changelist, official;
};
static_assert(sizeof(struct build_version) == 40);

static u32 build_version_pre(struct fake_ctrl *c)
{
	struct build_version *p = c->params;

	if (p->size > 4096)
		return NV_ERR_INVALID_ARGUMENT;
	c->extra[0] = (struct fake_extra){ p->driver, p->size };
	c->extra[1] = (struct fake_extra){ p->version, p->size };
	c->extra[2] = (struct fake_extra){ p->title, p->size };
	return NV_OK;
}

static u32 build_version(struct fake_ctrl *c)
{
	struct build_version *p = c->params;

	if (!p->size || !c->extra[0].data || !c->extra[1].data || !c->extra[2].data)
		return NV_ERR_INVALID_ARGUMENT;
	strscpy(c->extra[0].data, fake_version, p->size);
	strscpy(c->extra[1].data, "rel/gpu_drv/r580/r580_00-159", p->size);
	strscpy(c->extra[2].data, "NVIDIA UNIX Open Kernel Module for x86_64", p->size);
	p->changelist = 0;
	p->official = 0x0242246f;
	return NV_OK;
}

struct space_type {			/* 0xd01 */
	u32 object, flags, type;
};

static u32 space_type(struct fake_ctrl *c)
{
	struct space_type *p = c->params;
	struct fake_object *o = fake_object(c->client, p->object);

	if (!o)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!o->mem)
		return NV_ERR_INVALID_OBJECT;
	switch (o->mem->place) {
	case PLACE_VIDMEM:
		p->type = 2;
		break;
	case PLACE_REGISTERS:		/* REGMEM, VIDMEM through BAR1 */
		p->type = o->mem->bar1_bell ? 2 : 3;
		break;
	default:
		p->type = 1;
	}
	return NV_OK;
}

static u32 share_policy(struct fake_ctrl *c)
{
	return fake_share_inherited(c->client, c->params);
}

static void fill_ids(u32 *ids)
{
	u32 i;

	for (i = 0; i < MAX_IDS; i++)
		ids[i] = i < gpus ? fake_gpus[i].gpu_id : 0xffffffff;
}

static u32 attached_ids(struct fake_ctrl *c)
{
	fill_ids(c->params);
	return NV_OK;
}

/* gpu_mgr.c:gpumgrGetDeviceInstanceMask() */
static u32 device_ids(struct fake_ctrl *c)
{
	u32 *mask = c->params, i;

	*mask = 0;
	for (i = 0; i < gpus; i++)
		*mask |= 1u << fake_gpus[i].device_instance;
	return NV_OK;
}

static u32 probed_ids(struct fake_ctrl *c)
{
	u32 *p = c->params;

	fill_ids(p);
	memset(p + MAX_IDS, 0xff, MAX_IDS * 4);
	memset(p + 2 * MAX_IDS, 0, MAX_IDS * 4);
	return NV_OK;
}

static u32 attach_ids(struct fake_ctrl *c)
{
	u32 *p = c->params, i;

	for (i = 0; i < MAX_IDS && p[i] != 0xffffffff; i++) {
		if (p[i] == 0xffff && !i)	/* ATTACH_ALL_PROBED_IDS */
			break;
		if (!fake_gpu_by_id(p[i])) {
			p[MAX_IDS] = p[i];
			return NV_ERR_INVALID_ARGUMENT;
		}
	}
	return NV_OK;
}

static u32 detach_ids(struct fake_ctrl *c)
{
	u32 *p = c->params, i;

	for (i = 0; i < MAX_IDS && p[i] != 0xffffffff; i++) {
		if (p[i] == 0xffff && !i)	/* DETACH_ALL_ATTACHED_IDS */
			break;
		if (!fake_gpu_by_id(p[i]))
			return NV_ERR_INVALID_ARGUMENT;
	}
	return NV_OK;
}

static bool in_use(const struct fake_gpu *gpu)
{
	struct fake_client *client;
	struct fake_object *o;
	unsigned long i, j;

	xa_for_each(&fake_clients, i, client)
		xa_for_each(&client->objects, j, o)
			if (o->class->kind == KIND_DEVICE && o->gpu == gpu)
				return true;
	return false;
}

static u32 id_info(struct fake_ctrl *c)
{
	u32 *p = c->params;
	struct fake_gpu *gpu = fake_gpu_by_id(p[0]);
	u32 *rest = c->cmd == 0x202 ? p + 6 : p + 4;

	if (!gpu)
		return NV_ERR_INVALID_ARGUMENT;
	p[1] = in_use(gpu);		/* GPU_ID_INFO_IN_USE */
	p[2] = gpu->device_instance;
	p[3] = 0;
	/* sli.c:RmRunSLISupportCheck(): GPU_NOT_SUPPORTED, and of a single GPU
	 * INVALID_GPU_COUNT, both as recorded */
	rest[0] = gpus > 1 ? 0x40 : 0x41;
	rest[1] = gpu->gpu_id;		/* boardId */
	rest[2] = gpu->device_instance;	/* gpuInstance */
	rest[3] = 0xffffffff;		/* numaId */
	return NV_OK;
}

static u32 drain_state(struct fake_ctrl *c)
{
	u32 *p = c->params;

	if (!fake_gpu_by_id(p[0]))
		return NV_ERR_INVALID_ARGUMENT;
	p[1] = 0;
	p[2] = 0;
	return NV_OK;
}

/* rmapi/client_resource.c:cliresCtrlCmdClientGetHandleInfo_IMPL() */
static u32 handle_info(struct fake_ctrl *c)
{
	struct {
		u32 object, index;
		u64 result;
	} *p = c->params;
	struct fake_object *o = fake_object(c->client, p->object);

	if (!o)
		return NV_ERR_OBJECT_NOT_FOUND;
	switch (p->index) {
	case 1:
		p->result = o->parent ? o->parent->handle : 0;
		return NV_OK;
	case 2:
		p->result = o->class->class;
		return NV_OK;
	default:
		return NV_ERR_INVALID_ARGUMENT;
	}
}

static u32 export_objects(struct fake_ctrl *c)
{
	return fake_export_control(c->client, c->cmd, c->params,
				   &c->log->peer);
}

const struct fake_ctrl_entry fake_ctrl_root[] = {
	{ 0x101, 40, build_version_pre, build_version },
	{ 0x201, 4 * MAX_IDS, NULL, attached_ids },
	{ 0x202, 40, NULL, id_info },
	{ 0x204, 4, NULL, device_ids },
	{ 0x205, 32, NULL, id_info },
	{ 0x214, 12 * MAX_IDS, NULL, probed_ids },
	{ 0x215, 4 * MAX_IDS + 4, NULL, attach_ids },
	{ 0x216, 4 * MAX_IDS, NULL, detach_ids },
	{ 0x279, 12, NULL, drain_state },
	{ 0xd01, 12, NULL, space_type },
	{ 0xd02, 16, NULL, handle_info },
	{ 0xd04, 12, NULL, share_policy },
	{ 0x3d05, 24, NULL, export_objects },
	{ 0x3d06, 20, NULL, export_objects },
	{ 0x3d08, 80, NULL, export_objects },
	{ 0x3d0a, 76, NULL, export_objects },
	{ 0x3d0b, 2128, NULL, export_objects },
	{ 0x3d0c, 652, NULL, export_objects },
	{ }
};
