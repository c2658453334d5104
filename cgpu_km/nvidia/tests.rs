// SPDX-License-Identifier: GPL-2.0 OR MIT
//! The tables hold together, and say what is known from recordings and sources.

mod docs;

use super::{
    asked,
    class::{
        self,
        Kind,
        Presence, //
    },
    control::{
        Answered,
        Care,
        Direction,
        Exported,
        LARGEST_PARAMS, //
    },
    escape::{
        self,
        Escape, //
    },
    fb::{
        self,
        FbReport, //
    },
    handle::{
        ClassId,
        ControlCmd, //
    },
    memory,
    names::{
        GpuNames,
        ProcessNames, //
    },
    nvos,
    params,
    rmapi,
    samples,
    tables::Tables,
    uvm::{
        self,
        UvmKind, //
    },
    version::{
        Branch,
        DriverVersion, //
    },
    wire::{
        Field,
        Items,
        Wire, //
    }, //
};
use proptest::prelude::*;

fn r580() -> &'static Tables {
    Tables::of(Branch::R580).expect("the branch of the recordings")
}

fn all() -> impl Iterator<Item = (Branch, &'static Tables)> {
    Branch::ALL
        .into_iter()
        .filter_map(|branch| Some((branch, Tables::of(branch)?)))
}

fn sorted<T, K: Ord>(table: &[T], key: impl Fn(&T) -> K) -> bool {
    table
        .windows(2)
        .all(|pair| matches!(pair, [a, b] if key(a) < key(b)))
}

#[test]
fn lookup_finds_each_entry_of_sorted_tables() {
    assert!(sorted(&escape::TABLE, |entry| entry.escape.nr()));
    for (_, tables) in all() {
        assert!(sorted(tables.classes, |entry| entry.class));
        assert!(sorted(tables.controls, |entry| entry.cmd));
        assert!(sorted(tables.uvm, |entry| entry.cmd));
        for entry in &escape::TABLE {
            assert_eq!(tables.escape(entry.escape.nr()), Some(entry));
        }
        for entry in tables.classes {
            assert_eq!(tables.class(entry.class), Some(entry));
        }
        for entry in tables.controls {
            assert_eq!(tables.control(entry.cmd), Some(entry));
        }
        for entry in tables.uvm {
            assert_eq!(tables.uvm(entry.cmd), Some(entry));
        }
    }
}

#[test]
fn branches_say_only_what_their_base_does_not() {
    for (_, tables) in all() {
        let absent = tables.absent;
        assert!(sorted(absent.classes, |class| *class));
        assert!(sorted(absent.controls, |cmd| *cmd));
        assert!(sorted(absent.uvm, |cmd| *cmd));
        let Some(base) = tables.base else {
            assert!(absent.classes.is_empty() && absent.controls.is_empty());
            continue;
        };
        for entry in tables.classes {
            assert_ne!(base.class(entry.class), Some(entry));
        }
        for entry in tables.controls {
            assert_ne!(base.control(entry.cmd), Some(entry));
        }
        for entry in tables.uvm {
            assert_ne!(base.uvm(entry.cmd), Some(entry));
        }
        for &class in absent.classes {
            assert!(base.class(class).is_some() && tables.class(class).is_none());
        }
        for &cmd in absent.controls {
            assert!(base.control(cmd).is_some() && tables.control(cmd).is_none());
        }
    }
}

#[test]
fn tables_come_from_their_own_branch() {
    for branch in Branch::ALL {
        let tables = Tables::of(branch).expect("made");
        assert_eq!(Branch::of(tables.release), Some(branch));
    }
}

