/* SPDX-License-Identifier: GPL-2.0 */
/*
 * NVIDIA's ABI as the stand-in speaks it: numbers and layouts of driver
 * branch 580 (read at 580.142), written from NVIDIA's published headers:
 *   kernel-open/common/inc/nv-ioctl.h, nv-ioctl-numbers.h
 *   src/nvidia/arch/nvalloc/unix/include/nv_escape.h
 *   src/common/sdk/nvidia/inc/nvos.h, class/cl*.h, ctrl/ctrl*.h, rs_access.h
 *   kernel-open/nvidia-uvm/uvm_ioctl.h, uvm_linux_ioctl.h
 * All structures have their natural alignment on x86-64, as NVIDIA's have.
 * Nothing here comes from the module under test.
 */
#ifndef FAKE_NV_H
#define FAKE_NV_H

#include <linux/types.h>
#include <linux/build_bug.h>

/* nvstatuscodes.h */
#define NV_OK				0x00
#define NV_ERR_BUSY_RETRY		0x03
#define NV_ERR_ILLEGAL_ACTION		0x16
#define NV_ERR_INSERT_DUPLICATE_NAME	0x19
#define NV_ERR_INSUFFICIENT_RESOURCES	0x1a
#define NV_ERR_INSUFFICIENT_PERMISSIONS	0x1b
#define NV_ERR_INVALID_ACCESS_TYPE	0x1d
#define NV_ERR_INVALID_ADDRESS		0x1e
#define NV_ERR_INVALID_ARGUMENT		0x1f
#define NV_ERR_INVALID_CLASS		0x22
#define NV_ERR_INVALID_CLIENT		0x23
#define NV_ERR_INVALID_DEVICE		0x26
#define NV_ERR_INVALID_EVENT		0x28
#define NV_ERR_INVALID_FLAGS		0x29
#define NV_ERR_INVALID_LIMIT		0x2e
#define NV_ERR_INVALID_OBJECT		0x31
#define NV_ERR_INVALID_OBJECT_HANDLE	0x33
#define NV_ERR_INVALID_OBJECT_PARENT	0x36
#define NV_ERR_INVALID_OFFSET		0x37
#define NV_ERR_INVALID_OWNER		0x39
#define NV_ERR_INVALID_PARAM_STRUCT	0x3a
#define NV_ERR_INVALID_PARAMETER	0x3b
#define NV_ERR_INVALID_STATE		0x40
#define NV_ERR_NO_FREE_FIFOS		0x4f
#define NV_ERR_NO_MEMORY		0x51
#define NV_ERR_NOT_READY		0x55
#define NV_ERR_NOT_SUPPORTED		0x56
#define NV_ERR_OBJECT_NOT_FOUND		0x57
#define NV_ERR_OUT_OF_RANGE		0x5b
#define NV_ERR_PAGE_TABLE_NOT_AVAIL	0x5d
#define NV_ERR_STATE_IN_USE		0x63
#define NV_ERR_UVM_ADDRESS_IN_USE	0x68
#define NV_ERR_GENERIC			0xffff
#define NV_WARN_NOTHING_TO_DO		0x10006

/* kernel-open/common/inc/nv-chardev-numbers.h */
#define NV_MAJOR			195
#define NV_MINOR_CTL			255
#define NV_MAX_MINORS			16

