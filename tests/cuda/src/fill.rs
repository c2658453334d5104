// SPDX-License-Identifier: GPL-2.0
//! A program that takes memory until there is no more, and later again.

use crate::{
    api::{Cuda, OUT_OF_MEMORY},
    command::shell,
    device::{pattern, same, Context, Memory},
};

const MIB: usize = 1 << 20;

/// Takes pieces until libcuda says that there is no more memory. Each is written to, and has its
/// content still when all are there.
fn fill<'a>(cuda: &'a Cuda, piece: usize, held: &mut Vec<Memory<'a>>) -> Result<(), String> {
    let marked = |number: usize| pattern(4096, number as u8);
    let refused = loop {
        match Memory::new(cuda, piece) {
            Ok(memory) => {
                cuda.copy_in(memory.address, &marked(held.len()))?;
                held.push(memory);
            }
            Err(error) => break error,
        }
    };
    if refused.code != OUT_OF_MEMORY {
        return Err(refused.to_string());
    }
    let mut read = vec![0; 4096];
    for (number, memory) in held.iter().enumerate() {
        cuda.copy_out(&mut read, memory.address)?;
        same(&read, &marked(number)).map_err(|why| format!("piece {number}: {why}"))?;
    }
    let (count, mib) = (held.len(), held.len() * piece / MIB);
    println!("holds {count} pieces, {mib} MiB; the next one: {refused}");
    Ok(())
}

/// Fills the GPU before each of the commands for the shell. The words are a piece's size in MiB,
/// and the commands.
pub(crate) fn run(words: &[String]) -> Result<(), String> {
    let Some((piece, commands)) = words.split_first() else {
        return Err("--fill wants a size and commands".into());
    };
    let piece: usize = piece.parse().map_err(|error| format!("{piece}: {error}"))?;
    let cuda = Cuda::load()?;
    cuda.init(0)?;
    let context = Context::new(&cuda, 0)?;
    let mut held = Vec::new();
    for command in commands {
        fill(&cuda, piece * MIB, &mut held)?;
        shell(command)?;
    }
    held.into_iter().try_for_each(Memory::free)?;
    Ok(context.end()?)
}
