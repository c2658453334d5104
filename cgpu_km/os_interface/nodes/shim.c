// SPDX-License-Identifier: GPL-2.0
/* The filesystem of proxy nodes, and the devices of host nodes. */
#include <linux/cred.h>
#include <linux/device/class.h>
#include <linux/fs.h>
#include <linux/fs_context.h>
#include <linux/module.h>
#include <linux/pid_namespace.h>
#include <linux/user_namespace.h>
#include "shim.h"
#include "base/older.h"

/* Rust's functions for the filesystem, which is registered once at a time; see cgpufs.rs. */
static const struct cgpu_fs_callbacks *fs;

/* No user changes an attribute of an inode. */
static int refuse_attributes(struct mnt_idmap *idmap, struct dentry *dentry, struct iattr *wanted)
{
	return -EPERM;
}

/* stat of a proxy node: the number of NVIDIA's device. */
CGPU_CALLS_RUST static int show_attributes(struct mnt_idmap *idmap, const struct path *path,
					   struct kstat *stat, u32 mask, unsigned int flags)
{
	struct inode *inode = d_inode(path->dentry);

#ifdef HAS_attributes_by_mask
	generic_fillattr(idmap, mask, inode, stat);
#else
	generic_fillattr(idmap, inode, stat);
#endif
	stat->rdev = fs->stat_number(inode->i_private);
	return 0;
}

/* Operations of a directory: it can be looked into, and not be changed. */
static const struct inode_operations directory_operations = {
	.lookup = simple_lookup,
	.setattr = refuse_attributes,
};

static const struct inode_operations node_operations = {
	.getattr = show_attributes,
	.setattr = refuse_attributes,
};

CGPU_CALLS_RUST static int open_node(struct inode *inode, struct file *file)
{
	return fs->open(inode, file);
}

static const struct file_operations node_file = {
	.owner = THIS_MODULE,
	.open = open_node,
};

struct inode *cgpu_shim_new_directory(struct super_block *sb, umode_t mode)
{
	struct inode *inode = new_inode(sb);

	if (!inode)
		return NULL;
	inode->i_ino = get_next_ino();
	inode->i_mode = S_IFDIR | mode;
	inode->i_op = &directory_operations;
	inode->i_fop = &simple_dir_operations;
	set_nlink(inode, 2);
	simple_inode_init_ts(inode);
	return inode;
}

struct inode *cgpu_shim_new_device(struct super_block *sb, umode_t mode, dev_t number, void *data)
{
	struct inode *inode = new_inode(sb);

	if (!inode)
		return NULL;
	inode->i_ino = get_next_ino();
	init_special_inode(inode, S_IFCHR | mode, number);
	inode->i_op = &node_operations;
	/* Our own open, not that of character devices, which looks the number up. */
	inode->i_fop = &node_file;
	inode->i_private = data;
	simple_inode_init_ts(inode);
	return inode;
}

void *cgpu_shim_inode_data(const struct inode *inode)
{
	return inode->i_private;
}

/* Puts a new inode into a directory, or drops it. */
struct dentry *cgpu_shim_enter(struct dentry *directory, const char *name, struct inode *inode)
{
	struct dentry *dentry;

#ifdef HAS_d_make_persistent
	dentry = simple_start_creating(directory, name);
	if (IS_ERR(dentry)) {
		iput(inode);
		return dentry;
	}
	d_make_persistent(dentry, inode);
	simple_done_creating(dentry);
#else
	/* Nobody else makes entries; the tree is locked. */
	inode_lock(d_inode(directory));
	dentry = d_alloc_name(directory, name);
	if (dentry)
		d_add(dentry, inode);
	inode_unlock(d_inode(directory));
	if (!dentry) {
		iput(inode);
		return ERR_PTR(-ENOMEM);
	}
#endif
	return dentry;
}

struct dentry *cgpu_shim_root(const struct super_block *sb)
{
	return sb->s_root;
}

/* Under the lock of the tree, as is the removal. */
void cgpu_shim_one_directory_more(struct dentry *directory)
{
	inc_nlink(d_inode(directory));
}

CGPU_CALLS_RUST static void evict(struct inode *inode)
{
	void *data = inode->i_private;

	truncate_inode_pages_final(&inode->i_data);
	clear_inode(inode);
	inode->i_private = NULL;
	if (data)
		fs->evict(data);
}

