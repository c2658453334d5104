// SPDX-License-Identifier: GPL-2.0
//! The scheduler learns from the driver's samples who is at work, and who pauses.

use super::*;

fn sample(stamp: Nanos, of: Option<InstanceId>) -> Sample {
    Sample {
        stamp,
        process: of.map(process),
    }
}

/// Times at which the samples were read.
fn reads(bench: &Bench) -> Vec<Nanos> {
    let read = bench.done.iter().filter(|(_, a)| *a == Action::ReadSamples);
    read.map(|(at, _)| *at).collect()
}

/// A kernel of a second is no pause: the driver has seen its process at work since it was last
/// heard of.
#[test]
fn an_instance_seen_at_work_has_work() {
    for seen in [false, true] {
        let mut bench = Bench::of_two([1, 1]);
        bench.run(500 * MS, &[A, B]);
        let before = reads(&bench).len();
        assert_eq!(before, 0, "nobody was doubted");
        let given = bench.given(A);
        for step in 1..=20 {
            bench.run(100 * MS, &[B]);
            // The driver's clock is its own.
            let newest = sample(7_000 * MS + step * 100 * MS, seen.then_some(A));
            if reads(&bench).len() > before {
                bench.see([newest]);
            }
        }
        let read = reads(&bench).split_off(before);
        assert!(!read.is_empty());
        let apart = read.windows(2).map(|pair| pair[1] - pair[0]).min();
        assert!(apart.is_none_or(|apart| apart >= 350 * MS), "{read:?}");
        let given = bench.given(A) - given;
        if seen {
            assert!(given > 800 * MS, "{given}");
        } else {
            assert!(given < 220 * MS, "{given}");
        }
    }
}

/// A sample shows no work if it is older than the program's last ring, or was read before.
#[test]
fn old_samples_tell_nothing() {
    let mut bench = Bench::of_two([1, 1]);
    bench.run(3000 * MS, &[A, B]);
    // A had all of the last seconds, and stops now.
    let stopped = bench.now;
    let ring = |now: Nanos| {
        let stamps = (1..=60).map(|index| index * 167 * MS);
        let of = move |stamp| Some(if stamp < stopped { A } else { B });
        let told = stamps.take_while(move |stamp| *stamp <= now);
        told.map(move |stamp| sample(stamp, of(stamp)))
    };
    let given = bench.given(A);
    let mut told = 0;
    for _ in 0..20 {
        bench.run(100 * MS, &[B]);
        if reads(&bench).len() > told {
            told = reads(&bench).len();
            bench.sched.samples(bench.now, ring(bench.now));
        }
    }
    assert!(told > 1);
    let given = bench.given(A) - given;
    assert!(given < 220 * MS, "{given}");
    assert!(!bench.view(A).working);
}

#[test]
fn a_sample_of_a_stranger_is_nobodys() {
    let mut bench = Bench::new(Policy::Weight, Mechanisms::ALL);
    bench.instance(A, terms(1), 8);
    bench.settle();
    let stranger = Sample {
        stamp: 1,
        process: Some(ProcessId(1)),
    };
    bench.now = 1000 * MS;
    bench.see([stranger, sample(2, None)]);
    assert!(!bench.view(A).working);
    bench.see([sample(3, Some(A))]);
    assert!(bench.view(A).working);
}

/// On the host a process can have channels in several instances: a sample of it says nothing of any
/// of them.
#[test]
fn a_process_in_two_instances_is_in_neither() {
    let mut bench = Bench::new(Policy::Weight, Mechanisms::ALL);
    bench.instance(A, terms(1), 1);
    bench.instance(B, terms(1), 1);
    let shared = |id: InstanceId| {
        Event::Channel(NewChannel {
            instance: id,
            group: name(id, 2),
            channel: name(id, 200),
            engine: Engine::Compute,
            process: ProcessId(7),
        })
    };
    bench.event(shared(A));
    bench.now = 1000 * MS;
    let of_shared = |stamp| Sample {
        stamp,
        process: Some(ProcessId(7)),
    };
    let working = |bench: &Bench, id| bench.view(id).working;
    bench.event(shared(B));
    bench.see([of_shared(1)]);
    assert!(!working(&bench, A) && !working(&bench, B));
    bench.event(Event::ClientFreed(ClientHandle(B.0)));
    bench.see([of_shared(2)]);
    assert!(working(&bench, A) && !working(&bench, B));
}

