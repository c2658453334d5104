// SPDX-License-Identifier: GPL-2.0
//! What instructions store, against an assembler's encodings and against encodings made from the manual's rules.

use crate::policy::instruction::{store, Registers, Store, LONGEST};
use proptest::prelude::*;

const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RBX: u8 = 3;
const RSP: u8 = 4;
const RBP: u8 = 5;
const RSI: u8 = 6;
const RDI: u8 = 7;

/// Where the instructions of the table stand.
const IP: u64 = 0x5555_5555_4000;

/// Each register has a value of its own.
fn registers() -> Registers {
    let value = |n: usize| (0x1111_0000_0000 * (n as u64 + 1)) | 0xa000_0000 | (n as u64) << 12;
    Registers {
        general: core::array::from_fn(value),
        ip: IP,
    }
}

fn reg(number: u8) -> u64 {
    registers().general[usize::from(number)]
}

/// GNU as 2.44: text, encoding, address and value.
fn known() -> Vec<(&'static str, &'static [u8], u64, u64)> {
    let ip = |length: u64, add: i64| (IP + length).wrapping_add_signed(add);
    vec![
        (
            "mov %ecx,0x90(%rax)",
            &[0x89, 0x88, 0x90, 0, 0, 0],
            reg(RAX) + 0x90,
            reg(RCX),
        ),
        (
            "mov %r8d,0x90(%rax)",
            &[0x44, 0x89, 0x80, 0x90, 0, 0, 0],
            reg(RAX) + 0x90,
            reg(8),
        ),
        ("mov %ecx,(%rax)", &[0x89, 0x08], reg(RAX), reg(RCX)),
        (
            "mov %edx,0x90(%r13)",
            &[0x41, 0x89, 0x95, 0x90, 0, 0, 0],
            reg(13) + 0x90,
            reg(RDX),
        ),
        ("mov %edx,(%r13)", &[0x41, 0x89, 0x55, 0], reg(13), reg(RDX)),
        ("mov %edx,(%rbp)", &[0x89, 0x55, 0], reg(RBP), reg(RDX)),
        (
            "mov %edi,0x12345678(%rbx)",
            &[0x89, 0xbb, 0x78, 0x56, 0x34, 0x12],
            reg(RBX) + 0x1234_5678,
            reg(RDI),
        ),
        (
            "mov %edi,-0x70(%rbx)",
            &[0x89, 0x7b, 0x90],
            reg(RBX) - 0x70,
            reg(RDI),
        ),
        (
            "mov %r15d,(%r12)",
            &[0x45, 0x89, 0x3c, 0x24],
            reg(12),
            reg(15),
        ),
        ("mov %esi,(%rsp)", &[0x89, 0x34, 0x24], reg(RSP), reg(RSI)),
        (
            "mov %esi,0x8(%rsp)",
            &[0x89, 0x74, 0x24, 0x08],
            reg(RSP) + 8,
            reg(RSI),
        ),
        (
            "mov %ebp,(%rax,%rcx,4)",
            &[0x89, 0x2c, 0x88],
            reg(RAX) + 4 * reg(RCX),
            reg(RBP),
        ),
        (
            "mov %eax,0x10(%r9,%r12,8)",
            &[0x43, 0x89, 0x44, 0xe1, 0x10],
            reg(9) + 8 * reg(12) + 0x10,
            reg(RAX),
        ),
        (
            "mov %eax,-0x10(%rbp,%r10,2)",
            &[0x42, 0x89, 0x44, 0x55, 0xf0],
            reg(RBP) + 2 * reg(10) - 0x10,
            reg(RAX),
        ),
        (
            "mov %eax,0x1000(,%rdx,1)",
            &[0x89, 0x04, 0x15, 0x00, 0x10, 0, 0],
            reg(RDX) + 0x1000,
            reg(RAX),
        ),
        (
            "mov %eax,0x7000",
            &[0x89, 0x04, 0x25, 0x00, 0x70, 0, 0],
            0x7000,
            reg(RAX),
        ),
        (
            "mov %eax,-0x7000",
            &[0x89, 0x04, 0x25, 0x00, 0x90, 0xff, 0xff],
            0_u64.wrapping_sub(0x7000),
            reg(RAX),
        ),
        (
            "mov %r11d,0x1234(%rip)",
            &[0x44, 0x89, 0x1d, 0x34, 0x12, 0, 0],
            ip(7, 0x1234),
            reg(11),
        ),
        (
            "mov %r11d,-0x1234(%rip)",
            &[0x44, 0x89, 0x1d, 0xcc, 0xed, 0xff, 0xff],
            ip(7, -0x1234),
            reg(11),
        ),
        (
            "movl $0x11223344,(%rdi)",
            &[0xc7, 0x07, 0x44, 0x33, 0x22, 0x11],
            reg(RDI),
            0x1122_3344,
        ),
        (
            "movl $0xfffffff0,0x90(%r14)",
            &[0x41, 0xc7, 0x86, 0x90, 0, 0, 0, 0xf0, 0xff, 0xff, 0xff],
            reg(14) + 0x90,
            0xffff_fff0,
        ),
        (
            "movl $0x5,0x90(%rax,%rbx,8)",
            &[0xc7, 0x84, 0xd8, 0x90, 0, 0, 0, 5, 0, 0, 0],
            reg(RAX) + 8 * reg(RBX) + 0x90,
            5,
        ),
        (
            "movl $0x5,0x100(%rip)",
            &[0xc7, 0x05, 0x00, 0x01, 0, 0, 5, 0, 0, 0],
            ip(10, 0x100),
            5,
        ),
        (
            "movl $0x5,-0x8(%rsp)",
            &[0xc7, 0x44, 0x24, 0xf8, 5, 0, 0, 0],
            reg(RSP) - 8,
            5,
        ),
        (
            "movl $7,0x12345678(%r8,%r9,4)",
            &[0x43, 0xc7, 0x84, 0x88, 0x78, 0x56, 0x34, 0x12, 7, 0, 0, 0],
            reg(8) + 4 * reg(9) + 0x1234_5678,
            7,
        ),
        (
            "movnti %ecx,0x90(%rax)",
            &[0x0f, 0xc3, 0x88, 0x90, 0, 0, 0],
            reg(RAX) + 0x90,
            reg(RCX),
        ),
        (
            "movnti %r9d,(%r10,%r11,2)",
            &[0x47, 0x0f, 0xc3, 0x0c, 0x5a],
            reg(10) + 2 * reg(11),
            reg(9),
        ),
        (
            "movnti %esi,0x20(%rip)",
            &[0x0f, 0xc3, 0x35, 0x20, 0, 0, 0],
            ip(7, 0x20),
            reg(RSI),
        ),
    ]
}