/* nv_escape.h and nv-ioctl-numbers.h: the _IOC_NR of a call */
#define NV_ESC_RM_ALLOC_MEMORY		0x27
#define NV_ESC_RM_ALLOC_OBJECT		0x28
#define NV_ESC_RM_FREE			0x29
#define NV_ESC_RM_CONTROL		0x2a
#define NV_ESC_RM_ALLOC			0x2b
#define NV_ESC_RM_DUP_OBJECT		0x34
#define NV_ESC_RM_SHARE			0x35
#define NV_ESC_RM_I2C_ACCESS		0x39
#define NV_ESC_RM_VID_HEAP_CONTROL	0x4a
#define NV_ESC_RM_ACCESS_REGISTRY	0x4d
#define NV_ESC_RM_MAP_MEMORY		0x4e
#define NV_ESC_RM_UNMAP_MEMORY		0x4f
#define NV_ESC_RM_ALLOC_CONTEXT_DMA2	0x54
#define NV_ESC_RM_MAP_MEMORY_DMA	0x57
#define NV_ESC_RM_UNMAP_MEMORY_DMA	0x58
#define NV_ESC_RM_BIND_CONTEXT_DMA	0x59
#define NV_ESC_RM_UPDATE_DEVICE_MAPPING_INFO 0x5e
#define NV_ESC_CARD_INFO		200
#define NV_ESC_REGISTER_FD		201
#define NV_ESC_ALLOC_OS_EVENT		206
#define NV_ESC_FREE_OS_EVENT		207
#define NV_ESC_STATUS_CODE		209
#define NV_ESC_CHECK_VERSION_STR	210
#define NV_ESC_IOCTL_XFER_CMD		211
#define NV_ESC_ATTACH_GPUS_TO_FD	212
#define NV_ESC_QUERY_DEVICE_INTR	213
#define NV_ESC_SYS_PARAMS		214
#define NV_ESC_NUMA_INFO		215
#define NV_ESC_SET_NUMA_STATUS		216
#define NV_ESC_EXPORT_TO_DMABUF_FD	217
#define NV_ESC_WAIT_OPEN_COMPLETE	218

#define NV_ABSOLUTE_MAX_IOCTL_SIZE	16384
#define RMAPI_PARAM_COPY_MAX_PARAMS_SIZE (1024 * 1024)

struct nv_ioctl_xfer {
	u32 cmd, size;
	u64 ptr;
};

struct nv_card_info {
	u8 valid;
	u32 domain;
	u8 bus, slot, function;
	u16 vendor_id, device_id;
	u32 gpu_id;
	u16 interrupt_line;
	u64 reg_address, reg_size, fb_address, fb_size;
	u32 minor_number;
	u8 dev_name[10];
};
static_assert(sizeof(struct nv_card_info) == 72);

struct nv_os_event {
	u32 client, device, fd, status;
};

struct nv_version {
	u32 cmd, reply;
	char string[64];
};
static_assert(sizeof(struct nv_version) == 72);

/* kernel-open/common/inc/nv-ioctl-numa.h */
struct nv_numa_info {
	s32 nid;
	s32 status;
	u64 memblock_size;
	u64 numa_mem_addr, numa_mem_size;
	u8 use_auto_online;
	u64 offline[64];
	u32 offline_count;
};
static_assert(sizeof(struct nv_numa_info) == 560);

struct nvos00 {				/* free */
	u32 root, parent, old, status;
};

struct nvos02 {				/* alloc memory, with fd behind it */
	u32 root, parent, new, class, flags;
	u64 memory, limit;
	u32 status, pad;
	s32 fd;
	u32 pad2;
};
static_assert(sizeof(struct nvos02) == 56);

struct nvos05 {
	u32 root, parent, new, class, status;
};

struct nvos21 {				/* alloc, short form */
	u32 root, parent, new, class;
	u64 params;
	u32 params_size, status;
};
static_assert(sizeof(struct nvos21) == 32);

struct nvos64 {				/* alloc, long form */
	u32 root, parent, new, class;
	u64 params, rights;
	u32 params_size, flags, status, pad;
};
static_assert(sizeof(struct nvos64) == 48);

struct nv_status_code {
	u32 domain;
	u8 bus, slot;
	u32 status;
};
static_assert(sizeof(struct nv_status_code) == 12);

struct nvos38 {				/* access registry */
	u32 client, object, type, node_length;
	u64 node;
	u32 name_length;
	u64 name;
	u32 binary_length;
	u64 binary;
	u32 data, entry, status;
};
static_assert(sizeof(struct nvos38) == 72);

