/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Headers of all that the object calls of the kernel, whose prototypes are compared with those that
 * it was compiled with (cgpu_core.h).
 */
#ifndef CGPU_HELPERS_SHIM_H
#define CGPU_HELPERS_SHIM_H

#include <linux/capability.h>
#include <linux/cdev.h>
#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/device.h>
#include <linux/errname.h>
#include <linux/fdtable.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/mmu_context.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/proc_fs.h>
#include <linux/random.h>
#include <linux/refcount.h>
#include <linux/rtmutex.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/semaphore.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include "base/places.h"

/* These the kernel's crate is given by adapt.py: they are told the old size. */
void *cgpu_helper_krealloc(const void *old, size_t old_size, size_t size, unsigned long align,
			   gfp_t flags, int node);
void *cgpu_helper_kvrealloc(const void *old, size_t old_size, size_t size, unsigned long align,
			    gfp_t flags, int node);

#endif
