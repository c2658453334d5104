// SPDX-License-Identifier: GPL-2.0
//! Recordings of a program's calls, in the format that `tests/traces/README.md` describes, with the
//! true sizes of parameters from the module's tables.
//!
//! A line is written after its call; a process writes to a file of its own. The UUIDs of the
//! machine's GPUs, which name it for good, are replaced ([`Hidden`]).

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    sync::Mutex,
    time::Instant,
};

use cgpu_km::nvidia::{
    handle::{ClassId, ControlCmd},
    nvos::{self, nvos54, nvos64},
    tables::Tables,
};
use serde::Serialize;

use crate::sys;

/// The environment variable with the beginning of the names of the files; the process's number
/// follows.
pub const VARIABLE: &str = "CGPU_GPU_RECORD";

/// The most bytes of one struct that are recorded. The largest that programs were seen to have are
/// 67,396 (`nvidia-smi -q`).
const MOST: usize = 128 << 10;
/// Bytes that are read where the tables do not know how many there are.
const UNKNOWN_PARAMS: usize = 384;
/// The same for an argument of UVM.
const UNKNOWN_UVM: usize = 128;
/// Escapes with parameters of their own: `NV_ESC_RM_CONTROL` and `NV_ESC_RM_ALLOC`.
const RM_CONTROL: u8 = 0x2a;
const RM_ALLOC: u8 = 0x2b;

/// The environment variable with the UUIDs that are replaced: hex digits, separated by commas.
pub const HIDDEN_VARIABLE: &str = "CGPU_GPU_HIDE";

/// UUIDs and what stands in their place in a recording, as the hex digits of a line: of the bytes,
/// and of NVIDIA's text for them.
#[derive(Debug, Default)]
pub struct Hidden(Vec<(String, String)>);

impl Hidden {
    /// Reads what [`HIDDEN_VARIABLE`] holds. The first UUID becomes 00 01 02 .. 0f, as in the
    /// recordings that there are, the next 10 01 02 .. 0f, and so on.
    pub fn parse(text: &str) -> Self {
        let mut pairs = Vec::new();
        for (i, uuid) in text.split(',').filter(|uuid| uuid.len() == 32).enumerate() {
            // CAST: the low four bits of a count.
            let mut instead: Vec<u8> = (0..16).collect();
            instead[0] = (i as u8 & 15) << 4;
            let instead = hex(&instead);
            let shown = |uuid: &str| hex(spelled(uuid).as_bytes());
            pairs.push((shown(uuid), shown(&instead)));
            pairs.push((uuid.to_owned(), instead));
        }
        Self(pairs)
    }

    fn apply(&self, line: String) -> String {
        self.0.iter().fold(line, |line, (uuid, instead)| {
            if line.contains(uuid.as_str()) {
                line.replace(uuid.as_str(), instead)
            } else {
                line
            }
        })
    }
}

/// Hex digits of a UUID with dashes, as NVIDIA spells it after `GPU-`.
fn spelled(uuid: &str) -> String {
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|part| &uuid[part]).join("-")
}

/// The file to which a process's calls are written.
#[derive(Debug)]
pub struct Recorder {
    hidden: Hidden,
    file: Mutex<File>,
    tables: &'static Tables,
    /// When the recording began, by the clock that all processes have.
    began: (Instant, f64),
}

/// The parts of a call that are read before it is made.
#[derive(Debug)]
pub struct Before {
    at: Instant,
    argument: u64,
    bytes: Vec<u8>,
    nested: Option<Nested>,
}

/// Parameters behind the pointer of a call.
#[derive(Debug)]
struct Nested {
    kind: &'static str,
    code: u32,
    at: u64,
    bytes: Vec<u8>,
}

/// A line. Fields that a call has not are left out.
#[derive(Debug, Default, Serialize)]
struct Line<'a> {
    t: f64,
    op: &'a str,
    tid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fd: Option<i32>,
    #[serde(skip_serializing_if = "str::is_empty")]
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    req: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nr: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cmd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nsize: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    len: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prot: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    off: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ret: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errno: Option<i32>,
    #[serde(rename = "in", skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    #[serde(rename = "out", skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nout: Option<String>,
}

/// A call of `mmap`.
#[derive(Clone, Copy, Debug)]
pub struct Mmap {
    /// Address that was asked for; 0: any.
    pub addr: u64,
    /// Bytes.
    pub len: u64,
    /// `PROT_*`.
    pub prot: i32,
    /// `MAP_*`.
    pub flags: i32,
    /// Descriptor.
    pub fd: i32,
    /// Offset in the file.
    pub offset: u64,
}

