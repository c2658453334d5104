// SPDX-License-Identifier: GPL-2.0
//! The meaning of an input: events of a hostile container, one after the other.
//!
//! Four targets begin in different places, so that each gets far with short inputs:
//!
//! * [`sequence`]: an empty tenant and any events;
//! * [`frontend`]: a tenant with objects of each kind that matters, then escapes;
//! * [`control`]: the same, then controls out of the tables and beside them, with any parameters;
//! * [`uvm`]: the same with an address space, then UVM requests.
//!
//! The first byte of each input chooses the branch of the driver.

use std::sync::OnceLock;

use cgpu_km::{
    nvidia::{
        handle::{ClassId, ControlCmd},
        tables::Tables,
        version::Branch,
    },
    policy::GpuId,
};

use crate::{
    driver::GPUS,
    program::Program,
    stream::{put_u32, put_u64, Input},
};

/// Limit of each GPU in bytes, unless an event changes it.
pub const LIMIT: u64 = 1 << 30;
/// Events that one input has at most.
const MOST_EVENTS: usize = 400;

/// The tenant's objects when `frontend`, `control` and `uvm` begin: see [`prologue`].
pub mod handles {
    /// The first client, on the first control file, by the first process.
    pub const CLIENT: u32 = crate::driver::FIRST_CLIENT;
    /// Another one, on the other control file, by the other process.
    pub const SECOND: u32 = CLIENT + 1;
    /// A device of the first GPU.
    pub const DEVICE: u32 = 0x5c00_0001;
    /// Its subdevice.
    pub const SUBDEVICE: u32 = 0x5c00_0002;
    /// An address space.
    pub const VASPACE: u32 = 0x5c00_0003;
    /// Video memory of 4 MiB.
    pub const MEMORY: u32 = 0x5c00_0004;
    /// A channel group for compute.
    pub const GROUP: u32 = 0x5c00_0005;
    /// The doorbell page.
    pub const USERMODE: u32 = 0x5c00_0006;
    /// An event's parent of any other kind: host memory.
    pub const SYSTEM: u32 = 0x5c00_0007;
}

/// Events by number: most are calls.
const CLOSE: u8 = 12;
const SET_LIMIT: u8 = 13;
const SHARE: u8 = 14;
const PROCESS: u8 = 15;

fn branch(input: &[u8]) -> (Branch, &[u8]) {
    let (first, rest) = input.split_first().unwrap_or((&0, &[]));
    (Branch::ALL[usize::from(*first) % Branch::ALL.len()], rest)
}

/// Any events from the beginning.
pub fn sequence(input: &[u8]) {
    let (branch, rest) = branch(input);
    let mut program = Program::new(rest, branch, LIMIT, event);
    events(&mut program);
    program.end();
}

fn events(program: &mut Program<'_>) {
    for _ in 0..MOST_EVENTS {
        if program.input.is_over() {
            break;
        }
        event(program);
        program.check();
    }
}

/// One event out of the input.
pub fn event(program: &mut Program<'_>) {
    let what = program.input.byte() % 16;
    let node = usize::from(program.input.byte());
    match what {
        CLOSE => program.reopen(node),
        SET_LIMIT => {
            let bytes = u64::from(program.input.word()) << 12;
            let index = node % GPUS.len();
            let gpu = GpuId(GPUS[index]);
            let has_share = program.accounting.share(gpu).is_some();
            let set = program.accounting.set_limit(gpu, bytes);
            assert_eq!(set.is_ok(), has_share, "a limit is a share's");
            program.limits[index] = bytes;
            program.limit_moved[index] = true;
        }
        SHARE => {
            let index = node % GPUS.len();
            let gpu = GpuId(GPUS[index]);
            match program.accounting.share(gpu) {
                Some(_) => program.accounting.remove_share(gpu),
                None => {
                    let limit = program.limits[index];
                    assert!(
                        program.accounting.add_share(gpu, limit).is_ok(),
                        "no memory"
                    );
                }
            }
        }
        PROCESS => {
            let process = i32::from(program.input.byte() % 3) + 100;
            let number = node % program.nodes.len();
            if let Some(open) = program.nodes.get_mut(number) {
                open.process = process;
            }
        }
        _ => {
            let request = program.input.word();
            // The answer is the program's concern.
            let _ = program.ioctl(node, request);
        }
    }
}

