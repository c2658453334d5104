// SPDX-License-Identifier: GPL-2.0
//! A group whose kernels are not preempted keeps the GPU until its kernel ends, whatever is called,
//! as was measured (docs/measurements/2026-11-23-latency.md); another one leaves it at once.

use gpu_model::{gpu::Gpu, Nanos, MS};

const LONG: Nanos = 800 * MS;
const SHORT: Nanos = MS;
const SLICE: Nanos = 2 * MS;

/// When a neighbour's short kernel ends that came 30 ms into a long one, if `call` is made then.
fn neighbour(waits: bool, call: impl Fn(&mut Gpu, u32, u32)) -> Nanos {
    let mut gpu = Gpu::new();
    let (long, short) = (gpu.add_group(SLICE), gpu.add_group(SLICE));
    let (holder, neighbour) = (gpu.add_channel(long), gpu.add_channel(short));
    gpu.set_waits(long, waits);
    assert!(gpu.submit(holder, LONG));
    assert_eq!(gpu.advance(30 * MS), None);
    assert!(gpu.submit(neighbour, SHORT));
    call(&mut gpu, long, holder);
    loop {
        if gpu.advance(10 * LONG) == Some(neighbour) {
            return gpu.now();
        }
    }
}

#[test]
fn waiting_kernel_is_not_preempted() {
    let calls: [fn(&mut Gpu, u32, u32); 4] = [
        |_, _, _| {},
        |gpu, _, channel| gpu.switch(channel, true),
        |gpu, group, _| gpu.preempt(group),
        |gpu, group, _| gpu.set_timeslice(group, 0),
    ];
    for call in calls {
        assert!(neighbour(true, call) > LONG);
        assert!(neighbour(false, call) < 40 * MS);
    }
}

#[test]
fn mode_of_a_running_kernel_can_change() {
    let ended = neighbour(true, |gpu, group, channel| {
        gpu.switch(channel, true);
        gpu.set_waits(group, false);
    });
    assert!(ended < 40 * MS);
}
