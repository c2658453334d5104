/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Functions and fields that older kernels lack, by the names that newer ones have for them.
 * features.mk says which a kernel has.
 */
#ifndef CGPU_OLDER_H
#define CGPU_OLDER_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mmap_lock.h>
#include <linux/workqueue.h>
/* Locks of files had no header of their own. */
#ifdef HAS_file_lock
#include <linux/filelock.h>
#endif

/* The flags of a mapping were written to. Whoever did held the lock for writing as well. */
#ifndef HAS_vm_flags_set
static inline void vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags |= flags;
}

static inline void vm_flags_clear(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags &= ~flags;
}
#endif

/* A mapping had no lock of its own: a fault held that of the address space. */
#ifndef HAS_release_fault_lock
static inline void release_fault_lock(struct vm_fault *vmf)
{
	mmap_read_unlock(vmf->vma->vm_mm);
}
#endif

/* With 64 bits an entry is read at once. */
#ifndef HAS_pmdp_get_lockless
static inline pmd_t pmdp_get_lockless(pmd_t *entry)
{
	return READ_ONCE(*entry);
}
#endif

/* There were no shadow stacks, for whose entries the mapping has to be known. */
#ifndef HAS_pte_mkwrite_novma
#define pte_mkwrite_novma pte_mkwrite
#endif

#ifndef HAS_lock_is_unlock
static inline bool lock_is_unlock(struct file_lock *lock)
{
	return lock->fl_type == F_UNLCK;
}
#endif

#ifndef HAS_get_file_active
static inline struct file *get_file_active(struct file **place)
{
	struct file *file;

	rcu_read_lock();
	file = *place;
	if (file && !get_file_rcu(file))
		file = NULL;
	rcu_read_unlock();
	return file;
}
#endif

/* The namespace of a mount's users said what they are for its filesystem. */
#ifndef HAS_mnt_idmap
#define mnt_idmap user_namespace
#endif

#ifndef HAS_simple_inode_init_ts
static inline void simple_inode_init_ts(struct inode *inode)
{
#ifdef HAS_inode_set_ctime_current
	/* Linux 6.6, where i_ctime has another name. */
	inode->i_mtime = inode_set_ctime_current(inode);
#else
	inode->i_ctime = current_time(inode);
	inode->i_mtime = inode->i_ctime;
#endif
	inode->i_atime = inode->i_mtime;
}
#endif

#endif