/// The same assembler's: what is not carried out.
const OTHERS: &[(&str, &[u8])] = &[
    ("mov %rcx,0x90(%rax)", &[0x48, 0x89, 0x88, 0x90, 0, 0, 0]),
    ("mov %cx,0x90(%rax)", &[0x66, 0x89, 0x88, 0x90, 0, 0, 0]),
    ("mov %cl,0x90(%rax)", &[0x88, 0x88, 0x90, 0, 0, 0]),
    ("mov %ecx,%eax", &[0x89, 0xc8]),
    ("mov $5,%eax", &[0xb8, 5, 0, 0, 0]),
    (
        "movabs %eax,0x1122334455667788",
        &[0xa3, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11],
    ),
    ("lock addl $1,(%rax)", &[0xf0, 0x83, 0x00, 0x01]),
    ("xchg %ecx,(%rax)", &[0x87, 0x08]),
    (
        "mov %ecx,%fs:0x90(%rax)",
        &[0x64, 0x89, 0x88, 0x90, 0, 0, 0],
    ),
    (
        "mov %ecx,%gs:0x90(%rax)",
        &[0x65, 0x89, 0x88, 0x90, 0, 0, 0],
    ),
    ("mov %ecx,0x90(%eax)", &[0x67, 0x89, 0x88, 0x90, 0, 0, 0]),
    (
        "movnti %rcx,0x90(%rax)",
        &[0x48, 0x0f, 0xc3, 0x88, 0x90, 0, 0, 0],
    ),
    (
        "movq $5,0x90(%rax)",
        &[0x48, 0xc7, 0x80, 0x90, 0, 0, 0, 5, 0, 0, 0],
    ),
    (
        "movw $5,0x90(%rax)",
        &[0x66, 0xc7, 0x80, 0x90, 0, 0, 0, 5, 0],
    ),
    ("movb $5,0x90(%rax)", &[0xc6, 0x80, 0x90, 0, 0, 0, 5]),
    ("mov 0x90(%rax),%ecx", &[0x8b, 0x88, 0x90, 0, 0, 0]),
    (
        "movd %xmm0,0x90(%rax)",
        &[0x66, 0x0f, 0x7e, 0x80, 0x90, 0, 0, 0],
    ),
    (
        "movss %xmm0,0x90(%rax)",
        &[0xf3, 0x0f, 0x11, 0x80, 0x90, 0, 0, 0],
    ),
    (
        "vmovd %xmm0,0x90(%rax)",
        &[0xc5, 0xf9, 0x7e, 0x80, 0x90, 0, 0, 0],
    ),
    ("stos %eax,%es:(%rdi)", &[0xab]),
    ("rep stos %eax,%es:(%rdi)", &[0xf3, 0xab]),
    ("xbegin", &[0xc7, 0xf8, 4, 0, 0, 0]),
    ("addl $1,(%rax)", &[0x83, 0x00, 0x01]),
    ("or %ecx,(%rax)", &[0x09, 0x08]),
    ("mov %ds,(%rax)", &[0x8c, 0x18]),
    ("ds mov %ecx,0x90(%rax)", &[0x3e, 0x89, 0x88, 0x90, 0, 0, 0]),
    (
        "lock mov %ecx,0x90(%rax)",
        &[0xf0, 0x89, 0x88, 0x90, 0, 0, 0],
    ),
    (
        "xrelease mov %ecx,0x90(%rax)",
        &[0xf3, 0x89, 0x88, 0x90, 0, 0, 0],
    ),
    (
        "repnz mov %ecx,0x90(%rax)",
        &[0xf2, 0x89, 0x88, 0x90, 0, 0, 0],
    ),
    ("rex.B rex.B mov", &[0x41, 0x41, 0x89, 0x88, 0x90, 0, 0, 0]),
    ("c7 /1", &[0xc7, 0x08, 5, 0, 0, 0]),
];

