// SPDX-License-Identifier: GPL-2.0
/*
 * RM_CONTROL: the frame of every control
 * (src/nvidia/src/kernel/rmapi/control.c:_rmapiRmControl, rs_server.c,
 * rs_resource.c; interface/deprecated/rmapi_gss_legacy_control.c of 580).
 *
 * The nested parameters are copied from user memory at paramsSize, which for
 * a known control must be its exact size. Buffers that the parameters point
 * to are copied by the pointer in that copy. A control with bit 15 set (GSS
 * legacy) names a client that is only looked up, never compared with the
 * caller's file.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include "fake.h"

static bool slow_lookup;
module_param(slow_lookup, bool, 0644);
MODULE_PARM_DESC(slow_lookup, "Who looks without a lock takes a millisecond for it");

static uint freed_in_lookup;
module_param(freed_in_lookup, uint, 0644);
MODULE_PARM_DESC(freed_in_lookup, "How often it was freed meanwhile");

/* A control that looks for its object. */
struct looker {
	struct list_head list;
	u32 client;
	u32 object;
	bool freed;
};

/* Under rm_lock. */
static LIST_HEAD(lookers);

/*
 * interface/deprecated/rmapi_deprecated_control.c:
 * RmDeprecatedGetControlHandler() follows pointers to the client and the
 * object of every control, and takes no lock for it. Nothing that is free is
 * touched here: who looks is noted, and frees meanwhile are counted. So does
 * nv_gpu_ops.c:nvGpuOpsDupAddressSpace() for UVM.
 */
void fake_look_without_lock(u32 hclient, u32 hobject)
{
	struct looker looker = { .client = hclient, .object = hobject };
	struct fake_client *client;

	if (!READ_ONCE(slow_lookup))
		return;
	mutex_lock(&rm_lock);
	client = fake_client(hclient);
	if (!client || !fake_object(client, hobject)) {
		mutex_unlock(&rm_lock);
		return;
	}
	list_add(&looker.list, &lookers);
	mutex_unlock(&rm_lock);
	usleep_range(1000, 2000);
	mutex_lock(&rm_lock);
	list_del(&looker.list);
	freed_in_lookup += looker.freed;
	mutex_unlock(&rm_lock);
}

void fake_lookup_freed(const struct fake_object *o)
{
	struct looker *looker;

	list_for_each_entry(looker, &lookers, list)
		if (looker->client == o->client->handle &&
		    looker->object == o->handle)
			looker->freed = true;
}

/*
 * Sizes of controls that are answered from recordings, for the size check;
 * each is the size that the recordings show.
 */
static const struct fake_ctrl_entry sized[] = {
	{ 0x0000013a, 1352 }, { 0x000001f0, 4 }, { 0x0000021b, 12 },
	{ 0x00000275, 268 }, { 0x0000027b, 4 }, { 0x00000288, 3076 },
	{ 0x00000289, 4 },
	{ 0x00000a04, 2244 }, { 0x00800280, 4 }, { 0x00800288, 4 },
	{ 0x00800289, 8 }, { 0x00800292, 804 }, { 0x00801307, 3 },
	{ 0x00801402, 3 }, { 0x00801909, 1 },
	{ 0x20800110, 132 }, { 0x20800111, 64 },
	{ 0x20800119, 4 }, { 0x2080012f, 1464 }, { 0x20800131, 4 },
	{ 0x20800133, 8 }, { 0x20800145, 0 }, { 0x20800146, 0 },
	{ 0x2080014b, 5 }, { 0x20800157, 0 }, { 0x20800170, 340 },
	{ 0x20800195, 260 }, { 0x208001a3, 56 }, { 0x20800406, 264 },
	{ 0x20801218, 16 }, { 0x2080121b, 9240 },
	{ 0x20801227, 48 }, { 0x2080122a, 24 }, { 0x2080122b, 24 },
	{ 0x20801230, 32 }, { 0x20801357, 4 },
	{ 0x20801801, 16 }, { 0x20801803, 200 }, { 0x20801823, 420 },
	{ 0x2080182a, 112 }, { 0x2080182b, 28 },
	{ 0x2080220c, 0 }, { 0x20802210, 0 }, { 0x20802a0a, 136 },
	{ 0x20803002, 13344 }, { 0x20803601, 72 }, { 0x20803801, 1928 },
	{ 0x20810108, 992 }, { 0x20810110, 1 }, { 0x208f1105, 8 },
	{ 0x83de0309, 4 }, { 0x90e60102, 8 }, { 0xcb330101, 6 },
	{ }
};

static const struct fake_ctrl_entry *lookup_in(const struct fake_ctrl_entry *e,
					       u32 cmd)
{
	for (; e->cmd; e++)
		if (e->cmd == cmd)
			return e;
	return NULL;
}

static const struct fake_ctrl_entry *lookup(u32 cmd)
{
	const struct fake_ctrl_entry *e = lookup_in(fake_ctrl_root, cmd);

	if (!e)
		e = lookup_in(fake_ctrl_gpu, cmd);
	if (!e)
		e = fake_ctrl_wide(cmd);
	if (!e)
		e = lookup_in(fake_ctrl_hold, cmd);
	return e ?: lookup_in(sized, cmd);
}

static bool exports(const struct fake_class *class, u32 cmd)
{
	const u16 *c;

	for (c = class->controls; *c != 0xffff; c++)
		if (*c == cmd >> 16)
			return true;
	return false;
}

