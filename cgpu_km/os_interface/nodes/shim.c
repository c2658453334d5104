// SPDX-License-Identifier: GPL-2.0
/* Inode fields in anonymous unions, types and macros that Rust's bindings lack. No logic. */
#include <linux/cred.h>
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/module.h>
#include <linux/pid_namespace.h>
#include <linux/user_namespace.h>
#include "shim.h"

struct inode *cgpu_shim_new_directory(struct super_block *sb, umode_t mode,
				      const struct inode_operations *iops)
{
	struct inode *inode = new_inode(sb);

	if (!inode)
		return NULL;
	inode->i_ino = get_next_ino();
	inode->i_mode = S_IFDIR | mode;
	inode->i_op = iops;
	inode->i_fop = &simple_dir_operations;
	set_nlink(inode, 2);
	simple_inode_init_ts(inode);
	return inode;
}

struct inode *cgpu_shim_new_device(struct super_block *sb, umode_t mode, dev_t number,
				   const struct inode_operations *iops,
				   const struct file_operations *fops, void *private)
{
	struct inode *inode = new_inode(sb);

	if (!inode)
		return NULL;
	inode->i_ino = get_next_ino();
	init_special_inode(inode, S_IFCHR | mode, number);
	inode->i_op = iops;
	/* Our own open, not that of character devices, which looks the number up. */
	inode->i_fop = fops;
	inode->i_private = private;
	simple_inode_init_ts(inode);
	return inode;
}

struct cdev *cgpu_shim_node_cdev(const struct inode *inode)
{
	return inode->i_cdev;
}

/*
 * The type is static because lockdep wants the lock classes in it to be. It is registered once at a
 * time; see cgpufs.rs.
 */
static int (*cgpu_fill_super)(struct super_block *sb);

static int cgpu_fill(struct super_block *sb, struct fs_context *fc)
{
	return cgpu_fill_super(sb);
}

static int cgpu_get_tree(struct fs_context *fc)
{
	return get_tree_single(fc, cgpu_fill);
}

static const struct fs_context_operations cgpu_context_operations = {
	.get_tree = cgpu_get_tree,
};

static int cgpu_init_fs_context(struct fs_context *fc)
{
	fc->ops = &cgpu_context_operations;
	return 0;
}

static struct file_system_type cgpu_fs_type = {
	.owner = THIS_MODULE,
	.init_fs_context = cgpu_init_fs_context,
};

int cgpu_shim_register_filesystem(const char *name, int (*fill)(struct super_block *sb),
				  void (*kill)(struct super_block *sb))
{
	cgpu_fs_type.name = name;
	cgpu_fs_type.kill_sb = kill;
	cgpu_fill_super = fill;
	return register_filesystem(&cgpu_fs_type);
}

void cgpu_shim_unregister_filesystem(void)
{
	unregister_filesystem(&cgpu_fs_type);
}

bool cgpu_shim_in_initial_namespaces(void)
{
	return current_user_ns() == &init_user_ns &&
	       task_active_pid_ns(current) == &init_pid_ns;
}
