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
//! On another driver than the stand-in nobody looks from below, and an attack that works might end
//! the machine. There attacks are made through an instance alone, and the victim is judged by what
//! its own calls are answered. Some are answered there by design (`answered.rs`), and are left out:
//! their harm would not show. Any other that is answered has failed.
//!
//! Neighbours work meanwhile, if they are asked for (`neighbours.rs`).
//!
//! An attack names the function of the driver that lets it through or refuses it, `file:function`;
//! that these exist is checked by `tests/abi/functions.py`.

mod across;
mod answered;
mod attack;
mod beyond;
mod channels;
mod clients;
mod control_pages;
mod controls;
mod crowds;
mod escapes;
mod files;
mod granted;
mod groups;
mod holes;
mod host_memory;
mod limits;
mod lists;
mod log;
mod lookup;
mod marks;
mod neighbours;
mod rest;
mod scene;
mod scratch;
mod seen;
mod stale;
mod victims;

use answered::ANSWERED;
use attack::{Attack, Driver, Own, Sign};
use neighbours::Neighbours;
use rest::alone;
use scene::{Place, Victim};
use seen::State;

use crate::{
    control::mount_cgpufs,
    guest::{
        process::in_child,
        tools::{control, Verdict},
    },
    standin::{self, KernelLog},
};

/// The result of an attack.
enum Finding {
    /// It failed as it should; the line that says so.
    Fails(String),
    /// The attack's line, and what is wrong.
    Wrong(String, String),
    /// The attack's line, and why nothing is known.
    LeftOut(String, String),
}

/// Whether an attack has worked.
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

/// An attack on the driver's own nodes, where there is a victim for it: what they show of it, and
/// what is wrong with that.
fn directly(attack: &Attack, victim: Option<&Victim>) -> Result<(String, Option<String>), String> {
    let Some(victim) = victim else {
        return Ok(("not tried".to_owned(), None));
    };
    let (told, done, _) = alone(|| once(attack, Place::Driver, victim))?;
    let how = told.err().unwrap_or_else(|| "status 0".to_owned());
    Ok(match (attack.driver, done) {
        (Driver::Passes, true) => ("succeeds".to_owned(), None),
        (Driver::Passes, false) => {
            let wrong = format!("does not work on the driver: {how}");
            (format!("does not work: {how}"), Some(wrong))
        }
        (Driver::Refuses, false) => (format!("the driver refuses: {how}"), None),
        (Driver::Refuses, true) => {
            let wrong = "works on the driver, which should refuse";
            ("succeeds".to_owned(), Some(wrong.to_owned()))
        }
        (Driver::NotModelled, _) => ("not modelled".to_owned(), None),
    })
}

/// Makes an attack in both places.
fn make(attack: &Attack, direct: Option<&Victim>, proxied: &Victim) -> Finding {
    let name = format!("{} | {}", attack.name, attack.function);
    let ran = directly(attack, direct).and_then(|on_driver| {
        let through = || once(attack, Place::Instance, proxied);
        // From below nobody sees whose time slices they are, so the neighbours have none meanwhile.
        let through = match attack.sign {
            Sign::Share => alone(through),
            _ => through(),
        };
        Ok((on_driver, through?))
    });
    let ((cell, mut wrong), (through, reached, harm)) = match ran {
        Ok(ran) => ran,
        Err(e) => {
            return match standin::missing(&e) {
                Some(reason) => Finding::LeftOut(name, reason),
                None => Finding::Wrong(name, e),
            };
        }
    };
    let answered = match &through {
        Err(how) => format!("refused: {how}"),
        Ok(()) => "answered, the driver is not asked".to_owned(),
    };
    let line = format!("{name} | {cell} | {answered}");
    if reached || !harm.is_empty() {
        wrong = Some(format!("works through the instance: {harm}"));
    }
    match wrong {
        Some(wrong) => Finding::Wrong(line, wrong),
        None if through.is_ok() && !standin::is_in_reach() => {
            if ANSWERED.contains(&attack.name) {
                let reason = "answered through the instance; the stand-in shows what it does";
                Finding::LeftOut(line, reason.to_owned())
            } else {
                Finding::Wrong(line, "answered through the instance".to_owned())
            }
        }
        None => Finding::Fails(format!("{line} | unharmed")),
    }
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
        holes::ATTACKS,
    ]
    .into_iter()
    .flatten()
}

/// Those of an attacker whose instance has all capabilities.
fn granted() -> impl Iterator<Item = &'static Attack> {
    granted::ATTACKS.iter().chain(channels::GRANTED)
}

