// SPDX-License-Identifier: GPL-2.0
//! A launch at a metered gate asks the scheduler's side, waits until the gate is set anew, and asks again.

use cgpu_gpu::compute::{Compute, ARMED, METERED, OPEN};
use std::alloc::{alloc_zeroed, Layout};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// As it is in the shared memory of a new instance.
fn new() -> &'static Compute {
    // SAFETY: All zeroes are a valid one, as the arena begins with them; it is never freed.
    unsafe { &*alloc_zeroed(Layout::new::<Compute>()).cast::<Compute>() }
}

/// Answers the next launch.
fn answer(compute: &Compute, passes: bool) {
    let end = Instant::now() + Duration::from_secs(20);
    let mut answered = false;
    while !answered {
        assert!(Instant::now() < end, "nobody asked");
        compute.answer_launch(|| {
            answered = true;
            passes
        });
        std::thread::yield_now();
    }
}

#[test]
fn a_launch_waits_and_asks_again() {
    let compute = new();
    compute.set_gate(METERED);
    std::thread::scope(|scope| {
        let launch = scope.spawn(|| compute.ring(true));
        answer(compute, false);
        std::thread::sleep(Duration::from_millis(50));
        compute.answer_launch(|| panic!("it asks before the gate is set anew"));
        compute.set_gate(METERED);
        answer(compute, true);
        assert!(launch.join().unwrap(), "it is carried out");
    });
    assert_eq!(compute.gate.load(Ordering::Relaxed), METERED);
    assert!(compute.parked_ns.load(Ordering::Relaxed) >= 40_000_000);
    assert_eq!(compute.rang.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_not_known_opens_the_gate() {
    for gate in [METERED, ARMED] {
        let compute = new();
        compute.set_gate(gate);
        assert!(!compute.ring(false));
        assert_eq!(compute.gate.load(Ordering::Relaxed), OPEN);
        assert_eq!(compute.rang.load(Ordering::Relaxed), 1);
        assert!(!compute.ring(true), "it is open");
    }
}
