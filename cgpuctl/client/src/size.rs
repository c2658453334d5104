// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Sizes of memory as people write and read them.
//!
//! On input a unit is required, since `8` has meant bytes, MiB and GiB in tools of this kind. The
//! binary units count in 1024 (`KiB MiB GiB TiB`, or as Kubernetes writes them `Ki Mi Gi Ti`), the
//! decimal ones in 1000 (`kB MB GB TB`); case does not matter. `8G` is refused because nobody knows
//! which of the two it is. On output sizes are binary, with two decimals cut off, so that a shown
//! size can be asked for.

use serde::Serialize;
use std::{fmt, str::FromStr};

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A limit as it is asked for: a size, or a part of the GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A size.
    Bytes(Bytes),
    /// Percent of the GPU's memory, 1 to 100.
    Percent(u32),
}

impl Amount {
    /// How much it is on a GPU with so many bytes.
    pub fn of(self, memory_bytes: u64) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => {
                let part = u128::from(memory_bytes) * u128::from(percent) / 100;
                Bytes(u64::try_from(part).unwrap_or(u64::MAX))
            }
        }
    }
}

impl FromStr for Amount {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let Some(number) = text.trim().strip_suffix('%') else {
            return text.parse().map(Self::Bytes);
        };
        let percent = number.trim_end().parse().ok();
        let percent = percent.filter(|percent| (1..=100).contains(percent));
        let percent = percent.ok_or_else(|| SizeError::Percent(text.to_owned()))?;
        Ok(Self::Percent(percent))
    }
}

/// 1 GiB, under which a limit is worth a warning.
pub const GIB: Bytes = Bytes(1 << 30);

/// Memory that a bare CUDA context takes of the limit on an H200 with driver 580 (measured), bytes.
pub const CONTEXT: Bytes = Bytes(527 << 20);

/// Units, the longest of each family last, so that output takes the largest that fits.
const BINARY: [(&str, u64); 5] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];
const DECIMAL: [(&str, u64); 4] = [
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Only a number.
    #[error("a size needs its unit: write {0}GiB or {0}MiB (or {0}B if bytes are meant)")]
    Bare(String),
    /// `8G`: could be either.
    #[error("the unit {0:?} is ambiguous: write {0}iB (1024) or {0}B (1000)")]
    Ambiguous(String),
    /// Not a unit at all.
    #[error("unknown unit {0:?}: use B, KiB, MiB, GiB, TiB or kB, MB, GB, TB")]
    Unit(String),
    /// Not a number in front of the unit.
    #[error("{0:?} is not a number: write a size like 8GiB or 1.5GiB")]
    Number(String),
    /// Not a part of the whole.
    #[error("{0:?} is no part of a GPU's memory: write a whole number from 1% to 100%")]
    Percent(String),
    /// Zero.
    #[error("a limit of zero allows nothing: write a size like 8GiB")]
    Zero,
    /// More than 64 bits of bytes.
    #[error("too large")]
    TooLarge,
}

impl FromStr for Bytes {
    type Err = SizeError;

