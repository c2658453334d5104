/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Types and functions that the files of the stand-in driver share.
 *
 * Locks, outermost first:
 *   fake_va_space.lock   one UVM address space
 *   rm_lock              the driver's RM API lock: clients, objects, events
 *   fake_file.map_lock   the mmap context of one file
 *   fake_gpu.lock        heap figures (spinlock, taken anywhere)
 *   fake_engine.lock     the compute engine (spinlock, also taken by its timer)
 * User memory is never touched under any of them, since mmap and faults run
 * under mmap_lock and take va_space.lock or map_lock.
 */
#ifndef FAKE_H
#define FAKE_H

#include <linux/atomic.h>
#include <linux/bitmap.h>
#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/list.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/refcount.h>
#include <linux/seq_file.h>
#include <linux/rwsem.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/xarray.h>
#include "../gpu_model/model.h"
#include "fake_nv.h"

#ifndef HAS_vm_flags_set
static inline void vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags)
{
	vma->vm_flags &= ~flags;
}
#endif

#define FAKE_VERSION		"580.159.04"	/* that of the recordings */
extern char *fake_version;		/* what it says */
#define FAKE_BAR_PAGES		1024	/* pages behind a GPU's BAR1, one for 2 MiB */
#define FAKE_BELL_PAGES		16	/* the 64 KiB doorbell region ... */
#define FAKE_MEMORY_PAGES	(FAKE_BAR_PAGES - FAKE_BELL_PAGES)	/* of BAR1 */
#define FAKE_BAR1_BELL		((u64)FAKE_MEMORY_PAGES << PAGE_SHIFT)	/* in BAR1 */
#define FAKE_BELL_OFFSET	0xbb0000	/* ... in BAR0, as recorded */
#define FAKE_BAR0_SIZE		0x1000000
#define FAKE_SYSMEM_PAGES	256	/* distinct pages of a sysmem object */
#define FAKE_CHANNELS		2048
#define FAKE_FIRST_CHANNEL	10	/* as recorded */
#define FAKE_CONTEXT_KIB	4416	/* unseen cost of one context ... */
#define FAKE_CONTEXT_SHARED_KIB	3328	/* ... and of having any: 7,744 */

struct fake_file;
struct fake_client;
struct fake_object;

/* the figures of a kind of GPU */
struct fake_board {
	const char *word, *name;
	u32 device_id;
	u32 fb_mib, tax_kib;		/* TOTAL_RAM_SIZE, less HEAP_SIZE */
	u64 aperture;			/* bytes of BAR1 */
	u32 bar1_kib, bar1_free_kib;	/* as FB_GET_INFO has it */
	u32 bus_width, l2_bytes, ltcs, slices;
};

struct fake_gpu {
	u32 minor, device_instance, gpu_id, interrupt;
	u32 pci_domain;
	u8 pci_bus, pci_slot;
	u8 uuid[16];
	u64 bar0, bar1;			/* physical addresses as told */
	u64 bar1_next;
	u64 bar1_used;			/* by mappings, under rm_lock */
	spinlock_t lock;		/* the figures below */
	u64 total, heap;		/* bytes */
	u64 used, managed, peak;
	u64 resident;			/* of managed */
	u64 tables;			/* page tables of UVM's */
	u64 ranges;			/* and RM's, of ranges and spaces */
	u64 pools;			/* of groups: fake_fifo.c */
	u32 contexts;
	u32 uvm_spaces;			/* that have it registered */
	unsigned long *map, *scrub;	/* 2 MiB blocks: taken; just freed */
	u32 map_bits;
	DECLARE_BITMAP(channels, FAKE_CHANNELS);	/* ids, under rm_lock */
	DECLARE_BITMAP(groups, FAKE_CHANNELS);
	struct page *bar;		/* FAKE_BAR_PAGES in a row */
	struct page *bell;		/* FAKE_BELL_PAGES in a row */
	struct page *rusd;
	struct fake_engine *engine;
	struct cdev cdev;
};

/* what lies under a memory object and its duplicates (MEMORY_DESCRIPTOR) */
enum fake_place { PLACE_VIDMEM, PLACE_SYSMEM, PLACE_REGISTERS,
		  PLACE_BAR1_REGISTERS /* of mappings alone */, PLACE_RUSD,
		  PLACE_VIRTUAL, PLACE_USER };
