// SPDX-License-Identifier: GPL-2.0
/* Tables of operations of the scratch, and the lock of its mapping. */
#include "shim.h"
#include "base/older.h"

#include <linux/anon_inodes.h>
#include <linux/fcntl.h>
#include <linux/huge_mm.h>
#include <linux/mman.h>
#include <linux/mmap_lock.h>
#include <linux/module.h>

static void close_scratch(struct vm_area_struct *vma)
{
	if (cgpu_unseal(vma))
		cgpu_scratch_close(vma->vm_private_data);
}

static int may_split(struct vm_area_struct *vma, unsigned long address)
{
	return -EINVAL;
}

#ifndef HAS_VM_SEALED
static int may_move(struct vm_area_struct *vma)
{
	return -EPERM;
}

static int may_protect(struct vm_area_struct *vma, unsigned long start, unsigned long end,
		       unsigned long flags)
{
	return -EPERM;
}
#endif

static vm_fault_t serve_fault(struct vm_fault *vmf)
{
	return cgpu_scratch_fault(vmf);
}

static vm_fault_t serve_write(struct vm_fault *vmf)
{
	return cgpu_scratch_mkwrite(vmf);
}

static const struct vm_operations_struct scratch_mapping = {
	.close = close_scratch,
	.may_split = may_split,
#ifndef HAS_VM_SEALED
	.mremap = may_move,
	.mprotect = may_protect,
#endif
	.fault = serve_fault,
	.pfn_mkwrite = serve_write,
};

static int map_scratch(struct file *file, struct vm_area_struct *vma)
{
	int error;

	if (!cgpu_scratch_may_map(file->private_data, vma->vm_end - vma->vm_start))
		return -EPERM;
	error = cgpu_seal(vma);
	if (error)
		return error;
	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_private_data = file->private_data;
	vma->vm_ops = &scratch_mapping;
	return 0;
}

/*
 * An address for a mapping, if possible at the beginning of a page table. Nobody has a descriptor
 * of the file: at a fixed address it would be mapped by remap_file_pages or mremap alone.
 */
static unsigned long aligned_area(struct file *file, unsigned long address, unsigned long length,
				  unsigned long offset, unsigned long flags)
{
	if (flags & MAP_FIXED)
		return -EPERM;
#ifdef CONFIG_TRANSPARENT_HUGEPAGE
	return thp_get_unmapped_area(file, address, length, offset, flags);
#elif !defined(HAS_mm_get_unmapped_area)
	return current->mm->get_unmapped_area(file, address, length, offset, flags);
#elif defined(HAS_unmapped_area_of_mm)
	return mm_get_unmapped_area(current->mm, file, address, length, offset, flags);
#else
	return mm_get_unmapped_area(file, address, length, offset, flags);
#endif
}

static int release_scratch(struct inode *inode, struct file *file)
{
	cgpu_scratch_release(file->private_data);
	return 0;
}

static const struct file_operations scratch_file = {
	.owner = THIS_MODULE,
	.mmap = map_scratch,
	.get_unmapped_area = aligned_area,
	.release = release_scratch,
};

/* A file that can be mapped once. It has the caller's reference of the pool, unless it fails. */
struct file *cgpu_shim_scratch_file(void *pool)
{
	return anon_inode_getfile("[cgpu-scratch]", &scratch_file, pool, O_RDWR);
}

static bool is_of(const struct vm_area_struct *vma, const void *pool)
{
	return vma->vm_ops == &scratch_mapping && vma->vm_private_data == pool;
}

/*
 * The mapping of a pool in mm, locked, if it is there, at base: by its own lock, or with the whole
 * address space, for reading.
 */
struct vm_area_struct *cgpu_shim_lock_scratch(struct mm_struct *mm, unsigned long base,
					      const void *pool, bool *whole)
{
	struct vm_area_struct *vma;

	*whole = false;
#ifdef EXPORTS_lock_vma_under_rcu
	vma = lock_vma_under_rcu(mm, base);
	if (vma) {
		if (is_of(vma, pool))
			return vma;
		vma_end_read(vma);
		return NULL;
	}
#endif
	mmap_read_lock(mm);
	vma = find_vma(mm, base);
	if (vma && vma->vm_start <= base && is_of(vma, pool)) {
		*whole = true;
		return vma;
	}
	mmap_read_unlock(mm);
	return NULL;
}

void cgpu_shim_unlock_scratch(struct mm_struct *mm, struct vm_area_struct *vma, bool whole)
{
	if (whole)
		mmap_read_unlock(mm);
#ifdef EXPORTS_lock_vma_under_rcu
	else
		vma_end_read(vma);
#endif
}
