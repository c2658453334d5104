// SPDX-License-Identifier: GPL-2.0
//! Channels: how many there may be, and what they are charged.

use cgpu_uapi::{capability, Cause};

use crate::{
    bytes::put_u32,
    guest::{
        instance::Instance,
        rm::{self, Failure},
        tools::{at, control, equal, holds, sys, Test, Verdict, GIB, GPU, MIB},
        uvm::{self, Space},
    },
    standin,
};

pub(super) const TESTS: &[Test] = &[
    ("channels: the limit changes while in use", live),
    ("channels: limits add up to a runlist", together),
    ("channels: a group is charged for its peak", pools),
    ("channels: what UVM keeps stays charged", kept),
    ("channels: errors cannot go to a freed context", context_dma),
];

const GROUP: u32 = 0x5C00_0100;
const CHANNEL: u32 = 0x5C00_0200;
const SPACE: u32 = 0x5C00_0300;
const COPIES: u32 = 11;
const NO_FREE_FIFOS: u32 = 0x4f;
const REGISTER_CHANNEL: u32 = 27;
const UNREGISTER_CHANNEL: u32 = 28;
const KIB: u64 = 1 << 10;

/// With graphics, programs may make contexts for DMA, and have their errors noted there.
fn context_dma() -> Verdict {
    const NOT_FOUND: u32 = 0x57;
    const MEMORY: u32 = 0x5C00_0400;
    const DMA: u32 = 0x5C00_0401;
    let instance = Instance::new("graphics", 256 * MIB)?;
    let set = control()?.set_capabilities("graphics", GPU, capability::ALL);
    sys("allow graphics", set)?;
    let before = standin::read("settings")?;
    let client = instance.client()?;
    let noting = |handle| {
        let mut params = [0; 368];
        put_u32(&mut params, 0, DMA);
        let made = client.alloc(GROUP, handle, rm::CHANNEL, &mut params);
        status(made.map(drop))
    };
    at("a group", client.channel_group(GROUP, COPIES))?;
    equal("none is there", &noting(CHANNEL), &NOT_FOUND)?;
    at("memory", client.memory(MEMORY, MIB))?;
    at("a context", client.context_dma(MEMORY, DMA))?;
    equal("one is there", &noting(CHANNEL), &0)?;
    at("its channel is freed", client.free(CHANNEL))?;
    at("its memory is freed", client.free(MEMORY))?;
    equal("it is gone with its memory", &noting(CHANNEL), &NOT_FOUND)?;
    at("memory again", client.memory(MEMORY, MIB))?;
    at("under the same name", client.context_dma(MEMORY, DMA))?;
    at("freed by itself", client.free(DMA))?;
    equal("it is gone", &noting(CHANNEL), &NOT_FOUND)?;
    equal(
        "null pointers",
        &standin::number(&standin::read("settings")?, "null_pointers"),
        &standin::number(&before, "null_pointers"),
    )?;
    client.close();
    Ok(())
}

fn status(result: Result<(), Failure>) -> u32 {
    match result {
        Ok(()) => 0,
        Err(Failure::Status(status)) => status,
        Err(Failure::Errno(_)) => u32::MAX,
    }
}

fn live() -> Verdict {
    let instance = Instance::new("channels", 256 * MIB)?;
    equal("the default", &instance.get()?.channel_limit, &127)?;
    let control = control()?;
    let set = |limit, flags| control.set_channels(instance.name, GPU, limit, flags);
    sys("set", set(2, 0))?;
    let client = instance.client()?;
    at("first group", client.channel_group(GROUP, COPIES))?;
    at("second group", client.channel_group(GROUP + 1, COPIES))?;
    let third = || status(client.channel_group(GROUP + 2, COPIES));
    equal("a third group", &third(), &NO_FREE_FIFOS)?;
    at("first channel", client.channel(GROUP, CHANNEL))?;
    at("second channel", client.channel(GROUP + 1, CHANNEL + 1))?;
    let refused = status(client.channel(GROUP, CHANNEL + 2));
    equal("a third channel", &refused, &rm::NO_MEMORY)?;
    let seen = instance.get()?;
    let counts = (seen.channels, seen.channels_refused, seen.memory_refused);
    equal("counts", &counts, &(2, 2, 0))?;
    sys("raise", set(3, 0))?;
    equal("with a higher limit", &third(), &0)?;
    sys("lower", set(1, 0))?;
    at("free", client.free(GROUP + 2))?;
    at("free", client.free(GROUP + 1))?;
    equal("at the lower limit", &third(), &NO_FREE_FIFOS)?;
    at("free", client.free(GROUP))?;
    equal("below it", &third(), &0)?;
    client.close();
    equal("at the end", &instance.get()?.channels, &0)
}

