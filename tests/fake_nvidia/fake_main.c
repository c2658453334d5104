// SPDX-License-Identifier: GPL-2.0
/*
 * The module: parameters, GPUs, character devices.
 *
 * Major 195 is registered as nv.c:nv_module_init() and nv_register_chrdev()
 * do: minor 255 is the control device, every GPU has a cdev of its own.
 * nvidia_fops is writable data and not const, as in the driver (nv.c:235),
 * and is what nv_match_dev_state() compares with. nvidia-uvm has a dynamic
 * major (uvm.c:uvm_chardev_create).
 */
#include <linux/io.h>
#include <linux/module.h>
#include <linux/string.h>
#include "fake.h"

unsigned int gpus = 1;
module_param(gpus, uint, 0444);
MODULE_PARM_DESC(gpus, "number of GPUs, 1 to 16");
unsigned int fail_open;
module_param(fail_open, uint, 0644);
MODULE_PARM_DESC(fail_open, "every n-th open fails with EIO, 0: none");
unsigned int slow_open_ms;
module_param(slow_open_ms, uint, 0644);
MODULE_PARM_DESC(slow_open_ms, "every open sleeps that long first");
char *fake_version = FAKE_VERSION;
module_param_named(version, fake_version, charp, 0444);
MODULE_PARM_DESC(version, "what it says its version is; its calls stay those of 580");

struct fake_gpu *fake_gpus;
struct cdev fake_cdev_ctl, fake_cdev_uvm;
dev_t fake_uvm_dev;
atomic64_t fake_bytes, fake_allocations;
atomic_t fake_files, fake_mappings, fake_events, fake_faults, fake_held_maps;
atomic_t fake_others_files;

/* Every structure that lives longer than a call is counted, so that rmmod can
 * say whether one was forgotten. */
void *fake_zalloc(size_t size)
{
	size_t *p = kvzalloc(size + 16, GFP_KERNEL_ACCOUNT);

	if (!p)
		return NULL;
	*p = size;
	atomic64_add(size, &fake_bytes);
	atomic64_inc(&fake_allocations);
	return (u8 *)p + 16;
}

void fake_free(const void *p)
{
	const size_t *head;

	if (!p)
		return;
	head = p - 16;
	atomic64_sub(*head, &fake_bytes);
	atomic64_dec(&fake_allocations);
	kvfree(head);
}

struct fake_gpu *fake_gpu_by_minor(u32 minor)
{
	return minor < gpus ? &fake_gpus[minor] : NULL;
}

#define FIND_GPU(gpu, is_it)						\
	for (struct fake_gpu *gpu = fake_gpus; gpu < fake_gpus + gpus; gpu++)	\
		if (is_it)						\
			return gpu;					\
	return NULL

struct fake_gpu *fake_gpu_by_instance(u32 instance)
{
	FIND_GPU(gpu, gpu->device_instance == instance);
}

struct fake_gpu *fake_gpu_at(u32 domain, u8 bus, u8 slot)
{
	FIND_GPU(gpu, gpu->pci_domain == domain && gpu->pci_bus == bus &&
		      gpu->pci_slot == slot);
}

struct fake_gpu *fake_gpu_by_id(u32 id)
{
	FIND_GPU(gpu, gpu->gpu_id == id);
}

struct fake_gpu *fake_gpu_by_uuid(const u8 *uuid)
{
	FIND_GPU(gpu, !memcmp(gpu->uuid, uuid, 16));
}

static void gpu_exit(struct fake_gpu *gpu)
{
	fake_heap_exit(gpu);
	if (gpu->bar)
		__free_pages(gpu->bar, order_base_2(FAKE_BAR_PAGES));
	if (gpu->bell)
		__free_pages(gpu->bell, order_base_2(FAKE_BELL_PAGES));
	if (gpu->rusd)
		__free_page(gpu->rusd);
	fake_engine_exit(gpu);
}

/*
 * The pages behind BAR1. They must not lie where BAR0 is told to be: blocks
 * that do are put aside until there is one that does not.
 */
static bool window_init(struct fake_gpu *gpu)
{
	const u64 size = (u64)FAKE_BAR_PAGES << PAGE_SHIFT;
	const u32 order = order_base_2(FAKE_BAR_PAGES);
	struct page *page, *next;
	LIST_HEAD(aside);

	do {
		page = alloc_pages(GFP_KERNEL | __GFP_ZERO, order);
		if (!page)
			break;
		if (page_to_phys(page) >= gpu->bar0 + FAKE_BAR0_SIZE ||
		    page_to_phys(page) + size <= gpu->bar0) {
			gpu->bar = page;
			break;
		}
		list_add(&page->lru, &aside);
	} while (true);
	list_for_each_entry_safe(page, next, &aside, lru)
		__free_pages(page, order);
	return gpu->bar;
}

