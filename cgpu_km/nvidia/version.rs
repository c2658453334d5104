// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Versions of the driver, and the branches that share their tables.

use core::fmt;

/// A version of the driver, such as 580.159.04.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriverVersion {
    /// 580: the branch.
    pub major: u32,
    /// 159.
    pub minor: u32,
    /// 4; 0 where the version has only two parts.
    pub patch: u32,
}

impl DriverVersion {
    /// Reads `580.142` or `580.159.04`, as `NV_ESC_CHECK_VERSION_STR` gives it. Anything else is
    /// `None`: a part that is empty, no decimal number or over 9 digits, or another count of parts.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let major = number(parts.next()?)?;
        let minor = number(parts.next()?)?;
        let patch = match parts.next() {
            Some(part) => number(part)?,
            None => 0,
        };
        parts.next().is_none().then_some(Self {
            major,
            minor,
            patch,
        })
    }
}

fn number(text: &str) -> Option<u32> {
    let plain = (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// As NVIDIA writes it: the last part has two digits and is left out where it is 0.
impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch != 0 {
            write!(f, ".{:02}", self.patch)?;
        }
        Ok(())
    }
}

/// A branch of the driver. Within one, NVIDIA keeps the interface to user space as it is: the
/// tables were compared among some 30 releases of these branches (`tests/abi/README.md`), and the
/// recordings of 580.159.04 agree in every size with the headers of 580.142. Of the other branches
/// the headers are all that is known here; no recording of them was there to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Branch {
    /// 535.x
    R535 = 535,
    /// 550.x
    R550 = 550,
    /// 570.x
    R570 = 570,
    /// 580.x
    R580 = 580,
    /// 595.x
    R595 = 595,
}

impl Branch {
    /// Every branch, oldest first.
    pub const ALL: [Self; 5] = [Self::R535, Self::R550, Self::R570, Self::R580, Self::R595];

    /// The branch of a version. `None` for one that is not known: of another branch, or older than
    /// what the branch's tables hold for.
    pub fn of(version: DriverVersion) -> Option<Self> {
        Self::named(version.major).filter(|branch| version.minor >= branch.oldest_minor())
    }

    /// The branch of this number, whatever the rest of a version is.
    pub fn named(major: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|branch| branch.major() == major)
    }

    /// The second part of its oldest version for which the tables hold. A number below it can also
    /// be a newer one from the line for developers (535.43); those are not told apart.
    const fn oldest_minor(self) -> u32 {
        match self {
            // 535.54 has smaller parameters of channels.
            Self::R535 => 86,
            Self::R550 | Self::R570 | Self::R580 | Self::R595 => 0,
        }
    }

    /// The first part of its versions.
    pub const fn major(self) -> u32 {
        // CAST: the discriminant of a repr(u32) enum.
        self as u32
    }
}
