// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Architectures of GPUs, as `NV2080_CTRL_CMD_MC_GET_ARCH_INFO` names them
//! (`NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_*`, ctrl2080mc.h). 0 stands for one that is not known.

/// GA100 and later.
pub const AMPERE: u32 = 0x170;
/// GH100.
pub const HOPPER: u32 = 0x180;
/// AD102 and later.
pub const ADA: u32 = 0x190;
