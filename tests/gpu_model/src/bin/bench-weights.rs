// SPDX-License-Identifier: GPL-2.0
//! How well shares hold on the model of a GPU: JSON lines, one a case, the same in every run.
//!
//! `bench-weights [--check] [shares|services|pauses]`: with `--check` it exits with 1 if a case is
//! over its bound. The fields are described in README.md.

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use gpu_model::{
    cases::{self, Line},
    pauses, services,
};

fn main() -> io::Result<ExitCode> {
    let has = |word: &&str| std::env::args().any(|arg| arg == *word);
    let check = has(&"--check");
    let mut out = BufWriter::new(io::stdout().lock());
    let (mut lines, mut over) = (0, 0);
    let mut failure = None;
    let mut each = |line: Line| {
        lines += 1;
        over += usize::from(line.bound.is_some_and(|bound| line.error > bound));
        let wrote = serde_json::to_writer(&mut out, &line).map_err(io::Error::from);
        if let Err(e) = wrote.and_then(|()| out.write_all(b"\n")) {
            failure.get_or_insert(e);
        }
    };
    let all = !["shares", "services", "pauses"].iter().any(has);
    if all || has(&"shares") {
        cases::all(&mut each);
    }
    if all || has(&"services") {
        services::all(&mut each);
    }
    if all || has(&"pauses") {
        pauses::all(&mut each);
    }
    out.flush()?;
    if let Some(e) = failure {
        return Err(e);
    }
    if !check {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{} passed, {over} failed", lines - over);
    Ok(ExitCode::from(u8::from(over > 0)))
}
