// SPDX-License-Identifier: GPL-2.0
//! A firmware file without firmware: an ELF file with the sections that the driver looks for
//! (kernel_gsp.c, `_kgspFwContainerGetSection`), of our own making. The emulator never reads what
//! is in it.

use std::{fs, io, path::Path};

/// Chips whose signatures the driver may look for (`.fwsignature_*`).
const SIGNATURES: [&str; 9] = [
    "tu10x", "tu11x", "ga100", "ga10x", "ad10x", "gh100", "gh10x", "gb10x", "gb20x",
];
/// Names that a release may ask for.
const FILES: [&str; 2] = ["gsp_ga10x.bin", "gsp_tu10x.bin"];
/// Size of an ELF header, and of a section's header.
const HEADER: usize = 64;
/// Section types: contents of the program's own, names.
const PROGBITS: u32 = 1;
const STRTAB: u32 = 3;
/// The machine RISC-V.
const RISCV: u16 = 243;

/// One section: name, type, contents.
struct Section {
    name: String,
    kind: u32,
    bytes: Vec<u8>,
}

fn section(name: &str, bytes: Vec<u8>) -> Section {
    Section {
        name: name.to_string(),
        kind: PROGBITS,
        bytes,
    }
}

fn sections(version: &str) -> Vec<Section> {
    let mut sections = vec![
        section(".fwversion", [version.as_bytes(), b"\0"].concat()),
        section(".fwimage", vec![0; 8192]),
        // Since 570.
        section(".note.gnu.build-id", vec![0; 36]),
    ];
    let signatures = SIGNATURES.map(|chip| section(&format!(".fwsignature_{chip}"), vec![0; 4096]));
    sections.extend(signatures);
    sections
}

/// The file for a release.
pub fn image(version: &str) -> Vec<u8> {
    let mut sections = sections(version);
    let mut names = vec![0];
    let mut name_offsets = Vec::new();
    for name in sections
        .iter()
        .map(|section| section.name.as_str())
        .chain([".shstrtab"])
    {
        name_offsets.push(names.len() as u32);
        names.extend(name.as_bytes());
        names.push(0);
    }
    sections.push(Section {
        name: ".shstrtab".to_string(),
        kind: STRTAB,
        bytes: names,
    });
    let mut contents: Vec<u8> = Vec::new();
    let mut headers = vec![0; HEADER];
    for (section, name) in sections.iter().zip(name_offsets) {
        let offset = (HEADER + contents.len()) as u64;
        headers.extend(name.to_le_bytes());
        headers.extend(section.kind.to_le_bytes());
        // Flags, address.
        headers.extend([0; 16]);
        headers.extend(offset.to_le_bytes());
        headers.extend((section.bytes.len() as u64).to_le_bytes());
        // Link, info; alignment 1; no entries.
        headers.extend([0; 8]);
        headers.extend(1_u64.to_le_bytes());
        headers.extend([0; 8]);
        contents.extend(&section.bytes);
        contents.resize(contents.len().next_multiple_of(16), 0);
    }
    let count = sections.len() as u16 + 1;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    // A relocatable file.
    file.extend(1_u16.to_le_bytes());
    file.extend(RISCV.to_le_bytes());
    file.extend(1_u32.to_le_bytes());
    // Entry, program headers: none.
    file.extend([0; 16]);
    file.extend(((HEADER + contents.len()) as u64).to_le_bytes());
    file.extend(0_u32.to_le_bytes());
    for word in [HEADER as u16, 0, 0, HEADER as u16, count, count - 1] {
        file.extend(word.to_le_bytes());
    }
    [file, contents, headers].concat()
}

/// Writes the files for a release into a folder: the kernel wants it to be `nvidia/VERSION` of
/// its own.
pub fn write(version: &str, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let image = image(version);
    FILES
        .iter()
        .try_for_each(|name| fs::write(folder.join(name), &image))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(file: &[u8], at: usize) -> usize {
        u64::from_le_bytes(file[at..at + 8].try_into().expect("eight bytes")) as usize
    }

    #[test]
    fn sections_are_where_their_headers_say() {
        let file = image("1.2.3");
        let (table, count) = (word(&file, 40), usize::from(file[60]));
        assert_eq!(file.len(), table + HEADER * count);
        let header = |index: usize| &file[table + HEADER * index..][..HEADER];
        let names = word(header(count - 1), 24);
        let found = (1..count).find(|index| {
            let name = names + u32::from_le_bytes(header(*index)[..4].try_into().unwrap()) as usize;
            file[name..].starts_with(b".fwversion\0")
        });
        let version = header(found.expect("has the section"));
        let (at, size) = (word(version, 24), word(version, 32));
        assert_eq!(&file[at..at + size], b"1.2.3\0");
    }
}
