// SPDX-License-Identifier: GPL-2.0
/* Tables of operations of /dev/cgpuctl and of the files in /proc. */
#include "shim.h"

#include <linux/miscdevice.h>
#include <linux/module.h>

struct control_device {
	struct miscdevice misc;		/* first: misc_open() gives its address to files */
	struct file_operations operations;
	const struct cgpu_misc_callbacks *ours;
};

static const struct cgpu_misc_callbacks *of_device(const struct file *file)
{
	return container_of(file->f_op, struct control_device, operations)->ours;
}

CGPU_CALLS_RUST static int open_device(struct inode *inode, struct file *file)
{
	return of_device(file)->open(inode, file);
}

CGPU_CALLS_RUST static int release_device(struct inode *inode, struct file *file)
{
	return of_device(file)->release(inode, file);
}

CGPU_CALLS_RUST static __poll_t poll_device(struct file *file, struct poll_table_struct *table)
{
	return of_device(file)->poll(file, table);
}

CGPU_CALLS_RUST static long call_device(struct file *file, unsigned int cmd, unsigned long arg)
{
	return of_device(file)->ioctl(file, cmd, arg);
}

CGPU_FITS(struct control_device, cgpu_misc_device);
int cgpu_shim_register_misc(struct cgpu_misc_device *place, const char *name,
			    const struct cgpu_misc_callbacks *ours)
{
	struct control_device *device = (struct control_device *)place;

	*device = (struct control_device) {
		.misc = {
			.minor = MISC_DYNAMIC_MINOR,
			.name = name,
			.fops = &device->operations,
			.mode = 0600,
		},
		.operations = {
			.owner = THIS_MODULE,
			.open = open_device,
			.release = release_device,
			.poll = poll_device,
			.unlocked_ioctl = call_device,
			.compat_ioctl = compat_ptr_ioctl,
		},
		.ours = ours,
	};
	return misc_register(&device->misc);
}

static const struct cgpu_text_callbacks *of_text(void *data)
{
	return *(const struct cgpu_text_callbacks **)data;
}

CGPU_CALLS_RUST static int show_text(struct seq_file *seq, void *unused)
{
	return of_text(seq->private)->show(seq, seq->private);
}

CGPU_CALLS_RUST static int open_text(struct inode *inode, struct file *file)
{
	void *data = pde_data(inode);
	int refused = of_text(data)->may_open((file->f_flags & O_ACCMODE) != O_RDONLY);

	return refused ? refused : single_open(file, show_text, data);
}

CGPU_CALLS_RUST static ssize_t write_text(struct file *file, const char __user *from, size_t length,
					  loff_t *position)
{
	void *data = pde_data(file_inode(file));

	return of_text(data)->write(data, from, length);
}

static const struct proc_ops text_file = {
	.proc_open = open_text,
	.proc_read = seq_read,
	.proc_write = write_text,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
};

/* A file in /proc. NULL: there is no memory. */
struct proc_dir_entry *cgpu_shim_text_file(const char *name, umode_t mode,
					   struct proc_dir_entry *folder, void *data)
{
	return proc_create_data(name, mode, folder, &text_file, data);
}
