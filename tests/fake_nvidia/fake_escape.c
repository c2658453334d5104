// SPDX-License-Identifier: GPL-2.0
/*
 * The RM escapes: which file may issue them, at what exact size
 * (src/nvidia/arch/nvalloc/unix/src/escape.c:RmIoctl of 580).
 *
 * A wrong size or the wrong kind of file makes ioctl fail with EINVAL;
 * everything else fails through the status inside the argument, with ioctl
 * returning 0.
 */
#include <linux/capability.h>
#include <linux/file.h>
#include "fake.h"

/* NV_ESC_REGISTER_FD: the file counts as that control file from then on */
static u32 register_fd(struct fake_file *file, int fd)
{
	struct fake_file *ctl;
	struct file *filp;
	u32 status = NV_OK;

	mutex_lock(&rm_lock);
	if (file->ctl_file) {
		status = NV_ERR_INVALID_STATE;
		goto out;
	}
	ctl = fake_fget(fd, true, &filp);
	if (!ctl) {
		status = NV_ERR_INVALID_ARGUMENT;
		goto out;
	}
	if (ctl == file || ctl->ctl_file) {
		fput(filp);
		status = NV_ERR_INVALID_ARGUMENT;
		goto out;
	}
	file->ctl_file = ctl;
	file->ctl_filp = filp;
out:
	mutex_unlock(&rm_lock);
	return status;
}

static u32 rm_alloc(struct fake_file *file, void *arg, u32 size,
		    const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos21 *a = arg;
	struct nvos64 *b = arg;
	u64 rights = size == sizeof(*b) ? b->rights : 0;
	u32 status;

	switch (a->class) {
	case NV01_ROOT:
	case NV01_ROOT_NON_PRIV:
	case NV01_ROOT_CLIENT:
		if (!file->ctl)
			return NV_ERR_INVALID_ARGUMENT;
		a->class = NV01_ROOT_CLIENT;
		break;
	case NV01_EVENT:
	case NV01_EVENT_OS_EVENT:
	case NV01_EVENT_KERNEL_CALLBACK:
	case NV01_EVENT_KERNEL_CALLBACK_EX:
		break;
	default:
		if (!file->ctl)
			return NV_ERR_INVALID_ARGUMENT;
	}
	status = fake_alloc_object(a->root, a->parent, &a->new, a->class,
				   a->params, rights, sec, log);
	if (size == sizeof(*b))
		b->status = status;
	else
		a->status = status;
	log->status = status;
	return NV_OK;
}

static u32 rm_free(struct nvos00 *p, const struct fake_sec *sec,
		   struct fake_call *log)
{
	mutex_lock(&rm_lock);
	p->status = fake_free_object(p->root, p->old, sec);
	mutex_unlock(&rm_lock);
	log->client = p->root;
	log->object = p->old;
	log->status = p->status;
	return NV_OK;
}

static const struct {
	u8 nr;
	u16 size;
	bool gpu;			/* a GPU's file, else the control file */
} escapes[] = {
	{ NV_ESC_RM_ALLOC_MEMORY, sizeof(struct nvos02), true },
	{ NV_ESC_RM_ALLOC_OBJECT, sizeof(struct nvos05), false },
	{ NV_ESC_RM_FREE, sizeof(struct nvos00), false },
	{ NV_ESC_RM_VID_HEAP_CONTROL, NVOS32_SIZE, false },
	{ NV_ESC_RM_I2C_ACCESS, 32, true },
	{ NV_ESC_RM_IDLE_CHANNELS, sizeof(struct nvos30), false },
	{ NV_ESC_RM_MAP_MEMORY, sizeof(struct nvos33), false },
	{ NV_ESC_RM_UNMAP_MEMORY, sizeof(struct nvos34), false },
	{ NV_ESC_RM_ACCESS_REGISTRY, sizeof(struct nvos38), false },
	{ NV_ESC_RM_ALLOC_CONTEXT_DMA2, sizeof(struct nvos39), false },
	{ NV_ESC_RM_MAP_MEMORY_DMA, sizeof(struct nvos46), false },
	{ NV_ESC_RM_UNMAP_MEMORY_DMA, sizeof(struct nvos47), false },
	{ NV_ESC_RM_BIND_CONTEXT_DMA, 16, false },
	{ NV_ESC_RM_DUP_OBJECT, sizeof(struct nvos55), false },
	{ NV_ESC_RM_SHARE, sizeof(struct nvos57), false },
	{ NV_ESC_STATUS_CODE, sizeof(struct nv_status_code), false },
	{ NV_ESC_RM_CONTROL, sizeof(struct nvos54), false },
	{ NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO, sizeof(struct nvos56), false },
};

static u32 admitted(const struct fake_file *file, u32 nr, u32 size)
{
	u32 i;

	if (nr == NV_ESC_RM_ALLOC)
		return size == sizeof(struct nvos21) ||
		       size == sizeof(struct nvos64) ?
			NV_OK : NV_ERR_INVALID_ARGUMENT;
	if (nr == NV_ESC_REGISTER_FD)
		return size == 4 ? NV_OK : NV_ERR_INVALID_ARGUMENT;
	for (i = 0; i < ARRAY_SIZE(escapes); i++)
		if (escapes[i].nr == nr)
			return escapes[i].size == size &&
			       escapes[i].gpu == !file->ctl ?
				NV_OK : NV_ERR_INVALID_ARGUMENT;
	return NV_ERR_NOT_SUPPORTED;
}

