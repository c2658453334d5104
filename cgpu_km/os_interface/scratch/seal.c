// SPDX-License-Identifier: GPL-2.0
/*
 * Seals for mappings on kernels that have none (VM_SEALED came with 6.10): a sealed mapping stays
 * where it is until its address space ends.
 *
 * Two functions are made to fail where a sealed mapping lies in their range, by ftrace, as a live
 * patch is put in: while they are, ftrace cannot be switched off. The kernel calls both with the
 * address space's lock held for writing, before anything is taken away.
 *
 * - userfaultfd_unmap_prep(), by munmap, mremap, brk, and mmap at a fixed address;
 * - do_mmap() with MAP_FIXED, because shmat and remap_file_pages come by it and not by the first.
 *
 * A mapping has operations of its own against the rest: mremap of the whole, and mprotect.
 */
#include "shim.h"

#include <linux/mman.h>

#ifdef HAS_VM_SEALED

int cgpu_shim_start_seals(void)
{
	return 0;
}

void cgpu_shim_stop_seals(void)
{
}

int cgpu_seal(struct vm_area_struct *vma)
{
	vm_flags_set(vma, VM_SEALED);
	return 0;
}

bool cgpu_unseal(struct vm_area_struct *vma)
{
	return true;
}

/* With LTO the compiler may put a copy of the functions where ftrace does not see it. */
#elif !defined(CONFIG_DYNAMIC_FTRACE_WITH_REGS) || !defined(CONFIG_USERFAULTFD) || \
	defined(CONFIG_LTO)

int cgpu_shim_start_seals(void)
{
	pr_err("cgpu_km: cannot protect calls here: before Linux 6.10 the kernel needs CONFIG_DYNAMIC_FTRACE_WITH_REGS and CONFIG_USERFAULTFD, and no CONFIG_LTO\n");
	return -EOPNOTSUPP;
}

void cgpu_shim_stop_seals(void)
{
}

int cgpu_seal(struct vm_area_struct *vma)
{
	return -EOPNOTSUPP;
}

bool cgpu_unseal(struct vm_area_struct *vma)
{
	return false;
}

#else

#include <linux/ftrace.h>
#include <linux/hashtable.h>
#include <linux/slab.h>

/* A range of an address space from which nothing is taken away. */
struct seal {
	struct hlist_node node;
	struct rcu_head gone;
	const struct mm_struct *mm;
	unsigned long start, end;
};

/* By address space. Changed under the lock, read under RCU. */
static DEFINE_HASHTABLE(seals, 10);
static DEFINE_SPINLOCK(lock);

static notrace bool is_sealed(const struct mm_struct *mm, unsigned long start,
			      unsigned long end)
{
	const struct seal *seal;

	hash_for_each_possible_rcu_notrace(seals, seal, node, (unsigned long)mm)
		if (seal->mm == mm && seal->start < end && start < seal->end)
			return true;
	return false;
}

/*
 * In the place of a guarded function, with its arguments. Nobody runs in it when this module goes:
 * who does has a sealed mapping, which holds the module, and the lock without which that does not
 * go.
 */
static notrace long refuse(void)
{
	return -EPERM;
}

static notrace void refuse_sealed(unsigned long ip, unsigned long parent, struct pt_regs *regs,
				  unsigned long start, unsigned long end)
{
	int bit = ftrace_test_recursion_trylock(ip, parent);

	if (bit < 0 || is_sealed(current->mm, start, end))
		regs->ip = (unsigned long)refuse;
	if (bit >= 0)
		ftrace_test_recursion_unlock(bit);
}

/* The second and third arguments of userfaultfd_unmap_prep() are the range. */
static notrace void before_unmap(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
				 struct ftrace_regs *fregs)
{
	struct pt_regs *regs = ftrace_get_regs(fregs);

	refuse_sealed(ip, parent, regs, regs->si, regs->dx);
}

/* The second, third and fifth of do_mmap() are the address, the length and the flags. */
static notrace void before_map(unsigned long ip, unsigned long parent, struct ftrace_ops *ops,
			       struct ftrace_regs *fregs)
{
	struct pt_regs *regs = ftrace_get_regs(fregs);

	if (regs->r8 & MAP_FIXED)
		refuse_sealed(ip, parent, regs, regs->si, regs->si + PAGE_ALIGN(regs->dx));
}

#define GUARD FTRACE_OPS_FL_SAVE_REGS | FTRACE_OPS_FL_IPMODIFY | FTRACE_OPS_FL_PERMANENT

