// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Reading and writing numbers at fixed places of a byte slice. Nothing here panics: what lies
//! outside the slice is `None`.

use core::marker::PhantomData;

/// A number as the driver's structs hold it: little-endian.
pub trait Wire: Copy {
    /// Its size in bytes.
    const SIZE: usize;
    /// Reads it from exactly [`Wire::SIZE`] bytes.
    fn read(bytes: &[u8]) -> Option<Self>;
    /// Writes it to exactly [`Wire::SIZE`] bytes.
    fn write(self, bytes: &mut [u8]) -> Option<()>;
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl Wire for $number {
            const SIZE: usize = size_of::<$number>();

            fn read(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_le_bytes(bytes.try_into().ok()?))
            }

            fn write(self, bytes: &mut [u8]) -> Option<()> {
                (bytes.len() == Self::SIZE).then(|| bytes.copy_from_slice(&self.to_le_bytes()))
            }
        }
    )*};
}
number!(u8, u16, u32, i32, u64);

/// Whether a 64-bit number of at least `base` and less than `base + length` stands anywhere in
/// `bytes`, on a multiple of 4: NVIDIA's structs have their 64-bit pointers (`NvP64`) on a multiple
/// of 8, and packed ones on 4.
///
/// Every byte that goes to the driver passes here. So the upper halves are looked at first: where
/// none is that of such a number, nothing else has to be.
pub fn points_into(bytes: &[u8], base: u64, length: u32) -> bool {
    let upper = |number: u64| number >> 32;
    let last = base.wrapping_add(u64::from(length).saturating_sub(1));
    let is_one_half = upper(base) == upper(last);
    if is_one_half && u32::try_from(upper(base)).is_ok_and(|half| !has_half(bytes, half)) {
        return false;
    }
    let is_inside = |number: u64| number.wrapping_sub(base) < u64::from(length);
    let numbers = bytes.windows(8).step_by(4);
    numbers
        .filter_map(|number| number.first_chunk().copied())
        .any(|number| is_inside(u64::from_le_bytes(number)))
}

/// Whether these 32 bits stand anywhere in `bytes`, on a multiple of 4.
fn has_half(bytes: &[u8], half: u32) -> bool {
    let is_half = |word: &[u8; 4]| u32::from_le_bytes(*word) == half;
    let mut fours = bytes.chunks_exact(16);
    // Four at a time: a turn of the loop takes as long as two comparisons.
    let in_fours = fours.by_ref().any(|four| {
        let words = [
            four.get(..4),
            four.get(4..8),
            four.get(8..12),
            four.get(12..),
        ];
        let mut words = words.iter().flatten();
        words.any(|word| word.first_chunk().is_some_and(is_half))
    });
    let mut rest = fours.remainder().chunks_exact(4);
    in_fours || rest.any(|word| word.first_chunk().is_some_and(is_half))
}

/// One number in a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<T> {
    offset: usize,
    kind: PhantomData<T>,
}

impl<T> Field<T> {
    /// The field that begins `offset` bytes into the struct.
    pub const fn at(offset: usize) -> Self {
        Self {
            offset,
            kind: PhantomData,
        }
    }

    /// Its offset in the struct, in bytes.
    pub const fn offset(self) -> usize {
        self.offset
    }

    /// The same field of a struct that lies `base` bytes into a bigger one; `None` past the end of
    /// the address space.
    pub fn within(self, base: usize) -> Option<Self> {
        base.checked_add(self.offset).map(Self::at)
    }
}

impl<T: Wire> Field<T> {
    /// Its value; `None` where `bytes` ends before it.
    pub fn get(&self, bytes: &[u8]) -> Option<T> {
        T::read(bytes.get(self.offset..self.offset.checked_add(T::SIZE)?)?)
    }

    /// Sets it; `None`, and nothing written, where `bytes` ends before it.
    pub fn set(&self, bytes: &mut [u8], value: T) -> Option<()> {
        value.write(bytes.get_mut(self.offset..self.offset.checked_add(T::SIZE)?)?)
    }
}

/// An array of numbers in a struct.
#[derive(Clone, Copy, Debug)]
pub struct Items<T> {
    offset: usize,
    count: usize,
    kind: PhantomData<T>,
}

impl<T> Items<T> {
    /// The array of `count` numbers that begins `offset` bytes into the struct.
    pub const fn at(offset: usize, count: usize) -> Self {
        Self {
            offset,
            count,
            kind: PhantomData,
        }
    }

    /// Its offset in the struct, in bytes.
    pub const fn offset(self) -> usize {
        self.offset
    }

    /// How many numbers it has.
    pub const fn count(self) -> usize {
        self.count
    }
}

impl<T: Wire> Items<T> {
    /// The number at `index`; `None` beyond the array.
    pub fn item(&self, index: usize) -> Option<Field<T>> {
        let at = index.checked_mul(T::SIZE)?.checked_add(self.offset)?;
        (index < self.count).then_some(Field::at(at))
    }

    /// Its bytes, as far as `bytes` has the whole of it.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let end = self.count.checked_mul(T::SIZE)?.checked_add(self.offset)?;
        bytes.get(self.offset..end)
    }
}

#[cfg(test)]
mod tests {
    use super::points_into;

    /// The specification, in one line.
    fn plain(bytes: &[u8], base: u64, length: u32) -> bool {
        let mut windows = bytes.windows(8).step_by(4);
        windows.any(|w| {
            let number = u64::from_le_bytes(w.try_into().expect("eight"));
            number >= base && number - base < u64::from(length)
        })
    }

    #[test]
    fn pointers_are_found_where_pointers_stand() {
        const BASE: u64 = 0x7f12_3456_7000;
        const LENGTH: u32 = 0x14_0000;
        // Across a multiple of 2^32, in its own upper half, at the start of the address space.
        for base in [BASE, 0x7f12_ffff_f000, 0x7f12_0000_0000, 0x1000] {
            for fill in [0, 0xff, 0x12] {
                for len in (0..45).chain(62..78).chain(125..135) {
                    for number in [
                        base - 1,
                        base,
                        base + 0x777,
                        base + u64::from(LENGTH) - 1,
                        base + u64::from(LENGTH),
                    ] {
                        for at in 0..len {
                            let mut bytes = vec![fill; len];
                            let value = number.to_le_bytes();
                            let room = value.len().min(len - at);
                            bytes[at..at + room].copy_from_slice(&value[..room]);
                            let found = points_into(&bytes, base, LENGTH);
                            assert_eq!(found, plain(&bytes, base, LENGTH), "{bytes:x?} {base:#x}");
                        }
                    }
                }
            }
        }
        assert!(points_into(&BASE.to_le_bytes(), BASE, LENGTH));
        assert!(!points_into(&[], BASE, LENGTH));
    }
}
