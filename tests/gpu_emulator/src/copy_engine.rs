// SPDX-License-Identifier: GPL-2.0
//! The copy engine (class c8b5, `NVC8B5_*`): lines of bytes from here to there, fills by remapped
//! constants, scrubbing, and a semaphore at the end.

use crate::{
    host::semaphore::{Reduction, Semaphore, SemaphoreAction},
    memory::Memory,
    mmu::{AddressSpace, MmuFault},
    place::Place,
};

/// Addresses of the methods that are looked at.
mod method {
    pub(super) const SET_SEMAPHORE_A: u16 = 0x240;
    pub(super) const SET_SEMAPHORE_B: u16 = 0x244;
    pub(super) const SET_SEMAPHORE_PAYLOAD: u16 = 0x248;
    pub(super) const SET_SEMAPHORE_PAYLOAD_UPPER: u16 = 0x24c;
    pub(super) const SET_SRC_PHYS_MODE: u16 = 0x260;
    pub(super) const SET_DST_PHYS_MODE: u16 = 0x264;
    pub(super) const OFFSET_IN_UPPER: u16 = 0x400;
    pub(super) const OFFSET_OUT_UPPER: u16 = 0x408;
    pub(super) const PITCH_IN: u16 = 0x410;
    pub(super) const PITCH_OUT: u16 = 0x414;
    pub(super) const LINE_LENGTH_IN: u16 = 0x418;
    pub(super) const LINE_COUNT: u16 = 0x41c;
    pub(super) const SET_REMAP_CONST_A: u16 = 0x700;
    pub(super) const SET_REMAP_CONST_B: u16 = 0x704;
    pub(super) const SET_REMAP_COMPONENTS: u16 = 0x708;
}

/// The method that starts the engine.
pub const LAUNCH_DMA: u16 = 0x300;
/// Bytes that are moved at once.
const PIECE: u64 = 64 << 10;

/// A component of a remapped element (`NVC8B5_SET_REMAP_COMPONENTS_DST_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Component {
    Source(usize),
    Constant(u32),
    Skip,
}

/// Elements that are put together of constants and of the source's components.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Remap {
    /// Bytes of a component.
    size: usize,
    /// Components of an element of the source.
    source: usize,
    /// Components of an element of the destination.
    components: Vec<Component>,
}

impl Remap {
    fn of(components: u32, constants: [u32; 2]) -> Self {
        let count = (components >> 24 & 3) as usize + 1;
        let component = |index: usize| match components >> (4 * index) & 7 {
            source @ 0..=3 => Component::Source(source as usize),
            4 => Component::Constant(constants[0]),
            5 => Component::Constant(constants[1]),
            _ => Component::Skip,
        };
        Self {
            size: (components >> 16 & 3) as usize + 1,
            source: (components >> 20 & 3) as usize + 1,
            components: (0..count).map(component).collect(),
        }
    }

    fn bytes(&self) -> usize {
        self.size * self.components.len()
    }

    fn source_bytes(&self) -> usize {
        self.size * self.source
    }

    /// Whether nothing comes from the source.
    fn is_fill(&self) -> bool {
        !self
            .components
            .iter()
            .any(|c| matches!(c, Component::Source(_)))
    }

    /// Whether the bytes that were there before are needed.
    fn keeps(&self) -> bool {
        self.components.contains(&Component::Skip)
    }

    /// Makes one element, over what was there.
    fn element(&self, source: &[u8], to: &mut [u8]) {
        for (component, place) in self.components.iter().zip(to.chunks_exact_mut(self.size)) {
            match component {
                Component::Source(index) => {
                    let at = index * self.size;
                    if let Some(from) = source.get(at..at + self.size) {
                        place.copy_from_slice(from);
                    }
                }
                Component::Constant(value) => {
                    place.copy_from_slice(&value.to_le_bytes()[..self.size]);
                }
                Component::Skip => {}
            }
        }
    }
}

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Virtual(AddressSpace, u64),
    Physical(Place),
}

impl End {
    fn plus(self, bytes: u64) -> Self {
        match self {
            Self::Virtual(space, address) => Self::Virtual(space, address.wrapping_add(bytes)),
            Self::Physical(place) => Self::Physical(place.plus(bytes)),
        }
    }

