// SPDX-License-Identifier: GPL-2.0
//! Whether UVM has something, and since when.
//!
//! A call about everything that was there when it began must not end what came while it was in
//! flight. So each list of such things counts what happens to it, and what UVM has knows the
//! count at which it came.

/// Whether UVM has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UvmLife {
    /// UVM is being asked for it.
    Coming,
    /// UVM has it, since that moment.
    Here(u64),
    /// UVM may still have it or parts of it, until a file or a call in flight ends.
    Leaving,
}

impl UvmLife {
    /// UVM has it, which was coming: since `now`.
    pub(super) fn settle(&mut self, now: u64) {
        if *self == Self::Coming {
            *self = Self::Here(now);
        }
    }

    pub(super) fn is_here(self) -> bool {
        matches!(self, Self::Here(_))
    }

    /// Whether UVM has it, and had it at that moment already.
    pub(super) fn was_here(self, moment: u64) -> bool {
        matches!(self, Self::Here(since) if since <= moment)
    }
}

/// Counts what happens to a list.
#[derive(Debug)]
pub(super) struct Moments(u64);

impl Moments {
    pub(super) const fn new() -> Self {
        Self(0)
    }

    /// The present moment: what settles from now on does so later.
    pub(super) fn now(&self) -> u64 {
        self.0
    }

    /// Something happens, at a moment of its own.
    pub(super) fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_a_moment_was_not_there() {
        let mut moments = Moments::new();
        let (mut early, mut late, mut gone) = (UvmLife::Coming, UvmLife::Coming, UvmLife::Leaving);
        assert!(!early.was_here(moments.now()));
        early.settle(moments.next());
        let moment = moments.now();
        late.settle(moments.next());
        gone.settle(moments.next());
        assert!(early.was_here(moment) && !late.was_here(moment));
        assert!(late.was_here(moments.now()));
        assert_eq!(gone, UvmLife::Leaving);
        // The moment of one that is there stays.
        early.settle(moments.next());
        assert!(early.was_here(moment));
    }
}
