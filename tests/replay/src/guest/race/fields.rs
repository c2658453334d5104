// SPDX-License-Identifier: GPL-2.0
//! What is changed: fields of calls, what they may be and what an attacker makes of them.

use super::methods::{self, Attack};
use super::stage::{Stage, PAGE, PARAMS};
use super::{Entry, Scene, FOREIGN_MEMORY};
use crate::bytes::{put_u32, put_u64};
use crate::guest::rm::{self, DEVICE_HANDLE, SUBDEVICE_HANDLE};
use crate::layout;
use crate::sys;

/// Handles of objects that come and go.
const FIRST: u32 = 0x5C00_1000;
const SMALL: u64 = 2 << 20;
const LARGE: u64 = 6 << 20;
/// Beyond every limit; the same as [`SMALL`] in its lower half.
const HUGE: u64 = 1 << 40 | SMALL;
/// NV01_MEMORY_LOCAL_PHYSICAL: all of a GPU's memory.
const LOCAL_PHYSICAL: u32 = 0xC2;
/// NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS.
const DISABLE_CHANNELS: u32 = 0x2080_110B;
/// NV2080_CTRL_CMD_MC_GET_ARCH_INFO, which the driver is asked in the program's name.
const GET_ARCH_INFO: u32 = 0x2080_1701;
/// NV_ESC_RM_BIND_CONTEXT_DMA, which no table lets through, of the size of NV_ESC_RM_FREE.
const BIND_CONTEXT_DMA: u32 = 0x59;
const NR_FREE: u32 = 0x29;
const NR_DUP: u32 = 0x34;
/// NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD.
const EXPORT_OBJECT_TO_FD: u32 = 0x3D05;
/// Where UVM maps.
const BASE: u64 = 0x20_0000_0000;

/// How it is seen that something was acted on that was not checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judge {
    /// The driver tells that it read it.
    Log,
    /// Both values may be had, and what is charged is not what the heap holds.
    Accounting,
}

/// Where the field is, and what stands there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patch {
    /// 0: in the argument, 1: in what that points to.
    part: u64,
    offset: u64,
    /// Bytes, 4 or 8.
    pub(super) width: u8,
    pub(super) good: u64,
    pub(super) bad: u64,
}

impl Patch {
    /// Its offset from the beginning of the caller's memory.
    pub(super) fn place(&self) -> u64 {
        self.part * PARAMS + self.offset
    }
}

/// A descriptor's number, and the descriptors that it is made to stand for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files {
    pub(super) number: i32,
    pub(super) good: i32,
    pub(super) bad: i32,
}

/// The only one: a control file of the caller's, new for every call, and another tenant's.
const FILES: Files = Files {
    number: 200,
    good: 201,
    bad: 202,
};

/// What marks the caller's file.
const MARK: i32 = libc::O_NONBLOCK;

impl Files {
    /// Whether the number stands for the caller's file now. That one alone is marked, by a flag that means nothing
    /// to the driver. (`kcmp(2)` is not in every kernel.)
    pub(super) fn looks_good(&self) -> bool {
        sys::file_flags(self.number).is_ok_and(|flags| flags & MARK != 0)
    }

    /// Closes all, those of them that are open.
    pub(super) fn close_all() {
        for fd in [FILES.number, FILES.good, FILES.bad] {
            let _ = sys::close(fd);
        }
    }
}

/// A call with a field in it.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) uvm: bool,
    pub(super) request: u32,
    outer: Vec<u8>,
    params: Vec<u8>,
    /// What the attacker has in the place of the parameters, if that is not the field alone.
    other_params: Option<Vec<u8>>,
    pub(super) patch: Patch,
    /// The field says the same all the time, and what it stands for changes.
    pub(super) files: Option<Files>,
    /// A handle that is another one in every call of a batch: its offset in the argument.
    counted: Option<usize>,
    pub(super) judge: Judge,
}

impl Case {
    /// With the handles of the call of that number in its batch.
    pub(super) fn numbered(&self, number: u32) -> Self {
        let mut case = self.clone();
        if let Some(at) = case.counted {
            put_u32(&mut case.outer, at, FIRST + number);
        }
        if case.judge == Judge::Accounting && case.counted.is_none() {
            // The field itself is the handle: of an even and an odd one.
            case.patch.good = u64::from(FIRST + 2 * number);
            case.patch.bad = u64::from(FIRST + 2 * number + 1);
            if case.uvm {
                put_u64(&mut case.outer, 0, base(number));
            }
        }
        case
    }

