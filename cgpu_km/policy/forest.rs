// SPDX-License-Identifier: GPL-2.0
//! The RM objects of a tenant: one tree per client, as the driver has it.
//!
//! An object is found by its client and handle in constant time; the objects below it hang from it
//! in a list whose links are in the objects. Clients hang in the same way from the file that they
//! were made on. To free an object is to walk what is below it, without recursion.
//!
//! While a call is in flight, each name (client and handle) that it uses is held: what it names may
//! go, but nothing else can come to have that name before the call ends. So a name means the same
//! at the beginning of a call, when the driver executes it, and at its end.

mod channel_memory;
mod end;
mod named;
mod preemption;
mod sharing;
mod shown;
mod told;

use crate::{
    nvidia::{
        class::Kind,
        handle::{
            ClientHandle,
            ObjectHandle, //
        }, //
    },
    policy::{
        boost::Boost,
        channels::{
            ChannelEvent,
            Journal,
            Noted, //
        },
        charge::Accounts,
        count::lower,
        cpu_mapping::CpuMappings,
        ids::{
            FileId,
            MAX_SHARES, //
        },
        mapping_records::MappingRecords,
        object::{
            key_of,
            Client,
            HandleEntry,
            Object,
            ObjectLife, //
        },
        record_table::RecordTable,
        records::{
            Named,
            RecordId,
            Records,
            Ref, //
        },
        steps::step, //
    },
    store::{
        Exhausted,
        List, //
    }, //
};

/// The clients and objects of a tenant.
#[derive(Debug)]
pub(super) struct Forest {
    pub(super) objects: Named<Object>,
    pub(super) clients: Records<Client>,
    /// The changes of channels that were not taken yet.
    pub(super) channels: Journal,
    /// Clients that are gone, and were not taken yet. There is room for all that are here.
    pub(super) gone: List<ClientHandle>,
    /// How often it was another boost that the tenant wants, on any GPU.
    pub(super) boost_changes: u64,
    /// Which file shows which object.
    pub(super) shown: CpuMappings,
    /// The mappings of each object, as far as the driver keeps something of them.
    pub(super) mapped: MappingRecords,
    /// The names (client and handle) of frees in flight that began when nothing had the name.
    freeing: Records<u64>,
    /// Objects that calls in flight keep.
    kept: Records<RecordId>,
    /// The objects that a channel uses, by the channel's place and what for.
    channel_memory: RecordTable,
    /// The client whose addresses a device of another one uses, by the device's place.
    shared: RecordTable,
    by_handle: RecordTable,
    /// First client of each file.
    by_file: RecordTable,
}

/// The handles among which we choose where the caller leaves the choice to the driver: as many as
/// the driver would choose from, and just behind those, since it also makes objects of its own in a
/// client, of which the accounting does not know.
const FIRST_CHOICE: u32 = ObjectHandle::AFTER_DRIVER.0;
const CHOICES: u32 = ObjectHandle::COUNT_OF_DRIVER;

/// Whether the GPU's time is given to such objects.
pub(super) fn is_scheduled(kind: Kind) -> bool {
    matches!(kind, Kind::Channel | Kind::ChannelGroup)
}

