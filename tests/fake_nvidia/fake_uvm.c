// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/nvidia-uvm: files, address spaces and requests
 * (kernel-open/nvidia-uvm/uvm.c, uvm_api.h, uvm_va_space.c,
 * uvm_user_channel.c, uvm_range_group.c of 580).
 *
 * - A request is a plain number; its parameters are copied at the size of
 *   its structure, once, and copied back whole; rmStatus is inside.
 * - Everything but the two initialising requests needs an address space, or
 *   answers NV_ERR_ILLEGAL_ACTION.
 * - UVM_MM_INITIALIZE accepts a descriptor only if its f_op is uvm_fops.
 *   With an address space in sharing mode it says NV_WARN_NOTHING_TO_DO.
 * - UVM_REGISTER_GPU asks, as RM does for a device, whether the caller's
 *   descriptor table has a file of that GPU (nv_is_gpu_accessible).
 * - rmCtrlFd is ignored. A client handle is anybody's; what counts is the
 *   process that made the client.
 */
#include <linux/file.h>
#include <linux/module.h>
#include <linux/sched/mm.h>
#include "fake_uvm.h"

static LIST_HEAD(spaces);
static DEFINE_MUTEX(spaces_lock);

/* Does for tests what GPU accesses of this process to managed memory would do. */
void fake_uvm_touch(struct fake_gpu *gpu, u64 base, u64 length)
{
	struct va_space *s;

	if (!length || base + length < base)
		return;
	mutex_lock(&spaces_lock);
	list_for_each_entry(s, &spaces, list) {
		if (s->tgid != task_tgid_nr(current))
			continue;
		down_write(&s->lock);
		if (s->gpu_vaspace & BIT(gpu->minor))
			ranges_touch(s, gpu, base, length);
		up_write(&s->lock);
	}
	mutex_unlock(&spaces_lock);
}

static int uvm_open(struct inode *inode, struct file *filp)
{
	struct uvm_file *f;
	int ret = fake_open_faults();

	if (!ret) {
		f = fake_zalloc(sizeof(*f));
		if (f) {
			address_space_init_once(&f->mapping);
			f->mapping.host = inode;
			f->mapping.a_ops = inode->i_mapping->a_ops;
			filp->f_mapping = &f->mapping;
			filp->private_data = f;
			atomic_inc(&fake_files);
		} else {
			ret = -ENOMEM;
		}
	}
	fake_count_open(NODE_UVM, ret);
	return ret;
}

/* uvm_user_channel_detach(), uvm_user_channel_destroy_detached() */
static void release_channel(struct uvm_channel *c)
{
	list_del(&c->list);
	mutex_lock(&rm_lock);
	fake_channel_put(c->retained);
	mutex_unlock(&rm_lock);
	fake_free(c);
}

static void space_destroy(struct va_space *s)
{
	struct uvm_channel *c, *next;
	u32 i;

	mutex_lock(&spaces_lock);
	list_del(&s->list);
	mutex_unlock(&spaces_lock);
	down_write(&s->lock);
	range_destroy_all(s);
	for (i = 0; i < gpus; i++)
		if (s->registered & BIT(i))
			fake_uvm_space(&fake_gpus[i], false);
	list_for_each_entry_safe(c, next, &s->channels, list)
		release_channel(c);
	up_write(&s->lock);
	xa_destroy(&s->groups);
	WARN(!xa_empty(&s->tables.users), "fake_nvidia: page tables are left\n");
	xa_destroy(&s->tables.users);
	if (s->mm)
		mmdrop(s->mm);
	fake_free(s);
}

static int uvm_release(struct inode *inode, struct file *filp)
{
	struct uvm_file *f = filp->private_data;

	WARN(inode->i_rdev != fake_uvm_dev,
	     "fake_nvidia: uvm release with the inode of another device\n");
	filp->private_data = NULL;
	filp->f_mapping = inode->i_mapping;
	switch (atomic_read(&f->type)) {
	case UVM_FD_VA_SPACE:
		space_destroy(f->space);
		break;
	case UVM_FD_MM: {
		struct uvm_file *other = f->other->private_data;

		mmput(other->space->mm);
		fput(f->other);
		break;
	}
	default:
		break;
	}
	fake_free(f);
	fake_count_close(NODE_UVM);
	atomic_dec(&fake_files);
	return 0;
}

/* uvm.c:uvm_api_initialize() */
static bool take_tables(struct table_users *t, struct fake_gpu *gpu, s64 by)
{
	return fake_tables(gpu, by);
}

