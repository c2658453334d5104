// SPDX-License-Identifier: GPL-2.0
//! A program starts in an instance whose accounting somebody works on at that moment: it waits, and
//! goes on.
//!
//! While it waits it looks whether the other one still lives, and what it looks with is taken the
//! place of by the library itself, whose setting is just being made.

use std::{
    process::Command,
    sync::mpsc,
    time::{Duration, Instant},
};

use cgpu_gpu::{
    arena::Allocator,
    state::{self, Gpu, State},
};
use cgpu_km::nvidia::version::Branch;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// For how long the accounting is held: a thousand tries for them, and more.
const HELD: Duration = Duration::from_millis(500);
/// A program that has not ended by then does not go on any more.
const MOST: Duration = Duration::from_secs(60);

#[test]
fn program_starts_while_accounting_is_locked() {
    let own = std::env::current_exe().expect("it runs");
    // Cargo puts what tests are built with beside them.
    let library = own.with_file_name("libcgpu_preload.so");
    assert!(library.exists(), "{} is built with it", library.display());
    let path = std::env::temp_dir().join(format!("cgpu-gpu-start.{}", std::process::id()));
    let gpu = Gpu::unasked(1 << 30);
    let state = State::create(&path, Branch::R580, &[gpu]).expect("an instance");
    let (taken, is_taken) = mpsc::channel();
    let holder = std::thread::spawn(move || {
        state.with_accounting(|_| {
            taken.send(()).expect("somebody listens");
            std::thread::sleep(HELD);
        });
    });
    is_taken.recv().expect("the accounting is held");
    let began = Instant::now();
    let mut program = Command::new("true")
        .env("LD_PRELOAD", &library)
        .env(state::VARIABLE, &path)
        .spawn()
        .expect("it starts");
    let status = loop {
        match program.try_wait().expect("it is ours") {
            Some(status) => break Some(status),
            None if began.elapsed() > MOST => {
                program.kill().expect("it is ours");
                program.wait().expect("it was killed");
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    holder.join().expect("it ends");
    std::fs::remove_file(&path).expect("it was made above");
    assert!(status.expect("it goes on").success());
    assert!(began.elapsed() >= HELD / 2, "it has waited");
}
