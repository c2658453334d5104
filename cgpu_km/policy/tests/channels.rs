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

fn books() -> Books {
    let mut books = Books::new();
    books.add_share(GPU, 64 << 30).unwrap();
    books.client(CLIENT, FILE, PROCESS);
    books.alloc(&device_request(CLIENT, DEVICE, GPU)).unwrap();
    books
}

/// All changes that were not taken yet: handle and what it did.
fn changes(books: &mut Books) -> Vec<(u32, ChannelEvent)> {
    let mut all = Vec::new();
    while let Some(change) = books.take_channel_change() {
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
    let mut books = books();
    books
        .alloc(&context_request(CLIENT, DEVICE, GROUP))
        .unwrap();
    // The group's engine counts, not what the channel says.
    books.alloc(&channel_request(GROUP, 1, false)).unwrap();
    books.alloc(&channel_request(DEVICE, 2, true)).unwrap();
    books.alloc(&channel_request(DEVICE, 3, false)).unwrap();
    let all = changes(&mut books);
    assert_eq!(
        all,
        [
            (1, made(GROUP.0, true)),
            (2, made(2, true)),
            (3, made(3, false))
        ]
    );
    assert_eq!(changes(&mut books), []);
}

#[test]
fn what_the_driver_refuses_is_not_told() {
    let mut books = books();
    let ticket = books
        .begin_alloc(&channel_request(DEVICE, 1, true))
        .unwrap();
    assert_eq!(changes(&mut books), []);
    books.end_alloc(ticket, None);
    assert_eq!(changes(&mut books), []);
}

#[test]
fn all_that_goes_at_once_is_told() {
    for close in [false, true] {
        let mut books = books();
        books
            .alloc(&context_request(CLIENT, DEVICE, GROUP))
            .unwrap();
        for channel in 1..=100 {
            books.alloc(&channel_request(GROUP, channel, true)).unwrap();
        }
        assert_eq!(changes(&mut books).len(), 100);
        if close {
            books.close_file(FILE);
        } else {
            books.free(CLIENT, DEVICE);
        }
        let mut gone: Vec<u32> = changes(&mut books)
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
    let mut books = books();
    for _ in 0..10_000 {
        books.alloc(&channel_request(DEVICE, 1, true)).unwrap();
        books.free(CLIENT, ObjectHandle(1));
    }
    assert!(changes(&mut books).len() <= 2);
}