static u32 initialize(struct uvm_file *f, u64 flags)
{
	struct va_space *s;
	int old;

	old = atomic_cmpxchg(&f->type, UVM_FD_UNINITIALIZED,
			     UVM_FD_INITIALIZING);
	switch (old) {
	case UVM_FD_UNINITIALIZED:
		break;
	case UVM_FD_VA_SPACE:
		return f->space->flags == flags ? NV_OK :
						  NV_ERR_INVALID_ARGUMENT;
	case UVM_FD_INITIALIZING:
		return NV_ERR_BUSY_RETRY;
	default:
		return NV_ERR_INVALID_ARGUMENT;
	}
	if (flags & ~(u64)UVM_INIT_FLAGS_MASK) {
		atomic_set(&f->type, UVM_FD_UNINITIALIZED);
		return NV_ERR_INVALID_ARGUMENT;
	}
	s = fake_zalloc(sizeof(*s));
	if (!s) {
		atomic_set(&f->type, UVM_FD_UNINITIALIZED);
		return NV_ERR_NO_MEMORY;
	}
	init_rwsem(&s->lock);
	s->ranges = RB_ROOT;
	s->flags = flags;
	INIT_LIST_HEAD(&s->channels);
	xa_init_flags(&s->groups, XA_FLAGS_ALLOC1);
	xa_init(&s->tables.users);
	s->tables.take = take_tables;
	if (!(flags & UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE)) {
		s->mm = current->mm;
		mmgrab(s->mm);
	}
	s->tgid = task_tgid_nr(current);
	f->space = s;
	mutex_lock(&spaces_lock);
	list_add(&s->list, &spaces);
	mutex_unlock(&spaces_lock);
	atomic_set(&f->type, UVM_FD_VA_SPACE);
	return NV_OK;
}

/* uvm.c:uvm_api_mm_initialize() */
static u32 mm_initialize(struct uvm_file *self, int fd)
{
	struct file *filp = fget(fd);
	struct uvm_file *f;
	u32 status = NV_ERR_INVALID_ARGUMENT;

	if (!filp)
		return status;
	if (filp->f_op != &uvm_fops)
		goto err;
	f = filp->private_data;
	if (atomic_read(&f->type) != UVM_FD_VA_SPACE)
		goto err;
	status = NV_WARN_NOTHING_TO_DO;
	if (!f->space->mm)
		goto err;
	status = NV_ERR_INVALID_ARGUMENT;
	if (atomic_cmpxchg(&self->type, UVM_FD_UNINITIALIZED,
			   UVM_FD_INITIALIZING) != UVM_FD_UNINITIALIZED)
		goto err;
	down_write(&f->space->lock);
	status = NV_ERR_INVALID_STATE;
	if (!f->space->mm_alive && mmget_not_zero(f->space->mm)) {
		f->space->mm_alive = true;
		status = NV_OK;
	}
	up_write(&f->space->lock);
	if (status != NV_OK) {
		atomic_set(&self->type, UVM_FD_UNINITIALIZED);
		goto err;
	}
	self->other = filp;
	atomic_set(&self->type, UVM_FD_MM);
	return NV_OK;
err:
	fput(filp);
	return status;
}

/* uvm_gpu.c, nv_gpu_ops.c:nvGpuOpsGetGpuInfo() */
static u32 register_gpu(struct va_space *s, struct uvm_register_gpu *p)
{
	struct fake_gpu *gpu = fake_gpu_by_uuid(p->uuid);

	if (!gpu)
		return 0x12;		/* NV_ERR_GPU_UUID_NOT_FOUND */
	if (!fake_gpu_accessible(gpu)) {
		/* nv_uvm_interface.c:nvUvmInterfaceRegisterGpu(): the GPU was
		 * opened before, with the lock of all */
		fake_harm(HARM_WAIT);
		return NV_ERR_INSUFFICIENT_PERMISSIONS;
	}
	if (s->registered & BIT(gpu->minor))
		return NV_ERR_INVALID_DEVICE;
	s->registered |= BIT(gpu->minor);
	fake_uvm_space(gpu, true);
	p->numa_enabled = 0;
	p->numa_node = -1;
	return NV_OK;
}

static void forget_gpu(struct va_space *s, struct fake_gpu *gpu, bool whole)
{
	struct uvm_channel *c, *next;

	list_for_each_entry_safe(c, next, &s->channels, list)
		if (c->gpu == gpu)
			release_channel(c);
	s->gpu_vaspace &= ~BIT(gpu->minor);
	if (whole && s->registered & BIT(gpu->minor)) {
		s->registered &= ~BIT(gpu->minor);
		fake_uvm_space(gpu, false);
	}
}

