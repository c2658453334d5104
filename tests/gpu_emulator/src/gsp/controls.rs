// SPDX-License-Identifier: GPL-2.0
//! Controls that need no answer of their own: what they set changes nothing here, or what they ask
//! about is not there. The names are those of the driver's headers.

use super::answers::{Answer, ANSWERS};
use crate::abi::Abi;
use std::collections::HashMap;

/// The knowledge of a control.
#[derive(Clone, Copy, Debug)]
pub enum Control {
    /// A function answers it.
    Answer(Answer),
    /// It tells the firmware something that this one does not need. The status is the answer.
    Told,
    /// It asks for something that this GPU has not: zeros, as the driver sent them.
    Absent,
}

/// The driver tells: memory for the firmware's own buffers, modes of units that are not emulated,
/// caches and translations to forget, and engines of channels that are bound anyhow.
const TOLD: &[&str] = &[
    "NV0080_CTRL_CMD_DMA_UNSET_PAGE_DIRECTORY",
    "NV0080_CTRL_CMD_INTERNAL_PERF_CUDA_LIMIT_DISABLE",
    "NV0080_CTRL_CMD_INTERNAL_PERF_CUDA_LIMIT_SET_CONTROL",
    "NV2080_CTRL_CMD_GPU_PROMOTE_CTX",
    "NV2080_CTRL_CMD_GPU_EVICT_CTX",
    "NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION",
    "NV2080_CTRL_CMD_INTERNAL_UVM_REGISTER_ACCESS_CNTR_BUFFER",
    "NV2080_CTRL_CMD_INTERNAL_UVM_UNREGISTER_ACCESS_CNTR_BUFFER",
    "NV2080_CTRL_CMD_INTERNAL_GR_SET_FECS_TRACE_HW_ENABLE",
    "NV2080_CTRL_CMD_INTERNAL_MEMSYS_SET_PARTITIONABLE_MEM",
    "NV2080_CTRL_CMD_INTERNAL_MEMSYS_L2_INVALIDATE_EVICT",
    "NV2080_CTRL_CMD_INTERNAL_BUS_FLUSH_WITH_SYSMEMBAR",
    "NV2080_CTRL_CMD_INTERNAL_PERF_BOOST_SET_2X",
    "NV2080_CTRL_CMD_INTERNAL_GMMU_REGISTER_FAULT_BUFFER",
    "NV2080_CTRL_CMD_INTERNAL_GMMU_UNREGISTER_FAULT_BUFFER",
    "NV2080_CTRL_CMD_INTERNAL_GMMU_REGISTER_CLIENT_SHADOW_FAULT_BUFFER",
    "NV2080_CTRL_CMD_INTERNAL_GMMU_UNREGISTER_CLIENT_SHADOW_FAULT_BUFFER",
    "NV2080_CTRL_CMD_INTERNAL_GMMU_COPY_RESERVED_SPLIT_GVASPACE_PDES_TO_SERVER",
    "NV2080_CTRL_CMD_INTERNAL_CCU_MAP",
    "NV2080_CTRL_CMD_INTERNAL_CCU_UNMAP",
    "NV2080_CTRL_CMD_INTERNAL_INIT_USER_SHARED_DATA",
    "NV2080_CTRL_CMD_INTERNAL_USER_SHARED_DATA_SET_DATA_POLL",
    "NV2080_CTRL_CMD_MC_SERVICE_INTERRUPTS",
    "NV2080_CTRL_CMD_CE_UPDATE_PCE_LCE_MAPPINGS",
    "NV2080_CTRL_CMD_CE_UPDATE_CLASS_DB",
    "NV2080_CTRL_CMD_NVLINK_REMOVE_NVLINK_MAPPING",
    "NV2080_CTRL_CMD_NVLINK_UPDATE_CURRENT_CONFIG",
    "NV2080_CTRL_CMD_NVLINK_PROGRAM_LINK_SPEED",
    "NV2080_CTRL_CMD_NVLINK_DISABLE_DL_INTERRUPTS",
    "NV2080_CTRL_CMD_NVLINK_PROCESS_INIT_DISABLED_LINKS",
    "NV83DE_CTRL_CMD_DEBUG_SET_EXCEPTION_MASK",
    "NVA06C_CTRL_CMD_INTERNAL_PROMOTE_FAULT_METHOD_BUFFERS",
    "NVA06F_CTRL_CMD_BIND",
];

