// SPDX-License-Identifier: GPL-2.0
//! A change by the operator while the GPU is full takes effect within one period, and no kernel is
//! lost. The windows are taken from the model, which knows at every moment whose kernel runs.

use cgpu_km::policy::sched::{Mechanisms, Period, Policy, Terms};
use gpu_model::{
    cases::{rules, weight, DEEP},
    driven::Driven,
    world::Habit,
    Nanos, MS, US,
};

/// A turn of all, in the period `latency`.
const PERIOD: Nanos = 32 * MS;
/// A change of windows: two calls, at most 0.7 and 0.32 ms, a switch of the GPU's, 0.18 ms, and the
/// thread.
const CALLS: Nanos = 1300 * US;
/// A window may be shorter than a part of a turn by the calls, and longer or shorter by the error
/// of the window before it.
const UNSURE: Nanos = 2 * MS;
/// The time from one look at the model to the next.
const STEP: Nanos = 50 * US;
const HABITS: [Habit; 2] = [
    Habit {
        kernel: 16 * MS,
        depth: 1,
    },
    DEEP,
];

/// A window, as the model sees it: from the first kernel of one program to that of another.
#[derive(Clone, Copy, Debug)]
struct Window {
    program: usize,
    began: Nanos,
    length: Nanos,
}

/// The whole windows that begin in the next `length`.
fn windows(driven: &mut Driven, length: Nanos) -> Vec<Window> {
    let end = driven.world.now() + length;
    let mut windows: Vec<Window> = Vec::new();
    let mut last = None;
    while driven.world.now() < end {
        driven.run(STEP);
        let group = driven.world.gpu.running();
        let mut programs = driven.world.programs.iter();
        let Some(program) = group.and_then(|group| programs.position(|p| p.group == group)) else {
            continue;
        };
        let now = driven.world.now();
        if last.replace(program).is_none_or(|last| last == program) {
            continue;
        }
        if let Some(window) = windows.last_mut() {
            window.length = now - window.began;
        }
        windows.push(Window {
            program,
            began: now,
            length: 0,
        });
    }
    // The last window is not over.
    windows.pop();
    windows
}

/// Makes a change `later` than the check assumes. Checks that within one period the programs have
/// windows of these lengths, in milliseconds of a turn, from the first window on.
fn in_effect(
    driven: &mut Driven,
    change: fn(&mut Driven),
    later: Nanos,
    wanted: [Nanos; 2],
) -> Result<(), String> {
    let changed = driven.world.now();
    let mut windows = Vec::new();
    if later > 0 {
        windows = self::windows(driven, later);
    }
    change(driven);
    windows.extend(self::windows(driven, 4 * PERIOD - later));
    let first = windows.first().ok_or("no window")?;
    let after = first.began - changed;
    if after > PERIOD + CALLS {
        return Err(format!("the first one {after} ns later: {windows:?}"));
    }
    for window in &windows {
        let wanted = wanted[window.program];
        if window.length.abs_diff(wanted * PERIOD / 32) > UNSURE {
            let after = window.began - changed;
            return Err(format!("{window:?}, {after} ns later, not {wanted} ms"));
        }
    }
    Ok(())
}

const HIGH: Terms = Terms {
    high_priority: true,
    ..weight(1)
};

fn weights(driven: &mut Driven) {
    driven.set_terms(0, weight(3));
}

fn policy(driven: &mut Driven) {
    driven.set_rules(rules(Policy::Equal, Period::Latency));
}

fn priority(driven: &mut Driven) {
    driven.set_terms(0, HIGH);
}

fn back(driven: &mut Driven) {
    driven.set_terms(0, weight(1));
}

/// A change, and the parts of a turn that follow from it, in milliseconds.
type Change = (fn(&mut Driven), [Nanos; 2]);

const CHANGES: [Change; 4] = [
    (weights, [24, 8]),
    (policy, [16, 16]),
    (priority, [25, 7]),
    (back, [16, 16]),
];

fn started(age: Nanos) -> Driven {
    let mut driven = Driven::new(Mechanisms::ALL, rules(Policy::Weight, Period::Latency));
    for habit in HABITS {
        driven.add(habit, weight(1));
    }
    driven.run(1000 * MS + age);
    driven
}

/// Ends the launches. Every kernel that was launched has run for its whole length, once.
fn nothing_is_lost(mut driven: Driven) {
    for program in 0..HABITS.len() {
        driven.world.set_stopped(program, true);
    }
    driven.run(2000 * MS);
    for (program, habit) in HABITS.into_iter().enumerate() {
        assert!(!driven.world.is_busy(program));
        let finished = driven.world.programs[program].finished;
        assert_eq!(driven.world.ran(program), finished * habit.kernel);
    }
}

/// The change takes effect at whatever moment of a turn it is made.
#[test]
fn a_change_is_there_within_a_period() {
    for age in (0..11).map(|part| part * 3 * MS) {
        let mut driven = started(age);
        for (number, (change, wanted)) in CHANGES.into_iter().enumerate() {
            if let Err(what) = in_effect(&mut driven, change, 0, wanted) {
                panic!("change {number}, {age} ns into a turn: {what}");
            }
            driven.run(200 * MS + age);
        }
        nothing_is_lost(driven);
    }
}

/// The test above would fail if a change took effect a period or two later.
#[test]
fn a_change_that_comes_later_is_seen() {
    for later in [PERIOD, 2 * PERIOD] {
        let mut driven = started(0);
        for (number, (change, wanted)) in CHANGES.into_iter().enumerate() {
            let seen = in_effect(&mut driven, change, later, wanted);
            assert!(seen.is_err(), "change {number}, {later} ns later");
            driven.run(200 * MS);
        }
    }
}

/// A suspended instance is off the GPU within the calls, and a resumed one is back within a period.
#[test]
fn a_suspension_is_there_at_once() {
    let suspended = Terms {
        suspended: true,
        ..weight(1)
    };
    for age in (0..11).map(|part| part * 3 * MS) {
        let mut driven = started(age);
        driven.set_terms(0, suspended);
        driven.run(CALLS);
        let before = driven.world.ran(0);
        driven.run(10 * PERIOD);
        assert_eq!(driven.world.ran(0), before, "{age} ns into a turn");
        driven.set_terms(0, weight(1));
        driven.run(PERIOD / 2 + CALLS);
        assert!(driven.world.ran(0) > before, "{age} ns into a turn");
        if let Err(what) = in_effect(&mut driven, back, 0, [16, 16]) {
            panic!("resumed, {age} ns into a turn: {what}");
        }
        nothing_is_lost(driven);
    }
}
