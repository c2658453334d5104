// SPDX-License-Identifier: GPL-2.0
/*
 * RM_ALLOC: the copies of its parameters and the making of each class
 * (src/nvidia/src/kernel/rmapi/alloc_free.c, param_copy.c; device.c,
 * subdevice.c, kernel_channel*.c and so on of 580).
 *
 * The size of the parameters is the class's own, never the caller's
 * paramsSize; they are copied from user memory here, after whoever called
 * the ioctl has looked at them, and written back only on success.
 */
#include <linux/capability.h>
#include <linux/moduleparam.h>
#include "fake.h"

static bool fabric;
module_param(fabric, bool, 0644);
MODULE_PARM_DESC(fabric, "the GPUs are joined by NVSwitch, and have addresses there");

/*
 * Parameters of the kernel's calls lie in its own memory
 * (PARAM_LOCATION_KERNEL), all others' in the program's.
 */
bool fake_copy_in(void *to, u64 at, u32 size, const struct fake_sec *sec)
{
	if (!sec->kernel)
		return !copy_from_user(to, u64_to_user_ptr(at), size);
	memcpy(to, (void *)(unsigned long)at, size);
	return true;
}

bool fake_copy_out(u64 at, const void *from, u32 size,
		   const struct fake_sec *sec)
{
	if (!sec->kernel)
		return !copy_to_user(u64_to_user_ptr(at), from, size);
	memcpy((void *)(unsigned long)at, from, size);
	return true;
}

/* param_copy.c:rmapiParamsAcquire() */
u32 fake_params_in(void **params, u64 at, u32 size, const struct fake_sec *sec)
{
	void *p;

	*params = NULL;
	if (!!size != !!at)
		return NV_ERR_INVALID_ARGUMENT;
	if (!size)
		return NV_OK;
	if (size > RMAPI_PARAM_COPY_MAX_PARAMS_SIZE)
		return NV_ERR_INVALID_ARGUMENT;
	p = kvmalloc(size, GFP_KERNEL);
	if (!p)
		return NV_ERR_INSUFFICIENT_RESOURCES;
	if (!fake_copy_in(p, at, size, sec)) {
		kvfree(p);
		return NV_ERR_INVALID_ADDRESS;
	}
	*params = p;
	return NV_OK;
}

u32 fake_params_out(void *params, u64 at, u32 size, const struct fake_sec *sec)
{
	return fake_copy_out(at, params, size, sec) ? NV_OK :
						      NV_ERR_INVALID_ADDRESS;
}

static u8 parent_bit(const struct fake_object *o)
{
	switch (o->class->kind) {
	case KIND_ROOT:
		return PARENT_ROOT;
	case KIND_DEVICE:
		return PARENT_DEVICE;
	case KIND_SUBDEVICE:
		return PARENT_SUBDEVICE;
	case KIND_TSG:
		return PARENT_TSG;
	case KIND_CHANNEL:
		return PARENT_CHANNEL;
	default:
		return 0;
	}
}

/* gpu/device.c:deviceInit_IMPL(), device_share.c */
static u32 make_device(struct fake_object *o, struct nv_device_params *p,
		       const struct fake_sec *sec)
{
	struct fake_object *other;
	struct fake_gpu *gpu;

	if (!p || p->device_id >= 32)
		return NV_ERR_INVALID_ARGUMENT;
	gpu = fake_gpu_by_instance(p->device_id);
	if (!gpu)
		return NV_ERR_INVALID_DEVICE;
	if (!sec->kernel && !fake_gpu_accessible(gpu))
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	/* one for each GPU; hClientShare may name anybody's client, and nobody's */
	list_for_each_entry(other, &o->parent->children, sibling)
		if (other != o && other->class->kind == KIND_DEVICE &&
		    other->gpu == gpu)
			return NV_ERR_INSUFFICIENT_RESOURCES;
	o->gpu = gpu;
	o->device.share = p->client_share;
	return NV_OK;
}

