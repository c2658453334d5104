// SPDX-License-Identifier: GPL-2.0
/*
 * Controls of devices, subdevices, channels and groups that depend on the
 * stand-in's own state: memory figures, processes, channels, time slices
 * (kern_mem_sys_ctrl.c, gpu_rmapi.c, kernel_fifo_ctrl.c,
 * kernel_channel_group_api.c of 580).
 */
#if __has_include(<linux/hex.h>)
#include <linux/hex.h>
#endif
#include <linux/pid.h>
#include "fake.h"

struct index_data {			/* NVXXXX_CTRL_XXX_INFO */
	u32 index, data;
};

struct info_list {			/* FB, GR and BUS GET_INFO, old form */
	u32 count;
	u64 list;
	u64 route[2];			/* GR only */
};

/* Memory of an H100 that USABLE_RAM_SIZE leaves out (tests/driver/h100.txt). */
#define USABLE_TAX_KIB			273728

/* kern_mem_sys_ctrl.c:_fbGetFbInfos(); KiB; hardware facts as recorded */
static u32 fb_info(struct fake_gpu *gpu, struct index_data *d)
{
	u64 free = fake_heap_free(gpu) >> 10;

	switch (d->index) {
	case 0x07:			/* RAM_SIZE */
	case 0x08:			/* TOTAL_RAM_SIZE */
		d->data = gpu->total >> 10;
		break;
	case 0x09:			/* HEAP_SIZE */
		d->data = gpu->heap >> 10;
		break;
	case 0x0a:			/* MAPPABLE_HEAP_SIZE */
		d->data = 0;
		break;
	case 0x20:			/* USABLE_RAM_SIZE */
		d->data = (gpu->total >> 10) - USABLE_TAX_KIB;
		break;
	case 0x12:			/* LARGEST_FREE_REGION_SIZE */
	case 0x16:			/* HEAP_FREE */
		d->data = free;
		break;
	case 0x05:			/* BAR1_SIZE */
		d->data = fake_board->bar1_kib;
		break;
	case 0x1d:			/* BAR1_AVAIL_SIZE */
	case 0x1f:			/* BAR1_MAX_CONTIGUOUS_AVAIL_SIZE */
		d->data = fake_board->bar1_free_kib - (gpu->bar1_used >> 10);
		break;
	case 0x0b:			/* BUS_WIDTH */
		d->data = fake_board->bus_width;
		break;
	case 0x0d:			/* RAM_TYPE: HBM3 */
		d->data = 0x14;
		break;
	case 0x19:			/* FBP_COUNT */
		d->data = 12;
		break;
	case 0x1a:			/* FBP_MASK */
		d->data = 0xfff;
		break;
	case 0x1b:			/* L2CACHE_SIZE */
		d->data = fake_board->l2_bytes;
		break;
	case 0x22:			/* LTC_COUNT */
		d->data = fake_board->ltcs;
		break;
	case 0x23:			/* LTS_COUNT */
		d->data = fake_board->slices;
		break;
	case 0x3b:			/* NUMA_NODE_ID */
		d->data = 0xffffffff;
		break;
	default:
		if (d->index > 0x3b)
			return NV_ERR_INVALID_ARGUMENT;
		d->data = 0;
	}
	return NV_OK;
}

static u32 fb_info_v2(struct fake_ctrl *c)
{
	u32 *count = c->params, i, status = NV_OK;
	struct index_data *list = c->params + 4;

	if (*count > 128)		/* all that the list has room for */
		return NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < *count && status == NV_OK; i++)
		status = fb_info(c->gpu, &list[i]);
	return status;
}

static u32 info_list_pre(struct fake_ctrl *c)
{
	struct info_list *p = c->params;

	if (p->count > 4096)
		return NV_ERR_INVALID_ARGUMENT;
	c->extra[0] = (struct fake_extra){ p->list, p->count * sizeof(struct index_data), true };
	return NV_OK;
}

static u32 fb_info_v1(struct fake_ctrl *c)
{
	struct info_list *p = c->params;
	struct index_data *list = c->extra[0].data;
	u32 i, status = NV_OK;

	if (p->count && !list)
		return NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < p->count && status == NV_OK; i++)
		status = fb_info(c->gpu, &list[i]);
	return status;
}