/// Sizes that NVIDIA changed, oldest branch first; 0 is refused.
#[test]
fn branches_differ_where_nvidia_changed_something() {
    let class = |number| {
        let size = |tables: &Tables| {
            tables
                .class(ClassId(number))
                .map_or(0, |entry| entry.params)
        };
        all().map(|(_, tables)| size(tables)).collect::<Vec<_>>()
    };
    assert_eq!(class(0x40), [120, 128, 128, 128, 128]);
    assert_eq!(class(0x90f1), [48, 48, 48, 56, 56]);
    assert_eq!(class(0xc86f), [360, 360, 368, 368, 368]);
    assert_eq!(class(0xc96f), [0, 0, 368, 368, 368]);
    assert_eq!(class(0xde), [4, 8, 8, 8, 8]);
    assert_eq!(class(0x80), [56; 5]);

    let control = |number| {
        let cmd = ControlCmd(number);
        let size = |tables: &Tables| tables.control(cmd).map_or(0, |entry| entry.params);
        all().map(|(_, tables)| size(tables)).collect::<Vec<_>>()
    };
    assert_eq!(control(0x2080_1303), [436, 444, 460, 1028, 1028]);
    assert_eq!(control(0xa06c_0101), [2, 2, 2, 3, 3]);
    assert_eq!(control(0x3d08), [76, 80, 80, 80, 80]);
    // The same number is another control, and a refused one, in some branches.
    assert_eq!(control(0x2080_1357), [0, 0, 0, 4, 4]);
    assert_eq!(control(0x2080_1359), [0, 0, 4, 0, 0]);
    assert_eq!(control(0x2080_018d), [3812; 5]);

    let uvm = |number| {
        let size = |tables: &Tables| tables.uvm(number).map_or(0, |entry| entry.size);
        all().map(|(_, tables)| size(tables)).collect::<Vec<_>>()
    };
    assert_eq!(uvm(33), [1200, 9264, 9264, 9264, 9264]);
    assert_eq!(uvm(28), [28, 28, 28, 28, 12]);
    assert_eq!(uvm(34), [24, 24, 24, 24, 16]);
    assert_eq!(uvm(68), [1184, 9248, 9248, 9248, 9248]);
    assert_eq!(uvm(37), [40; 5]);
}

#[test]
fn everything_fits_a_scratch_slot() {
    let largest = usize::try_from(LARGEST_PARAMS).expect("small");
    for (_, tables) in all() {
        for entry in tables.classes {
            assert!(entry.params <= LARGEST_PARAMS, "{}", entry.name);
            let may_lack = entry.presence == Presence::Optional;
            assert!(may_lack || entry.params > 0, "{}", entry.name);
        }
        for entry in tables.controls {
            assert!(entry.params <= LARGEST_PARAMS, "{}", entry.name);
            for pointer in entry.pointers {
                let end = u32::try_from(pointer.at + u64::SIZE).expect("small");
                assert!(pointer.at % 8 == 0 && end <= entry.params, "{}", entry.name);
                let (elem, max) = (pointer.elem, pointer.max);
                let end = u32::try_from(pointer.count_at + u32::SIZE).expect("small");
                assert!(end <= entry.params, "{}", entry.name);
                assert!(
                    (1..=largest).contains(&(elem * max)),
                    "{}: {elem} * {max}",
                    entry.name
                );
            }
        }
        for entry in tables.uvm {
            assert!(entry.size <= LARGEST_PARAMS, "{}", entry.name);
            let bytes = vec![0; usize::try_from(entry.size).expect("small")];
            for field in [Some(entry.status), entry.client, entry.object] {
                let inside = field.is_none_or(|field| field.get(&bytes).is_some());
                assert!(entry.size == 0 || inside, "{}", entry.name);
            }
        }
    }
}

#[test]
fn escapes_are_numbered_as_nvidia_numbers_them() {
    for &escape in Escape::ALL {
        assert_eq!(Escape::from_nr(escape.nr()), Some(escape));
        let entry = r580().escape(escape.nr()).expect("every escape is known");
        assert_eq!(entry.escape, escape);
        assert!(!entry.takes(0));
    }
    assert_eq!(Escape::from_nr(0x2b), Some(Escape::RmAlloc));
    assert_eq!(Escape::from_nr(0), None);
    assert_eq!(r580().escape(202), None);
}