impl Recorder {
    /// The recorder of this process, if the environment asks for one.
    ///
    /// # Errors
    ///
    /// Its file cannot be made.
    pub fn begin(tables: &'static Tables) -> io::Result<Option<Self>> {
        let Some(prefix) = std::env::var_os(VARIABLE) else {
            return Ok(None);
        };
        let mut name = prefix;
        name.push(format!(".{}", sys::process()));
        let file = OpenOptions::new().create(true).append(true).open(name)?;
        let hidden = std::env::var(HIDDEN_VARIABLE).unwrap_or_default();
        Ok(Some(Self {
            hidden: Hidden::parse(&hidden),
            file: Mutex::new(file),
            tables,
            began: (Instant::now(), sys::uptime_s()),
        }))
    }

    fn write(&self, at: Instant, mut line: Line<'_>) {
        let (began, clock) = self.began;
        line.t = clock + at.duration_since(began).as_secs_f64();
        line.tid = sys::thread();
        if let (Ok(text), Ok(mut file)) = (serde_json::to_string(&line), self.file.lock()) {
            let text = self.hidden.apply(text) + "\n";
            // A recording that cannot be written is found to be too short by its readers.
            let _ = file.write_all(text.as_bytes());
        }
    }

    /// `open`; a negative result is an errno.
    pub fn open(&self, path: &str, flags: i32, result: i64) {
        let (ret, errno) = split(result);
        self.write(
            Instant::now(),
            Line {
                op: "open",
                path,
                flags: Some(flags),
                ret: Some(ret.into()),
                errno: Some(errno),
                ..Line::default()
            },
        );
    }

    /// `close`.
    pub fn close(&self, fd: i32, path: &str) {
        self.write(
            Instant::now(),
            Line {
                op: "close",
                fd: Some(fd),
                path,
                ..Line::default()
            },
        );
    }

    /// A descriptor went into a socket (`send`) or came out of one (`receive`).
    pub fn passed(&self, op: &str, fd: i32, path: &str) {
        self.write(
            Instant::now(),
            Line {
                op,
                fd: Some(fd),
                path,
                ..Line::default()
            },
        );
    }

    /// `mmap`; a negative result is an errno.
    pub fn mmap(&self, call: &Mmap, path: &str, result: i64) {
        self.write(
            Instant::now(),
            Line {
                op: "mmap",
                fd: Some(call.fd),
                path,
                addr: Some(format!("{:#x}", call.addr)),
                len: Some(call.len),
                prot: Some(call.prot),
                flags: Some(call.flags),
                off: Some(format!("{:#x}", call.offset)),
                // As C prints what mmap() returns: MAP_FAILED is all ones.
                ret: Some(format!("{:#x}", result.max(-1)).into()),
                ..Line::default()
            },
        );
    }

    /// `munmap` of a range in which a file of the driver was mapped.
    pub fn munmap(&self, addr: u64, len: u64, result: i64) {
        self.write(
            Instant::now(),
            Line {
                op: "munmap",
                addr: Some(format!("{addr:#x}")),
                len: Some(len),
                ret: Some(split(result).0.into()),
                ..Line::default()
            },
        );
    }

    /// Reads what a call will read.
    pub fn before(&self, path: &str, request: u64, argument: u64) -> Before {
        // CAST: the kernel takes the low 32 bits of a request.
        let request = request as u32;
        let mut bytes = Vec::new();
        let mut nested = None;
        if path.ends_with("uvm") {
            let known = self.tables.uvm(request);
            let size = known.and_then(|entry| usize::try_from(entry.size).ok());
            bytes = read(argument, size.unwrap_or(UNKNOWN_UVM));
        } else {
            let (nr, size) = nvos::request_parts(request);
            bytes.extend(read(argument, size));
            nested = match nr {
                RM_CONTROL => self.control(&bytes),
                RM_ALLOC => self.alloc(&bytes),
                _ => None,
            };
        }
        Before {
            at: Instant::now(),
            argument,
            bytes,
            nested,
        }
    }