    /// Where the field can be in the scratch of a process that makes one call at a time: the first place, and how
    /// many there are, two pages apart. Both parts are on one page, another one with each call, or each has whole
    /// pages, always the same, with a free one before it.
    pub(super) fn places_in_scratch(&self) -> (u64, u64) {
        let pages = |part: &[u8]| (part.len() as u64).div_ceil(PAGE);
        let second = (self.outer.len() as u64).next_multiple_of(64);
        match self.patch.part {
            _ if second + self.params.len() as u64 > PAGE => match self.patch.part {
                0 => (PAGE + self.patch.offset, 1),
                _ => ((2 + pages(&self.outer)) * PAGE + self.patch.offset, 1),
            },
            0 => (PAGE + self.patch.offset, 15),
            _ => (PAGE + second + self.patch.offset, 15),
        }
    }

    /// Argument and parameters.
    pub(super) fn pages(&self, hostile: bool) -> (Vec<u8>, Vec<u8>) {
        let (mut outer, mut params) = (self.outer.clone(), self.params.clone());
        if let (true, Some(other)) = (hostile, &self.other_params) {
            params.clone_from(other);
        }
        let value = if hostile {
            self.patch.bad
        } else {
            self.patch.good
        };
        let page = if self.patch.part == 0 {
            &mut outer
        } else {
            &mut params
        };
        let at = usize::try_from(self.patch.offset).unwrap_or(0);
        match self.patch.width {
            8 => put_u64(page, at, value),
            _ => put_u32(page, at, u32::try_from(value).unwrap_or(0)),
        }
        (outer, params)
    }

    /// What the driver says of parameters that are as they should be.
    fn sum(&self) -> u64 {
        let bytes = self.pages(false).1;
        // FNV-1a, as in the stand-in's README.
        bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
        })
    }
}

/// A field, and what has to be done around each call.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) judge: Judge,
    /// The ways in which it can be changed.
    pub(super) ways: &'static [Attack],
    /// What the driver says of it can raise the charge.
    pub(super) may_raise: bool,
    pub(super) build: fn(&Scene, &Stage) -> Case,
    /// Makes what the call of this number in its batch names.
    pub(super) before: fn(&Scene, u32) -> Result<(), String>,
    /// Frees what it made.
    pub(super) after: fn(&Scene, u32),
    /// The driver acted on such a call.
    pub(super) acted: fn(&Entry) -> bool,
    /// And with what was not checked.
    pub(super) tampered: fn(&Entry, &Case) -> bool,
}

fn base(number: u32) -> u64 {
    BASE + u64::from(number) * (LARGE << 4)
}

fn alloc(scene: &Scene, stage: &Stage, size: u64) -> Case {
    let mut outer = vec![0; 48];
    put_u32(&mut outer, 0, scene.own.handle);
    put_u32(&mut outer, 4, DEVICE_HANDLE);
    put_u32(&mut outer, 8, FIRST);
    put_u32(&mut outer, 12, rm::VIDEO_MEMORY);
    put_u64(&mut outer, 16, stage.live + PARAMS);
    Case {
        uvm: false,
        request: rm::request(layout::NR_ALLOC, 48),
        outer,
        params: rm::memory_params(scene.own.handle, size).to_vec(),
        other_params: None,
        patch: Patch {
            part: 1,
            offset: layout::MEMORY_SIZE_AT as u64,
            width: 8,
            good: size,
            bad: HUGE,
        },
        files: None,
        counted: None,
        judge: Judge::Log,
    }
}

/// The same with a field of the argument.
fn outer_field(case: Case, offset: u64, good: u32, bad: u32) -> Case {
    Case {
        patch: Patch {
            part: 0,
            offset,
            width: 4,
            good: u64::from(good),
            bad: u64::from(bad),
        },
        ..case
    }
}

fn control(scene: &Scene, stage: &Stage) -> Case {
    let mut outer = vec![0; 32];
    put_u32(&mut outer, 0, scene.own.handle);
    put_u32(&mut outer, 4, SUBDEVICE_HANDLE);
    put_u64(&mut outer, 16, stage.live + PARAMS);
    put_u32(&mut outer, 24, 16);
    let params = vec![0; 16];
    let case = Case {
        request: rm::request(layout::NR_CONTROL, 32),
        outer,
        params,
        ..alloc(scene, stage, SMALL)
    };
    outer_field(case, 8, GET_ARCH_INFO, DISABLE_CHANNELS)
}