struct fake_mem {
	refcount_t ref;
	struct fake_gpu *gpu;
	enum fake_place place;
	u64 size, offset;
	u64 page;			/* bytes of the pages that it is of */
	u64 tables;			/* PLACE_VIRTUAL: its page tables */
	struct fake_lazy *lazy;		/* which come with what is mapped */
	u32 holders;			/* RM objects on it, under rm_lock */
	bool bar1_bell;			/* usermode region seen through BAR1 */
	bool read_only;			/* it was mapped so for the GPU */
	u32 npages;			/* distinct pages of sysmem */
	struct page **pages;
	u64 linear;			/* what sysmem's address is told as */
	struct mutex page_lock;
};

struct fake_map_context {		/* nv_alloc_mapping_context_t */
	bool valid;
	bool writeable;
	enum fake_place place;
	u64 start, size;		/* what was mapped, page aligned */
	struct fake_mem *mem;		/* sysmem only; a reference */
};

#define FAKE_SLICE_US	(128 << 3)	/* of a new group (kernel_fifo_gv100.c) */

struct fake_tsg {			/* a group of channels, or a copy of it */
	struct fake_group *group;	/* a reference */
	u64 timeslice;
	u32 notes[2];			/* handles: for errors, for ECC's */
	u32 legacy;			/* handle: the share of channels that name none */
	bool copied;
};

struct fake_export {			/* what an object stands for: a copy does */
	const struct fake_class *class;	/* NULL: the slot is empty */
	struct fake_mem *mem;
	struct fake_gpu *gpu;
	struct fake_tsg tsg;		/* of KIND_TSG */
};

/* nv_linux_file_private_t with nv_file_private_t in it */
struct fake_file {
	bool ctl;
	struct fake_gpu *gpu;
	struct list_head open;		/* of all GPU files */
	struct address_space mapping;
	struct mutex map_lock;
	struct fake_map_context map;
	struct fake_file *ctl_file;	/* NV_ESC_REGISTER_FD */
	struct file *ctl_filp;
	u32 num_attached;
	wait_queue_head_t wait;
	struct fake_export *exports;	/* slots; NULL: not an export file */
	u32 max_exports;
	u32 export_device;		/* NV_MAX_DEVICES: none in particular */
	u8 metadata[64];
};

enum fake_kind { KIND_PLAIN, KIND_ROOT, KIND_DEVICE, KIND_SUBDEVICE,
		 KIND_MEMORY, KIND_VIRTUAL, KIND_VASPACE, KIND_TSG,
		 KIND_CTXSHARE, KIND_CHANNEL, KIND_ENGINE, KIND_USERMODE,
		 KIND_RUSD, KIND_EVENT, KIND_DEBUGGER, KIND_P2P,
		 KIND_CONTEXT_DMA, KIND_MAPPER, KIND_PEERS,
		 KIND_SESSION, KIND_SURFACE,
		 KIND_REFUSED };

struct fake_class {
	u32 class;
	enum fake_kind kind;
	u32 params;			/* bytes copied, 0 none */
	bool optional;			/* NULL parameters are accepted */
	bool single;			/* one under each parent */
	u8 parents;			/* PARENT_* */
	bool admin;			/* RS_FLAGS_ALLOC_PRIVILEGED */
	const u16 *controls;		/* upper halves of its control numbers */
};
#define PARENT_ROOT	0x01
#define PARENT_DEVICE	0x02
#define PARENT_SUBDEVICE 0x04
#define PARENT_TSG	0x08
#define PARENT_CHANNEL	0x10
#define PARENT_ANY	0x80

