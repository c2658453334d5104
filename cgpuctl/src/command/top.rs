// SPDX-License-Identifier: GPL-2.0 OR MIT
//! `top`: who uses the GPUs, refreshed until somebody ends it.
//!
//! A reading is what the module says at one moment; a frame is the difference of two. The live view
//! draws frames on a [`Screen`], which is the terminal or, for tests, a list of them.

use super::{inst_list, target};
use crate::{
    args::Interval,
    client::errno,
    compute,
    control::Control,
    error::{Failure, Problem},
    exit::Exit,
    host::Host,
    json,
    output::Report,
    size::Bytes,
    text::table,
    verb::Verb,
};
use cgpu_uapi::{GpuCompute, Instance, InstanceCompute, Policy, Priority};
use clap::Args;
use crossterm::{
    cursor,
    event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute, queue, style, terminal,
};
use serde::Serialize;
use std::{
    cmp::Reverse,
    io::{self, IsTerminal, Write},
    mem, thread,
    time::{Duration, Instant},
};

/// Watch who uses the GPUs: shares of compute time and memory, refreshed until `q`.
///
/// If stdout is no terminal, or with --once or --json, it prints one reading and exits. Keys: s, m,
/// w, n sort by share, memory, weight, name; r reverses the order; q quits.
#[derive(Args)]
#[command(after_help = "Examples:\n  cgpuctl top --once")]
pub(crate) struct Top {
    #[command(flatten)]
    interval: Interval,
    /// Print one reading and exit.
    #[arg(long)]
    once: bool,
}

/// One reading.
#[derive(Serialize)]
struct TopMembers {
    gpus: Vec<compute::GpuCompute>,
    instances: Vec<TopInstance>,
}

#[derive(Serialize)]
struct TopInstance {
    #[serde(flatten)]
    compute: compute::InstanceCompute,
    weight: u32,
    /// The part of the time between two readings in which it had the GPU; `null` under the policy
    /// `native`, where that is not known.
    share: Option<f64>,
    memory_charged_bytes: u64,
    memory_used_bytes: u64,
    memory_limit_bytes: u64,
}

impl Verb for Top {
    fn attempt(&self) -> String {
        "show who uses the GPUs".to_owned()
    }

    fn run(&self, host: &dyn Host) -> Result<Report, Failure> {
        Ok(once(host, self.interval.length())?)
    }

    fn stay(
        &self,
        host: &dyn Host,
        json: bool,
        _: &mut dyn Write,
    ) -> Option<Result<Exit, Failure>> {
        // The live view needs a terminal on both sides.
        let live = !self.once && !json && io::stdout().is_terminal() && io::stdin().is_terminal();
        live.then(|| {
            watch(host, self.interval.length())?;
            Ok(Exit::Done)
        })
    }
}

/// How the instances are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Share,
    Memory,
    Weight,
    Name,
}

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// End.
    Quit,
    /// Sort by share of compute time.
    Share,
    /// Sort by memory used.
    Memory,
    /// Sort by weight.
    Weight,
    /// Sort by name.
    Name,
    /// Turn the order round.
    Reverse,
}

impl Key {
    /// The meaning of a key of the terminal, if it has one.
    pub fn of(key: &KeyEvent) -> Option<Self> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => Some(Self::Quit),
            KeyCode::Char('q') | KeyCode::Esc => Some(Self::Quit),
            KeyCode::Char('s') => Some(Self::Share),
            KeyCode::Char('m') => Some(Self::Memory),
            KeyCode::Char('w') => Some(Self::Weight),
            KeyCode::Char('n') => Some(Self::Name),
            KeyCode::Char('r') => Some(Self::Reverse),
            _ => None,
        }
    }
}

/// A place to draw frames on, from which keys come.
pub trait Screen {
    /// Draws a frame in place of the one before.
    fn draw(&mut self, frame: &str) -> io::Result<()>;
    /// Waits for a key, so long at most.
    fn key(&mut self, wait: Duration) -> io::Result<Option<Key>>;
}

/// The module's records at one moment.
struct Reading {
    gpus: Vec<GpuCompute>,
    instances: Vec<(InstanceCompute, Instance)>,
}

/// One instance in a frame.
struct Row {
    compute: InstanceCompute,
    instance: Instance,
    /// Part of the time between the readings in which it had the GPU; none under the policy native.
    share: Option<f64>,
    windows: u64,
}

