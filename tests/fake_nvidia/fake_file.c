// SPDX-License-Identifier: GPL-2.0
/*
 * Files of /dev/nvidiactl and /dev/nvidiaN: open, close, poll and the outer
 * part of an ioctl, after kernel-open/nvidia/nv.c (nvidia_open, nvidia_close,
 * nvidia_poll, nvidia_ioctl) of 580.
 *
 * These things matter to a proxy:
 * - the inode of a file is file->f_inode wherever nv.c uses NV_FILE_INODE;
 *   release uses its inode argument.
 * - a GPU's file gets an address_space of its own (nv_init_mapping_revocation),
 *   the control file keeps its inode's.
 * - a descriptor in a parameter is accepted for its i_rdev alone
 *   (nv_get_file_private): f_op is not looked at there.
 * - whether a task may use a GPU is asked of its descriptor table, by f_op
 *   (nv_is_gpu_accessible, nv_match_dev_state).
 * - the argument is copied once, at its _IOC_SIZE, acted on and copied back
 *   whole unless the call failed with EFAULT.
 */
#include <linux/capability.h>
#include <linux/delay.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/module.h>
#include "fake.h"

static u64 numa_memblock_size;		/* NV_ESC_SYS_PARAMS: set once */
static atomic_t open_counter;
static LIST_HEAD(open_files);		/* nvl->open_files of all GPUs */
static DEFINE_MUTEX(open_files_lock);

int fake_open_faults(void)
{
	u32 n = READ_ONCE(fail_open), ms = READ_ONCE(slow_open_ms);

	if (ms && msleep_interruptible(ms))
		return -EINTR;
	if (n && !((u32)atomic_inc_return(&open_counter) % n))
		return -EIO;
	return 0;
}

/*
 * nv-mmap.c:nv_revoke_gpu_mappings(): takes all mappings of a GPU away, as
 * suspend does. The fault handler puts them back.
 */
void fake_revoke(u32 minor)
{
	struct fake_file *file;

	mutex_lock(&open_files_lock);
	list_for_each_entry(file, &open_files, open)
		if (file->gpu->minor == minor)
			unmap_mapping_range(&file->mapping, 0, ~0ull, 1);
	mutex_unlock(&open_files_lock);
}

static bool is_control(const struct inode *inode)
{
	return MINOR(inode->i_rdev) == NV_MINOR_CTL;
}

static int nvidia_open(struct inode *inode, struct file *filp)
{
	int node = is_control(inode) ? NODE_CTL : NODE_GPU0 + iminor(inode);
	struct fake_gpu *gpu = NULL;
	struct fake_file *file;
	int ret;

	ret = fake_open_faults();
	if (ret)
		goto out;
	ret = -ENOMEM;
	file = fake_zalloc(sizeof(*file));
	if (!file)
		goto out;
	mutex_init(&file->map_lock);
	init_waitqueue_head(&file->wait);
	if (is_control(inode)) {
		file->ctl = true;
	} else {
		gpu = fake_gpu_by_minor(iminor(inode));
		if (!gpu) {
			fake_free(file);
			ret = -ENODEV;
			goto out;
		}
		file->gpu = gpu;
		address_space_init_once(&file->mapping);
		file->mapping.host = inode;
		file->mapping.a_ops = inode->i_mapping->a_ops;
		filp->f_mapping = &file->mapping;
		mutex_lock(&open_files_lock);
		list_add(&file->open, &open_files);
		mutex_unlock(&open_files_lock);
	}
	filp->private_data = file;
	atomic_inc(&fake_files);
	ret = 0;
out:
	fake_count_open(node, ret);
	return ret;
}

static int nvidia_close(struct inode *inode, struct file *filp)
{
	struct fake_file *file = filp->private_data;
	bool ctl = is_control(inode);

	if (WARN(!file, "fake_nvidia: release of a file without private data\n"))
		return 0;
	/* The driver would take the wrong path silently; this says so. */
	WARN(MAJOR(inode->i_rdev) != NV_MAJOR || ctl != file->ctl ||
	     (!ctl && iminor(inode) != file->gpu->minor),
	     "fake_nvidia: release with the inode of another device\n");
	filp->private_data = NULL;
	fake_file_cleanup(file);
	if (file->ctl_filp)
		fput(file->ctl_filp);
	fake_map_reset(file);
	if (file->gpu) {
		mutex_lock(&open_files_lock);
		list_del(&file->open);
		mutex_unlock(&open_files_lock);
	}
	fake_count_close(ctl ? NODE_CTL : NODE_GPU0 + iminor(inode));
	fake_free(file);
	atomic_dec(&fake_files);
	return 0;
}

