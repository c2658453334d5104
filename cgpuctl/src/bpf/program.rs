// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The answer of a control group's device program.
//!
//! The kernel asks such a program with `struct bpf_cgroup_dev_ctx` (linux/bpf.h): the kind of
//! device and the access in one word, the major and the minor number. Engines make them of loads of
//! these three words, moves, masks, shifts and comparisons; that is what is understood here, and
//! nothing is said about a program that does more.

pub(crate) const LOAD_WORD: u8 = 0x61;
pub(crate) const AND: u8 = 0x57;
pub(crate) const SHIFT_RIGHT: u8 = 0x77;
pub(crate) const JUMP_IF_SET: u8 = 0x45;
pub(crate) const JUMP_IF_NOT: u8 = 0x55;
pub(crate) const MOVE: u8 = 0xb7;
pub(crate) const EXIT: u8 = 0x95;
/// `BPF_DEVCG_DEV_CHAR`, in the low half of `bpf_cgroup_dev_ctx.access_type`.
pub(crate) const CHARACTER: i32 = 2;
/// `BPF_DEVCG_ACC_MKNOD`, in its high half.
pub(crate) const MKNOD: i32 = 1;
/// `BPF_DEVCG_ACC_READ`.
pub(crate) const READ: u64 = 2;
/// `BPF_DEVCG_ACC_WRITE`.
pub(crate) const WRITE: u64 = 4;

/// Most steps: a program without loops that a kernel takes has fewer.
const MOST_STEPS: usize = 1_000_000;

/// An access to a device: the kind ([`CHARACTER`]), what is to be done with it, its number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) kind: u64,
    pub(crate) access: u64,
    pub(crate) major: u64,
    pub(crate) minor: u64,
}

/// The low half, as instructions on 32 bits leave it.
fn half(value: u64) -> u64 {
    value & 0xffff_ffff
}

/// The result of a program; `None`: it has an instruction that is not known here.
pub(crate) fn answer(code: &[u64], asked: Question) -> Option<u64> {
    let context = [
        asked.kind | asked.access << 16,
        half(asked.major),
        half(asked.minor),
    ];
    let mut registers = [0u64; 16];
    // The context's address is in register 1 until that is used for something else.
    let mut in_place = true;
    let mut at = 0usize;
    for _ in 0..MOST_STEPS {
        let [code, both, o0, o1, v0, v1, v2, v3] = code.get(at)?.to_le_bytes();
        let (to, from) = (usize::from(both & 15), usize::from(both >> 4));
        let offset = i16::from_le_bytes([o0, o1]);
        let value = i32::from_le_bytes([v0, v1, v2, v3]);
        // An immediate value is extended by its sign where 64 bits are worked on.
        // CAST: that is what extends it.
        let wide = i64::from(value) as u64;
        let (a, b) = (registers[to], registers[from]);
        at += 1;
        let result = match code {
            LOAD_WORD if from == 1 && in_place && offset % 4 == 0 => {
                Some(*context.get(usize::try_from(offset / 4).ok()?)?)
            }
            AND => Some(a & wide),
            0x54 => Some(half(a & wide)),
            0x5f => Some(a & b),
            0x5c => Some(half(a & b)),
            SHIFT_RIGHT => Some(a.checked_shr(u32::try_from(value).ok()?)?),
            0x74 => Some(half(a).checked_shr(u32::try_from(value).ok()?)?),
            MOVE => Some(wide),
            0xb4 => Some(half(wide)),
            0xbf => Some(b),
            0xbc => Some(half(b)),
            _ => None,
        };
        if let Some(result) = result {
            in_place &= to != 1;
            registers[to] = result;
            continue;
        }
        let jumps = match code {
            EXIT => return Some(registers[0]),
            0x05 => true,
            JUMP_IF_SET => a & wide != 0,
            JUMP_IF_NOT => a != wide,
            0x15 => a == wide,
            0x5d => a != b,
            0x1d => a == b,
            0x56 => half(a) != half(wide),
            0x16 => half(a) == half(wide),
            0x5e => half(a) != half(b),
            0x1e => half(a) == half(b),
            _ => return None,
        };
        if jumps {
            at = at.checked_add_signed(offset.into())?;
        }
    }
    None
}
