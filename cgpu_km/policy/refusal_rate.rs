// SPDX-License-Identifier: GPL-2.0
//! How often the driver may refuse a tenant's calls.
//!
//! The driver writes lines to the host's log about many of the calls that it refuses, and limits
//! their number in no way. So a tenant whose calls are refused all the time waits before its next
//! call. The programs of the recordings are refused 34 calls at most.
//!
//! The state is one number, which a caller can keep in an atomic: the time at which the tenant has
//! made up for all of its refused calls, nanoseconds of a clock that nobody sets.

/// As many refused calls may come at once as otherwise in so many seconds.
const AT_ONCE_S: u64 = 25;
const SECOND_NS: u64 = 1_000_000_000;

/// The number of refused calls in a second, for as long as one likes; 0: there is no limit.
#[derive(Clone, Copy, Debug)]
pub struct RefusalRate(pub u32);

impl RefusalRate {
    /// The state after one more refused call.
    pub fn after_refusal(self, made_up_ns: u64, now_ns: u64) -> u64 {
        let cost_ns = SECOND_NS.checked_div(self.0.into()).unwrap_or(0);
        made_up_ns.max(now_ns).saturating_add(cost_ns)
    }

    /// How long the tenant's next call waits, nanoseconds.
    pub fn wait_ns(self, made_up_ns: u64, now_ns: u64) -> u64 {
        if self.0 == 0 {
            return 0;
        }
        let ahead = made_up_ns.saturating_sub(now_ns);
        ahead.saturating_sub(AT_ONCE_S * SECOND_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: RefusalRate = RefusalRate(20);
    const AT_ONCE: u64 = 500;

    /// The state after so many refusals at once.
    fn after(count: u64) -> u64 {
        (0..count).fold(0, |state, _| RATE.after_refusal(state, SECOND_NS))
    }

    /// How many calls are refused in so many seconds, by a tenant with `threads` that make nothing
    /// but such calls.
    fn refused_in(seconds: u64, threads: u64) -> u64 {
        let (mut state, mut now, mut count) = (0, SECOND_NS, 0);
        let end = now + seconds * SECOND_NS;
        while now < end {
            // All look before the first of them is refused.
            now += RATE.wait_ns(state, now) + 10_000;
            for _ in 0..threads {
                state = RATE.after_refusal(state, now);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn refusals_at_once_do_not_wait() {
        assert_eq!(RATE.wait_ns(after(AT_ONCE), SECOND_NS), 0);
        assert_eq!(RATE.wait_ns(after(AT_ONCE + 1), SECOND_NS), SECOND_NS / 20);
    }

    #[test]
    fn refusals_have_a_rate_whatever_the_threads() {
        for threads in [1, 8, 100] {
            let count = refused_in(100, threads);
            let most = AT_ONCE + 20 * 100 + 2 * threads;
            assert!(count <= most, "{count} by {threads} threads");
            assert!(count >= 20 * 100, "{count} by {threads} threads");
        }
    }

    #[test]
    fn a_pause_makes_up_for_all_refusals() {
        let later = SECOND_NS + 100 * SECOND_NS;
        let state = after(100 * 20);
        assert_eq!(RATE.wait_ns(state, later), 0);
        assert_eq!(RATE.after_refusal(state, later), later + SECOND_NS / 20);
    }

    #[test]
    fn without_a_rate_nobody_waits() {
        assert_eq!(RefusalRate(0).wait_ns(after(10_000), SECOND_NS), 0);
        assert_eq!(RefusalRate(0).after_refusal(7, SECOND_NS), SECOND_NS);
    }
}
