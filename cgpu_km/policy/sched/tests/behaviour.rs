// SPDX-License-Identifier: GPL-2.0
//! The behaviour that an operator, a program and a driver that refuses can count on.

use super::*;

/// How far two lengths of time are apart, in percent of the second.
fn off_by(got: Nanos, wanted: Nanos) -> u64 {
    got.abs_diff(wanted) * 100 / wanted.max(1)
}

#[test]
fn an_instance_alone_costs_nothing() {
    let mut bench = Bench::of_two([1, 3]);
    bench.settle();
    assert_eq!(bench.gate(A), Position::Armed);
    bench.ring(A);
    bench.settle();
    let before = bench.done.len();
    bench.run(5000 * MS, &[A]);
    assert_eq!(bench.done.len(), before, "{:?}", bench.done);
    assert_eq!(bench.gate(A), Position::Open);
    assert_eq!(bench.sched.deadline(), None);
    assert_eq!(bench.mode(), Mode::Free);
}

#[test]
fn two_share_by_weight_in_windows() {
    let mut bench = Bench::of_two([75, 25]);
    bench.run(3000 * MS, &[A, B]);
    assert_eq!(bench.mode(), Mode::Windows);
    let (a, b) = (bench.given(A), bench.given(B));
    assert!(off_by(a * 25, b * 75) <= 2, "{a} {b}");
    assert!(a + b > 2500 * MS, "{a} {b}");
}

#[test]
fn a_cap_holds_for_one_that_is_alone() {
    let mut bench = Bench::new(Policy::Fixed, Mechanisms::ALL);
    bench.instance(A, terms(30), 8);
    bench.run(3000 * MS, &[A]);
    let given = bench.given(A);
    assert!(off_by(given, 900 * MS) <= 3, "{given}");
}

/// The task that slept at the gate gets no processor when the window of its instance begins. The
/// instance still has work, because that task is going to launch it.
#[test]
fn a_late_waker_keeps_competing() {
    let mut bench = Bench::new(Policy::Fixed, Mechanisms::ALL);
    bench.instance(A, terms(50), 8);
    bench.instance(B, terms(50), 8);
    bench.run(500 * MS, &[A]);
    assert_eq!(bench.gate(B), Position::Shut);
    // A task of B stops at the shut gate, is let go, and gets no processor for the next 60 ms.
    bench.ring(B);
    let windows = |bench: &Bench| {
        let view = bench.view(B);
        (view.working, view.account.windows)
    };
    let (_, before) = windows(&bench);
    bench.run(60 * MS, &[A]);
    let (working, after) = windows(&bench);
    assert!(working);
    assert!(after > before, "{before} {after}");
}

#[test]
fn a_silent_instance_holds_no_window() {
    let mut bench = Bench::of_two([1, 1]);
    bench.run(1000 * MS, &[A, B]);
    let before = bench.given(A);
    bench.run(1000 * MS, &[A]);
    let given = bench.given(A) - before;
    // B is looked at after 2, 5, 11, 23, 47 and 95 ms of silence. After 191 ms, which is over the
    // longest that is waited, it has no work. Until then its windows cost A something.
    assert!(given > 780 * MS, "{given}");
    assert_eq!(bench.mode(), Mode::Free);
    assert!(!bench.is_off(A) && !bench.is_off(B));
    // It comes back at once.
    let before = bench.given(B);
    bench.run(1000 * MS, &[A, B]);
    let given = bench.given(B) - before;
    assert!(given > 400 * MS, "{given}");
}

#[test]
fn suspending_and_resuming_take_effect_at_once() {
    let mut bench = Bench::new(Policy::Native, Mechanisms::ALL);
    bench.instance(A, terms(1), 8);
    bench.run(10 * MS, &[A]);
    bench.suspend(A);
    assert!(bench.is_off(A));
    assert_eq!(bench.gate(A), Position::Shut);
    bench.ring(A);
    bench.run(1000 * MS, &[]);
    bench.resume(A);
    assert!(!bench.is_off(A));
    assert_eq!(bench.gate(A), Position::Open);
    let view = bench.view(A);
    assert!(view.account.blocked >= 1000 * MS, "{view:?}");
}

#[test]
fn a_time_slice_of_0_suspends_without_switching() {
    let without = Mechanisms {
        switch: false,
        ..Mechanisms::ALL
    };
    let mut bench = Bench::new(Policy::Weight, without);
    bench.instance(A, terms(1), 8);
    bench.settle();
    bench.suspend(A);
    assert_eq!(bench.slices.last(), Some(&(name(A, 1), 0)));
    let preempt = Action::Preempt { group: name(A, 1) };
    assert!(bench.done.iter().any(|(_, action)| *action == preempt));
    bench.resume(A);
    assert_eq!(bench.slices.last(), Some(&(name(A, 1), 2048)));
}

#[test]
fn weights_that_do_not_fit_are_refused() {
    let mut bench = Bench::new(Policy::Weight, Mechanisms::ALL);
    bench.instance(A, terms(70), 1);
    bench.instance(B, terms(60), 1);
    let refused = bench.sched.set_rules(0, rules(Policy::Fixed));
    assert_eq!(refused, Err(ChangeRefused::Misfit(Misfit::Weights)));
    assert_eq!(bench.sched.rules().policy, Policy::Weight);
    bench.set_terms(B, terms(30));
    bench.set_policy(Policy::Fixed);
    let refused = bench.sched.set_terms(0, B, terms(31));
    assert_eq!(refused, Err(ChangeRefused::Misfit(Misfit::Weights)));
    let refused = bench.sched.add(0, InstanceId(3), terms(1));
    assert_eq!(refused, Err(ChangeRefused::Misfit(Misfit::Weights)));
    let fair = Rules {
        max_instances: 1,
        ..rules(Policy::FixedEqual)
    };
    let refused = bench.sched.set_rules(0, fair);
    assert_eq!(refused, Err(ChangeRefused::Misfit(Misfit::Instances)));
}

