// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Slots that no container uses any more: when they are to be put back. Pure: times in, names out.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    time::{Duration, Instant},
};

/// How long no container has to have a slot. A kubelet that has just started does not know of all
/// its pods yet.
pub const REST: Duration = Duration::from_secs(20);

/// The slots that no container has: since when, and whether they were put back since.
#[derive(Debug, Default)]
pub struct Unused(BTreeMap<String, (Instant, bool)>);

impl Unused {
    /// Of `all` slots those that are to be put back, if these are the `used` ones now.
    pub fn due(
        &mut self,
        all: impl IntoIterator<Item = String>,
        used: &BTreeSet<String>,
        now: Instant,
    ) -> BTreeSet<String> {
        let mut before = mem::take(&mut self.0);
        let mut due = BTreeSet::new();
        for id in all.into_iter().filter(|id| !used.contains(id)) {
            let (since, done) = before.remove(&id).unwrap_or((now, false));
            if !done && now.duration_since(since) >= REST {
                due.insert(id.clone());
            }
            self.0.insert(id, (since, done));
        }
        due
    }

    /// This one was put back. An operator may change it then for the next container.
    pub fn done(&mut self, id: &str) {
        if let Some((_, done)) = self.0.get_mut(id) {
            *done = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unused_slot_is_due_once() {
        let (mut unused, zero) = (Unused::default(), Instant::now());
        let all = || ["a", "b"].map(str::to_owned);
        let mut due = |used: &[&str], seconds| {
            let used = used.iter().map(|id| (*id).to_owned()).collect();
            let due = unused.due(all(), &used, zero + Duration::from_secs(seconds));
            due.iter().for_each(|id| unused.done(id));
            due.into_iter().collect::<Vec<_>>()
        };
        let nothing: [&str; 0] = [];
        assert_eq!(due(&["a"], 0), nothing);
        assert_eq!(due(&["a"], 19), nothing);
        assert_eq!(due(&["a"], 20), ["b"]);
        // Its container has ended.
        assert_eq!(due(&[], 30), nothing);
        assert_eq!(due(&["b"], 49), nothing);
        assert_eq!(due(&["b"], 50), ["a"]);
        assert_eq!(due(&[], 60), nothing);
        assert_eq!(due(&[], 80), ["b"]);
    }

    #[test]
    fn one_that_could_not_be_stays_due() {
        let (mut unused, zero) = (Unused::default(), Instant::now());
        let mut due = |seconds| {
            let at = zero + Duration::from_secs(seconds);
            unused.due(["a".to_owned()], &BTreeSet::new(), at).len()
        };
        assert_eq!([0, 20, 22].map(&mut due), [0, 1, 1]);
    }
}
