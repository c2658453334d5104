// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Turns at changing a claim: one change of a claim at a time, and claims do not wait for each
//! other. A change can take long, because the module waits for programs of the claim's own pod.

use crate::names::Uid;
use std::{
    collections::BTreeSet,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Longest wait for a turn. Who waits takes a thread from others, and the kubelet asks again.
const PATIENCE: Duration = Duration::from_secs(10);

/// The claims that are being changed.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    taken: Mutex<BTreeSet<Uid>>,
    /// Told when a turn ends.
    ended: Condvar,
}

/// The right to change a claim, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    uid: Uid,
}

impl Turns {
    fn taken(&self) -> MutexGuard<'_, BTreeSet<Uid>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, mut taken: MutexGuard<'_, BTreeSet<Uid>>, uid: &Uid) -> Option<Turn<'_>> {
        taken.insert(uid.clone()).then(|| Turn {
            turns: self,
            uid: uid.clone(),
        })
    }

    /// The turn at a claim, if it can be had soon.
    pub(crate) fn take(&self, uid: &Uid) -> Option<Turn<'_>> {
        let is_taken = |taken: &mut BTreeSet<Uid>| taken.contains(uid);
        let waited = self
            .ended
            .wait_timeout_while(self.taken(), PATIENCE, is_taken);
        let (taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.begin(taken, uid)
    }

    /// The turn at a claim, if it can be had now.
    pub(crate) fn take_now(&self, uid: &Uid) -> Option<Turn<'_>> {
        self.begin(self.taken(), uid)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.taken().remove(&self.uid);
        self.turns.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn uid(last: char) -> Uid {
        Uid::new(&format!("7b2ea4b2-0000-4000-8000-00000000000{last}")).expect("a uid")
    }

    #[test]
    fn a_claim_has_one_turn_at_once() {
        let (turns, at_once) = (Turns::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _turn = turns.take(&uid('a')).expect("in time");
                        assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        at_once.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(turns.taken().is_empty());
    }

    #[test]
    fn other_claims_do_not_wait() {
        let turns = Turns::default();
        let first = turns.take(&uid('a')).expect("taken");
        assert!(turns.take_now(&uid('a')).is_none());
        assert!(turns.take_now(&uid('b')).is_some());
        drop(first);
        assert!(turns.take_now(&uid('a')).is_some());
    }
}
