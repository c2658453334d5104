// SPDX-License-Identifier: GPL-2.0
//! The emulated models of GPUs, as data only.

use crate::MIB;

/// Figures of one GPU.
#[derive(Clone, Debug)]
pub struct GpuModel {
    /// Name, as nvidia-smi prints it.
    pub name: String,
    /// Short name of the chip.
    pub chip: &'static str,
    /// PCI identity: vendor, device, revision.
    pub vendor: u16,
    /// PCI device.
    pub device: u16,
    /// PCI revision.
    pub revision: u8,
    /// PCI identity of the board: vendor.
    pub subsystem_vendor: u16,
    /// PCI identity of the board: device.
    pub subsystem: u16,
    /// Generation of PCI Express.
    pub link_generation: u8,
    /// Lanes of PCI Express.
    pub link_lanes: u8,
    /// `NV_PMC_BOOT_0`: architecture, implementation, revision.
    pub boot_0: u32,
    /// `NV_PMC_BOOT_42`: the same in newer fields.
    pub boot_42: u32,
    /// Video memory in bytes.
    pub memory: u64,
    /// Sizes of the three windows (BAR0, BAR1, BAR2) in bytes.
    pub windows: [u64; 3],
    /// Bits of the memory's bus.
    pub memory_bus: u32,
    /// Level 2 cache in bytes.
    pub l2_cache: u32,
    /// Graphics processing clusters, each with as many texture processing clusters.
    pub gpcs: u32,
    /// Texture processing clusters of each; two multiprocessors each.
    pub tpcs_per_gpc: u32,
    /// Which texture processing clusters lack of each full set: `tpcs` in all.
    pub tpcs: u32,
    /// Copy engines. The first `copy_engines_of_graphics` share the graphics engine's runlist.
    pub copy_engines: u32,
    /// Copy engines on the graphics engine's runlist.
    pub copy_engines_of_graphics: u32,
    /// Channels of each runlist.
    pub channels: u32,
    /// The GPU's unique number, the bytes of its UUID.
    pub uuid: [u8; 16],
}

impl GpuModel {
    /// An H200 with 141 GiB.
    pub fn h200() -> Self {
        Self {
            name: "NVIDIA H200".to_string(),
            chip: "GH100-A",
            vendor: 0x10de,
            device: 0x2335,
            revision: 0xa1,
            subsystem_vendor: 0x10de,
            subsystem: 0x18be,
            link_generation: 5,
            link_lanes: 16,
            boot_0: 0x1800_00a1,
            boot_42: 0x180a_1000,
            memory: 144_384 * MIB,
            windows: [16 * MIB, 256 * MIB, 32 * MIB],
            memory_bus: 6144,
            l2_cache: 60 << 20,
            gpcs: 8,
            tpcs_per_gpc: 9,
            tpcs: 66,
            copy_engines: 6,
            copy_engines_of_graphics: 2,
            channels: 2048,
            uuid: *b"\xf0\xf1\xf2\xf3\xf4\xf5\xf6\xf7\xf8\xf9\xfa\xfb\xfc\xfd\xfe\x00",
        }
    }

    /// Texture processing clusters of a graphics processing cluster: the last ones lack some.
    pub fn tpcs_of(&self, gpc: u32) -> u32 {
        let whole = self.gpcs * self.tpcs_per_gpc - self.tpcs;
        self.tpcs_per_gpc - whole / self.gpcs - u32::from(gpc >= self.gpcs - whole % self.gpcs)
    }

    /// Streaming multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        2 * self.tpcs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_add_up() {
        let model = GpuModel::h200();
        let sum: u32 = (0..model.gpcs).map(|gpc| model.tpcs_of(gpc)).sum();
        assert_eq!(sum, model.tpcs);
        assert_eq!(model.multiprocessors(), 132);
    }
}