static struct guard {
	char function[24];
	struct ftrace_ops ops;
} guards[] = {
	{ "userfaultfd_unmap_prep", { .func = before_unmap, .flags = GUARD } },
	{ "do_mmap", { .func = before_map, .flags = GUARD } },
};

static int put_in(struct guard *guard)
{
	int error = ftrace_set_filter(&guard->ops, guard->function, strlen(guard->function), 1);

	if (!error)
		error = register_ftrace_function(&guard->ops);
	if (error)
		ftrace_free_filter(&guard->ops);
	return error;
}

static void take_out(struct guard *guard)
{
	unregister_ftrace_function(&guard->ops);
	ftrace_free_filter(&guard->ops);
}

static struct seal *add_seal(const struct mm_struct *mm, unsigned long start, unsigned long end)
{
	struct seal *seal = kmalloc(sizeof(*seal), GFP_KERNEL_ACCOUNT);

	if (!seal)
		return NULL;
	*seal = (struct seal) { .mm = mm, .start = start, .end = end };
	spin_lock(&lock);
	hash_add_rcu(seals, &seal->node, (unsigned long)mm);
	spin_unlock(&lock);
	return seal;
}

static bool drop_seal(const struct mm_struct *mm, unsigned long start)
{
	struct seal *seal, *found = NULL;

	spin_lock(&lock);
	hash_for_each_possible(seals, seal, node, (unsigned long)mm)
		if (seal->mm == mm && seal->start == start)
			found = seal;
	if (found)
		hash_del_rcu(&found->node);
	spin_unlock(&lock);
	if (found)
		kfree_rcu(found, gone);
	return found;
}

/* Seals a mapping that is being made. */
int cgpu_seal(struct vm_area_struct *vma)
{
	return add_seal(vma->vm_mm, vma->vm_start, vma->vm_end) ? 0 : -ENOMEM;
}

/*
 * A mapping that is closed has no seal any more. False: it had none, because it is the copy at
 * another address which mremap() makes before it asks whether it may, and takes away again.
 */
bool cgpu_unseal(struct vm_area_struct *vma)
{
	return drop_seal(vma->vm_mm, vma->vm_start);
}

/*
 * Whether a page of the current task's can be sealed: neither unmapped nor replaced. Before 6.10
 * mmap() fails with another error where the first function alone refuses. And some kernels before
 * 6.4 count locked pages as unlocked before they learn that they are not unmapped (fixed by commit
 * 606c812eb1d5): there a program could lock memory without end.
 */
static bool holds(void)
{
	const unsigned long flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED;
	unsigned long page, over, locked;
	int unmapped = 0;
	bool counted;

	if (!current->mm)
		return false;
	page = vm_mmap(NULL, 0, PAGE_SIZE, PROT_NONE, flags, 0);
	if (IS_ERR_VALUE(page))
		return false;
	over = page;
	locked = current->mm->locked_vm;
	if (add_seal(current->mm, page, page + PAGE_SIZE)) {
		unmapped = vm_munmap(page, PAGE_SIZE);
		over = vm_mmap(NULL, page, PAGE_SIZE, PROT_NONE, flags | MAP_FIXED, 0);
		drop_seal(current->mm, page);
	}
	counted = current->mm->locked_vm == locked;
	if (vm_munmap(page, PAGE_SIZE))
		return false;
	return unmapped == -EPERM && over == (unsigned long)-EPERM && counted;
}

int cgpu_shim_start_seals(void)
{
	unsigned int in;
	int error;

	for (in = 0; in < ARRAY_SIZE(guards); in++) {
		error = put_in(&guards[in]);
		if (error) {
			pr_err("cgpu_km: cannot protect calls here: before Linux 6.10 the module needs ftrace (sysctl kernel.ftrace_enabled=1) and no live patch of %s (error %d)\n",
			       guards[in].function, error);
			while (in--)
				take_out(&guards[in]);
			return error;
		}
	}
	if (!holds()) {
		cgpu_shim_stop_seals();
		pr_err("cgpu_km: cannot protect calls here: on this kernel a sealed page can still be unmapped, replaced or counted as unlocked\n");
		return -EOPNOTSUPP;
	}
	return 0;
}

void cgpu_shim_stop_seals(void)
{
	unsigned int in;

	for (in = 0; in < ARRAY_SIZE(guards); in++)
		take_out(&guards[in]);
}

#endif
