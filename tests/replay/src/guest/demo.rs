// SPDX-License-Identifier: GPL-2.0
//! `demo`: two containers share a GPU, each with an instance of its own, at the same time.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::mpsc::{channel, Sender},
};

use cgpu_uapi as uapi;
use serde::{Deserialize, Serialize};

use super::{
    container::{look_around, Container},
    process::spawn,
};
use crate::{
    answers,
    control::{self, Control},
    layout,
    nodes::Nodes,
    orchestrate,
    record::{Ioctl, NestedKind, Op, Trace},
    report::{Mismatch, Told},
    size::show,
    standin::{self, KernelLog},
    sys,
};

/// The GPU that is shared.
const GPU: u32 = 0;
/// After so many refusals the second container waits for its limit to be raised.
const WAIT_AFTER: usize = 20;
/// A line of progress every so many calls.
const PROGRESS: usize = 300;
/// A container's word when its limit stops it: it waits for leave to go on.
const FULL: &str = "full";
/// Its word when it holds most: it waits until the other one does, too.
const HOLDS: &str = "holds";

/// The recordings and limits of the demo.
#[derive(Debug, Clone)]
pub struct DemoSettings {
    /// Recording of the first container's program.
    pub first: PathBuf,
    /// Recording of the second container's program, one that wants more than it gets.
    pub second: PathBuf,
    /// Recording of `nvidia-smi`, whose calls are made beside each program.
    pub smi: PathBuf,
    /// Limit of the first instance, bytes.
    pub first_limit: u64,
    /// Limit of the second instance, bytes.
    pub second_limit: u64,
    /// The second limit while the program runs, after it was raised.
    pub raised_limit: u64,
}

/// A container's report when it is done.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Finished {
    calls: usize,
    refused: usize,
    skipped: usize,
    mismatches: Vec<Mismatch>,
    told: Told,
}

/// One of the two.
struct Side {
    name: &'static str,
    limit: u64,
    traces: Vec<Trace>,
    order: Vec<(usize, usize)>,
    /// The program's call behind which it holds most.
    middle: usize,
    waits: bool,
}

/// The program's calls with those of `nvidia-smi` in between, after the program's last allocation:
/// when it holds most.
fn side(name: &'static str, limit: u64, program: &Trace, smi: &Trace, waits: bool) -> Side {
    let last = program.records.iter().rposition(|r| match &r.op {
        Op::Ioctl(Ioctl {
            nested: Some(n), ..
        }) => n.kind == NestedKind::Alloc && n.code == layout::CLASS_VIDEO_MEMORY,
        _ => false,
    });
    let middle = last.map_or(0, |i| i + 1);
    let calls = |trace: usize, from: usize, to: usize| (from..to).map(move |i| (trace, i));
    let order = calls(0, 0, middle)
        .chain(calls(1, 0, smi.records.len()))
        .chain(calls(0, middle, program.records.len()))
        .collect();
    Side {
        name,
        limit,
        traces: vec![program.clone(), smi.clone()],
        order,
        middle,
        waits,
    }
}

/// In the container: replays and reports. It asks for leave to go on when refusals pile up, once,
/// and when it holds most.
fn inside(side: &Side, channel: &mut UnixStream) -> Result<(), String> {
    look_around(GPU)?;
    let mut answers = BufReader::new(channel.try_clone().map_err(|e| e.to_string())?);
    let mut say = |line: &str| -> Result<(), String> {
        channel
            .write_all(format!("{line}\n").as_bytes())
            .map_err(|e| e.to_string())
    };
    let nodes = vec![Nodes::Instance("/dev".to_owned()); side.traces.len()];
    let mut result = Finished::default();
    let mut waited = !side.waits;
    let mut trouble = Ok(());
    orchestrate::replay(&side.traces, &side.order, &nodes, |t, _, outcome| {
        result.calls += 1;
        result.skipped += usize::from(outcome.skipped);
        result.refused += usize::from(outcome.refused.is_some());
        result.mismatches.extend(outcome.mismatches);
        if t == 1 {
            result.told.update(outcome.told);
        }
        if result.calls % PROGRESS == 0 {
            trouble = say(&format!("progress {}", result.calls));
        }
        let full = !waited && result.refused >= WAIT_AFTER;
        waited |= full;
        for (stops, word) in [(full, FULL), (result.calls == side.middle, HOLDS)] {
            if stops {
                trouble = say(word);
                let _ = answers.read_line(&mut String::new());
            }
        }
    })?;
    trouble?;
    let text = serde_json::to_string(&result).map_err(|e| e.to_string())?;
    say(&format!("result {text}"))
}

