// SPDX-License-Identifier: GPL-2.0
//! The headers of one driver release: offsets, sizes, numbers and the names of messages.
//!
//! The files `abi/VERSION.txt` are written by `abi/generate.py` from NVIDIA's headers.
//! `abi/names.txt` lists the structs and fields; the names here are NVIDIA's.

use std::collections::HashMap;

/// The releases that have a table, one for each branch.
pub const RELEASES: [(&str, &str); 5] = [
    ("535.261.03", include_str!("../abi/535.261.03.txt")),
    ("550.163.01", include_str!("../abi/550.163.01.txt")),
    ("570.211.01", include_str!("../abi/570.211.01.txt")),
    ("580.142", include_str!("../abi/580.142.txt")),
    ("595.45.04", include_str!("../abi/595.45.04.txt")),
];

/// One field of a struct. Arrays on its path have a stride and a count each, outermost first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AbiField {
    /// Bytes from the struct's beginning to the field, with all indices zero.
    offset: usize,
    /// The field's size in bytes; 0 is the flexible array at a struct's end.
    size: usize,
    /// Stride in bytes and number of elements of each array on the path.
    arrays: Vec<(usize, usize)>,
}

/// One struct: its size and its fields by path.
#[derive(Debug, Default)]
struct AbiStruct {
    size: usize,
    fields: HashMap<String, AbiField>,
}

/// The facts of one release.
#[derive(Debug)]
pub struct Abi {
    /// The release, as the driver says it: "550.163.01".
    pub version: &'static str,
    structs: HashMap<String, AbiStruct>,
    numbers: HashMap<String, u64>,
    rpcs: HashMap<u32, String>,
}

impl Abi {
    /// The table of a branch ("550"), or of the branch of a release ("550.163.01"): within a branch
    /// the firmware's interface stays as it is.
    pub fn of(release: &str) -> Option<Self> {
        let branch = |version: &str| version.split('.').next().map(str::to_string);
        let same = |(version, _): &&(&str, &str)| branch(version) == branch(release);
        let (version, text) = RELEASES.iter().find(same)?;
        Some(Self::parse(version, text))
    }

    fn parse(version: &'static str, text: &str) -> Self {
        let mut abi = Self {
            version,
            structs: HashMap::new(),
            numbers: HashMap::new(),
            rpcs: HashMap::new(),
        };
        let mut owner = String::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number in the table");
            match words[0] {
                "struct" => {
                    owner = words[1].to_string();
                    abi.structs.entry(owner.clone()).or_default().size = number(2) as usize;
                }
                "field" => {
                    let arrays = (4..words.len())
                        .step_by(2)
                        .map(|at| (number(at) as usize, number(at + 1) as usize))
                        .collect();
                    let field = AbiField {
                        offset: number(2) as usize,
                        size: number(3) as usize,
                        arrays,
                    };
                    let fields = &mut abi.structs.entry(owner.clone()).or_default().fields;
                    fields.insert(words[1].to_string(), field);
                }
                "number" => {
                    abi.numbers.insert(words[1].to_string(), number(2));
                }
                "rpc" => {
                    abi.rpcs.insert(number(1) as u32, words[2].to_string());
                }
                word => panic!("the table of {version} has a line that begins with {word}"),
            }
        }
        abi
    }

    /// The number behind one of NVIDIA's names, if this release has it.
    pub fn find(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
    }

    /// The number behind one of NVIDIA's names; panics if this release or `names.txt` lacks it.
    pub fn number(&self, name: &str) -> u64 {
        let found = self.find(name);
        found.unwrap_or_else(|| panic!("{} has no number {name}", self.version))
    }

    /// The same in 32 bits, the size of commands and enumerations.
    pub fn word(&self, name: &str) -> u32 {
        self.number(name) as u32
    }

    /// The name of a message between driver and firmware (rpc_global_enums.h).
    pub fn rpc_name(&self, function: u32) -> &str {
        self.rpcs.get(&function).map_or("unknown", String::as_str)
    }

    /// The number of a message, by its name.
    pub fn rpc(&self, name: &str) -> u32 {
        let found = self.rpcs.iter().find(|(_, n)| *n == name);
        *found
            .unwrap_or_else(|| panic!("{} has no message {name}", self.version))
            .0
    }

    /// Size of a struct in bytes.
    pub fn size(&self, name: &str) -> usize {
        self.get(name).size
    }

    /// Offset of the first element of a field.
    pub fn offset(&self, name: &str, path: &str) -> usize {
        self.field(name, path).offset
    }

    fn get(&self, name: &str) -> &AbiStruct {
        let found = self.structs.get(name);
        found.unwrap_or_else(|| panic!("{} has no struct {name}", self.version))
    }

    fn field(&self, name: &str, path: &str) -> &AbiField {
        let found = self.get(name).fields.get(path);
        found.unwrap_or_else(|| panic!("{} has no field {path} in {name}", self.version))
    }
}

/// A struct of the driver's in a buffer that is being written or was received.
#[derive(Debug)]
pub struct Record<'a, B> {
    abi: &'a Abi,
    name: &'static str,
    bytes: B,
}

