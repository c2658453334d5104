// SPDX-License-Identifier: GPL-2.0
//! Sizes as people write them.

/// Bytes of `8GiB`, `512MiB`, `4096`.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..).unwrap_or_default() {
        "" | "B" => 0,
        "KiB" | "K" | "k" => 10,
        "MiB" | "M" => 20,
        "GiB" | "G" => 30,
        "TiB" | "T" => 40,
        other => return Err(format!("unknown unit {other:?}")),
    };
    let number: u64 = digits.parse().map_err(|e| format!("{text:?}: {e}"))?;
    number
        .checked_mul(1 << unit)
        .ok_or_else(|| format!("{text:?} is too large"))
}

/// Bytes for people: the largest binary unit that keeps them exact to two decimals.
pub fn show(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes >= 1 << shift {
            let hundredths = (u128::from(bytes) * 100) >> shift;
            return format!("{}.{:02} {unit}", hundredths / 100, hundredths % 100);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_both_ways() {
        assert_eq!(parse("8GiB"), Ok(8 << 30));
        assert_eq!(parse("4096"), Ok(4096));
        assert!(parse("8Gib").is_err() && parse("GiB").is_err());
        assert!(parse("99999999999GiB").is_err());
        assert_eq!(show(1_616_904_192), "1.50 GiB");
        assert_eq!(show(12), "12 B");
    }
}
