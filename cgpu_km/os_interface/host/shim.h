/* SPDX-License-Identifier: GPL-2.0 */
/* Tables of operations of /dev/cgpuctl and of the files in /proc. */
#ifndef CGPU_HOST_SHIM_H
#define CGPU_HOST_SHIM_H

#include <linux/fs.h>
#include <linux/poll.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include "base/places.h"

struct cgpu_misc_callbacks {
	int (*open)(struct inode *inode, struct file *file);
	int (*release)(struct inode *inode, struct file *file);
	__poll_t (*poll)(struct file *file, struct poll_table_struct *table);
	long (*ioctl)(struct file *file, unsigned int cmd, unsigned long arg);
};

/* The first member of a file's data points to these. */
struct cgpu_text_callbacks {
	int (*may_open)(bool writes);
	int (*show)(struct seq_file *seq, void *data);
	ssize_t (*write)(void *data, const char __user *from, size_t length);
};

int cgpu_shim_register_misc(struct cgpu_misc_device *place, const char *name,
			    const struct cgpu_misc_callbacks *ours);
struct proc_dir_entry *cgpu_shim_text_file(const char *name, umode_t mode,
					   struct proc_dir_entry *folder, void *data);

#endif
