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

void fake_count_open(int node, struct inode *inode, int result)
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
		seq_printf(m, "%s_open: %lld\n%s_opens: %llu\n%s_closes: %llu\n%s_failed: %llu\n",
			   n, (s64)(opens - closes), n, opens, n, closes, n,
			   (u64)atomic64_read(&counts[i].failed));
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(opens);

static int majors_show(struct seq_file *m, void *v)
{
	seq_printf(m, "nvidia: %u\nnvidia_uvm: %u\n", NV_MAJOR,
		   MAJOR(fake_uvm_dev));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(majors);

static int gpus_show(struct seq_file *m, void *v)
{
	u32 i;

	for (i = 0; i < gpus; i++) {
		struct fake_gpu *g = &fake_gpus[i];

		seq_printf(m, "gpu%u_minor: %u\ngpu%u_device_instance: %u\ngpu%u_gpu_id: 0x%x\ngpu%u_uuid: %pUb\ngpu%u_pci: %04x:%02x:%02x.0\n",
			   i, g->minor, i, g->device_instance, i, g->gpu_id,
			   i, g->uuid, i, g->pci_domain, g->pci_bus,
			   g->pci_slot);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(gpus);

static int heap_show(struct seq_file *m, void *v)
{
	u32 i;

	for (i = 0; i < gpus; i++) {
		struct fake_gpu *g = &fake_gpus[i];
		u64 used, overhead, managed, peak, other, resident, evicted;
		u64 tables, ranges, pools;
		u64 alone;
		u32 contexts, blocks;

		spin_lock(&g->lock);
		used = g->used;
		overhead = fake_overhead(g);
		managed = g->managed;
		peak = g->peak;
		other = g->other;
		resident = g->resident;
		evicted = g->evicted;
		tables = g->tables;
		ranges = g->ranges;
		pools = g->pools;
		alone = fake_uvm_alone(g);
		contexts = g->contexts;
		blocks = g->blocks;
		spin_unlock(&g->lock);
		seq_printf(m, "gpu%u_total_bytes: %llu\ngpu%u_heap_bytes: %llu\ngpu%u_free_bytes: %llu\n",
			   i, g->total, i, g->heap, i, fake_heap_free(g));
		seq_printf(m, "gpu%u_used_bytes: %llu\ngpu%u_overhead_bytes: %llu\ngpu%u_managed_bytes: %llu\ngpu%u_other_bytes: %llu\n",
			   i, used, i, overhead, i, managed, i, other);
		seq_printf(m, "gpu%u_managed_resident_bytes: %llu\ngpu%u_managed_evicted_bytes: %llu\n",
			   i, resident, i, evicted);
		seq_printf(m, "gpu%u_tables_bytes: %llu\ngpu%u_range_tables_bytes: %llu\ngpu%u_uvm_bytes: %llu\n",
			   i, tables, i, ranges, i, alone);
		seq_printf(m, "gpu%u_pools_bytes: %llu\n", i, pools);
		seq_printf(m, "gpu%u_peak_bytes: %llu\ngpu%u_contexts: %u\ngpu%u_blocks: %u\n",
			   i, peak, i, contexts, i, blocks);
	}
	return 0;
}

/* "MINOR BYTES": memory that processes outside the test hold; sets peak */
static ssize_t heap_write(struct file *filp, const char __user *buf,
			  size_t n, loff_t *pos)
{
	u32 i, minor;
	char text[64] = {};
	u64 other;

	if (n >= sizeof(text) || copy_from_user(text, buf, n))
		return -EINVAL;
	if (sscanf(text, "%u %llu", &minor, &other) == 2) {
		if (minor >= gpus)
			return -EINVAL;
		spin_lock(&fake_gpus[minor].lock);
		fake_gpus[minor].other = other;
		spin_unlock(&fake_gpus[minor].lock);
	}
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
	u64 clients = 0, objects = 0, disabled = 0;
	struct xarray by_class;

	/* Not DEFINE_XARRAY: lockdep wants a lock class that is static. */
	xa_init(&by_class);
	mutex_lock(&rm_lock);
	xa_for_each(&fake_clients, i, client) {
		clients++;
		xa_for_each(&client->objects, j, o) {
			u32 c = o->class->class;
			unsigned long n;

			objects++;
			if (o->class->kind == KIND_CHANNEL)
				disabled += o->channel.disabled;
			n = xa_to_value(xa_load(&by_class, c) ?: xa_mk_value(0));
			xa_store(&by_class, c, xa_mk_value(n + 1), GFP_KERNEL);
		}
	}
	mutex_unlock(&rm_lock);
	seq_printf(m, "clients: %llu\nobjects: %llu\nchannels_disabled: %llu\n",
		   clients, objects, disabled);
	xa_for_each(&by_class, i, o)
		seq_printf(m, "class_0x%08lx: %lu\n", i, xa_to_value(o));
	xa_destroy(&by_class);
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

static int read_log_show(struct seq_file *m, void *v)
{
	fake_log_show(m);
	return 0;
}

static int settings_show(struct seq_file *m, void *v)
{
	fake_settings_show(m);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(settings);

static int boosts_show(struct seq_file *m, void *v)
{
	fake_boosts_show(m);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(boosts);

static int engine_show(struct seq_file *m, void *v)
{
	fake_engine_show(m);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(engine);

static int clients_show(struct seq_file *m, void *v)
{
	fake_clients_show(m);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(clients);

static int unanswered_show(struct seq_file *m, void *v)
{
	fake_unanswered_show(m);
	return 0;
}

static int answers_show(struct seq_file *m, void *v)
{
	fake_answers_show(m);
	return 0;
}

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

/* "CLIENT FD": the OS event of that pair happens */
static ssize_t signal_write(struct file *filp, const char __user *buf,
			    size_t n, loff_t *pos)
{
	char text[64] = {};
	u32 client, fd;

	if (n >= sizeof(text) || copy_from_user(text, buf, n) ||
	    sscanf(text, "%i %i", &client, &fd) != 2)
		return -EINVAL;
	return fake_os_event_signal(client, fd) ? n : -ENOENT;
}

static const struct file_operations signal_fops = {
	.owner = THIS_MODULE, .open = simple_open, .write = signal_write,
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

#define WRITABLE(name)							\
static int name##_open(struct inode *inode, struct file *filp)		\
{									\
	return single_open(filp, name##_show, NULL);			\
}									\
static const struct file_operations name##_fops = {			\
	.owner = THIS_MODULE, .open = name##_open, .read = seq_read,	\
	.llseek = seq_lseek, .release = single_release,			\
	.write = name##_write,						\
}
WRITABLE(heap);
WRITABLE(read_log);
WRITABLE(unanswered);

static int answers_open(struct inode *inode, struct file *filp)
{
	if (filp->f_flags & O_TRUNC && filp->f_mode & FMODE_WRITE)
		fake_answers_clear();
	return single_open(filp, answers_show, NULL);
}

static const struct file_operations answers_fops = {
	.owner = THIS_MODULE, .open = answers_open, .read = seq_read,
	.llseek = seq_lseek, .release = single_release,
	.write = answers_write,
};

int fake_debugfs_init(void)
{
	dir = debugfs_create_dir("fake_nvidia", NULL);
	debugfs_create_file("majors", 0444, dir, NULL, &majors_fops);
	debugfs_create_file("gpus", 0444, dir, NULL, &gpus_fops);
	debugfs_create_file("heap", 0644, dir, NULL, &heap_fops);
	debugfs_create_file("objects", 0444, dir, NULL, &objects_fops);
	debugfs_create_file("clients", 0444, dir, NULL, &clients_fops);
	debugfs_create_file("settings", 0444, dir, NULL, &settings_fops);
	debugfs_create_file("boosts", 0444, dir, NULL, &boosts_fops);
	debugfs_create_file("engine", 0444, dir, NULL, &engine_fops);
	debugfs_create_file("work", 0200, dir, NULL, &fake_work_fops);
	debugfs_create_file("opens", 0444, dir, NULL, &opens_fops);
	debugfs_create_file("refs", 0444, dir, NULL, &refs_fops);
	debugfs_create_file("leaks", 0444, dir, NULL, &leaks_fops);
	debugfs_create_file("read_log", 0644, dir, NULL, &read_log_fops);
	debugfs_create_file("unanswered", 0644, dir, NULL, &unanswered_fops);
	debugfs_create_file("signal", 0200, dir, NULL, &signal_fops);
	debugfs_create_file("revoke", 0200, dir, NULL, &revoke_fops);
	debugfs_create_file("gpu_touch", 0200, dir, NULL, &gpu_touch_fops);
	debugfs_create_file("answers", 0644, dir, NULL, &answers_fops);
	return 0;
}

void fake_debugfs_exit(void)
{
	debugfs_remove(dir);
}
