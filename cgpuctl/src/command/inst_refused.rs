// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `inst show --refused`: which calls of an instance's programs did not reach the driver, and why, so
//! that an operator can see what a program that fails would need.

use super::{open, target};
use crate::capabilities::Capabilities;
use crate::cli::Show;
use crate::control::{Control, Host};
use crate::error::{Facts, Failure, Problem};
use crate::json;
use crate::output::{table, Report};
use cgpu_uapi::{refusal, Instance, Refusal};
use std::time::{Duration, UNIX_EPOCH};

pub(super) fn run(host: &dyn Host, args: &Show) -> Result<Report, Failure> {
    report(host, args).map_err(|problem| {
        problem.when(format!(
            "show what {} was refused",
            target::called(&args.name)
        ))
    })
}

/// An instance and what it was refused, the most frequent first.
struct Of {
    instance: Instance,
    refusals: Vec<Refusal>,
    others: u64,
}

fn report(host: &dyn Host, args: &Show) -> Result<Report, Problem> {
    let control = open(host)?;
    let instances = target::shown(&*control, args)?;
    let all: Vec<_> = instances
        .into_iter()
        .map(|instance| of(&*control, instance))
        .collect::<Result<_, _>>()?;
    let body = json::Refused {
        instances: all.iter().map(record).collect(),
    };
    let text: Vec<_> = all.iter().map(block).collect();
    Report::new(body, text.join("\n"))
}

fn of(control: &dyn Control, instance: Instance) -> Result<Of, Problem> {
    let (mut refusals, others) = control
        .refusals(&instance.key)
        .map_err(|errno| Problem::explain(errno, &Facts::default()))?;
    refusals.sort_by_key(|r| (std::cmp::Reverse(r.count), r.kind, r.number));
    Ok(Of {
        instance,
        refusals,
        others,
    })
}

impl Of {
    /// The least that has to be added so that each call that can be allowed is: of those sets that would
    /// do for a call, the first in the order of their names' list.
    fn wanted(&self) -> Capabilities {
        let mut bits = self.instance.capabilities;
        for refused in &self.refusals {
            if refused.reason == refusal::CAPABILITY && bits & refused.capabilities == 0 {
                // The lowest bit.
                bits |= refused.capabilities & refused.capabilities.wrapping_neg();
            }
        }
        Capabilities(bits)
    }
}

fn call(kind: u32) -> &'static str {
    match kind {
        refusal::ESCAPE => "escape",
        refusal::CLASS => "class",
        refusal::CONTROL => "control",
        refusal::UVM => "uvm",
        _ => "unknown",
    }
}

/// The words of json.md.
fn reason(reason: u32) -> &'static str {
    match reason {
        refusal::UNLISTED => "unlisted",
        refusal::CAPABILITY => "capability",
        refusal::FOREIGN => "foreign",
        refusal::FORBIDDEN => "forbidden",
        refusal::PARAMETERS => "parameters",
        refusal::PASSED_UNSEEN => "passed_unseen",
        _ => "unknown",
    }
}

fn record(of: &Of) -> json::RefusedOf {
    json::RefusedOf {
        id: (&of.instance).into(),
        refusals: of
            .refusals
            .iter()
            .map(|r| json::Refusal {
                call: call(r.kind),
                number: r.number,
                call_name: json::known(&r.name),
                reason: reason(r.reason),
                allowed_by: Capabilities(r.capabilities).names(),
                count: r.count,
                last_time_s: r.last_seconds,
                last_pid: r.last_process,
            })
            .collect(),
        other_refusal_count: of.others,
        wanted_capabilities: of.wanted().names(),
    }
}

fn block(of: &Of) -> String {
    let i = &of.instance;
    let name = i.key.name.as_str().unwrap_or_default();
    let own = Capabilities(i.capabilities);
    let mut text = format!("{name} on GPU {}, for {own}\n", i.key.gpu_minor);
    if of.refusals.is_empty() {
        text.push_str("nothing was refused\n");
        return text;
    }
    let rows = of.refusals.iter().map(|r| {
        let allowed_by = Capabilities(r.capabilities).to_string();
        [
            r.count.to_string(),
            call(r.kind).to_owned(),
            format!("{:#x}", r.number),
            json::known(&r.name).unwrap_or_else(|| "-".to_owned()),
            reason(r.reason).to_owned(),
            match allowed_by.is_empty() {
                true => "-".to_owned(),
                false => allowed_by,
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
            "to allow what can be: cgpuctl inst set-caps {name} {wanted} --gpu {}\n",
            i.key.gpu_minor
        ));
    }
    text
}

/// As RFC 3339 writes it, in UTC; a clock that was never set shows what it shows.
fn time(seconds: u64) -> String {
    match UNIX_EPOCH.checked_add(Duration::from_secs(seconds)) {
        // Beyond the year 9999 there is no such text.
        Some(time) if seconds < 253_402_300_800 => {
            humantime::format_rfc3339_seconds(time).to_string()
        }
        _ => format!("{seconds} s"),
    }
}