#[test]
fn a_branch_is_named_by_its_number_alone() {
    assert_eq!(Branch::named(580), Some(Branch::R580));
    for unknown in [0, 58, 545, 999] {
        assert_eq!(Branch::named(unknown), None);
    }
    // A version that is refused can be assumed.
    let old = DriverVersion::parse("535.54.03").expect("a version");
    assert_eq!(Branch::of(old), None);
    assert_eq!(Branch::named(old.major), Some(Branch::R535));
}

#[test]
fn escapes_that_reach_beyond_the_tenant_are_refused() {
    for escape in [
        Escape::RmAllocObject,
        Escape::RmI2cAccess,
        Escape::RmAccessRegistry,
        Escape::RmBindContextDma,
        Escape::RmLocklessDiagnostic,
        Escape::SetNumaStatus,
    ] {
        let entry = r580().escape(escape.nr()).expect("known");
        assert!(entry.is_refused, "{}", entry.escape.name());
        assert!((0..1 << 14).all(|size| !entry.takes(size)));
    }
}

#[test]
fn escapes_take_the_sizes_that_programs_use() {
    let takes = |nr, size| r580().escape(nr).is_some_and(|entry| entry.takes(size));
    // From the recordings; the short form of RM_ALLOC from nvos.h.
    for (nr, size) in [
        (0x27, 56),
        (0x29, 16),
        (0x2a, 32),
        (0x2b, 48),
        (0x2b, 32),
        (0x34, 28),
        (0x35, 24),
        (0x4a, 184),
        (0x4e, 56),
        (0x4f, 32),
        (0x5e, 40),
        (200, 2304),
        (201, 4),
        (206, 16),
        (207, 16),
        (210, 72),
        (211, 16),
        (214, 8),
        (215, 560),
        (218, 8),
    ] {
        assert!(takes(nr, size), "{nr:#x} {size}");
        assert!(!takes(nr, size + 1), "{nr:#x} {size}");
    }
    assert!(!takes(0x2b, 40));
}

#[test]
fn request_codes_carry_number_and_size() {
    assert_eq!(nvos::request_parts(0xc030_462b), (0x2b, 48));
    assert_eq!(nvos::request_code(0x2b, 48), Some(0xc030_462b));
    assert_eq!(nvos::request_code(200, 0x3fff), Some(0xffff_46c8));
    assert_eq!(nvos::request_code(200, 0x4000), None);
}

#[test]
fn classes_of_580_are_those_of_the_recordings() {
    let class = |number| {
        let entry = r580().class(ClassId(number)).expect("allowed");
        (entry.params, entry.kind, entry.presence)
    };
    assert_eq!(class(0x0), (4, Kind::Root, Presence::Optional));
    assert_eq!(class(0x40), (128, Kind::VideoMemory, Presence::Required));
    assert_eq!(class(0x3e), (128, Kind::SystemMemory, Presence::Required));
    assert_eq!(class(0x73), (0, Kind::Inert, Presence::Optional));
    assert_eq!(class(0x79), (24, Kind::Event, Presence::Required));
    assert_eq!(class(0x80), (56, Kind::Device, Presence::Optional));
    assert_eq!(class(0xde), (8, Kind::SharedData, Presence::Required));
    assert_eq!(class(0x2080), (4, Kind::Subdevice, Presence::Optional));
    assert_eq!(class(0x90f1), (56, Kind::VaSpace, Presence::Required));
    assert_eq!(class(0xa06c), (20, Kind::ChannelGroup, Presence::Required));
    assert_eq!(class(0xc86f), (368, Kind::Channel, Presence::Required));
    assert_eq!(class(0xc661), (2, Kind::UserMode, Presence::Optional));
    assert_eq!(
        class(0xcbc0),
        (16, Kind::GraphicsObject, Presence::Optional)
    );
}

#[test]
fn classes_beyond_a_share_are_refused() {
    for number in [
        0x3f, // register and memory windows
        0x81, // NV01_MEMORY_LIST_SYSTEM, _FBMEM, _OBJECT
        0x82, 0x83, 0xc2,   // NV01_MEMORY_LOCAL_PHYSICAL
        0xfd,   // multicast
        0x2082, // NV2082_BINAPI_PRIVILEGED
        0xc637, // MIG
        0xc639, 0xc640,
    ] {
        assert_eq!(r580().class(ClassId(number)), None, "{number:#x}");
    }
}

