/* SPDX-License-Identifier: GPL-2.0 */
/* Rust's functions for the module's beginning and end. */
#ifndef CGPU_ENTRY_SHIM_H
#define CGPU_ENTRY_SHIM_H

/* 0, or an errno. assumed_branch: see the parameter; 0 if it was not given. */
int cgpu_core_start(unsigned int assumed_branch);
void cgpu_core_stop(void);

/* The parameter of that name. */
unsigned int cgpu_shim_driver_refusals(void);

#endif
