// SPDX-License-Identifier: GPL-2.0
/* The operations of an open file of a node; fields of a file that is opened or closed. */
#include "shim.h"
#include "base/older.h"
#include "base/shim.h"

#include <linux/file.h>
#include <linux/hash.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/task_work.h>

/* Operations of one file, and Rust's functions for it. */
struct operations {
	struct file_operations table;	/* first: f_op points here */
	const struct cgpu_file_callbacks *ours;
};

static const struct cgpu_file_callbacks *of(const struct file *file)
{
	return container_of(file->f_op, struct operations, table)->ours;
}

CGPU_CALLS_RUST static int release_file(struct inode *inode, struct file *file)
{
	return of(file)->release(inode, file);
}

CGPU_CALLS_RUST static long call_file(struct file *file, unsigned int cmd, unsigned long arg)
{
	return of(file)->ioctl(file, cmd, arg);
}

CGPU_CALLS_RUST static long compat_call_file(struct file *file, unsigned int cmd, unsigned long arg)
{
	return of(file)->compat_ioctl(file, cmd, arg);
}

CGPU_CALLS_RUST static int map_file(struct file *file, struct vm_area_struct *vma)
{
	return of(file)->mmap(file, vma);
}

CGPU_CALLS_RUST static __poll_t poll_file(struct file *file, struct poll_table_struct *table)
{
	return of(file)->poll(file, table);
}

/* Memory that the driver is about to pin, for as long as a task's call lasts. */
struct pinned_range {
	struct hlist_node list;
	struct mm_struct *mm;
	unsigned long start, end;
};
/* By address space, so that nobody walks what the programs of others have pinned. */
#define PINNED_BITS 8
static struct pinned_ranges {
	spinlock_t lock;
	struct hlist_head list;
} pinned_ranges[1 << PINNED_BITS] = {
	[0 ... (1 << PINNED_BITS) - 1] = { .lock = __SPIN_LOCK_UNLOCKED(pinned_ranges) },
};

static struct pinned_ranges *pinned_in(const struct mm_struct *mm)
{
	return &pinned_ranges[hash_ptr(mm, PINNED_BITS)];
}

/* Whether a mapping that is being made is among such memory. */
static bool is_pinned(const struct vm_area_struct *vma)
{
	struct pinned_ranges *pinned = pinned_in(vma->vm_mm);
	const struct pinned_range *range;
	bool found = false;

	spin_lock(&pinned->lock);
	hlist_for_each_entry(range, &pinned->list, list)
		found |= range->mm == vma->vm_mm && range->start < vma->vm_end &&
			 vma->vm_start < range->end;
	spin_unlock(&pinned->lock);
	return found;
}

/* Has what the kernel has entered made, if it may be there. */
CGPU_CALLS_RUST static int make(struct file *file, struct vm_area_struct *vma)
{
	/* As the driver's mmap where a page cannot be put in. */
	return is_pinned(vma) ? -EAGAIN : of(file)->entered(file, vma);
}

#ifdef HAS_mapped
/* The kernel has entered a mapping. An error takes it away again. */
static int mapped(unsigned long start, unsigned long end, pgoff_t page, const struct file *file,
		  void **private)
{
	/* The current task is making it, and has the lock of its address space. */
	struct vm_area_struct *vma = find_vma(current->mm, start);
	int result;

	if (!vma || vma->vm_file != file)
		return -EINVAL;
	result = make((struct file *)file, vma);
	/* The mapping gets what is there afterwards. */
	*private = vma->vm_private_data;
	return result;
}

static const struct vm_operations_struct not_made_yet = {
	.mapped = mapped,
};

static int prepare(struct vm_area_desc *wanted)
{
	if (!vma_desc_test(wanted, VMA_SHARED_BIT))
		return -EINVAL;
	/* The driver sets this too, but when a neighbour could have swallowed the mapping. */
	vma_desc_set_flags(wanted, VMA_DONTEXPAND_BIT);
	wanted->vm_ops = &not_made_yet;
	return 0;
}

static bool shows_objects(const struct file *file)
{
	return file->f_op->mmap_prepare == prepare;
}
#else
/*
 * Kernels before 7.1 call nothing when they have entered a mapping. There it is entered with
 * nothing in it, and the rest is done in the same task before its mmap() returns to the program.
 */
