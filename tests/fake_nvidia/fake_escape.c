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

static u32 rm_free(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos00 *p = arg;
	u32 status;

	mutex_lock(&rm_lock);
	status = fake_free_object(p->root, p->old, sec);
	mutex_unlock(&rm_lock);
	return status;
}

/* Nv01AllocObject(): an object without parameters */
static u32 rm_alloc_object(void *arg, const struct fake_sec *sec, struct fake_call *log)
{
	struct nvos05 *p = arg;

	return fake_alloc_object(p->root, p->parent, &p->new, p->class, 0, 0, sec, log);
}

#define CALL(type, object) sizeof(struct type), offsetof(struct type, status), \
			   offsetof(struct type, object)

static const struct escape {
	u8 nr;
	/* where these are; 0: the call knows. The client is the first word */
	u16 size, status, object;
	fake_escape_fn *run;		/* NULL: a recording has it */
	bool gpu;			/* a GPU's file, else the control file */
} escapes[] = {
	{ NV_ESC_RM_ALLOC_MEMORY, sizeof(struct nvos02), offsetof(struct nvos02, status),
	  0, fake_alloc_memory, true },
	{ NV_ESC_RM_ALLOC_OBJECT, CALL(nvos05, new), rm_alloc_object },
	{ NV_ESC_RM_FREE, CALL(nvos00, old), rm_free },
	{ NV_ESC_RM_VID_HEAP_CONTROL, NVOS32_SIZE, offsetof(struct nvos32, status),
	  0, fake_vid_heap },
	{ NV_ESC_RM_I2C_ACCESS, .size = 32, .gpu = true },
	{ NV_ESC_RM_MAP_MEMORY, CALL(nvos33, memory), fake_map_memory },
	{ NV_ESC_RM_UNMAP_MEMORY, CALL(nvos34, memory), fake_unmap_memory },
	{ NV_ESC_RM_ACCESS_REGISTRY, CALL(nvos38, object), fake_registry },
	{ NV_ESC_RM_ALLOC_CONTEXT_DMA2, CALL(nvos39, new), fake_context_dma },
	{ NV_ESC_RM_MAP_MEMORY_DMA, CALL(nvos46, memory), fake_map_dma },
	{ NV_ESC_RM_UNMAP_MEMORY_DMA, CALL(nvos47, memory), fake_unmap_dma },
	{ NV_ESC_RM_BIND_CONTEXT_DMA, .size = 16 },
	{ NV_ESC_RM_DUP_OBJECT, CALL(nvos55, object), fake_dup },
	{ NV_ESC_RM_SHARE, CALL(nvos57, object), fake_share },
	{ NV_ESC_RM_CONTROL, CALL(nvos54, object), fake_control },
	{ NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO, CALL(nvos56, memory), fake_update_mapping },
};

/* escape.c asks nobody, and so it is of any adapter. */
static u32 status_code(struct nv_status_code *p)
{
	p->status = NV_OK;
	return fake_gpu_at(p->domain, p->bus, p->slot) ? NV_OK : NV_ERR_INVALID_ARGUMENT;
}

u32 fake_rm_ioctl(struct fake_file *file, u32 nr, void *arg, u32 size,
		  struct fake_call *log)
{
	struct fake_sec sec = {
		.file = READ_ONCE(file->ctl_file) ?: file,
		.admin = capable(CAP_SYS_ADMIN),
	};
	const struct escape *e;
	int ret = 0;

	switch (nr) {
	case NV_ESC_REGISTER_FD:
		return size == 4 ? register_fd(file, *(int *)arg) :
				   NV_ERR_INVALID_ARGUMENT;
	case NV_ESC_RM_ALLOC:
		return size == sizeof(struct nvos21) || size == sizeof(struct nvos64) ?
			rm_alloc(file, arg, size, &sec, log) : NV_ERR_INVALID_ARGUMENT;
	case NV_ESC_STATUS_CODE:
		return size == sizeof(struct nv_status_code) && file->ctl ?
			status_code(arg) : NV_ERR_INVALID_ARGUMENT;
	}
	for (e = escapes; e < escapes + ARRAY_SIZE(escapes); e++) {
		if (e->nr != nr)
			continue;
		if (e->size != size || e->gpu == file->ctl)
			return NV_ERR_INVALID_ARGUMENT;
		if (!e->run)
			break;
		log->client = *(u32 *)arg;
		log->status = e->run(arg, &sec, log);
		if (e->object)
			log->object = *(u32 *)(arg + e->object);
		*(u32 *)(arg + e->status) = log->status;
		return NV_OK;
	}
	if (fake_answer(ANSWER_ESCAPE, nr, arg, size, &ret, NULL))
		return ret ? NV_ERR_INVALID_ARGUMENT : NV_OK;
	fake_unanswered(ANSWER_ESCAPE, nr, size);
	return NV_ERR_NOT_SUPPORTED;
}
