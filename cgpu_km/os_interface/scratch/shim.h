/* SPDX-License-Identifier: GPL-2.0 */
/* The scratch's file and mapping. What Rust has for it is named cgpu_scratch_*. */
#ifndef CGPU_SCRATCH_SHIM_H
#define CGPU_SCRATCH_SHIM_H

#include <linux/fs.h>
#include <linux/mm.h>

struct file *cgpu_shim_scratch_file(void *pool);
struct vm_area_struct *cgpu_shim_lock_scratch(struct mm_struct *mm, unsigned long base,
					      const void *pool, bool *whole);
void cgpu_shim_unlock_scratch(struct mm_struct *mm, struct vm_area_struct *vma, bool whole);

int cgpu_shim_start_seals(void);
void cgpu_shim_stop_seals(void);
int cgpu_seal(struct vm_area_struct *vma);
bool cgpu_unseal(struct vm_area_struct *vma);

bool cgpu_scratch_may_map(const void *pool, unsigned long length);
void cgpu_scratch_release(const void *pool);
void cgpu_scratch_close(const void *pool);
vm_fault_t cgpu_scratch_fault(struct vm_fault *vmf);
vm_fault_t cgpu_scratch_mkwrite(struct vm_fault *vmf);

#endif
