// SPDX-License-Identifier: GPL-2.0
//! The tree of interrupts (hopper/gh100/dev_vm.h, `NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_*`) and the
//! message to the processor.
//!
//! 16 leaves have 32 vectors each; two leaves make a subtree, and the top register shows the
//! subtrees with something pending that is enabled. A message is sent when an enabled subtree
//! begins to be pending, and again when the driver enables anything while it still is: the driver
//! re-arms that way.

use std::{fs::File, io::Write as _};

/// Leaves of the tree.
const LEAVES: usize = 16;
/// Offsets from the beginning of the virtual function's registers, with the last of each array.
const LEAF: u64 = 0x1000;
const LEAF_EN_SET: u64 = 0x1200;
const LEAF_EN_CLEAR: u64 = 0x1400;
const TOP: u64 = 0x1600;
const TOP_EN_SET: u64 = 0x1608;
const TOP_EN_CLEAR: u64 = 0x1610;
const LEAF_TRIGGER: u64 = 0x1640;

/// VFIO's numbers of a PCI device's kinds of interrupt (linux/vfio.h).
pub const INTX: u32 = 0;
/// Message signalled interrupts.
pub const MSI: u32 = 1;

/// Which of a leaf's registers an offset names.
enum LeafRegister {
    Pending(usize),
    Enable(usize),
    Disable(usize),
}

fn leaf_register(offset: u64) -> Option<LeafRegister> {
    let index = (offset & 0x3f) as usize / 4;
    match offset & !0x3f {
        LEAF => Some(LeafRegister::Pending(index)),
        LEAF_EN_SET => Some(LeafRegister::Enable(index)),
        LEAF_EN_CLEAR => Some(LeafRegister::Disable(index)),
        _ => None,
    }
}

/// The tree, and the event files by which QEMU is told.
#[derive(Debug, Default)]
pub struct Interrupts {
    pending: [u32; LEAVES],
    enabled: [u32; LEAVES],
    top_enabled: u32,
    /// An enabled subtree was pending when it was last looked at.
    asserted: bool,
    intx: Option<File>,
    msi: Option<File>,
    /// Messages sent so far.
    pub sent: u64,
}

impl Interrupts {
    /// Whether the tree has the register at this offset of the virtual function's.
    pub fn has(offset: u64) -> bool {
        (LEAF..0x1800).contains(&offset)
    }

    /// Takes over the event file of a kind of interrupt; `None` switches the kind off.
    pub fn connect(&mut self, kind: u32, event: Option<File>) {
        match kind {
            INTX => self.intx = event,
            MSI => self.msi = event,
            _ => {}
        }
    }

    /// Reads a register.
    pub fn read(&self, offset: u64) -> u32 {
        match leaf_register(offset) {
            Some(LeafRegister::Pending(leaf)) => self.pending[leaf],
            Some(LeafRegister::Enable(leaf) | LeafRegister::Disable(leaf)) => self.enabled[leaf],
            None if offset == TOP => self.top(),
            None if offset == TOP_EN_SET || offset == TOP_EN_CLEAR => self.top_enabled,
            None => 0,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, offset: u64, value: u32) {
        let mut rearm = false;
        match leaf_register(offset) {
            Some(LeafRegister::Pending(leaf)) => self.pending[leaf] &= !value,
            Some(LeafRegister::Enable(leaf)) => {
                self.enabled[leaf] |= value;
                rearm = true;
            }
            Some(LeafRegister::Disable(leaf)) => self.enabled[leaf] &= !value,
            None if offset == TOP_EN_SET => {
                self.top_enabled |= value;
                rearm = true;
            }
            None if offset == TOP_EN_CLEAR => self.top_enabled &= !value,
            None if offset == LEAF_TRIGGER => return self.raise(value),
            None => {}
        }
        self.update(rearm);
    }

    /// Makes a vector pending.
    pub fn raise(&mut self, vector: u32) {
        self.pending[vector as usize / 32 % LEAVES] |= 1 << (vector % 32);
        self.update(false);
    }

    /// Subtrees with something pending and enabled.
    fn top(&self) -> u32 {
        (0..LEAVES)
            .filter(|leaf| self.pending[*leaf] & self.enabled[*leaf] != 0)
            .fold(0, |top, leaf| top | 1 << (leaf / 2))
    }

    fn update(&mut self, rearm: bool) {
        let asserted = self.top() & self.top_enabled != 0;
        if asserted && (rearm || !self.asserted) {
            self.send();
        }
        self.asserted = asserted;
    }

    fn send(&mut self) {
        if let Some(event) = self.msi.as_mut().or(self.intx.as_mut()) {
            // An event file takes the number 1 at any time; only a closed one fails.
            if event.write_all(&1_u64.to_ne_bytes()).is_ok() {
                self.sent += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _};

    /// A tree whose messages go to a file.
    fn tree() -> (Interrupts, File) {
        let path = std::env::temp_dir().join(format!(
            "gpu-emulator-interrupts-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let file = File::create_new(&path).expect("a new file");
        let back = File::open(&path).expect("the same file");
        std::fs::remove_file(&path).expect("is there");
        let mut tree = Interrupts::default();
        tree.connect(MSI, Some(file));
        (tree, back)
    }

    fn messages(file: &mut File) -> usize {
        file.rewind().expect("is a file");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("is readable");
        bytes.len() / 8
    }

    #[test]
    fn enabled_vector_sends_one_message() {
        let (mut tree, mut file) = tree();
        tree.write(LEAF_EN_SET + 4 * 2, 1 << 3);
        tree.write(TOP_EN_SET, 1 << 1);
        tree.raise(2 * 32 + 3);
        assert_eq!(messages(&mut file), 1);
        assert_eq!(tree.read(TOP), 1 << 1);
        assert_eq!(tree.read(LEAF + 4 * 2), 1 << 3);
        tree.write(LEAF + 4 * 2, 1 << 3);
        assert_eq!(tree.read(TOP), 0);
        tree.raise(2 * 32 + 3);
        assert_eq!(messages(&mut file), 2);
    }

    #[test]
    fn disabled_vector_waits_until_it_is_enabled() {
        let (mut tree, mut file) = tree();
        tree.write(TOP_EN_SET, !0);
        tree.write(LEAF_TRIGGER, 5);
        assert_eq!((messages(&mut file), tree.read(LEAF)), (0, 1 << 5));
        tree.write(LEAF_EN_SET, 1 << 5);
        assert_eq!(messages(&mut file), 1);
    }

    #[test]
    fn enabling_the_top_again_sends_again() {
        let (mut tree, mut file) = tree();
        tree.write(LEAF_EN_SET, 1);
        tree.write(TOP_EN_SET, 1);
        tree.raise(0);
        tree.write(TOP_EN_CLEAR, 1);
        tree.write(TOP_EN_SET, 1);
        assert_eq!(messages(&mut file), 2);
        tree.write(LEAF_EN_CLEAR, 1);
        assert_eq!(tree.read(TOP), 0);
    }
}
