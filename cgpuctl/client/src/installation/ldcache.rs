// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The loader's cache, `/etc/ld.so.cache`: which libraries the host has, by the names that programs
//! ask for.
//!
//! The format is glibc's (`elf/dl-cache.h`): the magic `glibc-ld.so.cache1.1`, the number of
//! entries, and entries of 24 bytes whose names and paths are offsets from the magic. An older
//! cache in front of it, which glibc before 2.32 wrote, is skipped.

use std::path::PathBuf;

/// A library as the cache has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheEntry {
    /// The name that programs ask for, like `libcuda.so.1`.
    pub name: String,
    /// Its path, often a link.
    pub path: PathBuf,
}

const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Of the old header (magic, padding, number of entries) and of its entries.
const OLD_HEADER: usize = 16;
const OLD_ENTRY: usize = 12;
/// Of the header: magic, two numbers, flags, the extension's offset and three spare numbers.
const HEADER: usize = 48;
const ENTRY: usize = 24;
/// `FLAG_X8664_LIB64 | FLAG_ELF_LIBC6`: a 64-bit library of x86.
const X86_64: u32 = 0x0303;

/// The 64-bit entries of a cache, in its order; `None` for what is not a cache.
pub fn parse(bytes: &[u8]) -> Option<Vec<CacheEntry>> {
    let cache = if bytes.starts_with(OLD_MAGIC) {
        let count = usize::try_from(number(bytes, 12)?).ok()?;
        let end = OLD_HEADER.checked_add(count.checked_mul(OLD_ENTRY)?)?;
        bytes.get(end.next_multiple_of(8)..)?
    } else {
        bytes
    };
    if !cache.starts_with(MAGIC) {
        return None;
    }
    let count = usize::try_from(number(cache, MAGIC.len())?).ok()?;
    let mut entries = Vec::new();
    for n in 0..count {
        let at = HEADER.checked_add(n.checked_mul(ENTRY)?)?;
        if number(cache, at)? == X86_64 {
            entries.push(CacheEntry {
                name: text(cache, number(cache, at + 4)?)?.to_owned(),
                path: text(cache, number(cache, at + 8)?)?.into(),
            });
        }
    }
    Some(entries)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*field))
}

/// The NUL-terminated text at an offset.
fn text(bytes: &[u8], at: u32) -> Option<&str> {
    let rest = bytes.get(usize::try_from(at).ok()?..)?;
    let len = rest.iter().position(|&b| b == 0)?;
    std::str::from_utf8(rest.get(..len)?).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A cache of these (name, path, flags).
    pub(crate) fn make(entries: &[(&str, &str, u32)]) -> Vec<u8> {
        let mut strings = Vec::new();
        let mut table = Vec::new();
        let base = HEADER + entries.len() * ENTRY;
        let mut put = |text: &str| {
            let at = base + strings.len();
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            u32::try_from(at).expect("small").to_le_bytes()
        };
        for (name, path, flags) in entries {
            table.extend(flags.to_le_bytes());
            table.extend(put(name));
            table.extend(put(path));
            table.extend([0; 12]);
        }
        let count = u32::try_from(entries.len()).expect("few").to_le_bytes();
        let len = u32::try_from(strings.len()).expect("short").to_le_bytes();
        let mut bytes = [MAGIC, &count, &len, &[2], &[0; 19]].concat();
        assert_eq!(bytes.len(), HEADER);
        bytes.extend(table);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn only_64_bit_libraries_count() {
        let cache = make(&[
            (
                "libcuda.so.1",
                "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
                X86_64,
            ),
            ("libcuda.so.1", "/usr/lib/i386-linux-gnu/libcuda.so.1", 3),
        ]);
        let entries = parse(&cache).expect("a cache");
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].name, "libcuda.so.1");
        assert!(entries[0].path.starts_with("/usr/lib/x86_64-linux-gnu"));
    }

    #[test]
    fn an_old_cache_in_front_is_skipped() {
        let new = make(&[("libc.so.6", "/lib/libc.so.6", X86_64)]);
        let mut both = [OLD_MAGIC, &[0], &3u32.to_le_bytes(), &[7; 36]].concat();
        both.resize(both.len().next_multiple_of(8), 0);
        both.extend(&new);
        assert_eq!(parse(&both), parse(&new));
    }

    #[test]
    fn a_cut_file_is_no_cache() {
        let cache = make(&[("a.so", "/a.so", X86_64), ("b.so", "/b.so", X86_64)]);
        for len in 0..cache.len() {
            assert_eq!(parse(&cache[..len]), None, "{len}");
        }
        assert!(parse(&cache).is_some());
        assert_eq!(parse(b"#!/bin/sh\n"), None);
    }

    /// The cache of the machine that the tests run on, as its own `ldconfig -p` prints it.
    #[test]
    fn cache_reads_as_ldconfig_reads_it() {
        let Ok(bytes) = std::fs::read("/etc/ld.so.cache") else {
            return;
        };
        let printed = ["/sbin/ldconfig", "/usr/sbin/ldconfig"]
            .iter()
            .find_map(|program| std::process::Command::new(program).arg("-p").output().ok());
        let Some(printed) = printed else {
            return;
        };
        let printed = String::from_utf8(printed.stdout).expect("UTF-8");
        let wanted: Vec<_> = printed
            .lines()
            .filter(|line| line.contains("(libc6,x86-64"))
            .filter_map(|line| line.split_once(" => "))
            .map(|(name, path)| (name.trim().split(' ').next().unwrap_or(""), path))
            .collect();
        let entries = parse(&bytes).expect("a cache");
        let have: Vec<_> = entries
            .iter()
            .map(|e| (e.name.as_str(), e.path.to_str().unwrap_or("")))
            .collect();
        assert_eq!(have, wanted);
    }
}
