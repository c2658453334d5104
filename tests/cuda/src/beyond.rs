// SPDX-License-Identifier: GPL-2.0
//! A program with more managed memory than its GPU has room for.

use crate::{
    api::Cuda,
    command::only_shell,
    device::{Context, Memory, Stream},
    verdict::ensure,
};

const MIB: usize = 1 << 20;
/// Bytes of a piece, and from one mark to the next: pages enough, and few faults.
const PIECE: usize = 32 * MIB;
const STEP: usize = MIB / 2;

/// The mark at a place of a piece.
fn mark(piece: usize, at: usize) -> u8 {
    ((piece * 31 + at / STEP) % 251) as u8 + 1
}

/// Takes managed memory until it is so many MiB more than the GPU has free, has all of it brought
/// to the GPU, and runs a command for the shell. Then each byte that was marked has to be as the
/// program left it. (The GPU is not asked: the emulated one has no faults that are served, and
/// would have one in what is spilled.) The words are the MiB, and the command.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let Some((more, command)) = words.split_first() else {
        return Err("--managed-beyond wants a size and a command".into());
    };
    let more: usize = more.parse().map_err(|error| format!("{more}: {error}"))?;
    let cuda = Cuda::load()?;
    cuda.init(0)?;
    let context = Context::new(&cuda, 0)?;
    let (mut free, mut total) = (0, 0);
    cuda.memory_info(&mut free, &mut total)?;
    let count = (free + more * MIB).div_ceil(PIECE);
    let mut held = Vec::new();
    for number in 0..count {
        let mut memory = Memory::managed(&cuda, PIECE)?;
        let seen = memory.seen_by_cpu();
        for at in (0..PIECE).step_by(STEP) {
            seen[at] = mark(number, at);
        }
        held.push(memory);
    }
    let stream = Stream::new(&cuda)?;
    for memory in &held {
        cuda.managed_prefetch(memory.address, PIECE, 0, stream.handle)?;
    }
    stream.wait()?;
    drop(stream);
    println!(
        "managed: {} MiB, {} were free",
        count * PIECE / MIB,
        free / MIB
    );
    only_shell(command)?;
    for (number, memory) in held.iter_mut().enumerate() {
        let seen = memory.seen_by_cpu();
        let wrong = (0..PIECE)
            .step_by(STEP)
            .find(|at| seen[*at] != mark(number, *at));
        ensure(wrong.is_none(), || format!("piece {number} at {wrong:?}"))?;
    }
    held.into_iter().try_for_each(Memory::free)?;
    println!("managed: all marks are there");
    Ok(context.end()?)
}
