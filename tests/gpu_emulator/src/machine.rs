// SPDX-License-Identifier: GPL-2.0
//! The machine's memory, as QEMU shares it with a device: files that are mapped, each at a bus
//! address.

use crate::place::{NoMemory, Place};
use std::{collections::BTreeMap, fs::File, io};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

/// All regions that the bus shows, by their first address.
#[derive(Debug, Default)]
pub struct MachineMemory {
    regions: BTreeMap<u64, MmapRegion>,
    /// The device may use the bus by itself (`PCI_COMMAND_MASTER`); otherwise it reaches nothing.
    pub bus_master: bool,
}

impl MachineMemory {
    /// Maps a part of a file at a bus address.
    pub fn map(&mut self, address: u64, size: u64, file: File, offset: u64) -> io::Result<()> {
        let region = MmapRegion::from_file(FileOffset::new(file, offset), size as usize)
            .map_err(io::Error::other)?;
        self.regions.insert(address, region);
        Ok(())
    }

    /// Forgets what is mapped from here on, up to `size` bytes.
    pub fn unmap(&mut self, address: u64, size: u64) {
        let end = address.saturating_add(size);
        self.regions
            .retain(|first, _| *first < address || *first >= end);
    }

    fn region(&self, address: u64, length: usize) -> Result<(&MmapRegion, usize), NoMemory> {
        let no_memory = NoMemory(Place::system(address));
        if !self.bus_master {
            return Err(no_memory);
        }
        let (first, region) = self
            .regions
            .range(..=address)
            .next_back()
            .ok_or(no_memory)?;
        let inside = (address - first) as usize;
        if inside.saturating_add(length) > region.len() {
            return Err(no_memory);
        }
        Ok((region, inside))
    }

    /// Reads bytes, all from one region.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), NoMemory> {
        let (region, inside) = self.region(address, bytes.len())?;
        let whole = region.as_volatile_slice();
        whole
            .read_slice(bytes, inside)
            .map_err(|_| NoMemory(Place::system(address)))
    }

    /// Writes bytes, all to one region.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), NoMemory> {
        let (region, inside) = self.region(address, bytes.len())?;
        let whole = region.as_volatile_slice();
        whole
            .write_slice(bytes, inside)
            .map_err(|_| NoMemory(Place::system(address)))
    }
}