/// An export: the file is a descriptor's number in the parameters.
fn export(scene: &Scene, stage: &Stage) -> Case {
    let mut case = control(scene, stage);
    put_u32(&mut case.outer, 4, scene.own.handle);
    put_u32(&mut case.outer, 8, EXPORT_OBJECT_TO_FD);
    put_u32(&mut case.outer, 24, 24);
    case.params = vec![0; 24];
    // NV0000_CTRL_OS_UNIX_EXPORT_OBJECT_TYPE_RM, device, parent, object.
    for (at, value) in [
        (0, 1),
        (4, DEVICE_HANDLE),
        (8, DEVICE_HANDLE),
        (12, FOREIGN_MEMORY),
    ] {
        put_u32(&mut case.params, at, value);
    }
    let number = u64::from(FILES.number.unsigned_abs());
    let _ = sys::dup2(scene.foreign.ctl, FILES.bad);
    Case {
        patch: Patch {
            part: 1,
            offset: 16,
            width: 4,
            good: number,
            bad: number,
        },
        files: Some(FILES),
        ..case
    }
}

/// A file takes objects once, so that each call needs another one.
fn open_file(scene: &Scene, _: u32) -> Result<(), String> {
    let path = format!("{}/nvidiactl", scene.folder);
    let opened = sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC | MARK);
    opened
        .and_then(|fd| sys::renumber(fd, FILES.good, true))
        .map_err(|e| format!("{path} for a race: errno {e}"))
}

fn free(scene: &Scene, stage: &Stage) -> Case {
    let mut outer = vec![0; 16];
    put_u32(&mut outer, 0, scene.own.handle);
    put_u32(&mut outer, 8, FIRST);
    Case {
        request: rm::request(NR_FREE, 16),
        outer,
        params: Vec::new(),
        ..alloc(scene, stage, SMALL)
    }
}

fn dup(scene: &Scene, stage: &Stage) -> Case {
    let mut outer = vec![0; 28];
    for (at, value) in [
        (0, scene.own.handle),
        (4, DEVICE_HANDLE),
        (8, FIRST),
        (12, scene.own.handle),
        (16, FOREIGN_MEMORY),
    ] {
        put_u32(&mut outer, at, value);
    }
    let case = Case {
        request: rm::request(NR_DUP, 28),
        outer,
        params: Vec::new(),
        ..alloc(scene, stage, SMALL)
    };
    outer_field(case, 12, scene.own.handle, scene.foreign.handle)
}

fn envelope(scene: &Scene, stage: &Stage) -> Case {
    let mut outer = vec![0; 16];
    put_u32(&mut outer, 4, 16);
    put_u64(&mut outer, 8, stage.live + PARAMS);
    let free = free(scene, stage);
    let case = Case {
        request: rm::request(layout::NR_XFER, 16),
        outer,
        params: free.outer.clone(),
        ..free
    };
    outer_field(case, 0, NR_FREE, BIND_CONTEXT_DMA)
}

fn map(scene: &Scene, stage: &Stage) -> Case {
    let mut outer = vec![0; 9264];
    put_u64(&mut outer, 8, SMALL);
    outer[24..40].copy_from_slice(&scene.gpu);
    put_u64(&mut outer, 9240, 1);
    put_u32(&mut outer, 9252, scene.own.handle);
    Case {
        uvm: true,
        request: 33,
        outer,
        params: Vec::new(),
        ..alloc(scene, stage, SMALL)
    }
}

fn nothing(_: &Scene, _: u32) -> Result<(), String> {
    Ok(())
}

fn free_first(scene: &Scene, _: u32) {
    let _ = scene.own.free(FIRST);
}

fn free_numbered(scene: &Scene, number: u32) {
    let _ = scene.own.free(FIRST + number);
}

fn free_both(scene: &Scene, number: u32) {
    for handle in [FIRST + 2 * number, FIRST + 2 * number + 1] {
        let _ = scene.own.free(handle);
    }
}

fn make(scene: &Scene, handle: u32, size: u64) -> Result<(), String> {
    let made = scene.own.memory(handle, size);
    made.map(drop)
        .map_err(|e| format!("memory for a race: {e}"))
}

/// A small object and a large one.
fn make_both(scene: &Scene, number: u32) -> Result<(), String> {
    make(scene, FIRST + 2 * number, SMALL)?;
    make(scene, FIRST + 2 * number + 1, LARGE)
}

fn is_alloc(entry: &Entry) -> bool {
    entry.get("nr") == u64::from(layout::NR_ALLOC)
}

fn is_control(entry: &Entry) -> bool {
    entry.get("nr") == u64::from(layout::NR_CONTROL)
}

