/* SPDX-License-Identifier: GPL-2.0 */
/* Types and functions that the fake_uvm*.c share. */
#ifndef FAKE_UVM_H
#define FAKE_UVM_H

#include <linux/mm.h>
#include <linux/rbtree.h>
#include "fake.h"

enum range_type { RANGE_MANAGED, RANGE_EXTERNAL, RANGE_SEMAPHORE,
		  RANGE_SKED };

#define PREFER_NOTHING	(-1)
#define PREFER_HOST	(-2)

/* UVM_VA_BLOCK_SIZE */
#define GRANULE		(2ull << 20)

/* an external range's mapping on one GPU: holds the memory alive */
struct ext_map {
	struct list_head list;
	u64 start, end;			/* inclusive, as in the driver */
	struct fake_gpu *gpu;
	struct fake_mem *mem;
	u32 pages;			/* PAGES_... */
};

/* sizes of pages, as bits: managed memory can be of the first two */

struct va_range {
	struct rb_node node;
	struct va_space *space;
	u64 start, end;			/* inclusive */
	enum range_type type;
	struct list_head maps;		/* struct ext_map */
	u32 tables;			/* fixed: a bit for each GPU */
	struct xarray pages;		/* of a pool, by page of the address */
	struct xarray blocks;		/* managed: by 2 MiB of the address */
	int preferred;			/* minor of a GPU, or PREFER_... */
	bool duplicated;		/* read duplication is on */
	bool zombie;			/* its process has ended */
	u64 group;
	bool cpu_mapped;		/* semaphore pool: mmap'ed now */
};

struct uvm_channel {
	struct list_head list;
	u32 client, channel;
	struct fake_gpu *gpu;
	struct fake_channel *retained;
};

struct va_space {
	struct rw_semaphore lock;
	u64 flags;
	struct mm_struct *mm;		/* NULL in sharing mode */
	bool mm_alive;
	struct rb_root ranges;
	u32 registered;			/* bit per GPU */
	u32 gpu_vaspace;		/* bit per GPU */
	struct list_head channels;
	struct xarray groups;
	struct table_users tables;
	u64 next_group;
	struct list_head list;		/* of all, for debugfs gpu_touch */
	pid_t tgid;
};

enum uvm_type { UVM_FD_UNINITIALIZED, UVM_FD_INITIALIZING, UVM_FD_VA_SPACE,
		UVM_FD_MM };

struct uvm_file {
	atomic_t type;
	struct va_space *space;
	struct file *other;		/* UVM_FD_MM: the va_space's file */
	struct address_space mapping;
};

static inline bool range_invalid_4k(u64 base, u64 length)
{
	return !base || !length || base & 0xfff || length & 0xfff ||
	       base + length < base;
}

struct va_range *range_find(struct va_space *s, u64 addr);
struct va_range *range_from(struct va_space *s, u64 addr);
void range_insert(struct va_space *s, struct va_range *fresh);
u32 range_create(struct va_space *s, u64 base, u64 length,
		 enum range_type type, struct va_range **out);
void range_destroy(struct va_space *s, struct va_range *r);
void range_destroy_all(struct va_space *s);
u32 range_free(struct va_space *s, u64 base, u64 length);
u32 range_map_external(struct va_space *s, struct uvm_map_external *p);
u32 range_unmap_external(struct va_space *s, u64 base, u64 length,
			 const u8 *uuid);
u32 range_migrate(struct va_space *s, struct uvm_migrate *p);
bool ranges_managed(struct va_space *s, u64 base, u64 length);
void ranges_touch(struct va_space *s, struct fake_gpu *gpu, u64 base,
		  u64 length);
u32 ranges_prefer(struct va_space *s, u64 base, u64 length, const u8 *uuid);
u32 ranges_duplicate(struct va_space *s, u64 base, u64 length, bool to);
u32 ranges_group(struct va_space *s, u64 group, u64 base, u64 length);
void residency_move(struct va_range *r, struct fake_gpu *gpu, bool access,
		    u64 start, u64 end);
void residency_collapse(struct va_range *r);
void residency_unmap_remote(struct va_range *r, u32 of);
int residency_split(struct va_range *r, struct va_range *rest);
void residency_drop(struct va_range *r);
int fake_uvm_mmap(struct file *filp, struct vm_area_struct *vma);

#endif
