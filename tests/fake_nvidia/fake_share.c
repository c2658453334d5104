// SPDX-License-Identifier: GPL-2.0
/*
 * Sharing: RM_DUP_OBJECT, RM_SHARE, inherited share policies, and objects
 * exported on a control file (rs_client.c:clientCopyResource_IMPL,
 * rs_access_map.c, client_resource.c:cliresShareCallback_IMPL,
 * rmobjexportimport.c, os.c of 580).
 *
 * Only the destination client is checked against the caller's file. Whether
 * the source may be duplicated is a matter of share policies: PID unless the
 * owner says otherwise. An export holds the memory as a kernel client does,
 * so it outlives the object it was made from.
 */
#include <linux/cred.h>
#include <linux/file.h>
#include <linux/sched.h>
#include "fake.h"

#define MASK_DUP	(1u << RS_ACCESS_DUP_OBJECT)

static const struct nv_share_policy default_policy = {
	.mask = MASK_DUP, .type = RS_SHARE_TYPE_PID,	/* sharing.c:348 */
};

static bool matches(const struct nv_share_policy *p,
		    const struct fake_client *src,
		    const struct fake_client *dst)
{
	switch (p->type) {
	case RS_SHARE_TYPE_ALL:
		return true;
	case RS_SHARE_TYPE_CLIENT:
		return p->target == dst->handle;
	case RS_SHARE_TYPE_PID:
		return src->pid == dst->pid;
	case RS_SHARE_TYPE_OS_SECURITY_TOKEN:	/* the effective user id */
		return uid_eq(src->euid, dst->euid);
	default:
		return false;
	}
}

static bool allows(const struct nv_share_policy *p, u32 n, u32 mask,
		   const struct fake_client *src,
		   const struct fake_client *dst, bool *required)
{
	bool granted = false;
	u32 i;

	for (i = 0; i < n; i++) {
		bool hit = matches(&p[i], src, dst);

		if (!(p[i].mask & mask))
			continue;
		if (p[i].action & RS_SHARE_ACTION_REQUIRE)
			*required &= hit;
		else
			granted |= hit;
	}
	return granted;
}

/* whether a client has the rights of `mask` on another one's object */
bool fake_may(struct fake_object *src, struct fake_client *dst, u32 mask)
{
	struct fake_client *owner = src->client;
	bool required = true, granted;

	if (owner == dst)
		return true;
	granted = allows(src->policy, src->policies, mask, owner, dst,
			 &required);
	granted |= owner->policies ?
		allows(owner->policy, owner->policies, mask, owner, dst,
		       &required) :
		allows(&default_policy, 1, mask, owner, dst, &required);
	return granted && required;
}

bool fake_may_dup(struct fake_object *src, struct fake_client *dst)
{
	return fake_may(src, dst, MASK_DUP);
}

/* what UVM's kernel client is asked: is the caller the owner's process
 * (client_resource.c:cliresShareCallback_IMPL, bDstKernel) */
bool fake_pid_owns(struct fake_object *src)
{
	struct fake_client self = {
		.handle = 0xc1e00001,	/* UVM's own, a kernel handle */
		.pid = task_tgid_nr(current),
		.euid = current_euid(),
	};

	return fake_may_dup(src, &self);
}

static bool can_copy(const struct fake_object *o)
{
	switch (o->class->kind) {
	case KIND_MEMORY:
	case KIND_VIRTUAL:
	case KIND_USERMODE:
	case KIND_VASPACE:
	case KIND_TSG:
	case KIND_CTXSHARE:
	case KIND_DEVICE:
	case KIND_SUBDEVICE:
		return true;
	default:
		return false;
	}
}

static u32 copy_object(struct fake_client *dst, u32 hparent, u32 *handle,
		       const struct fake_class *class, struct fake_gpu *gpu,
		       struct fake_mem *mem)
{
	struct fake_object *parent = fake_object(dst, hparent), *o;
	u32 status;

	if (!parent)
		return NV_ERR_OBJECT_NOT_FOUND;
	status = fake_handle_assign(dst, handle);
	if (status != NV_OK)
		return status;
	status = fake_object_new(dst, parent, *handle, class, &o);
	if (status != NV_OK)
		return status;
	if (gpu)
		o->gpu = gpu;
	if (mem) {
		o->mem = fake_mem_get(mem);
		mem->holders++;
	}
	return NV_OK;
}