/* GR and BUS GET_INFO: the lists are not in the recordings, so the numbers
 * are invented: the index itself */
static u32 info_list(struct fake_ctrl *c)
{
	struct info_list *p = c->params;
	struct index_data *list = c->extra[0].data;
	u32 i;

	if (p->count && !list)
		return NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < p->count; i++)
		list[i].data = list[i].index;
	return NV_OK;
}

/*
 * subdevice_ctrl_gpu_kernel.c:getGpuInfos(). A recording's answer goes
 * first, since it has the numbers of that GPU for the whole list; the MIG mode
 * is one that every GPU has: no MIG instance is ever made here
 */
static u32 gpu_info_v2(struct fake_ctrl *c)
{
	u32 *count = c->params, i, status;
	struct index_data *list = c->params + 4;

	if (fake_answer(ANSWER_CONTROL, c->cmd, c->params, c->size, NULL,
			&status))
		return status;
	if (!*count || *count > 70)	/* GPU_INFO_MAX_LIST_SIZE of 580 */
		return NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < *count; i++) {
		if (list[i].index != 0x2a) {	/* SMC_MODE */
			fake_unanswered(ANSWER_CONTROL, c->cmd, c->size);
			return NV_ERR_NOT_SUPPORTED;
		}
		list[i].data = 2;	/* DISABLED, as recorded on an H200 */
	}
	return NV_OK;
}

struct fifo_info {			/* 0x20801109 */
	u32 count;
	struct { u32 index, data; } list[256];
	u32 engine;
};

/* kernel_fifo_ctrl.c:subdeviceCtrlCmdFifoGetInfo(): one row of ids for all */
static u32 fifo_info(struct fake_ctrl *c)
{
	struct fifo_info *p = c->params;
	u32 i;

	if (p->count > ARRAY_SIZE(p->list))
		return NV_ERR_INVALID_PARAM_STRUCT;
	for (i = 0; i < p->count; i++) {
		if (p->list[i].index != 7)	/* IS_PER_RUNLIST_CHANNEL_RAM_ */
			return NV_ERR_INVALID_ARGUMENT;
		p->list[i].data = 0;
	}
	return NV_OK;
}

struct arch_info {			/* 0x20801701 */
	u32 architecture, implementation, revision;
	u8 sub_revision;
};

/* kernel_mc.c:subdeviceCtrlCmdMcGetArchInfo(): as recorded on an H200 */
static u32 arch_info(struct fake_ctrl *c)
{
	*(struct arch_info *)c->params = (struct arch_info){
		.architecture = 0x180, .revision = 0xa1, .sub_revision = 3,
	};
	return NV_OK;
}

/* gpu.c:gpuGetGidInfo(): into 256 bytes, as the flags say; its length */
static u32 fake_uuid(const struct fake_gpu *gpu, u32 flags, u8 *data)
{
	if (!(flags & 2))		/* FORMAT_ASCII */
		return 1 + snprintf(data, 256, "GPU-%pUb", gpu->uuid);
	memcpy(data, gpu->uuid, 16);	/* FORMAT_BINARY */
	return 16;
}

struct gid_info {			/* 0x2080014a */
	u32 index, flags, length;
	u8 data[256];
};

static u32 gid_info(struct fake_ctrl *c)
{
	struct gid_info *p = c->params;

	if (p->index)
		return NV_ERR_INVALID_ARGUMENT;
	p->length = fake_uuid(c->gpu, p->flags, p->data);
	return NV_OK;
}

struct pids {				/* 0x2080018d */
	u32 type, id, count;
	u32 pid[950];
};
static_assert(sizeof(struct pids) == 3812);

/*
 * subdeviceCtrlCmdGpuGetPids_IMPL(): subdevices, and objects under channels by
 * their class; no other class is looked for. There is no guest of a vGPU.
 */
static bool uses(struct fake_client *client, const struct fake_gpu *gpu,
		 const struct pids *p)
{
	enum fake_kind kind = p->id == NV20_SUBDEVICE_0 ? KIND_SUBDEVICE :
							 KIND_ENGINE;
	struct fake_object *o;
	unsigned long i;

	if (p->type)
		return false;
	xa_for_each(&client->objects, i, o)
		if (o->gpu == gpu && o->class->kind == kind &&
		    o->class->class == p->id)
			return true;
	return false;
}