    fn read(self, memory: &mut Memory, bytes: &mut [u8]) -> Result<(), MmuFault> {
        match self {
            Self::Virtual(space, address) => space.read(memory, address, bytes),
            Self::Physical(place) => memory.read(place, bytes).map_err(MmuFault::Page),
        }
    }

    fn write(self, memory: &mut Memory, bytes: &[u8]) -> Result<(), MmuFault> {
        match self {
            Self::Virtual(space, address) => space.write(memory, address, bytes),
            Self::Physical(place) => memory.write(place, bytes).map_err(MmuFault::Page),
        }
    }

    fn zero(self, memory: &mut Memory, length: u64) -> Result<(), MmuFault> {
        match self {
            Self::Virtual(space, address) => space.zero(memory, address, length),
            Self::Physical(place) => memory.zero(place, length).map_err(MmuFault::Page),
        }
    }
}

/// Whether the engine's channel wants an interrupt after a launch
/// (`NVC8B5_LAUNCH_DMA_INTERRUPT_TYPE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyInterrupt {
    /// None.
    None,
    /// The one that does not stop the engine.
    NonBlocking,
}

/// A launch of the engine: its channel's address space, the values of its methods, and
/// `LAUNCH_DMA`.
pub struct Launch<'a> {
    /// The channel's address space.
    pub space: AddressSpace,
    /// The value of a method, zero if it was not set.
    pub state: &'a dyn Fn(u16) -> u32,
    /// The value of `LAUNCH_DMA`.
    pub flags: u32,
    /// Now, in nanoseconds.
    pub now: u64,
}

impl Launch<'_> {
    fn flag(&self, bit: u32) -> bool {
        self.flags >> bit & 1 != 0
    }

    fn wide(&self, upper: u16) -> u64 {
        u64::from((self.state)(upper)) << 32 | u64::from((self.state)(upper + 4))
    }

    fn end(&self, address: u64, physical: bool, mode: u16) -> End {
        if !physical {
            return End::Virtual(self.space, address);
        }
        match (self.state)(mode) & 3 {
            0 => End::Physical(Place::video(address)),
            _ => End::Physical(Place::system(address)),
        }
    }

    /// Runs the launch to its end.
    pub fn run(&self, memory: &mut Memory) -> Result<CopyInterrupt, MmuFault> {
        if self.flags & 3 != 0 {
            self.transfer(memory)?;
        }
        self.release(memory)?;
        match self.flags >> 5 & 3 {
            2 => Ok(CopyInterrupt::NonBlocking),
            _ => Ok(CopyInterrupt::None),
        }
    }

    fn transfer(&self, memory: &mut Memory) -> Result<(), MmuFault> {
        let state = self.state;
        let from = self.end(
            self.wide(method::OFFSET_IN_UPPER),
            self.flag(12),
            method::SET_SRC_PHYS_MODE,
        );
        let to = self.end(
            self.wide(method::OFFSET_OUT_UPPER),
            self.flag(13),
            method::SET_DST_PHYS_MODE,
        );
        let length = u64::from(state(method::LINE_LENGTH_IN));
        let lines = if self.flag(9) {
            u64::from(state(method::LINE_COUNT))
        } else {
            1
        };
        for line in 0..lines {
            let from = from.plus(line * u64::from(state(method::PITCH_IN)));
            let to = to.plus(line * u64::from(state(method::PITCH_OUT)));
            if self.flag(23) {
                fill(memory, to, &[0], length)?;
            } else if self.flag(10) {
                let constants = [
                    state(method::SET_REMAP_CONST_A),
                    state(method::SET_REMAP_CONST_B),
                ];
                let remap = Remap::of(state(method::SET_REMAP_COMPONENTS), constants);
                remapped(memory, from, to, &remap, length)?;
            } else {
                copy(memory, from, to, length)?;
            }
        }
        Ok(())
    }

    /// The semaphore at the end (`NVC8B5_LAUNCH_DMA_SEMAPHORE_TYPE`).
    fn release(&self, memory: &mut Memory) -> Result<(), MmuFault> {
        let state = self.state;
        let kind = self.flags >> 3 & 3;
        if kind == 0 {
            return Ok(());
        }
        let wide = self.flag(27);
        let upper = if wide {
            state(method::SET_SEMAPHORE_PAYLOAD_UPPER)
        } else {
            0
        };
        let action = if self.flag(19) {
            let operation = self.flags >> 14 & 0xf;
            SemaphoreAction::Reduce(Reduction {
                operation,
                signed: !self.flag(18),
            })
        } else {
            SemaphoreAction::Release {
                timestamp: kind == 2,
            }
        };
        let address = u64::from(state(method::SET_SEMAPHORE_A)) << 32
            | u64::from(state(method::SET_SEMAPHORE_B));
        let payload = u64::from(state(method::SET_SEMAPHORE_PAYLOAD)) | u64::from(upper) << 32;
        let bytes = if wide { 8 } else { 4 };
        let semaphore = Semaphore {
            address,
            payload,
            bytes,
            action,
        };
        semaphore.execute(memory, self.space, self.now).map(|_| ())
    }
}