u32 fake_rm_ioctl(struct fake_file *file, u32 nr, void *arg, u32 size,
		  struct fake_call *log)
{
	struct fake_sec sec = {
		.self = file,
		.file = READ_ONCE(file->ctl_file) ?: file,
		.admin = capable(CAP_SYS_ADMIN),
	};
	u32 status = admitted(file, nr, size);
	int ret = 0;

	if (status == NV_ERR_INVALID_ARGUMENT)
		return status;
	switch (nr) {
	case NV_ESC_REGISTER_FD:
		return register_fd(file, *(int *)arg);
	case NV_ESC_RM_ALLOC:
		return rm_alloc(file, arg, size, &sec, log);
	case NV_ESC_RM_FREE:
		return rm_free(arg, &sec, log);
	case NV_ESC_RM_CONTROL:
		fake_control(arg, &sec, log);
		return NV_OK;
	case NV_ESC_RM_ALLOC_MEMORY: {
		struct nvos02 *p = arg;

		p->status = fake_alloc_memory(p, &sec, log);
		log->status = p->status;
		return NV_OK;
	}
	case NV_ESC_RM_VID_HEAP_CONTROL: {
		struct nvos32 *p = arg;

		p->status = fake_vid_heap(p, &sec, log);
		log->status = p->status;
		return NV_OK;
	}
	case NV_ESC_RM_ALLOC_OBJECT: {
		struct nvos05 *p = arg;

		/* Nv01AllocObject(): an object without parameters */
		p->status = fake_alloc_object(p->root, p->parent, &p->new,
					      p->class, 0, 0, &sec, log);
		log->status = p->status;
		return NV_OK;
	}
	case NV_ESC_RM_ALLOC_CONTEXT_DMA2: {
		struct nvos39 *p = arg;

		p->status = fake_context_dma(p, &sec, log);
		log->status = p->status;
		return NV_OK;
	}
	case NV_ESC_STATUS_CODE: {
		struct nv_status_code *p = arg;

		/* of any adapter: escape.c asks nobody */
		if (!fake_gpu_at(p->domain, p->bus, p->slot))
			return NV_ERR_INVALID_ARGUMENT;
		p->status = NV_OK;
		return NV_OK;
	}
	case NV_ESC_RM_IDLE_CHANNELS: {
		struct nvos30 *p = arg;

		p->status = fake_idle_escape(p, &sec);
		log->status = p->status;
		return NV_OK;
	}
	case NV_ESC_RM_ACCESS_REGISTRY: {
		struct nvos38 *p = arg;

		p->status = fake_registry(p, &sec);
		log->client = p->client;
		log->status = p->status;
		return NV_OK;
	}
	case NV_ESC_RM_MAP_MEMORY: {
		struct nvos33 *p = arg;

		fake_map_memory(p, &sec);
		log->client = p->client;
		log->object = p->memory;
		log->status = p->status;
		return NV_OK;
	}
	case NV_ESC_RM_UNMAP_MEMORY: {
		struct nvos34 *p = arg;

		p->status = fake_unmap_memory(p, &sec);
		log->client = p->client;
		log->object = p->memory;
		log->status = p->status;
		return NV_OK;
	}
	case NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO: {
		struct nvos56 *p = arg;

		p->status = fake_update_mapping(p, &sec);
		log->client = p->client;
		log->object = p->memory;
		log->status = p->status;
		return NV_OK;
	}
	case NV_ESC_RM_MAP_MEMORY_DMA: {
		struct nvos46 *p = arg;

		p->status = fake_map_dma(p, &sec);
		log->status = p->status;
		return NV_OK;
	}
	case NV_ESC_RM_UNMAP_MEMORY_DMA: {
		struct nvos47 *p = arg;

		p->status = fake_unmap_dma(p, &sec);
		log->status = p->status;
		return NV_OK;
	}
	case NV_ESC_RM_DUP_OBJECT: {
		struct nvos55 *p = arg;

		log->peer = p->client_src;
		log->parent = p->object_src;
		p->status = fake_dup(p, &sec);
		log->client = p->client;
		log->object = p->object;
		log->status = p->status;
		return NV_OK;
	}
	case NV_ESC_RM_SHARE: {
		struct nvos57 *p = arg;

		p->status = fake_share(p, &sec);
		log->client = p->client;
		log->object = p->object;
		log->status = p->status;
		return NV_OK;
	}
	default:
		if (fake_answer(ANSWER_ESCAPE, nr, arg, size, &ret, NULL))
			return ret ? NV_ERR_INVALID_ARGUMENT : NV_OK;
		fake_unanswered(ANSWER_ESCAPE, nr, size);
		return NV_ERR_NOT_SUPPORTED;
	}
}