    fn control(&self, outer: &[u8]) -> Option<Nested> {
        let code = nvos54::CMD.get(outer)?;
        let at = nvos54::PARAMS.get(outer)?;
        let said = usize::try_from(nvos54::PARAMS_SIZE.get(outer)?).ok()?;
        let known = self.tables.control(ControlCmd(code));
        let size = match (said, known) {
            (0, Some(entry)) => usize::try_from(entry.params).ok()?,
            _ => said,
        };
        Some(Nested {
            kind: "control",
            code,
            at,
            bytes: read(at, size),
        })
    }

    /// The same places in both envelopes: up to the pointer they are alike.
    fn alloc(&self, outer: &[u8]) -> Option<Nested> {
        let code = nvos64::H_CLASS.get(outer)?;
        let at = nvos64::P_ALLOC_PARMS.get(outer)?;
        let known = self.tables.class(ClassId(code));
        let size = known.and_then(|entry| usize::try_from(entry.params).ok());
        Some(Nested {
            kind: "alloc",
            code,
            at,
            bytes: read(at, size.unwrap_or(UNKNOWN_PARAMS)),
        })
    }

    /// Writes a call down, now that it is made; a negative result is an errno.
    pub fn after(&self, before: &Before, fd: i32, path: &str, request: u64, result: i64) {
        let took = before.at.elapsed();
        let (ret, errno) = split(result);
        // CAST: the kernel takes 32 bits of an ioctl's number.
        let (nr, size) = nvos::request_parts(request as u32);
        let size = if path.ends_with("uvm") { 0 } else { size };
        let nested = before.nested.as_ref();
        let has = |bytes: &[u8]| (!bytes.is_empty()).then(|| hex(bytes));
        self.write(
            before.at,
            Line {
                op: "ioctl",
                us: Some(took.as_secs_f64() * 1e6),
                fd: Some(fd),
                path,
                req: Some(format!("{request:#x}")),
                nr: Some(nr),
                size: Some(size),
                ret: Some(ret.into()),
                errno: Some(errno),
                kind: nested.map(|nested| nested.kind),
                cmd: nested.map(|nested| format!("{:#x}", nested.code)),
                nsize: nested.map(|nested| nested.bytes.len()),
                input: has(&before.bytes),
                output: has(&read(before.argument, before.bytes.len())),
                nin: nested.and_then(|nested| has(&nested.bytes)),
                nout: nested.and_then(|nested| has(&read(nested.at, nested.bytes.len()))),
                ..Line::default()
            },
        );
    }
}

/// The readable bytes at `at`, up to `len` bytes and [`MOST`]: half as much where that reaches
/// beyond what is mapped.
fn read(at: u64, len: usize) -> Vec<u8> {
    let mut len = if at == 0 { 0 } else { len.min(MOST) };
    while len > 0 {
        let mut bytes = vec![0; len];
        if sys::peek(at, &mut bytes).is_ok() {
            return bytes;
        }
        len /= 2;
    }
    Vec::new()
}

/// The C library's form of a system call's result: the value, or -1 and an errno.
fn split(result: i64) -> (i64, i32) {
    if result < 0 {
        (-1, i32::try_from(-result).unwrap_or(libc::EINVAL))
    } else {
        (result, 0)
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_is_replaced_in_bytes_and_text() {
        let uuid = "f8f64e458353f29b074b651f511e5d7f";
        let text = hex(b"GPU-f8f64e45-8353-f29b-074b-651f511e5d7f");
        let hidden = Hidden::parse(uuid);
        let line = hidden.apply(format!("00{uuid}11 {text}"));
        let shown = hex(b"GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
        assert_eq!(
            line,
            format!("00000102030405060708090a0b0c0d0e0f11 {shown}")
        );
    }

    #[test]
    fn each_gpu_gets_a_uuid_of_its_own() {
        let hidden = Hidden::parse(&format!("{},{}", "a".repeat(32), "b".repeat(32)));
        assert_eq!(
            hidden.apply("b".repeat(32)),
            "100102030405060708090a0b0c0d0e0f"
        );
    }

    #[test]
    fn unreadable_records_are_left_out() {
        let page = [7u8; 64];
        // CAST: pointers are 64 bits wide.
        assert_eq!(read(page.as_ptr() as u64, 64), page);
        assert!(read(8, 64).is_empty());
        assert!(read(0, 64).is_empty());
    }

    #[test]
    fn results_are_split_as_the_c_library_does() {
        assert_eq!(split(7), (7, 0));
        assert_eq!(split(-2), (-1, libc::ENOENT));
    }
}
