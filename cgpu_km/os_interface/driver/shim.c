// SPDX-License-Identifier: GPL-2.0
/*
 * Operations of the driver's files and mappings, called and covered. In each function real is a
 * file of the driver's that we have open, and file is one that it takes for its own.
 */
#include "shim.h"
#include "base/older.h"

#include <linux/workqueue.h>

/* get is nvidia_get_rm_ops(), which compares the version and fills the rest in. */
u32 cgpu_shim_driver_interface(void *get, nvidia_modeset_rm_ops_t *operations)
{
	u32 (*function)(nvidia_modeset_rm_ops_t *operations) = get;

	return function(operations);
}

/* A stack for calls. Not 0: there is no memory. It may be NULL without an error. */
int cgpu_shim_driver_stack(const nvidia_modeset_rm_ops_t *operations,
			   struct nvidia_stack_s **stack)
{
	return operations->alloc_stack(stack);
}

void cgpu_shim_drop_driver_stack(const nvidia_modeset_rm_ops_t *operations,
				 struct nvidia_stack_s *stack)
{
	operations->free_stack(stack);
}

/* op is in the part of the driver that knows no kernel, which is compiled without CONFIG_CFI. */
__nocfi void cgpu_shim_driver_call(const nvidia_modeset_rm_ops_t *operations,
				   struct nvidia_stack_s *stack, void *request)
{
	operations->op(stack, request);
}

bool cgpu_shim_is_character_device(const struct inode *inode)
{
	return S_ISCHR(inode->i_mode);
}

struct module *cgpu_shim_owner(const struct file *file)
{
	return file->f_op->owner;
}

int cgpu_shim_driver_open(const struct file *real, struct file *file)
{
	return real->f_op->open ? real->f_op->open(file_inode(real), file) : 0;
}

int cgpu_shim_driver_release(const struct file *real, struct inode *inode, struct file *file)
{
	return real->f_op->release ? real->f_op->release(inode, file) : 0;
}

long cgpu_shim_driver_ioctl(const struct file *real, struct file *file, unsigned int cmd,
			    unsigned long arg)
{
	if (!real->f_op->unlocked_ioctl)
		return -ENOTTY;
	return real->f_op->unlocked_ioctl(file, cmd, arg);
}

int cgpu_shim_driver_mmap(const struct file *real, struct file *file, struct vm_area_struct *vma)
{
	bool locked = vma->vm_flags & VM_LOCKED;
	int err = real->f_op->mmap ? real->f_op->mmap(file, vma) : -ENODEV;

	/*
	 * Branch 535 sets VM_LOCKED. The kernel clears the flag in mappings of I/O memory, but not
	 * when the driver is called after the mapping was entered (`mapped`). Then each unmapping
	 * would lower the count of locked memory, and keep references to pages the driver frees.
	 */
	if (!locked)
		vm_flags_clear(vma, VM_LOCKED);
	return err;
}

__poll_t cgpu_shim_driver_poll(const struct file *real, struct file *file,
			       struct poll_table_struct *table)
{
	return real->f_op->poll ? real->f_op->poll(file, table) : EPOLLERR;
}

vm_fault_t cgpu_shim_driver_fault(const struct vm_operations_struct *theirs, struct vm_fault *vmf)
{
	return theirs->fault ? theirs->fault(vmf) : VM_FAULT_SIGBUS;
}

void cgpu_shim_open_mapping(const struct vm_operations_struct *theirs, struct vm_area_struct *vma)
{
	if (theirs->open)
		theirs->open(vma);
}

void cgpu_shim_close_mapping(const struct vm_operations_struct *theirs,
			     struct vm_area_struct *vma)
{
	if (theirs->close)
		theirs->close(vma);
}

static int may_split(struct vm_area_struct *vma, unsigned long address)
{
	return -EINVAL;
}

/*
 * A mapping of counted pages does not move: it could come to where the driver is about to pin pages
 * (files/pinned.rs). Nobody can pin frames.
 */
static int may_move(struct vm_area_struct *vma)
{
	return vma->vm_flags & VM_PFNMAP ? 0 : -EINVAL;
}

struct covered {
	struct vm_operations_struct table;	/* first: vm_ops points here */
	struct cgpu_covering ours;
};

static const struct cgpu_covering *of(const struct vm_area_struct *vma)
{
	return &container_of(vma->vm_ops, struct covered, table)->ours;
}

CGPU_CALLS_RUST static void open_mapping(struct vm_area_struct *vma)
{
	of(vma)->open(vma);
}

CGPU_CALLS_RUST static void close_mapping(struct vm_area_struct *vma)
{
	of(vma)->close(vma);
}

CGPU_CALLS_RUST static vm_fault_t serve_fault(struct vm_fault *vmf)
{
	return of(vmf->vma)->fault(vmf);
}

/* The driver's operations, less what a program is not to have. */
CGPU_FITS(struct covered, cgpu_vm_operations);
void cgpu_shim_cover(struct cgpu_vm_operations *place, const struct vm_operations_struct *theirs,
		     const struct cgpu_covering *ours)
{
	struct covered *covered = (struct covered *)place;
	struct vm_operations_struct *operations = &covered->table;

	*covered = (struct covered) { .table = *theirs, .ours = *ours };
	operations->access = NULL;
	operations->close = close_mapping;
	if (ours->open)
		operations->open = open_mapping;
	if (ours->shows || ours->gated) {
		operations->huge_fault = NULL;
		operations->map_pages = NULL;
	}
	if (ours->shows)
		operations->mremap = may_move;
	if (ours->gated) {
		operations->fault = serve_fault;
		operations->may_split = may_split;
	} else if (ours->fault && operations->fault) {
		operations->fault = serve_fault;
	}
}

/* The work for pages that are brought up to date again and again, for all tenants. */
static struct workqueue_struct *pages;

struct page_work {
	struct delayed_work work;
	void (*run)(struct cgpu_page_work *place);
};

int cgpu_shim_start_pages(void)
{
	pages = alloc_workqueue("cgpu-pages", WQ_UNBOUND, WQ_MAX_ACTIVE);
	return pages ? 0 : -ENOMEM;
}

/* No page is left. */
void cgpu_shim_stop_pages(void)
{
	destroy_workqueue(pages);
}

CGPU_CALLS_RUST static void do_page_work(struct work_struct *work)
{
	struct page_work *page = container_of(to_delayed_work(work), struct page_work, work);

	page->run((struct cgpu_page_work *)page);
}

CGPU_FITS(struct page_work, cgpu_page_work);
void cgpu_shim_init_page_work(struct cgpu_page_work *place,
			      void (*run)(struct cgpu_page_work *place))
{
	struct page_work *page = (struct page_work *)place;

	page->run = run;
	INIT_DELAYED_WORK(&page->work, do_page_work);
}

void cgpu_shim_queue_page_work(struct cgpu_page_work *place, unsigned int milliseconds)
{
	struct page_work *page = (struct page_work *)place;

	queue_delayed_work(pages, &page->work, msecs_to_jiffies(milliseconds));
}

/* Also where it puts itself into the queue again. */
void cgpu_shim_end_page_work(struct cgpu_page_work *place)
{
	cancel_delayed_work_sync(&((struct page_work *)place)->work);
}

/* Of a mapping of a page that is counted: there is nothing to be done. */
const struct vm_operations_struct *cgpu_shim_no_operations(void)
{
	static const struct vm_operations_struct nothing;

	return &nothing;
}