u32 fake_dup(struct nvos55 *p, const struct fake_sec *sec)
{
	struct fake_client *dst, *src;
	struct fake_object *o;
	u32 status, handle = p->object;

	mutex_lock(&rm_lock);
	src = fake_client(p->client_src);
	if (!src) {
		status = NV_ERR_INVALID_CLIENT;
		goto out;
	}
	status = fake_client_validate(p->client, sec, &dst);
	if (status != NV_OK)
		goto out;
	o = fake_object(src, p->object_src);
	if (!o)
		status = NV_ERR_OBJECT_NOT_FOUND;
	else if (!can_copy(o))
		status = NV_ERR_INVALID_ARGUMENT;
	else if (!fake_may_dup(o, dst))
		status = NV_ERR_INSUFFICIENT_PERMISSIONS;
	else
		status = copy_object(dst, p->parent, &handle, o->class,
				     o->mem ? o->mem->gpu : o->gpu, o->mem);
	if (status == NV_OK) {
		struct fake_object *copy = fake_object(dst, handle);

		/* the group's context is the source's, paid for once */
		if (copy->class->kind == KIND_TSG) {
			copy->tsg = o->tsg;
			copy->tsg.context = false;
		}
		p->object = handle;
	}
out:
	mutex_unlock(&rm_lock);
	return status;
}

static u32 insert(struct nv_share_policy *list, u32 *n, u32 max,
		  const struct nv_share_policy *policy)
{
	u32 i;

	if (!policy->type || policy->type >= RS_SHARE_TYPE_MAX)
		return NV_ERR_INVALID_ARGUMENT;
	if (!(policy->action & RS_SHARE_ACTION_COMPOSE))
		*n = 0;
	for (i = 0; i < *n; i++) {
		if (list[i].type != policy->type ||
		    list[i].target != policy->target)
			continue;
		if (policy->action & RS_SHARE_ACTION_REVOKE)
			list[i].mask &= ~policy->mask;
		else
			list[i].mask |= policy->mask;
		return NV_OK;
	}
	if (policy->action & RS_SHARE_ACTION_REVOKE)
		return NV_OK;
	if (*n == max)
		return NV_ERR_NO_MEMORY;
	list[(*n)++] = *policy;
	return NV_OK;
}

u32 fake_share_inherited(struct fake_client *client,
			 const struct nv_share_policy *policy)
{
	return insert(client->policy, &client->policies,
		      ARRAY_SIZE(client->policy), policy);
}

u32 fake_share(struct nvos57 *p, const struct fake_sec *sec)
{
	struct fake_client *client;
	struct fake_object *o;
	u32 status;

	mutex_lock(&rm_lock);
	status = fake_client_validate(p->client, sec, &client);
	if (status == NV_OK) {
		o = fake_object(client, p->object);
		status = o ? insert(o->policy, &o->policies,
				    ARRAY_SIZE(o->policy), &p->policy) :
			     NV_ERR_OBJECT_NOT_FOUND;
	}
	mutex_unlock(&rm_lock);
	return status;
}

/* ---- objects on file descriptors: 0x3d05 and its relatives ---- */

void fake_exports_drop(struct fake_file *file)
{
	u32 i;

	for (i = 0; i < file->max_exports; i++)
		if (file->exports[i].mem) {
			file->exports[i].mem->holders--;
			fake_mem_put(file->exports[i].mem);
		}
	fake_free(file->exports);
	file->exports = NULL;
	file->max_exports = 0;
}

static u32 export_slots(struct fake_file *file, u32 n)
{
	if (file->exports)
		return NV_OK;
	file->exports = fake_zalloc(n * sizeof(*file->exports));
	if (!file->exports)
		return NV_ERR_NO_MEMORY;
	file->max_exports = n;
	return NV_OK;
}

static u32 export_one(struct fake_file *file, u32 slot,
		      struct fake_object *o)
{
	struct fake_export *e;

	if (!o)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (!o->mem)
		return NV_ERR_INVALID_OBJECT;
	if (slot >= file->max_exports)
		return NV_ERR_INVALID_ARGUMENT;
	e = &file->exports[slot];
	if (e->mem)
		return NV_ERR_IN_USE;
	e->mem = fake_mem_get(o->mem);
	e->mem->holders++;
	e->class = o->class->class;
	e->gpu = o->mem->gpu;
	return NV_OK;
}

static u32 import_one(struct fake_client *client, u32 parent, u32 *handle,
		      struct fake_file *file, u32 slot)
{
	struct fake_export *e;