/// Which events follow the prologue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theme {
    Frontend,
    Control,
    Uvm,
}

/// Escapes on a tenant that has objects.
pub fn frontend(input: &[u8]) {
    themed(input, Theme::Frontend);
}

/// Controls on a tenant that has objects.
pub fn control(input: &[u8]) {
    themed(input, Theme::Control);
}

/// UVM requests of a tenant that has objects.
pub fn uvm(input: &[u8]) {
    themed(input, Theme::Uvm);
}

fn themed(input: &[u8], theme: Theme) {
    let (branch, rest) = branch(input);
    let all = [&prologue(branch), rest].concat();
    let mut program = prepared(&all, branch);
    for _ in 0..MOST_EVENTS {
        if program.input.is_over() {
            break;
        }
        match theme {
            Theme::Frontend => event(&mut program),
            Theme::Control => control_event(&mut program, branch),
            Theme::Uvm => {
                let (cmd, node) = (program.input.byte(), program.input.byte());
                let request = match cmd {
                    0xfe => 0x3000_0002,
                    0xff => 0x3000_0001,
                    cmd => u32::from(cmd),
                };
                let _ = program.ioctl(4 + usize::from(node % 2), request);
            }
        }
        program.check();
    }
    program.end();
}

/// A tenant for which the [`prologue`] has run, with which the input begins.
pub fn prepared(input: &[u8], branch: Branch) -> Program<'_> {
    let mut program = Program::new(input, branch, LIMIT, event);
    for _ in 0..PROLOGUE {
        event(&mut program);
        program.check();
    }
    let share = program.accounting.share(GpuId(GPUS[0]));
    assert_eq!(
        share.map(|share| (share.used, share.clients, share.objects)),
        Some((4 << 20, 1, 7)),
        "the prologue does not do what it is for"
    );
    program
}

/// The objects of the prologue that controls are for.
pub const OBJECTS: [u32; 8] = {
    use handles::*;
    [
        CLIENT, DEVICE, SUBDEVICE, VASPACE, MEMORY, GROUP, USERMODE, SYSTEM,
    ]
};

/// A control: its number out of the tables (one of 16: any), its object one of the prologue's (one
/// of 16: any), its size the right one (one of 16: any); all else from the input.
fn control_event(program: &mut Program<'_>, branch: Branch) {
    use handles::{CLIENT, SECOND};
    let known = controls(branch);
    let (pick, object, any) = (
        program.input.short(),
        program.input.byte(),
        program.input.byte(),
    );
    let (mut cmd, mut size) = known[usize::from(pick) % known.len()];
    if any % 16 == 1 {
        cmd = program.input.word();
    }
    if any / 16 == 1 {
        size = program.input.word();
    }
    let object = match object {
        0..=239 => OBJECTS[usize::from(object) % OBJECTS.len()],
        _ => program.input.word(),
    };
    let client = match program.input.byte() {
        0..=199 => CLIENT,
        200..=239 => SECOND,
        _ => program.input.word(),
    };
    let mut outer = vec![0; 32];
    put_u32(&mut outer, 0, client);
    put_u32(&mut outer, 4, object);
    put_u32(&mut outer, 8, cmd);
    put_u64(&mut outer, 16, if size == 0 { 0 } else { 0x6000_0000 });
    put_u32(&mut outer, 24, size);
    program.argument = Some(outer);
    let node = usize::from(client != CLIENT);
    let _ = program.ioctl(node, NV_ESC_RM_CONTROL);
    program.argument = None;
}