struct unmade_mapping {
	struct callback_head work;
	struct file *file;
	unsigned long start, length;
};

static vm_fault_t nothing_there(struct vm_fault *vmf)
{
	return VM_FAULT_SIGBUS;
}

static int stays_whole(struct vm_area_struct *vma, unsigned long address)
{
	return -EINVAL;
}

static int stays_here(struct vm_area_struct *vma)
{
	return -EINVAL;
}

static const struct vm_operations_struct not_made_yet = {
	.fault = nothing_there,
	.may_split = stays_whole,
	.mremap = stays_here,
};

static int is_taken(pte_t *entry, unsigned long address, void *taken)
{
	*(bool *)taken = !pte_none(ptep_get(entry));
	return *(bool *)taken;
}

/* 0: it is made, another thread has unmapped it meanwhile, or this one is killed. */
static int make_entered(struct unmade_mapping *unmade)
{
	struct mm_struct *mm = current->mm;
	struct vm_area_struct *vma;
	bool taken = false;
	int result = 0;

	if (!mm || mmap_write_lock_killable(mm))
		return 0;
	vma = find_vma(mm, unmade->start);
	if (vma && vma->vm_start == unmade->start && vma->vm_ops == &not_made_yet &&
	    vma->vm_private_data == unmade) {
		vma->vm_private_data = NULL;
		/* It is set; this keeps out faults that take no mmap_lock. */
		vm_flags_set(vma, VM_DONTEXPAND);
		/*
		 * Since Linux 6.7 another thread may have had userfaultfd put marks into its
		 * entries. The driver fills them as empty ones, and remap_pfn_range() stops the
		 * kernel where they are not (BUG_ON), with the driver's lock held.
		 */
		cgpu_shim_each_entry(mm, vma->vm_start, vma->vm_end, is_taken, &taken);
		result = taken ? -EAGAIN : make(unmade->file, vma);
		if (result) {
			cgpu_shim_zap_pages(vma);
			vma->vm_ops = &not_made_yet;
		}
	}
	mmap_write_unlock(mm);
	return result;
}

static void make_mapping(struct callback_head *work)
{
	struct unmade_mapping *unmade = container_of(work, struct unmade_mapping, work);
	struct pt_regs *regs = task_pt_regs(current);
	int result = make_entered(unmade);

	if (result) {
		vm_munmap(unmade->start, unmade->length);
		/* mmap() was going to return this address. */
		if (regs->ax == unmade->start)
			regs->ax = result;
	}
	fput(unmade->file);
	kfree(unmade);
}

static int map_shown(struct file *file, struct vm_area_struct *vma)
{
	struct unmade_mapping *unmade;
	int result;

	if (!(vma->vm_flags & VM_SHARED) || current->flags & PF_KTHREAD)
		return -EINVAL;
	unmade = kmalloc(sizeof(*unmade), GFP_KERNEL_ACCOUNT);
	if (!unmade)
		return -ENOMEM;
	*unmade = (struct unmade_mapping) {
		.file = get_file(file),
		.start = vma->vm_start,
		.length = vma->vm_end - vma->vm_start,
	};
	init_task_work(&unmade->work, make_mapping);
	result = task_work_add(current, &unmade->work, TWA_RESUME);
	if (result) {
		fput(file);
		kfree(unmade);
		return result;
	}
	/* As in `prepare` of later kernels. */
	vm_flags_set(vma, VM_DONTEXPAND);
	vma->vm_ops = &not_made_yet;
	vma->vm_private_data = unmade;
	return 0;
}

static bool shows_objects(const struct file *file)
{
	return file->f_op->mmap == map_shown;
}
#endif

/*
 * flock() and fcntl(): no file has a lock. The inode is the driver's, and it would have the locks
 * of all tenants and of the host's programs, which would wait for each other. To unlock does
 * nothing; the kernel does so for each file that is closed while anybody has a lock there.
 */
static int no_lock(struct file *file, int command, struct file_lock *lock)
{
	return lock_is_unlock(lock) ? 0 : -ENOLCK;
}

