// SPDX-License-Identifier: GPL-2.0
//! What is learnt of a queue from the moments at which a program launches.

use super::super::queue::Queue;
use super::{Nanos, MS, US};

/// A queue whose program was heard of `times` times, `interval` apart each time.
fn heard(times: u32, interval: impl Fn(u32) -> Nanos) -> (Queue, Nanos) {
    let mut queue = Queue::new();
    let mut now = MS;
    queue.await_next(now, false);
    for time in 0..times {
        now += interval(time);
        queue.launched(now, now - 10 * US, None, false, false);
        queue.await_next(now, false);
    }
    (queue, now)
}

/// Tries until nothing is left to try, on a program that has `left` kernels queued when it stops; how often.
fn try_out(queue: &mut Queue, mut now: Nanos, kernel: Nanos, left: u64) -> u32 {
    let mut tries = 0;
    while let Some(pause) = queue.pause(now) {
        let (stopped, filled) = (now, now + pause);
        let over = stopped + left * kernel;
        now = if filled < over {
            stopped + (pause / kernel + 1) * kernel
        } else {
            filled + kernel
        };
        queue.tried(stopped, filled, filled + 10 * US, now);
        tries += 1;
        assert!(tries < 100, "without end");
    }
    tries
}

#[test]
fn what_is_left_is_found_out_in_a_few_tries() {
    for kernel in [200 * US, 800 * US, 5 * MS] {
        for left in 0..16u64 {
            let (mut queue, now) = heard(3, |_| kernel);
            assert_eq!(queue.kernel(), Some(kernel));
            let tries = try_out(&mut queue, now, kernel, left);
            assert_eq!(queue.left(), left * kernel, "{left} of {kernel}");
            assert!(tries <= 9, "{tries} for {left}");
        }
    }
}

/// It queues less than it did: that is found out when it is tried again, after half a minute.
#[test]
fn what_has_become_wrong_is_found_out() {
    let kernel = MS;
    let (mut queue, now) = heard(3, |_| kernel);
    try_out(&mut queue, now, kernel, 12);
    assert_eq!(queue.left(), 12 * kernel);
    try_out(&mut queue, now + 40_000 * MS, kernel, 2);
    assert_eq!(queue.left(), 2 * kernel);
}

#[test]
fn of_kernels_that_are_not_alike_nothing_is_learnt() {
    let lengths = [MS, 3 * MS, 700 * US, 9 * MS, 2 * MS];
    let (mut queue, now) = heard(50, |time| lengths[time as usize % lengths.len()]);
    assert_eq!(queue.kernel(), None);
    assert_eq!(queue.left(), 0);
    assert_eq!(queue.pause(now), None);
}

#[test]
fn kernels_that_become_longer_are_learnt_anew() {
    let (queue, _) = heard(40, |time| if time < 20 { MS } else { 4 * MS });
    assert_eq!(queue.kernel(), Some(4 * MS));
    let (queue, _) = heard(40, |time| if time < 20 { 4 * MS } else { MS });
    assert_eq!(queue.kernel(), Some(MS));
}

/// It launches whenever it is let go, as one does that fills a long queue slowly: that tells nothing.
#[test]
fn who_does_not_wait_for_its_kernels_is_not_taken_to_have_many() {
    let (mut queue, mut now) = heard(3, |_| MS);
    for _ in 0..20 {
        if let Some(pause) = queue.pause(now) {
            let filled = now + pause;
            let next = now + (pause / MS + 1) * MS;
            queue.tried(now, filled, next - 5 * US, next);
        }
        now += 20_000 * MS;
    }
    assert_eq!(queue.left(), 0);
}

/// All that is heard of it are intervals of twice its length, since others queue as much. After two windows it has time to
/// outlast them, less where many compete, until it is known.
#[test]
fn who_may_have_others_beside_it_has_longer_windows() {
    let (mut queue, now) = heard(3, |_| 32 * MS);
    let usual = queue.longer_by(2);
    queue.drain();
    assert_eq!(queue.longer_by(2), usual);
    queue.drain();
    let longer = queue.longer_by(2);
    assert!(longer.0 > 4 * usual.0 && longer.1 > longer.0, "{longer:?}");
    assert_eq!(queue.longer_by(16), usual);
    assert!(queue.is_new());
    // It outlasts them.
    let mut now = now;
    for _ in 0..4 {
        queue.await_next(now, false);
        now += 16 * MS;
        queue.launched(now, now - 10 * US, None, false, false);
    }
    assert_eq!(queue.kernel(), Some(16 * MS));
    try_out(&mut queue, now, 16 * MS, 7);
    assert_eq!(queue.left(), 7 * 16 * MS);
    assert_eq!(queue.longer_by(2), usual);
    // Not for ever, of one of whom nothing can be learnt.
    let (mut queue, _) = heard(3, |_| 32 * MS);
    for _ in 0..8 {
        queue.drain();
    }
    assert_eq!(queue.longer_by(2), usual);
}

/// What it launches while it fills its queue is no kernel; but one that takes longer than that is.
#[test]
fn the_first_kernel_of_a_window_is_heard_of_if_it_is_long() {
    for (interval, kernel) in [(500 * US, None), (81 * MS, Some(81 * MS))] {
        let mut queue = Queue::new();
        let mut now = MS;
        for _ in 0..4 {
            queue.fills(now);
            now += interval;
            queue.launched(now, now - 10 * US, None, false, true);
        }
        assert_eq!(queue.kernel(), kernel);
    }
}
