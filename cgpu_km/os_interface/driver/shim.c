// SPDX-License-Identifier: GPL-2.0
/*
 * Operations of the driver's files and mappings, called and covered. In each function real is a
 * file of the driver's that we have open, and file is one that it takes for its own.
 */
#include "shim.h"
#include "base/older.h"

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

vm_fault_t (*cgpu_shim_fault_handler(const struct vm_operations_struct *theirs))(struct vm_fault *)
{
	return theirs->fault;
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

/* The driver's operations, less what a program is not to have. */
CGPU_FITS(struct vm_operations_struct, cgpu_vm_operations);
void cgpu_shim_cover(struct cgpu_vm_operations *place, const struct vm_operations_struct *theirs,
		     const struct cgpu_covering *ours)
{
	struct vm_operations_struct *operations = (struct vm_operations_struct *)place;

	*operations = *theirs;
	operations->access = NULL;
	operations->close = ours->close;
	if (ours->open)
		operations->open = ours->open;
	if (ours->shows || ours->gated) {
		operations->huge_fault = NULL;
		operations->map_pages = NULL;
	}
	if (ours->shows)
		operations->mremap = may_move;
	if (ours->gated) {
		operations->fault = ours->fault;
		operations->may_split = may_split;
	} else if (ours->fault && operations->fault) {
		operations->fault = ours->fault;
	}
}

/* Of a mapping of a page that is counted: there is nothing to be done. */
const struct vm_operations_struct *cgpu_shim_no_operations(void)
{
	static const struct vm_operations_struct nothing;

	return &nothing;
}
