// SPDX-License-Identifier: GPL-2.0
//! Which sections of the page of shared data a tenant's programs want to be kept up to date.
//!
//! For each change of an object's wish, its end included, the driver looks at all objects of all
//! clients of the host, with its lock for all of them (`_gpushareddataRequestDataPoll()`,
//! gpu_user_shared_data.c). So few objects of a share have a wish, and it changes seldom. An
//! `nvidia-smi -q` has one such object for each GPU, and changes it six times (tests/traces).

use crate::policy::count::lower;

/// Most objects of a share that want anything: all of them may be freed at once.
const MOST_OBJECTS: u32 = 64;
/// Most changes at once.
const MOST_CHANGES: u32 = 64;
/// So many more may follow in each second.
const CHANGES_PER_SECOND: u32 = 16;

/// More than a share may have the driver look at.
#[derive(Debug)]
pub(super) struct TooManyPolls;

/// The wishes of one share.
#[derive(Debug, Default)]
pub(super) struct Polls {
    /// Objects that want something.
    objects: u32,
    /// The second of the last change.
    second: u64,
    /// Changes, less those that time has made up for.
    changes: u32,
}

impl Polls {
    /// Counts a change of what an object wants, which wanted something before or not. It fails if
    /// there are too many such objects or changes.
    pub(super) fn change(&mut self, wanted_before: bool, now_s: u64) -> Result<(), TooManyPolls> {
        let seconds = u32::try_from(now_s.saturating_sub(self.second)).unwrap_or(u32::MAX);
        let made_up = seconds.saturating_mul(CHANGES_PER_SECOND);
        self.changes = self.changes.saturating_sub(made_up);
        // A thread may come with a moment that it has read before it waited.
        self.second = self.second.max(now_s);
        let more = u32::from(!wanted_before);
        if self.changes >= MOST_CHANGES || self.objects.saturating_add(more) > MOST_OBJECTS {
            return Err(TooManyPolls);
        }
        self.changes += 1;
        self.objects += more;
        Ok(())
    }

    /// An object that wanted something is gone.
    pub(super) fn end(&mut self) {
        lower(&mut self.objects, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_have_a_rate() {
        let mut polls = Polls::default();
        let mut granted = |second| {
            (0..100)
                .filter(|i| polls.change(*i > 0 || second > 7, second).is_ok())
                .count()
        };
        assert_eq!(granted(7), 64);
        assert_eq!(granted(8), 16);
        assert_eq!(granted(10), 32);
        assert_eq!(granted(1000), 64);
        assert_eq!((granted(900), granted(1000)), (0, 0));
    }

    #[test]
    fn few_objects_want_anything() {
        let mut polls = Polls::default();
        let granted = (0..100).filter(|i| polls.change(false, *i).is_ok()).count();
        assert_eq!(granted, 64);
        assert!(polls.change(true, 200).is_ok(), "one that has a wish");
        polls.end();
        assert!(polls.change(false, 300).is_ok());
        assert!(polls.change(false, 400).is_err());
    }
}
