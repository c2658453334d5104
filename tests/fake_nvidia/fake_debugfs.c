// SPDX-License-Identifier: GPL-2.0
/*
 * debugfs: what the stand-in knows of itself. README.md describes each file.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/namei.h>
#include <linux/vmalloc.h>
#include "fake.h"

#define MAX_BLOB	(64u << 20)

static struct dentry *dir;
static struct {
	atomic64_t opens, closes, failed;
} counts[NODE_GPU0 + NV_MAX_MINORS];

void fake_count_open(int node, int result)
{
	if (node >= ARRAY_SIZE(counts))
		return;
	atomic64_inc(result ? &counts[node].failed : &counts[node].opens);
}

void fake_count_close(int node)
{
	if (node < ARRAY_SIZE(counts))
		atomic64_inc(&counts[node].closes);
}

static void node_name(int node, char *name)
{
	if (node == NODE_CTL)
		strcpy(name, "ctl");
	else if (node == NODE_UVM)
		strcpy(name, "uvm");
	else
		sprintf(name, "gpu%d", node - NODE_GPU0);
}

static int opens_show(struct seq_file *m, void *v)
{
	char n[16];
	int i;

	for (i = 0; i < NODE_GPU0 + gpus; i++) {
		u64 opens = atomic64_read(&counts[i].opens);
		u64 closes = atomic64_read(&counts[i].closes);

		node_name(i, n);
		seq_printf(m, "%s_open: %lld\n%s_failed: %llu\n", n, (s64)(opens - closes), n,
			   (u64)atomic64_read(&counts[i].failed));
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(opens);

static int heap_show(struct seq_file *m, void *v)
{
	u32 i;

	for (i = 0; i < gpus; i++) {
		struct fake_gpu *g = &fake_gpus[i];
		u64 free = fake_heap_free(g);

		spin_lock(&g->lock);
		seq_printf(m, "gpu%u_total_bytes: %llu\ngpu%u_free_bytes: %llu\ngpu%u_used_bytes: %llu\n",
			   i, g->total, i, free, i, g->used);
		seq_printf(m, "gpu%u_overhead_bytes: %llu\ngpu%u_pools_bytes: %llu\n",
			   i, fake_overhead(g), i, g->pools);
		seq_printf(m, "gpu%u_managed_bytes: %llu\ngpu%u_managed_resident_bytes: %llu\n",
			   i, g->managed, i, g->resident);
		seq_printf(m, "gpu%u_tables_bytes: %llu\ngpu%u_range_tables_bytes: %llu\n",
			   i, g->tables, i, g->ranges);
		seq_printf(m, "gpu%u_peak_bytes: %llu\ngpu%u_contexts: %u\n",
			   i, g->peak, i, g->contexts);
		spin_unlock(&g->lock);
	}
	return 0;
}

/* sets peak */
static ssize_t heap_write(struct file *filp, const char __user *buf,
			  size_t n, loff_t *pos)
{
	u32 i;

	for (i = 0; i < gpus; i++) {
		spin_lock(&fake_gpus[i].lock);
		fake_gpus[i].peak = fake_gpus[i].used;
		spin_unlock(&fake_gpus[i].lock);
	}
	return n;
}