static __poll_t nvidia_poll(struct file *filp, poll_table *wait)
{
	struct fake_file *file = filp->private_data;

	if (!(filp->f_flags & O_NONBLOCK))
		poll_wait(filp, &file->wait, wait);
	return 0;			/* no event ever happens */
}

/* nv.c:nv_get_file_private() */
struct fake_file *fake_fget(int fd, bool ctl, struct file **out)
{
	struct file *filp = fget(fd);
	struct inode *inode;

	if (!filp)
		return NULL;
	inode = filp->f_inode;
	if (!inode || MAJOR(inode->i_rdev) != NV_MAJOR)
		goto fail;
	if (ctl ? MINOR(inode->i_rdev) != NV_MINOR_CTL :
		  !fake_gpu_by_minor(MINOR(inode->i_rdev)))
		goto fail;
	if (WARN(!filp->private_data,
		 "fake_nvidia: descriptor of ours without private data\n"))
		goto fail;
	*out = filp;
	return filp->private_data;
fail:
	fput(filp);
	return NULL;
}

/* nv.c:nv_match_dev_state() */
static int match_gpu(const void *data, struct file *filp, unsigned int fd)
{
	struct fake_file *file;

	if (!filp || filp->f_op != &nvidia_fops || !filp->private_data)
		return 0;
	file = filp->private_data;
	if (file->gpu != data && current->flags & PF_KTHREAD)
		atomic_inc(&fake_others_files);
	return file->gpu == data;
}

/* nv.c:nv_is_gpu_accessible() */
bool fake_gpu_accessible(struct fake_gpu *gpu)
{
	return iterate_fd(current->files, 0, match_gpu, gpu) > 0;
}

/* nv.c:nvidia_read_card_info() */
static int card_info(void *arg, size_t size)
{
	size_t n = size / sizeof(struct nv_card_info);
	struct nv_card_info *ci = arg;
	u32 i;

	if (n < gpus)
		return -EINVAL;
	memset(ci, 0, n * sizeof(*ci));
	for (i = 0; i < gpus; i++) {
		const struct fake_gpu *gpu = &fake_gpus[i];

		ci[i].valid = 1;
		ci[i].domain = gpu->pci_domain;
		ci[i].bus = gpu->pci_bus;
		ci[i].slot = gpu->pci_slot;
		ci[i].vendor_id = 0x10de;
		ci[i].device_id = fake_board->device_id;
		ci[i].gpu_id = gpu->gpu_id;
		ci[i].interrupt_line = gpu->interrupt;
		ci[i].reg_address = gpu->bar0;
		ci[i].reg_size = FAKE_BAR0_SIZE;
		ci[i].fb_address = gpu->bar1;
		ci[i].fb_size = fake_board->aperture;
		ci[i].minor_number = gpu->minor;
	}
	return 0;
}

/* osapi.c:rm_perform_version_check() */
static int version_check(void *arg, size_t size)
{
	struct nv_version *v = arg;
	bool same;

	if (size != sizeof(*v))
		return -EINVAL;
	v->string[sizeof(v->string) - 1] = 0;
	if (v->cmd == '2') {
		v->reply = 1;
		strscpy(v->string, fake_version, sizeof(v->string));
		return 0;
	}
	same = !strcmp(v->string, fake_version);
	v->reply = same || v->cmd == '1';
	return v->reply ? 0 : -EINVAL;
}

static int numa_info(struct nv_numa_info *p, size_t size)
{
	if (size != sizeof(*p))
		return -EINVAL;
	p->nid = -1;			/* NUMA_NO_NODE */
	p->numa_mem_addr = 0;
	p->numa_mem_size = 0;
	p->offline_count = 0;
	p->status = 0;			/* NV_IOCTL_NUMA_STATUS_DISABLED */
	p->use_auto_online = 0;
	p->memblock_size = numa_memblock_size;
	return 0;
}

static int attach_gpus(struct fake_file *file, const u32 *ids, size_t size)
{
	size_t i, n = size / sizeof(u32);
	int ret = 0;

	if (!n || size % sizeof(u32))
		return -EINVAL;
	mutex_lock(&rm_lock);
	if (file->num_attached)
		ret = -EINVAL;
	for (i = 0; i < n && !ret; i++)
		if (ids[i] && !fake_gpu_by_id(ids[i]))
			ret = -EINVAL;
	if (!ret)
		file->num_attached = n;
	mutex_unlock(&rm_lock);
	return ret;
}

/* the switch of nv.c:nvidia_ioctl(), then escape.c:RmIoctl() */
static int escape(struct fake_file *file, u32 nr, void *arg, u32 size,
		  struct fake_call *log)
{
	int ret = -EINVAL;

