// SPDX-License-Identifier: GPL-2.0
//! Stores to doorbells that are trapped: what the program was about to store, as the module finds it out in a fault, from the
//! registers that a signal's handler is given.

use crate::sys;
use cgpu_km::policy::instruction::{self, Registers, Store, LONGEST};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Has the library write the instructions that touch a doorbell to stderr, if it is set.
pub const VARIABLE: &str = "CGPU_GPU_STORES";

/// Instructions that are written at most.
const MOST: usize = 16;

/// The general registers, by their numbers in instructions.
const NUMBERED: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// An access that was trapped.
pub struct Trapped {
    address: u64,
    ip: u64,
    code: [u8; LONGEST],
    length: usize,
    store: Option<Store>,
}

fn register(context: &libc::ucontext_t, number: i32) -> u64 {
    // CAST: a small index, and the same bits.
    context.uc_mcontext.gregs[number as usize] as u64
}

impl Trapped {
    /// The one that a handler of `SIGSEGV` was called for, with what it was given.
    pub fn new(context: &libc::ucontext_t, address: u64) -> Self {
        let registers = Registers {
            general: NUMBERED.map(|number| register(context, number)),
            ip: register(context, libc::REG_RIP),
        };
        let mut code = [0; LONGEST];
        // CAST: below a page's size.
        let here = (4096 - registers.ip % 4096).min(LONGEST as u64) as usize;
        let mut length = 0;
        // What follows on the next page need not be there.
        for (from, to) in [(0, here), (here, LONGEST)] {
            // CAST: at most 15.
            if length == from && sys::peek(registers.ip + from as u64, &mut code[from..to]).is_ok()
            {
                length = to;
            }
        }
        let store = instruction::store(&code[..length], &registers)
            .filter(|store| store.address == address && address & 3 == 0);
        Self {
            address,
            ip: registers.ip,
            code,
            length,
            store,
        }
    }

    /// Whether it is one that the module carries out.
    pub fn is_known(&self) -> bool {
        self.store.is_some()
    }

    /// Carries it out, in another mapping of what begins at `start`, and has the program go on behind it. `false`: it is not
    /// known.
    ///
    /// # Safety
    ///
    /// The other mapping begins at `alias`, can be written to and reaches as far as the address that was trapped.
    pub unsafe fn carry_out(&self, context: &mut libc::ucontext_t, start: u64, alias: u64) -> bool {
        let Some(store) = &self.store else {
            return false;
        };
        let at = (alias + (store.address - start)) as *mut u32;
        std::sync::atomic::fence(Ordering::SeqCst);
        // SAFETY: The caller promises it, and `new` has looked that it is aligned.
        unsafe { at.write_volatile(store.value) };
        // CAST: a small index, and the same bits.
        context.uc_mcontext.gregs[libc::REG_RIP as usize] = store.next as i64;
        true
    }

    /// Writes the instruction to stderr, the first time that it is met. Of use in a handler: allocates nothing.
    pub fn show_once(&self) {
        static SHOWN: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
        let new = SHOWN.iter().find_map(|shown| {
            match shown.compare_exchange(0, self.ip, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => Some(true),
                Err(known) if known == self.ip => Some(false),
                Err(_) => None,
            }
        });
        if new != Some(true) {
            return;
        }
        let mut line = Line::default();
        // What does not fit is left away.
        let _ = write!(line, "cgpu-gpu: doorbell {:#x} by", self.address);
        for byte in &self.code[..self.length] {
            let _ = write!(line, " {byte:02x}");
        }
        let _ = match &self.store {
            Some(store) => writeln!(
                line,
                ": {} bytes, stores {:#x}",
                store.next.wrapping_sub(self.ip),
                store.value
            ),
            None => writeln!(line, ": not known"),
        };
        // SAFETY: The bytes are there during the call.
        unsafe { libc::write(2, line.text.as_ptr().cast(), line.length) };
    }
}

/// A line of text that needs no allocation.
#[derive(Default)]
struct Line {
    text: [[u8; 32]; 6],
    length: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let rest = self.text.as_flattened_mut().get_mut(self.length..);
        let room = rest.and_then(|rest| rest.get_mut(..text.len()));
        room.ok_or(std::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}
