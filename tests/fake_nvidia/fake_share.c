// SPDX-License-Identifier: GPL-2.0
/*
 * Sharing: RM_DUP_OBJECT, RM_SHARE, inherited share policies
 * (rs_client.c:clientCopyResource_IMPL, rs_access_map.c,
 * client_resource.c:cliresShareCallback_IMPL of 580).
 *
 * Only the destination client is checked against the caller's file. Whether
 * the source may be duplicated is a matter of share policies: PID unless the
 * owner says otherwise.
 */
#include <linux/cred.h>
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

static bool may_dup(struct fake_object *src, struct fake_client *dst)
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

	return may_dup(src, &self);
}

bool fake_can_copy(const struct fake_class *class)
{
	switch (class->kind) {
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

/* Fills in what a copy of an object stands for. It is valid for as long as the object is there. */
void fake_describe(const struct fake_object *o, struct fake_export *e)
{
	e->class = o->class;
	e->mem = o->mem;
	e->gpu = o->mem ? o->mem->gpu : o->gpu;
	if (o->class->kind == KIND_TSG)
		e->tsg = o->tsg;
}

u32 fake_copy_object(struct fake_client *dst, u32 hparent, u32 *handle,
		     const struct fake_export *from)
{
	struct fake_object *parent = fake_object(dst, hparent), *o;
	u32 status;

	if (!parent)
		return NV_ERR_OBJECT_NOT_FOUND;
	status = fake_handle_assign(dst, handle);
	if (status != NV_OK)
		return status;
	status = fake_object_new(dst, parent, *handle, from->class, &o);
	if (status != NV_OK)
		return status;
	if (from->gpu && from->class->kind != KIND_TSG)
		o->gpu = from->gpu;
	if (from->mem) {
		o->mem = fake_mem_get(from->mem);
		o->mem->holders++;
	}
	/*
	 * kchangrpapiCopyConstruct_IMPL(): one more of the group. The channels
	 * that are made in it are of the GPU above them (gpuGetByRef()),
	 * whatever GPU the group is of.
	 */
	if (from->class->kind == KIND_TSG) {
		o->tsg = from->tsg;
		o->tsg.copied = true;
		fake_group_get(o->tsg.group);
	}
	return NV_OK;
}

u32 fake_dup(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos55 *p = arg;
	struct fake_client *dst, *src;
	struct fake_export from = {};
	struct fake_object *o;
	u32 status, handle = p->object;

	log->peer = p->client_src;
	log->parent = p->object_src;
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
	else if (!fake_can_copy(o->class))
		status = NV_ERR_INVALID_ARGUMENT;
	else if (!may_dup(o, dst))
		status = NV_ERR_INSUFFICIENT_PERMISSIONS;
	else {
		fake_describe(o, &from);
		status = fake_copy_object(dst, p->parent, &handle, &from);
	}
	if (status == NV_OK)
		p->object = handle;
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

u32 fake_share(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos57 *p = arg;
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
