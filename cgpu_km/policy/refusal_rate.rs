// SPDX-License-Identifier: GPL-2.0
//! How often the driver may refuse a tenant's calls.
//!
//! The driver writes lines to the host's log about many of the calls that it refuses, and limits
//! their number in no way. So a tenant whose calls are refused all the time waits before its next
//! call. The programs of the recordings are refused 34 calls at most, and twice as many where they
//! see two GPUs: a program asks the same of each.
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
    /// That of a tenant with so many GPUs, each of which allows it `each`.
    pub fn for_gpus(each: u32, gpus: u32) -> Self {
        Self(each.saturating_mul(gpus.max(1)))
    }

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

    /// `nvidia-smi -q` once a second, which each GPU refuses 34 calls; with 20 it comes to wait.
    #[test]
    fn each_gpu_has_its_refusals() {
        let waits = |each: u32, gpus: u32| {
            let rate = RefusalRate::for_gpus(each, gpus);
            let (mut state, mut waits) = (0, false);
            for second in 1..=100 {
                let now = second * SECOND_NS;
                waits |= rate.wait_ns(state, now) > 0;
                state = (0..34 * gpus).fold(state, |state, _| rate.after_refusal(state, now));
            }
            waits
        };
        for gpus in [1, 2, 8] {
            assert!(!waits(34, gpus), "{gpus}");
            assert!(waits(20, gpus), "{gpus}");
        }
        assert_eq!(RefusalRate::for_gpus(20, 0).0, 20);
        assert_eq!(RefusalRate::for_gpus(0, 8).0, 0);
        assert_eq!(RefusalRate::for_gpus(u32::MAX, 8).0, u32::MAX);
    }

    #[test]
    fn without_a_rate_nobody_waits() {
        assert_eq!(RefusalRate(0).wait_ns(after(10_000), SECOND_NS), 0);
        assert_eq!(RefusalRate(0).after_refusal(7, SECOND_NS), SECOND_NS);
    }
}