impl Forest {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            objects: Named::new(),
            clients: Records::new(),
            channels: Journal::default(),
            gone: List::new(),
            boost_changes: 0,
            shown: CpuMappings::new(seed),
            mapped: MappingRecords::new(seed),
            freeing: Records::new(),
            kept: Records::new(),
            channel_memory: RecordTable::new(seed),
            shared: RecordTable::new(seed),
            by_handle: RecordTable::new(seed),
            by_file: RecordTable::new(seed),
        }
    }

    /// Makes room for one more object and one more client, so that planting them cannot fail.
    pub(super) fn reserve(&mut self) -> Result<(), Exhausted> {
        self.objects.reserve()?;
        self.clients.reserve()?;
        self.by_handle.reserve()?;
        self.by_file.reserve()
    }

    /// A handle that no object of the client has, for a caller that leaves the choice to the
    /// driver: the one that the driver would choose (rs_client.c, `clientGenResourceHandle_IMPL`).
    /// The driver is then asked for it by name, so that no call in flight is without one. `None`:
    /// all are taken.
    pub(super) fn choose(&mut self, client: ClientHandle) -> Option<ObjectHandle> {
        let owner = self.objects.get(self.find_root(client)?)?.owner?;
        let mut choice = self.clients.get(owner)?.next_choice;
        for _ in 0..CHOICES {
            step();
            let handle = ObjectHandle(FIRST_CHOICE + choice % CHOICES);
            choice = choice.wrapping_add(1) % CHOICES;
            if handle.0 != client.0 && !self.is_taken(client, handle) {
                self.clients.get_mut(owner)?.next_choice = choice;
                return Some(handle);
            }
        }
        None
    }

    /// Adds an object that the driver is about to be asked for, below `parent`.
    pub(super) fn plant(
        &mut self,
        object: Object,
        parent: RecordId,
    ) -> Result<RecordId, Exhausted> {
        let scheduled = is_scheduled(object.kind);
        if scheduled {
            self.channels.announce();
        }
        let entered = self.enter(object);
        if scheduled && entered.is_err() {
            self.channels.forget();
        }
        let id = entered?;
        self.attach(id, parent);
        Ok(id)
    }

    /// Adds a client that the driver is about to be asked for.
    pub(super) fn plant_client(
        &mut self,
        object: Object,
        file: FileId,
        process: RecordId,
    ) -> Result<RecordId, Exhausted> {
        self.reserve()?;
        let room = self.clients.len().saturating_add(1);
        self.gone.reserve(room.saturating_sub(self.gone.len()))?;
        let root = self.enter(object)?;
        let next = self.by_file.get(file.0);
        let owner = self.clients.insert(Client {
            file,
            process,
            root,
            closed: false,
            next_choice: 0,
            shares: 0,
            users: 0,
            devices: [0; MAX_SHARES],
            told: [0; MAX_SHARES],
            previous: None,
            next,
        })?;
        match next {
            Some(next) => {
                if let Some(next) = self.clients.get_mut(next) {
                    next.previous = Some(owner);
                }
                self.by_file.set(file.0, owner);
            }
            None => self.by_file.insert(file.0, owner)?,
        }
        if let Some(root) = self.objects.get_mut(root) {
            root.owner = Some(owner);
        }
        Ok(root)
    }

    /// Takes an object up, for which there is [room](Forest::reserve), under the handle that its
    /// caller chose, or promises an entry for the one that the driver will choose.
    fn enter(&mut self, mut object: Object) -> Result<RecordId, Exhausted> {
        if object.handle.0 == 0 {
            self.by_handle.promise()?;
            object.entry = HandleEntry::Promised;
            self.objects.insert(object)
        } else {
            let key = object.key();
            object.entry = HandleEntry::Made;
            let id = self.objects.insert(object)?;
            self.by_handle.insert(key, id)?;
            Ok(id)
        }
    }

    /// The driver has made the object, under the handle `told` where the choice was its own.
    pub(super) fn arrive(&mut self, id: RecordId, told: ObjectHandle, accounts: &mut Accounts) {
        let Some(object) = self.objects.get(id) else {
            return;
        };
        if object.owner.is_none() {
            // Its client went with all that was in it. The name of a client that a call in flight
            // uses is held, so no other one has it.
            self.uproot(id, accounts);
            return;
        }
        if object.entry == HandleEntry::Promised && !self.name(id, told) {
            self.uproot(id, accounts);
            return;
        }
        self.settle(id, accounts);
    }

    /// Gives a client the handle that the driver chose; whether it can have it. The driver gives a
    /// handle to one client at a time, and again only after all others (rs_server.c,
    /// `_serverCreateEntryAndLockForNewClient`). So where a client is here that has it, the output
    /// is not the driver's: the program has overwritten it, and must not get rid of that client's
    /// charges.
    fn name(&mut self, id: RecordId, told: ObjectHandle) -> bool {
        let key = key_of(ClientHandle(told.0), told);
        let former = self.by_handle.get(key);
        let gone = |former| {
            let object = self.objects.get(former);
            object.is_none_or(|object| object.life == ObjectLife::Gone)
        };
        if !former.is_none_or(gone) {
            return false;
        }
        let Some(object) = self.objects.get_mut(id) else {
            return false;
        };
        object.client = ClientHandle(told.0);
        object.handle = told;
        match former {
            None => self.by_handle.insert_promised(key, id),
            Some(held) => {
                self.by_handle.forget_promise();
                self.by_handle.set(key, id);
                self.set_entry(held, HandleEntry::None);
            }
        }
        self.set_entry(id, HandleEntry::Made);
        true
    }

    fn set_entry(&mut self, id: RecordId, entry: HandleEntry) {
        if let Some(object) = self.objects.get_mut(id) {
            object.entry = entry;
        }
    }

    /// The object is there from now on.
    fn settle(&mut self, id: RecordId, accounts: &mut Accounts) {
        let Some(object) = self.objects.get_mut(id) else {
            return;
        };
        object.life = ObjectLife::Here;
        let owner = object.owner;
        self.came(id, accounts);
        let Some(object) = self.objects.get(id) else {
            return;
        };
        if let Some(share) = object.share {
            let ledger = accounts.ledgers.get_mut(share);
            let devices = owner
                .filter(|_| object.kind == Kind::Device)
                .and_then(|owner| self.clients.get_mut(owner)?.devices.get_mut(share.index()));
            if let Some(ledger) = ledger {
                ledger.objects += 1;
                if let Some(devices) = devices {
                    if *devices == 0 {
                        ledger.clients += 1;
                    }
                    *devices = devices.saturating_add(1);
                }
            }
        }
        let client = owner.and_then(|owner| self.clients.get(owner));
        let Some(client) = client.filter(|client| client.root == id) else {
            return;
        };
        if client.closed {
            self.fell(id, accounts);
        }
    }

    /// Notes that a channel is there.
    fn came(&mut self, id: RecordId, accounts: &Accounts) {
        let Some(object) = self.objects.get(id) else {
            return;
        };
        let (Kind::Channel, Some(share)) = (object.kind, object.share) else {
            return;
        };
        let parent = object.parent.and_then(|parent| self.objects.get(parent));
        let group = parent.filter(|parent| parent.kind == Kind::ChannelGroup);
        let client = object.owner.and_then(|owner| self.clients.get(owner));
        let process = client.and_then(|client| accounts.processes.pid(client.process));
        let Some(process) = process else {
            return;
        };
        self.channels.note(Noted {
            share,
            client: object.client,
            object: object.handle,
            what: ChannelEvent::Made {
                group: group.map_or(object.handle, |group| group.handle),
                compute: object.is_compute_channel,
                process,
            },
        });
    }

    /// A subdevice wants this boost from now on.
    pub(super) fn set_boost(&mut self, id: RecordId, boost: Boost, accounts: &mut Accounts) {
        let Some(object) = self.objects.get_mut(id) else {
            return;
        };
        let share = object.share;
        let ledger = share.and_then(|share| accounts.ledgers.get_mut(share));
        if let Some(ledger) = ledger {
            let before = object.boost();
            object.ask(u64::from(boost.number()));
            let changed = ledger.boosters.replace(before, boost);
            self.boost_changes = self.boost_changes.wrapping_add(u64::from(changed));
        }
    }

    /// Calls `work` with each of the clients that were made on a file.
    pub(super) fn clients_of(&self, file: FileId, mut work: impl FnMut(ClientHandle)) {
        let mut at = self.by_file.get(file.0);
        while let Some(client) = at.and_then(|id| self.clients.get(id)) {
            at = client.next;
            if let Some(root) = self.objects.get(client.root) {
                work(root.client);
            }
        }
    }

    /// The clients that were made on a file go with it.
    pub(super) fn close_file(&mut self, file: FileId, accounts: &mut Accounts) {
        let mut at = self.by_file.get(file.0);
        while let Some(client) = at.and_then(|id| self.clients.get_mut(id)) {
            at = client.next;
            let root = client.root;
            match self.objects.get(root).map(|root| root.life) {
                Some(ObjectLife::Here) => self.fell(root, accounts),
                _ => client.closed = true,
            }
        }
    }

    /// A call in flight uses the name of this object: it is held until [`Forest::release_name`].
    pub(super) fn hold_name(&mut self, id: RecordId) -> Option<Ref> {
        let object = self.objects.get_mut(id)?;
        object.named = object.named.saturating_add(1);
        self.objects.name(id)
    }

    /// A call that used the name of this object is over.
    pub(super) fn release_name(&mut self, name: Ref) {
        let Some(id) = self.objects.find(name) else {
            return;
        };
        if let Some(object) = self.objects.get_mut(id) {
            lower(&mut object.named, 1);
        }
        self.bury(id);
    }

    fn attach(&mut self, id: RecordId, parent: RecordId) {
        let next = self.objects.get(parent).and_then(|parent| parent.child);
        if let Some(next) = next.and_then(|next| self.objects.get_mut(next)) {
            next.previous = Some(id);
        }
        if let Some(parent) = self.objects.get_mut(parent) {
            parent.child = Some(id);
        }
        if let Some(object) = self.objects.get_mut(id) {
            object.parent = Some(parent);
            object.previous = None;
            object.next = next;
        }
    }

    pub(super) fn detach(&mut self, id: RecordId) {
        let Some(object) = self.objects.get_mut(id) else {
            return;
        };
        let parent = object.parent.take();
        let previous = object.previous.take();
        let next = object.next.take();
        if let Some(next) = next.and_then(|next| self.objects.get_mut(next)) {
            next.previous = previous;
        }
        match (previous, parent) {
            (Some(previous), _) => {
                if let Some(previous) = self.objects.get_mut(previous) {
                    previous.next = next;
                }
            }
            (None, Some(parent)) => {
                if let Some(parent) = self.objects.get_mut(parent) {
                    parent.child = next;
                }
            }
            (None, None) => {}
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let nothing_mapped = self.shown.is_empty() && self.mapped.is_empty();
        self.objects.len() == 0 && self.clients.len() == 0 && nothing_mapped
    }
}