/* gpu_rmapi.c: all clients' processes, as the caller's namespace sees them */
static u32 get_pids(struct fake_ctrl *c)
{
	struct pids *p = c->params;
	struct fake_client *client;
	unsigned long i;
	u32 k;

	if (p->type > 1)
		return NV_ERR_INVALID_ARGUMENT;
	p->count = 0;
	xa_for_each(&fake_clients, i, client) {
		u32 pid = pid_vnr(client->tgid);

		if (!pid || p->count == ARRAY_SIZE(p->pid) ||
		    !uses(client, c->gpu, p))
			continue;
		for (k = 0; k < p->count && p->pid[k] != pid; k++)
			;
		if (k == p->count)
			p->pid[p->count++] = pid;
	}
	return NV_OK;
}

struct pid_info {			/* one entry of 0x2080018e */
	u32 pid, index, result;
	u64 priv, shared_owned, shared_duped, prot[3];
	u32 compute_instance, gpu_instance;
};
static_assert(sizeof(struct pid_info) == 72);

static void pid_usage(struct fake_gpu *gpu, struct pid_info *p)
{
	struct fake_client *client;
	struct fake_object *o;
	unsigned long i, j;

	xa_for_each(&fake_clients, i, client) {
		if (pid_vnr(client->tgid) != p->pid)
			continue;
		xa_for_each(&client->objects, j, o) {
			if (!o->mem || o->mem->place != PLACE_VIDMEM ||
			    o->mem->gpu != gpu)
				continue;
			if (o->mem->holders == 1)
				p->priv += o->mem->size;
			else
				p->shared_duped += o->mem->size;
		}
	}
}

static u32 get_pid_info(struct fake_ctrl *c)
{
	u32 *count = c->params, i;
	struct pid_info *p = c->params + 8;

	if (!*count || *count > 200)
		return NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < *count; i++) {
		if (p[i].index)
			return NV_ERR_INVALID_ARGUMENT;
		p[i].priv = 0;
		p[i].shared_owned = 0;
		p[i].shared_duped = 0;
		memset(p[i].prot, 0, sizeof(p[i].prot));
		p[i].result = NV_OK;
		p[i].compute_instance = 0xffffffff;
		p[i].gpu_instance = 0xffffffff;
		pid_usage(c->gpu, &p[i]);
	}
	return NV_OK;
}

struct channel_list {			/* 0x80170d */
	u32 count;
	u64 handles, channels;
};

static u32 channel_list_pre(struct fake_ctrl *c)
{
	struct channel_list *p = c->params;

	if (!p->count || p->count > 4096)
		return NV_ERR_INVALID_ARGUMENT;
	c->extra[0] = (struct fake_extra){ p->handles, p->count * 4, true };
	c->extra[1] = (struct fake_extra){ p->channels, p->count * 4, true };
	return NV_OK;
}

static u32 channel_list(struct fake_ctrl *c)
{
	struct channel_list *p = c->params;
	u32 *handles = c->extra[0].data, *ids = c->extra[1].data, i;

	if (!handles || !ids)
		return NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < p->count; i++) {
		struct fake_object *o = fake_object(c->client, handles[i]);

		ids[i] = o && o->class->kind == KIND_CHANNEL ?
			fake_channel_id(o->channel.channel) : 0xffffffff;
	}
	return NV_OK;
}

struct disable_channels {		/* 0x2080110b */
	u8 disable;
	u32 count;
	u8 only_scheduling, rewind;
	u64 event;
	u32 clients[64], channels[64];
};
static_assert(sizeof(struct disable_channels) == 536);

