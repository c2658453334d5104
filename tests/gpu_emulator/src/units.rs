// SPDX-License-Identifier: GPL-2.0
//! The GPU's units, as far as the firmware works on them.

use crate::{
    gsp::answers::Facts, host::Host, interrupts::Interrupts, log::Log, memory::Memory,
    registers::Registers,
};

/// State that the firmware and the registers share.
#[derive(Debug)]
pub struct Units {
    /// Facts about the GPU and the driver's release.
    pub facts: Facts,
    /// Video memory and the machine's.
    pub memory: Memory,
    /// Registers that keep what is written.
    pub registers: Registers,
    /// The tree of interrupts.
    pub interrupts: Interrupts,
    /// Channels.
    pub host: Host,
    /// The log.
    pub log: Log,
}