/* gpu/subdevice/subdevice.c:subdeviceConstruct_IMPL(): one of each number */
static u32 make_subdevice(struct fake_object *o, const u32 *number)
{
	struct fake_object *other;

	o->subdevice.number = number ? *number : 0;
	if (o->subdevice.number >= 8)
		return NV_ERR_INVALID_CLASS;
	list_for_each_entry(other, &o->parent->children, sibling)
		if (other != o && other->class->kind == KIND_SUBDEVICE &&
		    other->subdevice.number == o->subdevice.number)
			return NV_ERR_INSUFFICIENT_RESOURCES;
	return NV_OK;
}

/*
 * mem_mgr/mem_fabric.c:memoryfabricConstruct_IMPL(): duplicates the memory,
 * which so stays. Objects that get it later are not modelled.
 */
static u32 make_fabric(struct fake_object *o, struct nv_fabric_params *p)
{
	struct fake_object *memory;

	if (!fabric)
		return NV_ERR_INVALID_STATE;	/* no range of addresses was set up */
	if (p->page != SZ_2M && p->page != SZ_512M && p->page != (256ULL << 30))
		return NV_ERR_INVALID_ARGUMENT;
	if (p->align % p->page || p->size % p->page)
		return NV_ERR_INVALID_ARGUMENT;
	if (p->flags & NV00F8_ALLOC_FLAGS_FLEXIBLE_FLA)
		return NV_ERR_NOT_SUPPORTED;
	memory = fake_object(o->client, p->memory);
	if (!memory || !memory->mem)
		return NV_ERR_INVALID_ARGUMENT;
	if (memory->mem->place != PLACE_VIDMEM || memory->mem->gpu != o->gpu)
		return NV_ERR_INVALID_ARGUMENT;
	if (p->offset > memory->mem->size ||
	    p->size > memory->mem->size - p->offset)
		return NV_ERR_INVALID_ARGUMENT;
	o->mem = fake_mem_get(memory->mem);
	return NV_OK;
}

/*
 * mem.c:memConstructCommon_IMPL(): the firmware takes memory alone, and the
 * driver then frees an object that is still in the tree of its device, which
 * is counted as the null pointers are.
 */
static u32 tell_firmware(struct fake_object *o, const struct nv_memory_params *p)
{
	if (!(p->attr2 & ATTR2_FIRMWARE_KNOWS))
		return NV_OK;
	if (o->class->class != NV50_MEMORY_VIRTUAL) {
		fake_harm(HARM_FIRMWARE);
		return NV_OK;
	}
	fake_harm(HARM_NULL);
	return NV_ERR_INVALID_STATE;
}

static u32 make_memory(struct fake_object *o, void *params,
		       struct fake_call *log)
{
	struct nv_memory_params *p = params;
	u32 status;

	switch (o->class->class) {
	case NV01_MEMORY_LOCAL_USER:
		status = fake_mem_vid(o->gpu, p, &o->mem);
		break;
	case NV01_MEMORY_SYSTEM:
		status = fake_mem_sys(o->gpu, p, &o->mem);
		break;
	case NV50_MEMORY_VIRTUAL:
		if (p->vaspace && !fake_object(o->client, p->vaspace))
			return NV_ERR_INVALID_OBJECT_HANDLE;
		status = fake_mem_virt(o->gpu, p, &o->mem);
		if (status == NV_OK && p->vaspace)
			status = fake_depend(o, fake_object(o->client,
							    p->vaspace));
		break;
	case NV_MEMORY_FABRIC:
		status = make_fabric(o, params);
		break;
	case NV01_MEMORY_LOCAL_PHYSICAL:
		o->mem = fake_mem_plain(o->gpu, PLACE_VIRTUAL, o->gpu->total);
		status = o->mem ? NV_OK : NV_ERR_NO_MEMORY;
		break;
	case NV01_MEMORY_LOCAL_PRIVILEGED:
	case NV01_MEMORY_VIRTUAL:
		o->mem = fake_mem_plain(o->gpu, PLACE_VIRTUAL, 0);
		status = o->mem ? NV_OK : NV_ERR_NO_MEMORY;
		if (o->mem && o->class->class == NV01_MEMORY_VIRTUAL &&
		    !fake_lazy_make(o->mem)) {
			fake_mem_put(o->mem);
			o->mem = NULL;
			status = NV_ERR_NO_MEMORY;
		}
		break;
	default:
		return NV_ERR_NOT_SUPPORTED;
	}
	if (o->mem) {
		o->mem->holders++;
		log->bytes = o->mem->size;
	}
	switch (status ? 0 : o->class->class) {
	case NV01_MEMORY_LOCAL_USER:
	case NV01_MEMORY_SYSTEM:
	case NV50_MEMORY_VIRTUAL:
		return tell_firmware(o, p);
	}
	return status;
}

