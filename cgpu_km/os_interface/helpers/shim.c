// SPDX-License-Identifier: GPL-2.0
/*
 * The macros and inline functions of the kernel that its own crate for Rust calls. A kernel that
 * was built with Rust has such helpers itself; for the object they are here. cgpu_core.h has
 * their prototypes: they are those of the kernel whose crate is in the object.
 */
#include "shim.h"
#include "cgpu_core.h"

/* A function of one expression. */
#define HELPER(type, name, arguments, value)     \
	type cgpu_helper_##name arguments        \
	{                                        \
		return value;                    \
	}
#define HELPER_VOID(name, arguments, call)       \
	void cgpu_helper_##name arguments        \
	{                                        \
		call;                            \
	}

/* Structures that Rust takes for one number. */
static_assert(sizeof(refcount_t) == 4 && sizeof(atomic_t) == 4 && sizeof(atomic64_t) == 8);
static_assert(sizeof(pgprot_t) == 8 && sizeof(pte_t) == 8);

/* Memory. The crate asks for sizes that are multiples of the alignment, as the slabs are then. */
void *cgpu_helper_krealloc(const void *old, size_t old_size, size_t size, unsigned long align,
			   gfp_t flags, int node)
{
	return krealloc(old, size, flags);
}

/* Some kernels have to be told the old size, and others have no such function for modules. */
void *cgpu_helper_kvrealloc(const void *old, size_t old_size, size_t size, unsigned long align,
			    gfp_t flags, int node)
{
	void *new = NULL;

	if (size) {
		new = kvmalloc(size, flags);
		if (!new)
			return NULL;
		if (old)
			memcpy(new, old, min(old_size, size));
	}
	kvfree(old);
	return new;
}

HELPER(struct page *, alloc_pages, (gfp_t flags, unsigned int order), alloc_pages(flags, order))

/* Locks, and what waits. */
CGPU_FITS(struct mutex, cgpu_mutex);
CGPU_FITS(struct rt_mutex, cgpu_rt_mutex);
HELPER_VOID(__mutex_init, (struct mutex *lock, const char *name, struct lock_class_key *key),
	    __mutex_init(lock, name, key))
HELPER_VOID(mutex_assert_is_held, (struct mutex *lock), lockdep_assert_held(lock))
CGPU_FITS(spinlock_t, cgpu_spinlock);
HELPER_VOID(__spin_lock_init, (spinlock_t *lock, const char *name, struct lock_class_key *key),
	    spin_lock_init(lock))
HELPER_VOID(spin_lock, (spinlock_t *lock), spin_lock(lock))
HELPER_VOID(spin_unlock, (spinlock_t *lock), spin_unlock(lock))
HELPER_VOID(spin_assert_is_held, (spinlock_t *lock), lockdep_assert_held(lock))
CGPU_FITS(struct wait_queue_head, cgpu_wait_queue);
CGPU_FITS(struct wait_queue_entry, cgpu_waiter);
HELPER_VOID(init_wait, (struct wait_queue_entry *entry), init_wait(entry))
CGPU_FITS(struct lock_class_key, cgpu_lock_class);
HELPER_VOID(poll_wait, (struct file *file, wait_queue_head_t *queue, poll_table *table),
	    poll_wait(file, queue, table))

/* Counts. */
HELPER(refcount_t, REFCOUNT_INIT, (int n), (refcount_t)REFCOUNT_INIT(n))
HELPER_VOID(refcount_inc, (refcount_t *count), refcount_inc(count))
HELPER(bool, refcount_dec_and_test, (refcount_t *count), refcount_dec_and_test(count))

/* Atomic operations, by the kernel's rules of memory order. */
HELPER(int, atomic_read, (const atomic_t *v), atomic_read(v))
HELPER(int, atomic_read_acquire, (const atomic_t *v), atomic_read_acquire(v))
HELPER_VOID(atomic_set, (atomic_t *v, int i), atomic_set(v, i))
HELPER_VOID(atomic_set_release, (atomic_t *v, int i), atomic_set_release(v, i))
HELPER(int, atomic_fetch_add_relaxed, (int i, atomic_t *v), atomic_fetch_add_relaxed(i, v))
HELPER(int, atomic_fetch_sub_relaxed, (int i, atomic_t *v), atomic_fetch_sub_relaxed(i, v))
HELPER(bool, atomic_try_cmpxchg_acquire, (atomic_t *v, int *old, int new),
       atomic_try_cmpxchg_acquire(v, old, new))
HELPER(bool, atomic_try_cmpxchg_release, (atomic_t *v, int *old, int new),
       atomic_try_cmpxchg_release(v, old, new))