/// The driver's ring of the time until now: six samples a second, the newest one last, each of the
/// instance that `who` names for its age.
fn ring(length: Nanos, who: impl Fn(Nanos) -> Option<InstanceId>) -> Vec<Sample> {
    let ages = (0..length / (167 * MS)).map(|index| index * 167 * MS);
    let told = ages.map(|age| sample(1_000_000 * MS - age, who(age)));
    told.collect()
}

/// A was alone for so long, until B came just now and the samples were asked for.
fn after_time_alone(length: Nanos) -> Bench {
    let mut bench = Bench::of_two([1, 1]);
    bench.run(length, &[A]);
    assert_eq!(bench.mode(), Mode::Free);
    assert!(reads(&bench).is_empty());
    bench.run(20 * MS, &[A, B]);
    bench
}

/// A is owed this after such samples.
fn owed_after(mut bench: Bench, ring: Vec<Sample>) -> Nanos {
    bench.sched.samples(bench.now, ring.into_iter());
    bench.view(A).owed
}

/// At work in so many of four samples, and nobody in the others.
fn in_four(at_work: u64, length: Nanos) -> Vec<Sample> {
    ring(length, |age| (age / (167 * MS) % 4 < at_work).then_some(A))
}

/// Nobody hears the launches of an instance that is alone. The samples of that time tell whether it
/// paused: then it is owed its burst when another one comes.
#[test]
fn samples_tell_whether_a_loner_paused() {
    for (at_work, owed) in [
        (0, BURST_DEFAULT),
        (1, BURST_DEFAULT),
        (3, BURST_DEFAULT),
        (4, 0),
    ] {
        let bench = after_time_alone(6000 * MS);
        assert_eq!(reads(&bench).len(), 1);
        assert_eq!(
            owed_after(bench, in_four(at_work, 6000 * MS)),
            owed,
            "{at_work} of 4"
        );
    }
}

/// One that paused is in the middle of its work when others come: it spends its burst at once.
#[test]
fn a_loner_that_paused_spends_its_burst() {
    for (at_work, expected) in [(2, 85 * MS..101 * MS), (4, 40 * MS..55 * MS)] {
        let mut bench = after_time_alone(6000 * MS);
        let before = bench.given(A);
        let ring = in_four(at_work, 6000 * MS);
        bench.sched.samples(bench.now, ring.into_iter());
        bench.run(100 * MS, &[A, B]);
        let given = bench.given(A) - before;
        assert!(expected.contains(&given), "{at_work} of 4: {given}");
    }
}

/// The samples are read once, whatever comes of it.
#[test]
fn samples_of_a_loner_are_read_once() {
    for fails in [false, true] {
        let mut bench = Bench::of_two([1, 1]);
        if fails {
            bench.failing = Box::new(|action, _| match action {
                Action::ReadSamples => Err(CallError::Failed),
                _ => Ok(()),
            });
        }
        bench.run(3000 * MS, &[A]);
        bench.run(3000 * MS, &[A, B]);
        assert_eq!(reads(&bench).len(), 1);
        // An answer as late as this is of another time.
        assert_eq!(owed_after(bench, in_four(1, 6000 * MS)), 0);
    }
}

/// A short time alone has too few samples.
#[test]
fn a_short_time_alone_tells_nothing() {
    let bench = after_time_alone(1500 * MS);
    assert!(reads(&bench).is_empty());
}

