// SPDX-License-Identifier: GPL-2.0
//! What the GPU's engines can address: its own video memory and the machine's memory.

use crate::{machine::MachineMemory, video_memory::VideoMemory};

/// On which side of the bus an address lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Aperture {
    /// Video memory.
    Video,
    /// The machine's memory, coherent or not.
    System,
}

/// A physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The side of the bus.
    pub aperture: Aperture,
    /// Bytes from the beginning of that memory.
    pub address: u64,
}

impl Place {
    /// An address in video memory.
    pub const fn video(address: u64) -> Self {
        Self {
            aperture: Aperture::Video,
            address,
        }
    }

    /// An address in the machine's memory.
    pub const fn system(address: u64) -> Self {
        Self {
            aperture: Aperture::System,
            address,
        }
    }

    /// The place so many bytes further on.
    pub const fn plus(self, bytes: u64) -> Self {
        Self {
            aperture: self.aperture,
            address: self.address.wrapping_add(bytes),
        }
    }
}

/// There is no memory at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory(pub Place);

impl std::fmt::Display for NoMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "no memory at {:?} {:#x}",
            self.0.aperture, self.0.address
        )
    }
}

/// Both memories.
#[derive(Debug)]
pub struct Memory {
    /// The GPU's own.
    pub video: VideoMemory,
    /// The machine's, as far as the bus shows it.
    pub machine: MachineMemory,
}

impl Memory {
    /// Video memory of this size in bytes, and no memory of a machine's yet.
    pub fn new(video: u64) -> Self {
        Self {
            video: VideoMemory::new(video),
            machine: MachineMemory::default(),
        }
    }

    /// Reads bytes.
    pub fn read(&self, place: Place, bytes: &mut [u8]) -> Result<(), NoMemory> {
        match place.aperture {
            Aperture::Video => self.video.read(place.address, bytes),
            Aperture::System => self.machine.read(place.address, bytes),
        }
    }

    /// Writes bytes.
    pub fn write(&mut self, place: Place, bytes: &[u8]) -> Result<(), NoMemory> {
        match place.aperture {
            Aperture::Video => self.video.write(place.address, bytes),
            Aperture::System => self.machine.write(place.address, bytes),
        }
    }

    /// Reads a number of bytes into a new buffer.
    pub fn bytes(&self, place: Place, length: usize) -> Result<Vec<u8>, NoMemory> {
        let mut bytes = vec![0; length];
        self.read(place, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads 32 bits.
    pub fn read32(&self, place: Place) -> Result<u32, NoMemory> {
        let mut bytes = [0; 4];
        self.read(place, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Writes 32 bits.
    pub fn write32(&mut self, place: Place, value: u32) -> Result<(), NoMemory> {
        self.write(place, &value.to_le_bytes())
    }

    /// Reads 64 bits.
    pub fn read64(&self, place: Place) -> Result<u64, NoMemory> {
        let mut bytes = [0; 8];
        self.read(place, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}
