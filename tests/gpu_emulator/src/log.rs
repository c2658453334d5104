// SPDX-License-Identifier: GPL-2.0
//! The GPU's log: lines with the time since it began.

use std::{fmt, fs::File, io::Write as _, path::Path, time::Instant};

/// Of many like lines the first ones are written, up to this count. After them a line is written if
/// its count is a power of two.
const SAME: u64 = 16;

/// A log file, or nothing.
#[derive(Debug)]
pub struct Log {
    file: Option<File>,
    began: Instant,
}

impl Log {
    /// A log that goes nowhere.
    pub fn none() -> Self {
        Self {
            file: None,
            began: Instant::now(),
        }
    }

    /// A log in a new file.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            file: Some(File::create(path)?),
            began: Instant::now(),
        })
    }

    /// Writes a line of a unit of the GPU.
    pub fn say(&mut self, unit: &str, words: fmt::Arguments<'_>) {
        if let Some(file) = &mut self.file {
            let seconds = self.began.elapsed().as_secs_f64();
            // A log that cannot be written must not stop the GPU.
            if writeln!(file, "{seconds:.4} {unit}: {words}").is_err() {
                self.file = None;
            }
        }
    }
}

/// Whether the `count`th of many like lines is written.
pub fn worth_a_line(count: u64) -> bool {
    count <= SAME || count.is_power_of_two()
}
