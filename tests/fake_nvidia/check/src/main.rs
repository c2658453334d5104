// SPDX-License-Identifier: GPL-2.0
//! `standin-check`: does the stand-in driver keep what the real one keeps, and has it its holes?
//! Runs in the test machine, on the stand-in alone (two GPUs); a line for each test, then "N
//! passed, N failed". With `--answers` it asks any driver the same questions, and judges nothing
//! ([`answers`]): what a call returns is compared with NVIDIA's driver, and has no test here.

mod answers;
mod calls;
mod exports;
mod files;
mod memory;
mod uvm;

use std::{panic, process::ExitCode};

fn main() -> ExitCode {
    panic::set_hook(Box::new(|_| ()));
    if std::env::args().any(|word| word == "--answers") {
        answers::tell();
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, 0);
    for &(name, test) in [files::TESTS, memory::TESTS, exports::TESTS, uvm::TESTS]
        .concat()
        .iter()
    {
        match panic::catch_unwind(test) {
            Ok(()) => {
                passed += 1;
                println!("ok {name}");
            }
            Err(why) => {
                failed += 1;
                let text = why.downcast_ref::<String>().cloned();
                let text = text.or_else(|| why.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                println!("FAILED {name}: {}", text.unwrap_or_default());
            }
        }
    }
    for (file, key) in [
        ("leaks", "allocations"),
        ("refs", "files"),
        ("refs", "mappings"),
        ("refs", "events"),
        ("objects", "objects"),
        ("heap", "gpu0_used_bytes"),
        ("heap", "gpu0_managed_bytes"),
        ("heap", "gpu0_contexts"),
    ] {
        // `leaks` counts what `unanswered` remembers, too.
        let _ = std::fs::write("/sys/kernel/debug/fake_nvidia/unanswered", "\n");
        let left = calls::figure(file, key);
        if left == 0 {
            passed += 1;
        } else {
            failed += 1;
            println!("FAILED nothing is left behind: {file} {key} {left}");
        }
    }
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed != 0))
}