/// The controls of a branch's tables with their sizes. The tables are not made to be listed, so all
/// numbers of the classes that have controls are tried, once.
pub fn controls(branch: Branch) -> &'static [(u32, u32)] {
    static FOUND: [OnceLock<Vec<(u32, u32)>>; Branch::ALL.len()] =
        [const { OnceLock::new() }; Branch::ALL.len()];
    let index = Branch::ALL.iter().position(|known| *known == branch);
    let found = &FOUND[index.unwrap_or(0)];
    found.get_or_init(|| {
        let tables = Tables::of(branch);
        let classes = [
            0, 0x41, 0x73, 0x80, 0x2080, 0x2081, 0x208f, 0x503c, 0x83de, 0x906f, 0x9096,
        ]
        .into_iter()
        .chain([
            0x90cc, 0x90e6, 0x90e7, 0xa06c, 0xa06f, 0xb0cc, 0xb2cc, 0xc36f, 0xc56f, 0xcb33,
        ]);
        let numbers = classes.flat_map(|class: u32| (0..0x4000).map(move |low| class << 16 | low));
        let entry = |cmd| Some((cmd, tables?.control(ControlCmd(cmd))?.params));
        let mut all: Vec<(u32, u32)> = numbers.filter_map(entry).collect();
        // And one that goes to the firmware unseen.
        all.push((0x2080_8001, 16));
        all
    })
}

/// Request codes of the prologue.
const NV_ESC_RM_ALLOC: u32 = 0xc030_462b;
/// `NV_ESC_RM_CONTROL` with its size.
pub const NV_ESC_RM_CONTROL: u32 = 0xc020_462a;

/// Events of the [`prologue`].
const PROLOGUE: usize = 9;

/// Two clients and objects of each kind that matters, as an input of events.
pub fn prologue(branch: Branch) -> Vec<u8> {
    use handles::*;
    let mut input = Input::default();
    let tables = Tables::of(branch);
    let mut alloc = |node: u8, [client, parent, new, class]: [u32; 4], words: &[(usize, u32)]| {
        let entry = tables.and_then(|tables| tables.class(ClassId(class)));
        let size = usize::try_from(entry.map_or(0, |entry| entry.params)).unwrap_or(0);
        let mut outer = vec![0; 48];
        for (at, value) in [(0, client), (4, parent), (8, new), (12, class)] {
            put_u32(&mut outer, at, value);
        }
        put_u64(&mut outer, 16, if class == 0x41 { 0 } else { 0x6000_0000 });
        let mut params = vec![0; if class == 0x41 { 0 } else { size }];
        for (at, value) in words {
            put_u32(&mut params, *at, *value);
        }
        // The event, its place and the call; the argument and the parameters; a driver that does
        // its work.
        input.byte(0).byte(node).word(NV_ESC_RM_ALLOC);
        input.bytes(&outer).bytes(&params).byte(0);
    };
    let gpu = GPUS[0];
    alloc(0, [0, 0, 0, 0x41], &[]);
    alloc(1, [0, 0, 0, 0x41], &[]);
    alloc(0, [CLIENT, CLIENT, DEVICE, 0x80], &[(0, gpu)]);
    alloc(0, [CLIENT, DEVICE, SUBDEVICE, 0x2080], &[]);
    alloc(0, [CLIENT, DEVICE, VASPACE, 0x90f1], &[]);
    alloc(
        0,
        [CLIENT, DEVICE, MEMORY, 0x40],
        &[(24, 0x1800_0000), (64, 4 << 20)],
    );
    alloc(0, [CLIENT, DEVICE, GROUP, 0xa06c], &[(12, 1)]);
    alloc(0, [CLIENT, SUBDEVICE, USERMODE, 0xc661], &[]);
    alloc(0, [CLIENT, DEVICE, SYSTEM, 0x3e], &[(64, 4096)]);
    input.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_input_is_a_run() {
        for target in [sequence, frontend, control, uvm] {
            for branch in 0..5 {
                target(&[branch]);
            }
            target(&[]);
        }
    }

    #[test]
    fn controls_of_all_branches_are_found() {
        for branch in Branch::ALL {
            let found = controls(branch).len();
            assert!(found > 100, "{branch:?}: {found}");
        }
    }
}
