// SPDX-License-Identifier: GPL-2.0
//! The engines of the GPU and the vectors of their interrupts. The firmware tells the driver of
//! both, so the numbers need only agree with each other; the driver has rules for some of them.

use crate::{abi::Abi, model::GpuModel};

/// The work of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    /// Graphics and compute.
    Graphics,
    /// Copies.
    Copy,
}

/// One engine.
#[derive(Clone, Debug)]
pub struct Engine {
    /// Its work.
    pub kind: EngineKind,
    /// Its number among those of its kind.
    pub instance: u32,
    /// Its runlist.
    pub runlist: u32,
    /// Its number on the runlist.
    pub slot: u32,
    /// Its number in the order of all.
    pub index: u32,
}

/// The first and the last subtree of each of the driver's categories of interrupts
/// (`NV2080_INTR_CATEGORY_*`): default, stalling and non-stalling ones of engines, the same of
/// runlists, UVM's own, shared with UVM. They are those of intr_gh100.c and
/// hopper/gh100/dev_vm_addendum.h.
pub const SUBTREES: [[u8; 2]; 7] = [[2, 2], [3, 3], [0, 0], [4, 4], [5, 5], [1, 1], [2, 2]];

/// The first vector of a subtree: each has two leaves of 32.
const fn subtree(number: u32) -> u32 {
    64 * number
}

/// First vectors of non-stalling and stalling interrupts: of engines, and of runlists.
const NON_STALL: u32 = subtree(0);
const STALL: u32 = subtree(3);
const RUNLIST: u32 = subtree(4);
const RUNLIST_NON_STALL: u32 = subtree(5);
/// Vector of the log of context switches, beyond the engines'.
const FECS_LOG: u32 = subtree(0) + 32;
/// No vector.
pub const NO_VECTOR: u32 = u32::MAX;
/// Vector of messages from the firmware.
pub const GSP_VECTOR: u32 = subtree(2) + 5;
/// Vector of faults that the driver can answer.
pub const REPLAYABLE_FAULT_VECTOR: u32 = subtree(1);

/// All engines of a GPU.
pub fn of(model: &GpuModel) -> Vec<Engine> {
    let graphics = Engine {
        kind: EngineKind::Graphics,
        instance: 0,
        runlist: 0,
        slot: 0,
        index: 0,
    };
    let copies = (0..model.copy_engines).map(|instance| {
        let shared = instance < model.copy_engines_of_graphics;
        Engine {
            kind: EngineKind::Copy,
            instance,
            runlist: if shared {
                0
            } else {
                instance + 1 - model.copy_engines_of_graphics
            },
            slot: if shared { instance + 1 } else { 0 },
            index: instance + 1,
        }
    });
    std::iter::once(graphics).chain(copies).collect()
}

impl Engine {
    /// The class of the driver's object for it (eng_desc.h).
    pub fn descriptor(&self, abi: &Abi) -> u32 {
        match self.kind {
            EngineKind::Graphics => abi.word("ENG_GR(0)"),
            EngineKind::Copy => abi.word("ENG_CE(0)") + self.instance,
        }
    }

    /// `RM_ENGINE_TYPE_*` (gpu_engine_type.h).
    pub fn rm_type(&self, abi: &Abi) -> u32 {
        match self.kind {
            EngineKind::Graphics => abi.word("RM_ENGINE_TYPE_GR0"),
            EngineKind::Copy => abi.word("RM_ENGINE_TYPE_COPY0") + self.instance,
        }
    }

    /// `MC_ENGINE_IDX_*` (engine_idx.h).
    pub fn mc_index(&self, abi: &Abi) -> u32 {
        match self.kind {
            EngineKind::Graphics => abi.word("MC_ENGINE_IDX_GR0"),
            EngineKind::Copy => abi.word("MC_ENGINE_IDX_CE(0)") + self.instance,
        }
    }

    /// The type in the GPU's own table of devices (`NV_PTOP_DEVICE_INFO2_DEV_TYPE_ENUM_*`).
    pub fn device_type(&self) -> u32 {
        match self.kind {
            EngineKind::Graphics => 0,
            EngineKind::Copy => 19,
        }
    }

    /// Its number in reports of faults (`NV_PFAULT_MMU_ENG_ID_*`, hopper/gh100/dev_fault.h).
    pub fn fault_id(&self) -> u32 {
        match self.kind {
            EngineKind::Graphics => 384,
            EngineKind::Copy => 43 + self.instance,
        }
    }

    /// Its name in the driver's messages.
    pub fn name(&self) -> String {
        match self.kind {
            EngineKind::Graphics => "graphics".to_string(),
            EngineKind::Copy => format!("ce{}", self.instance),
        }
    }

    /// Offset of its registers.
    pub fn registers(&self) -> u32 {
        match self.kind {
            EngineKind::Graphics => 0x40_0000,
            EngineKind::Copy => 0x10_4000 + 0x1000 * (self.instance + 1),
        }
    }