struct fake_object {
	u32 handle;
	const struct fake_class *class;
	struct fake_client *client;
	struct fake_object *parent;
	struct list_head children, sibling;
	struct list_head dependants;	/* of struct fake_dep by .on */
	struct list_head depends;	/* by .who */
	struct fake_gpu *gpu;
	struct fake_mem *mem;
	struct list_head maps;		/* CPU mappings: struct fake_cpu_map */
	struct nv_share_policy policy[4];
	u32 policies;
	u32 bonds;			/* KIND_SURFACE: channels */
	/* struct fake_registered: KIND_P2P by .with, memory by .of */
	struct list_head registered;
	bool room, stream;		/* a profiler: for streams, and with one */
	union {
		struct fake_tsg tsg;
		struct {
			struct fake_channel *channel;
			u32 model;	/* in the engine, or GM_NONE */
			bool disabled;
			struct page *userd;	/* or NULL */
			u32 userd_at, entries;
			struct fake_mem *userd_mem;	/* host memory: a reference */
		} channel;
		struct { u32 type; } engine;	/* KIND_ENGINE: NV2080 */
		struct { u32 share; } device;	/* hClientShare */
		struct { bool fabric; } space;	/* KIND_VASPACE */
		struct { struct fake_object *memory; u32 handle; } session;
		struct fake_mem *surface;	/* a reference */
		/* PERF_BOOST; its number below the device */
		struct { bool boosted; u32 number; } subdevice;
		struct { u32 fd; } event;
		struct { u32 client; } debugger;	/* the driver's own */
	};
};

struct fake_registered {		/* CLI_THIRD_PARTY_P2P_VIDMEM_INFO */
	struct list_head with, of;
	u32 memory;
	u64 start, last;
};

struct fake_dep {			/* refAddDependant() */
	struct list_head on, who;
	struct fake_object *target, *dependant;
};

struct fake_cpu_map {
	struct list_head list;
	u64 address, size;
	u64 bar1;			/* what it takes of it */
	/* the device or subdevice of the call, if the object is not below it */
	const struct fake_object *by;
};

struct fake_client {
	u32 handle;
	struct fake_file *file;		/* pOSInfo: the ctl file */
	pid_t pid;			/* ProcID: tgid, initial namespace */
	struct pid *tgid;		/* the same, for other namespaces */
	kuid_t euid;
	struct xarray objects;
	struct fake_object *root;
	u32 next_generated;
	u32 gss;			/* GSS legacy controls on it */
	struct nv_share_policy policy[8];	/* inherited share policies */
	u32 policies;
};

struct fake_sec {			/* API_SECURITY_INFO */
	struct fake_file *file;		/* clientOSInfo */
	bool admin;
	bool kernel;			/* RS_PRIV_LEVEL_KERNEL: no file */
};

struct fake_call {			/* what read_log gets */
	char node[8];
	u32 nr, outer, what, client, object, read, status;
	u32 parent, peer;	/* of a duplicate: its source and whose it is;
				 * of an export or import: whose the file is */
	u64 bytes, sum;		/* sum: fake_sum() of what was read nested */
};

/* fake_board.c */
extern const struct fake_board *fake_board;	/* of all GPUs here */
int fake_board_init(void);
void fake_place(struct fake_gpu *gpu);

/* fake_main.c */
extern struct fake_gpu *fake_gpus;
extern unsigned int gpus, fail_open, slow_open_ms;
extern struct file_operations nvidia_fops;
extern const struct file_operations uvm_fops;
extern struct cdev fake_cdev_ctl, fake_cdev_uvm;
extern dev_t fake_uvm_dev;
extern struct mutex rm_lock;
struct fake_gpu *fake_gpu_by_minor(u32 minor);
struct fake_gpu *fake_gpu_by_instance(u32 instance);
struct fake_gpu *fake_gpu_at(u32 domain, u8 bus, u8 slot);
struct fake_gpu *fake_gpu_by_id(u32 id);
struct fake_gpu *fake_gpu_by_uuid(const u8 *uuid);
void *fake_zalloc(size_t size);
void fake_free(const void *p);
extern atomic64_t fake_bytes, fake_allocations;
extern atomic_t fake_files, fake_mappings, fake_events, fake_faults, fake_held_maps;
/* Files of other GPUs that kernel threads were seen to have in their tables. */
extern atomic_t fake_others_files;

/* fake_file.c */
struct fake_file *fake_fget(int fd, bool ctl, struct file **filp);
bool fake_gpu_accessible(struct fake_gpu *gpu);
int fake_open_faults(void);
void fake_revoke(u32 minor);

/* fake_mmap.c */
int fake_mmap(struct file *filp, struct vm_area_struct *vma);
struct page *fake_bar_page(const struct fake_gpu *gpu, u64 place, u64 at);
void fake_map_reset(struct fake_file *file);
u32 fake_map_add(int fd, struct fake_gpu *gpu, enum fake_place place,
		 u64 start, u64 size, struct fake_mem *mem, bool write);