fn copy(memory: &mut Memory, from: End, to: End, length: u64) -> Result<(), MmuFault> {
    let mut bytes = vec![0; length.min(PIECE) as usize];
    let mut done = 0;
    while done < length {
        let piece = &mut bytes[..(length - done).min(PIECE) as usize];
        from.plus(done).read(memory, piece)?;
        to.plus(done).write(memory, piece)?;
        done += piece.len() as u64;
    }
    Ok(())
}

/// Fills `length` bytes with an element's repetitions.
fn fill(memory: &mut Memory, to: End, element: &[u8], length: u64) -> Result<(), MmuFault> {
    if element.iter().all(|byte| *byte == 0) {
        return to.zero(memory, length);
    }
    let whole = (PIECE as usize / element.len()).max(1) * element.len();
    let bytes: Vec<u8> = element.iter().copied().cycle().take(whole).collect();
    let mut done = 0;
    while done < length {
        let piece = (length - done).min(whole as u64);
        to.plus(done).write(memory, &bytes[..piece as usize])?;
        done += piece;
    }
    Ok(())
}

/// Copies `count` elements, each put together anew.
fn remapped(
    memory: &mut Memory,
    from: End,
    to: End,
    remap: &Remap,
    count: u64,
) -> Result<(), MmuFault> {
    let (size, source_size) = (remap.bytes(), remap.source_bytes());
    if remap.is_fill() && !remap.keeps() {
        let mut element = vec![0; size];
        remap.element(&[], &mut element);
        return fill(memory, to, &element, count * size as u64);
    }
    let at_once = PIECE / size as u64;
    let mut done = 0;
    while done < count {
        let piece = (count - done).min(at_once);
        let mut source = vec![0; piece as usize * source_size];
        if !remap.is_fill() {
            from.plus(done * source_size as u64)
                .read(memory, &mut source)?;
        }
        let mut bytes = vec![0; piece as usize * size];
        let to = to.plus(done * size as u64);
        if remap.keeps() {
            to.read(memory, &mut bytes)?;
        }
        let elements = bytes.chunks_exact_mut(size);
        for (element, source) in elements.zip(source.chunks_exact(source_size)) {
            remap.element(source, element);
        }
        to.write(memory, &bytes)?;
        done += piece;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmu::tests::Tables;
    use std::collections::HashMap;

    const COPY: u32 = 2;

    fn bench() -> (Memory, AddressSpace) {
        let mut memory = Memory::new(1 << 30);
        let mut tables = Tables::new(1 << 20);
        for page in 0..64 {
            // Every second page lies elsewhere, so that a copy of many is no copy of one.
            let physical = (0x1000 + page * 2) << 12;
            tables.map(&mut memory, page << 12, 12, physical);
        }
        (memory, AddressSpace { root: tables.root })
    }

    fn run(memory: &mut Memory, space: AddressSpace, values: &[(u16, u32)], flags: u32) {
        let values: HashMap<u16, u32> = values.iter().copied().collect();
        let state = |method: u16| values.get(&method).copied().unwrap_or(0);
        let launch = Launch {
            space,
            state: &state,
            flags,
            now: 99,
        };
        launch.run(memory).expect("is mapped");
    }

    fn bytes(memory: &mut Memory, space: AddressSpace, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        space.read(memory, at, &mut bytes).expect("is mapped");
        bytes
    }

    #[test]
    fn copy_crosses_pages_and_releases() {
        let (mut memory, space) = bench();
        let data: Vec<u8> = (0..=250).cycle().take(10_000).collect();
        space.write(&mut memory, 0x1234, &data).expect("is mapped");
        let values = [
            (0x404, 0x1234),
            (0x40c, 0x9876),
            (0x418, 10_000),
            (0x244, 0x3_0000),
            (0x248, 42),
        ];
        run(&mut memory, space, &values, COPY | 1 << 3);
        assert_eq!(bytes(&mut memory, space, 0x9876, 10_000), data);
        assert_eq!(bytes(&mut memory, space, 0x3_0000, 4), [42, 0, 0, 0]);
    }

    #[test]
    fn lines_have_their_own_pitch() {
        let (mut memory, space) = bench();
        space
            .write(&mut memory, 0, &[1, 2, 3, 4, 5, 6, 7, 8])
            .expect("is mapped");
        let values = [
            (0x40c, 0x2000),
            (0x410, 4),
            (0x414, 3),
            (0x418, 2),
            (0x41c, 2),
        ];
        run(&mut memory, space, &values, COPY | 1 << 9);
        assert_eq!(bytes(&mut memory, space, 0x2000, 6), [1, 2, 0, 5, 6, 0]);
    }

    #[test]
    fn remapped_constants_fill() {
        let (mut memory, space) = bench();
        // Two components of two bytes: constant A, constant B.
        let values = [
            (0x40c, 0x3000),
            (0x418, 3),
            (0x700, 0x1122),
            (0x704, 0x3344),
            (0x708, 0x0101_0054),
        ];
        run(&mut memory, space, &values, COPY | 1 << 10);
        let element = [0x22, 0x11, 0x44, 0x33];
        let wanted: Vec<u8> = element
            .iter()
            .copied()
            .cycle()
            .take(12)
            .chain([0])
            .collect();
        assert_eq!(bytes(&mut memory, space, 0x3000, 13), wanted);
    }

    #[test]
    fn remapped_source_keeps_what_is_skipped() {
        let (mut memory, space) = bench();
        space
            .write(&mut memory, 0, &[1, 2, 3, 4])
            .expect("is mapped");
        space
            .write(&mut memory, 0x4000, &[9; 8])
            .expect("is mapped");
        // Four components of a byte: source's second, nothing, constant A, source's first; two of
        // source.
        let values = [
            (0x40c, 0x4000),
            (0x418, 2),
            (0x700, 7),
            (0x708, 0x0310_0461),
        ];
        run(&mut memory, space, &values, COPY | 1 << 10);
        assert_eq!(
            bytes(&mut memory, space, 0x4000, 8),
            [2, 9, 7, 1, 4, 9, 7, 3]
        );
    }

    #[test]
    fn physical_ends_need_no_tables() {
        let (mut memory, space) = bench();
        memory
            .write(Place::video(0x3000_0000), &[5; 8])
            .expect("is memory");
        let values = [(0x404, 0x3000_0000), (0x40c, 0x3100_0000), (0x418, 8)];
        run(&mut memory, space, &values, COPY | 1 << 12 | 1 << 13);
        assert_eq!(memory.bytes(Place::video(0x3100_0000), 8), Ok(vec![5; 8]));
        run(
            &mut memory,
            space,
            &[(0x40c, 0x3100_0000), (0x418, 4)],
            COPY | 1 << 13 | 1 << 23,
        );
        assert_eq!(
            memory.bytes(Place::video(0x3100_0000), 8),
            Ok(vec![0, 0, 0, 0, 5, 5, 5, 5])
        );
    }

    #[test]
    fn launch_without_transfer_releases_with_time() {
        let (mut memory, space) = bench();
        run(&mut memory, space, &[(0x244, 0x100), (0x248, 3)], 2 << 3);
        let words = bytes(&mut memory, space, 0x100, 16);
        assert_eq!((words[0], words[8]), (3, 99));
    }
}
