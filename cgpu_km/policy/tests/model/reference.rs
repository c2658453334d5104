// SPDX-License-Identifier: GPL-2.0
//! The accounting of RM objects in its simplest form: the specification of the ledger.
//!
//! Objects, clients and costs stand in plain maps, and every sum is computed anew. A call that
//! makes something is an event when it begins and one when the driver has answered it. In between
//! it is in flight, and other events happen.

use super::step::{
    GPUS,
    MOST_CHANNELS,
    MOST_HOST, //
};
use crate::{
    nvidia::status::NvStatus,
    policy::tests::*, //
};
use std::collections::BTreeMap;

/// Objects are numbered in the order in which they are asked for. A client has the number of the
/// object that stands for it, a cost that of the object which was allocated.
type Number = usize;

/// Client and handle; handle 0: the driver has not named it yet.
type ObjectName = (ClientHandle, ObjectHandle);

/// An act of a program or of the driver.
#[derive(Clone, Copy, Debug)]
pub(super) enum ModelEvent {
    /// An object is asked for, or a client ([`Kind::Root`]).
    Alloc(Alloc),
    /// A copy of an object is asked for.
    Dup {
        client: ClientHandle,
        parent: ObjectHandle,
        object: ObjectHandle,
        source: ObjectName,
    },
    /// The driver answers the call in flight at this place; `None`: it refuses.
    End(usize, Option<AllocDone>),
    /// An object is freed with all below it, or with the client's own handle a client.
    Free(ClientHandle, ObjectHandle),
    /// A file is closed, and with it go the clients that were made on it.
    Close(FileId),
    /// A share gets another limit.
    Limit(GpuId, u64),
}

/// The accounting's right answer to an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Expected {
    /// The call is refused with this status, and nothing has changed.
    Refused(NvStatus),
    /// The call is in flight, at the last place.
    Begun,
    /// It has happened.
    Done,
}

#[derive(Clone, Debug)]
pub(super) struct ModelObject {
    /// `None`: its client is gone.
    client: Option<Number>,
    pub(super) name: ObjectName,
    parent: Option<Number>,
    pub(super) kind: Kind,
    pub(super) gpu: Option<GpuId>,
    cost: Option<Number>,
    /// The driver has made it.
    pub(super) here: bool,
}

#[derive(Clone, Debug)]
pub(super) struct ModelClient {
    pub(super) file: FileId,
    process: ProcessId,
    /// Its file was closed while it was made.
    closed: bool,
}

#[derive(Clone, Debug)]
struct ModelCost {
    gpu: GpuId,
    bytes: u64,
    /// Bytes of the host's memory, where it is that.
    host: u64,
    /// Bytes in the pools of a group, or of a channel without one.
    pools: u64,
    context: bool,
    /// Its runlist, and how many groups and channels it is there.
    ids: (u32, u64, u64),
    /// Of a channel: the cost of its group.
    within: Option<Number>,
    /// The driver has given it; until then it is reserved.
    given: bool,
    /// Objects that hold it, the oldest first, and their processes.
    holders: Vec<(Number, ProcessId)>,
}

#[derive(Clone, Debug)]
struct ModelShare {
    limit: u64,
    peak: u64,
    overhead_peak: u64,
    refused: u64,
    channels_refused: u64,
    /// The limit was lowered below what is taken, or the driver gave more than was asked.
    excused: bool,
}

/// A call in flight.
pub(super) struct ModelFlight {
    /// The object that it makes.
    pub(super) object: Number,
    /// The names that it uses, which nothing else can get.
    names: Vec<ObjectName>,
    /// It makes a copy, for which the driver says no size.
    pub(super) copies: bool,
    /// Bytes that were asked for.
    pub(super) asked: u64,
}

/// All that a tenant owns.
pub(super) struct Reference {
    shares: BTreeMap<u32, ModelShare>,
    pub(super) objects: BTreeMap<Number, ModelObject>,
    pub(super) clients: BTreeMap<Number, ModelClient>,
    costs: BTreeMap<Number, ModelCost>,
    pub(super) flights: Vec<ModelFlight>,
    last: Number,
}