static u32 owned_object(u32 hclient, u32 handle, enum fake_kind kind)
{
	struct fake_client *client;
	struct fake_object *o;
	u32 status = NV_OK;

	mutex_lock(&rm_lock);
	client = fake_client(hclient);
	o = client ? fake_object(client, handle) : NULL;
	if (!client)
		status = NV_ERR_INVALID_CLIENT;
	else if (!o || o->class->kind != kind)
		status = NV_ERR_OBJECT_NOT_FOUND;
	else if (!fake_pid_owns(o))
		status = NV_ERR_INSUFFICIENT_PERMISSIONS;
	else if (kind == KIND_VASPACE && o->mem)
		status = NV_ERR_INVALID_FLAGS;	/* RM keeps its page tables */
	mutex_unlock(&rm_lock);
	return status;
}

static u32 register_vaspace(struct va_space *s,
			    struct uvm_register_vaspace *p)
{
	struct fake_gpu *gpu = fake_gpu_by_uuid(p->uuid);
	u32 status;

	if (!gpu || !(s->registered & BIT(gpu->minor)))
		return NV_ERR_INVALID_DEVICE;
	/* duplicated first: nvUvmInterfaceDupAddressSpace() */
	fake_look_without_lock(p->client, p->vaspace);
	status = owned_object(p->client, p->vaspace, KIND_VASPACE);
	if (status != NV_OK)
		return status;
	/* check_gpu_va_space() */
	if (s->gpu_vaspace & BIT(gpu->minor))
		return NV_ERR_INVALID_DEVICE;
	/* disallow_new_registers, until UVM_MM_INITIALIZE clears it */
	if (s->mm && !s->mm_alive)
		return NV_ERR_PAGE_TABLE_NOT_AVAIL;
	s->gpu_vaspace |= BIT(gpu->minor);
	return NV_OK;
}

static u32 register_channel(struct va_space *s,
			    struct uvm_register_channel *p)
{
	struct fake_gpu *gpu = fake_gpu_by_uuid(p->uuid);
	struct fake_object *o;
	struct uvm_channel *c;
	u32 status;

	/* a copy channel has nothing to map and passes no range */
	if (p->length && range_invalid_4k(p->base, p->length))
		return NV_ERR_INVALID_ADDRESS;
	if (!gpu || !(s->gpu_vaspace & BIT(gpu->minor)))
		return NV_ERR_INVALID_DEVICE;
	status = owned_object(p->client, p->channel, KIND_CHANNEL);
	if (status != NV_OK)
		return status;
	/* uvm_register_channel_under_write(): whatever the handles mean now */
	list_for_each_entry(c, &s->channels, list)
		if (c->client == p->client && c->channel == p->channel)
			return 0x21;	/* NV_ERR_INVALID_CHANNEL */
	c = fake_zalloc(sizeof(*c));
	if (!c)
		return NV_ERR_NO_MEMORY;
	c->client = p->client;
	c->channel = p->channel;
	c->gpu = gpu;
	/* nvGpuOpsRetainChannel(): its group, its id and its memory */
	mutex_lock(&rm_lock);
	o = fake_object(fake_client(p->client), p->channel);
	if (o && o->class->kind == KIND_CHANNEL)
		c->retained = fake_channel_get(o->channel.channel);
	mutex_unlock(&rm_lock);
	if (!c->retained) {
		fake_free(c);
		return NV_ERR_OBJECT_NOT_FOUND;
	}
	list_add(&c->list, &s->channels);
	return NV_OK;
}

static u32 unregister_channel(struct va_space *s, u32 client, u32 channel)
{
	struct uvm_channel *c;

	list_for_each_entry(c, &s->channels, list) {
		if (c->client != client || c->channel != channel)
			continue;
		release_channel(c);
		return NV_OK;
	}
	return 0x21;			/* NV_ERR_INVALID_CHANNEL */
}

static u32 create_group(struct va_space *s, u64 *id)
{
	*id = ++s->next_group;
	return xa_err(xa_store(&s->groups, *id, xa_mk_value(1), GFP_KERNEL)) ?
		NV_ERR_NO_MEMORY : NV_OK;
}

static u32 on_gpu(struct va_space *s, const u8 *uuid)
{
	struct fake_gpu *gpu = fake_gpu_by_uuid(uuid);

	return gpu && s->registered & BIT(gpu->minor) ? NV_OK :
							NV_ERR_INVALID_DEVICE;
}

