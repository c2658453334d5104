// SPDX-License-Identifier: GPL-2.0
//! A program that always has work: kernels that take as long as their parameter says.
//!
//! On the emulated GPU that is so for kernels whose first parameter is a mark, whatever their code;
//! on silicon these end at once.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::{
    api::{Cuda, Launch},
    device::{Context, Event, Stream},
};

/// The mark of a kernel that takes time (`TIMED` in tests/gpu_emulator/src/engine.rs).
const TIMED: u64 = u64::from_le_bytes(*b"takes ns");
/// Kernels that are launched and have not ended: as many keep the GPU busy, also if the program
/// stands still for some of them.
const DEPTH: usize = 8;
/// How often it is told how many have ended.
const TOLD_EVERY: Duration = Duration::from_millis(100);
/// `CU_EVENT_DISABLE_TIMING`.
const UNTIMED: u32 = 2;
const KERNEL: &str = "\
.version 7.0
.target sm_50
.address_size 64
.visible .entry takes(.param .u64 mark, .param .u64 length)
{
	ret;
}
\0";

/// Launches kernels for a while. Its words are their length in microseconds, and the seconds.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
    let (Some(length), Some(seconds)) = (number(0), number(1)) else {
        return Err("--work wants a length and a time".into());
    };
    let cuda = Cuda::load()?;
    cuda.init(0)?;
    let context = Context::new(&cuda, 0)?;
    let (mut module, mut function) = (0, 0);
    cuda.module_load(&mut module, KERNEL.as_ptr() as usize)?;
    cuda.module_function(&mut function, module, c"takes".as_ptr() as usize)?;
    let stream = Stream::new(&cuda)?;
    let (mark, length) = (TIMED, length * 1000);
    let parameters = [&raw const mark as usize, &raw const length as usize];
    let once = Launch {
        grid: [1; 3],
        block: [1; 3],
        shared: 0,
        stream: stream.handle,
        attributes: 0,
        count: 0,
    };
    let launch = || -> Result<Event<'_>, String> {
        cuda.launch(&once, function, &parameters, 0)?;
        let event = Event::new(&cuda, UNTIMED)?;
        cuda.event_record(event.handle, stream.handle)?;
        Ok(event)
    };
    // The first launch loads the kernel, which is not measured.
    drop(launch()?);
    stream.wait()?;
    println!("begins");
    let (begun, mut told, mut ended) = (Instant::now(), Duration::ZERO, 0);
    let mut under_way = VecDeque::new();
    while begun.elapsed() < Duration::from_secs(seconds) {
        while under_way.len() < DEPTH {
            under_way.push_back(launch()?);
        }
        if let Some(oldest) = under_way.pop_front() {
            cuda.event_synchronize(oldest.handle)?;
            ended += 1;
            if begun.elapsed() >= told + TOLD_EVERY {
                told = begun.elapsed();
                println!("ended: {ended}");
            }
        }
    }
    println!("ended: {ended}");
    stream.wait()?;
    drop(under_way);
    drop(stream);
    cuda.module_unload(module)?;
    Ok(context.end()?)
}