#[test]
fn what_an_assembler_makes_is_understood() {
    for (text, bytes, address, value) in known() {
        let wanted = Store {
            address,
            value: value as u32,
            next: IP + bytes.len() as u64,
        };
        assert_eq!(store(bytes, &registers()), Some(wanted), "{text}");
        // Whatever follows.
        let more = [bytes, &[0xcc; 4]].concat();
        assert_eq!(store(&more, &registers()), Some(wanted), "{text}, more");
        for less in 0..bytes.len() {
            assert_eq!(store(&bytes[..less], &registers()), None, "{text}, {less}");
        }
    }
}

#[test]
fn other_instructions_are_not_carried_out() {
    for (text, bytes) in OTHERS {
        assert_eq!(store(bytes, &registers()), None, "{text}");
    }
}

/// A place in memory as assembler has it.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Register and displacement.
    Base(u8, i32),
    /// Register, index, shift, displacement.
    Indexed(u8, u8, u8, i32),
    /// Index, shift, displacement.
    IndexAlone(u8, u8, i32),
    Absolute(i32),
    Relative(i32),
}

/// What is stored.
#[derive(Clone, Copy, Debug)]
enum Value {
    Register(u8),
    NonTemporal(u8),
    Immediate(u32),
}

/// Encodes a store, with the displacement in 4 bytes where `wide`, or where it needs them.
fn encode(place: Place, value: Value, wide: bool) -> Vec<u8> {
    let (mut rex, mut tail) = (0_u8, vec![]);
    let (opcode, reg): (&[u8], u8) = match value {
        Value::Register(reg) => (&[0x89], reg),
        Value::NonTemporal(reg) => (&[0x0f, 0xc3], reg),
        Value::Immediate(value) => {
            tail.extend(value.to_le_bytes());
            (&[0xc7], 0)
        }
    };
    if reg >= 8 {
        rex |= 0x44;
    }
    // Mode and displacement where there is a base.
    let displaced = |displacement: i32| match i8::try_from(displacement) {
        Ok(short) if !wide => (0x40, short.to_le_bytes().to_vec()),
        _ => (0x80, displacement.to_le_bytes().to_vec()),
    };
    let mut memory = vec![];
    match place {
        Place::Base(base, displacement) => {
            let (mode, displacement) = displaced(displacement);
            memory.push(mode | (reg & 7) << 3 | base & 7);
            if base & 7 == 4 {
                memory.push(0x24);
            }
            memory.extend(displacement);
            rex |= if base >= 8 { 0x41 } else { 0 };
        }
        Place::Indexed(base, index, shift, displacement) => {
            let (mode, displacement) = displaced(displacement);
            memory.push(mode | (reg & 7) << 3 | 4);
            memory.push(shift << 6 | (index & 7) << 3 | base & 7);
            memory.extend(displacement);
            rex |= if base >= 8 { 0x41 } else { 0 };
            rex |= if index >= 8 { 0x42 } else { 0 };
        }
        Place::IndexAlone(index, shift, displacement) => {
            memory.push((reg & 7) << 3 | 4);
            memory.push(shift << 6 | (index & 7) << 3 | 5);
            memory.extend(displacement.to_le_bytes());
            rex |= if index >= 8 { 0x42 } else { 0 };
        }
        Place::Absolute(displacement) => {
            memory.push((reg & 7) << 3 | 4);
            memory.push(0x25);
            memory.extend(displacement.to_le_bytes());
        }
        Place::Relative(displacement) => {
            memory.push((reg & 7) << 3 | 5);
            memory.extend(displacement.to_le_bytes());
        }
    }
    let rex = if rex == 0 { vec![] } else { vec![rex] };
    [&rex, opcode, &memory, &tail].concat()
}

