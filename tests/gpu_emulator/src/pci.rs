// SPDX-License-Identifier: GPL-2.0
//! PCI configuration space: identity, windows, power management, messages, and the PCI Express
//! capability where a GH100 has it (hopper/gh100/dev_xtl_ep_pcfg_gpu.h, `NV_EP_PCFG_GPU_*`).

use crate::model::GpuModel;

/// Size of the configuration space in bytes.
pub const SIZE: usize = 4096;

/// Offsets of the capabilities, in the order in which they are linked.
const POWER: usize = 0x40;
const MESSAGES: usize = 0x48;
const EXPRESS: usize = 0x60;

/// Which bits of the 32-bit register at an offset can be written.
fn writable(offset: usize) -> u32 {
    match offset {
        // Command; the status register above it is not written.
        0x04 => 0x0000_0547,
        // Base addresses: QEMU keeps them too, and asks for none of the size here.
        0x10..0x28 => !0,
        // The interrupt's line.
        0x3c => 0xff,
        // Power state.
        _ if offset == POWER + 4 => 0x0000_8103,
        // Enable, and number of vectors.
        _ if offset == MESSAGES => 0x0071_0000,
        _ if (MESSAGES + 4..MESSAGES + 16).contains(&offset) => !0,
        // Device control, link control, device control 2, link control 2.
        _ if offset == EXPRESS + 8 || offset == EXPRESS + 16 => 0xffff,
        _ if offset == EXPRESS + 40 || offset == EXPRESS + 48 => 0xffff,
        _ => 0,
    }
}

/// The configuration space of one GPU.
#[derive(Debug)]
pub struct ConfigSpace {
    bytes: [u8; SIZE],
}

impl ConfigSpace {
    /// As it is after a reset.
    pub fn new(model: &GpuModel) -> Self {
        let mut space = Self { bytes: [0; SIZE] };
        space.set16(0x00, model.vendor);
        space.set16(0x02, model.device);
        // Status: there is a list of capabilities.
        space.set16(0x06, 0x0010);
        space.bytes[0x08] = model.revision;
        // A 3D controller.
        space.set16(0x0a, 0x0302);
        // Three prefetchable windows of 64 bits.
        for bar in [0x10, 0x18, 0x20] {
            space.set32(bar, 0xc);
        }
        space.set16(0x2c, model.subsystem_vendor);
        space.set16(0x2e, model.subsystem);
        space.bytes[0x34] = POWER as u8;
        // Interrupt pin A.
        space.bytes[0x3d] = 1;
        space.capability(POWER, 1, MESSAGES);
        space.set16(POWER + 2, 3);
        // No soft reset: the state survives the way from D3 to D0.
        space.set16(POWER + 4, 8);
        space.capability(MESSAGES, 5, EXPRESS);
        // Addresses of 64 bits, one vector.
        space.set16(MESSAGES + 2, 0x80);
        space.express(model);
        space
    }

    fn capability(&mut self, at: usize, id: u8, next: usize) {
        self.bytes[at] = id;
        self.bytes[at + 1] = next as u8;
    }

    fn express(&mut self, model: &GpuModel) {
        self.capability(EXPRESS, 0x10, 0);
        // Version 2, an endpoint.
        self.set16(EXPRESS + 2, 2);
        // Device: payloads of 256 bytes, extended tags, error reporting, function level reset.
        self.set32(EXPRESS + 4, 0x1000_8de1);
        self.set16(EXPRESS + 8, 0x2930);
        // Link: what it can do, and what it does.
        let link = u32::from(model.link_generation) | u32::from(model.link_lanes) << 4;
        self.set32(EXPRESS + 12, 0x0040_6c00 | link);
        self.set16(EXPRESS + 18, 0x1000 | link as u16);
        // Device 2, link 2: completion timeouts; all speeds up to the highest.
        self.set32(EXPRESS + 36, 0x0001_0073);
        self.set32(EXPRESS + 44, ((1 << model.link_generation) - 1) << 1);
        self.set16(EXPRESS + 48, u16::from(model.link_generation));
    }

    fn set16(&mut self, at: usize, value: u16) {
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn set32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Whether the device may use the bus by itself (`PCI_COMMAND_MASTER`, linux/pci_regs.h).
    pub fn bus_master(&self) -> bool {
        self.bytes[0x04] & 1 << 2 != 0
    }

    /// Reads bytes; beyond the end they are all ones.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        for (at, byte) in (offset as usize..).zip(bytes) {
            *byte = self.bytes.get(at).copied().unwrap_or(0xff);
        }
    }

    /// Writes bytes, as far as they can be written.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (at, byte) in (offset as usize..).zip(bytes) {
            let mask = writable(at & !3).to_le_bytes()[at & 3];
            if let Some(now) = self.bytes.get_mut(at) {
                *now = *now & !mask | byte & mask;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(space: &ConfigSpace, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        space.read(offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    #[test]
    fn identity_cannot_be_written() {
        let mut space = ConfigSpace::new(&GpuModel::h200());
        space.write(0, &[0; 4]);
        assert_eq!(read(&space, 0), 0x2335_10de);
        space.write(4, &[0xff; 4]);
        assert_eq!(read(&space, 4), 0x0010_0547);
    }

    #[test]
    fn capabilities_are_linked_to_the_last() {
        let space = ConfigSpace::new(&GpuModel::h200());
        let (mut at, mut found) = (u64::from(read(&space, 0x34) & 0xff), Vec::new());
        while at != 0 {
            let head = read(&space, at);
            found.push(head & 0xff);
            at = u64::from(head >> 8 & 0xff);
        }
        assert_eq!(found, [1, 5, 0x10]);
    }

    #[test]
    fn link_runs_at_its_best() {
        let space = ConfigSpace::new(&GpuModel::h200());
        assert_eq!(read(&space, EXPRESS as u64 + 12) & 0x3ff, 5 | 16 << 4);
        assert_eq!(read(&space, EXPRESS as u64 + 16) >> 16 & 0x3ff, 5 | 16 << 4);
    }
}