	if (!file->exports || slot >= file->max_exports)
		return NV_ERR_INVALID_ARGUMENT;
	e = &file->exports[slot];
	if (!e->mem)
		return NV_ERR_INVALID_ARGUMENT;
	return copy_object(client, parent, handle, fake_class(e->class),
			   e->gpu, e->mem);
}

struct export_to_fd {			/* 0x3d05 */
	u32 type, device, parent, object;
	s32 fd;
	u32 flags;
};
struct import_from_fd {			/* 0x3d06 */
	s32 fd;
	u32 type, device, parent, object;
};
struct export_info {			/* 0x3d08 */
	s32 fd;
	u32 device_instance, gpu_instance;
	u16 max;
	u8 metadata[64];
};
struct export_create {			/* 0x3d0a */
	u32 device;
	u16 max;
	u8 metadata[64];
	s32 fd;
};
struct export_many {			/* 0x3d0b */
	s32 fd;
	u32 device;
	u16 max;
	u8 metadata[64];
	u32 objects[512];
	u16 count, index;
};
struct import_many {			/* 0x3d0c */
	s32 fd;
	u32 parent;
	u32 objects[128];
	u8 types[128];
	u16 count, index;
};
static_assert(sizeof(struct export_to_fd) == 24);
static_assert(sizeof(struct import_from_fd) == 20);
static_assert(sizeof(struct export_info) == 80);
static_assert(sizeof(struct export_create) == 76);
static_assert(sizeof(struct export_many) == 2128);
static_assert(sizeof(struct import_many) == 652);

static u32 export_control(struct fake_client *client, u32 cmd, void *params,
			  struct fake_file *file)
{
	u32 status = NV_OK, i;

	switch (cmd) {
	case 0x3d05: {
		struct export_to_fd *p = params;

		if (p->type != 1)
			return NV_ERR_INVALID_ARGUMENT;
		status = export_slots(file, 1);
		return status ?: export_one(file, 0, fake_object(client,
								 p->object));
	}
	case 0x3d06: {
		struct import_from_fd *p = params;

		if (p->type != 1)
			return NV_ERR_INVALID_ARGUMENT;
		return import_one(client, p->parent, &p->object, file, 0);
	}
	case 0x3d08: {
		struct export_info *p = params;
		struct fake_gpu *gpu = file->exports ? file->exports[0].gpu :
						       NULL;

		if (!file->exports)
			return NV_ERR_INVALID_ARGUMENT;
		p->device_instance = gpu ? gpu->device_instance : 0;
		p->gpu_instance = 0xffffffff;
		p->max = file->max_exports;
		memcpy(p->metadata, file->metadata, 64);
		return NV_OK;
	}
	case 0x3d0a: {
		struct export_create *p = params;

		if (!p->max || p->max > 512 || file->exports)
			return NV_ERR_INVALID_ARGUMENT;
		status = export_slots(file, p->max);
		if (status == NV_OK)
			memcpy(file->metadata, p->metadata, 64);
		return status;
	}
	case 0x3d0b: {
		struct export_many *p = params;

		if (!p->count || p->count > 512 || !p->max || p->max > 512)
			return NV_ERR_INVALID_ARGUMENT;
		status = export_slots(file, p->max);
		if (status != NV_OK)
			return status;
		memcpy(file->metadata, p->metadata, 64);
		for (i = 0; i < p->count && status == NV_OK; i++)
			status = export_one(file, p->index + i,
					    fake_object(client,
							p->objects[i]));
		return status;
	}
	default: {
		struct import_many *p = params;

		if (!p->count || p->count > 128)
			return NV_ERR_INVALID_ARGUMENT;
		for (i = 0; i < p->count && status == NV_OK; i++) {
			status = import_one(client, p->parent, &p->objects[i],
					    file, p->index + i);
			p->types[i] = 1;
		}
		return status;
	}
	}
}

u32 fake_export_control(struct fake_client *client, u32 cmd, void *params)
{
	u32 at = cmd == 0x3d05 ? 16 : cmd == 0x3d0a ? 72 : 0;
	struct file *filp;
	struct fake_file *file = fake_fget(*(s32 *)(params + at), true, &filp);
	u32 status;

	if (!file)
		return NV_ERR_INVALID_ARGUMENT;
	status = export_control(client, cmd, params, file);
	fput(filp);
	return status;
}