static u32 from_recording(u32 cmd, void *params, u32 size)
{
	u32 status;

	if (fake_answer(ANSWER_CONTROL, cmd, params, size, NULL, &status))
		return status;
	fake_unanswered(ANSWER_CONTROL, cmd, size);
	return NV_ERR_NOT_SUPPORTED;
}

/* rmapi_gss_legacy_control.c:RmGssLegacyRpcCmd() */
static u32 gss_legacy(struct nvos54 *p, const struct fake_sec *sec,
		      struct fake_call *log)
{
	struct fake_client *client;
	struct fake_object *o;
	u32 status = NV_OK;
	void *params;

	if ((p->cmd & 0xc000) == 0xc000 && !sec->admin)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	status = fake_params_in(&params, p->params, p->params_size, sec);
	if (status != NV_OK)
		return status;
	log->read = p->params_size;
	mutex_lock(&rm_lock);
	client = fake_client(p->client);
	o = client ? fake_object(client, p->object) : NULL;
	if (!client)
		status = NV_ERR_INVALID_CLIENT;
	else if (!o || !o->gpu)
		status = NV_ERR_INVALID_OBJECT_HANDLE;
	else
		fake_gss(client);
	mutex_unlock(&rm_lock);
	if (status == NV_OK) {
		status = from_recording(p->cmd, params, p->params_size);
		if (fake_params_out(params, p->params, p->params_size, sec))
			status = NV_ERR_INVALID_ADDRESS;
	}
	kvfree(params);
	return status;
}

static u32 extra_in(struct fake_extra *x, const struct fake_sec *sec)
{
	if (!x->size || !x->at)
		return NV_OK;
	if (x->size > RMAPI_PARAM_COPY_MAX_PARAMS_SIZE)
		return NV_ERR_INVALID_ARGUMENT;
	x->data = kvzalloc(x->size, GFP_KERNEL);
	if (!x->data)
		return NV_ERR_NO_MEMORY;
	if (x->in && !fake_copy_in(x->data, x->at, x->size, sec))
		return NV_ERR_INVALID_ADDRESS;
	return NV_OK;
}

static u32 extra_out(struct fake_extra *x, const struct fake_sec *sec)
{
	if (x->data && !fake_copy_out(x->at, x->data, x->size, sec))
		return NV_ERR_INVALID_ADDRESS;
	return NV_OK;
}

static u32 run(struct fake_ctrl *c, const struct fake_ctrl_entry *e,
	       u32 hclient, u32 hobject)
{
	u32 status;

	mutex_lock(&rm_lock);
	status = fake_client_validate(hclient, c->sec, &c->client);
	if (status != NV_OK)
		goto out;
	c->object = fake_object(c->client, hobject);
	if (!c->object) {
		status = NV_ERR_OBJECT_NOT_FOUND;
		goto out;
	}
	c->gpu = c->object->gpu;
	if (!exports(c->object->class, c->cmd)) {
		status = NV_ERR_NOT_SUPPORTED;
		goto out;
	}
	if (e && e->run) {
		status = e->run(c);
		goto out;
	}
	mutex_unlock(&rm_lock);
	return from_recording(c->cmd, c->params, c->size);
out:
	mutex_unlock(&rm_lock);
	return status;
}

u32 fake_control(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos54 *p = arg;
	const struct fake_ctrl_entry *e = lookup(p->cmd);
	struct fake_ctrl c = {
		.sec = sec, .log = log,
		.cmd = p->cmd, .size = p->params_size,
	};
	struct fake_extra *x, *end = c.extra + ARRAY_SIZE(c.extra);
	u32 status;

	log->what = p->cmd;
	fake_look_without_lock(p->client, p->object);
	if (!p->cmd || !(p->cmd & 0xffff))
		return NV_OK;		/* NVXXXX_CTRL_CMD_NULL */
	if (p->cmd & 0x8000)
		return gss_legacy(p, sec, log);
	if (p->flags & (NVOS54_FLAGS_IRQL_RAISED | NVOS54_FLAGS_LOCK_BYPASS))
		return NV_ERR_INVALID_ARGUMENT;
	mutex_lock(&rm_lock);
	status = fake_client(p->client) ? NV_OK : NV_ERR_INVALID_CLIENT;
	mutex_unlock(&rm_lock);
	if (status != NV_OK)
		return status;
	if (!!p->params_size != !!p->params ||
	    (e && e->size != p->params_size))
		return NV_ERR_INVALID_ARGUMENT;
	status = fake_params_in(&c.params, p->params, p->params_size, sec);
	if (status != NV_OK)
		return status;
	log->read = p->params_size;
	log->sum = fake_sum(c.params, p->params_size);
	if (e && e->pre) {
		status = e->pre(&c);
		for (x = c.extra; status == NV_OK && x < end; x++)
			status = extra_in(x, sec);
		if (status != NV_OK)
			goto out;
	}
	status = run(&c, e, p->client, p->object);
	for (x = c.extra; status == NV_OK && x < end; x++)
		status = extra_out(x, sec);
	if (fake_params_out(c.params, p->params, p->params_size, sec))
		status = NV_ERR_INVALID_ADDRESS;
out:
	for (x = c.extra; x < end; x++)
		kvfree(x->data);
	kvfree(c.params);
	return status;
}
