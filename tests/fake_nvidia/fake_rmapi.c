// SPDX-License-Identifier: GPL-2.0
/*
 * The driver's interface for other kernel modules, which nvidia-modeset uses:
 * nvidia_get_rm_ops() (kernel-open/nvidia/nv-modeset-interface.c) and the call
 * behind it (src/nvidia/arch/nvalloc/unix/src/osapi.c:rm_kernel_rmapi_op,
 * src/nvidia/interface/rmapi/src/entry_points.c of 580).
 *
 * The kernel calls here: no file is compared with a client's, the GPU's
 * file is not looked for, and parameters lie in kernel memory. What else
 * nvidia-modeset finds there (GPUs by name, callbacks) is not there, and of
 * mappings for processors there are those of doorbells for programs alone.
 */
#include <linux/export.h>
#include <linux/moduleparam.h>
#include <linux/printk.h>
#include <linux/string.h>
#include "fake.h"

/*
 * nv-modeset-interface.h: 72 bytes in all branches. The names are NVIDIA's: with CONFIG_CFI they
 * are part of the functions' types.
 */
struct nvidia_stack_s;

typedef struct {
	const char *version_string;
	struct { u8 allow_write_combining; } system_info;
	int (*alloc_stack)(struct nvidia_stack_s **sp);
	void (*free_stack)(struct nvidia_stack_s *sp);
	u32 (*enumerate_gpus)(void *info);
	int (*open_gpu)(u32 gpu_id, struct nvidia_stack_s *sp);
	void (*close_gpu)(u32 gpu_id, struct nvidia_stack_s *sp);
	void (*op)(struct nvidia_stack_s *sp, void *cmd);
	int (*set_callbacks)(const void *callbacks);
} nvidia_modeset_rm_ops_t;
static_assert(sizeof(nvidia_modeset_rm_ops_t) == 72);

/* nv-kernel-rmapi-ops.h: 72 bytes since 580 */
struct fake_rm_call {
	u32 op;
	union {
		struct nvos00 free;
		struct nvos64 alloc;
		struct nvos54 control;
		struct nvos33 map;
		struct nvos34 unmap;
		struct nvos46 map_dma;
		struct nvos47 unmap_dma;
		u8 room[64];
	} params;
};
static_assert(sizeof(struct fake_rm_call) == 72);

/* nvos.h */
enum { NV01_FREE = 0x00, NV04_ALLOC = 0x15, NV04_MAP_MEMORY = 0x21,
       NV04_UNMAP_MEMORY = 0x22, NV04_MAP_MEMORY_DMA = 0x2e,
       NV04_UNMAP_MEMORY_DMA = 0x2f, NV04_CONTROL = 0x36 };

static bool kernel_rmapi = true;
module_param(kernel_rmapi, bool, 0644);
MODULE_PARM_DESC(kernel_rmapi, "there is an interface for other kernel modules");

static const struct fake_sec kernel_sec = { .admin = true, .kernel = true };

/* The stack of an operation: none on x86-64 (osapi.h, os_alloc_stack) */
static int alloc_stack(struct nvidia_stack_s **sp)
{
	*sp = NULL;
	return 0;
}

static void free_stack(struct nvidia_stack_s *sp)
{
}

/* rmapiAlloc with kernel parameters */
static u32 alloc(struct nvos64 *p)
{
	const struct fake_class *class = fake_class(p->class);
	void *params = (void *)(unsigned long)p->params;
	struct fake_client *client;
	struct fake_call log = {};
	u32 status;

	if (!class)
		return NV_ERR_INVALID_CLASS;
	if (!params && class->params && !class->optional)
		return NV_ERR_INVALID_ARGUMENT;
	mutex_lock(&rm_lock);
	if (class->kind == KIND_ROOT) {
		p->new = p->root;
		status = fake_client_new(&kernel_sec, &p->new);
		if (status == NV_OK && params)
			*(u32 *)params = p->new;
	} else if (!fake_client(p->root)) {
		status = NV_ERR_INVALID_OBJECT_HANDLE;
	} else {
		status = fake_client_validate(p->root, &kernel_sec, &client);
		if (status == NV_OK)
			status = fake_construct(client, p->parent, &p->new, class,
						params, &kernel_sec, &log);
	}
	mutex_unlock(&rm_lock);
	return status;
}

static void op(struct nvidia_stack_s *sp, void *cmd)
{
	struct fake_rm_call *call = cmd;
	struct fake_call log = {};

	might_sleep();
	switch (call->op) {
	case NV01_FREE:
		mutex_lock(&rm_lock);
		call->params.free.status = fake_free_object(call->params.free.root,
							    call->params.free.old,
							    &kernel_sec);
		mutex_unlock(&rm_lock);
		break;
	case NV04_ALLOC:
		call->params.alloc.status = alloc(&call->params.alloc);
		break;
	case NV04_MAP_MEMORY:
		call->params.map.status = fake_map_memory(&call->params.map, &kernel_sec, &log);
		break;
	case NV04_UNMAP_MEMORY:
		call->params.unmap.status = fake_unmap_memory(&call->params.unmap,
							      &kernel_sec, &log);
		break;
	case NV04_MAP_MEMORY_DMA:
		call->params.map_dma.status = fake_map_dma(&call->params.map_dma,
							   &kernel_sec, &log);
		break;
	case NV04_UNMAP_MEMORY_DMA:
		call->params.unmap_dma.status = fake_unmap_dma(&call->params.unmap_dma,
							       &kernel_sec, &log);
		break;
	case NV04_CONTROL:
		call->params.control.status = fake_control(&call->params.control,
							   &kernel_sec, &log);
		break;
	default:
		WARN(1, "fake_nvidia: the stand-in lacks kernel operation %#x\n", call->op);
	}
}

u32 nvidia_get_rm_ops(nvidia_modeset_rm_ops_t *ops);
u32 nvidia_get_rm_ops(nvidia_modeset_rm_ops_t *ops)
{
	const nvidia_modeset_rm_ops_t filled = {
		.version_string = fake_version,
		.alloc_stack = alloc_stack,
		.free_stack = free_stack,
		.op = op,
	};

	if (!kernel_rmapi)
		return NV_ERR_NOT_SUPPORTED;
	if (strcmp(ops->version_string, fake_version)) {
		ops->version_string = fake_version;
		return NV_ERR_GENERIC;
	}
	*ops = filled;
	return NV_OK;
}
#ifndef FAKE_EXPORTS_NOTHING
EXPORT_SYMBOL_GPL(nvidia_get_rm_ops);	/* as since 570; before, to everybody */
#endif