    /// A size that is not zero; a fraction is cut to whole bytes.
    fn from_str(text: &str) -> Result<Self, SizeError> {
        let text = text.trim();
        let split = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let unit = unit.trim();
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || (number.contains('.') && !digits(fraction)) {
            return Err(SizeError::Number(text.to_owned()));
        }
        if unit.is_empty() {
            return Err(SizeError::Bare(number.to_owned()));
        }
        let is_unit = |name: &str| {
            let short = name.strip_suffix('B').filter(|short| short.ends_with('i'));
            [Some(name), short]
                .into_iter()
                .flatten()
                .any(|name| name.eq_ignore_ascii_case(unit))
        };
        let factor = BINARY
            .iter()
            .chain(&DECIMAL)
            .find(|(name, _)| is_unit(name))
            .map(|(_, factor)| u128::from(*factor))
            .ok_or_else(|| match unit.to_ascii_uppercase().as_str() {
                short @ ("K" | "M" | "G" | "T") => SizeError::Ambiguous(short.to_owned()),
                _ => SizeError::Unit(unit.to_owned()),
            })?;
        // 18 digits of a fraction are more than any 64-bit result can show.
        let fraction = fraction.get(..fraction.len().min(18)).unwrap_or_default();
        let whole: u64 = whole.parse().map_err(|_| SizeError::TooLarge)?;
        let mut bytes = u128::from(whole) * factor;
        if !fraction.is_empty() {
            let parts: u64 = fraction.parse().map_err(|_| SizeError::TooLarge)?;
            let scale = (0..fraction.len()).fold(1u128, |s, _| s * 10);
            bytes += u128::from(parts) * factor / scale;
        }
        match u64::try_from(bytes) {
            Ok(0) => Err(SizeError::Zero),
            Ok(bytes) => Ok(Self(bytes)),
            Err(_) => Err(SizeError::TooLarge),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = BINARY
            .iter()
            .rev()
            .find(|(_, factor)| self.0 >= *factor)
            .copied()
            .unwrap_or(("B", 1));
        let hundredths = u128::from(self.0) * 100 / u128::from(factor);
        let (whole, part) = (hundredths / 100, hundredths % 100);
        let text = match part {
            0 => format!("{whole} {unit}"),
            _ if part % 10 == 0 => format!("{whole}.{} {unit}", part / 10),
            _ => format!("{whole}.{part:02} {unit}"),
        };
        f.pad(&text)
    }
}

impl Bytes {
    /// The size as it can be typed: like the display, without the space.
    pub fn argument(self) -> String {
        self.to_string().replace(' ', "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_count_in_1024_or_1000() {
        for (text, bytes) in [
            ("8GiB", 8 << 30),
            ("8gib", 8 << 30),
            ("8 GiB", 8 << 30),
            ("8Gi", 8 << 30),
            ("512mi", 512 << 20),
            ("8GB", 8_000_000_000),
            ("1.5GiB", 3 << 29),
            ("0.001kB", 1),
            ("512MiB", 512 << 20),
            ("1TiB", 1 << 40),
            ("2TB", 2_000_000_000_000),
            ("3KiB", 3072),
            ("3kB", 3000),
            ("7B", 7),
            ("0.1GiB", 107_374_182),
            ("18446744073709551615B", u64::MAX),
            ("16777215.9999999TiB", 18_446_744_073_709_441_664),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn ambiguous_sizes_are_refused() {
        use SizeError::*;
        for (text, error) in [
            ("8", Bare("8".into())),
            ("1.5", Bare("1.5".into())),
            ("8G", Ambiguous("G".into())),
            ("8m", Ambiguous("M".into())),
            ("8Gx", Unit("Gx".into())),
            ("8 GiB B", Unit("GiB B".into())),
            ("GiB", Number("GiB".into())),
            ("", Number("".into())),
            ("-1GiB", Number("-1GiB".into())),
            (".5GiB", Number(".5GiB".into())),
            ("5.GiB", Number("5.GiB".into())),
            ("1.2.3GiB", Number("1.2.3GiB".into())),
            ("0GiB", Zero),
            ("0.1B", Zero),
            ("18446744073709551616B", TooLarge),
            ("16777216TiB", TooLarge),
            ("99999999999999999999GiB", TooLarge),
        ] {
            assert_eq!(text.parse::<Bytes>(), Err(error), "{text}");
        }
    }

    #[test]
    fn amount_can_be_a_percentage() {
        let of = |text: &str| text.parse::<Amount>().map(|amount| amount.of(1001));
        assert_eq!(of("50%"), Ok(Bytes(500)));
        assert_eq!(of("100 %"), Ok(Bytes(1001)));
        assert_eq!(of("7B"), Ok(Bytes(7)));
        assert_eq!(Amount::Percent(100).of(u64::MAX), Bytes(u64::MAX));
        for text in ["0%", "101%", "1.5%", "-1%", "%"] {
            assert_eq!(of(text), Err(SizeError::Percent(text.to_owned())));
        }
        assert_eq!(of("8"), Err(SizeError::Bare("8".to_owned())));
    }

    #[test]
    fn shown_size_is_typeable_and_rounded_down() {
        for (bytes, shown) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1 << 30, "1 GiB"),
            (3 << 29, "1.5 GiB"),
            (150_754_820_096, "140.4 GiB"),
            ((1 << 40) - 1, "1023.99 GiB"),
            (u64::MAX, "16777215.99 TiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), shown);
            if bytes > 0 {
                let typed: Bytes = Bytes(bytes).argument().parse().expect("a size");
                assert!(typed.0 <= bytes && bytes - typed.0 <= bytes / 99, "{shown}");
            }
        }
    }
}
