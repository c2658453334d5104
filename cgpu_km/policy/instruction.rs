// SPDX-License-Identifier: GPL-2.0
//! What one instruction of a program stores: x86, 64-bit mode.
//!
//! A store to a doorbell that faults can be carried out in the program's place, without giving it the page. For
//! that it must be known what is stored, and where the next instruction begins. Only the plain ones are known, with which
//! compilers store 4 bytes, as wide as a doorbell is:
//!
//! | instruction | encoding (Intel SDM, volume 2, "MOV" and "MOVNTI") |
//! |---|---|
//! | `mov r/m32, r32` | `89 /r` |
//! | `mov r/m32, imm32` | `C7 /0 id` |
//! | `movnti m32, r32` | `NP 0F C3 /r` |
//!
//! with any form of address (volume 2, 2.1.5 "Addressing-Mode Encoding of ModR/M and SIB Bytes", 2.2.1 "REX
//! Prefixes", 2.2.1.6 "RIP-Relative Addressing"). Everything else is none: other widths (`REX.W`, 66), other segments
//! than the flat ones, addresses of 32 bits (67), `lock`, `rep`, and whatever reads what it changes.
//!
//! The bytes and the registers are the program's, and may be anything: what comes out is then anything that
//! the program could have stored itself, at an address that the caller has to compare with the one that faulted.

/// The registers of a program that an instruction refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: by the numbers that instructions have for them.
    pub general: [u64; 16],
    /// Where the instruction begins.
    pub ip: u64,
}

impl Registers {
    fn get(&self, number: u8) -> u64 {
        let value = self.general.get(usize::from(number));
        value.copied().unwrap_or_default()
    }
}

/// A store of 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store {
    /// Where to, linear (the segments in question begin at 0 in 64-bit mode).
    pub address: u64,
    /// What.
    pub value: u32,
    /// Where the next instruction begins.
    pub next: u64,
}

/// Most bytes of an instruction (SDM volume 2, 2.3.11: a longer one is no instruction).
pub const LONGEST: usize = 15;

/// `REX`: a prefix of the form `0100WRXB`, directly before the opcode.
#[derive(Clone, Copy, Default)]
struct Rex(u8);

impl Rex {
    const W: u8 = 8;
    const R: u8 = 4;
    const X: u8 = 2;
    const B: u8 = 1;

    /// The fourth bit of a register's number.
    const fn extends(self, bit: u8) -> u8 {
        match self.0 & bit {
            0 => 0,
            _ => 8,
        }
    }
}

/// The bytes that are not read yet.
struct Code<'a>(&'a [u8]);

impl Code<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    /// Four bytes, extended by their sign.
    fn signed(&mut self) -> Option<u64> {
        // CAST: the same bits.
        Some(i64::from(i32::from_le_bytes(self.take()?)) as u64)
    }
}

/// The memory that an instruction names.
struct Place {
    /// Less what is to be added.
    address: u64,
    /// The instruction's end is to be added.
    relative: bool,
    /// The field `reg` of its ModR/M byte: a register, or a part of the opcode.
    reg: u8,
}

/// Reads ModR/M, SIB and displacement; `None` where it is no memory.
fn place(code: &mut Code<'_>, rex: Rex, registers: &Registers) -> Option<Place> {
    let modrm = code.byte()?;
    let (mode, reg, rm) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    let mut relative = false;
    let base = match (mode, rm) {
        (3, _) => return None,
        (_, 4) => {
            let sib = code.byte()?;
            let (scale, index, base) = (sib >> 6, sib >> 3 & 7, sib & 7);
            let index = index | rex.extends(Rex::X);
            // The number of the stack pointer means: none. (r12 can be one.)
            let index = match index {
                4 => 0,
                _ => registers.get(index) << scale,
            };
            let base = match (mode, base) {
                (0, 5) => code.signed()?,
                _ => registers.get(base | rex.extends(Rex::B)),
            };
            base.wrapping_add(index)
        }
        (0, 5) => {
            relative = true;
            code.signed()?
        }
        _ => registers.get(rm | rex.extends(Rex::B)),
    };
    let displacement = match mode {
        // CAST: the same bits, extended by their sign.
        1 => i64::from(i8::from_le_bytes(code.take()?)) as u64,
        2 => code.signed()?,
        _ => 0,
    };
    Some(Place {
        address: base.wrapping_add(displacement),
        relative,
        reg,
    })
}

/// What the instruction at the beginning of `bytes` stores; `None`: it is none of those above, or not all of it is there.
pub fn store(bytes: &[u8], registers: &Registers) -> Option<Store> {
    let bytes = bytes.get(..LONGEST).unwrap_or(bytes);
    let mut code = Code(bytes);
    let mut opcode = code.byte()?;
    let mut rex = Rex::default();
    if opcode & 0xf0 == 0x40 {
        rex = Rex(opcode);
        opcode = code.byte()?;
    }
    if rex.0 & Rex::W != 0 {
        return None;
    }
    let immediate = match opcode {
        0x89 => false,
        0xc7 => true,
        0x0f if code.byte()? == 0xc3 => false,
        _ => return None,
    };
    let place = place(&mut code, rex, registers)?;
    let value = match (immediate, place.reg) {
        (true, 0) => u32::from_le_bytes(code.take()?),
        (true, _) => return None,
        // CAST: the lower half of the register.
        (false, reg) => registers.get(reg | rex.extends(Rex::R)) as u32,
    };
    // CAST: at most 15.
    let length = bytes.len().saturating_sub(code.0.len()) as u64;
    let next = registers.ip.wrapping_add(length);
    let address = match place.relative {
        true => place.address.wrapping_add(next),
        false => place.address,
    };
    Some(Store {
        address,
        value,
        next,
    })
}
