// SPDX-License-Identifier: GPL-2.0
//! The fields of calls that are changed: the allowed value, and the attacker's.

use super::{
    case::{
        base, Judge, Method, Patch, RacedCall, FILES, FIRST, LARGE, MARK, ON_MEMORY, PARAMS, SMALL,
    },
    read_log::ReadCall,
    scene::{Scene, FOREIGN_MEMORY},
    stage::Stage,
};
use crate::{
    bytes::{put_u32, put_u64},
    guest::rm::{self, DEVICE_HANDLE, SUBDEVICE_HANDLE},
    layout, sys,
};

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
/// UVM_MAP_EXTERNAL_ALLOCATION.
const MAP_EXTERNAL: u32 = 33;
/// NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD.
const EXPORT_OBJECT_TO_FD: u32 = 0x3D05;
/// A field, and what has to be done around each call.
pub(super) struct RacedField {
    pub(super) name: &'static str,
    pub(super) judge: Judge,
    /// The ways in which it can be changed.
    pub(super) ways: &'static [Method],
    /// The driver's answer about it can raise the charge.
    pub(super) may_raise: bool,
    pub(super) build: fn(&Scene, &Stage) -> RacedCall,
    /// Makes what the call of this number in its batch names.
    pub(super) before: fn(&Scene, u32) -> Result<(), String>,
    /// Frees what it made.
    pub(super) after: fn(&Scene, u32),
    /// The driver acted on such a call: for [`Judge::Accounting`], and it has worked.
    pub(super) acted: fn(&ReadCall) -> bool,
    /// And with what was not checked.
    pub(super) tampered: fn(&ReadCall, &RacedCall) -> bool,
}