/* A call whose parameters begin with its client's handle; returns its status. */
typedef u32 fake_escape_fn(void *arg, const struct fake_sec *sec,
			   struct fake_call *log);
fake_escape_fn fake_vid_heap, fake_alloc_memory, fake_context_dma;
fake_escape_fn fake_map_memory, fake_unmap_memory, fake_update_mapping;
fake_escape_fn fake_map_dma, fake_unmap_dma, fake_dup, fake_share;
fake_escape_fn fake_control, fake_registry;

/* fake_escape.c */
u32 fake_rm_ioctl(struct fake_file *file, u32 nr, void *arg, u32 size,
		  struct fake_call *log);

/* fake_rm.c */
extern struct xarray fake_clients;
struct fake_client *fake_client(u32 handle);
u32 fake_client_validate(u32 handle, const struct fake_sec *sec,
			 struct fake_client **client);
struct fake_object *fake_object(struct fake_client *client, u32 handle);
u32 fake_handle_assign(struct fake_client *client, u32 *handle);
u32 fake_object_new(struct fake_client *client, struct fake_object *parent,
		    u32 handle, const struct fake_class *class,
		    struct fake_object **out);
void fake_object_free(struct fake_object *object);
u32 fake_depend(struct fake_object *dependant, struct fake_object *target);
u32 fake_client_new(const struct fake_sec *sec, u32 *handle);
u32 fake_client_own(u32 *handle);
/* Under rm_lock: it is about to be freed. */
void fake_look_without_lock(u32 hclient, u32 hobject);
void fake_lookup_freed(const struct fake_object *o);
void fake_file_cleanup(struct fake_file *file);
u32 fake_free_object(u32 client, u32 object, const struct fake_sec *sec);

/* fake_class.c */
const struct fake_class *fake_class(u32 class);

/* fake_alloc.c */
bool fake_copy_in(void *to, u64 at, u32 size, const struct fake_sec *sec);
bool fake_copy_out(u64 at, const void *from, u32 size,
		   const struct fake_sec *sec);
u32 fake_params_in(void **params, u64 at, u32 size, const struct fake_sec *sec);
u32 fake_params_out(void *params, u64 at, u32 size, const struct fake_sec *sec);
u32 fake_alloc_object(u32 client, u32 parent, u32 *new, u32 class, u64 params,
		      u64 rights, const struct fake_sec *sec,
		      struct fake_call *log);
u32 fake_construct(struct fake_client *client, u32 parent, u32 *new,
		   const struct fake_class *class, void *params,
		   const struct fake_sec *sec, struct fake_call *log);
u32 fake_context_model(const struct fake_object *o);
u32 *fake_context_objects(const struct fake_object *o);

/* fake_space.c */
u32 fake_space_make(struct fake_object *o, struct nv_vaspace_params *p);
void fake_space_end(const struct fake_object *o);

/* fake_hold.c */
u32 fake_session_make(struct fake_object *o, const struct nv_session_params *p);
void fake_session_end(const struct fake_object *o);
u32 fake_surface_make(struct fake_object *o, const struct nv_surface_params *p);
void fake_surface_end(const struct fake_object *o);
void fake_registered_end(struct fake_object *o);
u32 fake_mapper_make(struct fake_object *o, const struct nv_mapper_params *p);
u32 fake_context_make(struct fake_object *o,
		      const struct nv_context_dma_params *p);
u32 fake_userd_make(struct fake_object *o, const struct nv_channel_params *p);
void fake_userd_end(const struct fake_object *o);

/* fake_heap.c */
u32 fake_mem_vid(struct fake_gpu *gpu, struct nv_memory_params *p,
		 struct fake_mem **out);
u32 fake_mem_sys(struct fake_gpu *gpu, struct nv_memory_params *p,
		 struct fake_mem **out);
u32 fake_mem_virt(struct fake_gpu *gpu, struct nv_memory_params *p,
		  struct fake_mem **out);
struct fake_mem *fake_mem_plain(struct fake_gpu *gpu, enum fake_place place,
				u64 size);
