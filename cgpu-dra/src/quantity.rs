// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Quantities of Kubernetes, like `8Gi`, as whole numbers.

/// Why a text is no quantity that can be used here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no whole quantity like 8Gi or 20")]
pub struct QuantityError {
    text: String,
}

const SUFFIXES: [(&str, u128); 13] = [
    ("", 1),
    ("k", 1000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
];
/// More digits than any quantity of an apiserver has.
const LONGEST: usize = 64;

/// Reads a quantity. One that is not whole, is negative, or does not fit, is an error: nothing that
/// is divided here has parts.
pub fn parse(text: &str) -> Result<u64, QuantityError> {
    read(text).ok_or_else(|| QuantityError {
        text: text.chars().take(LONGEST).collect(),
    })
}

fn read(text: &str) -> Option<u64> {
    if text.len() > LONGEST {
        return None;
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at_checked(end)?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') {
        return None;
    }
    let part = part.trim_end_matches('0');
    // Mantissa and the power of ten by which it is too large.
    let mut mantissa: u128 = 0;
    for digit in whole.bytes().chain(part.bytes()) {
        mantissa = mantissa
            .checked_mul(10)?
            .checked_add(u128::from(digit - b'0'))?;
    }
    let scaled = match SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        Some((_, factor)) => mantissa.checked_mul(*factor)?,
        None if suffix == "m" => {
            let scale = 10u128.checked_pow(u32::try_from(part.len()).ok()?)?;
            let thousandth = scale.checked_mul(1000)?;
            return mantissa
                .is_multiple_of(thousandth)
                .then(|| u64::try_from(mantissa / thousandth).ok())
                .flatten();
        }
        None => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let exponent = exponent.strip_prefix('+').unwrap_or(exponent);
            let valid = !exponent.is_empty() && exponent.bytes().all(|b| b.is_ascii_digit());
            let exponent: u32 = valid.then(|| exponent.parse().ok()).flatten()?;
            mantissa.checked_mul(10u128.checked_pow(exponent)?)?
        }
    };
    let scale = 10u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    if !scaled.is_multiple_of(scale) {
        return None;
    }
    u64::try_from(scaled / scale).ok()
}

/// A number of bytes with the largest suffix that keeps it whole, as an apiserver would write it.
pub fn bytes(bytes: u64) -> String {
    let units = ["Ei", "Pi", "Ti", "Gi", "Mi", "Ki"];
    let found = units
        .iter()
        .zip([60u32, 50, 40, 30, 20, 10])
        .find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    match found {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_quantities_are_read() {
        for (text, value) in [
            ("0", 0),
            ("20", 20),
            ("+20", 20),
            ("8Gi", 8 << 30),
            ("1.5Gi", 3 << 29),
            ("143360Mi", 143_360 << 20),
            ("8G", 8_000_000_000),
            ("2000m", 2),
            ("1.50k", 1500),
            ("12e3", 12_000),
            ("1.2E1", 12),
            ("15Ei", 15 << 60),
            ("18446744073709551615", u64::MAX),
            (".5Ki", 512),
            ("5.", 5),
        ] {
            assert_eq!(parse(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn other_texts_are_errors() {
        for text in [
            "",
            ".",
            "-1",
            "1.5",
            "1500m",
            "8gi",
            "8 Gi",
            "Gi",
            "1e",
            "1e-3",
            "1e99",
            "16Ei",
            "1..2",
            "1.2.3",
            "0x10",
            "18446744073709551616",
            "\u{0661}",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"1".repeat(1000)).is_err());
    }

    #[test]
    fn a_written_quantity_reads_the_same() {
        for value in [
            0,
            1,
            1 << 10,
            3 << 29,
            143_360 << 20,
            147_221_504 << 10,
            u64::MAX,
            1 << 60,
        ] {
            assert_eq!(parse(&bytes(value)), Ok(value));
        }
        assert_eq!(bytes(8 << 30), "8Gi");
    }
}
