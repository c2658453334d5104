// SPDX-License-Identifier: GPL-2.0
/*
 * Ends of files that may wait for their tenant, in a queue of our own: one file of a tenant after
 * the other, each tenant for itself. In the one worker that closes files for the whole host
 * (delayed_fput() in fs/file_table.c) nothing may wait, and in no task that closes another's file.
 */
#include "shim.h"

#include <linux/llist.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

struct ends {
	struct llist_head list;
	struct work_struct work;
};
CGPU_FITS(struct ends, cgpu_late_ends);

struct end {
	struct llist_node node;
	void (*run)(struct cgpu_late_end *end);
};
CGPU_FITS(struct end, cgpu_late_end);

static struct workqueue_struct *queue;

/* Not bound to a processor: each work has a worker of its own, as long as it waits. */
int cgpu_shim_late_start(void)
{
	queue = alloc_workqueue("cgpu-late", WQ_UNBOUND, WQ_MAX_ACTIVE);
	return queue ? 0 : -ENOMEM;
}

/* No end is due any more: each of them held the module. The last work may still return. */
void cgpu_shim_late_stop(void)
{
	destroy_workqueue(queue);
}

CGPU_CALLS_RUST static void run_all(struct work_struct *work)
{
	struct ends *ends = container_of(work, struct ends, work);
	struct end *end, *next;
	struct llist_node *all = llist_reverse_order(llist_del_all(&ends->list));

	/* With the last one the work itself may be freed. */
	llist_for_each_entry_safe(end, next, all, node) {
		end->run((struct cgpu_late_end *)end);
		module_put(THIS_MODULE);
	}
}

void cgpu_shim_late_init(struct cgpu_late_ends *place)
{
	struct ends *ends = (struct ends *)place;

	init_llist_head(&ends->list);
	INIT_WORK(&ends->work, run_all);
}

/* Has run(end_place) called later, after those that came before. The caller holds the module. */
void cgpu_shim_late_add(struct cgpu_late_ends *place, struct cgpu_late_end *end_place,
			void (*run)(struct cgpu_late_end *end))
{
	struct ends *ends = (struct ends *)place;
	struct end *end = (struct end *)end_place;

	end->run = run;
	__module_get(THIS_MODULE);
	if (llist_add(&end->node, &ends->list))
		queue_work(queue, &ends->work);
}

/* Whether the current task is a thread of the kernel, which closes files for others. */
bool cgpu_shim_is_late(void)
{
	return current->flags & PF_KTHREAD;
}

/*
 * A file that nobody has, with what the driver's release reads of one that is closed: private_data
 * (nvidia_close() in kernel-open/nvidia/nv.c), and f_mapping, which UVM has put there and frees if
 * the file was not initialized (uvm_release() in kernel-open/nvidia-uvm/uvm.c; 535 to 595).
 */
struct file *cgpu_shim_left_file(const struct file *file)
{
	struct file *left = kzalloc(sizeof(*left), GFP_KERNEL);

	if (!left)
		return NULL;
	left->f_inode = file->f_inode;
	left->f_mapping = file->f_mapping;
	left->f_mode = file->f_mode;
	left->f_flags = file->f_flags;
	left->private_data = file->private_data;
	return left;
}

void cgpu_shim_drop_left_file(struct file *left)
{
	kfree(left);
}