	switch (nr) {
	case NV_ESC_CARD_INFO:
		return file->ctl ? card_info(arg, size) : -EINVAL;
	case NV_ESC_ATTACH_GPUS_TO_FD:
		return file->ctl ? attach_gpus(file, arg, size) : -EINVAL;
	case NV_ESC_CHECK_VERSION_STR:
		return file->ctl ? version_check(arg, size) : -EINVAL;
	case NV_ESC_SYS_PARAMS:
		if (!file->ctl || size != 8)
			return -EINVAL;
		fake_harm(HARM_HOST);
		mutex_lock(&rm_lock);
		if (!numa_memblock_size)
			numa_memblock_size = *(u64 *)arg;
		ret = numa_memblock_size == *(u64 *)arg ? 0 : -EBUSY;
		mutex_unlock(&rm_lock);
		return ret;
	case NV_ESC_NUMA_INFO:
		return file->ctl ? -EINVAL : numa_info(arg, size);
	case NV_ESC_SET_NUMA_STATUS:
		if (!capable(CAP_SYS_ADMIN))
			return -EACCES;
		return file->ctl || size != 4 ? -EINVAL : 0;
	case NV_ESC_ALLOC_OS_EVENT:
	case NV_ESC_FREE_OS_EVENT:
		if (size != sizeof(struct nv_os_event))
			return -EINVAL;
		((struct nv_os_event *)arg)->status =
			fake_os_event(file, arg, nr == NV_ESC_ALLOC_OS_EVENT);
		log->client = ((struct nv_os_event *)arg)->client;
		log->status = ((struct nv_os_event *)arg)->status;
		return 0;
	case NV_ESC_QUERY_DEVICE_INTR:
		if (file->ctl || size < 8)
			return -EINVAL;
		memset(arg, 0, size);
		fake_harm(HARM_REGISTERS);	/* nv.c: for whoever has the node */
		return 0;
	case NV_ESC_EXPORT_TO_DMABUF_FD:
		if (file->ctl)
			return -EINVAL;
		break;
	default:
		return fake_rm_ioctl(file, nr, arg, size, log) == NV_OK ?
			0 : -EINVAL;
	}
	if (fake_answer(ANSWER_ESCAPE, nr, arg, size, &ret, NULL))
		return ret;
	fake_unanswered(ANSWER_ESCAPE, nr, size);
	return -EINVAL;
}

/* nv.c:nvidia_ioctl() */
static long nvidia_ioctl(struct file *filp, unsigned int cmd,
			 unsigned long i_arg)
{
	struct fake_file *file = filp->private_data;
	void __user *user = (void __user *)i_arg;
	u32 size = _IOC_SIZE(cmd), nr = _IOC_NR(cmd);
	struct fake_call log = {};
	struct nv_ioctl_xfer xfer;
	void *arg;
	int ret;

	/* the driver tells control from GPU by the file's inode, nv.c:2396 */
	if (WARN(is_control(filp->f_inode) != file->ctl,
		 "fake_nvidia: the file's inode is not the one it was opened with\n"))
		return -EIO;
	if (nr == NV_ESC_IOCTL_XFER_CMD) {
		if (size != sizeof(xfer))
			return -EINVAL;
		if (copy_from_user(&xfer, user, sizeof(xfer)))
			return -EFAULT;
		nr = xfer.cmd;
		size = xfer.size;
		user = u64_to_user_ptr(xfer.ptr);
		if (size > NV_ABSOLUTE_MAX_IOCTL_SIZE)
			return -EINVAL;
	}
	/* room behind a short argument, so that a look at it is no overrun */
	arg = kvzalloc(size + sizeof(struct nvos32) + 64, GFP_KERNEL);
	if (!arg)
		return -ENOMEM;
	if (copy_from_user(arg, user, size)) {
		ret = -EFAULT;
		goto out;
	}
	if (file->ctl)
		strscpy(log.node, "ctl", sizeof(log.node));
	else
		snprintf(log.node, sizeof(log.node), "gpu%u", file->gpu->minor);
	log.nr = nr;
	log.outer = size;
	if (nr == NV_ESC_WAIT_OPEN_COMPLETE) {
		ret = size == 8 ? 0 : -EINVAL;
		if (!ret)
			memset(arg, 0, 8);	/* rc, adapterStatus */
	} else {
		ret = escape(file, nr, arg, size, &log);
	}
	fake_log(&log);
	if (ret != -EFAULT && copy_to_user(user, arg, size))
		ret = -EFAULT;
out:
	kvfree(arg);
	return ret;
}

struct file_operations nvidia_fops = {
	.owner = THIS_MODULE,
	.open = nvidia_open,
	.release = nvidia_close,
	.poll = nvidia_poll,
	.unlocked_ioctl = nvidia_ioctl,
	.compat_ioctl = nvidia_ioctl,
	.mmap = fake_mmap,
};
