// SPDX-License-Identifier: GPL-2.0
//! Notes about refused calls, their lines in the log, and the calls that a tenant may make.

use super::*;
use crate::nvidia::capability::{
    Capabilities,
    COMPUTE,
    GRAPHICS,
    UTILITY,
    VIDEO, //
};

const DENIED: Audited = Audited {
    kind: CallKind::Class,
    number: 0xc597,
    reason: Reason::Capability(GRAPHICS),
};

fn unlisted(number: u32) -> Audited {
    Audited {
        kind: CallKind::Control,
        number,
        reason: Reason::Unlisted,
    }
}

fn two_gpus() -> Accounting {
    let mut accounting = Accounting::new(0);
    accounting.add_share(GPU, MIB).unwrap();
    accounting.add_share(OTHER_GPU, MIB).unwrap();
    accounting
}

#[test]
fn each_kind_keeps_its_last_caller() {
    let mut accounting = two_gpus();
    for (now, pid) in [(100, 1), (200, 2), (300, 3)] {
        accounting.note_call(&DENIED, Some(GPU), ProcessId(pid), now);
    }
    accounting.note_call(&DENIED, Some(OTHER_GPU), ProcessId(4), 400);
    accounting.note_call(&unlisted(7), None, ProcessId(5), 500);
    let of = |gpu| accounting.noted_calls(gpu).copied().collect::<Vec<_>>();
    let record = AuditRecord {
        call: DENIED,
        gpu: Some(GPU),
        count: 3,
        last: 300,
        process: ProcessId(3),
    };
    assert_eq!(of(GPU)[0], record);
    assert_eq!(of(GPU)[1].call, unlisted(7));
    assert_eq!(of(GPU).len(), 2);
    assert_eq!(of(OTHER_GPU)[0].count, 1);
    assert_eq!(accounting.other_noted_calls(), 0);
}

#[test]
fn kinds_without_room_are_counted_together() {
    let mut accounting = two_gpus();
    let most = u32::try_from(MOST_RECORDS).unwrap();
    for number in 0..most + 5 {
        accounting.note_call(&unlisted(number), None, PROCESS, 0);
    }
    assert_eq!(accounting.noted_calls(GPU).count(), MOST_RECORDS);
    assert_eq!(accounting.other_noted_calls(), 5);
    // A call that has a record still counts.
    accounting.note_call(&unlisted(0), None, PROCESS, 0);
    assert!(accounting.noted_calls(GPU).any(|record| record.count == 2));
    assert_eq!(
        accounting.share(GPU).unwrap().refused_calls,
        u64::from(most) + 6
    );
}

#[test]
fn log_has_lines_for_powers_of_ten() {
    let mut accounting = two_gpus();
    let lines: Vec<u64> = (0..150)
        .filter_map(|n| accounting.note_call(&DENIED, None, PROCESS, n * INTERVAL_S))
        .map(|notice| notice.count)
        .collect();
    assert_eq!(lines, [1, 10, 100]);
}

#[test]
fn storm_of_kinds_logs_few_lines() {
    let mut accounting = two_gpus();
    let mut storm = |numbers: std::ops::Range<u32>, now| {
        let lines = numbers.filter_map(|n| accounting.note_call(&unlisted(n), None, PROCESS, now));
        lines.collect::<Vec<_>>()
    };
    assert_eq!(storm(0..50, 1000).len(), 10);
    assert_eq!(storm(50..60, 1000 + INTERVAL_S - 1).len(), 0);
    let next = storm(60..61, 1000 + INTERVAL_S);
    assert_eq!(next[0].suppressed, 50);
    // A clock that was set back does not silence it for long.
    assert_eq!(storm(61..62, 0).len(), 1);
}

#[test]
fn another_instance_on_the_gpu_begins_anew() {
    let mut accounting = two_gpus();
    accounting.note_call(&DENIED, Some(GPU), PROCESS, 0);
    accounting.note_call(&DENIED, Some(OTHER_GPU), PROCESS, 0);
    accounting.remove_share(GPU);
    accounting.add_share(GPU, MIB).unwrap();
    assert_eq!(accounting.noted_calls(GPU).count(), 0);
    assert_eq!(accounting.noted_calls(OTHER_GPU).count(), 1);
}

#[test]
fn calls_have_the_drivers_names() {
    use crate::nvidia::{
        tables::Tables,
        version::Branch, //
    };
    let tables = |branch| Tables::of(branch).unwrap();
    let title = |kind, number, branch| {
        let call = Audited {
            kind,
            number,
            reason: Reason::Unlisted,
        };
        call.title(tables(branch))
    };
    let r580 = Branch::R580;
    for (kind, number, name) in [
        (CallKind::Escape, 0x41, "NV_ESC_RM_IDLE_CHANNELS"),
        (CallKind::Class, 0xc637, "AMPERE_SMC_PARTITION_REF"),
        (CallKind::Class, 0xc597, "TURING_A"),
        (
            CallKind::Control,
            0x2080_110b,
            "NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS",
        ),
        (CallKind::Uvm, 56, "UVM_TOOLS_INIT_EVENT_TRACKER"),
    ] {
        assert_eq!(title(kind, number, r580), Some(name));
    }
    assert_eq!(title(CallKind::Control, 0x2080_8777, r580), None);
    // A number that means something else in another branch.
    let number = 0x2080_1359;
    let of = |branch| title(CallKind::Control, number, branch);
    assert_eq!(
        of(Branch::R570),
        Some("NV2080_CTRL_CMD_FB_QUERY_DRAM_ENCRYPTION_STATUS")
    );
    assert_ne!(of(Branch::R570), of(r580));
}

#[test]
fn capabilities_are_those_of_the_gpus_instance() {
    let mut accounting = two_gpus();
    assert_eq!(accounting.capabilities(Some(GPU)), COMPUTE.or(UTILITY));
    accounting.set_capabilities(GPU, GRAPHICS).unwrap();
    accounting.set_capabilities(OTHER_GPU, VIDEO).unwrap();
    assert_eq!(
        accounting.set_capabilities(GpuId(9), VIDEO),
        Err(NoSuchShare)
    );
    assert_eq!(accounting.capabilities(Some(GPU)), GRAPHICS);
    assert_eq!(accounting.capabilities(Some(OTHER_GPU)), VIDEO);
    // A call for no GPU in particular, or for one that is not the tenant's.
    assert_eq!(accounting.capabilities(None), GRAPHICS.or(VIDEO));
    assert_eq!(accounting.capabilities(Some(GpuId(9))), GRAPHICS.or(VIDEO));
    accounting.remove_share(OTHER_GPU);
    assert_eq!(accounting.capabilities(None), GRAPHICS);
    accounting.add_share(OTHER_GPU, 1).unwrap();
    assert_eq!(
        accounting.capabilities(Some(OTHER_GPU)),
        Capabilities::DEFAULT
    );
}
