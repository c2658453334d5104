/* SPDX-License-Identifier: GPL-2.0 */
/* Inline functions and macros of the kernel that Rust cannot call: one plain function for each. */
#ifndef CGPU_SHIM_H
#define CGPU_SHIM_H

#include <linux/completion.h>
#include <linux/cred.h>
#include <linux/fdtable.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/rtmutex.h>
#include <linux/rwsem.h>
#include <linux/sched.h>
#include <linux/semaphore.h>
#include <linux/workqueue.h>
#include "places.h"

/* The facts about a mapping, and about a fault, that Rust needs. */
struct cgpu_vma {
	unsigned long start, end, flags, page;
	struct mm_struct *memory;
	struct file *file;
	const struct vm_operations_struct *operations;
};

struct cgpu_fault {
	struct vm_area_struct *vma;
	struct mm_struct *memory;
	void *private;
	unsigned long address, page;
	unsigned int flags;
};

/* The start of what a thread is given, and its function, which is called with it. */
struct cgpu_thread {
	int (*run)(struct cgpu_thread *thread);
};

const struct cred *cgpu_shim_get_cred(const struct cred *cred);
const struct cred *cgpu_shim_override_creds(const struct cred *cred);
void cgpu_shim_revert_creds(const struct cred *cred);
void cgpu_shim_withhold(struct cred *cred, u64 capabilities);
const struct cred *cgpu_shim_creds_with(u64 capabilities);
pid_t cgpu_shim_process(void);
u64 cgpu_shim_host_memory(void);
struct mm_struct *cgpu_shim_memory(void);
void cgpu_shim_keep_memory(struct mm_struct *mm);
void cgpu_shim_drop_memory(struct mm_struct *mm);
struct file *cgpu_shim_get_file_active(struct file *file);
struct inode *cgpu_shim_inode(const struct file *file);
struct address_space *cgpu_shim_mappings(const struct file *file);
bool cgpu_shim_are_at_hand(struct address_space *mappings);
void *cgpu_shim_file_data(const struct file *file);
void cgpu_shim_set_file_data(struct file *file, void *data);
dev_t cgpu_shim_device_number(const struct inode *inode);
void cgpu_shim_init_completion(struct completion *done);
void cgpu_shim_vma(const struct vm_area_struct *vma, struct cgpu_vma *seen);
void cgpu_shim_fault(const struct vm_fault *vmf, struct cgpu_fault *seen);
bool cgpu_shim_is_marked(const struct vm_fault *vmf);
void cgpu_shim_set_operations(struct vm_area_struct *vma,
			      const struct vm_operations_struct *operations);
void cgpu_shim_zap_frames(struct vm_area_struct *vma, unsigned long start, unsigned long length);
void cgpu_shim_zap_pages(struct vm_area_struct *vma);
void cgpu_shim_spoil_copy(struct vm_area_struct *copy);
int cgpu_shim_show_page(struct vm_area_struct *vma, struct page *page);
void cgpu_shim_with_file(struct file *file, void (*work)(void *), void *data);
void cgpu_shim_log(bool warns, const char *line, size_t length);
struct address_space *cgpu_shim_new_mapping(void);
void cgpu_shim_give_mapping(struct file *file, struct address_space *mapping);
void cgpu_shim_drop_mapping(struct address_space *mapping);
void cgpu_shim_become_idle(void);
void cgpu_shim_become_running(void);
int cgpu_shim_sleep_until_signal(unsigned int milliseconds);
void cgpu_shim_release_fault_lock(struct vm_fault *vmf);
bool cgpu_shim_frame_is_memory(unsigned long frame);
void cgpu_shim_sema_init(struct semaphore *sem, int count);
void cgpu_shim_rt_mutex_init(struct rt_mutex *lock);
void cgpu_shim_rt_mutex_lock(struct rt_mutex *lock);
bool cgpu_shim_rt_mutex_trylock(struct rt_mutex *lock);
void cgpu_shim_rt_mutex_unlock(struct rt_mutex *lock);
void cgpu_shim_rwsem_init(struct rw_semaphore *lock);
int cgpu_shim_rwsem_read(struct rw_semaphore *lock);
bool cgpu_shim_rwsem_tryread(struct rw_semaphore *lock);
int cgpu_shim_rwsem_write(struct rw_semaphore *lock);
void cgpu_shim_rwsem_read_end(struct rw_semaphore *lock);
void cgpu_shim_rwsem_write_end(struct rw_semaphore *lock);
unsigned long cgpu_shim_page_to_pfn(struct page *page);
struct page *cgpu_shim_get_frame(unsigned long frame);
void cgpu_shim_put_page(struct page *page);
struct vm_area_struct *cgpu_shim_lock_mapping(struct mm_struct *mm, unsigned long address);
void cgpu_shim_unlock_memory(struct mm_struct *mm);
pid_t cgpu_shim_pid_by_vnr(pid_t nr);
void *cgpu_shim_find_function(const char *name, struct module *owner);
void *cgpu_shim_page_address(struct page *page);
int cgpu_shim_put_word(unsigned long address, u32 word);
void cgpu_shim_copy(void *to, const void *from, size_t count);
struct task_struct *cgpu_shim_new_thread(struct cgpu_thread *thread, const char *name,
					 unsigned int number);
pte_t *cgpu_shim_lock_entry(struct vm_fault *vmf, spinlock_t **lock);
void cgpu_shim_unlock_entry(spinlock_t *lock);
void cgpu_shim_each_entry(struct mm_struct *mm, unsigned long start, unsigned long end,
			  pte_fn_t each, void *data);
void cgpu_shim_set_page(struct mm_struct *mm, unsigned long address, pte_t *entry,
			struct page *page, pgprot_t protection);
void cgpu_shim_make_writable(pte_t *entry);
bool cgpu_shim_pte_frame(const pte_t *entry, unsigned long *frame);
bool cgpu_shim_is_uncached(const struct vm_area_struct *vma);
void cgpu_shim_unmap_writable(struct file *file);
void cgpu_shim_restore_protection(struct vm_area_struct *vma);
void cgpu_shim_give_access(struct vm_area_struct *vma, unsigned long start, unsigned long end);
void cgpu_shim_end_tracking(struct vm_area_struct *vma);
void cgpu_shim_take_access(struct vm_area_struct *vma, bool of_device);
void cgpu_shim_set_frame(struct vm_area_struct *vma, unsigned long address, pte_t *entry,
			 unsigned long frame);

#endif