fn together() -> Verdict {
    let first = Instance::new("first", 256 * MIB)?;
    let second = Instance::new("second", 256 * MIB)?;
    let control = control()?;
    let set = |instance: &Instance, limit, flags| {
        let set = control.set_channels(instance.name, GPU, limit, flags);
        set.err().and_then(Cause::from_errno)
    };
    equal("all", &set(&first, 2044 - 127, 0), &None)?;
    let above = Some(Cause::ChannelsAboveRunlist);
    equal("one more", &set(&first, 2044 - 126, 0), &above)?;
    equal("with overcommit", &set(&first, 2044, 1), &None)?;
    equal("the other one", &set(&second, 128, 0), &above)?;
    equal("less", &set(&second, 100, 0), &None)?;
    for limit in [0, 2045] {
        let out = Some(Cause::ChannelsOutOfRange);
        equal("no limit", &set(&second, limit, 1), &out)?;
    }
    Ok(())
}

fn pools() -> Verdict {
    let instance = Instance::new("pools", GIB)?;
    let client = instance.client()?;
    let before = standin::heap(GPU)?.pools;
    let agree = |what: &str, kib: u64| -> Verdict {
        let there = standin::heap(GPU)?.pools - before;
        equal(what, &there, &(kib * KIB))?;
        equal(what, &instance.get()?.memory_overhead_bytes, &there)
    };
    at("group", client.channel_group(GROUP, COPIES))?;
    agree("an empty group", 0)?;
    for number in 0..20 {
        at("channel", client.channel(GROUP, CHANNEL + number))?;
    }
    agree("20 channels", 20 * 64)?;
    for number in 0..20 {
        at("free", client.free(CHANNEL + number))?;
    }
    agree("freed", 20 * 64)?;
    at("channel", client.channel(GROUP, CHANNEL))?;
    agree("one again", 20 * 64)?;
    at("free", client.free(GROUP))?;
    agree("without the group", 0)
}

fn kept() -> Verdict {
    let instance = Instance::new("kept", GIB)?;
    let client = instance.client()?;
    let uuid = uvm::uuid(GPU)?;
    let mut params = [0; 56];
    // As CUDA makes it for UVM.
    put_u32(&mut params, 4, 0x48);
    let made = client.alloc(rm::DEVICE_HANDLE, SPACE, 0x90f1, &mut params);
    at("address space", made)?;
    let space = at("UVM", Space::open(&instance.folder()))?;
    at("register", space.register(&uuid, client.handle, SPACE))?;
    let before = standin::heap(GPU)?.overhead;
    let agree = |what: &str| -> Result<u64, String> {
        let there = standin::heap(GPU)?.overhead - before;
        equal(what, &instance.get()?.memory_overhead_bytes, &there)?;
        Ok(there)
    };
    let register = |channel: u32| {
        let mut params = [0; 56];
        params[..16].copy_from_slice(&uuid);
        put_u32(&mut params, 20, client.handle);
        put_u32(&mut params, 24, channel);
        space.call(REGISTER_CHANNEL, &mut params, 48)
    };
    for number in 0..2 {
        at("group", client.channel_group(GROUP + number, rm::COMPUTE))?;
        let made = client.channel(GROUP + number, CHANNEL + number);
        at("channel", made)?;
        at("registered", register(CHANNEL + number))?;
    }
    let there = agree("two contexts")?;
    equal("their cost", &there, &((7744 + 4416 + 2 * 64) * KIB))?;
    for number in 0..2 {
        at("free", client.free(GROUP + number))?;
    }
    equal("freed, and kept", &agree("freed")?, &there)?;
    equal("ids", &instance.get()?.channels, &2)?;
    let mut params = [0; 28];
    params[..16].copy_from_slice(&uuid);
    put_u32(&mut params, 16, client.handle);
    put_u32(&mut params, 20, CHANNEL);
    at(
        "unregistered",
        space.call(UNREGISTER_CHANNEL, &mut params, 24),
    )?;
    let left = agree("one unregistered")?;
    equal("one is left", &left, &((7744 + 64) * KIB))?;
    space.close();
    let left = instance.get()?;
    holds("nothing is left", left.memory_overhead_bytes == 0)?;
    equal("no id", &left.channels, &0)
}
