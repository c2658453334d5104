// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst show --refused`: which calls of an instance's programs did not reach the driver, and why.
//! An operator sees in it what a program that fails would need.

use super::target;
use crate::{
    capabilities::Capabilities,
    control::Control,
    error::Problem,
    json::{known, InstanceId},
    output::Report,
    text::table,
};
use cgpu_uapi::{CallKind, Instance, Refusal, RefusalReason};
use serde::Serialize;
use std::{
    cmp::Reverse,
    time::{Duration, UNIX_EPOCH},
};

/// An instance and its refused calls, the most frequent first.
struct RefusedCalls {
    instance: Instance,
    refusals: Vec<Refusal>,
    others: u64,
}

#[derive(Serialize)]
struct RefusedMembers {
    instances: Vec<RefusedInstance>,
}

#[derive(Serialize)]
struct RefusedInstance {
    #[serde(flatten)]
    id: InstanceId,
    refusals: Vec<RefusedCall>,
    other_refusal_count: u64,
    wanted_capabilities: Capabilities,
}

#[derive(Serialize)]
struct RefusedCall {
    call: &'static str,
    number: u32,
    call_name: Option<String>,
    reason: &'static str,
    allowed_by: Capabilities,
    count: u64,
    last_time_s: u64,
    last_pid: u32,
}

/// Prints the refused calls of these instances.
pub(crate) fn report(control: &dyn Control, instances: Vec<Instance>) -> Result<Report, Problem> {
    let refused = |instance: Instance| {
        let (mut refusals, others) = control.refusals(&instance.key)?;
        refusals.sort_by_key(|r| (Reverse(r.count), r.kind, r.number));
        Ok(RefusedCalls {
            instance,
            refusals,
            others,
        })
    };
    let all = instances
        .into_iter()
        .map(refused)
        .collect::<Result<Vec<_>, Problem>>()?;
    let members = RefusedMembers {
        instances: all.iter().map(record).collect(),
    };
    let text: Vec<_> = all.iter().map(block).collect();
    Report::new(members, text.join("\n"))
}

impl RefusedCalls {
    /// The instance's sets, with what the refused calls would need: for each call that none of them
    /// allows, the set of the lowest bit that does.
    fn wanted(&self) -> Capabilities {
        let mut bits = self.instance.capabilities;
        for refused in &self.refusals {
            if refused.reason == RefusalReason::Capability.number()
                && bits & refused.capabilities == 0
            {
                // The lowest bit.
                bits |= refused.capabilities & refused.capabilities.wrapping_neg();
            }
        }
        Capabilities(bits)
    }
}

/// An instance's part of the JSON.
fn record(of: &RefusedCalls) -> RefusedInstance {
    RefusedInstance {
        id: (&of.instance).into(),
        refusals: of
            .refusals
            .iter()
            .map(|r| RefusedCall {
                call: CallKind::name_of(r.kind),
                number: r.number,
                call_name: known(&r.name),
                reason: RefusalReason::name_of(r.reason),
                allowed_by: Capabilities(r.capabilities),
                count: r.count,
                last_time_s: r.last_seconds,
                last_pid: r.last_process,
            })
            .collect(),
        other_refusal_count: of.others,
        wanted_capabilities: of.wanted(),
    }
}

/// An instance's part of the text: a table, and the command that would allow the calls.
fn block(of: &RefusedCalls) -> String {
    let i = &of.instance;
    let name = i.key.name.as_str().unwrap_or_default();
    let own = Capabilities(i.capabilities);
    let mut text = format!("{}, for {own}\n", target::label(i));
    if of.refusals.is_empty() {
        text.push_str("nothing was refused\n");
        return text;
    }
    let rows = of.refusals.iter().map(|r| {
        let allowed_by = Capabilities(r.capabilities).to_string();
        [
            r.count.to_string(),
            CallKind::name_of(r.kind).to_owned(),
            format!("{:#x}", r.number),
            known(&r.name).unwrap_or_else(|| "-".to_owned()),
            RefusalReason::name_of(r.reason).to_owned(),
            if allowed_by.is_empty() {
                "-".to_owned()
            } else {
                allowed_by
            },
            time(r.last_seconds),
            r.last_process.to_string(),
        ]
    });
    let head = [
        "COUNT",
        "CALL",
        "NUMBER",
        "NAME",
        "WHY",
        "ALLOWED BY",
        "LAST",
        "PID",
    ];
    text.push_str(&table(head, rows));
    if of.others != 0 {
        text.push_str(&format!("and {} more of other kinds\n", of.others));
    }
    let wanted = of.wanted();
    if wanted != own {
        text.push_str(&format!(
            "to allow what can be: cgpuctl inst set {name} --capabilities {wanted} --gpu {}\n",
            i.key.gpu_minor
        ));
    }
    text
}

/// Seconds since 1970 as RFC 3339 writes them, in UTC.
fn time(seconds: u64) -> String {
    match UNIX_EPOCH.checked_add(Duration::from_secs(seconds)) {
        // RFC 3339 has years of four digits.
        Some(time) if seconds < 253_402_300_800 => {
            humantime::format_rfc3339_seconds(time).to_string()
        }
        _ => format!("{seconds} s"),
    }
}
