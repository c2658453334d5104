// SPDX-License-Identifier: GPL-2.0
//! Memory: what an allocation costs and gives back, and that copies have the right bytes.

use crate::{
    api::{Cuda, Rows, RowsCopy, INVALID_VALUE, OUT_OF_MEMORY},
    device::{pattern, same, Memory, Pinned, Stream},
    verdict::{ensure, Verdict},
};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Free and total bytes, as libcuda says them.
fn info(cuda: &Cuda) -> Result<(usize, usize), String> {
    let (mut free, mut total) = (0, 0);
    cuda.memory_info(&mut free, &mut total)?;
    ensure(free <= total, || format!("{free} bytes free of {total}"))?;
    Ok((free, total))
}

/// Allocated memory is missing from free memory, can be found by an address inside it, and comes
/// back.
pub(super) fn allocations(cuda: &Cuda, _: i32) -> Verdict {
    // libcuda keeps what small allocations left: only a large one shows in the counts.
    const LARGE: usize = 64 * MIB;
    let (before, _) = info(cuda)?;
    for bytes in [1, 511, 4 * KIB, 64 * KIB, MIB, 2 * MIB + 1] {
        Memory::new(cuda, bytes)?.free()?;
    }
    let large = Memory::new(cuda, LARGE)?;
    let (during, _) = info(cuda)?;
    ensure(during + LARGE <= before, || {
        format!("{before} bytes free, then {during} with {LARGE} allocated")
    })?;
    let (mut base, mut bytes) = (0, 0);
    cuda.memory_range(&mut base, &mut bytes, large.address + 12345)?;
    ensure((base, bytes) == (large.address, LARGE), || {
        format!("the range is {bytes} bytes at {base:#x}")
    })?;
    large.free()?;
    let (after, _) = info(cuda)?;
    ensure(after >= during + LARGE, || {
        format!("{during} bytes free, then {after} when {LARGE} were freed")
    })?;
    for wrong in [
        cuda.memory_free(0x1234_5000),
        cuda.memory_allocate(&mut 0, 0),
    ] {
        ensure(matches!(wrong, Err(e) if e.code == INVALID_VALUE), || {
            format!("nonsense is answered {wrong:?}")
        })?;
    }
    Ok(())
}

/// Writes a pattern into GPU memory and reads it back.
fn there_and_back(cuda: &Cuda, bytes: usize) -> Verdict {
    let memory = Memory::new(cuda, bytes)?;
    let written = pattern(bytes, bytes as u8);
    cuda.copy_in(memory.address, &written)?;
    let mut read = vec![0; bytes];
    cuda.copy_out(&mut read, memory.address)?;
    same(&read, &written)?;
    Ok(memory.free()?)
}

/// Copies that the copy engine makes.
pub(super) fn copies(cuda: &Cuda, _: i32) -> Verdict {
    for bytes in [128 * KIB, MIB, 3 * MIB + 12345] {
        there_and_back(cuda, bytes).map_err(|why| format!("{bytes} bytes: {why}"))?;
    }
    Ok(())
}

/// Copies so small that libcuda puts the bytes into the commands.
pub(super) fn small_copies(cuda: &Cuda, _: i32) -> Verdict {
    for bytes in [1, 3, 4, 100, 1000, 4096, 16 * KIB, 65_535] {
        there_and_back(cuda, bytes).map_err(|why| format!("{bytes} bytes: {why}"))?;
    }
    Ok(())
}

/// Rows of a picture, packed on the host and with gaps on the GPU.
pub(super) fn rows(cuda: &Cuda, _: i32) -> Verdict {
    const WIDTH: usize = 1000;
    const HEIGHT: usize = 300;
    const HOST: i32 = 1;
    const DEVICE: i32 = 2;
    let (mut address, mut pitch) = (0, 0);
    cuda.memory_pitch(&mut address, &mut pitch, WIDTH, HEIGHT, 16)?;
    ensure(pitch >= WIDTH, || format!("the pitch is {pitch}"))?;
    let written = pattern(WIDTH * HEIGHT, 7);
    let mut read = vec![0u8; WIDTH * HEIGHT];
    let gpu = Rows {
        kind: DEVICE,
        device: address,
        pitch,
        ..Rows::default()
    };
    let host = |pointer| Rows {
        kind: HOST,
        host: pointer,
        pitch: WIDTH,
        ..Rows::default()
    };
    let copy = |from, to| RowsCopy {
        from,
        to,
        width: WIDTH,
        height: HEIGHT,
    };
    cuda.copy_rows(&copy(host(written.as_ptr() as usize), gpu))?;
    cuda.copy_rows(&copy(gpu, host(read.as_mut_ptr() as usize)))?;
    same(&read, &written)?;
    Ok(cuda.memory_free(address)?)
}

