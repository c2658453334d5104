// SPDX-License-Identifier: GPL-2.0
//! Two tenants: neither reaches the other's objects.

use super::mappings::{map_doorbell_in, unmap, DOORBELL};
use crate::{
    bytes::{put_u32, u32_at},
    guest::{
        instance::Instance,
        rm,
        tools::{at, device_instance, equal, holds, sys, tests, Verdict, GIB, GPU, MIB},
    },
    standin::{is_in_reach, number as number_of, read},
    sys as os,
};

tests! {
    "isolation: another tenant's client cannot be used" => foreign_client;
    "isolation: another tenant's memory cannot be copied" => foreign_memory;
    "isolation: a limit is not another's" => separate_limits;
    "isolation: classes outside the tables are refused" => classes;
    "isolation: privileged controls are refused" => controls;
    "isolation: root with all capabilities is no administrator" => administrator;
}

fn two() -> Result<(Instance, Instance), String> {
    Ok((Instance::new("one", GIB)?, Instance::new("two", GIB)?))
}

fn foreign_client() -> Verdict {
    let (one, two) = two()?;
    let a = one.client()?;
    let b = two.client()?;
    let mut params = rm::memory_params(a.handle, 2 * MIB);
    let class = rm::VIDEO_MEMORY;
    let alloc = rm::alloc(
        b.ctl,
        a.handle,
        rm::DEVICE_HANDLE,
        0x5C00_0010,
        class,
        &mut params,
    );
    holds("alloc works", alloc.is_err())?;
    holds(
        "free works",
        rm::free(b.ctl, a.handle, rm::SUBDEVICE_HANDLE).is_err(),
    )?;
    let control = rm::control(b.ctl, a.handle, a.handle, 0x0101, &mut [0; 40]);
    holds("control works", control.is_err())?;
    // A GSS legacy control, for which the driver asks nobody who the caller is.
    let gss = rm::control(
        b.ctl,
        a.handle,
        rm::SUBDEVICE_HANDLE,
        0x2080_8159,
        &mut [0; 332],
    );
    holds("a GSS control works", gss.is_err())?;
    let mut device = [0; 56];
    put_u32(&mut device, 0, device_instance(&one.control, GPU)?);
    put_u32(&mut device, 4, a.handle);
    let share = b.alloc(b.handle, 0x5C00_0020, rm::DEVICE, &mut device);
    holds(
        "a device that shares the other's address space works",
        share.is_err(),
    )?;
    at("a works on", a.memory(0x5C00_0010, 2 * MIB))?;
    a.close();
    b.close();
    Ok(())
}

fn foreign_memory() -> Verdict {
    let (one, two) = two()?;
    let a = one.client()?;
    let b = two.client()?;
    at("memory", a.memory(0x5C00_0010, 2 * MIB))?;
    let source = (a.handle, 0x5C00_0010);
    let copy = rm::dup(b.ctl, b.handle, rm::DEVICE_HANDLE, 0x5C00_0011, source);
    holds("dup works", copy.is_err())?;
    equal("charged", &two.used()?, &0)?;
    a.close();
    b.close();
    Ok(())
}

fn separate_limits() -> Verdict {
    let (one, two) = two()?;
    let a = one.client()?;
    let b = two.client()?;
    at("a", a.memory(0x5C00_0010, GIB))?;
    at("b", b.memory(0x5C00_0010, GIB))?;
    holds("a gets more", a.memory(0x5C00_0011, 2 * MIB).is_err())?;
    equal("b", &two.used()?, &GIB)?;
    a.close();
    equal("b", &two.used()?, &GIB)?;
    b.close();
    Ok(())
}

fn classes() -> Verdict {
    let one = Instance::new("classes", GIB)?;
    let client = one.client()?;
    // Register window, all of video memory, FLA, exports, a number that means nothing.
    for class in [0x3F, 0xC2, 0xF3, 0xE0, 0x90CE, 0xABCD] {
        let made = client.alloc(rm::DEVICE_HANDLE, 0x5C00_0010, class, &mut [0; 256]);
        holds(&format!("class {class:#x} is made"), made.is_err())?;
    }
    holds("the refusals are not counted", one.get()?.calls_refused > 0)?;
    client.close();
    Ok(())
}

/// Whether the driver makes a privileged channel for this process, which is root.
fn is_administrator(folder: &str, number: u32) -> Result<bool, String> {
    const GROUP: u32 = 0x5C00_0010;
    /// `flags` of `NV_CHANNEL_ALLOC_PARAMS`, and `NVOS04_FLAGS_PRIVILEGED_CHANNEL` in them.
    const FLAGS: usize = 20;
    const PRIVILEGED: u32 = 1 << 5;
    let client = at("client", rm::Client::open(folder, GPU, number))?;
    at("group", client.channel_group(GROUP, rm::COMPUTE))?;
    let mut channel = at("parameters", client.channel_params())?;
    at(
        "channel",
        client.alloc(GROUP, GROUP + 1, rm::CHANNEL, &mut channel),
    )?;
    client.close();
    Ok(u32_at(&channel, FLAGS) & PRIVILEGED != 0)
}

/// Whether the stand-in takes this process, which is root, for an administrator in `mmap`. The real
/// driver asks nobody's rights there.
fn maps_as_administrator(folder: &str, number: u32) -> Result<bool, String> {
    let maps = || Ok::<_, String>(number_of(&read("settings")?, "administrators_maps"));
    let client = at("client", rm::Client::open(folder, GPU, number))?;
    let before = maps()?;
    let address = map_doorbell_in(folder, &client)?;
    let after = maps()?;
    unmap(address, DOORBELL)?;
    client.close();
    Ok(after != before)
}

fn administrator() -> Verdict {
    let one = Instance::new("administrator", GIB)?;
    let number = device_instance(&one.control, GPU)?;
    equal("directly", &is_administrator("/dev", number)?, &true)?;
    let through = is_administrator(&one.folder(), number)?;
    equal("through an instance", &through, &false)?;
    if !is_in_reach() {
        return Ok(());
    }
    let directly = maps_as_administrator("/dev", number)?;
    equal("mmap directly", &directly, &true)?;
    let through = maps_as_administrator(&one.folder(), number)?;
    equal("mmap through an instance", &through, &false)
}

fn controls() -> Verdict {
    let one = Instance::new("controls", GIB)?;
    let client = one.client()?;
    // FIFO_DISABLE_CHANNELS, which stops any tenant's channels.
    let stop = client.control(rm::SUBDEVICE_HANDLE, 0x2080_110B, &mut [0; 536]);
    holds("FIFO_DISABLE_CHANNELS works", stop.is_err())?;
    // ACCESS_REGISTRY reads and writes the driver's settings.
    let mut access = [0; 56];
    put_u32(&mut access, 0, client.handle);
    let settings = os::ioctl(client.ctl, 0xC038_464D, &mut access);
    let worked = settings.is_ok() && u32_at(&access, 48) == 0;
    holds("ACCESS_REGISTRY works", !worked)?;
    client.close();
    sys("get", one.control.get("controls", GPU)).map(drop)
}