impl Reading {
    fn take(control: &dyn Control) -> Result<Self, Problem> {
        let mut gpus = control.gpu_compute()?;
        gpus.sort_by_key(|gpu| gpu.minor);
        let compute = control.instance_compute()?;
        // One that came or went in between is in one of the two only.
        let instances = inst_list::all(control)?.into_iter().filter_map(|instance| {
            let found = compute.iter().find(|c| c.id == instance.id)?;
            Some((*found, instance))
        });
        Ok(Self {
            gpus,
            instances: instances.collect(),
        })
    }

    fn gpu(&self, minor: u32) -> Option<&GpuCompute> {
        self.gpus.iter().find(|gpu| gpu.minor == minor)
    }

    /// The instances, by name and GPU, with what they had since `before`.
    fn since(&self, before: &Self) -> Vec<Row> {
        let rows = self.instances.iter().map(|(compute, instance)| {
            let gpu = self.gpu(instance.key.gpu_minor);
            let then = before.gpu(instance.key.gpu_minor);
            let old = before.instances.iter().find(|(c, _)| c.id == compute.id);
            let (given, windows) = old.map_or((0, 0), |(c, _)| (c.gpu_time_ns, c.windows));
            let time = match (gpu, then) {
                (Some(now), Some(then)) => now.now_ns.saturating_sub(then.now_ns),
                _ => 0,
            };
            let known = gpu.is_some_and(|gpu| gpu.policy != Policy::Native.number()) && time > 0;
            let had = compute.gpu_time_ns.saturating_sub(given);
            Row {
                compute: *compute,
                instance: *instance,
                share: known.then(|| (had as f64 / time as f64).min(1.0)),
                windows: compute.windows.saturating_sub(windows),
            }
        });
        rows.collect()
    }
}

/// One frame, from two readings.
fn once(host: &dyn Host, pause: Duration) -> Result<Report, Problem> {
    let control = target::open(host)?;
    let before = Reading::take(&*control)?;
    thread::sleep(host.pause(pause));
    let now = Reading::take(&*control)?;
    let rows = now.since(&before);
    let body = TopMembers {
        gpus: now.gpus.iter().map(compute::GpuCompute::from).collect(),
        instances: rows.iter().map(record).collect(),
    };
    Report::new(body, frame(&now, &before, rows, Order::Share, false))
}

fn record(row: &Row) -> TopInstance {
    TopInstance {
        compute: (&row.compute).into(),
        weight: row.compute.weight,
        share: row.share.map(|share| (share * 1e4).round() / 1e4),
        memory_charged_bytes: json::charged(&row.instance),
        memory_used_bytes: row.instance.memory_used_bytes,
        memory_limit_bytes: row.instance.memory_limit_bytes,
    }
}

/// A frame, for people.
fn frame(now: &Reading, before: &Reading, mut rows: Vec<Row>, by: Order, turned: bool) -> String {
    let mut text = String::new();
    for gpu in &now.gpus {
        let then = before.gpu(gpu.minor).unwrap_or(gpu);
        let milliseconds = gpu.now_ns.saturating_sub(then.now_ns) / 1_000_000;
        let rate = |now: u64, then: u64| {
            let many = now.saturating_sub(then).saturating_mul(1000);
            many / milliseconds.max(1)
        };
        text.push_str(&format!(
            "GPU {}: policy {}, {}, {} switches/s, {} calls/s\n",
            gpu.minor,
            Policy::name_of(gpu.policy),
            compute::sharing(gpu),
            rate(gpu.switches, then.switches),
            rate(gpu.calls, then.calls),
        ));
    }
    match by {
        Order::Share => {
            let parts = |row: &Row| (row.share.unwrap_or(-1.0) * 1e6) as i64;
            rows.sort_by_key(|row| Reverse(parts(row)));
        }
        Order::Memory => rows.sort_by_key(|row| Reverse(inst_list::charged(&row.instance).0)),
        Order::Weight => rows.sort_by_key(|row| Reverse(row.compute.weight)),
        Order::Name => {}
    }
    if turned {
        rows.reverse();
    }
    text.push('\n');
    if rows.is_empty() {
        text.push_str("No instances.\n");
        return text;
    }
    let head = [
        "NAME",
        "GPU",
        "SHARE",
        "USED",
        "LIMIT",
        "WEIGHT",
        "PRIORITY",
        "STATE",
        "GPU TIME",
        "BLOCKED",
        "PREEMPTED",
        "WINDOWS",
    ];
    text + &table(head, rows.iter().map(cells))
}