/* kernel_fifo_ctrl.c:710: nobody asks whose channels these are */
static u32 disable_channels(struct fake_ctrl *c)
{
	struct disable_channels *p = c->params;
	struct fake_object *channels[64];
	struct fake_engine_call call;
	u32 i;

	if (p->count > 64)
		return NV_ERR_INVALID_ARGUMENT;
	if (p->event && !c->sec->admin)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	for (i = 0; i < p->count; i++) {
		struct fake_client *client = fake_client(p->clients[i]);
		struct fake_object *o = client ?
			fake_object(client, p->channels[i]) : NULL;

		if (!o || o->class->kind != KIND_CHANNEL)
			return NV_ERR_INVALID_OBJECT_HANDLE;
		channels[i] = o;
	}
	fake_engine_begin(c->gpu, p->disable ? GM_DISABLE : GM_ENABLE, &call);
	for (i = 0; i < p->count; i++) {
		channels[i]->channel.disabled = p->disable;
		fake_engine_switch(channels[i]->gpu, channels[i]->channel.model,
				   p->disable);
	}
	fake_engine_end(&call);
	if (p->disable)
		fake_engine_drain(c->gpu);
	return NV_OK;
}

struct engine_sample {			/* NV2080_CTRL_PERF_GPUMON_ENGINE_UTIL_SAMPLE */
	u32 util, scale, process, sub_process;
	u8 sub_name[100];
	u64 pid_info;
};

struct util_sample {			/* ..._GPUMON_PERFMON_UTIL_SAMPLE */
	u64 stamp;
	struct engine_sample fb, gr, others[4];
};
static_assert(sizeof(struct util_sample) == 776);

struct util_samples {			/* 0x20802096 */
	u8 type;
	u32 size, count, tracker;
	struct util_sample samples[GM_SAMPLES];
};
static_assert(sizeof(struct util_samples) == 55888);

/* kern_perf_ctrl.c: the process's number is the caller's, if there is one for it */
static u32 seen_by_caller(pid_t process)
{
	struct pid *pid;
	u32 own = 0;

	if (process < 0)
		return ~0;		/* NV2080_GPUMON_PID_INVALID */
	rcu_read_lock();
	pid = find_pid_ns(process, &init_pid_ns);
	if (pid)
		own = pid_vnr(pid);
	rcu_read_unlock();
	return own ?: process;
}

/*
 * subdeviceCtrlCmdPerfGetGpumonPerfmonUtilSamplesV2_KERNEL(): the firmware
 * answers, in 1.5 to 1.7 ms on an H200 (docs/measurements/2026-11-21-compute.md).
 * `tracker` counts bytes, as recorded there.
 */
static u32 util_samples(struct fake_ctrl *c)
{
	struct util_samples *p = c->params;
	struct fake_engine_call call;
	u32 i, k, count = 0;

	if (p->size != sizeof(p->samples))
		return NV_ERR_INVALID_ARGUMENT;
	fake_engine_begin(c->gpu, GM_SAMPLES_READ, &call);
	memset(p->samples, 0, sizeof(p->samples));
	for (i = 0; i < GM_SAMPLES; i++) {
		struct util_sample *s = &p->samples[i];
		pid_t process;

		count = fake_engine_sample(c->gpu, i, &s->stamp, &process,
					   &s->gr.util);
		if (!s->stamp)
			continue;
		s->gr.process = seen_by_caller(process);
		s->fb.process = ~0;
		for (k = 0; k < ARRAY_SIZE(s->others); k++)
			s->others[k].process = ~0;
	}
	p->count = min_t(u32, count, GM_SAMPLES);
	p->tracker = count % GM_SAMPLES * sizeof(p->samples[0]);
	fake_engine_end(&call);
	return NV_OK;
}

static u32 work_token(struct fake_ctrl *c)
{
	if (c->object->class->kind != KIND_CHANNEL)
		return NV_ERR_NOT_SUPPORTED;
	*(u32 *)c->params =
		fake_channel_runlist(c->object->channel.channel) << 16 |
		fake_channel_id(c->object->channel.channel);
	return NV_OK;
}

static u32 class_engine(struct fake_ctrl *c)
{
	u32 *p = c->params;
	struct fake_object *o = fake_object(c->client, p[0]);

	if (!o || o->class->kind != KIND_ENGINE)
		return NV_ERR_OBJECT_NOT_FOUND;
	p[1] = o->class->class;
	p[2] = o->class->class;
	p[3] = o->engine.type;
	return NV_OK;
}

static u32 accepted(struct fake_ctrl *c)
{
	return NV_OK;
}