static const struct super_operations super_operations = {
	.statfs = simple_statfs,
#ifdef HAS_inode_just_drop
	.drop_inode = inode_just_drop,
#else
	.drop_inode = generic_delete_inode,
#endif
	.evict_inode = evict,
};

/* A new superblock, with a root of that mode. */
int cgpu_shim_fill_super(struct super_block *sb, umode_t mode)
{
	/* Devices work here; nothing is to be executed. */
	sb->s_iflags &= ~SB_I_NODEV;
	sb->s_iflags |= SB_I_NOEXEC;
	sb->s_magic = 0x75706763;	/* "cgpu" */
	sb->s_blocksize = PAGE_SIZE;
	sb->s_blocksize_bits = PAGE_SHIFT;
	sb->s_time_gran = 1;
	sb->s_op = &super_operations;
	sb->s_root = d_make_root(cgpu_shim_new_directory(sb, mode));
	return sb->s_root ? 0 : -ENOMEM;
}

CGPU_CALLS_RUST static int fill(struct super_block *sb, struct fs_context *fc)
{
	return fs->fill(sb);
}

static int get_tree(struct fs_context *fc)
{
	return get_tree_single(fc, fill);
}

static const struct fs_context_operations context_operations = {
	.get_tree = get_tree,
};

static int init_context(struct fs_context *fc)
{
	fc->ops = &context_operations;
	return 0;
}

CGPU_CALLS_RUST static void kill_super(struct super_block *sb)
{
	fs->kill(sb);
#ifdef HAS_d_make_persistent
	kill_anon_super(sb);
#else
	kill_litter_super(sb);
#endif
}

/* Static because lockdep wants the lock classes in it to be. */
static struct file_system_type cgpu_fs_type = {
	.owner = THIS_MODULE,
	.init_fs_context = init_context,
	.kill_sb = kill_super,
};

int cgpu_shim_register_filesystem(const char *name, const struct cgpu_fs_callbacks *ours)
{
	cgpu_fs_type.name = name;
	fs = ours;
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

struct device_nodes {
	struct cdev cdev;		/* first: an inode leads to it */
	struct file_operations operations;
	int (*open)(struct inode *inode, struct file *file);
};

CGPU_CALLS_RUST static int open_device(struct inode *inode, struct file *file)
{
	return container_of(file->f_op, struct device_nodes, operations)->open(inode, file);
}

/* A character device for all of these numbers. */
CGPU_FITS(struct device_nodes, cgpu_device);
int cgpu_shim_add_device(struct cgpu_device *place,
			 int (*open)(struct inode *inode, struct file *file), dev_t first,
			 unsigned int count)
{
	struct device_nodes *nodes = (struct device_nodes *)place;

	nodes->operations = (struct file_operations) {
		.owner = THIS_MODULE,
		.open = open_device,
	};
	nodes->open = open;
	cdev_init(&nodes->cdev, &nodes->operations);
	nodes->cdev.owner = THIS_MODULE;
	return cdev_add(&nodes->cdev, first, count);
}

struct cdev *cgpu_shim_node_cdev(const struct inode *inode)
{
	return inode->i_cdev;
}

/*
 * Owner and group may open a node (they are root, until udev or an administrator says otherwise).
 */
#ifdef HAS_constant_device
static char *mode_of_node(const struct device *device, umode_t *mode)
#else
static char *mode_of_node(struct device *device, umode_t *mode)
#endif
{
	if (mode)
		*mode = 0660;
	return NULL;
}

struct class *cgpu_shim_new_class(const char *name)
{
#ifdef HAS_class_without_owner
	struct class *class = class_create(name);
#else
	struct class *class = class_create(THIS_MODULE, name);
#endif

	if (!IS_ERR(class))
		class->devnode = mode_of_node;
	return class;
}

void cgpu_shim_drop_class(struct class *class)
{
	class_destroy(class);
}

/* Shows a device of that number in the class, and so the node of that name. */
struct device *cgpu_shim_show_device(struct class *class, dev_t number, const char *name)
{
	return device_create(class, NULL, number, NULL, "%s", name);
}

void cgpu_shim_hide_device(struct class *class, dev_t number)
{
	device_destroy(class, number);
}