/// Bytes that contexts cost: 7,744 KiB the first, 4,416 KiB each further one.
fn price(contexts: u64) -> u64 {
    match contexts {
        0 => 0,
        some => (7744 + 4416 * (some - 1)) << 10,
    }
}

/// Bytes that a channel takes in the pools of its group.
const CHANNEL: u64 = 64 << 10;

/// The runlist of an engine, and whether a group for it is a context. The second GPU has one for
/// all, and does compute with all.
fn engine(gpu: GpuId, engine: u32) -> (u32, bool) {
    if gpu == GPUS[1] || engine == COMPUTE {
        (0, true)
    } else {
        (engine, false)
    }
}

impl Reference {
    /// A tenant with a share of each of these GPUs, of `limit` bytes.
    pub(super) fn new(gpus: &[GpuId], limit: u64) -> Self {
        let share = ModelShare {
            limit,
            peak: 0,
            overhead_peak: 0,
            refused: 0,
            channels_refused: 0,
            excused: false,
        };
        Self {
            shares: gpus.iter().map(|gpu| (gpu.0, share.clone())).collect(),
            objects: BTreeMap::new(),
            clients: BTreeMap::new(),
            costs: BTreeMap::new(),
            flights: Vec::new(),
            last: 0,
        }
    }

    /// Applies an event.
    pub(super) fn apply(&mut self, event: &ModelEvent) -> Expected {
        let result = match *event {
            ModelEvent::Alloc(alloc) if alloc.kind == Kind::Root => self.begin_client(&alloc),
            ModelEvent::Alloc(alloc) => self.begin_alloc(&alloc),
            ModelEvent::Dup {
                client,
                parent,
                object,
                source,
            } => self.begin_dup((client, object), parent, source),
            ModelEvent::End(place, done) => {
                self.end(place, done);
                return Expected::Done;
            }
            ModelEvent::Free(client, object) => {
                let found = self.find((client, object));
                if let Some(object) = found.filter(|_| self.client(client).is_some()) {
                    self.fell(object);
                }
                return Expected::Done;
            }
            ModelEvent::Close(file) => {
                self.close(file);
                return Expected::Done;
            }
            ModelEvent::Limit(gpu, limit) => {
                self.share_mut(gpu).limit = limit;
                self.excuse(gpu);
                return Expected::Done;
            }
        };
        result.map_or_else(Expected::Refused, |()| Expected::Begun)
    }

    /// The caller left the handle of the object that is asked for last to the accounting, which has
    /// chosen this one: any that is free.
    pub(super) fn choose(&mut self, handle: ObjectHandle) {
        let object = self.objects.get(&self.last).expect("just asked for");
        let name = (object.name.0, handle);
        assert!(!self.is_taken(name), "{name:?} is taken");
        self.object_mut(self.last).name = name;
    }

    fn begin_client(&mut self, alloc: &Alloc) -> Result<(), NvStatus> {
        let name = (ClientHandle(alloc.object.0), alloc.object);
        if alloc.object.0 != 0 && self.is_taken(name) {
            return Err(NvStatus::NV_ERR_INSERT_DUPLICATE_NAME);
        }
        let number = self.add(name, None, Kind::Root);
        self.object_mut(number).client = Some(number);
        let client = ModelClient {
            file: alloc.file,
            process: alloc.process,
            closed: false,
        };
        self.clients.insert(number, client);
        self.fly(number, vec![], false, 0);
        Ok(())
    }

