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

/// One number in a struct.
#[derive(Debug)]
pub struct Field<T> {
    offset: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for Field<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Field<T> {}

impl<T> PartialEq for Field<T> {
    fn eq(&self, other: &Self) -> bool {
        self.offset == other.offset
    }
}

impl<T> Eq for Field<T> {}

impl<T> Field<T> {
    /// The field that begins `offset` bytes into the struct.
    pub const fn at(offset: usize) -> Self {
        Self {
            offset,
            kind: PhantomData,
        }
    }

    /// Where it begins, in bytes.
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
#[derive(Debug)]
pub struct Items<T> {
    offset: usize,
    count: usize,
    kind: PhantomData<T>,
}

impl<T> Clone for Items<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Items<T> {}

impl<T> Items<T> {
    /// The array of `count` numbers that begins `offset` bytes into the struct.
    pub const fn at(offset: usize, count: usize) -> Self {
        Self {
            offset,
            count,
            kind: PhantomData,
        }
    }

    /// Where it begins, in bytes.
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