    /// Offset of its runlist's registers.
    pub fn runlist_registers(&self) -> u32 {
        0x88_0000 + 0x4000 * self.runlist
    }

    /// Offset of the registers of its runlist's channels.
    pub fn channel_registers(&self) -> u32 {
        0x90_0000 + 0x2000 * self.runlist
    }

    /// The vector of its non-stalling interrupt.
    pub fn non_stall(&self) -> u32 {
        NON_STALL + self.index
    }
}

/// The vectors of the non-stalling interrupts of a runlist's engines.
pub fn non_stall_of_runlist(engines: &[Engine], runlist: u32) -> impl Iterator<Item = u32> + '_ {
    engines
        .iter()
        .filter(move |engine| engine.runlist == runlist)
        .map(Engine::non_stall)
}

/// One line of the table of interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterruptLine {
    /// The unit (`MC_ENGINE_IDX_*`).
    pub unit: u32,
    /// The vector of its stalling interrupt, or [`NO_VECTOR`].
    pub stall: u32,
    /// The vector of its non-stalling interrupt, or [`NO_VECTOR`].
    pub non_stall: u32,
}

/// Units that are no engines, with their vectors. The doorbell's is fixed
/// (`NV_CTRL_CPU_DOORBELL_VECTORID_VALUE_CONSTANT`).
const UNITS: [(&str, u32); 16] = [
    ("MC_ENGINE_IDX_REPLAYABLE_FAULT", REPLAYABLE_FAULT_VECTOR),
    (
        "MC_ENGINE_IDX_REPLAYABLE_FAULT_CPU",
        REPLAYABLE_FAULT_VECTOR,
    ),
    ("MC_ENGINE_IDX_ACCESS_CNTR", subtree(1) + 1),
    ("MC_ENGINE_IDX_CPU_DOORBELL", subtree(2) + 1),
    ("MC_ENGINE_IDX_TMR", subtree(2) + 2),
    ("MC_ENGINE_IDX_FIFO", subtree(2) + 3),
    ("MC_ENGINE_IDX_BUS", subtree(2) + 4),
    ("MC_ENGINE_IDX_GSP", GSP_VECTOR),
    ("MC_ENGINE_IDX_FB", subtree(2) + 6),
    ("MC_ENGINE_IDX_PMU", subtree(2) + 7),
    ("MC_ENGINE_IDX_TMR_SWRL", subtree(2) + 8),
    ("MC_ENGINE_IDX_NON_REPLAYABLE_FAULT", subtree(2) + 9),
    ("MC_ENGINE_IDX_NON_REPLAYABLE_FAULT_CPU", subtree(2) + 9),
    ("MC_ENGINE_IDX_REPLAYABLE_FAULT_ERROR", subtree(2) + 10),
    ("MC_ENGINE_IDX_NON_REPLAYABLE_FAULT_ERROR", subtree(2) + 11),
    ("MC_ENGINE_IDX_INFO_FAULT", subtree(2) + 12),
];

/// The table of interrupts.
pub fn interrupts(abi: &Abi, engines: &[Engine]) -> Vec<InterruptLine> {
    let units = UNITS.iter().map(|(name, stall)| InterruptLine {
        unit: abi.word(name),
        stall: *stall,
        non_stall: NO_VECTOR,
    });
    let of_engines = engines.iter().map(|engine| InterruptLine {
        unit: engine.mc_index(abi),
        stall: STALL + engine.index,
        non_stall: engine.non_stall(),
    });
    // A runlist's scheduler has the vectors of its first engine.
    let schedulers = engines
        .iter()
        .filter(|engine| engine.slot == 0)
        .map(|engine| InterruptLine {
            unit: abi.word("MC_ENGINE_IDX_ESCHEDn(0)") + engine.runlist,
            stall: RUNLIST + engine.index,
            non_stall: RUNLIST_NON_STALL + engine.index,
        });
    let fecs = InterruptLine {
        unit: abi.word("MC_ENGINE_IDX_GR0_FECS_LOG"),
        stall: NO_VECTOR,
        non_stall: FECS_LOG,
    };
    units
        .chain(of_engines)
        .chain(schedulers)
        .chain([fecs])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_of_units_lie_in_the_tree() {
        let abi = Abi::of("550").expect("has a table");
        let engines = of(&GpuModel::h200());
        for line in interrupts(&abi, &engines) {
            for vector in [line.stall, line.non_stall] {
                assert!(vector == NO_VECTOR || vector < subtree(6), "{line:?}");
            }
        }
    }

    #[test]
    fn copy_engines_share_the_first_runlist() {
        let model = GpuModel::h200();
        let engines = of(&model);
        let shared = engines.iter().filter(|engine| engine.runlist == 0).count() as u32;
        assert_eq!(shared, 1 + model.copy_engines_of_graphics);
        let last = engines.last().expect("has engines");
        assert_eq!((last.runlist, last.slot), (4, 0));
    }
}