    fn begin_alloc(&mut self, alloc: &Alloc) -> Result<(), NvStatus> {
        let name = (alloc.client, alloc.object);
        if self.client(alloc.client).is_none() {
            return Err(NvStatus::NV_ERR_INVALID_OBJECT_HANDLE);
        }
        let parent = self.find((alloc.client, alloc.parent));
        let parent = parent.ok_or(NvStatus::NV_ERR_OBJECT_NOT_FOUND)?;
        self.check_handle(name)?;
        let gpu = match (alloc.kind, alloc.device_instance.map(GpuId)) {
            (Kind::Device, Some(gpu)) if self.shares.contains_key(&gpu.0) => Some(gpu),
            (Kind::Device, _) => return Err(NvStatus::NV_ERR_INSUFFICIENT_PERMISSIONS),
            _ => self.objects[&parent].gpu,
        };
        let costs = alloc.bytes > 0 || alloc.host > 0 || alloc.engine.is_some();
        let mut cost = None;
        if costs {
            let gpu = gpu.ok_or(NvStatus::NV_ERR_INVALID_OBJECT_PARENT)?;
            let group = alloc.kind == Kind::Channel;
            let group = group && self.objects[&parent].kind == Kind::ChannelGroup;
            let group = self.objects[&parent].cost.filter(|_| group);
            let wanted = self.cost(gpu, alloc, group);
            if wanted.host > 0 && self.host(gpu) + wanted.host > MOST_HOST {
                return Err(NvStatus::NV_ERR_NO_MEMORY);
            }
            self.check_ids(gpu, wanted.ids)?;
            let channels = self.costs.values().filter(|cost| cost.within == group);
            let channels = channels.count() as u64 + 1;
            let had = group.map_or(0, |group| self.costs[&group].pools);
            let more = group.map_or(0, |_| (channels * CHANNEL).saturating_sub(had));
            if self.wanted(gpu, &wanted) + more > self.free(gpu) {
                self.share_mut(gpu).refused += 1;
                return Err(NvStatus::NV_ERR_NO_MEMORY);
            }
            if let Some(group) = group {
                self.costs.get_mut(&group).expect("is there").pools += more;
                self.raise_peaks(gpu);
            }
            cost = Some(wanted);
        }
        let number = self.add(name, Some(parent), alloc.kind);
        self.object_mut(number).gpu = gpu;
        if let Some(mut cost) = cost {
            cost.holders.push((number, self.process_of(number)));
            self.costs.insert(number, cost);
            self.object_mut(number).cost = Some(number);
        }
        let names = vec![root(alloc.client), (alloc.client, alloc.parent)];
        self.fly(number, names, false, alloc.bytes + alloc.host);
        Ok(())
    }

    /// A copy shares what its source costs.
    fn begin_dup(
        &mut self,
        name: ObjectName,
        parent: ObjectHandle,
        source: ObjectName,
    ) -> Result<(), NvStatus> {
        let client = name.0;
        if self.client(client).is_none() || self.client(source.0).is_none() {
            return Err(NvStatus::NV_ERR_INVALID_OBJECT_HANDLE);
        }
        let from = self.find(source);
        let from = from.ok_or(NvStatus::NV_ERR_OBJECT_NOT_FOUND)?;
        let from = self.objects[&from].clone();
        if !from.kind.is_copyable() {
            return Err(NvStatus::NV_ERR_INVALID_ARGUMENT);
        }
        let below = self.find((client, parent));
        let below = below.ok_or(NvStatus::NV_ERR_OBJECT_NOT_FOUND)?;
        if self.objects[&below].gpu != from.gpu {
            return Err(NvStatus::NV_ERR_INVALID_DEVICE);
        }
        self.check_handle(name)?;
        let number = self.add(name, Some(below), from.kind);
        self.object_mut(number).cost = from.cost;
        let process = self.process_of(number);
        if let Some(cost) = from.cost.and_then(|cost| self.costs.get_mut(&cost)) {
            cost.holders.push((number, process));
        }
        self.fly(
            number,
            vec![root(client), (client, parent), source],
            true,
            0,
        );
        Ok(())
    }

