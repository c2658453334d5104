// SPDX-License-Identifier: GPL-2.0
//! Arbitrary bytes as events: whatever a caller sends, the accounting does not panic and end empty.

use super::*;
use proptest::prelude::*;

/// Small numbers from a string of bytes, zeroes at its end.
struct SmallNumbers<'a>(&'a [u8]);

impl SmallNumbers<'_> {
    fn next(&mut self) -> u32 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                u32::from(*first)
            }
            None => 0,
        }
    }

    /// Mostly small numbers, so that events meet; now and then the outermost ones.
    fn handle(&mut self) -> u32 {
        match self.next() {
            byte @ 0..=200 => byte % 8,
            byte @ 201..=240 => 0xcaf8_0000 + byte % 4,
            _ => u32::MAX,
        }
    }

    fn bytes(&mut self) -> u64 {
        match self.next() {
            byte @ 0..=250 => u64::from(byte) << 12,
            byte => u64::MAX - u64::from(255 - byte),
        }
    }
}

const KINDS: [Kind; 6] = [
    Kind::Root,
    Kind::Device,
    Kind::VideoMemory,
    Kind::ChannelGroup,
    Kind::Inert,
    Kind::ContextDma,
];

fn drive(bytes: &[u8]) {
    let mut bytes = SmallNumbers(bytes);
    let mut accounting = Accounting::new(u64::from(bytes.next()));
    let mut tickets = Vec::new();
    let mut frees = Vec::new();
    while !bytes.0.is_empty() {
        let client = ClientHandle(bytes.handle());
        let parent = ObjectHandle(bytes.handle());
        let handle = ObjectHandle(bytes.handle());
        match bytes.next() % 12 {
            0..=2 => {
                let kind = usize::try_from(bytes.next()).unwrap() % KINDS.len();
                let alloc = Alloc {
                    file: FileId(u64::from(bytes.next() % 4)),
                    process: ProcessId(i32::try_from(bytes.next() % 3).unwrap()),
                    client,
                    parent,
                    object: handle,
                    class: ClassId(bytes.next()),
                    kind: KINDS[kind],
                    device_instance: Some(bytes.next() % 3),
                    bytes: bytes.bytes(),
                    tables: 0,
                    host: if bytes.next() % 4 == 0 {
                        bytes.bytes()
                    } else {
                        0
                    },
                    size: bytes.bytes(),
                    page: PageSize::Big,
                    engine: (bytes.next() % 4 == 0).then_some(bytes.next() % 24),
                    memory: (bytes.next() % 4 == 0).then(|| ObjectHandle(bytes.handle())),
                    uses: [
                        (bytes.next() % 4 == 0).then(|| ObjectHandle(bytes.handle())),
                        None,
                    ],
                    addresses_of: None,
                    control_page: bytes.bytes(),
                };
                tickets.extend(accounting.begin_alloc(&alloc));
            }
            3 => {
                let source = ObjectHandle(bytes.handle());
                let source_client = ClientHandle(bytes.handle());
                tickets.extend(accounting.begin_dup(client, parent, handle, source_client, source));
            }
            4..=6 if !tickets.is_empty() => {
                let at = usize::try_from(bytes.next()).unwrap() % tickets.len();
                let done = AllocDone {
                    object: handle,
                    bytes: bytes.bytes(),
                };
                let done = (bytes.next() % 4 != 0).then_some(done);
                accounting.end_alloc(tickets.swap_remove(at), done);
            }
            7 => frees.extend(accounting.begin_free(client, handle, None)),
            8 => {
                if let Some(free) = frees.pop() {
                    accounting.end_free(free, bytes.next() % 4 != 0);
                }
            }
            9 => accounting.close_file(FileId(u64::from(bytes.next() % 4))),
            10 => {
                let gpu = GpuId(bytes.next() % 3);
                match bytes.next() % 4 {
                    0 => accounting.remove_share(gpu),
                    1 => drop(accounting.set_limit(gpu, bytes.bytes())),
                    2 => {
                        let call = Audited {
                            kind: CallKind::Control,
                            number: 1,
                            reason: Reason::Unlisted,
                        };
                        accounting.note_call(&call, Some(gpu), ProcessId(1), 0);
                    }
                    _ => drop(accounting.add_share(gpu, bytes.bytes())),
                }
            }
            _ => {
                let _ = (
                    accounting.gpu_of(client, handle),
                    accounting.kind_of(client, handle),
                    accounting.parent_of(client, handle),
                    accounting.client_file(client),
                    accounting.share(GpuId(0)),
                    accounting.fb_view(GpuId(1)),
                );
                accounting.processes(GpuId(0), |_, _| {});
            }
        }
    }
    for ticket in tickets {
        accounting.end_alloc(ticket, None);
    }
    for free in frees {
        accounting.end_free(free, true);
    }
    for file in 0..4 {
        accounting.close_file(FileId(file));
    }
    assert!(accounting.is_idle(), "something is left: {accounting:?}");
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn arbitrary_bytes_neither_panic_nor_leave_anything_behind(
        bytes in proptest::collection::vec(any::<u8>(), 0..600)
    ) {
        drive(&bytes);
    }
}
