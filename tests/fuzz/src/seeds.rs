// SPDX-License-Identifier: GPL-2.0
//! Inputs out of recordings: what a real CUDA program did is where mutation begins.
//!
//! A recorded call is run through the proxy, and what it reads is written down in the order in
//! which it is read: that is the form of an input. Handles become those that the driver here gives,
//! or in the inputs of single calls those of the prologue.

use std::collections::{BTreeMap, BTreeSet};

use cgpu_km::nvidia::version::Branch;
use cgpu_replay::record::{Ioctl, NestedKind, Op, Trace};

use crate::{
    driver::GPUS,
    program::{id_of, uuid_of, Program, Recorded},
    run::{controls, event, handles, prepared, LIMIT, NV_ESC_RM_CONTROL},
    stream::{put_u32, put_u64, u32_at, Input},
};

/// Longest input of a sequence.
pub const LONGEST: usize = 16 << 10;
/// Inputs of one kind of call.
const OF_A_KIND: u32 = 2;
/// Apparent address of nested parameters.
const NESTED_AT: u64 = 0x6000_0000;

/// Inputs by target, each with a name.
pub type Seeds = BTreeMap<&'static str, BTreeMap<String, Vec<u8>>>;

/// All inputs that the recordings give.
pub fn of(traces: &[Trace]) -> Seeds {
    let mut seeds = Seeds::new();
    for (index, branch) in Branch::ALL.into_iter().enumerate() {
        let first = u8::try_from(index).unwrap_or(0);
        for trace in traces {
            let name = format!("{}-{}", branch.major(), trace.name);
            // CUDA's calls, and those that change something alone, so that the end is reached too.
            for (kind, all) in [("all", true), ("state", false)] {
                let bytes = sequence(trace, branch, all);
                let sequences = seeds.entry("sequence").or_default();
                sequences.insert(format!("{name}-{kind}"), [&[first], &bytes[..]].concat());
            }
        }
        let mut singles = Singles::new(branch);
        for trace in traces {
            singles.add(trace);
        }
        for (target, name, bytes) in singles.found {
            let of_target = seeds.entry(target).or_default();
            of_target.insert(
                format!("{}-{name}", branch.major()),
                [&[first], &bytes[..]].concat(),
            );
        }
    }
    seeds.insert("kubernetes", kubernetes());
    seeds
}

/// A field of a message that is a text.
fn field(number: u8, text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap_or(0);
    [&[number << 3 | 2, length], text.as_bytes()].concat()
}

/// The kubelet's question about the claim `team-a/train` with this uid.
fn by_uid(uid: &str) -> Vec<u8> {
    let reference = [field(1, "team-a"), field(2, uid), field(3, "train")].concat();
    let length = u8::try_from(reference.len()).unwrap_or(0);
    [&[1 << 3 | 2, length], &reference[..]].concat()
}