    fn end(&mut self, place: usize, done: Option<AllocDone>) {
        let flight = self.flights.swap_remove(place);
        let number = flight.object;
        let Some(done) = done else {
            self.remove(number);
            return;
        };
        let object = self.objects[&number].clone();
        let own_cost = object.cost.filter(|_| !flight.copies);
        if let Some(cost) = own_cost.and_then(|cost| self.costs.get_mut(&cost)) {
            cost.given = true;
            // The driver's size can raise a charge, never lower it. It tells none of groups and
            // channels.
            if cost.host > 0 {
                cost.host = cost.host.max(done.bytes);
            } else if cost.ids.1 + cost.ids.2 == 0 {
                cost.bytes = cost.bytes.max(done.bytes);
            }
            let gpu = cost.gpu;
            self.raise_peaks(gpu);
            self.excuse(gpu);
        }
        self.object_mut(number).here = true;
        if object.kind == Kind::Root {
            // The driver's choice, where the caller left it to the driver.
            self.object_mut(number).name = root(ClientHandle(done.object.0));
            if self.clients[&number].closed {
                self.fell(number);
            }
        } else if object.client.is_none() {
            // Its client went while it was made.
            self.remove(number);
        }
    }

    fn close(&mut self, file: FileId) {
        let of_file = self
            .clients
            .iter()
            .filter(|(_, client)| client.file == file);
        let numbers: Vec<Number> = of_file.map(|(&number, _)| number).collect();
        for number in numbers {
            if self.objects[&number].here {
                self.fell(number);
            } else {
                self.clients.get_mut(&number).expect("is there").closed = true;
            }
        }
    }

    /// Takes an object away with all below it. What is still coming stays: below its client, if
    /// that is not what goes.
    fn fell(&mut self, top: Number) {
        let root = self.objects[&top].client.filter(|&root| root != top);
        let below = self.objects.iter().filter(|(_, o)| o.parent == Some(top));
        let below: Vec<Number> = below.map(|(&number, _)| number).collect();
        for number in below {
            if self.objects[&number].here {
                self.fell(number);
            } else {
                self.object_mut(number).parent = root;
            }
        }
        if root.is_none() {
            for object in self.objects.values_mut() {
                if object.client == Some(top) {
                    object.client = None;
                    object.parent = None;
                }
            }
        }
        self.remove(top);
    }

    /// A cost goes with the last object that holds it.
    fn remove(&mut self, number: Number) {
        let object = self.objects.remove(&number).expect("is there");
        self.clients.remove(&number);
        let Some((place, cost)) = object.cost.map(|c| (c, self.costs.get_mut(&c).unwrap())) else {
            return;
        };
        cost.holders.retain(|holder| holder.0 != number);
        self.settle(place);
    }

    /// A cost goes when nothing holds it, a group's also no channel's cost.
    fn settle(&mut self, place: Number) {
        let cost = &self.costs[&place];
        let (gpu, within) = (cost.gpu, cost.within);
        let mut others = self.costs.values();
        if cost.holders.is_empty() && !others.any(|other| other.within == Some(place)) {
            self.costs.remove(&place);
            self.excuse(gpu);
            if let Some(group) = within {
                self.settle(group);
            }
        }
    }

    fn add(&mut self, name: ObjectName, parent: Option<Number>, kind: Kind) -> Number {
        self.last += 1;
        let object = ModelObject {
            client: self.client(name.0),
            name,
            parent,
            kind,
            gpu: parent.and_then(|parent| self.objects[&parent].gpu),
            cost: None,
            here: false,
        };
        self.objects.insert(self.last, object);
        self.last
    }

    fn fly(&mut self, object: Number, names: Vec<ObjectName>, copies: bool, asked: u64) {
        self.flights.push(ModelFlight {
            object,
            names,
            copies,
            asked,
        });
    }

    /// The object that the driver has under a name.
    pub(super) fn find(&self, name: ObjectName) -> Option<Number> {
        let named = |object: &ModelObject| object.here && object.name == name;
        let found = self.objects.iter().find(|(_, object)| named(object));
        found.map(|(&number, _)| number).filter(|_| name.1 .0 != 0)
    }