struct nvos32 {				/* vid heap control */
	u32 root, parent, function, vaspace;
	s16 ivc_heap;
	u32 status;
	u64 total, free;
	union {
		struct {
			u32 owner, memory, type, flags, attr, format;
			u32 compr, zcull, stride, width, height;
			u64 size, align, offset, limit, address;
			u64 range_begin, range_end;
			u32 attr2, ctag;
			s32 numa;
		} alloc;
		struct {
			u32 owner, memory, flags;
		} free_;
		struct {
			u32 attr;
			u64 offset, size, base;
		} info;
	} u;
};
static_assert(offsetof(struct nvos32, u.alloc.size) == 88);
static_assert(offsetof(struct nvos32, u.alloc.attr2) == 144);
#define NVOS32_SIZE			184
static_assert(sizeof(struct nvos32) <= NVOS32_SIZE);
#define NVOS32_FUNCTION_ALLOC_SIZE	2
#define NVOS32_FUNCTION_FREE		3
#define NVOS32_FUNCTION_INFO		5
#define NVOS32_FREE_FLAGS_MEMORY_HANDLE_PROVIDED 1
#define NVOS32_ALLOC_FLAGS_FIXED_ADDRESS_ALLOCATE 0x00000010
#define NVOS32_ALLOC_FLAGS_ALIGNMENT_FORCE	0x00000100
#define NVOS32_ALLOC_FLAGS_LAZY		0x00000400
#define NVOS32_ALLOC_FLAGS_MEMORY_HANDLE_PROVIDED 0x00004000
#define NVOS32_ALLOC_FLAGS_USE_BEGIN_END	0x00020000
#define NVOS32_ALLOC_FLAGS_VIRTUAL		0x00080000
#define NVOS32_ALLOC_FLAGS_EXTERNALLY_MANAGED 0x00400000

struct nvos33 {				/* map memory, with fd behind it */
	u32 client, device, memory;
	u64 offset, length, address;
	u32 status, flags;
	s32 fd;
	u32 pad;
};
static_assert(sizeof(struct nvos33) == 56);

struct nvos34 {				/* unmap memory */
	u32 client, device, memory;
	u64 address;
	u32 status, flags;
};
static_assert(sizeof(struct nvos34) == 32);

struct nvos39 {				/* alloc context dma 2 */
	u32 client, subdevice, new, class, flags, selector, memory;
	u64 offset, limit;
	u32 status;
};
static_assert(sizeof(struct nvos39) == 56);

struct nvos46 {				/* map memory dma */
	u32 client, device, dma, memory;
	u64 offset, length;
	u32 flags, flags2, kind;
	u64 dma_offset;
	u32 status;
};
static_assert(sizeof(struct nvos46) == 64);
#define NVOS46_FLAGS_ACCESS_READ_ONLY	1u		/* 1:0 */
#define NVOS46_FLAGS_PAGE_KIND_VIRTUAL	(1u << 3)
#define NVOS46_FLAGS_PAGE_KIND_OVERRIDE_YES (1u << 19)
#define NVOS46_FLAGS_DEFER_TLB_INVALIDATION_TRUE (1u << 31)

struct nvos47 {				/* unmap memory dma */
	u32 client, device, dma, memory, flags;
	u64 dma_offset, size;
	u32 status;
};
static_assert(sizeof(struct nvos47) == 48);
#define NVOS47_FLAGS_DEFER_TLB_INVALIDATION_TRUE 1u

struct nvos54 {				/* control */
	u32 client, object, cmd, flags;
	u64 params;
	u32 params_size, status;
};
static_assert(sizeof(struct nvos54) == 32);
#define NVOS54_FLAGS_IRQL_RAISED	1
#define NVOS54_FLAGS_LOCK_BYPASS	2

struct nvos55 {				/* dup object */
	u32 client, parent, object, client_src, object_src, flags, status;
};
static_assert(sizeof(struct nvos55) == 28);

struct nvos56 {				/* update device mapping info */
	u32 client, device, memory;
	u64 old_address, new_address;
	u32 status;
};
static_assert(sizeof(struct nvos56) == 40);

struct nv_share_policy {		/* rs_access.h */
	u32 target, mask;
	u16 type;
	u8 action, pad;
};
static_assert(sizeof(struct nv_share_policy) == 12);
#define RS_SHARE_TYPE_ALL		1
#define RS_SHARE_TYPE_OS_SECURITY_TOKEN	2
#define RS_SHARE_TYPE_CLIENT		3
#define RS_SHARE_TYPE_PID		4
#define RS_SHARE_TYPE_MAX		8
#define RS_SHARE_ACTION_REVOKE		1
#define RS_SHARE_ACTION_REQUIRE		2
#define RS_SHARE_ACTION_COMPOSE		4
#define RS_ACCESS_DUP_OBJECT		0	/* bit number */
#define RS_ACCESS_DEBUG			2