/* channels and groups count on while the driver is loaded; 0x33 as recorded */
static u32 next_cid = 0x32;

/* fifo/kernel_channel_group_api.c, fifo/kernel_ctxshare.c */
static u32 make_tsg(struct fake_object *o, struct nv_tsg_params *p)
{
	struct fake_object *va = NULL;
	u32 status;

	if (p->vaspace) {
		va = fake_object(o->client, p->vaspace);
		if (!va)
			return NV_ERR_OBJECT_NOT_FOUND;
		if (va->class->kind != KIND_VASPACE)
			return NV_ERR_INVALID_OBJECT_HANDLE;
	}
	if (p->engine > NV2080_ENGINE_TYPE_MOST)
		return NV_ERR_INVALID_ARGUMENT;
	status = fake_depend(o, va);
	if (status != NV_OK)
		return status;
	status = fake_group_new(o->gpu, p->engine, o->client->pid,
				&o->tsg.group);
	if (status != NV_OK)
		return status;
	next_cid++;
	o->tsg.notes[0] = p->error_object;
	o->tsg.notes[1] = p->ecc_object;
	o->tsg.timeslice = FAKE_SLICE_US;
	return NV_OK;
}

static u32 make_ctxshare(struct fake_object *o, struct nv_ctxshare_params *p)
{
	struct fake_object *va = fake_object(o->client, p->vaspace);

	if (p->vaspace && (!va || va->class->kind != KIND_VASPACE))
		return NV_ERR_INVALID_OBJECT_HANDLE;
	p->subctx = p->flags == 1 ? 0x3f : 0;	/* as recorded for ASYNC */
	return fake_depend(o, va);
}

/*
 * fifo/kernel_channel.c:kchannelGetNotifierInfo(), whose error is not looked
 * at: memory of the same device, or a context for DMA.
 */
static void take_notes(struct fake_object *o, u32 handle)
{
	struct fake_object *notes = handle ? fake_object(o->client, handle) : NULL;

	if (handle && !(notes && (notes->mem ? notes->gpu == o->gpu :
					       notes->class->class == NV01_CONTEXT_DMA)))
		fake_harm(HARM_NULL);
}

/*
 * fifo/kernel_channel_group_api.c:kchangrpapiSetLegacyMode_IMPL(): the share of
 * a group's channels that name none is the driver's own, in the program's
 * client. It is kept by its handle, and whose it is is not asked.
 */
static u32 legacy_share(struct fake_object *tsg, struct fake_object **out)
{
	u32 handle = 0, status;

	if (!tsg->tsg.legacy) {
		status = fake_handle_assign(tsg->client, &handle);
		if (status == NV_OK)
			status = fake_object_new(tsg->client, tsg, handle,
						 fake_class(FERMI_CONTEXT_SHARE_A), out);
		if (status != NV_OK)
			return status;
		tsg->tsg.legacy = handle;
	}
	*out = fake_object(tsg->client, tsg->tsg.legacy);
	if (!*out || (*out)->class->kind != KIND_CTXSHARE)
		return NV_ERR_OBJECT_NOT_FOUND;
	if ((*out)->gpu != tsg->gpu)
		fake_harm(HARM_NULL);
	return NV_OK;
}