/// Starts a side; the process that waits for its container, and the channel.
fn start(side: &Side, container: &Container) -> Result<(i32, UnixStream), String> {
    let (ours, mut theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
    let pid = spawn(|| {
        sys::stay_on_this_processor();
        let ran = container.run(|| match inside(side, &mut theirs) {
            Ok(()) => 0,
            Err(e) => {
                eprintln!("{}: {e}", side.name);
                1
            }
        });
        match ran {
            Ok(code) => code,
            Err(e) => {
                eprintln!("{}: {e}", side.name);
                1
            }
        }
    })
    .map_err(|e| format!("fork: errno {e}"))?;
    drop(theirs);
    Ok((pid, ours))
}

/// A side, as the parent knows it.
struct Heard {
    pid: i32,
    channel: UnixStream,
    /// It has said [`HOLDS`].
    holds: bool,
    /// It says no more.
    ended: bool,
    result: Option<Finished>,
}

impl Heard {
    fn go_on(&mut self) -> Result<(), String> {
        let said = self.channel.write_all(b"go on\n");
        said.map_err(|e| e.to_string())
    }
}

/// Passes on what a side says, line by line; `None` when it says no more.
fn listen(side: usize, channel: &UnixStream, lines: &Sender<(usize, Option<String>)>) {
    for line in BufReader::new(channel).lines().map_while(Result::ok) {
        let _ = lines.send((side, Some(line)));
    }
    let _ = lines.send((side, None));
}

/// Runs the demo. Progress goes to stderr, the table to stdout. Whether all went as it should.
pub fn run(settings: &DemoSettings) -> Result<bool, String> {
    let read = |path: &PathBuf| Trace::read(path).map_err(|e| e.to_string());
    let (first, second, smi) = (
        read(&settings.first)?,
        read(&settings.second)?,
        read(&settings.smi)?,
    );
    let all = [first, second, smi];
    standin::load_answers(&answers::blob(&all, &orchestrate::merged(&all)))?;
    let [first, second, smi] = &all;
    let sides = [
        side("infer", settings.first_limit, first, smi, false),
        side("train", settings.second_limit, second, smi, true),
    ];
    control::mount_cgpufs()?;
    let mut log = KernelLog::from_now();
    let control = Control::open().map_err(|e| format!("control device: errno {e}"))?;
    for side in &sides {
        control
            .create(side.name, GPU, side.limit, 1)
            .map_err(|e| format!("instance {}: errno {e}", side.name))?;
        eprintln!("demo: instance {} with {}", side.name, show(side.limit));
    }
    let good = share(&control, &sides, settings);
    for side in &sides {
        if let Err(e) = control.destroy(side.name, GPU) {
            return Err(format!(
                "instance {} cannot be removed: errno {e}",
                side.name
            ));
        }
    }
    standin::put_away()?;
    let faults = log.faults();
    for line in &faults {
        eprintln!("kernel: {line}");
    }
    Ok(good? && faults.is_empty())
}

fn share(control: &Control, sides: &[Side; 2], settings: &DemoSettings) -> Result<bool, String> {
    let get = |side: &Side| {
        let instance = control.get(side.name, GPU);
        instance.map_err(|e| format!("instance {}: errno {e}", side.name))
    };
    let mut containers = Vec::new();
    for side in sides {
        containers.push(Container::new(&get(side)?, GPU)?);
    }
    let mut heard = Vec::new();
    for (side, container) in sides.iter().zip(&containers) {
        let (pid, channel) = start(side, container)?;
        heard.push(Heard {
            pid,
            channel,
            holds: false,
            ended: false,
            result: None,
        });
    }
    let (together, contexts) = hear(&get, control, sides, &mut heard, settings.raised_limit)?;
    let mut good = together;
    if !together {
        eprintln!("demo: the two did not hold memory at the same time");
    }
    let mut table = vec![[
        "instance".to_owned(),
        "limit".to_owned(),
        "peak".to_owned(),
        "contexts".to_owned(),
        "refused".to_owned(),
        "nvidia-smi: total".to_owned(),
        "free".to_owned(),
    ]];
    for ((side, heard), contexts) in sides.iter().zip(&heard).zip(contexts) {
        let status = sys::wait(heard.pid).map_err(|e| format!("wait: errno {e}"))?;
        let Some(result) = heard.result.as_ref().filter(|_| status == 0) else {
            return Err(format!("{} ended with wait status {status:#x}", side.name));
        };
        for m in &result.mismatches {
            eprintln!("demo: {}: {} {m:?}", side.name, m.call);
        }
        let instance = get(side)?;
        let clean = instance.memory_used_bytes == 0 && instance.memory_overhead_bytes == 0;
        if !clean {
            eprintln!("demo: {} still has memory charged", side.name);
        }
        good &= result.mismatches.is_empty() && clean;
        let told = |bytes: Option<u64>| bytes.map_or("nothing".to_owned(), show);
        table.push([
            side.name.to_owned(),
            limits(side, settings),
            show(instance.memory_peak_bytes),
            show(contexts),
            result.refused.to_string(),
            told(result.told.total_bytes),
            told(result.told.free_bytes),
        ]);
    }
    print(&table);
    Ok(good)
}

/// Listens to both until they have ended. Tells whether they held memory at the same time, and the
/// overhead of each one's contexts then.
fn hear(
    get: &impl Fn(&Side) -> Result<uapi::Instance, String>,
    control: &Control,
    sides: &[Side; 2],
    heard: &mut [Heard],
    raised_limit: u64,
) -> Result<(bool, Vec<u64>), String> {
    let (sender, lines) = channel();
    for (i, one) in heard.iter().enumerate() {
        let (channel, sender) = (one.channel.try_clone(), sender.clone());
        let channel = channel.map_err(|e| e.to_string())?;
        std::thread::spawn(move || listen(i, &channel, &sender));
    }
    drop(sender);
    let mut held = (false, vec![0; sides.len()]);
    for (i, line) in lines {
        let side = &sides[i];
        let Some(line) = line else {
            heard[i].ended = true;
            // The other one would wait for it in vain.
            for other in heard.iter_mut().filter(|other| other.holds) {
                let _ = other.go_on();
            }
            continue;
        };
        if let Some(calls) = line.strip_prefix("progress ") {
            let used = show(get(side)?.memory_used_bytes);
            let of = side.order.len();
            eprintln!("demo: {}: {calls} of {of} calls, {used} in use", side.name);
        } else if let Some(text) = line.strip_prefix("result ") {
            heard[i].result = serde_json::from_str(text).ok();
        } else if line == FULL {
            let limit = show(raised_limit);
            eprintln!("demo: {}: full; set-mem {limit}", side.name);
            let set = control.set_memory(side.name, GPU, raised_limit);
            set.map_err(|e| format!("set-mem: errno {e}"))?;
            heard[i].go_on()?;
        } else if line == HOLDS {
            heard[i].holds = true;
            let now: Result<Vec<_>, _> = sides.iter().map(get).collect();
            let now = now?;
            if heard.iter().all(|one| one.holds) {
                held.0 = now.iter().all(|i| i.memory_used_bytes > 0);
                held.1 = now.iter().map(|i| i.memory_overhead_bytes).collect();
            }
            if heard.iter().all(|one| one.holds || one.ended) {
                for one in heard.iter_mut().filter(|one| one.holds) {
                    let _ = one.go_on();
                }
            }
        }
    }
    Ok(held)
}

fn limits(side: &Side, settings: &DemoSettings) -> String {
    if side.waits {
        format!("{}, then {}", show(side.limit), show(settings.raised_limit))
    } else {
        show(side.limit)
    }
}

fn print(table: &[[String; 7]]) {
    let mut widths = [0; 7];
    for row in table {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    for row in table {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        println!("{}", cells.join("  ").trim_end());
    }
}