fn any_place() -> impl Strategy<Value = Place> {
    let displacement = prop_oneof![-200_i32..200, any::<i32>()];
    let index = (0_u8..16).prop_filter("rsp is no index", |index| *index != 4);
    (0_u8..5, 0_u8..16, index, 0_u8..4, displacement).prop_map(|(kind, base, index, shift, d)| {
        match kind {
            0 => Place::Base(base, d),
            1 => Place::Indexed(base, index, shift, d),
            2 => Place::IndexAlone(index, shift, d),
            3 => Place::Absolute(d),
            _ => Place::Relative(d),
        }
    })
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0_u8..16).prop_map(Value::Register),
        (0_u8..16).prop_map(Value::NonTemporal),
        any::<u32>().prop_map(Value::Immediate),
    ]
}

fn any_registers() -> impl Strategy<Value = Registers> {
    (any::<[u64; 16]>(), any::<u64>()).prop_map(|(general, ip)| Registers { general, ip })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn every_form_of_a_store_is_understood(
        place in any_place(),
        value in any_value(),
        wide in any::<bool>(),
        registers in any_registers(),
    ) {
        let bytes = encode(place, value, wide);
        let get = |number: u8| registers.general[usize::from(number)];
        let next = registers.ip.wrapping_add(bytes.len() as u64);
        let scaled = |index: u8, shift: u8| get(index).wrapping_mul(1 << shift);
        let (base, displacement) = match place {
            Place::Base(base, d) => (get(base), d),
            Place::Indexed(base, index, shift, d) => (get(base).wrapping_add(scaled(index, shift)), d),
            Place::IndexAlone(index, shift, d) => (scaled(index, shift), d),
            Place::Absolute(d) => (0, d),
            Place::Relative(d) => (next, d),
        };
        let value = match value {
            Value::Register(reg) | Value::NonTemporal(reg) => get(reg) as u32,
            Value::Immediate(value) => value,
        };
        let address = base.wrapping_add_signed(i64::from(displacement));
        prop_assert_eq!(store(&bytes, &registers), Some(Store { address, value, next }), "{:02x?}", bytes);
    }

    /// Mostly bytes that begin like a store, so that they are looked at to the end.
    #[test]
    fn whatever_the_bytes_are_an_instruction_has_a_length(
        head in prop_oneof![
            Just(vec![]),
            Just(vec![0x89]),
            Just(vec![0xc7]),
            Just(vec![0x0f, 0xc3]),
            (0x40_u8..0x50).prop_map(|rex| vec![rex, 0x89]),
            (0x40_u8..0x50).prop_map(|rex| vec![rex, 0xc7]),
        ],
        tail in proptest::collection::vec(any::<u8>(), 0..20),
        registers in any_registers(),
    ) {
        let bytes = [head, tail].concat();
        if let Some(found) = store(&bytes, &registers) {
            let length = found.next.wrapping_sub(registers.ip);
            prop_assert!(length >= 2 && length <= LONGEST as u64 && length <= bytes.len() as u64);
            // It is what these bytes alone say.
            prop_assert_eq!(store(&bytes[..length as usize], &registers), Some(found));
            prop_assert_eq!(store(&bytes[..length as usize - 1], &registers), None);
        }
    }
}
