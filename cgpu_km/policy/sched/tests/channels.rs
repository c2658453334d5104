// SPDX-License-Identifier: GPL-2.0
//! The calls that channels cost are bounded by the instance's limit of channels.

use super::*;
use crate::{
    policy::channel_limit::default_limit,
    store::failing,
    uapi::MAX_INSTANCES_PER_GPU, //
};

/// Runs two instances with so many channels each for three seconds. Returns the most calls that a
/// turn from one to the other took, and the time that each was given.
fn turns(channels: u32) -> (usize, [Nanos; 2]) {
    let mut bench = Bench::new(Policy::Weight, Mechanisms::ALL);
    bench.instance(A, terms(1), channels);
    bench.instance(B, terms(1), channels);
    bench.run(3000 * MS, &[A, B]);
    let windows = [A, B].map(|id| bench.view(id).account.windows);
    let is_switch = |(_, action): &&(Nanos, Action)| matches!(action, Action::Switch { .. });
    let calls = bench.done.iter().filter(is_switch).count();
    let turns = usize::try_from(windows[0] + windows[1]).expect("few");
    assert!(turns > 20, "{turns} turns");
    (calls.div_ceil(turns), [A, B].map(|id| bench.given(id)))
}

#[test]
fn turns_keep_to_the_limit_of_calls() {
    // Off and on: one call each for up to 64 channels, two for the limit of one of 16 instances.
    let limit = default_limit(16);
    for (channels, most) in [(8, 2), (64, 2), (limit, 4)] {
        let (calls, given) = turns(channels);
        assert!(
            calls <= most,
            "{calls} calls a turn with {channels} channels"
        );
        let (a, b) = (given[0], given[1]);
        assert!(
            a.abs_diff(b) <= (a + b) / 20,
            "{channels} channels: {a} {b}"
        );
        assert!(a + b > 2000 * MS, "{channels} channels: {a} {b}");
    }
}

/// Another group of the first instance, so that each has half of the slice.
fn second_group() -> Event {
    Event::Channel(NewChannel {
        instance: A,
        group: name(A, 3),
        channel: name(A, 500),
        engine: Engine::Compute,
        process: process(A),
    })
}

/// It sets the slice of a group of the first instance.
fn sets_slice(action: &Action) -> bool {
    matches!(action, Action::SetTimeslice { group, .. } if group.client == ClientHandle(A.0))
}

#[test]
fn leaving_clients_are_switched_without_slices() {
    let mut bench = Bench::of_two([1, 1]);
    bench.event(second_group());
    bench.event(Event::ClientLeaving(ClientHandle(A.0)));
    bench.run(2000 * MS, &[A, B]);
    assert!(!bench.done.iter().any(|(_, action)| sets_slice(action)));
    assert_eq!(bench.sched.owner(name(A, 3)), Err(CallError::Busy));
    let (a, b) = (bench.given(A), bench.given(B));
    assert!(a.abs_diff(b) <= (a + b) / 20, "{a} {b}");
    bench.event(Event::ClientFreed(ClientHandle(A.0)));
    assert_eq!(bench.sched.owner(name(A, 3)), Err(CallError::Gone));
}

#[test]
fn busy_clients_are_tried_seldom() {
    let mut bench = Bench::of_two([1, 1]);
    bench.failing = Box::new(|action, _| match action {
        action if sets_slice(action) => Err(CallError::Busy),
        _ => Ok(()),
    });
    bench.event(second_group());
    bench.run(2000 * MS, &[A, B]);
    let tries = bench.done.iter().filter(|(_, action)| sets_slice(action));
    let tries = tries.count();
    // After 10 ms, 20 ms and so on, for both groups of the client together.
    assert!((2..=9).contains(&tries), "{tries}");
    let others = bench
        .done
        .iter()
        .filter(|(_, action)| !sets_slice(action) && !matches!(action, Action::SetGate { .. }));
    let counted = bench.sched.view().calls;
    assert_eq!(counted, others.count() as u64);
}

#[test]
fn neighbours_keep_their_time_beside_changing_groups() {
    const GROUPS: u32 = 46;
    let group = |number| {
        Event::Channel(NewChannel {
            instance: A,
            group: name(A, 1000 + number),
            channel: name(A, 2000 + number),
            engine: Engine::Compute,
            process: process(A),
        })
    };
    let mut bench = Bench::of_two([1, 1]);
    for number in 0..GROUPS {
        bench.event(group(number));
    }
    bench.run(1000 * MS, &[A, B]);
    let before = bench.given(B);
    for _ in 0..50 {
        bench.event(group(GROUPS));
        bench.run(20 * MS, &[A, B]);
        bench.event(Event::Freed(name(A, 1000 + GROUPS)));
        bench.run(20 * MS, &[A, B]);
    }
    let had = bench.given(B) - before;
    assert!(had > 800 * MS, "{had} of 2 s");
}

#[test]
fn channels_without_a_group_cost_nobody_slices() {
    let mut bench = Bench::of_two([1, 1]);
    let alone = [name(A, 700), name(A, 701)];
    // As the driver answers a group's control on a channel.
    bench.failing = Box::new(move |action, _| match action {
        Action::SetTimeslice { group, .. } if alone.contains(group) => Err(CallError::Unsupported),
        _ => Ok(()),
    });
    for channel in alone {
        bench.event(Event::Channel(NewChannel {
            instance: A,
            group: channel,
            channel,
            engine: Engine::Compute,
            process: process(A),
        }));
    }
    bench.run(1000 * MS, &[A, B]);
    assert!(bench.sched.mechanisms().timeslice);
}