struct fake_mem *fake_mem_get(struct fake_mem *mem);
void fake_mem_put(struct fake_mem *mem);
struct page *fake_mem_page(struct fake_mem *mem, u64 index);
void fake_context(struct fake_gpu *gpu, u64 *held, bool make);
bool fake_pool(struct fake_gpu *gpu, s64 by);
u64 fake_overhead(const struct fake_gpu *gpu);
u64 fake_heap_free(struct fake_gpu *gpu);
bool fake_managed(struct fake_gpu *gpu, s64 by);
bool fake_tables(struct fake_gpu *gpu, s64 by);
bool fake_mem_tables(struct fake_mem *mem, s64 by);

/* fake_tables.c */
enum { PAGES_SMALL = 1, PAGES_BIG = 2, PAGES_HUGE = 4 };
struct table_users {
	struct xarray users;		/* how many use a table */
	bool (*take)(struct table_users *t, struct fake_gpu *gpu, s64 by);
};
bool tables_get(struct table_users *t, struct fake_gpu *gpu, u64 start, u64 end,
		u32 pages);
void tables_put(struct table_users *t, struct fake_gpu *gpu, u64 start, u64 end,
		u32 pages);
u32 tables_pages(u64 base, u64 length, u64 offset, u64 page);

/* fake_lazy.c */
struct fake_lazy;
bool fake_lazy_make(struct fake_mem *range);
void fake_lazy_end(struct fake_mem *range);
u32 fake_lazy_map(struct fake_mem *range, struct nvos46 *p);
void fake_lazy_unmap(struct fake_mem *range, u64 at);

/* of an address space that RM manages: measured on an H200 */
#define FAKE_SPACE_TABLES	(20ull << 10)

void fake_managed_resident(struct fake_gpu *gpu, s64 by);
u64 fake_uvm_evict(struct fake_gpu *gpu, u64 want);
void fake_uvm_space(struct fake_gpu *gpu, bool more);
int fake_heap_init(struct fake_gpu *gpu);
void fake_heap_exit(struct fake_gpu *gpu);

/* fake_map.c */
void fake_cpu_map_free(struct fake_gpu *gpu, struct fake_cpu_map *map);
void fake_maps_end_by(const struct fake_object *device);
void fake_map_exit(void);

/* fake_share.c */
u32 fake_share_inherited(struct fake_client *client,
			 const struct nv_share_policy *policy);
bool fake_may(struct fake_object *src, struct fake_client *dst, u32 mask);
bool fake_pid_owns(struct fake_object *src);
bool fake_can_copy(const struct fake_class *class);
void fake_describe(const struct fake_object *o, struct fake_export *e);
u32 fake_copy_object(struct fake_client *dst, u32 parent, u32 *handle,
		     const struct fake_export *from);

/* fake_export.c */
u32 fake_export_control(struct fake_client *client, u32 cmd, void *params,
			u32 *owner);
void fake_exports_drop(struct fake_file *file);

/* fake_ctrl.c */
struct fake_ctrl {
	struct fake_client *client;
	struct fake_object *object;
	const struct fake_sec *sec;
	struct fake_call *log;
	struct fake_gpu *gpu;
	u32 cmd, size;
	void *params;
	/* buffers that the parameters point to: copied before, if `in`, and after */
	struct fake_extra {
		u64 at;
		u32 size;
		bool in;
		void *data;
	} extra[3];
};
struct fake_ctrl_entry {
	u32 cmd, size;
	u32 (*pre)(struct fake_ctrl *c);	/* sets the extra buffers */
	u32 (*run)(struct fake_ctrl *c);	/* under rm_lock */
};
extern const struct fake_ctrl_entry fake_ctrl_root[], fake_ctrl_gpu[], fake_ctrl_hold[];

/* fake_wide.c */
const struct fake_ctrl_entry *fake_ctrl_wide(u32 cmd);
/* Harm that the machine might not survive, or the driver does not undo: it is counted instead. */
enum fake_harm { HARM_REGISTERS, HARM_NULL, HARM_ADMINISTRATOR, HARM_FIRMWARE,
		 HARM_INDEX, HARM_STACK, HARM_SPACE, HARM_PLACE, HARM_STALE,
		 HARM_WAIT, HARM_FREED, HARM_LOST, HARM_HOST };
