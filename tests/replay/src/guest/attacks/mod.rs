// SPDX-License-Identifier: GPL-2.0
//! `attacks`: what a hostile container does to its neighbour, one line for each attack.
//!
//! Each attack runs twice. First on the driver's own nodes, by an ordinary user (no privilege,
//! another user id than the victim's): where the real driver has the hole, the stand-in has it too,
//! and the attack must work; where the driver itself refuses, the stand-in must refuse. Then
//! through an instance, by a root with all capabilities: it must not work, whatever the driver
//! would do. In both cases the victim is looked at from below, in the stand-in's accounting: what
//! it has, whether its channels run, what was set for the GPU.
//!
//! An attack names the function of the driver that lets it through or refuses it, `file:function`;
//! that these exist is checked by `tests/abi/functions.py`.

mod attack;
mod channels;
mod clients;
mod controls;
mod escapes;
mod files;
mod limits;
mod lists;
mod scene;
mod stale;

use attack::{Attack, Driver, Own, Sign};
use scene::{Place, State, Victim};

use crate::{
    control::{mount_cgpufs, Control},
    guest::{process::in_child, tools::Verdict},
    standin::{self, KernelLog},
};

/// Whether an attack has worked, and what is to be shown of it.
fn worked(attack: &Attack, told: &Verdict, before: &State, after: &State) -> bool {
    match attack.sign {
        Sign::Told => told.is_ok(),
        Sign::Victim => before.victim != after.victim,
        Sign::Gpu => before.settings != after.settings,
        Sign::Share => {
            before.timeslices != after.timeslices
                || before.settings != after.settings
                || before.waiting != after.waiting
        }
    }
}

/// One attack in one place; what it was told and whether it worked.
fn once(attack: &Attack, place: Place, victim: &Victim) -> Result<(Verdict, bool, String), String> {
    let (told, before, after) = scene::run(place, victim, attack.run)?;
    let done = worked(attack, &told, &before, &after);
    let harm = before.difference(&after);
    Ok((told, done, harm))
}

/// A row of the table, and why the attack's test fails.
fn row(attack: &Attack, direct: &Victim, proxied: &Victim) -> (String, Option<String>) {
    let mut wrong = None;
    let mut cells = Vec::new();
    let ran = once(attack, Place::Driver, direct).and_then(|on_driver| {
        let through = once(attack, Place::Instance, proxied)?;
        Ok((on_driver, through))
    });
    match ran {
        Err(e) => wrong = Some(e),
        Ok(((told, done, _), (through, reached, harm))) => {
            let how = told.err().unwrap_or_else(|| "status 0".to_owned());
            cells.push(match (attack.driver, done) {
                (Driver::Passes, true) => "succeeds".to_owned(),
                (Driver::Passes, false) => {
                    wrong = Some(format!("does not work on the driver: {how}"));
                    format!("does not work: {how}")
                }
                (Driver::Refuses, false) => format!("the driver refuses: {how}"),
                (Driver::Refuses, true) => {
                    wrong = Some("works on the driver, which should refuse".to_owned());
                    "succeeds".to_owned()
                }
                (Driver::NotModelled, _) => "not modelled".to_owned(),
            });
            cells.push(match through {
                Err(how) => format!("refused: {how}"),
                Ok(()) => "answered, the driver is not asked".to_owned(),
            });
            if reached || !harm.is_empty() {
                wrong = Some(format!("works through the instance: {harm}"));
                cells.push(format!("HARMED: {harm}"));
            } else {
                cells.push("unharmed".to_owned());
            }
        }
    }
    let cells = cells.join(" | ");
    (
        format!("{} | {} | {cells}", attack.name, attack.function),
        wrong,
    )
}

/// Those that are a call, made in both places.
fn calls() -> impl Iterator<Item = &'static Attack> {
    [
        clients::ATTACKS,
        escapes::ATTACKS,
        controls::ATTACKS,
        lists::ATTACKS,
        channels::ATTACKS,
        limits::ATTACKS,
    ]
    .into_iter()
    .flatten()
}

/// Those that say themselves how they were refused.
fn own() -> impl Iterator<Item = &'static Own> {
    [files::ATTACKS, stale::ATTACKS].into_iter().flatten()
}

/// The names of all attacks.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let own = own().map(|own| own.name);
    calls().map(|attack| attack.name).chain(own).collect()
}

/// Runs the attacks whose names have `filter` in them; whether all failed as they should.
pub fn run(filter: &str) -> Result<bool, String> {
    mount_cgpufs()?;
    let mut log = KernelLog::from_now();
    let (mut passed, mut failed) = (0, 0);
    println!("attack | driver function | on the driver | through an instance | victim");
    let mut report = |line: String, wrong: Option<String>, log: &mut KernelLog| {
        let wrong = wrong.or_else(|| {
            log.faults()
                .first()
                .map(|f| format!("the kernel said: {f}"))
        });
        match wrong {
            None => {
                passed += 1;
                println!("ok      {line}");
            }
            Some(why) => {
                failed += 1;
                println!("FAILED  {line}: {why}");
            }
        }
    };
    let calls: Vec<&Attack> = calls()
        .filter(|attack| attack.name.contains(filter))
        .collect();
    if !calls.is_empty() {
        let direct = Victim::new(Place::Driver)?;
        let proxied = Victim::new(Place::Instance)?;
        for attack in calls {
            let (line, wrong) = row(attack, &direct, &proxied);
            report(line, wrong, &mut log);
        }
        direct.close();
        proxied.close();
    }
    for own in own().filter(|own| own.name.contains(filter)) {
        let mut how = String::new();
        let result = in_child(|| {
            let how = (own.run)()?;
            std::fs::write(scene::NOTE, how).map_err(|e| e.to_string())
        });
        if result.is_ok() {
            how = std::fs::read_to_string(scene::NOTE).unwrap_or_default();
        }
        let line = format!("{} | {} | - | {how} | unharmed", own.name, own.function);
        report(line, result.err(), &mut log);
        scene::clean_up(&Control::open().map_err(|e| format!("control device: errno {e}"))?);
    }
    // The attacks ask for things that the stand-in does not know; that is not to be told.
    standin::reset("unanswered")?;
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}
