// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Entry point of the hook that container runtimes call.

use cgpuctl::{
    hook::{run, Arguments},
    system::System,
};
use clap::Parser;
use std::{
    fs::{File, OpenOptions},
    io::{stderr, stdin, Write},
    process::ExitCode,
};

/// Stderr and the kernel's log: some runtimes keep what a hook says to themselves.
struct Said(Option<File>);

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(log) = &mut self.0 {
            // A line of the log is one write. Without the right to write there is no log.
            let _ = log.write(bytes);
        }
        stderr().write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        stderr().flush()
    }
}

fn main() -> ExitCode {
    let log = OpenOptions::new().write(true).open("/dev/kmsg").ok();
    run(
        &Arguments::parse(),
        &System,
        &mut stdin().lock(),
        &mut std::io::LineWriter::new(Said(log)),
    )
    .into()
}
