// SPDX-License-Identifier: GPL-2.0
//! Reading recordings: JSON lines, plain or xz, one object per call (tests/traces/README.md).

use std::{fmt, fs, io, path::Path};

use serde::Deserialize;

/// A failed `mmap`'s result in a recording, and the value of a null pointer.
const MAP_FAILED: u64 = u64::MAX;

/// A recording of one process.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The file's name without its folder and endings.
    pub name: String,
    /// The calls, in the order in which they returned.
    pub records: Vec<Record>,
}

/// One recorded call.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Seconds of the recorder's monotonic clock when the call began.
    pub time: f64,
    /// Thread id of the caller.
    pub tid: i32,
    /// The call.
    pub op: Op,
}

/// The call of a [`Record`].
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// `open(path, flags)`; `result` is the descriptor or the errno.
    Open {
        /// Path as the program named it.
        path: String,
        /// `O_*`.
        flags: i32,
        /// Descriptor, or errno.
        result: Result<i32, i32>,
    },
    /// `close(fd)`.
    Close {
        /// Descriptor.
        fd: i32,
    },
    /// `ioctl(fd, request, argument)`.
    Ioctl(Ioctl),
    /// `mmap(addr, len, prot, flags, fd, offset)`.
    Mmap {
        /// Descriptor.
        fd: i32,
        /// Address asked for, 0 for none.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// `PROT_*`.
        prot: i32,
        /// `MAP_*`.
        flags: i32,
        /// Offset in bytes.
        offset: u64,
        /// Address given, or nothing when the call failed.
        result: Option<u64>,
    },
    /// A descriptor went into a socket, to another process.
    Send {
        /// Its number.
        fd: i32,
        /// Path of its file.
        path: String,
    },
    /// A descriptor came out of a socket.
    Receive {
        /// Its number here.
        fd: i32,
        /// Path of its file.
        path: String,
    },
    /// `munmap(addr, len)` of a range in which a recorded mapping lies.
    Munmap {
        /// Address.
        addr: u64,
        /// Length in bytes.
        len: u64,
        /// The call's result.
        ret: i32,
    },
}

/// A recorded `ioctl`.
#[derive(Debug, Clone, PartialEq)]
pub struct Ioctl {
    /// Descriptor.
    pub fd: i32,
    /// Path that the descriptor was opened by.
    pub path: String,
    /// Request code.
    pub request: u32,
    /// The call's result.
    pub ret: i32,
    /// The errno of a failed call, else 0.
    pub errno: i32,
    /// The argument before and after the call; `None` for a null argument.
    pub argument: Option<Before>,
    /// The parameters behind the argument's pointer.
    pub nested: Option<Nested>,
}

/// Bytes before and after a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Before {
    /// Before.
    pub input: Vec<u8>,
    /// After.
    pub output: Vec<u8>,
}

/// Which call carries nested parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NestedKind {
    /// RM_CONTROL: the code is a control command.
    Control,
    /// RM_ALLOC: the code is a class.
    Alloc,
}

/// Nested parameters of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Nested {
    /// Which kind of call.
    pub kind: NestedKind,
    /// Control command or class.
    pub code: u32,
    /// The recorded bytes, if the pointer was not null.
    pub bytes: Option<Before>,
}

/// Why a recording could not be read.
#[derive(Debug)]
pub enum Error {
    /// The file could not be read.
    Io(String, io::Error),
    /// The file is not xz data.
    Xz(String, String),
    /// A line (1-based) is not a recorded call.
    Line(String, usize, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(path, e) => write!(f, "{path}: {e}"),
            Self::Xz(path, e) => write!(f, "{path}: not xz data: {e}"),
            Self::Line(path, line, e) => write!(f, "{path}:{line}: {e}"),
        }
    }
}

impl std::error::Error for Error {}

/// A line as it is in the file.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    t: f64,
    op: String,
    #[serde(default)]
    tid: i32,
    fd: Option<i32>,
    #[serde(default)]
    path: String,
    flags: Option<i32>,
    ret: Option<serde_json::Value>,
    #[serde(default)]
    errno: i32,
    req: Option<String>,
    kind: Option<String>,
    cmd: Option<String>,
    r#in: Option<String>,
    out: Option<String>,
    nin: Option<String>,
    nout: Option<String>,
    addr: Option<String>,
    len: Option<u64>,
    prot: Option<i32>,
    off: Option<String>,
}