fn alloc(scene: &Scene, stage: &Stage, size: u64) -> RacedCall {
    let mut outer = vec![0; 48];
    put_u32(&mut outer, 0, scene.own.handle);
    put_u32(&mut outer, 4, DEVICE_HANDLE);
    put_u32(&mut outer, 8, FIRST);
    put_u32(&mut outer, 12, rm::VIDEO_MEMORY);
    put_u64(&mut outer, 16, stage.live + PARAMS);
    RacedCall {
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
fn outer_field(case: RacedCall, offset: u64, good: u32, bad: u32) -> RacedCall {
    RacedCall {
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

fn control(scene: &Scene, stage: &Stage) -> RacedCall {
    let mut outer = vec![0; 32];
    put_u32(&mut outer, 0, scene.own.handle);
    put_u32(&mut outer, 4, SUBDEVICE_HANDLE);
    put_u64(&mut outer, 16, stage.live + PARAMS);
    put_u32(&mut outer, 24, 16);
    let params = vec![0; 16];
    let case = RacedCall {
        request: rm::request(layout::NR_CONTROL, 32),
        outer,
        params,
        ..alloc(scene, stage, SMALL)
    };
    outer_field(case, 8, GET_ARCH_INFO, DISABLE_CHANNELS)
}

/// An export: the file is a descriptor's number in the parameters.
fn export(scene: &Scene, stage: &Stage) -> RacedCall {
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
    RacedCall {
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

fn free(scene: &Scene, stage: &Stage) -> RacedCall {
    let mut outer = vec![0; 16];
    put_u32(&mut outer, 0, scene.own.handle);
    put_u32(&mut outer, 8, FIRST);
    RacedCall {
        request: rm::request(NR_FREE, 16),
        outer,
        params: Vec::new(),
        ..alloc(scene, stage, SMALL)
    }
}

fn dup(scene: &Scene, stage: &Stage) -> RacedCall {
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
    let case = RacedCall {
        request: rm::request(NR_DUP, 28),
        outer,
        params: Vec::new(),
        ..alloc(scene, stage, SMALL)
    };
    outer_field(case, 12, scene.own.handle, scene.foreign.handle)
}

fn envelope(scene: &Scene, stage: &Stage) -> RacedCall {
    let mut outer = vec![0; 16];
    put_u32(&mut outer, 4, 16);
    put_u64(&mut outer, 8, stage.live + PARAMS);
    let free = free(scene, stage);
    let case = RacedCall {
        request: rm::request(layout::NR_XFER, 16),
        outer,
        params: free.outer.clone(),
        ..free
    };
    outer_field(case, 0, NR_FREE, BIND_CONTEXT_DMA)
}

fn map(scene: &Scene, stage: &Stage) -> RacedCall {
    let mut outer = vec![0; 9264];
    put_u64(&mut outer, 8, SMALL);
    outer[24..40].copy_from_slice(&scene.gpu);
    put_u64(&mut outer, 9240, 1);
    put_u32(&mut outer, 9252, scene.own.handle);
    RacedCall {
        uvm: true,
        request: MAP_EXTERNAL,
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

fn is_alloc(entry: &ReadCall) -> bool {
    entry.get("nr") == u64::from(layout::NR_ALLOC)
}

fn is_control(entry: &ReadCall) -> bool {
    entry.get("nr") == u64::from(layout::NR_CONTROL)
}

fn is_free(entry: &ReadCall) -> bool {
    entry.get("nr") == u64::from(NR_FREE)
}

fn has_worked(entry: &ReadCall) -> bool {
    entry.get("status") == 0
}

/// All fields.
pub(super) fn all() -> impl Iterator<Item = RacedField> {
    logged().into_iter().chain(charged())
}

/// Fields of calls of which the driver's log shows what it acted on.
fn logged() -> Vec<RacedField> {
    let log = |name, build, acted, tampered| RacedField {
        name,
        judge: Judge::Log,
        ways: ON_MEMORY,
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
            |scene, stage| RacedCall {
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
        RacedField {
            // Nothing is made, and a free that cleans up would count as one that is raced.
            after: |_, _| {},
            ..log(
                "client of a free",
                |scene, stage| {
                    let case = free(scene, stage);
                    outer_field(case, 0, scene.own.handle, scene.foreign.handle)
                },
                is_free,
                |entry, case| entry.get("client") != case.patch.good,
            )
        },
        log(
            "source of a duplicate",
            dup,
            |entry| entry.get("nr") == u64::from(NR_DUP),
            |entry, case| entry.get("peer") != case.patch.good,
        ),
        RacedField {
            after: |_, _| {},
            ..log(
                "number in an envelope",
                envelope,
                |entry| is_free(entry) || entry.get("nr") == u64::from(BIND_CONTEXT_DMA),
                |entry, _| entry.get("nr") == u64::from(BIND_CONTEXT_DMA),
            )
        },
        RacedField {
            name: "file of an export",
            judge: Judge::Log,
            ways: &[Method::Descriptor],
            may_raise: false,
            build: export,
            before: open_file,
            after: |_, _| {},
            acted: |entry| entry.get("what") == u64::from(EXPORT_OBJECT_TO_FD),
            // A new file has no client, another tenant's has one.
            tampered: |entry, _| entry.get("peer") != 0,
        },
    ]
}

/// Fields on which it depends what is charged.
fn charged() -> Vec<RacedField> {
    let charged = |name, build, acted, before, after| RacedField {
        name,
        judge: Judge::Accounting,
        ways: ON_MEMORY,
        may_raise: false,
        build,
        before,
        after,
        acted,
        tampered: |_, _| false,
    };
    vec![
        RacedField {
            may_raise: true,
            ..charged(
                "size within the limit",
                |scene, stage| {
                    let mut case = alloc(scene, stage, SMALL);
                    case.patch.bad = LARGE;
                    case.counted = Some(8);
                    case.judge = Judge::Accounting;
                    case
                },
                |entry| is_alloc(entry) && has_worked(entry),
                nothing,
                free_numbered,
            )
        },
        charged(
            "object of a free",
            |scene, stage| RacedCall {
                judge: Judge::Accounting,
                ..outer_field(free(scene, stage), 8, 0, 0)
            },
            |entry| is_free(entry) && has_worked(entry),
            make_both,
            free_both,
        ),
        charged(
            "memory of a mapping",
            |scene, stage| RacedCall {
                judge: Judge::Accounting,
                ..outer_field(map(scene, stage), 9256, 0, 0)
            },
            |entry| entry.get("what") == u64::from(MAP_EXTERNAL) && has_worked(entry),
            |scene, number| {
                make_both(scene, number)?;
                let made = scene.uvm.create_range(base(number), LARGE);
                made.map_err(|e| format!("range for a race: {e}"))
            },
            |scene, number| {
                free_both(scene, number);
                let _ = scene.uvm.free_range(base(number), LARGE);
            },
        ),
    ]
}