#[test]
fn controls_of_580_are_those_of_the_recordings() {
    let params = |number| r580().control(ControlCmd(number)).map(|entry| entry.params);
    assert_eq!(params(0x101), Some(40));
    assert_eq!(params(0x2080_1303), Some(1028));
    assert_eq!(params(0x2080_018e), Some(14_408));
    assert_eq!(params(0x2080_0145), Some(0));
    assert_eq!(params(0x2080_3002), Some(13_344));
    assert_eq!(params(0x208f_1105), Some(8));
    assert_eq!(params(0xa06c_0101), Some(3));
    assert_eq!(params(0xa06c_0103), Some(8));
}

#[test]
fn controls_that_reach_beyond_the_tenant_are_refused() {
    for number in [
        0x2080_110b, // FIFO_DISABLE_CHANNELS
        0x0080_1714, // FIFO_IDLE_CHANNELS
        0x0080_170f,
        0xa06c_0107, // SET_INTERLEAVE_LEVEL
        0xa06f_0112, // STOP_CHANNEL
        0x2080_1819, // BUS_GET_PEX_UTIL_COUNTERS
        0x0000_0283,
        0x208f_0703,
        0x2080_a083, // of the firmware: what each process does
        0x2080_8777,
    ] {
        assert_eq!(r580().control(ControlCmd(number)), None, "{number:#x}");
    }
    assert!(ControlCmd(0x2080_c52e).is_gss_privileged());
    assert!(!ControlCmd(0x2080_852e).is_gss_privileged());
}

#[test]
fn rows_say_what_is_done_about_controls() {
    let care = |number| r580().control(ControlCmd(number)).map(|entry| entry.care);
    let subdevice = Care::Answer(Answered::Ignored(Kind::Subdevice));
    for (number, expected) in [
        (0x201, Care::Gpus(GpuNames::Attached)),
        (0x215, Care::Gpus(GpuNames::Attach)),
        (0xd04, Care::Share),
        (0x3d05, Care::Export(Exported::Put)),
        (0x3d0c, Care::Export(Exported::TakeMany)),
        (0x2080_018d, Care::Processes(ProcessNames::Listed)),
        (0x2080_018e, Care::Processes(ProcessNames::Given)),
        (fb::FB_GET_INFO_V2.0, Care::Memory(FbReport::InfoV2)),
        (0x2080_1301, Care::Memory(FbReport::Info)),
        (0x2080_1320, Care::Memory(FbReport::Regions)),
        (0x2080_0102, Care::Features),
        (0xa06c_0101, Care::Schedule),
        (0xa06c_0103, Care::Answer(Answered::SetTimeslice)),
        (0xa06c_0104, Care::Answer(Answered::GetTimeslice)),
        (0xa06c_0105, Care::Answer(Answered::Preempt)),
        (0x2080_200a, Care::Answer(Answered::PerfBoost)),
        (0x2080_0145, subdevice),
        (0x2080_0146, subdevice),
        (0x2080_2096, Care::Answer(Answered::Samples)),
        (0x2080_0110, Care::Plain),
        (0x2080_852e, Care::Firmware),
        (0x503c_0102, Care::AddressSpace),
        (0xc56f_010b, Care::Statistics),
        (0x00de_0001, Care::Poll),
    ] {
        assert_eq!(care(number), Some(expected), "{number:#x}");
    }
}

