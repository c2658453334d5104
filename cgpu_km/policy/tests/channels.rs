// SPDX-License-Identifier: GPL-2.0
//! What is told of channels and channel groups.

use super::*;

const GROUP: ObjectHandle = ObjectHandle(0x5c00_0010);

fn channel_request(parent: ObjectHandle, channel: u32, context: bool) -> Alloc {
    Alloc {
        class: ClassId(0xc86f),
        kind: Kind::Channel,
        context,
        ..request(CLIENT, parent, ObjectHandle(channel))
    }
}

fn accounting() -> Accounting {
    let mut accounting = Accounting::new();
    accounting.add_share(GPU, 64 << 30).unwrap();
    accounting.client(CLIENT, FILE, PROCESS);
    accounting.device(CLIENT, DEVICE, GPU).unwrap();
    accounting
}

/// All changes that were not taken yet: handle and what it did.
fn changes(accounting: &mut Accounting) -> Vec<(u32, ChannelEvent)> {
    let mut all = Vec::new();
    while let Some(change) = accounting.take_channel_change() {
        assert_eq!((change.gpu, change.client), (GPU, CLIENT));
        all.push((change.object.0, change.what));
    }
    all
}

fn made(group: u32, compute: bool) -> ChannelEvent {
    ChannelEvent::Made {
        group: ObjectHandle(group),
        compute,
        process: PROCESS,
    }
}

#[test]
fn channels_are_told_with_their_group_and_engine() {
    let mut accounting = accounting();
    accounting.context(GROUP).unwrap();
    // The group's engine counts, not what the channel says.
    accounting.alloc(&channel_request(GROUP, 1, false)).unwrap();
    accounting.alloc(&channel_request(DEVICE, 2, true)).unwrap();
    accounting
        .alloc(&channel_request(DEVICE, 3, false))
        .unwrap();
    let all = changes(&mut accounting);
    assert_eq!(
        all,
        [
            (1, made(GROUP.0, true)),
            (2, made(2, true)),
            (3, made(3, false))
        ]
    );
    assert_eq!(changes(&mut accounting), []);
}

#[test]
fn what_the_driver_refuses_is_not_told() {
    let mut accounting = accounting();
    let ticket = accounting
        .begin_alloc(&channel_request(DEVICE, 1, true))
        .unwrap();
    assert_eq!(changes(&mut accounting), []);
    accounting.end_alloc(ticket, None);
    assert_eq!(changes(&mut accounting), []);
}

#[test]
fn all_that_goes_at_once_is_told() {
    for close in [false, true] {
        let mut accounting = accounting();
        accounting.context(GROUP).unwrap();
        for channel in 1..=100 {
            accounting
                .alloc(&channel_request(GROUP, channel, true))
                .unwrap();
        }
        assert_eq!(changes(&mut accounting).len(), 100);
        if close {
            accounting.close_file(FILE);
        } else {
            accounting.free(CLIENT, DEVICE);
        }
        let mut gone: Vec<u32> = changes(&mut accounting)
            .into_iter()
            .map(|(object, what)| {
                assert_eq!(what, ChannelEvent::Gone);
                object
            })
            .collect();
        gone.sort_unstable();
        let mut wanted: Vec<u32> = (1..=100).collect();
        wanted.push(GROUP.0);
        assert_eq!(gone, wanted);
    }
}

#[test]
fn who_never_asks_fills_no_memory() {
    let mut accounting = accounting();
    for _ in 0..10_000 {
        accounting.alloc(&channel_request(DEVICE, 1, true)).unwrap();
        accounting.free(CLIENT, ObjectHandle(1));
    }
    assert!(changes(&mut accounting).len() <= 2);
}