HELPER(bool, atomic_try_cmpxchg_relaxed, (atomic_t *v, int *old, int new),
       atomic_try_cmpxchg_relaxed(v, old, new))
HELPER(s64, atomic64_read, (const atomic64_t *v), atomic64_read(v))
HELPER(s64, atomic64_read_acquire, (const atomic64_t *v), atomic64_read_acquire(v))
HELPER_VOID(atomic64_set, (atomic64_t *v, s64 i), atomic64_set(v, i))
HELPER_VOID(atomic64_set_release, (atomic64_t *v, s64 i), atomic64_set_release(v, i))
HELPER(s64, atomic64_fetch_add_relaxed, (s64 i, atomic64_t *v), atomic64_fetch_add_relaxed(i, v))
HELPER(bool, atomic64_try_cmpxchg, (atomic64_t *v, s64 *old, s64 new),
       atomic64_try_cmpxchg(v, old, new))
HELPER(s8, atomic_i8_read, (s8 *v), READ_ONCE(*v))
HELPER(s8, atomic_i8_read_acquire, (s8 *v), smp_load_acquire(v))
HELPER_VOID(atomic_i8_set, (s8 *v, s8 i), WRITE_ONCE(*v, i))
HELPER_VOID(atomic_i8_set_release, (s8 *v, s8 i), smp_store_release(v, i))
HELPER(const void *, atomic_ptr_read, (const void **v), READ_ONCE(*v))
HELPER(const void *, atomic_ptr_read_acquire, (const void **v), smp_load_acquire(v))
HELPER_VOID(atomic_ptr_set_release, (const void **v, const void *p), smp_store_release(v, p))
HELPER(const void *, atomic_ptr_xchg, (const void **v, const void *p), xchg(v, p))
HELPER(bool, atomic_ptr_try_cmpxchg, (const void **v, const void **old, const void *p),
       try_cmpxchg(v, old, p))

/* Tables. */
CGPU_FITS(struct xarray, cgpu_xarray);
HELPER_VOID(xa_init_flags, (struct xarray *table, gfp_t kind), /* of adapt.py */
	    xa_init_flags(table, kind ? XA_FLAGS_ALLOC1 : XA_FLAGS_ALLOC))
HELPER_VOID(xa_lock, (struct xarray *table), xa_lock(table))
HELPER_VOID(xa_unlock, (struct xarray *table), xa_unlock(table))
HELPER(int, xa_err, (void *entry), xa_err(entry))

/* Tasks, their memory and files. */
HELPER(struct task_struct *, get_current, (void), current)
HELPER_VOID(get_task_struct, (struct task_struct *task), get_task_struct(task))
HELPER_VOID(put_task_struct, (struct task_struct *task), put_task_struct(task))
HELPER(int, signal_pending, (struct task_struct *task), signal_pending(task))
HELPER(unsigned long, copy_from_user, (void *to, const void __user *from, unsigned long n),
       copy_from_user(to, from, n))
HELPER(unsigned long, copy_to_user, (void __user *to, const void *from, unsigned long n),
       copy_to_user(to, from, n))
HELPER(struct file *, get_file, (struct file *file), get_file(file))
HELPER_VOID(put_cred, (const struct cred *cred), put_cred(cred))

/* Errors as values of pointers. */
HELPER(bool, IS_ERR, (const void *pointer), IS_ERR(pointer))
HELPER(long, PTR_ERR, (const void *pointer), PTR_ERR(pointer))
#ifdef EXPORTS_errname
HELPER(const char *, errname, (int error), errname(error))
#else
/* The log has the numbers of errors then. */
HELPER(const char *, errname, (int error), NULL)
#endif

/*
 * The object returns, and jumps to addresses in r11, by the thunks of two mitigations. A kernel
 * without them has no thunks.
 */
#define THUNK(name, jump)                      \
	asm(".pushsection .text\n"             \
	    ".globl " name "\n"                \
	    ".type " name ", @function\n"      \
	    name ":\n"                         \
	    "\t" jump "\n"                     \
	    "\tint3\n"                         \
	    ".size " name ", . - " name "\n"   \
	    ".popsection\n")
#if !defined(CONFIG_MITIGATION_RETHUNK) && !defined(CONFIG_RETHUNK)
THUNK("__x86_return_thunk", "ret");
#endif
#if !defined(CONFIG_MITIGATION_RETPOLINE) && !defined(CONFIG_RETPOLINE)
THUNK("__x86_indirect_thunk_r11", "jmp *%r11");
#endif