impl Trace {
    /// Reads a recording; a file that begins with xz's magic is decompressed.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let shown = path.display().to_string();
        let mut bytes = fs::read(path).map_err(|e| Error::Io(shown.clone(), e))?;
        if bytes.starts_with(&[0xFD, b'7', b'z', b'X', b'Z', 0]) {
            let mut plain = Vec::new();
            lzma_rs::xz_decompress(&mut bytes.as_slice(), &mut plain)
                .map_err(|e| Error::Xz(shown.clone(), format!("{e:?}")))?;
            bytes = plain;
        }
        let mut name = path
            .file_name()
            .map_or_else(|| shown.clone(), |n| n.to_string_lossy().into_owned());
        for ending in [".xz", ".jsonl"] {
            name = name.strip_suffix(ending).unwrap_or(&name).to_owned();
        }
        Self::parse(&shown, name, &bytes)
    }

    /// Parses the lines of a recording. Empty lines are passed over.
    pub fn parse(shown: &str, name: String, bytes: &[u8]) -> Result<Self, Error> {
        let mut records = Vec::new();
        for (i, line) in bytes.split(|&b| b == b'\n').enumerate() {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let record = serde_json::from_slice::<Line>(line)
                .map_err(|e| e.to_string())
                .and_then(Line::into_record)
                .map_err(|e| Error::Line(shown.to_owned(), i + 1, e))?;
            records.push(record);
        }
        Ok(Self { name, records })
    }
}

impl Line {
    fn into_record(self) -> Result<Record, String> {
        let (time, tid) = (self.t, self.tid);
        let op = match self.op.as_str() {
            "open" => {
                let ret = self.int_ret()?;
                Op::Open {
                    flags: self.flags.ok_or("no flags")?,
                    result: if ret < 0 { Err(self.errno) } else { Ok(ret) },
                    path: self.path,
                }
            }
            "close" => Op::Close {
                fd: self.fd.ok_or("no fd")?,
            },
            "ioctl" => Op::Ioctl(self.ioctl()?),
            "mmap" => {
                let result = address(self.ret.as_ref().and_then(|r| r.as_str()))?;
                Op::Mmap {
                    fd: self.fd.ok_or("no fd")?,
                    addr: address(self.addr.as_deref())?,
                    len: self.len.ok_or("no len")?,
                    prot: self.prot.ok_or("no prot")?,
                    flags: self.flags.ok_or("no flags")?,
                    offset: address(self.off.as_deref())?,
                    result: (result != MAP_FAILED).then_some(result),
                }
            }
            "send" => Op::Send {
                fd: self.fd.ok_or("no fd")?,
                path: self.path,
            },
            "receive" => Op::Receive {
                fd: self.fd.ok_or("no fd")?,
                path: self.path,
            },
            "munmap" => Op::Munmap {
                addr: address(self.addr.as_deref())?,
                len: self.len.ok_or("no len")?,
                ret: self.int_ret()?,
            },
            other => return Err(format!("unknown op {other:?}")),
        };
        Ok(Record { time, tid, op })
    }

    fn int_ret(&self) -> Result<i32, String> {
        let ret = self.ret.as_ref().and_then(serde_json::Value::as_i64);
        ret.and_then(|r| i32::try_from(r).ok())
            .ok_or_else(|| "no ret".to_owned())
    }