    pub(super) fn client(&self, client: ClientHandle) -> Option<Number> {
        self.find(root(client))
    }

    /// An object has that name, or a call in flight uses it.
    fn is_taken(&self, name: ObjectName) -> bool {
        self.objects.values().any(|object| object.name == name)
            || self.flights.iter().any(|f| f.names.contains(&name))
    }

    /// Whether a new object can have a name. Handle 0 leaves the choice to the accounting.
    fn check_handle(&self, name: ObjectName) -> Result<(), NvStatus> {
        if name.1 .0 == 0 {
            Ok(())
        } else if name == root(name.0) {
            Err(NvStatus::NV_ERR_INVALID_OBJECT_PARENT)
        } else if self.is_taken(name) {
            Err(NvStatus::NV_ERR_INSERT_DUPLICATE_NAME)
        } else {
            Ok(())
        }
    }

    fn process_of(&self, number: Number) -> ProcessId {
        self.clients[&self.objects[&number].client.expect("a client")].process
    }

    fn object_mut(&mut self, number: Number) -> &mut ModelObject {
        self.objects.get_mut(&number).expect("is there")
    }

    fn share_mut(&mut self, gpu: GpuId) -> &mut ModelShare {
        self.shares.get_mut(&gpu.0).expect("a share")
    }

    fn costs_of(&self, gpu: GpuId) -> impl Iterator<Item = &ModelCost> + Clone {
        self.costs.values().filter(move |cost| cost.gpu == gpu)
    }

    /// Used and reserved bytes of a GPU, and the overhead.
    fn sums(&self, gpu: GpuId) -> (u64, u64, u64) {
        let bytes = |given| {
            let costs = self.costs_of(gpu).filter(move |cost| cost.given == given);
            costs.map(|cost| cost.bytes).sum::<u64>()
        };
        let pools = |given| {
            let costs = self.costs_of(gpu).filter(move |cost| cost.given == given);
            costs.map(|cost| cost.pools).sum::<u64>()
        };
        let (given, all) = self.contexts(gpu);
        let overhead = price(given) + pools(true);
        let asked = price(all) - price(given) + pools(false);
        (bytes(true), bytes(false) + asked, overhead)
    }

    fn raise_peaks(&mut self, gpu: GpuId) {
        let (used, _, overhead) = self.sums(gpu);
        let share = self.share_mut(gpu);
        share.peak = share.peak.max(used);
        share.overhead_peak = share.overhead_peak.max(overhead);
    }

    /// Contexts that there are, and with those that are coming.
    fn contexts(&self, gpu: GpuId) -> (u64, u64) {
        let contexts = self.costs_of(gpu).filter(|cost| cost.context);
        let given = contexts.clone().filter(|cost| cost.given).count();
        (given as u64, contexts.count() as u64)
    }

    /// The cost of an object, in the group of this cost or in none.
    fn cost(&self, gpu: GpuId, alloc: &Alloc, group: Option<Number>) -> ModelCost {
        let (list, context) = match alloc.engine {
            Some(named) => engine(gpu, named),
            None => (0, false),
        };
        let ids = match (alloc.kind, group) {
            (Kind::ChannelGroup, _) => (list, 1, 0),
            (Kind::Channel, None) => (list, 1, 1),
            (Kind::Channel, Some(group)) => (self.costs[&group].ids.0, 0, 1),
            _ => (0, 0, 0),
        };
        let alone = alloc.kind == Kind::Channel && group.is_none();
        ModelCost {
            gpu,
            bytes: alloc.bytes,
            host: alloc.host,
            pools: u64::from(alone) * CHANNEL,
            context: context && group.is_none(),
            ids,
            within: group,
            given: false,
            holders: Vec::new(),
        }
    }

    /// Bytes of the host's memory that a share takes.
    pub(super) fn host(&self, gpu: GpuId) -> u64 {
        self.costs_of(gpu).map(|cost| cost.host).sum()
    }