/* fifo/kernel_channel.c:kchannelConstruct_IMPL() */
static u32 make_channel(struct fake_object *o, struct nv_channel_params *p,
			const struct fake_sec *sec)
{
	struct fake_object *share = NULL, *va = NULL;
	struct fake_group *group;
	u32 status, model;

	o->channel.model = GM_NONE;
	/* without confidential computing: a return with all GPUs' locks held */
	if ((p->flags & NVOS04_FLAGS_CC_SECURE) && !sec->kernel) {
		fake_harm(HARM_WAIT);
		return NV_ERR_NOT_READY;
	}
	if (p->context_share && o->parent->class->kind != KIND_TSG) {
		pr_err("NVRM: a context share of a channel in no group: 0x%x\n",
		       p->context_share);
		return NV_ERR_INVALID_ARGUMENT;
	}
	if (p->context_share) {
		share = fake_object(o->client, p->context_share);
		if (!share || share->class->kind != KIND_CTXSHARE)
			return NV_ERR_INVALID_OBJECT_HANDLE;
	} else if (o->parent->class->kind == KIND_TSG) {
		status = legacy_share(o->parent, &share);
		if (status != NV_OK)
			return status;
	}
	if (p->vaspace) {
		va = fake_object(o->client, p->vaspace);
		if (!va || va->class->kind != KIND_VASPACE)
			return NV_ERR_INVALID_OBJECT_HANDLE;
	}
	if (p->object_buffer && !fake_object(o->client, p->object_buffer))
		return NV_ERR_INVALID_OBJECT_HANDLE;
	status = fake_depend(o, share);
	if (status == NV_OK)
		status = fake_depend(o, va);
	if (status == NV_OK)
		status = fake_userd_make(o, p);
	if (status != NV_OK)
		return status;
	/* a channel without a group gets one of its own, and so a context */
	if (o->parent->class->kind == KIND_TSG) {
		group = fake_group_get(o->parent->tsg.group);
		take_notes(o, p->error_object ?: o->parent->tsg.notes[0]);
		take_notes(o, p->ecc_object ?: o->parent->tsg.notes[1]);
	} else {
		status = fake_group_new(o->gpu, p->engine, o->client->pid,
					&group);
		if (status != NV_OK)
			return status;
		take_notes(o, p->error_object);
		take_notes(o, p->ecc_object);
	}
	status = fake_channel_new(group, &o->channel.channel);
	model = fake_group_model(group, o->gpu);
	fake_group_put(group);
	if (status != NV_OK)
		return status;
	if (model != GM_NONE)
		o->channel.model =
			fake_engine_channel(o->gpu, model,
					    fake_channel_id(o->channel.channel));
	if (sec->admin)				/* NVOS04_FLAGS_PRIVILEGED_CHANNEL */
		p->flags |= 0x20;
	p->cid = ++next_cid;
	return NV_OK;
}

/* The group of channels, whose context all of its channels have. */
static struct fake_group *context_of(const struct fake_object *o)
{
	return o->class->kind == KIND_TSG ? o->tsg.group :
		fake_channel_group(o->channel.channel);
}

/* The engine's group of a channel group or a channel; may be GM_NONE. */
u32 fake_context_model(const struct fake_object *o)
{
	return fake_group_model(context_of(o), o->gpu);
}

u32 *fake_context_objects(const struct fake_object *o)
{
	return fake_group_objects(context_of(o));
}

/* fifo/usermode_api.c:usrmodeConstruct_IMPL(): bBar1Mapping, bPriv */
static u32 make_usermode(struct fake_object *o, const u8 *p)
{
	if (p && p[1])
		return p[0] ? NV_ERR_INSUFFICIENT_PERMISSIONS :
			      NV_ERR_INVALID_PARAMETER;
	o->mem = fake_mem_plain(o->gpu, PLACE_REGISTERS, 0x10000);
	if (!o->mem)
		return NV_ERR_NO_MEMORY;
	o->mem->holders++;
	o->mem->bar1_bell = p && p[0];
	return NV_OK;
}