#[test]
fn removal_in_a_window_frees_the_gpu() {
    let mut bench = Bench::of_two([1, 1]);
    bench.run(100 * MS, &[A, B]);
    bench.event(Event::ClientFreed(ClientHandle(A.0)));
    bench.sched.remove(bench.now, A);
    bench.settle();
    assert!(!bench.is_off(B));
    assert_eq!(bench.gate(B), Position::Open);
    assert_eq!(bench.sched.deadline(), None);
}

#[test]
fn a_channel_made_in_anothers_window_is_off() {
    let mut bench = Bench::of_two([1, 1]);
    bench.run(100 * MS, &[A, B]);
    let kept_out = if bench.is_off(A) { A } else { B };
    assert!(bench.is_off(kept_out));
    let channel = name(kept_out, 500);
    bench.event(Event::Channel(NewChannel {
        instance: kept_out,
        group: name(kept_out, 2),
        channel,
        engine: Engine::Compute,
        process: process(kept_out),
    }));
    bench.settle();
    assert!(bench.off.contains(&channel));
}

#[test]
fn a_refused_channel_does_not_hinder_the_others() {
    let mut bench = Bench::new(Policy::Weight, Mechanisms::ALL);
    let stale = name(A, 103);
    bench.failing = Box::new(move |action, channels| match action {
        Action::Switch { .. } if channels.contains(&stale) => Err(CallError::Failed),
        _ => Ok(()),
    });
    bench.instance(A, terms(1), 8);
    bench.instance(B, terms(1), 8);
    bench.run(2000 * MS, &[A, B]);
    let (a, b) = (bench.given(A), bench.given(B));
    assert!(off_by(a, b) <= 5, "{a} {b}");
    assert!(bench.calls() < 2 * 600, "{}", bench.calls());
}

#[test]
fn a_channel_that_is_gone_is_forgotten() {
    let mut bench = Bench::new(Policy::Weight, Mechanisms::ALL);
    let stale = name(A, 103);
    let named = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = named.clone();
    bench.failing = Box::new(move |action, channels| match action {
        Action::Switch { .. } if channels.contains(&stale) => {
            count.set(count.get() + 1);
            Err(CallError::Gone)
        }
        _ => Ok(()),
    });
    bench.instance(A, terms(1), 8);
    bench.instance(B, terms(1), 8);
    bench.run(2000 * MS, &[A, B]);
    // Among all 8, in a half of them, in a half of these, and alone.
    assert_eq!(named.get(), 4);
    let (a, b) = (bench.given(A), bench.given(B));
    assert!(off_by(a, b) <= 2, "{a} {b}");
}

#[test]
fn an_unsupported_call_is_not_tried_again() {
    let mut bench = Bench::new(Policy::Weight, Mechanisms::ALL);
    bench.failing = Box::new(|action, _| match action {
        Action::Switch { .. } => Err(CallError::Unsupported),
        _ => Ok(()),
    });
    bench.instance(A, terms(1), 8);
    bench.instance(B, terms(1), 8);
    bench.run(2000 * MS, &[A, B]);
    let tried = |(_, action): &&(Nanos, Action)| matches!(action, Action::Switch { .. });
    assert_eq!(bench.done.iter().filter(tried).count(), 1);
    assert!(!bench.sched.mechanisms().switch);
    // Without it nobody is kept from the GPU.
    assert_eq!(bench.mode(), Mode::Native);
    assert_eq!(
        (bench.gate(A), bench.gate(B)),
        (Position::Open, Position::Open)
    );
}

#[test]
fn high_priority_interrupts_a_window() {
    let mut bench = Bench::new(Policy::Weight, Mechanisms::ALL);
    bench.instance(A, terms(1), 8);
    bench.instance(
        B,
        Terms {
            high_priority: true,
            ..terms(1)
        },
        8,
    );
    let third = InstanceId(3);
    bench.instance(third, terms(1), 8);
    bench.run(500 * MS, &[A, third]);
    let mut longest = 0;
    for request in 0..20 {
        // A request of a few milliseconds, then a pause: the gate tells when the next one comes.
        bench.run(4 * MS, &[A, B, third]);
        bench.run((40 + request) * MS, &[A, third]);
        let asked = bench.now;
        bench.ring(B);
        while bench.is_off(B) || bench.gate(B) == Position::Shut || !bench.is_off(A) {
            bench.settle();
            bench.now += 10 * US;
            assert!(bench.now < asked + 100 * MS, "not let in");
        }
        longest = longest.max(bench.now - asked);
    }
    assert!(longest <= 2 * MS, "{longest}");
}

#[test]
fn policy_change_takes_effect_within_a_turn() {
    let mut bench = Bench::of_two([10, 30]);
    bench.run(500 * MS, &[A, B]);
    bench.set_policy(Policy::Equal);
    bench.run(40 * MS, &[A, B]);
    let (a, b) = (bench.given(A), bench.given(B));
    bench.run(1000 * MS, &[A, B]);
    let (a, b) = (bench.given(A) - a, bench.given(B) - b);
    assert!(off_by(a, b) <= 3, "{a} {b}");
    bench.set_policy(Policy::Native);
    bench.settle();
    assert!(!bench.is_off(A) && !bench.is_off(B));
    assert_eq!(bench.gate(A), Position::Open);
    assert_eq!(bench.gate(B), Position::Open);
    assert_eq!(bench.sched.deadline(), None);
}
