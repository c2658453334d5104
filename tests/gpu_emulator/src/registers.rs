// SPDX-License-Identifier: GPL-2.0
//! The registers behind BAR0 that mean something here: name, address, and the header that has it.
//!
//! The headers are those of NVIDIA's open-gpu-kernel-modules, `src/common/inc/swref/published`.
//! A register that is not listed keeps what was written to it, and reads as zero before that.

use std::collections::HashMap;

/// Writes a constant for each register, and the table of their names.
macro_rules! registers {
    ($($(#[$doc:meta])* $name:ident = $address:expr;)*) => {
        $($(#[$doc])* pub const $name: u64 = $address;)*

        const NAMES: &[(u64, &str)] = &[$(($address, stringify!($name))),*];
    };
}

/// The virtual function's registers begin here for the physical function (turing/tu102/dev_vm.h,
/// `NV_VIRTUAL_FUNCTION_FULL_PHYS_OFFSET`).
pub const VIRTUAL_FUNCTION: u64 = 0xb8_0000;
/// The page of registers that programs may have, in the same (`NV_VIRTUAL_FUNCTION` 0x30000..).
pub const USERMODE: u64 = VIRTUAL_FUNCTION + 0x3_0000;
/// The same page where `NV_REG_BASE_USERMODE` of NV2080_CTRL_CMD_INTERNAL_GPU_GET_CHIP_INFO says.
pub const USERMODE_ALIAS: u64 = 0xfc_0000;
/// Offset of the doorbell in that page (class c361, `NVC361_NOTIFY_CHANNEL_PENDING`).
pub const DOORBELL: u64 = 0x90;
/// Offset of the clock in that page, low and high word (`NVC361_TIME_0`, `NVC361_TIME_1`).
pub const USERMODE_TIME: [u64; 2] = [0x80, 0x84];
/// The window into video memory, 1 MiB (nv_ref.h, `NV_PRAMIN`).
pub const PRAMIN: std::ops::Range<u64> = 0x70_0000..0x80_0000;

registers! {
    /// Architecture, implementation, revision (hopper/gh100/dev_pmc.h).
    NV_PMC_BOOT_0 = 0x00_0000;
    /// Byte order, and which function (nv_ref.h).
    NV_PMC_BOOT_1 = 0x00_0004;
    /// Architecture, implementation, revision in newer fields (nv_ref.h).
    NV_PMC_BOOT_42 = 0x00_0a00;
    /// Nanoseconds, bits 31:5 (hopper/gh100/dev_timer.h).
    NV_PTIMER_TIME_0 = 0x00_9400;
    /// Nanoseconds, the high word (hopper/gh100/dev_timer.h).
    NV_PTIMER_TIME_1 = 0x00_9410;
    /// FSP writes 0xff when it has booted (hopper/gh100/dev_therm_addendum.h).
    NV_THERM_I2CS_SCRATCH_FSP_BOOT_COMPLETE = 0x02_00bc;
    /// Which 64 KiB of video memory PRAMIN begins at (hopper/gh100/pri_nv_xal_ep.h).
    NV_XAL_EP_BAR0_WINDOW = 0x10_fd40;
    /// Forgets interrupts of GSP's processor (ampere/ga102/dev_falcon_v4.h).
    NV_PGSP_FALCON_IRQSCLR = 0x11_0004;
    /// Pending interrupts of GSP's processor; bit 6 (SWGEN0) says that events are in the queue.
    NV_PGSP_FALCON_IRQSTAT = 0x11_0008;
    /// Which interrupts are let through (ampere/ga102/dev_riscv_pri.h).
    NV_PRISCV_RISCV_IRQMASK = 0x11_1528;
    /// Which interrupts go to the driver.
    NV_PRISCV_RISCV_IRQDEST = 0x11_152c;
    /// GSP's mailboxes (ampere/ga102/dev_gsp.h, hopper/gh100/dev_falcon_v4.h).
    NV_PGSP_FALCON_MAILBOX0 = 0x11_0040;
    /// The second mailbox.
    NV_PGSP_FALCON_MAILBOX1 = 0x11_0044;
    /// The firmware's heartbeat, `NV_PGSP_MAILBOX(0)` (hopper/gh100/dev_gsp.h): when it was last
    /// seen, in milliseconds of the GPU's clock. Drivers of branch 595 look at it (kernel_gsp.c,
    /// `_kgspIsHeartbeatTimedOut`).
    NV_PGSP_MAILBOX_0 = 0x11_0804;
    /// The same of LibOS, which the firmware runs on.
    NV_PGSP_MAILBOX_1 = 0x11_0808;
    /// Properties of GSP's processor (hopper/gh100/dev_falcon_v4.h, `NV_PFALCON_FALCON_HWCFG2`).
    NV_PGSP_FALCON_HWCFG2 = 0x11_00f4;
    /// Reset of GSP's processor (hopper/gh100/dev_gsp.h).
    NV_PGSP_FALCON_ENGINE = 0x11_03c0;
    /// GSP's doorbell: a message is in the command queue (ampere/ga102/dev_gsp.h).
    NV_PGSP_QUEUE_HEAD_0 = 0x11_0c00;
    /// State of GSP's RISC-V core (hopper/gh100/dev_riscv_pri.h, at `NV_FALCON2_GSP_BASE`).
    NV_PRISCV_RISCV_CPUCTL = 0x11_1388;
    /// Usable video memory in MiB (ampere/ga102/dev_gc6_island_addendum.h).
    NV_USABLE_FB_SIZE_IN_MB = 0x11_83a4;
    /// Address in FSP's window of messages (hopper/gh100/dev_fsp_pri.h).
    NV_PFSP_EMEMC_0 = 0x8f_2ac0;
    /// Data of FSP's window of messages (hopper/gh100/dev_fsp_pri.h).
    NV_PFSP_EMEMD_0 = 0x8f_2ac4;
    /// Beginning of the message to FSP (hopper/gh100/dev_fsp_pri.h).
    NV_PFSP_QUEUE_HEAD_0 = 0x8f_2c00;
    /// End of the message to FSP.
    NV_PFSP_QUEUE_TAIL_0 = 0x8f_2c04;
    /// Beginning of the message from FSP.
    NV_PFSP_MSGQ_HEAD_0 = 0x8f_2c80;
    /// End of the message from FSP.
    NV_PFSP_MSGQ_TAIL_0 = 0x8f_2c84;
    /// Which page directory is forgotten (turing/tu102/dev_vm.h).
    NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB = VIRTUAL_FUNCTION + 0x30a0;
    /// Forget translations; bit 31 is set until it is done (turing/tu102/dev_vm.h).
    NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE = VIRTUAL_FUNCTION + 0x30b0;
    /// Entries of the access counters' buffer (turing/tu102/dev_vm.h).
    NV_VIRTUAL_FUNCTION_PRIV_ACCESS_COUNTER_NOTIFY_BUFFER_SIZE = VIRTUAL_FUNCTION + 0x3110;
    /// The doorbell of the driver's own (turing/tu102/dev_vm.h).
    NV_VIRTUAL_FUNCTION_PRIV_DOORBELL = VIRTUAL_FUNCTION + 0x2200;
}

/// The name of a register, for the log.
pub fn name(address: u64) -> &'static str {
    let found = NAMES.iter().find(|(known, _)| *known == address);
    found.map_or("", |(_, name)| name)
}

/// Registers that just keep what was written.
#[derive(Debug, Default)]
pub struct Registers {
    values: HashMap<u64, u32>,
}

impl Registers {
    /// Reads a register; zero if nothing was written.
    pub fn get(&self, address: u64) -> u32 {
        self.values.get(&address).copied().unwrap_or(0)
    }

    /// Sets a register.
    pub fn set(&mut self, address: u64, value: u32) {
        self.values.insert(address, value);
    }

    /// Whether anything was written.
    pub fn is_set(&self, address: u64) -> bool {
        self.values.contains_key(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_register_has_one_address() {
        let mut seen: Vec<u64> = NAMES.iter().map(|(address, _)| *address).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), NAMES.len());
        assert_eq!(name(0x11_0c00), "NV_PGSP_QUEUE_HEAD_0");
    }
}
