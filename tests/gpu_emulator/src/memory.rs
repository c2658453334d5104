// SPDX-License-Identifier: GPL-2.0
//! Memory that the GPU's engines can address: its own video memory and the machine's memory.

use crate::{
    machine::MachineMemory,
    place::{Aperture, NoMemory, Place},
    video_memory::VideoMemory,
};

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

    /// Makes a range all zeros.
    pub fn zero(&mut self, place: Place, length: u64) -> Result<(), NoMemory> {
        if place.aperture == Aperture::Video {
            return self.video.zero(place.address, length);
        }
        let zeros = [0; 4096];
        let mut done = 0;
        while done < length {
            let piece = (length - done).min(zeros.len() as u64);
            self.machine
                .write(place.address + done, &zeros[..piece as usize])?;
            done += piece;
        }
        Ok(())
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
