// SPDX-License-Identifier: GPL-2.0
//! cuda-check [--device N] [--total BYTES] [CASE...]: what a CUDA program may rely on, asked of an
//! unmodified libcuda. It prints a line for each case, `NAME: ok` or `NAME: FAILED WHY`, and ends
//! in "N passed, N failed". Without names it runs all of them.
//!
//! `--total` is the memory that the GPU must seem to have. `--list` prints the names. `--around
//! COMMAND` runs a command for the shell while there is a context, and prints what `cuMemGetInfo`
//! says before it, after it, and when another context was made since: `before: FREE of TOTAL` and
//! so on. `--broken-by COMMAND` runs one that makes the context's channel fail: the context must
//! work before it, and say so after it. `--fill MIB COMMAND...` takes pieces of memory until there
//! is no more, before each of the commands. `--managed-beyond MIB COMMAND` takes so much more
//! managed memory than the GPU has free, brings it there, and checks it after the command. `--work
//! MICROSECONDS SECONDS` keeps the GPU busy with kernels of that length, if it is one whose kernels
//! take as long as they say (tests/gpu_emulator), and prints `ended: N` again and again, how many
//! have ended. `--peer` is for itself: the other process of the cases in `sharing`.
//!
//! A GPU that does not answer makes a call of libcuda's wait for ever. Then the case and all after
//! it have failed, and the program ends.

mod api;
mod beyond;
mod cases;
mod command;
mod device;
mod fill;
mod peer;
mod verdict;
mod work;

use std::{
    process::{exit, ExitCode},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc,
    },
    thread,
    time::{Duration, Instant},
};

use api::{Cuda, CudaError};
use cases::{Case, CASES};
use command::only_shell;
use device::{pattern, Context, Memory};

/// A case that takes longer than this hangs. The emulated machine is slow, and may have to share a
/// slow host: it is far more than any case needs.
const PATIENCE: Duration = Duration::from_secs(400);

/// The wish of the command line.
struct Wanted {
    device: i32,
    total: Option<usize>,
    cases: Vec<&'static Case>,
}

impl Wanted {
    fn parse(words: &[String]) -> Result<Wanted, String> {
        let mut wanted = Wanted {
            device: 0,
            total: None,
            cases: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut number = || {
                let value = words.next().and_then(|value| value.parse::<usize>().ok());
                value.ok_or_else(|| format!("{word} wants a number"))
            };
            match word.as_str() {
                "--device" => {
                    wanted.device = i32::try_from(number()?).map_err(|e| e.to_string())?
                }
                "--total" => wanted.total = Some(number()?),
                name => wanted.cases.push(
                    CASES
                        .iter()
                        .find(|case| case.name == name)
                        .ok_or_else(|| format!("there is no case {name}; --list names them"))?,
                ),
            }
        }
        if wanted.cases.is_empty() {
            wanted.cases = CASES.iter().collect();
        }
        Ok(wanted)
    }
}

/// Ends the program if the case that runs takes longer than `PATIENCE`. A message means "the next".
fn watch(started: &mpsc::Receiver<&'static str>, passed: &AtomicUsize, all: usize) {
    let mut running = "";
    loop {
        match started.recv_timeout(PATIENCE) {
            Ok(name) => running = name,
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                let passed = passed.load(Ordering::Relaxed);
                println!(
                    "{running}: FAILED no end after {} s, nor did what follows run",
                    PATIENCE.as_secs()
                );
                println!("{passed} passed, {} failed", all - passed);
                exit(1);
            }
        }
    }
}

/// Runs the cases, and returns how many failed.
fn run(wanted: &Wanted) -> Result<usize, String> {
    let cuda = Cuda::load()?;
    cuda.init(0)?;
    if let Some(expected) = wanted.total {
        let mut total = 0;
        cuda.device_total(&mut total, wanted.device)?;
        if total != expected {
            return Err(format!("the GPU has {total} bytes instead of {expected}"));
        }
    }
    let (next, started) = mpsc::channel();
    let all = wanted.cases.len();
    let passed = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&passed);
    thread::spawn(move || watch(&started, &counted, all));
    for case in &wanted.cases {
        next.send(case.name).map_err(|error| error.to_string())?;
        match case.verdict(&cuda, wanted.device) {
            Ok(()) => {
                println!("{}: ok", case.name);
                passed.fetch_add(1, Ordering::Relaxed);
            }
            Err(why) => println!("{}: FAILED {why}", case.name),
        }
    }
    let passed = passed.load(Ordering::Relaxed);
    println!("{passed} passed, {} failed", all - passed);
    Ok(all - passed)
}

/// Runs a command in the midst of a program, and says what the program is told of memory.
fn around(command: &[String]) -> Result<(), String> {
    let cuda = Cuda::load()?;
    cuda.init(0)?;
    let context = Context::new(&cuda, 0)?;
    let tell = |when: &str| -> Result<(), String> {
        let (mut free, mut total) = (0, 0);
        cuda.memory_info(&mut free, &mut total)?;
        println!("{when}: {free} of {total}");
        Ok(())
    };
    tell("before")?;
    only_shell(command)?;
    tell("after")?;
    // Another context does not make it know another size.
    Context::new(&cuda, 0)?.end()?;
    tell("later")?;
    Ok(context.end()?)
}

/// So long an error may take to reach libcuda.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

/// Runs a command after which a context is broken, and tells what libcuda says then.
fn broken_by(command: &[String]) -> Result<(), String> {
    const BYTES: usize = 1 << 20;
    let cuda = Cuda::load()?;
    cuda.init(0)?;
    let context = Context::new(&cuda, 0)?;
    let memory = Memory::new(&cuda, BYTES)?;
    let written = pattern(BYTES, 1);
    let mut read = vec![0; BYTES];
    let mut copy = || -> Result<(), CudaError> {
        cuda.copy_in(memory.address, &written)?;
        cuda.copy_out(&mut read, memory.address)?;
        cuda.context_synchronize()
    };
    copy()?;
    only_shell(command)?;
    let end = Instant::now() + TOLD_WITHIN;
    let error = loop {
        match copy() {
            Err(error) => break error,
            Ok(()) if Instant::now() > end => return Err("the context works as before".into()),
            Ok(()) => thread::sleep(Duration::from_millis(100)),
        }
    };
    println!("broken: {error}");
    drop(memory);
    println!("ended: {:?}", context.end());
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match words.first().map(String::as_str) {
        Some("--list") => {
            for case in CASES {
                println!("{}", case.name);
            }
            Ok(0)
        }
        Some("--around") => around(&words[1..]).map(|()| 0),
        Some("--broken-by") => broken_by(&words[1..]).map(|()| 0),
        Some("--fill") => fill::run(&words[1..]).map(|()| 0),
        Some("--managed-beyond") => beyond::run(&words[1..]).map(|()| 0),
        Some("--work") => work::run(&words[1..]).map(|()| 0),
        Some("--peer") => peer::run(&words[1..]).map(|()| 0),
        _ => Wanted::parse(&words).and_then(|wanted| run(&wanted)),
    };
    match ended {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("cuda-check: {why}");
            ExitCode::from(2)
        }
    }
}