static int gpu_init(u32 minor)
{
	struct fake_gpu *gpu = &fake_gpus[minor];

	spin_lock_init(&gpu->lock);
	gpu->minor = minor;
	fake_place(gpu);
	gpu->total = (u64)fake_board->fb_mib << 20;
	gpu->heap = gpu->total - ((u64)fake_board->tax_kib << 10);
	gpu->bell = alloc_pages(GFP_KERNEL | __GFP_ZERO,
				order_base_2(FAKE_BELL_PAGES));
	if (!gpu->bell)
		return -ENOMEM;
	/* what lies around them is the machine's, and is never mapped */
	gpu->bar0 = page_to_phys(gpu->bell) - FAKE_BELL_OFFSET;
	if (!window_init(gpu))
		return -ENOMEM;
	/* the same holds for what lies behind them */
	gpu->bar1 = page_to_phys(gpu->bar);
	gpu->bar1_next = (u64)FAKE_BAR_PAGES << PAGE_SHIFT;
	gpu->rusd = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!gpu->rusd)
		return -ENOMEM;
	if (fake_engine_init(gpu))
		return -ENOMEM;
	return fake_heap_init(gpu);
}

static int add_cdev(struct cdev *cdev, dev_t dev,
		    const struct file_operations *fops)
{
	cdev_init(cdev, fops);
	cdev->owner = THIS_MODULE;
	return cdev_add(cdev, dev, 1);
}

static void del_cdev(struct cdev *cdev)
{
	if (cdev->ops)
		cdev_del(cdev);
}

static u32 regions;			/* of those of start() */

static int start(void)
{
	u32 i;
	int ret = 0;

	for (i = 0; i < gpus && !ret; i++)
		ret = gpu_init(i);
	ret = ret ?: fake_log_init() ?:
	      register_chrdev_region(MKDEV(NV_MAJOR, 0), gpus, "nvidia");
	if (ret)
		return ret;
	regions++;
	ret = register_chrdev_region(MKDEV(NV_MAJOR, NV_MINOR_CTL), 1, "nvidiactl");
	if (ret)
		return ret;
	regions++;
	ret = alloc_chrdev_region(&fake_uvm_dev, 0, 2, "nvidia-uvm");
	if (ret)
		return ret;
	regions++;
	ret = fake_debugfs_init() ?: fake_procfs_init() ?:
	      add_cdev(&fake_cdev_ctl, MKDEV(NV_MAJOR, NV_MINOR_CTL), &nvidia_fops) ?:
	      add_cdev(&fake_cdev_uvm, fake_uvm_dev, &uvm_fops);
	for (i = 0; i < gpus && !ret; i++)
		ret = add_cdev(&fake_gpus[i].cdev, MKDEV(NV_MAJOR, i), &nvidia_fops);
	return ret;
}

/* Nobody can call any more. */
static void stop(void)
{
	u32 i;

	for (i = 0; i < gpus; i++)
		del_cdev(&fake_gpus[i].cdev);
	del_cdev(&fake_cdev_uvm);
	del_cdev(&fake_cdev_ctl);
	fake_procfs_exit();
	fake_debugfs_exit();
	if (regions > 2)
		unregister_chrdev_region(fake_uvm_dev, 2);
	if (regions > 1)
		unregister_chrdev_region(MKDEV(NV_MAJOR, NV_MINOR_CTL), 1);
	if (regions > 0)
		unregister_chrdev_region(MKDEV(NV_MAJOR, 0), gpus);
}

static void free_all(void)
{
	u32 i;

	fake_log_exit();
	for (i = 0; i < gpus; i++)
		gpu_exit(&fake_gpus[i]);
	kvfree(fake_gpus);
}

static int __init fake_init(void)
{
	int ret = fake_board_init();

	if (ret)
		return ret;
	if (gpus < 1 || gpus > NV_MAX_MINORS)
		return -EINVAL;
	fake_gpus = kvcalloc(gpus, sizeof(*fake_gpus), GFP_KERNEL);
	if (!fake_gpus)
		return -ENOMEM;
	ret = start();
	if (ret) {
		stop();
		free_all();
		return ret;
	}
	pr_info("fake_nvidia: %u GPU(s) of %u MiB, driver %s, nvidia-uvm major %u\n",
		gpus, fake_board->fb_mib, fake_version, MAJOR(fake_uvm_dev));
	return 0;
}

static void __exit fake_exit(void)
{
	u32 i;

	stop();
	fake_answers_clear();
	fake_unanswered_clear();
	fake_map_exit();
	WARN(atomic_read(&fake_files), "fake_nvidia: %d files not closed\n",
	     atomic_read(&fake_files));
	for (i = 0; i < gpus; i++)
		WARN(fake_gpus[i].used || fake_gpus[i].managed ||
		     fake_gpus[i].contexts,
		     "fake_nvidia: GPU %u: %llu bytes, %llu managed, %u contexts left\n",
		     i, fake_gpus[i].used, fake_gpus[i].managed,
		     fake_gpus[i].contexts);
	free_all();
	WARN(atomic64_read(&fake_allocations),
	     "fake_nvidia: %lld structures (%lld bytes) leaked\n",
	     atomic64_read(&fake_allocations), atomic64_read(&fake_bytes));
	pr_info("fake_nvidia: gone\n");
}

module_init(fake_init);
module_exit(fake_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Stand-in for NVIDIA's driver, for tests");
