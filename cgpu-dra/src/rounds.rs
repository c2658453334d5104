// SPDX-License-Identifier: GPL-2.0 OR MIT
//! Turns round the peers: of those who wait each peer has one turn after the other, whichever has
//! come first. So who sends many requests holds up its own.

use std::{
    collections::BTreeMap,
    future::Future,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Semaphore;

/// Turns, of which one is taken at a time.
pub(crate) struct Rounds {
    /// For the first of each peer.
    turn: Semaphore,
    /// For which the others of the peer wait.
    peers: Mutex<BTreeMap<IpAddr, Arc<Semaphore>>>,
}

impl Default for Rounds {
    fn default() -> Self {
        Self {
            turn: Semaphore::new(1),
            peers: Mutex::default(),
        }
    }
}

/// A place in a peer's queue, which goes with the last of them.
struct Queued<'a> {
    rounds: &'a Rounds,
    peer: IpAddr,
    queue: Arc<Semaphore>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut peers = self.rounds.peers();
        // This one's, and the map's.
        if Arc::strong_count(&self.queue) <= 2 {
            peers.remove(&self.peer);
        }
    }
}

impl Rounds {
    fn peers(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Arc<Semaphore>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self, peer: IpAddr) -> Queued<'_> {
        let mut peers = self.peers();
        let queue = peers.entry(peer);
        let queue = queue.or_insert_with(|| Arc::new(Semaphore::new(1)));
        Queued {
            rounds: self,
            peer,
            queue: queue.clone(),
        }
    }

    /// Does something for a peer when it is its turn.
    pub(crate) async fn take<T>(&self, peer: IpAddr, work: impl Future<Output = T>) -> T {
        let queued = self.queue(peer);
        // Both are fair, and nobody closes them.
        let _own = queued.queue.acquire().await;
        let _turn = self.turn.acquire().await;
        work.await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::{net::Ipv4Addr, time::Duration};

    #[tokio::test]
    async fn peers_take_turns() {
        let (rounds, done) = (
            Arc::new(Rounds::default()),
            Arc::<Mutex<Vec<u8>>>::default(),
        );
        let mut waiting = Vec::new();
        for n in [1, 1, 1, 1, 2, 2, 3] {
            let (rounds, done) = (rounds.clone(), done.clone());
            let peer = Ipv4Addr::new(10, 0, 0, n).into();
            waiting.push(tokio::spawn(async move {
                let work = async {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    done.lock().expect("held").push(n);
                };
                rounds.take(peer, work).await;
            }));
            // They come in this order.
            tokio::task::yield_now().await;
        }
        for one in waiting {
            one.await.expect("ended");
        }
        let order = done.lock().expect("held").clone();
        let last = order.iter().rposition(|n| *n == 3).expect("there");
        assert!(last <= 4 && order.len() == 7, "{order:?}");
        assert!(rounds.peers().is_empty());
    }

    #[tokio::test]
    async fn who_goes_leaves_no_place() {
        let rounds = Rounds::default();
        let peer = Ipv4Addr::LOCALHOST.into();
        let mut first = Box::pin(rounds.take(peer, std::future::pending::<()>()));
        let mut second = Box::pin(rounds.take(peer, async {}));
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        drop(first);
        second.await;
        assert!(rounds.peers().is_empty());
    }
}
