// SPDX-License-Identifier: GPL-2.0
//! What is learnt of a queue from the moments at which a program launches.

use super::super::queue::{Queue, Told};
use super::{Nanos, MS, US};

/// One launch after the other.
const PACE: Nanos = 4 * US;

/// It launches, and passes.
fn launch(queue: &mut Queue, now: Nanos) -> Told {
    let told = queue.hear(now);
    queue.pass(now, now);
    told
}

/// It launches so many ahead, and then one whenever one of its kernels ends, `kernels` times; the moment of the last one. Each
/// kernel is as long as `length` says.
fn fill(
    queue: &mut Queue,
    now: Nanos,
    depth: u64,
    kernels: u64,
    length: impl Fn(u64) -> Nanos,
) -> Nanos {
    for ahead in 0..depth {
        launch(queue, now + ahead * PACE);
    }
    let mut ended = now;
    for kernel in 0..kernels {
        ended += length(kernel);
        launch(queue, ended);
    }
    ended
}

#[test]
fn a_full_queue_is_known_after_one_kernel_more() {
    for kernel in [200 * US, 800 * US, 16 * MS, 81 * MS] {
        for depth in 1..=8 {
            let mut queue = Queue::new();
            let now = fill(&mut queue, MS, depth, 2, |_| kernel);
            assert!(!queue.learns());
            assert_eq!(queue.whole(), depth * kernel);
            assert_eq!(queue.ends(), now + depth * kernel, "{depth} of {kernel}");
        }
    }
}

/// Nothing is known before, so all that it launches is to pass.
#[test]
fn who_fills_its_queue_is_being_learnt() {
    let mut queue = Queue::new();
    fill(&mut queue, MS, 8, 1, |_| 16 * MS);
    assert!(queue.learns());
    // But not for ever.
    for _ in 0..8 {
        queue.end_window();
    }
    assert!(!queue.learns());
}

/// Others' work runs before its first kernel: that is told, and what it has queued ends as much later.
#[test]
fn others_work_is_told_from_its_own() {
    let mut queue = Queue::new();
    fill(&mut queue, MS, 2, 10, |_| MS);
    let now = queue.ends();
    queue.begin(now, 2);
    launch(&mut queue, now);
    launch(&mut queue, now + PACE);
    assert_eq!(queue.hear(now + 4 * MS), Told::Full(3 * MS));
    assert_eq!(queue.ends(), now + 5 * MS);
}

/// Eight launches, and then it waits for all of them: each takes an eighth of that.
#[test]
fn who_waits_for_all_of_its_kernels_is_understood() {
    let mut queue = Queue::new();
    let mut now = MS;
    for _ in 0..4 {
        now = fill(&mut queue, now, 8, 0, |_| 0) + 8 * MS;
    }
    assert_eq!(queue.hear(now), Told::Length);
    assert_eq!(queue.whole(), 8 * MS);
    assert_eq!(queue.behind(), 0);
}

/// There are no gaps between such kernels: they are measured over several, and need not be metered then.
#[test]
fn short_kernels_are_measured_over_several() {
    let mut queue = Queue::new();
    let now = fill(&mut queue, MS, 1, 120, |_| 15 * US);
    assert_eq!(queue.patience(), 2 * 15 * US + MS);
    assert!(queue.may_open());
    let mut long = Queue::new();
    fill(&mut long, now, 8, 10, |_| 800 * US);
    assert!(!long.may_open());
}

#[test]
fn of_kernels_that_are_not_alike_the_average_counts() {
    let lengths = [MS, 3 * MS, 700 * US, 9 * MS, 2 * MS];
    let mean = lengths.iter().sum::<Nanos>() / 5;
    let mut queue = Queue::new();
    fill(&mut queue, MS, 4, 100, |kernel| {
        lengths[kernel as usize % 5]
    });
    let kernel = queue.whole() / 4;
    assert!(kernel.abs_diff(mean) < mean / 2, "{kernel}");
}

#[test]
fn kernels_that_become_others_are_learnt_anew() {
    for (before, after) in [(MS, 4 * MS), (4 * MS, MS), (800 * US, 81 * MS)] {
        let mut queue = Queue::new();
        fill(&mut queue, MS, 8, 30, |kernel| match kernel < 20 {
            true => before,
            false => after,
        });
        assert_eq!(queue.whole(), 8 * after);
    }
}

/// A program that was interrupted while it filled its queue launches no fewer ahead, unless it does so again and again.
#[test]
fn who_is_interrupted_once_has_the_queue_that_it_had() {
    let mut queue = Queue::new();
    let mut now = fill(&mut queue, MS, 8, 8, |_| MS);
    for times in 1..=4 {
        now = queue.ends() + MS;
        queue.begin(now, 2);
        fill(&mut queue, now, 3, 1, |_| MS);
        assert_eq!(queue.whole() / MS, if times < 4 { 8 } else { 3 });
    }
    assert!(queue.ends() > now);
}

/// All that it had queued when it was alone is found out in a few tries, each of which lets it fill its queue again.
#[test]
fn what_was_queued_before_is_counted() {
    for kernel in [200 * US, 800 * US, 16 * MS] {
        for depth in 1..=8 {
            let mut queue = Queue::new();
            queue.lose_count();
            let mut now = MS;
            launch(&mut queue, now);
            // That was not when a kernel ended.
            now += kernel / 3;
            assert_eq!(launch(&mut queue, now), Told::Nothing);
            now += kernel;
            assert_eq!(queue.hear(now), Told::Length);
            let mut tries = 0;
            let mut told = None;
            while let Some(let_go) = queue.count(now, told) {
                tries += 1;
                let ended = ((let_go - now) / kernel).min(depth - 1);
                for refilled in 0..=ended {
                    launch(&mut queue, let_go + refilled * PACE);
                }
                let dry = ended == depth - 1 && let_go >= now + ended * kernel;
                now = match dry {
                    true => let_go + kernel,
                    false => now + (ended + 1) * kernel,
                };
                let Told::Filled(since, launches) = queue.hear(now) else {
                    panic!("it was let go to be counted");
                };
                told = Some((since, launches));
            }
            assert!(!queue.is_uncounted() && tries <= 5, "{tries} for {depth}");
            assert_eq!(queue.whole(), depth * kernel, "{depth} of {kernel}");
        }
    }
}

/// What is known of one whose windows never hold its queue may be wrong: it fills it again some time.
#[test]
fn what_was_measured_long_ago_is_measured_again() {
    let mut queue = Queue::new();
    let now = fill(&mut queue, MS, 8, 4, |_| 16 * MS);
    queue.begin(now + 10_000 * MS, 2);
    assert!(!queue.learns());
    queue.begin(now + 13_000 * MS, 2);
    assert!(queue.learns());
    // And sooner where it ran for longer than was reckoned with, and was not measured lately.
    let mut queue = Queue::new();
    let now = fill(&mut queue, MS, 8, 4, |_| 16 * MS);
    queue.ran_on(now + 100 * MS, 9 * MS);
    queue.begin(now + 200 * MS, 2);
    assert!(!queue.learns());
    queue.ran_on(now + 300 * MS, 9 * MS);
    queue.begin(now + 400 * MS, 2);
    assert!(queue.learns());
}
