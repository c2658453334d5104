// SPDX-License-Identifier: GPL-2.0
//! Questions to a driver about objects of the tool's own, and its answers: statuses and sizes, a
//! line of text each, "question: answer". So a real GPU can be compared with the emulated one
//! (`tests/driver/alike.py`). Handles, addresses and times are left out.

use crate::driver::{Error, Found, GpuFacts, Own};
use cgpu_km::nvidia::fb;

/// `FERMI_VASPACE_A`, `KEPLER_CHANNEL_GROUP_A` and `NV01_MEMORY_LOCAL_USER`.
const SPACE: u32 = 0x90f1;
const GROUP: u32 = 0xa06c;
const LOCAL_MEMORY: u32 = 0x40;
/// A class that no driver has.
const NO_CLASS: u32 = 0x1234;
/// Bytes of `NV_VASPACE_ALLOCATION_PARAMETERS`, and where size, base and size of big pages are
/// (nvos.h).
const SPACE_PARAMS: usize = 56;
const SPACE_SIZE: usize = 8;
const SPACE_BASE: usize = 40;
const BIG_PAGE: usize = 32;
/// Bytes of `NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS`, and where the engine is (nvos.h).
const GROUP_PARAMS: usize = 20;
const ENGINE: usize = 12;
/// `NV2080_ENGINE_TYPE_GR0`.
const GRAPHICS: u32 = 1;
/// `NVA06C_CTRL_CMD_GET_TIMESLICE`: of a group of channels, microseconds.
const GET_TIMESLICE: u32 = 0xa06c_0104;
/// Sizes of video memory that are asked for.
const MEMORY: &[u64] = &[1, 4 << 10, 64 << 10, 2 << 20, 3 << 20, 512 << 20];
/// Bytes of `NV_MEMORY_ALLOCATION_PARAMS`, and where owner, attributes, size, alignment and the
/// last byte's offset are (nvos.h).
const MEMORY_PARAMS: usize = 128;
const OWNER: usize = 0;
const ATTRIBUTES: usize = 24;
const SIZE: usize = 64;
const ALIGNMENT: usize = 72;
const LAST: usize = 88;
/// `NVOS32_ATTR_PHYSICALITY_ALLOW_NONCONTIGUOUS`, with pages as the driver likes.
const IN_PIECES: u32 = 0x1800_0000;
/// Sizes of the card, none of which changes with what other programs do.
const CARD: &[(&str, u32)] = &[
    ("BAR1_SIZE", fb::index::BAR1_SIZE),
    ("RAM_SIZE", fb::index::RAM_SIZE),
    ("TOTAL_RAM_SIZE", fb::index::TOTAL_RAM_SIZE),
    ("HEAP_SIZE", fb::index::HEAP_SIZE),
    ("MAPPABLE_HEAP_SIZE", fb::index::MAPPABLE_HEAP_SIZE),
    ("USABLE_RAM_SIZE", fb::index::USABLE_RAM_SIZE),
    (
        "PROTECTED_MEM_SIZE_TOTAL",
        fb::index::PROTECTED_MEM_SIZE_TOTAL,
    ),
];

fn word(params: &[u8], at: usize) -> u64 {
    let bytes = params.get(at..).and_then(|rest| rest.first_chunk());
    u32::from_le_bytes(bytes.copied().unwrap_or_default()).into()
}

fn long(params: &[u8], at: usize) -> u64 {
    word(params, at) | word(params, at + 4) << 32
}

fn set_word(params: &mut [u8], at: usize, value: u32) {
    params[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// The lines of a question: the status and, where the call went through, sizes.
fn answers(question: &str, status: u32, sizes: &[(&str, u64)]) -> Vec<String> {
    let mut lines = vec![format!("{question}: {status:#x}")];
    if status == 0 {
        lines.extend(
            sizes
                .iter()
                .map(|(what, size)| format!("{question}, {what}: {size}")),
        );
    }
    lines
}

fn space(own: &Own) -> Result<Vec<String>, Error> {
    let mut params = [0; SPACE_PARAMS];
    let status = own.make(0x4000, SPACE, &mut params)?;
    let sizes = [
        ("base", long(&params, SPACE_BASE)),
        ("bytes", long(&params, SPACE_SIZE)),
        ("big pages", word(&params, BIG_PAGE)),
    ];
    Ok(answers("an address space", status, &sizes))
}

fn group(own: &Own) -> Result<Vec<String>, Error> {
    let mut params = [0; GROUP_PARAMS];
    set_word(&mut params, ENGINE, GRAPHICS);
    let object = 0x4001;
    let status = own.make(object, GROUP, &mut params)?;
    let mut lines = answers("a group of channels", status, &[]);
    let mut time = [0; 8];
    let status = own.control(object, GET_TIMESLICE, &mut time)?;
    let slice = [("microseconds", long(&time, 0))];
    lines.extend(answers("its time slice", status, &slice));
    Ok(lines)
}

fn memory(own: &Own, object: u32, bytes: u64) -> Result<Vec<String>, Error> {
    let mut params = [0; MEMORY_PARAMS];
    set_word(&mut params, OWNER, own.client());
    set_word(&mut params, ATTRIBUTES, IN_PIECES);
    params[SIZE..SIZE + 8].copy_from_slice(&bytes.to_le_bytes());
    let status = own.make(object, LOCAL_MEMORY, &mut params)?;
    let sizes = [
        ("bytes", long(&params, SIZE)),
        ("alignment", long(&params, ALIGNMENT)),
        ("last", long(&params, LAST)),
    ];
    Ok(answers(&format!("memory of {bytes} bytes"), status, &sizes))
}

/// Asks about objects of the tool's own on a GPU.
///
/// # Errors
///
/// The driver does not answer.
pub fn ask(found: &Found, gpu: &GpuFacts) -> Result<Vec<String>, Error> {
    let own = Own::new(found, gpu)?;
    let mut lines = space(&own)?;
    lines.extend(group(&own)?);
    let status = own.make(0x4002, NO_CLASS, &mut [])?;
    lines.extend(answers("an unknown class", status, &[]));
    for (object, bytes) in (0x5000..).zip(MEMORY) {
        lines.extend(memory(&own, object, *bytes)?);
    }
    for (name, index) in CARD {
        let (status, data) = own.memory_info(*index)?;
        let question = format!("FB_GET_INFO_V2 of {name}");
        lines.extend(answers(&question, status, &[("KiB", data.into())]));
    }
    Ok(lines)
}
