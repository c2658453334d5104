/* SPDX-License-Identifier: GPL-2.0 */
/* What nodes and procfs need of the kernel's inline functions, macros and anonymous unions. */
#ifndef CGPU_NODES_SHIM_H
#define CGPU_NODES_SHIM_H

#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/types.h>

struct inode *cgpu_shim_new_directory(struct super_block *sb, umode_t mode,
				      const struct inode_operations *iops);
struct inode *cgpu_shim_new_device(struct super_block *sb, umode_t mode, dev_t number,
				   const struct inode_operations *iops,
				   const struct file_operations *fops, void *private);
struct cdev *cgpu_shim_node_cdev(const struct inode *inode);
int cgpu_shim_register_filesystem(const char *name, int (*fill)(struct super_block *sb),
				  void (*kill)(struct super_block *sb));
void cgpu_shim_unregister_filesystem(void);
bool cgpu_shim_in_initial_namespaces(void);

#endif
