// SPDX-License-Identifier: GPL-2.0
//! The end of an RM object: what it had is given back, with all that is below it.

use super::{
    is_scheduled,
    Forest, //
};
use crate::{
    nvidia::class::Kind,
    policy::{
        boost::Boost,
        channels::{
            ChannelEvent,
            Noted, //
        },
        charge::Accounts,
        count::lower,
        object::{
            Ended,
            HandleEntry,
            Object,
            ObjectLife, //
        },
        records::RecordId,
        steps::step, //
    },
    uapi::Limited, //
};

impl Forest {
    /// Takes an object away with everything below it. Objects that are still coming go to the
    /// client's root, or are left without a client if the client itself goes.
    pub(in crate::policy) fn fell(&mut self, top: RecordId, accounts: &mut Accounts) {
        self.forget_preemption(top);
        self.detach(top);
        let mut at = top;
        loop {
            step();
            let Some(object) = self.objects.get(at) else {
                return;
            };
            if let Some(child) = object.child {
                match self.objects.get(child).map(|child| child.life) {
                    Some(ObjectLife::Here) => at = child,
                    _ => {
                        self.detach(child);
                        self.rehome(child, top);
                    }
                }
                continue;
            }
            let up = object.parent;
            if up.is_some() {
                self.detach(at);
            }
            self.uproot(at, accounts);
            match up {
                Some(parent) => at = parent,
                None => return,
            }
        }
    }

    /// The parent of an object that is still coming is gone, as part of all below `top`.
    fn rehome(&mut self, id: RecordId, top: RecordId) {
        let Some(object) = self.objects.get_mut(id) else {
            return;
        };
        let client = object.owner.and_then(|owner| self.clients.get(owner));
        let root = client.map(|client| client.root);
        if let Some(root) = root.filter(|&root| root != top) {
            self.attach(id, root);
            return;
        }
        object.owner = None;
    }

    /// Takes one object away that nothing is below of and that is below nothing.
    pub(in crate::policy) fn uproot(&mut self, id: RecordId, accounts: &mut Accounts) {
        self.end_wishes(id, accounts);
        let Some(ended) = self.objects.get_mut(id).map(Object::end) else {
            return;
        };
        self.tell_end(&ended);
        if let Some(hold) = ended.hold {
            accounts.release(hold);
        }
        self.end_shown(id);
        let mapped = self.mapped.end(id);
        accounts.uncount(ended.share, ended.kind);
        let ledgers = &mut accounts.ledgers;
        ledgers.uncount(ended.share, Limited::Bar1, ended.bar1);
        ledgers.uncount(ended.share, Limited::Objects, ended.records);
        ledgers.uncount(ended.share, Limited::Objects, mapped);
        self.leave_share(&ended, accounts);
        if let Some(owner) = ended.owner {
            if self.clients.get(owner).is_some_and(|c| c.root == id) {
                self.remove_client(owner, accounts);
            }
        }
        self.forget_channel_memory(id);
        self.bury(id);
    }

    /// Ends what an object wants of others: a client's addresses, a boost.
    fn end_wishes(&mut self, id: RecordId, accounts: &mut Accounts) {
        let Some(object) = self.objects.get(id) else {
            return;
        };
        let is_boosting = object.boost() != Boost::OFF;
        if object.kind == Kind::Device {
            self.forget_share(id);
        }
        if is_boosting {
            self.set_boost(id, Boost::OFF, accounts);
        }
    }

    /// Notes for the scheduler that a channel or a group is gone, if it was there.
    fn tell_end(&mut self, ended: &Ended) {
        if !is_scheduled(ended.kind) {
            return;
        }
        if let Some(share) = ended.share.filter(|_| ended.was_here) {
            self.channels.note(Noted {
                share,
                client: ended.client,
                object: ended.handle,
                what: ChannelEvent::Gone,
            });
        }
        self.channels.forget();
    }

    /// No file shows an object any more: the call that had the driver free it has ended its
    /// mappings before.
    fn end_shown(&mut self, id: RecordId) {
        while let Some(file) = self.shown.file_of(id) {
            debug_assert!(false, "a mapping outlives its object");
            self.shown.remove(file);
        }
    }

    /// The ledger of an object's GPU has one object less, and with a client's last device one
    /// client less.
    fn leave_share(&mut self, ended: &Ended, accounts: &mut Accounts) {
        let Some(share) = ended.share else {
            return;
        };
        let Some(ledger) = accounts.ledgers.get_mut(share) else {
            return;
        };
        ledger.leave();
        if ended.was_polled {
            ledger.polls.end();
        }
        if !ended.was_here {
            return;
        }
        lower(&mut ledger.objects, 1);
        let owner = ended.owner.filter(|_| ended.kind == Kind::Device);
        let client = owner.and_then(|owner| self.clients.get_mut(owner));
        if let Some(devices) = client.and_then(|client| client.devices.get_mut(share.index())) {
            lower(devices, 1);
            if *devices == 0 {
                lower(&mut ledger.clients, 1);
            }
        }
    }

    /// Removes an object that is gone, unless a call in flight still names it.
    #[inline]
    pub(super) fn bury(&mut self, id: RecordId) {
        let free = |object: &Object| object.life == ObjectLife::Gone && object.named == 0;
        if self.objects.get(id).is_some_and(free) {
            self.remove_object(id);
        }
    }

    #[inline(never)] // Most objects whose name is released stay.
    fn remove_object(&mut self, id: RecordId) {
        self.strike(id);
        self.objects.remove(id);
    }

    /// Takes the entry of an object, or its promise, back.
    fn strike(&mut self, id: RecordId) {
        let Some(object) = self.objects.get_mut(id) else {
            return;
        };
        match core::mem::replace(&mut object.entry, HandleEntry::None) {
            HandleEntry::Made => {
                let key = object.key();
                self.by_handle.remove(key);
            }
            HandleEntry::Promised => self.by_handle.forget_promise(),
            HandleEntry::None => {}
        }
    }

    fn remove_client(&mut self, id: RecordId, accounts: &mut Accounts) {
        let Some(client) = self.clients.remove(id) else {
            return;
        };
        if let Some(next) = client.next.and_then(|next| self.clients.get_mut(next)) {
            next.previous = client.previous;
        }
        match (client.previous, client.next) {
            (Some(previous), next) => {
                if let Some(previous) = self.clients.get_mut(previous) {
                    previous.next = next;
                }
            }
            (None, Some(next)) => self.by_file.set(client.file.0, next),
            (None, None) => self.by_file.remove(client.file.0),
        }
        let root = self.objects.get(client.root);
        // One that the driver was asked for in vain has none.
        let handle = root.map(|root| root.client).filter(|handle| handle.0 != 0);
        if let Some(handle) = handle.filter(|_| self.gone.room() > 0) {
            // There is room.
            let _ = self.gone.push(handle);
        }
        accounts.processes.part(client.process);
    }
}