/// Except FIFO_GET_INFO, which no program may ask.
#[test]
fn own_classes_and_controls_are_the_tables_ones() {
    let classes = [
        (class::NV01_ROOT, "NV01_ROOT"),
        (class::NV01_DEVICE_0, "NV01_DEVICE_0"),
        (class::RM_USER_SHARED_DATA, "RM_USER_SHARED_DATA"),
        (class::NV20_SUBDEVICE_0, "NV20_SUBDEVICE_0"),
        (class::HOPPER_USERMODE_A, "HOPPER_USERMODE_A"),
    ];
    let controls = [
        (asked::GPU_GET_ID_INFO, "NV0000_CTRL_CMD_GPU_GET_ID_INFO"),
        (asked::GPU_GET_INFO_V2, "NV2080_CTRL_CMD_GPU_GET_INFO_V2"),
        (
            asked::GPU_GET_NAME_STRING,
            "NV2080_CTRL_CMD_GPU_GET_NAME_STRING",
        ),
        (asked::GPU_GET_GID_INFO, "NV2080_CTRL_CMD_GPU_GET_GID_INFO"),
        (asked::MC_GET_ARCH_INFO, "NV2080_CTRL_CMD_MC_GET_ARCH_INFO"),
        (fb::FB_GET_INFO_V2, "NV2080_CTRL_CMD_FB_GET_INFO_V2"),
    ];
    for (_, tables) in all() {
        for (number, name) in classes {
            let found = tables.class(number).map(|entry| entry.name);
            assert_eq!(found, Some(name), "{number:?}");
        }
        for (number, name) in controls {
            let found = tables.control(number).map(|entry| entry.name);
            assert_eq!(found, Some(name), "{number:?}");
        }
    }
}

/// The kernel's own calls have kernel addresses where a program's have its own.
#[test]
fn kernel_controls_for_programs_hold_no_unknown_address() {
    for (_, tables) in all() {
        let mut found = 0;
        let numbers = (0..0x1000).chain(0xda_0000..0xda_0010);
        for number in numbers.chain(0x2080_0000..0x2080_4000) {
            let entry = tables.control(ControlCmd(number));
            let Some(entry) = entry.filter(|entry| entry.care.is_unseen()) else {
                continue;
            };
            found += 1;
            let places: Vec<usize> = entry.pointers.iter().map(|pointer| pointer.at).collect();
            let list = params::fb_get_info::FB_INFO_LIST.offset();
            let wanted = match entry.care {
                Care::Memory(FbReport::Info) => vec![list],
                _ => vec![],
            };
            assert_eq!(places, wanted, "{}", entry.name);
        }
        assert!(found >= 8, "{found}");
    }
}

#[test]
fn given_gpus_lie_inside_the_parameters() {
    for (_, tables) in all() {
        let mut found = 0;
        for number in 0..0x1000 {
            let Some(entry) = tables.control(ControlCmd(number)) else {
                continue;
            };
            let Care::Gpus(names) = entry.care else {
                continue;
            };
            let bytes = vec![0; usize::try_from(entry.params).expect("small")];
            for list in names.given() {
                let last = list.ids.item(list.ids.count() - 1).expect("inside");
                assert!(last.get(&bytes).is_some(), "{}", entry.name);
            }
            found += 1;
        }
        assert!(found >= 15, "{found}");
    }
}

#[test]
fn pointers_tell_how_much_they_mean() {
    let entry = r580().control(ControlCmd(0x0080_170d)).expect("allowed");
    let [handles, channels] = entry.pointers else {
        panic!("{:?}", entry.pointers);
    };
    assert_eq!((handles.at, handles.direction), (8, Direction::In));
    assert_eq!((channels.at, channels.direction), (16, Direction::InOut));
    let mut bytes = [0; params::channel_list::SIZE];
    assert_eq!(handles.bytes(&bytes), Some(0));
    params::channel_list::NUM_CHANNELS
        .set(&mut bytes, 3)
        .expect("inside");
    assert_eq!(handles.bytes(&bytes), Some(12));
    params::channel_list::NUM_CHANNELS
        .set(&mut bytes, 4097)
        .expect("inside");
    assert_eq!(handles.bytes(&bytes), None);
    assert_eq!(handles.bytes(&[]), None);

    let matrix = r580().control(ControlCmd(0x127)).expect("allowed");
    let pointer = matrix.pointers.first().expect("two");
    let mut bytes = vec![0; 176];
    Field::<u32>::at(128).set(&mut bytes, 32).expect("inside");
    assert_eq!(pointer.bytes(&bytes), Some(4096));
    Field::<u32>::at(128).set(&mut bytes, 33).expect("inside");
    assert_eq!(pointer.bytes(&bytes), None);
    Field::<u32>::at(128)
        .set(&mut bytes, u32::MAX)
        .expect("inside");
    assert_eq!(pointer.bytes(&bytes), None);
}