/// One row. The figures that matter most come first: 80 columns show as far as the state.
fn cells(row: &Row) -> [String; 12] {
    let (compute, instance) = (&row.compute, &row.instance);
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    [
        instance.key.name.as_str().unwrap_or_default().to_owned(),
        instance.key.gpu_minor.to_string(),
        row.share.map_or_else(|| "-".to_owned(), share),
        inst_list::charged(instance).to_string(),
        Bytes(instance.memory_limit_bytes).to_string(),
        compute.weight.to_string(),
        Priority::of(compute.state).name().to_owned(),
        compute::doing(compute.state).to_owned(),
        compute::seconds(compute.gpu_time_ns),
        compute::seconds(compute.blocked_ns),
        compute.preemptions.to_string(),
        row.windows.to_string(),
    ]
}

/// The live view on the terminal.
fn watch(host: &dyn Host, pause: Duration) -> Result<(), Problem> {
    // Before the screen is taken: what fails here is a sentence on it.
    let control = target::open(host)?;
    Reading::take(&*control)?;
    let mut screen = Terminal::take().map_err(|e| broken(&e))?;
    live(&*control, pause, &mut screen)
}

fn broken(error: &io::Error) -> Problem {
    Problem::Terminal {
        errno: errno(error),
    }
}

/// Draws frames until a key ends it.
pub fn live(
    control: &dyn Control,
    interval: Duration,
    screen: &mut dyn Screen,
) -> Result<(), Problem> {
    let (mut by, mut turned) = (Order::Share, false);
    let mut before = Reading::take(control)?;
    let mut now = Reading::take(control)?;
    let mut due = Instant::now() + interval;
    loop {
        let rows = now.since(&before);
        let keys = "\nq end, sort by: s share, m memory, w weight, n name, r turn round\n";
        let text = frame(&now, &before, rows, by, turned) + keys;
        screen.draw(&text).map_err(|e| broken(&e))?;
        // A key draws anew at once, from the same readings; the next ones are due when they were.
        let wait = due.saturating_duration_since(Instant::now());
        match screen.key(wait).map_err(|e| broken(&e))? {
            Some(Key::Quit) => return Ok(()),
            Some(Key::Share) => by = Order::Share,
            Some(Key::Memory) => by = Order::Memory,
            Some(Key::Weight) => by = Order::Weight,
            Some(Key::Name) => by = Order::Name,
            Some(Key::Reverse) => turned = !turned,
            None => {
                before = mem::replace(&mut now, Reading::take(control)?);
                due = Instant::now() + interval;
            }
        }
    }
}

/// The terminal, in a screen of its own while this lives.
struct Terminal(io::Stdout);

impl Terminal {
    fn take() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let mut terminal = Self(io::stdout());
        execute!(terminal.0, terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(terminal)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nothing better is left to do with a terminal that does not obey.
        let _ = execute!(self.0, cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

impl Screen for Terminal {
    fn draw(&mut self, frame: &str) -> io::Result<()> {
        let (width, height) = terminal::size()?;
        queue!(
            self.0,
            terminal::BeginSynchronizedUpdate,
            cursor::MoveTo(0, 0)
        )?;
        for line in frame.lines().take(usize::from(height)) {
            let line: String = line.chars().take(usize::from(width)).collect();
            queue!(
                self.0,
                style::Print(line),
                terminal::Clear(terminal::ClearType::UntilNewLine),
                cursor::MoveToNextLine(1)
            )?;
        }
        queue!(
            self.0,
            terminal::Clear(terminal::ClearType::FromCursorDown),
            terminal::EndSynchronizedUpdate
        )?;
        self.0.flush()
    }

    fn key(&mut self, wait: Duration) -> io::Result<Option<Key>> {
        let end = Instant::now() + wait;
        loop {
            if !event::poll(end.saturating_duration_since(Instant::now()))? {
                return Ok(None);
            }
            let Event::Key(key) = event::read()? else {
                // A new size: draw anew at the next reading.
                continue;
            };
            let meant = Key::of(&key);
            if meant.is_some() {
                return Ok(meant);
            }
        }
    }
}
