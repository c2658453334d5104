// SPDX-License-Identifier: GPL-2.0
//! The windows BAR1 and BAR2: accesses of the processor through the GPU's page tables.

use crate::{
    log::{worth_a_line, Log},
    memory::Memory,
    mmu::{translate, MmuFault, Target, Translation},
    place::Place,
};

/// One window: the root of its tables, and how often nothing was found.
#[derive(Debug)]
pub struct Window {
    name: &'static str,
    root: Place,
    faults: u64,
}

/// A part of an access that is in one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowAccess {
    /// Memory.
    Memory(Place),
    /// A register of the page that programs may have, by its offset.
    Usermode(u64),
    /// Nothing is mapped: reads are all ones, writes are lost.
    Nothing,
}

impl Window {
    /// A window whose tables begin at this place.
    pub fn new(name: &'static str, root: Place) -> Self {
        Self {
            name,
            root,
            faults: 0,
        }
    }

    /// The targets of an access of so many bytes, page by page.
    pub fn parts(
        &mut self,
        memory: &Memory,
        offset: u64,
        length: usize,
        log: &mut Log,
    ) -> Vec<(WindowAccess, usize)> {
        let mut parts = Vec::new();
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let (access, left) = match translate(memory, self.root, at) {
                Ok(Translation {
                    target: Target::Memory(place),
                    left,
                }) => (WindowAccess::Memory(place), left),
                Ok(Translation {
                    target: Target::Usermode(register),
                    left,
                }) => (WindowAccess::Usermode(register), left),
                Err(fault) => {
                    self.note(fault, log);
                    (WindowAccess::Nothing, 4096 - at % 4096)
                }
            };
            let part = (length - done).min(left as usize);
            parts.push((access, part));
            done += part;
        }
        parts
    }

    fn note(&mut self, fault: MmuFault, log: &mut Log) {
        self.faults += 1;
        if worth_a_line(self.faults) {
            log.say(self.name, format_args!("{fault} (#{})", self.faults));
        }
    }
}
