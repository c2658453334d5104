// SPDX-License-Identifier: GPL-2.0
//! Channels and channel groups.

use super::*;
use crate::nvidia::{
    class::NV01_CONTEXT_DMA,
    status::NvStatus, //
};

const GROUP: ObjectHandle = ObjectHandle(0x5c00_0010);

fn channel(parent: ObjectHandle, channel: u32, engine: u32) -> Alloc {
    channel_request(CLIENT, parent, ObjectHandle(channel), engine)
}

fn accounting() -> Accounting {
    let mut accounting = Accounting::new(0);
    accounting.add_share(GPU, 64 << 30).unwrap();
    accounting
        .set_engines(GPU, Engines::of(0x180, true))
        .unwrap();
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
    accounting.alloc(&channel(GROUP, 1, COPIES)).unwrap();
    accounting.alloc(&channel(DEVICE, 2, COMPUTE)).unwrap();
    accounting.alloc(&channel(DEVICE, 3, COPIES)).unwrap();
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
fn a_refused_channel_is_not_reported() {
    let mut accounting = accounting();
    let ticket = accounting
        .begin_alloc(&channel(DEVICE, 1, COMPUTE))
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
        for number in 1..=100 {
            accounting.alloc(&channel(GROUP, number, COMPUTE)).unwrap();
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
fn changes_nobody_takes_fill_no_memory() {
    let mut accounting = accounting();
    for _ in 0..10_000 {
        accounting.alloc(&channel(DEVICE, 1, COMPUTE)).unwrap();
        accounting.free(CLIENT, ObjectHandle(1));
    }
    assert!(changes(&mut accounting).len() <= 2);
}

/// A channel whose errors are noted in this object.
fn noting(notes: u32) -> Alloc {
    Alloc {
        memory: Some(ObjectHandle(notes)),
        ..channel(DEVICE, 1, COPIES)
    }
}

/// A channel whose control page is in this object, from its first byte on.
fn controlled(memory: u32) -> Alloc {
    Alloc {
        uses: [Some(ObjectHandle(memory)), None],
        ..channel(DEVICE, 1, COPIES)
    }
}

/// The uses that a channel makes of memory.
const USES: [fn(u32) -> Alloc; 2] = [noting, controlled];

/// With memory of the device, under this handle.
fn with_notes(notes: u32) -> Accounting {
    let mut accounting = accounting();
    let memory = memory_request(CLIENT, DEVICE, ObjectHandle(notes), 1 << 20);
    accounting.alloc(&memory).unwrap();
    accounting
}

#[test]
fn channel_errors_need_memory_of_the_device() {
    let mut accounting = with_notes(7);
    let other = ObjectHandle(0x5c00_0020);
    accounting.add_share(GpuId(5), 1 << 30).unwrap();
    accounting.device(CLIENT, other, GpuId(5)).unwrap();
    let elsewhere = memory_request(CLIENT, other, ObjectHandle(8), 1 << 20);
    accounting.alloc(&elsewhere).unwrap();
    let coming = memory_request(CLIENT, DEVICE, ObjectHandle(9), 1 << 20);
    let coming = accounting.begin_alloc(&coming).unwrap();
    for (notes, refusal) in [
        (6, RefusalCause::NoNotes),
        (DEVICE.0, RefusalCause::NoNotes),
        (CLIENT.0, RefusalCause::NoNotes),
        (8, RefusalCause::NoNotes),
        (9, RefusalCause::NoNotes),
    ] {
        assert_eq!(accounting.begin_alloc(&noting(notes)).unwrap_err(), refusal);
    }
    accounting.end_alloc(coming, None);
    accounting.alloc(&noting(7)).unwrap();
}

#[test]
fn channel_memory_stays_until_channel_is_made() {
    let above = [ObjectHandle(7), DEVICE, ObjectHandle(CLIENT.0)];
    let cases = USES.map(|using| above.map(|object| (using, object)));
    for (using, object) in cases.into_iter().flatten() {
        let mut accounting = with_notes(7);
        let ticket = accounting.begin_alloc(&using(7)).unwrap();
        let refused = accounting.begin_free(CLIENT, object, None).unwrap_err();
        assert_eq!(refused, RefusalCause::MemoryInFlight);
        // Its mappings may end: the driver writes there without one.
        let unmap = accounting.begin_cpu_unmap(CLIENT, object).unwrap();
        accounting.end_free(unmap, false);
        accounting.end_alloc(ticket, None);
        // Memory that is being freed cannot be of use to another channel.
        let free = accounting.begin_free(CLIENT, object, None).unwrap();
        let other = Alloc {
            object: ObjectHandle(2),
            ..using(7)
        };
        let refused = accounting.begin_alloc(&other).unwrap_err();
        assert_eq!(refused, RefusalCause::MemoryInFlight);
        accounting.end_free(free, false);
        let ticket = accounting.begin_alloc(&other).unwrap();
        accounting.end_alloc(ticket, None);
        accounting.free(CLIENT, ObjectHandle(CLIENT.0));
        assert!(accounting.is_idle());
    }
}

/// Whether a channel keeps an object.
fn is_kept(accounting: &mut Accounting, object: u32) -> bool {
    match accounting.begin_free(CLIENT, ObjectHandle(object), None) {
        Ok(ticket) => {
            accounting.end_free(ticket, false);
            false
        }
        Err(refused) => {
            assert_eq!(refused, RefusalCause::MemoryInUse);
            true
        }
    }
}

#[test]
fn error_memory_stays_as_long_as_its_channels() {
    let mut accounting = with_notes(7);
    accounting.alloc(&context_dma(7, 8)).unwrap();
    accounting.alloc(&noting(7)).unwrap();
    let other = Alloc {
        object: ObjectHandle(2),
        ..noting(8)
    };
    accounting.alloc(&other).unwrap();
    assert!(is_kept(&mut accounting, 7) && is_kept(&mut accounting, 8));
    // Its mappings may end.
    let unmapped = accounting.begin_cpu_unmap(CLIENT, ObjectHandle(7)).unwrap();
    accounting.end_free(unmapped, false);
    accounting.free(CLIENT, ObjectHandle(1));
    assert!(is_kept(&mut accounting, 7) && is_kept(&mut accounting, 8));
    accounting.free(CLIENT, ObjectHandle(2));
    assert!(!is_kept(&mut accounting, 7) && !is_kept(&mut accounting, 8));
}

#[test]
fn channel_memory_goes_with_device_or_client() {
    let cases = USES.map(|using| [DEVICE, ObjectHandle(CLIENT.0)].map(|object| (using, object)));
    for (using, object) in cases.into_iter().flatten() {
        let mut accounting = with_notes(7);
        accounting.alloc(&using(7)).unwrap();
        assert!(!is_kept(&mut accounting, object.0));
        accounting.free(CLIENT, object);
        assert_eq!(accounting.kind_of(CLIENT, ObjectHandle(7)), None);
        accounting.free(CLIENT, ObjectHandle(CLIENT.0));
        assert!(accounting.is_idle());
    }
    // And with the file of both.
    let mut accounting = with_notes(7);
    let both = Alloc {
        memory: Some(ObjectHandle(7)),
        ..controlled(7)
    };
    accounting.alloc(&both).unwrap();
    accounting.close_file(FILE);
    assert!(accounting.is_idle());
}

#[test]
fn control_memory_stays_as_long_as_its_channels() {
    let mut accounting = with_notes(7);
    let subdevice = ObjectHandle(0x5c00_0030);
    let below = memory_request(CLIENT, subdevice, ObjectHandle(8), 1 << 20);
    let above = Alloc {
        kind: Kind::Subdevice,
        ..request(CLIENT, DEVICE, subdevice)
    };
    accounting.alloc(&above).unwrap();
    accounting.alloc(&below).unwrap();
    accounting.context(GROUP).unwrap();
    let mut grouped = Alloc {
        parent: GROUP,
        memory: Some(ObjectHandle(8)),
        ..controlled(7)
    };
    accounting.alloc(&grouped).unwrap();
    grouped.object = ObjectHandle(2);
    accounting.alloc(&grouped).unwrap();
    let kept = [7, 8, subdevice.0];
    assert!(kept.map(|object| is_kept(&mut accounting, object)) == [true; 3]);
    // A copy of the memory stands for itself.
    let copy = ObjectHandle(9);
    accounting
        .dup(CLIENT, DEVICE, copy, CLIENT, ObjectHandle(7))
        .unwrap();
    assert!(!is_kept(&mut accounting, copy.0));
    accounting.free(CLIENT, ObjectHandle(1));
    assert!(kept.map(|object| is_kept(&mut accounting, object)) == [true; 3]);
    // The last one goes with its group.
    accounting.free(CLIENT, GROUP);
    assert!(kept.map(|object| is_kept(&mut accounting, object)) == [false; 3]);
    accounting.free(CLIENT, ObjectHandle(CLIENT.0));
    assert!(accounting.is_idle());
}

#[test]
fn copied_memory_with_control_page_stays_alone() {
    let mut accounting = with_notes(7);
    let copy = ObjectHandle(9);
    accounting
        .dup(CLIENT, DEVICE, copy, CLIENT, ObjectHandle(7))
        .unwrap();
    accounting.alloc(&controlled(copy.0)).unwrap();
    // The driver has the memory as long as any object of it.
    accounting.free(CLIENT, ObjectHandle(7));
    assert_eq!(accounting.kind_of(CLIENT, ObjectHandle(7)), None);
    assert!(is_kept(&mut accounting, copy.0));
    assert_eq!(share_of(&accounting).used, 1 << 20);
    accounting.free(CLIENT, ObjectHandle(1));
    accounting.free(CLIENT, copy);
    assert_eq!(share_of(&accounting).used, 0);
}

#[test]
fn host_memory_is_charged_beside_its_channel() {
    let mut accounting = accounting();
    accounting
        .set_limit_of(GPU, Limited::HostMemory, Some(1 << 20))
        .unwrap();
    let host = |object| host_request(CLIENT, DEVICE, ObjectHandle(object), 1 << 20);
    accounting.alloc(&host(7)).unwrap();
    accounting.alloc(&controlled(7)).unwrap();
    accounting.free(CLIENT, ObjectHandle(7));
    let full = Err(RefusalCause::LimitReached(Limited::HostMemory));
    assert_eq!(accounting.alloc(&host(8)), full);
    accounting.free(CLIENT, ObjectHandle(1));
    accounting.free(CLIENT, ObjectHandle(7));
    accounting.alloc(&host(8)).unwrap();
}

#[test]
fn control_page_needs_memory_of_the_device() {
    let mut accounting = with_notes(7);
    let other = ObjectHandle(0x5c00_0020);
    accounting.add_share(GpuId(5), 1 << 30).unwrap();
    accounting.device(CLIENT, other, GpuId(5)).unwrap();
    // A second device of the same GPU is one that the driver has refused.
    let second = ObjectHandle(0x5c00_0021);
    accounting.device(CLIENT, second, GPU).unwrap();
    for (object, parent) in [(8, other), (9, second)] {
        let memory = memory_request(CLIENT, parent, ObjectHandle(object), 1 << 20);
        accounting.alloc(&memory).unwrap();
        let refused = accounting.begin_alloc(&controlled(object)).unwrap_err();
        assert_eq!(refused, RefusalCause::OtherGpu);
    }
    for (kind, expected) in [
        (Kind::SystemMemory, None),
        (Kind::OsDescriptor, Some(RefusalCause::NoMemoryOfIts)),
        (Kind::FabricMemory, Some(RefusalCause::NoMemoryOfIts)),
        (Kind::VirtualMemory, Some(RefusalCause::NoMemoryOfIts)),
    ] {
        let memory = Alloc {
            kind,
            size: 1 << 20,
            ..request(CLIENT, DEVICE, ObjectHandle(10))
        };
        accounting.alloc(&memory).unwrap();
        let refused = accounting.alloc(&controlled(10)).err();
        assert_eq!(refused, expected, "{kind:?}");
        accounting.free(CLIENT, ObjectHandle(1));
        accounting.free(CLIENT, ObjectHandle(10));
    }
}

#[test]
fn channel_memory_is_released_after_refusal() {
    for using in USES {
        let mut accounting = with_notes(7);
        accounting.alloc(&channel(DEVICE, 1, COPIES)).unwrap();
        let refused = accounting.begin_alloc(&using(7)).unwrap_err();
        assert_eq!(refused, RefusalCause::HandleInUse);
        accounting.free(CLIENT, ObjectHandle(7));
        assert_eq!(accounting.kind_of(CLIENT, ObjectHandle(7)), None);
    }
}

#[test]
fn memory_kept_first_is_released_after_refusal() {
    let mut accounting = with_notes(7);
    let second = memory_request(CLIENT, DEVICE, ObjectHandle(8), 1 << 20);
    accounting.alloc(&second).unwrap();
    let free = accounting.begin_free(CLIENT, ObjectHandle(8), None);
    let both = Alloc {
        memory: Some(ObjectHandle(7)),
        ..controlled(8)
    };
    let refused = accounting.begin_alloc(&both).unwrap_err();
    assert_eq!(refused, RefusalCause::MemoryInFlight);
    accounting.end_free(free.unwrap(), true);
    accounting.free(CLIENT, ObjectHandle(7));
    assert_eq!(accounting.kind_of(CLIENT, ObjectHandle(7)), None);
}

/// A context for DMA over this memory.
fn context_dma(memory: u32, handle: u32) -> Alloc {
    Alloc {
        class: NV01_CONTEXT_DMA,
        kind: Kind::ContextDma,
        memory: Some(ObjectHandle(memory)),
        ..request(CLIENT, DEVICE, ObjectHandle(handle))
    }
}

#[test]
fn a_context_for_dma_goes_with_its_memory() {
    let mut accounting = with_notes(7);
    let refused = accounting.begin_alloc(&context_dma(6, 8)).unwrap_err();
    assert_eq!(refused, RefusalCause::UnknownObject);
    let refused = accounting.begin_alloc(&context_dma(DEVICE.0, 8));
    assert_eq!(refused.unwrap_err(), RefusalCause::OtherParent);
    accounting.alloc(&context_dma(7, 8)).unwrap();
    // While a channel is made that names it, neither goes.
    let ticket = accounting.begin_alloc(&noting(8)).unwrap();
    for object in [8, 7] {
        let refused = accounting.begin_free(CLIENT, ObjectHandle(object), None);
        assert_eq!(refused.unwrap_err(), RefusalCause::MemoryInFlight);
    }
    accounting.end_alloc(ticket, None);
    accounting.free(CLIENT, ObjectHandle(7));
    assert_eq!(accounting.kind_of(CLIENT, ObjectHandle(8)), None);
    let refused = accounting.begin_alloc(&noting(8)).unwrap_err();
    assert_eq!(refused, RefusalCause::NoNotes);
}

#[test]
fn errors_go_to_no_range_of_addresses() {
    let mut accounting = with_notes(7);
    let range = Alloc {
        kind: Kind::VirtualMemory,
        ..request(CLIENT, DEVICE, ObjectHandle(9))
    };
    accounting.alloc(&range).unwrap();
    accounting.alloc(&context_dma(9, 10)).unwrap();
    for notes in [9, 10] {
        let refused = accounting.begin_alloc(&noting(notes)).unwrap_err();
        assert_eq!(refused, RefusalCause::NoNotes);
    }
}

#[test]
fn context_for_dma_outlives_no_free_in_flight() {
    let mut accounting = with_notes(7);
    let making = accounting.begin_alloc(&context_dma(7, 8)).unwrap();
    accounting.free(CLIENT, ObjectHandle(7));
    accounting.end_alloc(making, done(ObjectHandle(8), 0));
    let refused = accounting.begin_alloc(&noting(8)).unwrap_err();
    assert_eq!(refused, RefusalCause::NoNotes);
}

/// Bytes of a context, of what there is once beside it, and of a channel.
const CONTEXT: u64 = 4416 << 10;
const ANY_CONTEXT: u64 = 3328 << 10;
const CHANNEL: u64 = 64 << 10;

fn group(engine: u32) -> Alloc {
    Alloc {
        engine: Some(engine),
        ..context_request(CLIENT, DEVICE, GROUP)
    }
}

fn share_of(accounting: &Accounting) -> ShareView {
    accounting.share(GPU).unwrap()
}

fn overhead(accounting: &Accounting) -> u64 {
    share_of(accounting).overhead
}

#[test]
fn group_is_charged_for_its_most_channels() {
    let mut accounting = accounting();
    accounting.alloc(&group(COPIES)).unwrap();
    assert_eq!(overhead(&accounting), 0);
    for number in 1..=3 {
        accounting.alloc(&channel(GROUP, number, 0)).unwrap();
    }
    assert_eq!(overhead(&accounting), 3 * CHANNEL);
    // The driver keeps their memory in the group's pool, for the next ones.
    accounting.free(CLIENT, ObjectHandle(1));
    accounting.free(CLIENT, ObjectHandle(2));
    assert_eq!(overhead(&accounting), 3 * CHANNEL);
    for number in 4..=6 {
        accounting.alloc(&channel(GROUP, number, 0)).unwrap();
    }
    assert_eq!(overhead(&accounting), 4 * CHANNEL);
    accounting.free(CLIENT, GROUP);
    assert_eq!(overhead(&accounting), 0);
}

#[test]
fn refused_channel_leaves_memory_in_its_group() {
    let mut accounting = accounting();
    accounting.alloc(&group(COPIES)).unwrap();
    let ticket = accounting.begin_alloc(&channel(GROUP, 1, 0)).unwrap();
    accounting.end_alloc(ticket, None);
    assert_eq!(overhead(&accounting), CHANNEL);
    assert_eq!(share_of(&accounting).channels, 1, "the group");
    accounting.alloc(&channel(GROUP, 1, 0)).unwrap();
    assert_eq!(overhead(&accounting), CHANNEL);
}

#[test]
fn channels_beyond_the_limit_get_driver_statuses() {
    let mut accounting = accounting();
    accounting.set_channel_limit(GPU, 2).unwrap();
    accounting.alloc(&group(COPIES)).unwrap();
    for number in 1..=2 {
        accounting.alloc(&channel(GROUP, number, 0)).unwrap();
    }
    let refused = accounting.alloc(&channel(GROUP, 3, 0)).unwrap_err();
    assert_eq!(refused.status(), NvStatus::NV_ERR_NO_MEMORY);
    // One by itself is a group first, of which there is one more to be had; but no channel.
    let refused = accounting.alloc(&channel(DEVICE, 3, COPIES)).unwrap_err();
    assert_eq!(refused, RefusalCause::NoChannels);
    let other = Alloc {
        object: ObjectHandle(0x41),
        ..group(COPIES)
    };
    accounting.alloc(&other).unwrap();
    let third = Alloc {
        object: ObjectHandle(0x42),
        ..group(COPIES)
    };
    let refused = accounting.alloc(&third).unwrap_err();
    assert_eq!(refused.status(), NvStatus::NV_ERR_NO_FREE_FIFOS);
    assert_eq!(refused.reason(), None, "the driver's own answer");
    let share = share_of(&accounting);
    assert_eq!((share.channels, share.channels_refused), (2, 3));
    // Another runlist has ids of its own.
    accounting.alloc(&channel(DEVICE, 3, COMPUTE)).unwrap();
    // A limit below what there is lets nothing in until enough is gone.
    accounting.set_channel_limit(GPU, 1).unwrap();
    accounting.free(CLIENT, ObjectHandle(1));
    assert!(accounting.alloc(&channel(GROUP, 4, 0)).is_err());
    accounting.free(CLIENT, ObjectHandle(2));
    accounting.alloc(&channel(GROUP, 4, 0)).unwrap();
}

#[test]
fn memory_that_is_short_takes_no_id() {
    let mut accounting = accounting();
    accounting.alloc(&group(COPIES)).unwrap();
    accounting.set_limit(GPU, CHANNEL).unwrap();
    accounting.alloc(&channel(GROUP, 1, 0)).unwrap();
    let refused = accounting.alloc(&channel(GROUP, 2, 0)).unwrap_err();
    assert!(matches!(refused, RefusalCause::NoMemory { .. }));
    let refused = accounting.alloc(&channel(DEVICE, 2, COMPUTE)).unwrap_err();
    assert!(matches!(refused, RefusalCause::NoMemory { .. }));
    accounting.set_limit(GPU, 1 << 30).unwrap();
    accounting.set_channel_limit(GPU, 2).unwrap();
    accounting.alloc(&channel(GROUP, 2, 0)).unwrap();
    assert_eq!(share_of(&accounting).channels, 2);
}

#[test]
fn turing_compute_is_compute_whatever_is_asked() {
    let mut accounting = accounting();
    let turing = Engines::of(0x160, false);
    accounting.set_engines(GPU, turing).unwrap();
    accounting.alloc(&group(COPIES)).unwrap();
    accounting.alloc(&channel(GROUP, 1, COPIES)).unwrap();
    accounting.alloc(&channel(DEVICE, 2, COPIES)).unwrap();
    let all = changes(&mut accounting);
    assert_eq!(all, [(1, made(GROUP.0, true)), (2, made(2, true))]);
    assert_eq!(
        overhead(&accounting),
        ANY_CONTEXT + 2 * CONTEXT + 2 * CHANNEL
    );
}

/// A copy has the original's address space by a bare pointer, and that of a share its group.
#[test]
fn groups_and_their_shares_are_not_copied() {
    let mut accounting = accounting();
    accounting.alloc(&group(COMPUTE)).unwrap();
    let [share, other, copy] = [object(0x40), object(0x41), object(0x42)];
    let made = Alloc {
        class: ClassId(0x9067),
        kind: Kind::ContextShare,
        ..request(CLIENT, GROUP, share)
    };
    accounting.alloc(&made).unwrap();
    accounting.context(other).unwrap();
    for (parent, source) in [(DEVICE, GROUP), (GROUP, share), (other, share)] {
        let copied = accounting.dup(CLIENT, parent, copy, CLIENT, source);
        assert_eq!(copied, Err(RefusalCause::KeepsNoSpace));
        let export = DescriptorPlaces {
            file: FileId(40),
            first: 0,
            client: CLIENT,
            objects: &[source],
            made: 1,
        };
        let exported = accounting.begin_export(&export).err();
        assert_eq!(exported, Some(RefusalCause::KeepsNoSpace));
    }
}

#[test]
fn channels_being_made_cannot_be_scheduled() {
    let mut accounting = accounting();
    let wanted = channel(DEVICE, 1, COMPUTE);
    let ticket = accounting.begin_alloc(&wanted).unwrap();
    let schedule = |accounting: &mut Accounting| accounting.begin_schedule(CLIENT, ObjectHandle(1));
    let unknown = Err(RefusalCause::UnknownObject);
    assert_eq!(schedule(&mut accounting), unknown);
    let (object, bytes) = (ticket.handle(), wanted.bytes);
    accounting.end_alloc(ticket, Some(AllocDone { object, bytes }));
    assert_eq!(schedule(&mut accounting), Ok(()));
}
