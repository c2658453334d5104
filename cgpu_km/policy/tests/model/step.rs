// SPDX-License-Identifier: GPL-2.0
//! The steps of the model, and how chance makes them.

use crate::policy::tests::*;
use proptest::prelude::*;

pub(super) const GPUS: [GpuId; 2] = [GpuId(0), GpuId(5)];
pub(super) const FOREIGN: GpuId = GpuId(9);
pub(super) const FILES: u64 = 5;
pub(super) const PROCESSES: i32 = 4;
pub(super) const HANDLES: u32 = 14;
pub(super) const LIMIT: u64 = 64 * MIB;
pub(super) const MOST_CHANNELS: u64 = 4;
/// The limit of host memory.
pub(super) const MOST_HOST: u64 = 24 * MIB;

/// The driver's answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum ModelAnswer {
    Granted,
    /// More than was asked for.
    Raised,
    /// As if less had been taken.
    Lowered,
    Refused,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ModelClass {
    Device(GpuId),
    Memory(u64),
    HostMemory(u64),
    /// A group of channels for an engine.
    Group(u32),
    /// A channel, which counts for the engine if it is below no group.
    Channel(u32),
    Other,
}

/// Numbers select among what there is at that moment.
#[derive(Clone, Debug)]
pub(super) enum ModelStep {
    Client {
        file: u64,
        process: i32,
        /// 0: the driver chooses.
        chosen: u32,
        later: bool,
    },
    Alloc {
        client: usize,
        parent: usize,
        handle: u32,
        class: ModelClass,
        answer: ModelAnswer,
        later: bool,
    },
    Dup {
        client: usize,
        parent: usize,
        handle: u32,
        source_client: usize,
        source: usize,
        answer: ModelAnswer,
        later: bool,
    },
    End(usize),
    Free {
        client: usize,
        object: usize,
    },
    FreeClient(usize),
    Close(u64),
    Limit(usize, u64),
}

impl ModelStep {
    /// The driver's answer to a call, and whether later.
    pub(super) fn answer(&self) -> (ModelAnswer, bool) {
        match *self {
            Self::Alloc { answer, later, .. } | Self::Dup { answer, later, .. } => (answer, later),
            Self::Client { later, .. } => (ModelAnswer::Granted, later),
            _ => (ModelAnswer::Granted, false),
        }
    }
}

impl ModelClass {
    /// A request for an object of the class.
    pub(super) fn request(
        self,
        client: ClientHandle,
        parent: ObjectHandle,
        object: ObjectHandle,
    ) -> Alloc {
        match self {
            Self::Device(gpu) => Alloc {
                parent,
                ..device_request(client, object, gpu)
            },
            Self::Memory(bytes) => memory_request(client, parent, object, bytes),
            Self::HostMemory(bytes) => host_request(client, parent, object, bytes),
            Self::Group(engine) => Alloc {
                parent,
                engine: Some(engine),
                ..context_request(client, parent, object)
            },
            Self::Channel(engine) => channel_request(client, parent, object, engine),
            Self::Other => request(client, parent, object),
        }
    }
}

pub(super) fn answer() -> impl Strategy<Value = ModelAnswer> {
    prop_oneof![
        8 => Just(ModelAnswer::Granted),
        1 => Just(ModelAnswer::Raised),
        1 => Just(ModelAnswer::Lowered),
        2 => Just(ModelAnswer::Refused),
    ]
}

fn engine() -> impl Strategy<Value = u32> {
    prop_oneof![Just(COMPUTE), Just(COPIES)]
}

pub(super) fn class() -> impl Strategy<Value = ModelClass> {
    let mib = |range: core::ops::Range<u64>| range.prop_map(|mib| ModelClass::Memory(mib * MIB));
    prop_oneof![
        4 => (0..2usize).prop_map(|gpu| ModelClass::Device(GPUS[gpu])),
        1 => Just(ModelClass::Device(FOREIGN)),
        8 => mib(1..12),
        1 => mib(30..80),
        4 => (1..12u64).prop_map(|mib| ModelClass::HostMemory(mib * MIB)),
        1 => (1..100u64).prop_map(ModelClass::Memory),
        3 => engine().prop_map(ModelClass::Group),
        6 => engine().prop_map(ModelClass::Channel),
        3 => Just(ModelClass::Other),
    ]
}

pub(super) fn step() -> impl Strategy<Value = ModelStep> {
    let later = prop::bool::weighted(0.25);
    prop_oneof![
        3 => (0..FILES, 0..PROCESSES, 0..4u32, later).prop_map(
            |(file, process, chosen, later)| ModelStep::Client { file, process, chosen, later }
        ),
        20 => (any::<usize>(), any::<usize>(), 0..HANDLES, class(), answer(), later).prop_map(
            |(client, parent, handle, class, answer, later)| {
                ModelStep::Alloc { client, parent, handle, class, answer, later }
            }
        ),
        8 => (
            (any::<usize>(), any::<usize>(), 0..HANDLES),
            (any::<usize>(), any::<usize>(), answer(), later),
        ).prop_map(|((client, parent, handle), (source_client, source, answer, later))| {
            ModelStep::Dup { client, parent, handle, source_client, source, answer, later }
        }),
        7 => any::<usize>().prop_map(ModelStep::End),
        7 => (any::<usize>(), any::<usize>())
            .prop_map(|(client, object)| ModelStep::Free { client, object }),
        1 => any::<usize>().prop_map(ModelStep::FreeClient),
        1 => (0..FILES).prop_map(ModelStep::Close),
        1 => (0..2usize, 0..LIMIT).prop_map(|(gpu, limit)| ModelStep::Limit(gpu, limit)),
        1 => (0..2usize).prop_map(|gpu| ModelStep::Limit(gpu, LIMIT)),
    ]
}
