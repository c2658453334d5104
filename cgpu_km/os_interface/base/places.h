/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Places for structures of the kernel's that lie inside of ours. Their size is no business of
 * Rust's, which is compiled once: a place has room for that of any kernel, and the C that puts the
 * structure there checks it.
 */
#ifndef CGPU_PLACES_H
#define CGPU_PLACES_H

#include <linux/build_bug.h>
#include <linux/compiler_types.h>
#include <linux/types.h>

#define CGPU_PLACE(name, words) \
	struct name { \
		u64 reserved[words]; \
	}
#define CGPU_FITS(structure, place) static_assert(sizeof(structure) <= sizeof(struct place))

/*
 * Of a function of C that calls one of Rust's by its address. A kernel with CONFIG_CFI looks at the
 * type of a function before such a call, and Rust's in the shipped object have none. So it is C
 * that the kernel and the driver call.
 */
#define CGPU_CALLS_RUST __nocfi

CGPU_PLACE(cgpu_semaphore, 20);
CGPU_PLACE(cgpu_completion, 20);
CGPU_PLACE(cgpu_rt_mutex, 24);
CGPU_PLACE(cgpu_rw_semaphore, 32);
CGPU_PLACE(cgpu_page_work, 32);
CGPU_PLACE(cgpu_task_work, 3);
CGPU_PLACE(cgpu_late_ends, 24);
CGPU_PLACE(cgpu_late_end, 2);
CGPU_PLACE(cgpu_file_operations, 40);
CGPU_PLACE(cgpu_vm_operations, 32);
CGPU_PLACE(cgpu_device, 96);
CGPU_PLACE(cgpu_misc_device, 72);
/* Those that the kernel's own crate has in its types: see dist/object/crates/adapt.py. */
CGPU_PLACE(cgpu_mutex, 24);
CGPU_PLACE(cgpu_spinlock, 12);
CGPU_PLACE(cgpu_wait_queue, 16);
CGPU_PLACE(cgpu_waiter, 8);
CGPU_PLACE(cgpu_xarray, 16);
CGPU_PLACE(cgpu_lock_class, 4);

#endif