#[test]
fn uvm_commands_have_the_sizes_of_580() {
    let command = |number| {
        let entry = r580().uvm(number).expect("allowed");
        (entry.size, entry.status.offset(), entry.kind)
    };
    assert_eq!(command(0x3000_0001), (16, 8, UvmKind::Initialize));
    assert_eq!(command(0x3000_0002), (0, 0, UvmKind::Deinitialize));
    assert_eq!(command(75), (8, 4, UvmKind::MmInitialize));
    assert_eq!(command(37), (40, 36, UvmKind::RegisterGpu));
    assert_eq!(command(33), (9264, 9260, UvmKind::MapExternal));
    assert_eq!(command(28), (28, 24, UvmKind::UnregisterChannel));
    assert_eq!(command(34), (24, 16, UvmKind::Free));
    let map = r580().uvm(33).expect("allowed");
    assert_eq!(map.client, Some(Field::at(9252)));
    assert_eq!(map.object, Some(Field::at(9256)));
    assert_eq!(r580().uvm(34).and_then(|entry| entry.client), None);
    // The tools' and tests' commands.
    for number in (56..=64).chain([67, 69, 76, 77, 78, 200]) {
        assert_eq!(r580().uvm(number), None, "{number}");
    }
    assert_eq!(uvm::register_gpu::UUID, 0..16);
}

#[test]
fn memory_takes_what_the_recordings_say() {
    // flags, attr, attr2 and alignment as CUDA has them on an H200.
    let recorded = |size, attr| memory::taken(size, 0x1c101, attr, 0, 0x20_0000);
    for (size, took) in [
        (0x0020_0000, 0x0020_0000),
        (0x0030_0000, 0x0040_0000),
        (0x0042_0000, 0x0060_0000),
        (0x044c_6880, 0x0460_0000),
        (0x19c8_0000, 0x19e0_0000),
        (0x4000_0000, 0x4000_0000),
    ] {
        assert_eq!(recorded(size, 0x1800_0000), took, "{size:#x}");
        assert_eq!(recorded(size, 0x3800_0000), took, "{size:#x}");
        // Huge pages by name.
        assert_eq!(recorded(size, 0x1980_0000), took, "{size:#x}");
    }
}

#[test]
fn memory_takes_the_page_that_is_asked_for() {
    let kib = |size: u64| size << 10;
    let taken = |size, attr, attr2| memory::taken(size, 0, attr, attr2, 0);
    const SMALL: u32 = 1 << 23;
    const BIG: u32 = 2 << 23;
    const HUGE: u32 = 3 << 23;
    // Below 2 MiB the driver's choice is 64 KiB, and less PMA does not give.
    assert_eq!(taken(1, 0, 0), kib(64));
    assert_eq!(taken(kib(2048) - 1, 0, 0), kib(2048));
    assert_eq!(taken(kib(2048) + 1, 0, 0), kib(4096));
    assert_eq!(taken(kib(4), SMALL, 0), kib(64));
    assert_eq!(taken(kib(2049), SMALL, 0), kib(2112));
    assert_eq!(taken(kib(2049), BIG, 0), kib(2112));
    assert_eq!(taken(1, HUGE, 1 << 20), kib(2048));
    assert_eq!(taken(1, HUGE, 2 << 20), 512 << 20);
    assert_eq!(taken(1, HUGE, 3 << 20), 256 << 30);
    // Compression.
    assert_eq!(taken(kib(4), SMALL | 1 << 12, 0), kib(256));
    assert_eq!(taken(u64::MAX, 0, 0), u64::MAX);
}

