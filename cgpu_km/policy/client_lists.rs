// SPDX-License-Identifier: GPL-2.0
//! The handles of containers' clients: which one a new client gets.
//!
//! The driver has its clients in 1,024 lists, and the handle says in which one. Drivers 535 and 550
//! look for a client in its list without a lock (`_serverFindClientEntry()`, rs_server.c). If
//! another call takes a client out of that list meanwhile, the lookup may follow memory that is
//! free. It also takes longer with each client that it passes. So a client gets a list in which no
//! container has another one, as long as there is such a list.

use super::count::lower;
use crate::{
    nvidia::handle::ClientHandle,
    store::{
        Exhausted,
        List, //
    }, //
};

/// One of the driver's lists, as far as containers' clients are in it.
#[derive(Clone, Copy, Debug, Default)]
struct ClientList {
    /// Handles that are given and were not taken back.
    clients: u32,
    /// How many handles were given so far.
    given: u32,
}

/// The driver's lists, with the clients of all containers.
#[derive(Debug)]
pub struct ClientLists {
    lists: List<ClientList>,
    /// The list to look at first for the next client.
    next: usize,
}

impl ClientLists {
    /// Lists without a container's client.
    pub fn new() -> Result<Self, Exhausted> {
        // CAST: `usize` is wider.
        let lists = List::filled(ClientHandle::LISTS as usize, ClientList::default())?;
        Ok(Self { lists, next: 0 })
    }

    /// A handle for a new client, in a list with as few others as there is. The same handle comes
    /// again after all others of its list. `None` never happens: there are lists.
    pub fn give(&mut self) -> Option<ClientHandle> {
        let (before, from) = self.lists.split_at_checked(self.next)?;
        let in_turn = from.iter().chain(before);
        // The first one of those with the fewest; none has fewer than no client.
        let mut fewest: Option<(usize, u32)> = None;
        for (ahead, list) in in_turn.enumerate() {
            if fewest.is_none_or(|(_, clients)| list.clients < clients) {
                fewest = Some((ahead, list.clients));
            }
            if list.clients == 0 {
                break;
            }
        }
        let (ahead, _) = fewest?;
        let index = self
            .next
            .checked_add(ahead)?
            .checked_rem(self.lists.len())?;
        let list = self.lists.get_mut(index)?;
        let number = u32::try_from(index).ok()?;
        let handle = ClientHandle::chosen(list.given.wrapping_mul(ClientHandle::LISTS) | number);
        list.given = list.given.wrapping_add(1);
        list.clients = list.clients.saturating_add(1);
        self.next = index.checked_add(1)?.checked_rem(self.lists.len())?;
        Some(handle)
    }

    /// Takes a handle back that was given: there is no client that has it.
    pub fn take_back(&mut self, client: ClientHandle) {
        let index = usize::try_from(client.list()).ok();
        if let Some(list) = index.and_then(|index| self.lists.get_mut(index)) {
            lower(&mut list.clients, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const LISTS: u32 = ClientHandle::LISTS;

    fn lists_of(clients: &[ClientHandle]) -> usize {
        clients
            .iter()
            .map(|c| c.list())
            .collect::<BTreeSet<_>>()
            .len()
    }

    fn give(lists: &mut ClientLists, count: u32) -> Vec<ClientHandle> {
        (0..count).map(|_| lists.give().expect("lists")).collect()
    }

    #[test]
    fn clients_are_alone_in_their_lists() {
        let mut lists = ClientLists::new().expect("memory");
        let clients = give(&mut lists, LISTS);
        assert_eq!(lists_of(&clients), clients.len());
        let row = ClientHandle::chosen(0)..=ClientHandle::chosen(ClientHandle::COUNT - 1);
        assert!(clients.iter().all(|client| row.contains(client)));
    }

    /// Counting up comes to the list of the one that stays with the 1,024th.
    #[test]
    fn staying_client_keeps_its_list_alone() {
        let mut lists = ClientLists::new().expect("memory");
        let stays = lists.give().expect("lists");
        for _ in 0..3 * LISTS {
            let other = lists.give().expect("lists");
            assert_ne!(other.list(), stays.list());
            lists.take_back(other);
        }
    }

    #[test]
    fn more_clients_are_spread_evenly() {
        let mut lists = ClientLists::new().expect("memory");
        let clients = give(&mut lists, 5 * LISTS / 2);
        let mut counts = vec![0; LISTS as usize];
        for client in &clients {
            counts[client.list() as usize] += 1;
        }
        assert!(counts.iter().all(|count| (2..=3).contains(count)));
        // A list that becomes empty is the next one's.
        let in_first = clients.iter().filter(|c| c.list() == clients[7].list());
        for client in in_first {
            lists.take_back(*client);
        }
        assert_eq!(lists.give().expect("lists").list(), clients[7].list());
    }

    #[test]
    fn handle_comes_again_after_all_others() {
        let mut lists = ClientLists::new().expect("memory");
        let mut seen = BTreeSet::new();
        for _ in 0..ClientHandle::COUNT {
            let client = lists.give().expect("lists");
            assert!(seen.insert(client.0));
            lists.take_back(client);
        }
        assert_eq!(lists.give().expect("lists"), ClientHandle::chosen(0));
    }
}