/// Copies in a stream, from pinned memory, of many sizes at once.
pub(super) fn async_copies(cuda: &Cuda, _: i32) -> Verdict {
    const SIZE: usize = 2 * MIB;
    const PIECE: usize = 128 * KIB;
    let stream = Stream::new(cuda)?;
    let memory = Memory::new(cuda, SIZE)?;
    let (mut from, mut to) = (Pinned::new(cuda, SIZE)?, Pinned::new(cuda, SIZE)?);
    let mut mapped = 0;
    cuda.host_address(&mut mapped, from.address(), 0)?;
    ensure(mapped == from.address() as u64, || {
        format!("the GPU has pinned memory at {mapped:#x}")
    })?;
    from.bytes().copy_from_slice(&pattern(SIZE, 3));
    to.bytes().fill(0);
    for at in (0..SIZE).step_by(PIECE) {
        cuda.copy_in_async(
            memory.address + at as u64,
            from.address() + at,
            PIECE,
            stream.handle,
        )?;
    }
    cuda.copy_out_async(to.address(), memory.address, SIZE, stream.handle)?;
    stream.wait()?;
    same(to.bytes(), from.bytes())
}

/// Copies from one place of the GPU's memory to another.
pub(super) fn device_copies(cuda: &Cuda, _: i32) -> Verdict {
    for bytes in [4 * KIB, MIB + 100] {
        let (from, to) = (Memory::new(cuda, bytes)?, Memory::new(cuda, bytes)?);
        let written = pattern(bytes, 11);
        cuda.copy_in(from.address, &written)?;
        cuda.copy_within(to.address, from.address, bytes)?;
        let mut read = vec![0; bytes];
        cuda.copy_out(&mut read, to.address)?;
        same(&read, &written).map_err(|why| format!("{bytes} bytes: {why}"))?;
    }
    Ok(())
}

/// Memory that is filled with a byte and a word.
pub(super) fn set(cuda: &Cuda, _: i32) -> Verdict {
    const SIZE: usize = MIB;
    let memory = Memory::new(cuda, SIZE)?;
    let mut read = vec![0; SIZE];
    cuda.set_bytes(memory.address, 0x5a, SIZE)?;
    cuda.context_synchronize()?;
    cuda.copy_out(&mut read, memory.address)?;
    same(&read, &vec![0x5a; SIZE])?;
    cuda.set_words(memory.address, 0x0403_0201, SIZE / 4)?;
    cuda.context_synchronize()?;
    cuda.copy_out(&mut read, memory.address)?;
    same(&read, &[1, 2, 3, 4].repeat(SIZE / 4))
}

/// Managed memory: written by the CPU, moved to the GPU and back, read by both.
pub(super) fn managed(cuda: &Cuda, device: i32) -> Verdict {
    const SIZE: usize = 4 * MIB;
    /// `CU_MEM_ADVISE_SET_PREFERRED_LOCATION`.
    const PREFER: i32 = 3;
    /// `CU_DEVICE_CPU`.
    const CPU: i32 = -1;
    let stream = Stream::new(cuda)?;
    let mut memory = Memory::managed(cuda, SIZE)?;
    let written = pattern(SIZE, 17);
    memory.seen_by_cpu().copy_from_slice(&written);
    cuda.managed_advise(memory.address, SIZE, PREFER, device)?;
    cuda.managed_prefetch(memory.address, SIZE, device, stream.handle)?;
    stream.wait()?;
    let mut read = vec![0; SIZE];
    cuda.copy_out(&mut read, memory.address)?;
    same(&read, &written).map_err(|why| format!("copied from the GPU: {why}"))?;
    // The CPU takes them back, a page here and there first.
    let seen = memory.seen_by_cpu();
    for at in (0..SIZE).step_by(512 * KIB) {
        ensure(seen[at] == written[at], || {
            format!("the CPU sees {:#x} at {at}", seen[at])
        })?;
        seen[at] ^= 0xff;
    }
    cuda.managed_prefetch(memory.address, SIZE, CPU, stream.handle)?;
    stream.wait()?;
    let mut expected = written;
    expected
        .iter_mut()
        .step_by(512 * KIB)
        .for_each(|byte| *byte ^= 0xff);
    same(memory.seen_by_cpu(), &expected).map_err(|why| format!("seen by the CPU: {why}"))?;
    Ok(memory.free()?)
}

/// Memory runs out with the error that says so, and a program that frees some can go on.
pub(super) fn out_of_memory(cuda: &Cuda, _: i32) -> Verdict {
    /// Pieces that the free memory is divided into.
    const PIECES: usize = 10;
    let (free, total) = info(cuda)?;
    let piece = (free / PIECES).next_multiple_of(2 * MIB);
    let mut held = Vec::new();
    let refused = loop {
        match Memory::new(cuda, piece) {
            Ok(memory) => held.push(memory),
            Err(error) => break error,
        }
        ensure(held.len() * piece <= total, || {
            format!("{} pieces of {piece} in {total}", held.len())
        })?;
    };
    ensure(refused.code == OUT_OF_MEMORY, || format!("{refused}"))?;
    ensure(held.len() >= PIECES - 2, || {
        format!("only {} pieces of {piece} with {free} free", held.len())
    })?;
    // It goes on: with what it has, and with what it frees.
    there_and_back(cuda, 256 * KIB).map_err(|why| format!("after the refusal: {why}"))?;
    held.pop().map_or(Ok(()), Memory::free)?;
    held.push(Memory::new(cuda, piece)?);
    held.into_iter().try_for_each(Memory::free)?;
    let (after, _) = info(cuda)?;
    ensure(after + 64 * MIB >= free, || {
        format!("{free} bytes were free before, {after} after")
    })?;
    there_and_back(cuda, MIB)
}