static u32 set_timeslice(struct fake_ctrl *c)
{
	struct fake_engine_call call;

	if (*(u64 *)c->params > 1000000)
		return NV_ERR_INVALID_ARGUMENT;
	fake_engine_begin(c->gpu, GM_TIMESLICE, &call);
	c->object->tsg.timeslice = *(u64 *)c->params;
	fake_engine_timeslice(c->gpu, fake_context_model(c->object),
			      c->object->tsg.timeslice);
	fake_engine_end(&call);
	return NV_OK;
}

static u32 preempt(struct fake_ctrl *c)
{
	struct fake_engine_call call;

	fake_engine_begin(c->gpu, GM_PREEMPT, &call);
	fake_engine_preempt(c->gpu, fake_context_model(c->object));
	fake_engine_end(&call);
	return NV_OK;
}

struct falcon_context {			/* 0x20803125 */
	u32 channel;
	u64 size;
};
static_assert(sizeof(struct falcon_context) == 16);

/*
 * kernel_falcon_ctrl.c:subdeviceCtrlCmdFlcnGetCtxBufferSize_IMPL(): whether a
 * channel of SEC2 has a context already is not asked; here none ever has.
 */
static u32 falcon_context(struct fake_ctrl *c)
{
	struct falcon_context *p = c->params;
	struct fake_object *o = fake_object(c->client, p->channel);

	if (!o || o->class->kind != KIND_CHANNEL)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (fake_channel_runlist(o->channel.channel) != NV2080_ENGINE_TYPE_SEC2)
		return NV_ERR_NOT_SUPPORTED;
	fake_harm(HARM_NULL);
	return NV_ERR_INVALID_STATE;
}

struct preemption_mode {		/* 0x20801210 */
	u32 flags, channel, gfxp, cilp;
	u64 route[2];
};
static_assert(sizeof(struct preemption_mode) == 32);

/* ctrl2080gr.h: flags bit 0 sets the compute mode, of which 2 is CILP */
static u32 set_preemption_mode(struct fake_ctrl *c)
{
	struct preemption_mode *p = c->params;
	struct fake_object *o = fake_object(c->client, p->channel);

	if (!o || (o->class->kind != KIND_TSG && o->class->kind != KIND_CHANNEL))
		return NV_ERR_OBJECT_NOT_FOUND;
	if (p->cilp > 2)
		return NV_ERR_INVALID_ARGUMENT;
	if (p->flags & 1)
		fake_engine_waits(o->gpu, fake_context_model(o), p->cilp != 2);
	return NV_OK;
}

static u32 get_timeslice(struct fake_ctrl *c)
{
	*(u64 *)c->params = c->object->tsg.timeslice;
	return NV_OK;
}

const struct fake_ctrl_entry fake_ctrl_gpu[] = {
	{ 0x00de0001, 8, NULL, accepted },	/* gpu_user_shared_data.c */
	{ 0x0080170d, 24, channel_list_pre, channel_list },
	{ 0x20800102, 564, NULL, gpu_info_v2 },
	{ 0x2080014a, 268, NULL, gid_info },
	{ 0x2080018d, 3812, NULL, get_pids },
	{ 0x2080018e, 14408, NULL, get_pid_info },
	{ 0x20801109, 2056, NULL, fifo_info },
	{ 0x2080110b, 536, NULL, disable_channels },
	{ 0x20802096, 55888, NULL, util_samples },
	{ 0x20801201, 32, info_list_pre, info_list },
	{ 0x20801210, 32, NULL, set_preemption_mode },
	{ 0x20801301, 16, info_list_pre, fb_info_v1 },
	{ 0x20801303, 1028, NULL, fb_info_v2 },
	{ 0x20801701, 16, NULL, arch_info },
	{ 0x20801802, 16, info_list_pre, info_list },
	{ 0x20803125, 16, NULL, falcon_context },
	{ 0x906f0101, 16, NULL, class_engine },
	{ 0xa06c0103, 8, NULL, set_timeslice },
	{ 0xa06c0104, 8, NULL, get_timeslice },
	{ 0xa06c0105, 8, NULL, preempt },
	{ 0xc36f0108, 4, NULL, work_token },
	{ }
};
