// SPDX-License-Identifier: GPL-2.0
//! Many processes at once, on shared and on own files, ending in the middle of things.

use crate::calls::*;

/// The tests of this file.
pub(crate) const TESTS: &[Test] = &[("many processes at once leave nothing behind", crowd)];

const PROCESSES: u64 = 6;
const STEPS: u32 = 250;
const MIB: u64 = 1 << 20;

/// xorshift64: which step comes next.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Calls fail here by chance, in all ways; only the accounting matters.
fn wander(mut dice: Dice, shared: &Program) -> u8 {
    let own = Program::new();
    let uvm = uvm();
    let _ = request(&uvm, 0x3000_0001, &mut [0; 16]);
    let mut register = vec![0; 40];
    register[..16].copy_from_slice(&uuid(0));
    let _ = request(&uvm, 37, &mut register);
    let mut held = Vec::new();
    for _ in 0..STEPS {
        let program = if dice.roll(2) == 0 { shared } else { &own };
        let handle = 0x100 + dice.roll(24) as u32;
        let base = 0x30_0000_0000 + dice.roll(16) * 2 * MIB;
        match dice.roll(12) {
            0..=2 => drop(program.video(handle, (1 + dice.roll(4)) * 2 * MIB)),
            3 => drop(program.free(handle)),
            4 => drop(dup(
                &own.ctl,
                own.client,
                DEVICE,
                handle,
                shared.client,
                handle,
            )),
            5 => {
                let file = gpu(0);
                if map(&program.ctl, program.client, DEVICE, handle, MIB, file.0).0 == status::OK {
                    if let Ok(at) = mmap(&file, 0, MIB, 3, 0) {
                        held.push((at, MIB));
                    }
                }
            }
            6 => {
                if let Some((at, length)) = held.pop() {
                    munmap(at, length);
                }
            }
            7 => {
                let mut range = vec![0; 24];
                set64(&mut range, 0, base);
                set64(&mut range, 8, 2 * MIB);
                let _ = request(&uvm, if dice.roll(2) == 0 { 73 } else { 34 }, &mut range);
            }
            8 => {
                if let Ok(at) = mmap(&uvm, base, 2 * MIB, 3, base) {
                    // SAFETY: inside the mapping.
                    unsafe { ((at + MIB) as *mut u64).write_volatile(1) };
                    held.push((at, 2 * MIB));
                }
            }
            9 => {
                let (c, g) = (ctl(), gpu(1));
                let _ = escape(&g, number::REGISTER_FD, &mut words(4, &[(0, c.0 as u32)]));
                client(&c);
            }
            10 => drop(std::fs::write("/sys/kernel/debug/fake_nvidia/revoke", "0")),
            _ => {
                let mut group = words(20, &[(12, 1 + dice.roll(13) as u32)]);
                alloc(
                    &program.ctl,
                    program.client,
                    DEVICE,
                    handle,
                    number::GROUP,
                    &mut group,
                );
                alloc(
                    &program.ctl,
                    program.client,
                    handle,
                    0,
                    0xC86F,
                    &mut [0; 368],
                );
            }
        }
        if dice.roll(400) == 0 {
            // SAFETY: the end of this process, with everything open.
            unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
        }
    }
    1
}

fn crowd() {
    let shared = Program::new();
    let children: Vec<i32> = (1..=PROCESSES)
        .map(|seed| {
            // SAFETY: the program has one thread.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                let code = std::panic::catch_unwind(|| wander(Dice(seed * 0x9E37_79B9), &shared))
                    .unwrap_or(9);
                // SAFETY: leaves the child.
                unsafe { libc::_exit(i32::from(code)) };
            }
            pid
        })
        .collect();
    for pid in children {
        let mut state = 0;
        // SAFETY: the child is ours.
        unsafe { libc::waitpid(pid, &mut state, 0) };
        assert!(
            libc::WIFSIGNALED(state) || libc::WEXITSTATUS(state) == 1,
            "a child ended with {state:#x}"
        );
    }
    drop(shared);
    for (file, key) in [
        ("heap", "gpu0_used_bytes"),
        ("heap", "gpu0_contexts"),
        ("objects", "objects"),
        ("refs", "files"),
    ] {
        assert_eq!(figure(file, key), 0, "{key}");
    }
}
