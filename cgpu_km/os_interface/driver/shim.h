/* SPDX-License-Identifier: GPL-2.0 */
/* Operations of the driver's files and mappings, called and covered. */
#ifndef CGPU_DRIVER_SHIM_H
#define CGPU_DRIVER_SHIM_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include "base/places.h"

/* The module's operations in the place of a mapping's own. If fault is NULL, the driver's stays. */
struct cgpu_covering {
	/* NULL: it stays. */
	void (*open)(struct vm_area_struct *vma);
	void (*close)(struct vm_area_struct *vma);
	vm_fault_t (*fault)(struct vm_fault *vmf);
	bool shows, gated;
};

bool cgpu_shim_is_character_device(const struct inode *inode);
struct module *cgpu_shim_owner(const struct file *file);
int cgpu_shim_driver_open(const struct file *real, struct file *file);
int cgpu_shim_driver_release(const struct file *real, struct inode *inode, struct file *file);
long cgpu_shim_driver_ioctl(const struct file *real, struct file *file, unsigned int cmd,
			    unsigned long arg);
int cgpu_shim_driver_mmap(const struct file *real, struct file *file, struct vm_area_struct *vma);
__poll_t cgpu_shim_driver_poll(const struct file *real, struct file *file,
			       struct poll_table_struct *table);
vm_fault_t (*cgpu_shim_fault_handler(const struct vm_operations_struct *theirs))(struct vm_fault *);
void cgpu_shim_open_mapping(const struct vm_operations_struct *theirs, struct vm_area_struct *vma);
void cgpu_shim_close_mapping(const struct vm_operations_struct *theirs,
			     struct vm_area_struct *vma);
void cgpu_shim_cover(struct cgpu_vm_operations *place, const struct vm_operations_struct *theirs,
		     const struct cgpu_covering *ours);
const struct vm_operations_struct *cgpu_shim_no_operations(void);

#endif