/// The buffer is smaller than the struct.
#[derive(Debug, PartialEq, Eq)]
pub struct TooShort;

impl<'a, B: AsRef<[u8]>> Record<'a, B> {
    /// Takes the buffer as a struct of this name.
    pub fn of(abi: &'a Abi, name: &'static str, bytes: B) -> Result<Self, TooShort> {
        if bytes.as_ref().len() < abi.size(name) {
            return Err(TooShort);
        }
        Ok(Self { abi, name, bytes })
    }

    /// Offset and size of an element; the indices are those of the arrays on the path.
    fn place(&self, path: &str, indices: &[usize]) -> (usize, usize) {
        let field = self.abi.field(self.name, path);
        assert_eq!(
            indices.len(),
            field.arrays.len(),
            "{} has other arrays: {path}",
            self.name
        );
        let mut offset = field.offset;
        for (index, (stride, count)) in indices.iter().zip(&field.arrays) {
            assert!(index < count, "{}.{path}[{index}] of {count}", self.name);
            offset += index * stride;
        }
        (offset, field.size)
    }

    /// Whether this release's struct has the field.
    pub fn has(&self, path: &str) -> bool {
        self.abi.get(self.name).fields.contains_key(path)
    }

    /// The value of an element, zero-extended.
    pub fn at(&self, path: &str, indices: &[usize]) -> u64 {
        let (offset, size) = self.place(path, indices);
        let mut wide = [0; 8];
        wide[..size].copy_from_slice(&self.bytes.as_ref()[offset..offset + size]);
        u64::from_le_bytes(wide)
    }

    /// The value of a field, zero-extended.
    pub fn get(&self, path: &str) -> u64 {
        self.at(path, &[])
    }

    /// The value of a field of 32 bits or less.
    pub fn word(&self, path: &str) -> u32 {
        self.get(path) as u32
    }

    /// How many elements the array at this level of the path has.
    pub fn count(&self, path: &str, level: usize) -> usize {
        self.abi.field(self.name, path).arrays[level].1
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Record<'_, B> {
    /// Writes an element, truncated to its size.
    pub fn set_at(&mut self, path: &str, indices: &[usize], value: u64) {
        let (offset, size) = self.place(path, indices);
        let bytes = &mut self.bytes.as_mut()[offset..offset + size];
        bytes.copy_from_slice(&value.to_le_bytes()[..size]);
    }

    /// Writes an element, truncated to its size, if this release has the field.
    pub fn offer(&mut self, path: &str, indices: &[usize], value: u64) {
        if self.has(path) {
            self.set_at(path, indices, value);
        }
    }

    /// Writes a field, truncated to its size.
    pub fn set(&mut self, path: &str, value: u64) {
        self.set_at(path, &[], value);
    }

    /// Writes bytes to the beginning of a field; what it has more becomes zero.
    pub fn set_bytes(&mut self, path: &str, indices: &[usize], value: &[u8]) {
        let (offset, size) = self.place(path, indices);
        let field = &mut self.bytes.as_mut()[offset..offset + size];
        field.fill(0);
        let length = value.len().min(size);
        field[..length].copy_from_slice(&value[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_and_release_name_one_table() {
        for name in ["550", "550.163.01", "550.54.14"] {
            assert_eq!(Abi::of(name).expect("has a table").version, "550.163.01");
        }
        assert!(Abi::of("55").is_none() && Abi::of("").is_none());
    }

    #[test]
    fn releases_differ_in_their_fields() {
        let has = |branch: &str, name, path| {
            let abi = Abi::of(branch).expect("has a table");
            let mut bytes = vec![0; abi.size(name)];
            let mut record = Record::of(&abi, name, &mut bytes).expect("has its size");
            record.offer(path, &[], 7);
            (record.has(path), bytes.contains(&7))
        };
        let (name, path) = ("GspStaticConfigInfo", "l2_cache_size");
        assert_eq!(has("550", name, path), (true, true));
        assert_eq!(has("595", name, path), (false, false));
    }

    #[test]
    fn elements_of_nested_arrays_are_found() {
        let abi = Abi::of("550").expect("has a table");
        let name = "NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_PARAMS";
        let mut record = Record::of(&abi, name, vec![0; abi.size(name)]).expect("has room");
        record.set_at("entries[].engineData[]", &[2, 3], 0x1_2345_6789);
        assert_eq!(record.at("entries[].engineData[]", &[2, 3]), 0x2345_6789);
        assert_eq!(record.at("entries[].engineData[]", &[2, 2]), 0);
        assert_eq!(record.at("entries[].engineData[]", &[1, 3]), 0);
    }

    #[test]
    fn short_buffer_is_refused() {
        let abi = Abi::of("550").expect("has a table");
        let size = abi.size("GspStaticConfigInfo");
        let short = Record::of(&abi, "GspStaticConfigInfo", vec![0; size - 1]);
        assert_eq!(short.err(), Some(TooShort));
    }
}