#[test]
fn stale_channels_are_found_by_halves() {
    const STALE: u32 = 130;
    const CHANNELS: u32 = 64;
    let mut bench = Bench::new(Policy::Weight, Mechanisms::ALL);
    bench.instance(A, terms(1), CHANNELS - 1);
    bench.instance(B, terms(1), 8);
    // It is freed while it is switched off, each time.
    bench.failing = Box::new(move |action, channels| match action {
        Action::Switch { disable: true } if channels.contains(&name(A, STALE)) => {
            Err(CallError::Gone)
        }
        _ => Ok(()),
    });
    bench.run(1000 * MS, &[A, B]);
    let (calls, before) = (bench.calls(), [A, B].map(|id| bench.given(id)));
    const TIMES: usize = 40;
    for _ in 0..TIMES {
        bench.event(Event::Freed(name(A, STALE)));
        bench.event(Event::Channel(NewChannel {
            instance: A,
            group: name(A, 1),
            channel: name(A, STALE),
            engine: Engine::Compute,
            process: process(A),
        }));
        bench.run(50 * MS, &[A, B]);
    }
    // Six halves fail and six are switched, beside those of three turns.
    let calls = (bench.calls() - calls) / TIMES;
    assert!(calls <= 20, "{calls} calls each time");
    let [a, b] = [A, B].map(|id| bench.given(id));
    let [a, b] = [a - before[0], b - before[1]];
    assert!(b * 10 >= a * 9, "{a} {b}");
}

#[test]
fn native_leaves_slices_to_the_driver() {
    let mut bench = Bench::new(Policy::Native, Mechanisms::ALL);
    bench.instance(A, terms(1), 8);
    bench.instance(B, terms(1), 8);
    bench.event(second_group());
    bench.run(1000 * MS, &[A, B]);
    assert_eq!(bench.calls(), 0, "{:?}", bench.done);
    bench.set_policy(Policy::Weight);
    bench.run(1000 * MS, &[A, B]);
    assert!(bench.done.iter().any(|(_, action)| sets_slice(action)));
    bench.set_policy(Policy::Native);
    bench.settle();
    let last = |group| {
        let set = bench.slices.iter().rev().find(|(name, _)| *name == group);
        set.map(|(_, slice)| *slice)
    };
    for group in [name(A, 1), name(A, 3)] {
        assert_eq!(last(group), Some(instance::DEFAULT_SLICE_US));
    }
}

/// A channel of the first instance, in a group of its own.
fn channel(number: u32) -> Event {
    Event::Channel(NewChannel {
        instance: A,
        group: name(A, number),
        channel: name(A, number + 10_000),
        engine: Engine::Other,
        process: process(A),
    })
}

/// Makes room for so many channels of an instance, as the module does.
fn expect(sched: &mut Scheduler, id: InstanceId, channels: usize) {
    while let Some(wanted) = sched.expect_channels(id, channels) {
        let room = Room::of(wanted).expect("memory");
        drop(sched.move_to(room));
    }
}

#[test]
fn expected_channels_take_no_memory() {
    let mut bench = Bench::of_two([1, 1]);
    // The two channels that the bench has made were not expected.
    expect(&mut bench.sched, A, 202);
    expect(&mut bench.sched, B, 301);
    let (noted, failed) = failing::after(0, || {
        (1..=200).all(|number| bench.sched.event(bench.now, channel(number)).is_ok())
    });
    assert!(noted && !failed);
}

#[test]
fn smaller_room_takes_no_larger_ones_place() {
    let mut bench = Bench::of_two([1, 1]);
    let small = bench.sched.expect_channels(A, 100).expect("no room yet");
    let small = Room::of(small).expect("memory");
    expect(&mut bench.sched, B, 900);
    drop(bench.sched.move_to(small));
    assert_eq!(bench.sched.expect_channels(B, 900), None);
}

#[test]
fn removed_instances_leave_their_room() {
    let mut bench = Bench::of_two([1, 1]);
    expect(&mut bench.sched, A, 500);
    assert!(bench.sched.expect_channels(B, 600).is_some());
    bench.sched.remove(bench.now, A);
    assert_eq!(bench.sched.expect_channels(B, 400), None);
    // Nobody is left to be scheduled.
    assert_eq!(bench.sched.expect_channels(A, 10_000), None);
}

#[test]
fn instances_are_added_without_memory() {
    let rules = Rules::DEFAULT;
    let mut sched = Scheduler::new(Mechanisms::ALL, Costs::MEASURED, rules).expect("memory");
    sched.make_room().expect("memory");
    let ids = (0..MAX_INSTANCES_PER_GPU).map(|id| InstanceId(u32::try_from(id).expect("few")));
    let mut add = |id| sched.add(0, id, terms(1));
    let (added, failed) = failing::after(0, || ids.map(&mut add).all(|added| added.is_ok()));
    assert!(added && !failed);
}