static const struct request {
	u32 cmd;
	u16 size, status_at;
} requests[] = {
	{ UVM_INITIALIZE, 16, 8 },
	{ UVM_MM_INITIALIZE, 8, 4 },
	{ UVM_PAGEABLE_MEM_ACCESS, 8, 4 },
	{ UVM_REGISTER_GPU, 40, 36 },
	{ UVM_ENABLE_PEER_ACCESS, 36, 32 },
	{ UVM_UNREGISTER_GPU, 20, 16 },
	{ UVM_CREATE_RANGE_GROUP, 16, 8 },
	{ UVM_DESTROY_RANGE_GROUP, 16, 8 },
	{ UVM_SET_RANGE_GROUP, 32, 24 },
	{ UVM_CREATE_EXTERNAL_RANGE, 24, 16 },
	{ UVM_MAP_EXTERNAL_ALLOCATION, 9264, 9260 },
	{ UVM_FREE, 24, 16 },
	{ UVM_SET_PREFERRED_LOCATION, 40, 36 },
	{ UVM_UNSET_PREFERRED_LOCATION, 24, 16 },
	{ UVM_SET_ACCESSED_BY, 40, 32 },
	{ UVM_UNSET_ACCESSED_BY, 40, 32 },
	{ UVM_REGISTER_GPU_VASPACE, 32, 28 },
	{ UVM_UNREGISTER_GPU_VASPACE, 20, 16 },
	{ UVM_REGISTER_CHANNEL, 56, 48 },
	{ UVM_UNREGISTER_CHANNEL, 28, 24 },
	{ UVM_ENABLE_READ_DUPLICATION, 24, 16 },
	{ UVM_DISABLE_READ_DUPLICATION, 24, 16 },
	{ UVM_MIGRATE, 80, 72 },
	{ UVM_MAP_DYNAMIC_PARALLELISM_REGION, 40, 32 },
	{ UVM_UNMAP_EXTERNAL, 40, 32 },
	{ UVM_ALLOC_SEMAPHORE_POOL, 9248, 9240 },
	{ UVM_VALIDATE_VA_RANGE, 24, 16 },
};

static u32 with_space(struct va_space *s, u32 cmd, void *p)
{
	u64 *q = p;
	struct va_range *r;
	u32 status;

	switch (cmd) {
	case UVM_PAGEABLE_MEM_ACCESS:
		*(u8 *)p = 0;
		return NV_OK;
	case UVM_REGISTER_GPU:
		return register_gpu(s, p);
	case UVM_UNREGISTER_GPU:
		status = on_gpu(s, p);
		if (status == NV_OK)
			forget_gpu(s, fake_gpu_by_uuid(p), true);
		return status;
	case UVM_REGISTER_GPU_VASPACE:
		return register_vaspace(s, p);
	case UVM_UNREGISTER_GPU_VASPACE:
		status = on_gpu(s, p);
		if (status == NV_OK &&
		    !(s->gpu_vaspace & BIT(fake_gpu_by_uuid(p)->minor)))
			status = NV_ERR_INVALID_DEVICE;
		if (status == NV_OK)
			forget_gpu(s, fake_gpu_by_uuid(p), false);
		return status;
	case UVM_REGISTER_CHANNEL:
		return register_channel(s, p);
	case UVM_UNREGISTER_CHANNEL:
		return unregister_channel(s, ((u32 *)p)[4], ((u32 *)p)[5]);
	case UVM_ENABLE_PEER_ACCESS:
		/* uvm_va_space.c:uvm_api_enable_peer_access(): with the lock
		 * of all it waits for that of the space, then asks */
		fake_harm(HARM_WAIT);
		status = on_gpu(s, p) ?: on_gpu(s, p + 16);
		if (status == NV_OK && !memcmp(p, p + 16, 16))
			status = NV_ERR_INVALID_DEVICE;
		return status;
	case UVM_CREATE_RANGE_GROUP:
		return create_group(s, q);
	case UVM_DESTROY_RANGE_GROUP:
		return xa_erase(&s->groups, q[0]) ? NV_OK :
						    NV_ERR_OBJECT_NOT_FOUND;
	case UVM_SET_RANGE_GROUP:
		return ranges_group(s, q[0], q[1], q[2]);
	case UVM_CREATE_EXTERNAL_RANGE:
		if (range_invalid_4k(q[0], q[1]))
			return NV_ERR_INVALID_ADDRESS;
		return range_create(s, q[0], q[1], RANGE_EXTERNAL, NULL);
	case UVM_MAP_EXTERNAL_ALLOCATION:
		return range_map_external(s, p);
	case UVM_UNMAP_EXTERNAL:
		return range_unmap_external(s, q[0], q[1], (u8 *)&q[2]);
	case UVM_FREE:
		return range_free(s, q[0], q[1]);
	case UVM_ALLOC_SEMAPHORE_POOL: {
		struct uvm_semaphore_pool *a = p;

		if (range_invalid_4k(a->base, a->length))
			return NV_ERR_INVALID_ADDRESS;
		if (a->count > UVM_MAX_GPUS)
			return NV_ERR_INVALID_ARGUMENT;
		return range_create(s, a->base, a->length, RANGE_SEMAPHORE,
				    NULL);
	}
	case UVM_MAP_DYNAMIC_PARALLELISM_REGION:
		/* just one page of a size that the GPU has */
		if (range_invalid_4k(q[0], q[1]) || q[0] & (q[1] - 1) ||
		    (q[1] != SZ_4K && q[1] != SZ_64K && q[1] != SZ_2M))
			return NV_ERR_INVALID_ADDRESS;
		status = on_gpu(s, (u8 *)&q[2]);
		return status ?: range_create(s, q[0], q[1], RANGE_SKED, NULL);
	case UVM_VALIDATE_VA_RANGE:
		r = range_find(s, q[0]);
		return r && r->start == q[0] && r->end + 1 == q[0] + q[1] ?
			NV_OK : NV_ERR_INVALID_ADDRESS;
	case UVM_SET_PREFERRED_LOCATION:
		return ranges_prefer(s, q[0], q[1], (u8 *)&q[2]);
	case UVM_UNSET_PREFERRED_LOCATION:
		return ranges_prefer(s, q[0], q[1], NULL);
	case UVM_ENABLE_READ_DUPLICATION:
	case UVM_DISABLE_READ_DUPLICATION:
		return ranges_duplicate(s, q[0], q[1],
					cmd == UVM_ENABLE_READ_DUPLICATION);
	case UVM_SET_ACCESSED_BY:
	case UVM_UNSET_ACCESSED_BY:
		return ranges_managed(s, q[0], q[1]) ? NV_OK :
						       NV_ERR_INVALID_ADDRESS;
	case UVM_MIGRATE:
		return range_migrate(s, p);
	default:
		return NV_OK;
	}
}

