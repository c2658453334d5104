// SPDX-License-Identifier: GPL-2.0
//! The calls that channels cost are bounded by the instance's limit of channels.

use super::*;
use crate::policy::channel_limit::default_limit;

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