/// Parts that this GPU has not: NVLink, MIG, confidential computing, graphics beyond compute,
/// traces of context switches, falcons that the driver runs, boost groups, virtual functions, I2C
/// ports, a reset that is due, atomics over PCIe, secure channels.
const ABSENT: &[&str] = &[
    "NV0080_CTRL_CMD_GPU_GET_BRAND_CAPS",
    "NV2080_CTRL_CMD_GPU_GET_RESET_STATUS",
    "NV2080_CTRL_CMD_GPU_GET_DRAIN_AND_RESET_STATUS",
    "NV2080_CTRL_CMD_BUS_GET_PCIE_REQ_ATOMICS_CAPS",
    "NV2080_CTRL_CMD_BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS",
    "NV2080_CTRL_CMD_INTERNAL_FIFO_GET_NUM_SECURE_CHANNELS",
    "NV2080_CTRL_CMD_GPU_GET_VMMU_SEGMENT_SIZE",
    "NV2080_CTRL_CMD_GPU_GET_CONSTRUCTED_FALCON_INFO",
    "NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_CAPS",
    "NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_ZCULL_INFO",
    "NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_ROP_INFO",
    "NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_PPC_MASKS",
    "NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_SM_ISSUE_RATE_MODIFIER",
    "NV2080_CTRL_CMD_INTERNAL_GR_GET_FECS_TRACE_HW_ENABLE",
    "NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_FECS_RECORD_SIZE",
    "NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_FECS_TRACE_DEFINES",
    "NV2080_CTRL_CMD_INTERNAL_GPU_GET_USER_REGISTER_ACCESS_MAP",
    "NV2080_CTRL_CMD_INTERNAL_STATIC_KGR_GET_PDB_PROPERTIES",
    "NV2080_CTRL_CMD_INTERNAL_GPU_GET_SMC_MODE",
    "NV2080_CTRL_CMD_INTERNAL_KMEMSYS_GET_MIG_MEMORY_CONFIG",
    "NV2080_CTRL_CMD_INTERNAL_PERF_GPU_BOOST_SYNC_GET_INFO",
    "NV2080_CTRL_CMD_INTERNAL_BIF_GET_STATIC_INFO",
    "NV2080_CTRL_INTERNAL_NVLINK_GET_NUM_ACTIVE_LINK_PER_IOCTRL",
    "NV2080_CTRL_INTERNAL_NVLINK_GET_TOTAL_NUM_LINK_PER_IOCTRL",
    "NV2080_CTRL_CMD_CE_GET_HUB_PCE_MASK",
    "NV2080_CTRL_CMD_NVLINK_GET_ALI_ENABLED",
    "NV2080_CTRL_CMD_NVLINK_GET_NVLINK_DEVICE_INFO",
    "NV2080_CTRL_CMD_NVLINK_GET_LINK_AND_CLOCK_INFO",
    "NV2080_CTRL_CMD_NVLINK_SYNC_LINK_MASKS_AND_VBIOS_INFO",
    "NV2080_CTRL_CMD_PMGR_GET_MODULE_INFO",
    "NV402C_CTRL_CMD_I2C_GET_PORT_INFO",
];

/// The controls that a release has, by number.
pub fn known(abi: &Abi) -> HashMap<u32, Control> {
    let answers = ANSWERS
        .iter()
        .map(|(name, answer)| (*name, Control::Answer(*answer)));
    let told = TOLD.iter().map(|name| (*name, Control::Told));
    let absent = ABSENT.iter().map(|name| (*name, Control::Absent));
    let all = answers.chain(told).chain(absent);
    all.filter_map(|(name, control)| Some((abi.find(name)? as u32, control)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_control_is_known_once() {
        let abi = Abi::of("550").expect("has a table");
        assert_eq!(known(&abi).len(), ANSWERS.len() + TOLD.len() + ABSENT.len());
    }
}