    /// Groups and channels of a runlist.
    fn on_list(&self, gpu: GpuId, list: u32) -> (u64, u64) {
        let costs = self.costs_of(gpu).filter(|cost| cost.ids.0 == list);
        costs.fold((0, 0), |sum, cost| (sum.0 + cost.ids.1, sum.1 + cost.ids.2))
    }

    fn check_ids(&mut self, gpu: GpuId, wanted: (u32, u64, u64)) -> Result<(), NvStatus> {
        let (groups, channels) = self.on_list(gpu, wanted.0);
        let status = if wanted.1 > 0 && groups + wanted.1 > MOST_CHANNELS {
            NvStatus::NV_ERR_NO_FREE_FIFOS
        } else if wanted.2 > 0 && channels + wanted.2 > MOST_CHANNELS {
            NvStatus::NV_ERR_NO_MEMORY
        } else {
            return Ok(());
        };
        self.share_mut(gpu).channels_refused += 1;
        Err(status)
    }

    /// The demand of an object, without its part of a group's pools.
    fn wanted(&self, gpu: GpuId, cost: &ModelCost) -> u64 {
        let (_, all) = self.contexts(gpu);
        cost.bytes + cost.pools + price(all + u64::from(cost.context)) - price(all)
    }

    fn free(&self, gpu: GpuId) -> u64 {
        let (used, reserved, overhead) = self.sums(gpu);
        let limit = self.shares[&gpu.0].limit;
        limit.saturating_sub(used + reserved + overhead)
    }

    /// More may be taken than the limit allows, if it is so now.
    fn excuse(&mut self, gpu: GpuId) {
        let (used, reserved, overhead) = self.sums(gpu);
        let share = self.share_mut(gpu);
        share.excused = used + reserved + overhead > share.limit;
    }

    /// The state of a share, but for how often it was over its limit.
    pub(super) fn share(&self, gpu: GpuId) -> ShareView {
        let (used, reserved, overhead) = self.sums(gpu);
        let share = &self.shares[&gpu.0];
        let within = used + overhead + reserved <= share.limit;
        assert!(within || share.excused, "over the limit: {share:?}");
        let of_gpu = |object: &&ModelObject| object.here && object.gpu == Some(gpu);
        let of_gpu = self.objects.values().filter(of_gpu);
        let devices = of_gpu.clone().filter(|object| object.kind == Kind::Device);
        let mut clients: Vec<Option<Number>> = devices.map(|device| device.client).collect();
        clients.sort_unstable();
        clients.dedup();
        ShareView {
            limit: share.limit,
            used,
            reserved,
            overhead,
            peak: share.peak,
            overhead_peak: share.overhead_peak,
            refused: share.refused,
            objects: of_gpu.count() as u64,
            clients: clients.len() as u64,
            channel_limit: MOST_CHANNELS as u32,
            channels: self.most_channels(gpu),
            channels_refused: share.channels_refused,
            ..ShareView::default()
        }
    }

    /// The most groups or channels of a runlist.
    fn most_channels(&self, gpu: GpuId) -> u32 {
        let lists = [0, COPIES].map(|list| self.on_list(gpu, list));
        let most = lists.map(|(groups, channels)| groups.max(channels));
        u32::try_from(most[0].max(most[1])).unwrap()
    }

    /// The memory of a GPU that each process holds. Shared memory counts for the process that has
    /// had it longest.
    pub(super) fn held(&self, gpu: GpuId) -> Vec<(i32, u64)> {
        let mut held = BTreeMap::new();
        for cost in self
            .costs_of(gpu)
            .filter(|cost| cost.given && cost.bytes > 0)
        {
            *held.entry(cost.holders[0].1 .0).or_insert(0) += cost.bytes;
        }
        held.into_iter().collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.objects.is_empty() && self.costs.is_empty() && self.flights.is_empty()
    }
}

/// The name of the object that stands for a client.
fn root(client: ClientHandle) -> ObjectName {
    (client, client.root())
}