/// Those that say themselves how they were refused.
fn own() -> impl Iterator<Item = &'static Own> {
    [
        files::ATTACKS,
        scratch::ATTACKS,
        stale::ATTACKS,
        marks::ATTACKS,
        limits::OWN_ATTACKS,
        log::ATTACKS,
        host_memory::ATTACKS,
        groups::ATTACKS,
        across::ATTACKS,
        beyond::ATTACKS,
        control_pages::ATTACKS,
        crowds::ATTACKS,
        lookup::ATTACKS,
    ]
    .into_iter()
    .flatten()
}

/// The names of all attacks.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let own = own().map(|own| own.name);
    let calls = calls().chain(granted());
    calls.map(|attack| attack.name).chain(own).collect()
}

/// Counts what came of attacks, and prints a line for each.
struct Report {
    log: KernelLog,
    passed: u32,
    failed: u32,
    left_out: u32,
}

impl Report {
    fn take(&mut self, finding: Finding) {
        let fault = self.log.faults().into_iter().next();
        match (finding, fault) {
            (Finding::Fails(line) | Finding::LeftOut(line, _), Some(fault)) => {
                self.failed += 1;
                println!("FAILED  {line}: the kernel said: {fault}");
            }
            (Finding::Wrong(line, why), _) => {
                self.failed += 1;
                println!("FAILED  {line}: {why}");
            }
            (Finding::Fails(line), None) => {
                self.passed += 1;
                println!("ok      {line}");
            }
            (Finding::LeftOut(line, reason), None) => {
                self.left_out += 1;
                println!("left out {line}: {reason}");
            }
        }
    }
}

/// An attack that says itself how it was refused.
fn make_own(own: &Own) -> Finding {
    let mut how = String::new();
    let result = in_child(|| {
        let how = (own.run)()?;
        std::fs::write(scene::NOTE, how).map_err(|e| e.to_string())
    });
    if result.is_ok() {
        how = std::fs::read_to_string(scene::NOTE).unwrap_or_default();
    }
    let line = format!("{} | {} | - | {how}", own.name, own.function);
    match result {
        Ok(()) => Finding::Fails(format!("{line} | unharmed")),
        Err(why) => match standin::missing(&why) {
            Some(reason) => Finding::LeftOut(line, reason),
            None => Finding::Wrong(line, why),
        },
    }
}

/// Runs the attacks whose names have `filter` in them, beside so many neighbours. Whether all
/// failed as they should.
pub fn run(filter: &str, beside: u32) -> Result<bool, String> {
    mount_cgpufs()?;
    let neighbours = (beside != 0).then(|| Neighbours::new(beside)).transpose()?;
    let mut report = Report {
        log: KernelLog::from_now(),
        passed: 0,
        failed: 0,
        left_out: 0,
    };
    println!("attacks on {}, beside {beside}", standin::machine()?);
    println!("attack | driver function | on the driver | through an instance | victim");
    let chosen = |attack: &&Attack| attack.name.contains(filter);
    let calls: Vec<&Attack> = calls().filter(chosen).collect();
    let granted: Vec<&Attack> = granted().filter(chosen).collect();
    if !calls.is_empty() || !granted.is_empty() {
        let direct = standin::is_in_reach().then(|| Victim::new(Place::Driver));
        let direct = direct.transpose()?;
        let proxied = Victim::new(Place::Instance)?;
        for attack in calls {
            report.take(make(attack, direct.as_ref(), &proxied));
        }
        proxied.grant()?;
        for attack in granted {
            report.take(make(attack, direct.as_ref(), &proxied));
        }
        if let Some(direct) = direct {
            direct.close();
        }
        proxied.close();
    }
    for own in own().filter(|own| own.name.contains(filter)) {
        report.take(make_own(own));
        scene::clean_up(&control()?);
    }
    if let Some(neighbours) = neighbours {
        let rounds = neighbours.end();
        report.take(match rounds {
            Ok(rounds) => {
                Finding::Fails(format!("{beside} neighbours | {rounds} rounds | unharmed"))
            }
            Err(why) => Finding::Wrong(format!("{beside} neighbours"), why),
        });
    }
    // The attacks ask for things that the stand-in does not know; that is not to be told.
    standin::reset("unanswered")?;
    let Report {
        passed,
        failed,
        left_out,
        ..
    } = report;
    if left_out != 0 {
        println!("{left_out} left out: this driver is not the stand-in");
    }
    println!("{passed} passed, {failed} failed");
    Ok(failed == 0 && passed > 0)
}