#[test]
fn aligned_memory_takes_its_frame() {
    let kib = |size: u64| size << 10;
    let (hint, force) = (0x80, 0x100);
    for (flags, alignment, size, took) in [
        (0, kib(2048), 4, 64),
        (hint, kib(2048), 4, 2048),
        (force, kib(2048), 4, 2048),
        (force, kib(512), 4, 512),
        // As recorded with Vulkan.
        (force, kib(64), 64, 64),
        (force, kib(64), 1024, 1024),
        // No more than a frame is lost, and none where it is asked for whole.
        (hint, 1 << 30, 4, 2048),
        (hint, u64::MAX, 4, 2048),
        (force, 1 << 30, 4096, 4096),
        (hint, 0x3000, 4, 64),
    ] {
        let taken = memory::taken(kib(size), flags, 0, 0, alignment);
        assert_eq!(taken, kib(took), "{flags:#x} {alignment:#x} {size}");
    }
}

#[test]
fn only_one_location_is_video_memory() {
    assert!(memory::is_video(0x1800_0000));
    for location in 1..4 {
        assert!(!memory::is_video(0x1800_0000 | location << 25));
    }
    assert!(memory::uses_egm(1 << 24) && !memory::uses_egm(0));
}

#[test]
fn versions_parse_as_nvidia_writes_them() {
    let version = |major, minor, patch| DriverVersion {
        major,
        minor,
        patch,
    };
    assert_eq!(
        DriverVersion::parse("580.159.04"),
        Some(version(580, 159, 4))
    );
    assert_eq!(DriverVersion::parse("580.142"), Some(version(580, 142, 0)));
    for text in [
        "",
        "580",
        "580.",
        "580.1.2.3",
        "580.x",
        "+580.1",
        "580.-1",
        " 580.1",
        "9999999999.1",
    ] {
        assert_eq!(DriverVersion::parse(text), None, "{text:?}");
    }
    assert_eq!(version(580, 159, 4).to_string(), "580.159.04");
    assert_eq!(version(580, 142, 0).to_string(), "580.142");
    assert_eq!(Branch::of(version(580, 159, 4)), Some(Branch::R580));
    assert_eq!(Branch::of(version(565, 57, 1)), None);
    assert_eq!(Branch::of(version(535, 54, 3)), None);
    assert_eq!(Branch::of(version(535, 86, 5)), Some(Branch::R535));
    assert_eq!(Branch::of(version(550, 54, 14)), Some(Branch::R550));
}

proptest! {
    #[test]
    fn fields_stay_inside(
        offset in prop_oneof![0..80usize, Just(usize::MAX)],
        mut bytes: Vec<u8>,
        value: u32,
    ) {
        let field = Field::<u32>::at(offset);
        let fits = offset.checked_add(4).is_some_and(|end| end <= bytes.len());
        let before = bytes.clone();
        prop_assert_eq!(field.get(&bytes).is_some(), fits);
        prop_assert_eq!(field.set(&mut bytes, value).is_some(), fits);
        if fits {
            prop_assert_eq!(field.get(&bytes), Some(value));
            prop_assert_eq!(&bytes[..offset], &before[..offset]);
            prop_assert_eq!(&bytes[offset + 4..], &before[offset + 4..]);
        } else {
            prop_assert_eq!(bytes, before);
        }
    }

    #[test]
    fn items_stay_inside(offset: usize, count: usize, index: usize, bytes: Vec<u8>) {
        let items = Items::<u32>::at(offset, count);
        let item = items.item(index);
        prop_assert!(item.is_none() || index < count);
        prop_assert!(item.and_then(|field| field.get(&bytes)).is_none_or(|_| bytes.len() >= 4));
        prop_assert!(items.bytes(&bytes).is_none_or(|part| part.len() <= bytes.len()));
    }

    #[test]
    fn memory_never_takes_less_than_is_asked(
        size: u64,
        flags: u32,
        attr: u32,
        attr2: u32,
        alignment: u64,
    ) {
        let taken = memory::taken(size, flags, attr, attr2, alignment);
        prop_assert!(taken >= size);
        prop_assert!(taken == u64::MAX || taken % (64 << 10) == 0);
    }

    #[test]
    fn lists_of_any_length_are_measured(number in 0..1024usize, bytes: Vec<u8>) {
        let controls = r580().controls;
        let entry = controls.get(number % controls.len()).expect("inside");
        for pointer in entry.pointers {
            let largest = usize::try_from(LARGEST_PARAMS).expect("small");
            prop_assert!(pointer.bytes(&bytes).is_none_or(|len| len <= largest));
        }
    }

    #[test]
    fn texts_never_break_the_parser(text in ".{0,24}") {
        if let Some(version) = DriverVersion::parse(&text) {
            prop_assert_eq!(DriverVersion::parse(&version.to_string()), Some(version));
        }
    }
}