struct nvos57 {				/* share */
	u32 client, object;
	struct nv_share_policy policy;
	u32 status;
};
static_assert(sizeof(struct nvos57) == 24);

struct nv_memory_params {		/* NV_MEMORY_ALLOCATION_PARAMS */
	u32 owner, type, flags, width, height;
	s32 pitch;
	u32 attr, attr2, format, compr, zcull;
	u64 range_lo, range_hi, size, align, offset, limit, address;
	u32 ctag, vaspace, internal_flags, tag;
	s32 numa;
};
static_assert(sizeof(struct nv_memory_params) == 128);
static_assert(offsetof(struct nv_memory_params, size) == 64);

struct nv_fabric_params {		/* NV00F8_ALLOCATION_PARAMETERS */
	u64 align, size, page;
	u32 flags;
	u64 offset;
	u32 memory, map_flags;
};
static_assert(sizeof(struct nv_fabric_params) == 48);
static_assert(offsetof(struct nv_fabric_params, memory) == 40);

#define NV00F8_ALLOC_FLAGS_FLEXIBLE_FLA	0x1

/* NVOS32_ATTR_* fields of attr and attr2 */
#define ATTR_PAGE_SIZE_SHIFT		23	/* 24:23 */
#define ATTR_PAGE_SIZE_MASK		(3u << 23)
#define ATTR_PAGE_SIZE_DEFAULT		0u
#define ATTR_PAGE_SIZE_4KB		1u
#define ATTR_PAGE_SIZE_BIG		2u
#define ATTR_PAGE_SIZE_HUGE		3u
#define ATTR_LOCATION_SHIFT		25	/* 26:25 */
#define ATTR_LOCATION_MASK		(3u << 25)
#define ATTR_LOCATION_VIDMEM		0u
#define ATTR_LOCATION_PCI		1u
#define ATTR_LOCATION_ANY		3u
#define ATTR_PHYSICALITY_SHIFT		27	/* 28:27 */
#define ATTR_PHYSICALITY_MASK		(3u << 27)
#define ATTR_PHYSICALITY_NONCONTIGUOUS	1u
#define ATTR_PHYSICALITY_CONTIGUOUS	2u
#define ATTR2_ZBC_PREFER_NO		1u	/* 1:0 */
#define ATTR2_CACHEABLE_MASK		(3u << 2)	/* 3:2 */
#define ATTR2_CACHEABLE_YES		(1u << 2)
#define ATTR2_CACHEABLE_NO		(2u << 2)
#define ATTR2_PAGE_SIZE_HUGE_2MB	(1u << 20)	/* 21:20 */
#define ATTR2_PAGE_SIZE_HUGE_512MB	(2u << 20)
#define ATTR2_PAGE_SIZE_HUGE_MASK	(3u << 20)
#define ATTR2_FIXED_NUMA_NODE_ID	(1u << 7)
#define ATTR2_LOCALIZED			(3u << 29)	/* ENABLE_LOCALIZED_MEMORY */
#define ATTR2_FIRMWARE_KNOWS		(1u << 31)	/* REGISTER_MEMDESC_TO_PHYS_RM */

struct nv_device_params {		/* NV0080_ALLOC_PARAMETERS */
	u32 device_id, client_share, target_client, target_device;
	u32 flags;
	u64 va_space_size, va_start, va_limit;
	u32 va_mode;
};
static_assert(sizeof(struct nv_device_params) == 56);

struct nv_event_params {		/* NV0005_ALLOC_PARAMETERS */
	u32 parent_client, src_resource, class, notify_index;
	u64 data;
};
static_assert(sizeof(struct nv_event_params) == 24);

#define NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED	0x8
#define NV_VASPACE_ALLOCATION_FLAGS_IS_FLA	0x200
#define NV_VASPACE_ALLOCATION_INDEX_GPU_NEW	0
#define NV_VASPACE_ALLOCATION_INDEX_GPU_HOST	1
#define NV_VASPACE_ALLOCATION_INDEX_GPU_GLOBAL	2
#define NV_VASPACE_ALLOCATION_INDEX_GPU_DEVICE	3
#define NV_VASPACE_ALLOCATION_INDEX_GPU_FLA	4

