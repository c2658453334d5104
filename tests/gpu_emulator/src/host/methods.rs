// SPDX-License-Identifier: GPL-2.0
//! Push buffers: words that say which methods get which values (class c86f, `NVC86F_DMA_*`).

/// One value for one method of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// The engine, by the number under which the channel has it.
    pub subchannel: u8,
    /// The method's address in bytes; those below 0x100 are the host's own.
    pub address: u16,
    /// The value.
    pub value: u32,
}

/// How the address goes on from value to value (`NVC86F_DMA_SEC_OP`).
#[derive(Clone, Copy)]
enum Advance {
    Always,
    Never,
    Once,
}

/// Takes a push buffer's segment apart. A header with an operation that is not used today is
/// passed over.
pub fn decode(segment: &[u8]) -> Vec<Method> {
    let mut words = segment
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
    let mut methods = Vec::new();
    while let Some(header) = words.next() {
        let subchannel = (header >> 13 & 7) as u8;
        let address = (header << 2 & 0x3ffc) as u16;
        let count = header >> 16 & 0x1fff;
        let advance = match header >> 29 {
            1 => Advance::Always,
            3 => Advance::Never,
            4 => {
                methods.push(Method {
                    subchannel,
                    address,
                    value: count,
                });
                continue;
            }
            5 => Advance::Once,
            7 => break,
            _ => continue,
        };
        for (index, value) in (0..count as u16).zip(words.by_ref()) {
            let further = match advance {
                Advance::Always => index,
                Advance::Never => 0,
                Advance::Once => index.min(1),
            };
            let address = address.wrapping_add(4 * further);
            methods.push(Method {
                subchannel,
                address,
                value,
            });
        }
    }
    methods
}

/// Writes the header of a method with values that follow, for tests.
#[cfg(test)]
pub(crate) fn incrementing(subchannel: u32, address: u32, count: u32) -> u32 {
    1 << 29 | count << 16 | subchannel << 13 | address >> 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(words: &[u32]) -> Vec<(u16, u32)> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        decode(&bytes)
            .iter()
            .map(|method| (method.address, method.value))
            .collect()
    }

    #[test]
    fn values_go_to_rising_methods() {
        let words = [incrementing(0, 0x5c, 3), 7, 8, 9];
        assert_eq!(addresses(&words), [(0x5c, 7), (0x60, 8), (0x64, 9)]);
    }

    #[test]
    fn values_go_to_one_or_following_methods() {
        let same = 3 << 29 | 2 << 16 | 0x100 >> 2;
        let once = 5 << 29 | 3 << 16 | 0x200 >> 2;
        let words = [same, 1, 2, once, 3, 4, 5];
        let wanted = [(0x100, 1), (0x100, 2), (0x200, 3), (0x204, 4), (0x204, 5)];
        assert_eq!(addresses(&words), wanted);
    }

    #[test]
    fn header_can_carry_the_value() {
        let immediate = 4 << 29 | 0x123 << 16 | 3 << 13 | 0x300 >> 2;
        let methods = decode(&u32::to_le_bytes(immediate));
        assert_eq!(
            methods,
            [Method {
                subchannel: 3,
                address: 0x300,
                value: 0x123
            }]
        );
    }

    #[test]
    fn cut_off_segment_ends_the_methods() {
        assert_eq!(addresses(&[incrementing(1, 0x100, 5), 1]), [(0x100, 1)]);
        assert_eq!(addresses(&[7 << 29, incrementing(1, 0x100, 1), 1]), []);
    }
}