/* rmapi/event.c:eventConstruct_IMPL(); os.c:osUserHandleToKernelPtr() */
static u32 make_event(struct fake_object *o, struct nv_event_params *p)
{
	if (p->parent_client && !fake_client(p->parent_client))
		return NV_ERR_INVALID_CLIENT;
	o->event.fd = p->data;
	if (!fake_os_event_exists(o->client->handle, o->event.fd))
		return NV_ERR_INVALID_EVENT;
	p->src_resource = o->parent->handle;
	p->data = (unsigned long)o;	/* the driver leaks a kernel pointer */
	return NV_OK;
}

/* gpu/bus/p2p_api.c:p2papiConstruct_IMPL(): peers by NVLink have nothing in
 * each other's BAR1 */
static u32 make_peers(struct fake_object *o, struct nv_peers_params *p)
{
	struct fake_object *one = fake_object(o->client, p->subdevice);
	struct fake_object *other = fake_object(o->client, p->peer);

	if (!one || one->class->kind != KIND_SUBDEVICE ||
	    !other || other->class->kind != KIND_SUBDEVICE)
		return NV_ERR_OBJECT_NOT_FOUND;
	/* kern_bus_gp100.c:kbusCreateP2PMappingForNvlink_GP100(): lists of eight */
	if ((p->masks[0] | p->masks[1]) >> 8)
		fake_harm(HARM_INDEX);
	p->to_peer.address = p->from_peer.address = ~0ull;
	p->to_peer.size = p->from_peer.size = 0;
	return NV_OK;
}

static u32 make(struct fake_object *o, void *params,
		const struct fake_sec *sec, struct fake_call *log)
{
	switch (o->class->kind) {
	case KIND_DEVICE:
		return make_device(o, params, sec);
	case KIND_SUBDEVICE:
		return make_subdevice(o, params);
	case KIND_MEMORY:
	case KIND_VIRTUAL:
		return make_memory(o, params, log);
	case KIND_VASPACE:
		return fake_space_make(o, params);
	case KIND_TSG:
		return make_tsg(o, params);
	case KIND_CTXSHARE:
		return make_ctxshare(o, params);
	case KIND_CHANNEL:
		return make_channel(o, params, sec);
	case KIND_ENGINE:
		/* NVB0B5_ALLOCATION_PARAMETERS.engineType; COPY0 is 9 */
		o->engine.type = NV2080_ENGINE_TYPE_GRAPHICS;
		if (o->class->params == 8)
			o->engine.type = 9 + (params ? ((u32 *)params)[1] : 0);
		else if (o->class->params == 16 && !(*fake_context_objects(o->parent))++)
			fake_engine_waits(o->gpu, fake_context_model(o->parent), true);
		return NV_OK;
	case KIND_USERMODE:
		return make_usermode(o, params);
	case KIND_CONTEXT_DMA:
		return fake_context_make(o, params);
	case KIND_MAPPER:
		return fake_mapper_make(o, params);
	case KIND_SESSION:
		return fake_session_make(o, params);
	case KIND_SURFACE:
		return fake_surface_make(o, params);
	case KIND_PEERS:
		return make_peers(o, params);
	case KIND_P2P:
		/* third_party_p2p.c: NV503C_ALLOC_PARAMETERS_FLAGS_TYPE_BAR1 */
		return params && (*(u32 *)params & 3) == 1 ?
			NV_OK : NV_ERR_NOT_SUPPORTED;
	case KIND_RUSD:
		o->mem = fake_mem_plain(o->gpu, PLACE_RUSD, PAGE_SIZE);
		if (!o->mem)
			return NV_ERR_NO_MEMORY;
		o->mem->holders++;
		return NV_OK;
	case KIND_EVENT:
		return make_event(o, params);
	case KIND_DEBUGGER: {
		struct nv_debugger_params *p = params;
		struct fake_client *app = fake_client(p->app_client);

		struct fake_object *target;

		/* kernel_sm_debugger_session.c: any client is looked up, and
		 * its object's debugging rights are asked for */
		if (!p->app_client)
			app = o->client;
		if (!app)
			return NV_ERR_INVALID_CLIENT;
		target = fake_object(app, p->class3d);
		if (!target)
			return NV_ERR_INVALID_OBJECT_PARENT;
		if (!fake_may(target, o->client, 1u << RS_ACCESS_DEBUG))
			return NV_ERR_INSUFFICIENT_PERMISSIONS;
		/* _ksmdbgssnInitClient() */
		return fake_client_own(&o->debugger.client);
	}
	default:
		return NV_OK;
	}
}

