// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Exit codes: what a script can tell without reading the sentence.
//!
//! They are documented in `docs/cgpuctl.md` and never change their meaning.

use std::process::ExitCode;

/// Declares the exit codes of the tool itself: `name = code;`.
macro_rules! exits {
    ($($(#[$about:meta])* $name:ident = $code:literal;)*) => {
        /// How a command ended.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum Exit {
            $($(#[$about])* $name,)*
            /// As the program of `run` did: its own code, or 128 and the number of its signal.
            Program(u8),
        }

        impl Exit {
            /// Every code of the tool itself, in order.
            pub const ALL: [Self; [$($code),*].len()] = [$(Self::$name),*];

            /// The number that the shell sees.
            pub const fn code(self) -> u8 {
                match self {
                    $(Self::$name => $code,)*
                    Self::Program(code) => code,
                }
            }
        }
    };
}

exits! {
    /// Everything that was asked for was done.
    #[default]
    Done = 0;
    /// It failed for a reason that none of the other codes names.
    Failed = 1;
    /// The command line is wrong, or not precise enough.
    Usage = 2;
    /// The module is not loaded.
    NotLoaded = 3;
    /// There is no such GPU or instance.
    NotFound = 4;
    /// The caller lacks the rights.
    NotPermitted = 5;
    /// Refused by a rule: name taken, limit too high, in use, no room.
    Refused = 6;
    /// The NVIDIA driver is not loaded, does not answer, or is not known.
    Driver = 7;
    /// `doctor` found that something must be fixed.
    Unsound = 8;
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