/// An instance does not pause that was idle for long and began to work all the time seconds ago.
#[test]
fn idleness_before_the_work_is_no_pause() {
    let began = |seconds: u64| {
        ring(10_000 * MS, move |age| {
            (age < seconds * 1000 * MS).then_some(A)
        })
    };
    assert_eq!(owed_after(after_time_alone(12_000 * MS), began(4)), 0);
    assert_eq!(
        owed_after(after_time_alone(12_000 * MS), began(1)),
        BURST_DEFAULT
    );
}

/// While a program of the host is at work, an instance may wait for it.
#[test]
fn work_of_strangers_is_no_pause() {
    let half = |other: Option<InstanceId>| {
        ring(6000 * MS, move |age| {
            if age / (167 * MS) % 2 == 0 {
                Some(A)
            } else {
                other
            }
        })
    };
    let stranger = InstanceId(77);
    assert_eq!(
        owed_after(after_time_alone(6000 * MS), half(Some(stranger))),
        0
    );
    assert_eq!(
        owed_after(after_time_alone(6000 * MS), half(None)),
        BURST_DEFAULT
    );
}

/// Each time alone is one instance's: what A did counts for A, though B was alone before.
#[test]
fn a_time_alone_is_of_one_instance() {
    let mut bench = Bench::of_two([1, 1]);
    bench.run(3000 * MS, &[B]);
    bench.suspend(B);
    bench.run(3000 * MS, &[A]);
    bench.resume(B);
    bench.run(20 * MS, &[A, B]);
    let now = bench.now;
    bench.sched.samples(now, in_four(2, 3000 * MS).into_iter());
    assert_eq!(bench.view(A).owed, BURST_DEFAULT);
    assert!(bench.view(B).owed < BURST_DEFAULT);
}

/// Samples that were read while it was alone, for another reason, count too when that ends.
#[test]
fn samples_count_that_were_read_before() {
    let mut bench = Bench::of_two([1, 1]);
    bench.run(1000 * MS, &[A, B]);
    let mut newest = 0;
    for _ in 0..60 {
        bench.run(100 * MS, &[A]);
        let read = reads(&bench).len();
        if read > newest {
            newest = read;
            bench
                .sched
                .samples(bench.now, in_four(2, 6000 * MS).into_iter());
        }
    }
    assert!(newest > 0, "B was doubted when it stopped");
    assert_eq!(bench.mode(), Mode::Free);
    let owed = bench.view(A).owed;
    bench.run(20 * MS, &[A, B]);
    assert_eq!(reads(&bench).len(), newest + 1);
    assert!(owed < BURST_DEFAULT);
    assert_eq!(owed_after(bench, in_four(2, 6000 * MS)), BURST_DEFAULT);
}

/// An instance that may not have the GPU any more is owed nothing for its pauses.
#[test]
fn a_suspended_loner_is_owed_nothing() {
    let mut bench = after_time_alone(6000 * MS);
    bench.suspend(A);
    assert_eq!(owed_after(bench, in_four(1, 6000 * MS)), 0);
}

/// A time alone that ends by the operator's rules, and not because others come, tells nothing.
#[test]
fn rules_end_a_time_alone() {
    for policy in [Policy::Native, Policy::Fixed] {
        let mut bench = Bench::of_two([30, 30]);
        bench.run(6000 * MS, &[A]);
        bench.set_policy(policy);
        bench.run(20 * MS, &[A]);
        assert!(reads(&bench).is_empty());
    }
}

/// A ring without samples does not make old ones new.
#[test]
fn an_empty_ring_makes_nothing_new() {
    let mut bench = Bench::of_two([1, 1]);
    bench.settle();
    bench.now = 1000 * MS;
    bench.see([sample(500 * MS, None)]);
    bench.see([sample(0, None)]);
    bench.see([sample(500 * MS, Some(A))]);
    assert!(!bench.view(A).working);
    bench.see([sample(501 * MS, Some(A))]);
    assert!(bench.view(A).working);
}