    fn ioctl(self) -> Result<Ioctl, String> {
        let request = address(self.req.as_deref())?;
        let ret = self.int_ret()?;
        let nested = match (self.kind.as_deref(), &self.cmd) {
            (None, _) => None,
            (Some(kind), Some(cmd)) => Some(Nested {
                kind: match kind {
                    "control" => NestedKind::Control,
                    "alloc" => NestedKind::Alloc,
                    other => return Err(format!("unknown kind {other:?}")),
                },
                code: u32::try_from(address(Some(cmd))?).map_err(|e| e.to_string())?,
                bytes: before(self.nin, self.nout)?,
            }),
            (Some(_), None) => return Err("no cmd".to_owned()),
        };
        Ok(Ioctl {
            fd: self.fd.ok_or("no fd")?,
            path: self.path,
            request: u32::try_from(request).map_err(|e| e.to_string())?,
            ret,
            errno: self.errno,
            argument: before(self.r#in, self.out)?,
            nested,
        })
    }
}

/// The bytes of two hex fields. An output that is shorter than the input (the recorder could not
/// read it whole) is filled up with the input.
fn before(input: Option<String>, output: Option<String>) -> Result<Option<Before>, String> {
    let Some(input) = input else { return Ok(None) };
    let input = hex(&input)?;
    if input.is_empty() {
        return Ok(None);
    }
    let mut output = hex(&output.unwrap_or_default())?;
    output.truncate(input.len());
    output.extend_from_slice(&input[output.len()..]);
    Ok(Some(Before { input, output }))
}

/// Bytes of a hex string.
pub fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digit = |c: u8| match c {
        b'0'..=b'9' => Ok(c - b'0'),
        b'a'..=b'f' => Ok(c - b'a' + 10),
        b'A'..=b'F' => Ok(c - b'A' + 10),
        _ => Err(format!("not a hex digit: {:?}", char::from(c))),
    };
    if text.len() % 2 != 0 {
        return Err("odd number of hex digits".to_owned());
    }
    text.as_bytes()
        .chunks_exact(2)
        .map(|pair| Ok(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}

/// The hex string of bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A number as C's `%p` and `0x%lx` print it.
fn address(text: Option<&str>) -> Result<u64, String> {
    let text = text.ok_or("an address is missing")?;
    if text == "(nil)" {
        return Ok(0);
    }
    let digits = text.strip_prefix("0x").ok_or_else(|| text.to_owned())?;
    u64::from_str_radix(digits, 16).map_err(|e| format!("{text:?}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Result<Record, Error> {
        Trace::parse("x", "x".into(), line.as_bytes()).map(|mut t| t.records.remove(0))
    }

    #[test]
    fn a_control_is_read_whole() {
        let r = one(r#"{"t":1.5,"us":3.1,"op":"ioctl","tid":5,"fd":8,"path":"/dev/nvidiactl","req":"0xc020462a","nr":42,"size":32,"ret":0,"errno":0,"kind":"control","cmd":"0x1f0","nsize":4,"in":"0100","out":"0200","nin":"00000000","nout":"08000000"}"#).expect("valid");
        let Op::Ioctl(io) = r.op else {
            panic!("not an ioctl")
        };
        assert_eq!((io.fd, io.request), (8, 0xC020_462A));
        let nested = io.nested.expect("nested");
        assert_eq!((nested.kind, nested.code), (NestedKind::Control, 0x1F0));
        assert_eq!(nested.bytes.expect("bytes").output, [8, 0, 0, 0]);
    }

    #[test]
    fn partly_read_output_is_the_input() {
        let both = before(Some("01020304".into()), Some("0902".into())).expect("hex");
        assert_eq!(both.expect("some").output, [9, 2, 3, 4]);
    }

    #[test]
    fn addresses_as_c_prints_them() {
        assert_eq!(address(Some("(nil)")), Ok(0));
        assert_eq!(address(Some("0x7f00")), Ok(0x7F00));
        assert!(address(Some("12")).is_err());
        assert!(address(None).is_err());
    }

    #[test]
    fn a_bad_line_is_named() {
        let e = Trace::parse("f", "f".into(), b"\n{\"op\":\"fork\"}\n").expect_err("unknown op");
        assert_eq!(e.to_string(), "f:2: unknown op \"fork\"");
    }

    #[test]
    fn a_null_argument_is_none() {
        let r = one(r#"{"t":1,"op":"ioctl","tid":5,"fd":8,"path":"/dev/nvidia-uvm","req":"0x30000002","nr":2,"size":0,"ret":0,"errno":0}"#).expect("valid");
        let Op::Ioctl(io) = r.op else {
            panic!("not an ioctl")
        };
        assert_eq!(io.argument, None);
    }
}