/// Inputs of the target `kubernetes`: what a cluster writes, each behind the number of its kind.
pub(crate) fn kubernetes() -> BTreeMap<String, Vec<u8>> {
    const UID: &str = "7b2ea4b2-0000-4000-8000-00000000000f";
    let parameters = r#"{"apiVersion":"cgpu.io/v1alpha1","kind":"GpuConfig","priority":"high",
        "managed":"charge","capabilities":["compute","utility"],"burstMs":100}"#;
    let result = |request: &str, device: &str| {
        format!(
            r#"{{"request":"{request}","driver":"gpu.cgpu.io","pool":"node1","device":"{device}",
            "shareID":"{UID}","consumedCapacity":{{"memory":"8Gi","weight":"20"}}}}"#
        )
    };
    let claim = format!(
        r#"{{"metadata":{{"namespace":"team-a","name":"train","uid":"{UID}",
        "annotations":{{"cgpu.io/memory":"4Gi","cgpu.io/weight":"10"}}}},"spec":{{}},
        "status":{{"allocation":{{"devices":{{"results":[{},{}],"config":[{{
        "source":"FromClaim","requests":["a"],
        "opaque":{{"driver":"gpu.cgpu.io","parameters":{parameters}}}}}]}}}}}}}}"#,
        result("a", "gpu-0"),
        result("b/c", "gpu-1"),
    );
    let message = by_uid(UID);
    let pod = r#"{"metadata":{"name":"p","labels":{"aliyun.com/gpu-count":"1"}},"spec":{
        "containers":[{"name":"a","resources":{"limits":{"nvidia.com/gpu":2,
        "nvidia.com/gpumem":"3000","nvidia.com/gpucores":30,"nvidia.com/priority":0}}},
        {"name":"b","resources":{"limits":{"aliyun.com/gpu-mem":8}}}],
        "initContainers":[{"name":"c","resources":{"requests":{
        "tke.cloud.tencent.com/qgpu-core":200,"tke.cloud.tencent.com/qgpu-memory":5}}}]}}"#;
    let calls = [
        part(0, claim.as_bytes()),
        part(1, &message),
        part(2, &message),
        part(4, b""),
        part(5, b""),
        part(3, &message),
        part(4, b""),
        part(1, &message),
    ]
    .concat();
    let review = |of: u8, object: &str| {
        let review = format!(
            r#"{{"request":{{"uid":"u","namespace":"team-a","dryRun":false,"object":{object}}}}}"#
        );
        [&[of], review.as_bytes()].concat()
    };
    let opaque = format!(r#"{{"opaque":{{"driver":"gpu.cgpu.io","parameters":{parameters}}}}}"#);
    let devices = format!(
        r#"{{"requests":[{{"name":"a","exactly":{{"deviceClassName":"gpu.cgpu.io"}}}}],
        "config":[{opaque}]}}"#
    );
    let template = format!(r#"{{"spec":{{"spec":{{"devices":{devices}}}}}}}"#);
    // A uid that is none, and a class that would be a path.
    let odd = by_uid("..x");
    let odd_claim = claim.replace(UID, "..x");
    let odd_calls = [part(0, odd_claim.as_bytes()), part(1, &odd), part(3, &odd)].concat();
    // Two claims that do not fit on a GPU together, as they are annotated too.
    let other = UID.replace("7b2ea4b2", "7b2ea4b3");
    let full_claim = claim.replace("8Gi", "80Gi").replace("4Gi", "80Gi");
    let full_calls = [
        part(0, full_claim.as_bytes()),
        part(1, &message),
        part(0, full_claim.replace(UID, &other).as_bytes()),
        part(1, &by_uid(&other)),
    ]
    .concat();
    let odd_template = template.replace(r#""gpu.cgpu.io"}"#, r#""a/../../secrets"}"#);
    let slot = field(1, "8g-gpu-0-1");
    let length = u8::try_from(slot.len()).unwrap_or(0);
    let slots = [&[1 << 3 | 2, length], &slot[..]].concat();
    let inputs: [(u8, &str, &[u8]); 13] = [
        (5, "calls", &calls),
        (5, "odd-calls", &odd_calls),
        (5, "full-calls", &full_calls),
        (6, "review-odd", &review(1, &odd_template)),
        (6, "review-pod", &review(0, pod)),
        (6, "review-template", &review(1, &template)),
        (7, "slots", &slots),
        (0, "parameters", parameters.as_bytes()),
        (1, "claim", claim.as_bytes()),
        (2, "message", &message),
        (3, "bytes", b"143771Mi"),
        (3, "fraction", b"1.5e3"),
        (4, "pod", pod.as_bytes()),
    ];
    let named =
        |(kind, name, bytes): (u8, &str, &[u8])| (name.to_owned(), [&[kind], bytes].concat());
    inputs.into_iter().map(named).collect()
}

/// A call on a node, behind its number and its length.
fn part(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap_or(0).to_le_bytes();
    [&[kind], &length[..], bytes].concat()
}

/// Words that inputs are likely to need, in libFuzzer's form of a dictionary.
pub fn dictionary() -> String {
    use handles::*;
    let mut words = vec![
        CLIENT, SECOND, DEVICE, SUBDEVICE, VASPACE, MEMORY, GROUP, USERMODE, SYSTEM,
    ];
    words.extend(crate::driver::FOREIGN);
    words.extend([id_of(GPUS[0]), id_of(GPUS[1]), crate::driver::OTHER_GPU]);
    // Classes, escapes with their usual sizes, flags and sizes of memory.
    words.extend([
        0x41, 0x80, 0x2080, 0x3e, 0x40, 0x71, 0x79, 0x5, 0x90f1, 0xa06c, 0xc661, 0x83de, 0x50a0,
    ]);
    words.extend([
        0xc030_462b,
        0xc020_462b,
        0xc010_4629,
        0xc020_462a,
        0xc01c_4634,
        0xc018_4635,
        0xc0b8_464a,
    ]);
    words.extend([
        0xc038_4627,
        0xc038_464e,
        0xc020_464f,
        0xc028_465e,
        0xc010_46d3,
        0xc010_46ce,
        0xc010_46cf,
    ]);
    words.extend([
        0x1800_0000,
        0x4000,
        0x20_0000,
        0x40_0000,
        0x4000_0000,
        0x7000_0000,
        0x6000_0000,
    ]);
    let mut lines: Vec<String> = words.iter().map(|word| line(&word.to_le_bytes())).collect();
    lines.extend(GPUS.map(|gpu| line(&uuid_of(gpu))));
    lines.join("\n") + "\n"
}

fn line(bytes: &[u8]) -> String {
    let bytes: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
    format!("\"{bytes}\"")
}

/// Which of the program's files a path is, as a number of [`Program::nodes`]: a second control file
/// or UVM file is the other one.
fn node_of(path: &str, taken: usize) -> Option<usize> {
    match path {
        "/dev/nvidiactl" => Some(taken % 2),
        "/dev/nvidia-uvm" => Some(4 + taken % 2),
        "/dev/nvidia0" => Some(2),
        _ => None,
    }
}

/// Escapes and UVM requests that change what the accounting knows.
fn changes(node: usize, request: u32) -> bool {
    match node {
        4.. => true,
        _ => matches!(request & 0xff, 0x27 | 0x29 | 0x2b | 0x34 | 0x4a),
    }
}

/// Words of a recording and what stands for them here.
#[derive(Debug, Default)]
struct Words {
    words: BTreeMap<u32, u32>,
    uuid: Option<[u8; 16]>,
}

impl Words {
    fn translate(&self, bytes: &mut [u8]) {
        for at in (0..bytes.len() / 4 * 4).step_by(4) {
            if let Some(word) = self.words.get(&u32_at(bytes, at)) {
                put_u32(bytes, at, *word);
            }
        }
        let Some(uuid) = self.uuid else { return };
        for at in 0..bytes.len().saturating_sub(15) {
            if bytes[at..at + 16] == uuid {
                bytes[at..at + 16].copy_from_slice(&uuid_of(GPUS[0]));
            }
        }
    }

    /// Takes from a call what it tells about the GPU: its UUID (UVM_REGISTER_GPU), its id
    /// (NV_ESC_ATTACH_GPUS_TO_FD).
    fn learn(&mut self, node: usize, io: &Ioctl) {
        let Some(argument) = &io.argument else { return };
        if node >= 4 && io.request == 37 {
            let uuid = argument
                .input
                .get(..16)
                .and_then(|uuid| uuid.try_into().ok());
            self.uuid = uuid.or(self.uuid);
        } else if node < 4 && io.request & 0xff == 212 {
            self.words
                .insert(u32_at(&argument.input, 0), id_of(GPUS[0]));
        }
    }
}

/// A recorded call with translated bytes.
fn recorded(io: &Ioctl, words: &Words) -> Recorded {
    let mut recorded = Recorded::default();
    if let Some(argument) = &io.argument {
        recorded.argument = argument.input.clone();
        words.translate(&mut recorded.argument);
    }
    if let Some(nested) = &io.nested {
        if let Some(bytes) = &nested.bytes {
            recorded.nested = bytes.input.clone();
            words.translate(&mut recorded.nested);
            put_u64(&mut recorded.argument, 16, NESTED_AT);
        }
    }
    recorded
}

/// A whole recording, cut at [`LONGEST`].
fn sequence(trace: &Trace, branch: Branch, all: bool) -> Vec<u8> {
    let mut program = Program::new(&[], branch, LIMIT << 8, event);
    let mut input = Input::default();
    let mut words = Words::default();
    let mut nodes = BTreeMap::new();
    let mut opened: BTreeMap<&str, usize> = BTreeMap::new();
    for record in &trace.records {
        match &record.op {
            Op::Open {
                path,
                result: Ok(fd),
                ..
            } => {
                let count = opened.entry(path).or_default();
                if let Some(node) = node_of(path, *count) {
                    nodes.insert(*fd, node);
                    *count += 1;
                }
            }
            Op::Close { fd } => {
                if let Some(node) = nodes.remove(fd) {
                    input.byte(12).byte(u8::try_from(node).unwrap_or(0));
                    program.reopen(node);
                }
            }
            Op::Ioctl(io) => {
                let Some(node) = nodes.get(&io.fd).copied() else {
                    continue;
                };
                words.learn(node, io);
                if !all && !changes(node, io.request) {
                    continue;
                }
                input
                    .byte(0)
                    .byte(u8::try_from(node).unwrap_or(0))
                    .word(io.request);
                program.recorded = Some(recorded(io, &words));
                let _ = program.ioctl(node, io.request);
                let Some(done) = program.recorded.take() else {
                    continue;
                };
                input.bytes(&done.log.0);
                let made = io
                    .nested
                    .as_ref()
                    .filter(|nested| nested.kind == NestedKind::Alloc);
                if let (Some(0 | 1 | 0x41), Some(argument)) =
                    (made.map(|made| made.code), &io.argument)
                {
                    words
                        .words
                        .insert(u32_at(&argument.output, 8), u32_at(&done.told, 8));
                }
            }
            _ => {}
        }
        if input.0.len() > LONGEST {
            break;
        }
    }
    input.0.truncate(LONGEST);
    input.0
}

/// Single calls of recordings on the objects of the prologue.
struct Singles {
    branch: Branch,
    counts: BTreeMap<(usize, u32, u32), u32>,
    found: BTreeSet<(&'static str, String, Vec<u8>)>,
}

impl Singles {
    fn new(branch: Branch) -> Self {
        Self {
            branch,
            counts: BTreeMap::new(),
            found: BTreeSet::new(),
        }
    }

    fn add(&mut self, trace: &Trace) {
        let mut words = Words::default();
        let mut nodes = BTreeMap::new();
        for record in &trace.records {
            match &record.op {
                Op::Open {
                    path,
                    result: Ok(fd),
                    ..
                } => {
                    if let Some(node) = node_of(path, 0) {
                        nodes.insert(*fd, node);
                    }
                }
                Op::Ioctl(io) => {
                    let Some(node) = nodes.get(&io.fd).copied() else {
                        continue;
                    };
                    words.learn(node, io);
                    self.single(node, io, &words);
                    learn_object(&mut words, io);
                }
                _ => {}
            }
        }
    }

    fn single(&mut self, node: usize, io: &Ioctl, words: &Words) {
        let code = io.nested.as_ref().map_or(0, |nested| nested.code);
        let count = self.counts.entry((node, io.request, code)).or_default();
        *count += 1;
        if *count > OF_A_KIND {
            return;
        }
        let mut input = Input::default();
        let number = u8::try_from(node).unwrap_or(0);
        let (call, count) = (recorded(io, words), *count);
        let is_control = node < 4 && io.request & 0xff == 0x2a;
        let target = if node >= 4 { "uvm" } else { "frontend" };
        if target == "uvm" {
            let cmd = match io.request {
                0x3000_0001 => 0xff,
                0x3000_0002 => 0xfe,
                request => u8::try_from(request).unwrap_or(0),
            };
            input.byte(cmd).byte(0);
        } else {
            input.byte(0).byte(number).word(io.request);
        }
        let name = format!("{target}-{:x}-{code:x}-{count}", io.request);
        let log = self.run(node, io.request, call, None);
        input.bytes(&log);
        self.found.insert((target, name.clone(), input.0));
        if is_control {
            self.control(code, io, words, &name);
        }
    }

    /// The same call in the form of the target `control`.
    fn control(&mut self, cmd: u32, io: &Ioctl, words: &Words, name: &str) {
        let known = controls(self.branch);
        let Some(pick) = known.iter().position(|(known, _)| *known == cmd) else {
            return;
        };
        let call = recorded(io, words);
        let object = u32_at(&call.argument, 4);
        let mut input = Input::default();
        input.bytes(&u16::try_from(pick).unwrap_or(0).to_le_bytes());
        match crate::run::OBJECTS
            .iter()
            .position(|known| *known == object)
        {
            Some(index) => input.byte(u8::try_from(index).unwrap_or(0)).byte(0),
            None => input.byte(2).byte(0),
        };
        input.byte(0);
        let argument = Some(call.argument.clone());
        let log = self.run(0, NV_ESC_RM_CONTROL, call, argument);
        input.bytes(&log);
        self.found.insert(("control", name.to_owned(), input.0));
    }

    /// The bytes that a call reads, on a tenant as the prologue leaves it.
    fn run(&self, node: usize, request: u32, call: Recorded, argument: Option<Vec<u8>>) -> Vec<u8> {
        let bytes = crate::run::prologue(self.branch);
        let mut program = prepared(&bytes, self.branch);
        program.recorded = Some(call);
        program.argument = argument;
        let _ = program.ioctl(node, request);
        program
            .recorded
            .take()
            .map_or(Vec::new(), |done| done.log.0)
    }
}

/// An object that a recorded call has made becomes the prologue's object of that class.
fn learn_object(words: &mut Words, io: &Ioctl) {
    let (Some(argument), Some(nested)) = (&io.argument, &io.nested) else {
        return;
    };
    if nested.kind != NestedKind::Alloc {
        return;
    }
    let stands_for = match nested.code {
        0x0 | 0x1 | 0x41 => handles::CLIENT,
        0x80 => handles::DEVICE,
        0x2080 => handles::SUBDEVICE,
        0x90f1 => handles::VASPACE,
        0x40 => handles::MEMORY,
        0xa06c => handles::GROUP,
        0xc361 | 0xc461 | 0xc561 | 0xc661 => handles::USERMODE,
        0x3e => handles::SYSTEM,
        _ => return,
    };
    words.words.insert(u32_at(&argument.output, 8), stands_for);
}
