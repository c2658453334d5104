// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Exit codes: what a script can tell without reading the sentence.
//!
//! They are documented in `docs/cgpuctl.md` and never change their meaning.

use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exit {
    /// Everything that was asked for was done.
    #[default]
    Done,
    /// It failed for a reason that none of the other codes names.
    Failed,
    /// The command line is wrong, or not precise enough.
    Usage,
    /// The module is not loaded.
    NotLoaded,
    /// There is no such GPU or instance.
    NotFound,
    /// The caller lacks the rights.
    NotPermitted,
    /// Refused by a rule: name taken, limit too high, in use, no room.
    Refused,
    /// The NVIDIA driver is not loaded, does not answer, or is not known.
    Driver,
    /// `doctor` found that something must be fixed.
    Unsound,
    /// As the program of `run` did: its own code, or 128 and the number of its signal.
    Program(u8),
}

impl Exit {
    /// Every code of the tool itself, in order.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::NotLoaded,
        Self::NotFound,
        Self::NotPermitted,
        Self::Refused,
        Self::Driver,
        Self::Unsound,
    ];

    /// The number that the shell sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotLoaded => 3,
            Self::NotFound => 4,
            Self::NotPermitted => 5,
            Self::Refused => 6,
            Self::Driver => 7,
            Self::Unsound => 8,
            Self::Program(code) => code,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
