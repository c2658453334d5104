// SPDX-License-Identifier: GPL-2.0
//! Physical addresses on both sides of the bus.

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
