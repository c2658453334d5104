// SPDX-License-Identifier: GPL-2.0
//! Attacks that are answered through an instance: the module answers without the driver, or hands
//! the driver something harmless. Whether there is harm shows in the stand-in alone.

/// Their names. Any other attack that is answered on NVIDIA's own driver has worked, for all that
/// can be seen there.
pub(super) const ANSWERED: &[&str] = &[
    "a longer timeslice than the others'",
    "a reservation of the GPU for one client",
    "an object freed inside a tree (REGISTER_MEMDESC_TO_PHYS_RM of addresses)",
    "freed memory that the GPU still reads (ACCESS_READ_ONLY)",
    "host crash: an encoder's session outlives its memory (NVENC_SW_SESSION)",
    "host crash: memory of a node that is not there (FIXED_NUMA_NODE_ID)",
    "kernels that cannot be preempted, as made",
    "kernels that cannot be preempted, asked for (GR_SET_CTXSW_PREEMPTION_MODE)",
    "mapping: memory mapped by a freed subdevice",
    "memory of half a GPU kept from all (ENABLE_LOCALIZED_MEMORY)",
    "the clocks raised",
    "the firmware's heap filled by a GPU's memory (REGISTER_MEMDESC_TO_PHYS_RM)",
    "the firmware's heap filled by host memory (REGISTER_MEMDESC_TO_PHYS_RM)",
    "the firmware's heap filled by the older call (RM_ALLOC_MEMORY)",
    "the size of the host's memory blocks set (SYS_PARAMS)",
    "unmapped memory that the GPU still reaches (DEFER_TLB_INVALIDATION)",
];
