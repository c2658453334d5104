// SPDX-License-Identifier: GPL-2.0
//! The device, contexts, and what happens in streams: order, events, host functions, graphs,
//! launches.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{
    api::{text, Block, BlockCopy, Cuda, CudaError, HostNode, Launch, NOT_READY},
    device::{pattern, same, Context, Event, Memory, Pinned, Stream},
    verdict::{ensure, Verdict},
};

const MIB: usize = 1 << 20;

/// The device says who it is, and is found again by its bus address.
pub(super) fn device(cuda: &Cuda, device: i32) -> Verdict {
    /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR`, `..._MULTIPROCESSOR_COUNT`.
    const MAJOR: i32 = 75;
    const MULTIPROCESSORS: i32 = 16;
    let (mut version, mut count, mut found) = (0, 0, -1);
    cuda.driver_version(&mut version)?;
    ensure(version >= 11000, || {
        format!("libcuda's version is {version}")
    })?;
    cuda.device_count(&mut count)?;
    ensure(device < count, || format!("there are {count} devices"))?;
    cuda.device_get(&mut found, device)?;
    let (mut name, mut bus) = ([0; 64], [0; 64]);
    cuda.device_name(&mut name, 64, found)?;
    ensure(text(&name).starts_with("NVIDIA"), || {
        format!("its name is {}", text(&name))
    })?;
    cuda.device_bus_id(&mut bus, 64, found)?;
    let mut again = -1;
    cuda.device_by_bus_id(&mut again, &bus)?;
    ensure(again == found, || {
        format!("{} is device {again}, not {found}", text(&bus))
    })?;
    let mut uuid = [0; 16];
    cuda.device_uuid(&mut uuid, found)?;
    ensure(uuid != [0; 16], || "it has no UUID".into())?;
    let (mut major, mut processors, mut total) = (0, 0, 0);
    cuda.device_attribute(&mut major, MAJOR, found)?;
    cuda.device_attribute(&mut processors, MULTIPROCESSORS, found)?;
    cuda.device_total(&mut total, found)?;
    ensure(major >= 5 && processors > 0 && total > 0, || {
        format!("compute capability {major}, {processors} multiprocessors, {total} bytes")
    })
}

/// Contexts are made, are current in turn, and end; what one allocated ends with it.
pub(super) fn contexts(cuda: &Cuda, device: i32) -> Verdict {
    for turn in 0..3 {
        let context = Context::new(cuda, device)?;
        let (mut version, mut on) = (0, -1);
        cuda.context_api(context.handle(), &mut version)?;
        cuda.context_device(&mut on)?;
        ensure(on == device && version >= 3010, || {
            format!("turn {turn}: device {on}, version {version}")
        })?;
        std::mem::forget(Memory::new(cuda, MIB)?);
        context.end()?;
    }
    let first = Context::new(cuda, device)?;
    let second = Context::new(cuda, device)?;
    let mut popped = 0;
    cuda.context_pop(&mut popped)?;
    ensure(popped == second.handle(), || {
        "the newest context is not on top".into()
    })?;
    let mut current = 0;
    cuda.context_current(&mut current)?;
    ensure(current == first.handle(), || {
        "the older context is not current below it".into()
    })?;
    cuda.context_push(second.handle())?;
    cuda.context_synchronize()?;
    second.end()?;
    Ok(first.end()?)
}

/// Contexts that come and go beside this one leave the memory as it was: what the first of them
/// leaves, such as page tables, is used again by the others.
pub(super) fn contexts_leave_nothing(cuda: &Cuda, device: i32) -> Verdict {
    /// Contexts after the first.
    const MORE: usize = 3;
    let free = || -> Result<usize, CudaError> {
        let (mut free, mut total) = (0, 0);
        cuda.memory_info(&mut free, &mut total)?;
        Ok(free)
    };
    let cycle = || -> Result<usize, CudaError> {
        Context::new(cuda, device)?.end()?;
        free()
    };
    let first = cycle()?;
    for turn in 1..=MORE {
        let now = cycle()?;
        ensure(now >= first, || {
            format!("{} bytes are gone after {turn} more", first - now)
        })?;
    }
    Ok(())
}

/// The primary context is one for the whole process, and ends with the last who holds it.
pub(super) fn primary_context(cuda: &Cuda, device: i32) -> Verdict {
    let (mut one, mut other) = (0, 0);
    cuda.primary_retain(&mut one, device)?;
    cuda.primary_retain(&mut other, device)?;
    ensure(one == other, || "there are two of it".into())?;
    cuda.context_set_current(one)?;
    let memory = Memory::new(cuda, MIB)?;
    memory.free()?;
    let state = || -> Result<i32, String> {
        let (mut flags, mut active) = (0, -1);
        cuda.primary_state(device, &mut flags, &mut active)?;
        Ok(active)
    };
    cuda.primary_release(device)?;
    ensure(state()? == 1, || "it ended while somebody held it".into())?;
    cuda.primary_release(device)?;
    ensure(state()? == 0, || "it is still there".into())?;
    Ok(cuda.context_set_current(0)?)
}

static CALLED: AtomicUsize = AtomicUsize::new(0);

/// Counts its calls: the argument is what the counter must have been.
extern "C" fn called(expected: usize) {
    let _ = CALLED.compare_exchange(expected, expected + 1, Ordering::SeqCst, Ordering::SeqCst);
}

/// Streams keep their order, beside each other, and call the host where they are told.
pub(super) fn streams(cuda: &Cuda, _: i32) -> Verdict {
    const COUNT: usize = 8;
    let (mut least, mut greatest) = (0, 0);
    cuda.stream_priorities(&mut least, &mut greatest)?;
    ensure(greatest <= least, || {
        format!("priorities from {least} to {greatest}")
    })?;
    let mut urgent = 0;
    cuda.stream_create_priority(&mut urgent, 1, greatest)?;
    cuda.stream_synchronize(urgent)?;
    cuda.stream_destroy(urgent)?;

    let streams: Vec<Stream<'_>> = (0..COUNT)
        .map(|_| Stream::new(cuda))
        .collect::<Result<_, _>>()?;
    let memory = Memory::new(cuda, COUNT * MIB)?;
    let (mut from, mut to) = (
        Pinned::new(cuda, COUNT * MIB)?,
        Pinned::new(cuda, COUNT * MIB)?,
    );
    from.bytes().copy_from_slice(&pattern(COUNT * MIB, 23));
    for (n, stream) in streams.iter().enumerate() {
        let at = memory.address + (n * MIB) as u64;
        cuda.copy_in_async(at, from.address() + n * MIB, MIB, stream.handle)?;
        cuda.copy_out_async(to.address() + n * MIB, at, MIB, stream.handle)?;
    }
    streams.iter().try_for_each(Stream::wait)?;
    same(to.bytes(), from.bytes())?;

    CALLED.store(0, Ordering::SeqCst);
    for expected in 0..COUNT {
        cuda.launch_host(streams[0].handle, called, expected)?;
    }
    streams[0].wait()?;
    let calls = CALLED.load(Ordering::SeqCst);
    ensure(calls == COUNT, || {
        format!("{calls} of {COUNT} host functions in their order")
    })
}

/// Events say when a stream has come to them, make others wait, and measure time.
pub(super) fn events(cuda: &Cuda, _: i32) -> Verdict {
    const SIZE: usize = 4 * MIB;
    let (first, second) = (Stream::new(cuda)?, Stream::new(cuda)?);
    let (start, end) = (Event::new(cuda, 0)?, Event::new(cuda, 0)?);
    let memory = Memory::new(cuda, SIZE)?;
    let (mut from, mut to) = (Pinned::new(cuda, SIZE)?, Pinned::new(cuda, SIZE)?);
    from.bytes().copy_from_slice(&pattern(SIZE, 29));
    cuda.event_record(start.handle, first.handle)?;
    cuda.copy_in_async(memory.address, from.address(), SIZE, first.handle)?;
    cuda.event_record(end.handle, first.handle)?;
    // The second stream reads what the first has written, and must wait for it.
    cuda.stream_wait_event(second.handle, end.handle, 0)?;
    cuda.copy_out_async(to.address(), memory.address, SIZE, second.handle)?;
    second.wait()?;
    same(to.bytes(), from.bytes())?;
    cuda.event_synchronize(end.handle)?;
    cuda.event_query(end.handle)?;
    let mut milliseconds = -1.0;
    cuda.event_elapsed(&mut milliseconds, start.handle, end.handle)?;
    ensure(milliseconds >= 0.0, || format!("{milliseconds} ms passed"))?;
    match cuda.stream_query(second.handle) {
        Err(error) if error.code != NOT_READY => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// A graph of copies and a host function runs as often as it is launched.
pub(super) fn graph(cuda: &Cuda, _: i32) -> Verdict {
    const SIZE: usize = MIB;
    const LAUNCHES: usize = 3;
    let mut context = 0;
    cuda.context_current(&mut context)?;
    let stream = Stream::new(cuda)?;
    let memory = Memory::new(cuda, SIZE)?;
    let (mut from, mut to) = (Pinned::new(cuda, SIZE)?, Pinned::new(cuda, SIZE)?);
    from.bytes().copy_from_slice(&pattern(SIZE, 31));
    let gpu = Block {
        kind: 2,
        device: memory.address,
        pitch: SIZE,
        rows: 1,
        ..Block::default()
    };
    let host = |pointer| Block {
        kind: 1,
        host: pointer,
        pitch: SIZE,
        rows: 1,
        ..Block::default()
    };
    let extent = [SIZE, 1, 1];
    let copy_in = BlockCopy {
        from: host(from.address()),
        to: gpu,
        extent,
    };
    let copy_out = BlockCopy {
        from: gpu,
        to: host(to.address()),
        extent,
    };
    let (mut graph, mut first, mut second, mut third) = (0, 0, 0, 0);
    cuda.graph_create(&mut graph, 0)?;
    cuda.graph_add_copy(&mut first, graph, &0, 0, &copy_in, context)?;
    cuda.graph_add_copy(&mut second, graph, &first, 1, &copy_out, context)?;
    CALLED.store(7, Ordering::SeqCst);
    cuda.graph_add_host(
        &mut third,
        graph,
        &second,
        1,
        &HostNode {
            function: called,
            argument: 7,
        },
    )?;
    let mut nodes = 0;
    cuda.graph_nodes(graph, 0, &mut nodes)?;
    ensure(nodes == 3, || format!("{nodes} nodes"))?;
    let mut instance = 0;
    cuda.graph_instantiate(&mut instance, graph, 0)?;
    cuda.graph_upload(instance, stream.handle)?;
    for launch in 0..LAUNCHES {
        CALLED.store(7, Ordering::SeqCst);
        to.bytes().fill(0);
        cuda.graph_launch(instance, stream.handle)?;
        stream.wait()?;
        same(to.bytes(), from.bytes()).map_err(|why| format!("launch {launch}: {why}"))?;
        ensure(CALLED.load(Ordering::SeqCst) == 8, || {
            format!("launch {launch}: the host was not called")
        })?;
    }
    cuda.graph_instance_destroy(instance)?;
    Ok(cuda.graph_destroy(graph)?)
}

/// A kernel of a module is launched, and ends. What it computed is not looked at: a GPU that is
/// emulated without multiprocessors computes nothing.
pub(super) fn launch(cuda: &Cuda, _: i32) -> Verdict {
    /// Stores its second argument where its first one says.
    const KERNEL: &str = "\
.version 7.0
.target sm_50
.address_size 64
.visible .entry store(.param .u64 to, .param .u32 value)
{
	.reg .b64 %a;
	.reg .b32 %v;
	ld.param.u64 %a, [to];
	ld.param.u32 %v, [value];
	st.global.u32 [%a], %v;
	ret;
}
\0";
    let (mut module, mut function) = (0, 0);
    cuda.module_load(&mut module, KERNEL.as_ptr() as usize)?;
    cuda.module_function(&mut function, module, c"store".as_ptr() as usize)?;
    let memory = Memory::new(cuda, 4096)?;
    let (to, value) = (memory.address, 0x1234_5678u32);
    let parameters = [&raw const to as usize, &raw const value as usize];
    let stream = Stream::new(cuda)?;
    let (grid, block) = ([1; 3], [1; 3]);
    let once = Launch {
        grid,
        block,
        shared: 0,
        stream: stream.handle,
        attributes: 0,
        count: 0,
    };
    for _ in 0..5 {
        cuda.launch(&once, function, &parameters, 0)?;
    }
    stream.wait()?;
    Ok(cuda.module_unload(module)?)
}
