/* SPDX-License-Identifier: GPL-2.0 */
/* Operations of the driver's files and mappings, called and covered. */
#ifndef CGPU_DRIVER_SHIM_H
#define CGPU_DRIVER_SHIM_H

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/poll.h>
#include "base/places.h"

/* The module's operations in the place of a mapping's own. If fault is NULL, the driver's stays. */
struct cgpu_covering {
	/* NULL: it stays. */
	void (*open)(struct vm_area_struct *vma);
	void (*close)(struct vm_area_struct *vma);
	vm_fault_t (*fault)(struct vm_fault *vmf);
	bool shows, gated;
};

/*
 * The driver's interface for its own modules (nv-modeset-interface.h), the same in all branches but
 * for arguments of functions that are not called here. The names are NVIDIA's, because a kernel
 * with CONFIG_CFI compares them.
 */
struct nvidia_stack_s;

typedef struct {
	const char *version_string;
	struct {
		u8 allow_write_combining;
	} system_info;
	int (*alloc_stack)(struct nvidia_stack_s **stack);
	void (*free_stack)(struct nvidia_stack_s *stack);
	void *enumerate_gpus;
	void *open_gpu;
	void *close_gpu;
	void (*op)(struct nvidia_stack_s *stack, void *request);
	void *set_callbacks;
} nvidia_modeset_rm_ops_t;

u32 cgpu_shim_driver_interface(void *get, nvidia_modeset_rm_ops_t *operations);
int cgpu_shim_driver_stack(const nvidia_modeset_rm_ops_t *operations,
			   struct nvidia_stack_s **stack);
void cgpu_shim_drop_driver_stack(const nvidia_modeset_rm_ops_t *operations,
				 struct nvidia_stack_s *stack);
void cgpu_shim_driver_call(const nvidia_modeset_rm_ops_t *operations,
			   struct nvidia_stack_s *stack, void *request);
bool cgpu_shim_is_character_device(const struct inode *inode);
struct module *cgpu_shim_owner(const struct file *file);
int cgpu_shim_driver_open(const struct file *real, struct file *file);
int cgpu_shim_driver_release(const struct file *real, struct inode *inode, struct file *file);
long cgpu_shim_driver_ioctl(const struct file *real, struct file *file, unsigned int cmd,
			    unsigned long arg);
int cgpu_shim_driver_mmap(const struct file *real, struct file *file, struct vm_area_struct *vma);
__poll_t cgpu_shim_driver_poll(const struct file *real, struct file *file,
			       struct poll_table_struct *table);
vm_fault_t cgpu_shim_driver_fault(const struct vm_operations_struct *theirs, struct vm_fault *vmf);
void cgpu_shim_open_mapping(const struct vm_operations_struct *theirs, struct vm_area_struct *vma);
void cgpu_shim_close_mapping(const struct vm_operations_struct *theirs,
			     struct vm_area_struct *vma);
int cgpu_shim_start_pages(void);
void cgpu_shim_stop_pages(void);
void cgpu_shim_init_page_work(struct cgpu_page_work *place,
			      void (*run)(struct cgpu_page_work *place));
void cgpu_shim_queue_page_work(struct cgpu_page_work *place, unsigned int milliseconds);
void cgpu_shim_end_page_work(struct cgpu_page_work *place);
void cgpu_shim_cover(struct cgpu_vm_operations *place, const struct vm_operations_struct *theirs,
		     const struct cgpu_covering *ours);
const struct vm_operations_struct *cgpu_shim_no_operations(void);

#endif
