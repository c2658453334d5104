/* SPDX-License-Identifier: GPL-2.0 */
/* The kernel's inline functions, macros and anonymous unions that nodes and procfs need. */
#ifndef CGPU_NODES_SHIM_H
#define CGPU_NODES_SHIM_H

#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/types.h>
#include "base/places.h"

struct cgpu_fs_callbacks {
	int (*fill)(struct super_block *sb);
	/* Before the superblock goes. */
	void (*kill)(struct super_block *sb);
	/* With what an inode had as its data, which was not NULL. */
	void (*evict)(void *data);
	dev_t (*stat_number)(void *data);
	int (*open)(struct inode *inode, struct file *file);
};

int cgpu_shim_fill_super(struct super_block *sb, umode_t mode);
struct dentry *cgpu_shim_root(const struct super_block *sb);
void cgpu_shim_one_directory_more(struct dentry *directory);
struct dentry *cgpu_shim_enter(struct dentry *directory, const char *name, struct inode *inode);
void *cgpu_shim_inode_data(const struct inode *inode);
struct inode *cgpu_shim_new_directory(struct super_block *sb, umode_t mode);
struct inode *cgpu_shim_new_device(struct super_block *sb, umode_t mode, dev_t number, void *data);
int cgpu_shim_add_device(struct cgpu_device *place,
			 int (*open)(struct inode *inode, struct file *file), dev_t first,
			 unsigned int count);
struct class *cgpu_shim_new_class(const char *name);
void cgpu_shim_drop_class(struct class *class);
struct device *cgpu_shim_show_device(struct class *class, dev_t number, const char *name);
void cgpu_shim_hide_device(struct class *class, dev_t number);
struct cdev *cgpu_shim_node_cdev(const struct inode *inode);
int cgpu_shim_register_filesystem(const char *name, const struct cgpu_fs_callbacks *ours);
void cgpu_shim_unregister_filesystem(void);
bool cgpu_shim_in_initial_namespaces(void);

#endif