static bool has_child(const struct fake_object *parent,
		      const struct fake_class *class)
{
	struct fake_object *o;

	list_for_each_entry(o, &parent->children, sibling)
		if (o->class == class)
			return true;
	return false;
}

/* alloc_free.c:serverAllocResourceUnderLock(), in its order of checks */
u32 fake_construct(struct fake_client *client, u32 hparent, u32 *new,
		   const struct fake_class *class, void *params,
		   const struct fake_sec *sec, struct fake_call *log)
{
	struct fake_object *parent, *o;
	u32 status;

	if (class->admin && !sec->admin)
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	parent = fake_object(client, hparent);
	if (!parent)
		return NV_ERR_OBJECT_NOT_FOUND;
	if (class->single && has_child(parent, class))
		return NV_ERR_STATE_IN_USE;
	if (!(class->parents & PARENT_ANY) &&
	    !(class->parents & parent_bit(parent)))
		return NV_ERR_INVALID_OBJECT_PARENT;
	if (class->kind == KIND_REFUSED)
		return NV_ERR_NOT_SUPPORTED;
	status = fake_handle_assign(client, new);
	if (status != NV_OK)
		return status;
	status = fake_object_new(client, parent, *new, class, &o);
	if (status != NV_OK)
		return status;
	status = make(o, params, sec, log);
	if (status != NV_OK)
		fake_object_free(o);
	return status;
}

/* rmapiAllocWithSecInfo() and serverAllocApiCopyIn/Out() */
u32 fake_alloc_object(u32 hclient, u32 hparent, u32 *new, u32 class,
		      u64 user, u64 rights, const struct fake_sec *sec,
		      struct fake_call *log)
{
	const struct fake_class *c = fake_class(class);
	struct fake_client *client;
	u32 status, mask, size, hnew = *new;
	void *params = NULL;

	log->what = class;
	log->client = hclient;
	log->parent = hparent;
	if (!c)
		return NV_ERR_INVALID_CLASS;
	/* param_copy.c:rmapiGetClassAllocParamSize(): NULL where optional */
	size = user ? c->params : 0;
	if (!user && c->params && !c->optional)
		return NV_ERR_INVALID_ARGUMENT;
	/* a pointer that a class without parameters gets is not looked at */
	status = fake_params_in(&params, user, size, sec);
	if (status != NV_OK)
		return status;
	log->read = size;
	log->sum = fake_sum(params, size);
	if (rights && copy_from_user(&mask, u64_to_user_ptr(rights), 4)) {
		status = NV_ERR_INVALID_ADDRESS;
		goto out;
	}
	mutex_lock(&rm_lock);
	if (c->kind == KIND_ROOT) {
		/* a handle of the caller's own stands in the place of the client */
		hnew = hclient;
		status = fake_client_new(sec, &hnew);
		if (status == NV_OK && params)
			*(u32 *)params = hnew;
	} else {
		status = fake_client_validate(hclient, sec, &client);
		if (status == NV_OK)
			status = fake_construct(client, hparent, &hnew, c,
						params, sec, log);
	}
	mutex_unlock(&rm_lock);
	if (status == NV_OK) {
		*new = hnew;
		log->object = hnew;
		status = fake_params_out(params, user, size, sec);
	}
out:
	kvfree(params);
	return status;
}