struct nv_vaspace_params {		/* NV_VASPACE_ALLOCATION_PARAMETERS */
	u32 index, flags;
	u64 size, start_internal, limit_internal;
	u32 big_page_size;
	u64 base;
	u32 pasid;
};
static_assert(sizeof(struct nv_vaspace_params) == 56);

struct nv_tsg_params {	/* NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS */
	u32 error_object, ecc_object, vaspace, engine;
	u8 is_calling_context;
};
static_assert(sizeof(struct nv_tsg_params) == 20);
#define NV2080_ENGINE_TYPE_GRAPHICS	1
#define NV2080_ENGINE_TYPE_SEC2		0x26
#define NV2080_ENGINE_TYPE_MOST		0x53

struct nv_ctxshare_params {		/* NV_CTXSHARE_ALLOCATION_PARAMETERS */
	u32 vaspace, flags, subctx;
};

/* NV_CHANNEL_ALLOC_PARAMS: 368 bytes, what the stand-in looks at */
struct nv_channel_params {
	u32 error_object, object_buffer;
	u64 gpfifo_offset;
	u32 gpfifo_entries, flags;
	u32 context_share, vaspace;
	u32 userd_memory[8];
	u64 userd_offset[8];
	u32 engine, cid, subdevice, ecc_object;
	u8 rest[224];
};
static_assert(sizeof(struct nv_channel_params) == 368);
#define NVOS04_FLAGS_CC_SECURE		(1u << 2)
static_assert(offsetof(struct nv_channel_params, engine) == 128);

struct nv_debugger_params {		/* NV83DE_ALLOC_PARAMETERS */
	u32 debugger_client, app_client, class3d;
};

struct nv_context_dma_params {		/* NV_CONTEXT_DMA_ALLOCATION_PARAMS */
	u32 subdevice, flags, memory;
	u64 offset, limit;
};
static_assert(sizeof(struct nv_context_dma_params) == 32);

#define NVOS03_FLAGS_TYPE_MASK		(15u << 20)
#define NVOS03_FLAGS_TYPE_NOTIFIER	(1u << 20)

struct nv_session_params {		/* NVA0BC_ALLOC_PARAMETERS */
	u32 codec, width, height, version, memory;
};
static_assert(sizeof(struct nv_session_params) == 20);
#define NVA0BC_ALLOC_PARAMS_VER_1	1

struct nv_surface_params {		/* NV_SEMAPHORE_SURFACE_ALLOC_PARAMETERS */
	u32 memory, submitted;
	u64 flags;
};
static_assert(sizeof(struct nv_surface_params) == 16);

struct nv_peers_params {			/* NV503B_ALLOC_PARAMETERS */
	u32 subdevice, peer, masks[2];
	u64 mailbox;
	u32 mailbox_size, flags, egm_masks[2];
	struct { u64 address, size; } to_peer, from_peer;	/* by BAR1 */
};
static_assert(sizeof(struct nv_peers_params) == 72);

struct nv_mapper_params {		/* NV_MEMORY_MAPPER_ALLOCATION_PARAMS */
	u32 semaphore_surface, queue, notification;
	u64 offset;
};
static_assert(sizeof(struct nv_mapper_params) == 24);

/* classes, class/cl*.h */
#define NV01_ROOT			0x00000000
#define NV01_ROOT_NON_PRIV		0x00000001
#define NV01_CONTEXT_DMA		0x00000002
#define NV01_EVENT			0x00000005
#define NV01_MEMORY_SYSTEM		0x0000003e
#define NV01_MEMORY_LOCAL_PRIVILEGED	0x0000003f
#define NV01_MEMORY_LOCAL_USER		0x00000040
#define NV01_ROOT_CLIENT		0x00000041
#define NV01_MEMORY_VIRTUAL		0x00000070
#define NV01_MEMORY_SYSTEM_OS_DESCRIPTOR 0x00000071
#define NV01_EVENT_OS_EVENT		0x00000079
#define NV01_DEVICE_0			0x00000080
#define NV01_MEMORY_LOCAL_PHYSICAL	0x000000c2
#define NV_SEMAPHORE_SURFACE		0x000000da
#define RM_USER_SHARED_DATA		0x000000de
#define NV_MEMORY_FABRIC		0x000000f8
#define NV20_SUBDEVICE_0		0x00002080
#define NV50_MEMORY_VIRTUAL		0x000050a0
#define GT200_DEBUGGER			0x000083de
#define FERMI_CONTEXT_SHARE_A		0x00009067
#define FERMI_VASPACE_A			0x000090f1
#define KEPLER_CHANNEL_GROUP_A		0x0000a06c
#define HOPPER_USERMODE_A		0x0000c661