static u32 named_client(u32 cmd, const void *p)
{
	switch (cmd) {
	case UVM_REGISTER_GPU_VASPACE:
	case UVM_REGISTER_CHANNEL:
		return ((u32 *)p)[5];
	case UVM_UNREGISTER_CHANNEL:
		return ((u32 *)p)[4];
	case UVM_MAP_EXTERNAL_ALLOCATION:
		return ((struct uvm_map_external *)p)->client;
	default:
		return 0;
	}
}

/* uvm_api.h:__UVM_ROUTE_CMD_STACK and _ALLOC */
static long uvm_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	struct uvm_file *f = filp->private_data;
	struct fake_call log = { .node = "uvm", .what = cmd, .nr = cmd & 0xff };
	const struct request *r = NULL;
	u32 i, *status;
	void *p;
	int ret = 0;

	if (cmd == UVM_DEINITIALIZE)
		return 0;
	for (i = 0; i < ARRAY_SIZE(requests); i++)
		if (requests[i].cmd == cmd)
			r = &requests[i];
	if (!r) {
		fake_unanswered(ANSWER_UVM, cmd, 0);
		return -EINVAL;
	}
	p = kvzalloc(r->size, GFP_KERNEL);
	if (!p)
		return -ENOMEM;
	if (copy_from_user(p, (void __user *)arg, r->size)) {
		kvfree(p);
		return -EFAULT;
	}
	status = p + r->status_at;
	log.outer = r->size;
	log.client = named_client(cmd, p);
	if (cmd == UVM_INITIALIZE) {
		*status = initialize(f, *(u64 *)p);
	} else if (cmd == UVM_MM_INITIALIZE) {
		*status = mm_initialize(f, *(s32 *)p);
	} else if (atomic_read(&f->type) != UVM_FD_VA_SPACE) {
		*status = NV_ERR_ILLEGAL_ACTION;
	} else {
		down_write(&f->space->lock);
		*status = with_space(f->space, cmd, p);
		up_write(&f->space->lock);
	}
	log.status = *status;
	if (cmd == UVM_MAP_EXTERNAL_ALLOCATION) {
		log.object = ((struct uvm_map_external *)p)->memory;
		log.bytes = ((struct uvm_map_external *)p)->length;
	}
	fake_log(&log);
	if (copy_to_user((void __user *)arg, p, r->size))
		ret = -EFAULT;
	kvfree(p);
	return ret;
}

const struct file_operations uvm_fops = {
	.owner = THIS_MODULE,
	.open = uvm_open,
	.release = uvm_release,
	.unlocked_ioctl = uvm_ioctl,
	.compat_ioctl = uvm_ioctl,
	.mmap = fake_uvm_mmap,
};
