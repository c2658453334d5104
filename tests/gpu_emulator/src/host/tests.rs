// SPDX-License-Identifier: GPL-2.0
//! Channels that are taken off their runlist while they have work.

use super::*;
use crate::{
    engine::TIMED, host::methods::incrementing, mmu::tests::Tables, qmd::tests::version_4,
};
use std::time::{Duration, Instant};

const CHANNEL: ObjectId = object(5);
const GROUP: ObjectId = object(4);
const SPACE: ObjectId = object(3);
const ID: ChannelId = ChannelId {
    runlist: 0,
    number: 3,
};
/// Virtual addresses, which are those in video memory without [`BASE`].
const RING: u64 = 0x1000;
const PUSH: u64 = 0x2000;
const KERNEL_DONE: u64 = 0x3000;
const HOST_DONE: u64 = 0x3010;
const PARAMETERS: u64 = 0x8210;
const QMD: u64 = 0x1_0000;
const BASE: u64 = 0x1000_0000;
const USERD: u64 = 0x30_0000;

const fn object(handle: u32) -> ObjectId {
    ObjectId { client: 1, handle }
}

/// A host with a channel in whose ring stands a kernel of a microsecond, and after it a semaphore.
struct HostBench {
    host: Host,
    memory: Memory,
    space: AddressSpace,
}

impl HostBench {
    fn new() -> Self {
        let mut memory = Memory::new(1 << 30);
        let mut tables = Tables::new(1 << 20);
        tables.map(&mut memory, 0, 21, BASE);
        let space = AddressSpace { root: tables.root };
        let mut host = Host::default();
        let setup = ChannelSetup {
            id: ID,
            ring: RING,
            entries: 8,
            userd: Place::video(USERD),
            notifier: None,
        };
        host.set_root(SPACE, tables.root);
        host.add((CHANNEL, GROUP), setup, vec![SPACE]);
        assert!(host.schedule(GROUP, true));
        let mut bench = Self {
            host,
            memory,
            space,
        };
        bench.put(QMD, &version_4(KERNEL_DONE, 1));
        let parameters = [TIMED, 1000].map(u64::to_le_bytes);
        bench.put(PARAMETERS, parameters.as_flattened());
        let words = [
            incrementing(1, 0, 1),
            0xcbc0,
            incrementing(1, 0x2b4, 1),
            (QMD >> 8) as u32,
            incrementing(1, 0x2c0, 1),
            9,
            incrementing(0, 0x5c, 5),
            HOST_DONE as u32,
            0,
            1,
            0,
            1,
        ];
        let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        bench.put(PUSH, &bytes);
        bench.put(RING, &(PUSH | (words.len() as u64) << 42).to_le_bytes());
        let pointer = Place::video(USERD + 0x8c);
        bench.memory.write32(pointer, 1).expect("is memory");
        bench
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let written = self.space.write(&mut self.memory, at, bytes);
        written.expect("is mapped");
    }

    fn ring(&mut self) {
        self.host
            .ring(ID.number, &mut self.memory, &mut Log::none());
    }

    /// The words that the kernel and its semaphore have written, after they had time for it: until
    /// both have, and at most so long.
    fn written(&mut self, at_most: Duration) -> [u32; 2] {
        let begun = Instant::now();
        loop {
            self.host.advance(&mut self.memory, &mut Log::none());
            self.host.poll(&mut self.memory, &mut Log::none());
            let now = [KERNEL_DONE, HOST_DONE].map(|at| {
                let place = Place::video(BASE + at);
                self.memory.read32(place).expect("is memory")
            });
            if now == [1, 1] || begun.elapsed() > at_most {
                return now;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Much longer than the kernel takes.
const LONG: Duration = Duration::from_millis(50);
/// A limit that only a failure reaches.
const EVER: Duration = Duration::from_secs(600);

#[test]
fn a_channel_that_is_scheduled_ends_its_kernel() {
    let mut bench = HostBench::new();
    bench.ring();
    assert_eq!(bench.written(EVER), [1, 1]);
}

#[test]
fn kernel_off_the_runlist_does_not_end() {
    let mut bench = HostBench::new();
    bench.ring();
    assert!(bench.host.schedule(CHANNEL, false));
    assert_eq!(bench.written(LONG), [0, 0]);
    // Enabled again, as the driver does when an address space gets other page tables.
    assert!(bench.host.disable(CHANNEL, false));
    bench.ring();
    assert_eq!(bench.written(LONG), [0, 0]);
}

#[test]
fn stopped_channel_runs_when_scheduled() {
    let mut bench = HostBench::new();
    assert!(bench.host.schedule(CHANNEL, false));
    bench.ring();
    assert_eq!(bench.written(LONG), [0, 0]);
    assert!(bench.host.schedule(GROUP, true));
    assert_eq!(bench.written(EVER), [1, 1]);
}

#[test]
fn channel_that_was_never_scheduled_does_nothing() {
    let mut bench = HostBench::new();
    let setup = bench.host.channels[&ID].channel.setup.clone();
    bench.host.add((CHANNEL, GROUP), setup, vec![SPACE]);
    bench.ring();
    assert_eq!(bench.written(LONG), [0, 0]);
}

#[test]
fn channel_runs_in_no_other_space_than_named() {
    let mut bench = HostBench::new();
    for (spaces, at_most, runs) in [(vec![object(9)], LONG, [0, 0]), (Vec::new(), EVER, [1, 1])] {
        let setup = bench.host.channels[&ID].channel.setup.clone();
        bench.host.add((CHANNEL, GROUP), setup, spaces);
        assert!(bench.host.schedule(CHANNEL, true));
        bench.ring();
        assert_eq!(bench.written(at_most), runs);
    }
}

#[test]
fn a_channel_that_is_gone_ends_no_kernel() {
    let mut bench = HostBench::new();
    bench.ring();
    bench.host.remove(CHANNEL);
    assert_eq!(bench.written(LONG), [0, 0]);
    assert!(!bench.host.schedule(CHANNEL, false));
}