void fake_harm(enum fake_harm what);
void fake_gss(struct fake_client *client);
int fake_settings_show(struct seq_file *m, void *v);
int fake_boosts_show(struct seq_file *m, void *v);
void fake_boost_end(struct fake_object *o);
int fake_clients_show(struct seq_file *m, void *v);

/* fake_fifo.c; all under rm_lock */
struct fake_group;
struct fake_channel;
u32 fake_group_new(struct fake_gpu *gpu, u32 engine, pid_t pid,
		   struct fake_group **out);
struct fake_group *fake_group_get(struct fake_group *group);
void fake_group_put(struct fake_group *group);
u32 fake_group_model(const struct fake_group *group, const struct fake_gpu *gpu);
u32 *fake_group_objects(struct fake_group *group);
u32 fake_channel_new(struct fake_group *group, struct fake_channel **out);
struct fake_channel *fake_channel_get(struct fake_channel *channel);
void fake_channel_put(struct fake_channel *channel);
struct fake_group *fake_channel_group(const struct fake_channel *channel);
u32 fake_channel_id(const struct fake_channel *channel);
u32 fake_channel_runlist(const struct fake_channel *channel);

/* fake_engine.c */
struct fake_engine_call { u64 done; };
extern const struct file_operations fake_work_fops;
u32 fake_engine_group(struct fake_gpu *gpu, u64 slice_us, pid_t pid);
void fake_engine_group_free(struct fake_gpu *gpu, u32 group);
u32 fake_engine_channel(struct fake_gpu *gpu, u32 group, u32 id);
void fake_engine_channel_free(struct fake_gpu *gpu, u32 channel, u32 id);
void fake_engine_begin(struct fake_gpu *gpu, enum gm_driver_call what,
		       struct fake_engine_call *call);
void fake_engine_end(const struct fake_engine_call *call);
void fake_engine_timeslice(struct fake_gpu *gpu, u32 group, u64 slice_us);
void fake_engine_switch(struct fake_gpu *gpu, u32 channel, bool off);
void fake_engine_preempt(struct fake_gpu *gpu, u32 group);
void fake_engine_drain(struct fake_gpu *gpu);
void fake_engine_waits(struct fake_gpu *gpu, u32 group, bool waits);
u32 fake_engine_sample(struct fake_gpu *gpu, u32 index, u64 *stamp, pid_t *pid,
		       u32 *busy);
int fake_engine_show(struct seq_file *m, void *v);
int fake_engine_init(struct fake_gpu *gpu);
void fake_engine_exit(struct fake_gpu *gpu);

/* fake_event.c */
u32 fake_os_event(struct fake_file *file, struct nv_os_event *p, bool add);
bool fake_os_event_exists(u32 client, u32 fd);
u32 fake_os_events_count(u32 client);
void fake_os_events_of_client(u32 client);
void fake_os_events_of_file(struct fake_file *file);

/* fake_uvm.c, fake_uvm_range.c */
void fake_uvm_touch(struct fake_gpu *gpu, u64 base, u64 length);

/* fake_answers.c */
#define ANSWER_ESCAPE	1
#define ANSWER_CONTROL	2
#define ANSWER_UVM	3	/* of what has none */
bool fake_answer(u32 kind, u32 cmd, void *data, u32 size, int *ret,
		 u32 *status);
int fake_answers_load(const u8 *blob, size_t size);
void fake_answers_clear(void);
void fake_unanswered(u32 kind, u32 cmd, u32 size);
int fake_unanswered_show(struct seq_file *m, void *v);
void fake_unanswered_clear(void);
int fake_answers_show(struct seq_file *m, void *v);

/* fake_log.c */
u64 fake_sum(const void *bytes, u32 size);
void fake_log(const struct fake_call *call);
int fake_log_show(struct seq_file *m, void *v);
void fake_log_clear(void);
int fake_log_init(void);
void fake_log_exit(void);

/* fake_debugfs.c */
enum fake_node { NODE_CTL, NODE_UVM, NODE_GPU0 };
void fake_count_open(int node, int result);
void fake_count_close(int node);
int fake_debugfs_init(void);
void fake_debugfs_exit(void);

/* fake_procfs.c */
int fake_procfs_init(void);
void fake_procfs_exit(void);

#endif