/// Each branch's samples fill its ring, and are found where they are put; places that are empty are
/// left out.
#[test]
fn samples_are_read_as_the_branch_writes_them() {
    for branch in Branch::ALL {
        let tables = Tables::of(branch).expect("one of all");
        let layout = tables.samples;
        let control = tables
            .control(rmapi::GPUMON_SAMPLES)
            .expect("is in the tables");
        assert_eq!(usize::try_from(control.params).expect("small"), layout.ring);
        assert_eq!(
            layout.ring,
            params::gpumon::SAMPLES + samples::SAMPLES * layout.sample
        );
        assert_eq!(layout.ring % size_of::<u64>(), 0);
        let mut params = vec![0; layout.ring];
        layout.ask(&mut params);
        assert_eq!(params::gpumon::TYPE.get(&params), Some(2));
        assert_eq!(layout.samples(&params).count(), 0);
        let put = |params: &mut [u8], index: usize, stamp: u64, process: u32| {
            let at = params::gpumon::SAMPLES + index * layout.sample;
            let stamp_at = samples::sample::TIME_STAMP.within(at).expect("near");
            stamp_at.set(params, stamp).expect("inside");
            let process_at = Field::<u32>::at(at + layout.process);
            process_at.set(params, process).expect("inside");
        };
        put(&mut params, 0, 5, 1234);
        put(&mut params, 71, 4, samples::NO_PROCESS);
        let found: Vec<_> = layout.samples(&params).collect();
        let sample = |stamp, process| samples::RingSample { stamp, process };
        assert_eq!(found, [sample(5, Some(1234)), sample(4, None)]);
        // A shorter answer is no danger.
        assert_eq!(layout.samples(&params[..layout.sample]).count(), 1);
    }
}

#[test]
fn host_memory_takes_whole_pages_or_one_piece() {
    let kib = |size: u64| size << 10;
    const ONE_PIECE: u32 = memory::ATTR_CONTIGUOUS;
    const NO_PIECE: u32 = 1 << 27;
    const SMALL: u32 = 1 << 23;
    const BIG: u32 = 2 << 23;
    const HUGE: u32 = 3 << 23;
    for (size, attr, attr2, taken) in [
        (1, 0, 0, kib(4)),
        (kib(64) + 1, 0, 0, kib(128)),
        (kib(2048) + 1, NO_PIECE, 0, kib(4096)),
        (kib(2048) + 1, SMALL, 0, kib(2052)),
        (1, BIG, 0, kib(64)),
        (1, HUGE, 1 << 20, kib(2048)),
        (kib(12), SMALL | ONE_PIECE, 0, kib(16)),
        (kib(3000), ONE_PIECE, 0, kib(4096)),
        (kib(5000), ONE_PIECE, 0, kib(8192)),
        (0, 0, 0, 0),
        (u64::MAX, 0, 0, u64::MAX),
        (u64::MAX >> 1, ONE_PIECE, 0, 1 << 63),
        ((1 << 63) + 1, ONE_PIECE | SMALL, 0, u64::MAX),
    ] {
        let told = memory::host_taken(size, attr, attr2);
        assert_eq!(told, taken, "{size:#x} {attr:#x}");
    }
}
