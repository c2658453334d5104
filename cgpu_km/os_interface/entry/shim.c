// SPDX-License-Identifier: GPL-2.0
/* The module as the kernel sees it: what is said of it, its parameters, its beginning and end. */
#include "shim.h"

#include <linux/module.h>
#include <linux/rcupdate.h>

MODULE_AUTHOR("The cgpu developers");
MODULE_DESCRIPTION("Shares an NVIDIA GPU between containers");
MODULE_LICENSE("GPL");

static unsigned int unsafe_assume_branch;
module_param(unsafe_assume_branch, uint, 0);
MODULE_PARM_DESC(unsafe_assume_branch,
		 "For an NVIDIA driver of a branch without tables: use those of this branch "
		 "(535, 550, 570, 580, 595). Memory limits and the isolation of tenants may then "
		 "not hold");

static unsigned int driver_refusals = 20;
module_param(driver_refusals, uint, 0644);
MODULE_PARM_DESC(driver_refusals,
		 "Calls per second that the NVIDIA driver may refuse a tenant for each of its GPUs "
		 "(default 20; 25 times as many in a burst). Further calls wait. 0: no limit, so "
		 "that a tenant can fill the log");

unsigned int cgpu_shim_driver_refusals(void)
{
	return READ_ONCE(driver_refusals);
}

/* In Rust of the same version alone: see abi.mk. */
extern const u8 CGPU_ABI;

static int __init cgpu_init(void)
{
	(void)READ_ONCE(CGPU_ABI);
	return cgpu_core_start(unsafe_assume_branch);
}

static void __exit cgpu_exit(void)
{
	/* A task that has put a file of the module's may still be in the module's code behind that,
	 * not to run for a while, when another one puts the last. */
	synchronize_rcu_tasks();
	cgpu_core_stop();
}

module_init(cgpu_init);
module_exit(cgpu_exit);