/* UVM requests, uvm_ioctl.h */
#define UVM_INITIALIZE			0x30000001
#define UVM_DEINITIALIZE		0x30000002
#define UVM_CREATE_RANGE_GROUP		23
#define UVM_DESTROY_RANGE_GROUP		24
#define UVM_REGISTER_GPU_VASPACE	25
#define UVM_UNREGISTER_GPU_VASPACE	26
#define UVM_REGISTER_CHANNEL		27
#define UVM_UNREGISTER_CHANNEL		28
#define UVM_ENABLE_PEER_ACCESS		29
#define UVM_SET_RANGE_GROUP		31
#define UVM_MAP_EXTERNAL_ALLOCATION	33
#define UVM_FREE			34
#define UVM_REGISTER_GPU		37
#define UVM_UNREGISTER_GPU		38
#define UVM_PAGEABLE_MEM_ACCESS		39
#define UVM_SET_PREFERRED_LOCATION	42
#define UVM_UNSET_PREFERRED_LOCATION	43
#define UVM_ENABLE_READ_DUPLICATION	44
#define UVM_DISABLE_READ_DUPLICATION	45
#define UVM_SET_ACCESSED_BY		46
#define UVM_UNSET_ACCESSED_BY		47
#define UVM_MIGRATE			51
#define UVM_MAP_DYNAMIC_PARALLELISM_REGION 65
#define UVM_UNMAP_EXTERNAL		66
#define UVM_ALLOC_SEMAPHORE_POOL	68
#define UVM_VALIDATE_VA_RANGE		72
#define UVM_CREATE_EXTERNAL_RANGE	73
#define UVM_MM_INITIALIZE		75

#define UVM_INIT_FLAGS_MULTI_PROCESS_SHARING_MODE 2
#define UVM_INIT_FLAGS_MASK		3
#define UVM_MAX_GPUS			256

struct uvm_gpu_attributes {
	u8 uuid[16];
	u32 mapping_type, caching_type, format_type, element_bits, compression;
};
static_assert(sizeof(struct uvm_gpu_attributes) == 36);

struct uvm_map_external {
	u64 base, length, offset;
	struct uvm_gpu_attributes gpu[UVM_MAX_GPUS];
	u64 count;
	s32 ctrl_fd;
	u32 client, memory, status;
};
static_assert(sizeof(struct uvm_map_external) == 9264);

struct uvm_semaphore_pool {
	u64 base, length;
	struct uvm_gpu_attributes gpu[UVM_MAX_GPUS];
	u64 count;
	u32 status;
};
static_assert(sizeof(struct uvm_semaphore_pool) == 9248);

struct uvm_register_gpu {
	u8 uuid[16];
	u8 numa_enabled;
	s32 numa_node, ctrl_fd;
	u32 client, smc, status;
};
static_assert(sizeof(struct uvm_register_gpu) == 40);

struct uvm_register_vaspace {
	u8 uuid[16];
	s32 ctrl_fd;
	u32 client, vaspace, status;
};

struct uvm_register_channel {
	u8 uuid[16];
	s32 ctrl_fd;
	u32 client, channel;
	u64 base, length;
	u32 status;
};
static_assert(sizeof(struct uvm_register_channel) == 56);

struct uvm_migrate {
	u64 base, length;
	u8 uuid[16];
	u32 flags;
	u64 semaphore;
	u32 payload;
	s32 numa;
	u64 user_start, user_length;
	u32 status;
};
static_assert(sizeof(struct uvm_migrate) == 80);

#endif