static int objects_show(struct seq_file *m, void *v)
{
	struct fake_client *client;
	struct fake_object *o;
	unsigned long i, j;
	u64 clients = 0, objects = 0;

	mutex_lock(&rm_lock);
	xa_for_each(&fake_clients, i, client) {
		clients++;
		xa_for_each(&client->objects, j, o)
			objects++;
	}
	mutex_unlock(&rm_lock);
	seq_printf(m, "clients: %llu\nobjects: %llu\n", clients, objects);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(objects);

static void inode_show(struct seq_file *m, const char *name,
		       const char *path)
{
	struct path p;
	struct inode *inode;

	if (kern_path(path, LOOKUP_FOLLOW, &p)) {
		seq_printf(m, "inode_%s_count: absent\n", name);
		return;
	}
	inode = d_inode(p.dentry);
	seq_printf(m, "inode_%s_count: %d\n", name,
		   atomic_read(&inode->i_count));
#ifdef CONFIG_IMA
	seq_printf(m, "inode_%s_readcount: %d\n", name,
		   atomic_read(&inode->i_readcount));
#endif
	path_put(&p);
}

static int refs_show(struct seq_file *m, void *v)
{
	char name[16], path[24];
	u32 i;

	seq_printf(m, "module: %d\n", module_refcount(THIS_MODULE));
	seq_printf(m, "cdev_ctl: %u\n", kref_read(&fake_cdev_ctl.kobj.kref));
	for (i = 0; i < gpus; i++)
		seq_printf(m, "cdev_gpu%u: %u\n", i,
			   kref_read(&fake_gpus[i].cdev.kobj.kref));
	seq_printf(m, "cdev_uvm: %u\n", kref_read(&fake_cdev_uvm.kobj.kref));
	inode_show(m, "ctl", "/dev/nvidiactl");
	for (i = 0; i < gpus; i++) {
		sprintf(name, "gpu%u", i);
		sprintf(path, "/dev/nvidia%u", i);
		inode_show(m, name, path);
	}
	inode_show(m, "uvm", "/dev/nvidia-uvm");
	seq_printf(m, "others_files: %d\n", atomic_read(&fake_others_files));
	seq_printf(m, "files: %d\nmappings: %d\nevents: %d\nfaults: %d\nheld_maps: %d\n",
		   atomic_read(&fake_files), atomic_read(&fake_mappings),
		   atomic_read(&fake_events), atomic_read(&fake_faults),
		   atomic_read(&fake_held_maps));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(refs);

static int leaks_show(struct seq_file *m, void *v)
{
	seq_printf(m, "bytes: %lld\nallocations: %lld\n",
		   atomic64_read(&fake_bytes),
		   atomic64_read(&fake_allocations));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(leaks);

DEFINE_SHOW_ATTRIBUTE(fake_settings);
DEFINE_SHOW_ATTRIBUTE(fake_boosts);
DEFINE_SHOW_ATTRIBUTE(fake_engine);
DEFINE_SHOW_ATTRIBUTE(fake_clients);

static ssize_t read_log_write(struct file *filp, const char __user *buf,
			      size_t n, loff_t *pos)
{
	fake_log_clear();
	return n;
}

static ssize_t unanswered_write(struct file *filp, const char __user *buf,
				size_t n, loff_t *pos)
{
	fake_unanswered_clear();
	return n;
}

static ssize_t answers_write(struct file *filp, const char __user *buf,
			     size_t n, loff_t *pos)
{
	void *blob;
	int ret;

	if (n > MAX_BLOB)
		return -EFBIG;
	blob = vmalloc(n);
	if (!blob)
		return -ENOMEM;
	ret = copy_from_user(blob, buf, n) ? -EFAULT :
		fake_answers_load(blob, n);
	vfree(blob);
	return ret ? ret : n;
}

/* "MINOR ADDRESS LENGTH": this process's GPU work touched managed memory */
static ssize_t gpu_touch_write(struct file *filp, const char __user *buf,
			       size_t n, loff_t *pos)
{
	char text[80] = {};
	u64 base, length;
	u32 minor;

	if (n >= sizeof(text) || copy_from_user(text, buf, n))
		return -EINVAL;
	if (sscanf(text, "%u %lli %lli", &minor, &base, &length) != 3 ||
	    !fake_gpu_by_minor(minor))
		return -EINVAL;
	fake_uvm_touch(fake_gpu_by_minor(minor), base, length);
	return n;
}

static const struct file_operations gpu_touch_fops = {
	.owner = THIS_MODULE, .open = simple_open, .write = gpu_touch_write,
};

/* "MINOR": all mappings of that GPU's files are taken away */
static ssize_t revoke_write(struct file *filp, const char __user *buf,
			    size_t n, loff_t *pos)
{
	u32 minor;
	int ret = kstrtou32_from_user(buf, n, 0, &minor);

	if (ret || minor >= gpus)
		return -EINVAL;
	fake_revoke(minor);
	return n;
}

static const struct file_operations revoke_fops = {
	.owner = THIS_MODULE, .open = simple_open, .write = revoke_write,
};

/*
 * "MINOR NUMBER": the driver reports an Xid of that GPU, as
 * kernel_rc.c:krcReportXid_IMPL() does where it knows of no process
 */
static ssize_t xid_write(struct file *filp, const char __user *buf,
			 size_t n, loff_t *pos)
{
	u32 minor, number;
	struct fake_gpu *g;
	char text[24] = {};

	if (n >= sizeof(text) || copy_from_user(text, buf, n))
		return -EINVAL;
	if (sscanf(text, "%u %u", &minor, &number) != 2)
		return -EINVAL;
	g = fake_gpu_by_minor(minor);
	if (!g)
		return -EINVAL;
	pr_err("NVRM: Xid (PCI:%04x:%02x:%02x): %u, asked for by a test\n",
	       g->pci_domain, g->pci_bus, g->pci_slot, number);
	return n;
}

static const struct file_operations xid_fops = {
	.owner = THIS_MODULE, .open = simple_open, .write = xid_write,
};

#define WRITABLE(name, show)						\
static int name##_open(struct inode *inode, struct file *filp)		\
{									\
	return single_open(filp, show, NULL);				\
}									\
static const struct file_operations name##_fops = {			\
	.owner = THIS_MODULE, .open = name##_open, .read = seq_read,	\
	.llseek = seq_lseek, .release = single_release,			\
	.write = name##_write,						\
}
WRITABLE(heap, heap_show);
WRITABLE(read_log, fake_log_show);
WRITABLE(unanswered, fake_unanswered_show);

static int answers_open(struct inode *inode, struct file *filp)
{
	if (filp->f_flags & O_TRUNC && filp->f_mode & FMODE_WRITE)
		fake_answers_clear();
	return single_open(filp, fake_answers_show, NULL);
}

static const struct file_operations answers_fops = {
	.owner = THIS_MODULE, .open = answers_open, .read = seq_read,
	.llseek = seq_lseek, .release = single_release,
	.write = answers_write,
};

int fake_debugfs_init(void)
{
	dir = debugfs_create_dir("fake_nvidia", NULL);
	debugfs_create_file("heap", 0644, dir, NULL, &heap_fops);
	debugfs_create_file("objects", 0444, dir, NULL, &objects_fops);
	debugfs_create_file("clients", 0444, dir, NULL, &fake_clients_fops);
	debugfs_create_file("settings", 0444, dir, NULL, &fake_settings_fops);
	debugfs_create_file("boosts", 0444, dir, NULL, &fake_boosts_fops);
	debugfs_create_file("engine", 0444, dir, NULL, &fake_engine_fops);
	debugfs_create_file("work", 0200, dir, NULL, &fake_work_fops);
	debugfs_create_file("opens", 0444, dir, NULL, &opens_fops);
	debugfs_create_file("refs", 0444, dir, NULL, &refs_fops);
	debugfs_create_file("leaks", 0444, dir, NULL, &leaks_fops);
	debugfs_create_file("read_log", 0644, dir, NULL, &read_log_fops);
	debugfs_create_file("unanswered", 0644, dir, NULL, &unanswered_fops);
	debugfs_create_file("revoke", 0200, dir, NULL, &revoke_fops);
	debugfs_create_file("xid", 0200, dir, NULL, &xid_fops);
	debugfs_create_file("gpu_touch", 0200, dir, NULL, &gpu_touch_fops);
	debugfs_create_file("answers", 0644, dir, NULL, &answers_fops);
	return 0;
}

void fake_debugfs_exit(void)
{
	debugfs_remove(dir);
}