/*
 * Calls work(data) if the current task has no mapping of a file that shows objects between two
 * addresses. None is made there meanwhile: who makes one has the lock of the address space, and
 * sees the range, or is seen here.
 */
CGPU_CALLS_RUST void cgpu_shim_while_pinned(unsigned long start, unsigned long end,
					    void (*work)(void *), void *data)
{
	struct pinned_range range = { .mm = current->mm, .start = start, .end = end };
	struct pinned_ranges *pinned = pinned_in(range.mm);
	struct vm_area_struct *vma;
	VMA_ITERATOR(next, range.mm, start);
	bool found = false;

	if (!range.mm || start >= end)
		return;
	spin_lock(&pinned->lock);
	hlist_add_head(&range.list, &pinned->list);
	spin_unlock(&pinned->lock);
	mmap_read_lock(range.mm);
	/* Before Linux 6.2 this gives the mapping at the end, too. */
	for_each_vma_range(next, vma, end)
		found |= vma->vm_start < end && vma->vm_file && shows_objects(vma->vm_file);
	mmap_read_unlock(range.mm);
	if (!found)
		work(data);
	spin_lock(&pinned->lock);
	hlist_del(&range.list);
	spin_unlock(&pinned->lock);
}

/* The operations of a session's file. What the driver lacks stays missing. */
CGPU_FITS(struct operations, cgpu_file_operations);
void cgpu_shim_file_operations(struct cgpu_file_operations *place, const struct file *real,
			       const struct cgpu_file_callbacks *ours, bool shows)
{
	const struct file_operations *theirs = real->f_op;
	struct operations *operations = (struct operations *)place;
	struct file_operations *table = &operations->table;

	*operations = (struct operations) {
		.table = {
			.owner = THIS_MODULE,
			.release = release_file,
			.lock = no_lock,
			.flock = no_lock,
		},
		.ours = ours,
	};
	if (theirs->unlocked_ioctl)
		table->unlocked_ioctl = call_file;
	if (theirs->compat_ioctl)
		table->compat_ioctl = compat_call_file;
	if (theirs->poll)
		table->poll = poll_file;
	if (theirs->mmap && shows)
#ifdef HAS_mapped
		table->mmap_prepare = prepare;
#else
		table->mmap = map_shown;
#endif
	else if (theirs->mmap)
		table->mmap = map_file;
}

void *cgpu_shim_operations(const struct file *file)
{
	return (void *)file->f_op;
}

void cgpu_shim_set_file_operations(struct file *file, const void *operations)
{
	file->f_op = operations;
}

bool cgpu_shim_is_released_by(const struct file *file,
			      int (*release)(struct inode *inode, struct file *file))
{
	return file->f_op->release == release_file && of(file)->release == release;
}

/* Makes a file that nobody else can see one of that inode. */
void cgpu_shim_set_inode(struct file *file, struct inode *inode)
{
	file->f_inode = inode;
	file->f_mapping = inode->i_mapping;
	file->private_data = NULL;
}

/* A reference of a device that is open, and of its module, as cdev_get() takes them. */
bool cgpu_shim_take_cdev(struct cdev *cdev)
{
	struct module *owner = cdev->owner;

	if (!try_module_get(owner))
		return false;
	if (kobject_get_unless_zero(&cdev->kobj))
		return true;
	module_put(owner);
	return false;
}

void cgpu_shim_drop_cdev(struct cdev *cdev)
{
	struct module *owner = cdev->owner;

	kobject_put(&cdev->kobj);
	module_put(owner);
}

struct task_work {
	struct callback_head head;
	void (*work)(struct cgpu_task_work *place);
};

CGPU_CALLS_RUST static void do_task_work(struct callback_head *head)
{
	struct task_work *task_work = container_of(head, struct task_work, head);

	task_work->work((struct cgpu_task_work *)task_work);
}

/* Has the current task call work(place) before it returns to its program. */
CGPU_FITS(struct task_work, cgpu_task_work);
int cgpu_shim_before_return(struct cgpu_task_work *place,
			    void (*work)(struct cgpu_task_work *place))
{
	struct task_work *task_work = (struct task_work *)place;

	task_work->work = work;
	init_task_work(&task_work->head, do_task_work);
	return task_work_add(current, &task_work->head, TWA_RESUME);
}