/// All fields.
pub(super) fn all() -> Vec<Field> {
    let log = |name, build, acted, tampered| Field {
        name,
        judge: Judge::Log,
        ways: methods::ON_MEMORY,
        may_raise: false,
        build,
        before: nothing,
        after: free_first,
        acted,
        tampered,
    };
    vec![
        log(
            "size of an allocation",
            |scene, stage| alloc(scene, stage, SMALL),
            is_alloc,
            |entry, case| entry.get("sum") != case.sum(),
        ),
        log(
            "pointer to the parameters",
            |scene, stage| Case {
                other_params: Some(rm::memory_params(scene.own.handle, HUGE).to_vec()),
                patch: Patch {
                    part: 0,
                    offset: 16,
                    width: 8,
                    good: stage.live + PARAMS,
                    bad: stage.hostile_params(),
                },
                ..alloc(scene, stage, SMALL)
            },
            is_alloc,
            |entry, case| entry.get("sum") != case.sum(),
        ),
        log(
            "class",
            |scene, stage| {
                let case = alloc(scene, stage, SMALL);
                outer_field(case, 12, rm::VIDEO_MEMORY, LOCAL_PHYSICAL)
            },
            is_alloc,
            |entry, _| entry.get("what") != u64::from(rm::VIDEO_MEMORY),
        ),
        log(
            "client of an allocation",
            |scene, stage| {
                let case = alloc(scene, stage, SMALL);
                outer_field(case, 0, scene.own.handle, scene.foreign.handle)
            },
            is_alloc,
            |entry, case| entry.get("client") != case.patch.good,
        ),
        log(
            "command of a control",
            control,
            is_control,
            |entry, case| entry.get("what") != case.patch.good,
        ),
        log(
            "client of a control",
            |scene, stage| {
                let mut case = control(scene, stage);
                put_u32(&mut case.outer, 8, GET_ARCH_INFO);
                outer_field(case, 0, scene.own.handle, scene.foreign.handle)
            },
            is_control,
            |entry, case| entry.get("client") != case.patch.good,
        ),
        log(
            "client of a free",
            |scene, stage| {
                let case = free(scene, stage);
                outer_field(case, 0, scene.own.handle, scene.foreign.handle)
            },
            // Those that clean up name the right one.
            |entry| entry.get("nr") == u64::from(NR_FREE),
            |entry, case| entry.get("client") != case.patch.good,
        ),
        log(
            "source of a duplicate",
            dup,
            |entry| entry.get("nr") == u64::from(NR_DUP),
            |entry, case| entry.get("peer") != case.patch.good,
        ),
        log(
            "number in an envelope",
            envelope,
            |entry| entry.get("nr") != 0,
            |entry, _| entry.get("nr") == u64::from(BIND_CONTEXT_DMA),
        ),
        Field {
            name: "file of an export",
            judge: Judge::Log,
            ways: &[Attack::Descriptor],
            may_raise: false,
            build: export,
            before: open_file,
            after: |_, _| {},
            acted: |entry| entry.get("what") == u64::from(EXPORT_OBJECT_TO_FD),
            // A new file has no client, another tenant's has one.
            tampered: |entry, _| entry.get("peer") != 0,
        },
        Field {
            name: "size within the limit",
            judge: Judge::Accounting,
            ways: methods::ON_MEMORY,
            may_raise: true,
            build: |scene, stage| {
                let mut case = alloc(scene, stage, SMALL);
                case.patch.bad = LARGE;
                case.counted = Some(8);
                case.judge = Judge::Accounting;
                case
            },
            before: nothing,
            after: free_numbered,
            acted: is_alloc,
            tampered: |_, _| false,
        },
        Field {
            name: "object of a free",
            judge: Judge::Accounting,
            ways: methods::ON_MEMORY,
            may_raise: false,
            build: |scene, stage| Case {
                judge: Judge::Accounting,
                ..outer_field(free(scene, stage), 8, 0, 0)
            },
            before: make_both,
            after: free_both,
            acted: is_alloc,
            tampered: |_, _| false,
        },
        Field {
            name: "memory of a mapping",
            judge: Judge::Accounting,
            ways: methods::ON_MEMORY,
            may_raise: false,
            build: |scene, stage| Case {
                judge: Judge::Accounting,
                ..outer_field(map(scene, stage), 9256, 0, 0)
            },
            before: |scene, number| {
                make_both(scene, number)?;
                let made = scene.uvm.create_range(base(number), LARGE);
                made.map_err(|e| format!("range for a race: {e}"))
            },
            after: |scene, number| {
                free_both(scene, number);
                let _ = scene.uvm.free_range(base(number), LARGE);
            },
            acted: is_alloc,
            tampered: |_, _| false,
        },
    ]
}
