/* SPDX-License-Identifier: GPL-2.0 */
/* The operations of an open file of a node; fields of a file that is opened or closed. */
#ifndef CGPU_FILES_SHIM_H
#define CGPU_FILES_SHIM_H

#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include "base/places.h"

struct cgpu_file_callbacks {
	int (*release)(struct inode *inode, struct file *file);
	long (*ioctl)(struct file *file, unsigned int cmd, unsigned long arg);
	long (*compat_ioctl)(struct file *file, unsigned int cmd, unsigned long arg);
	int (*mmap)(struct file *file, struct vm_area_struct *vma);
	/* In the place of mmap for files that show objects: see registers.rs. */
	int (*entered)(struct file *file, struct vm_area_struct *vma);
	__poll_t (*poll)(struct file *file, struct poll_table_struct *table);
};

void cgpu_shim_file_operations(struct cgpu_file_operations *place, const struct file *real,
			       const struct cgpu_file_callbacks *ours, bool shows);
void *cgpu_shim_operations(const struct file *file);
void cgpu_shim_set_file_operations(struct file *file, const void *operations);
bool cgpu_shim_is_released_by(const struct file *file,
			      int (*release)(struct inode *inode, struct file *file));
void cgpu_shim_set_inode(struct file *file, struct inode *inode);
bool cgpu_shim_take_cdev(struct cdev *cdev);
void cgpu_shim_drop_cdev(struct cdev *cdev);
void cgpu_shim_while_pinned(unsigned long start, unsigned long end, void (*work)(void *),
			    void *data);
int cgpu_shim_late_start(void);
void cgpu_shim_late_stop(void);
void cgpu_shim_late_init(struct cgpu_late_ends *place);
void cgpu_shim_late_add(struct cgpu_late_ends *place, struct cgpu_late_end *end,
			void (*run)(struct cgpu_late_end *end));
bool cgpu_shim_is_late(void);
struct file *cgpu_shim_left_file(const struct file *file);
void cgpu_shim_drop_left_file(struct file *left);
int cgpu_shim_before_return(struct cgpu_task_work *place,
			    void (*work)(struct cgpu_task_work *place));

#endif
